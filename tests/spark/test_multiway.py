"""Joins of more than two streams on Spark: through every sink, over restarts, online, and through kill -9."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from random import Random

import pytest

from penstock.cli.main import main
from tests.answers import same
from tests.oracle import parquet_rows
from tests.spark import test_crash
from tests.spark.many_runs import ANSWERS, CHAIN, IDS, QUERIES, ManyRun
from tests.testing.many_world import GRID, Many, Windows

pytestmark = pytest.mark.spark


def check(run, spark, what):
    """Hold every query's results against DuckDB's over the same files."""
    with run.engine(spark) as engine:
        counts = {each.name: each.results for each in engine.status().queries}
        for query, sink in run.queries:
            right = run.answer(query)
            same(run.results(engine, query.name, sink), right, f"{what} {query.penstock()}")
            assert right, f"{query.name} has no results: nothing was tried"
            assert counts[query.name] == right.total()


def test_results_reach_every_sink_over_restarts(spark, tmp_path):
    run = ManyRun(tmp_path)
    run.grow(1, files=3)
    run.once(spark)
    check(run, spark, "once")
    run.once(spark)
    check(run, spark, "again")
    ordered = next(query for query, _ in QUERIES if query.order != "none")
    rows = parquet_rows(tmp_path / "out" / ordered.name).to_pylist()
    times = [max(row["t0"], row["t1"], row["t2"]) for row in rows]
    assert times == sorted(times)


def test_answers_over_three_streams(spark, tmp_path):
    run = ManyRun(tmp_path, tuple((each, "parquet") for each in ANSWERS))
    run.grow(2, files=3)
    run.once(spark)
    check(run, spark, "answers")


def test_a_query_that_comes_while_others_run_has_what_is_kept(spark, tmp_path):
    """The logs of one query are there for the next, on the same key or on another."""
    run = ManyRun(tmp_path, QUERIES[:1])
    run.grow(3, files=2, rows=20)
    late = Many("late", tuple("PQR"), CHAIN, Windows(4 * GRID), outputs=IDS)
    with run.engine(spark) as engine:
        engine.start()
        engine.process_available()
        added = engine.query("late", late.penstock().split(" AS ", 1)[1].rstrip(";\n"))
        engine.process_available()
        right = run.answer(late)
        got = run.results(engine, "late", "table")
        assert not got - right
        assert added.complete_from is not None or got == right
    check(run, spark, "the first")


@pytest.mark.usefixtures("spark")
def test_the_command_line_runs_and_explains_three_streams(tmp_path, capsys):
    run = ManyRun(tmp_path, QUERIES[:1])
    run.grow(4, files=2, rows=20)
    script = tmp_path / "script.sql"
    query = run.queries[0][0]
    text = query.penstock().replace(
        "QUERY wide AS", f"QUERY wide WITH (sink = 'parquet', path = '{tmp_path}/out/wide') AS"
    )
    script.write_text("\n".join(feed.declare() for feed in run.feeds.values()) + text, encoding="utf-8")
    assert main(["explain", str(script)]) == 0
    assert "1 chain, 3 logs" in capsys.readouterr().out
    assert main(["run", str(script), "--state", str(tmp_path / "other"), "--once"]) == 0
    same(run.results(None, "wide", "parquet"), run.answer(query), "by the command line")


@pytest.mark.timeout(600)  # four JVMs, on a machine that may be busy
def test_kill_9_at_random_moments_loses_and_repeats_nothing(spark, tmp_path):
    """A child is killed with its JVM and workers, three times; the fourth reaches the end."""
    seed = int.from_bytes(os.urandom(3))
    random = Random(seed)
    run = ManyRun(tmp_path, QUERIES[:5])
    run.grow(seed, files=12, rows=60)
    right = {query.name: run.answer(query) for query, _ in run.queries}
    for kill in range(4):
        child = subprocess.Popen(
            [sys.executable, str(test_crash.CHILD), str(tmp_path), "many"],
            start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
        try:
            if kill < 3:
                test_crash._wait_for_commits(child, run.state, random.randint(2, 8))
                time.sleep(random.random() * 0.3)
            else:
                assert child.wait(200) == 0, child.stderr.read().decode()[-2000:]
        finally:
            test_crash._kill_session(child)
        for query, sink in run.queries:
            if sink == "parquet" and (tmp_path / "out" / query.name).exists():
                extra = run.results(None, query.name, sink) - right[query.name]
                assert not extra, f"seed {seed}, after kill {kill}: {query.name} shows {extra}"
    check(run, spark, f"seed {seed}")
    assert not list(tmp_path.rglob("_staging"))
