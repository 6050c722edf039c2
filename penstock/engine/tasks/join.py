"""A unit: slices advance their cursor by joining what is new with what is there.

A slice at cursor (i, j) has produced exactly the pairs of A[0, i) and B[0, j) in its ages.  Advancing it to
(i', j') produces the rest, each pair once::

              B[0, j)        ΔB = B[j, j')
            +-------------+--------------+
    A[0, i) |   done      |  A[0,i) ⋈ ΔB |
            +-------------+--------------+
    ΔA      |  ΔA ⋈ B[0, j')             |
            +----------------------------+

Where rows wait in the log to be joined in order, a cursor also names a time: all older rows are joined, whatever their
batch.  A segment in which that time lies is read on both sides of it, each time for its own rows (`SegmentRange.cut`).
In joins without a window, a value of the join's attribute divides the rows instead (`SegmentRange.values`).

The job is a map over shares of the pairs (`penstock.kernels.key_hash`); no row is moved between tasks.  Each task maps
the segments, finds its rows in each, probes, gathers columns in pieces of bounded bytes, and delivers the pairs.

In:  names of segments and the group's tables.  Out: record batches of pairs (see `penstock.engine.tasks.route_pairs`).
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.engine.aggregate.row_fold import NewRows
from penstock.engine.sinks.pair_batch import FoundPairs, RowsOfSegment, time_name
from penstock.engine.tasks.route_pairs import run_delivery, run_row_folds, set_columns, with_arrival
from penstock.kernels.column_checks import ColumnCheck, with_equal_keys, with_near_columns
from penstock.kernels.key_hash import Division
from penstock.kernels.probe import Wanted, probe
from penstock.kernels.sets import query_sets, to_words
from penstock.kernels.width import pieces, row_widths
from penstock.state.segment import SegmentRows, read_segment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from penstock.engine.sinks.pair_batch import Delivery, FoundRows
    from penstock.engine.tasks.route_pairs import UnitReport
    from penstock.engine.tasks.row_windows import CountAxis, Counting
    from penstock.kernels.key_hash import Ints
    from penstock.kernels.probe import Pairs, Rows
    from penstock.sql.query import Comparison
    from penstock.state.files import Files


@dataclass(frozen=True, slots=True)
class SegmentRange:
    """A segment's file, and the event times of its rows, or of those of its rows that take part in a unit."""

    name: str
    min_t: int
    max_t: int
    layout: int = 0
    rows: int = 0
    arrived: float = 0.0
    """When its batch arrived, in seconds since the epoch."""
    cut: bool = False
    """Whether only its rows of these times take part."""
    checksum: int | None = None
    values: tuple[int, int] | None = None
    """In joins without a window: the first and last value of the join's attribute whose rows take part."""
    bytes: int = 0
    """The size of the whole segment, which a task maps."""


@dataclass(frozen=True, slots=True)
class UnitInput:
    """One stream's part in a unit: its segments that are joined already, those that are new, and the columns to read.

    `columns` have their Arrow types, for segments that lack one.  `masks` are the predicate bits that each query needs,
    by layout of the segment; None where the query takes nothing from such segments.
    """

    old: tuple[SegmentRange, ...]
    new: tuple[SegmentRange, ...]
    columns: tuple[tuple[str, pa.DataType], ...]
    masks: Mapping[int, tuple[int | None, ...]]
    excluded_masks: Mapping[int, tuple[int, ...]]
    """By layout: masks of rows that belong to another group; a row that has all bits of one is left out."""

    @property
    def ranges(self) -> tuple[SegmentRange, ...]:
        """List all segments."""
        return self.old + self.new

    def without_arrivals(self) -> UnitInput:
        """Drop the arrival times."""
        old, new = (
            tuple(replace(segment, arrived=0.0) for segment in ranges) for ranges in (self.old, self.new)
        )
        return replace(self, old=old, new=new)


@dataclass(frozen=True, slots=True)
class UnitSpec:
    """The input that the tasks of a unit have in common."""

    inputs: tuple[UnitInput, ...]
    """In the order of the group."""
    cuts: tuple[int, ...]
    level_sets: tuple[int, ...]
    selective: bool
    parts: int
    queries: int
    narrow: bool = True
    """Whether a row probes only the slices of queries that accept it; False where selections come last."""
    keyed: bool = True
    """Whether the rows have a key, by whose hash tasks divide them."""
    comparisons: tuple[tuple[Comparison, int], ...] = ()
    """Comparisons of columns, each with the set of queries that want no pair that fails it."""
    counting: Counting | None = None
    """Set where windows count rows."""
    timed: bool = False
    """Whether pairs carry their rows' event times, because some query wants its results in order."""
    by_level: bool = False
    """Whether pairs of two streams are sorted by level, because files are divided by it."""
    levels: tuple[tuple[int, int], ...] = ()
    """The levels that the unit joins, as runs ``[first, last)``; empty: all.  Windows that count rows have all."""

    def without_arrivals(self) -> UnitSpec:
        """Drop the arrival times: results of a backfill have no delay."""
        return replace(self, inputs=tuple(side.without_arrivals() for side in self.inputs))

    @property
    def has_innermost(self) -> bool:
        """Check whether the unit joins the slice of rows of the same time, which every row passes once."""
        innermost = bisect_right(self.cuts, 0) - 1
        return not self.levels or any(first <= innermost < last for first, last in self.levels)

    def within(self, first: int, last: int) -> UnitSpec:
        """Join only levels ``[first, last)``: no query reads pairs of others."""
        runs = ((max(first, one), min(last, other)) for one, other in self.levels or ((first, last),))
        return replace(self, levels=tuple((one, other) for one, other in runs if one < other))

    @property
    def new_rows(self) -> int:
        """Count the new rows."""
        return sum(segment.rows for side in self.inputs for segment in side.new)

    @property
    def new_segments(self) -> set[str]:
        """Name the segments with new rows."""
        return {segment.name for side in self.inputs for segment in side.new}

    @property
    def mapped_bytes(self) -> int:
        """Return the bytes of the segments that its tasks may map, each counted once."""
        sizes = {segment.name: segment.bytes for side in self.all_inputs for segment in side.ranges}
        return sum(sizes.values())

    @property
    def all_inputs(self) -> tuple[UnitInput, ...]:
        """List the inputs, once for each of their logs."""
        return self.inputs

    @property
    def arrived(self) -> float:
        """Return the arrival time of the last new rows."""
        return max((segment.arrived for side in self.inputs for segment in side.new), default=0.0)

    def find(self, files: Files, part: int) -> Iterator[FoundPairs]:
        """Yield the pairs of one part."""
        for axis in self.axes(files):
            yield from _probe_run(self, files, axis, part)

    def axes(self, files: Files) -> list[TimeAxis | CountAxis]:
        """Return for each run of levels its cuts, and the queries that read each level, for the probe."""
        sets = to_words(self.level_sets, self.queries)
        if self.counting is not None:
            return [self.counting.axis(files, self.cuts, sets)]
        cuts = np.array(self.cuts, np.int64)
        runs = self.levels or ((0, len(self.cuts) - 1),)
        return [
            TimeAxis(sets[first:last], cuts[first : last + 1], self.narrow, first) for first, last in runs
        ]


@dataclass(frozen=True, slots=True)
class _Portion:
    """The rows of one segment that this task probes, those that it probes with, and the queries of each pattern."""

    rows_of: SegmentRange
    segment: SegmentRows
    probed: slice | Ints
    probing: slice | Ints
    sets: NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class JoinTask:
    """Finds the pairs of one part of a unit and delivers them to the sinks."""

    unit: UnitSpec
    delivery: Delivery
    part: int

    def run(self, files: Files) -> UnitReport:
        """Find the pairs and deliver them."""
        return run_delivery(self.delivery, self.part, self.unit.find(files, self.part))

    def rows(self, files: Files) -> Iterator[pa.RecordBatch]:
        """Find the pairs and yield their columns, for queries whose outputs Spark SQL computes."""
        return (found.batch for found in self.unit.find(files, self.part))

    def finish(self, _files: Files, rows: Iterator[pa.RecordBatch]) -> UnitReport:
        """Deliver the pairs with their computed outputs."""
        return run_delivery(self.delivery, self.part, rows)


@dataclass(frozen=True, slots=True)
class FoldTask:
    """Folds the new rows of one part of a unit, for aggregates that need no pairs."""

    unit: UnitSpec
    delivery: Delivery
    part: int

    def run(self, files: Files) -> UnitReport:
        """Fold the rows into panes."""
        return run_row_folds(self.delivery, find_rows(self.unit, files, self.part))


def find_rows(unit: UnitSpec, files: Files, part: int) -> Iterator[NewRows]:
    """Yield the new rows of one part, input by input."""
    for number, side in enumerate(unit.inputs):
        for portion in _portions(unit, files, side, side.new, part):
            sets = portion.sets if unit.selective else None
            yield NewRows(number, portion.segment, portion.probing, sets, portion.rows_of.arrived)


def _probe_run(unit: UnitSpec, files: Files, axis: TimeAxis | CountAxis, part: int) -> Iterator[FoundPairs]:
    """Yield the pairs of one run of levels."""
    left, right = unit.inputs
    # a segment that can meet nothing new is not opened
    near_left = [
        old for old in left.old if any(axis.can_meet(new, old, batch_is_left=False) for new in right.new)
    ]
    near_right = [
        old for old in right.old if any(axis.can_meet(new, old, batch_is_left=True) for new in left.new)
    ]
    old_left, new_left = (_portions(unit, files, left, ranges, part) for ranges in (near_left, left.new))
    old_right, new_right = (_portions(unit, files, right, ranges, part) for ranges in (near_right, right.new))
    for new in new_left:
        for state in (*old_right, *new_right):
            yield from _pairs(unit, axis, new, state, batch_is_left=True)
    for new in new_right:
        for state in old_left:
            yield from _pairs(unit, axis, state, new, batch_is_left=False)


def _portions(
    unit: UnitSpec, files: Files, side: UnitInput, ranges: Sequence[SegmentRange], part: int
) -> list[_Portion]:
    """Map segments and find this task's rows in each."""
    division = Division(part, unit.parts, unit.keyed)
    portions = []
    for number, rows_of in enumerate(ranges):
        segment = read_segment(files, rows_of)
        probed, probing = division.probed(segment.rows.h), division.probing(segment.rows.h, number)
        if probed.start >= probed.stop:
            continue
        masks, excluded = side.masks[rows_of.layout], side.excluded_masks[rows_of.layout]
        sets = query_sets(segment.table, masks, excluded) if unit.selective else _NO_SETS
        portion = _Portion(rows_of, segment, probed, probing, sets)
        if rows_of.values is not None or (rows_of.cut and unit.counting is None):
            numbers = np.arange(segment.rows.t.size)
            probed_rows, probing_rows = (
                rows[taking_part(segment, rows, rows_of)] for rows in (numbers[probed], numbers[probing])
            )
            portion = replace(portion, probed=probed_rows, probing=probing_rows)
        portions.append(portion)
    return portions


def taking_part(segment: SegmentRows, rows: Ints, rows_of: SegmentRange) -> NDArray[np.bool_]:
    """Return which of some rows take part in a unit, by their times, and by their values where these are divided."""
    times = segment.rows.t[rows]
    chosen = (times >= rows_of.min_t) & (times <= rows_of.max_t)
    return chosen if rows_of.values is None else chosen & within_values(segment, rows, rows_of.values)


def within_values(segment: SegmentRows, rows: Ints, values: tuple[int, int]) -> NDArray[np.bool_]:
    """Return which of some rows have a value of the join's attribute between two, both included."""
    own = segment.ordered(rows)
    return (own >= values[0]) & (own <= values[1])


_NO_SETS = np.zeros((1, 1), np.uint64)


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """The cuts of a chain whose windows are lengths of time."""

    sets: NDArray[np.uint64]
    cuts: NDArray[np.int64]
    narrow: bool = True
    first: int = 0
    """The level of the first slice: not 0 where only outer slices are joined."""

    def can_meet(self, batch: SegmentRange, state: SegmentRange, *, batch_is_left: bool) -> bool:
        """Check whether any pair of two segments can lie in the chain, by the times of their rows.

        >>> axis = TimeAxis(np.empty((0, 1), np.uint64), np.array([-9, 0, 10]))
        >>> axis.can_meet(SegmentRange("a", 0, 10), SegmentRange("b", 20, 30), batch_is_left=True)
        False
        """
        left, right = (batch, state) if batch_is_left else (state, batch)
        least, most = right.min_t - left.max_t, right.max_t - left.min_t
        return bool(most >= self.cuts[0] and least < self.cuts[-1])

    def probe(
        self,
        batch_rows: Rows,
        state_rows: Rows,
        _batch: SegmentRange,
        _state: SegmentRange,
        *,
        batch_is_left: bool,
        wanted: Wanted | None,
    ) -> Iterator[Pairs]:
        """Yield the pairs of two segments' rows."""
        pairs = probe(
            batch_rows, state_rows, self.cuts, batch_is_left=batch_is_left, wanted=wanted, narrow=self.narrow
        )
        return (found.lifted(self.first) for found in pairs) if self.first else pairs


def _pairs(
    unit: UnitSpec, axis: TimeAxis | CountAxis, left: _Portion, right: _Portion, *, batch_is_left: bool
) -> Iterator[FoundPairs]:
    """Join one new segment with one other, probing with the new one."""
    batch, state = (left, right) if batch_is_left else (right, left)
    if not axis.can_meet(batch.rows_of, state.rows_of, batch_is_left=batch_is_left):
        return
    wanted = Wanted(axis.sets, batch.sets, state.sets) if unit.selective else None
    batch_rows, state_rows = batch.segment.rows.part(batch.probing), state.segment.rows.part(state.probed)
    all_pairs = axis.probe(
        batch_rows, state_rows, batch.rows_of, state.rows_of, batch_is_left=batch_is_left, wanted=wanted
    )
    arrived = max(left.rows_of.arrived, right.rows_of.arrived)
    for pairs in all_pairs:
        numbered = pairs.moved(batch.probing, state.probed)
        for equal in _check_keys(numbered, batch.segment, state.segment):
            near = _check_columns(unit, equal, left.segment, right.segment, batch_is_left=batch_is_left)
            for found in _gathered(unit, near, left.segment, right.segment, batch_is_left=batch_is_left):
                yield replace(found, batch=with_arrival(found.batch, arrived))


def _check_keys(pairs: Pairs, batch: SegmentRows, state: SegmentRows) -> Iterator[Pairs]:
    """Drop pairs whose hashes are equal but whose keys are not; yield the others in pieces of bounded bytes."""
    batch_keys, state_keys = batch.keys(), state.keys()
    if not batch_keys:
        yield pairs
        return
    widths = row_widths(batch_keys, pairs.batch) + row_widths(state_keys, pairs.state)
    for piece in pieces(len(pairs), widths):
        yield with_equal_keys(pairs.only(piece), batch_keys, state_keys)


def _check_columns(
    unit: UnitSpec, pairs: Pairs, left: SegmentRows, right: SegmentRows, *, batch_is_left: bool
) -> Pairs:
    """Drop pairs that no query wants because the columns they compare are too far apart."""
    checks = [
        ColumnCheck(
            columns, left.column(columns.left), right.column(columns.right), to_words([sets], unit.queries)[0]
        )
        for columns, sets in unit.comparisons
        if left.has(columns.left) and right.has(columns.right)
    ]
    return with_near_columns(pairs, checks, batch_is_left=batch_is_left) if checks else pairs


def _gathered(
    unit: UnitSpec, pairs: Pairs, left: SegmentRows, right: SegmentRows, *, batch_is_left: bool
) -> Iterator[FoundPairs]:
    """Gather the columns of pairs, in pieces of bounded bytes."""
    if unit.by_level:
        pairs = pairs.by_level()
    numbers = (pairs.batch, pairs.state) if batch_is_left else (pairs.state, pairs.batch)
    widths = _widths(left, numbers[0], unit.inputs[0]) + _widths(right, numbers[1], unit.inputs[1])
    for piece in pieces(len(pairs), widths):
        some = pairs.only(piece)
        numbers = (some.batch, some.state) if batch_is_left else (some.state, some.batch)
        rows = {"l": RowsOfSegment(left, numbers[0]), "r": RowsOfSegment(right, numbers[1])}
        yield found_pairs(unit, rows, some.level, some.sets)


def _widths(segment: SegmentRows, rows: Ints, side: UnitInput) -> int | NDArray[np.int64]:
    """Return the bytes that the columns of some rows of a segment have."""
    return row_widths([segment.column(name) for name, _ in side.columns if segment.has(name)], rows)


def found_pairs(
    unit: UnitSpec,
    rows: Mapping[str, FoundRows],
    level: NDArray[np.int16],
    sets: NDArray[np.uint64] | None,
) -> FoundPairs:
    """Gather the columns of some results, given the rows of each input that they are made of."""
    columns: dict[str, pa.Array] = {
        side: _struct(found, unit_input, level.size)
        for (side, found), unit_input in zip(rows.items(), unit.inputs, strict=True)
    }
    columns["level"] = pa.array(level)
    if sets is not None:
        columns |= set_columns(sets)
    if unit.timed:
        columns |= {time_name(side): pa.array(found.times()) for side, found in rows.items()}
    return FoundPairs(pa.RecordBatch.from_arrays(list(columns.values()), list(columns)), rows)


def _struct(rows: FoundRows, side: UnitInput, size: int) -> pa.StructArray:
    """Return the columns of one input's rows as one struct."""
    if not side.columns:  # Arrow needs a field to know the length of a struct
        return pa.StructArray.from_arrays([pa.nulls(size, pa.int8())], ["nothing"])
    arrays = [rows.column(name, kind, None) for name, kind in side.columns]
    return pa.StructArray.from_arrays(arrays, [name for name, _ in side.columns])
