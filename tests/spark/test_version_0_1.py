"""A state that version 0.1 made is read, and goes on: what it delivered stays, and what comes meets what it held."""

from __future__ import annotations

import tarfile
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.engine.engine import Engine
from penstock.engine.store import peek
from penstock.log.codec import FORMAT
from penstock.log.snapshot import dump
from tests.oracle import put_file
from tests.spark.world import at

ARCHIVE = Path(__file__).parents[1] / "states" / "version-0.1.tar.gz"
BEFORE = b"/tmp/penstock-0.1"  # where the archive was made; checkpoints have it in their lists of files
RESULTS = {"near": 275, "high": 299, "last": 76, "late": 201}
SECOND = 1_000_000
START, FIRST = 1_704_067_220 * SECOND, 1000  # the time and id of the first row to come: 2024-01-01 00:00:20
QUERIES = {
    "near": (
        "SELECT A.id AS a, B.id AS b, A.v - B.v AS apart FROM A, B WHERE A.k = B.k",
        "WINDOW 3 s",
        "none",
    ),
    "high": (
        "SELECT A.id AS a, B.id AS b FROM A, B WHERE A.k = B.k AND A.v > 50",
        "WINDOW 8 s",
        "filter-order",
    ),
    "last": ("SELECT A.id AS a, B.id AS b FROM A, B WHERE A.name = B.name", "WINDOW 5 ROWS", "none"),
    "late": (
        "SELECT A.id AS a, B.id AS b, B.name FROM A, B WHERE A.k = B.k AND B.v > 30",
        "WINDOW 6 s",
        "none",
    ),
}


@pytest.fixture
def root(tmp_path):
    """Unpack the archive, as if it had been made here."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    for file in (tmp_path / "state" / "checkpoint").rglob("*"):
        if file.is_file() and file.suffix == ".crc":
            file.unlink()
        elif file.is_file():
            file.write_bytes(file.read_bytes().replace(BEFORE, str(tmp_path).encode()))
    return tmp_path


def test_its_journal_is_read_without_a_question(root):
    ledger = peek(str(root / "state"))
    assert {name: each.results for name, each in ledger.queries.items()} == RESULTS
    assert [each.name for each in ledger.plan.queries] == list(QUERIES)
    assert not ledger.adopted
    assert dump(ledger)["format"] == FORMAT


@pytest.mark.spark
def test_it_goes_on_exactly_where_it_was(spark, root):
    with Engine(root / "state", spark) as engine:
        for name in "AB":
            rows = spark.readStream.schema("id BIGINT, k BIGINT, name STRING, v INT, ts TIMESTAMP").parquet(
                f"{root}/{name}"
            )
            engine.stream(name, rows, time="ts", lateness="3 seconds")
        for name, (select, window, order) in QUERIES.items():
            engine.query(name, f"{select} {window}", order=order)
        engine.start()
        engine.process_available()
        before = {name: bag(engine.results(name).select("a", "b")) for name in QUERIES}
        assert {name: each.total() for name, each in before.items()} == RESULTS
        for name in "AB":
            put_file(more(name), root / name / "10.parquet", 10)
        engine.process_available()
        for name in "AB":  # so that the watermarks pass all of them
            put_file(more(name, 60 * SECOND), root / name / "11.parquet", 11)
        engine.process_available()
    with Engine(root / "state", spark) as engine:
        after = {name: bag(engine.results(name).select("a", "b")) for name in QUERIES}
    for name in "AB":
        spark.read.parquet(f"{root}/{name}").createOrReplaceTempView(name)
    apart = "abs(unix_micros(A.ts) - unix_micros(B.ts))"
    for name, seconds in (("near", 3), ("high", 8), ("late", 6)):
        fresh = (
            f"{QUERIES[name][0]} AND {apart} < {seconds * SECOND} AND (A.id >= {FIRST} OR B.id >= {FIRST})"
        )
        right = bag(spark.sql(fresh).select("a", "b"))
        assert any(min(pair) < FIRST for pair in right), name  # with rows that were held
        held = QUERIES[name][2] != "none"  # some of before was, and the last of those to come is
        if held:
            known = {pair: count for pair, count in right.items() if max(pair) < FIRST + 60}
            assert known.items() <= after[name].items(), name
            assert before[name] <= after[name], name
        else:
            assert after[name] == before[name] + right, name
    assert before["last"] <= after["last"]


def more(name, later=0):
    """Make rows that come right after those of the archive, and meet them; or later."""
    first = START + later + (100_000 if name == "B" else 0)
    rows = [
        {
            "id": FIRST + later // SECOND + place,
            "k": place % 3,
            "name": "x",
            "v": 60,
            "ts": at(first + place * 400_000),
        }
        for place in range(12)
    ]
    kinds = {
        "id": pa.int64(),
        "k": pa.int64(),
        "name": pa.string(),
        "v": pa.int32(),
        "ts": pa.timestamp("us", "UTC"),
    }
    return pa.Table.from_pylist(rows, pa.schema(list(kinds.items())))


def bag(rows):
    return Counter(tuple(row) for row in rows.collect())
