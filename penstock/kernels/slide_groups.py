"""All that slides in one pass, as in `penstock.kernels.slide_pass`, added up by group.

What slides belongs to *members*, which are keys of the join in a group.  In each of them the rows of either side are
multiplied, and the members of a group, which are neighbours, are added up::

    member          0       1       2             group     0             1
    left rows       2       1       4             pairs     2*3 + 1*0     4*1
    right rows      3       0       1

In:  the cells of the entries of two sides, run by run, their parts, and where each group's members end.
Out: for each window and instant what each group comes to; without a pair, its count is 0.
Always true: sums of whole numbers fit 64 bits, which whoever gives the parts has made sure of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

from penstock.kernels.slide_kernels import empty, take_in, take_together
from penstock.kernels.slide_pass import SlidParts, by_side, entries_of, room_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.kernels.key_hash import Ints
    from penstock.kernels.slide import Sliding
    from penstock.kernels.slide_pass import Parts

_MOST = np.iinfo(np.int64).max


def slide_groups(
    sides: Sequence[Sequence[Sliding]], parts: Sequence[Parts], bounds: Ints
) -> tuple[Ints, list[SlidParts]]:
    """Slide windows over two sides: the pairs of each group, and the parts of each side; by window, instant and group.

    `bounds` are where the members of each group begin, and the end of the last.  Leasts are left as
    numbers in the order of values, not turned into the bits of these.

    >>> from penstock.kernels.slide import Sliding
    >>> from penstock.kernels.slide_pass import Parts
    >>> both = Sliding(np.array([0, 1, 2]), np.array([3]), np.array([[0]]), groups=3, cuts=1)
    >>> left = Parts(np.array([2, 1, 4]), leasts=[np.array([7, 5, 6])], turns=[(0, 0)])
    >>> right = Parts(np.array([3, 0, 1]), floats=[np.array([1.5, 0, 2])])
    >>> pairs, (one, other) = slide_groups([[both], [both]], [left, right], np.array([0, 2, 3]))
    >>> pairs.tolist(), one.leasts.tolist(), other.floats.tolist()
    ([6, 4], [[7, 6]], [[3.0, 8.0]])
    """
    first = sides[0][0]
    numbers, cells, totals = room_for(first, parts)
    size = first.asked.size * (bounds.size - 1)
    ints, floats = np.zeros((numbers[1], size), np.int64), np.zeros((numbers[2], size))
    leasts = np.full((numbers[3], size), _MOST)
    pairs = np.zeros((1, size), np.int64)
    _slide(entries_of(sides, parts), first.asked, cells, totals, bounds, (pairs, ints, floats, leasts))
    none = np.empty((len(parts), 0), np.int64)
    return pairs[0], by_side((none, ints, floats, leasts), parts, size)


@njit(cache=True, nogil=True)
def _slide(entries: Any, asked: Any, cells: Any, totals: Any, bounds: Any, outputs: Any) -> None:
    """Write what each group comes to for each window at each instant."""
    int_others, float_others = 1 - entries[3][2], 1 - entries[4][2]
    count_totals, int_totals, float_totals, least_totals = totals
    pairs, int_outs, float_outs, least_outs = outputs
    width, groups = count_totals.shape[1], bounds.size - 1
    right_side = np.ones(1, np.int64)
    empty(cells)
    top = 0
    for instant in range(asked.shape[0]):
        top = max(top, take_in(entries, instant, cells))
        empty(totals)
        last = top // width + 1  # younger cells are empty
        for window in range(asked.shape[1]):
            cut = asked[instant, window]
            if cut < 0:
                continue
            take_together(cells, cut, last, totals)
            last = min(last, cut)
            first = (window * asked.shape[0] + instant) * groups
            _add_up(count_totals, right_side, count_totals, bounds, pairs, first)
            _add_up(int_totals, int_others, count_totals, bounds, int_outs, first)
            _add_up(float_totals, float_others, count_totals, bounds, float_outs, first)
            _least_of(least_totals, count_totals, bounds, least_outs, first)


@njit(cache=True, nogil=True, fastmath={"reassoc"})
def _add_up(totals: Any, others: Any, times: Any, bounds: Any, outs: Any, first: Any) -> None:
    """Add up the members of groups, each as often as the other side has rows; where it has none, the sum may be NaN."""
    for part in range(np.uint64(outs.shape[0])):
        other = np.uint64(others[part])
        for group in range(bounds.size - 1):
            total = outs[part, first + group]
            for member in range(np.uint64(bounds[group]), np.uint64(bounds[group + 1])):
                often = times[other, member]
                total += totals[part, member] * often if often > 0 else 0
            outs[part, first + group] = total


@njit(cache=True, nogil=True)
def _least_of(totals: Any, counts: Any, bounds: Any, outs: Any, first: Any) -> None:
    """Find the least of the members of groups that both sides have."""
    for part in range(np.uint64(outs.shape[0])):
        for group in range(bounds.size - 1):
            least = outs[part, first + group]
            for member in range(np.uint64(bounds[group]), np.uint64(bounds[group + 1])):
                is_met = (counts[0, member] > 0) & (counts[1, member] > 0)
                least = min(least, totals[part, member] if is_met else _MOST)
            outs[part, first + group] = least
