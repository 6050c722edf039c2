"""A batch of one stream becomes segments in its logs and one commit.

Rows later than the watermark (newest event time of the batches before, less the lateness) are counted and written whole
to ``late/<stream>/<batch>``; so are rows without an event time.

Results of a query that other queries read are a batch too.  The unit's commit names the files of results; the batch's
commit puts their rows into the logs and drops the files.  So a result is a row once, wherever a process dies::

    unit of q1   ══ commit: cursor moved, results in files ──▶ batch of q1's stream   ══ commit: rows in, files dropped
                                                           └─▶ (again, if it was cut off before)

In:  the rows of a batch, its number and its origin.  Out: a ``batch`` commit.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.engine.runners.runner import Job
from penstock.engine.tasks.ingest import BatchSpec, LogSpec
from penstock.engine.tasks.order_watch import Arrival, merge_watches
from penstock.engine.tasks.promise_columns import promise_spec
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
    from penstock.engine.tasks.promise_columns import PromiseSpec
    from penstock.engine.views.needs import PromisingPartner
    from penstock.plan.build import Plan
    from penstock.plan.stored import LogPlan
    from penstock.sql.query import Stream
    from penstock.state.segment import Segment
    from penstock.state.values import StreamState

Batch = TypeVar("Batch")

_COUNTS = (
    "rows",
    "late",
    "no_time",
    "no_key",
    "unwanted",
    "overtaken",
    "punctuations",
    "broken",
    "dropped",
    "discarded",
    "arrivals",
)
"""Counts of a batch that the state of its stream adds up."""


class BatchIngest(Generic[Batch]):
    """Ingests the batches of one stream, one after the other."""

    def __init__(self, store: Store, backend: Backend[Batch], plan: Plan, stream: Stream) -> None:
        """Prepare to ingest by a plan."""
        self.store, self.backend, self.stream = store, backend, stream
        self.key_bits = 64
        self._time_type = backend.time_type(stream)
        self._logs: tuple[LogSpec, ...] = ()
        self._counted = False
        self._readers: dict[str, list[str]] = {}
        """By log that is watched: the joins without a window that read it."""
        self._promises: PromiseSpec | None = None
        self._partners: dict[str, tuple[PromisingPartner, ...]] = {}
        self.follow(plan)

    def follow(self, plan: Plan) -> None:
        """Ingest by this plan from the next batch on."""
        logs = plan.logs_of(self.stream.name)
        self._promises = promise_spec(plan, self.stream)
        self._partners = {log.id: promising_partners(plan, log) for log in logs}
        self._logs = tuple(
            LogSpec(log, ingest_masks(plan, log), self.store.ledger.layout(log.id)) for log in logs
        )
        self._counted = self.stream.name in plan.counted
        self._readers = {
            log.id: [group.id for group, _ in plan.uses(log.id) if group.oblivious]
            for log in logs
            if log.id in plan.watched
        }

    def ingest(self, rows: Batch, batch_id: int, origin: dict[str, Any] | None, arrived: float) -> None:
        """Write a batch's segments and commit it, unless the journal has it already."""
        before = self.store.ledger.stream(self.stream.name)
        if batch_id <= before.source_batch:
            return
        spec = self._task(before)
        parts = self.read(rows, spec, origin)
        discarded: Sequence[BatchPart] = ()
        if broken := self._broken_across_tasks(parts):
            discarded, spec = parts, self._with_promises(spec, broken)
            parts = self.read(rows, spec, origin)
        for part in parts:
            self._let_go(part.own_rows.values())
        self.check(parts)
        after = _advanced(before, batch_id, parts, self.stream.lateness)
        made = _merge_promises(part.promises for part in parts)
        self._keep_late(rows, self._with_promises(spec, made), before, after)
        commit = BatchIngested(
            stream=self.stream.name,
            state=after,
            segments=by_name(part.segments for part in parts),
            origin=origin,
            arrived=arrived,
            at=time.time(),
            traffic={log.log.id: _traffic(log, before, after, parts) for log in self._logs},
            times=tuple(times for part in parts for times in part.times),
            promises=made,
            early_removals=_departures(parts),
            watched={
                log: merge_watches((part.watched[log] for part in parts if log in part.watched), arrived)
                for log in self._readers
                if any(log in part.watched for part in parts)
            },
        )
        self.store.commit(self.completed(commit))
        for part in discarded:  # not before the commit: the second reading looks up promises of the first
            promises = [files.files() for files in part.promises.values()]
            self._let_go([*part.own_rows.values(), *part.segments.values(), part.times, *promises])

    def read(self, rows: Batch, spec: BatchSpec, origin: dict[str, Any] | None) -> list[BatchPart]:  # noqa: ARG002
        """Read a batch and write its segments."""
        return self.backend.ingest(rows, self.stream, spec)

    def check(self, parts: Sequence[BatchPart]) -> None:
        """Check the parts of a batch before it is committed."""

    def completed(self, commit: BatchIngested) -> BatchIngested:
        """Complete the commit of a batch."""
        return commit

    def _keep_late(self, rows: Batch, spec: BatchSpec, before: StreamState, after: StreamState) -> None:
        """Write the rows that are set aside to the dead letters."""
        if after.late + after.no_time + after.broken > before.late + before.no_time + before.broken:
            folder = f"{folder_of('late', self.stream.name)}/{before.batches:010d}"
            self.backend.keep_late(rows, self.stream, spec, folder)

    def _broken_across_tasks(self, parts: Sequence[BatchPart]) -> dict[str, PromiseFiles]:
        """Return the promises of a batch if one task has written rows that break a promise of another task.

        Each task checks its rows against its own promises and those of earlier batches.  Promises of the other tasks
        are looked up here: in the segments that were written, or in files of keys and times where the only log has
        another key than the promises.
        """
        made = _merge_promises(part.promises for part in parts)
        if self._promises is None or not made or len(parts) == 1:
            return {}
        for own in self._promises.own:
            written = (
                part.segments.get(own.log, ()) if own.log else part.own_rows.get(own.index, ())
                for part in parts
            )
            segments = [segment for files in written for segment in files]
            if own.index in made and segments and self._count_broken(segments, made[own.index]):
                return made
        return {}

    def _count_broken(self, segments: Sequence[Segment], made: PromiseFiles) -> int:
        """Count the rows of some segments that come after a promise of their own stream."""
        tasks = [BrokenTask(segment.bare(), made.bare()) for segment in segments]
        job = Job("ingest", f"check rows of {self.stream.name} against punctuations")
        return sum(self.backend.runner.map(tasks, job))

    def _let_go(self, written: Iterable[Iterable[Segment]]) -> None:
        """Delete files with the next commit."""
        for segments in written:
            for segment in segments:
                self.store.let_go(segment.name)

    def _with_promises(self, spec: BatchSpec, made: Mapping[str, PromiseFiles]) -> BatchSpec:
        """Add promises of the batch to those that its tasks know."""
        if spec.promises is None:
            return spec
        known = _merge_promises((spec.promises.known, made))
        bare = {index: files.bare() for index, files in known.items()}
        return replace(spec, promises=replace(spec.promises, known=bare))

    def _task(self, before: StreamState) -> BatchSpec:
        """Describe the batch to its tasks."""
        return BatchSpec(
            batch=before.batches,
            logs=tuple(
                replace(spec, partner_promises=self._partner_promises(spec.log)) for spec in self._logs
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
        """Return the position of the batch's first row, and how far the sampling has been thinned out."""
        buffers = self.store.ledger.buffers
        sketches = {
            log: [buffers[group].sketch.halvings for group in groups if group in buffers]
            for log, groups in self._readers.items()
        }
        return Arrival(before.arrivals, {log: min(halvings, default=0) for log, halvings in sketches.items()})

    def _known_promises(self) -> PromiseSpec | None:
        """Return the task for promises, with those that the journal has."""
        if self._promises is None:
            return None
        ledger = self.store.ledger
        wanted = {own.index for own in self._promises.own}
        known = {index: ledger.promises[index].bare() for index in wanted if index in ledger.promises}
        return replace(self._promises, known=known)

    def _partner_promises(self, log: LogPlan) -> tuple[PartnerPromises, ...]:
        """Return the promises of each partner of a log; none if some partner makes no promises by its key."""
        ledger = self.store.ledger
        return tuple(
            PartnerPromises(
                partner.partner,
                ledger.promises.get(partner.index, PromiseFiles()).bare(),
                ledger.stream(partner.partner).watermark,
                partner.beyond,
            )
            for partner in self._partners[log.id]
        )


class ResultIngest(BatchIngest[Batch]):
    """Ingests the results of a query into the logs of the queries that read them."""

    def __init__(self, store: Store, backend: Backend[Batch], plan: Plan, stream: Stream) -> None:
        """Prepare one batch of all results that wait."""
        super().__init__(store, backend, plan, stream)
        waiting = store.ledger.fed[stream.name]
        self.files = tuple(file for results in waiting for file in results.files)
        self._arrived = max(results.arrived for results in waiting)
        self._above: int | None = None

    def take(self, above: int | None) -> None:
        """Ingest the results; all later results are `above` a value, if that is known."""
        self._above = above
        number = self.store.ledger.stream(self.stream.name).source_batch + 1
        self.ingest(self.rows(), number, None, self._arrived)
        for file in self.files:
            self.store.let_go(file.name)

    def rows(self) -> Any:
        """Return the results as a batch."""
        return self.backend.fed_rows(self.files, self.stream)

    def completed(self, commit: BatchIngested) -> BatchIngested:
        """Add to the commit the files that are done, and the bound of later results."""
        watched = {log: replace(watch, above=self._above) for log, watch in commit.watched.items()}
        return replace(commit, watched=watched, fed=tuple(file.name for file in self.files))


def _advanced(before: StreamState, batch_id: int, parts: Sequence[BatchPart], lateness: int) -> StreamState:
    """Count a batch into its stream's state and move the watermark; it never goes back."""
    times = [before.newest, *(part.newest for part in parts)]
    newest = max((time for time in times if time is not None), default=None)
    counts = {name: getattr(before, name) + sum(getattr(part, name) for part in parts) for name in _COUNTS}
    return replace(
        before,
        source_batch=batch_id,
        batches=before.batches + 1,
        newest=newest,
        watermark=None if newest is None else newest - lateness,
        behind=max([before.behind, *_behind(before, parts)]),
        **counts,
    )


def _behind(before: StreamState, parts: Sequence[BatchPart]) -> Iterable[int]:
    """Yield how far the late rows of each part were behind the newest row of the batches before."""
    for part in parts:
        if part.oldest_late is not None and before.newest is not None:
            yield before.newest - part.oldest_late


def _merge_promises(made: Iterable[Mapping[str, PromiseFiles]]) -> dict[str, PromiseFiles]:
    """Merge promises of several tasks, by index."""
    merged: dict[str, PromiseFiles] = {}
    for by_index in made:
        for index, files in by_index.items():
            merged[index] = merged.get(index, PromiseFiles()).plus(files)
    return merged


def _departures(parts: Sequence[BatchPart]) -> dict[str, tuple[int, int]]:
    """Return for each log the newest event time of the rows that are not kept, and their number."""
    gone: dict[str, tuple[int, int]] = {}
    for part in parts:
        for log, (newest, rows) in part.gone.items():
            before = gone.get(log, (newest, 0))
            gone[log] = max(before[0], newest), before[1] + rows
    return gone


def _traffic(
    spec: LogSpec, before: StreamState, after: StreamState, parts: Sequence[BatchPart]
) -> BatchTraffic:
    """Describe a batch for one log: rows in time, the event time they added, and their patterns of bits."""
    counts = Counter[int]()
    holds = [0] * len(spec.log.predicates)
    for part in parts:
        for bits, rows in part.patterns.get(spec.log.id, ()):
            counts[bits] += rows
        for bit, rows in enumerate(part.holds.get(spec.log.id, ())):
            holds[bit] += rows
    starts = [part.oldest for part in parts if part.oldest is not None]
    since = min(starts, default=0) if before.newest is None else before.newest
    return BatchTraffic(
        layout=spec.layout,
        rows=after.timely - before.timely,
        micros=max(0, after.newest - since) if after.newest is not None else 0,
        patterns=tuple(counts.most_common()),
        holds=tuple(holds),
    )
