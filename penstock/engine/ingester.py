"""Ingest of one stream: a Structured Streaming query whose every batch becomes segments and one commit.

A batch that the journal already has is passed over, so a restart that is handed its last batch again adds nothing.  It
is known by where it came from (`penstock.log.origin`), and one that does not follow on the last stops the run.  Rows
later than the watermark (newest event time of the batches before, less the lateness) are counted and written whole to
``late/<stream>/<batch>``; so are rows without an event time, and with them the text of a line that could not be read
(`penstock.engine.malformed`).

In:  the stream's DataFrame with the columns of `penstock.engine.sources`.  Out: ``batch`` commits.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import fsspec
import pyarrow.parquet as pq
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from penstock.engine.blame import QueriesFailedError, blame_for_batch
from penstock.engine.checkpoints import checked_origin, checkpoint_of, mend_checkpoint
from penstock.engine.claims import masks_at_the_door
from penstock.engine.complaints import short_message
from penstock.engine.ingest import BatchTask, LogTask
from penstock.engine.jobs import ingest_job
from penstock.engine.malformed import CORRUPT, MOST_TEXT, SHOWN
from penstock.engine.sources import (
    ROW_TIME,
    arrow_time_type,
    ingest_columns_of,
    source_path,
    with_ingest_columns,
)
from penstock.errors import PenstockError, RunError
from penstock.log.commits import BatchIngested
from penstock.log.locations import files_below
from penstock.log.names import folder_of
from penstock.log.roll import roll_folder
from penstock.log.tally import BatchTraffic
from penstock.log.values import by_name
from penstock.sql.tree import always_quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from penstock.engine.ingest import BatchPart
    from penstock.engine.store import Store
    from penstock.log.values import StreamState
    from penstock.plan.build import Plan
    from penstock.plan.stored import LogPlan
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

FAR_AHEAD = 1_000_000
"""Microseconds of event time that a stream may be ahead of its partners before it waits for a batch of theirs."""

LONGEST_WAIT = 10.0
"""Seconds that it waits at most."""

_NO_LIMIT = str(2**31 - 1)


class Ingester:
    """Feeds one stream into its logs."""

    def __init__(
        self, store: Store, plan: Plan, stream: Stream, source: DataFrame, committed: Callable[[], None]
    ) -> None:
        """Get ready; `committed` is called after every commit."""
        self.store, self.stream = store, stream
        self.key_bits = 64
        self.batch = threading.Lock()
        """Held while a batch is on its way from the source to its commit; a plan is changed between batches."""
        self._committed = committed
        self.checkpoint = checkpoint_of(store.files, stream.name)
        self._source = source
        self._tasks = source.sparkSession.sparkContext.defaultParallelism
        self._time_type = arrow_time_type(stream, source.sparkSession)
        self._checked: set[str] = set()
        self._logs: tuple[LogTask, ...] = ()
        self._counted = False
        self._prepared = False
        self._partners: set[str] = set()
        self.stop_queries: Callable[[Mapping[str, str]], object] = _refuse
        """Told of queries that cannot be evaluated, and why."""
        self.others: Callable[[], Iterable[Ingester]] = tuple
        """Asked before a batch for the other streams that are read."""
        self.closed = False
        self.at_work = False
        """Whether a batch is on its way, from when Spark hands it over to its commit."""
        self.query: StreamingQuery | None = None
        self.failure: BaseException | None = None
        self.follow(plan)

    def follow(self, plan: Plan) -> None:
        """Ingest by this plan from the next batch on."""
        self._plan = plan
        self._logs = tuple(
            LogTask(log, masks_at_the_door(plan, log), self.store.ledger.layout(log.id))
            for log in plan.logs_of(self.stream.name)
        )
        self._counted = self.stream.name in plan.counted
        pairs = [{group.left.stream, group.right.stream} for group in plan.groups]
        self._partners = {
            name for pair in pairs if self.stream.name in pair for name in pair - {self.stream.name}
        }

    def start(self, *, once: bool) -> None:
        """Start reading the source: all that is there now, or until stopped."""
        mend_checkpoint(self.store, self.stream.name)
        writer = (
            self._source.writeStream.queryName(f"penstock-{self.stream.name}")
            .option("checkpointLocation", self.checkpoint.path)
            .foreachBatch(self._take)
        )
        self.query = (writer.trigger(availableNow=True) if once else writer).start()

    def stop(self) -> None:
        """Stop reading.  A batch at hand may outlive Spark's own stop; it is waited for, and none comes after it."""
        if self.query is not None:
            self.query.stop()
        with self.batch:
            self.closed = True

    def _take(self, rows: DataFrame, batch_id: int) -> None:
        """Ingest one batch, keeping the first error for the engine to show."""
        arrived = time.time()
        self.at_work = True
        try:
            self._let_partners_catch_up()
            while not self._try(rows, batch_id, arrived):
                pass
        except BaseException as failure:  # noqa: BLE001 - kept, and told in short
            self.failure = self.failure or failure
            # Spark must hear of it, or it takes the batch for done; the whole trace it would only print.
            raise RunError(f"stream {self.stream.name}: {short_message(failure)}") from None
        finally:
            self.at_work = False
        self._committed()

    def _try(self, rows: DataFrame, batch_id: int, arrived: float) -> bool:
        """Ingest one batch; if queries cannot be evaluated on it, have them stopped, and say that it is still to do."""
        try:
            with self.batch:
                self.ingest(rows, batch_id, arrived)
        except PenstockError:
            raise
        except Exception:
            failures = blame_for_batch(rows, self.stream, self._plan)
            if not failures:
                raise
            self.stop_queries(failures)
            return False
        return True

    def is_busy(self) -> bool:
        """Say whether rows are on their way: Spark gets ready to read, or has found some."""
        if self.at_work or self.query is None:
            return True
        status = self.query.status
        return bool(status["isDataAvailable"]) or str(status["message"]).startswith("Initializing")

    def _let_partners_catch_up(self) -> None:
        """Wait for the batch that a partner has at hand, if this stream is far ahead of it in event time.

        A stream that is read faster than its partner fills the log with rows whose partners are still to come, and
        then lets the machine wait for the slower one::

            A   ├── 0..10 s ──┤├── 10..20 s ──┤├── 20..30 s ──┤
            B   ├─ 0..10 ─┤    ├─ 10..20 ─┤    ├─ 20..30 ─┤         never more than a batch ahead

        It waits for one batch only, so a stream whose clock is wrong still goes on.
        """
        ledger = self.store.ledger
        mine = ledger.stream(self.stream.name).newest
        for other in self.others():
            theirs = ledger.stream(other.stream.name).newest
            behind = mine is not None and (theirs is None or mine - theirs > FAR_AHEAD)
            if behind and other.stream.name in self._partners and other.batch.acquire(timeout=LONGEST_WAIT):
                other.batch.release()

    def ingest(self, source: DataFrame, batch_id: int, arrived: float) -> None:
        """Write a batch's segments and commit it, unless the journal has it already."""
        if self.closed:
            raise RunError(f"stream {self.stream.name}: the engine has stopped")
        before = self.store.ledger.stream(self.stream.name)
        origin = checked_origin(self.store, self.stream.name, batch_id)
        if batch_id <= before.source_batch:
            return
        self._prepare(source.sparkSession)
        task = self._task(before)
        rows = ingest_columns_of(source, self.stream, self._log_plans, task.columns())
        parts = ingest_job(rows, task, self._tasks)
        self._check_files(parts)
        after = _advanced(before, batch_id, parts, self.stream.lateness)
        if after.late + after.no_time > before.late + before.no_time:
            self._keep_aside(source, before)
        self.store.commit(
            BatchIngested(
                stream=self.stream.name,
                state=after,
                segments=by_name(part.segments for part in parts),
                origin=origin,
                arrived=arrived,
                at=time.time(),
                traffic={each.log.id: _traffic(each, before, after, parts) for each in self._logs},
                times=tuple(each for part in parts for each in part.times),
            )
        )

    def _prepare(self, spark: SparkSession) -> None:
        """Set up Spark for a batch: its pool, and no look at the size of Arrow batches where rows cannot be large."""
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", "ingest")
        if not self._prepared:
            if all(column.type in FIXED for column in self.stream.columns):
                spark.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", _NO_LIMIT)
            self._prepared = True

    def _task(self, before: StreamState) -> BatchTask:
        """Describe the batch to its tasks."""
        return BatchTask(
            files=self.store.files,
            batch=before.batches,
            logs=self._logs,
            time_column=self.stream.time,
            time_type=self._time_type,
            watermark=before.watermark,
            key_bits=self.key_bits,
            roll=roll_folder(self.stream.name) if self._counted else "",
            horizon=self.store.ledger.roll(self.stream.name).horizon if self._counted else None,
        )

    @property
    def _log_plans(self) -> tuple[LogPlan, ...]:
        """List the logs that a batch goes into."""
        return tuple(task.log for task in self._logs)

    def _keep_aside(self, source: DataFrame, before: StreamState) -> None:
        """Write the late rows of a batch, whole, to the dead-letter output; writing again replaces them."""
        rows = with_ingest_columns(source, self.stream, ())
        row_time = F.col(always_quoted(ROW_TIME))
        late = row_time.isNull()
        if before.watermark is not None:
            late |= row_time < before.watermark
        columns = [F.col(always_quoted(column.name)) for column in self.stream.columns]
        if CORRUPT in source.columns:
            columns.append(F.substring(F.col(always_quoted(CORRUPT)), 1, MOST_TEXT).alias(SHOWN))
        folder = folder_of(self.store.files, "late", self.stream.name)
        path = self.store.files.path(f"{folder}/{before.batches:010d}")
        rows.where(late).select(*columns).coalesce(1).write.mode("overwrite").parquet(path)

    def _check_files(self, parts: Sequence[BatchPart]) -> None:
        """Look at the source's files themselves when a column has nulls: Spark reads a missing column as null."""
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


def _refuse(failures: Mapping[str, str]) -> None:
    """Let a failure of some queries be the stream's."""
    raise QueriesFailedError(failures)


def _advanced(before: StreamState, batch_id: int, parts: Sequence[BatchPart], lateness: int) -> StreamState:
    """Count a batch into its stream's state and move the watermark; it never goes back."""
    seen = [part.newest for part in parts if part.newest is not None]
    newest = max([*seen, *([before.newest] if before.newest is not None else [])], default=None)

    def total(name: str) -> int:
        return int(getattr(before, name)) + sum(getattr(part, name) for part in parts)

    return replace(
        before,
        source_batch=batch_id,
        batches=before.batches + 1,
        newest=newest,
        watermark=None if newest is None else newest - lateness,
        rows=total("rows"),
        late=total("late"),
        no_time=total("no_time"),
        no_key=total("no_key"),
        unwanted=total("unwanted"),
        overtaken=total("overtaken"),
    )


def _traffic(
    task: LogTask, before: StreamState, after: StreamState, parts: Sequence[BatchPart]
) -> BatchTraffic:
    """Say what a batch was like for one log: rows in time, the event time they added, and their patterns of bits."""
    counts = Counter[int]()
    holds = [0] * len(task.log.predicates)
    for part in parts:
        for bits, rows in part.patterns.get(task.log.id, ()):
            counts[bits] += rows
        for bit, rows in enumerate(part.holds.get(task.log.id, ())):
            holds[bit] += rows
    starts = [part.oldest for part in parts if part.oldest is not None]
    since = min(starts, default=0) if before.newest is None else before.newest
    return BatchTraffic(
        layout=task.layout,
        rows=after.timely - before.timely,
        micros=max(0, after.newest - since) if after.newest is not None else 0,
        patterns=tuple(counts.most_common()),
        holds=tuple(holds),
    )
