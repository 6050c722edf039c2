"""Find the pairs of a batch and a segment in windows that count rows.

A count of rows cannot be subtracted from a time.  But a row's position in its stream never falls as time goes on, so
for each batch row every cut of the chain stands at one certain event time of its partner: its *ladder*, one rung for
each cut.  Partners are found and sorted into slices by event time alone, as segments are sorted::

    A [ROWS 2] ⋈ B [ROWS 3], b at 20 probes A         A at   3   8   9   15  |  22
                                                             x   x   [   ]  20
    rungs (A)   two rows back: 9        b itself: 20         partners: 9, 15

A rung is the time of a certain row: the batch row's own position, shifted by the cut, looked up in the order of the
stream.  That is one look into an array, however large the state is.

In:  rows sorted by ``(h, t)``, and a `Ladder` of rungs from the oldest partner to the youngest.
Out: `Pairs` with their levels, as `penstock.join.probe` gives them for windows of time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

from penstock.join.probe import Pairs, gallop, portions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from penstock.join.keys import Ints
    from penstock.join.probe import Rows, Wanted

ON_TIME, ON_LEFT, ON_RIGHT = 0, 1, 2
"""What a rung is measured in: time, rows of the left stream, or rows of the right one."""


@dataclass(frozen=True, slots=True)
class Ladder:
    """The rungs of every batch row, ascending, and the level between each two.

    On time, a rung is the row's own time plus `shift`.  On rows, it is ``marks[shift + n]`` where n counts the rows of
    that stream since `start`, up to and with the batch row's time; `left` and `right` are those rows' times.
    """

    kind: NDArray[np.int8]
    shift: Ints
    marks: Ints
    levels: NDArray[np.int16]
    left: Ints
    right: Ints

    def rungs(self, t: int) -> Ints:
        """Give the rungs of a batch row at time t.

        >>> times = np.array([3, 8, 9, 15])
        >>> marks, level = np.array([-9, -9, 3, 8, 9]), np.array([0])
        >>> ladder = Ladder(np.array([1, 0]), np.array([0, 1]), marks, level, times, times)
        >>> ladder.rungs(20).tolist(), ladder.rungs(8).tolist()
        ([9, 21], [3, 9])
        """
        counts = np.array([0, *(np.searchsorted(times, t, "right") for times in (self.left, self.right))])
        on_rows = self.kind != ON_TIME
        rungs = t + self.shift
        rungs[on_rows] = self.marks[self.shift[on_rows] + counts[self.kind[on_rows]]]
        return rungs


def probe_ladder(
    batch: Rows,
    state: Rows,
    ladder: Ladder,
    *,
    batch_times: tuple[int, int],
    state_times: tuple[int, int],
    wanted: Wanted | None = None,
) -> Iterator[Pairs]:
    """Yield the pairs of `batch` and `state` between the first and last rung, of rows in the given times only.

    Both ranges of times are ``first .. last``, the last included.
    """
    counts = tuple(np.searchsorted(times, batch.t, "right") for times in (ladder.left, ladder.right))
    rungs = ladder.kind, ladder.shift, ladder.marks
    first, count = _runs(batch.h, batch.t, state.h, state.t, counts, rungs, batch_times, state_times)
    for rows, *runs in portions(first, count, wanted):
        mine = tuple(each[rows] for each in counts)
        found = Pairs(*_expand(batch.t[rows], state.t, tuple(runs), mine, rungs, ladder.levels, rows.start))
        if wanted is not None:
            found = _choose(found, batch, state, wanted)
        if len(found):
            yield found


def _choose(found: Pairs, batch: Rows, state: Rows, wanted: Wanted) -> Pairs:
    """Keep the pairs that some query wants, and say which."""
    sets = wanted.by_level[found.level]
    for rows, places, table in (
        (batch, found.batch, wanted.by_batch),
        (state, found.state, wanted.by_state),
    ):
        sets = sets & (table[0] if rows.pattern is None else table[rows.pattern[places]])
    return Pairs(found.batch, found.state, found.level, sets).only(np.asarray(sets.any(axis=1)))


@njit(cache=True, nogil=True)
def _rung(place: Any, t: Any, left: Any, right: Any, rungs: Any) -> Any:
    """Give one rung of a batch row at time t that so many rows of each stream precede."""
    kind, shift, marks = rungs
    if kind[place] == ON_TIME:
        return t + shift[place]
    return marks[shift[place] + (left if kind[place] == ON_LEFT else right)]


@njit(cache=True, nogil=True)
def _runs(
    batch_h: Any,
    batch_t: Any,
    state_h: Any,
    state_t: Any,
    counts: Any,
    rungs: Any,
    batch_times: Any,
    state_times: Any,
) -> Any:
    """For each batch row: where its run of partners begins, and how long it is."""
    left, right = counts
    last = rungs[0].size - 1
    first = np.zeros(batch_h.size, np.int64)
    count = np.zeros(batch_h.size, np.int64)
    start = 0
    end = 0
    for i in range(batch_h.size):
        if batch_t[i] < batch_times[0] or batch_t[i] > batch_times[1]:
            continue
        # rungs[0] <= t_state < rungs[-1]; both rise with the batch row's time, so neither pointer ever goes back
        low = max(_rung(0, batch_t[i], left[i], right[i], rungs), state_times[0])
        high = min(_rung(last, batch_t[i], left[i], right[i], rungs), state_times[1] + 1)
        start = gallop(state_h, state_t, start, batch_h[i], low)
        end = max(end, start)
        end = gallop(state_h, state_t, end, batch_h[i], high)
        first[i] = start
        count[i] = end - start
    return first, count


@njit(cache=True, nogil=True)
def _expand(batch_t: Any, state_t: Any, runs: Any, counts: Any, rungs: Any, levels: Any, offset: Any) -> Any:
    """Write out every pair of the runs with its level."""
    first, count = runs
    left, right = counts
    total = count.sum()
    batch_row = np.empty(total, np.int64)
    state_row = np.empty(total, np.int64)
    level = np.empty(total, np.int16)
    k = 0
    for i in range(batch_t.size):
        place = 0
        for j in range(first[i], first[i] + count[i]):
            while state_t[j] >= _rung(place + 1, batch_t[i], left[i], right[i], rungs):
                place += 1
            batch_row[k] = i + offset
            state_row[k] = j
            level[k] = levels[place]
            k += 1
    return batch_row, state_row, level
