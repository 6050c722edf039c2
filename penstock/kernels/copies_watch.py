"""How many rows of a stream have one value at most, watched in bounded memory as they arrive (paper 5's multiplicity).

Rows of one value come close together in a stream that is more or less in order.  So values are counted while they are
near the end of what was seen, or near its beginning, where a piece that was looked at elsewhere may come before.  Those
in between are *closed*, and of them only the largest count is kept::

    values   │ open, counted │ .... closed: `closed_most` rows each at most .... │ open, counted │
             └ `OPEN_VALUES` ┘                                                   └ `OPEN_VALUES` ┘

A row of a closed value opens it again, with as many rows as it can have had.  What is measured is thus never below the
truth, and it is the truth as long as no row comes later than the open values; beyond that it may grow by one with every
batch, up to what the scrambling allows (k + 1).  Where the order of the stream is watched too, no more values are kept
open than can come again (`open_from`).

In:  values of the ordered attribute, as integers, in any order within a piece.
Out: `Copies`, a frozen value that a commit can hold; `Pace`, the rate at which rows come.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from penstock.kernels.key_hash import Ints
    from penstock.kernels.order_watch import Order

OPEN_VALUES = 4096
"""Values that are counted at either end, at most."""

LEAST_ROWS = 512
"""Rows whose values are kept open, however well ordered a stream has been so far."""

PACE_FADE = 0.9
"""How much an observation of the rate counts when the next one comes."""


@dataclass(frozen=True, slots=True)
class Copies:
    """Open values, ascending, with their rows; the range of closed values, and the most rows one of them can have.

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
        """Count the rows of a piece, all of its values open."""
        found, counts = np.unique(values, return_counts=True)
        return cls(tuple(found.tolist()), tuple(counts.tolist()))

    @property
    def multiplicity(self) -> int:
        """Give the most rows that a value has, or can have."""
        return max(1, self.closed_most, max(self.counts, default=0))

    def then(self, values: Ints, above: int | None = None) -> Copies:
        """Add rows that arrived next, of which no earlier piece will be asked for; close values up to one, if given."""
        return self.plus(Copies.of(values), above)

    def plus(self, later: Copies, above: int | None = None) -> Copies:
        """Add what was counted of rows that arrived next, in the same way."""
        both = self.merged(later)
        done = 0 if above is None else bisect_right(both.values, above)
        return both.closed(ends=(0, min(OPEN_VALUES, len(both.values) - done)))

    def merged(self, other: Copies) -> Copies:
        """Put the counts of two pieces together, and close what is in between."""
        both = np.union1d(np.array(self.values, np.int64), np.array(other.values, np.int64))
        counts = self.rows_of(both) + other.rows_of(both)
        ranges = [each for each in (self, other) if each.closed_most]
        apart = len(ranges) < 2 or ranges[0].closed_to < ranges[1].closed_from  # noqa: PLR2004
        apart = apart or ranges[1].closed_to < ranges[0].closed_from
        most = [each.closed_most for each in ranges]
        return Copies(
            tuple(both.tolist()),
            tuple(counts.tolist()),
            min((each.closed_from for each in ranges), default=0),
            max((each.closed_to for each in ranges), default=0),
            (max(most, default=0) if apart else sum(most)),
        ).closed()

    def rows_of(self, values: Ints) -> Ints:
        """Give the most rows that each value can have here."""
        mine, counts = np.array(self.values, np.int64), np.array(self.counts, np.int64)
        hidden = (values >= self.closed_from) & (values <= self.closed_to)
        rows = np.where(hidden, self.closed_most, 0)
        rows[np.searchsorted(values, mine)] = counts
        return rows

    def closed(self, ends: tuple[int, int] = (OPEN_VALUES, OPEN_VALUES)) -> Copies:
        """Close the values that are not near an end: all but so many of the lowest and of the highest."""
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
    """Give a value up to which no row is expected any more: it would be twice as late as any so far.

    >>> from penstock.kernels.order_watch import Order
    >>> open_from(Order.of(np.arange(2000)))
    1485
    """
    return order.front_at(order.rows - max(2 * order.scrambling, LEAST_ROWS))


@dataclass(frozen=True, slots=True)
class Pace:
    """Rows and seconds of late, in sums that fade, and the largest rate of any observation.

    >>> pace = Pace().then(100, 2.0).then(400, 1.0)
    >>> round(pace.rate), pace.fastest
    (175, 400.0)
    """

    rows: float = 0.0
    seconds: float = 0.0
    fastest: float = 0.0

    @property
    def rate(self) -> float:
        """Give the rows a second of late; 0 before any time has passed."""
        return self.rows / self.seconds if self.seconds else 0.0

    def then(self, rows: int, seconds: float) -> Pace:
        """Add the rows that came in so many seconds."""
        if seconds <= 0:
            return Pace(self.rows + rows, self.seconds, self.fastest)
        return Pace(
            PACE_FADE * self.rows + rows,
            PACE_FADE * self.seconds + seconds,
            max(self.fastest, rows / seconds),
        )
