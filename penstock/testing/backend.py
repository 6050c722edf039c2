"""A backend for tests: tasks run in this process one after the other, and batches are Arrow tables.

The engine writes the same Spark SQL as for Spark; `penstock.testing.expression` evaluates it in DuckDB.

In:  streams, plans, batches.  Out: types, and the reports of ingest tasks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.engine.aggregate.answer_task import READER, WAS
from penstock.engine.outputs.answer_sql import answer_columns
from penstock.engine.outputs.pair_columns import unit_schema
from penstock.engine.outputs.pair_sql import computed_column
from penstock.engine.runners.inline import InlineRunner
from penstock.engine.runners.runner import Sql
from penstock.engine.tasks.ingest import IngestTask, set_aside
from penstock.engine.tasks.ingest_columns import ROW_TIME, answer
from penstock.engine.tasks.promise_columns import with_elements
from penstock.engine.tasks.rewrite import ROW, new_predicates
from penstock.plan.spark_settings import SparkSettings
from penstock.sql.spark_types import parse_type
from penstock.sql.text.tree import always_quoted
from penstock.state.checksum import map_whole
from penstock.testing.expression.evaluate import arrow_type, evaluate_all
from penstock.testing.expression.translate import NeedsSparkError, type_of
from penstock.testing.ingest_rows import exploded, row_times, with_ingest_columns
from penstock.testing.row_types import answer_types, arrow_types, row_types

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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


class InlineBackend:
    """Runs tasks in this process, for one state."""

    def __init__(self, files: Files, *, tasks: int = 2, settings: SparkSettings | None = None) -> None:
        """Use the parallelism of so many tasks, and the meaning of expressions under these Spark settings."""
        self.files, self.settings = files, settings or SparkSettings()
        self.runner = InlineRunner(files, self._evaluated, tasks)
        self._answers: dict[str, dict[str, str]] = {}

    # --- types ----------------------------------------------------------------------------------------------------

    def arrow_types(self, stream: Stream) -> dict[str, pa.DataType]:
        """Return the Arrow type of each column of a stream."""
        return arrow_types(stream, self.settings)

    def time_type(self, stream: Stream) -> pa.DataType | None:
        """Return the Arrow type of a stream's time column; None for a date, which is not in microseconds."""
        untimed = stream.timeless or stream.time_type == "date"
        return None if untimed else self.arrow_types(stream)[stream.time]

    def result_types(self, *_: object) -> str:
        """Return nothing: files of tests describe all types by themselves."""
        return ""

    def answer_schema(self, group: Group, number: int, streams: tuple[Stream, ...]) -> pa.Schema:
        """Return the types of an aggregate query's keys and measures."""
        query = group.members[number].query
        kinds = self._answers[query.name] = answer_types(query, streams, self.settings)
        return pa.schema(
            [(name, arrow_type(parse_type(kind), self.settings.zone)) for name, kind in kinds.items()]
        )

    def instant_type(self, streams: tuple[Stream, ...]) -> pa.DataType:
        """Return the type of window_end."""
        ntz = {stream.time_type for stream in streams} == {"timestamp_ntz"}
        return pa.timestamp("us", None if ntz else self.settings.zone)

    def can_upgrade(self, stream: Stream, log: LogPlan, old: Layout) -> bool:
        """Check whether the new predicates can be evaluated on the columns that are stored."""
        new = new_predicates(log, old)
        if not new or not set(log.columns) <= set(old.columns):
            return False
        types = {column.name: column.type for column in stream.columns if column.name in old.columns}
        try:
            return all(type_of(predicate, types, ansi=self.settings.ansi) for predicate in new)
        except NeedsSparkError:
            raise
        except Exception:  # noqa: BLE001 - a column that was not stored
            return False

    # --- expressions ----------------------------------------------------------------------------------------------

    def pair_sql(self, pairs: PairExpressions) -> Sql:
        """Write the outputs and conditions that are computed of a unit's pairs."""
        columns = tuple(computed_column(computed) for computed in pairs.computed)
        return Sql(unit_schema(pairs.group, pairs.streams), columns)

    def answer_sql(self, job: AnswerJob) -> Sql:
        """Write the answers and HAVING conditions that are computed for the readers of a pane set."""
        kinds = self._answers[job.readers[0].query]
        before = {f"b{name[1:]}": kind for name, kind in kinds.items() if name[0] == "a"}
        fixed = {READER: "int", WAS: "boolean"}
        schema = ", ".join(f"{name} {kind}" for name, kind in (fixed | kinds | before).items())
        return Sql(schema, answer_columns(job.readers)[1:])

    def upgrade_sql(self, upgrade: Upgrade) -> Sql:
        """Write the new predicates of a log, each guarded as at ingest."""
        stored = (column for column in upgrade.stream.columns if column.name in upgrade.old.columns)
        schema = ", ".join(f"{always_quoted(column.name)} {column.type}" for column in stored)
        every_row = f"{always_quoted(ROW)} >= 0"
        predicates = (
            answer(predicate, upgrade.stream, every_row)
            for predicate in new_predicates(upgrade.log, upgrade.old)
        )
        columns = tuple(f"({predicate}) AS p{number}" for number, predicate in enumerate(predicates))
        return Sql(f"{always_quoted(ROW)} int, {schema}", columns)

    def _evaluated(self, sql: Sql, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Compute the columns that Spark SQL would compute, behind those that there are."""
        types = row_types(sql.schema)
        columns = [column.rpartition(" AS ") for column in sql.columns]
        for batch in rows:
            expressions = [expression for expression, _, _ in columns]
            values = evaluate_all(expressions, batch, types, zone=self.settings.zone)
            names = [*batch.schema.names, *(name for _, _, name in columns)]
            yield pa.RecordBatch.from_arrays([*batch.columns, *values], names)

    # --- batches --------------------------------------------------------------------------------------------------

    def ingest(self, batch: pa.Table, stream: Stream, spec: BatchSpec) -> list[BatchPart]:
        """Write a batch's segments; every task takes every n-th row."""
        rows = self.with_ingest_columns(batch, stream, spec).select(spec.columns())
        tasks = 1 if spec.arrival else self.runner.parallelism  # the order of arrival is counted by one
        dealt = [rows.take(np.arange(number, rows.num_rows, tasks)) for number in range(tasks)]
        return [
            part
            for some_rows in dealt
            for part in IngestTask(spec).finish(self.files, iter(some_rows.combine_chunks().to_batches()))
        ]

    def with_ingest_columns(self, batch: pa.Table, stream: Stream, spec: BatchSpec) -> pa.Table:
        """Add event times, keys and predicate bits to a batch."""
        rows = exploded(batch, stream, self.settings)
        return with_ingest_columns(rows, with_elements(stream), spec.computed_for, self.settings)

    def keep_late(self, batch: pa.Table, stream: Stream, spec: BatchSpec, folder: str) -> None:
        """Write the rows of a batch that are late, have no time or break a promise, whole, each with the reason."""
        if spec.promises:
            whole = self.with_ingest_columns(batch, stream, spec)
        else:
            whole = batch.append_column(ROW_TIME, row_times(batch, stream))
        names = [column.name for column in stream.columns]
        rows = set_aside(self.files, spec, whole.combine_chunks(), names)
        sink = pa.BufferOutputStream()
        pq.write_table(rows, sink, write_page_checksum=True)
        self.files.put(f"{folder}/part-00000.parquet", sink.getvalue().to_pybytes())

    def fed_rows(self, files: Sequence[StoredFile], stream: Stream) -> pa.Table:
        """Read the results of a query, in the order of its units."""
        names = [column.name for column in stream.columns]
        parts = [pq.read_table(map_whole(self.files, file), columns=names) for file in files]
        types = pa.schema(self.arrow_types(stream).items())
        return pa.concat_tables([part.select(names).cast(types) for part in parts])

    def failures(self, _batch: pa.Table, _stream: Stream, _plan: Plan) -> dict[str, str]:
        """Return nothing: a test sees the error of a failing expression itself."""
        return {}
