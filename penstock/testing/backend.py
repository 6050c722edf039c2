"""A backend without Spark: tasks run in this process one after the other, and batches are Arrow tables.

It is for tests only.  What Spark SQL would compute of rows and pairs is computed by `penstock.testing.expression`,
exactly or not at all.

In:  streams, plans, batches.  Out: types, and the reports of ingest tasks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.engine.aggregate.answer_job import AnswerJob
from penstock.engine.aggregate.answer_task import NOTE
from penstock.engine.outputs.pair_columns import PairExpressions
from penstock.engine.runners.inline import InlineRunner
from penstock.engine.runners.runner import Sql
from penstock.engine.tasks.ingest import IngestTask, set_aside
from penstock.engine.tasks.ingest_columns import ROW_TIME
from penstock.engine.tasks.promise_columns import with_elements
from penstock.engine.tasks.rewrite import Upgrade, new_predicates
from penstock.plan.spark_settings import SparkSettings
from penstock.state.checksum import map_whole
from penstock.testing.answer_values import answer_schema, answer_types, with_answers
from penstock.testing.expression.evaluate import NeedsSparkError, evaluate, type_of
from penstock.testing.pair_values import with_computed
from penstock.testing.row_values import arrow_types, exploded, row_columns, row_times

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.engine.tasks.ingest import BatchPart, BatchSpec
    from penstock.plan.build import Plan
    from penstock.plan.group import Group
    from penstock.plan.stored import LogPlan
    from penstock.sql.query import Stream
    from penstock.state.files import Files
    from penstock.state.tables import StoredFile
    from penstock.state.values import Layout


class InlineBackend:
    """Works in this process, for one state."""

    def __init__(self, files: Files, *, tasks: int = 2, settings: SparkSettings | None = None) -> None:
        """Divide the work among so many tasks, as Spark would; expressions mean what they do under these settings."""
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
        """Return nothing: types that a file does not tell by itself are not understood here."""
        return ""

    def answer_schema(self, group: Group, number: int, streams: tuple[Stream, ...]) -> pa.Schema:
        """Return the types of an aggregate query's keys and measures."""
        query = group.members[number].query
        self._answers[query.name] = answer_types(query, streams, self.settings)
        return answer_schema(query, streams, self.settings)

    def instant_type(self, streams: tuple[Stream, ...]) -> pa.DataType:
        """Return the type of window_end."""
        ntz = {each.time_type for each in streams} == {"timestamp_ntz"}
        return pa.timestamp("us", None if ntz else self.settings.zone)

    def can_upgrade(self, stream: Stream, log: LogPlan, old: Layout) -> bool:
        """Check whether the new predicates can be evaluated on the columns that are stored."""
        new = new_predicates(log, old)
        if not new or not set(log.columns) <= set(old.columns):
            return False
        types = {each.name: each.type for each in stream.columns if each.name in old.columns}
        try:
            return all(type_of(each, types, ansi=self.settings.ansi) for each in new)
        except NeedsSparkError:
            raise
        except Exception:  # noqa: BLE001 - a column that nobody stored
            return False

    # --- expressions ----------------------------------------------------------------------------------------------

    def pair_sql(self, pairs: PairExpressions) -> Sql:
        """Return what is computed of a unit's pairs."""
        return Sql("", (), source=pairs)

    def answer_sql(self, job: AnswerJob) -> Sql:
        """Return what is computed of the answers of a pane set."""
        return Sql("", (), source=job)

    def upgrade_sql(self, upgrade: Upgrade) -> Sql:
        """Return the predicates that are evaluated on stored rows."""
        return Sql("", (), source=upgrade)

    def _evaluated(self, sql: Sql, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Compute the columns that Spark SQL would compute."""
        for batch in rows:
            match sql.source:
                case PairExpressions() as pairs:
                    yield with_computed(batch, pairs, self.settings)
                case AnswerJob() as job if batch.column(NOTE).null_count:
                    yield from with_answers(batch, job, self._answers[job.readers[0].query], self.settings)
                case Upgrade() as upgrade:
                    yield self._predicates(upgrade, batch)
                case _:
                    yield batch

    def _predicates(self, upgrade: Upgrade, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Evaluate the new predicates of a log on stored rows."""
        types = {each.name: each.type for each in upgrade.stream.columns if each.name in upgrade.old.columns}
        table = pa.table({name: batch.column(name) for name in types})
        new = new_predicates(upgrade.log, upgrade.old)
        columns = [
            evaluate(each, table, types, zone=self.settings.zone, ansi=self.settings.ansi) for each in new
        ]
        return pa.RecordBatch.from_arrays(columns, [f"p{number}" for number in range(len(new))])

    # --- batches --------------------------------------------------------------------------------------------------

    def ingest(self, batch: pa.Table, stream: Stream, spec: BatchSpec) -> list[BatchPart]:
        """Write a batch's segments: its rows are dealt out to the tasks."""
        rows = self.with_ingest_columns(batch, stream, spec).select(spec.columns())
        tasks = 1 if spec.arrival else self.runner.parallelism  # the order of arrival is counted by one
        dealt = [rows.take(np.arange(number, rows.num_rows, tasks)) for number in range(tasks)]
        return [
            part
            for each in dealt
            for part in IngestTask(spec).finish(self.files, iter(each.combine_chunks().to_batches()))
        ]

    def with_ingest_columns(self, batch: pa.Table, stream: Stream, spec: BatchSpec) -> pa.Table:
        """Add to a batch what its logs need: event time, keys and predicate bits."""
        rows = exploded(batch, stream, self.settings)
        return row_columns(rows, with_elements(stream), spec.computed_for, self.settings)

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
        names = [each.name for each in stream.columns]
        parts = [pq.read_table(map_whole(self.files, each), columns=names) for each in files]
        types = pa.schema(self.arrow_types(stream).items())
        return pa.concat_tables([each.select(names).cast(types) for each in parts])

    def failures(self, _batch: pa.Table, _stream: Stream, _plan: Plan) -> dict[str, str]:
        """Blame nobody: an expression that fails in a test should be seen as it is."""
        return {}
