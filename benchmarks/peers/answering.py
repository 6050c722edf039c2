"""One engine that aggregates, one job, one fresh process; what a run prints is in `benchmarks.peers.peer`.

    python -m benchmarks.peers.answering ENGINE JOB

Penstock runs all queries as one plan; ``pairs`` are the same joins without their aggregates, giving the columns that
these take: counted by ``noop``, which puts none together, or ``pairs-written`` to Parquet files.  A run's time ends
with its last answer, not with its last row.
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from benchmarks.peers.contestant import run_spark
from benchmarks.peers.peer import Job, run_to_end, tell, tell_done
from benchmarks.workloads import NOOP, WindowQuery, streams_in
from penstock.engine.spark.session import QUICK_START, embedded_session

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame

COLUMNS = "k BIGINT, g BIGINT, v DOUBLE, ts TIMESTAMP"


def run_penstock(job: Job, *, pairs: bool = False, out: str = "") -> None:
    """Run all queries as one shared plan: their aggregates, or only their pairs, counted or written to a folder."""
    versions = {name: version(name) for name in ("penstock", "pyspark")}
    tell("about", versions=versions, settings=QUICK_START)
    embedded_session(QUICK_START)  # as `penstock run --once` has it
    done = run_to_end(answer_script(job.data, job.queries, pairs=pairs, out=out))
    tell("mark", done.seconds, job.rows)
    tell_done(seconds=done.seconds, results=list(done.results.values()), state_rows=done.state_rows)


def run_written(job: Job) -> None:
    """Run the joins without their aggregates, and write every pair."""
    with TemporaryDirectory(prefix="penstock-pairs-") as out:
        run_penstock(job, pairs=True, out=out)


def answer_script(data: Path, queries: Sequence[WindowQuery], *, pairs: bool = False, out: str = "") -> str:
    """Write aggregates as a Penstock script, answered every second; or the pairs that they are made of."""
    sinks = [f"sink = 'parquet', path = '{out}/q{n}'" if out else NOOP for n in range(len(queries))]
    wanted = "b.v AS bv, a.v AS av" if pairs else "COUNT(*) AS n, SUM(b.v) AS s, MAX(a.v) AS m"
    return streams_in(data, columns=COLUMNS) + "".join(
        f"CREATE QUERY q{number} WITH ({sinks[number]}) AS "
        f"SELECT a.{each.group} AS g, {wanted} FROM a JOIN b ON a.k = b.k "
        + ("" if pairs else f"GROUP BY a.{each.group} ")
        + f"WINDOW {each.window} seconds{'' if pairs else ' EVERY 1 second'};\n"
        for number, each in enumerate(queries)
    )


def answered(pairs: DataFrame, served: Sequence[WindowQuery]) -> DataFrame:
    """Aggregate a join as Spark's users do, by sliding windows over the time of ``a``; count the answers."""
    (query,) = served
    group = F.expr("k" if query.group == "k" else "k % 64").alias("g")
    windows = F.window("ats", f"{query.micros} microseconds", "1 second")
    measures = F.count("*").alias("n"), F.sum("bv").alias("s"), F.max("av").alias("m")
    answers = pairs.groupBy(group, windows).agg(*measures).select("g", "window.end", "n", "s", "m")
    return answers.observe("results", F.count(F.lit(1)).alias("n0"))


def run_spark_answers(job: Job, queries: Sequence[WindowQuery]) -> None:
    """Run a streaming query for each of some queries."""
    run_spark(job, [([each], each) for each in queries], finish=answered)


RUNS = {
    "penstock": run_penstock,
    "pairs": lambda job: run_penstock(job, pairs=True),
    "pairs-written": run_written,
    "spark": lambda job: run_spark_answers(job, [max(job.queries, key=lambda each: each.window)]),
    "spark-each": lambda job: run_spark_answers(job, job.queries),
}

if __name__ == "__main__":
    RUNS[sys.argv[1]](Job.from_json(sys.argv[2]))
