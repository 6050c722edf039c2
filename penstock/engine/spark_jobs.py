"""The engine's work as Spark jobs: each is a map without a shuffle whose tasks write files and return lines of JSON.

The driver sees file names and counts, never rows.  What a job is told travels beside a plan that is made once
(`penstock.engine.spark.dispatch`).

In:  frozen task descriptions.  Out: what the tasks report, for one commit.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from penstock.engine.change.upgrade import new_predicates, write_upgraded
from penstock.engine.ingest.batch_culprits import blame_for_batch
from penstock.engine.ingest.batch_task import BatchPart, reason_name, run_ingest, set_aside
from penstock.engine.ingest.ingest_columns import ROW_TIME, answer
from penstock.engine.ingest.malformed import CORRUPT, MOST_TEXT, SHOWN
from penstock.engine.ingest.sources import (
    FILE_ORDER,
    in_arrival_order,
    ingest_columns_of,
    with_ingest_columns,
)
from penstock.engine.out.answer_sql import answer_columns, answers_schema, instant_type
from penstock.engine.out.answer_task import NOTE, PaneReport
from penstock.engine.out.answer_types import AnswerTypes
from penstock.engine.out.answers import AnswerJob, AnswerReport, deliver_answers, noted
from penstock.engine.out.deliver import UnitReport, run_delivery, run_row_folds
from penstock.engine.out.pair_columns import unit_schema
from penstock.engine.out.pair_sql import computed_column
from penstock.engine.out.pane_answers import answer_rows
from penstock.engine.out.propagation import PropagationReport, run_propagation
from penstock.engine.out.release import ReleaseReport, run_release
from penstock.engine.out.result_types import ResultTypes
from penstock.engine.out.results import read_files
from penstock.engine.spark.dispatch import computed, computed_once, do_work, numbered, numbers, run_work
from penstock.engine.spark.reports import SUMMARY, report
from penstock.engine.spark.schemas import arrow_time_type, arrow_types, schema_ddl
from penstock.engine.units.little_work import LittleUnits, is_little_merge, is_little_rewrite
from penstock.engine.units.own_work import OwnWork
from penstock.engine.units.unit_task import find_rows, run_probe
from penstock.join.width import bounded
from penstock.log.codec import from_json, to_json
from penstock.log.promises import count_broken, merge_promises
from penstock.log.rewrite import RewrittenRun, count_finished, rewrite_segments
from penstock.log.row_times import seal
from penstock.log.segment import Segment, read_segment
from penstock.log.table_merge import merge_or_say
from penstock.log.tables import StoredFile
from penstock.plan.links import is_link_column
from penstock.sql.query import RESERVED
from penstock.sql.tree import always_quoted
from penstock.sql.zones import ZONE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from penstock.engine.change.upgrade import Upgrade
    from penstock.engine.ingest.arrow_reader import PlainBatch
    from penstock.engine.ingest.batch_task import BatchTask
    from penstock.engine.out.deliver import Delivery, FoundPairs
    from penstock.engine.out.pair_columns import PairExpressions
    from penstock.engine.out.propagation import Propagation
    from penstock.engine.out.release import Release
    from penstock.engine.spark.dispatch import Batches
    from penstock.engine.units.own_work import Workers
    from penstock.engine.units.unit_task import UnitTask
    from penstock.log.claims import Claim
    from penstock.log.files import Files
    from penstock.log.promises import PromiseFiles, PromiseMerge
    from penstock.log.relayout import Common
    from penstock.log.row_times import Sealing
    from penstock.log.tables import Merge
    from penstock.log.values import Layout
    from penstock.plan.build import Plan
    from penstock.plan.group import Group
    from penstock.plan.stored import LogPlan
    from penstock.sql.query import Stream


@dataclass(frozen=True, slots=True)
class MadeSegment:
    """What one of some makers has made: a segment, or nothing where no row was left."""

    number: int
    segment: Segment | None


@dataclass(frozen=True, slots=True)
class NumberedRun:
    """What became of one of some runs of segments."""

    number: int
    run: RewrittenRun


@dataclass(frozen=True, slots=True)
class CountedRows:
    """How many rows of a segment there are of some kind."""

    rows: int


@dataclass(frozen=True, slots=True)
class MergedFile:
    """What one of some merges has come to: a file, nothing where no row was left, or why it cannot be done."""

    number: int
    file: StoredFile | str | None


@dataclass(frozen=True, slots=True)
class NumberedRelease:
    """What one of some releases has written."""

    number: int
    report: ReleaseReport


@dataclass(frozen=True, slots=True)
class NumberedAnswer:
    """What one of some answers came to."""

    number: int
    report: AnswerReport


@dataclass(frozen=True, slots=True)
class NumberedPropagation:
    """What one of some queries was told."""

    number: int
    report: PropagationReport


class SparkJobs:
    """Runs the engine's work on a Spark session; batches are DataFrames."""

    def __init__(self, spark: SparkSession, files: Files, workers: Workers | None = None) -> None:
        """Work for one state, in one session; while these workers are not there, much of it in this process."""
        self.spark, self.files = spark, files
        self.results = ResultTypes(spark)
        self.answers = AnswerTypes(spark)
        self._little_units = LittleUnits()
        self.parallelism = spark.sparkContext.defaultParallelism
        self._own = OwnWork(workers, self.parallelism)

    def begin_units(self) -> None:
        """Let the jobs of this thread have the pool of units."""
        self._run_in("units")

    def arrow_types(self, stream: Stream) -> dict[str, pa.DataType]:
        """Give the Arrow type of each column of a stream, as Spark has it."""
        return arrow_types(self.spark, stream)

    def time_type(self, stream: Stream) -> pa.DataType | None:
        """Give the Arrow type Spark uses for a timestamp column; None for a date, which is not in microseconds."""
        return arrow_time_type(stream, self.spark)

    def result_types(self, group: Group, number: int, streams: tuple[Stream, ...]) -> str:
        """Give Spark's description of a query's results where a file does not tell by itself."""
        return self.results.description(group, number, streams)

    # --- batches --------------------------------------------------------------------------------------------------

    def ingest(self, batch: DataFrame, stream: Stream, task: BatchTask) -> list[BatchPart]:
        """Write a batch's segments: one per task and log, or several.

        Where joins without a window read the stream, one task gets all rows, in the order of arrival.
        """
        self._run_in("ingest")
        rows = self._in_order(batch, stream, task) if task.arrival else self._as_they_are(batch, stream, task)
        return run_work(rows.mapInArrow(do_work, SUMMARY), partial(_ingest, task), BatchPart)

    def ingest_files(self, batch: PlainBatch, task: BatchTask) -> list[BatchPart]:
        """Write the segments of a batch of files that tasks read themselves."""
        shares = batch.shares(self.parallelism)
        if self._own.is_wanted():
            parts = self._own.run(lambda number: list(shares[number].ingest(task)), len(shares))
            return list(chain.from_iterable(parts))
        self._run_in("ingest")
        return run_work(numbered(self.spark, len(shares)), partial(_ingest_files, task, shares), BatchPart)

    def _as_they_are(self, batch: DataFrame, stream: Stream, task: BatchTask) -> DataFrame:
        """Give what tasks read of a batch, in as many parts as it has, or as there are cores."""
        rows = ingest_columns_of(batch, stream, task.computed_for, task.columns())
        return _numbered_columns(rows, len(rows.columns)).coalesce(self.parallelism)

    def _in_order(self, batch: DataFrame, stream: Stream, task: BatchTask) -> DataFrame:
        """Give what a task reads of a batch, all in one part and in the order of arrival."""
        ordered, names = in_arrival_order(batch)
        columns = task.columns()
        rows = ingest_columns_of(ordered, stream, task.computed_for, [*columns, *names])
        whole = rows.repartition(1).sortWithinPartitions(*map(always_quoted, names))
        return _numbered_columns(whole, len(columns))

    def keep_aside(self, batch: DataFrame, stream: Stream, watermark: int | None, folder: str) -> None:
        """Write the late rows of a batch, whole, to the dead-letter output; writing again replaces them."""
        rows = with_ingest_columns(batch, stream, ())
        row_time = F.col(always_quoted(ROW_TIME))
        late = row_time.isNull()
        if watermark is not None:
            late |= row_time < watermark
        columns = [F.col(always_quoted(column.name)) for column in stream.columns]
        if CORRUPT in batch.columns:
            columns.append(F.substring(F.col(always_quoted(CORRUPT)), 1, MOST_TEXT).alias(SHOWN))
        path = self.files.path(folder)
        rows.where(late).select(*columns).coalesce(1).write.mode("overwrite").parquet(path)

    def keep_aside_with_reasons(self, batch: DataFrame, stream: Stream, task: BatchTask, folder: str) -> None:
        """Write the same, and the rows that break a promise, with the reason for each."""
        own = [each.name for each in stream.columns] + [each for each in (CORRUPT,) if each in batch.columns]
        names = [*own, *(each for each in task.columns() if each not in own)]
        rows = ingest_columns_of(batch, stream, task.computed_for, names)
        text = f", {always_quoted(CORRUPT)} string" if CORRUPT in own else ""
        schema = f"{schema_ddl(stream)}{text}, {reason_name(own)} string"
        numbered_columns = rows.toDF(*(f"c{number}" for number in range(len(names))))
        kept = numbered_columns.mapInArrow(partial(_set_aside, task, names, own), schema)
        if text:
            kept = kept.withColumn(CORRUPT, F.substring(F.col(always_quoted(CORRUPT)), 1, MOST_TEXT))
            kept = kept.withColumnRenamed(CORRUPT, SHOWN)
        kept.coalesce(1).write.mode("overwrite").parquet(self.files.path(folder))

    def fed_rows(self, files: Sequence[StoredFile], stream: Stream) -> DataFrame:
        """Read the results of a query; rows say which file they are from, and so in which order units came."""
        rows = read_files(self.spark, self.files, (each.name for each in files))
        columns = (
            F.col(always_quoted(each.name)).cast(each.type).alias(each.name) for each in stream.columns
        )
        order = (F.col(place).alias(name) for name, place in FILE_ORDER.items())
        return rows.select(*columns, *order)

    def failures(self, batch: DataFrame, stream: Stream, plan: Plan) -> dict[str, str]:
        """Find the queries whose predicates or keys cannot be evaluated on a batch."""
        return blame_for_batch(batch, stream, plan)

    # --- units ----------------------------------------------------------------------------------------------------

    def join(
        self, task: UnitTask, delivery: Delivery, pairs: PairExpressions | None = None
    ) -> list[UnitReport]:
        """Join and deliver.

        Where no query needs Spark SQL on pairs, one Python function does both and no pair ever leaves the task, or this
        thread where that is little work.  Else the pairs pass through Spark, which computes those queries' outputs, and
        are delivered from there.
        """
        if pairs is None:
            reports = self._find_and_deliver(task, delivery)
            self._little_units.note(task, reports)
            return reports
        plan = computed_once if pairs.fleeting else computed
        columns = ("*", *(computed_column(each) for each in pairs.computed))
        rows = plan(self.spark, task.parts, unit_schema(pairs.group, pairs.streams), columns)
        return run_work(rows, partial(_deliver, delivery), UnitReport, first=partial(_find, task))

    def fold(self, task: UnitTask, delivery: Delivery) -> list[UnitReport]:
        """Fold the new rows of a unit, one range of hashes a task; a few of them here and now, as answers are."""
        if task.new_rows < _FEW_ROWS:
            return [run_row_folds(delivery, find_rows(task, range(task.parts)))]
        if self._own.is_wanted():
            return self._own.run(lambda part: run_row_folds(delivery, find_rows(task, [part])), task.parts)
        return run_work(numbered(self.spark, task.parts), partial(_fold, task, delivery), UnitReport)

    def _find_and_deliver(self, task: UnitTask, delivery: Delivery) -> list[UnitReport]:
        if self._little_units.is_little(task):
            return [run_delivery(delivery, 0, replace(task, parts=1).find([0]))]
        if self._own.is_wanted():
            return self._own.run(lambda part: run_delivery(delivery, part, task.find([part])), task.parts)
        work = partial(_find_and_deliver, task, delivery)
        return run_work(numbered(self.spark, task.parts), work, UnitReport)

    def rewrite(
        self,
        log: str,
        runs: Sequence[tuple[Segment, ...]],
        claims: Sequence[Claim],
        common: Common | None = None,
    ) -> list[RewrittenRun]:
        """Rewrite runs of segments, one task each."""
        makers = [
            partial(rewrite_segments, self.files, log, _bare(run), tuple(claims), common) for run in runs
        ]
        return self._rewritten(makers, little=is_little_rewrite(runs))

    def look(self, segments: Sequence[Segment], claims: Mapping[int, Sequence[Claim]]) -> list[RewrittenRun]:
        """Hold segments against promises, one task each."""
        makers = [
            partial(count_finished, self.files, each, tuple(claims[each.layout])) for each in _bare(segments)
        ]
        return self._rewritten(makers, little=is_little_rewrite([segments]))

    def _rewritten(self, makers: Sequence[Callable[[], RewrittenRun]], *, little: bool) -> list[RewrittenRun]:
        if little:
            return [make() for make in makers]
        if self._own.is_wanted():
            return self._own.run(lambda number: makers[number](), len(makers))
        reports = run_work(numbered(self.spark, len(makers)), partial(_rewrite, tuple(makers)), NumberedRun)
        return [each.run for each in sorted(reports, key=lambda each: each.number)]

    def merge_promises(self, merges: Sequence[PromiseMerge]) -> list[Segment | None]:
        """Merge files of promises, one task each."""
        return self._segments([partial(merge_promises, self.files, each.bare()) for each in merges])

    def count_broken(self, segments: Sequence[Segment], known: PromiseFiles) -> int:
        """Hold segments against promises of their own stream, one task each."""
        counts = run_work(
            numbered(self.spark, len(segments)),
            partial(_count_broken, self.files, _bare(segments), known.bare()),
            CountedRows,
        )
        return sum(each.rows for each in counts)

    def seal(self, sealings: Sequence[Sealing]) -> list[Segment | None]:
        """Put the times of some streams in order, one task each."""
        return self._segments([partial(seal, self.files, sealing) for sealing in sealings])

    def _segments(self, makers: Sequence[Callable[[], Segment | None]]) -> list[Segment | None]:
        reports = run_work(numbered(self.spark, len(makers)), partial(_make, tuple(makers)), MadeSegment)
        return [each.segment for each in sorted(reports, key=lambda each: each.number)]

    def merge(self, merges: Sequence[Merge]) -> list[StoredFile | str | None]:
        """Merge files of results, one task each."""
        if is_little_merge(merges):
            return [merge_or_say(self.files, each) for each in merges]
        if self._own.is_wanted():
            return self._own.run(lambda number: merge_or_say(self.files, merges[number]), len(merges))
        work = partial(_merge, self.files, tuple(merges))
        reports = run_work(numbered(self.spark, len(merges)), work, MergedFile)
        return [each.file for each in sorted(reports, key=lambda each: each.number)]

    def release(self, releases: Sequence[Release]) -> list[ReleaseReport]:
        """Put the results that are due in order, query by query."""
        tasks = min(len(releases), self.parallelism)
        work = partial(_release, self.files, tuple(releases), tasks)
        reports = run_work(numbered(self.spark, tasks), work, NumberedRelease)
        return [each.report for each in sorted(reports, key=lambda each: each.number)]

    def answer_schema(self, group: Group, number: int, streams: tuple[Stream, ...]) -> pa.Schema:
        """Give the types of an aggregate query's keys and measures, as Spark has them."""
        return self.answers.of(group, number, streams).schema

    def instant_type(self, streams: tuple[Stream, ...]) -> pa.DataType:
        """Give the Arrow type of window_end."""
        zone = None if instant_type(streams) == "timestamp_ntz" else self.spark.conf.get(ZONE)
        return pa.timestamp("us", zone)

    def answer(self, jobs: Sequence[AnswerJob]) -> list[AnswerReport]:
        """Answer from panes: where no answer is an expression in one job, else in one for each pane set.

        Little work is done here and now: that takes less time than telling Spark of it.
        """
        plain = [number for number, each in enumerate(jobs) if not each.computed]
        reports: dict[int, AnswerReport] = {}
        if sum(jobs[number].work for number in plain) < _LITTLE_WORK:
            reports = {number: _answered(self.files, jobs[number]) for number in plain}
            plain = []
        elif self._own.is_wanted():
            mine, plain = plain, []
            made_here = self._own.run(lambda part: _answered(self.files, jobs[mine[part]]), len(mine))
            reports = dict(zip(mine, made_here, strict=True))
        if plain:
            tasks = min(len(plain), self.parallelism)
            work = partial(_answer, self.files, tuple((number, jobs[number]) for number in plain), tasks)
            made = run_work(numbered(self.spark, tasks), work, NumberedAnswer)
            reports |= {each.number: each.report for each in made}
        computed_sets: dict[str, list[int]] = {}
        for number, each in enumerate(jobs):
            if each.computed:
                computed_sets.setdefault(each.task.spec.panes.id, []).append(number)
        for parts in computed_sets.values():
            made = self._answer_computed([jobs[number] for number in parts])
            reports |= {parts[each.number]: each.report for each in made}
        return [reports[number] for number in range(len(jobs))]

    def propagate(self, tasks: Sequence[Propagation]) -> list[PropagationReport]:
        """Find and write the values that are finished, one task for each query."""
        work = partial(_propagate, self.files, tuple(tasks))
        reports = run_work(numbered(self.spark, len(tasks)), work, NumberedPropagation)
        return [each.report for each in sorted(reports, key=lambda each: each.number)]

    def _answer_computed(self, jobs: Sequence[AnswerJob]) -> list[NumberedAnswer]:
        """Answer from the parts of one pane set, a task each, with Spark SQL between its panes and the sinks."""
        job = jobs[0]
        rows = self.answers.rows_of(job.task.schema)
        changes = job.task.spec.panes.emit == "changes"
        schema = answers_schema(rows, changes=changes, with_before=job.task.with_before)
        plan = computed(self.spark, len(jobs), schema, answer_columns(job.readers))
        first, last = (partial(each, self.files, tuple(jobs)) for each in (_answer_first, _deliver_answers))
        return run_work(plan, last, NumberedAnswer, first=first)

    # --- changes of plan ------------------------------------------------------------------------------------------

    def can_upgrade(self, stream: Stream, log: LogPlan, old: Layout) -> bool:
        """Say whether Spark can answer the new predicates by the columns that are stored."""
        new = new_predicates(log, old)
        if not new or not set(log.columns) <= set(old.columns):
            return False
        try:
            self.spark.createDataFrame([], schema_ddl(stream, old.columns)).selectExpr(*new)
        except AnalysisException:
            return False
        return True

    def upgrade(self, upgrade: Upgrade) -> list[Segment]:
        """Write segments again under a log's new layout, one task each."""
        all_rows = f"{always_quoted(_NUMBER)} >= 0"
        new = new_predicates(upgrade.log, upgrade.old)
        answers = [answer(each, upgrade.stream, all_rows) for each in new]
        rows = computed(
            self.spark,
            len(upgrade.segments),
            f"{always_quoted(_NUMBER)} int, {schema_ddl(upgrade.stream, upgrade.old.columns)}",
            (
                f"{always_quoted(_NUMBER)} AS n",
                *(f"({each}) AS p{number}" for number, each in enumerate(answers)),
            ),
        )
        stream = replace(upgrade.stream, options=())  # tasks need no secrets
        upgrade = replace(upgrade, stream=stream, segments=_bare(upgrade.segments))
        work = partial(_write_upgraded, self.files, upgrade)
        return run_work(rows, work, Segment, first=partial(_read_columns, self.files, upgrade))

    def _run_in(self, pool: str) -> None:
        self.spark.sparkContext.setLocalProperty("spark.scheduler.pool", pool)


def _bare(segments: Sequence[Segment]) -> tuple[Segment, ...]:
    """Leave out the statistics, which tasks do not read."""
    return tuple(replace(each, patterns=()) for each in segments)


def _numbered_columns(rows: DataFrame, count: int) -> DataFrame:
    """Take the first columns, with numbers for names: pyspark takes a dot in a name for the field of a struct."""
    numbers = [f"c{number}" for number in range(len(rows.columns))]
    return rows.toDF(*numbers).select(*numbers[:count])


# --- in the tasks -------------------------------------------------------------------------------------------------


def _ingest(task: BatchTask, batches: Batches) -> Batches:
    return (report(part) for part in run_ingest(task, batches))


def _ingest_files(task: BatchTask, shares: Sequence[PlainBatch], batches: Batches) -> Batches:
    return (report(part) for number in numbers(batches) for part in shares[number].ingest(task))


def _set_aside(task: BatchTask, names: Sequence[str], own: Sequence[str], batches: Batches) -> Batches:
    """Give the rows of a task that do not count, each with the reason; the promises among them may be the reason."""
    some = [each.rename_columns(list(names)) for each in batches if each.num_rows]
    if some:
        table = pa.Table.from_batches(some).combine_chunks()
        yield from set_aside(task, table, own).to_batches()


def _find(task: UnitTask, batches: Batches) -> Batches:
    return run_probe(task, numbers(batches))


def _deliver(delivery: Delivery, batches: Iterable[pa.RecordBatch | FoundPairs]) -> Batches:
    """Deliver a task's pairs, under the number that tells its files from those of its siblings."""
    context = TaskContext.get()
    yield report(run_delivery(delivery, context.partitionId() if context else 0, batches))


def _find_and_deliver(task: UnitTask, delivery: Delivery, batches: Batches) -> Batches:
    return _deliver(delivery, task.find(numbers(batches)))


def _fold(task: UnitTask, delivery: Delivery, batches: Batches) -> Batches:
    yield report(run_row_folds(delivery, find_rows(task, numbers(batches))))


def _make(makers: Sequence[Callable[[], Segment | None]], batches: Batches) -> Batches:
    for number in numbers(batches):
        yield report(MadeSegment(number, makers[number]()))


def _rewrite(makers: Sequence[Callable[[], RewrittenRun]], batches: Batches) -> Batches:
    for number in numbers(batches):
        yield report(NumberedRun(number, makers[number]()))


def _count_broken(
    files: Files, segments: Sequence[Segment], known: PromiseFiles, batches: Batches
) -> Batches:
    for number in numbers(batches):
        yield report(CountedRows(count_broken(files, segments[number], known)))


def _merge(files: Files, merges: Sequence[Merge], batches: Batches) -> Batches:
    for number in numbers(batches):
        yield report(MergedFile(number, merge_or_say(files, merges[number])))


def _release(files: Files, releases: Sequence[Release], tasks: int, batches: Batches) -> Batches:
    """Release the results of every query that falls to a task: each gets one in so many."""
    for task in numbers(batches):
        for number in range(task, len(releases), tasks):
            yield report(NumberedRelease(number, run_release(files, releases[number])))


def _answer(files: Files, jobs: Sequence[tuple[int, AnswerJob]], tasks: int, batches: Batches) -> Batches:
    """Answer from every pane set that falls to a task: each gets one in so many."""
    for task in numbers(batches):
        for number, job in jobs[task::tasks]:
            yield report(NumberedAnswer(number, _answered(files, job)))


def _answered(files: Files, job: AnswerJob) -> AnswerReport:
    return deliver_answers(files, job, answer_rows(files, job.task))


def _propagate(files: Files, tasks: Sequence[Propagation], batches: Batches) -> Batches:
    for number in numbers(batches):
        yield report(NumberedPropagation(number, run_propagation(files, tasks[number])))


def _answer_first(files: Files, jobs: Sequence[AnswerJob], batches: Batches) -> Batches:
    """Read a pane set for Spark SQL; what becomes of its files is written as a row among the others."""
    for job in (jobs[number] for number in numbers(batches)):
        for each in answer_rows(files, job.task):
            if isinstance(each, PaneReport):
                yield noted(job, json.dumps(to_json(each)))
            else:
                yield each


def _deliver_answers(files: Files, jobs: Sequence[AnswerJob], batches: Batches) -> Batches:
    """Deliver what Spark SQL has made of a part's answers; a task has the number of its part."""
    context = TaskContext.get()
    number = context.partitionId() if context else 0
    made = deliver_answers(files, jobs[number], (part for each in batches for part in _with_note(each)))
    yield report(NumberedAnswer(number, made))


def _with_note(batch: pa.RecordBatch) -> Batches:
    """Take the row that says what becomes of the files out of the others."""
    notes = batch.column(NOTE)
    if notes.null_count == batch.num_rows:
        yield batch
        return
    (text,) = notes.drop_null().to_pylist()
    yield from_json(json.loads(text), PaneReport)
    rest = batch.filter(notes.is_null())
    if rest.num_rows:
        yield rest


_NUMBER = f"{RESERVED}n"

_FEW_ROWS = 1 << 17
"""Rows that are folded in less time than a job of Spark takes to begin."""

_LITTLE_WORK = 1 << 20
"""Entries times readers that are answered from in less time than a job of Spark takes to begin."""


def _read_columns(files: Files, upgrade: Upgrade, batches: Batches) -> Batches:
    """Read the columns of a task's segments, for Spark to evaluate predicates on."""
    columns = [each for each in upgrade.old.columns if not is_link_column(each)]
    for number in numbers(batches):
        rows = read_segment(files, upgrade.segments[number])
        count = pa.array(np.full(rows.rows.t.size, number, np.int32))
        arrays = [count, *(rows.column(name) for name in columns)]
        yield from bounded([pa.RecordBatch.from_arrays(arrays, [_NUMBER, *columns])])


def _write_upgraded(files: Files, upgrade: Upgrade, batches: Batches) -> Batches:
    """Write a task's segment with Spark's answers to the new predicates."""
    table = pa.Table.from_batches(list(batches))
    answers = {
        each: pc.fill_null(table.column(f"p{number}"), fill_value=False).to_numpy()
        for number, each in enumerate(new_predicates(upgrade.log, upgrade.old))
    }
    yield report(write_upgraded(files, upgrade, table.column("n")[0].as_py(), answers))
