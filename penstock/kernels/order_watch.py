"""The disorder of a stream, measured in bounded memory as rows arrive (paper 5, Definition 2.2).

The *scrambling* k is the maximum displacement: how many positions may lie between a row and an earlier row with an
equal or larger value.  The farthest such row is the one at which the *front*, the largest value so far, reached the
row's value.  So the steps of the front are sufficient::

    position   1    2    3    4    5    6    7
    value      1    4    2    2    3    5    9
    front      1    4    4    4    4    5    9       steps at 1, 2, 6, 7
                    └── k = 3 ──┘                    the 3 at position 5 is below the 4 at position 2

To merge two pieces of a stream, the *tail* of the later one is needed too: the last position of each value, or of a
smaller one.  Distant steps are merged if they are within a share `PRECISION` of their distance.  So there are O(log
rows) steps, and the measured scrambling is never below the true one, and above it by that share at most.

The rows that a join must keep follow from the fronts.  A later row of S_j is above all but the last k_j rows of S_j, so
rows of S_i before the first that is above the front at ``n_j - k_j`` have no later partner (`rows_done`)::

    S_j   ......... front here: 57 ......│ the last k_j rows │ to come: all above 57
    S_i   ... 51 55 57 │ 58 54 60 61 ....................... │
          not needed   │ kept: from the first that is above 57

This keeps at most the rows of Eq. 7, and needs neither rates nor lags.

In:  values of the ordered attribute, as integers, in the order of arrival.
Out: `Order`, a small frozen value for commits.  Positions begin at 1.
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
"""The maximum error of a step's position, as a share of its distance."""

HEADROOM = 1 / 8
"""The expected growth of a stream's scrambling, as a share."""


@dataclass(frozen=True, slots=True)
class Staircase:
    """Ascending steps; each covers the positions from `first` to `last`, and has one value.

    For a front that is their largest value, reached at `last`; for a tail the smallest, at `first`.
    """

    first: tuple[int, ...] = ()
    last: tuple[int, ...] = ()
    value: tuple[int, ...] = ()

    def arrays(self) -> Columns:
        """Return the steps as arrays."""
        return np.array(self.first, np.int64), np.array(self.last, np.int64), np.array(self.value, np.int64)


@dataclass(frozen=True, slots=True)
class Order:
    """The order of some rows: their number, their scrambling, and the steps of their front and tail.

    >>> Order.of(np.array([1, 4, 2, 2, 3, 5, 9])).scrambling
    3
    >>> Order().then(np.array([1, 4, 2])).then(np.array([2, 3, 5, 9])).scrambling
    3
    """

    rows: int = 0
    scrambling: int = 0
    front: Staircase = Staircase()
    tail: Staircase = Staircase()

    @classmethod
    def of(cls, values: Ints, positions: Ints | None = None, rows: int | None = None) -> Order:
        """Measure rows in the order of arrival; `positions` and `rows` are given if some rows have no value.

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
        """Add rows that arrived next, to a piece that begins the stream: its tail is not needed."""
        return self.merged(Order.of(values)).settled()

    def settled(self) -> Order:
        """Return the piece without its tail, which is not needed if the stream begins with it."""
        return replace(self, tail=Staircase())

    def merged(self, later: Order) -> Order:
        """Merge two successive pieces of a stream."""
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
        """Return the measured scrambling with some headroom.

        >>> Order(rows=1000, scrambling=80).expected()
        90
        """
        return self.scrambling + int(headroom * self.scrambling)

    @property
    def ends(self) -> tuple[int, int] | None:
        """Return the minimum and maximum of a piece that has a tail; None if no row has a value.

        >>> Order.of(np.array([4, 2, 9, 7])).ends
        (2, 9)
        """
        return (self.tail.value[0], self.front.value[-1]) if self.tail.value else None

    def front_at(self, position: int) -> int | None:
        """Return the largest known value that the front had reached by a position; None if there is none.

        >>> order = Order.of(np.array([1, 4, 2, 2, 3, 5, 9]))
        >>> order.front_at(4), order.front_at(7), order.front_at(0)
        (4, 9, None)
        """
        place = bisect_right(self.front.last, position)
        return self.front.value[place - 1] if place else None

    def highest_of(self, rows: int) -> int | None:
        """Return the least known upper bound of the first so many rows; None if none of them has a value.

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
    """Return for each stream of a join the number of its first rows that have no later partner.

    `scrambling` replaces the measured one.  If it is correct, no result is missed.  If values were `rounded`, a later
    row may equal a value that it is above.

    >>> slow, fast = Order.of(np.array([1, 2, 3])), Order.of(np.arange(1, 10))
    >>> rows_done([slow, fast]), rows_done([slow, fast], [1, 7])
    ((3, 3), (2, 2))
    """
    known = scrambling if scrambling is not None else [order.scrambling for order in orders]
    fronts = [order.front_at(order.rows - k) for order, k in zip(orders, known, strict=True)]
    fronts = [None if front is None else front - rounded for front in fronts]
    return rows_below(orders, fronts)


def rows_below(orders: Sequence[Order], passed: Sequence[int | None]) -> tuple[int, ...]:
    """Return the same, if each later row of a stream is known to be above a value; None: no such value.

    >>> slow, fast = Order.of(np.array([1, 2, 3])), Order.of(np.arange(1, 10))
    >>> rows_below([slow, fast], [3, 9]), rows_below([slow, fast], [None, 9])
    ((3, 3), (3, 0))
    """
    return tuple(
        min(_passed(order, value) for j, value in enumerate(passed) if j != i)
        for i, order in enumerate(orders)
    )


def lag_at_most(own: Order, other: Order, scrambling: int | None = None) -> int:
    """Return an upper bound of the lag from one stream to another (Definition 2.6).

    >>> lag_at_most(Order.of(np.arange(1, 10)), Order.of(np.array([1, 2, 3])))
    7
    """
    k = other.scrambling if scrambling is None else scrambling
    return own.rows - _passed(own, other.front_at(other.rows - k - 1))


def _passed(order: Order, front: int | None) -> int:
    return 0 if front is None else order.rows_up_to(front)


def _steps(first: Ints, last: Ints, value: Ints) -> Staircase:
    return Staircase(tuple(first.tolist()), tuple(last.tolist()), tuple(value.tolist()))


def _moved(steps: Columns, rows: int) -> Columns:
    return steps[0] + rows, steps[1] + rows, steps[2]


def _chosen(steps: Columns, which: np.ndarray) -> Columns:
    first, last, value = (column[which] for column in steps)
    return first, last, value


def _appended(steps: Columns, more: Columns, which: np.ndarray) -> Columns:
    """Append the selected steps of another staircase."""
    pairs = zip(steps, _chosen(more, which), strict=True)
    first, last, value = (np.concatenate(column) for column in pairs)
    return first, last, value


def _across(front: Columns, tail: Columns) -> int:
    """Return the maximum displacement of a row of a tail behind a row of a front; 0 if there is none."""
    place = np.searchsorted(front[2], tail[2])
    met = place < front[2].size
    return int((tail[1][met] - front[0][place[met]]).max(initial=0))


@njit(cache=True, nogil=True)
def _thin_front(first, last, value, rows, share):
    """Merge steps, from the newest to the oldest, while they span no more than a share of their distance."""
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
    """Merge steps, from the oldest to the newest, while they span no more than a share of their position."""
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
