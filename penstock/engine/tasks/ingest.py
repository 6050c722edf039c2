"""From a micro-batch to segments: the work of one ingest task.

A task gets its part of a stream's batch as Arrow columns and writes one segment per log, sorted by key, wherever the
rows come from: no shuffle, because a task of the join takes its range of hashes out of every segment.  Of a large part
it writes several, each of bounded bytes.

    source partition ──▶ take out promises, where the stream makes some ──▶ drop late rows, then rows that break one
                     ──▶ where windows count rows: the times of all the others, for the roll
                     ──▶ drop rows without time or key, rows no query wants
                     ──▶ sort by (h, t) ──▶ one Arrow file per log ──▶ what was written, to the driver

In:  the columns of `penstock.engine.tasks.ingest_columns`.  Out: what was written (`BatchPart`), for the commit.
The file names are unique per attempt, so a task may be run twice; only what the commit names is true.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock import limits
from penstock.engine.runners.runner import ROWS, Job
from penstock.engine.tasks.ingest_columns import ROW_TIME, bit_names, key_names
from penstock.engine.tasks.order_watch import Arrival, values_of, watch_log, with_positions
from penstock.engine.tasks.promise_columns import PromiseTask
from penstock.engine.tasks.promise_rows import NO_TIME, PartnerPromises, PartPromises, filter_by_promises
from penstock.kernels.key_hash import digests, mix
from penstock.kernels.sets import find_patterns, from_words, query_sets, to_words
from penstock.kernels.width import gathered
from penstock.plan.links import POSITION, is_link_column, link_columns
from penstock.state.promises import PromiseFiles
from penstock.state.row_times import write_times
from penstock.state.segment import KEY, Segment, SegmentColumns, write_segment
from penstock.state.watch import BatchWatch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from penstock.kernels.sets import Words
    from penstock.plan.stored import LogPlan
    from penstock.state.files import Files


@dataclass(frozen=True, slots=True)
class LogTask:
    """One log that the batch goes into, and the predicate bits each of its queries needs."""

    log: LogPlan
    masks: tuple[int, ...]
    layout: int = 0
    partner_promises: tuple[PartnerPromises, ...] = ()
    """What the partners of all its groups have promised; none if some partner promises nothing."""


@dataclass(frozen=True, slots=True)
class BatchTask:
    """What every task of a batch is told: where to write, what to write, and how old is too old."""

    batch: int
    logs: tuple[LogTask, ...]
    time_column: str
    time_type: pa.DataType | None
    """The Arrow type of the time column if it is a timestamp: then it is `ROW_TIME` under another type."""
    watermark: int | None
    key_bits: int = 64
    """Bits of a digest that are used; fewer than 64 only where a test wants collisions."""
    roll: str = ""
    """The directory for the stream's roll; empty where no window counts its rows."""
    horizon: int | None = None
    """The event time below which windows that count rows have joined everything."""
    promises: PromiseTask | None = None
    """Set where the stream makes promises, or others make some about it."""
    arrival: Arrival | None = None
    """Set where joins without a window read the stream: one task then has all rows, in the order of arrival."""

    @property
    def computed_for(self) -> tuple[LogPlan, ...]:
        """List the logs whose keys and bits are computed of each row; the last ones are for promises only."""
        return (*(each.log for each in self.logs), *(self.promises.logs if self.promises else ()))

    def columns(self) -> list[str]:
        """List the columns a task reads."""
        names = [ROW_TIME, *(self.promises.columns if self.promises else ())]
        for number, task in enumerate(self.logs):
            name, parts = key_names(number, task.log)
            names += [name, *parts, *bit_names(number, task.log)]
        stored = {column for task in self.logs for column in task.log.columns if not is_link_column(column)}
        if self.time_type is not None:
            stored.discard(self.time_column)
        return list(dict.fromkeys([*names, *sorted(stored)]))


@dataclass(slots=True)
class BatchPart:
    """What one task did with its part of a batch, or with a stretch of it."""

    rows: int = 0
    late: int = 0
    no_time: int = 0
    no_key: int = 0
    unwanted: int = 0
    overtaken: int = 0
    punctuations: int = 0
    broken: int = 0
    """Rows that came after a promise that there would be none."""
    dropped: int = 0
    """Rows that were not stored, because promises of their partners leave them nobody to meet."""
    discarded: int = 0
    """Rows that are stored to be joined once, because all their partners are there."""
    newest: int | None = None
    oldest: int | None = None
    oldest_late: int | None = None
    """The oldest event time of its late rows."""
    nulls: bool = False
    """Whether some column had nulls: a file that lacks the column reads like that."""
    segments: dict[str, list[Segment]] = field(default_factory=dict)
    patterns: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """For each log with predicates, how many rows in time had each pattern of bits, also rows that nobody wants."""
    holds: dict[str, list[int]] = field(default_factory=dict)
    """For each log with predicates, how many of them satisfied each one."""
    times: list[Segment] = field(default_factory=list)
    """The files of event times written for the stream's roll."""
    promises: dict[str, PromiseFiles] = field(default_factory=dict)
    """Promises that it makes, by index."""
    own_rows: dict[str, list[Segment]] = field(default_factory=dict)
    """By index: keys and times of its rows, to be held against promises that other tasks find."""
    gone: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By log: the newest event time of rows that are not kept for their window, and how many they are."""
    arrivals: int = 0
    """Positions that were given to rows in the order of arrival."""
    watched: dict[str, BatchWatch] = field(default_factory=dict)
    """By log that a join without a window reads: what its order is like."""

    @property
    def counts(self) -> dict[str, int]:
        """Return what the runner adds up: the rows that were read, punctuations included."""
        return {ROWS: self.rows + self.punctuations}


@dataclass(frozen=True, slots=True)
class IngestTask:
    """Writes the segments of the rows that Spark delivers to one partition of a batch."""

    batch: BatchTask

    def finish(self, files: Files, rows: Iterator[pa.RecordBatch]) -> list[BatchPart]:
        """Write the segments and report on each stretch of rows."""
        return list(run_ingest(files, self.batch, rows))


def ingest_job(stream: str, task: BatchTask) -> Job:
    """Describe the job that ingests a batch."""
    return Job("ingest", f"ingest {stream}, batch {task.batch}")


def run_ingest(files: Files, task: BatchTask, batches: Iterable[pa.RecordBatch]) -> Iterator[BatchPart]:
    """Write the segments of one task's rows, a stretch of bounded bytes after the other, and report on each."""
    chunks = (each.rename_columns(task.columns()) for each in batches if each.num_rows)
    for stretch in gathered(chunks):
        table = pa.Table.from_batches(stretch).combine_chunks()
        yield _ingest(files, task, table)
        if task.arrival:
            task = replace(task, arrival=task.arrival.moved(table.num_rows))


def _ingest(files: Files, task: BatchTask, table: pa.Table) -> BatchPart:
    """Sort out the rows that can join from those that cannot, and write the former to every log."""
    if task.arrival:
        table = with_positions(task.arrival, table, timeless=not task.time_column)
    found = _sorted_out(files, task, table)
    t, timely, part = found.t, found.timely, found.part()
    part.arrivals = table.num_rows if task.arrival else 0
    if found.promises:
        part.promises = found.promises.write(timely, task.batch)
        part.own_rows = found.promises.write_rows(timely, task.batch)
    if timely.any() or task.arrival:
        part.oldest = int(t[timely].min()) if timely.any() else None
        counted = timely if task.horizon is None else timely & (t >= task.horizon)
        part.overtaken = int(timely.sum() - counted.sum()) if task.roll else 0
        for number, each in enumerate(task.logs):
            batch = _Timed(table, t, counted if each.log.counted else timely, found.aside)
            _write_log(files, task, part, number, batch)
        if task.roll and counted.any():
            name = f"log/{task.roll}/waiting-{task.batch:010d}-{uuid.uuid4().hex}.arrow"
            times = write_times(files, name, t[counted], first=task.batch, last=task.batch)
            part.times.append(times)
    return part


@dataclass(frozen=True, slots=True)
class _SortedOut:
    """What the rows of a part are: each is timely, or else one of the other things."""

    table: pa.Table
    t: NDArray[np.int64]
    timely: NDArray[np.bool_]
    late: NDArray[np.bool_]
    broken: NDArray[np.bool_]
    is_promise: NDArray[np.bool_]
    is_nothing: NDArray[np.bool_]
    """Rows of a carrier that are no promises."""
    promises: PartPromises | None = None

    @property
    def aside(self) -> NDArray[np.bool_]:
        """Return the rows of data that are set aside."""
        return ~(self.timely | self.is_promise | self.is_nothing)

    def part(self) -> BatchPart:
        """Count them."""
        timed = self.t[self.timely | self.is_promise | self.is_nothing]
        return BatchPart(
            rows=self.t.size - int(self.is_promise.sum()) - int(self.is_nothing.sum()),
            late=int(self.late.sum()),
            no_time=int((self.t == NO_TIME).sum()),
            broken=int(self.broken.sum()),
            punctuations=int(self.is_promise.sum()),
            newest=int(timed.max()) if timed.size else None,
            oldest_late=int(self.t[self.late].min()) if self.late.any() else None,
            nulls=any(column.null_count for column in self.table.columns),
        )


def _sorted_out(files: Files, task: BatchTask, table: pa.Table) -> _SortedOut:
    """Tell promises from data, and of the data what is in time, too late, or breaks a promise.

    A promise cannot be late: what it says holds all the more.
    """
    t = pc.fill_null(table.column(ROW_TIME), NO_TIME).to_numpy()
    has_time = t != NO_TIME
    none = np.zeros(t.size, np.bool_)
    promises = PartPromises(files, task.promises, table, t, task.key_bits) if task.promises else None
    is_promise = promises.is_promise if promises else none
    is_nothing = has_time & ~is_promise if task.promises and task.promises.carrier else none
    data = has_time & ~is_promise & ~is_nothing
    late = none if task.watermark is None else data & (t < task.watermark)
    broken = promises.broken(data & ~late) if promises else none
    return _SortedOut(table, t, data & ~late & ~broken, late, broken, is_promise, is_nothing, promises)


REASON = "_reason"
"""Why a row is set aside: a column beside those of its stream."""


def reason_name(columns: Iterable[str]) -> str:
    """Name the column of reasons so that no column of the stream has that name.

    >>> reason_name(["k"]), reason_name(["_REASON"])
    ('_reason', '_reason_')
    """
    name, taken = REASON, {each.lower() for each in columns}
    while name in taken:
        name += "_"
    return name


LATE = "late: behind the watermark of its stream"
NO_EVENT_TIME = "no event time"
BROKEN = "broken promise"
"""How the reason of a row begins that breaks a promise."""


def set_aside(files: Files, task: BatchTask, table: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Give the rows of a part that do not count, whole, each with the reason."""
    found = _sorted_out(files, task, table)
    reasons = np.full(found.t.size, None, object)
    reasons[found.late] = LATE
    reasons[found.t == NO_TIME] = NO_EVENT_TIME
    reasons[found.broken] = f"{BROKEN}: its stream had finished with its value"
    kept = pa.array([each is not None for each in reasons])
    why = pa.array(reasons, pa.string())
    return table.select(columns).append_column(reason_name(columns), why).filter(kept)


@dataclass(frozen=True, slots=True)
class _Timed:
    """A part of a batch, the event time of each row, which rows have come in time, and which are set aside."""

    table: pa.Table
    t: NDArray[np.int64]
    timely: NDArray[np.bool_]
    aside: NDArray[np.bool_]


def _write_log(files: Files, task: BatchTask, part: BatchPart, number: int, batch: _Timed) -> None:
    """Write the rows of a batch that can join into one log."""
    log, masks = task.logs[number].log, task.logs[number].masks
    name, key_columns = key_names(number, log)
    keyed = batch.table.column(name).is_valid().to_numpy() & batch.timely
    patterns, pattern = _patterns(batch.table, bit_names(number, log))
    asked_for = np.ones(batch.t.size, np.bool_)
    if pattern is not None:
        asked_for = np.asarray(query_sets(patterns, masks).any(axis=1))[pattern]
        part.patterns[log.id], part.holds[log.id] = _counts(
            patterns, pattern[batch.timely], len(log.predicates)
        )
    wanted = batch.timely & asked_for
    kept = keyed & wanted
    if task.arrival and log.id in task.arrival.halvings:
        values = values_of(batch.table, number, log)
        part.watched[log.id] = watch_log(
            task.arrival,
            task.batch,
            log,
            values,
            timely=batch.timely,
            stored=kept,
            aside=batch.aside & asked_for,
        )
    if number == 0:
        # of a row that nobody wants it is not known whether it has a key, if evaluating that may fail
        asked = batch.timely if log.wanted else keyed
        part.unwanted = int((asked & ~wanted).sum())
        part.no_key = int(batch.timely.sum() - kept.sum()) - part.unwanted
    if not kept.any():
        return
    whole = bool(kept.all())
    rows = batch.table if whole else batch.table.filter(pa.array(kept))
    content = SegmentColumns(
        h=_hashes(rows.column(name), task, log),
        t=batch.t if whole else batch.t[kept],
        pattern=pattern if pattern is None or whole else pattern[kept],
        table=patterns,
        columns=_stored_columns(rows, log, task, key_columns),
        time_columns=_time_columns(log, task),
    )
    if task.logs[number].partner_promises:
        _write_by_door(files, task, part, number, content)
    else:
        _write_rows(files, task, part, number, content)


def _write_by_door(
    files: Files, task: BatchTask, part: BatchPart, number: int, content: SegmentColumns
) -> None:
    """Write the rows of a log apart that are not kept, and leave out those that can meet nobody."""
    log, partner_promises = task.logs[number].log, task.logs[number].partner_promises
    keys = [column for name, column in content.columns.items() if name.startswith(KEY)]
    entering = filter_by_promises(files, partner_promises, content.h, keys, content.t)
    leaving = entering.dropped | entering.discarded
    part.dropped += int(entering.dropped.sum())
    part.discarded += int(entering.discarded.sum())
    if leaving.any():
        part.gone[log.id] = int(content.t[leaving].max()), int(leaving.sum())
    _write_rows(files, task, part, number, content.only(~leaving))
    _write_rows(files, task, part, number, content.only(entering.discarded), ends=entering.ends)


def _write_rows(
    files: Files,
    task: BatchTask,
    part: BatchPart,
    number: int,
    content: SegmentColumns,
    *,
    ends: tuple[tuple[str, int], ...] = (),
) -> None:
    """Write a segment; `ends` say when its rows have met everybody, if that is known."""
    if not content.t.size:
        return
    log = task.logs[number].log
    file = f"log/{log.id}/{task.batch:010d}-{uuid.uuid4().hex}.arrow"
    layout = task.logs[number].layout
    segment = write_segment(files, file, content, first=task.batch, last=task.batch, layout=layout)
    part.segments.setdefault(log.id, []).append(
        replace(segment, ends=ends, finished=segment.rows) if ends else segment
    )


def _hashes(column: pa.ChunkedArray | pa.Array, task: BatchTask, log: LogPlan) -> NDArray[np.uint64]:
    """Give each row its position in the order of keys."""
    keys = column.to_numpy()
    return mix(keys) if log.whole_key else digests(keys, task.key_bits)


def _patterns(table: pa.Table, names: Sequence[str]) -> tuple[Words, NDArray[np.int32] | None]:
    """Find the distinct combinations of predicate bits in the batch."""
    if not names:
        return to_words([0], 0), None
    words = np.stack([table.column(name).to_numpy().view(np.uint64) for name in names], axis=1)
    return find_patterns(words)


def _counts(
    patterns: Words, pattern: NDArray[np.int32], predicates: int
) -> tuple[list[tuple[int, int]], list[int]]:
    """Count the rows of each pattern, the most frequent first, and those that satisfy each predicate."""
    rows = np.bincount(pattern, minlength=len(patterns))
    order = np.argsort(-rows, kind="stable")[: limits.MAX_TRAFFIC_PATTERNS]
    often = [(from_words(patterns[number]), int(rows[number])) for number in order if rows[number]]
    bits = np.unpackbits(patterns.view(np.uint8), axis=1, bitorder="little")[:, :predicates]
    return often, (rows @ bits).tolist()


def _stored_columns(
    rows: pa.Table, log: LogPlan, task: BatchTask, keys: Sequence[str]
) -> dict[str, pa.Array]:
    """Collect the columns to store: the key where it is needed, and what the queries read."""
    stored = {f"{KEY}{number}": _whole(rows, name) for number, name in enumerate(keys)}
    derived = _time_columns(log, task)
    own = [name for name in log.columns if name not in derived and not is_link_column(name)]
    own += {POSITION} & set(log.columns)
    return stored | {name: _whole(rows, name) for name in own} | _link_columns(rows, log, task)


def _link_columns(rows: pa.Table, log: LogPlan, task: BatchTask) -> dict[str, pa.Array]:
    """Collect the other keys of the rows, which are those of the stream's other logs; null where a row has none.

    A log of other readers may evaluate its key for other rows only, if that can fail.
    """
    stored: dict[str, pa.Array] = {}
    for number, other in enumerate(task.logs):
        names = link_columns(other.log.key)
        is_beside = (other.log.owner, other.log.counted) == (log.owner, log.counted)
        if is_beside and names[0] in log.columns and names[0] not in stored:
            name, parts = key_names(number, other.log)
            column = _whole(rows, name)
            hashes = _hashes(column.fill_null(0), task, other.log)
            stored[names[0]] = pa.array(hashes, mask=column.is_null().to_numpy(zero_copy_only=False))
            stored |= zip(names[1:], (_whole(rows, each) for each in parts), strict=True)
    return stored


def _time_columns(log: LogPlan, task: BatchTask) -> dict[str, pa.DataType]:
    """Find the time column if the queries read it and it is a timestamp: then it need not be stored."""
    stored = task.time_type is not None and task.time_column in log.columns
    return {task.time_column: task.time_type} if stored else {}


def _whole(rows: pa.Table, name: str) -> pa.Array:
    """Give a column as one piece of memory."""
    column = rows.column(name)
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
