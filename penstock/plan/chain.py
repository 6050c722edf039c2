"""The chain: time cut at every window, so that each pair falls in one slice only.

Queries that join the same streams on the same key differ only in how far back they look.  Lay the
difference ``d = T_right - T_left`` of a pair on an axis and cut it at the ends of every window; the pieces are
the *slices*, and a query reads exactly the slices inside its window::

    d            -59        -9         0         10         60
                  |----------|---------|---------|----------|
    older row:        right      right     left      left
    q1 WINDOW 10             ===================
    q2 WINDOW 60  ==========================================

A pair falls in one slice, so it is computed once however many queries want it.  On the right of 0 the
left row is the older of the two: the papers' chain over the state of the left stream, youngest slice first.  On
the left of 0 it is the chain over the right stream's state.  With ``WINDOW`` both look the same.

This is the Mem-Opt chain: one slice per distinct window end, so no slice holds a row longer than some
query needs it (paper 1, Theorems 3 and 4).

In:  the windows of a group's queries.
Out: a `Chain`, walked by the units of `penstock.engine` and shown by `penstock.plan.show`.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from penstock.errors import InputError
from penstock.sql.query import Range

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.sql.query import Side


@dataclass(frozen=True, slots=True)
class Slice:
    """One piece of the axis of differences, wholly on one side of 0."""

    range: Range

    def __post_init__(self) -> None:
        """Refuse a slice in which now the left, now the right row is the older one."""
        if self.range.lo < 0 < self.range.hi:
            raise InputError(f"slice {self.range} lies on both sides of 0: cut it there")

    @property
    def side(self) -> Side:
        """Name the stream whose row is the older one: the side whose state this slice is of."""
        return "l" if self.range.lo >= 0 else "r"

    @property
    def ages(self) -> tuple[int, int]:
        """Give the ages ``[start, end)`` of the older row.

        >>> Slice(Range(-59, -9)).ages, Slice(Range(10, 60)).ages
        ((10, 60), (10, 60))
        """
        if self.side == "l":
            return self.range.lo, self.range.hi
        return 1 - self.range.hi, 1 - self.range.lo


@dataclass(frozen=True, slots=True)
class Chain:
    """The slices in order of difference, and the queries that read each one.

    >>> chain = Chain.from_windows({"q1": Range(0, 10), "q2": Range(0, 60)})
    >>> [(piece.ages, names) for piece, names in zip(chain.slices, chain.readers)]
    [((0, 10), ('q1', 'q2')), ((10, 60), ('q2',))]
    """

    cuts: tuple[int, ...]
    readers: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        """Refuse a chain that is out of order or has no queries at its ends."""
        if len(self.readers) != len(self.cuts) - 1:
            raise InputError(f"a chain with {len(self.cuts)} cuts has {len(self.readers)} slices")
        if any(one >= other for one, other in pairwise(self.cuts)):
            raise InputError(f"the cuts of a chain must ascend: {self.cuts}")
        if not self.readers[0] or not self.readers[-1]:
            raise InputError("the first and last slice of a chain must have a reader")

    @classmethod
    def from_windows(cls, windows: Mapping[str, Range]) -> Chain:
        """Cut time at every distinct window end; share each piece among the queries that look so far."""
        ends = {end for window in windows.values() for end in (window.lo, window.hi)}
        low, high = min(ends), max(ends)
        cuts = sorted(ends | ({0} if low < 0 < high else set()))
        readers = tuple(
            tuple(name for name, window in windows.items() if window.lo <= lo and hi <= window.hi)
            for lo, hi in pairwise(cuts)
        )
        return cls(tuple(cuts), readers)

    @property
    def slices(self) -> tuple[Slice, ...]:
        """List the slices in order of difference."""
        return tuple(Slice(Range(lo, hi)) for lo, hi in pairwise(self.cuts))

    def side(self, side: Side) -> tuple[tuple[int, Slice], ...]:
        """List one stream's chain, youngest slice first, each with its level.

        >>> chain = Chain.from_windows({"q1": Range.window(10, 10), "q2": Range.window(60, 60)})
        >>> [(level, piece.ages) for level, piece in chain.side("r")]
        [(1, (1, 10)), (0, (10, 60))]
        """
        mine = [(level, piece) for level, piece in enumerate(self.slices) if piece.side == side]
        return tuple(mine if side == "l" else reversed(mine))

    def levels(self, window: Range) -> tuple[int, int]:
        """Give the levels ``[first, last)`` that make up a window whose ends are cuts.

        >>> Chain.from_windows({"q1": Range(0, 10), "q2": Range(0, 60)}).levels(Range(0, 60))
        (0, 2)
        """
        first = bisect_right(self.cuts, window.lo) - 1
        last = bisect_right(self.cuts, window.hi) - 1
        if (self.cuts[first], self.cuts[last]) != (window.lo, window.hi):
            raise InputError(f"the chain is not cut at the ends of {window}")
        return first, last
