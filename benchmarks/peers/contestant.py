"""One engine, one job, one fresh process: the unit of a fair comparison.

    python -m benchmarks.peers.contestant ENGINE JOB
    python -m benchmarks.peers.contestant STRATEGY SCRIPT

The job is JSON (see `benchmarks.peers.peer`); a script is anybody's, run by Penstock under a strategy.

Spark's own stream-stream join is used in the three ways its users have: plain, at its best, and one wide join for all.
Each reads a file of each stream per micro-batch, joins on the key and the interval, writes every column to the ``noop``
sink, and counts results with ``observe``, in the same pass.  A run's progress is the average of its queries': each of
them has to read all of the input.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections import defaultdict
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow.dataset as ds
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows
from pyspark.sql.streaming.listener import StreamingQueryListener

from benchmarks.oracle import pairs_of
from benchmarks.peers.peer import Job, run_to_end, tell, tell_done
from benchmarks.sinks import SINKS, sink_script
from benchmarks.workloads import NOOP, STREAMS, WindowQuery, as_script
from penstock.engine.sinks.noop import noop
from penstock.engine.spark.session import QUICK_START, embedded_session
from penstock.sql.script import parse_script

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from penstock.engine.api import Engine

    Served = Sequence[tuple[Sequence[WindowQuery], WindowQuery]]
    """Joins, each with the queries it serves."""
    Source = Callable[[SparkSession, Path, WindowQuery, int], DataFrame]
    Finish = Callable[[DataFrame, Sequence[WindowQuery]], DataFrame]
    Write = Callable[[DataFrame], DataStreamWriter]

STATE = "org.apache.spark.sql.execution.streaming.state"

AT_ITS_BEST = {
    "spark.sql.streaming.stateStore.providerClass": f"{STATE}.RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",  # a lookup less per write
}
"""What a user who reads Spark's tuning guide sets, but for the state format: see `newest_state_format`."""

SHUFFLE = {"spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 1))}
STATE_FORMAT = "spark.sql.streaming.join.stateFormatVersion"


def run_penstock(job: Job) -> None:
    """Run the queries as one shared plan."""
    versions = {name: version(name) for name in ("penstock", "pyspark")}
    tell("about", versions=versions, settings=QUICK_START)
    embedded_session(QUICK_START)  # as `penstock run --once` has it; no peer's start of a JVM counts
    done = run_to_end(as_script(job.data, job.queries, NOOP))
    tell_done(seconds=done.seconds, results=list(done.results.values()), state_rows=done.state_rows)


def run_sink(job: Job, sink: str) -> None:
    """Run the queries as one shared plan, with a real sink for each."""
    tell("about", versions={"penstock": version("penstock")}, settings=QUICK_START)
    embedded_session(QUICK_START)
    with tempfile.TemporaryDirectory(prefix="penstock-sinks-") as out:
        done = run_to_end(sink_script(job.data, job.queries, sink, Path(out)))
    tell_done(seconds=done.seconds, results=list(done.results.values()), state_rows=done.state_rows)


def run_duckdb(job: Job) -> None:
    """Join the whole input at the widest window as one batch, and read every column of it as Arrow."""
    tell("about", versions={"duckdb": version("duckdb")}, settings={})
    connection = duckdb.connect(config={"threads": job.cores})
    started = time.monotonic()
    reader = connection.sql(pairs_of(job.data, job.widest.micros)).to_arrow_reader(1 << 17)
    pairs = sum(batch.num_rows for batch in reader)
    seconds = time.monotonic() - started
    tell("mark", seconds, job.rows)
    tell_done(seconds=seconds, pairs=pairs)


def run_script(strategy: str, path: Path) -> None:
    """Run a script of anybody's under one strategy, its results counted only."""
    text = path.read_text(encoding="utf-8")

    def count_only(engine: Engine) -> None:
        for query in parse_script(text).queries:
            engine.drop(query.name)
            engine.query(query.name, query.text, sink=noop())

    done = run_to_end(f"{text}\n;SET strategy = '{strategy}';", prepare=count_only)
    rows = sum(stream.rows for stream in done.status.streams)
    pairs = sum(group.pairs for group in done.status.groups)
    tell_done(rows=rows, results=done.results, state_rows=done.state_rows, pairs=pairs)


def run_spark(
    job: Job,
    joins: Served,
    *,
    best: bool = False,
    source: Source | None = None,
    finish: Finish | None = None,
    write: Write | None = None,
    count: Callable[[], list[int]] | None = None,
) -> None:
    """Run Spark's own joins: start every one, wait for all, and report.

    `source` makes the rows of a join, by its number, `finish` makes results of them, counted, and `write` says where
    they go: nowhere, if it does not.  `count` is asked for the results at the end, if they are not counted on the way.
    """
    source, finish, write = source or joined, finish or counted, write or nowhere
    heap, settings = job.heap(len(joins)), AT_ITS_BEST if best else {}
    wanted = {"spark.driver.memory": f"{heap}m", **SHUFFLE, **settings}
    spark = embedded_session(wanted) if best else plain_session(wanted)
    formats = {STATE_FORMAT: newest_state_format(spark)} if best else {}
    told = {**settings, "heap": f"{heap} MiB", **formats}
    tell("about", versions={"pyspark": version("pyspark")}, settings=told)
    progress = Progress(len(joins))
    spark.streams.addListener(progress)
    with tempfile.TemporaryDirectory(prefix="spark-bench-", ignore_cleanup_errors=True) as checkpoints:
        running = []
        for number, (served, join) in enumerate(joins):
            pool = f"pool-{number}" if best else "default"
            spark.sparkContext.setLocalProperty("spark.scheduler.pool", pool)
            writer = write(finish(source(spark, job.data, join, number), served))
            writer = writer.option("checkpointLocation", f"{checkpoints}/{number}").queryName(str(number))
            running.append(writer.trigger(availableNow=True).start())
        for query in running:
            query.awaitTermination()
        progress.ended.wait(60)
        tell_done(
            seconds=progress.seconds,
            results=count() if count else progress.results([len(served) for served, _ in joins]),
            state_rows=None if best else progress.held("numRowsTotal"),
            state_bytes=progress.held("memoryUsedBytes"),
        )


def nowhere(results: DataFrame) -> DataStreamWriter:
    """Discard results after making every column of them."""
    return results.writeStream.format("noop")


def run_spark_files(job: Job) -> None:
    """Run Spark's join at the widest window, and write the files of every query from each micro-batch of it.

    As a Spark user does: the batch is kept while the queries' filters are written, one after the other.
    """
    with tempfile.TemporaryDirectory(prefix="spark-sinks-") as out:
        folders = {Path(out) / f"q{number}": each for number, each in enumerate(job.queries)}

        def write_all(pairs: DataFrame, _batch: int) -> None:
            kept = pairs.persist()
            for folder, query in folders.items():
                kept.where(belongs(query)).write.mode("append").parquet(str(folder))
            kept.unpersist()

        run_spark(
            job,
            [(job.queries, job.widest)],
            finish=lambda pairs, _: pairs,
            write=lambda pairs: pairs.writeStream.foreachBatch(write_all),
            count=lambda: [ds.dataset(each, format="parquet").count_rows() for each in folders],
        )


def plain_session(settings: Mapping[str, str]) -> SparkSession:
    """Start the session that a Spark user has: Spark's own defaults, all cores, without a web page or a log."""
    quiet = {"spark.ui.enabled": "false", "spark.log.level": "ERROR", "spark.sql.session.timeZone": "UTC"}
    builder = SparkSession.builder.appName("bench").master("local[*]")
    return builder.config(map={**quiet, **settings}).getOrCreate()


def newest_state_format(spark: SparkSession) -> str:
    """Set the newest format of a join's state that this Spark accepts, and say which it is."""
    for each in "432":
        try:
            spark.conf.set(STATE_FORMAT, each)
        except Exception:  # noqa: BLE001, S112 - py4j raises what it likes; the next older one is tried
            continue
        return each
    return "1"


def joined(
    spark: SparkSession, data: Path, query: WindowQuery, number: int, files: int | None = 1
) -> DataFrame:
    """Write a join as a Spark user does, its predicate before the join; `files` of a stream are a micro-batch."""
    pace = {} if files is None else {"maxFilesPerTrigger": str(files)}
    for name in STREAMS:
        reader = spark.readStream.schema("k bigint, v double, ts timestamp").options(**pace)
        stream = reader.parquet(str(data / name)).withWatermark("ts", "0 seconds")
        stream.createOrReplaceTempView(f"{name}{number}")
    span = f"INTERVAL {query.micros} MICROSECONDS"
    return spark.sql(
        f"SELECT a.k, a.v AS av, b.v AS bv, a.ts AS ats, b.ts AS bts FROM a{number} a JOIN b{number} b ON a.k = b.k "
        f"AND b.ts > a.ts - {span} AND b.ts < a.ts + {span} WHERE {query.condition('a.v')}"
    )


def counted(pairs: DataFrame, served: Sequence[WindowQuery]) -> DataFrame:
    """Count what each query gets of a join's pairs, on their way to the sink."""
    counts = [f"count_if({belongs(each)})" for each in served]
    counts = counts if len(served) > 1 else ["count(1)"]
    return pairs.observe("results", *(F.expr(each).alias(f"n{number}") for number, each in enumerate(counts)))


def belongs(query: WindowQuery) -> str:
    """Write as Spark SQL which pairs of a wide join are a query's."""
    return f"abs(unix_micros(bts) - unix_micros(ats)) < {query.micros} AND {query.condition('av')}"


class Progress(StreamingQueryListener):
    """Listens to the queries of a run, so many, and passes on how far they are; `ended` is set when all have."""

    def __init__(self, queries: int) -> None:
        self.started, self.seconds = time.monotonic(), 0.0
        self.ended = threading.Event()
        self._queries, self._running, self._rows = queries, queries, 0
        self._counts: dict[tuple[int, int], int] = defaultdict(int)
        self._state: dict[Any, Any] = {}

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Do nothing."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Add up what a micro-batch did."""
        progress = event.progress
        counts = progress.observedMetrics["results"].asDict() if progress.observedMetrics else {}
        if not progress.numInputRows and not any(counts.values()):
            return
        self._rows += progress.numInputRows
        self._state[progress.id] = progress.stateOperators
        for name, count in counts.items():
            self._counts[int(progress.name), int(name[1:])] += count
        tell("mark", time.monotonic() - self.started, self._rows / self._queries)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Do nothing."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: ARG002, N802 - Spark's name
        """Take the time when the last query ends."""
        self._running -= 1
        if not self._running:
            self.seconds = time.monotonic() - self.started
            self.ended.set()

    def results(self, served: Sequence[int]) -> list[int]:
        """Give the results of each query, in order of the joins and the queries they serve."""
        return [self._counts[join, number] for join, count in enumerate(served) for number in range(count)]

    def held(self, name: str) -> int:
        """Add up over the queries what their state is at the end."""
        return sum(getattr(each, name) for operators in self._state.values() for each in operators)


RUNS: dict[str, Callable[[Job], None]] = {
    "penstock": run_penstock,
    "duckdb": run_duckdb,
    "spark": lambda job: run_spark(job, [([each], each) for each in job.queries]),
    "spark-best": lambda job: run_spark(job, [([each], each) for each in job.queries], best=True),
    "spark-widest": lambda job: run_spark(job, [(job.queries, job.widest)]),
    "spark-files": run_spark_files,
    **{f"sink-{name}": partial(run_sink, sink=name) for name in SINKS},
}
"""Of Spark: a streaming query per query; the same at its best, in their own pools; one join, every query a filter."""


if __name__ == "__main__":
    name, what = sys.argv[1:]
    if name in RUNS:
        RUNS[name](Job.from_json(what))
    else:
        run_script(name, Path(what))
