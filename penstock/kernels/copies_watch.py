"""The multiplicity of a stream: the maximum number of rows with one value, in bounded memory (paper 5).

In a stream that is nearly in order, rows of one value are close together.  So values are *open*, with a count each,
near the end of a piece, and near its beginning, where an earlier piece may be merged.  The values in between are
*closed*: only their maximum count is kept::

    values   │ open, counted │ .... closed: `closed_most` rows each at most .... │ open, counted │
             └ at most `limits.MAX_OPEN_VALUES`                           and as many again ┘

A row of a closed value opens it again, with that maximum count.  So the measured multiplicity is never too small, and
it is exact if no row is later than the open values.  Beyond that it may grow by one with every batch, up to the limit
of the scrambling (k + 1).  If the order of the stream is measured too, only values that can recur stay open
(`open_from`).

In:  values of the ordered attribute, as integers, in any order within a piece.
Out: `Copies`, a small frozen value for commits; `ArrivalRate`, the rate of rows.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from penstock import limits

if TYPE_CHECKING:
    from penstock.kernels.key_hash import Ints
    from penstock.kernels.order_watch import Order


@dataclass(frozen=True, slots=True)
class Copies:
    """Open values, ascending, with their counts; the range of closed values, and their maximum count.

    >>> Copies.of(np.array([1, 2, 2, 3])).then(np.array([2, 5])).multiplicity
    3
    """

    values: tuple[int, ...] = ()
    counts: tuple[int, ...] = ()
    closed_from: int = 0
    closed_to: int = 0
    closed_most: int = 0

    @classmethod
    def of(cls, values: Ints) -> Copies:
        """Count the rows of a piece; all of its values are open."""
        found, counts = np.unique(values, return_counts=True)
        return cls(tuple(found.tolist()), tuple(counts.tolist()))

    @property
    def multiplicity(self) -> int:
        """Return the maximum count."""
        return max(1, self.closed_most, max(self.counts, default=0))

    def then(self, values: Ints, above: int | None = None) -> Copies:
        """Add rows that arrived next, to a piece that begins the stream; close values up to `above`, if given."""
        return self.plus(Copies.of(values), above)

    def plus(self, later: Copies, above: int | None = None) -> Copies:
        """Add the counts of rows that arrived next, in the same way."""
        both = self.merged(later)
        done = 0 if above is None else bisect_right(both.values, above)
        return both.closed(ends=(0, min(limits.MAX_OPEN_VALUES, len(both.values) - done)))

    def merged(self, other: Copies) -> Copies:
        """Merge the counts of two pieces, and close the values in between."""
        both = np.union1d(np.array(self.values, np.int64), np.array(other.values, np.int64))
        counts = self.rows_of(both) + other.rows_of(both)
        ranges = [copies for copies in (self, other) if copies.closed_most]
        apart = len(ranges) < 2 or ranges[0].closed_to < ranges[1].closed_from  # noqa: PLR2004
        apart = apart or ranges[1].closed_to < ranges[0].closed_from
        most = [copies.closed_most for copies in ranges]
        return Copies(
            tuple(both.tolist()),
            tuple(counts.tolist()),
            min((copies.closed_from for copies in ranges), default=0),
            max((copies.closed_to for copies in ranges), default=0),
            (max(most, default=0) if apart else sum(most)),
        ).closed()

    def rows_of(self, values: Ints) -> Ints:
        """Return the maximum number of rows that each value can have here."""
        mine, counts = np.array(self.values, np.int64), np.array(self.counts, np.int64)
        hidden = (values >= self.closed_from) & (values <= self.closed_to)
        rows = np.where(hidden, self.closed_most, 0)
        rows[np.searchsorted(values, mine)] = counts
        return rows

    def closed(self, ends: tuple[int, int] = (limits.MAX_OPEN_VALUES, limits.MAX_OPEN_VALUES)) -> Copies:
        """Close all values but so many of the lowest and of the highest."""
        low, high = ends[0], max(ends[0], len(self.values) - ends[1])
        if low >= high:
            return self
        hidden, counts = self.values[low:high], self.counts[low:high]
        was = self.closed_most > 0
        return Copies(
            self.values[:low] + self.values[high:],
            self.counts[:low] + self.counts[high:],
            min(hidden[0], self.closed_from) if was else hidden[0],
            max(hidden[-1], self.closed_to) if was else hidden[-1],
            max(self.closed_most, *counts),
        )


def open_from(order: Order) -> int | None:
    """Return a value below which no further row is expected: it would be twice as late as any so far.

    >>> from penstock.kernels.order_watch import Order
    >>> open_from(Order.of(np.arange(2000)))
    1485
    """
    return order.front_at(order.rows - max(2 * order.scrambling, limits.MIN_OPEN_ROWS))


@dataclass(frozen=True, slots=True)
class ArrivalRate:
    """The recent rate of rows, from fading sums of rows and seconds, and the maximum rate.

    >>> pace = ArrivalRate().then(100, 2.0).then(400, 1.0)
    >>> round(pace.rate), pace.fastest
    (175, 400.0)
    """

    rows: float = 0.0
    seconds: float = 0.0
    fastest: float = 0.0

    @property
    def rate(self) -> float:
        """Return the recent rows per second; 0 before the first observation."""
        return self.rows / self.seconds if self.seconds else 0.0

    def then(self, rows: int, seconds: float) -> ArrivalRate:
        """Add an observation: so many rows in so many seconds."""
        if seconds <= 0:
            return ArrivalRate(self.rows + rows, self.seconds, self.fastest)
        return ArrivalRate(
            limits.FADE_FACTOR * self.rows + rows,
            limits.FADE_FACTOR * self.seconds + seconds,
            max(self.fastest, rows / seconds),
        )
