"""Paper 4 in virtual time: its example by hand, a hold buffer with real results, its formulas, its claims."""

from __future__ import annotations

import heapq
from functools import cache
from itertools import pairwise, product
from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from papers import paper4
from papers.paper4 import (
    Point,
    equation_3,
    equation_5,
    equation_8,
    evenly,
    fig5,
    fig6,
    gains,
)
from papers.paper4_operator import EACH, ONE, measured, run
from papers.paper4_sweep import (
    FEW_KEYS,
    FITTED,
    MODELS,
    POLICIES,
    Join,
    Setting,
    Stream,
    Sweep,
    at_random,
    by_policy,
    measure,
    responses,
)
from penstock.errors import InputError
from penstock.plan.order_policy import HOLD, SYNC, Adaptive, gain
from penstock.state.recent import Effort
from tests.kernels.drawn import examples

# --- the example of Figures 1 (C), 3 and 4 ----------------------------------------------------------------
#
# Window 6; letters are keys.  a8 is three units late; a step takes 1/8, and each row meets two or three others.
#
#   arrives   1   2   3   4   5   6   7   8   9  10  11  12  13
#   S             d2      c4      b6                  a8 a12
#   T        a1              a5              b9 c10          e13
#
#   until a8, the trigger stands at 6; with a12 at 10; with e13 at 12


def stream(rows, arrivals=()):
    """Make a stream of rows like "a8"; those that are late have an arrival of their own."""
    ts = np.array([float(row[1:]) for row in rows])
    at = np.array([dict(arrivals).get(row, time) for row, time in zip(rows, ts, strict=True)], float)
    return Stream(ts, at, np.array([ord(row[0]) for row in rows]))


EXAMPLE = Join(
    (stream(["d2", "c4", "b6", "a8", "a12"], {"a8": 11}), stream(["a1", "a5", "b9", "c10", "e13"])),
    6.0,
    0.125,
)
NAMED = ["a1", "d2", "c4", "a5", "b6", "a8", "b9", "c10", "a12", "e13"]


def released(policy):
    return dict(zip(NAMED, run(EXAMPLE, policy).release.tolist(), strict=True))


def test_sync_filter_joins_what_waited_once_the_slow_stream_is_there():
    """a8 meets a5; b9 and c10 meet c4, b6 and a8 when a12 is there, one after the other: Figure 3."""
    found = released(SYNC)
    assert (found["a8"], found["b9"], found["c10"]) == (11.125, 12.375, 12.75)


def test_filter_order_has_joined_them_by_then():
    """b9 and c10 meet c4 and b6 as they come; a8 meets a5, b9 and c10; with a12 all is there: Figure 4."""
    found = released(HOLD)
    assert (found["a8"], found["b9"], found["c10"]) == (11.375, 12, 12)


@pytest.mark.parametrize("policy", [SYNC, HOLD])
def test_the_example_gives_the_three_results_of_the_paper_in_order(policy):
    slow, fast = EXAMPLE.streams
    found = [(float(slow.ts[s]), float(fast.ts[t])) for _, (s, t) in replay(run(EXAMPLE, policy))[0]]
    assert found == [(8, 5), (6, 9), (4, 10)]


def test_in_filter_order_the_hold_buffer_has_both_until_a12_comes():
    done = run(EXAMPLE, HOLD)
    assert done.hold()[0].tolist() == [11.375, 9.25, 10.25]  # found
    assert done.hold()[1].tolist() == [11.375, 12, 12]  # released
    assert done.held().most == 2
    assert done.held().mean == pytest.approx((12 - 9.25 + 12 - 10.25) / 13)
    assert run(EXAMPLE, SYNC).held().most == 0


def test_in_sync_filter_the_input_waits():
    # b9 from 9 and c10 from 10 until a12 comes at 12, and c10 until b9 is joined; a12 and e13 begin when e13 is there.
    assert run(EXAMPLE, SYNC).waiting().most == 2
    assert run(EXAMPLE, HOLD).waiting().mean < 0.1 < run(EXAMPLE, SYNC).waiting().mean


def test_streams_that_go_back_in_time_are_refused():
    with pytest.raises(InputError, match="must increase"):
        Stream(np.array([2.0, 2.0]), np.array([2.0, 3.0]), np.array([1, 1]))
    with pytest.raises(InputError, match="order of their times"):
        Stream(np.array([2.0, 3.0]), np.array([3.0, 2.0]), np.array([1, 1]))


# --- a hold buffer with real results ----------------------------------------------------------------------


def nested_loops(join):
    """List every result that a new row completes: the order of release, then the positions of its rows."""
    sides = [
        [(each.ts[n], number, n, each.key[n], each.at[n] >= 0) for n in range(each.ts.size)]
        for number, each in enumerate(join.streams)
    ]
    found = []
    for rows in product(*sides):
        near = max(row[0] for row in rows) - min(row[0] for row in rows) <= join.window
        if near and len({row[3] for row in rows}) == 1 and any(row[4] for row in rows):
            last = max(row[:2] for row in rows if row[4])
            found.append((last, tuple(row[2] for row in rows)))
    return sorted(found)


def replay(done):
    """Join real rows as a run says, hold what they find, and release by the trigger; give what left, and the buffer.

    The trigger is the paper's: the lowest of the streams' last times, and whatever is not later may leave.
    """
    join, rows = done.join, done.join.rows
    place = [each.old for each in join.streams]
    named = []  # (time, stream, place) by rank
    for ts, number in zip(rows.ts.tolist(), rows.stream.tolist(), strict=True):
        named.append((ts, number, place[number]))
        place[number] += 1
    begun = [list(range(each.old)) for each in join.streams]
    last = [each.ts[each.old - 1] if each.old else None for each in join.streams]
    wanted, finds = {each: when for when, each in nested_loops(join)}, {}
    for rank in sorted(range(len(named)), key=lambda rank: done.turn[rank]):
        if done.begin[rank] == inf:
            continue
        _, number, mine = named[rank]
        others = [[mine] if n == number else begun[n] for n in range(len(begun))]
        finds[rank] = [each for each in product(*others) if each in wanted]
        begun[number].append(mine)
    hold, out, sizes, unjoined = [], [], [], sorted(each[:2] for each in named)
    for now in sorted({*rows.at.tolist(), *(each for each in done.done.tolist() if each < inf)}):
        for rank, (ts, number, _) in enumerate(named):
            if done.done[rank] == now:
                unjoined.remove((ts, number))
                for each in finds[rank]:
                    heapq.heappush(hold, (wanted[each], each))
        for (ts, number, _), at in zip(named, rows.at.tolist(), strict=True):
            if at == now:
                last[number] = ts
        trigger = -inf if None in last else min(last)
        while hold and hold[0][0][0] <= trigger and not (unjoined and unjoined[0] <= hold[0][0]):
            out.append((now, heapq.heappop(hold)[1]))
        sizes.append((now, len(hold)))
    return out, sizes


@st.composite
def joins(draw, most=3):
    """Draw streams with few keys and few instants, rows that are late, and rows that were there before."""
    made = []
    for _ in range(draw(st.integers(2, most))):
        ts = np.array(sorted(draw(st.sets(st.integers(-6, 24), max_size=9))), float)
        late = draw(st.lists(st.integers(0, 6), min_size=ts.size, max_size=ts.size))
        at = np.maximum.accumulate(ts + np.array(late)) if ts.size else ts
        keys = draw(st.lists(st.integers(0, 1), min_size=ts.size, max_size=ts.size))
        made.append(Stream(ts, at, np.array(keys, np.int64)))
    step = draw(st.sampled_from([0.0, 0.0625, 0.25, 1.5]))
    return Join(tuple(made), float(draw(st.integers(1, 12))), step)


policies = st.one_of(
    st.sampled_from([SYNC, HOLD]), st.builds(Adaptive, st.sampled_from([0.0, 0.02, 0.1, 0.5]))
)
who = st.sampled_from([ONE, EACH])


@given(joins(), policies, who)
@examples(150)
def test_results_are_those_of_nested_loops_in_their_order_whatever_the_policy(join, policy, who):
    """None lost, none twice, none before its turn; and each leaves when the run says that its last row does."""
    done = run(join, policy, who)
    out, _ = replay(done)
    wanted = nested_loops(join)
    assert [each for _, each in out] == [each for _, each in wanted][: len(out)]
    assert [tuple(each) for each in join.results.tolist()] == [each for _, each in wanted]
    rank = {each: n for n, each in enumerate(zip(join.rows.ts, join.rows.stream, strict=True))}
    leaves = [done.release[rank[when]] for when, _ in wanted]
    assert [now for now, _ in out] == [each for each in leaves if each < inf]


@given(joins(), policies, who)
@examples(100)
def test_the_hold_buffer_is_as_large_as_replayed(join, policy, who):
    done = run(join, policy, who)
    sizes = [(now, size) for now, size in replay(done)[1] if 0 <= now < done.end]
    assert done.held().most == max((size for _, size in sizes), default=0)
    moments = [*(now for now, _ in sizes), done.end]
    area = sum(size * (then - now) for (_, size), (now, then) in zip(sizes, pairwise(moments), strict=True))
    assert done.held().mean * done.end == pytest.approx(area)


@given(joins(), policies, who)
@examples(100)
def test_the_same_rows_are_released_under_every_policy(join, policy, who):
    """All that the last trigger has passed, in order, and nothing else."""
    done = run(join, policy, who)
    last = min(each.ts[-1] if each.ts.size else -inf for each in join.streams)
    assert np.array_equal(done.release < inf, join.rows.ts <= last)
    finite = done.release[done.release < inf]
    assert np.all(np.diff(finite) >= 0)
    assert np.all(done.release >= done.done)


def passed(join):
    """Tell when each row is passed by the trigger: every stream has sent a row at least as late."""
    times = [
        max(
            min((at for ts, at in zip(s.ts, s.at, strict=True) if ts >= time), default=inf)
            for s in join.streams
        )
        for time in join.rows.ts
    ]
    return np.maximum(times, 0.0)


def one_after_the_other(ready, order, cost):
    """Give when rows begin on one processor that takes them in an order."""
    begin, free = np.full(ready.size, inf), 0.0
    for rank in order:
        begin[rank] = max(free, ready[rank])
        free = begin[rank] + cost[rank] if begin[rank] < inf else free
    return begin


@given(joins(), st.sampled_from([SYNC, HOLD]), who)
@examples(100)
def test_rows_begin_as_soon_as_they_may_one_at_a_time(join, policy, who):
    """In filter-order they may when they come, in sync-filter when the trigger has passed them."""
    done, rows = run(join, policy, who), join.rows
    ready = np.maximum(rows.at, 0) if policy == HOLD else np.maximum(rows.at, passed(join))
    cost = np.where(done.begin < inf, done.done, 0) - np.where(done.begin < inf, done.begin, 0)
    queue = (lambda n: (rows.at[n], rows.stream[n], n)) if policy == HOLD else (lambda n: n)
    order = sorted(range(ready.size), key=queue)
    for served in [range(3)] if who == ONE else [[0], [1], [2]]:
        mine = [n for n in order if rows.stream[n] in served]
        assert done.begin[mine] == pytest.approx(one_after_the_other(ready, mine, cost)[mine])


def test_in_filter_order_rows_of_all_streams_stand_in_one_line():
    """b3 comes after a5 and is joined after it, though it is earlier; a1 keeps the processor until 7."""
    join = Join((stream(["b0", "b3"], {"b3": 6}), stream(["a1", "a5"])), 10.0, 6.0)
    begins = dict(zip(["b0", "a1", "b3", "a5"], run(join, HOLD).begin.tolist(), strict=True))
    assert begins == {"b0": 0, "a1": 1, "a5": 7, "b3": 13}


@given(joins(most=2), who)
@examples(100)
def test_each_pair_within_the_window_is_met_once(join, who):
    left, right = join.streams
    near = np.abs(left.ts[:, None] - right.ts[None, :]) <= join.window
    new = (left.at[:, None] >= 0) | (right.at[None, :] >= 0)
    done = run(join, HOLD, who)
    assert (done.done - done.begin).sum() == pytest.approx(join.step * (near & new).sum())


# --- changes of mind --------------------------------------------------------------------------------------


@cache
def swinging():
    """Run Adaptive on streams whose slow one has 1 row a second, then one in ten seconds, then 1 again."""
    parts = [at_random((rate, 10.0), 60, 240, [5, number]) for number, rate in enumerate((1.0, 0.1, 1.0))]
    made = []
    for which in (0, 1):
        spans = [each[which].at[: -1 if number < 2 else None] for number, each in enumerate(parts)]
        at = np.concatenate([span[span >= (0 if n else -60)] + 240 * n for n, span in enumerate(spans)])
        made.append(Stream(at, at, np.arange(at.size) % 50))
    return run(Join(tuple(made), 60.0, 0.0007, 720.0), Adaptive(0.3))


def test_adaptive_follows_the_load_there_and_back_and_says_why():
    modes = [each.switch.mode for each in swinging().changes]
    assert modes[0] == HOLD
    assert all(one != two for one, two in pairwise(modes))
    back = next(each for each in swinging().changes if each.at > 240)
    assert back.switch.mode == SYNC
    assert back.at < 300  # within a window
    assert "less than 0.9 of alpha = 0.3" in back.switch.reason
    assert "0.0007 s · 60 s" in back.switch.reason
    assert any(each.switch.mode == HOLD and each.at > 480 for each in swinging().changes)


def test_going_back_the_hold_buffer_is_drained_before_anything_else_is_decided():
    done = swinging()
    found, left = done.hold()
    times = [*(each.at for each in done.changes), done.end]
    held_at_a_switch = 0
    for change, following in zip(done.changes, times[1:], strict=True):
        if change.switch.mode == SYNC:
            held_at_a_switch += int(((found <= change.at) & (left > change.at)).sum())
            assert change.at <= change.drained <= following
            within = (found > change.drained) & (found < following)
            assert np.array_equal(found[within], left[within])
            assert not np.any((found <= change.drained) & (left > change.drained))
    assert held_at_a_switch > 0


def every(*spans):
    """Make a stream that is even in parts: (from, to, rows a second)."""
    at = np.concatenate([np.arange(first, last, 1 / rate) for first, last, rate in spans])
    return Stream(at, at, np.zeros(at.size, np.int64))


def test_nothing_is_asked_while_the_hold_buffer_drains():
    """The slow stream falls silent, and the load with it; when the fast one wakes up, what is held still waits."""
    slow, fast = every((-60, 100, 1), (200, 300, 1)), every((-60, 115, 10.01), (115, 300, 80.01))
    done = run(Join((slow, fast), 60.0, 1e-5, 250.0), Adaptive(0.0055))
    back = next(n for n, each in enumerate(done.changes) if each.switch.mode == SYNC)
    assert 100 < done.changes[back].at < 140
    assert done.changes[back].drained == pytest.approx(200, abs=0.1)
    assert done.changes[back + 1].at >= 200


def test_what_came_before_the_run_has_been_looked_at():
    """Ten looks in the window before it, the last of which has faded to 0.9 when the first of the run is added."""
    slow, fast = every((-59.5, 0, 1), (0.1, 20, 3)), every((-59.95, 20, 10))
    first = run(Join((slow, fast), 60.0, 1e-5), Adaptive(0.0)).changes[0]
    weight = sum(0.9**n for n in range(1, 11))
    assert first.at == 6
    assert f" {(weight + 3) / (weight + 1):.3g}" in first.switch.reason


def test_adaptive_does_what_its_mode_says():
    done = swinging()
    rows, way = done.join.rows, passed_quickly(done.join)
    change = next(each for each in done.changes if each.at > 240)
    following = next((each.at for each in done.changes if each.at > change.at), inf)
    waits = (done.begin > change.at) & (done.begin < following)
    assert waits.sum() > 1000
    assert np.all(done.begin[waits] >= way[waits])
    holds = (rows.at > done.changes[0].at) & (rows.at < done.changes[1].at)
    assert (
        np.mean(done.begin[holds] < way[holds]) > 0.5
    )  # the others come right before a slow row, or wait in line


def passed_quickly(join):
    """Tell the same as `passed`, of many rows."""
    return np.max(
        [np.append(each.at, inf)[np.searchsorted(each.ts, join.rows.ts)] for each in join.streams], axis=0
    )


def test_without_a_join_step_nothing_is_known():
    assert measured([Effort().then(1e6, 1, 0, 0.0), Effort().then(1e6, 10, 0, 0.0)], 60) is None


def test_a_load_is_printed_with_what_it_is_made_of():
    load = measured([Effort().then(1e6, 1, 600, 0.3), Effort().then(1e6, 10, 600, 0.3)], 60)
    assert str(load) == "c·w·λ = 0.0005 s · 60 s · 1/s · 10/s = 0.3"


def test_rates_and_cost_are_averages_in_which_the_past_fades():
    slow, fast = Effort().then(1e6, 4, 100, 0.2), Effort().then(1e6, 10, 100, 0.2)
    load = measured([slow.then(1e6, 1, 100, 0.1), fast.then(1e6, 10, 100, 0.1)], 60)
    assert load.rates == pytest.approx(((0.9 * 4 + 1) / 1.9, 10))
    assert load.step == pytest.approx((0.9 * 0.2 + 0.1) / (0.9 * 100 + 100))


def test_buffers_and_averages_are_of_the_time_that_counts():
    join = Join(EXAMPLE.streams, 6.0, 0.125, until=9.5)
    assert run(join, SYNC).responses().size == 6  # a1 d2 c4 a5 b6 b9
    assert run(join, SYNC).responses(1).tolist()[-1] == 12.375 - 9
    # a1 1, d2 3, c4 1 and a step, a5 1, b6 3 seconds, and b9 half a second of those that count
    assert run(join, SYNC).waiting().mean == pytest.approx((1 + 3 + 1.125 + 1 + 3 + 0.5) / 9.5)


# --- formulas and streams ---------------------------------------------------------------------------------


@pytest.mark.parametrize("figure", [fig5, fig6])
def test_the_analysis_holds(figure, reproduced):
    assert all(claim.held for claim in reproduced(figure).claims)


def test_the_equations_have_the_values_of_the_paper():
    assert (round(equation_3(0.0005, 60, 1, 10), 3), equation_5(1, 10)) == (0.715, 0.55)
    assert (round(equation_3(0.0001, 86_400, 0.1, 1), 2), round(equation_5(0.1, 1), 2)) == (10.25, 5.5)
    assert (equation_8(), round(equation_8(work=2), 3)) == (0.5, 0.333)


def test_one_processor_that_is_charged_for_slow_rows_too_gains_a_third_at_most():
    """Up to c·w·λ1·λ2 = 1/2 it does what Eq. 3 and 5 say, and from there on it falls behind."""
    half = 0.5 / (86_400 * 10)
    almost, above = (Point(1, 10, part * half) for part in (0.999, 1.05))
    answers = [almost.simulated(policy, 1.0) for policy in (SYNC, HOLD)]
    assert answers == pytest.approx([almost.reckoned(policy) for policy in (SYNC, HOLD)], rel=1e-4)
    assert 1 - answers[1] / answers[0] == pytest.approx(equation_8(work=2), abs=1e-3)
    assert above.simulated(SYNC, 1.0) > 1.3 * above.reckoned(SYNC)
    assert above.simulated(SYNC) == pytest.approx(above.reckoned(SYNC), rel=1e-4)


def test_a_row_of_the_first_stream_is_charged_a_part_of_its_steps():
    full, fifth = (Join(EXAMPLE.streams, 6.0, 0.125, slow_charge=part) for part in (1.0, 0.2))
    took, less = (run(join, HOLD).done - run(join, HOLD).begin for join in (full, fifth))
    slow = full.rows.stream == 0
    assert less[~slow] == pytest.approx(took[~slow])
    assert less[slow] == pytest.approx(0.2 * took[slow])


def test_even_streams_have_a_fast_row_right_behind_each_slow_one():
    slow, fast = evenly(0.5, 5, 60, 4)
    assert slow.at[slow.old :].tolist() == [0, 2, 4, 6, 8]
    new = fast.at[fast.old :]
    assert new.size == 41
    assert new[[0, 10]] == pytest.approx([0, 2])
    assert np.all(new > np.arange(41) / 5)
    assert slow.at[0] <= -60
    assert fast.at[0] <= -60


def test_random_streams_have_their_rates_and_end_behind_the_run():
    for seed in range(3):
        slow, fast = at_random((1, 10), 60, 1200, [seed])
        assert slow.at.size / 1260 == pytest.approx(1, rel=0.15)
        slow, fast = at_random((0.01, 10), 60, 1200, [seed])
        assert all(np.sum(each.at >= 1200) == 1 for each in (slow, fast))
        gaps = np.diff(fast.at)
        assert gaps.mean() == pytest.approx(0.1, rel=0.05)
        assert gaps.std() == pytest.approx(gaps.mean(), rel=0.06)


# --- claims, on shorter streams ---------------------------------------------------------------------------

SHORT = Sweep(5, samples=2, seconds=300.0)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.title)
def test_sync_filter_is_slowest_and_filter_order_fastest_at_every_cost(model):
    times = responses(by_policy(SHORT, paper4.BY_STEP.settings[2:], model))
    for sync, hold, adaptive in zip(*times.values(), strict=True):
        assert hold <= adaptive <= sync


def test_adaptive_switches_where_the_load_reaches_alpha_and_not_before():
    steps = (1e-4, 3.5e-4, 7.5e-4, 1e-3)
    found = [measure(SHORT, Setting(step=step), "Adaptive") for step in steps]
    assert [each.holding > 0.9 for each in found] == [False, False, True, True]
    assert found[1].holding < 0.1
    assert "at least alpha = 0.3" in found[-1].changes[0][0].switch.reason
    assert found[0].switches == 0


def test_what_adaptive_measures_does_not_depend_on_what_slow_rows_are_charged():
    """c is the time of a step that is charged for: with slow rows at a fifth it is still c."""
    for model in MODELS:
        reason = measure(SHORT, Setting(step=7.5e-4), "Adaptive", model).changes[0][0].switch.reason
        assert "c·w·λ = 0.00075 s · 60 s" in reason


def test_after_the_run_nothing_is_decided():
    """One processor has a minute of work left by then, and no stream to measure."""
    found = measure(SHORT, Setting(step=1e-3), "Adaptive", MODELS[1])
    assert [[each.switch.mode for each in changes] for changes in found.changes] == [[HOLD]] * 2


def test_filter_order_is_flat_and_gains_half_where_slow_rows_are_charged_a_fifth():
    times = responses(by_policy(SHORT, paper4.BY_STEP.settings))
    hold = times["Filter-Order"]
    assert max(hold) < 1.1 * min(hold)
    assert gains(times)[-1] == pytest.approx(0.5, abs=0.04)
    each = responses(by_policy(SHORT, [Setting(step=1e-3)], MODELS[2]))
    assert gains(each)[0] < 0.44, "with a processor for each stream it waits for slow rows"


def test_what_filter_order_gains_is_close_to_equation_7():
    settings = [Setting(slow) for slow in (0.1, 0.2, 0.5, 1.0)]
    below = gains(responses(by_policy(SHORT, settings)))
    assert below == sorted(below)
    assert below == pytest.approx([gain(each.share) for each in settings], rel=0.35)


def test_response_grows_as_the_slow_stream_slows_whatever_the_policy():
    settings = [Setting(slow) for slow in (0.05, 0.2, 1.0)]
    for name, times in responses(by_policy(SHORT, settings, MODELS[1])).items():
        assert times == sorted(times, reverse=True), name


def test_many_results_take_more_memory_than_the_input_that_waits():
    waiting = measure(SHORT, Setting(), "Sync-Filter").waiting.mean
    assert measure(SHORT, Setting(), "Filter-Order").held.mean < waiting
    assert measure(SHORT, Setting(keys=FEW_KEYS), "Filter-Order").held.mean > waiting
    held = {name: measure(SHORT, Setting(), name).held.most for name in POLICIES}
    assert held["Sync-Filter"] == 0 < min(held["Filter-Order"], held["Adaptive"])


def test_the_fitted_model_is_one_processor():
    assert (FITTED.who, FITTED.slow_charge) == (ONE, 0.2)
