"""Ingest of one stream: a Structured Streaming query whose every batch becomes segments and one commit.

Spark reads a batch, or Arrow where the files and the plan allow it (`penstock.engine.tasks.parquet_reader`); the commit
is the same.  A batch that the journal already has is skipped, so a restart that repeats its last batch adds nothing.  A
batch is identified by its origin (`penstock.state.origin`); one that does not follow on the last stops the run.

In:  the stream's DataFrame (`penstock.engine.sources.sources`).  Out: ``batch`` commits.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import fsspec
import pyarrow.parquet as pq

from penstock.engine.sources.batch_ingest import BatchIngest
from penstock.engine.sources.checkpoints import checked_origin, checkpoint_of
from penstock.engine.sources.sources import FILE_ORDER, files_to_read, irregular_message, source_path
from penstock.engine.spark.failed_queries import QueriesFailedError
from penstock.engine.spark.session import verifies_checksums
from penstock.engine.spark.spark_errors import short_message
from penstock.engine.tasks.ingest import ingest_job
from penstock.engine.tasks.parquet_reader import ParquetTask, arrow_columns, is_plain_parquet, plain_batch
from penstock.errors import PenstockError, RunError
from penstock.sql.streams import trigger_micros
from penstock.state.locations import files_below, irregular, local_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from penstock.engine.backend import Backend
    from penstock.engine.store import Store
    from penstock.engine.tasks.ingest import BatchPart, BatchSpec
    from penstock.engine.tasks.parquet_reader import ArrowColumns, PlainBatch
    from penstock.plan.build import Plan
    from penstock.plan.stored import LogPlan
    from penstock.sql.query import Stream

    _Needs = tuple[tuple[LogPlan, ...], bool, bool]
    """The logs of a stream, and whether its tasks read promises, or number rows in the order of arrival."""

_FIXED_SIZE_TYPES = frozenset(
    [
        "boolean",
        "tinyint",
        "smallint",
        "int",
        "bigint",
        "float",
        "double",
        "date",
        "timestamp",
        "timestamp_ntz",
    ]
)
"""Types whose values have a few bytes each: as many rows as Spark puts in an Arrow batch are never too large."""

_SETTINGS = {
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
}
"""Settings of a session by which Spark reads a file as Arrow does; with any other value Spark reads it."""

_EMPTY_CHECK = "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart"
"""Setting by which Spark refuses to plan batch 0 beside any file in its logs, temporary ones included."""

_NO_LIMIT = str(2**31 - 1)


class Ingester:
    """Runs the streaming query of one stream."""

    def __init__(
        self,
        store: Store,
        backend: Backend[DataFrame],
        plan: Plan,
        stream: Stream,
        source: DataFrame,
        *,
        committed: Callable[[], None],
    ) -> None:
        """Prepare the query; `committed` is called after every commit."""
        self.store, self.backend, self.stream = store, backend, stream
        self.batches = SourceIngest(store, backend, plan, stream)
        self.batch = threading.Lock()
        """Held while a batch is on its way from the source to its commit; a plan is changed between batches."""
        self._committed = committed
        self.checkpoint = checkpoint_of(store.files, stream.name)
        self._source = source
        self._prepared = False
        self.stop_queries: Callable[[Mapping[str, str]], object] = _refuse
        """Called with the queries that cannot be evaluated, and the reasons."""
        self._stopping = False
        self.closed = False
        self.at_work = False
        """Whether Spark has handed over a batch that is not committed yet."""
        self.query: StreamingQuery | None = None
        self.failure: BaseException | None = None
        self.follow(plan)

    def follow(self, plan: Plan) -> None:
        """Ingest by this plan from the next batch on."""
        self._plan = plan
        self.batches.follow(plan)

    def lacks_order(self, source: DataFrame) -> bool:
        """Check whether another source of the stream has columns for the order of arrival, and this one has not."""
        return bool(FILE_ORDER.keys() & (set(source.columns) - set(self._source.columns)))

    def start(self, *, once: bool) -> None:
        """Start the query: for all input that is there now, or at every trigger until stopped."""
        if self.checkpoint.was_begun():
            # a process that is killed while Spark plans batch 0 leaves a temporary file; no entry is there
            self._source.sparkSession.conf.set(_EMPTY_CHECK, "false")
        writer = (
            self._source.writeStream.queryName(f"penstock-{self.stream.name}")
            .option("checkpointLocation", self.checkpoint.path)
            .foreachBatch(self._take)
        )
        millis = -(-trigger_micros(self.stream) // 1000)
        trigger = {"availableNow": True} if once else {"processingTime": f"{millis} milliseconds"}
        self.query = writer.trigger(**trigger).start()

    def stop(self) -> None:
        """Stop the query.  A batch in progress may outlive Spark's own stop; wait for it, and accept none after it."""
        self._stopping = True
        try:
            if self.query is not None:
                self.query.stop()
        finally:
            with self.batch:
                self.closed = True

    def _take(self, rows: DataFrame, batch_id: int) -> None:
        """Ingest one batch, keeping the first error for the engine to show."""
        arrived = time.time()
        self.at_work = True
        try:
            while not self._try(rows, batch_id, arrived):
                pass
            self._committed()
        except BaseException as failure:  # noqa: BLE001 - kept, and raised in short
            self.failure = self.failure or failure
            # An error makes Spark repeat the batch. It only prints the trace, so the trace is left out.
            raise RunError(f"stream {self.stream.name}: {short_message(failure)}") from None
        finally:
            self.at_work = False

    def _try(self, rows: DataFrame, batch_id: int, arrived: float) -> bool:
        """Ingest one batch and return True; if queries cannot be evaluated on it, stop them and return False."""
        try:
            with self.batch:
                self.ingest(rows, batch_id, arrived)
        except PenstockError:
            raise
        except Exception:
            if self._stopping:  # Spark has cancelled the job: no query is at fault
                raise
            failures = self.backend.failures(rows, self.stream, self._plan)
            if not failures:
                raise
            self.stop_queries(failures)
            return False
        return True

    def has_input(self) -> bool:
        """Check whether the source has input: Spark is initializing, has found some, or has handed it over."""
        if self.at_work or self.query is None:
            return True
        status = self.query.status
        return bool(status["isDataAvailable"]) or str(status["message"]).startswith("Initializing")

    def read_available(self) -> None:
        """Block until all input that is in the source is ingested."""
        if self.query is not None:
            self.query.processAllAvailable()

    def ingest(self, rows: DataFrame, batch_id: int, arrived: float) -> None:
        """Ingest one batch, with its origin from Spark's checkpoint."""
        if self.closed:
            raise RunError(f"stream {self.stream.name}: the engine has stopped")
        origin = checked_origin(self.store, self.stream.name, batch_id)
        if not self._prepared:
            self._prepare(rows)
            self._prepared = True
        self.batches.ingest(rows, batch_id, origin, arrived)

    def _prepare(self, rows: DataFrame) -> None:
        """Lift the limit on the bytes of Arrow batches, which Spark would have to count, where rows cannot be large."""
        if all(column.type in _FIXED_SIZE_TYPES for column in self.stream.columns):
            rows.sparkSession.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", _NO_LIMIT)


def _refuse(failures: Mapping[str, str]) -> None:
    """Raise the failures of queries as a failure of the stream."""
    raise QueriesFailedError(failures)


class SourceIngest(BatchIngest["DataFrame"]):
    """Ingests the batches of one source, read by Spark or by Arrow."""

    def __init__(self, store: Store, backend: Backend[DataFrame], plan: Plan, stream: Stream) -> None:
        """Prepare to ingest by a plan."""
        super().__init__(store, backend, plan, stream)
        self._checked: set[str] = set()
        """Parquet files that have all declared columns."""
        self._columns: tuple[_Needs | None, ArrowColumns | None] = (None, None)
        """The columns that Arrow builds for tasks with these needs; None if Spark has to."""

    def read(self, rows: DataFrame, spec: BatchSpec, origin: dict[str, Any] | None) -> list[BatchPart]:
        """Write a batch's segments; the reader is chosen before any row is read."""
        if file := irregular(_local_files(self.stream, origin)):
            raise RunError(irregular_message(file, self.stream))
        batch = self._plain_batch(rows.sparkSession, spec, origin)
        if batch is None:
            return super().read(rows, spec, origin)
        runner = self.backend.runner
        tasks = [ParquetTask(share, spec) for share in batch.shares(runner.parallelism)]
        reports = runner.map(tasks, ingest_job(self.stream.name, spec))
        return [part for parts in reports for part in parts]

    def _plain_batch(
        self, spark: SparkSession, spec: BatchSpec, origin: dict[str, Any] | None
    ) -> PlainBatch | None:
        """Return the files of a batch that Arrow reads; None if Spark has to, which may have checksums to verify."""
        columns = self._arrow_columns(spark, spec)
        batch = plain_batch(columns, origin) if columns and origin else None
        return None if batch and batch.has_checksums and verifies_checksums(spark) else batch

    def _arrow_columns(self, spark: SparkSession, spec: BatchSpec) -> ArrowColumns | None:
        """Return the columns that Arrow builds; computed once for each plan."""
        logs = tuple(log_spec.log for log_spec in spec.logs)
        needs = logs, spec.promises is not None, spec.arrival is not None
        if self._columns[0] != needs:
            plain = is_plain_parquet(self.stream) and all(
                spark.conf.get(name) == value for name, value in _SETTINGS.items()
            )
            types = lambda: self.backend.arrow_types(self.stream)  # noqa: E731 - asked only if it is needed
            self._columns = needs, arrow_columns(self.stream, spec, types) if plain else None
        return self._columns[1]

    def check(self, parts: Sequence[BatchPart]) -> None:
        """Refuse a batch of Parquet files of which one lacks a declared column: Spark reads it as null."""
        if self.stream.format.lower() != "parquet" or not any(part.nulls for part in parts):
            return
        for path in files_below(source_path(self.stream)) - self._checked:
            self._check_columns(path)
            self._checked.add(path)

    def _check_columns(self, path: str) -> None:
        """Refuse a Parquet file that lacks a declared column."""
        files, where = fsspec.core.url_to_fs(path)
        with files.open(where) as file:  # only the footer is read
            have = {name.lower() for name in pq.read_schema(file).names}
        for column in self.stream.columns:
            is_partition = f"/{column.name.lower()}=" in path.lower()
            if column.name.lower() not in have and not is_partition:
                raise RunError(
                    f"source file {path} of stream {self.stream.name} has no column {column.name}, which the stream "
                    "declares. Mend or remove the file and run again"
                )


def _local_files(stream: Stream, origin: dict[str, Any] | None) -> Iterable[str]:
    """List the local files of a batch; if its origin does not name them, those of the source."""
    sources = origin["entries"].values() if origin else ()
    if None in sources:
        return files_to_read(stream)
    return (local_path(url) for entries in sources for files in entries.values() for url, _ in files or ())
