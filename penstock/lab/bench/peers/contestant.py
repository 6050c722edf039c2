"""One engine, one job, one fresh process: the unit of a fair comparison.

    python -m penstock.lab.bench.peers.contestant ENGINE JOB
    python -m penstock.lab.bench.peers.contestant serve-ENGINE HOME

The job is JSON (see `penstock.lab.bench.peers.peer`).  What serves joins the files that appear in HOME/data until its
standard input is closed, and puts results into HOME/out: for `penstock.lab.bench.latency`.
"""

from __future__ import annotations

import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb

from penstock.engine.engine import Engine
from penstock.engine.session import QUICK_START, embedded_session
from penstock.lab.bench.latency import WINDOW
from penstock.lab.bench.peers import spark_joins
from penstock.lab.bench.peers.peer import Job, run_to_end, tell_about, tell_done, tell_mark
from penstock.lab.oracle import pairs_of
from penstock.lab.workloads import NOOP, as_script

if TYPE_CHECKING:
    from collections.abc import Callable


def run_penstock(job: Job) -> None:
    """Run the queries as one shared plan."""
    tell_about({"penstock": version("penstock"), "pyspark": version("pyspark")}, QUICK_START)
    embedded_session(QUICK_START)  # as `penstock run --once` has it; no peer's start of a JVM counts
    done = run_to_end(as_script(job.data, job.queries, NOOP), tell_mark)
    tell_done(seconds=done.seconds, results=list(done.results.values()), state_rows=done.state_rows)


def run_duckdb(job: Job) -> None:
    """Join the whole input at the widest window as one batch, and read every column of it as Arrow."""
    tell_about({"duckdb": version("duckdb")}, {})
    connection = duckdb.connect(config={"threads": job.cores})
    started = time.monotonic()
    reader = connection.sql(pairs_of(job.data, job.widest.micros)).to_arrow_reader(1 << 17)
    pairs = sum(batch.num_rows for batch in reader)
    seconds = time.monotonic() - started
    tell_mark(seconds, job.rows)
    tell_done(seconds=seconds, pairs=pairs)


def serve_penstock(home: Path) -> None:
    """Run Penstock with a directory of Parquet files as its sink."""
    sink = f"sink = 'parquet', path = '{home / 'out'}'"
    with Engine(state=home / "state") as engine:
        engine.script(as_script(home / "data", (WINDOW,), sink, files=None))
        engine.start()
        tell_mark(0, 0)
        sys.stdin.read()
        engine.process_available()
    tell_done()


def serve_spark_best(home: Path) -> None:
    """Run Spark's join at its best with the same kind of sink."""
    spark = embedded_session({**spark_joins.SHUFFLE, **spark_joins.AT_ITS_BEST})
    spark_joins.newest_state_format(spark)
    pairs = spark_joins.joined(spark, home / "data", WINDOW, 0, files=None)
    writer = pairs.writeStream.format("parquet").option("checkpointLocation", str(home / "state"))
    query = writer.start(str(home / "out"))
    tell_mark(0, 0)
    sys.stdin.read()
    query.processAllAvailable()
    query.stop()
    tell_done()


RUNS: dict[str, Callable[[Job], None]] = {"penstock": run_penstock, "duckdb": run_duckdb, **spark_joins.RUNS}
SERVES = {"serve-penstock": serve_penstock, "serve-spark-best": serve_spark_best}


if __name__ == "__main__":
    name, what = sys.argv[1:]
    if name in RUNS:
        RUNS[name](Job.from_json(what))
    else:
        SERVES[name](Path(what))
