"""A unit of a chain that counts rows: from which rows on, up to which, and where its cuts stand.

A row can be joined once it is sealed in both streams' rolls (`penstock.state.row_times`), so such a group goes on by
event time and not by batches.  A unit from horizon H to H' joins what is sealed in between with all that is older::

              B, T < H       H <= T < H'
            +-------------+--------------+
    T < H   |   done      |      x       |          a segment in which H lies is on both sides of it:
            +-------------+--------------+          it is read twice, each time for its own times
    < H'    |      x      |      x       |
            +-------------+--------------+

In:  what the joiner knows of a group and its two rolls.
Out: `Counting`, sent to the tasks, and `CountAxis`, the row cuts that they probe with (`penstock.kernels.row_cuts`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from penstock.engine.runners.runner import Job
from penstock.kernels.row_cuts import ON_LEFT, ON_RIGHT, ON_TIME, RowCuts, probe_row_cuts
from penstock.state.joined import SegmentPart
from penstock.state.row_times import LONG_AGO, Positions, Roll

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from penstock.engine.runners.runner import Runner
    from penstock.engine.tasks.join import SegmentRange
    from penstock.kernels.key_hash import Ints
    from penstock.kernels.probe import Pairs, Rows, Wanted
    from penstock.plan.group import Group
    from penstock.sql.query import Side
    from penstock.state.files import Files
    from penstock.state.ledger import Ledger
    from penstock.state.segment import Segment


def sealed_until(group: Group, ledger: Ledger) -> int | None:
    """Give the event time below which the rows of both streams of a group are sealed; None if there is none yet."""
    horizons = [ledger.roll(log.stream).horizon for log in group.logs]
    return None if None in horizons else min(each for each in horizons if each is not None)


@dataclass(frozen=True, slots=True)
class Counting:
    """Which rows a unit joins anew, ``since <= T < until``, and what its windows count by."""

    rows: tuple[bool, ...]
    rolls: tuple[Roll, ...]
    since: int
    until: int

    @classmethod
    def of(cls, group: Group, ledger: Ledger, since: int | None, until: int | None) -> Counting:
        """Describe what a group joins between two horizons; without an end it is nothing."""
        rolls = tuple(ledger.roll(log.stream).sealed() for log in group.logs)
        begin = LONG_AGO if since is None else since
        return cls(group.signature.rows, rolls, begin, begin if until is None else until)

    def old(self, segments: Iterable[Segment]) -> list[SegmentPart]:
        """Choose the segments with rows that were joined before, and the first and last time of such rows."""
        return [
            SegmentPart(each, each.min_t, min(each.max_t, self.since - 1))
            for each in segments
            if each.min_t < self.since
        ]

    def new(self, segments: Iterable[Segment]) -> list[SegmentPart]:
        """Choose the segments with rows to join, and the first and last time of such rows."""
        return [
            SegmentPart(each, max(each.min_t, self.since), min(each.max_t, self.until - 1))
            for each in segments
            if each.min_t < self.until and each.max_t >= self.since
        ]

    def axis(self, files: Files, cuts: Sequence[int], sets: NDArray[np.uint64]) -> CountAxis:
        """Look up where the cuts stand for the rows of this unit."""
        left, right = (Positions(files, roll) for roll in self.rolls)
        return CountAxis(
            sets,
            _row_cuts(self, (left, right), cuts, batch_is_left=True),
            _row_cuts(self, (left, right), cuts, batch_is_left=False),
        )


@dataclass(frozen=True, slots=True)
class CountAxis:
    """The cuts of a chain for the rows of one unit, as event times, for batches of either side."""

    sets: NDArray[np.uint64]
    left: RowCuts
    right: RowCuts

    def can_meet(self, batch: SegmentRange, state: SegmentRange, *, batch_is_left: bool) -> bool:
        """Say whether any pair of two segments can fall in the chain, by the times they span."""
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
        """Yield the pairs of two segments' rows, of the times that take part."""
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
    """Lay out the cut_times for batches of one side, from the oldest partner to the youngest.

    A difference of at least c says of the partner, by `penstock.sql.query`:

        left batch    c > 0   t >= the time of row x + c - 1 of A     x, y: rows of A and B up to the batch row
                      c < 0   t >= the time of row y + c of B
        right batch   c > 0   t <  the time of row x - c of A         (so these begin with the greatest cut)
                      c < 0   t <  the time of row y - c - 1 of B
    """
    ordered = list(cuts) if batch_is_left else list(reversed(cuts))
    kind = np.array([_kind(counting, cut) for cut in ordered], np.int8)
    shift = np.array(
        [_shift(cut, each, batch_is_left=batch_is_left) for cut, each in zip(ordered, kind, strict=True)]
    )
    marks: list[Ints] = []
    counted: list[Ints] = []
    for order, which in zip(orders, (ON_LEFT, ON_RIGHT), strict=True):
        of_stream = kind == which
        first, last = (order.before(each) for each in (counting.since, counting.until))
        counted.append(order.times(first, last) if of_stream.any() else np.empty(0, np.int64))
        size = sum(each.size for each in marks)
        times, starts = _marks(
            order, sorted({first + int(each) for each in shift[of_stream]}), last - first + 1
        )
        shift[of_stream] = [size + starts[first + int(each)] for each in shift[of_stream]]
        marks.append(times)
    levels = np.arange(len(cuts) - 1, dtype=np.int16)
    return RowCuts(
        kind, shift, np.concatenate(marks), levels if batch_is_left else levels[::-1].copy(), *counted
    )


def _kind(counting: Counting, cut: int) -> int:
    """Say what a cut is measured in; at equal times nothing has to be counted."""
    if cut > 0 and counting.rows[0]:
        return ON_LEFT
    return ON_RIGHT if cut < 0 and counting.rows[1] else ON_TIME


def _shift(cut: int, kind: int, *, batch_is_left: bool) -> int:
    """Say how far a cut time is from the batch row's own time or position."""
    if kind == ON_TIME:
        return cut if batch_is_left else 1 - cut
    if kind == ON_LEFT:
        return cut - 1 if batch_is_left else -cut
    return cut if batch_is_left else -cut - 1


def _marks(order: Positions, firsts: Sequence[int], size: int) -> tuple[Ints, dict[int, int]]:
    """Read stretches of so many positions each, what they share only once; give where each begins in what was read."""
    parts: list[Ints] = []
    starts: dict[int, int] = {}
    read, until = 0, LONG_AGO
    for first in firsts:
        until = max(until, first)  # the positions first .. until are the last of what was read
        starts[first] = read - (until - first)
        parts.append(order.times(until, first + size))
        read, until = read + parts[-1].size, first + size
    return np.concatenate([*parts, np.empty(0, np.int64)]), starts


@dataclass(frozen=True, slots=True)
class SpanTask:
    """Measures how far back in time windows that count rows reach at a horizon."""

    roll: Roll
    horizon: int
    reaches: tuple[int, ...]
    """Rows that windows reach back, as `Member.reach` and `Slice.ages` have them."""
    own: int
    """Whether the row itself counts: 1 or 0."""

    def run(self, files: Files) -> dict[int, int]:
        """Return microseconds by rows; what reaches to the stream's first row is left out."""
        order = Positions(files, self.roll)
        spans = {reach: order.span(self.horizon, reach - self.own) for reach in self.reaches}
        return {reach: span for reach, span in spans.items() if span is not None}


def row_spans(
    group: Group, ledger: Ledger, runner: Runner, horizon: int | None
) -> tuple[dict[int, int], ...]:
    """Measure, for each side of a group, how far back in time its windows reach at a horizon."""
    tasks = {side: _span_task(group, side, ledger, horizon) for side in group.sides if group.counts(side)}
    if horizon is None or not tasks:
        return tuple({} for _ in group.sides)
    job = Job("seal", f"measure windows that count rows of {' and '.join(group.streams)}")
    spans = dict(zip(tasks, runner.map(list(tasks.values()), job), strict=True))
    return tuple(spans.get(side, {}) for side in group.sides)


def _span_task(group: Group, side: Side, ledger: Ledger, horizon: int | None) -> SpanTask:
    reaches = {*group.reaches(side), *(member.reach(side) for member in group.members)}
    reaches |= {piece.ages[1] for _, piece in group.slices(side)}
    roll = ledger.roll(group.log(side).stream).sealed()
    return SpanTask(roll, horizon or 0, tuple(sorted(reaches)), 1 if side == "r" else 0)
