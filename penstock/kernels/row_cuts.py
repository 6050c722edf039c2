"""Find the pairs of a batch and a segment in windows that count rows.

Positions of rows rise with their event times.  So for each batch row, every cut of the chain corresponds to one event
time of the partner, the *cut time*.  Partners are then found and sorted into slices by event time::

    A [ROWS 2] ⋈ B [ROWS 3], b at 20 probes A         A at   3   8   9   15  |  22
                                                             x   x   [   ]  20
    cut_times (A)   two rows back: 9        b itself: 20         partners: 9, 15

A cut time is the time of the row at the batch row's own position, shifted by the cut.  It takes one array access,
whatever the size of the state.

In:  rows sorted by ``(h, t)``, and a `RowCuts` of cut times from the oldest partner to the youngest.
Out: `Pairs` with their levels, as `penstock.kernels.probe` gives them for windows of time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numba import njit

from penstock.kernels.probe import Pairs, gallop, portions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from penstock.kernels.key_hash import Ints
    from penstock.kernels.probe import Rows, Wanted

ON_TIME, ON_LEFT, ON_RIGHT = 0, 1, 2
"""The unit of a cut: time, rows of the left stream, or rows of the right stream."""


@dataclass(frozen=True, slots=True)
class RowCuts:
    """The cuts, ascending, and the level between each two.

    For a cut in time, the cut time is the row's own time plus `shift`.  For a cut in rows, it is ``marks[shift + n]``,
    where n is the number of rows of that stream up to the batch row's time; `left` and `right` are these rows' times.
    """

    kind: NDArray[np.int8]
    shift: Ints
    marks: Ints
    levels: NDArray[np.int16]
    left: Ints
    right: Ints

    def cut_times(self, t: int) -> Ints:
        """Return the cut times of a batch row at time t.

        >>> times = np.array([3, 8, 9, 15])
        >>> marks, level = np.array([-9, -9, 3, 8, 9]), np.array([0])
        >>> row_cuts = RowCuts(np.array([1, 0]), np.array([0, 1]), marks, level, times, times)
        >>> row_cuts.cut_times(20).tolist(), row_cuts.cut_times(8).tolist()
        ([9, 21], [3, 9])
        """
        counts = np.array([0, *(np.searchsorted(times, t, "right") for times in (self.left, self.right))])
        on_rows = self.kind != ON_TIME
        cut_times = t + self.shift
        cut_times[on_rows] = self.marks[self.shift[on_rows] + counts[self.kind[on_rows]]]
        return cut_times


def probe_row_cuts(
    batch: Rows,
    state: Rows,
    row_cuts: RowCuts,
    *,
    batch_times: tuple[int, int],
    state_times: tuple[int, int],
    wanted: Wanted | None = None,
) -> Iterator[Pairs]:
    """Yield the pairs of `batch` and `state` between the first and the last cut time, of rows in the given times.

    Both ranges of times are ``first .. last``, the last included.
    """
    counts = tuple(np.searchsorted(times, batch.t, "right") for times in (row_cuts.left, row_cuts.right))
    cut_times = row_cuts.kind, row_cuts.shift, row_cuts.marks
    first, count = _runs(batch.h, batch.t, state.h, state.t, counts, cut_times, batch_times, state_times)
    for rows, *runs in portions(first, count, wanted):
        portion_counts = tuple(side[rows] for side in counts)
        pairs = Pairs(
            *_expand(
                batch.t[rows], state.t, tuple(runs), portion_counts, cut_times, row_cuts.levels, rows.start
            )
        )
        if wanted is not None:
            pairs = _choose(pairs, batch, state, wanted)
        if len(pairs):
            yield pairs


def _choose(pairs: Pairs, batch: Rows, state: Rows, wanted: Wanted) -> Pairs:
    """Return the pairs that have a query, with their sets."""
    sets = wanted.by_level[pairs.level]
    for rows, numbers, table in (
        (batch, pairs.batch, wanted.by_batch),
        (state, pairs.state, wanted.by_state),
    ):
        sets = sets & (table[0] if rows.pattern is None else table[rows.pattern[numbers]])
    return Pairs(pairs.batch, pairs.state, pairs.level, sets).only(np.asarray(sets.any(axis=1)))


@njit(cache=True, nogil=True)
def _cut_time(cut, t, left, right, cut_times):
    """Return one cut time of a batch row at time t, with so many rows of each stream before it."""
    kind, shift, marks = cut_times
    if kind[cut] == ON_TIME:
        return t + shift[cut]
    return marks[shift[cut] + (left if kind[cut] == ON_LEFT else right)]


@njit(cache=True, nogil=True)
def _runs(batch_h, batch_t, state_h, state_t, counts, cut_times, batch_times, state_times):
    left, right = counts
    last = cut_times[0].size - 1
    first = np.zeros(batch_h.size, np.int64)
    count = np.zeros(batch_h.size, np.int64)
    start = 0
    end = 0
    for i in range(batch_h.size):
        if batch_t[i] < batch_times[0] or batch_t[i] > batch_times[1]:
            continue
        # cut_times[0] <= t_state < cut_times[-1]; both rise with the batch row's time: no pointer ever goes back
        low = max(_cut_time(0, batch_t[i], left[i], right[i], cut_times), state_times[0])
        high = min(_cut_time(last, batch_t[i], left[i], right[i], cut_times), state_times[1] + 1)
        start = gallop(state_h, state_t, start, batch_h[i], low)
        end = max(end, start)
        end = gallop(state_h, state_t, end, batch_h[i], high)
        first[i] = start
        count[i] = end - start
    return first, count


@njit(cache=True, nogil=True)
def _expand(batch_t, state_t, runs, counts, cut_times, levels, offset):
    first, count = runs
    left, right = counts
    total = count.sum()
    batch_row = np.empty(total, np.int64)
    state_row = np.empty(total, np.int64)
    level = np.empty(total, np.int16)
    k = 0
    for i in range(batch_t.size):
        piece = 0
        for j in range(first[i], first[i] + count[i]):
            while state_t[j] >= _cut_time(piece + 1, batch_t[i], left[i], right[i], cut_times):
                piece += 1
            batch_row[k] = i + offset
            state_row[k] = j
            level[k] = levels[piece]
            k += 1
    return batch_row, state_row, level
