"""A unit: slices advance their cursor by joining what is new with what is there.

A slice at cursor (i, j) has produced exactly the pairs of A[0, i) and B[0, j) in its ages.  Advancing it to
(i', j') produces the rest, each pair once::

              B[0, j)        ΔB = B[j, j')
            +-------------+--------------+
    A[0, i) |   done      |  A[0,i) ⋈ ΔB |
            +-------------+--------------+
    ΔA      |  ΔA ⋈ B[0, j')             |
            +----------------------------+

Where input waits for its turn, a cursor names a time besides: all rows older than that are joined too, whatever their
batch.  A segment in which it lies is read on both sides of it, each time for its own rows (`SegmentRange.cut`).  Where
rows wait to be sorted, it is a value of the join's attribute that divides them (`SegmentRange.values`).

The job is a map over shares of the pairs (`penstock.kernels.key_hash`); no row is moved between tasks.  Each task maps
the segments, finds its rows in each, probes, gathers the columns asked for in pieces of bounded bytes, and delivers.

In:  names of segments and the group's tables.  Out: record batches of pairs (see `penstock.engine.tasks.route_pairs`).
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.engine.aggregate.row_fold import NewRows
from penstock.engine.sinks.pair_batch import FoundPairs, RowsOfSegment
from penstock.engine.tasks.route_pairs import run_delivery, run_row_folds, set_columns, with_arrival
from penstock.kernels.column_checks import Check, with_equal_keys, with_near_columns
from penstock.kernels.key_hash import Division
from penstock.kernels.probe import Wanted, probe
from penstock.kernels.sets import query_sets, to_words
from penstock.kernels.width import pieces, row_widths
from penstock.state.segment import SegmentRows, read_segment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from penstock.engine.sinks.pair_batch import Delivery
    from penstock.engine.tasks.count_axis import CountAxis, Counting
    from penstock.engine.tasks.route_pairs import UnitReport
    from penstock.kernels.key_hash import Ints
    from penstock.kernels.probe import Pairs, Rows
    from penstock.sql.query import Comparison
    from penstock.state.files import Files


@dataclass(frozen=True, slots=True)
class SegmentRange:
    """A segment's file, and the event times that its rows span, or those of its rows that take part."""

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
    """Where rows wait to be sorted: those of these values of the join's attribute take part, first and last."""
    bytes: int = 0
    """Of the whole segment: what a task that opens it maps."""


@dataclass(frozen=True, slots=True)
class InputTask:
    """One stream's part in a unit: segments already joined, segments that are new, and what to read of them.

    `columns` have their Arrow types, for segments that lack one.  `masks` are the predicate bits each query needs, by
    layout of the segment; None where the query takes nothing from such segments.
    """

    old: tuple[SegmentRange, ...]
    new: tuple[SegmentRange, ...]
    columns: tuple[tuple[str, pa.DataType], ...]
    masks: Mapping[int, tuple[int | None, ...]]
    excluded_masks: Mapping[int, tuple[int, ...]]
    """By layout: masks whose bits a row of another group's part has together."""

    def without_arrivals(self) -> InputTask:
        """Forget when rows arrived."""
        old, new = (tuple(replace(each, arrived=0.0) for each in which) for which in (self.old, self.new))
        return replace(self, old=old, new=new)


@dataclass(frozen=True, slots=True)
class UnitTask:
    """What every task of a unit is told about its input."""

    inputs: tuple[InputTask, ...]
    """In the order of the group's."""
    cuts: tuple[int, ...]
    level_sets: tuple[int, ...]
    selective: bool
    parts: int
    queries: int
    narrow: bool = True
    """Whether a row looks no farther than the queries that accept it; not where selections come last."""
    keyed: bool = True
    """Whether the rows have a key; if not, the tasks cannot divide them by its hash."""
    comparisons: tuple[tuple[Comparison, int], ...] = ()
    """Comparisons of columns, each with the set of queries that want no pair that fails it."""
    counting: Counting | None = None
    """Set where windows count rows."""
    timed: bool = False
    """Whether pairs carry their rows' event times, because some query wants its results in order."""
    by_level: bool = False
    """Whether pairs of two streams come level by level, because files are divided by it."""
    levels: tuple[tuple[int, int], ...] = ()
    """The levels that the unit joins, as runs ``[first, last)``; none given: all.  Windows that count rows have all."""

    def without_arrivals(self) -> UnitTask:
        """Forget when rows arrived: a query that gets the past did not let anyone wait for it."""
        return replace(self, inputs=tuple(each.without_arrivals() for each in self.inputs))

    @property
    def has_innermost(self) -> bool:
        """Say whether the unit joins the slice of rows of the same time, which every row passes once."""
        innermost = bisect_right(self.cuts, 0) - 1
        return not self.levels or any(first <= innermost < last for first, last in self.levels)

    def within(self, first: int, last: int) -> UnitTask:
        """Join only levels ``[first, last)``: nobody wants pairs of others."""
        runs = ((max(first, one), min(last, other)) for one, other in self.levels or ((first, last),))
        return replace(self, levels=tuple((one, other) for one, other in runs if one < other))

    @property
    def new_rows(self) -> int:
        """Count the rows that are joined anew."""
        return sum(each.rows for side in self.inputs for each in side.new)

    @property
    def new_segments(self) -> set[str]:
        """Name the segments with rows that are joined anew."""
        return {each.name for side in self.inputs for each in side.new}

    @property
    def mapped_bytes(self) -> int:
        """Give the bytes of the segments that its tasks may map, each counted once."""
        return sum(
            {each.name: each.bytes for side in self.all_inputs for each in (*side.old, *side.new)}.values()
        )

    @property
    def all_inputs(self) -> tuple[InputTask, ...]:
        """List the inputs by each of their logs."""
        return self.inputs

    @property
    def arrived(self) -> float:
        """Say when the last of the rows that are joined anew arrived."""
        return max((each.arrived for side in self.inputs for each in side.new), default=0.0)

    def find(self, files: Files, part: int) -> Iterator[FoundPairs]:
        """Yield the pairs of one part, run of levels by run of levels."""
        for axis in self.axes(files):
            yield from _probe_run(self, files, axis, part)

    def axes(self, files: Files) -> list[TimeAxis | CountAxis]:
        """Give the cuts of each run of the chain, and the queries that read each level, as the probe takes them."""
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
    """The rows of one segment that are this task's to probe and to probe with, and the queries its patterns satisfy."""

    rows_of: SegmentRange
    segment: SegmentRows
    probed: slice | Ints
    probing: slice | Ints
    sets: NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class JoinTask:
    """Finds the pairs of one part of a unit and delivers them to the sinks."""

    unit: UnitTask
    delivery: Delivery
    part: int

    def run(self, files: Files) -> UnitReport:
        """Find the pairs and deliver them."""
        return run_delivery(self.delivery, self.part, self.unit.find(files, self.part))

    def rows(self, files: Files) -> Iterator[pa.RecordBatch]:
        """Find the pairs and yield their columns, for queries whose outputs Spark SQL computes."""
        return (each.batch for each in self.unit.find(files, self.part))

    def finish(self, _files: Files, rows: Iterator[pa.RecordBatch]) -> UnitReport:
        """Deliver pairs whose outputs are computed."""
        return run_delivery(self.delivery, self.part, rows)


@dataclass(frozen=True, slots=True)
class FoldTask:
    """Folds the new rows of one part of a unit, for aggregates that need no pairs."""

    unit: UnitTask
    delivery: Delivery
    part: int

    def run(self, files: Files) -> UnitReport:
        """Fold the rows into panes."""
        return run_row_folds(self.delivery, find_rows(self.unit, files, self.part))


def find_rows(task: UnitTask, files: Files, part: int) -> Iterator[NewRows]:
    """Yield the new rows of one part, side by side."""
    for side, rows_of_side in enumerate(task.inputs):
        for each in _portions(task, files, rows_of_side, rows_of_side.new, part):
            sets = each.sets if task.selective else None
            yield NewRows(side, each.segment, each.probing, sets, each.rows_of.arrived)


def _probe_run(task: UnitTask, files: Files, axis: TimeAxis | CountAxis, part: int) -> Iterator[FoundPairs]:
    """Yield the pairs of one run of levels."""
    left, right = task.inputs
    # A segment that can meet nothing new is not even opened.
    old_left_near = [
        each for each in left.old if any(axis.can_meet(new, each, batch_is_left=False) for new in right.new)
    ]
    old_right_near = [
        each for each in right.old if any(axis.can_meet(new, each, batch_is_left=True) for new in left.new)
    ]
    old_left, new_left = (_portions(task, files, left, which, part) for which in (old_left_near, left.new))
    old_right, new_right = (
        _portions(task, files, right, which, part) for which in (old_right_near, right.new)
    )
    for one in new_left:
        for other in (*old_right, *new_right):
            yield from _pairs(task, axis, one, other, batch_is_left=True)
    for other in new_right:
        for one in old_left:
            yield from _pairs(task, axis, one, other, batch_is_left=False)


def _portions(
    task: UnitTask, files: Files, side: InputTask, ranges: Sequence[SegmentRange], part: int
) -> list[_Portion]:
    """Map segments and find this task's rows in each."""
    division = Division(part, task.parts, task.keyed)
    portions = []
    for number, rows_of in enumerate(ranges):
        segment = read_segment(files, rows_of)
        probed, probing = division.probed(segment.rows.h), division.probing(segment.rows.h, number)
        if probed.start >= probed.stop:
            continue
        masks, excluded = side.masks[rows_of.layout], side.excluded_masks[rows_of.layout]
        sets = query_sets(segment.table, masks, excluded) if task.selective else _NO_SETS
        portion = _Portion(rows_of, segment, probed, probing, sets)
        if rows_of.values is not None or (rows_of.cut and task.counting is None):
            portion = replace(
                portion,
                probed=_taking_part(segment, probed, rows_of),
                probing=_taking_part(segment, probing, rows_of),
            )
        portions.append(portion)
    return portions


def _taking_part(segment: SegmentRows, rows: slice, rows_of: SegmentRange) -> Ints:
    """Find the rows of a portion of a segment that take part in a unit."""
    numbers = np.arange(segment.rows.t.size)[rows]
    return numbers[taking_part(segment, numbers, rows_of)]


def taking_part(segment: SegmentRows, rows: Ints, rows_of: SegmentRange) -> NDArray[np.bool_]:
    """Say which of some rows take part in a unit, by their times, and by their values where these are divided."""
    times = segment.rows.t[rows]
    chosen = (times >= rows_of.min_t) & (times <= rows_of.max_t)
    return chosen if rows_of.values is None else chosen & within_values(segment, rows, rows_of.values)


def within_values(segment: SegmentRows, rows: Ints, values: tuple[int, int]) -> NDArray[np.bool_]:
    """Say which of some rows have a value of the join's attribute between two, both included."""
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
        """Say whether any pair of two segments can fall in the chain, by the times they span.

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
        return (each.lifted(self.first) for each in pairs) if self.first else pairs


def _pairs(
    task: UnitTask, axis: TimeAxis | CountAxis, left: _Portion, right: _Portion, *, batch_is_left: bool
) -> Iterator[FoundPairs]:
    """Join one new segment with one other, probing with the new one."""
    batch, state = (left, right) if batch_is_left else (right, left)
    if not axis.can_meet(batch.rows_of, state.rows_of, batch_is_left=batch_is_left):
        return
    wanted = None
    if task.selective:
        wanted = Wanted(axis.sets, batch.sets, state.sets)
    batch_rows, state_rows = batch.segment.rows.part(batch.probing), state.segment.rows.part(state.probed)
    all_pairs = axis.probe(
        batch_rows, state_rows, batch.rows_of, state.rows_of, batch_is_left=batch_is_left, wanted=wanted
    )
    arrived = max(left.rows_of.arrived, right.rows_of.arrived)
    for pairs in all_pairs:
        numbered = pairs.moved(batch.probing, state.probed)
        for equal in _check_keys(numbered, batch.segment, state.segment):
            tested = _check_columns(task, equal, left.segment, right.segment, batch_is_left=batch_is_left)
            for made in _record_batches(
                task, tested, left.segment, right.segment, batch_is_left=batch_is_left
            ):
                yield replace(made, batch=with_arrival(made.batch, arrived))


def _check_keys(pairs: Pairs, batch: SegmentRows, state: SegmentRows) -> Iterator[Pairs]:
    """Drop pairs whose hashes are equal but whose keys are not, a piece of bounded bytes after the other."""
    batch_keys, state_keys = batch.keys(), state.keys()
    if not batch_keys:
        yield pairs
        return
    widths = row_widths(batch_keys, pairs.batch) + row_widths(state_keys, pairs.state)
    for piece in pieces(len(pairs), widths):
        yield with_equal_keys(pairs.only(piece), batch_keys, state_keys)


def _check_columns(
    task: UnitTask, pairs: Pairs, left: SegmentRows, right: SegmentRows, *, batch_is_left: bool
) -> Pairs:
    """Drop pairs that no query wants because the columns they compare are too far apart."""
    checks = [
        Check(each, left.column(each.left), right.column(each.right), to_words([queries], task.queries)[0])
        for each, queries in task.comparisons
        if left.has(each.left) and right.has(each.right)
    ]
    return with_near_columns(pairs, checks, batch_is_left=batch_is_left) if checks else pairs


def _record_batches(
    task: UnitTask, pairs: Pairs, left: SegmentRows, right: SegmentRows, *, batch_is_left: bool
) -> Iterator[FoundPairs]:
    """Gather the columns of the pairs, a piece of bounded bytes after the other."""
    if task.by_level:
        pairs = pairs.by_level()
    rows = (pairs.batch, pairs.state) if batch_is_left else (pairs.state, pairs.batch)
    widths = _widths(left, rows[0], task.inputs[0].columns) + _widths(right, rows[1], task.inputs[1].columns)
    for piece in pieces(len(pairs), widths):
        yield _record_batch(task, pairs.only(piece), left, right, batch_is_left=batch_is_left)


def _widths(
    segment: SegmentRows, rows: NDArray[np.int64], columns: Sequence[tuple[str, pa.DataType]]
) -> int | NDArray[np.int64]:
    """Say how many bytes some columns of some rows of a segment have."""
    return row_widths([segment.column(name) for name, _ in columns if segment.has(name)], rows)


def _record_batch(
    task: UnitTask, pairs: Pairs, left: SegmentRows, right: SegmentRows, *, batch_is_left: bool
) -> FoundPairs:
    """Gather the columns of some pairs."""
    left_rows, right_rows = (pairs.batch, pairs.state) if batch_is_left else (pairs.state, pairs.batch)
    columns: dict[str, pa.Array] = {
        "l": _gather(left, left_rows, task.inputs[0].columns),
        "r": _gather(right, right_rows, task.inputs[1].columns),
        "level": pa.array(pairs.level),
    }
    if pairs.sets is not None:
        columns |= set_columns(pairs.sets)
    if task.timed:
        columns |= {"tl": pa.array(left.rows.t[left_rows]), "tr": pa.array(right.rows.t[right_rows])}
    batch = pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
    return FoundPairs(batch, {"l": RowsOfSegment(left, left_rows), "r": RowsOfSegment(right, right_rows)})


def _gather(
    segment: SegmentRows, rows: NDArray[np.int64], columns: Sequence[tuple[str, pa.DataType]]
) -> pa.StructArray:
    """Collect some columns of some rows of a segment as one struct; one it lacks is null, and nobody reads it."""
    numbers = pa.array(rows)
    if not columns:  # Arrow needs a field to know the length of a struct
        return pa.StructArray.from_arrays([pa.nulls(len(numbers), pa.int8())], ["nothing"])
    arrays = [
        segment.column(name).take(numbers) if segment.has(name) else pa.nulls(len(numbers), kind)
        for name, kind in columns
    ]
    return pa.StructArray.from_arrays(arrays, [name for name, _ in columns])
