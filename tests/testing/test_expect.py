"""Aggregates held against DuckDB: what is right passes, what is wrong is shown, what cannot be compared says so."""

from __future__ import annotations

import datetime as dt
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock import testing
from penstock.errors import InputError
from tests.kernels.drawn import examples

STREAMS = """
CREATE STREAM T (Room BIGINT, Name STRING, Value DOUBLE, Cost DECIMAL(9,2), ts TIMESTAMP)
    WITH (format = 'parquet', path = 'in/t', time = 'ts', lateness = '5 seconds');
CREATE STREAM H (Room BIGINT, Name STRING, Value DOUBLE, Cost DECIMAL(9,2), ts TIMESTAMP)
    WITH (format = 'parquet', path = 'in/h', time = 'ts', lateness = '2 seconds');
"""
PAIRS = "FROM T, H WHERE T.Room = H.Room"
QUERIES = {
    "sliding": f"SELECT T.Room, COUNT(*) AS n, MAX(H.Value) AS h {PAIRS} GROUP BY T.Room WINDOW 20 s EVERY 5 s",
    "one_group": f"SELECT COUNT(DISTINCT T.Name, H.Name) AS names, STDDEV(T.Value) AS d {PAIRS} WINDOW 9 s EVERY 3 s",
    "picky": f"SELECT H.Name AS x, SUM(T.Cost) * 2 AS c {PAIRS} AND T.Value > H.Value GROUP BY H.Name "
    "HAVING COUNT(T.Cost) > 1 AND x <> 'b' WINDOW 12 s EVERY 4 s",
    "skewed": "SELECT COUNT(*) FILTER (WHERE T.Value > 50) AS n FROM T [RANGE 20 s], H [RANGE 7 s] "
    "WHERE T.Room = H.Room EVERY 3 s",
    "chosen": "SELECT T.Room, MAX_BY(H.Name, T.Value) AS x, concat(MIN_BY(T.Name, H.Value), '!') AS y, "
    f"MAX_BY(T.Cost, H.Cost) FILTER (WHERE T.Value > 9) AS z {PAIRS} GROUP BY T.Room "
    "HAVING MAX_BY(T.Value, H.Value) > 20 WINDOW 10 s EVERY 2 s",
    "default_every": f"SELECT AVG(T.Value) AS v {PAIRS} AND T.ts <= H.ts WINDOW 1 min",
    "final": f"SELECT T.Room, date_trunc('minute', H.ts) AS m, MIN(T.Name) AS first {PAIRS} GROUP BY 1, 2 WINDOW 9 s",
    "at_the_end": f"SELECT H.Name, COUNT(*) AS n {PAIRS} GROUP BY ALL HAVING n > 3 WINDOW 9 s",
}
START = dt.datetime(2026, 1, 1, 10, tzinfo=dt.UTC)


def script(*names):
    options = {"final": " WITH (emit = 'final')", "at_the_end": " WITH (emit = 'final')"}
    return "".join(f"CREATE QUERY {each}{options.get(each, '')} AS {QUERIES[each]};\n" for each in names)


def rows(source, first, last):
    """Rows about a second apart, some out of order, some later than allowed, some with nulls."""
    return [
        {
            "Room": source.choice([1, 2, None]),
            "Name": source.choice(["a", "A", "b", None]),
            "Value": source.choice([7.0, float(source.randrange(100)), None]),
            "Cost": source.choice(["1.50", "-2", None]),
            "ts": START + dt.timedelta(seconds=number + source.choice([0, 0, 0, -3, -8, 2])),
        }
        for number in range(first, last)
    ]


@examples(8)
@example(seed=101, batch=None, restarts=False)  # a sum with another last digit in DuckDB
@given(st.integers(0, 2**31), st.sampled_from([None, 9, "11 seconds"]), st.booleans())
def test_aggregates_are_duckdbs_however_the_rows_come(seed, batch, restarts):
    source = Random(seed)
    streams = {"T": rows(source, 0, 40), "H": rows(source, 0, 40)}
    restart_after = [1, 2] if restarts and batch else []
    run = testing.run(STREAMS + script(*QUERIES), streams, batch=batch, restart_after=restart_after)
    testing.expect(run)
    assert all(run[each] for each in ("sliding", "one_group", "final"))


@examples(6)
@given(st.integers(0, 2**31))
def test_a_query_that_came_late_must_be_right_where_it_is_complete(seed):
    source = Random(seed)
    with testing.Session(STREAMS + script("sliding")) as session:
        for first in (0, 40):
            session.send("T", rows(source, first, first + 40))
            session.send("H", rows(source, first, first + 40))
            session.turn()
            if not first:
                session.script(script("one_group", "picky", "final", "at_the_end"))
        session.end()
        testing.expect(session)
        wrong = session.results("one_group")[:-1]
        run = testing.Run({"one_group": wrong}, {}, session.status(), session)
        with pytest.raises(AssertionError, match="missing"):
            testing.expect(run, "one_group")


@pytest.mark.parametrize(("query", "column"), [("sliding", "n"), ("final", "first")])
def test_a_wrong_answer_is_shown(query, column):
    row = {"Room": 1, "Name": "x", "Value": 1.0, "ts": START}
    run = testing.run(STREAMS + script(query), {"T": [row], "H": [row]})
    testing.expect(run)
    run[query][0][column] = 9
    with pytest.raises(
        AssertionError, match=rf"query {query}: 1 results, DuckDB has 1\n  missing: .*\n  too"
    ):
        testing.expect(run)
    run[query].clear()
    with pytest.raises(AssertionError, match=rf"query {query}: 0 results, DuckDB has 1\n  missing"):
        testing.expect(run)


def test_changes_are_refused_and_others_can_be_named():
    row = {"Room": 1, "Value": 1.0, "ts": START}
    changes = f"CREATE QUERY told WITH (emit = 'changes') AS SELECT T.Room, COUNT(*) AS n {PAIRS} GROUP BY 1 WINDOW 1 s"
    run = testing.run(STREAMS + script("sliding") + changes, {"T": [row], "H": [row]})
    assert run["told"] == [{"_op": "insert", "_seq": 1, "Room": 1, "n": 1}]
    with pytest.raises(
        InputError, match=r"query told answers with changes, unit by unit, .* expect\(run, 'a"
    ):
        testing.expect(run)
    testing.expect(run, "sliding")


def test_an_average_of_decimals_is_refused():
    query = f"CREATE QUERY mean AS SELECT AVG(T.Cost) AS c {PAIRS} WINDOW 1 s"
    run = testing.run(STREAMS + query, {"T": [{"Room": 1, "Cost": "1.25", "ts": START}], "H": []})
    with pytest.raises(
        InputError, match=r"cannot compare AVG, which is decimal.*DuckDB averages decimals as doubles"
    ):
        testing.expect(run)
