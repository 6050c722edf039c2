"""Promises beside joins of more than two streams: they change no result, and rows go that nobody waits for."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from penstock import testing
from tests.testing.test_aggregates import few

STREAM = (
    "CREATE STREAM {name} (k INT, j INT, kind STRING, ts TIMESTAMP) "
    "WITH (format = 'parquet', path = '{name}', time = 'ts'{promises});"
)
PROMISES = ", punctuation = 'kind = ''done''', punctuates = 'k'"
CHAIN, COMMON = "A.k = B.k AND B.j = C.j", "A.k = B.k AND B.k = C.k"


def script(promising, condition):
    """Declare three streams, some of which promise, and a query with a long window."""
    streams = (STREAM.format(name=name, promises=PROMISES if name in promising else "") for name in "ABC")
    kinds = " AND ".join(f"{name}.kind = 'row'" for name in "ABC")
    query = f"SELECT A.k, B.j, A.ts AS a, B.ts AS b, C.ts AS c FROM A, B, C WHERE {condition} AND {kinds}"
    return f"{''.join(streams)} CREATE QUERY q AS {query} WINDOW 1 hour;"


def batches(random, keys=4, turns=5):
    """Make rows of keys that come one after the other; each is finished a turn after its last row."""
    made = []
    for turn in range(turns):
        for name in "ABC":
            rows = [
                {"k": turn, "j": random.randrange(3), "kind": "row", "ts": at(turn, random.randrange(50))}
                for _ in range(random.randrange(1, keys))
            ]
            if turn:
                rows.append({"k": turn - 1, "j": None, "kind": "done", "ts": at(turn, 0)})
            made.append((name, rows))
    return made


def at(minute, second):
    return f"2026-01-01 10:{minute:02d}:{second:02d}"


def ran(text, made):
    """Run batch by batch; give the results, and the rows that promises let go."""
    with testing.Session(text) as session:
        for name, rows in made:
            session.send(name, rows)
            session.turn()
        session.end()
        purged = sum(each.purged for each in session.status().streams)
        return sorted(map(str, session.results("q"))), purged


@few(6)
@given(st.integers(0, 1 << 20), st.sampled_from(["A", "AB", "ABC", "C"]), st.sampled_from([CHAIN, COMMON]))
def test_promises_change_no_result_of_many_streams(seed, promising, condition):
    made = batches(Random(seed))
    assert ran(script(promising, condition), made)[0] == ran(script("", condition), made)[0]


def test_a_row_goes_when_all_its_partners_are_done_with_its_key():
    made = batches(Random(1), keys=9, turns=9)
    assert ran(script("ABC", COMMON), made)[1] > 0


def test_a_row_stays_while_one_partner_may_still_send_its_key():
    """B and C are done with k, A is not: rows of B wait for A.  Rows of A wait for nobody, and go."""
    made = batches(Random(1), keys=9, turns=9)
    with testing.Session(script("BC", COMMON)) as session:
        for name, rows in made:
            session.send(name, rows)
            session.turn()
        session.end()
        purged = {each.name: each.purged for each in session.status().streams}
    assert purged["A"] > 0
    assert purged["B"] == purged["C"] == 0
