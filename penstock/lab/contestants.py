"""One engine, one workload, one query set, one fresh process: the unit of a fair comparison.

    python -m penstock.lab.contestants ENGINE DATA WINDOWS...

prints one line of JSON: total and steady seconds, input rows, results per query, CPU seconds, peak memory.

Steady is what is left after the first `WARM` micro-batches, in which a JVM compiles and Python workers start.  Both
engines run on the same cores with the same driver memory, read the same files one per stream and micro-batch, and
discard the results after making every column of them (Spark's ``noop`` sink; ours).
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from penstock.engine.engine import Engine
from penstock.engine.session import embedded_session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

WARM = 3
"""Micro-batches that are not counted as steady."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run gave."""

    engine: str
    rows: int
    results: tuple[int, ...]
    total_seconds: float
    steady_rows: int
    steady_seconds: float
    cpu_seconds: float

    @property
    def steady_rate(self) -> float:
        """Give the steady throughput in input rows per second."""
        return self.steady_rows / self.steady_seconds


def run_penstock(data: Path, windows: Sequence[float]) -> Outcome:
    """Run the queries as one shared plan."""
    state = tempfile.mkdtemp(prefix="penstock-bench-")
    marks: list[tuple[float, int]] = []
    try:
        with Engine(state=state) as engine:
            engine.script(_script(data, windows))
            engine.watch(lambda unit: marks.append((time.monotonic(), unit.rows)))
            started = time.monotonic()
            engine.start(once=True)
            engine.wait()
            total = time.monotonic() - started
            status = engine.status()
    finally:
        shutil.rmtree(state)
    rows = sum(stream.rows for stream in status.streams)
    return _outcome("penstock", rows, [each.results for each in status.queries], total, marks)


def _script(data: Path, windows: Sequence[float]) -> str:
    """Write the workload as a Penstock script."""
    streams = "".join(
        f"CREATE STREAM {name} (k BIGINT, v DOUBLE, ts TIMESTAMP) WITH (format = 'parquet', "
        f"path = '{data / name}', time = 'ts', maxFilesPerTrigger = '1');\n"
        for name in ("a", "b")
    )
    return streams + "".join(
        f"CREATE QUERY q{number} WITH (sink = 'noop') AS SELECT a.k, a.v AS av, b.v AS bv, a.ts AS ats, b.ts AS bts "
        f"FROM a JOIN b ON a.k = b.k WINDOW {window} seconds;\n"
        for number, window in enumerate(windows)
    )


def run_spark_join(data: Path, windows: Sequence[float]) -> Outcome:
    """Run Spark's own stream-stream join, one streaming query per window, default state store."""
    partitions = str(2 * (os.cpu_count() or 1))
    spark = embedded_session(
        {"spark.sql.shuffle.partitions": partitions, "spark.sql.streaming.numRecentProgressUpdates": "1000"}
    )
    place = tempfile.mkdtemp(prefix="spark-bench-")
    started = time.monotonic()
    try:
        queries = [
            _joined(spark, data, window)
            .writeStream.format("noop")
            .option("checkpointLocation", f"{place}/{number}")
            .trigger(availableNow=True)
            .start()
            for number, window in enumerate(windows)
        ]
        for query in queries:
            query.awaitTermination()
        total = time.monotonic() - started
        progress = [[each for each in query.recentProgress if each["numInputRows"]] for query in queries]
    finally:
        shutil.rmtree(place, ignore_errors=True)
    marks = _marks(progress[0])
    results = [sum(_observed(each) for each in mine) for mine in progress]
    return _outcome("spark", marks[-1][1], results, total, marks)


def _joined(spark: SparkSession, data: Path, window: float) -> DataFrame:
    """Write the join as a Spark user does."""
    sides = {
        name: spark.readStream.schema("k bigint, v double, ts timestamp")
        .option("maxFilesPerTrigger", "1")
        .parquet(str(data / name))
        .withWatermark("ts", "0 seconds")
        for name in ("a", "b")
    }
    for name, side in sides.items():
        side.createOrReplaceTempView(f"{name}_{int(window * 1000)}")
    left, right = (f"{name}_{int(window * 1000)}" for name in ("a", "b"))
    micros = int(window * 1_000_000)
    joined = spark.sql(
        f"SELECT a.k, a.v AS av, b.v AS bv, a.ts AS ats, b.ts AS bts FROM {left} a JOIN {right} b ON a.k = b.k "
        f"AND b.ts > a.ts - INTERVAL {micros} MICROSECONDS AND b.ts < a.ts + INTERVAL {micros} MICROSECONDS"
    )
    return joined.observe("results", F.count(F.lit(1)).alias("n"))


def _observed(progress: Any) -> int:
    """Read how many results a micro-batch gave."""
    return int(progress["observedMetrics"]["results"]["n"])


def _marks(progress: Sequence[Any]) -> list[tuple[float, int]]:
    """Turn a query's progress into (time, rows so far) after each micro-batch."""
    marks, clock, rows = [], 0.0, 0
    for each in progress:
        clock += each["durationMs"]["triggerExecution"] / 1000
        rows += each["numInputRows"]
        marks.append((clock, rows))
    return marks


def _outcome(
    engine: str, rows: int, results: Sequence[int], total: float, marks: Sequence[tuple[float, int]]
) -> Outcome:
    """Split a run into warm-up and steady state."""
    warm = next(mark for mark in marks if mark[1] >= min(rows, rows * WARM // len_batches(rows)))
    last = marks[-1]
    return Outcome(
        engine=engine,
        rows=rows,
        results=tuple(results),
        total_seconds=total,
        steady_rows=last[1] - warm[1],
        steady_seconds=last[0] - warm[0],
        cpu_seconds=family_cpu_seconds(os.getpid()),
    )


def family_cpu_seconds(root: int) -> float:
    """Add up the CPU time of a process and all that came from it: the JVM, and Spark's Python workers."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended meanwhile
        parents[int(entry.name)] = int(fields[1])
        ticks[int(entry.name)] = sum(int(each) for each in fields[11:15])
    family = {root}
    while more := {child for child, parent in parents.items() if parent in family} - family:
        family |= more
    return sum(ticks[each] for each in family) / os.sysconf("SC_CLK_TCK")


def len_batches(rows: int) -> int:
    """Count the micro-batches of 200,000 rows."""
    return max(1, rows // 200_000)


ENGINES = {"penstock": run_penstock, "spark": run_spark_join}


def main() -> None:
    """Run one contestant and print what it gave."""
    engine, data, *windows = sys.argv[1:]
    outcome = ENGINES[engine](Path(data), [float(each) for each in windows])
    print(json.dumps(asdict(outcome)))


if __name__ == "__main__":
    main()
