"""What the probe finds is what nested loops find: no pair lost, none twice, each on its level, for whom it is."""

from collections import Counter
from itertools import pairwise
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import limits
from penstock.kernels import probe as probe_module
from penstock.kernels.probe import Pairs, Rows, Wanted, probe
from penstock.kernels.reference import Event, nested_loop_join
from penstock.kernels.sets import members, query_sets, to_words, words_for
from penstock.sql.query import Range
from tests.kernels.drawn import as_rows, cuts, events, examples, levels_of


def found_by_probe(left, right, edges, *, batch_is_left, wanted=None):
    """Probe, and give each portion as (left row number, right row number, level, set of queries) per pair."""
    batch, state = (left, right) if batch_is_left else (right, left)
    portions = []
    for found in probe(batch, state, np.array(edges, np.int64), batch_is_left=batch_is_left, wanted=wanted):
        mine, theirs = (found.batch, found.state) if batch_is_left else (found.state, found.batch)
        sets = [None] * len(found) if found.sets is None else found.sets
        portions.append(list(zip(mine.tolist(), theirs.tolist(), found.level.tolist(), sets, strict=True)))
    return portions


def named(portions, left, right):
    """Put the names of rows in place of their numbers."""
    return Counter((left[i].name, right[j].name, level) for found in portions for i, j, level, _ in found)


@given(events(), events(), cuts(), st.booleans())
def test_probe_finds_the_pairs_of_nested_loops_each_once_and_on_its_level(left, right, edges, batch_is_left):
    mine, left_order, _ = as_rows(left)
    theirs, right_order, _ = as_rows(right)
    portions = found_by_probe(mine, theirs, edges, batch_is_left=batch_is_left)
    assert named(portions, left_order, right_order) == levels_of(left, right, edges)


@given(events(most=20), events(most=20), cuts(), st.booleans(), st.integers(1, 5))
def test_portions_are_small_and_together_lose_nothing(left, right, edges, batch_is_left, most):
    mine, left_order, _ = as_rows(left)
    theirs, right_order, _ = as_rows(right)
    with patch.object(limits, "MAX_PROBE_PAIRS", most):
        portions = found_by_probe(mine, theirs, edges, batch_is_left=batch_is_left)
    assert named(portions, left_order, right_order) == levels_of(left, right, edges)
    for found in portions:
        assert 0 < len(found) <= most, "also where one row has more partners"


@st.composite
def workloads(draw):
    """Up to 130 queries on one chain with up to 130 predicates a side, and rows that satisfy some of them."""
    edges = draw(cuts())
    places = st.lists(st.integers(0, len(edges) - 1), min_size=2, max_size=2, unique=True).map(sorted)
    wide = [draw(st.sampled_from((0, 2, 64, 130))) for _ in range(2)]
    masks = [
        st.lists(st.integers(0, each - 1), max_size=2).map(lambda bits: sum({1 << b for b in bits}))
        if each
        else st.just(0)
        for each in wide
    ]
    kinds = draw(st.lists(st.tuples(places, *masks), min_size=1, max_size=4))
    queries = [kinds[n % len(kinds)] for n in range(draw(st.sampled_from((len(kinds), 64, 65, 130))))]
    sides = []
    for side in range(2):
        rows = draw(events(keys=(0, 2**64 - 1)))
        some = st.lists(st.sampled_from(sorted({each[1 + side] for each in kinds})), max_size=3)
        bits = [_together(draw(some)) for _ in rows] if wide[side] else None
        sides.append((rows, bits, wide[side]))
    return edges, queries, sides


def _together(masks):
    """Satisfy all of some masks."""
    total = 0
    for mask in masks:
        total |= mask
    return total


def tables(edges, queries, sides, *, batch_is_left):
    """Make what a unit makes: both segments, and the tables of who wants what."""
    (left, left_bits, left_wide), (right, right_bits, right_wide) = sides
    mine, left_order, left_table = as_rows(left, left_bits, left_wide)
    theirs, right_order, right_table = as_rows(right, right_bits, right_wide)
    by_level = to_words(
        [
            sum(1 << q for q, ((first, last), _, _) in enumerate(queries) if first <= level < last)
            for level in range(len(edges) - 1)
        ],
        len(queries),
    )
    by_left = query_sets(left_table, [mask for _, mask, _ in queries])
    by_right = query_sets(right_table, [mask for _, _, mask in queries])
    by_batch, by_state = (by_left, by_right) if batch_is_left else (by_right, by_left)
    return mine, theirs, left_order, right_order, Wanted(by_level, by_batch, by_state)


@examples(70)
@given(workloads(), st.booleans())
def test_every_query_gets_its_own_pairs_and_no_other_whatever_the_rest_asks_for(workload, batch_is_left):
    edges, queries, sides = workload
    mine, theirs, left_order, right_order, wanted = tables(edges, queries, sides, batch_is_left=batch_is_left)
    portions = found_by_probe(mine, theirs, edges, batch_is_left=batch_is_left, wanted=wanted)
    found = [pair for portion in portions for pair in portion]

    (left, left_bits, _), (right, right_bits, _) = sides
    for q in {0, len(queries) // 2, len(queries) - 1}:
        (first, last), left_mask, right_mask = queries[q]
        expected = nested_loop_join(
            left,
            right,
            Range(edges[first], edges[last]),
            lambda row, need=left_mask: not need or left_bits[row.name] & need == need,
            lambda row, need=right_mask: not need or right_bits[row.name] & need == need,
        )
        got = Counter(
            (left_order[i], right_order[j]) for i, j, _, words in found if members(words.reshape(1, -1), q)[0]
        )
        assert got == expected

    everything = levels_of(left, right, edges)
    assert named(portions, left_order, right_order) <= everything, "a pair is on its own level, at most once"
    for _, _, _, words in found:
        assert words.size == words_for(len(queries))
        assert words.any(), "a pair that nobody wants is not a result"


EDGES = (-9, -4, 0, 3, 8)


@pytest.mark.parametrize(("first", "last"), [(f, u) for f in range(4) for u in range(f + 1, 5)])
@pytest.mark.parametrize("batch_is_left", [True, False])
def test_a_row_looks_no_further_than_the_queries_that_accept_it(first, last, batch_is_left):
    """Lineage: the run of a batch row is cut to the slices of its queries before any pair is made.

    One row at 0, a partner at every instant, one query that takes the row and one (of the whole chain) that does not.
    """
    queries = [((first, last), 0, 0), ((0, 4), 1, 1)]
    row, instants = Event(7, 0, 0), [Event(7, time, time) for time in range(-14, 15)]
    sides = [([row], [0], 1), (instants, [1] * len(instants), 1)]
    sides = sides if batch_is_left else sides[::-1]
    mine, theirs, _, _, wanted = tables(EDGES, queries, sides, batch_is_left=batch_is_left)
    looked_at = []

    def spy(batch, state, starts, counts, *rest):
        looked_at.extend(counts.tolist())
        return real(batch, state, starts, counts, *rest)

    real = probe_module._fill
    with patch.object(probe_module, "_fill", spy):
        portions = found_by_probe(mine, theirs, EDGES, batch_is_left=batch_is_left, wanted=wanted)
    assert looked_at == [EDGES[last] - EDGES[first]]
    assert [len(found) for found in portions] == looked_at


#   age of the left row     0    1         9   10          (µs, WINDOW 10 on the left, none on the right)
#                           |----|--- ... -|---|
#   slice                   [0 ........ 9] | 10: too old
@pytest.mark.parametrize(
    ("difference", "level"),
    [(-1, None), (0, 0), (4, 0), (5, 1), (9, 1), (10, None)],
    ids=["younger", "same instant", "before the cut", "on the cut", "last instant", "one window old"],
)
@pytest.mark.parametrize("batch_is_left", [True, False])
def test_a_slice_has_its_near_end_and_not_its_far_end(difference, level, batch_is_left):
    left, right = (Rows(np.array([7], np.uint64), np.array([t])) for t in (100, 100 + difference))
    portions = found_by_probe(left, right, (0, 5, 10), batch_is_left=batch_is_left)
    assert [pair[2] for found in portions for pair in found] == ([] if level is None else [level])


@pytest.mark.parametrize("batch_is_left", [True, False])
def test_rows_equal_in_everything_meet_each_of_their_partners(batch_is_left):
    """Three copies against two: six pairs, not one."""
    left = Rows(np.full(3, 9, np.uint64), np.full(3, 5))
    right = Rows(np.full(2, 9, np.uint64), np.full(2, 5))
    (found,) = found_by_probe(left, right, (0, 1), batch_is_left=batch_is_left)
    assert Counter((i, j) for i, j, _, _ in found) == Counter((i, j) for i in range(3) for j in range(2))


def test_an_unbounded_window_reaches_every_row_and_does_not_overflow():
    far = 1 << 60
    left = Rows(np.array([3], np.uint64), np.array([-(1 << 58)]))
    right = Rows(np.array([3, 3], np.uint64), np.array([-(1 << 58), 1 << 58]))
    (found,) = found_by_probe(left, right, (1 - far, 0, far), batch_is_left=True)
    assert [pair[:3] for pair in found] == [(0, 0, 1), (0, 1, 1)]


def test_pairs_can_be_thinned_with_their_sets():
    pairs = Pairs(
        np.arange(3), np.arange(3) + 5, np.zeros(3, np.int16), np.arange(3, dtype=np.uint64).reshape(-1, 1)
    )
    kept = pairs.only(np.array([True, False, True]))
    assert len(kept) == 2
    assert (kept.batch.tolist(), kept.state.tolist(), kept.sets.tolist()) == ([0, 2], [5, 7], [[0], [2]])


@given(events(), events(), cuts())
def test_the_reference_itself_gives_each_query_the_union_of_its_slices(left, right, edges):
    """The oracle, held against a sentence of its own: cutting a window anywhere changes nothing."""
    whole = nested_loop_join(left, right, Range(edges[0], edges[-1]))
    pieces = [nested_loop_join(left, right, Range(lo, hi)) for lo, hi in pairwise(edges)]
    assert sum(pieces, Counter()) == whole


def test_the_reference_never_matches_a_null_key():
    assert not nested_loop_join([Event(None, 0)], [Event(None, 0)], Range(0, 1))


@given(st.lists(st.integers(0, 5), max_size=40))
def test_pairs_are_laid_out_level_by_level_and_in_their_order_otherwise(levels):
    numbers = np.arange(len(levels))
    pairs = Pairs(numbers, numbers + 100, np.array(levels, np.int16)).by_level()
    assert list(zip(pairs.level.tolist(), pairs.batch.tolist(), strict=True)) == sorted(
        zip(levels, range(len(levels)), strict=True)
    )
    assert (pairs.state == pairs.batch + 100).all()


def test_pairs_with_sets_are_not_laid_out_by_level():
    one = np.zeros(1, np.int64)
    with pytest.raises(ValueError, match="sets"):
        Pairs(one, one, one.astype(np.int16), np.ones((1, 1), np.uint64)).by_level()
