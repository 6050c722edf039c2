"""Paper 2 in virtual time: hand-drawn schedules, a router that holds real results, the paper's formulas, its claims."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.app.cli import main
from penstock.errors import InputError
from penstock.lab.figures import p2_fig2, p2_fig3, p2_fig5, p2_fig6, p2_fig7, p2_fig9, p2_memory
from penstock.lab.paper2 import Run, Work, isolated, shared
from penstock.lab.paper2_settings import (
    HASH,
    NESTED_LOOP,
    TABLE_1,
    Setting,
    Stream,
    alone,
    arrivals,
    burst_sizes,
    measure,
    work_of,
)
from penstock.plan.schedule import POLICIES, Rings, Scheduler

FEW = 4000

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
    return shared(FIGURE_4, Scheduler(policy, EXAMPLE))


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
    assert (found.results, found.total, found.longest) == (6, 3 * 5 + 3 * (6 - 1), 5)


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

    def held():
        return sum(map(len, buffer)) - len(received[largest])

    for time, outer, ring, number in sorted(events):
        if number < run.work.found[outer, ring]:
            buffer[outer].append((ring, number))
        else:
            scanned[outer] = ring + 1
        if run.release == "held":
            most = max(most, held())
        for query in range(run.work.rings):
            while turn[query] < outers:
                head = turn[query]
                if run.release == "in turn" or scanned[head] > query:
                    mine = [each for each in buffer[head] if each[0] <= query]
                    received[query] += [(time, head, *each) for each in mine[given_out[query][head] :]]
                    given_out[query][head] = len(mine)
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
def runs(draw):
    """Draw work and a scheduler, and run it."""
    work = draw(works())
    queries = tuple(draw(st.lists(st.integers(1, 5), min_size=work.rings, max_size=work.rings)))
    costs = tuple(draw(st.lists(st.sampled_from([1.0, 2.0, 9.0]), min_size=work.rings, max_size=work.rings)))
    run = shared(work, Scheduler(draw(st.sampled_from(POLICIES)), Rings(queries, costs)))
    return replace(run, release=draw(st.sampled_from([run.release, "held", "in turn"])))


@given(runs())
def test_every_query_receives_what_it_would_alone_in_the_same_order(run):
    """Isolated execution: nothing lost, nothing twice, nothing out of order, whatever the policy and the bursts."""
    received, _ = route(run)
    for query, results in enumerate(received):
        by_itself = [which for _, *which in isolated(run.work, query).released(query)]
        assert [which for _, *which in results] == by_itself
        assert len(by_itself) == run.work.found[:, : query + 1].sum()


@given(runs())
def test_release_times_are_those_of_the_router(run):
    received, most = route(run)
    for query, results in enumerate(received):
        listed = run.released(query)
        assert [time for time, *_ in listed] == pytest.approx([time for time, *_ in results])
        summed = run.responses(query)
        late = [time - run.work.at[outer] for time, outer, _, _ in listed]
        assert summed.results == len(listed)
        assert summed.total == pytest.approx(sum(late))
        assert summed.longest == pytest.approx(max(late, default=0.0))
    assert run.output_buffer() == most


@given(runs())
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
    scheduler = Scheduler("lwo", Rings((1,) * work.rings, (1.0,) * work.rings))
    assert shared(work, scheduler).ends == pytest.approx(isolated(work, work.rings - 1).ends)


@given(runs())
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
    scheduler = Scheduler("mqt", Rings(tuple(queries), tuple(map(float, costs))))
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


def test_equation_1_is_what_a_burst_gives_under_lwo():
    assert p2_fig2.simulated("lwo") == pytest.approx([p2_fig2.equation_1(size) for size in p2_fig2.SIZES])
    assert p2_fig2.simulated_alone() == pytest.approx([p2_fig2.equation_alone(s) for s in p2_fig2.SIZES])


def test_equation_2_is_what_a_burst_gives_under_swf():
    expected = [p2_fig3.equation_2(inner, size) for inner, size in pairwise((0, *p2_fig2.SIZES))]
    assert p2_fig2.simulated("swf") == pytest.approx(expected)


def test_bursts_keep_the_rate_and_have_the_mean_asked_for():
    for burst in (1, 2, 3):
        at = arrivals(np.random.default_rng(5), 100.0, burst, 50_000)
        assert at.size == 50_000
        assert at[-1] == pytest.approx(500, abs=1)
        assert 50_000 / len(set(at)) == pytest.approx(burst, rel=0.1)
    assert burst_sizes(np.random.default_rng(5), 5, 50_000).max() > 500  # a heavy tail


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


@pytest.mark.parametrize("figure", [p2_fig2, p2_fig3])
def test_the_analysis_holds(figure):
    assert all(claim.held for claim in figure.reproduce(1).claims)


@pytest.mark.parametrize("method", [HASH, NESTED_LOOP])
def test_mqt_has_the_best_average_on_every_set_of_windows(method):
    assert p2_fig5.wins(p2_fig5.averages(method, 5, FEW)) == len(TABLE_1)


def test_mqt_is_best_for_every_size_of_burst():
    assert p2_fig5.wins(p2_fig7.averages(5, FEW)) == 5


def test_mqt_is_lowest_wherever_the_queries_are():
    assert p2_fig5.wins(p2_fig9.averages(5, FEW)) == 7


def test_lwo_is_flat_and_small_windows_are_nearly_alone_under_the_others():
    for windows in TABLE_1:
        found = p2_fig6.by_policy(Setting(windows, tuples=FEW), 5)
        assert p2_fig6.spread(found["LWO"].mean) < 0.25, windows
        assert p2_fig6.near_isolated(found, windows) < p2_fig6.NEAR, windows


def test_results_and_largest_window_are_the_same_for_all():
    setting = Setting("Uniform", 2, tuples=FEW)
    by_itself = alone(setting, 5)
    for policy in POLICIES:
        assert measure(setting, policy, 5).results == by_itself.results
    assert measure(setting, "lwo", 5).mean[-1] == pytest.approx(by_itself.mean[-1])


def test_input_buffers_are_small_and_lwo_holds_no_results():
    for burst in (1, 5):
        found = {policy: p2_memory.buffers("Small-Large", burst, policy, 5, FEW) for policy in POLICIES}
        assert max(each.input for each in found.values()) < 0.1
        assert found["lwo"].output == 0
        assert found["mqt"].output < found["swf"].output


def test_lab_draws_a_figure_of_paper_2(capsys, tmp_path):
    assert main(["lab", "p2-fig3", "--out", str(tmp_path), "--strict"]) == 0
    assert (tmp_path / "p2-fig3.png").read_bytes().startswith(b"\x89PNG")
    assert "Eq. 2 is what the simulated burst gives: held" in capsys.readouterr().out
