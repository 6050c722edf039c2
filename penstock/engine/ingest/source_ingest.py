"""Batches of a real source on their way into the logs: by Spark, or without it where their files allow that.

In:  a batch as Spark hands it over, and its origin.  Out: a ``batch`` commit, the same whichever way rows took.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import fsspec
import pyarrow.parquet as pq

from penstock.engine.ingest.batch_ingest import BatchIngest
from penstock.engine.ingest.batch_task import ingest_job
from penstock.engine.ingest.plain_columns import plain_columns
from penstock.engine.ingest.plain_files import REBASE, ParquetTask, only_says_which_files, plain_batch
from penstock.engine.ingest.sources import source_path
from penstock.engine.spark.session import verifies_checksums
from penstock.errors import RunError
from penstock.log.locations import files_below

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from penstock.engine.backend import Backend
    from penstock.engine.ingest.batch_task import BatchPart, BatchTask
    from penstock.engine.ingest.plain_columns import PlainColumns
    from penstock.engine.store import Store
    from penstock.plan.build import Plan
    from penstock.plan.stored import LogPlan
    from penstock.sql.query import Stream

    _Told = tuple[tuple[LogPlan, ...], bool, bool]
    """The logs of a stream, whether nobody makes promises about it, and whether nobody reads it in order."""

_log = logging.getLogger(__name__)


class SourceIngest(BatchIngest["DataFrame"]):
    """Feeds the batches of one source into its logs."""

    def __init__(self, store: Store, backend: Backend[DataFrame], plan: Plan, stream: Stream) -> None:
        """Get ready to ingest by a plan."""
        super().__init__(store, backend, plan, stream)
        self._checked: set[str] = set()
        self._plain: tuple[_Told | None, PlainColumns | None] = (None, None)
        """How columns are made without Spark where tasks are told this; None if they cannot be."""

    def read(self, rows: DataFrame, task: BatchTask, origin: dict[str, Any] | None) -> list[BatchPart]:
        """Write a batch's segments: of plain files as they are, of all others by Spark."""
        try:
            parts = self._read_without_spark(rows, task, origin)
        except Exception as error:  # noqa: BLE001 - Spark may know better; else it says what is wrong
            _log.warning("stream %s: read again by Spark, since %s", self.stream.name, error)
            parts = None
        return super().read(rows, task, origin) if parts is None else parts

    def _read_without_spark(
        self, rows: DataFrame, task: BatchTask, origin: dict[str, Any] | None
    ) -> list[BatchPart] | None:
        """Write the segments of a batch of plain files; None if it is for Spark, which may have checksums to verify."""
        columns = self._plain_columns(rows, task)
        batch = plain_batch(columns, origin) if columns and origin else None
        if batch is None or (batch.has_checksums and verifies_checksums(rows.sparkSession)):
            return None
        shares = batch.shares(self.backend.runner.parallelism)
        parts = self.backend.runner.map(
            [ParquetTask(each, task) for each in shares], ingest_job(self.stream.name, task)
        )
        return [part for some in parts for part in some]

    def _plain_columns(self, rows: DataFrame, task: BatchTask) -> PlainColumns | None:
        """Say how columns are made without Spark; looked up once for each plan."""
        told = tuple(each.log for each in task.logs), task.promises is None, task.arrival is None
        if self._plain[0] != told:
            plain = only_says_which_files(self.stream) and rows.sparkSession.conf.get(REBASE) == "CORRECTED"
            types = lambda: self.backend.arrow_types(self.stream)  # noqa: E731 - asked only if it is needed
            self._plain = told, plain_columns(self.stream, task, types) if plain else None
        return self._plain[1]

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
