"""The kinds of Spark job: a batch into segments, a unit into output, segments into fewer segments, times into order.

Each is a map without a shuffle whose tasks write files and return one line of JSON; the driver sees file names and
counts, never rows.

In:  frozen task descriptions.  Out: what the tasks report, for one commit.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import TaskContext

from penstock.engine.deliver import run_delivery
from penstock.engine.ingest import SUMMARY, run_ingest
from penstock.engine.release import run_release
from penstock.engine.unit import run_probe
from penstock.log.rewrite import rewrite_segments
from penstock.log.roll import seal
from penstock.log.segment import Segment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from penstock.engine.deliver import Delivery
    from penstock.engine.ingest import BatchTask
    from penstock.engine.release import Release
    from penstock.engine.unit import UnitTask
    from penstock.log.files import Files
    from penstock.log.keep import Horizon
    from penstock.log.roll import Sealing

    Batches = Iterator[pa.RecordBatch]
    Work = Callable[[Batches], Batches]


def ingest_job(rows: DataFrame, task: BatchTask, most_tasks: int) -> list[dict[str, Any]]:
    """Write a batch's segments: one per task and log."""

    def work(batches: Batches) -> Batches:
        return run_ingest(task, batches)

    return _summaries(rows.select(*task.columns()).coalesce(most_tasks), work)


def unit_job(
    spark: SparkSession, task: UnitTask, delivery: Delivery, schema: str, computed: Sequence[Column]
) -> list[dict[str, Any]]:
    """Join and deliver.

    Where no query needs Spark SQL on pairs, one Python function does both and no pair ever leaves the task.  Else the
    pairs pass through Spark, which computes those queries' outputs, and are delivered from there.
    """

    def find(batches: Batches) -> Batches:
        return run_probe(task, _numbers(batches))

    def deliver(batches: Batches) -> Batches:
        return run_delivery(delivery, _partition(), batches)

    def find_and_deliver(batches: Batches) -> Batches:
        return deliver(find(batches))

    ranges = spark.range(0, task.parts, 1, task.parts)
    if not computed:
        return _summaries(ranges, find_and_deliver)
    return _summaries(ranges.mapInArrow(find, schema).select("*", *computed), deliver)


def rewrite_job(
    spark: SparkSession,
    files: Files,
    log: str,
    runs: Sequence[tuple[Segment, ...]],
    claims: Sequence[Horizon],
) -> list[Segment | None]:
    """Rewrite runs of segments, one task each; None where no row was left."""

    def work(batches: Batches) -> Batches:
        for number in _numbers(batches):
            made = rewrite_segments(files, log, runs[number], claims)
            report = {"number": number, "segment": made.to_json() if made else None}
            yield pa.RecordBatch.from_pydict({"summary": [json.dumps(report)]})

    return _segments(_summaries(spark.range(0, len(runs), 1, len(runs)), work))


def seal_job(spark: SparkSession, files: Files, sealings: Sequence[Sealing]) -> list[Segment | None]:
    """Put the times of some streams in order, one task each; None where there are none."""

    def work(batches: Batches) -> Batches:
        for number in _numbers(batches):
            made = seal(files, sealings[number])
            report = {"number": number, "segment": made.to_json() if made else None}
            yield pa.RecordBatch.from_pydict({"summary": [json.dumps(report)]})

    return _segments(_summaries(spark.range(0, len(sealings), 1, len(sealings)), work))


def _segments(reports: list[dict[str, Any]]) -> list[Segment | None]:
    """Read the segments that numbered tasks made, in the order of their numbers."""
    made = [each["segment"] for each in sorted(reports, key=lambda each: int(each["number"]))]
    return [Segment.from_json(each) if each else None for each in made]


def release_job(spark: SparkSession, files: Files, releases: Sequence[Release]) -> list[dict[str, Any]]:
    """Put the results that are due in order, query by query."""

    def work(batches: Batches) -> Batches:
        for number in _numbers(batches):
            report = {"number": number, **run_release(files, releases[number])}
            yield pa.RecordBatch.from_pydict({"summary": [json.dumps(report)]})

    tasks = min(len(releases), spark.sparkContext.defaultParallelism)
    reports = _summaries(spark.range(0, len(releases), 1, tasks), work)
    return sorted(reports, key=lambda each: int(each["number"]))


def _summaries(rows: DataFrame, work: Work) -> list[dict[str, Any]]:
    """Run a map and collect each task's line of JSON."""
    return [json.loads(row.summary) for row in rows.mapInArrow(work, SUMMARY).collect()]


def _numbers(batches: Batches) -> Iterator[int]:
    """Read the numbers a task was given."""
    for batch in batches:
        yield from batch.column(0).to_pylist()


def _partition() -> int:
    """Give the number of this task, to tell its files from those of its siblings."""
    context = TaskContext.get()
    return context.partitionId() if context else 0
