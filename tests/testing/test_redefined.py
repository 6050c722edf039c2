"""Aggregates that are defined anew, stopped or left alone by their streams: nothing is told twice, nothing is lost.

minute          |----- 10:00 -----|----- 10:01 -----|
rows               x    x    x   x   x  x  x  x
given                                 ^ 10:00        the query is altered here: 10:00 is not given again
"""

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest

from penstock import testing
from penstock.engine.views.horizon import IdleClock
from penstock.errors import InputError
from penstock.kernels.aggregates.folded import fold_values

STREAMS = """
CREATE STREAM A (k INT, v INT, t STRING, ts TIMESTAMP) WITH (format = 'parquet', path = 'a', time = 'ts');
CREATE STREAM B (k INT, v INT, t STRING, ts TIMESTAMP) WITH (format = 'parquet', path = 'b', time = 'ts');
"""
BY_MINUTE = "date_trunc('minute', A.ts)"
FINAL = f"SELECT {BY_MINUTE} AS m, COUNT(*) AS n FROM A, B WHERE A.k = B.k GROUP BY {BY_MINUTE} WINDOW 10 s"


def row(second, k=1, v=0):
    time = dt.datetime(2026, 1, 1, 10, tzinfo=dt.UTC) + dt.timedelta(seconds=second)
    return {"k": k, "v": v, "t": "x", "ts": time}


def send(session, *seconds, k=1):
    for second in seconds:
        for stream in "AB":
            session.send(stream, [row(second, k)])
        session.turn()


def latest(rows):
    """Give what changes come to: the last of each group, unless it is taken back."""
    newest = {}
    for each in sorted(rows, key=lambda each: each["_seq"]):
        newest[each["k"]] = each
    return {k: each["n"] for k, each in newest.items() if each["_op"] != "delete"}


def test_a_bucket_that_was_given_is_not_given_again_by_another_definition():
    """Another query holds the rows, so that the new definition is computed from them."""
    holder = "CREATE QUERY holder AS SELECT A.v FROM A, B WHERE A.k = B.k WINDOW 90 s;"
    with testing.Session(f"{STREAMS}{holder}CREATE QUERY q WITH (emit = 'final') AS {FINAL};") as session:
        send(session, 10, 30, 55, 59, 65, 68, 71, 75)
        assert [each["m"].minute for each in session.results("q")] == [0]
        session.script(f"ALTER QUERY q AS {FINAL.replace('COUNT(*) AS n', 'COUNT(*) AS n, MAX(A.v) AS x')};")
        send(session, 200)
        assert [(each["m"].minute, each.get("x")) for each in session.results("q")] == [(0, None), (1, 0)]


def test_streams_that_are_all_silent_end_no_bucket_that_is_open():
    script = f"{STREAMS}CREATE QUERY q WITH (emit = 'final', idle_after = '1 second') AS {FINAL};"
    with testing.Session(script) as session:
        session._context.idle = IdleClock(started=-1e9)
        send(session, 10, 30)
        assert session.results("q") == []
        send(session, 55, 75)
        assert [each["n"] for each in session.results("q")] == [3]


def test_another_select_list_tells_all_groups_again_with_the_totals_they_had():
    text = "SELECT A.k, COUNT(*) AS n FROM A, B WHERE A.k = B.k GROUP BY A.k {} WINDOW 2 s"
    with testing.Session(f"{STREAMS}CREATE QUERY q WITH (emit = 'changes') AS {text.format('')};") as session:
        send(session, 1, 4, 7, 10)
        send(session, 11, k=2)
        assert latest(session.results("q")) == {1: 4, 2: 1}
        session.script(f"ALTER QUERY q AS {text.format('HAVING COUNT(*) > 1')};")
        session.turn()
        assert latest(session.results("q")) == {1: 4}, "the other is taken back"
        send(session, 20, k=2)
        assert latest(session.results("q")) == {1: 4, 2: 2}


def test_count_alone_asks_nothing_of_a_pair_but_its_condition():
    text = "SELECT COUNT(*) AS n FROM A, B WHERE A.k = B.k AND A.v < B.v WINDOW 4 s EVERY 2 s"
    script = f"{STREAMS}CREATE QUERY q AS {text};"
    run = testing.run(script, {"A": [row(0, v=1), row(1, v=5)], "B": [row(1, v=3), row(4, v=9)]})
    assert [(each["window_end"].second, each["n"]) for each in run["q"]] == [(2, 1), (4, 1)]


def test_however_often_sums_are_summed_no_limb_runs_over():
    folded = fold_values("sum", pa.array([-1, -2]), np.array([0, 1]), 2)
    for _ in range(40):
        folded = folded.plus(folded)
    assert folded.finished(pa.int64()).to_pylist() == [-(2**40), -(2**41)]


def test_texts_are_not_summed_up():
    script = f"{STREAMS}CREATE QUERY q AS SELECT SUM(A.t) AS s FROM A, B WHERE A.k = B.k WINDOW 4 s;"
    with pytest.raises(InputError, match="SUM of a STRING: CAST it to DOUBLE"):
        testing.run(script, {"A": [], "B": []})
