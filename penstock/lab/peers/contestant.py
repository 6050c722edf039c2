"""One engine, one job, one fresh process: the unit of a fair comparison.

    python -m penstock.lab.peers.contestant ENGINE JOB

The job is JSON (see `penstock.lab.peers.peer`).
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from importlib.metadata import version

from penstock.lab.oracle import pairs_of
from penstock.lab.peers.peer import Job, tell_about, tell_done, tell_mark
from penstock.lab.peers.spark_joins import run_spark, run_spark_best, run_spark_widest
from penstock.lab.workloads import NOOP, as_script


def run_penstock(job: Job) -> None:
    """Run the queries as one shared plan."""
    from penstock.engine.engine import Engine  # noqa: PLC0415 - the other contestants do without
    from penstock.engine.session import QUICK_START, embedded_session  # noqa: PLC0415 - see above

    tell_about({"penstock": version("penstock"), "pyspark": version("pyspark")}, QUICK_START)
    embedded_session(QUICK_START)  # as `penstock run --once` has it; no peer's start of a JVM counts
    state = tempfile.mkdtemp(prefix="penstock-bench-")
    try:
        with Engine(state=state) as engine:
            engine.script(as_script(job.data, job.queries, NOOP))
            started = time.monotonic()
            engine.watch(lambda unit: tell_mark(time.monotonic() - started, unit.rows))
            engine.start(once=True)
            engine.wait()
            seconds = time.monotonic() - started
            status = engine.status()
            tell_done(
                seconds=seconds,
                results=[each.results for each in status.queries],
                state_rows=sum(group.state_rows for group in status.groups),
            )
    finally:
        shutil.rmtree(state)


def run_duckdb(job: Job) -> None:
    """Join the whole input at the widest window as one batch, and read every column of it as Arrow."""
    import duckdb  # noqa: PLC0415 - see `run_penstock`

    tell_about({"duckdb": version("duckdb")}, {})
    connection = duckdb.connect(config={"threads": job.cores})
    started = time.monotonic()
    reader = connection.sql(pairs_of(job.data, job.widest.micros)).to_arrow_reader(1 << 17)
    pairs = sum(batch.num_rows for batch in reader)
    seconds = time.monotonic() - started
    tell_mark(seconds, job.rows)
    tell_done(seconds=seconds, pairs=pairs)


RUNS = {
    "penstock": run_penstock,
    "spark": run_spark,
    "spark-best": run_spark_best,
    "spark-widest": run_spark_widest,
    "duckdb": run_duckdb,
}


def main() -> None:
    """Run one contestant."""
    name, job = sys.argv[1:]
    RUNS[name](Job.from_json(job))


if __name__ == "__main__":
    main()
