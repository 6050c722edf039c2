"""Partners of partial results: the runs that binary search finds are those that nested loops find."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock import limits
from penstock.kernels.extend import extended, runs_in, within
from penstock.kernels.probe import Rows

small = st.integers(0, 6)
partials = st.lists(st.tuples(small, st.integers(-3, 20), st.integers(-3, 24)), min_size=1, max_size=12)
segments = st.lists(st.tuples(small, st.integers(0, 20)), max_size=20).map(sorted)


def arrays(rows):
    return Rows(np.array([h for h, _ in rows], np.uint64), np.array([t for _, t in rows], np.int64))


@given(partials, segments)
def test_a_run_is_the_rows_of_the_hash_between_two_times(some, rows):
    h, since, until = (np.array(column) for column in zip(*some, strict=True))
    first, count = runs_in(h.astype(np.uint64), since, until, arrays(rows))
    for number, (key, low, high) in enumerate(some):
        found = rows[first[number] : first[number] + count[number]]
        assert found == [(k, t) for k, t in rows if k == key and low <= t < high]


@given(partials, st.lists(segments, min_size=1, max_size=3), st.integers(1, 9))
def test_all_runs_are_written_out_once_whatever_the_pieces(some, logs, most):
    h, since, until = (np.array(column) for column in zip(*some, strict=True))
    runs = [runs_in(h.astype(np.uint64), since, until, arrays(rows)) for rows in logs]
    firsts, counts = (np.array([each[place] for each in runs]) for place in range(2))
    before, limits.MAX_PROBE_PAIRS = limits.MAX_PROBE_PAIRS, most
    try:
        pieces = list(extended(firsts, counts))
    finally:
        limits.MAX_PROBE_PAIRS = before
    got = sorted(
        triple for piece in pieces for triple in zip(*(each.tolist() for each in piece), strict=True)
    )
    expected = [
        (partial, segment, row)
        for partial, (key, low, high) in enumerate(some)
        for segment, rows in enumerate(logs)
        for row, (k, t) in enumerate(rows)
        if k == key and low <= t < high
    ]
    assert got == sorted(expected)
    assert all(len(piece[0]) <= most for piece in pieces)


@given(
    st.lists(st.tuples(small, small, small), min_size=1),
    st.lists(st.lists(small, min_size=3, max_size=3), min_size=3, max_size=3),
)
def test_a_result_keeps_every_limit_or_is_none(times, limits):
    columns = [np.array(column) for column in zip(*times, strict=True)]
    expected = [all(t[j] - t[i] < limits[i][j] for i in range(3) for j in range(3) if i != j) for t in times]
    assert within(columns, limits).tolist() == expected
