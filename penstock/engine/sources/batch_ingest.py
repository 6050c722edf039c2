"""A batch of one stream becomes segments in its logs and one commit.

Rows later than the watermark (newest event time of the batches before, less the lateness) are counted and written whole
to ``late/<stream>/<batch>``; so are rows without an event time, and with them the text of a line that could not be read
(`penstock.engine.sources.malformed`).

In:  the rows of a batch, its number and its origin.  Out: a ``batch`` commit.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.engine.runners.runner import Job
from penstock.engine.tasks.ingest import BatchTask, LogTask
from penstock.engine.tasks.order_watch import Arrival, put_together
from penstock.engine.tasks.promise_columns import promise_task
from penstock.engine.tasks.promise_rows import PartnerPromises
from penstock.engine.views.needs import ingest_masks, promising_partners
from penstock.state.commits import BatchIngested
from penstock.state.files import folder_of
from penstock.state.promises import BrokenTask, PromiseFiles
from penstock.state.recent import BatchTraffic
from penstock.state.row_times import roll_folder
from penstock.state.values import by_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from penstock.engine.backend import Backend
    from penstock.engine.store import Store
    from penstock.engine.tasks.ingest import BatchPart
    from penstock.engine.tasks.promise_columns import PromiseTask
    from penstock.engine.views.needs import PromisingPartner
    from penstock.plan.build import Plan
    from penstock.plan.stored import LogPlan
    from penstock.sql.query import Stream
    from penstock.state.segment import Segment
    from penstock.state.values import StreamState

Batch = TypeVar("Batch")


class BatchIngest(Generic[Batch]):
    """Feeds the batches of one stream into its logs, one after the other."""

    def __init__(self, store: Store, backend: Backend[Batch], plan: Plan, stream: Stream) -> None:
        """Get ready to ingest by a plan."""
        self.store, self.backend, self.stream = store, backend, stream
        self.key_bits = 64
        self._time_type = backend.time_type(stream)
        self._logs: tuple[LogTask, ...] = ()
        self._counted = False
        self._readers: dict[str, list[str]] = {}
        """By log that is watched: the joins without a window that read it."""
        self._promises: PromiseTask | None = None
        self._partners: dict[str, tuple[PromisingPartner, ...]] = {}
        self.follow(plan)

    def follow(self, plan: Plan) -> None:
        """Ingest by this plan from the next batch on."""
        self._promises = promise_task(plan, self.stream)
        self._partners = {log.id: promising_partners(plan, log) for log in plan.logs_of(self.stream.name)}
        self._logs = tuple(
            LogTask(log, ingest_masks(plan, log), self.store.ledger.layout(log.id))
            for log in plan.logs_of(self.stream.name)
        )
        self._counted = self.stream.name in plan.counted
        self._readers = {
            log.id: [group.id for group, _ in plan.uses(log.id) if group.oblivious]
            for log in plan.logs_of(self.stream.name)
            if log.id in plan.watched
        }

    def ingest(self, rows: Batch, batch_id: int, origin: dict[str, Any] | None, arrived: float) -> None:
        """Write a batch's segments and commit it, unless the journal has it already."""
        before = self.store.ledger.stream(self.stream.name)
        if batch_id <= before.source_batch:
            return
        task = self._task(before)
        parts = self.read(rows, task, origin)
        in_vain: Sequence[BatchPart] = ()
        if beside := self._broken_beside(parts):
            in_vain, task = parts, self._with_promises(task, beside)
            parts = self.read(rows, task, origin)
        self._let_go(parts, everything=False)
        self.check(parts)
        after = _advanced(before, batch_id, parts, self.stream.lateness)
        made = _together(part.promises for part in parts)
        self._keep_aside(rows, self._with_promises(task, made), before, after)
        commit = BatchIngested(
            stream=self.stream.name,
            state=after,
            segments=by_name(part.segments for part in parts),
            origin=origin,
            arrived=arrived,
            at=time.time(),
            traffic={each.log.id: _traffic(each, before, after, parts) for each in self._logs},
            times=tuple(each for part in parts for each in part.times),
            promises=made,
            gone=_departures(parts),
            watched={
                log: put_together((part.watched[log] for part in parts if log in part.watched), arrived)
                for log in self._readers
                if any(log in part.watched for part in parts)
            },
        )
        self.store.commit(self.completed(commit))
        self._let_go(
            in_vain, everything=True
        )  # not before: the second reading looks up promises of the first

    def _keep_aside(self, rows: Batch, task: BatchTask, before: StreamState, after: StreamState) -> None:
        """Write rows that do not count to the dead letters."""
        if after.late + after.no_time + after.broken == before.late + before.no_time + before.broken:
            return
        folder = f"{folder_of('late', self.stream.name)}/{before.batches:010d}"
        if task.promises:
            self.backend.keep_late_and_broken(rows, self.stream, task, folder)
        else:
            self.backend.keep_late(rows, self.stream, before.watermark, folder)

    def _broken_beside(self, parts: Sequence[BatchPart]) -> dict[str, PromiseFiles]:
        """Give the promises of a batch if one task has written rows that break a promise which another one found.

        Each task looks at its own promises and at those of the batches before.  What is left to be found is looked up
        in the segments that were written, or where the key of the promises is not that of the only log, in files of
        keys and times that were written for it.
        """
        made = _together(part.promises for part in parts)
        if self._promises is None or not made or len(parts) == 1:
            return {}
        for own in self._promises.own:
            segments = [each for part in parts for each in part.own_rows.get(own.index, ())]
            if own.log:
                segments = [each for part in parts for each in part.segments.get(own.log, ())]
            if own.index in made and segments and self._count_broken(segments, made[own.index]):
                return made
        return {}

    def _count_broken(self, segments: Sequence[Segment], made: PromiseFiles) -> int:
        """Count the rows of some segments that come after a promise of their own stream."""
        tasks = [BrokenTask(each.bare(), made.bare()) for each in segments]
        job = Job("ingest", f"check rows of {self.stream.name} against punctuations")
        return sum(self.backend.runner.map(tasks, job))

    def _let_go(self, parts: Sequence[BatchPart], *, everything: bool) -> None:
        """Delete files that were written to look for broken promises, or all that a batch has written in vain."""
        for part in parts:
            some = [each for files in part.own_rows.values() for each in files]
            if everything:
                some += [each for files in part.segments.values() for each in files] + part.times
                some += [each for made in part.promises.values() for each in made.files()]
            for each in some:
                self.store.let_go(each.name)

    def _with_promises(self, task: BatchTask, made: Mapping[str, PromiseFiles]) -> BatchTask:
        """Let every task of a batch know the promises of all of them."""
        if task.promises is None:
            return task
        known = {
            index: task.promises.known.get(index, PromiseFiles()).plus(made.get(index, PromiseFiles())).bare()
            for index in {*task.promises.known, *made}
        }
        return replace(task, promises=replace(task.promises, known=known))

    def read(self, rows: Batch, task: BatchTask, origin: dict[str, Any] | None) -> list[BatchPart]:  # noqa: ARG002
        """Read a batch and write its segments; a source may know a shorter way, by where the batch came from."""
        return self.backend.ingest(rows, self.stream, task)

    def check(self, parts: Sequence[BatchPart]) -> None:
        """Look at what was written before it is committed; a source may have more to say."""

    def completed(self, commit: BatchIngested) -> BatchIngested:
        """Give the commit of a batch with what else it makes true."""
        return commit

    def _task(self, before: StreamState) -> BatchTask:
        """Describe the batch to its tasks."""
        return BatchTask(
            batch=before.batches,
            logs=tuple(
                replace(each, partner_promises=self._partner_promises(each.log)) for each in self._logs
            ),
            time_column=self.stream.time,
            time_type=self._time_type,
            watermark=before.watermark,
            key_bits=self.key_bits,
            roll=roll_folder(self.stream.name) if self._counted else "",
            horizon=self.store.ledger.roll(self.stream.name).horizon if self._counted else None,
            promises=self._known_promises(),
            arrival=self._arrival(before) if self._readers else None,
        )

    def _arrival(self, before: StreamState) -> Arrival:
        """Say at which position the batch begins, and how many values are sampled by now."""
        buffers = self.store.ledger.buffers
        sketches = {
            log: [buffers[group].sketch.halvings for group in groups if group in buffers]
            for log, groups in self._readers.items()
        }
        return Arrival(before.arrivals, {log: min(each, default=0) for log, each in sketches.items()})

    def _known_promises(self) -> PromiseTask | None:
        """Give what is asked about promises, with those that are known by now."""
        if self._promises is None:
            return None
        ledger = self.store.ledger
        wanted = {own.index for own in self._promises.own}
        known = {index: ledger.promises[index].bare() for index in wanted if index in ledger.promises}
        return replace(self._promises, known=known)

    def _partner_promises(self, log: LogPlan) -> tuple[PartnerPromises, ...]:
        """Give what each partner of a log has promised by now; nothing if some partner makes no promises by its key."""
        ledger = self.store.ledger
        return tuple(
            PartnerPromises(
                each.partner,
                ledger.promises.get(each.index, PromiseFiles()).bare(),
                ledger.stream(each.partner).watermark,
                each.beyond,
            )
            for each in self._partners[log.id]
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
        punctuations=total("punctuations"),
        broken=total("broken"),
        dropped=total("dropped"),
        discarded=total("discarded"),
        arrivals=total("arrivals"),
        behind=max([before.behind, *_behind(before, parts)]),
    )


def _behind(before: StreamState, parts: Sequence[BatchPart]) -> Iterable[int]:
    """Yield how far the late rows of each part were behind the newest row of the batches before."""
    for part in parts:
        if part.oldest_late is not None and before.newest is not None:
            yield before.newest - part.oldest_late


def _together(made: Iterable[Mapping[str, PromiseFiles]]) -> dict[str, PromiseFiles]:
    """Bring together the promises that several tasks found."""
    together: dict[str, PromiseFiles] = {}
    for each in made:
        for index, files in each.items():
            together[index] = together.get(index, PromiseFiles()).plus(files)
    return together


def _departures(parts: Sequence[BatchPart]) -> dict[str, tuple[int, int]]:
    """Say for each log how many rows are not kept, and the newest event time of them."""
    gone: dict[str, tuple[int, int]] = {}
    for part in parts:
        for log, (newest, rows) in part.gone.items():
            before = gone.get(log, (newest, 0))
            gone[log] = max(before[0], newest), before[1] + rows
    return gone


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
