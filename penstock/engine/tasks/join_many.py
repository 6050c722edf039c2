"""A unit of more than two streams: the new rows of each input meet the others, one input after the other.

A slice at cursor c has produced exactly the results of the rows before c.  Advancing it to c′ produces the rest, each
result once: the new rows of input i meet the inputs before i up to c′, and the inputs after i up to c::

                     input 0       input 1       input 2
    Δ of input 0     Δ             up to c       up to c
    Δ of input 1     up to c′      Δ             up to c
    Δ of input 2     up to c′      up to c′      Δ

A result belongs to its new row with the highest input.  The input whose new rows are joined is the *driver*; it has an
order of its own for the other inputs (`penstock.plan.probe_order`).  No partial result is stored.

Where one key is equal in all inputs, a task takes a range of its hash.  Else it gets a share of the new rows, and looks
for partners in all segments.

In:  names of segments and the group's tables.  Out: record batches of results, in the columns that
`penstock.engine.tasks.route_pairs` reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock import limits
from penstock.engine.tasks.join import (
    SegmentRange,
    UnitInput,
    UnitSpec,
    found_pairs,
    taking_part,
    within_values,
)
from penstock.engine.tasks.partials import BoundRows, Partials, ResultRows
from penstock.engine.tasks.row_windows import counted_within, row_counts
from penstock.kernels.column_checks import equal_values
from penstock.kernels.extend import extended, runs_in, within
from penstock.kernels.key_hash import Division
from penstock.kernels.sets import query_sets, to_words
from penstock.kernels.width import pieces
from penstock.sql.query import FOREVER, sides_for
from penstock.state.segment import KEY, read_segment

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from penstock.engine.sinks.pair_batch import FoundPairs
    from penstock.kernels.key_hash import Hashes, Ints
    from penstock.plan.probe_order import LinkStep, LinkSteps
    from penstock.state.files import Files
    from penstock.state.segment import SegmentRows

    Extension = tuple[Ints, NDArray[np.int16], Ints]
    """For each row that is found: the number of the partial that it extends, of its segment, and of the row there."""


@dataclass(frozen=True, slots=True)
class LinkColumns:
    """One key of an input: the log that is sorted by it, and the columns that hold it in the other logs.

    `names` are the column of the hash and, where that is not the whole key, those of its parts.  It is empty where the
    input has one key only.
    """

    log: int
    names: tuple[str, ...]
    parts: int
    """The number of columns to compare besides the hash."""


@dataclass(frozen=True, slots=True)
class ManySpec(UnitSpec):
    """The input that the tasks of a unit have in common, where more than two streams are joined."""

    others: tuple[tuple[UnitInput, ...], ...] = ()
    """For each input, its further logs."""
    keys: tuple[dict[int, LinkColumns], ...] = ()
    """For each link: its key in each input."""
    orders: tuple[LinkSteps, ...] = ()
    """For each driver: the order of the other inputs."""
    limits: tuple[tuple[int, ...], ...] = ()
    """For each pair of inputs: the largest difference of time that any query allows."""
    uneven: tuple[tuple[tuple[tuple[int, ...], ...], int], ...] = ()
    """Limits that differ between inputs, so that the spread of a result does not decide; with the set of queries."""

    def find(self, files: Files, part: int) -> Iterator[FoundPairs]:
        """Yield the results of one part."""
        for levels in self.levels or ((0, len(self.cuts) - 1),):
            search = ManySearch(self, files, levels)
            for driver in range(len(self.inputs)):
                yield from search.results(driver, part)

    @property
    def all_inputs(self) -> tuple[UnitInput, ...]:
        """List the inputs, once for each of their logs."""
        return tuple(log for number in range(len(self.inputs)) for log in self.logs(number))

    def logs(self, number: int) -> tuple[UnitInput, ...]:
        """List the logs of an input."""
        return (self.inputs[number], *self.others[number])


@dataclass(frozen=True, slots=True)
class MappedLog:
    """Some segments of one log, and the queries that accept each pattern of their rows."""

    ranges: list[SegmentRange]
    segments: list[SegmentRows]
    sets: list[NDArray[np.uint64]]


class ManySearch:
    """Finds the results of the levels ``[first, last)``."""

    def __init__(self, unit: ManySpec, files: Files, levels: tuple[int, int]) -> None:
        """Prepare the search; each segment is mapped once, at its first use."""
        self.unit, self._files, (self.first, self.last) = unit, files, levels
        spread = FOREVER if unit.counting else unit.cuts[self.last]
        self.limits = [[min(limit, spread) for limit in row] for row in unit.limits]
        self.level_sets = to_words(unit.level_sets, unit.queries)
        self.counts = row_counts(files, unit.counting, unit.limits) if unit.counting else {}
        self._mapped: dict[tuple[int, int, bool], MappedLog] = {}
        self._new: dict[int, MappedLog] = {}

    def results(self, driver: int, part: int) -> Iterator[FoundPairs]:
        """Yield the results of one share of the new rows of an input."""
        unit = self.unit
        division = Division(part, unit.parts, unit.keyed)
        new = self.new_segments(driver)
        for number, (rows_of, segment) in enumerate(zip(new.ranges, new.segments, strict=True)):
            rows = np.arange(segment.rows.h.size)[division.probing(segment.rows.h, number)]
            if rows_of.cut or rows_of.values is not None:
                rows = rows[taking_part(segment, rows, rows_of)]
            for begin in range(0, rows.size, limits.MAX_PARTIALS):
                some = rows[begin : begin + limits.MAX_PARTIALS]
                bound = BoundRows(new.segments, np.full(some.size, number, np.int16), some)
                start = Partials(driver, bound, sets=bound.sets(new.sets) if unit.selective else None)
                yield from self._bind(_wanted(start), driver, unit.orders[driver])

    def _bind(self, partials: Partials, driver: int, order: Sequence[LinkStep]) -> Iterator[FoundPairs]:
        """Extend partials by the remaining inputs, one after the other, and yield the results."""
        if not len(partials):
            return
        if not order:
            yield from self._finished(partials)
            return
        step, *rest = order
        for begin in range(0, len(partials), limits.MAX_PARTIALS):
            some = partials
            if len(partials) > limits.MAX_PARTIALS:
                some = partials.only(np.arange(begin, min(begin + limits.MAX_PARTIALS, len(partials))))
            for extension in self._extended(some, driver, step):
                yield from self._bind(extension, driver, rest)

    def _extended(self, partials: Partials, driver: int, step: LinkStep) -> Iterator[Partials]:
        """Extend partials by their partners in the next input."""
        there = self.unit.keys[step.link][step.to]
        state = self.state(step.to, there.log, with_new=step.to < driver)
        h, valid = self.hashes(partials, step)
        if not valid.all():
            partials = partials.only(np.flatnonzero(valid))
            h = h[valid]
        since, until = self.bounds(partials, step.to)
        near = [
            number
            for number, rows_of in enumerate(state.ranges)
            if len(partials) and rows_of.max_t >= since.min() and rows_of.min_t < until.max()
        ]
        if not near:
            return
        firsts, counts = (np.empty((len(near), len(partials)), np.int64) for _ in range(2))
        for at, number in enumerate(near):
            firsts[at], counts[at] = runs_in(
                h, *_cut(since, until, state.ranges[number]), state.segments[number].rows
            )
        for extends, place, row in _with_values(state, near, extended(firsts, counts)):
            bound = BoundRows(state.segments, np.array(near, np.int16)[place], row)
            sets = None
            if partials.sets is not None:
                sets = partials.sets[extends] & bound.sets(state.sets)
            found = Partials(step.to, bound, partials, extends, sets)
            yield self._checked(_wanted(found), step)

    def hashes(self, partials: Partials, step: LinkStep) -> tuple[Hashes, NDArray[np.bool_]]:
        """Return the hash by which each partial looks for partners in a step, and which partials have one."""
        return partials.hashes(step.source, self._hash_name(step.source, step.link))

    def bounds(self, partials: Partials, to: int) -> tuple[Ints, Ints]:
        """Return the event times ``[since, until)`` between which the partners of each partial lie in one input."""
        limits, bound = self.limits, partials.bound
        if self.unit.counting:
            return self._counted_bounds(partials, to)
        even = {limits[other][to] for other in bound} | {limits[to][other] for other in bound}
        if len(even) == 1:  # the oldest and the newest row decide
            oldest, newest = partials.ends()
            (limit,) = even
            return newest - limit + 1, oldest + limit
        # T_to - T_b < limits[b][to] and T_b - T_to < limits[to][b], for every b
        since = np.max([partials.times(other) - limits[to][other] + 1 for other in bound], axis=0)
        until = np.min([partials.times(other) + limits[other][to] for other in bound], axis=0)
        return since, until

    def _counted_bounds(self, partials: Partials, to: int) -> tuple[Ints, Ints]:
        """Return the same where windows count rows."""
        _, newest = partials.ends()
        own = self.counts.get(to)
        since = own.earliest(newest) if own else newest - max(self.limits[to]) + 1
        until = [
            self.counts[other].deadline(partials.times(other))
            if other in self.counts
            else partials.times(other) + max(self.limits[other])
            for other in partials.bound
        ]
        return since, np.min(until, axis=0)

    def _checked(self, partials: Partials, step: LinkStep) -> Partials:
        """Drop partials whose new row differs from another row in a key: this one beyond its hash, or any other."""
        for link, keys in enumerate(self.unit.keys):
            if step.to not in keys:
                continue
            source = step.source if link == step.link else self._bound_to(partials, keys, step.to)
            if source is None or not len(partials):
                continue
            same = np.ones(len(partials), np.bool_)
            if link != step.link:
                (h, valid), (new_h, new_valid) = (
                    partials.hashes(number, self._hash_name(number, link)) for number in (source, step.to)
                )
                same = (h == new_h) & valid & new_valid
            for part in range(keys[step.to].parts):
                same &= equal_values(
                    *(self.key_part(partials, number, link, part) for number in (source, step.to))
                )
            if not same.all():
                partials = partials.only(np.flatnonzero(same))
        return partials

    @staticmethod
    def _bound_to(partials: Partials, keys: dict[int, LinkColumns], to: int) -> int | None:
        """Return a bound input that has the key too."""
        return next((number for number in partials.bound if number in keys and number != to), None)

    def _hash_name(self, number: int, link: int) -> str:
        """Name the column with the hash of an input's rows; empty where the log is sorted by it."""
        names = self.unit.keys[link][number].names
        return names[0] if names else ""

    def key_part(self, partials: Partials, number: int, link: int, part: int) -> pa.Array:
        """Return a part of a key of one input's rows."""
        names = self.unit.keys[link][number].names
        name = names[1 + part] if names else f"{KEY}{part}"
        return partials.of(number).column(name, pa.null(), None)

    def _finished(self, partials: Partials) -> Iterator[FoundPairs]:
        """Find the levels and queries of the results, and gather their columns."""
        unit = self.unit
        level, sets = self._levels(partials), partials.sets
        kept = level >= self.first
        if sets is not None:
            sets = sets if unit.counting else sets & self.level_sets[level]
            for limits, queries in unit.uneven:
                (others,) = to_words([~queries & ((1 << unit.queries) - 1)], unit.queries)
                sets = np.where(self._within(partials, limits)[:, None], sets, sets & others)
            kept &= sets.any(axis=1)
        if not kept.all():
            chosen = np.flatnonzero(kept)
            partials, level = partials.only(chosen), level[chosen]
            sets = None if sets is None else sets[chosen]
        yield from self._record_batches(partials, level, sets)

    def _levels(self, partials: Partials) -> NDArray[np.int16]:
        """Return the level of each result by its spread; where windows count rows there is one level."""
        oldest, newest = partials.ends()
        if self.unit.counting:
            return np.zeros(len(partials), np.int16)
        return (np.searchsorted(self.unit.cuts, newest - oldest, "right") - 1).astype(np.int16)

    def _within(self, partials: Partials, limits: Sequence[Sequence[int]]) -> NDArray[np.bool_]:
        """Return which results keep limits that their spread does not decide."""
        times = [partials.times(number) for number in range(len(self.unit.inputs))]
        return counted_within(times, self.counts, limits) if self.unit.counting else within(times, limits)

    def _record_batches(
        self, partials: Partials, level: NDArray[np.int16], sets: NDArray[np.uint64] | None
    ) -> Iterator[FoundPairs]:
        """Gather the columns of results, in pieces of bounded bytes."""
        if not len(partials):
            return
        sides = sides_for(len(self.unit.inputs))
        widths = sum(
            partials.of(number).widths([name for name, _ in side.columns])
            for number, side in enumerate(self.unit.inputs)
            if side.columns
        )
        for piece in pieces(len(partials), widths):
            rows = {side: ResultRows(partials, number, piece) for number, side in enumerate(sides)}
            yield found_pairs(self.unit, rows, level[piece], None if sets is None else sets[piece])

    def new_segments(self, number: int) -> MappedLog:
        """Map the segments with the new rows of an input."""
        if number not in self._new:
            self._new[number] = self._map(self.unit.inputs[number], self.unit.inputs[number].new)
        return self._new[number]

    def state(self, number: int, log: int, *, with_new: bool) -> MappedLog:
        """Map the segments of an input that the driver's rows meet."""
        known = self._mapped.get((number, log, with_new))
        if known is None:
            side = self.unit.logs(number)[log]
            known = self._map(side, side.ranges if with_new else side.old)
            self._mapped[number, log, with_new] = known
        return known

    def _map(self, side: UnitInput, ranges: Sequence[SegmentRange]) -> MappedLog:
        """Map segments, without those of which no query accepts a row."""
        mapped = MappedLog([], [], [])
        for rows_of in ranges:
            segment = read_segment(self._files, rows_of)
            masks, excluded = side.masks[rows_of.layout], side.excluded_masks[rows_of.layout]
            sets = query_sets(segment.table, masks, excluded)
            if sets.any():
                mapped.ranges.append(rows_of)
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
    """Narrow bounds to the times of the rows of a segment that take part in the unit."""
    if not rows_of.cut:
        return since, until
    return np.maximum(since, rows_of.min_t), np.minimum(until, rows_of.max_t + 1)


def _with_values(state: MappedLog, near: Sequence[int], found: Iterable[Extension]) -> Iterator[Extension]:
    """Leave out rows that do not take part in the unit by their value of the join's attribute."""
    ranges = {at: state.ranges[number].values for at, number in enumerate(near)}
    divided = {at: values for at, values in ranges.items() if values is not None}
    for extends, place, row in found:
        kept = np.ones(row.size, np.bool_)
        for at, values in divided.items():
            here = np.flatnonzero(place == at)
            kept[here] = within_values(state.segments[near[at]], row[here], values)
        yield (extends, place, row) if kept.all() else (extends[kept], place[kept], row[kept])
