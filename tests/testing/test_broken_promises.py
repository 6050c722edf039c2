"""Rows that break a promise: set aside with the reason, counted, and never joined, however rows are cut and dealt out.

p = 5     a row at 5 keeps the promise, one at 5.000001 breaks it, if the promise came before it or in its batch
"""

from __future__ import annotations

from collections import Counter
from random import Random
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import limits, testing
from tests.answers import SECOND
from tests.testing.answer_world import START, at_time
from tests.testing.promise_world import KINDS, Promised, Shape, covers, sent
from tests.testing.test_aggregates import few, seeds
from tests.testing.test_promises import SETTINGS

OTHER = """
CREATE STREAM B (id BIGINT, k BIGINT, j BIGINT, ts TIMESTAMP) WITH (format = 'parquet', path = 'b', time = 'ts');
"""
JOIN = "SELECT A.id AS a, B.id AS b FROM A, B WHERE"
QUERIES = f"""
CREATE QUERY by_k AS {JOIN} A.k = B.k AND A.v > 2 WINDOW 30 seconds;
CREATE QUERY all_by_k AS {JOIN} A.k = B.k AND A.v >= 0 WINDOW 20 seconds;
CREATE QUERY by_j AS {JOIN} A.j = B.j WINDOW 30 seconds;
"""


def drawn_rows(random, stream, count):
    """Rows and promises that have nothing to do with each other."""
    rows = []
    for number in range(count):
        time = START + random.randrange(12) * SECOND // 2
        row = {
            "id": number,
            "k": random.randrange(3),
            "j": random.randrange(2),
            "v": random.randrange(5),
            "kind": "r",
        }
        if stream.kind != "unique" and random.random() < 0.3:
            low, high = random.choice((None, 0, 1, 2)), random.choice((None, 0, 1, 2))
            row = {"id": -1, "k": low, "j": random.choice((None, 0, 1)), "v": 0, "kind": "p"}
            row |= {"lo": low, "hi": high, "ks": [low, high] if random.random() < 0.7 else None}
        rows.append(row | {"ts": at_time(time), "_t": time})
    return rows


def judged_batches(stream, batches):
    """Say of each row, by the definition, whether it is late, broken or counts."""
    known, newest, fates = [], None, {}
    for batch in batches:
        bound = None if newest is None else newest - 2 * SECOND
        data = [each for each in batch if each["kind"] == "r"]
        timely = [each for each in data if bound is None or each["_t"] >= bound]
        made = timely if stream.kind == "unique" else [each for each in batch if each["kind"] == "p"]
        broken = {
            each["id"]
            for each in timely
            if any(covers(stream, one, each) and one["_t"] < each["_t"] for one in known + made)
        }
        fates |= {each["id"]: "late" for each in data}
        fates |= {each["id"]: "broken" if each["id"] in broken else "counts" for each in timely}
        known += [each for each in made if each["kind"] == "p" or each["id"] not in broken]
        times = [each["_t"] for each in batch if each["kind"] == "p" or fates[each["id"]] == "counts"]
        newest = max([*times, *([] if newest is None else [newest])], default=None)
    return fates


@few(8)
@given(seeds, st.integers(1, 3), st.sampled_from(SETTINGS), st.sampled_from(KINDS), st.booleans())
def test_broken_promises_are_those_of_the_definition_however_rows_are_cut(seed, tasks, setting, kind, both):
    random = Random(seed)
    stream = Promised("A", Shape(("k",)), kind, both=both)
    rows = drawn_rows(random, stream, 30)
    ends = sorted(random.randint(0, 30) for _ in range(random.randint(0, 4)))
    batches = [rows[a:b] for a, b in zip([0, *ends], [*ends, 30], strict=True)]
    fates = judged_batches(stream, batches)
    partners = [
        {"id": n, "k": random.randrange(3), "j": random.randrange(2), "ts": at_time(START + n * SECOND)}
        for n in range(8)
    ]
    with testing.Session(setting + stream.declared() + OTHER + QUERIES, tasks=tasks) as session:
        session.send("B", partners[:4])
        for batch in batches:
            session.send("A", sent(batch, stream))
            session.turn()
        session.send("B", partners[4:])
        session.turn()
        status = next(each for each in session.status().streams if each.name == "A")
        counts = Counter(fates.values())
        assert (status.broken, status.late) == (counts["broken"], counts["late"])
        aside = Counter((row["id"], row["_reason"].split(":")[0].split()[0]) for row in session.late("A"))
        assert aside == Counter((each, fate) for each, fate in fates.items() if fate != "counts")
        for name in ("by_k", "all_by_k", "by_j"):
            assert all(fates[row["a"]] == "counts" for row in session.results(name)), name


@pytest.mark.parametrize("tasks", [1, 2, 3])
def test_a_row_that_no_query_wants_by_one_key_is_not_joined_by_another(tasks):
    """The promise is in one task, the row in another; the log of the promised key does not have it."""
    stream = Promised("A", Shape(("k",)), "value")
    row = {"id": 1, "k": 1, "j": 1, "v": 0, "kind": "r", "ts": at_time(START + 5 * SECOND)}
    with testing.Session(stream.declared() + OTHER + QUERIES, tasks=tasks) as session:
        session.send("A", [row | {"id": -1, "kind": "p", "ts": at_time(START)}, row])
        session.send("B", [{"id": 1, "k": 1, "j": 1, "ts": at_time(START + 5 * SECOND)}])
        session.turn()
        assert session.results("by_j") == []
        assert next(each.broken for each in session.status().streams if each.name == "A") == 1


def test_a_null_is_the_last_of_no_value_and_a_promise_without_a_time_says_nothing():
    unique, marked = Promised("A", Shape(("k",)), "unique"), Promised("A", Shape(("k",)), "value")
    row = {"id": 1, "k": 1, "j": 1, "v": 3, "kind": "r", "ts": at_time(START + 5 * SECOND)}
    for stream, first in (
        (unique, row | {"k": None, "ts": at_time(START)}),
        (marked, row | {"kind": "p", "ts": None}),
    ):
        with testing.Session(stream.declared() + OTHER + QUERIES) as session:
            session.send("A", [first])
            session.send("A", [row])
            session.send("B", [{"id": 1, "k": 1, "j": 1, "ts": at_time(START + 5 * SECOND)}])
            session.turn()
            assert session.results("by_k") == [{"a": 1, "b": 1}]


# --- once wrong -------------------------------------------------------------------------------------------------------


def test_a_wildcard_is_about_nulls_too():
    stream = Promised("A", Shape(("k",)), "value", both=True)
    row = {"id": 1, "k": 1, "j": None, "v": 3, "kind": "r", "ts": at_time(START + 5 * SECOND)}
    with testing.Session(stream.declared() + OTHER + QUERIES) as session:
        session.send("A", [row | {"kind": "p", "ts": at_time(START)}])
        session.send("A", [row])
        assert next(each.broken for each in session.status().streams if each.name == "A") == 1


def test_promises_may_be_merged_while_a_batch_is_ingested():
    stream = Promised("A", Shape(("k",)), "value")
    row = {"id": 1, "k": 1, "j": 1, "v": 3, "kind": "p", "ts": at_time(START + 5 * SECOND)}
    with (
        patch.object(limits, "MERGE_FAN_IN", 2),
        testing.Session(stream.declared() + OTHER + QUERIES) as session,
    ):
        for value in range(4):
            session.send("A", [row | {"k": value}])
        ingest = session._backend.ingest

        def meanwhile(*given):
            session._backend.ingest = ingest
            session.turn()  # files are merged, and let go
            session.send(
                "B", [{"id": 1, "k": 1, "j": 1, "ts": at_time(START)}]
            )  # the next commit deletes them
            return ingest(*given)

        session._backend.ingest = meanwhile
        session.send("A", [row | {"kind": "r", "k": 9}])


def test_a_list_without_a_time_is_one_row():
    stream = Promised("A", Shape(("k",)), "list")
    with testing.Session(stream.declared() + OTHER + QUERIES) as session:
        session.send("A", [{"ks": [1, 2, 3], "kind": "p", "ts": None}])
        assert len(session.late("A")) == 1
