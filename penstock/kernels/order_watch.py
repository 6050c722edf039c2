"""How far out of order a stream is, watched in bounded memory as it arrives (paper 5, Definition 2.2).

The scrambling k is the most positions by which a row comes after one that is not smaller.  For a row the farthest such
one is where the *front*, the largest value so far, first reached it; so all there is to know are the front's steps::

    position   1    2    3    4    5    6    7
    value      1    4    2    2    3    5    9
    front      1    4    4    4    4    5    9       steps at 1, 2, 6, 7
                    └── k = 3 ──┘                    the 3 at position 5 is not above the 4 that came at position 2

To put two pieces of a stream together, the later one's *tail* is needed too: the last position at which a value, or a
smaller one, came.  Steps that are far away are put together, to within a share `PRECISION` of their distance: there are
O(log rows) of them, and what is measured is never below the truth, and above it by that share at most.

What a join has to remember follows from fronts alone.  A row still to come from S_j is above all but the last k_j rows
of S_j, so rows of S_i before the first that is above the front at ``n_j - k_j`` meet nobody any more (`rows_done`)::

    S_j   ......... front here: 57 ......│ the last k_j rows │ to come: all above 57
    S_i   ... 51 55 57 │ 58 54 60 61 ....................... │
          nobody needs │ kept: from the first that is above 57

That is never more than Eq. 7 asks for, and needs neither rates nor lags: what came meanwhile is counted, not estimated.

In:  values of the ordered attribute, as integers, in the order of arrival.
Out: `Order`, a small frozen value that a commit can hold.  Positions begin at 1.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numba import njit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.kernels.key_hash import Ints

    Columns = tuple[Ints, Ints, Ints]

PRECISION = 1 / 16
"""The share of its distance by which the position of a step may be off."""


HEADROOM = 1 / 8
"""How much farther out of order than it was a stream is expected to be yet, as a share (`penstock lab p5-fig5`)."""


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps of a staircase, ascending: each stands for those from its `first` position to its `last`, and has a value.

    Of a front it is the largest of their values, which is reached at `last`; of a tail the smallest, seen at `first`.
    """

    first: tuple[int, ...] = ()
    last: tuple[int, ...] = ()
    value: tuple[int, ...] = ()

    def arrays(self) -> Columns:
        """Give them as arrays."""
        return np.array(self.first, np.int64), np.array(self.last, np.int64), np.array(self.value, np.int64)


@dataclass(frozen=True, slots=True)
class Order:
    """What is known of the order of some rows: how many, their scrambling, and the steps of their front and tail.

    >>> Order.of(np.array([1, 4, 2, 2, 3, 5, 9])).scrambling
    3
    >>> Order().then(np.array([1, 4, 2])).then(np.array([2, 3, 5, 9])).scrambling
    3
    """

    rows: int = 0
    scrambling: int = 0
    front: Steps = Steps()
    tail: Steps = Steps()

    @classmethod
    def of(cls, values: Ints, positions: Ints | None = None, rows: int | None = None) -> Order:
        """Look at rows in the order of arrival, at the given positions among so many if some rows have no value.

        >>> order = Order.of(np.array([4, 2]), np.array([2, 5]), rows=6)
        >>> order.rows, order.scrambling
        (6, 3)
        """
        rows = int(values.size) if rows is None else rows
        if not values.size:
            return cls(rows)
        at = np.arange(1, values.size + 1) if positions is None else positions
        front = np.maximum.accumulate(values)
        steps = np.flatnonzero(np.append(True, front[1:] > front[:-1]))
        farthest = steps[np.searchsorted(front[steps], values)]
        low = np.minimum.accumulate(values[::-1])[::-1]
        ends = np.flatnonzero(np.append(low[:-1] < low[1:], True))
        return cls(
            rows,
            int((at - at[farthest]).max()),
            _steps(*_thin_front(at[steps], at[steps], front[steps], rows, PRECISION)),
            _steps(*_thin_tail(at[ends], at[ends], low[ends], PRECISION)),
        )

    def then(self, values: Ints) -> Order:
        """Add rows that arrived next, of which no earlier piece will be asked for: the tail is let go."""
        return self.merged(Order.of(values)).settled()

    def settled(self) -> Order:
        """Give the same for a piece with which the stream begins: its tail is not needed."""
        return replace(self, tail=Steps())

    def merged(self, later: Order) -> Order:
        """Put two pieces of a stream together, the second right behind the first."""
        if not self.rows or not later.rows:
            return later if not self.rows else self
        rows = self.rows + later.rows
        mine, its = self.front.arrays(), later.front.arrays()
        higher = its[2] > mine[2][-1] if mine[2].size else np.ones(its[2].size, bool)
        front = _appended(mine, _moved(its, self.rows), higher)
        tail, ends = self.tail.arrays(), _moved(later.tail.arrays(), self.rows)
        lower = tail[2] < ends[2][0] if ends[2].size else np.ones(tail[2].size, bool)
        kept = _appended(_chosen(tail, lower), ends, np.ones(ends[2].size, bool))
        return Order(
            rows,
            max(self.scrambling, later.scrambling, _across(mine, ends)),
            _steps(*_thin_front(*front, rows, PRECISION)),
            _steps(*_thin_tail(*kept, PRECISION)),
        )

    def expected(self, headroom: float = HEADROOM) -> int:
        """Give the scrambling to reckon with: what was seen, and some more while not all has been seen.

        >>> Order(rows=1000, scrambling=80).expected()
        90
        """
        return self.scrambling + int(headroom * self.scrambling)

    @property
    def ends(self) -> tuple[int, int] | None:
        """Give the lowest and the highest value of a piece whose tail is there; None if no row has one.

        >>> Order.of(np.array([4, 2, 9, 7])).ends
        (2, 9)
        """
        return (self.tail.value[0], self.front.value[-1]) if self.tail.value else None

    def front_at(self, position: int) -> int | None:
        """Give a value that the front had reached by a position, the largest that is known; None if there is none.

        >>> order = Order.of(np.array([1, 4, 2, 2, 3, 5, 9]))
        >>> order.front_at(4), order.front_at(7), order.front_at(0)
        (4, 9, None)
        """
        place = bisect_right(self.front.last, position)
        return self.front.value[place - 1] if place else None

    def highest_of(self, rows: int) -> int | None:
        """Return a value that none of the first so many rows is above, the least that is known; None: they have none.

        >>> order = Order.of(np.array([1, 4, 2, 2, 3, 5, 9]))
        >>> order.highest_of(5), order.highest_of(7), order.highest_of(0)
        (4, 9, None)
        """
        place = bisect_right(self.front.first, rows)
        return self.front.value[place - 1] if place else None

    def rows_up_to(self, value: int) -> int:
        """Count the rows before the first that is above a value.

        >>> Order.of(np.array([1, 4, 2, 2, 3, 5, 9])).rows_up_to(4)
        5
        """
        place = bisect_right(self.front.value, value)
        return self.front.first[place] - 1 if place < len(self.front.first) else self.rows


def rows_done(
    orders: Sequence[Order], scrambling: Sequence[int] | None = None, *, rounded: bool = False
) -> tuple[int, ...]:
    """Say for each stream of a join how many of its first rows no row still to come can meet.

    By the scrambling of each stream as measured, or as it is known.  Where it is right, nothing is missed.  Where
    values were `rounded`, a row still to come may be equal to one that it is above.

    >>> slow, fast = Order.of(np.array([1, 2, 3])), Order.of(np.arange(1, 10))
    >>> rows_done([slow, fast]), rows_done([slow, fast], [1, 7])
    ((3, 3), (2, 2))
    """
    known = scrambling if scrambling is not None else [each.scrambling for each in orders]
    fronts = [each.front_at(each.rows - k) for each, k in zip(orders, known, strict=True)]
    fronts = [None if each is None else each - rounded for each in fronts]
    return tuple(
        min(_passed(order, front) for j, front in enumerate(fronts) if j != i)
        for i, order in enumerate(orders)
    )


def rows_below(orders: Sequence[Order], passed: Sequence[int | None]) -> tuple[int, ...]:
    """Say the same where it is known of each stream which value all rows still to come are above; None: of none.

    >>> slow, fast = Order.of(np.array([1, 2, 3])), Order.of(np.arange(1, 10))
    >>> rows_below([slow, fast], [3, 9]), rows_below([slow, fast], [None, 9])
    ((3, 3), (3, 0))
    """
    return tuple(
        min(_passed(order, each) for j, each in enumerate(passed) if j != i) for i, order in enumerate(orders)
    )


def lag_at_most(own: Order, other: Order, scrambling: int | None = None) -> int:
    """Bound the lag from one stream to another (Definition 2.6), which the rows still to come decide, from above.

    >>> lag_at_most(Order.of(np.arange(1, 10)), Order.of(np.array([1, 2, 3])))
    7
    """
    k = other.scrambling if scrambling is None else scrambling
    return own.rows - _passed(own, other.front_at(other.rows - k - 1))


def _passed(order: Order, front: int | None) -> int:
    return 0 if front is None else order.rows_up_to(front)


def _steps(first: Ints, last: Ints, value: Ints) -> Steps:
    return Steps(tuple(first.tolist()), tuple(last.tolist()), tuple(value.tolist()))


def _moved(steps: Columns, rows: int) -> Columns:
    """Move steps on by so many positions."""
    return steps[0] + rows, steps[1] + rows, steps[2]


def _chosen(steps: Columns, which: np.ndarray) -> Columns:
    first, last, value = (each[which] for each in steps)
    return first, last, value


def _appended(steps: Columns, more: Columns, which: np.ndarray) -> Columns:
    """Append some steps of another staircase."""
    pairs = zip(steps, _chosen(more, which), strict=True)
    first, last, value = (np.concatenate(each) for each in pairs)
    return first, last, value


def _across(front: Columns, tail: Columns) -> int:
    """Give the farthest that a row of a tail is behind one of a front that is not smaller; 0 if none is."""
    place = np.searchsorted(front[2], tail[2])
    met = place < front[2].size
    return int((tail[1][met] - front[0][place[met]]).max(initial=0))


@njit(cache=True, nogil=True)
def _thin_front(first, last, value, rows, share):
    """Put steps together, from the newest to the oldest, while they span no more than a share of their distance."""
    out = np.empty((3, first.size), np.int64)
    size, newest = 0, first.size - 1
    while newest >= 0:
        oldest = newest
        # the next row is at rows + 1:  last - first <= share * (rows + 1 - last)
        room = share * (rows + 1 - last[newest])
        while oldest > 0 and last[newest] - first[oldest - 1] <= room:
            oldest -= 1
        out[0, size], out[1, size], out[2, size] = first[oldest], last[newest], value[newest]
        size += 1
        newest = oldest - 1
    kept = out[:, :size][:, ::-1]
    return kept[0].copy(), kept[1].copy(), kept[2].copy()


@njit(cache=True, nogil=True)
def _thin_tail(first, last, value, share):
    """Put steps together, from the oldest to the newest, while they span no more than a share of the way to them."""
    out = np.empty((3, first.size), np.int64)
    size, oldest = 0, 0
    while oldest < first.size:
        newest = oldest
        while newest + 1 < first.size and last[newest + 1] - first[oldest] <= share * first[oldest]:
            newest += 1
        out[0, size], out[1, size], out[2, size] = first[oldest], last[newest], value[oldest]
        size += 1
        oldest = newest + 1
    return out[0, :size].copy(), out[1, :size].copy(), out[2, :size].copy()
