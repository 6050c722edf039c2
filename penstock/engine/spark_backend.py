"""Spark as the backend: types by Spark's analyser, expressions as Spark SQL, batches as DataFrames.

In:  streams, plans, batches.  Out: types, expressions, and the reports of ingest tasks.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from penstock import limits
from penstock.engine.outputs.answer_sql import AnswerTypes, answer_columns, answers_schema, instant_type
from penstock.engine.outputs.pair_columns import unit_schema
from penstock.engine.outputs.pair_sql import computed_column
from penstock.engine.outputs.result_types import ResultTypes
from penstock.engine.outputs.results import read_files
from penstock.engine.runners.runner import Job, Sql
from penstock.engine.runners.spark import SparkRunner, described
from penstock.engine.sources.sources import (
    CORRUPT,
    CORRUPT_AMONG_LATE,
    FILE_ORDER,
    in_arrival_order,
    ingest_columns_of,
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
from penstock.engine.tasks.ingest_columns import answer, time_expression
from penstock.engine.tasks.rewrite import ROW, new_predicates
from penstock.plan.build import build_plan
from penstock.sql.text.tree import always_quoted
from penstock.sql.zones import ZONE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from penstock.engine.aggregate.answer_job import AnswerJob
    from penstock.engine.outputs.pair_columns import PairExpressions
    from penstock.engine.tasks.ingest import BatchPart, BatchSpec
    from penstock.engine.tasks.rewrite import Upgrade
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
        """Return Spark's schema of a query's results, where a file does not hold all of it."""
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
        """Write the outputs and conditions that Spark computes for a unit's pairs."""
        columns = ("*", *(computed_column(output) for output in pairs.computed))
        return Sql(unit_schema(pairs.group, pairs.streams), columns, anew=pairs.fleeting)

    def answer_sql(self, job: AnswerJob) -> Sql:
        """Write the answers and HAVING conditions that Spark computes for the queries of a pane set."""
        changes = job.task.spec.panes.emit == "changes"
        rows = self.answers.rows_of(job.task.schema)
        schema = answers_schema(rows, changes=changes, with_before=job.task.with_before)
        return Sql(schema, answer_columns(job.readers))

    def upgrade_sql(self, upgrade: Upgrade) -> Sql:
        """Write the new predicates of a log, guarded as at ingest."""
        stored = f"{always_quoted(ROW)} int, {schema_ddl(upgrade.stream, upgrade.old.columns)}"
        every_row = f"{always_quoted(ROW)} >= 0"
        predicates = (
            answer(predicate, upgrade.stream, every_row)
            for predicate in new_predicates(upgrade.log, upgrade.old)
        )
        return Sql(stored, tuple(f"({text}) AS p{number}" for number, text in enumerate(predicates)))

    # --- batches --------------------------------------------------------------------------------------------------

    def ingest(self, batch: DataFrame, stream: Stream, spec: BatchSpec) -> list[BatchPart]:
        """Write a batch's segments: one per task and log, or several.

        Where joins without a window read the stream, one task gets all rows, in the order of arrival.
        """
        rows = self._in_order(batch, stream, spec) if spec.arrival else self._in_parts(batch, stream, spec)
        reports = self.runner.map_rows(rows, IngestTask(spec), ingest_job(stream.name, spec))
        return [part for parts in reports for part in parts]

    def _in_parts(self, batch: DataFrame, stream: Stream, spec: BatchSpec) -> DataFrame:
        """Select the columns that tasks read, in the partitions of the batch, at most one for each core."""
        rows = ingest_columns_of(batch, stream, spec.computed_for, spec.columns())
        return _numbered_columns(rows, len(rows.columns)).coalesce(self.runner.parallelism)

    def _in_order(self, batch: DataFrame, stream: Stream, spec: BatchSpec) -> DataFrame:
        """Select the columns that a task reads, in one partition and in the order of arrival."""
        ordered, names = in_arrival_order(batch)
        columns = spec.columns()
        rows = ingest_columns_of(ordered, stream, spec.computed_for, [*columns, *names])
        whole = rows.repartition(1).sortWithinPartitions(*map(always_quoted, names))
        return _numbered_columns(whole, len(columns))

    def keep_late(self, batch: DataFrame, stream: Stream, spec: BatchSpec, folder: str) -> None:
        """Write the rows of a batch that are set aside, whole, each with the reason; a second write replaces them."""
        rows = (
            self._broken_too(batch, stream, spec) if spec.promises else _late(batch, stream, spec.watermark)
        )
        if CORRUPT in rows.columns:
            text = F.substring(F.col(always_quoted(CORRUPT)), 1, limits.MAX_CORRUPT_CHARACTERS)
            rows = rows.withColumn(CORRUPT, text).withColumnRenamed(CORRUPT, CORRUPT_AMONG_LATE)
        with described(self.spark.sparkContext, Job("ingest", f"keep late rows of {stream.name}")):
            rows.coalesce(1).write.mode("overwrite").parquet(self.files.path(folder))

    def _broken_too(self, batch: DataFrame, stream: Stream, spec: BatchSpec) -> DataFrame:
        """Select the rows that are set aside where promises can be broken: only tasks can look promises up."""
        own = _own_names(batch, stream)
        names = [*own, *(name for name in spec.columns() if name not in own)]
        rows = ingest_columns_of(batch, stream, spec.computed_for, names)
        text = f", {always_quoted(CORRUPT)} string" if CORRUPT in own else ""
        schema = f"{schema_ddl(stream)}{text}, {reason_name(own)} string"
        return _numbered_columns(rows, len(names)).mapInArrow(
            partial(_set_aside, self.files, spec, names, own), schema
        )

    def fed_rows(self, files: Sequence[StoredFile], stream: Stream) -> DataFrame:
        """Read the results of a query, with the columns that order them by file, and so by unit."""
        rows = read_files(self.spark, self.files, (file.name for file in files))
        columns = (
            F.col(always_quoted(column.name)).cast(column.type).alias(column.name)
            for column in stream.columns
        )
        order = (F.col(field).alias(name) for name, field in FILE_ORDER.items())
        return rows.select(*columns, *order)

    def failures(self, batch: DataFrame, stream: Stream, plan: Plan) -> dict[str, str]:
        """Find the queries whose predicates or keys cannot be evaluated on a batch; nothing is written."""
        streams = {source.name: source for source in plan.streams}
        readers = {query.name: query for query in plan.queries if stream.name in query.streams}

        def evaluate(names: Collection[str]) -> None:
            queries = [readers[name] for name in names]
            logs = build_plan(streams, queries).logs_of(stream.name) if queries else ()
            rows = ingest_columns_of(batch, stream, logs)
            job = Job("ingest", f"find queries that fail on {stream.name}")
            with described(self.spark.sparkContext, job):
                rows.write.format("noop").mode("overwrite").save()

        return find_failed_queries(list(readers), evaluate)


def _own_names(batch: DataFrame, stream: Stream) -> list[str]:
    """Name the columns of a batch that are kept with a late row."""
    return [column.name for column in stream.columns] + [name for name in batch.columns if name == CORRUPT]


def _late(batch: DataFrame, stream: Stream, watermark: int | None) -> DataFrame:
    """Select the rows that are late or have no event time, for streams without promises."""
    own, time = _own_names(batch, stream), F.expr(time_expression(stream))
    late = time.isNull() if watermark is None else time.isNull() | (time < watermark)
    reason = F.when(time.isNull(), NO_EVENT_TIME).otherwise(LATE).alias(reason_name(own))
    return batch.where(late).select(*map(always_quoted, own), reason)


def _numbered_columns(rows: DataFrame, count: int) -> DataFrame:
    """Select the first columns and number them: pyspark reads a dot in a name as the field of a struct."""
    numbers = [f"c{number}" for number in range(len(rows.columns))]
    return rows.toDF(*numbers).select(*numbers[:count])


def _set_aside(
    files: Files, spec: BatchSpec, names: Sequence[str], own: Sequence[str], batches: Batches
) -> Batches:
    """Yield the rows of a partition that are set aside, each with the reason."""
    some = [batch.rename_columns(list(names)) for batch in batches if batch.num_rows]
    if some:
        table = pa.Table.from_batches(some).combine_chunks()
        yield from set_aside(files, spec, table, own).to_batches()
