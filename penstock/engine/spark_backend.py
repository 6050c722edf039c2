"""Spark as the backend: types by Spark's analyser, expressions as Spark SQL, batches as DataFrames.

In:  streams, plans, batches.  Out: types, expressions, and the reports of ingest tasks.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from penstock.engine.outputs.answer_sql import AnswerTypes, answer_columns, answers_schema, instant_type
from penstock.engine.outputs.pair_columns import unit_schema
from penstock.engine.outputs.pair_sql import computed_column
from penstock.engine.outputs.result_types import ResultTypes
from penstock.engine.outputs.results import read_files
from penstock.engine.runners.runner import Job, Sql
from penstock.engine.runners.spark import SparkRunner, described
from penstock.engine.sources.malformed import CORRUPT, MOST_TEXT, SHOWN
from penstock.engine.sources.sources import (
    FILE_ORDER,
    in_arrival_order,
    ingest_columns_of,
    with_ingest_columns,
)
from penstock.engine.spark.failed_queries import find_failed_queries
from penstock.engine.spark.schemas import arrow_time_type, arrow_types, schema_ddl
from penstock.engine.tasks.ingest import (
    LATE,
    NO_EVENT_TIME,
    IngestTask,
    ingest_job,
    reason_name,
    set_aside,
)
from penstock.engine.tasks.ingest_columns import ROW_TIME, answer, ingest_names
from penstock.engine.tasks.upgrade import ROW, new_predicates
from penstock.plan.build import build_plan
from penstock.sql.text.tree import always_quoted
from penstock.sql.zones import ZONE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from penstock.engine.aggregate.answer_job import AnswerJob
    from penstock.engine.outputs.pair_columns import PairExpressions
    from penstock.engine.tasks.ingest import BatchPart, BatchTask
    from penstock.engine.tasks.upgrade import Upgrade
    from penstock.plan.build import Plan
    from penstock.plan.group import Group
    from penstock.plan.stored import LogPlan
    from penstock.sql.query import Stream
    from penstock.state.files import Files
    from penstock.state.tables import StoredFile
    from penstock.state.values import Layout

    Batches = Iterator[pa.RecordBatch]


class SparkBackend:
    """Uses a Spark session, for one state; batches are DataFrames."""

    def __init__(self, spark: SparkSession, files: Files) -> None:
        """Use this session; tasks read and write these files."""
        self.spark, self.files = spark, files
        self.runner = SparkRunner(spark, files)
        self.results = ResultTypes(spark)
        self.answers = AnswerTypes(spark)

    # --- types ----------------------------------------------------------------------------------------------------

    def arrow_types(self, stream: Stream) -> dict[str, pa.DataType]:
        """Return the Arrow type of each column of a stream, as Spark has it."""
        return arrow_types(self.spark, stream)

    def time_type(self, stream: Stream) -> pa.DataType | None:
        """Return the Arrow type Spark uses for a timestamp column; None for a date, which is not in microseconds."""
        return arrow_time_type(stream, self.spark)

    def result_types(self, group: Group, number: int, streams: tuple[Stream, ...]) -> str:
        """Return Spark's description of a query's results where a file does not tell by itself."""
        return self.results.description(group, number, streams)

    def answer_schema(self, group: Group, number: int, streams: tuple[Stream, ...]) -> pa.Schema:
        """Return the types of an aggregate query's keys and measures, as Spark has them."""
        return self.answers.of(group, number, streams).schema

    def instant_type(self, streams: tuple[Stream, ...]) -> pa.DataType:
        """Return the Arrow type of window_end."""
        zone = None if instant_type(streams) == "timestamp_ntz" else self.spark.conf.get(ZONE)
        return pa.timestamp("us", zone)

    def can_upgrade(self, stream: Stream, log: LogPlan, old: Layout) -> bool:
        """Check whether Spark can evaluate the new predicates on the columns that are stored."""
        new = new_predicates(log, old)
        if not new or not set(log.columns) <= set(old.columns):
            return False
        try:
            self.spark.createDataFrame([], schema_ddl(stream, old.columns)).selectExpr(*new)
        except AnalysisException:
            return False
        return True

    # --- expressions ----------------------------------------------------------------------------------------------

    def pair_sql(self, pairs: PairExpressions) -> Sql:
        """Write the outputs and conditions that are computed of a unit's pairs."""
        columns = ("*", *(computed_column(each) for each in pairs.computed))
        return Sql(unit_schema(pairs.group, pairs.streams), columns, anew=pairs.fleeting)

    def answer_sql(self, job: AnswerJob) -> Sql:
        """Write the answers and HAVING conditions that are computed for the readers of a pane set."""
        changes = job.task.spec.panes.emit == "changes"
        rows = self.answers.rows_of(job.task.schema)
        schema = answers_schema(rows, changes=changes, with_before=job.task.with_before)
        return Sql(schema, answer_columns(job.readers))

    def upgrade_sql(self, upgrade: Upgrade) -> Sql:
        """Write the new predicates of a log, each guarded as at ingest."""
        stored = f"{always_quoted(ROW)} int, {schema_ddl(upgrade.stream, upgrade.old.columns)}"
        every_row = f"{always_quoted(ROW)} >= 0"
        predicates = (
            answer(each, upgrade.stream, every_row) for each in new_predicates(upgrade.log, upgrade.old)
        )
        return Sql(stored, tuple(f"({each}) AS p{number}" for number, each in enumerate(predicates)))

    # --- batches --------------------------------------------------------------------------------------------------

    def ingest(self, batch: DataFrame, stream: Stream, task: BatchTask) -> list[BatchPart]:
        """Write a batch's segments: one per task and log, or several.

        Where joins without a window read the stream, one task gets all rows, in the order of arrival.
        """
        rows = self._in_order(batch, stream, task) if task.arrival else self._as_they_are(batch, stream, task)
        parts = self.runner.map_rows(rows, IngestTask(task), ingest_job(stream.name, task))
        return [part for some in parts for part in some]

    def _as_they_are(self, batch: DataFrame, stream: Stream, task: BatchTask) -> DataFrame:
        """Return what tasks read of a batch, in as many partitions as it has, or as there are cores."""
        rows = ingest_columns_of(batch, stream, task.computed_for, task.columns())
        return _numbered_columns(rows, len(rows.columns)).coalesce(self.runner.parallelism)

    def _in_order(self, batch: DataFrame, stream: Stream, task: BatchTask) -> DataFrame:
        """Return what a task reads of a batch, all in one partition and in the order of arrival."""
        ordered, names = in_arrival_order(batch)
        columns = task.columns()
        rows = ingest_columns_of(ordered, stream, task.computed_for, [*columns, *names])
        whole = rows.repartition(1).sortWithinPartitions(*map(always_quoted, names))
        return _numbered_columns(whole, len(columns))

    def keep_late(self, batch: DataFrame, stream: Stream, watermark: int | None, folder: str) -> None:
        """Write the late rows of a batch, whole, with the reason for each; writing again replaces them."""
        rows = with_ingest_columns(batch, stream, ())
        row_time = F.col(always_quoted(ROW_TIME))
        late = row_time.isNull()
        if watermark is not None:
            late |= row_time < watermark
        columns = [F.col(always_quoted(column.name)) for column in stream.columns]
        if CORRUPT in batch.columns:
            columns.append(F.substring(F.col(always_quoted(CORRUPT)), 1, MOST_TEXT).alias(SHOWN))
        reason = F.when(row_time.isNull(), NO_EVENT_TIME).otherwise(LATE)
        columns.append(reason.alias(reason_name(each.name for each in stream.columns)))
        self._write_late(rows.where(late).select(*columns), stream, folder)

    def keep_late_and_broken(self, batch: DataFrame, stream: Stream, task: BatchTask, folder: str) -> None:
        """Write the same, and the rows that break a promise."""
        own = [each.name for each in stream.columns] + [each for each in (CORRUPT,) if each in batch.columns]
        names = [*own, *(each for each in task.columns() if each not in own)]
        rows = ingest_columns_of(batch, stream, task.computed_for, names)
        text = f", {always_quoted(CORRUPT)} string" if CORRUPT in own else ""
        schema = f"{schema_ddl(stream)}{text}, {reason_name(own)} string"
        numbered_columns = rows.toDF(*(f"c{number}" for number in range(len(names))))
        kept = numbered_columns.mapInArrow(partial(_set_aside, self.files, task, names, own), schema)
        if text:
            kept = kept.withColumn(CORRUPT, F.substring(F.col(always_quoted(CORRUPT)), 1, MOST_TEXT))
            kept = kept.withColumnRenamed(CORRUPT, SHOWN)
        self._write_late(kept, stream, folder)

    def _write_late(self, rows: DataFrame, stream: Stream, folder: str) -> None:
        job = Job("ingest", f"keep late rows of {stream.name}")
        with described(self.spark.sparkContext, job):
            rows.coalesce(1).write.mode("overwrite").parquet(self.files.path(folder))

    def fed_rows(self, files: Sequence[StoredFile], stream: Stream) -> DataFrame:
        """Read the results of a query; rows say which file they are from, and so in which order units came."""
        rows = read_files(self.spark, self.files, (each.name for each in files))
        columns = (
            F.col(always_quoted(each.name)).cast(each.type).alias(each.name) for each in stream.columns
        )
        order = (F.col(place).alias(name) for name, place in FILE_ORDER.items())
        return rows.select(*columns, *order)

    def failures(self, batch: DataFrame, stream: Stream, plan: Plan) -> dict[str, str]:
        """Find the queries whose predicates or keys cannot be evaluated on a batch; nothing is written."""
        streams = {each.name: each for each in plan.streams}
        readers = {query.name: query for query in plan.queries if stream.name in query.streams}

        def evaluate(names: Collection[str]) -> None:
            queries = [readers[name] for name in names]
            logs = build_plan(streams, queries).logs_of(stream.name) if queries else ()
            rows = ingest_columns_of(batch, stream, logs, ingest_names(stream, logs))
            job = Job("ingest", f"find queries that fail on {stream.name}")
            with described(self.spark.sparkContext, job):
                rows.write.format("noop").mode("overwrite").save()

        return find_failed_queries(list(readers), evaluate)


def _numbered_columns(rows: DataFrame, count: int) -> DataFrame:
    """Take the first columns, with numbers for names: pyspark takes a dot in a name for the field of a struct."""
    numbers = [f"c{number}" for number in range(len(rows.columns))]
    return rows.toDF(*numbers).select(*numbers[:count])


def _set_aside(
    files: Files, task: BatchTask, names: Sequence[str], own: Sequence[str], batches: Batches
) -> Batches:
    """Yield the rows of a task that do not count, each with the reason; the promises among them may be the reason."""
    some = [each.rename_columns(list(names)) for each in batches if each.num_rows]
    if some:
        table = pa.Table.from_batches(some).combine_chunks()
        yield from set_aside(files, task, table, own).to_batches()
