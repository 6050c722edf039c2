"""Divide the pairs of a unit among its tasks, so that every pair is met in one task and every task has its part.

With a key, a task takes a range of hashes out of every segment, because rows of different hashes never meet.  Without
one, every row may meet every other: a task deals itself a share of the rows that *probe*, and looks in all the rows
that are *probed*, so a pair is met where its probing row is::

    rows of a new segment, by time     a0 a1 a2 a3 a4 a5 a6
    task that probes with the row       0  1  2  0  1  2  0
    probed by each of them             all of the other stream's segments

Rows are dealt one by one, not in runs of neighbours: a segment is sorted by time, and the rows at its young end may
find far fewer partners than those at its old end.

In:  the hashes of a segment.  Out: slices of its rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.kernels.key_hash import hash_range, rows_in_range

if TYPE_CHECKING:
    from penstock.kernels.key_hash import Hashes


@dataclass(frozen=True, slots=True)
class Division:
    """What one of `parts` tasks takes of a unit."""

    part: int
    parts: int
    keyed: bool

    def probed(self, hashes: Hashes) -> slice:
        """Find the rows of a segment that are looked up in this task.

        >>> import numpy as np
        >>> Division(1, 2, keyed=True).probed(np.array([1, 1 << 63], np.uint64))
        slice(1, 2, None)
        >>> Division(1, 2, keyed=False).probed(np.zeros(5, np.uint64))
        slice(0, 5, None)
        """
        if not self.keyed:
            return slice(0, hashes.size)
        return rows_in_range(hashes, *hash_range(self.part, self.parts))

    def probing(self, hashes: Hashes, number: int = 0) -> slice:
        """Find the rows of the unit's segment `number` that look for partners in this task.

        The first row of each segment goes to another task, so that segments of few rows are dealt out too.

        >>> import numpy as np
        >>> [Division(part, 2, keyed=False).probing(np.zeros(5, np.uint64)) for part in range(2)]
        [slice(0, 5, 2), slice(1, 5, 2)]
        """
        if self.keyed:
            return self.probed(hashes)
        return slice((self.part + number) % self.parts, hashes.size, self.parts)
