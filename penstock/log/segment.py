"""A segment: an immutable file of one stream's rows, sorted by ``(h, t)``, and what is known of it unopened.

The file is Arrow IPC with a single record batch, so that mapping it gives every column without reading or copying;
a probe touches the pages it lands on and no others.  Columns:

    penstock.h   uint64   hash of the join key: the sort order, then
    penstock.t   int64    event time, microseconds
    penstock.p   int32    place in the table of patterns (absent where the stream has no predicates)
    penstock.k0… any      the key itself, where the hash does not hold all of it
    the stored columns    under their own names

The table of patterns, and the time column (which is `penstock.t` under another type and so is not stored twice),
are in the schema's metadata.

In:  columns in any order of rows (`write_segment` sorts).  Out: `Segment`, what the journal remembers, and
`SegmentRows`, what a probe reads.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.join.order import sort_rows
from penstock.join.probe import Rows
from penstock.join.sets import from_words, to_words
from penstock.log.checksum import map_whole, summed_writer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from penstock.join.keys import Hashes, Ints
    from penstock.join.sets import Words
    from penstock.log.checksum import Kept
    from penstock.log.files import Files

HASH, TIME, PATTERN, KEY = "penstock.h", "penstock.t", "penstock.p", "penstock.k"
_META = b"penstock"

MOST_PATTERNS = 64
"""Patterns counted one by one in a segment's statistics; beyond that, only their total is."""


@dataclass(frozen=True, slots=True)
class PatternCount:
    """How many rows of a segment have a pattern of predicate bits, and between which event times."""

    bits: int
    rows: int
    min_t: int
    max_t: int


@dataclass(frozen=True, slots=True)
class Segment:
    """What the journal knows of a segment: where it is, what batches it came from, what it holds.

    It covers the stream's batches ``first .. last`` (inclusive).  `generation` counts merges.  `patterns` is empty
    where there are too many to count.
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
    """Which of its log's layouts it was written by: what columns it has, and what its predicate bits mean."""
    arrived: float = 0.0
    """When Spark handed its batch over, in seconds since the epoch; 0 for a merged one, whose pairs are all found."""
    checksum: int | None = None
    """Of the file's bytes (`penstock.log.checksum`); None for one of an earlier version."""

    def rows_between(self, first: int, last: int) -> int:
        """Say about how many rows have a time from first to last: as many as these times are of all its times."""
        since, until = max(first, self.min_t), min(last, self.max_t)
        if (since, until) == (self.min_t, self.max_t):
            return self.rows
        share = (until - since + 1) / (self.max_t - self.min_t + 1)
        return max(1, round(self.rows * share)) if since <= until else 0

    def to_json(self) -> dict[str, Any]:
        """Write as a JSON object."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Segment:
        """Read what `to_json` wrote."""
        counts = tuple(PatternCount(**each) for each in data["patterns"])
        return cls(**{**data, "patterns": counts})


@dataclass(frozen=True, slots=True)
class SegmentColumns:
    """Rows on their way into a segment, in any order."""

    h: Hashes
    t: Ints
    pattern: NDArray[np.int32] | None
    table: Words
    columns: Mapping[str, pa.Array]
    time_columns: Mapping[str, pa.DataType]


@dataclass(frozen=True, slots=True)
class SegmentRows:
    """A mapped segment: the sort columns for the probe, all columns for the output."""

    rows: Rows
    table: Words
    batch: pa.RecordBatch
    time_columns: Mapping[str, pa.DataType]

    def column(self, name: str) -> pa.Array:
        """Give a stored column by name; the time column is a view of the sort column."""
        if name in self.time_columns:
            return self.batch.column(TIME).view(self.time_columns[name])
        return self.batch.column(name)

    def has(self, name: str) -> bool:
        """Say whether the segment has a column."""
        return name in self.time_columns or name in self.batch.schema.names

    def keys(self) -> list[pa.Array]:
        """List the key columns, empty where the hash is the whole key."""
        return [
            self.batch.column(place)
            for place, name in enumerate(self.batch.schema.names)
            if name.startswith(KEY)
        ]


def write_segment(
    files: Files, name: str, content: SegmentColumns, *, first: int, last: int, layout: int = 0
) -> Segment:
    """Sort rows, write them as a segment file, and say what it holds."""
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
    )


def _record_batch(content: SegmentColumns, order: Ints) -> pa.RecordBatch:
    """Lay the sorted columns side by side, with the pattern table in the metadata."""
    arrays: dict[str, pa.Array] = {HASH: pa.array(content.h[order]), TIME: pa.array(content.t[order])}
    if content.pattern is not None:
        arrays[PATTERN] = pa.array(content.pattern[order])
    places = pa.array(order)
    arrays |= {name: column.take(places) for name, column in content.columns.items()}
    meta = {
        "patterns": content.table.tolist(),
        "time": {name: [kind.unit, kind.tz] for name, kind in content.time_columns.items()},
    }
    return pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays)).replace_schema_metadata(
        {_META: json.dumps(meta)}
    )


def _count_patterns(t: Ints, pattern: NDArray[np.int32] | None, table: Words) -> tuple[PatternCount, ...]:
    """Count the rows of each pattern, unless there are too many patterns."""
    if pattern is None:
        return (PatternCount(0, t.size, int(t.min()), int(t.max())),)
    present = np.unique(pattern)
    if present.size > MOST_PATTERNS:
        return ()
    counts = []
    for place in present:
        mine = t[pattern == place]
        bits = from_words(table[place])
        counts.append(PatternCount(bits, mine.size, int(mine.min()), int(mine.max())))
    return tuple(counts)


def read_segment(files: Files, segment: Kept) -> SegmentRows:
    """Map a segment; once it was checked, nothing is read until a column is touched."""
    batch = pa.ipc.open_file(map_whole(files, segment)).get_batch(0)
    meta = json.loads(batch.schema.metadata[_META])
    names = batch.schema.names
    pattern = batch.column(PATTERN).to_numpy() if PATTERN in names else None
    rows = Rows(batch.column(HASH).to_numpy(), batch.column(TIME).to_numpy(), pattern)
    table = np.array(meta["patterns"], np.uint64) if meta["patterns"] else to_words([0], 0)
    kinds = {column: pa.timestamp(unit, tz) for column, (unit, tz) in meta["time"].items()}
    return SegmentRows(rows, table, batch, kinds)


def concat_segments(parts: Sequence[SegmentRows]) -> SegmentColumns:
    """Lay the rows of several segments of one log end to end, under one table of patterns."""
    batches = pa.concat_batches([part.batch for part in parts])
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
        time_columns=parts[0].time_columns,
    )


def _join_tables(parts: Sequence[SegmentRows]) -> tuple[NDArray[np.int32] | None, Words]:
    """Renumber the patterns of several segments into one table."""
    if parts[0].rows.pattern is None:
        return None, parts[0].table
    table, place = np.unique(np.concatenate([part.table for part in parts]), axis=0, return_inverse=True)
    place = place.reshape(-1)
    renumbered, offset = [], 0
    for part in parts:
        numbers = place[offset : offset + len(part.table)]
        renumbered.append(numbers[part.rows.pattern].astype(np.int32))
        offset += len(part.table)
    return np.concatenate(renumbered), table
