"""A unit of more than two streams: what is new of each input meets the others, one after the other.

A slice at cursor c has produced exactly the results of the rows before c.  Advancing it to c′ produces the rest, each
result once: for each input i, what is new of it meets the inputs before i up to c′ and those behind it up to c::

                     input 0       input 1       input 2
    Δ of input 0     Δ             up to c       up to c
    Δ of input 1     up to c′      Δ             up to c
    Δ of input 2     up to c′      up to c′      Δ

A result belongs to the row of its Δ with the highest input.  The new rows of an input are its *driver*; they bind the
other inputs in an order of their own (`penstock.plan.probe_order`), and no partial result outlives its step.

Where one key is equal in all inputs a task takes a range of its hash; else it is dealt a share of the new rows, and
looks for partners in all segments.

In:  names of segments and the group's tables.  Out: record batches of results (see
`penstock.engine.tasks.route_pairs`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.engine.sinks.pair_batch import FoundPairs, time_name
from penstock.engine.tasks.join import InputTask, SegmentRange, UnitTask, taking_part, within_values
from penstock.engine.tasks.partials import Bound, Partials, ResultRows
from penstock.engine.tasks.route_pairs import set_columns
from penstock.engine.tasks.row_counts import counted_within, row_counts
from penstock.kernels.column_checks import equal_values
from penstock.kernels.extend import MOST_PARTIALS, extended, runs_in, within
from penstock.kernels.key_hash import Division
from penstock.kernels.sets import query_sets, to_words
from penstock.kernels.width import pieces
from penstock.sql.query import FOREVER, sides_for
from penstock.state.segment import KEY, read_segment

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from penstock.kernels.key_hash import Hashes, Ints
    from penstock.plan.probe_order import LinkStep, LinkSteps
    from penstock.state.files import Files
    from penstock.state.segment import SegmentRows

    Extension = tuple[Ints, NDArray[np.int16], Ints]
    """For each row that is found: which partial it extends, the place of its segment, and its number there."""


@dataclass(frozen=True, slots=True)
class LinkColumns:
    """Where the rows of one input have one of its keys: in which of its logs it is the order, and in which columns.

    `names` are the column of the hash and those of the parts, where that is not all of the key; none where the input
    has one key only, by which its log is sorted.
    """

    log: int
    names: tuple[str, ...]
    parts: int
    """How many columns have to be compared beside the hash."""


@dataclass(frozen=True, slots=True)
class ManyTask(UnitTask):
    """What every task of a unit is told about its input, where more than two streams are joined."""

    others: tuple[tuple[InputTask, ...], ...] = ()
    """For each input, its further logs."""
    keys: tuple[dict[int, LinkColumns], ...] = ()
    """For each link, by input, where its key is."""
    orders: tuple[LinkSteps, ...] = ()
    """For each input, how its new rows find theirs."""
    limits: tuple[tuple[int, ...], ...] = ()
    """The farthest that rows of two inputs may be apart for any query."""
    uneven: tuple[tuple[tuple[tuple[int, ...], ...], int], ...] = ()
    """Limits that the spread of a result does not decide, each with the set of queries that have them."""

    def find(self, files: Files, part: int) -> Iterator[FoundPairs]:
        """Yield the results of one part, run of levels by run of levels."""
        for levels in self.levels or ((0, len(self.cuts) - 1),):
            search = ManySearch(self, files, levels)
            for driver in range(len(self.inputs)):
                yield from search.results(driver, part)

    @property
    def all_inputs(self) -> tuple[InputTask, ...]:
        """List the inputs by each of their logs."""
        return tuple(each for number in range(len(self.inputs)) for each in self.logs(number))

    def logs(self, number: int) -> tuple[InputTask, ...]:
        """Give all logs of an input."""
        return (self.inputs[number], *self.others[number])


@dataclass(frozen=True, slots=True)
class MappedLog:
    """Some segments of one log, the rows that take part, and the queries that accept each pattern of theirs."""

    ranges: list[SegmentRange]
    segments: list[SegmentRows]
    sets: list[NDArray[np.uint64]]


class ManySearch:
    """Finds the results of some levels ``[first, last)``."""

    def __init__(self, task: ManyTask, files: Files, levels: tuple[int, int]) -> None:
        """Get ready; segments are mapped when they are asked for, once."""
        self.task, self._files, (self.first, self.last) = task, files, levels
        spread = FOREVER if task.counting else task.cuts[self.last]
        self.limits = [[min(each, spread) for each in row] for row in task.limits]
        self.level_sets = to_words(task.level_sets, task.queries)
        self.counts = row_counts(files, task.counting, task.limits) if task.counting else {}
        self._mapped: dict[tuple[int, int, bool], MappedLog] = {}
        self._new: dict[int, MappedLog] = {}

    def results(self, driver: int, part: int) -> Iterator[FoundPairs]:
        """Yield the results that the new rows of one input complete, in one share."""
        task = self.task
        division = Division(part, task.parts, task.keyed)
        new = self.new_segments(driver)
        for number, (rows_of, segment) in enumerate(zip(new.ranges, new.segments, strict=True)):
            rows = np.arange(segment.rows.h.size)[division.probing(segment.rows.h, number)]
            if rows_of.cut or rows_of.values is not None:
                rows = rows[taking_part(segment, rows, rows_of)]
            for begin in range(0, rows.size, MOST_PARTIALS):
                some = rows[begin : begin + MOST_PARTIALS]
                bound = Bound(new.segments, np.full(some.size, number, np.int16), some)
                start = Partials(driver, bound, sets=bound.sets(new.sets) if task.selective else None)
                yield from self._bind(_wanted(start), driver, task.orders[driver])

    def _bind(self, partials: Partials, driver: int, order: Sequence[LinkStep]) -> Iterator[FoundPairs]:
        """Bind the inputs that are left, one after the other."""
        if not len(partials):
            return
        if not order:
            yield from self._finished(partials)
            return
        step, *rest = order
        for begin in range(0, len(partials), MOST_PARTIALS):
            some = partials
            if len(partials) > MOST_PARTIALS:
                some = partials.only(np.arange(begin, min(begin + MOST_PARTIALS, len(partials))))
            for extension in self._extended(some, driver, step):
                yield from self._bind(extension, driver, rest)

    def _extended(self, partials: Partials, driver: int, step: LinkStep) -> Iterator[Partials]:
        """Find the partners of partial results in the next input."""
        there = self.task.keys[step.link][step.to]
        state = self.state(step.to, there.log, with_new=step.to < driver)
        h, valid = self.hashes(partials, step)
        if not valid.all():
            partials = partials.only(np.flatnonzero(valid))
            h = h[valid]
        since, until = self.bounds(partials, step.to)
        near = [
            number
            for number, each in enumerate(state.ranges)
            if len(partials) and each.max_t >= since.min() and each.min_t < until.max()
        ]
        if not near:
            return
        firsts, counts = (np.empty((len(near), len(partials)), np.int64) for _ in range(2))
        for at, number in enumerate(near):
            firsts[at], counts[at] = runs_in(
                h, *_cut(since, until, state.ranges[number]), state.segments[number].rows
            )
        for extends, place, row in _with_values(state, near, extended(firsts, counts)):
            bound = Bound(state.segments, np.array(near, np.int16)[place], row)
            sets = None
            if partials.sets is not None:
                sets = partials.sets[extends] & bound.sets(state.sets)
            found = Partials(step.to, bound, partials, extends, sets)
            yield self._checked(_wanted(found), step)

    def hashes(self, partials: Partials, step: LinkStep) -> tuple[Hashes, NDArray[np.bool_]]:
        """Give the hash by which each partial looks for partners in a step, and say which of them have one."""
        return partials.hashes(step.source, self._hash_name(step.source, step.link))

    def bounds(self, partials: Partials, to: int) -> tuple[Ints, Ints]:
        """Say between which event times a partner of each partial in one input lies."""
        limits, bound = self.limits, partials.bound
        if self.task.counting:
            return self._counted_bounds(partials, to)
        even = {limits[each][to] for each in bound} | {limits[to][each] for each in bound}
        if len(even) == 1:  # the oldest and the newest row decide
            oldest, newest = partials.ends()
            (limit,) = even
            return newest - limit + 1, oldest + limit
        # T_to - T_b < limits[b][to] and T_b - T_to < limits[to][b], for every b
        since = np.max([partials.times(each) - limits[to][each] + 1 for each in bound], axis=0)
        until = np.min([partials.times(each) + limits[each][to] for each in bound], axis=0)
        return since, until

    def _counted_bounds(self, partials: Partials, to: int) -> tuple[Ints, Ints]:
        """Say the same where windows count rows."""
        _, newest = partials.ends()
        own = self.counts.get(to)
        since = own.earliest(newest) if own else newest - max(self.limits[to]) + 1
        until = [
            self.counts[each].deadline(partials.times(each))
            if each in self.counts
            else partials.times(each) + max(self.limits[each])
            for each in partials.bound
        ]
        return since, np.min(until, axis=0)

    def _checked(self, partials: Partials, step: LinkStep) -> Partials:
        """Drop partials whose new row does not fit the others by its other keys, or by more than a hash of this one."""
        for link, keys in enumerate(self.task.keys):
            if step.to not in keys:
                continue
            source = step.source if link == step.link else self._bound_to(partials, keys, step.to)
            if source is None or not len(partials):
                continue
            same = np.ones(len(partials), np.bool_)
            if link != step.link:
                one, other = (
                    partials.hashes(each, self._hash_name(each, link)) for each in (source, step.to)
                )
                same = (one[0] == other[0]) & one[1] & other[1]
            for part in range(keys[step.to].parts):
                same &= equal_values(
                    *(self.key_part(partials, each, link, part) for each in (source, step.to))
                )
            if not same.all():
                partials = partials.only(np.flatnonzero(same))
        return partials

    @staticmethod
    def _bound_to(partials: Partials, keys: dict[int, LinkColumns], to: int) -> int | None:
        """Find an input that has a row already and is compared with a new one by some key."""
        return next((each for each in partials.bound if each in keys and each != to), None)

    def _hash_name(self, number: int, link: int) -> str:
        """Name the column with the hash of an input's rows; empty where they are sorted by it."""
        names = self.task.keys[link][number].names
        return names[0] if names else ""

    def key_part(self, partials: Partials, number: int, link: int, part: int) -> pa.Array:
        """Give a part of a key of one input's rows."""
        names = self.task.keys[link][number].names
        name = names[1 + part] if names else f"{KEY}{part}"
        return partials.of(number).column(name, pa.null(), None)

    def _finished(self, partials: Partials) -> Iterator[FoundPairs]:
        """Give the results their levels and readers, and gather their columns."""
        task = self.task
        level, sets = self._levels(partials), partials.sets
        kept = level >= self.first
        if sets is not None:
            sets = sets if task.counting else sets & self.level_sets[level]
            for limits, queries in task.uneven:
                (others,) = to_words([~queries & ((1 << task.queries) - 1)], task.queries)
                sets = np.where(self._within(partials, limits)[:, None], sets, sets & others)
            kept &= sets.any(axis=1)
        if not kept.all():
            chosen = np.flatnonzero(kept)
            partials, level = partials.only(chosen), level[chosen]
            sets = None if sets is None else sets[chosen]
        yield from self._record_batches(partials, level, sets)

    def _levels(self, partials: Partials) -> NDArray[np.int16]:
        """Give each result the level of its spread; where windows count rows there is one for all."""
        oldest, newest = partials.ends()
        if self.task.counting:
            return np.zeros(len(partials), np.int16)
        return (np.searchsorted(self.task.cuts, newest - oldest, "right") - 1).astype(np.int16)

    def _within(self, partials: Partials, limits: Sequence[Sequence[int]]) -> NDArray[np.bool_]:
        """Say which results keep limits that their spread does not decide."""
        times = [partials.times(each) for each in range(len(self.task.inputs))]
        return counted_within(times, self.counts, limits) if self.task.counting else within(times, limits)

    def _record_batches(
        self, partials: Partials, level: NDArray[np.int16], sets: NDArray[np.uint64] | None
    ) -> Iterator[FoundPairs]:
        """Gather the columns of results, a piece of bounded bytes after the other."""
        if not len(partials):
            return
        widths = sum(
            partials.of(number).widths([name for name, _ in side.columns])
            for number, side in enumerate(self.task.inputs)
            if side.columns
        )
        for piece in pieces(len(partials), widths):
            rows = [ResultRows(partials, number, piece) for number in range(len(self.task.inputs))]
            yield self._record_batch(rows, level[piece], None if sets is None else sets[piece])

    def _record_batch(
        self, rows: Sequence[ResultRows], level: NDArray[np.int16], sets: NDArray[np.uint64] | None
    ) -> FoundPairs:
        """Gather the columns of some results."""
        sides = sides_for(len(rows))
        columns: dict[str, pa.Array] = {
            side: _struct(each, task, level.size)
            for side, each, task in zip(sides, rows, self.task.inputs, strict=True)
        }
        columns["level"] = pa.array(level)
        if sets is not None:
            columns |= set_columns(sets)
        if self.task.timed:
            columns |= {
                time_name(side): pa.array(each.times()) for side, each in zip(sides, rows, strict=True)
            }
        batch = pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
        return FoundPairs(batch, dict(zip(sides, rows, strict=True)))

    def new_segments(self, number: int) -> MappedLog:
        """Map the segments of an input that hold its new rows."""
        if number not in self._new:
            self._new[number] = self._map(self.task.inputs[number], self.task.inputs[number].new)
        return self._new[number]

    def state(self, number: int, log: int, *, with_new: bool) -> MappedLog:
        """Map the segments of an input that new rows of another meet."""
        known = self._mapped.get((number, log, with_new))
        if known is None:
            side = self.task.logs(number)[log]
            known = self._map(side, (*side.old, *side.new) if with_new else side.old)
            self._mapped[number, log, with_new] = known
        return known

    def _map(self, side: InputTask, ranges: Sequence[SegmentRange]) -> MappedLog:
        """Map segments; one that no query takes a row from is left out."""
        mapped = MappedLog([], [], [])
        for each in ranges:
            segment = read_segment(self._files, each)
            sets = query_sets(segment.table, side.masks[each.layout], side.excluded_masks[each.layout])
            if sets.any():
                mapped.ranges.append(each)
                mapped.segments.append(segment)
                mapped.sets.append(sets)
        return mapped


def _wanted(partials: Partials) -> Partials:
    """Drop partials that no query accepts."""
    if partials.sets is None:
        return partials
    kept = partials.sets.any(axis=1)
    return partials if kept.all() else partials.only(np.flatnonzero(kept))


def _cut(since: Ints, until: Ints, rows_of: SegmentRange) -> tuple[Ints, Ints]:
    """Let only those rows of a segment take part that are there for the unit."""
    if not rows_of.cut:
        return since, until
    return np.maximum(since, rows_of.min_t), np.minimum(until, rows_of.max_t + 1)


def _with_values(state: MappedLog, near: Sequence[int], found: Iterable[Extension]) -> Iterator[Extension]:
    """Leave out rows of segments that are there for the unit only in part, by their values."""
    ranges = {at: state.ranges[number].values for at, number in enumerate(near)}
    divided = {at: values for at, values in ranges.items() if values is not None}
    for extends, place, row in found:
        kept = np.ones(row.size, np.bool_)
        for at, values in divided.items():
            here = np.flatnonzero(place == at)
            kept[here] = within_values(state.segments[near[at]], row[here], values)
        yield (extends, place, row) if kept.all() else (extends[kept], place[kept], row[kept])


def _struct(rows: ResultRows, side: InputTask, size: int) -> pa.StructArray:
    """Collect the columns of one input's rows that somebody reads as one struct."""
    if not side.columns:  # Arrow needs a field to know the length of a struct
        return pa.StructArray.from_arrays([pa.nulls(size, pa.int8())], ["nothing"])
    arrays = [rows.column(name, kind, None) for name, kind in side.columns]
    return pa.StructArray.from_arrays(arrays, [name for name, _ in side.columns])
