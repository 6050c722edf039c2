"""Windows that count rows: the rows that a unit joins, and the times that bound their partners.

A row can be joined once it is sealed in the rolls of all streams (`penstock.state.row_times`), so such a group advances
by event time and not by batches.  A unit from horizon H to H' joins the rows sealed in between with all older ones::

              B, T < H       H <= T < H'
            +-------------+--------------+
    T < H   |   done      |      x       |          a segment in which H lies is on both sides of it:
            +-------------+--------------+          it is read twice, each time for its own times
    < H'    |      x      |      x       |
            +-------------+--------------+

With two streams, each cut of the chain becomes an event time for each row of the batch (`penstock.kernels.row_cuts`).
With more, row i is met while it is among the last n rows of its stream: with ``N(t)`` the number of that stream's rows
up to time t, ``N(T) - N(T_i) < n`` for the time T of the newest row of the result.  So a row has a time from which on
it is met no more, and a newest row a time from which on it meets rows::

    rows of stream i        1  3  3  6  8  9                  n = 2
    row at 3, N = 3         met while N(T) < 5, so before 8   `deadline`
    newest row at 8, N = 5  meets rows with N > 3, from 6 on  `earliest`

In:  a group and the rolls of its streams.  Out: `Counting`, sent to the tasks; `CountAxis` and `RowCounts`, made there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from penstock.kernels.row_cuts import ON_LEFT, ON_RIGHT, ON_TIME, RowCuts, probe_row_cuts
from penstock.state.joined import SegmentPart
from penstock.state.row_times import LONG_AGO, NOT_YET, Positions, Roll

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from penstock.engine.tasks.join import SegmentRange
    from penstock.kernels.key_hash import Ints
    from penstock.kernels.probe import Pairs, Rows, Wanted
    from penstock.plan.group import Group
    from penstock.state.files import Files
    from penstock.state.ledger import Ledger
    from penstock.state.segment import Segment


@dataclass(frozen=True, slots=True)
class Counting:
    """The rows that a unit joins anew, ``since <= T < until``, and the rolls by which its windows count."""

    rows: tuple[bool, ...]
    rolls: tuple[Roll, ...]
    since: int
    until: int

    @classmethod
    def of(cls, group: Group, ledger: Ledger, since: int | None, until: int | None) -> Counting:
        """Describe the rows that a group joins between two horizons: none if there is no end."""
        rolls = tuple(ledger.roll(log.stream).sealed() for log in group.logs)
        begin = LONG_AGO if since is None else since
        return cls(group.signature.rows, rolls, begin, begin if until is None else until)

    def old(self, segments: Iterable[Segment]) -> list[SegmentPart]:
        """Choose the segments with rows that were joined before, and the first and last time of such rows."""
        return [
            SegmentPart(segment, segment.min_t, min(segment.max_t, self.since - 1))
            for segment in segments
            if segment.min_t < self.since
        ]

    def new(self, segments: Iterable[Segment]) -> list[SegmentPart]:
        """Choose the segments with rows to join, and the first and last time of such rows."""
        return [
            SegmentPart(segment, max(segment.min_t, self.since), min(segment.max_t, self.until - 1))
            for segment in segments
            if segment.min_t < self.until and segment.max_t >= self.since
        ]

    def axis(self, files: Files, cuts: Sequence[int], sets: NDArray[np.uint64]) -> CountAxis:
        """Look up the event times of the cuts for the rows of this unit, where two streams are joined."""
        left, right = (Positions(files, roll) for roll in self.rolls)
        return CountAxis(
            sets,
            _row_cuts(self, (left, right), cuts, batch_is_left=True),
            _row_cuts(self, (left, right), cuts, batch_is_left=False),
        )


# --- two streams ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CountAxis:
    """The cuts of a chain for the rows of one unit, as event times, for batches of either side."""

    sets: NDArray[np.uint64]
    left: RowCuts
    right: RowCuts

    def can_meet(self, batch: SegmentRange, state: SegmentRange, *, batch_is_left: bool) -> bool:
        """Check whether any pair of two segments can lie in the chain, by the times of their rows."""
        row_cuts = self.left if batch_is_left else self.right
        low, high = row_cuts.cut_times(batch.min_t)[0], row_cuts.cut_times(batch.max_t)[-1]
        return bool(state.max_t >= low and state.min_t < high)

    def probe(
        self,
        batch_rows: Rows,
        state_rows: Rows,
        batch: SegmentRange,
        state: SegmentRange,
        *,
        batch_is_left: bool,
        wanted: Wanted | None,
    ) -> Iterator[Pairs]:
        """Yield the pairs of two segments, of the rows whose times take part."""
        return probe_row_cuts(
            batch_rows,
            state_rows,
            self.left if batch_is_left else self.right,
            batch_times=(batch.min_t, batch.max_t),
            state_times=(state.min_t, state.max_t),
            wanted=wanted,
        )


def _row_cuts(
    counting: Counting, orders: tuple[Positions, Positions], cuts: Sequence[int], *, batch_is_left: bool
) -> RowCuts:
    """Return the cuts for batches of one side, from the oldest partner to the youngest.

    By `penstock.sql.query`, a difference of at least c means for the time t of the partner:

        left batch    c > 0   t >= the time of row x + c - 1 of A     x, y: rows of A and B up to the batch row
                      c < 0   t >= the time of row y + c of B
        right batch   c > 0   t <  the time of row x - c of A         (so these begin with the greatest cut)
                      c < 0   t <  the time of row y - c - 1 of B
    """
    ordered = list(cuts) if batch_is_left else list(reversed(cuts))
    kind = np.array([_kind(counting, cut) for cut in ordered], np.int8)
    shift = np.array(
        [_shift(cut, unit, batch_is_left=batch_is_left) for cut, unit in zip(ordered, kind, strict=True)]
    )
    marks: list[Ints] = []
    counted: list[Ints] = []
    for order, which in zip(orders, (ON_LEFT, ON_RIGHT), strict=True):
        of_stream = kind == which
        first, last = (order.before(time) for time in (counting.since, counting.until))
        counted.append(order.times(first, last) if of_stream.any() else np.empty(0, np.int64))
        size = sum(times.size for times in marks)
        times, starts = _marks(
            order, sorted({first + int(rows) for rows in shift[of_stream]}), last - first + 1
        )
        shift[of_stream] = [size + starts[first + int(rows)] for rows in shift[of_stream]]
        marks.append(times)
    levels = np.arange(len(cuts) - 1, dtype=np.int16)
    return RowCuts(
        kind, shift, np.concatenate(marks), levels if batch_is_left else levels[::-1].copy(), *counted
    )


def _kind(counting: Counting, cut: int) -> int:
    """Return the unit of a cut: rows of either side, or time where nothing has to be counted."""
    if cut > 0 and counting.rows[0]:
        return ON_LEFT
    return ON_RIGHT if cut < 0 and counting.rows[1] else ON_TIME


def _shift(cut: int, kind: int, *, batch_is_left: bool) -> int:
    """Return the distance of a cut time from the batch row's own time or position."""
    if kind == ON_TIME:
        return cut if batch_is_left else 1 - cut
    if kind == ON_LEFT:
        return cut - 1 if batch_is_left else -cut
    return cut if batch_is_left else -cut - 1


def _marks(order: Positions, firsts: Sequence[int], size: int) -> tuple[Ints, dict[int, int]]:
    """Read `size` times from each first position on, shared ones once; return them, and the index of each first one."""
    parts: list[Ints] = []
    starts: dict[int, int] = {}
    read, until = 0, LONG_AGO
    for first in firsts:
        until = max(until, first)  # the positions first .. until are the last of what was read
        starts[first] = read - (until - first)
        parts.append(order.times(until, first + size))
        read, until = read + parts[-1].size, first + size
    return np.concatenate([*parts, np.empty(0, np.int64)]), starts


# --- more streams -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RowCounts:
    """The times in order of a stream's rows that a unit may have to count; the first row has the number `before`."""

    times: Ints
    before: int
    most: int

    def up_to(self, t: Ints) -> Ints:
        """Count the rows of the stream up to some times."""
        return self.before + np.searchsorted(self.times, t, "right")

    def deadline(self, t: Ints) -> Ints:
        """Return the time from which on rows of these times are met no more.

        >>> RowCounts(np.array([1, 3, 3, 6, 8, 9]), 0, 2).deadline(np.array([3]))
        array([8])
        """
        position = self.up_to(t) + self.most - 1 - self.before
        known = np.append(self.times, NOT_YET)
        return known[np.minimum(position, self.times.size)]

    def earliest(self, newest: Ints) -> Ints:
        """Return the first time of the rows that newest rows of these times meet.

        >>> RowCounts(np.array([1, 3, 3, 6, 8, 9]), 0, 2).earliest(np.array([8]))
        array([6])
        """
        position = self.up_to(newest) - self.most - self.before
        return self.times[np.maximum(position, 0)] if self.times.size else newest


def row_counts(files: Files, counting: Counting, limits: Sequence[Sequence[int]]) -> dict[int, RowCounts]:
    """Read the times that a unit counts: for each input whose window counts rows, its new rows and those before."""
    counts = {}
    for number, roll in enumerate(counting.rolls):
        if counting.rows[number]:
            order, most = Positions(files, roll), max(limits[number])
            first, last = (order.before(time) for time in (counting.since, counting.until))
            counts[number] = RowCounts(order.times(first - most, last), first - most, most)
    return counts


def counted_within(
    times: Sequence[Ints], counts: dict[int, RowCounts], limits: Sequence[Sequence[int]]
) -> NDArray[np.bool_]:
    """Return which results lie in the windows of a query: in rows, or in time before the newest row."""
    newest = np.max(times, axis=0)
    kept = np.ones(newest.size, np.bool_)
    for number, own in enumerate(times):
        length = max(limit for other, limit in enumerate(limits[number]) if other != number)
        if number in counts:
            kept &= counts[number].up_to(newest) - counts[number].up_to(own) < length
        else:
            kept &= newest - own < length
    return kept


# --- retention --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SpanTask:
    """Measures how far back in time the windows of a stream reach at a horizon."""

    roll: Roll
    horizon: int
    reaches: tuple[int, ...]
    """Lengths in rows, from `Member.reach` and `Slice.ages`."""
    own: int
    """Whether the row itself counts: 1 or 0."""

    def run(self, files: Files) -> dict[int, int]:
        """Return microseconds by rows, without lengths that reach to the stream's first row."""
        order = Positions(files, self.roll)
        spans = {reach: order.span(self.horizon, reach - self.own) for reach in self.reaches}
        return {reach: span for reach, span in spans.items() if span is not None}
