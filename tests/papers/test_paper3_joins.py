"""PWJoin, WJoin and PJoin: their results against nested loops, their promises against their results, and each rule."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from papers.paper3_joins import Costs, Join, Told
from papers.paper3_streams import Item
from tests.kernels.drawn import examples

COSTS = Costs()


def kept(drawn):
    """Lay out items of two streams in the order of their times; what would break a promise is left out."""
    items, numbers, promises, ts = [], [0, 0], set(), 0
    for gap, stream, value, kind in drawn:
        ts += gap
        if (stream, value) not in promises and kind:
            items.append(Item(ts, stream, value, numbers[stream]))
            numbers[stream] += 1
        elif (stream, value) not in promises:
            items.append(Item(ts, stream, value, -1))
            promises.add((stream, value))
    return items


drawn = st.tuples(
    st.sampled_from([0, 0, 1, 1, 2, 5]), st.integers(0, 1), st.integers(0, 3), st.integers(0, 3)
)
promised = st.lists(drawn, max_size=40).map(kept)
windows = st.tuples(*[st.sampled_from([0, 1, 3, 8, inf])] * 2)


def nested_loops(items, window):
    """Pair rows of one value; the earlier one is at most its own stream's window older."""
    found = []
    for n, late in enumerate(items):
        for early in items[:n]:
            both = early.number >= 0 and late.number >= 0 and early.stream != late.stream
            if both and early.value == late.value and early.ts + window[early.stream] >= late.ts:
                found.append((early, late)[:: -1 if early.stream else 1])
    return sorted((a.number, b.number) for a, b in found)


def logged(items, window=(inf, inf), *, heeds=True):
    return Join(window, COSTS, heeds=heeds, log=True).process(items)


def pairs(run):
    return sorted(each for each in run.log if len(each) == 2)


@given(promised, windows)
@examples(150)
def test_pwjoin_gives_what_wjoin_gives_pair_for_pair(items, window):
    wanted = nested_loops(items, window)
    assert pairs(logged(items, window)) == pairs(logged(items, window, heeds=False)) == wanted
    assert logged(items, window).results == len(wanted)


@given(promised)
@examples(100)
def test_pjoin_gives_the_join_without_windows(items):
    assert pairs(logged(items)) == nested_loops(items, (inf, inf))


@given(promised, windows)
@examples(150)
def test_no_result_follows_its_propagated_punctuation_and_none_is_told_twice(items, window):
    value = {(each.stream, each.number): each.value for each in items}
    told = set()
    for each in logged(items, window).log:
        key = each[0] if len(each) == 1 else value[0, each[0]]
        assert key not in told
        told |= {key} if len(each) == 1 else set()


@given(promised, windows)
@examples(100)
def test_a_value_that_both_streams_have_promised_is_told_and_never_later_than_by_pjoin(items, window):
    ours, theirs = (
        {each.value: each.at for each in logged(items, each_).told} for each_ in (window, (inf, inf))
    )
    sides = [{each.value for each in items if each.stream == n and each.number < 0} for n in (0, 1)]
    assert set(theirs) == sides[0] & sides[1] <= set(ours) <= sides[0] | sides[1]
    assert all(ours[value] <= at for value, at in theirs.items())


@given(promised, windows)
@examples(100)
def test_pwjoin_never_holds_more_than_wjoin(items, window):
    ours, theirs = Join(window, COSTS), Join(window, COSTS, heeds=False)
    for each in items:
        ours.process([each])
        theirs.process([each])
        assert ours.held <= theirs.held
        assert ours.held == sum(node.live for state in ours.states for node in state.time_list)


@given(promised, windows)
@examples(100)
def test_pwjoin_holds_no_row_that_the_other_stream_has_promised_not_to_meet(items, window):
    join, sides = Join(window, COSTS), (set(), set())
    for each in items:
        join.process([each])
        if each.number < 0:
            sides[each.stream].add(each.value)
        for own, state in enumerate(join.states):
            held = {key for key, node in state.index.items() if any(row.live for row in node.rows)}
            assert not held & sides[1 - own]


def test_a_row_that_breaks_a_promise_loses_a_pair():
    """So the equality above is of streams that keep theirs."""
    items = told("A1@0 <A1>@0 B1@1 A1@2")
    assert len(pairs(logged(items))) < len(nested_loops(items, (inf, inf)))


# --- the rules, one by one --------------------------------------------------------------------------------


def told(text):
    """Read items: `A7@3` is a row of A with value 7 at time 3, `<A7>@3` a punctuation."""
    items, numbers = [], {"A": 0, "B": 0}
    for word in text.split():
        name, at = word.split("@")
        bare = name.strip("<>")
        number = -1 if name != bare else numbers[bare[0]]
        numbers[bare[0]] += number >= 0
        items.append(Item(int(at), "AB".index(bare[0]), int(bare[1:]), number))
    return items


def test_a_row_exactly_one_window_old_is_joined_and_one_older_is_not():
    assert pairs(logged(told("A7@0 B7@5"), (5, 5))) == [(0, 0)]
    assert pairs(logged(told("A7@0 B7@6"), (5, 5))) == []


def test_each_side_has_its_own_window():
    """
    A   7@0 ----- window 2 ---->
    B        7@1 ---- window 9 ----->
    A               7@9  meets B's; a B at 3 meets no A.
    """
    assert pairs(logged(told("A7@0 B7@1 B7@3 A7@9"), (2, 9))) == [(0, 0), (1, 0), (1, 1)]


def test_a_punctuation_purges_the_other_side():
    join = Join((inf, inf), COSTS)
    run = join.process(told("A7@0 A8@0 A7@1 B7@2 <B7>@2"))
    assert run.counts["purged"] == 2
    assert join.held == 2, "A's 8 and B's own 7"


def test_a_row_whose_value_the_other_side_has_punctuated_is_joined_and_not_kept():
    join = Join((9, 9), COSTS, log=True)
    run = join.process(told("A7@0 <A7>@0 B7@1"))
    assert pairs(run) == [(0, 0)]
    assert (run.counts["discarded"], join.states[1].held) == (1, 0)


def test_the_result_is_punctuated_when_both_sides_are():
    assert logged(told("A7@0 <A7>@0 B7@1 <B7>@2"), (9, 9)).told == [Told(7, 2, early=False)]
    assert logged(told("A7@0 <A7>@0 B7@1"), (9, 9)).told == []


def test_it_is_punctuated_early_when_the_last_row_of_a_punctuated_value_leaves_the_window():
    """
    A   7@0  7@2 <7>
    B                 8@5  8@6  8@7     A's window is 4: at 5 the first 7 leaves, at 7 the last
    """
    run = logged(told("A7@0 A7@2 <A7>@2 B8@5 B8@6 B8@7"), (4, 4))
    assert run.told == [Told(7, 7, early=True)]


def test_rows_of_the_other_side_are_dropped_from_then_on_until_its_own_punctuation_comes():
    join = Join((4, 4), COSTS, log=True)
    run = join.process(told("A7@0 <A7>@0 B8@5 B7@6 B7@7 <B7>@7"))
    assert run.counts["dropped"] == 2
    assert run.told == [Told(7, 5, early=True)], "not once more"
    assert 7 not in join.states[0].index
    assert 7 not in join.states[1].index


def test_a_row_that_a_purge_has_taken_tells_nothing_when_its_node_leaves_the_window():
    run = logged(told("A7@0 <A7>@0 <B7>@1 B8@9"), (4, 4))
    assert run.told == [Told(7, 1, early=False)]


def test_without_punctuations_of_the_other_side_pjoin_tells_nothing():
    assert logged(told("A7@0 <A7>@0 B8@5 B7@9")).told == []


def test_wjoin_passes_punctuations_by():
    run = logged(told("A7@0 <A7>@0 B7@1 <B7>@1"), (9, 9), heeds=False)
    assert (run.told, run.visits["purge"]) == ([], 0)


# --- what is counted --------------------------------------------------------------------------------------


def test_visits_are_counted_by_hand():
    run = Join((5, 5), COSTS).process(told("A7@0 A7@1 B7@2 <A7>@3 B7@4 <B7>@4"))
    # A7: search B, search A, link, new I-Node; A7: the same without I-Node; B7: the head of A's time list, search,
    # two rows, search, link, new I-Node.  <A7>: search B, remove its I-Node, search A, flag.  B7: the head, search,
    # two rows; it is not kept.  <B7>: search A, remove its I-Node.
    assert run.visits == {"invalidate": 1 + 1, "probe": 1 + 1 + 3 + 3, "insert": 3 + 2 + 3, "purge": 4 + 2}
    assert (run.results, run.counts["purged"], run.counts["discarded"]) == (4, 3, 1)
    # Rows in the states searched: B 0, A 0, B 0, A 1, A 2, B 0, B 1, A 2, A 2, A 2.
    assert run.scanned == 10
    assert Costs(100, purge=20, result=5).of(run) == pytest.approx(24 + 10 / 100 + 20 * 3 + 5 * 4)


def test_samples_are_taken_at_steps_of_running_time_and_the_run_stops_with_the_last():
    costs = Costs(speed=1.0)
    items = told(" ".join(f"A{n}@{n}" for n in range(50)))
    run = Join((inf, inf), costs).process(items, step=10.0, steps=3)
    # A row takes four visits, with an I-Node of its own: 10, 20 and 30 are reached with the third, fifth and eighth.
    assert [(each.at, each.held) for each in run.samples] == [(2, 3), (4, 5), (7, 8)]


def test_nodes_that_a_purge_has_emptied_are_removed_from_the_head_of_the_time_list():
    join = Join((9, 9), COSTS)
    join.process(told("A7@0 A8@1 B7@1 <B7>@2 B9@3"))
    assert [each.ts for each in join.states[0].time_list] == [1]


def test_an_i_node_that_the_window_has_emptied_stays_until_a_probe_finds_it():
    """Deletion is lazy (section 4.3): a value that never comes again is never forgotten."""
    items = told("A7@0 A8@0 B9@8")
    assert Join((4, 4), COSTS).process(items).inodes == 3
    assert Join((4, 4), COSTS).process([*items, *told("B7@9")]).inodes == 3, "A's 7 gone, B's come"
