"""A segment: an immutable file of one stream's rows, sorted by ``(h, t)``, and its statistics.

The file is Arrow IPC with a single record batch, so a map of it has every column without reading or copying; a probe
reads only the pages that it touches.  Columns:

    penstock.h   uint64   hash of the join key: the sort order, then
    penstock.t   int64    event time, microseconds
    penstock.p   int32    number in the table of patterns (absent where the stream has no predicates)
    penstock.k0… any      the key itself, if the hash is a digest
    penstock.position     int64, the position in the order of arrival, if joins without a window read a stream that
                          has event times
    the stored columns    under their own names

The schema's metadata has the table of patterns, and the type of the time column, which is stored only as `penstock.t`.

In:  columns in any order of rows (`write_segment` sorts).
Out: `Segment`, the journal's entry for a file, and `SegmentRows`, its mapped columns.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock import limits
from penstock.kernels.key_hash import unmixed
from penstock.kernels.ordered_values import nearest_ordered
from penstock.kernels.probe import Rows
from penstock.kernels.sets import from_words, to_words
from penstock.kernels.sorting import sort_rows
from penstock.plan.links import POSITION
from penstock.state.checksum import map_whole, summed_writer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from penstock.kernels.key_hash import Hashes, Ints
    from penstock.kernels.sets import Words
    from penstock.state.checksum import JournaledFile
    from penstock.state.files import Files

HASH, TIME, PATTERN, KEY = "penstock.h", "penstock.t", "penstock.p", "penstock.k"
_METADATA_KEY = b"penstock"


@dataclass(frozen=True, slots=True)
class PatternCount:
    """The rows of a segment with one pattern of predicate bits: their number, and their event times.

    `times` are those of rows at even ranks, oldest first, in microseconds after `min_t`; of every row if there are few.
    """

    bits: int
    rows: int
    min_t: int
    max_t: int
    times: tuple[int, ...] = ()

    def rows_after(self, time: int) -> float:
        """Return the number of rows younger than an event time: exact if all times are known, else an estimate."""
        since = time - self.min_t
        if since < 0:
            return float(self.rows)
        if since >= self.max_t - self.min_t:
            return 0.0
        if len(self.times) == self.rows:
            return float(self.rows - bisect_right(self.times, since))
        times = self.times or (0, self.max_t - self.min_t)
        later = bisect_right(times, since)  # the first and the last time are those of all rows
        share = (since - times[later - 1]) / (times[later] - times[later - 1])
        return self.rows * (1 - (later - 1 + share) / (len(times) - 1))


@dataclass(frozen=True, slots=True)
class Segment:
    """The journal's entry for a segment: its name, its batches, and statistics of its rows.

    It has rows of the stream's batches ``first .. last`` (inclusive).  `generation` is the number of merges.
    `patterns` is empty if there are too many to count.
    """

    name: str
    first: int
    last: int
    rows: int
    min_t: int
    max_t: int
    bytes: int
    generation: int = 0
    patterns: tuple[PatternCount, ...] = ()
    layout: int = 0
    """The layout of its log with its columns and the meaning of its predicate bits."""
    arrived: float = 0.0
    """When Spark started its batch, in seconds since the epoch; 0 for a merged segment, whose rows are all joined."""
    checksum: int | None = None
    """Of the file's bytes (`penstock.state.checksum`)."""
    finished: int = 0
    """Rows that promises of their partners have made useless, by the last check."""
    ends: tuple[tuple[str, int], ...] = ()
    """By partner: the watermark at which no row of this segment is needed; only if known when it was written."""
    newest: int | None = None
    """The last position of its rows in the order of arrival, if positions are stored."""

    def bare(self) -> Segment:
        """Remove the statistics, which tasks do not need."""
        return replace(self, patterns=())

    def rows_between(self, first: int, last: int) -> int:
        """Estimate the number of rows with a time from first to last, assuming uniform times."""
        since, until = max(first, self.min_t), min(last, self.max_t)
        if (since, until) == (self.min_t, self.max_t):
            return self.rows
        share = (until - since + 1) / (self.max_t - self.min_t + 1)
        return max(1, round(self.rows * share)) if since <= until else 0


@dataclass(frozen=True, slots=True)
class SegmentColumns:
    """Rows to be written as a segment, in any order."""

    h: Hashes
    t: Ints
    pattern: NDArray[np.int32] | None
    table: Words
    columns: Mapping[str, pa.Array]
    time_columns: Mapping[str, pa.DataType]

    def only(self, rows: NDArray[np.bool_]) -> SegmentColumns:
        """Return some of the rows."""
        if rows.all():
            return self
        return replace(
            self,
            h=self.h[rows],
            t=self.t[rows],
            pattern=None if self.pattern is None else self.pattern[rows],
            columns={name: column.filter(pa.array(rows)) for name, column in self.columns.items()},
        )


@dataclass(frozen=True, slots=True)
class SegmentRows:
    """A mapped segment: sort columns for the probe, all columns for the output."""

    rows: Rows
    table: Words
    batch: pa.RecordBatch
    time_columns: Mapping[str, pa.DataType]

    def column(self, name: str) -> pa.Array:
        """Return a stored column by name; the time column is a view of the sort column."""
        if name in self.time_columns:
            return self.batch.column(TIME).view(self.time_columns[name])
        return self.batch.column(name)

    def has(self, name: str) -> bool:
        """Return whether the segment has a column."""
        return name in self.time_columns or name in self.batch.schema.names

    def keys(self) -> list[pa.Array]:
        """Return the key columns, none if the hash is the whole key."""
        return [
            self.batch.column(index)
            for index, name in enumerate(self.batch.schema.names)
            if name.startswith(KEY)
        ]

    def ordered(self, rows: Ints) -> Ints:
        """Return the key of some rows as integers in its order; for a key of one ordered part."""
        keys = self.keys()
        return nearest_ordered(keys[0].take(pa.array(rows))) if keys else unmixed(self.rows.h[rows])


def write_segment(
    files: Files, name: str, content: SegmentColumns, *, first: int, last: int, layout: int = 0
) -> Segment:
    """Sort rows, write them as a segment file, and return its entry."""
    order = sort_rows(content.h, content.t)
    return write_ordered(files, name, content, order, first=first, last=last, layout=layout)


def write_ordered(
    files: Files,
    name: str,
    content: SegmentColumns,
    order: Ints,
    *,
    first: int,
    last: int,
    generation: int = 0,
    layout: int = 0,
) -> Segment:
    """Write rows in a given order (a permutation, or a selection of one)."""
    batch = _record_batch(content, order)
    with summed_writer(files, name) as sink, pa.ipc.new_file(sink, batch.schema) as out:
        out.write_batch(batch)
    t = content.t[order]
    pattern = None if content.pattern is None else content.pattern[order]
    return Segment(
        name=name,
        first=first,
        last=last,
        rows=batch.num_rows,
        min_t=int(t.min()),
        max_t=int(t.max()),
        bytes=batch.nbytes,
        generation=generation,
        patterns=_count_patterns(t, pattern, content.table),
        layout=layout,
        checksum=sink.checksum,
        newest=_newest(content, order),
    )


def _newest(content: SegmentColumns, order: Ints) -> int | None:
    if POSITION not in content.columns:
        return None
    return int(content.columns[POSITION].to_numpy()[order].max())


def _record_batch(content: SegmentColumns, order: Ints) -> pa.RecordBatch:
    arrays: dict[str, pa.Array] = {HASH: pa.array(content.h[order]), TIME: pa.array(content.t[order])}
    if content.pattern is not None:
        arrays[PATTERN] = pa.array(content.pattern[order])
    rows = pa.array(order)
    arrays |= {name: column.take(rows) for name, column in content.columns.items()}
    meta = {
        "patterns": content.table.tolist(),
        "time": {name: [kind.unit, kind.tz] for name, kind in content.time_columns.items()},
    }
    return pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays)).replace_schema_metadata(
        {_METADATA_KEY: json.dumps(meta)}
    )


def _count_patterns(t: Ints, pattern: NDArray[np.int32] | None, table: Words) -> tuple[PatternCount, ...]:
    """Count the rows of each pattern; nothing if there are too many patterns."""
    if pattern is None:
        return (_count_pattern(0, t, t.size),)
    present = np.unique(pattern)
    if present.size > limits.MAX_SEGMENT_PATTERNS:
        return ()
    return tuple(
        _count_pattern(from_words(table[number]), t[pattern == number], t.size) for number in present
    )


def _count_pattern(bits: int, t: Ints, segment_rows: int) -> PatternCount:
    oldest, newest = int(t.min()), int(t.max())
    ordered = np.sort(t if t.size <= limits.MAX_SAMPLED_TIMES else t[_spread(t.size)])
    ordered[0], ordered[-1] = oldest, newest  # the ends are those of all rows
    share = max(2, round(limits.MAX_PATTERN_TIMES * t.size / segment_rows))
    most = ordered.size if segment_rows <= limits.MAX_ROWS_WITH_ALL_TIMES else share
    ranks = np.linspace(0, ordered.size - 1, min(most, ordered.size)).round().astype(np.int64)
    return PatternCount(bits, t.size, oldest, newest, tuple((ordered[ranks] - oldest).tolist()))


def _spread(rows: int) -> Ints:
    """Choose rows in golden steps, because even steps would be biased by runs of one key."""
    step = int(rows * 0.6180339887) | 1
    return np.arange(limits.MAX_SAMPLED_TIMES, dtype=np.int64) * step % rows


def read_segment(files: Files, segment: JournaledFile) -> SegmentRows:
    """Map a segment; once it is checked, no column is read before its first use."""
    batch = pa.ipc.open_file(map_whole(files, segment)).get_batch(0)
    meta = json.loads(batch.schema.metadata[_METADATA_KEY])
    names = batch.schema.names
    pattern = batch.column(PATTERN).to_numpy() if PATTERN in names else None
    rows = Rows(batch.column(HASH).to_numpy(), batch.column(TIME).to_numpy(), pattern)
    table = np.array(meta["patterns"], np.uint64) if meta["patterns"] else to_words([0], 0)
    kinds = {column: pa.timestamp(unit, tz) for column, (unit, tz) in meta["time"].items()}
    return SegmentRows(rows, table, batch, kinds)


def concat_segments(parts: Sequence[SegmentRows]) -> SegmentColumns:
    """Concatenate the rows of several segments of one log, with one table of patterns.

    A segment with a new layout may have more columns than the others; they are left out.
    """
    names = [
        name for name in parts[0].batch.schema.names if all(name in part.batch.schema.names for part in parts)
    ]
    batches = pa.concat_batches([part.batch.select(names) for part in parts])
    stored = {
        name: batches.column(name) for name in batches.schema.names if name not in {HASH, TIME, PATTERN}
    }
    pattern, table = _join_tables(parts)
    return SegmentColumns(
        h=batches.column(HASH).to_numpy(),
        t=batches.column(TIME).to_numpy(),
        pattern=pattern,
        table=table,
        columns=stored,
        time_columns={
            name: kind
            for name, kind in parts[0].time_columns.items()
            if all(name in part.time_columns for part in parts)
        },
    )


def _join_tables(parts: Sequence[SegmentRows]) -> tuple[NDArray[np.int32] | None, Words]:
    """Renumber the patterns of several segments into one table."""
    if parts[0].rows.pattern is None:
        return None, parts[0].table
    table, number = np.unique(np.concatenate([part.table for part in parts]), axis=0, return_inverse=True)
    number = number.reshape(-1)
    renumbered, offset = [], 0
    for part in parts:
        own_numbers = number[offset : offset + len(part.table)]
        renumbered.append(own_numbers[part.rows.pattern].astype(np.int32))
        offset += len(part.table)
    return np.concatenate(renumbered), table
