"""Multiplicity against a plain count: cut anywhere, put together in any grouping, never below, bounded."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import limits
from penstock.kernels.copies_watch import ArrivalRate, Copies, open_from
from penstock.kernels.order_watch import Order
from penstock.state.codec import from_json, to_json
from tests.kernels.test_order_watch import cuts, long_stream, pieces, values
from tests.plan.arrivals import multiplicity, streams


@given(values, cuts)
def test_multiplicity_is_counted_wherever_the_stream_is_cut(given_values, at):
    copies = Copies()
    for piece in pieces(given_values, at):
        copies = copies.then(piece)
    assert copies.multiplicity == multiplicity(given_values)


def narrow(ends):
    """Keep only a few values open."""
    return patch.object(Copies.closed, "__defaults__", ((ends, ends),))


@given(values, cuts, st.randoms(), st.integers(1, 4))
def test_with_few_values_open_it_is_never_below_the_truth(given_values, at, random, ends):
    """Whichever neighbours are put together first."""
    with narrow(ends):
        parts = [Copies.of(piece).closed() for piece in pieces(given_values, at)]
        while len(parts) > 1:
            place = random.randrange(len(parts) - 1)
            parts[place : place + 2] = [parts[place].merged(parts[place + 1])]
    assert parts[0].multiplicity >= multiplicity(given_values)
    assert len(parts[0].values) <= 2 * ends


@given(st.data(), cuts, st.integers(8, 12))
def test_it_is_the_truth_where_no_row_is_later_than_the_open_values(data, at, ends):
    """Rows are at most four positions early here, so at most eight values are in between."""
    given_values = data.draw(streams(most=60, values=60))
    with narrow(ends):
        copies = Copies()
        for piece in pieces(given_values, at):
            copies = copies.merged(Copies.of(piece))
    assert copies.multiplicity == multiplicity(given_values)


@pytest.mark.parametrize(
    ("alike", "early", "batch"), [(1, 400, 3_001), (2, 5_000, 997), (7, 400, 100), (2, 3, 40)]
)
def test_a_long_stream_is_counted_exactly_and_no_more_is_kept_open_than_can_come_again(alike, early, batch):
    rows = long_stream(alike, 100_000, early) // alike
    copies, order, most = Copies(), Order(), 0
    for start in range(0, rows.size, batch):
        order = order.then(rows[start : start + batch])
        copies = copies.then(rows[start : start + batch], open_from(order))
        most = max(most, len(copies.values))
    assert copies.multiplicity == alike
    assert most <= 4 * max(order.scrambling, limits.MIN_OPEN_ROWS) / alike


def test_without_a_watch_of_the_order_memory_is_bounded_all_the_same():
    copies = Copies()
    for start in range(0, 100_000, 3_001):
        copies = copies.then(np.arange(start, start + 3_001))
        assert len(copies.values) <= limits.MAX_OPEN_VALUES
    assert copies.multiplicity == 1


def test_a_row_of_a_closed_value_counts_with_as_many_as_there_can_have_been():
    copies = Copies().then(np.repeat(np.arange(5_000), 2), 4_000)
    assert copies.then(np.array([3])).multiplicity == 3
    assert copies.then(np.array([3])).then(np.array([3])).multiplicity == 4
    assert from_json(to_json(copies), Copies) == copies


def test_the_pace_follows_a_stream_and_remembers_its_fastest_moment():
    pace = ArrivalRate()
    for _ in range(40):
        pace = pace.then(50, 1.0)
    assert pace.rate == pytest.approx(50)
    for _ in range(40):
        pace = pace.then(400, 1.0)
    for _ in range(60):
        pace = pace.then(50, 1.0)
    assert pace.rate == pytest.approx(50, rel=0.02)
    assert pace.fastest == 400
    assert ArrivalRate().then(5, 0.0).rate == 0
