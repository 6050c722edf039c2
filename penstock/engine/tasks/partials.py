"""Partial results of a join of many streams: row numbers of the inputs bound so far, one array per input.

Each step binds one more input.  Its partials hold the number of the partial that each extends, and the row that was
found.  Rows of earlier inputs are looked up through the earlier steps, on demand::

    driver rows      0  1  2                    input 0: segment and row of each
    step to 2        0  0  2                    extends 0, 0, 2            input 2: segment and row
    step to 1        0  1  1  2                 extends 0, 1, 1, 2         input 1: segment and row
    row of input 0 of the last: driver row [0, 0, 0, 2]

In:  the rows that a probe finds.  Out: times, hashes and columns of any bound input.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pyarrow as pa

from penstock.kernels.width import row_widths

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from penstock.kernels.key_hash import Hashes, Ints
    from penstock.state.segment import SegmentRows

_Number = TypeVar("_Number", bound=np.generic)


@dataclass(frozen=True, slots=True)
class BoundRows:
    """Rows of one input, each by the number of its segment and its number there."""

    segments: Sequence[SegmentRows]
    segment: NDArray[np.int16]
    row: Ints

    def only(self, these: Ints) -> BoundRows:
        """Select some rows, in any order."""
        return BoundRows(self.segments, self.segment[these], self.row[these])

    def times(self) -> Ints:
        """Return their event times."""
        return self._numbers([segment.rows.t for segment in self.segments])

    def hashes(self, name: str) -> tuple[Hashes, NDArray[np.bool_]]:
        """Return their hashes by the key of their log, or from a column; and which rows have one."""
        if not name:
            return self._numbers([segment.rows.h for segment in self.segments]), np.ones(
                self.row.size, np.bool_
            )
        column = self.column(name, pa.uint64(), None)
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        return column.fill_null(0).to_numpy(zero_copy_only=False), valid

    def _numbers(self, columns: Sequence[NDArray[_Number]]) -> NDArray[_Number]:
        if len(columns) == 1:
            return columns[0][self.row]
        found = np.empty(self.row.size, columns[0].dtype)
        for number, here in self._by_segment():
            found[here] = columns[number][self.row[here]]
        return found

    def _by_segment(self) -> Iterator[tuple[int, slice | NDArray[np.bool_]]]:
        """Yield the number of each segment with its rows; those of one segment are mostly neighbours."""
        changes = np.flatnonzero(np.diff(self.segment)) + 1
        if changes.size < len(self.segments):
            ends = [0, *changes.tolist(), self.segment.size]
            yield from (
                (int(self.segment[first]), slice(first, last))
                for first, last in pairwise(ends)
                if first < last
            )
            return
        for number in np.flatnonzero(np.bincount(self.segment)).tolist():
            yield number, self.segment == number

    def sets(self, tables: Sequence[NDArray[np.uint64]]) -> NDArray[np.uint64]:
        """Return the set of queries that accept each row; `tables` are by segment and pattern."""
        found = np.empty((self.row.size, tables[0].shape[1]), np.uint64)
        for number, here in self._by_segment():
            pattern = self.segments[number].rows.pattern
            found[here] = tables[number][0] if pattern is None else tables[number][pattern[self.row[here]]]
        return found

    def column(self, name: str, kind: pa.DataType, rows: Ints | None) -> pa.Array:
        """Return a column of all rows, or of some; nulls where it is not stored."""
        chosen = self if rows is None else self.only(rows)
        present = np.flatnonzero(np.bincount(chosen.segment)).tolist()
        if not present:
            return pa.nulls(0, kind)
        if len(present) == 1:
            return _taken(self.segments[present[0]], name, kind, chosen.row)
        order = np.argsort(chosen.segment, kind="stable")
        ends = np.searchsorted(chosen.segment[order], present, "right")
        parts = np.split(chosen.row[order], ends[:-1])
        pieces = [
            _taken(self.segments[number], name, kind, part)
            for number, part in zip(present, parts, strict=True)
        ]
        back = np.empty(order.size, np.int64)
        back[order] = np.arange(order.size)
        return _whole(pieces).take(pa.array(back))

    def widths(self, names: Sequence[str]) -> int | NDArray[np.int64]:
        """Return the bytes that some columns of each row have: one number where all rows have the same."""
        found: int | NDArray[np.int64] = 0
        for number, here in self._by_segment():
            segment, rows = self.segments[number], self.row[here]
            widths = row_widths([segment.column(name) for name in names if segment.has(name)], rows)
            if isinstance(widths, int) and (isinstance(found, int) or len(self.segments) == 1):
                found = max(found, widths) if isinstance(found, int) else found
                continue
            if isinstance(found, int):
                found = np.full(self.row.size, found, np.int64)
            found[here] = widths
        return found


def _taken(segment: SegmentRows, name: str, kind: pa.DataType, rows: Ints) -> pa.Array:
    if not segment.has(name):
        return pa.nulls(rows.size, kind)
    return segment.column(name).take(pa.array(rows))


def _whole(pieces: Sequence[pa.Array]) -> pa.Array:
    """Concatenate arrays; if they do not fit one array of their type, into one of the large type."""
    together = pa.chunked_array(pieces).combine_chunks()
    return together if isinstance(together, pa.Array) else pa.concat_arrays(together.chunks)


@dataclass(slots=True)
class Partials:
    """Partial results: the rows of the input bound last, and the partials that they extend."""

    input: int
    rows: BoundRows
    before: Partials | None = None
    extends: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    """For each, the number of the partial in `before` that it extends."""
    sets: NDArray[np.uint64] | None = None
    """The queries that accept all rows so far; None where every query accepts every row."""
    _times: dict[int, Ints] = field(default_factory=dict)
    _ends: tuple[Ints, Ints] | None = None

    def __len__(self) -> int:
        """Count them."""
        return self.rows.row.size

    @property
    def bound(self) -> tuple[int, ...]:
        """List the inputs that have a row, in the order of the steps."""
        return (*(self.before.bound if self.before else ()), self.input)

    def only(self, these: Ints) -> Partials:
        """Select some partials."""
        extends = self.extends[these] if self.before else self.extends
        sets = None if self.sets is None else self.sets[these]
        times = {number: known[these] for number, known in self._times.items()}
        ends = None if self._ends is None else (self._ends[0][these], self._ends[1][these])
        return Partials(self.input, self.rows.only(these), self.before, extends, sets, times, ends)

    def of(self, number: int) -> BoundRows:
        """Return the row of one input in each partial."""
        if number == self.input or self.before is None:
            return self.rows
        return self.before.of(number).only(self.extends)

    def times(self, number: int) -> Ints:
        """Return the event time of one input's row in each partial."""
        if number not in self._times:
            if number == self.input or self.before is None:
                self._times[number] = self.rows.times()
            else:
                self._times[number] = self.before.times(number)[self.extends]
        return self._times[number]

    def hashes(self, number: int, name: str) -> tuple[Hashes, NDArray[np.bool_]]:
        """Return the hash of one input's row in each partial by one of its keys, and which rows have that key."""
        if number == self.input or self.before is None:
            return self.rows.hashes(name)
        found, valid = self.before.hashes(number, name)
        return found[self.extends], valid[self.extends]

    def ends(self) -> tuple[Ints, Ints]:
        """Return the oldest and the newest event time of each partial."""
        if self._ends is None:
            own = self.times(self.input)
            oldest, newest = own, own
            if self.before is not None:
                oldest, newest = (times[self.extends] for times in self.before.ends())
            self._ends = np.minimum(oldest, own), np.maximum(newest, own)
        return self._ends


@dataclass(frozen=True, slots=True)
class ResultRows:
    """The rows of one input in some results, looked up on demand."""

    results: Partials
    input: int
    chosen: slice

    def times(self) -> Ints:
        """Return their event times."""
        return self.results.times(self.input)[self.chosen]

    def column(self, name: str, kind: pa.DataType, rows: Ints | None) -> pa.Array:
        """Return a column of all rows, or of some; nulls where it is not stored."""
        numbers = np.arange(len(self.results))[self.chosen]
        every = self.chosen == slice(0, len(self.results))
        if rows is not None:
            return self.results.of(self.input).column(name, kind, numbers[rows])
        return self.results.of(self.input).column(name, kind, None if every else numbers)
