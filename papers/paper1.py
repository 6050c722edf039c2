"""Paper 1, Figures 17 to 19: rows held and service rate of the sharing strategies, and of Mem-Opt and CPU-Opt chains.

The service rate is results delivered per second of running time, at one microsecond a comparison.  One C_sys and one
cost of delivering a result serve Figures 18 and 19 alike; what others would give is in a table beside Figure 18.
"""

from __future__ import annotations

from itertools import chain, product
from math import inf
from statistics import mean
from typing import TYPE_CHECKING

from benchmarks.printing import percent, percents, span
from papers import paper1_sweep as p1
from papers.figure import CALIBRATED, CHECK, Outcome, Paper
from papers.on_spark import fig17_on_spark
from papers.paper1_analysis import fig11, table2
from penstock.plan.cost import Coefficients, saving
from penstock.plan.facts import Independent, Statistics
from penstock.plan.optimize import cpu_opt, mem_opt

if TYPE_CHECKING:
    from collections.abc import Iterator

WEIGH = Coefficients(overhead=p1.C_SYS)
MEMORY_PANELS = (*p1.BY_WINDOWS, *(p1.Setting("Uniform", select, 0.025) for select in (0.2, 0.5, 0.8)))
RATE_PANELS = (*p1.BY_WINDOWS, *(p1.Setting("Uniform", 0.8, join) for join in p1.JOINS))
SETS, QUERIES = ("Uniform", "Mostly-Small", "Small-Large"), (12, 24, 36)
CHAIN_PANELS = (("Uniform", 12), ("Mostly-Small", 12), *(("Small-Large", queries) for queries in QUERIES))
TRIED = ((0.0, 0.0), (2.0, 1.0), (p1.C_SYS, p1.RESULT), (100.0, 20.0))
"""C_sys and cost of a result: as in Eq. 1 to 3, as Figure 18 asks for, ours, as Mostly-Small of Figure 19 asks for."""

SELECTED = (*([""] * (12 - n) + ["σ"] * n for n in (1, 3, 6, 11)), ["", "σ"] * 6)
"""Which of 12 queries have a selection, by their windows: the last few, all but the first, every second."""

CHAINS = ("12 slices", "small merged", "2 slices")  # of the paper, on each of `SETS`
HEADINGS = ("windows", "Sσ", "S⋈", "pull-up", "state-slice", "push-down")
RATE = "stream rate (rows/s)"
NOTE = f"Calibrated: C_sys = {p1.C_SYS:g} and {p1.RESULT:g} comparison per result, in both figures."


def _by_name(points: list[dict[str, float]]) -> dict[str, list[float]]:
    return {name: [each[name] for each in points] for name in points[0]}


def _named(setting: p1.Setting, shown: dict[str, float]) -> tuple[object, ...]:
    return setting.windows, setting.select, setting.join, *(f"{each:,.0f}" for each in shown.values())


def rows_held(sweep: p1.Sweep, setting: p1.Setting, rate: int) -> dict[str, float]:
    """Give the average number of rows in the states, by strategy."""
    return {name: run.cost.rows for name, run in p1.sharing(sweep, setting, rate).items()}


def fig17(sweep: p1.Sweep) -> Outcome:
    """Compare rows held by state-slice, pull-up and push-down; what each panel holds fixed is our choice."""
    out, held = Outcome(), {s: [rows_held(sweep, s, rate) for rate in sweep.rates] for s in p1.SETTINGS}
    least = [min(each, key=lambda name: each[name]) == p1.OURS for each in chain(*held.values())]
    out.every("state-slice holds the least state in every setting, at every rate", least)
    saved = {
        s: [mean(saving(e[p1.OURS], e[rival]) for e in by_rate) for rival in (p1.UP, p1.DOWN)]
        for s, by_rate in held.items()
    }
    up, down = zip(*saved.values(), strict=True)
    number = f"; over pull-up {span(up)}, mean {percent(mean(up))}, push-down {span(down)}, mean {percent(mean(down))}"
    number += f"; over the worse in the panels {span(max(saved[each]) for each in MEMORY_PANELS)}"
    out.every("memory savings range from 20 % to 30 %", (0.2 <= each <= 0.3 for each in (*up, *down)), number)
    joins = [held[p1.Setting("Uniform", 0.5, join)] for join in p1.JOINS]
    same = joins[0] == joins[1] == joins[2]
    out.claim("the join's selectivity does not affect memory", same, "no key is looked at", CHECK)
    rows = [_named(setting, by_rate[-1]) for setting, by_rate in held.items()]
    out.table(f"rows held at {sweep.rates[-1]} rows/s", HEADINGS, rows)
    out.draw({str(each): _by_name(held[each]) for each in MEMORY_PANELS}, sweep.rates, RATE, "rows held")
    return out


def service_rates(
    sweep: p1.Sweep, setting: p1.Setting, rate: int, overhead: float = p1.C_SYS, result: float = p1.RESULT
) -> dict[str, float]:
    """Give the results delivered per second of running time, by strategy."""
    weigh = Coefficients(overhead=overhead)
    return {name: run.service_rate(weigh, result) for name, run in p1.sharing(sweep, setting, rate).items()}


def gain(rates: dict[str, float]) -> float:
    """Give how much more state-slice delivers than the better rival."""
    return rates[p1.OURS] / max(rates[p1.UP], rates[p1.DOWN]) - 1


def bearable_overhead(sweep: p1.Sweep) -> float:
    """Find the largest C_sys with which state-slice is best in every setting at every rate."""
    bound = inf
    for setting, rate, rival in product(p1.SETTINGS, sweep.rates, (p1.UP, p1.DOWN)):
        runs = p1.sharing(sweep, setting, rate)
        ours, theirs = runs[p1.OURS].cost, runs[rival].cost
        if ours.overhead > theirs.overhead:
            bound = min(bound, (theirs.cpu() - ours.cpu()) / (ours.overhead - theirs.overhead))
    return bound


def fig18(sweep: p1.Sweep) -> Outcome:
    """Compare service rates of state-slice, pull-up and push-down."""
    out, runs = Outcome(), [p1.sharing(sweep, *point) for point in product(p1.SETTINGS, sweep.rates)]
    same = [len({run.delivered for run in each.values()}) == 1 for each in runs]
    out.every("every strategy delivers the same results", same, kind=CHECK)
    by_setting = {s: [service_rates(sweep, s, rate) for rate in sweep.rates] for s in p1.SETTINGS}
    gains = {s: [gain(each) for each in rates] for s, rates in by_setting.items()}
    number = f"; in all with C_sys up to {bearable_overhead(sweep):.1f}"
    text = "state-slice has the highest service rate in every setting, at every rate"
    out.every(text, (each > 0 for each in chain(*gains.values())), number)
    grows = [each[-1] > each[0] for each in gains.values()]
    out.every("the improvement grows from the lowest rate to the highest", grows)
    high = [each[-1] for setting, each in gains.items() if setting.join == p1.JOINS[-1]]
    number = f"{span(high)} over the better rival at S⋈ = 0.4 and {sweep.rates[-1]} rows/s"
    out.claim("it reaches 40 % at high S⋈ and rate", 0.35 <= max(high) <= 0.45, number, CALIBRATED)
    rows = [(*_named(s, rates[-1]), percent(gains[s][-1])) for s, rates in by_setting.items()]
    out.table(f"service rate at {sweep.rates[-1]} rows/s", (*HEADINGS, "gain"), rows)
    headings = ("C_sys", "result", *(f"18: {each}" for each in ("best", "up to")), "19: skewed", *CHAINS)
    out.table("Figures 18 and 19 by C_sys and the cost of a result", headings, _calibration(sweep))
    panels = {str(each): _by_name(by_setting[each]) for each in RATE_PANELS}
    out.draw(panels, sweep.rates, RATE, "service rate (results/s)")
    out.note(NOTE)
    return out


def _calibration(sweep: p1.Sweep) -> Iterator[tuple[str, ...]]:
    """Lay out what Figure 18, and by the cost model Figure 19, would give with other costs."""
    for costs in TRIED:
        gains = {(s, r): gain(service_rates(sweep, s, r, *costs)) for s in p1.SETTINGS for r in sweep.rates}
        high = max(each for (s, r), each in gains.items() if s.join == p1.JOINS[-1] and r == sweep.rates[-1])
        skewed = mean(model_gain(w, q, r, *costs) for w, q, r in product(SETS[1:], QUERIES, p1.RATES))
        chosen = [f"{sum(each)} of {len(each)}" for each in as_the_paper_has_them(costs[0])]
        best = f"{sum(each > 0 for each in gains.values())} of {len(gains)}"
        yield *(f"{each:g}" for each in costs), best, percent(high), percent(skewed), *chosen


def model_gain(windows: str, queries: int, rate: int, overhead: float, result: float) -> float:
    """Give what CPU-Opt gains over Mem-Opt by the cost model."""
    readers, statistics = p1.readers_of(p1.table_4(windows, queries)), Statistics(rate, rate, p1.FEW_JOIN)
    delivered = result * sum(2 * rate**2 * p1.FEW_JOIN * each for each in p1.table_4(windows, queries))
    both = (mem_opt(readers), p1.cpu_opt_cuts(windows, queries, rate, overhead))
    mem, cpu = (p1.cut_cost(each, readers, statistics).cpu(Coefficients(overhead=overhead)) for each in both)
    return (mem + delivered) / (cpu + delivered) - 1


def as_the_paper_has_them(overhead: float) -> tuple[list[bool], list[bool], list[bool]]:
    """Tell at which rates the chains of 12 queries are the paper's: `CHAINS`, for Uniform and the others of `SETS`."""
    uniform, small, large = ([p1.ages_of(windows, rate, overhead) for rate in p1.RATES] for windows in SETS)
    merged = [not any(0 < age < 10 for age in ages) for ages in small]
    return [len(ages) == 13 for ages in uniform], merged, [ages == (0, 6, 30) for ages in large]


def chain_rates(sweep: p1.Sweep, windows: str, queries: int, rate: int) -> dict[str, float]:
    """Give the service rate of both chains."""
    runs = p1.chains(sweep, windows, queries, rate)
    return {name: run.service_rate(WEIGH, p1.RESULT) for name, run in runs.items()}


def fig19(sweep: p1.Sweep) -> Outcome:
    """Compare service rates of the CPU-Opt and the Mem-Opt chain."""
    out, keys = Outcome(), list(product(SETS, QUERIES))
    by_key = {key: [chain_rates(sweep, *key, rate) for rate in sweep.rates] for key in keys}
    gains = {key: [each["CPU-Opt"] / each["Mem-Opt"] - 1 for each in rates] for key, rates in by_key.items()}
    least = min(chain(*gains.values()))
    number = f"at least {percent(least)} faster"
    out.claim("CPU-Opt is never slower than Mem-Opt", least > -0.005, number, CHECK)
    whole, small, two = as_the_paper_has_them(p1.C_SYS)
    out.every("on uniform windows CPU-Opt is the Mem-Opt chain", whole, " rates; 7 with C_sys < 0.5")
    out.every("on Mostly-Small windows all small ones are merged", small, " rates; 7 with C_sys = 100")
    slices = [len(p1.ages_of("Small-Large", rate)) - 1 for rate in p1.RATES]
    number = f" rates; {min(slices)} to {max(slices)}; two at 20 rows/s with C_sys from 49 to 83, at 80 from 199 on"
    out.every("on Small-Large windows CPU-Opt has two slices", two, number)
    by_queries = [mean(chain(*(gains[windows, queries] for windows in SETS[1:]))) for queries in QUERIES]
    text, average = "20-30 % better on skewed windows on average", mean(by_queries)
    out.claim(text, 0.2 <= average <= 0.3, percent(average), CALIBRATED)
    by_windows = [mean(gains[windows, 12]) for windows in SETS]
    number = f"12 queries: Uniform, Mostly-Small, Small-Large {percents(by_windows)}"
    out.claim("the more skewed, the larger the gain", min(by_windows[1:]) > by_windows[0], number)
    out.claim("growing with 12, 24 and 36 queries", by_queries == sorted(by_queries), percents(by_queries))
    _memory(out, sweep)
    rows = []
    for key, (n, rate) in product(keys, enumerate(sweep.rates)):
        if rate in {20, 50, 80}:
            shown = [f"{each:,.0f}" for each in by_key[key][n].values()]
            slices_of = len(p1.cpu_opt_cuts(*key, rate).left) - 1
            rows.append((*key, rate, slices_of, *shown, percent(gains[key][n])))
    headings = ("windows", "queries", "rate", "slices", "Mem-Opt", "CPU-Opt", "gain")
    out.table("service rate, results/s", headings, rows)
    panels = {f"{windows}, {n} queries": _by_name(by_key[windows, n]) for windows, n in CHAIN_PANELS}
    out.draw(panels, sweep.rates, RATE, "service rate (results/s)")
    out.note(NOTE)
    return out


def _memory(out: Outcome, sweep: p1.Sweep) -> None:
    """Check what sections 5.2 and 6.2 say of the memory of CPU-Opt chains."""
    both = [p1.chains(sweep, windows, 12, sweep.rates[0]) for windows in SETS]
    same = [abs(run["CPU-Opt"].cost.rows / run["Mem-Opt"].cost.rows - 1) < 1e-9 for run in both]
    out.every("5.2: without selections CPU-Opt holds what Mem-Opt holds", same, " sets of windows")
    extra = []
    for windows, selected, select, rate in product(SETS, SELECTED, p1.SELECTS, (20, 50, 80)):
        statistics = Statistics(rate, rate, p1.FEW_JOIN, Independent({"σ": select}))
        readers = p1.readers_of(p1.table_4(windows, 12), selected)
        cuts = (cpu_opt(readers, statistics, WEIGH).cuts, mem_opt(readers))
        merged, fine = (p1.cut_cost(each, readers, statistics).rows for each in cuts)
        extra.append(merged / fine - 1)
    more = [each for each in extra if each > 1e-9]
    number = f"it does in {len(more)} of {len(extra)} settings, by {percents([max(extra)], 1)} at most"
    out.claim("6.2: with selections it may hold more", more and min(extra) > -1e-9, number)


FIGURES = {table2: 1, fig11: 2, fig17: 30, fig18: 30, fig19: 30}  # about how many seconds each takes
PAPER = Paper(1, p1.Sweep, "", FIGURES, fig17=fig17_on_spark)
