"""Paper 2 in virtual time: hand-drawn schedules, a router that holds real results, the paper's formulas, its claims."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from papers import paper2
from papers.paper2_scans import DRAWN, HELD, IN_TURN, LARGEST, Run, Work, isolated, shared
from papers.paper2_sweep import (
    HASH,
    LOAD,
    NESTED_LOOP,
    TABLE_1,
    Setting,
    Stream,
    Sweep,
    arrivals,
    buffers,
    burst_sizes,
    measure,
    runs,
    skewed,
    work_of,
)
from penstock.errors import InputError
from penstock.schedulers import SCHEDULERS, Rings, make_scheduler

FEW = Sweep(5, samples=1, tuples=4000)

# --- the example of Figure 4 ----------------------------------------------------------------------------
#
# Windows 2, 3 and 6; a arrives at 0, b at 1 while a scans its first ring; one result per unit of time.
#
#         0   1   2   3   4   5   6   7   8   9  10  11  12
#   LWO   |a0     |a1 |a2         |b0     |b1 |b2         |
#   SWF   |a0     |b0     |a1 |b1 |a2         |b2         |
#   MQT   |a0     |a1 |b0     |b1 |a2         |b2         |

EXAMPLE = Rings((1, 1, 1), (2.0, 1.0, 3.0))
FIGURE_4 = Work(np.array([0.0, 1.0]), np.tile([2.0, 1.0, 3.0], (2, 1)), np.tile([2, 1, 3], (2, 1)))


def example(policy):
    return shared(FIGURE_4, make_scheduler(policy, EXAMPLE))


@pytest.mark.parametrize(
    ("policy", "ends"),
    [
        ("lwo", [[2, 3, 6], [8, 9, 12]]),
        ("swf", [[2, 5, 9], [4, 6, 12]]),
        ("mqt", [[2, 3, 9], [5, 6, 12]]),
    ],
)
def test_rings_are_scanned_as_drawn(policy, ends):
    assert example(policy).ends.tolist() == ends


def times(run, query, outer):
    return [time for time, who, _, _ in run.released(query) if who == outer]


def test_lwo_releases_as_it_produces():
    assert times(example("lwo"), 2, 0) == [1, 2, 3, 4, 5, 6]
    assert times(example("lwo"), 2, 1) == [7, 8, 9, 10, 11, 12]


def test_swf_holds_results_until_the_window_is_scanned():
    assert times(example("swf"), 0, 1) == [4, 4]
    assert times(example("swf"), 1, 0) == [5, 5, 5]
    assert times(example("swf"), 1, 1) == [6, 6, 6]
    assert times(example("swf"), 2, 1) == [12] * 6


def test_mqt_releases_what_is_next_in_order_before_the_window_is_scanned():
    """b's first two results reach the query of the second window while b scans, for a is done with it; section 3.3."""
    assert times(example("mqt"), 1, 1) == [4, 5, 6]
    # The query of the largest window has to wait for a.
    assert times(example("mqt"), 2, 1) == [9, 9, 9, 10, 11, 12]


def test_response_is_release_less_arrival():
    found = example("swf").responses(1)
    assert (found.results, found.mean, found.longest) == (6, (3 * 5 + 3 * (6 - 1)) / 6, 5)


def test_a_query_by_itself_scans_only_its_own_window():
    run = isolated(FIGURE_4, 1)
    assert run.ends.tolist() == [[2, 3], [5, 6]]
    assert [time for time, *_ in run.released(1)] == [1, 2, 3, 4, 5, 6]


def test_what_does_not_go_together_is_refused():
    with pytest.raises(InputError, match="order of their arrival"):
        Work(np.array([1.0, 0.0]), np.ones((2, 1)), np.ones((2, 1), np.int64))
    with pytest.raises(InputError, match="arrivals"):
        Work(np.array([1.0]), np.ones((2, 1)), np.ones((2, 1), np.int64))


# --- a router that holds real results -------------------------------------------------------------------


def route(run: Run):
    """Produce results one by one and hold them in buffers; give what each query received, and the most held."""
    events = []
    for outer, rings in enumerate(run.work.found.tolist()):
        for ring, count in enumerate(rings):
            end, cost = float(run.ends[outer, ring]), float(run.work.cost[outer, ring])
            events += [(end - cost * (1 - (n + 1) / count), outer, ring, n) for n in range(count)]
            events.append((end, outer, ring, count))  # scanned
    outers, largest = len(run.work.at), run.work.rings - 1
    buffer = [[] for _ in range(outers)]
    scanned = [0] * outers
    received = [[] for _ in range(run.work.rings)]
    turn, given_out = [0] * run.work.rings, [[0] * outers for _ in range(run.work.rings)]
    most = 0

    def may_leave(query, made):
        """Tell whether what a tuple has found may leave for a query before it has scanned the window."""
        if run.release == LARGEST:
            return query == largest
        if run.release == DRAWN:  # only if all of it was in its turn when it was made
            return all(each[2] for each in made)
        return run.release == IN_TURN

    def held():
        return sum(map(len, buffer)) - len(received[largest])

    for time, outer, ring, number in sorted(events):
        if number < run.work.found[outer, ring]:
            # For each query: is it the tuple's turn while it is made?
            buffer[outer].append((ring, number, [turn[query] == outer for query in range(run.work.rings)]))
        else:
            scanned[outer] = ring + 1
        if run.release == HELD:
            most = max(most, held())
        for query in range(run.work.rings):
            while turn[query] < outers:
                head = turn[query]
                made = [(r, n, turns[query]) for r, n, turns in buffer[head] if r <= query]
                if scanned[head] > query or may_leave(query, made):
                    received[query] += [(time, head, r, n) for r, n, _ in made[given_out[query][head] :]]
                    given_out[query][head] = len(made)
                if scanned[head] <= query:
                    break
                turn[query] += 1
        most = max(most, held())
    return received, most


@st.composite
def works(draw):
    """Draw tuples that arrive in bursts, and what each scans and finds."""
    rings = draw(st.integers(1, 4))
    bursts = draw(st.lists(st.tuples(st.integers(0, 12), st.integers(1, 4)), min_size=1, max_size=5))
    at = np.repeat(np.cumsum([gap for gap, _ in bursts]), [size for _, size in bursts]).astype(float)
    table = st.lists(
        st.lists(st.integers(0, 3), min_size=rings, max_size=rings), min_size=at.size, max_size=at.size
    )
    found = np.array(draw(table))
    return Work(at, 1.0 + np.array(draw(table)), found)


@st.composite
def drawn_runs(draw):
    """Draw work and a scheduler, and run it."""
    work = draw(works())
    queries = tuple(draw(st.lists(st.integers(1, 5), min_size=work.rings, max_size=work.rings)))
    costs = tuple(draw(st.lists(st.sampled_from([1.0, 2.0, 9.0]), min_size=work.rings, max_size=work.rings)))
    run = shared(work, make_scheduler(draw(st.sampled_from(tuple(SCHEDULERS))), Rings(queries, costs)))
    return replace(run, release=draw(st.sampled_from([IN_TURN, HELD, LARGEST, DRAWN])))


@given(drawn_runs())
def test_every_query_receives_what_it_would_alone_in_the_same_order(run):
    """Isolated execution: nothing lost, nothing twice, nothing out of order, whatever the policy and the bursts."""
    received, _ = route(run)
    for query, results in enumerate(received):
        by_itself = [which for _, *which in isolated(run.work, query).released(query)]
        assert [which for _, *which in results] == by_itself
        assert len(by_itself) == run.work.found[:, : query + 1].sum()


@given(drawn_runs())
def test_release_times_are_those_of_the_router(run):
    received, most = route(run)
    for query, results in enumerate(received):
        listed = run.released(query)
        assert [time for time, *_ in listed] == pytest.approx([time for time, *_ in results])
        summed = run.responses(query)
        late = [time - run.work.at[outer] for time, outer, _, _ in listed]
        assert summed.results == len(listed)
        assert summed.mean * len(late) == pytest.approx(sum(late))
        assert summed.longest == pytest.approx(max(late, default=0.0))
    assert run.release == DRAWN or run.output_buffer() == most


@given(drawn_runs())
def test_one_processor_scans_one_ring_at_a_time_and_never_rests_with_work_waiting(run):
    begins = run.ends - run.work.cost
    spans = sorted(zip(begins.ravel().tolist(), run.ends.ravel().tolist(), strict=True))
    assert all(end <= begin for (_, end), (begin, _) in pairwise(spans))
    assert np.all(begins[:, 0] >= run.work.at)
    assert np.all(np.diff(run.ends, axis=1) > 0)  # rings from the inside outwards
    assert np.all(np.diff(run.ends, axis=0) > 0)  # no tuple overtakes another in a ring
    assert run.ends.max() == isolated(run.work, run.work.rings - 1).ends.max()


@given(works())
def test_lwo_is_the_largest_query_by_itself(work):
    scheduler = make_scheduler("lwo", Rings((1,) * work.rings, (1.0,) * work.rings))
    assert shared(work, scheduler).ends == pytest.approx(isolated(work, work.rings - 1).ends)


@given(drawn_runs())
def test_input_buffer_is_the_most_tuples_under_way(run):
    moments = [*run.work.at]
    under_way = [
        sum(at <= moment <= end for at, end in zip(run.work.at, run.ends[:, -1], strict=True))
        for moment in moments
    ]
    assert run.input_buffer() == max(under_way)


@given(works(), st.data())
def test_asking_after_every_ring_changes_nothing_unless_tuples_arrive(work, data):
    """MQT may name several rings at once; scanned to the end or one by one, the order is the same."""
    work = Work(np.zeros_like(work.at), work.cost, work.found)
    queries = data.draw(st.lists(st.integers(1, 5), min_size=work.rings, max_size=work.rings))
    costs = data.draw(st.lists(st.integers(1, 9), min_size=work.rings, max_size=work.rings))
    scheduler = make_scheduler("mqt", Rings(tuple(queries), tuple(map(float, costs))))
    waiting = [list(range(len(work.at))), *[[] for _ in range(work.rings)]]
    ends, clock = np.zeros_like(work.cost), 0.0
    while step := scheduler.choose([bool(each) for each in waiting[:-1]]):
        outer = waiting[step.first].pop(0)
        for ring in range(step.first, step.last):
            clock += work.cost[outer, ring]
            ends[outer, ring] = clock
        waiting[step.last].append(outer)
    assert shared(work, scheduler).ends.tolist() == ends.tolist()


# --- formulas and streams -------------------------------------------------------------------------------


def test_the_examples_of_figures_2_and_3_are_played_as_drawn():
    for policy, steps in paper2.STEPS.items():
        assert paper2.steps(policy) == steps


def test_section_3_2_gives_less_away_than_figure_3_draws():
    """Held until a11 has scanned w3, its first result is not given to Q3 in step 2."""
    held = shared(paper2.EXAMPLE, make_scheduler("swf", Rings((1,) * 3, (1.0,) * 3)))
    assert [time for time, *_ in held.released(2)] == [5, 5, 5, 6, 6, 6]


def test_equation_1_is_what_a_burst_gives_under_lwo():
    equation, sizes = paper2.equation_1, paper2.SIZES
    assert paper2.simulated("lwo") == pytest.approx([equation(size) for size in sizes])
    assert paper2.simulated("alone") == pytest.approx([equation(size, size) for size in sizes])


def test_equation_2_is_what_a_burst_gives_under_swf():
    pairs = pairwise((0, *paper2.SIZES))
    expected = [paper2.equation_2(inner, size) for inner, size in pairs]
    assert paper2.simulated("swf") == pytest.approx(expected)


def test_the_equations_have_the_values_of_the_paper():
    lwo, swf = paper2.equation_1, paper2.equation_2
    assert (round(lwo(100), 4), round(lwo(60_000), 4), round(lwo(100, 100), 4)) == (1.4701, 1.5, 0.0025)
    assert (round(swf(0, 100), 5), round(swf(30_000, 60_000), 3)) == (0.00255, 2.265)


def test_of_one_burst_mqt_gains_what_the_small_windows_take():
    """By Eq. 1 and 2, with m large: LWO 300 m, SWF 243 m, MQT 178 m, all per tuple and second of the windows."""
    under_lwo, under_swf = paper2.one_burst("Small-Large")
    assert under_lwo == pytest.approx(1 - 178 / 300, abs=0.02)
    assert under_swf == pytest.approx(1 - 178 / 243, abs=0.02)
    assert under_lwo < 3 / 7


def test_bursts_keep_the_rate_and_have_the_mean_asked_for():
    for burst in (1, 2, 3):
        at = arrivals(np.random.default_rng(5), 100.0, burst, 50_000)
        assert at.size == 50_000
        assert at[-1] == pytest.approx(500, abs=1)
        assert 50_000 / len(set(at)) == pytest.approx(burst, rel=0.1)
    assert burst_sizes(np.random.default_rng(5), 5, 50_000).max() > 500  # a heavy tail


def test_bursts_make_up_exactly_the_tuples_asked_for():
    assert burst_sizes(np.random.default_rng(1), 1, 3).tolist() == [1, 1, 1]
    assert burst_sizes(np.random.default_rng(1), 5, 1000).sum() == 1000


def test_of_30_queries_24_have_one_window():
    assert skewed(0) == (24, 1, 1, 1, 1, 1, 1)


def test_without_bursts_arrivals_are_exponential():
    gaps = np.diff(arrivals(np.random.default_rng(5), 100.0, 1, 50_000))
    assert gaps.mean() == pytest.approx(0.01, rel=0.01)
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.02)


@given(st.integers(0, 1000))
def test_scans_look_at_and_find_what_nested_loops_do(seed):
    random = np.random.default_rng(seed)
    sides = [Stream(np.sort(random.uniform(-8, 5, 20)), random.integers(0, 3, 20)) for _ in "AB"]
    windows, cuts = (1, 3, 8), (0, 1, 3, 8)
    new = sorted(
        (at, key, side) for side in (0, 1) for at, key in zip(sides[side].at, sides[side].key, strict=True)
    )
    looked, found = [], []
    for at, key, side in new:
        if at < 0:
            continue
        other = sides[1 - side]
        ages = [
            [
                (at - then, other_key == key)
                for then, other_key in zip(other.at, other.key, strict=True)
                if inner < at - then <= outer
            ]
            for inner, outer in pairwise(cuts)
        ]
        looked.append([len(each) for each in ages])
        found.append([sum(same for _, same in each) for each in ages])
    by_hash, by_loop = (work_of(sides, windows, method) for method in (HASH, NESTED_LOOP))
    assert by_hash.found.tolist() == by_loop.found.tolist() == found
    assert by_hash.cost == pytest.approx(np.array(found) * (HASH.look + HASH.produce))
    assert by_loop.cost == pytest.approx(
        np.array(looked) * NESTED_LOOP.look + np.array(found) * NESTED_LOOP.produce
    )


# --- claims ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("figure", [paper2.fig2, paper2.fig3])
def test_the_analysis_holds(figure, reproduced):
    assert all(claim.held for claim in reproduced(figure).claims)


@pytest.mark.parametrize("method", [HASH, NESTED_LOOP])
def test_the_processor_is_as_busy_as_calibrated(method):
    sweep = Sweep(5, samples=1, tuples=20_000)
    works = [next(runs(sweep, Setting("Uniform", method=m), "lwo")).work for m in (method, method.at(0.38))]
    busy, half = (work.cost.sum() / (work.at[-1] - work.at[0]) for work in works)
    assert busy == pytest.approx(LOAD, rel=0.03)
    assert half == pytest.approx(busy / 2)


@pytest.mark.parametrize("method", [HASH, NESTED_LOOP])
def test_mqt_has_the_best_average_on_every_set_of_windows(method):
    assert all(paper2.Averages(FEW, {windows: Setting(windows, method=method) for windows in TABLE_1}).best())


@pytest.mark.parametrize("rule", ["", LARGEST])
def test_mqt_is_best_for_every_size_of_burst_by_both_readings(rule):
    assert all(paper2.Averages(FEW, paper2.BY_BURST, mqt=rule).best())


def test_mqt_is_lowest_wherever_the_queries_are():
    for windows in TABLE_1:
        settings = {str(window): Setting(windows, queries=skewed(window)) for window in range(7)}
        assert all(paper2.Averages(FEW, settings).best()), windows


def test_on_uniform_windows_mqt_takes_swfs_steps():
    """Section 5.1: the schedules are the same.  So are the times, if only the largest window is released early."""
    mqt, swf = (next(runs(FEW, Setting("Uniform", 2), policy)) for policy in ("mqt", "swf"))
    assert np.array_equal(mqt.ends, swf.ends)
    outward = next(runs(FEW, Setting("Uniform", 2, outward=True), "mqt"))
    assert not np.array_equal(outward.ends, swf.ends)
    strict, theirs = (measure(FEW, Setting("Uniform"), *which)[0] for which in (("mqt", LARGEST), ("swf",)))
    assert strict.mean[:-1] == theirs.mean[:-1]
    assert strict.mean[-1] < theirs.mean[-1]
    assert strict.longest[-1] == theirs.longest[-1]


def test_on_small_large_windows_mqt_delays_large_ones_and_so_gains_from_small_ones_only():
    """Rings 4 to 7 are scanned one tuple after the other, as under LWO, and those of new tuples in between."""
    mqt, lwo = (next(runs(FEW, Setting("Small-Large", 3), policy)) for policy in ("mqt", "lwo"))
    assert np.all(mqt.ends[:, 3:] >= lwo.ends[:, 3:] - 1e-9)
    assert mqt.ends[:, :3].mean() < lwo.ends[:, :3].mean()


def test_lwo_is_flat_and_small_windows_are_fast_under_the_others():
    for windows in TABLE_1:
        found = paper2.by_window(FEW, Setting(windows))
        assert paper2.spread(found["LWO"]) < 0.3, windows
        assert max(found["SWF"][0], found["MQT"][0]) < found["LWO"][0] / 4, windows


def test_results_and_largest_window_are_the_same_for_all():
    setting = Setting("Uniform", 2)
    (by_itself,) = measure(FEW, setting, "alone")
    for policy in SCHEDULERS:
        assert measure(FEW, setting, policy)[0].results == by_itself.results
    assert measure(FEW, setting, "lwo")[0].mean[-1] == pytest.approx(by_itself.mean[-1])


def test_input_buffers_are_small_and_lwo_holds_no_results():
    for burst in (1, 5):
        found = {policy: buffers(FEW, Setting("Small-Large", burst), policy) for policy in SCHEDULERS}
        assert max(kept for kept, _ in found.values()) < 0.1
        assert found["lwo"][1] == 0
        assert found["mqt"][1] < found["swf"][1]


@pytest.mark.parametrize("figure", [each for each in paper2.PAPER.figures if each.seconds > 2])
def test_every_figure_is_drawn_on_short_streams_too(figure, reproduced):
    out = reproduced(figure.reproduce, Sweep(3, samples=1, tuples=2000))
    assert out.claims
    assert out.tables
    assert len(out.pictures) == 1


def test_a_figure_shows_the_middle_of_its_streams():
    """Figure 8 on three pairs of streams lies between the lowest and the highest of each by itself."""
    setting, three = Setting("Small-Large", 5), Sweep(3, samples=3, tuples=2000)
    each = [paper2.by_window(Sweep(seed, samples=1, tuples=2000), setting)["MQT"] for seed in (3, 4, 5)]
    assert paper2.by_window(three, setting)["MQT"] == np.median(each, axis=0).tolist()
