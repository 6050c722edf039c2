"""A chain cuts the windows of its queries into slices: no pair in two of them, each for exactly its readers."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InputError
from penstock.plan.chain import Chain, Slice
from penstock.sql.query import Range
from tests.plan.workloads import chains, ranges

differences = st.integers(-32, 32)


def level_of(chain, difference):
    """Find the slices that hold a difference: there should be one, or none."""
    return [level for level, piece in enumerate(chain.slices) if difference in piece.range]


@given(chains(), differences)
def test_a_pair_is_in_one_slice_and_its_readers_are_the_queries_whose_window_it_is_in(windows, difference):
    chain = Chain.from_windows(windows)
    levels = level_of(chain, difference)
    wanted = {name for name, window in windows.items() if difference in window}
    assert len(levels) <= 1
    assert {name for level in levels for name in chain.readers[level]} == wanted


@given(chains())
def test_slices_lie_end_to_end_between_the_outermost_windows(windows):
    chain = Chain.from_windows(windows)
    assert all(one.range.hi == other.range.lo for one, other in pairwise(chain.slices))
    assert chain.cuts[0] == min(window.lo for window in windows.values())
    assert chain.cuts[-1] == max(window.hi for window in windows.values())


@given(chains(), differences)
def test_the_levels_a_query_reads_are_its_window_and_no_more(windows, difference):
    chain = Chain.from_windows(windows)
    for window in windows.values():
        first, last = chain.levels(window)
        inside = any(first <= level < last for level in level_of(chain, difference))
        assert inside == (difference in window)


@given(chains())
def test_there_are_no_more_slices_than_the_windows_make_necessary(windows):
    """Mem-Opt: a cut stands only where some window ends, or at 0."""
    ends = {end for window in windows.values() for end in (window.lo, window.hi)}
    assert set(Chain.from_windows(windows).cuts) <= ends | {0}


@given(chains())
def test_both_sides_together_list_every_slice_once_youngest_first(windows):
    chain = Chain.from_windows(windows)
    sides = {side: chain.side(side) for side in ("l", "r")}
    assert sorted(level for each in sides.values() for level, _ in each) == list(range(len(chain.slices)))
    for each in sides.values():
        assert all(one.ages[1] == other.ages[0] for (_, one), (_, other) in pairwise(each))
        assert all(piece.ages[0] < piece.ages[1] for _, piece in each)


@given(chains(), differences)
def test_the_age_of_a_pair_is_how_far_its_older_row_is_behind(windows, difference):
    """d = T_right - T_left: on the right of 0 the left row is older, by d; on the left the right row is, by -d."""
    chain = Chain.from_windows(windows)
    for level in level_of(chain, difference):
        piece = chain.slices[level]
        assert piece.side == ("l" if difference >= 0 else "r")
        assert piece.ages[0] <= abs(difference) < piece.ages[1]


@given(ranges(), differences)
def test_turning_a_window_round_exchanges_the_streams(window, difference):
    assert (difference in window) == (-difference in window.turned())
    assert window.turned().turned() == window


def test_windows_of_both_sides_meet_at_zero():
    """::

    d     -59       -9        0        10        60
           |---------|--------|--------|---------|
    q1               =================
    q2     ======================================
    """
    chain = Chain.from_windows({"q1": Range.window(10, 10), "q2": Range.window(60, 60)})
    assert chain.cuts == (-59, -9, 0, 10, 60)
    assert chain.readers == (("q2",), ("q1", "q2"), ("q1", "q2"), ("q2",))
    assert [piece.ages for _, piece in chain.side("l")] == [(0, 10), (10, 60)]
    assert [piece.ages for _, piece in chain.side("r")] == [(1, 10), (10, 60)]


def test_a_chain_that_does_not_reach_zero_is_not_cut_there():
    assert Chain.from_windows({"q": Range(5, 9)}).cuts == (5, 9)
    assert Chain.from_windows({"q": Range(-9, -5)}).side("l") == ()


def test_windows_that_leave_a_gap_leave_a_slice_that_nobody_reads():
    chain = Chain.from_windows({"soon": Range(0, 5), "later": Range(9, 12)})
    assert chain.readers == (("soon",), (), ("later",))


def test_a_window_that_is_not_cut_out_of_the_chain_is_refused():
    chain = Chain.from_windows({"q": Range(0, 10)})
    for window in (Range(0, 9), Range(1, 10), Range(0, 11), Range(-5, 10)):
        with pytest.raises(InputError, match="no bounds at the ends"):
            chain.levels(window)


@pytest.mark.parametrize(
    ("cuts", "readers", "message"),
    [
        ((0, 10), (), "2 cuts has 0 slices"),
        ((0, 0, 10), (("q",), ("q",)), "must ascend"),
        ((0, 5, 10), (("q",), ()), "must have a reader"),
    ],
)
def test_an_impossible_chain_is_refused(cuts, readers, message):
    with pytest.raises(InputError, match=message):
        Chain(cuts, readers)


def test_a_slice_on_both_sides_of_zero_is_refused():
    with pytest.raises(InputError, match="both sides of 0"):
        Slice(Range(-1, 1))
