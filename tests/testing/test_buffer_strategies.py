"""Joins without a window that save memory: whatever the strategy, the result is the whole join.

What waits, by strategy, is judged row by row against what was sent: under dbf no row that waits has a partner in every
other stream yet; under msf and hybrid rows are joined in order of their values.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import InputError
from penstock.plan.buffers import DBF, HYBRID, MSF, PLAIN, STRATEGIES
from penstock.testing import Session
from tests.testing.test_oblivious import buffers, drawn, play, results, script, table
from tests.testing.windowless_world import TYPES, full_join, sensor


def asked(strategy):
    return f"SET buffers = '{strategy}';"


@pytest.mark.parametrize("strategy", STRATEGIES)
@settings(deadline=None, max_examples=12)
@given(st.integers(0, 1 << 30))
def test_with_known_characteristics_every_strategy_gives_the_whole_join(strategy, seed):
    rng = Random(seed)
    sensors, kind = drawn(rng), rng.choice(list(TYPES))
    with Session(script(sensors, kind) + asked(strategy), tasks=rng.choice([1, 3])) as session:
        play(session, sensors, rng, kind)
        assert results(session, sensors) == full_join(sensors)
        query = buffers(session)
    assert (query.accuracy, query.missed, query.misses) == (1.0, 0.0, ())


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 1 << 30))
def test_the_strategy_may_change_at_any_moment(seed):
    rng = Random(seed)
    sensors = drawn(rng)

    def change(session, _seen):
        if rng.random() < 0.4:
            session.script(asked(rng.choice(STRATEGIES)))

    with Session(script(sensors)) as session:
        play(session, sensors, rng, look=change)
        assert results(session, sensors) == full_join(sensors)
        assert buffers(session).missed == 0.0


@pytest.mark.parametrize("strategy", STRATEGIES)
@settings(deadline=None, max_examples=8)
@given(st.integers(0, 1 << 30))
def test_with_measured_characteristics_what_is_missed_is_told(strategy, seed):
    rng = Random(seed)
    sensors = drawn(rng, most=3)
    with Session(script(sensors, declared=False) + asked(strategy)) as session:
        play(session, sensors, rng)
        found, whole = set(results(session, sensors)), set(full_join(sensors))
        query = buffers(session)
    assert found <= whole
    assert len(whole) - len(found) <= query.missed + 1e-6


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 1 << 30))
def test_dbf_delivers_as_soon_as_plain_and_what_waits_has_no_partner_yet(seed):
    rng = Random(seed)
    sensors = drawn(rng, most=3)

    def look(session, seen):
        assert results(session, sensors) == joined(seen, [each.name for each in sensors])

    with Session(script(sensors) + asked(DBF)) as session:
        play(session, sensors, rng, look=look)


def joined(seen, names):
    """Join rows as they were sent."""
    found = [()]
    for name in names:
        found = [
            (*row, (number, value))
            for row in found
            for number, value in enumerate(seen[name])
            if value is not None and (not row or row[0][1] == value)
        ]
    return sorted(tuple(number for number, _ in row) for row in found)


def leading(strategy, rounds=20):
    """Let S0 be far ahead of S1, both in order; give the rows kept of S0 and the rows that wait."""
    sensors = [sensor(Random(seed), name, 5) for seed, name in enumerate(["S0", "S1"])]
    text = script(sensors, declared=False)
    with Session(text + asked(strategy)) as session:
        for start in range(0, 10 * rounds, 10):
            session.send("S0", table(start, list(range(start, start + 10)), "BIGINT", timed=False))
            session.turn()
        for start in range(0, 100, 10):
            session.send("S1", table(start, list(range(start, start + 10)), "BIGINT", timed=False))
            session.turn()
        query = buffers(session)
        return query.buffers[0].rows, query.lag_rows, len(session.results("q"))


def test_dbf_leaves_the_rows_of_a_leading_stream_on_disk():
    kept, waiting, found = leading(PLAIN)
    assert (waiting, found) == (0, 100)
    assert kept >= 100
    for strategy in (DBF, HYBRID):
        kept, waiting, found = leading(strategy)
        assert (waiting, found) == (100, 100)
        assert kept <= 10, "of the last batch that was joined"


def test_msf_joins_rows_in_the_order_of_their_values():
    rows = [3, 1, 2, 6, 4, 5, 9, 7, 8]
    options = "scrambling = '2'"
    streams = "".join(
        f"CREATE STREAM {name} (k BIGINT, n BIGINT) WITH (format = 'parquet', path = '{name}', {options});"
        for name in ("S0", "S1")
    )
    query = "CREATE QUERY q WITH (buffers = 'msf') AS SELECT S0.k + 20 AS k FROM S0, S1 WHERE S0.k = S1.k;"
    found = []
    with Session(streams + query) as session:
        for start in range(9):
            for name in ("S0", "S1"):
                session.send(name, table(start, rows[start : start + 1], "BIGINT", timed=False))
            session.turn()
            found.append(sorted(each["k"] for each in session.results("q")))
        session.end()
        assert sorted(each["k"] for each in session.results("q")) == list(range(1, 10))
    in_order = [list(range(1, most + 1)) for most in (0, 0, 3, 3, 3, 6, 6, 6, 9)]
    assert found == in_order, "the third row says that 1 to 3 are all there are up to 3"


@pytest.mark.parametrize("strategy", [MSF, HYBRID])
def test_a_row_that_comes_too_late_for_the_sorter_is_joined_when_it_comes(strategy):
    sensors = [sensor(Random(seed), name, 5) for seed, name in enumerate(["S0", "S1", "S2"])]
    with Session(script(sensors, declared=False) + asked(strategy)) as session:
        for name in ("S0", "S1"):
            session.send(name, table(0, [10, 20, 30], "BIGINT", timed=False))
        session.send("S2", table(0, [1, 2], "BIGINT", timed=False))
        session.turn()
        session.send("S0", table(3, [9], "BIGINT", timed=False))
        session.send("S1", table(3, [9], "BIGINT", timed=False))
        session.send("S2", table(2, [9, 10, 40], "BIGINT", timed=False))
        session.turn()
        session.end()
        assert results(session, sensors) == [(0, 0, 3), (3, 3, 2)]


def test_a_query_added_while_rows_wait_gets_what_was_joined_and_goes_on():
    sensors = [sensor(Random(seed), name, 30) for seed, name in enumerate(["S0", "S1"])]
    again = "CREATE QUERY again AS SELECT S0.n AS n0, S1.n AS n1 FROM S0, S1 WHERE S0.k = S1.k;"
    for strategy in STRATEGIES:
        with Session(script(sensors) + asked(strategy)) as session:
            session.script(again)
            play(session, sensors, Random(3))
            assert sorted((row["n0"], row["n1"]) for row in session.results("again")) == full_join(sensors)


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("SET buffers = 'disk';", "buffers cannot be disk: choose one of: plain, dbf, msf, hybrid"),
        ("SET memory = '-3 MiB';", "is not an amount of memory"),
        ("SET memory = 'plenty';", "is not an amount of memory"),
    ],
)
def test_settings_that_mean_nothing_are_refused_with_their_line(statement, said):
    sensors = [sensor(Random(seed), name, 5) for seed, name in enumerate(["S0", "S1"])]
    with pytest.raises(InputError, match=said) as refused:
        Session(script(sensors) + "\n" + statement)
    assert "line 4" in str(refused.value)
    assert "^" in str(refused.value)


def test_a_query_with_a_window_has_no_buffers_to_save():
    streams = "".join(
        f"CREATE STREAM {name} (k BIGINT, ts TIMESTAMP) WITH (format = 'parquet', path = '{name}', time = 'ts');\n"
        for name in ("A", "B")
    )
    query = "CREATE QUERY q WITH (buffers = 'dbf') AS SELECT A.k FROM A, B WHERE A.k = B.k WINDOW 1 min;"
    with pytest.raises(InputError, match="buffers is for queries without a window"):
        Session(streams + query)
