"""The chain: ages cut at the ends of windows, so that each pair falls in one slice only.

Queries that join the same streams on the same key differ only in how far back they look.  Lay the
difference ``d = T_right - T_left`` of a pair on an axis and cut it at the ends of every window; the pieces are
the *slices*, and a query reads exactly the slices inside its window::

    d            -59        -9         0         10         60
                  |----------|---------|---------|----------|
    older row:        right      right     left      left
    q1 WINDOW 10             ===================
    q2 WINDOW 60  ==========================================

A pair falls in one slice, so it is computed once for all queries that want it.  On the right of 0 the left row is the
older of the two: the papers' chain over the state of the left stream, youngest slice first.  On the left of 0 it is
the chain over the right stream's state.  With ``WINDOW`` both look the same.

Cut at every window end, it is the Mem-Opt chain: no slice holds a row longer than some query needs it (paper 1,
Theorems 3 and 4).  Neighbours may be *merged* into one slice.  Its rows are then held to its far end, and its pairs are
distinguished by the window ends inside it, its *bounds*; that is the router of CPU-Opt::

    bounds       -59        -9         0         10         60      a pair's level: between which bounds it lies
    cuts         -59                   0                    60      the slices, and how long their rows are held

In:  the windows of a group's queries, and where to cut.
Out: a `Chain`, walked by the units of `penstock.engine` and shown by `penstock.plan.plan_text`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from penstock.errors import InputError
from penstock.sql.query import Range

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from penstock.sql.query import Side


@dataclass(frozen=True, slots=True)
class Slice:
    """One piece of the axis of differences, wholly on one side of 0."""

    range: Range

    def __post_init__(self) -> None:
        """Refuse a slice in which either row can be the older one."""
        if self.range.lo < 0 < self.range.hi:
            raise InputError(f"slice {self.range} lies on both sides of 0: cut it there")

    @property
    def side(self) -> Side:
        """Name the stream whose row is the older one: the side whose state this slice is of."""
        return "l" if self.range.lo >= 0 else "r"

    @property
    def ages(self) -> tuple[int, int]:
        """Return the ages ``[start, end)`` of the older row.

        >>> Slice(Range(-59, -9)).ages, Slice(Range(10, 60)).ages
        ((10, 60), (10, 60))
        """
        if self.side == "l":
            return self.range.lo, self.range.hi
        return 1 - self.range.hi, 1 - self.range.lo


@dataclass(frozen=True, slots=True)
class Chain:
    """The slices in order of difference, the queries that read each one, and the bounds that divide pairs into levels.

    >>> chain = Chain.from_windows({"q1": Range(0, 10), "q2": Range(0, 60)})
    >>> [(piece.ages, names) for piece, names in zip(chain.slices, chain.readers)]
    [((0, 10), ('q1', 'q2')), ((10, 60), ('q2',))]
    """

    cuts: tuple[int, ...]
    readers: tuple[tuple[str, ...], ...]
    bounds: tuple[int, ...] = ()
    """Every end of a window, and 0; the cuts are among them.  By default, they are the cuts."""

    def __post_init__(self) -> None:
        """Refuse a chain whose cuts are out of order or whose ends have no readers."""
        if not self.bounds:
            object.__setattr__(self, "bounds", self.cuts)
        if len(self.readers) != len(self.cuts) - 1:
            raise InputError(f"a chain with {len(self.cuts)} cuts has {len(self.readers)} slices")
        if any(one >= other for one, other in pairwise(self.cuts)):
            raise InputError(f"the cuts of a chain must ascend: {self.cuts}")
        if not self.readers[0] or not self.readers[-1]:
            raise InputError("the first and last slice of a chain must have a reader")
        if not set(self.cuts) <= set(self.bounds):
            raise InputError(f"a chain is cut at {self.cuts}, and windows end only at {self.bounds}")

    @classmethod
    def from_windows(cls, windows: Mapping[str, Range], cuts: Iterable[int] | None = None) -> Chain:
        """Build a chain cut at every distinct window end, or at `cuts` and the outermost ends only.

        >>> Chain.from_windows({"q1": Range(0, 10), "q2": Range(0, 60)}, cuts=()).readers
        (('q1', 'q2'),)
        """
        ends = {end for window in windows.values() for end in (window.lo, window.hi)}
        low, high = min(ends), max(ends)
        middle = {0} if low < 0 < high else set()
        bounds = ends | middle
        chosen = bounds if cuts is None else {low, high, *middle, *(bounds & set(cuts))}
        ordered = sorted(chosen)
        readers = tuple(
            tuple(name for name, window in windows.items() if window.lo < hi and lo < window.hi)
            for lo, hi in pairwise(ordered)
        )
        return cls(tuple(ordered), readers, tuple(sorted(bounds)))

    @property
    def slices(self) -> tuple[Slice, ...]:
        """List the slices in order of difference."""
        return tuple(Slice(Range(lo, hi)) for lo, hi in pairwise(self.cuts))

    def read_by(self, query: str) -> list[int]:
        """List the numbers of the slices that a query reads.

        >>> Chain.from_windows({"q1": Range(0, 10), "q2": Range(0, 60)}).read_by("q2")
        [0, 1]
        """
        return [number for number, names in enumerate(self.readers) if query in names]

    def side(self, side: Side) -> tuple[tuple[int, Slice], ...]:
        """List one stream's chain, youngest slice first, each with its number.

        >>> chain = Chain.from_windows({"q1": Range.window(10, 10), "q2": Range.window(60, 60)})
        >>> [(number, piece.ages) for number, piece in chain.side("r")]
        [(1, (1, 10)), (0, (10, 60))]
        """
        slices = [(number, piece) for number, piece in enumerate(self.slices) if piece.side == side]
        return tuple(slices if side == "l" else reversed(slices))

    def levels(self, window: Range) -> tuple[int, int]:
        """Return the levels ``[first, last)`` that make up a window whose ends are bounds.

        >>> Chain.from_windows({"q1": Range(0, 10), "q2": Range(0, 60)}).levels(Range(0, 60))
        (0, 2)
        """
        first = bisect_right(self.bounds, window.lo) - 1
        last = bisect_right(self.bounds, window.hi) - 1
        if (self.bounds[first], self.bounds[last]) != (window.lo, window.hi):
            raise InputError(f"the chain has no bounds at the ends of {window}")
        return first, last

    def held(self, window: Range) -> Range:
        """Return the differences for which rows are held: to the far ends of the slices in which a window ends.

        >>> Chain.from_windows({"q1": Range(0, 10), "q2": Range(0, 60)}, cuts=()).held(Range(0, 10))
        Range(lo=0, hi=60)
        """
        lo = self.cuts[bisect_right(self.cuts, window.lo) - 1] if window.lo < 0 else window.lo
        hi = self.cuts[bisect_left(self.cuts, window.hi)] if window.hi > 0 else window.hi
        return Range(lo, hi)
