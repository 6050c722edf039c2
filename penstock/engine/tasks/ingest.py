"""From a micro-batch to segments: the work of one ingest task.

A task gets one partition of a stream's batch as Arrow columns.  It writes one segment per log, sorted by key, or
several of bounded bytes.  There is no shuffle, because a task of the join takes its range of hashes out of
every segment::

    source partition ──▶ separate promises, where the stream makes some ──▶ drop late rows, then rows that break one
                     ──▶ where windows count rows: write the times of all other rows, for the roll
                     ──▶ drop rows without time or key, and rows that no query wants
                     ──▶ sort by (h, t) ──▶ one Arrow file per log ──▶ report to the driver

In:  the columns of `penstock.engine.tasks.ingest_columns`.  Out: a report (`BatchPart`), for the commit.
File names are unique per attempt, so a task may run twice: only the files that the commit names exist for readers.
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
from penstock.engine.tasks.promise_columns import PromiseSpec
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
class LogSpec:
    """A log that the batch is written to, and the predicate bits that each of its queries needs."""

    log: LogPlan
    masks: tuple[int, ...]
    layout: int = 0
    partner_promises: tuple[PartnerPromises, ...] = ()
    """The promises of the partners in all its groups; none if some partner makes none."""


@dataclass(frozen=True, slots=True)
class BatchSpec:
    """What the tasks of a batch have in common: the logs to write, and the watermark."""

    batch: int
    logs: tuple[LogSpec, ...]
    time_column: str
    time_type: pa.DataType | None
    """The Arrow type of the time column if it is a timestamp: then it is `ROW_TIME` with another type."""
    watermark: int | None
    key_bits: int = 64
    """Bits of a digest that are used; fewer than 64 only in tests, for collisions."""
    roll: str = ""
    """The directory for the stream's roll; empty where no window counts its rows."""
    horizon: int | None = None
    """The event time below which windows that count rows have joined everything."""
    promises: PromiseSpec | None = None
    """Set where the stream makes promises, or others make some about it."""
    arrival: Arrival | None = None
    """Set where joins without a window read the stream: one task then gets all rows, in the order of arrival."""

    @property
    def computed_for(self) -> tuple[LogPlan, ...]:
        """List the logs whose keys and bits are computed for each row; the last ones are for promises only."""
        return (*(spec.log for spec in self.logs), *(self.promises.logs if self.promises else ()))

    def columns(self) -> list[str]:
        """List the columns a task reads."""
        names = [ROW_TIME, *(self.promises.columns if self.promises else ())]
        for number, spec in enumerate(self.logs):
            name, parts = key_names(number, spec.log)
            names += [name, *parts, *bit_names(number, spec.log)]
        stored = {column for spec in self.logs for column in spec.log.columns if not is_link_column(column)}
        if self.time_type is not None:
            stored.discard(self.time_column)
        return list(dict.fromkeys([*names, *sorted(stored)]))


@dataclass(slots=True)
class BatchPart:
    """The report on a part of a batch: the rows of one task, or some of them."""

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
    """Rows that were not stored, because their partners have promised that no match will come."""
    discarded: int = 0
    """Rows that are stored for one join only, because all their partners are there."""
    newest: int | None = None
    oldest: int | None = None
    oldest_late: int | None = None
    """The oldest event time of its late rows."""
    nulls: bool = False
    """Whether some column had nulls, as Spark reads a column that a file lacks."""
    segments: dict[str, list[Segment]] = field(default_factory=dict)
    patterns: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """For each log with predicates: the number of rows in time by pattern of bits, unwanted rows included."""
    holds: dict[str, list[int]] = field(default_factory=dict)
    """For each log with predicates: the number of these rows that satisfied each predicate."""
    times: list[Segment] = field(default_factory=list)
    """The files of event times written for the stream's roll."""
    promises: dict[str, PromiseFiles] = field(default_factory=dict)
    """The promises of its rows, by index."""
    own_rows: dict[str, list[Segment]] = field(default_factory=dict)
    """By index: keys and times of its rows, to be checked against the promises of other tasks."""
    gone: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By log: the newest event time of rows that are not kept for their window, and their number."""
    arrivals: int = 0
    """Positions that were given to rows in the order of arrival."""
    watched: dict[str, BatchWatch] = field(default_factory=dict)
    """By log that a join without a window reads: the order of its values."""

    @property
    def counts(self) -> dict[str, int]:
        """Return the counts for the runner's accumulators: rows that were read, punctuations included."""
        return {ROWS: self.rows + self.punctuations}


@dataclass(frozen=True, slots=True)
class IngestTask:
    """Writes the segments of the rows that Spark delivers to one partition of a batch."""

    batch: BatchSpec

    def finish(self, files: Files, rows: Iterator[pa.RecordBatch]) -> list[BatchPart]:
        """Write the segments and return a report for each part."""
        return list(run_ingest(files, self.batch, rows))


def ingest_job(stream: str, spec: BatchSpec) -> Job:
    """Describe the job that ingests a batch."""
    return Job("ingest", f"ingest {stream}, batch {spec.batch}")


def run_ingest(files: Files, spec: BatchSpec, batches: Iterable[pa.RecordBatch]) -> Iterator[BatchPart]:
    """Write the segments of one task's rows, in parts of bounded bytes, and yield a report for each."""
    chunks = (batch.rename_columns(spec.columns()) for batch in batches if batch.num_rows)
    for some in gathered(chunks):
        table = pa.Table.from_batches(some).combine_chunks()
        yield _ingest(files, spec, table)
        if spec.arrival:
            spec = replace(spec, arrival=spec.arrival.moved(table.num_rows))


def _ingest(files: Files, spec: BatchSpec, table: pa.Table) -> BatchPart:
    """Write the rows that can join to every log, and the promises of the others."""
    if spec.arrival:
        table = with_positions(spec.arrival, table, timeless=not spec.time_column)
    rows = _sorted_out(files, spec, table)
    t, timely, part = rows.t, rows.timely, rows.part()
    part.arrivals = table.num_rows if spec.arrival else 0
    if rows.promises:
        part.promises = rows.promises.write(timely, spec.batch)
        part.own_rows = rows.promises.write_rows(timely, spec.batch)
    if timely.any() or spec.arrival:
        part.oldest = int(t[timely].min()) if timely.any() else None
        counted = timely if spec.horizon is None else timely & (t >= spec.horizon)
        part.overtaken = int(timely.sum() - counted.sum()) if spec.roll else 0
        for number, log_spec in enumerate(spec.logs):
            in_time = counted if log_spec.log.counted else timely
            _LogWriter(files, spec, part, number).write(rows, in_time)
        if spec.roll and counted.any():
            name = f"log/{spec.roll}/waiting-{spec.batch:010d}-{uuid.uuid4().hex}.arrow"
            times = write_times(files, name, t[counted], first=spec.batch, last=spec.batch)
            part.times.append(times)
    return part


@dataclass(frozen=True, slots=True)
class _SortedOut:
    """The rows of a part by what they are: in time, late, in breach of a promise, or a promise."""

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
        """Return which rows of data are set aside."""
        return ~(self.timely | self.is_promise | self.is_nothing)

    def part(self) -> BatchPart:
        """Begin a report with the counts of the rows."""
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


def _sorted_out(files: Files, spec: BatchSpec, table: pa.Table) -> _SortedOut:
    """Separate promises from data, and find the rows of data that are late or break a promise.

    A promise cannot be late: it holds at the watermark too.
    """
    t = pc.fill_null(table.column(ROW_TIME), NO_TIME).to_numpy()
    has_time = t != NO_TIME
    none = np.zeros(t.size, np.bool_)
    promises = PartPromises(files, spec.promises, table, t, spec.key_bits) if spec.promises else None
    is_promise = promises.is_promise if promises else none
    is_nothing = has_time & ~is_promise if spec.promises and spec.promises.carrier else none
    data = has_time & ~is_promise & ~is_nothing
    late = none if spec.watermark is None else data & (t < spec.watermark)
    broken = promises.broken(data & ~late) if promises else none
    return _SortedOut(table, t, data & ~late & ~broken, late, broken, is_promise, is_nothing, promises)


REASON = "_reason"
"""The column of the dead letters that says why a row is set aside."""


def reason_name(columns: Iterable[str]) -> str:
    """Name the column of reasons so that no column of the stream has that name.

    >>> reason_name(["k"]), reason_name(["_REASON"])
    ('_reason', '_reason_')
    """
    name, taken = REASON, {column.lower() for column in columns}
    while name in taken:
        name += "_"
    return name


LATE = "late: behind the watermark of its stream"
NO_EVENT_TIME = "no event time"
BROKEN = "broken promise"
"""The reason begins like this for a row that breaks a promise."""


def set_aside(files: Files, spec: BatchSpec, table: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Return the rows of a part that are set aside, whole, each with the reason."""
    rows = _sorted_out(files, spec, table)
    reasons = np.full(rows.t.size, None, object)
    reasons[rows.late] = LATE
    reasons[rows.t == NO_TIME] = NO_EVENT_TIME
    reasons[rows.broken] = f"{BROKEN}: its stream had finished with its value"
    column = pa.array(reasons, pa.string())
    return table.select(columns).append_column(reason_name(columns), column).filter(column.is_valid())


@dataclass(frozen=True, slots=True)
class _LogWriter:
    """Writes the rows of a part of a batch into one of its logs."""

    files: Files
    spec: BatchSpec
    part: BatchPart
    number: int

    @property
    def _own(self) -> LogSpec:
        return self.spec.logs[self.number]

    def write(self, rows: _SortedOut, timely: NDArray[np.bool_]) -> None:
        """Write the rows that are in time, have a key and are wanted."""
        log, part = self._own.log, self.part
        name, key_columns = key_names(self.number, log)
        keyed = rows.table.column(name).is_valid().to_numpy() & timely
        patterns, pattern = _patterns(rows.table, bit_names(self.number, log))
        asked_for = np.ones(rows.t.size, np.bool_)
        if pattern is not None:
            asked_for = np.asarray(query_sets(patterns, self._own.masks).any(axis=1))[pattern]
            counts = _counts(patterns, pattern[timely], len(log.predicates))
            part.patterns[log.id], part.holds[log.id] = counts
        wanted = timely & asked_for
        kept = keyed & wanted
        arrival = self.spec.arrival
        if arrival and log.id in arrival.halvings:
            values = values_of(rows.table, self.number, log)
            aside = rows.aside & asked_for
            part.watched[log.id] = watch_log(
                arrival, self.spec.batch, log, values, timely=timely, stored=kept, aside=aside
            )
        if self.number == 0:
            # an unwanted row may have no key because its key was not evaluated: evaluating it may fail
            asked = timely if log.wanted else keyed
            part.unwanted = int((asked & ~wanted).sum())
            part.no_key = int(timely.sum() - kept.sum()) - part.unwanted
        if not kept.any():
            return
        whole = bool(kept.all())
        stored = rows.table if whole else rows.table.filter(pa.array(kept))
        content = SegmentColumns(
            h=self._hashes(stored.column(name), log),
            t=rows.t if whole else rows.t[kept],
            pattern=pattern if pattern is None or whole else pattern[kept],
            table=patterns,
            columns=self._stored_columns(stored, key_columns),
            time_columns=self._time_columns(),
        )
        if self._own.partner_promises:
            self._write_by_promises(content)
        else:
            self._write_segment(content)

    def _write_by_promises(self, content: SegmentColumns) -> None:
        """Drop rows by the promises of partners, and write those that are joined once as a segment of their own."""
        keys = [column for name, column in content.columns.items() if name.startswith(KEY)]
        partners = self._own.partner_promises
        entering = filter_by_promises(self.files, partners, content.h, keys, content.t)
        leaving = entering.dropped | entering.discarded
        if leaving.any():
            self.part.dropped += int(entering.dropped.sum())
            self.part.discarded += int(entering.discarded.sum())
            self.part.gone[self._own.log.id] = int(content.t[leaving].max()), int(leaving.sum())
        self._write_segment(content.only(~leaving))
        self._write_segment(content.only(entering.discarded), ends=entering.ends)

    def _write_segment(self, content: SegmentColumns, ends: tuple[tuple[str, int], ...] = ()) -> None:
        """Write a segment; `ends` are the watermarks at which its rows have met all partners, if they are known."""
        if not content.t.size:
            return
        batch, log = self.spec.batch, self._own.log.id
        file = f"log/{log}/{batch:010d}-{uuid.uuid4().hex}.arrow"
        segment = write_segment(self.files, file, content, first=batch, last=batch, layout=self._own.layout)
        if ends:
            segment = replace(segment, ends=ends, finished=segment.rows)
        self.part.segments.setdefault(log, []).append(segment)

    def _hashes(self, column: pa.ChunkedArray | pa.Array, log: LogPlan) -> NDArray[np.uint64]:
        """Return the position of each row in the order of a log's keys."""
        keys = column.to_numpy()
        return mix(keys) if log.whole_key else digests(keys, self.spec.key_bits)

    def _stored_columns(self, rows: pa.Table, keys: Sequence[str]) -> dict[str, pa.Array]:
        """Return the parts of the key where they are needed, the columns that queries read, and the keys of links."""
        log, derived = self._own.log, self._time_columns()
        stored = {f"{KEY}{number}": _whole(rows, name) for number, name in enumerate(keys)}
        own = [name for name in log.columns if name not in derived and not is_link_column(name)]
        own += {POSITION} & set(log.columns)
        return stored | {name: _whole(rows, name) for name in own} | self._link_columns(rows)

    def _link_columns(self, rows: pa.Table) -> dict[str, pa.Array]:
        """Return the hashes and keys of the rows by the stream's other logs; null where a row has none.

        Logs of other queries are left out: a key that may fail is evaluated only for rows that its queries want.
        """
        log, stored = self._own.log, dict[str, pa.Array]()
        for number, other in enumerate(self.spec.logs):
            names = link_columns(other.log.key)
            is_beside = (other.log.owner, other.log.counted) == (log.owner, log.counted)
            if is_beside and names[0] in log.columns and names[0] not in stored:
                name, parts = key_names(number, other.log)
                column = _whole(rows, name)
                hashes = self._hashes(column.fill_null(0), other.log)
                stored[names[0]] = pa.array(hashes, mask=column.is_null().to_numpy(zero_copy_only=False))
                stored |= zip(names[1:], (_whole(rows, key) for key in parts), strict=True)
        return stored

    def _time_columns(self) -> dict[str, pa.DataType]:
        """Return the time column if queries read it and it is a timestamp: then it is not stored a second time."""
        spec = self.spec
        stored = spec.time_type is not None and spec.time_column in self._own.log.columns
        return {spec.time_column: spec.time_type} if stored else {}


def _patterns(table: pa.Table, names: Sequence[str]) -> tuple[Words, NDArray[np.int32] | None]:
    """Return the distinct combinations of predicate bits, and the number of that of each row."""
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


def _whole(rows: pa.Table, name: str) -> pa.Array:
    """Return a column as one array."""
    column = rows.column(name)
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
