"""The streams of paper 3: their notation, and that they are what it says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from papers.paper3_streams import GAP, Item, Notation, Stream, alternating, make, merged
from penstock.errors import InputError
from tests.kernels.drawn import examples


def made(text, seconds=60.0, seed=1, values=None):
    notation = Notation.parse(text)
    if values:
        notation = Notation(notation.order, notation.segment, notation.match, values)
    return make(notation, seconds, np.random.default_rng(seed))


def segments(stream):
    return np.split(stream.value[: stream.behind[-1]], stream.behind[:-1])


notations = st.builds(
    Notation,
    st.sampled_from(["asc", "desc", "random"]),
    st.integers(1, 40),
    st.integers(0, 100),
    st.integers(1, 200),
)


@given(notations, st.integers(0, 99))
@examples(100)
def test_a_stream_keeps_its_promises_and_makes_each_right_behind_the_last_row_of_its_value(notation, seed):
    stream = make(notation, 5.0, np.random.default_rng(seed))
    assert stream.broken() == 0
    assert np.array_equal(stream.value[stream.behind - 1], stream.punctuated)
    assert len(set(stream.punctuated.tolist())) == stream.punctuated.size
    assert stream.value.size == stream.ts.size
    assert set(stream.value.tolist()) <= set(range(notation.values))


@given(notations, st.integers(0, 99))
@examples(50)
def test_a_notation_is_read_as_it_is_printed(notation, seed):
    again = Notation.parse(str(notation))
    assert (again.order, again.segment, again.match) == (notation.order, notation.segment, notation.match)
    assert seed >= 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("punct-asc-100", "is no stream: write cluster"),
        ("punct-asc-100-40-3", "is no stream"),
        ("cluster-asc-many", "is no stream"),
        ("clutter-asc-3", "is no stream"),
        ("uniform", "is no stream"),
        ("", "is no stream"),
        ("punct-sorted-100-40", "order of punctuations is sorted"),
        ("punct-asc-100-140", "140 %"),
        ("cluster-asc-0", "at least one"),
        ("uniform-0", "0 values"),
    ],
)
def test_what_is_no_notation_is_refused(text, said):
    with pytest.raises(InputError, match=said):
        Notation.parse(text)


def test_segments_and_matches_are_as_large_as_the_notation_says():
    found = segments(made("punct-asc-100-40", 600))
    sizes = np.array([each.size for each in found])
    shares = np.array([(each == each[-1]).mean() for each in found])
    assert sizes.mean() == pytest.approx(100, rel=0.02)
    assert sizes.var() == pytest.approx(99, rel=0.3), "Poisson"
    assert shares.mean() == pytest.approx(0.40, abs=0.01)
    assert 0.05 < shares.std() < 0.08, "Poisson: the root of 40"


def test_rows_of_a_cluster_have_one_value():
    assert all(np.unique(each).size == 1 for each in segments(made("cluster-random-30")))


def test_a_cluster_of_one_row_is_the_unique_arrival():
    assert {each.size for each in segments(made("cluster-asc-1"))} == {1}


def test_punctuations_come_in_their_order():
    ups = made("punct-asc-30-40").punctuated
    downs = made("punct-desc-30-40").punctuated
    mixed = made("punct-random-30-40").punctuated
    assert np.array_equal(ups, np.arange(ups.size))
    assert np.array_equal(downs, 14_999 - np.arange(downs.size))
    assert abs(np.corrcoef(mixed, np.arange(mixed.size))[0, 1]) < 0.3


def test_rows_that_do_not_match_have_any_value_still_to_come():
    rest = np.concatenate([each[each != each[-1]] for each in segments(made("punct-asc-30-40", 100))])
    assert rest.mean() == pytest.approx(7500, rel=0.05)
    assert rest.max() > 14_900


def test_a_stream_ends_when_all_its_values_are_punctuated():
    stream = made("cluster-asc-5", 60.0, values=20)
    assert stream.punctuated.size == 20
    assert stream.behind[-1] == stream.ts.size < 200


def test_rows_are_ten_milliseconds_apart_and_gaps_are_poisson():
    gaps = np.diff(made("uniform-500", 200.0).ts)
    assert gaps.mean() == pytest.approx(GAP, rel=0.02)
    assert gaps.var() == pytest.approx(GAP, rel=0.1)


def test_uniform_streams_promise_nothing():
    stream = made("uniform-50")
    assert stream.punctuated.size == 0
    assert set(stream.value.tolist()) == set(range(50))


def test_irrelevant_punctuations_match_no_row_and_stand_where_they_stood():
    stream = made("punct-asc-30-40")
    other = stream.irrelevant()
    assert not set(other.punctuated.tolist()) & set(other.value.tolist())
    assert np.array_equal(other.behind, stream.behind)


def small(ts, value, punctuated=(), behind=()):
    return Stream(*(np.array(each, np.int64) for each in (ts, value, punctuated, behind)))


def test_a_row_that_breaks_a_promise_is_counted():
    assert small([1, 2, 3], [5, 5, 6], [5], [1]).broken() == 1
    assert small([1, 2, 3], [5, 5, 6], [5], [2]).broken() == 0


def test_two_streams_are_laid_out_by_time_the_first_first_and_promises_behind_their_rows():
    first, second = small([1, 4], [7, 8], [7, 8], [1, 2]), small([1, 3], [7, 9], [7], [1])
    assert merged(first, second) == [
        Item(1, 0, 7, 0),
        Item(1, 0, 7, -1),
        Item(1, 1, 7, 0),
        Item(1, 1, 7, -1),
        Item(3, 1, 9, 1),
        Item(4, 0, 8, 1),
        Item(4, 0, 8, -1),
    ]


def test_in_turns_each_segment_of_the_second_stream_stands_behind_the_firsts():
    both = small([1, 2, 3], [7, 7, 8], [7, 8], [2, 3]), small([1, 2], [7, 8], [7, 8], [1, 2])
    found = [(each.stream, each.value, each.number) for each in alternating(*both)]
    one, two = [(0, 7, 0), (0, 7, 1), (0, 7, -1), (1, 7, 0), (1, 7, -1)], [(0, 8, 2), (0, 8, -1), (1, 8, 1)]
    assert found == [*one, *two, (1, 8, -1)]
