"""Ingest of one stream: a Structured Streaming query whose every batch becomes segments and one commit.

A batch that the journal already has is passed over, so a restart that is handed its last batch again adds nothing.  It
is known by where it came from (`penstock.state.origin`), and one that does not follow on the last stops the run.

In:  the stream's DataFrame (`penstock.engine.sources.sources`).  Out: ``batch`` commits.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from penstock.engine.sources.checkpoints import checked_origin, checkpoint_of
from penstock.engine.sources.source_ingest import SourceIngest
from penstock.engine.sources.sources import FILE_ORDER
from penstock.engine.spark.failed_queries import QueriesFailedError
from penstock.engine.spark.spark_errors import short_message
from penstock.errors import PenstockError, RunError
from penstock.sql.streams import trigger_micros

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from penstock.engine.backend import Backend
    from penstock.engine.store import Store
    from penstock.plan.build import Plan
    from penstock.sql.query import Stream


FIXED = frozenset(
    {
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
    }
)
"""Types whose values have a few bytes each: so many rows as Spark puts in an Arrow batch are never too much."""

_EMPTY_CHECK = "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart"
"""Setting by which Spark refuses to plan batch 0 beside any file in its logs, temporary ones included."""

_NO_LIMIT = str(2**31 - 1)


class Ingester:
    """Reads one stream from its source."""

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
        """Get ready; `committed` is called after every commit."""
        self.store, self.backend, self.stream = store, backend, stream
        self.batches = SourceIngest(store, backend, plan, stream)
        self.batch = threading.Lock()
        """Held while a batch is on its way from the source to its commit; a plan is changed between batches."""
        self._committed = committed
        self.checkpoint = checkpoint_of(store.files, stream.name)
        self._source = source
        self._prepared = False
        self.stop_queries: Callable[[Mapping[str, str]], object] = _refuse
        """Told of queries that cannot be evaluated, and why."""
        self._stopping = False
        self.closed = False
        self.at_work = False
        """Whether a batch is on its way, from when Spark hands it over to its commit."""
        self.query: StreamingQuery | None = None
        self.failure: BaseException | None = None
        self.follow(plan)

    def follow(self, plan: Plan) -> None:
        """Ingest by this plan from the next batch on."""
        self._plan = plan
        self.batches.follow(plan)

    def lacks_order(self, source: DataFrame) -> bool:
        """Say whether rows of another source of the stream tell in which order they arrived, and these do not."""
        return bool(FILE_ORDER.keys() & (set(source.columns) - set(self._source.columns)))

    def start(self, *, once: bool) -> None:
        """Start reading the source: all that is there now, or at every trigger until stopped."""
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
        """Stop reading.  A batch at hand may outlive Spark's own stop; it is waited for, and none comes after it."""
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
        except BaseException as failure:  # noqa: BLE001 - kept, and told in short
            self.failure = self.failure or failure
            # Spark must hear of it, or it takes the batch for done; the whole trace it would only print.
            raise RunError(f"stream {self.stream.name}: {short_message(failure)}") from None
        finally:
            self.at_work = False

    def _try(self, rows: DataFrame, batch_id: int, arrived: float) -> bool:
        """Ingest one batch; if queries cannot be evaluated on it, have them stopped, and say that it is still to do."""
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
        """Return whether the source has input: Spark gets ready to read, has found some, or has handed it over."""
        if self.at_work or self.query is None:
            return True
        status = self.query.status
        return bool(status["isDataAvailable"]) or str(status["message"]).startswith("Initializing")

    def read_available(self) -> None:
        """Wait until all that is in the source is ingested."""
        if self.query is not None:
            self.query.processAllAvailable()

    def ingest(self, rows: DataFrame, batch_id: int, arrived: float) -> None:
        """Ingest one batch, of the origin that Spark's checkpoint says."""
        if self.closed:
            raise RunError(f"stream {self.stream.name}: the engine has stopped")
        origin = checked_origin(self.store, self.stream.name, batch_id)
        if not self._prepared:
            self._prepare(rows)
            self._prepared = True
        self.batches.ingest(rows, batch_id, origin, arrived)

    def _prepare(self, rows: DataFrame) -> None:
        """Spare Spark the look at the size of Arrow batches where rows cannot be large."""
        if all(column.type in FIXED for column in self.stream.columns):
            rows.sparkSession.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", _NO_LIMIT)


def _refuse(failures: Mapping[str, str]) -> None:
    """Let a failure of some queries be the stream's."""
    raise QueriesFailedError(failures)
