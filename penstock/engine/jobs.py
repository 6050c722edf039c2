"""The kinds of Spark job: a batch into segments, a unit into output, segments into fewer segments, times into order.

Each is a map without a shuffle whose tasks write files and return one line of JSON; the driver sees file names and
counts, never rows.

In:  frozen task descriptions.  Out: what the tasks report, for one commit.
"""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext

from penstock.engine.deliver import run_delivery
from penstock.engine.ingest import SUMMARY, run_ingest
from penstock.engine.release import run_release
from penstock.engine.unit import run_probe
from penstock.engine.work import computed, computed_once, do_work, numbered, numbers, report, run_work
from penstock.log.rewrite import rewrite_segments
from penstock.log.roll import seal
from penstock.log.segment import Segment
from penstock.log.table_merge import merge_or_say
from penstock.log.tables import StoredFile

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from penstock.engine.deliver import Delivery
    from penstock.engine.ingest import BatchTask
    from penstock.engine.release import Release
    from penstock.engine.unit import UnitTask
    from penstock.engine.work import Batches
    from penstock.log.files import Files
    from penstock.log.keep import Horizon
    from penstock.log.relayout import Common
    from penstock.log.roll import Sealing
    from penstock.log.tables import Merge


def ingest_job(rows: DataFrame, task: BatchTask, most_tasks: int) -> list[dict[str, Any]]:
    """Write a batch's segments: one per task and log, or several.  The rows have the columns that the task reads.

    On the way they have numbers for names: pyspark takes a dot in a name for the field of a struct.
    """
    numbered_columns = rows.toDF(*(f"c{number}" for number in range(len(rows.columns))))
    rows = numbered_columns.coalesce(most_tasks).mapInArrow(do_work, SUMMARY)
    return run_work(rows, partial(run_ingest, task))


def unit_job(
    spark: SparkSession,
    task: UnitTask,
    delivery: Delivery,
    schema: str,
    outputs: Sequence[str],
    *,
    fleeting: bool = False,
) -> list[dict[str, Any]]:
    """Join and deliver.

    Where no query needs Spark SQL on pairs, one Python function does both and no pair ever leaves the task.  Else the
    pairs pass through Spark, which computes those queries' outputs, and are delivered from there.  `fleeting` ones are
    to be computed by a plan of this unit's own: clocks and seeds stand still in a plan that is used again.
    """
    if not outputs:
        return run_work(numbered(spark, task.parts), partial(_find_and_deliver, task, delivery))
    plan = computed_once if fleeting else computed
    rows = plan(spark, task.parts, schema, ("*", *outputs))
    return run_work(rows, partial(_deliver, delivery), first=partial(_find, task))


def _find(task: UnitTask, batches: Batches) -> Batches:
    """Find a task's pairs."""
    return run_probe(task, numbers(batches))


def _deliver(delivery: Delivery, batches: Batches) -> Batches:
    """Deliver a task's pairs, under the number that tells its files from those of its siblings."""
    context = TaskContext.get()
    return run_delivery(delivery, context.partitionId() if context else 0, batches)


def _find_and_deliver(task: UnitTask, delivery: Delivery, batches: Batches) -> Batches:
    """Do both in one go."""
    return _deliver(delivery, _find(task, batches))


def rewrite_job(
    spark: SparkSession,
    files: Files,
    log: str,
    runs: Sequence[tuple[Segment, ...]],
    claims: Sequence[Horizon],
    *,
    common: Common | None = None,
) -> list[Segment | None]:
    """Rewrite runs of segments, one task each; None where no row was left."""
    makers = [partial(rewrite_segments, files, log, run, tuple(claims), common) for run in runs]
    return _segments_job(spark, makers)


def seal_job(spark: SparkSession, files: Files, sealings: Sequence[Sealing]) -> list[Segment | None]:
    """Put the times of some streams in order, one task each; None where there are none."""
    return _segments_job(spark, [partial(seal, files, sealing) for sealing in sealings])


def _segments_job(
    spark: SparkSession, makers: Sequence[Callable[[], Segment | None]]
) -> list[Segment | None]:
    """Make segments, one task each, and give them in the order of their makers."""
    reports = run_work(numbered(spark, len(makers)), partial(_make, tuple(makers)))
    made = [each["segment"] for each in sorted(reports, key=lambda each: int(each["number"]))]
    return [Segment.from_json(each) if each else None for each in made]


def _make(makers: Sequence[Callable[[], Segment | None]], batches: Batches) -> Batches:
    """Make the segments of a task."""
    for number in numbers(batches):
        made = makers[number]()
        yield report({"number": number, "segment": made.to_json() if made else None})


def compact_job(spark: SparkSession, files: Files, merges: Sequence[Merge]) -> list[StoredFile | str | None]:
    """Merge files of results, one task each; None where nothing was left, a word where that cannot be done."""
    reports = run_work(numbered(spark, len(merges)), partial(_merge, files, tuple(merges)))
    made = [each["file"] for each in sorted(reports, key=lambda each: int(each["number"]))]
    return [StoredFile(**each) if isinstance(each, dict) else each for each in made]


def _merge(files: Files, merges: Sequence[Merge], batches: Batches) -> Batches:
    """Merge the files of a task."""
    for number in numbers(batches):
        made = merge_or_say(files, merges[number])
        yield report({"number": number, "file": asdict(made) if isinstance(made, StoredFile) else made})


def release_job(spark: SparkSession, files: Files, releases: Sequence[Release]) -> list[dict[str, Any]]:
    """Put the results that are due in order, query by query."""
    tasks = min(len(releases), spark.sparkContext.defaultParallelism)
    reports = run_work(numbered(spark, tasks), partial(_release, files, tuple(releases), tasks))
    return sorted(reports, key=lambda each: int(each["number"]))


def _release(files: Files, releases: Sequence[Release], tasks: int, batches: Batches) -> Batches:
    """Release the results of every query that falls to a task: each gets one in so many."""
    for task in numbers(batches):
        for number in range(task, len(releases), tasks):
            yield report({"number": number, **run_release(files, releases[number])})
