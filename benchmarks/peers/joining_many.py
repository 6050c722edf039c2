"""One engine that joins more than two streams, one job, one fresh process; `peers.peer` says what a run prints.

    python -m benchmarks.peers.joining_many penstock|spark|spark-best JOB
    python -m benchmarks.peers.joining_many chain|star ORDER JOB

Spark joins them two by two: the first two within the window, their pairs with the third, and so on, each with a
watermark, its interval to the first stream as a condition, and the distance to all others as a further one.  With
several windows there is one such query at the widest, and the level of a result is a column of it.

Penstock runs one plan.  On a graph of `benchmarks.many_streams` it may be made to ask the other streams in an order,
`chosen` or named by their letters, the first one first; that is done in plain loops on one core, and the time is the
CPU time of joining: what orders have in common, and what else the machine does, is not in it.
"""

from __future__ import annotations

import sys
import time
from contextlib import nullcontext
from importlib.metadata import version
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from benchmarks.many_streams import Graph, common_key, joining_script, skewed_graph
from benchmarks.multiway import CHOSEN
from benchmarks.peers.contestant import run_spark
from benchmarks.peers.peer import Job, run_to_end, tell, tell_done
from penstock import testing
from penstock.engine.spark.session import QUICK_START, embedded_session
from penstock.engine.stages.many_plan import forced_orders
from penstock.plan.probe_order import all_steps

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from benchmarks.workloads import WindowQuery
    from penstock.engine.api import Engine
    from penstock.plan.group import Group
    from penstock.plan.probe_order import LinkSteps


def run_penstock(job: Job, graph: Graph) -> None:
    """Run all queries as one shared plan, and look at the state after every unit."""
    versions = {name: version(name) for name in ("penstock", "pyspark")}
    tell("about", versions=versions, settings=QUICK_START)
    embedded_session(QUICK_START)  # as `penstock run --once` has it
    engines: list[Engine] = []
    held: list[int] = []

    def watch(seconds: float, rows: int) -> None:
        tell("mark", seconds, rows)
        held.append(engines[0].status().state_rows)

    done = run_to_end(joining_script(graph, job.data, job.queries), watch, prepare=engines.append)
    tell_done(
        seconds=done.seconds,
        results=list(done.results.values()),
        state_rows=done.state_rows,
        counts={"most_state_rows": max(held, default=0)},
    )


def run_in_loops(job: Job, graph: Graph) -> None:
    """Run one query without Spark, a file of each stream to a micro-batch; time is the CPU time of joining."""
    tell("about", versions={"penstock": version("penstock")}, settings={})
    script, spent, rows = joining_script(graph, job.data, job.queries), 0.0, 0
    with testing.Session(script, tasks=1) as session:
        for file in sorted(each.name for each in (job.data / graph.streams[0]).glob("*.parquet")):
            for name in graph.streams:
                batch = pq.read_table(job.data / name / file)
                session.send(name, batch)
                rows += batch.num_rows
            began = time.process_time()
            session.turn()
            spent += time.process_time() - began
            tell("mark", spent, rows)
        status = session.status()
        tell_done(
            seconds=spent, results=[each.results for each in status.queries], state_rows=status.state_rows
        )


def cascade(spark: SparkSession, data: Path, query: WindowQuery, streams: Sequence[str]) -> DataFrame:
    """Write a cascade of joins as a Spark user has to, a file of each stream to a micro-batch.

    Rows may have one event time only, that of the first stream; the others' go on as numbers.
    """
    for name in streams:
        reader = spark.readStream.schema("k bigint, v double, ts timestamp").option("maxFilesPerTrigger", "1")
        reader.parquet(str(data / name)).withWatermark("ts", "0 seconds").createOrReplaceTempView(name)
    text, span = (
        f"SELECT k, v AS {streams[0]}v, ts FROM {streams[0]}",
        f"INTERVAL {query.micros} MICROSECONDS",
    )
    for number, name in enumerate(streams[1:], 1):
        near = "".join(
            f" AND abs(unix_micros(n.ts) - s.{other}us) < {query.micros}" for other in streams[1:number]
        )
        text = (
            f"SELECT s.*, n.v AS {name}v, unix_micros(n.ts) AS {name}us FROM ({text}) s JOIN {name} n ON s.k = n.k "
            f"AND n.ts > s.ts - {span} AND n.ts < s.ts + {span}{near}"
        )
    return spark.sql(text)


def levelled(results: DataFrame, served: Sequence[WindowQuery], streams: Sequence[str]) -> DataFrame:
    """Put beside each result the smallest window that has it, and count what each query gets."""
    times = ", ".join(["unix_micros(ts)", *(f"{each}us" for each in streams[1:])])
    spread = f"greatest({times}) - least({times})"
    cases = " ".join(f"WHEN {spread} < {each.micros} THEN {level}" for level, each in enumerate(served))
    with_level = results.withColumn("level", F.expr(f"CASE {cases} END"))
    counts = [F.expr(f"count_if(level <= {level})").alias(f"n{level}") for level in range(len(served))]
    return with_level.observe("results", *counts)


def run_cascade(job: Job, *, best: bool = False) -> None:
    """Run Spark's joins one behind the other, at the widest window."""
    windows = sorted(job.queries, key=lambda each: each.window)
    run_spark(
        job,
        [(windows, windows[-1])],
        best=best,
        source=lambda spark, data, query, _: cascade(spark, data, query, job.streams),
        finish=lambda results, served: levelled(results, served, job.streams),
    )


def asking_in(order: str) -> Callable[[Group], tuple[LinkSteps, ...]]:
    """Make what decides the probe orders of a group: of streams that can be asked, the one that is named first.

    A stream that the order does not name, such as the middle of a star, is asked before all others.
    """

    def orders(group: Group) -> tuple[LinkSteps, ...]:
        return tuple(_steps(group, driver, order) for driver in range(len(group.inputs)))

    return orders


def _steps(group: Group, driver: int, order: str) -> LinkSteps:
    bound, steps = {driver}, []
    while len(bound) < len(group.inputs):
        open_steps = [
            each for each in all_steps(group.links) if each.source in bound and each.to not in bound
        ]
        steps.append(min(open_steps, key=lambda step: (order.find(group.streams[step.to]), step)))
        bound.add(steps[-1].to)
    return tuple(steps)


RUNS = {
    "penstock": lambda job: run_penstock(job, common_key(len(job.streams))),
    "spark": run_cascade,
    "spark-best": lambda job: run_cascade(job, best=True),
}


def main(way: str, *more: str) -> None:
    """Run a job in one of the ways."""
    job = Job.from_json(more[-1])
    if way in RUNS:
        RUNS[way](job)
        return
    graph, order = skewed_graph(way), more[0]
    with nullcontext() if order == CHOSEN else forced_orders(asking_in(order)):
        run_in_loops(job, graph)


if __name__ == "__main__":
    main(*sys.argv[1:])
