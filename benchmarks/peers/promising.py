"""Penstock on streams with punctuations, one job, one fresh process; `peers.peer` says what a run prints.

    python -m benchmarks.peers.promising WAY JOB

A way is one of `benchmarks.punctuations`.  Marks are in rows that are data, so that runs with and without
punctuations compare.
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from statistics import fmean
from typing import TYPE_CHECKING

import pyarrow.dataset as ds

from benchmarks.contest import WARM
from benchmarks.peers.peer import Job, run_to_end, tell, tell_done
from benchmarks.punctuations import WAYS, Way
from benchmarks.workloads import STREAMS
from penstock.engine.spark.session import QUICK_START, embedded_session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.engine.api import Engine

COUNTED = ("punctuations", "purged", "discarded", "dropped", "broken")


def run(way: Way, job: Job) -> None:
    """Run all queries as one shared plan, and look at the state after every unit."""
    versions = {name: version(name) for name in ("penstock", "pyspark")}
    tell("about", versions=versions, settings=QUICK_START)
    embedded_session(QUICK_START)  # as `penstock run --once` has it
    engines: list[Engine] = []
    held: list[tuple[float, int]] = []
    share = share_of_data(way, job)

    def watch(seconds: float, rows: int) -> None:
        tell("mark", seconds, share * rows)
        held.append((share * rows, engines[0].status().state_rows))

    done = run_to_end(way.script(job.data, job.queries), watch, prepare=engines.append)
    counts = {name: sum(getattr(each, name) for each in done.status.streams) for name in COUNTED}
    tell_done(
        seconds=done.seconds,
        results=list(done.results.values()),
        state_rows=done.state_rows,
        counts={"state_rows": average(held, WARM * job.rows), **counts},
    )


def share_of_data(way: Way, job: Job) -> float:
    """Say how much of what the engine takes for input rows is data; punctuations that it heeds are not among them."""
    files = [each for name in STREAMS for each in (job.data / way.files / name).glob("*.parquet")]
    return 1.0 if way.heeds else job.rows / ds.dataset(files).count_rows()


def average(held: Sequence[tuple[float, int]], warm: float) -> float:
    """Average the rows of state over the units after the warm-up; over all, if there is none."""
    return fmean([state for rows, state in held if rows > warm] or [state for _, state in held] or [0])


if __name__ == "__main__":
    run(WAYS[sys.argv[1]], Job.from_json(sys.argv[2]))
