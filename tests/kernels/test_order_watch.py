"""The watch of a stream's order against the definitions in nested loops: cut anywhere, never below, bounded."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels.order_watch import PRECISION, Order, Staircase, lag_at_most, rows_done
from penstock.state.codec import from_json, to_json
from tests.plan.arrivals import lag, scrambling, streams

values = st.one_of(st.lists(st.integers(-9, 9), max_size=40), streams(most=60, values=40, early=20))
cuts = st.lists(st.integers(0, 40), max_size=5)


def pieces(given_values, at):
    return np.split(np.array(given_values, np.int64), sorted(min(each, len(given_values)) for each in at))


def long_stream(seed, rows, early):
    """Make rows that come up to `early` positions before their turn."""
    random = np.random.default_rng(seed)
    return np.argsort(np.arange(rows) - random.uniform(0, early, rows), kind="stable")


def exact(given_values):
    """Definition 2.2 again, fast enough for long streams."""
    front = np.maximum.accumulate(given_values)
    return int((np.arange(front.size) - np.searchsorted(front, given_values)).max())


@given(values, cuts)
def test_scrambling_is_that_of_the_definition_wherever_the_stream_is_cut(given_values, at):
    """Within the precision, and never below; 16 rows and fewer are exact."""
    order = Order()
    for piece in pieces(given_values, at):
        order = order.then(piece)
    true = scrambling(given_values)
    assert true <= order.scrambling <= true * (1 + PRECISION)
    assert order.rows == len(given_values)
    if len(given_values) < 1 / PRECISION:
        assert order.scrambling == true


@given(values, cuts, st.randoms())
def test_pieces_may_be_put_together_in_any_grouping(given_values, at, random):
    """As tasks do that look at parts of a batch: any two neighbours first."""
    orders = [Order.of(piece) for piece in pieces(given_values, at)]
    while len(orders) > 1:
        place = random.randrange(len(orders) - 1)
        orders[place : place + 2] = [orders[place].merged(orders[place + 1])]
    true = scrambling(given_values)
    assert true <= orders[0].scrambling <= true * (1 + PRECISION)


@given(values, st.integers(-10, 50))
def test_the_front_is_never_said_to_be_farther_than_it_is(given_values, value):
    order = Order.of(np.array(given_values, np.int64))
    before = [n for n, each in enumerate(given_values) if each > value]
    assert order.rows_up_to(value) <= (before[0] if before else len(given_values))
    for position in range(len(given_values) + 1):
        front = order.front_at(position)
        assert front is None or front <= max(given_values[:position])


@pytest.mark.parametrize(
    ("seed", "early", "batch"), [(1, 500, 1_000), (2, 5_000, 333), (3, 3, 50_000), (4, 90_000, 997)]
)
def test_a_long_stream_is_watched_in_few_steps_and_to_within_the_precision(seed, early, batch):
    rows = long_stream(seed, 200_000, early)
    order, most = Order(), 0
    for start in range(0, rows.size, batch):
        order = order.then(rows[start : start + batch])
        most = max(most, len(order.front.first))
    assert exact(rows) <= order.scrambling <= exact(rows) * (1 + PRECISION)
    assert most < 2 * np.log(rows.size) / np.log1p(PRECISION)
    assert order.tail == Staircase()


def test_an_order_survives_being_written_down():
    order = Order.of(long_stream(5, 3_000, 100))
    assert from_json(to_json(order), Order) == order


# --- what a join has to remember ----------------------------------------------------------------------------

joins = st.integers(2, 3).flatmap(
    lambda n: st.lists(streams(most=14, values=8, early=6), min_size=n, max_size=n)
)


def interleaved(given_streams, random):
    whose = [stream for stream, rows in enumerate(given_streams) for _ in rows]
    random.shuffle(whose)
    taken = [iter(rows) for rows in given_streams]
    return [(stream, next(taken[stream])) for stream in whose]


@given(joins, st.randoms(use_true_random=False), st.integers(1, 5))
def test_rows_that_are_done_meet_nobody_any_more(given_streams, random, batch):
    """With the true scrambling no later row has the value of one that was let go, whatever rates and lags are."""
    known = [scrambling(each) for each in given_streams]
    order = interleaved(given_streams, random)
    orders = [Order() for _ in given_streams]
    for start in range(0, len(order), batch):
        for n in range(len(orders)):
            new = [value for stream, value in order[start : start + batch] if stream == n]
            orders[n] = orders[n].then(np.array(new, np.int64))
        for n, done in enumerate(rows_done(orders, known)):
            gone = set(given_streams[n][:done])
            to_come = {value for stream, value in order[start + batch :] if stream != n}
            assert not gone & to_come


@given(joins, st.randoms(use_true_random=False))
def test_no_more_is_remembered_than_equation_7_asks_for(given_streams, random):
    """With lag and rate as they are: rows of S_i while the last k_j of S_j came, at every moment."""
    order = interleaved(given_streams, random)
    known = [scrambling(each) for each in given_streams]
    seen: list[list[int]] = [[] for _ in given_streams]
    history = []
    for stream, value in order:
        seen[stream].append(value)
        history.append(tuple(map(len, seen)))
        orders = [Order.of(np.array(each, np.int64)) for each in seen]
        for i, done in enumerate(rows_done(orders, known)):
            asked = 0
            for j, rows in enumerate(seen):
                if i == j or len(rows) - known[j] < 1:
                    asked = asked if i == j else 10**9
                    continue
                turn = next(each for each in history if each[j] == len(rows) - known[j])
                ahead = lag(given_streams[i], given_streams[j], turn[i], turn[j])
                asked = max(asked, known[i] + len(seen[i]) - turn[i] + ahead)
            assert len(seen[i]) - done <= max(1, asked + 1)


@given(joins, st.randoms(use_true_random=False))
def test_a_lag_is_never_above_what_is_said_of_it(given_streams, random):
    known = [scrambling(each) for each in given_streams]
    seen: list[list[int]] = [[] for _ in given_streams]
    for stream, value in interleaved(given_streams, random):
        seen[stream].append(value)
        own, other = (Order.of(np.array(each, np.int64)) for each in seen[:2])
        if other.rows:
            true = lag(given_streams[0], given_streams[1], own.rows, other.rows)
            assert true <= lag_at_most(own, other, known[1])
