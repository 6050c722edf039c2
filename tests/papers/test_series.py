"""What the pictures draw: each series, in each panel, is the one its name says.

A picture is read back from its axes and held against something that does not go through the figure: the cost model, the
paper's formulas, or runs made here one by one.  Two policies swapped, a panel of other settings or a wrong unit fail.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from papers import paper1, paper1_analysis, paper2, paper4
from papers import paper1_sweep as p1
from papers import paper2_sweep as p2
from papers import paper4_sweep as p4
from papers.paper2_scans import isolated, shared
from papers.paper4_operator import run
from penstock.plan.cost import Coefficients
from penstock.plan.order_policy import HOLD, SYNC, Adaptive
from penstock.schedulers import make_scheduler

FIRST = p1.Sweep(5, samples=1, rates=(20, 80))
SECOND = p2.Sweep(3, samples=1, tuples=2000)
FOURTH = p4.Sweep(5, samples=1, seconds=120.0)


def drawn(out):
    """Give what a picture shows: for each panel, by its title without the letter, the series by name."""
    (picture,) = out.pictures
    panels = {}
    for axes in picture.axes:
        title = axes.get_title()
        title = title[4:] if title[:1] == "(" and title[2:4] == ") " else title
        panels[title] = {line.get_label(): [float(y) for y in line.get_ydata()] for line in axes.lines}
    return panels


# --- paper 1: against the cost model, which no run goes through ---------------------------------------------


def test_figure_17_draws_rows_held_in_the_proportions_of_the_cost_model(reproduced):
    """A run begins empty and so holds less than the model says, but all strategies alike."""
    panels = drawn(reproduced(paper1.fig17, FIRST))
    assert list(panels) == [str(each) for each in paper1.MEMORY_PANELS]
    for setting in paper1.MEMORY_PANELS:
        series = panels[str(setting)]
        for n, rate in enumerate(FIRST.rates):
            model = p1.modelled(setting.readers, setting.statistics(rate))
            for name in (p1.UP, p1.DOWN):
                ours = series[p1.OURS][n] / series[name][n]
                assert ours == pytest.approx(model[p1.OURS].rows / model[name].rows, rel=0.08), (
                    setting,
                    name,
                )
        assert series[p1.UP][1] == pytest.approx(4 * series[p1.UP][0], rel=0.1), "four times the rate"


def test_figure_18_draws_service_rates_in_the_proportions_of_the_cost_model(reproduced):
    weigh = Coefficients(overhead=p1.C_SYS)
    panels = drawn(reproduced(paper1.fig18, FIRST))
    assert list(panels) == [str(each) for each in paper1.RATE_PANELS]
    for setting in paper1.RATE_PANELS:
        rate, series, windows = FIRST.rates[-1], panels[str(setting)], p1.TABLE_3[setting.windows]
        wanted = windows[0] + setting.select * (windows[1] + windows[2])
        delivered = p1.RESULT * 2 * rate**2 * setting.join * wanted
        model = p1.modelled(setting.readers, setting.statistics(rate))
        cost = {name: each.cpu(weigh) + delivered for name, each in model.items()}
        for name in (p1.UP, p1.DOWN):
            ours = series[p1.OURS][-1] / series[name][-1]
            assert ours == pytest.approx(cost[name] / cost[p1.OURS], rel=0.08), (setting, name)


def test_figure_19_draws_gains_near_those_of_the_cost_model(reproduced):
    panels = drawn(reproduced(paper1.fig19, FIRST))
    assert len(panels) == len(paper1.CHAIN_PANELS)
    for windows, queries in paper1.CHAIN_PANELS:
        series = panels[f"{windows}, {queries} queries"]
        for n, rate in enumerate(FIRST.rates):
            gained = series["CPU-Opt"][n] / series["Mem-Opt"][n] - 1
            model = paper1.model_gain(windows, queries, rate, p1.C_SYS, p1.RESULT)
            assert gained == pytest.approx(model, abs=0.02 + 0.35 * model), (windows, queries, rate)


def test_figure_11_draws_equation_4(reproduced):
    picture = reproduced(paper1_analysis.fig11).pictures[0]
    for axes, kinds in zip(picture.axes, ((0, 1), (2, 2, 2), (3, 3, 3)), strict=True):
        for kind, surface in zip(kinds, axes.collections, strict=True):
            label = surface.get_label()
            join = float(label.rpartition("= ")[2]) if "=" in label else 0.1
            for ratio, select, z in np.concatenate(surface._segments3d):
                assert z == pytest.approx(
                    100 * paper1_analysis.equation_4(ratio, select, join)[kind], abs=1e-4
                )


# --- paper 2: against the formulas, and runs made one by one -------------------------------------------------


def test_figures_2_and_3_draw_the_formulas_and_the_burst(reproduced):
    sizes, equation = paper2.SIZES, paper2.equation_1
    lwo, alone = [equation(size) for size in sizes], [equation(size, size) for size in sizes]
    swf = [paper2.equation_2(inner, size) for inner, size in pairwise((0, *sizes))]
    (second,) = drawn(reproduced(paper2.fig2)).values()
    (third,) = drawn(reproduced(paper2.fig3)).values()
    expected = {"LWO": lwo, "LWO, simulated": lwo, "isolated": alone, "isolated, simulated": alone}
    assert second == {name: pytest.approx(each) for name, each in expected.items()}
    mqt = third.pop("MQT")
    expected = {"SWF": swf, "SWF, simulated": swf, "LWO": lwo, "isolated": alone}
    assert third == {name: pytest.approx(each) for name, each in expected.items()}
    assert mqt[:5] == pytest.approx(swf[:5], rel=0.2), "small windows as under SWF, released a little earlier"
    assert all(own <= theirs for own, theirs in zip(mqt[:5], swf[:5], strict=True))
    assert sum(mqt) < min(sum(swf), sum(lwo)), "the best average of the three"


def one_run(setting, policy):
    """Run a setting as `paper2_sweep` promises, from its streams; `alone` gives a run for each query."""
    ends, method = p2.TABLE_1[setting.windows], setting.method
    streams = p2.streams(method.rate, setting.burst, ends[-1], SECOND.tuples, SECOND.seed)
    work = p2.work_of(streams, ends, method)
    if policy == "alone":
        return [isolated(work, query) for query in range(7)]
    return [shared(work, make_scheduler(policy, setting.rings()))] * 7


def responses(setting, policy, kind="mean"):
    return [getattr(each.responses(query), kind) for query, each in enumerate(one_run(setting, policy))]


def averages(settings):
    """Average over the queries, by policy and setting."""
    return {
        name: pytest.approx([np.average(responses(each, policy), weights=each.queries) for each in settings])
        for name, policy in (("LWO", "lwo"), ("SWF", "swf"), ("MQT", "mqt"))
    }


def test_figure_5_draws_each_policys_average_by_hash_and_by_nested_loops(reproduced):
    panels = drawn(reproduced(paper2.fig5, SECOND))
    assert panels["hash join"] == averages([p2.Setting(windows) for windows in p2.TABLE_1])
    loops = [p2.Setting(windows, method=p2.NESTED_LOOP) for windows in p2.TABLE_1]
    assert panels["nested loops"] == averages(loops)


@pytest.mark.parametrize("windows", ["Uniform", "Mostly-Small"])
@pytest.mark.parametrize(("title", "kind"), [("average", "mean"), ("longest", "longest")])
def test_figure_6_draws_each_policys_responses_by_window(reproduced, windows, title, kind):
    series = drawn(reproduced(paper2.fig6, SECOND))[f"{title} response, {windows}"]
    policies = {"LWO": "lwo", "SWF": "swf", "MQT": "mqt", "isolated": "alone"}
    assert series == {
        name: pytest.approx(responses(p2.Setting(windows), policy, kind)) for name, policy in policies.items()
    }


def test_figures_7_8_and_9_draw_bursts_windows_and_thirty_queries(reproduced):
    (seventh,) = drawn(reproduced(paper2.fig7, SECOND)).values()
    assert seventh == averages([p2.Setting("Small-Large", burst) for burst in (1, 2, 3, 4, 5)])
    (eighth,) = drawn(reproduced(paper2.fig8, SECOND)).values()
    assert eighth["MQT"] == pytest.approx(responses(p2.Setting("Small-Large", 5), "mqt"))
    assert eighth["SWF"] == pytest.approx(responses(p2.Setting("Small-Large", 5), "swf"))
    (ninth,) = drawn(reproduced(paper2.fig9, SECOND)).values()
    queries = [tuple(24 if each == window else 1 for each in range(7)) for window in range(7)]
    assert ninth == averages([p2.Setting("Small-Large", queries=each) for each in queries])


def test_section_5_4_draws_shares_of_a_join_buffer_of_60_000_tuples(reproduced):
    panels = drawn(reproduced(paper2.memory, SECOND))
    settings = [p2.Setting(each) for each in p2.TABLE_1] + [
        p2.Setting("Small-Large", n) for n in (2, 3, 4, 5)
    ]
    for name, policy in (("LWO", "lwo"), ("SWF", "swf"), ("MQT", "mqt")):
        runs = [one_run(each, policy)[0] for each in settings]
        sizes = [each.input_buffer() / 2 / 60_000 for each in runs]
        assert panels["largest input buffer"][name] == pytest.approx(sizes)
        if name != "LWO":
            sizes = [each.output_buffer() / 60_000 for each in runs]
            assert panels["largest output buffer"][name] == pytest.approx(sizes)


# --- paper 4: against the equations, and runs made one by one ------------------------------------------------


@pytest.mark.parametrize(
    ("figure", "points"),
    [
        (paper4.fig5, [(1.0, 10.0, step) for step in paper4.EVEN_STEPS]),
        (paper4.fig6, [(slow, 1.0, 1e-4) for slow in paper4.EVEN_SLOWS]),
    ],
)
def test_figures_5_and_6_draw_equations_3_5_and_7(reproduced, figure, points):
    times, gained = drawn(reproduced(figure)).values()
    sync = [paper4.equation_3(step, 86_400, slow, fast) for slow, fast, step in points]
    hold = [paper4.equation_5(slow, fast) for slow, fast, _ in points]
    shares = [step * 86_400 * slow * fast for slow, fast, step in points]
    for suffix, within in (("", 1e-9), (", simulated", 1e-3)):
        assert times[f"Sync-Filter{suffix}"] == pytest.approx(sync, rel=within)
        assert times[f"Filter-Order{suffix}"] == pytest.approx(hold, rel=within)
        equation_7 = [share / (1 + share) for share in shares]
        assert gained[f"Filter-Order{suffix}"] == pytest.approx(equation_7, abs=within)


def answered(settings, model):
    """Run each setting under each policy, and give the average responses."""
    policies = {"Sync-Filter": SYNC, "Filter-Order": HOLD, "Adaptive": Adaptive(0.3)}
    found = {name: [] for name in policies}
    for setting in settings:
        (join,) = p4._joins(FOURTH, setting, model)
        assert (join.step, join.window, join.slow_charge) == (setting.step, 60.0, model.slow_charge)
        for name, policy in policies.items():
            found[name].append(float(run(join, policy, model.who).responses().mean()))
    return found


@pytest.mark.parametrize(
    ("absolute", "relative", "settings"),
    [
        (paper4.fig7, paper4.fig8, [p4.Setting(step=step) for step in paper4.STEPS]),
        (paper4.fig9, paper4.fig10, [p4.Setting(slow) for slow in paper4.SLOWS]),
    ],
)
def test_figures_7_to_10_draw_each_policys_responses_by_each_model(reproduced, absolute, relative, settings):
    times, shares = drawn(reproduced(absolute, FOURTH)), drawn(reproduced(relative, FOURTH))
    assert list(times) == list(shares) == [model.title for model in p4.MODELS]
    for model in p4.MODELS:
        expected = answered(settings, model)
        assert times[model.title] == {name: pytest.approx(each) for name, each in expected.items()}
        sync = np.array(expected["Sync-Filter"])
        assert shares[model.title] == {name: pytest.approx(each / sync) for name, each in expected.items()}
