"""Windows that count rows, where more than two streams are joined: between which times the partners of a row lie.

Row i is met while it is among the last n rows of its stream: with ``N(t)`` the number of that stream's rows up to time
t, ``N(T) - N(T_i) < n`` for the time T of the newest row of the result.  So a row has a time from which on it is met no
more, and a newest row a time from which on it meets rows::

    rows of stream i        1  3  3  6  8  9                  n = 2
    row at 3, N = 3         met while N(T) < 5, so before 8   `deadline`
    newest row at 8, N = 5  meets rows with N > 3, from 6 on  `earliest`

In:  the rolls of a unit's streams, and the most rows that each window counts.
Out: for the rows of one unit, times and numbers of rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from penstock.state.row_times import NOT_YET, Positions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from penstock.engine.tasks.count_axis import Counting
    from penstock.kernels.key_hash import Ints
    from penstock.state.files import Files


@dataclass(frozen=True, slots=True)
class RowCounts:
    """The times of a stream's rows that a unit may have to count, in order, of which the first has number `before`."""

    times: Ints
    before: int
    most: int

    def up_to(self, t: Ints) -> Ints:
        """Count the rows up to some times, as far as it matters."""
        return self.before + np.searchsorted(self.times, t, "right")

    def deadline(self, t: Ints) -> Ints:
        """Give the time from which on rows of these times are not met any more.

        >>> RowCounts(np.array([1, 3, 3, 6, 8, 9]), 0, 2).deadline(np.array([3]))
        array([8])
        """
        position = self.up_to(t) + self.most - 1 - self.before
        known = np.append(self.times, NOT_YET)
        return known[np.minimum(position, self.times.size)]

    def earliest(self, newest: Ints) -> Ints:
        """Give the first time of rows that are met by newest rows of these times.

        >>> RowCounts(np.array([1, 3, 3, 6, 8, 9]), 0, 2).earliest(np.array([8]))
        array([6])
        """
        position = self.up_to(newest) - self.most - self.before
        return self.times[np.maximum(position, 0)] if self.times.size else newest


def row_counts(files: Files, counting: Counting, limits: Sequence[Sequence[int]]) -> dict[int, RowCounts]:
    """Read what a unit counts: for each input whose window counts rows, the rows before its new ones, and those."""
    counts = {}
    for number, roll in enumerate(counting.rolls):
        if counting.rows[number]:
            order, most = Positions(files, roll), max(limits[number])
            first, last = (order.before(each) for each in (counting.since, counting.until))
            counts[number] = RowCounts(order.times(first - most, last), first - most, most)
    return counts


def counted_within(
    times: Sequence[Ints], counts: dict[int, RowCounts], limits: Sequence[Sequence[int]]
) -> NDArray[np.bool_]:
    """Say which results keep the windows of a query: so many rows, or so long before the newest row."""
    newest = np.max(times, axis=0)
    kept = np.ones(newest.size, np.bool_)
    for number, each in enumerate(times):
        length = max(limit for other, limit in enumerate(limits[number]) if other != number)
        if number in counts:
            kept &= counts[number].up_to(newest) - counts[number].up_to(each) < length
        else:
            kept &= newest - each < length
    return kept
