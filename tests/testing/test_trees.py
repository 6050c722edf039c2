"""Joins without a window whose input is another query: every query gives what DuckDB's view of it gives.

What is kept of an input is bounded as for streams (`tests.testing.test_oblivious`), where rows still to come of a query
are above the least of what its own inputs are still to bring: `reference_above`, by comparing values.
"""

from __future__ import annotations

from collections import Counter
from math import ceil
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engine.stages.turn import take_turn
from penstock.engine.views.plans import stopped_with_readers
from penstock.errors import InputError
from penstock.kernels.order_watch import PRECISION
from penstock.testing import Session, expect, run
from penstock.testing.backend import InlineBackend
from tests.testing.test_oblivious import play, table
from tests.testing.windowless_world import (
    TYPES,
    Node,
    Sensor,
    found,
    query_over,
    sensor,
    tree,
    true_multiplicity,
    true_scrambling,
    whole,
)


def streams_text(sensors, kind="BIGINT", *, declared=True):
    """Declare the streams."""
    text = ""
    for each in sensors:
        options = f"format = 'parquet', path = '{each.name}', ordered = 'k'"
        if declared:
            apart, alike = true_scrambling(each.values), true_multiplicity(each.values)
            options += f", scrambling = '{apart}', multiplicity = '{alike}'"
        text += f"CREATE STREAM {each.name} (k {kind}, n BIGINT) WITH ({options});\n"
    return text


def drawn(rng, *, most=5, rows=25, queries=4):
    """Draw streams and a tree over them."""
    sensors = [sensor(rng, f"S{number}", rng.randint(5, rows)) for number in range(rng.randint(2, most))]
    return sensors, tree(rng, [each.name for each in sensors], rng.randint(2, queries))


def tables_of(sensors, kind="BIGINT"):
    """Give all rows of each stream."""
    return {each.name: table(0, each.values, kind, timed=False) for each in sensors}


def script(sensors, queries, kind="BIGINT", *, declared=True):
    """Write streams and queries."""
    return streams_text(sensors, kind, declared=declared) + "\n".join(each.statement for each in queries)


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 1 << 30))
def test_with_known_characteristics_every_query_of_a_tree_is_complete(seed):
    rng = Random(seed)
    (sensors, queries), kind = drawn(rng), rng.choice(list(TYPES))
    saving = f"SET buffers = '{rng.choice(['plain', 'plain', 'dbf', 'msf', 'hybrid'])}';"
    with Session(saving + script(sensors, queries, kind), tasks=rng.choice([1, 3])) as session:
        play(session, sensors, rng, kind)
        wanted = whole(tables_of(sensors, kind), queries)
        for each in queries:
            assert found(session, each) == wanted[each.node.name], (seed, each.text)
        status = session.status()
        assert not session._store.ledger.fed
    assert [(each.accuracy, each.missed, each.misses) for each in status.queries] == [(1.0, 0.0, ())] * len(
        queries
    )


def test_what_a_query_has_missed_is_missing_in_its_readers_too():
    """Two of 60 rows of S1 come too late for q0: q1, which reads it, gives 58 of 60 results."""
    names = ["S0", "S1", "S2"]
    streams = streams_text([Sensor(name, [0], (), 0) for name in names], declared=False)
    queries = (
        "CREATE QUERY q0 AS SELECT S0.k, S0.n AS n0, S1.n AS n1 FROM S0, S1 WHERE S0.k = S1.k;"
        "CREATE QUERY q1 AS SELECT q0.n0, S2.n AS n2 FROM q0, S2 WHERE q0.k = S2.k;"
    )
    values = {"S0": list(range(60)), "S1": [each for each in range(60) if each not in {3, 4}] + [3, 4]}
    values["S2"] = values["S0"]
    with Session(streams + queries) as session:
        for start in range(0, 60, 10):
            for name in names:
                session.send(name, table(start, values[name][start : start + 10], "BIGINT", timed=False))
            session.turn()
        session.end()
        first, second = session.status().queries
        assert [len(session.results(name)) for name in ("q0", "q1")] == [58, 58]
    assert (first.accuracy, first.missed) == (58 / 60, 2)
    assert (second.accuracy, second.missed) == pytest.approx((58 / 60, 2))
    assert second.missed_error >= 2


class _KilledError(Exception):
    """Stands for the end of the process."""


def _dying(session, rng):
    """Let the process die at the next commit now and then: before it, or right after it."""
    commit = session._store.commit

    def dying(value):
        fate = rng.random()
        if fate < 0.05:
            raise _KilledError
        commit(value)
        if fate < 0.1:
            raise _KilledError

    session._store.commit = dying


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 1 << 30))
def test_a_result_is_a_row_once_whenever_the_process_dies(seed):
    rng = Random(seed)
    sensors, queries = drawn(rng, most=4, queries=3)
    with Session(script(sensors, queries)) as session:
        waiting = [(each.name, *batch) for each in sensors for batch in each.batches()]
        order = {each.name: 0 for each in sensors}
        rng.shuffle(waiting)
        for name, _, _ in waiting:  # batches of a stream stay in their order
            number = order[name]
            order[name] += 1
            first, values = next(each for each in sensors if each.name == name).batches()[number]
            session.send(name, table(first, values, "BIGINT", timed=False))
            _dying(session, rng)
            while True:
                try:
                    session.turn()
                    break
                except _KilledError:
                    session.restart()
                    _dying(session, rng)
            session.restart()
        session.end()
        wanted = whole(tables_of(sensors), queries)
        for each in queries:
            assert found(session, each) == wanted[each.node.name], (seed, each.text)


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 1 << 30))
def test_nothing_is_found_that_is_not_there_where_the_order_is_measured(seed):
    rng = Random(seed)
    sensors, queries = drawn(rng)
    with Session(script(sensors, queries, declared=False)) as session:
        play(session, sensors, rng)
        wanted = whole(tables_of(sensors), queries)
        status = {each.name: each for each in session.status().queries}
        for each in queries:
            name = each.node.name
            assert found(session, each) <= wanted[name], (seed, each.text)
        if not any(each.missed for each in status.values()):
            assert all(found(session, each) == wanted[each.node.name] for each in queries), seed


def reference_above(seen, known, queries, name):
    """Give what the rows still to come of a stream or query are above, by looking at all values; None: nothing."""
    query = next((each for each in queries if each.node.name == name), None)
    if query is not None:
        below = [reference_above(seen, known, queries, each.name) for each in query.inputs]
        return None if None in below else min(below)
    apart = ceil(known[name] * (1 + PRECISION)) + 1
    return max(
        (each for each in seen[name][: max(0, len(seen[name]) - apart)] if each is not None), default=None
    )


def rows_from(values, above):
    """Count the rows from the first on that is above a value."""
    if above is None:
        return len(values)
    first = (place for place, each in enumerate(values) if each is not None and each > above)
    return len(values) - next(first, len(values))


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 1 << 30))
def test_no_more_is_kept_than_what_is_still_to_come_asks_for(seed):
    rng = Random(seed)
    sensors, queries = drawn(rng)
    known = {each.name: true_scrambling(each.values) for each in sensors}
    fed = {each.node.name: [] for each in queries}

    class Recording(InlineBackend):
        def fed_rows(self, files, stream):
            rows = super().fed_rows(files, stream)
            fed[stream.name] += [None if each is None else each + 20 for each in rows["k"].to_pylist()]
            return rows

    def look(session, seen):
        status = {each.name: each for each in session.status().queries}
        arrived = {**seen, **fed}
        for query in queries:
            bounds = [reference_above(seen, known, queries, each.name) for each in query.inputs]
            by_name = sorted(zip(query.inputs, bounds, strict=True), key=lambda each: each[0].name.lower())
            for number, ((node, _), kept) in enumerate(
                zip(by_name, status[query.node.name].buffers, strict=True)
            ):
                others = [above for other, (_, above) in enumerate(by_name) if other != number]
                needed = max(rows_from(arrived[node.name], above) for above in others)
                assert kept.stream == node.name
                assert kept.rows <= ceil(needed * (1 + PRECISION)) + 1, (seed, query.text, node.name)
        ledger = session._store.ledger
        for group in session.plan.groups:
            for log, gone in zip(group.logs, ledger.buffers[group.id].gone, strict=True):
                readers = [each for each, _ in session.plan.uses(log.id)]
                if len(readers) == 1:
                    assert all(segment.max_t >= gone for segment in ledger.segments(log.id))

    with Session(script(sensors, queries)) as session:
        session._context.backend.__class__ = Recording
        play(session, sensors, rng, restarts=False, look=look)


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 1 << 30))
def test_queries_of_a_tree_come_and_go(seed):
    """A query that comes later gets at least what rows to come make, of streams and of queries; others see nothing."""
    rng = Random(seed)
    sensors, queries = drawn(rng, most=4, queries=3)
    last = query_over(rng, "late", [rng.choice(queries).node, Node(rng.choice(sensors).name)])
    added: dict[str, object] = {}

    def look(session, seen):
        if not added and rng.random() < 0.3:
            below = next(each for each in queries if each.node.name == last.inputs[0].name)
            added["before"], added["seen"] = found(session, below), len(seen[last.inputs[1].name])
            session.script(last.statement)
        elif added and "gone" not in added and rng.random() < 0.2:
            session.script("DROP QUERY late;")
            session.turn()
            added["gone"] = True
            session.script(last.statement.replace("late", "later"))

    with Session(script(sensors, queries)) as session:
        play(session, sensors, rng, look=look)
        wanted = whole(tables_of(sensors), [*queries, last])
        for each in queries:
            assert found(session, each) == wanted[each.node.name], (seed, each.text)
        if added and "gone" not in added:
            _check_late(session, last, queries, added, wanted)


def _check_late(session, last, queries, added, wanted):
    """Hold the results of a query that came later against what it has to get at the least, and at the most."""
    below = next(each for each in queries if each.node.name == last.inputs[0].name)
    fresh = found(session, below) - added["before"]
    late = found(session, last)
    assert late <= wanted["late"]
    if "CAST" in last.text:
        return
    place = last.node.columns
    own = len(below.node.columns)
    ours = Counter(
        {
            row: count
            for row, count in wanted["late"].items()
            if row[:own] in fresh and row[own] >= added["seen"]
        }
    )
    assert set(ours) <= set(late), (place, ours - late)


def two_streams():
    """Declare four streams of which the order is known."""
    return "".join(
        f"CREATE STREAM S{number} (k BIGINT, n BIGINT) WITH (format = 'parquet', path = 's', scrambling = '0');"
        for number in range(1, 5)
    )


Q1 = "CREATE QUERY q1 AS SELECT S1.k, S1.n AS a, S2.n AS b FROM S1, S2 WHERE S1.k = S2.k;"
Q2 = "CREATE QUERY q2 AS SELECT q1.k, q1.a, q1.b, S3.n AS c FROM q1, S3 WHERE q1.k = S3.k;"


def send(session, streams, first, last):
    """Send rows to some streams, with one value each."""
    values = list(range(first, last))
    for name in streams:
        session.send(name, pa.table({"k": values, "n": values}))
    session.turn()


def test_a_query_that_is_read_later_goes_on_counting_its_results():
    """Results are numbered as q1 found them, so that q2 can say from which on it is complete."""
    with Session(two_streams() + Q1) as session:
        send(session, ["S1", "S2"], 0, 10)
        session.script(Q2)
        assert session.since["q2"] == 10
        send(session, ["S1", "S2", "S3"], 10, 15)
        assert sorted(each["c"] for each in session.results("q2")) == list(range(10, 15))
        session.restart()
        assert session.since["q2"] == 10


def test_results_that_nobody_reads_any_more_wait_for_nobody():
    with Session(two_streams() + Q1 + Q2) as session:
        send(session, ["S1", "S2", "S3"], 0, 10)
        session.send("S1", pa.table({"k": [10], "n": [10]}))
        session.send("S2", pa.table({"k": [10], "n": [10]}))
        session.script("DROP QUERY q2;")
        session.turn()
        assert not session._store.ledger.fed
        session.script(Q2)
        send(session, ["S1", "S2", "S3"], 11, 14)
        assert sorted(each["c"] for each in session.results("q2")) == [11, 12, 13]
        assert len(session.results("q1")) == 14


def test_where_a_query_finds_nothing_its_partners_do_not_wait_for_it_for_ever():
    """q1's own streams say that nothing small is to come of it, though it has found no result at all."""
    selective = Q1.replace(";", " AND S1.n < 0;")
    with Session(two_streams() + selective + Q2) as session:
        for start in range(0, 100, 10):
            send(session, ["S1", "S2", "S3"], start, start + 10)
        (kept,) = [b for q in session.status().queries for b in q.buffers if b.stream == "S3"]
        assert session.results("q1") == []
        assert kept.rows <= 2


def test_a_query_is_read_whatever_its_sink():
    """The loops keep all results; what a noop sink counts is fed all the same (see the tests on Spark)."""
    with Session(two_streams() + Q1.replace("q1 AS", "q1 WITH (sink = 'noop') AS") + Q2) as session:
        send(session, ["S1", "S2", "S3"], 0, 10)
        assert len(session.results("q2")) == 10


def test_predicates_of_a_query_that_is_read_may_change_and_its_columns_may_not():
    with Session(two_streams() + Q1 + Q2) as session:
        send(session, ["S1", "S2", "S3"], 0, 10)
        session.script(
            "ALTER QUERY q1 AS SELECT S1.k, S1.n AS a, S2.n AS b FROM S1, S2 WHERE S1.k = S2.k AND S1.n > 14;"
        )
        send(session, ["S1", "S2", "S3"], 10, 20)
        assert sorted(each["c"] for each in session.results("q2")) == [*range(10), *range(15, 20)]
        with pytest.raises(
            InputError, match="query q1 is read by q2, for which its columns must stay as they are"
        ):
            session.script("ALTER QUERY q1 AS SELECT S1.k, S1.n AS a FROM S1, S2 WHERE S1.k = S2.k;")
        with pytest.raises(InputError, match="query q1 is read by q2: drop that first"):
            session.script("DROP QUERY q1;")


def test_a_query_may_be_read_twice_by_one_query():
    text = "CREATE QUERY both AS SELECT x.a AS a, y.b AS b FROM q1 x, q1 y WHERE x.k = y.k;"
    with Session(two_streams() + Q1 + text) as session:
        for start in (0, 5):
            send(session, ["S1", "S2"], start, start + 5)
        assert sorted((each["a"], each["b"]) for each in session.results("both")) == [
            (n, n) for n in range(10)
        ]


def test_the_query_that_is_altered_may_come_before_those_that_it_reads():
    """A tree is worked from its leaves, in whichever order its queries were registered."""
    first = "CREATE QUERY q0 AS SELECT S3.k, S3.n AS c FROM S3, S4 WHERE S3.k = S4.k;"
    with Session(two_streams() + first + Q1) as session:
        session.script("ALTER QUERY q0 AS SELECT q1.k, S3.n AS c FROM q1, S3 WHERE q1.k = S3.k;")
        send(session, ["S1", "S2", "S3"], 0, 10)
        assert sorted(each["c"] for each in session.results("q0")) == list(range(10))
        with pytest.raises(InputError, match="q0 reads the results of q1, which cannot read them again"):
            session.script("ALTER QUERY q1 AS SELECT q0.k, S1.n AS a FROM q0, S1 WHERE q0.k = S1.k;")


def test_while_a_query_is_behind_the_one_it_reads_what_is_kept_stays_bounded():
    """Each turn q1 finds another batch and q2 joins the one before: what was known with that batch counts."""
    with Session(two_streams() + Q1 + Q2) as session:
        for start in range(0, 200, 10):
            for name in ("S1", "S2", "S3"):
                session.send(name, pa.table({"k": range(start, start + 10), "n": range(start, start + 10)}))
            take_turn(session._context)
            lagging = session._context.has_work()
            (kept,) = [b for q in session.status().queries for b in q.buffers if b.stream == "S3"]
            assert kept.rows <= 21
        assert lagging


def test_expect_lets_duckdb_answer_the_queries_that_are_read():
    rows = [{"k": number // 2, "n": number} for number in range(20)]
    known = two_streams().replace("scrambling = '0'", "scrambling = '1'")
    done = run(known + Q1 + Q2, {"S1": rows, "S2": rows, "S3": rows[4:]}, batch=3)
    expect(done)
    assert len(done["q2"]) == 8 * 8
    done.results["q2"].pop()
    with pytest.raises(AssertionError, match="query q2: 63 results, DuckDB has 64"):
        expect(done)


def test_expect_says_that_duckdb_does_not_know_which_results_came_first():
    with Session(two_streams() + Q1) as session:
        send(session, ["S1", "S2"], 0, 10)
        session.script(Q2)
        expect(session, "q1")
        with pytest.raises(
            InputError, match="query q2 came when q1, whose results it reads, had some already"
        ):
            expect(session)


def test_values_must_mean_the_same_to_a_query_and_to_the_one_it_reads():
    """What is still to come of q1 is known by its values, as it compares them."""
    other = "CREATE STREAM D (k DOUBLE, n BIGINT) WITH (format = 'parquet', path = 'd', ordered = 'k');"
    wrong = "CREATE QUERY q2 AS SELECT q1.a FROM q1, D WHERE q1.k = D.k;"
    said = (
        "query q2 compares values as floating-point numbers, and q1, whose results it reads, as whole numbers"
    )
    with pytest.raises(InputError, match=said):
        Session(two_streams() + other + Q1 + wrong)


def test_what_a_query_is_still_to_find_is_not_known_by_what_it_was_before():
    """q1 had come to 99; defined anew it is at the beginning, and the rows of S3 that it will meet are kept."""
    with Session(two_streams() + two_streams().replace("STREAM S", "STREAM T") + Q1 + Q2) as session:
        send(session, ["S1", "S2"], 0, 100)
        session.script("ALTER QUERY q1 AS SELECT T1.k, T1.n AS a, T2.n AS b FROM T1, T2 WHERE T1.k = T2.k;")
        send(session, ["S3"], 0, 200)
        for start in range(0, 200, 50):
            send(session, ["T1", "T2"], start, start + 50)
        assert sorted(each["c"] for each in session.results("q2")) == sorted([*range(100), *range(200)])
        assert [each.missed for each in session.status().queries] == [0.0, 0.0]


def test_who_reads_a_stream_does_not_stop_with_a_query_of_its_name():
    """Query S3 reads q1 and stops with it; `apart` reads stream S3, which goes on."""
    named = "CREATE QUERY S3 AS SELECT q1.k FROM q1, S4 WHERE q1.k = S4.k;"
    apart = "CREATE QUERY apart AS SELECT S3.k, S4.n FROM S3, S4 WHERE S3.k = S4.k;"
    over = "CREATE QUERY over AS SELECT q1.k FROM q1, apart WHERE q1.k = apart.k;"
    with Session(two_streams() + Q1 + named + apart + over) as session:
        stopped = stopped_with_readers(session.plan, {"q1": "it failed"}, "now")
        assert [each.query.name for each in stopped] == ["q1", "S3", "over"]
        session.script(
            "ALTER QUERY S3 AS SELECT over.k FROM over, S4 WHERE over.k = S4.k;"
            "ALTER QUERY q1 AS SELECT apart.k, apart.n AS a, S2.n AS b FROM apart, S2 WHERE apart.k = S2.k;"
        )
        send(session, ["S2", "S3", "S4"], 0, 5)
        assert len(session.results("S3")) == 5
