"""Sorting and merging give the one stable order by (h, t)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels.sorting import merge_runs, sort_rows
from tests.kernels.drawn import HASHES

rows = st.lists(st.tuples(st.sampled_from(HASHES), st.integers(-3, 3)))


def columns(batch):
    return np.array([h for h, _ in batch], np.uint64), np.array([t for _, t in batch], np.int64)


def in_order(batch):
    """The stable order, by Python's own sort."""
    return sorted(range(len(batch)), key=batch.__getitem__)


@given(rows)
def test_a_batch_is_sorted_by_hash_then_time_and_ties_keep_their_order(batch):
    assert sort_rows(*columns(batch)).tolist() == in_order(batch)


@given(rows.map(lambda batch: sorted(batch, key=lambda row: row[1])))
def test_a_batch_that_comes_in_order_of_time_is_sorted_the_same(batch):
    """It takes the short way: one sort, by hash alone."""
    assert sort_rows(*columns(batch)).tolist() == in_order(batch)


@given(st.lists(rows, max_size=9))
def test_merging_runs_gives_the_stable_order_of_all_their_rows(runs):
    together = [row for run in runs for row in sorted(run)]
    starts = np.cumsum([0, *(len(run) for run in runs)])
    assert merge_runs(*columns(together), starts).tolist() == in_order(together)


@pytest.mark.parametrize("starts", [[0], [0, 0], [0, 0, 0]])
def test_merging_nothing_gives_nothing(starts):
    assert merge_runs(np.array([], np.uint64), np.array([], np.int64), np.array(starts)).size == 0
