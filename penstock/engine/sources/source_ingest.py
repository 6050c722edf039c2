"""Batches of a real source on their way into the logs: read by Spark, or by Arrow where files and plan allow that.

In:  a batch as Spark hands it over, and its origin.  Out: a ``batch`` commit, the same whichever of them reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import fsspec
import pyarrow.parquet as pq

from penstock.engine.sources.batch_ingest import BatchIngest
from penstock.engine.sources.sources import files_to_read, irregular_message, source_path
from penstock.engine.spark.session import verifies_checksums
from penstock.engine.tasks.ingest import ingest_job
from penstock.engine.tasks.parquet_reader import ParquetTask, arrow_columns, is_plain_parquet, plain_batch
from penstock.errors import RunError
from penstock.state.locations import files_below, irregular, local_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from penstock.engine.backend import Backend
    from penstock.engine.store import Store
    from penstock.engine.tasks.ingest import BatchPart, BatchTask
    from penstock.engine.tasks.parquet_reader import ArrowColumns, PlainBatch
    from penstock.plan.build import Plan
    from penstock.plan.stored import LogPlan
    from penstock.sql.query import Stream

    _Needs = tuple[tuple[LogPlan, ...], bool, bool]
    """The logs of a stream, and whether its tasks read promises, or number rows in the order of arrival."""

_SETTINGS = {
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
}
"""Settings of a session by which Spark reads a file as Arrow does; with any other value Spark reads it."""


class SourceIngest(BatchIngest["DataFrame"]):
    """Feeds the batches of one source into its logs."""

    def __init__(self, store: Store, backend: Backend[DataFrame], plan: Plan, stream: Stream) -> None:
        """Get ready to ingest by a plan."""
        super().__init__(store, backend, plan, stream)
        self._checked: set[str] = set()
        self._columns: tuple[_Needs | None, ArrowColumns | None] = (None, None)
        """The columns that Arrow builds for tasks with these needs; None if Spark has to."""

    def read(self, rows: DataFrame, task: BatchTask, origin: dict[str, Any] | None) -> list[BatchPart]:
        """Write a batch's segments; who reads it is decided before any row is read."""
        if file := irregular(_local_files(self.stream, origin)):
            raise RunError(irregular_message(file, self.stream))
        batch = self._plain_batch(rows.sparkSession, task, origin)
        if batch is None:
            return super().read(rows, task, origin)
        runner = self.backend.runner
        tasks = [ParquetTask(share, task) for share in batch.shares(runner.parallelism)]
        return [part for some in runner.map(tasks, ingest_job(self.stream.name, task)) for part in some]

    def _plain_batch(
        self, spark: SparkSession, task: BatchTask, origin: dict[str, Any] | None
    ) -> PlainBatch | None:
        """Return the files of a batch that Arrow reads; None if Spark has to, which may have checksums to verify."""
        columns = self._arrow_columns(spark, task)
        batch = plain_batch(columns, origin) if columns and origin else None
        return None if batch and batch.has_checksums and verifies_checksums(spark) else batch

    def _arrow_columns(self, spark: SparkSession, task: BatchTask) -> ArrowColumns | None:
        """Return the columns that Arrow builds; computed once for each plan."""
        needs = tuple(each.log for each in task.logs), task.promises is not None, task.arrival is not None
        if self._columns[0] != needs:
            plain = is_plain_parquet(self.stream) and all(
                spark.conf.get(name) == value for name, value in _SETTINGS.items()
            )
            types = lambda: self.backend.arrow_types(self.stream)  # noqa: E731 - asked only if it is needed
            self._columns = needs, arrow_columns(self.stream, task, types) if plain else None
        return self._columns[1]

    def check(self, parts: Sequence[BatchPart]) -> None:
        """Refuse a batch of Parquet files of which one lacks a declared column: Spark reads it as null."""
        if self.stream.format.lower() != "parquet" or not any(part.nulls for part in parts):
            return
        for name in files_below(source_path(self.stream)) - self._checked:
            self._check_columns(name)
            self._checked.add(name)

    def _check_columns(self, path: str) -> None:
        """Refuse a Parquet file that lacks a declared column."""
        files, where = fsspec.core.url_to_fs(path)
        with files.open(where) as file:  # only the footer is read
            have = {each.lower() for each in pq.read_schema(file).names}
        for column in self.stream.columns:
            partition = f"/{column.name.lower()}=" in path.lower()
            if column.name.lower() not in have and not partition:
                raise RunError(
                    f"source file {path} of stream {self.stream.name} has no column {column.name}: "
                    "it has another schema than the stream declares; mend or remove the file and run again"
                )


def _local_files(stream: Stream, origin: dict[str, Any] | None) -> Iterable[str]:
    """List the files of a batch that are on this machine; of too many to be named, all of the source."""
    sources = origin["entries"].values() if origin else ()
    if None in sources:
        return files_to_read(stream)
    return (local_path(url) for entries in sources for files in entries.values() for url, _ in files or ())
