"""Which values are finished is told after the last result that has them, or not at all.

second      0   1   2   3   4   5   6
A           7       9                      both say at 3 that 7 is closed; B's watermark passes 3 at 5
B               7       .   .   8          a result of 7 is at 1
"""

from __future__ import annotations

import pytest

from penstock import testing
from penstock.errors import InputError
from tests.answers import SECOND
from tests.testing.answer_world import START, at_time

STREAM = (
    "CREATE STREAM {0} (k BIGINT, kind STRING, ts TIMESTAMP) WITH (format = 'parquet', path = '{0}', time = 'ts', "
    "punctuation = 'kind = ''p''', punctuates = 'k');\n"
)
STREAMS = STREAM.format("A") + STREAM.format("B")
JOIN = "FROM A, B WHERE A.k = B.k"


def row(second, k=7, kind="r"):
    return {"k": k, "kind": kind, "ts": at_time(START + round(second * SECOND))}


def values(session):
    return sorted(each["k"] for each in session.punctuations("q"))


@pytest.mark.parametrize(
    "query",
    [
        f"CREATE QUERY q AS SELECT A.k {JOIN} WINDOW 1 hour;",
        f"CREATE QUERY q WITH (order = 'filter-order') AS SELECT A.k {JOIN} WINDOW 1 hour;",
        f"CREATE QUERY q WITH (emit = 'final') AS SELECT A.k, COUNT(*) AS n {JOIN} GROUP BY A.k WINDOW 1 hour;",
        f"CREATE QUERY q WITH (emit = 'changes') AS SELECT A.k, COUNT(*) AS n {JOIN} GROUP BY A.k WINDOW 1 hour;",
    ],
)
def test_a_value_is_told_when_both_sides_are_done_with_it_and_its_results_are_there(query):
    with testing.Session(STREAMS + query) as session:
        session.send("A", [row(0), row(3, kind="p")])
        session.send("B", [row(1), row(3, kind="p")])
        session.turn()
        assert values(session) == []  # the watermarks are at 3: rows at 3 may still come
        session.send("A", [row(4, k=9)])
        session.turn()
        assert values(session) == []
        session.send("B", [row(5, k=8)])
        session.turn()
        assert values(session) == [7]
        assert [each["k"] for each in session.results("q")] == [7]


def test_early_by_the_window_of_the_side_that_has_spoken():
    with testing.Session(STREAMS + f"CREATE QUERY q AS SELECT A.k {JOIN} WINDOW 10 seconds;") as session:
        session.send("A", [row(0), row(3, kind="p"), row(4, k=9)])
        session.send("B", [row(12.999999, k=8)])
        session.turn()
        assert values(session) == []
        session.send("B", [row(13, k=8)])
        session.turn()
        assert values(session) == [7]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (
            f"CREATE QUERY q AS SELECT A.k, COUNT(*) AS n {JOIN} GROUP BY A.k WINDOW 9 s EVERY 1 s;",
            "continue after",
        ),
        (
            f"CREATE QUERY q WITH (emit = 'final') AS SELECT COUNT(*) AS n {JOIN} WINDOW 9 s;",
            "continue after",
        ),
        (
            "CREATE QUERY q AS SELECT A.k FROM A, B WHERE A.k + 1 = B.k + 1 WINDOW 9 s;",
            "no stream makes promises",
        ),
    ],
)
def test_what_cannot_be_told_is_refused_with_the_way_out(query, message):
    with testing.Session(STREAMS + query) as session, pytest.raises(InputError, match=message):
        session.punctuations("q")
