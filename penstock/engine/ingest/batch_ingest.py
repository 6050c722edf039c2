"""A batch of one stream becomes segments in its logs and one commit.

Rows later than the watermark (newest event time of the batches before, less the lateness) are counted and written whole
to ``late/<stream>/<batch>``; so are rows without an event time, and with them the text of a line that could not be read
(`penstock.engine.ingest.malformed`).

In:  the rows of a batch, its number and its origin.  Out: a ``batch`` commit.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.engine.ingest.batch_task import BatchTask, LogTask
from penstock.engine.readings.needs import ingest_masks
from penstock.log.commits import BatchIngested
from penstock.log.folder_names import folder_of
from penstock.log.recent import BatchTraffic
from penstock.log.row_times import roll_folder
from penstock.log.values import by_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.engine.ingest.batch_task import BatchPart
    from penstock.engine.jobs import Jobs
    from penstock.engine.store import Store
    from penstock.log.values import StreamState
    from penstock.plan.build import Plan
    from penstock.sql.query import Stream

Batch = TypeVar("Batch")


class BatchIngest(Generic[Batch]):
    """Feeds the batches of one stream into its logs, one after the other."""

    def __init__(self, store: Store, jobs: Jobs[Batch], plan: Plan, stream: Stream) -> None:
        """Get ready to ingest by a plan."""
        self.store, self.jobs, self.stream = store, jobs, stream
        self.key_bits = 64
        self._time_type = jobs.time_type(stream)
        self._logs: tuple[LogTask, ...] = ()
        self._counted = False
        self.follow(plan)

    def follow(self, plan: Plan) -> None:
        """Ingest by this plan from the next batch on."""
        self._logs = tuple(
            LogTask(log, ingest_masks(plan, log), self.store.ledger.layout(log.id))
            for log in plan.logs_of(self.stream.name)
        )
        self._counted = self.stream.name in plan.counted

    def ingest(self, rows: Batch, batch_id: int, origin: dict[str, Any] | None, arrived: float) -> None:
        """Write a batch's segments and commit it, unless the journal has it already."""
        before = self.store.ledger.stream(self.stream.name)
        if batch_id <= before.source_batch:
            return
        parts = self.jobs.ingest(rows, self.stream, self._task(before))
        self.check(parts)
        after = _advanced(before, batch_id, parts, self.stream.lateness)
        if after.late + after.no_time > before.late + before.no_time:
            folder = folder_of(self.store.files, "late", self.stream.name)
            self.jobs.keep_aside(rows, self.stream, before.watermark, f"{folder}/{before.batches:010d}")
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

    def check(self, parts: Sequence[BatchPart]) -> None:
        """Look at what was written before it is committed; a source may have more to say."""

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
