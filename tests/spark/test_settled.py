"""What a result is, is settled when it is committed: no read, no session and no clock changes it.

unit ──▶ outputs computed ──▶ commit        read, read again, read in another session: the same rows
"""

from __future__ import annotations

import datetime as dt
import math
import random
import time
from itertools import pairwise

import pytest

from penstock.engine.api import Engine
from penstock.engine.sinks.parquet import parquet
from penstock.engine.sinks.table import table
from penstock.sql.bind.safety import Constancy, grade_texts
from tests.oracle import Feed, bag, parquet_rows
from tests.spark.world import START, at

pytestmark = pytest.mark.spark

SECOND = 1_000_000
COLUMNS = {"k": "bigint", "v": "int", "ts": "timestamp"}


@pytest.fixture
def feeds(tmp_path):
    return [Feed(name, tmp_path / name, COLUMNS) for name in ("a", "b")]


def grow(feeds, first, count=20):
    for feed in feeds:
        feed.append({"k": n % 2, "v": n, "ts": at(START + n * SECOND)} for n in range(first, first + count))


FLEETING = {
    "chosen": "SELECT a.v AS x, b.v AS y FROM a, b WHERE a.k = b.k AND rand() < 0.5 WINDOW 5 seconds",
    "named": "SELECT a.v AS x, b.v AS y, uuid() AS id FROM a, b WHERE a.k = b.k WINDOW 5 seconds",
    "dated": "SELECT a.v AS x, now() AS found, rand() AS r FROM a, b WHERE a.k = b.k WINDOW 3 seconds",
    "called": "SELECT count_for_test(a.v) AS n FROM a, b WHERE a.k = b.k WINDOW 3 seconds",
    "zoned": "SELECT date_format(a.ts, 'yyyy-MM-dd HH:mm') AS day FROM a, b WHERE a.k = b.k WINDOW 2 seconds",
    "plain": "SELECT a.v AS x, b.v AS y FROM a, b WHERE a.k = b.k WINDOW 5 seconds",
    "sorted": "SELECT a.v AS x, uuid() AS id FROM a, b WHERE a.k = b.k WINDOW 4 seconds",
}

_calls = iter(range(10**9))


def test_results_are_the_same_at_every_read_and_others_in_every_unit(spark, tmp_path, feeds):
    """Also after a restart; the same query with a parquet sink settles its results in the same way."""
    spark.udf.register("count_for_test", lambda value: 1000 * value + next(_calls) % 1000, "int")

    def run(read):
        with Engine(tmp_path / "state", spark) as engine:
            engine.script(" ".join(feed.declare() for feed in feeds))
            for name, sql in FLEETING.items():
                order = "filter-order" if name == "sorted" else "none"
                engine.query(name, sql, sink=table(), order=order)
                engine.query(f"{name}_out", sql, sink=parquet(tmp_path / "out" / name), order=order)
            engine.start()
            for _ in range(2):
                grow(feeds, 20 * len(feeds[0].files()))
                engine.process_available()
                time.sleep(0.01)  # the clock moves on
            return read(engine)

    def read(engine):
        counts = {each.name: each.results for each in engine.status().queries}
        found = {name: bag(engine.results(name).toArrow()) for name in FLEETING}
        assert found == {name: bag(engine.results(name).toArrow()) for name in FLEETING}, "read twice"
        zone = spark.conf.get("spark.sql.session.timeZone")
        spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
        try:
            assert found == {name: bag(engine.results(name).toArrow()) for name in FLEETING}, "read elsewhere"
        finally:
            spark.conf.set("spark.sql.session.timeZone", zone)
        assert {name: rows.total() for name, rows in found.items()} == {
            name: counts[name] for name in FLEETING
        }
        return found

    first, second = run(read), run(read)
    for name in FLEETING:
        assert not first[name] - second[name], f"{name}: what was there is there"
        assert second[name].total() > first[name].total() > 0
    out = {name: bag(parquet_rows(tmp_path / "out" / name)) for name in FLEETING}
    for name in ("plain", "zoned"):
        assert out[name] == second[name]
    assert {row[:2] for row in second["named"]} == {row[:2] for row in out["named"]} == set(second["plain"])
    assert set(second["chosen"]) < set(second["plain"]), "some pairs, not all"
    for rows in (second["named"], out["named"]):
        ids = [row[2] for row in rows.elements()]
        assert len(ids) == len(set(ids)), "no seed is used twice"
    drawn = [row[2] for row in second["dated"].elements()]
    assert len(set(drawn)) > 0.9 * len(drawn)
    for rows in (second["dated"], out["dated"]):
        assert len({row[1] for row in rows}) >= 4, "every unit has the time it was run"


def test_a_result_that_cannot_be_computed_is_found_when_it_is_made(spark, tmp_path, feeds):
    """A view would have failed at every read, after its results had been counted."""
    with Engine(tmp_path / "state", spark) as engine:
        engine.script(" ".join(feed.declare() for feed in feeds))
        engine.query("halved", "SELECT 1 div (a.v - a.v) AS x FROM a, b WHERE a.k = b.k WINDOW 5 seconds")
        engine.query("plain", FLEETING["plain"])
        grow(feeds, 0)
        engine.start()
        engine.process_available()
        assert "Division by zero" in engine.failures["halved"]
        assert engine.results("plain").count() > 0
        assert (
            engine.results("plain").count() == {q.name: q for q in engine.status().queries}["plain"].results
        )


# --- what is graded as constant is constant ---------------------------------------------------------------------

TYPES = {
    "v": "int", "w": "bigint", "x": "double", "y": "float", "s": "string", "t": "timestamp", "d": "date",
    "m": "decimal(10,2)", "f": "boolean", "n": "timestamp_ntz",
}  # fmt: skip
VALUES = {
    "v": (0, 1, -1, 7, 2**31 - 1, -(2**31), None),
    "w": (0, 1, -3, 2**63 - 1, -(2**63), None),
    "x": (0.0, -0.0, 1.5, math.inf, -math.inf, math.nan, 1e308, None),
    "y": (0.0, 2.5, math.nan, -math.inf, None),
    "s": ("", "a", "K", "é", "7", "2020-01-01", None),
    "t": (dt.datetime(2024, 3, 31, 1, 30, tzinfo=dt.UTC), dt.datetime(1969, 12, 31, tzinfo=dt.UTC), None),
    "d": (dt.date(2024, 3, 31), dt.date(1, 1, 1), None),
    "m": (None,),
    "f": (True, False, None),
    "n": (dt.datetime(2024, 3, 31, 2, 30), None),  # noqa: DTZ001 - that is what it is
}
COLUMN_NAMES = [f"{side}.{name}" for side in "lr" for name in TYPES]


def expression(source, depth):
    """Make an expression, of whatever type comes out."""
    if depth == 0:
        return source.choice((*COLUMN_NAMES, "1", "-7", "2.5", "'a'", "NULL", "TRUE", "0"))
    one, two, three = (expression(source, depth - 1) for _ in range(3))
    return source.choice(
        (
            f"({one} {source.choice(('+', '-', '*', '/', '%'))} {two})",
            f"({one} {source.choice(('=', '<', '>', '<=', '>=', '<>', '<=>'))} {two})",
            f"({one} {source.choice(('AND', 'OR'))} {two})",
            f"(NOT {one})", f"(-{one})", f"({one} IS NULL)", f"({one} IS NOT NULL)", f"({one} || {two})",
            f"CASE WHEN {one} THEN {two} ELSE {three} END", f"CASE {one} WHEN {two} THEN {three} END",
            f"coalesce({one}, {two})", f"nullif({one}, {two})", f"greatest({one}, {two})", f"abs({one})",
            f"length({one})", f"concat({one}, {two})", f"({one} IN ({two}, {three}))", f"if({one}, {two}, {three})",
            f"({one} BETWEEN {two} AND {three})", f"CAST({one} AS DOUBLE)",
        )
    )  # fmt: skip


def test_what_is_graded_as_constant_is_the_same_in_every_session(spark):
    """Random expressions over the ends of every type: no setting changes their values, and none ever fails."""
    source = random.Random(8)
    types = {f"{side}.{name}": kind for side in "lr" for name, kind in TYPES.items()}
    drawn = {expression(source, source.choice((1, 2, 2, 3))) for _ in range(6000)}
    constant = sorted(text for text in drawn if grade_texts([text], types) == Constancy.ALWAYS)[:400]
    struct = ", ".join(f"{name}: {kind}" for name, kind in TYPES.items())
    rows = [
        tuple({name: source.choice(values) for name, values in VALUES.items()} for _ in "lr")
        for _ in range(150)
    ]
    spark.createDataFrame(rows, f"l struct<{struct}>, r struct<{struct}>").createOrReplaceGlobalTempView(
        "edges"
    )
    good = [text for text in constant if _is_valid(spark, text)]
    assert len(good) > 200
    seen = []
    for ansi, zone in (("true", "UTC"), ("false", "Asia/Tokyo"), ("true", "America/New_York")):
        session = spark.newSession()
        session.conf.set("spark.sql.ansi.enabled", ansi)
        session.conf.set("spark.sql.session.timeZone", zone)
        parts = [_values(session, good[first : first + 50]) for first in range(0, len(good), 50)]
        seen.append(dict(zip(good, (column for part in parts for column in part), strict=True)))
    for one, other in pairwise(seen):
        assert not [text for text in good if one[text] != other[text]]


def _is_valid(spark, text):
    """Say whether Spark takes an expression."""
    from pyspark.errors import AnalysisException

    try:
        spark.table("global_temp.edges").selectExpr(text)
    except AnalysisException:
        return False
    return True


def _values(session, texts):
    """Compute expressions, as text that tells all values apart."""
    columns = [
        f"to_json(struct({text} IS NULL AS n, hash({text}) AS h)) AS c{n}" for n, text in enumerate(texts)
    ]
    return list(zip(*session.table("global_temp.edges").selectExpr(*columns).collect(), strict=True))
