"""Queries over queries on Spark: the trees of paper 5's Fig. 4, exactly, through kills, failures and changes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from random import Random

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.engine.api import Engine
from penstock.engine.sinks.parquet import parquet
from penstock.errors import InputError
from tests.spark.test_crash import CHILD, _kill_session, _wait_for_commits
from tests.spark.tree_runs import COLUMNS, SELECTS, queries, run_once, streams, tables, values_of, write_rows

pytestmark = pytest.mark.spark


def answers(values):
    """Ask DuckDB for each query's results, each a view over tables and views."""
    with duckdb.connect() as connection:
        for name, table in tables(values).items():
            connection.register(name, table)
        found = {}
        for name, select in SELECTS.items():
            connection.execute(f"CREATE VIEW {name} AS {select}")
            rows = connection.sql(f"SELECT {', '.join(COLUMNS[name])} FROM {name}").fetchall()
            found[name] = Counter(rows)
        return found


def rows_of(frame, name):
    """Count the rows of a DataFrame or table."""
    table = frame.toArrow() if hasattr(frame, "toArrow") else frame
    return Counter(tuple(row[each] for each in COLUMNS[name]) for row in table.to_pylist())


def check(spark, root, values, script):
    """Hold the results of a state against DuckDB's."""
    wanted = answers(values)
    with Engine(state=root / "state", spark=spark) as engine:
        engine.script(script)
        status = {each.name: each for each in engine.status().queries}
        for name in ("j2", "deeper"):
            assert rows_of(engine.results(name), name) == wanted[name], name
    assert rows_of(pq.read_table(root / "out"), "j3") == wanted["j3"]
    assert {name: each.results for name, each in status.items()} == {
        name: each.total() for name, each in wanted.items()
    }
    assert all((each.accuracy, each.missed) == (1.0, 0.0) for each in status.values())


@pytest.mark.timeout(600)  # four JVMs, on a machine that may be busy
def test_the_trees_of_the_paper_are_exact_through_kills(spark, tmp_path):
    seed = int.from_bytes(os.urandom(3))
    random, values = Random(seed), values_of(seed)
    write_rows(tmp_path, values, 0, 120, files=8)
    script = streams(tmp_path, values) + queries(tmp_path)
    for kill in range(4):
        child = subprocess.Popen(
            [sys.executable, str(CHILD), str(tmp_path), "tree", str(seed)],
            start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
        try:
            if kill < 3:
                _wait_for_commits(child, tmp_path / "state", random.randint(5, 25))
                time.sleep(random.random() * 0.3)
            else:
                assert child.wait(300) == 0, child.stderr.read().decode()[-2000:]
        finally:
            _kill_session(child)
    check(spark, tmp_path, values, script)


def test_a_query_over_a_query_comes_while_they_run(spark, tmp_path):
    values = values_of(5)
    write_rows(tmp_path, values, 0, 60, files=2)
    engine = Engine(state=tmp_path / "state", spark=spark)
    try:
        engine.script(streams(tmp_path, values))
        engine.query("j1", SELECTS["j1"])
        engine.start()
        engine.process_available()
        before = rows_of(engine.results("j1"), "j1")
        engine.query("j2", SELECTS["j2"])
        engine.query("j3", SELECTS["j3"])
        shown = "\n".join(engine.answers(engine.script("SHOW QUERIES")))
        assert f"j3: complete from row {before.total():,} of each stream" in shown
        write_rows(tmp_path, values, 60, 120, files=2)
        engine.process_available()
        found, wanted = rows_of(engine.results("j3"), "j3"), answers(values)
        fresh = rows_of(engine.results("j1"), "j1") - before
        assert rows_of(engine.results("j1"), "j1") == wanted["j1"]
        assert found <= wanted["j3"]
        assert {row for row in wanted["j3"] if row[:3] in fresh and min(row[3:]) >= 60} <= set(found)
        assert found
        with pytest.raises(InputError, match="query j1 is read by j3: drop that first"):
            engine.drop("j1")
        with pytest.raises(InputError, match="for which its columns must stay as they are"):
            engine.alter("j1", SELECTS["j1"].replace("a.v AS v1, ", ""))
        text = engine.explain()
        assert "results of query j1" in text
        engine.drop("j3")
        engine.drop("j1")
    finally:
        engine.stop()


def test_a_query_that_fails_stops_those_that_read_it(spark, tmp_path):
    values = values_of(7)
    write_rows(tmp_path, values, 0, 120, files=2)
    broken = SELECTS["j1"].replace("c.v + 0.5", "1 / (c.v - c.v)")
    with Engine(state=tmp_path / "state", spark=spark) as engine:
        engine.script(streams(tmp_path, values))
        engine.query("j1", broken)
        engine.query("j2", SELECTS["j2"])
        engine.query("j3", SELECTS["j3"])
        engine.start(once=True)
        engine.wait()
        assert set(engine.failures) == {"j1", "j3"}
        assert engine.failures["j3"].startswith("it reads j1, which failed: ")
        assert rows_of(engine.results("j2"), "j2") == answers(values)["j2"]
    with Engine(state=tmp_path / "state", spark=spark) as engine:  # j1 is mended, and j3 goes on with it
        engine.script(streams(tmp_path, values))
        engine.query("j1", SELECTS["j1"])
        engine.query("j2", SELECTS["j2"])
        engine.query("j3", SELECTS["j3"])
        engine.start(once=True)
        engine.wait()
        assert engine.failures == {}


def test_a_query_over_a_query_that_fails_on_its_rows_stops_alone(spark, tmp_path):
    values = values_of(9)
    write_rows(tmp_path, values, 0, 120, files=2)
    with Engine(state=tmp_path / "state", spark=spark) as engine:
        engine.script(streams(tmp_path, values))
        for name in ("j1", "j2"):
            engine.query(name, SELECTS[name])
        engine.query("j3", SELECTS["j3"].replace("v1 + v4 > 20", "1 / (v1 - v1) < 5"))
        engine.start(once=True)
        engine.wait()
        assert set(engine.failures) == {"j3"}
        wanted = answers(values)
        assert rows_of(engine.results("j1"), "j1") == wanted["j1"]
        assert rows_of(engine.results("j2"), "j2") == wanted["j2"]


def test_one_run_after_another_goes_on_with_the_tree(spark, tmp_path):
    values = values_of(11)
    script = streams(tmp_path, values) + queries(tmp_path)
    for first, last in ((0, 50), (50, 120)):
        write_rows(tmp_path, values, first, last, files=2)
        run_once(spark, tmp_path, script)
    check(spark, tmp_path, values, script)


def test_a_query_with_a_window_is_read_by_another_engine_from_its_sink(spark, tmp_path):
    """The way out that is named where a query cannot be read as it comes."""
    rows = pa.table(
        {"k": range(20), "ts": pa.array([1_000_000 * each for each in range(20)], pa.timestamp("us", "UTC"))}
    )
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
        pq.write_table(rows, tmp_path / name / "rows.parquet")

    def stream(name, path):
        source = f"format = 'parquet', path = '{path}', time = 'ts'"
        return f"CREATE STREAM {name} (k BIGINT, ts TIMESTAMP) WITH ({source});"

    joined = "SELECT x.k, x.ts FROM {} x, {} y WHERE x.k = y.k WINDOW 5 s"
    for state, streams_read, sink in (("one", ("a", "b"), "ab"), ("two", ("ab", "c"), "abc")):
        with Engine(state=tmp_path / state, spark=spark) as engine:
            engine.script("".join(stream(each, tmp_path / each) for each in streams_read))
            engine.query("q", joined.format(*streams_read), sink=parquet(tmp_path / sink))
            engine.start(once=True)
            engine.wait()
    assert sorted(pq.read_table(tmp_path / "abc").column("k").to_pylist()) == list(range(20))
