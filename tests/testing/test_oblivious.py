"""Joins without a window: complete with what is known, honest where it is measured, and no larger than they must be.

State is bounded so: of stream S_i a join keeps the rows from the first on that is above what S_j had reached k_j rows
ago, for the neediest j (`rows_needed`, by comparing rows).  Positions are known to within 1/16 of their distance, so
k_j and the count are by that share larger at the most, and by one.  Beyond that, segments keep rows until they are
rewritten: a segment that has no row of use is gone after the turn.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from io import StringIO
from itertools import pairwise
from math import ceil
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.cli.show import console, status_view
from penstock.engine.report.buffer_costs import buffer_cost_lines, buffer_costs
from penstock.engine.views.buffers import watch_at
from penstock.engine.views.memory import MemoryPolicy
from penstock.errors import InputError
from penstock.kernels.accuracy_sketch import AccuracySketch
from penstock.kernels.order_watch import PRECISION
from penstock.testing import Session
from tests.testing.windowless_world import (
    TYPES,
    Sensor,
    full_join,
    rows_needed,
    sensor,
    true_multiplicity,
    true_scrambling,
)

START = datetime(2024, 1, 1)  # noqa: DTZ001 - wall-clock times are what is asked about


def script(sensors, kind="BIGINT", *, declared=True, timed=(), lateness="9 hours"):
    """Write the streams, and one query over all of them."""
    text = ""
    for each in sensors:
        options = [f"format = 'parquet', path = '{each.name}', ordered = 'k'"]
        if declared:
            apart = true_scrambling(each.values)
            options.append(f"scrambling = '{apart}', multiplicity = '{true_multiplicity(each.values)}'")
        ts = ", ts TIMESTAMP_NTZ" if each.name in timed else ""
        options += [f"time = 'ts', lateness = '{lateness}'"] if ts else []
        text += f"CREATE STREAM {each.name} (k {kind}, n BIGINT{ts}) WITH ({', '.join(options)});\n"
    names = [each.name for each in sensors]
    selected = ", ".join(f"{name}.n AS n{number}" for number, name in enumerate(names))
    joined = " AND ".join(f"{one}.k = {other}.k" for one, other in pairwise(names))
    return f"{text}CREATE QUERY q AS SELECT {selected} FROM {', '.join(names)} WHERE {joined};"


def table(first, values, kind, *, timed):
    """Write a batch: what is joined on, and the number of each row."""
    value, arrow = TYPES[kind]
    columns = {
        "k": pa.array([None if each is None else value(each) for each in values], arrow),
        "n": pa.array(range(first, first + len(values))),
    }
    if timed:
        times = [START + timedelta(seconds=(first + each) * 7 % 50) for each in range(len(values))]
        columns["ts"] = pa.array(times, pa.timestamp("us"))
    return pa.table(columns)


def play(session, sensors, rng, kind="BIGINT", *, timed=(), restarts=True, look=lambda *_: None):
    """Let batches arrive, stream by stream or together, with turns and restarts between them."""
    waiting = {each.name: each.batches() for each in sensors}
    seen = {each.name: [] for each in sensors}
    begins = {each.name: each.begins for each in sensors}
    for turn in range(1000):
        if not any(waiting.values()):
            break
        for name, batches in waiting.items():
            if batches and turn >= begins[name] and rng.random() < 0.7:
                first, values = batches.pop(0)
                session.send(name, table(first, values, kind, timed=name in timed))
                seen[name] += values
        if rng.random() < 0.8:
            session.turn()
            look(session, seen)
        if restarts and rng.random() < 0.1:
            session.restart()
    session.end()
    look(session, seen)


def results(session, sensors):
    """Give the row numbers of each result."""
    return sorted(tuple(row[f"n{number}"] for number in range(len(sensors))) for row in session.results("q"))


def drawn(rng, most=4, rows=40):
    """Draw two to four streams."""
    return [sensor(rng, f"S{number}", rng.randint(5, rows)) for number in range(rng.randint(2, most))]


def buffers(session):
    """Give what is kept of each stream of the query."""
    (query,) = [each for each in session.status().queries if each.name == "q"]
    return query


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 1 << 30))
def test_with_known_characteristics_the_result_is_the_whole_join(seed):
    rng = Random(seed)
    sensors, kind = drawn(rng), rng.choice(list(TYPES))
    with Session(script(sensors, kind), tasks=rng.choice([1, 3])) as session:
        play(session, sensors, rng, kind)
        assert results(session, sensors) == full_join(sensors)
        query = buffers(session)
    assert (query.accuracy, query.missed, query.misses) == (1.0, 0.0, ())


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 1 << 30))
def test_no_more_is_kept_than_the_order_asks_for(seed):
    rng = Random(seed)
    sensors = drawn(rng)

    def look(session, seen):
        values = [seen[each.name] for each in sensors]
        known = [true_scrambling(each.values) for each in sensors]
        for number, kept in enumerate(buffers(session).buffers):
            needed = max(
                rows_needed(values[number], other, ceil(known[j] * (1 + PRECISION)) + 1)
                for j, other in enumerate(values)
                if j != number
            )
            assert kept.rows <= ceil(needed * (1 + PRECISION)) + 1, (seed, number)
            assert kept.needed >= 1

    def look_at_segments(session, seen):
        look(session, seen)
        ledger = session._store.ledger
        (watch,) = ledger.buffers.values()
        for each, gone in zip(session.plan.groups[0].logs, watch.gone, strict=True):
            assert all(segment.max_t >= gone for segment in ledger.segments(each.id))

    with Session(script(sensors)) as session:
        play(session, sensors, rng, restarts=False, look=look_at_segments)


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 1 << 30))
def test_measured_characteristics_are_never_below_the_true_ones_and_misses_are_told(seed):
    rng = Random(seed)
    sensors = drawn(rng, most=3)

    def look(session, seen):
        ledger, (group,) = session._store.ledger, session.plan.groups
        for log in group.logs:
            watch = watch_at(log.id, 1 << 30, ledger)
            rows = seen[log.stream]
            assert watch.order.rows == len(rows)
            assert watch.order.scrambling >= true_scrambling(rows)
            assert watch.copies.multiplicity >= true_multiplicity(rows)

    with Session(script(sensors, declared=False)) as session:
        play(session, sensors, rng, look=look)
        found, whole = Counter(results(session, sensors)), Counter(full_join(sensors))
        query = buffers(session)
    assert found <= whole
    missed = whole.total() - found.total()
    assert missed <= query.missed + 1e-6, (
        "what was let go may still have been there, never the other way round"
    )
    assert bool(query.misses) == bool(query.missed)
    assert query.accuracy == pytest.approx(1.0 if not whole else 1 - query.missed / whole.total())


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 1 << 30))
def test_a_join_without_a_window_and_one_with_share_the_log(seed):
    rng = Random(seed)
    sensors = drawn(rng, most=3)
    timed = {each.name for each in sensors[:2]}
    window = "CREATE QUERY w AS SELECT S0.n AS a, S1.n AS b FROM S0, S1 WHERE S0.k = S1.k WINDOW 10 s;"
    with Session(script(sensors, timed=timed) + window) as session:
        play(session, sensors, rng, timed=timed)
        assert results(session, sensors) == full_join(sensors)
        pairs = sorted((row["a"], row["b"]) for row in session.results("w"))
        logs = {log.stream: log.id for group in session.plan.groups for log in group.logs}
        assert len(session.plan.logs) == len(logs) == len(sensors), "one log for each stream"
    near = [
        (each[0], each[1]) for each in full_join(sensors[:2]) if abs(each[0] * 7 % 50 - each[1] * 7 % 50) < 10
    ]
    assert pairs == sorted(near)


def test_a_row_that_comes_too_late_is_told_with_its_stream():
    sensors = [sensor(Random(seed), name, 5) for seed, name in enumerate(["S0", "S1"])]
    with Session(script(sensors, declared=False)) as session:
        for start in range(0, 60, 10):
            for name in ("S0", "S1"):
                session.send(name, table(start, list(range(start, start + 10)), "BIGINT", timed=False))
            session.turn()
        session.send("S1", table(60, [3, 4], "BIGINT", timed=False))  # their partners have left
        session.turn()
        query = buffers(session)
        results_found = len(session.results("q"))
        for name in ("S0", "S1"):
            session.send(name, table(62, [70], "BIGINT", timed=False))
        session.turn()
        last = last_note(session)
    (miss,) = query.misses
    assert (miss.streams, miss.results) == (("S1",), 2.0)
    assert miss.scrambling[0] >= 58  # the 4 comes 58 rows after the row that was not smaller first
    assert query.missed == 2.0
    assert query.accuracy == pytest.approx(60 / 62)
    assert results_found == 60
    assert [each.is_known for each in query.buffers] == [False, False]
    assert (last["accuracy"], last["missed"]) == (query.accuracy, 2.0), "as it was when the unit began"


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 1 << 30))
def test_an_accuracy_of_one_means_that_no_result_was_missed(seed):
    """Also with a tiny sample, rows far out of order, late rows, and strategies that let rows wait."""
    rng = Random(seed)
    sensors = [replace(each, values=disturbed(rng, each.values)) for each in drawn(rng, most=3, rows=60)]
    timed = {each.name for each in sensors if rng.random() < 0.3}
    saving = f"SET buffers = '{rng.choice(['plain', 'plain', 'dbf', 'msf', 'hybrid'])}';"
    small = partial(AccuracySketch, capacity=rng.choice([4, 16, 1024]))
    text = saving + script(
        sensors, declared=False, timed=timed, lateness=rng.choice(["10 seconds", "9 hours"])
    )
    with pytest.MonkeyPatch.context() as patch, Session(text) as session:
        patch.setattr("penstock.engine.views.buffers.AccuracySketch", small)
        play(session, sensors, rng, timed=timed, restarts=False)
        found, whole = len(results(session, sensors)), len(full_join(sensors))
        query = buffers(session)
    assert (query.accuracy < 1) == (query.missed > 0) == bool(query.misses), seed
    waits = query.lag_rows > 0  # the input has not ended, so rows may still wait to be joined
    assert found == whole or query.missed > 0 or waits, (seed, found, whole)


def disturbed(rng, values):
    """Let a part of the rows come again at the end, or all rows in no order, or some bursts out of order."""
    start, end = sorted(rng.sample(range(len(values) + 1), 2))
    again = [*values[: len(values) - (end - start)], *values[start:end]]
    moved = values[:start] + values[end:] + values[start:end]
    return rng.choice([values, again, moved, rng.sample(values, len(values))])


@pytest.mark.parametrize("names", [("S0", "S1"), ("S0", "S1", "S2")])
def test_rows_that_come_long_after_their_partners_were_let_go_count_as_missed(names):
    """Of 2,000 values 40 come again at the very end, in one stream: 1,960 of 2,000 results are found."""
    late = set(range(100, 500, 10))
    values = {name: list(range(2_000)) for name in names}
    values["S1"] = [each for each in values["S1"] if each not in late] + sorted(late)
    sensors = [Sensor(name, each, tuple(range(100, 2_000, 100)), 0) for name, each in values.items()]
    with Session(script(sensors, declared=False)) as session:
        for batches in zip(*(each.batches() for each in sensors), strict=True):
            for name, batch in zip(names, batches, strict=True):
                session.send(name, table(*batch, "BIGINT", timed=False))
            session.turn()
        assert len(results(session, sensors)) == 1_960
        query = buffers(session)
    assert query.accuracy == pytest.approx(0.98, abs=0.01)
    assert query.missed == pytest.approx(40, rel=0.5)
    assert query.missed_error > 0


def test_rows_that_are_late_by_event_time_count_as_missed(caplog):
    """Every other row of a stream is an hour behind, and one has no time: all are set aside.

    There are ten occasions; a warning comes again only when as many results were missed as it has told of.
    """
    sensors = [Sensor(name, list(range(200)), tuple(range(20, 200, 20)), 0) for name in ("S0", "S1")]
    with Session(script(sensors, timed={"S0", "S1"}, lateness="1 minute")) as session:
        for one, other in zip(*(each.batches() for each in sensors), strict=True):
            first, values = one
            session.send("S0", table(first, values, "BIGINT", timed=True))
            rows = table(*other, "BIGINT", timed=True).to_pylist()
            for row in rows[1::2] if first else []:
                row["ts"] = None if row["n"] == 21 else row["ts"] - timedelta(hours=1)
            session.send("S1", rows)
            session.turn()
        session.send("S1", [row | {"ts": row["ts"] - timedelta(hours=1)} for row in rows if row["ts"]])
        session.turn()
        found = len(results(session, sensors))
        query, (_, stream) = buffers(session), session.status().streams
    assert (found, stream.late, stream.no_time) == (110, 89 + 20, 1)
    assert (query.accuracy, query.missed, query.missed_error) == (110 / 220, 110, 0)
    assert query.misses[-1].aside == 20
    warnings = [each.getMessage() for each in caplog.records if "were missed" in each.getMessage()]
    assert 3 <= len(warnings) <= 5, warnings


def test_the_model_of_buffers_is_near_what_is_held_and_unknown_before_rows_come():
    values = list(range(400))
    sensors = [Sensor(name, values, tuple(range(40, 400, 40)), 0) for name in ("S0", "S1")]
    with Session(script(sensors, declared=False)) as session:
        (unseen,) = buffer_costs(session.plan, session._store.ledger, MemoryPolicy(), runs=True)
        play(session, sensors, Random(0), restarts=False)
        (seen,) = buffer_costs(session.plan, session._store.ledger, MemoryPolicy(), runs=True)
    assert (unseen.own, unseen.unknown, unseen.held) == (None, ("S0", "S1"), 0)
    assert next(show for show in buffer_cost_lines([unseen]) if "unknown until measured" in show)
    assert seen.measured
    assert seen.own.rows <= 20
    assert seen.held == 0
    assert "  measured: 0 rows held" in list(buffer_cost_lines([seen]))
    with Session(script(sensors)) as session:
        (told,) = buffer_costs(session.plan, session._store.ledger, MemoryPolicy())
    assert (told.measured, told.own.rows) == (False, 2)
    assert [each["delay"] for each in told.to_json()["needs"]] == [None] * 4


def last_note(session):
    """Read the note in the metadata of the file of results that was written last."""
    (tables,) = session._store.ledger.tables.values()
    *_, file = [each for table in tables for each in table.files]
    return json.loads(pq.read_metadata(session._store.files.memory_map(file.name)).metadata[b"penstock"])


def test_one_query_more_reads_what_is_kept_and_says_since_when():
    sensors = [sensor(Random(seed), name, 30) for seed, name in enumerate(["S0", "S1"])]
    with Session(script(sensors)) as session:
        play(session, sensors, Random(7), restarts=False)
        session.script("CREATE QUERY again AS SELECT S0.n AS n0, S1.n AS n1 FROM S0, S1 WHERE S0.k = S1.k;")
        session.turn()
        late = [(each["n0"], each["n1"]) for each in session.results("again")]
        since = session.since["again"]
    assert since is not None
    assert set(late) <= set(full_join(sensors))


def test_a_script_of_one_stream_is_refused():
    one = "CREATE STREAM A (k BIGINT) WITH (format = 'parquet', path = 'a');"
    with pytest.raises(InputError, match="SELECT"):
        Session(f"{one} CREATE QUERY q AS SELECT k FROM A;")


def test_where_streams_have_times_a_query_that_comes_later_begins_with_the_rows_that_come():
    sensors = [sensor(Random(seed), name, 5) for seed, name in enumerate(["S0", "S1"])]
    timed = {"S0", "S1"}
    declared, _, query = script(sensors, timed=timed).partition("CREATE QUERY")
    window = "CREATE QUERY w AS SELECT S0.n AS a, S1.n AS b FROM S0, S1 WHERE S0.k = S1.k WINDOW 1 min;"
    with Session(declared + window) as session:
        for start, added in ((0, False), (10, True), (20, True)):
            if added and "q" not in session.since:
                session.script(f"CREATE QUERY {query}")
            for name in sorted(timed):
                session.send(name, table(start, list(range(10)), "BIGINT", timed=True))
            session.turn()
        assert session.since == {"w": None, "q": 0}, "rows are counted from then on"
        found = results(session, sensors)
    assert found == sorted((a, b) for a in range(10, 30) for b in range(10, 30) if a % 10 == b % 10)


def test_a_stream_that_does_not_follow_its_declared_order_is_named_in_status_and_once_in_the_log(caplog):
    """S0 comes in any order, S1 follows k within a tenth of its rows."""
    rng, rows, step = Random(4), 12_000, 4_000
    anyhow = rng.sample(range(rows), rows)
    follows = [each + rng.randrange(rows // 10) for each in range(rows)]
    sensors = [sensor(Random(seed), f"S{seed}", 5) for seed in range(2)]
    with Session(script(sensors, declared=False)) as session:
        for start in range(0, rows, step):
            assert session.status().queries[0].disorder == (), "too early to tell"
            for name, values in (("S0", anyhow), ("S1", follows)):
                session.send(name, table(start, values[start : start + step], "BIGINT", timed=False))
            session.turn()
        session.send("S1", table(rows, [rows], "BIGINT", timed=False))
        session.turn()
        (said,) = session.status().queries[0].disorder
        assert said in console_text(session)
    assert said.startswith("stream S0 does not follow k in order: of 12,000 rows, one arrived 11,")
    assert said.endswith("Give the queries that join it on k a WINDOW, or [UNBOUNDED] after each stream")
    assert [each.message for each in caplog.records if "does not follow" in each.message] == [said]


def test_a_stream_as_disordered_as_it_declares_is_not_named():
    rows = 12_000
    values = [*range(1, rows), 0]
    sensors = [sensor(Random(seed), f"S{seed}", 5) for seed in range(2)]
    for declared, named in ((rows, False), (rows // 2, True)):
        text = script(sensors, declared=False).replace("ordered = 'k'", f"scrambling = '{declared}'")
        with Session(text) as session:
            for name in ("S0", "S1"):
                session.send(name, table(0, values, "BIGINT", timed=False))
            session.turn()
            assert bool(session.status().queries[0].disorder) == named


def console_text(session):
    """Show the status as people see it, on one line."""
    out = StringIO()
    console(out).print(status_view(session.plan, session.status()))
    return " ".join(out.getvalue().split())


# --- joins on a key that no stream follows, as Spark and Flink document them: nothing is lost without a word ------


SPARK_STREAMS = "".join(
    f"CREATE STREAM {name} (key BIGINT, {value} BIGINT, ts TIMESTAMP) "
    f"WITH (format = 'parquet', path = '{name}', time = 'ts', lateness = '1 hour');\n"
    for name, value in (("df1", "leftValue"), ("df2", "rightValue"))
)
SPARK_QUERY = "CREATE QUERY q AS SELECT key, leftValue, rightValue FROM df1{0} JOIN df2{0} USING (key);"
SPARK_STEPS = [
    (("df1", [1]), []),
    (("df2", [1, 10]), [(1, 2, 3)]),
    (("df1", [10]), [(10, 20, 30)]),
    (("df2", [1]), [(1, 2, 3)]),
    (("df1", [1]), [(1, 2, 3), (1, 2, 3)]),
    (("df1", [100]), []),
    (("df2", [100]), [(100, 200, 300)]),
]
"""StreamingJoinSuite, "stream stream inner join on non-time column": what arrives, and what it adds to the result."""


def test_the_first_inner_join_of_sparks_tests_is_refused_with_the_ways_out_and_whole_with_one_of_them():
    with pytest.raises(InputError) as refused:
        Session(SPARK_STREAMS + SPARK_QUERY.format(""))
    for way_out in ("WINDOW 1 min", "[UNBOUNDED]", "ordered = 'key' on df1 and df2"):
        assert way_out in str(refused.value)
    found, wanted = Counter(), Counter()
    with Session(SPARK_STREAMS + SPARK_QUERY.format(" [UNBOUNDED]")) as session:
        for (name, keys), more in SPARK_STEPS:
            value, factor = {"df1": ("leftValue", 2), "df2": ("rightValue", 3)}[name]
            session.send(name, [{"key": key, value: factor * key, "ts": START} for key in keys])
            session.turn()
            wanted.update(more)
            found = Counter(
                (each["key"], each["leftValue"], each["rightValue"]) for each in session.results("q")
            )
            assert found == wanted
            session.restart()
    assert found.total() == 6


FLINK_STREAMS = """
CREATE STREAM Orders (id BIGINT, productId BIGINT, ts TIMESTAMP) WITH (format = 'parquet', path = 'o', time = 'ts');
CREATE STREAM Product (id BIGINT, name STRING, ts TIMESTAMP) WITH (format = 'parquet', path = 'p', time = 'ts');
"""
FLINK_QUERY = (
    "CREATE QUERY q AS SELECT Orders.id AS o, name FROM Orders{0} INNER JOIN Product{0} "
    "ON Orders.productId = Product.id;"
)


def test_the_regular_join_of_flinks_manual_is_refused_with_the_ways_out_and_whole_with_one_of_them():
    """Orders come in no order of their products, and a product may come long before or after its orders."""
    with pytest.raises(InputError) as refused:
        Session(FLINK_STREAMS + FLINK_QUERY.format(""))
    for way_out in (
        "WINDOW 1 min",
        "[UNBOUNDED]",
        "ordered = 'productId' on Orders and ordered = 'id' on Product",
    ):
        assert way_out in str(refused.value)
    products, ordered = [7, 2, 9, 1], [2, 9, 1, 7, 7, 2, 3, 9, 1]
    with Session(FLINK_STREAMS + FLINK_QUERY.format(" [UNBOUNDED]")) as session:
        for turn, product in enumerate(ordered):
            at = START + timedelta(hours=turn)
            session.send("Orders", [{"id": turn, "productId": product, "ts": at}])
            if turn % 2:
                name = products[turn // 2]
                session.send("Product", [{"id": name, "name": f"p{name}", "ts": at}])
            session.turn()
        session.end()
        found = sorted((each["o"], each["name"]) for each in session.results("q"))
    assert found == [(turn, f"p{name}") for turn, name in enumerate(ordered) if name in products]
