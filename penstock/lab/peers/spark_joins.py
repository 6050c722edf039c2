"""Spark's own stream-stream join, in the three ways its users have: plain, at its best, and one wide join for all.

Every way reads a file of each stream per micro-batch, joins on the key and the interval, writes every column to the
``noop`` sink, and counts results with ``observe``, in the same pass.  A run's progress is the average of its queries':
each of them has to read all of the input.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections import defaultdict
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows
from pyspark.sql.streaming.listener import StreamingQueryListener

from penstock.engine.session import embedded_session
from penstock.lab.peers.peer import tell_about, tell_done, tell_mark
from penstock.lab.workloads import STREAMS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame

    from penstock.lab.peers.peer import Job
    from penstock.lab.workloads import WindowQuery

STATE = "org.apache.spark.sql.execution.streaming.state"

AT_ITS_BEST = {
    "spark.sql.streaming.stateStore.providerClass": f"{STATE}.RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",  # a lookup less per write
}
"""What a user who reads Spark's tuning guide sets, but for the state format: see `newest_state_format`."""

STATE_FORMATS = (4, 3, 2)


def run_spark(job: Job) -> None:
    """Run a streaming query per query, default state store."""
    _run(job, {}, [([each], each) for each in job.queries])


def run_spark_best(job: Job) -> None:
    """Run a streaming query per query, RocksDB and all that makes it fast, each in a pool of its own."""
    _run(job, AT_ITS_BEST, [([each], each) for each in job.queries], best=True)


def run_spark_widest(job: Job) -> None:
    """Run one join at the widest window; every query is a filter behind it, counted in the same pass."""
    _run(job, {}, [(job.queries, job.widest)])


def _run(
    job: Job,
    settings: dict[str, str],
    joins: Sequence[tuple[Sequence[WindowQuery], WindowQuery]],
    *,
    best: bool = False,
) -> None:
    """Start every join with the queries it serves, wait for all, and report."""
    heap = job.heap(len(joins))
    wanted = {
        "spark.driver.memory": f"{heap}m",
        "spark.sql.shuffle.partitions": str(2 * job.cores),
        **settings,
    }
    spark = embedded_session(wanted) if best else plain_session(wanted)
    used = {**settings, "heap": f"{heap} MiB"}
    if best:
        used["spark.sql.streaming.join.stateFormatVersion"] = str(newest_state_format(spark))
    tell_about({"pyspark": version("pyspark")}, used)
    place = tempfile.mkdtemp(prefix="spark-bench-")
    progress = Progress(len(joins))
    spark.streams.addListener(progress)
    try:
        running = []
        for number, (served, join) in enumerate(joins):
            spark.sparkContext.setLocalProperty(
                "spark.scheduler.pool", f"pool-{number}" if best else "default"
            )
            writer = counted(joined(spark, job.data, join, number), served).writeStream.format("noop")
            writer = writer.option("checkpointLocation", f"{place}/{number}").queryName(str(number))
            running.append(writer.trigger(availableNow=True).start())
        for query in running:
            query.awaitTermination()
        progress.wait()
        tell_done(
            seconds=progress.seconds,
            results=progress.results([len(served) for served, _ in joins]),
            state_rows=None if best else progress.held("numRowsTotal"),
            state_bytes=progress.held("memoryUsedBytes"),
        )
    finally:
        shutil.rmtree(place, ignore_errors=True)


def plain_session(settings: Mapping[str, str]) -> SparkSession:
    """Start the session that a Spark user has: Spark's own defaults, all cores, without a web page or a log."""
    quiet = {"spark.ui.enabled": "false", "spark.log.level": "ERROR", "spark.sql.session.timeZone": "UTC"}
    builder = SparkSession.builder.appName("bench").master("local[*]")
    for name, value in {**quiet, **settings}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def newest_state_format(spark: SparkSession) -> int:
    """Set the newest format of a join's state that this Spark accepts, and say which it is."""
    for each in STATE_FORMATS:
        try:
            spark.conf.set("spark.sql.streaming.join.stateFormatVersion", str(each))
        except Exception:  # noqa: BLE001, S112 - py4j raises what it likes; the next older one is tried
            continue
        return each
    return 1


def joined(
    spark: SparkSession, data: Path, query: WindowQuery, number: int, files: int | None = 1
) -> DataFrame:
    """Write a join as a Spark user does, its predicate before the join; `files` of a stream are a micro-batch."""
    for name in STREAMS:
        reader = spark.readStream.schema("k bigint, v double, ts timestamp")
        if files is not None:
            reader = reader.option("maxFilesPerTrigger", str(files))
        stream = reader.parquet(str(data / name)).withWatermark("ts", "0 seconds")
        stream.createOrReplaceTempView(f"{name}{number}")
    span = f"INTERVAL {query.micros} MICROSECONDS"
    return spark.sql(
        f"SELECT a.k, a.v AS av, b.v AS bv, a.ts AS ats, b.ts AS bts FROM a{number} a JOIN b{number} b ON a.k = b.k "
        f"AND b.ts > a.ts - {span} AND b.ts < a.ts + {span} WHERE {query.condition('a.v')}"
    )


def counted(pairs: DataFrame, served: Sequence[WindowQuery]) -> DataFrame:
    """Count what each query gets of a join's pairs, on their way to the sink."""
    apart = "abs(unix_micros(bts) - unix_micros(ats))"
    counts = [
        F.expr(f"count_if({apart} < {each.micros} AND {each.condition('av')})").alias(f"n{number}")
        if len(served) > 1
        else F.count(F.lit(1)).alias("n0")
        for number, each in enumerate(served)
    ]
    return pairs.observe("results", *counts)


class Progress(StreamingQueryListener):
    """Listens to the queries of a run, and passes on how far they are."""

    def __init__(self, queries: int) -> None:
        """Expect so many queries."""
        self.started = time.monotonic()
        self.seconds = 0.0
        self._queries, self._rows, self._ended = queries, 0, 0
        self._counts: dict[tuple[int, int], int] = defaultdict(int)
        self._state: dict[Any, Any] = {}
        self._all = threading.Event()

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Do nothing."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Add up what a micro-batch did."""
        progress = event.progress
        if not progress.numInputRows:
            return
        self._rows += progress.numInputRows
        self._state[progress.id] = progress.stateOperators[0]
        for name, count in progress.observedMetrics["results"].asDict().items():
            self._counts[int(progress.name), int(name[1:])] += count
        tell_mark(time.monotonic() - self.started, self._rows / self._queries)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Do nothing."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: ARG002, N802 - Spark's name
        """Take the time when the last query ends."""
        self._ended += 1
        if self._ended == self._queries:
            self.seconds = time.monotonic() - self.started
            self._all.set()

    def wait(self) -> None:
        """Wait until all that happened was heard of."""
        self._all.wait(60)

    def results(self, served: Sequence[int]) -> list[int]:
        """Give the results of each query, in order of the joins and the queries they serve."""
        return [self._counts[join, place] for join, count in enumerate(served) for place in range(count)]

    def held(self, name: str) -> int:
        """Add up over the queries what their state is at the end."""
        return sum(getattr(each, name) for each in self._state.values())
