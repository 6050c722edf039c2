"""Slide windows over folded entries: the answers of all windows at successive instants, in one pass.

Entries of a group are in cells, one for each cut at which a window begins.  At each instant, the entries born since the
instant before are added to their cells.  Then cells are accumulated from the youngest to the oldest; at the cut of a
window, the total is the window's answer::

    cell from cut     E - 10 s   E - 20 s   E - 40 s
    group a              3          1          7          ──▶  10 s: 3     20 s: 4     40 s: 11
    group b              0          2          0          ──▶              20 s: 2     40 s: 2

Groups are processed in blocks, so small that their cells stay in the processor's cache.  Most measures slide together
(`penstock.kernels.slide_pass`).  This module slides the others one by one: moments, and sums in limbs.

In:  the cell of each entry, in order of birth, and the groups with answers.  Out: their values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.kernels.key_hash import Ints

    Floats = NDArray[np.float64]
    Numbers = NDArray[Any]

NOT_ASKED = -1


@dataclass(frozen=True, slots=True)
class WindowAnswers:
    """The answers of windows, ordered by window, instant and group."""

    groups: Ints
    """The group of each answer."""
    counts: Ints
    """The number of pairs in each answer."""
    starts: Ints
    """By instant and window: the index of its first answer."""
    sizes: Ints
    """By instant and window: the number of its answers."""


@dataclass(frozen=True, slots=True)
class Sliding:
    """Entries of some groups, and the windows that slide over them.

    >>> sliding = Sliding(np.array([0, 1, 3]), np.array([2, 3]), np.array([[1, 0], [1, 0]]), groups=2, cuts=2)
    >>> groups, sizes = np.array([1, 0, 1, 0, 1]), np.array([[0, 2], [1, 2]])
    >>> seen = WindowAnswers(groups, np.array([1, 5, 7, 5, 8]), starts_of(sizes)[0], sizes)
    >>> sliding.sums(np.array([0.5, 2, 3]), seen).tolist()      # the first window begins at cut 1
    [3.0, 0.5, 2.0, 0.5, 5.0]
    """

    at: Ints
    """The cell of each entry, numbered by cut and then by group; in order of birth."""
    upto: Ints
    """By instant: the number of entries born so far."""
    asked: Ints
    """By instant and window: the first cut of the window; `NOT_ASKED` if no query asks.

    Windows are ordered by length, so their cuts do not rise."""
    groups: int
    cuts: int

    def sums(self, values: Numbers, seen: WindowAnswers) -> Numbers:
        """Return the sums of the answers."""
        out = np.empty(seen.groups.size, values.dtype)
        cells = np.zeros((self.cuts, self.groups), values.dtype)
        _sum_seen(self.at, values, self.upto, self.asked, cells, (seen.starts, seen.sizes, seen.groups, out))
        return out

    def spreads(self, parts: tuple[Ints, Floats, Floats], seen: WindowAnswers) -> tuple[Ints, Floats, Floats]:
        """Return counts, means and squared distances of the answers."""
        size = seen.groups.size
        out = np.empty(size, np.int64), np.empty(size), np.empty(size)
        shape = self.cuts, self.groups
        cells = np.zeros(shape, np.int64), np.zeros(shape), np.zeros(shape)
        _spread_seen(
            self.at, parts, self.upto, self.asked, cells, (seen.starts, seen.sizes, seen.groups, out)
        )
        return out


def starts_of(sizes: Ints) -> tuple[Ints, int]:
    """Return the start of the answers of each instant and window, window by window, and the number of answers."""
    ends = np.cumsum(sizes.T).reshape(sizes.T.shape).T
    return np.ascontiguousarray(ends - sizes), int(sizes.sum())


@njit(cache=True, nogil=True)
def _add_born(at, values, first, last, cells):
    """Add entries to their cells; return the last of these cells."""
    flat, top = cells.ravel(), 0
    for i in range(first, last):
        flat[at[i]] += values[i]
        top = max(top, at[i])
    return top


@njit(cache=True, nogil=True)
def _add_cells(cells, first, last, total):
    """Add the cells of some cuts to the totals of their groups, from the youngest to the oldest."""
    for cut in range(last - 1, first - 1, -1):
        row = cells[cut]
        for group in range(total.size):
            total[group] += row[group]


@njit(cache=True, nogil=True)
def _sum_seen(at, values, upto, asked, cells, answers):
    starts, sizes, groups, out = answers
    total = np.empty(cells.shape[1], cells.dtype)
    born, top = 0, 0
    for instant in range(asked.shape[0]):
        top = max(top, _add_born(at, values, born, upto[instant], cells))
        born = upto[instant]
        total[:] = 0
        last = top // total.size + 1
        for window in range(asked.shape[1]):
            cut = asked[instant, window]
            if cut < 0:
                continue
            _add_cells(cells, cut, last, total)
            last = min(last, cut)
            first = starts[instant, window]
            for place in range(first, first + sizes[instant, window]):
                out[place] = total[groups[place]]


@njit(cache=True, nogil=True)
def _merge_spread(n, mean, m2, place, other):
    """Merge a count, mean and squared distance into those at an index, by Chan's formula."""
    count, middle, squares = other
    if count == 0:
        return
    if n[place] == 0:
        n[place], mean[place], m2[place] = count, middle, squares
        return
    whole = n[place] + count
    apart = middle - mean[place]
    m2[place] += squares + apart * apart * n[place] * (count / whole)
    mean[place] += apart * (count / whole)
    n[place] = whole


@njit(cache=True, nogil=True)
def _spread_seen(at, parts, upto, asked, cells, answers):
    starts, sizes, groups, out = answers
    n, mean, m2 = cells[0].ravel(), cells[1].ravel(), cells[2].ravel()
    width = cells[0].shape[1]
    total = np.empty(width, np.int64), np.empty(width), np.empty(width)
    born, top = 0, 0
    for instant in range(asked.shape[0]):
        for i in range(born, upto[instant]):
            _merge_spread(n, mean, m2, at[i], (parts[0][i], parts[1][i], parts[2][i]))
            top = max(top, at[i])
        born = upto[instant]
        total[0][:] = 0
        total[1][:] = 0
        total[2][:] = 0
        last = top // width + 1
        for window in range(asked.shape[1]):
            cut = asked[instant, window]
            if cut < 0:
                continue
            for cell in range(cut * width, last * width):
                _merge_spread(total[0], total[1], total[2], cell % width, (n[cell], mean[cell], m2[cell]))
            last = min(last, cut)
            first = starts[instant, window]
            for place in range(first, first + sizes[instant, window]):
                group = groups[place]
                out[0][place], out[1][place], out[2][place] = (
                    total[0][group],
                    total[1][group],
                    total[2][group],
                )


# --- layout ---------------------------------------------------------------------------------------------------------


def order_by(codes: Ints, size: int) -> tuple[Ints, Ints]:
    """Sort rows by their codes, which are below `size`: the rows, and the end of each code.

    Rows with equal codes stay in their order.

    >>> [each.tolist() for each in order_by(np.array([1, 0, 1]), 3)]
    [[1, 0, 2], [1, 3, 3]]
    """
    return _order(codes, size)


@njit(cache=True, nogil=True)
def _order(codes, size):
    ends = np.zeros(size + 1, np.int64)
    for i in range(codes.size):
        ends[codes[i] + 1] += 1
    for code in range(size):
        ends[code + 1] += ends[code]
    rows = np.empty(codes.size, np.int64)
    for i in range(codes.size):
        place = ends[codes[i]]
        rows[place] = i
        ends[codes[i]] = place + 1
    return rows, ends[:size].copy()


def lay_out(
    places: tuple[Ints, Ints, Ints], rows: Ints, instants: Ints, cuts: Ints, width: int, groups: int
) -> tuple[Ints, Ints, Ints]:
    """Divide entries among blocks of groups, each in order of birth: rows, their cells, and the end of each birth.

    `places` are group, birth and pane.  An entry's cell is that of the last cut before or at its pane, in its block.
    Entries born after the last instant, older than the first cut, or without a group (-1) are left out.  The ends are
    by block and instant.

    >>> one, two = np.array([0, 1, 2]), np.array([9, 5, 5])
    >>> rows, cells, ends = lay_out((one, two, two), np.arange(3), np.array([5, 9]), np.array([5, 6]), 2, 3)
    >>> rows.tolist(), cells.tolist(), ends.tolist()
    ([1, 0, 2], [1, 2, 0], [1, 2, 3, 3])
    """
    return _lay_out(places, rows, instants, cuts, width, groups)


@njit(cache=True, nogil=True)
def _lower_bound(steps, value):
    """Return the first step that is not below a value."""
    low, high = 0, steps.size
    while low < high:
        middle = (low + high) >> 1
        if steps[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low


@njit(cache=True, nogil=True)
def _bound_near(steps, value, last):
    """Return the first step that is not below a value; mostly the last result, because files are sorted."""
    if (last == 0 or steps[last - 1] < value) and (last == steps.size or value <= steps[last]):
        return last
    return _lower_bound(steps, value)


@njit(cache=True, nogil=True)
def _lay_out(places, rows, instants, cuts, width, groups):
    gid, born, pane = places
    count = instants.size
    ends = np.zeros(-(-groups // width) * count + 1, np.int64)
    bins = np.empty(rows.size, np.int64)
    cells = np.empty(rows.size, np.int64)
    instant, cut = 0, -1
    for n in range(rows.size):
        i = rows[n]
        instant = _bound_near(instants, born[i], instant)
        cut = _bound_near(cuts, pane[i] + 1, cut + 1) - 1
        if cut < 0 or instant == count or gid[i] < 0:
            bins[n] = -1
            continue
        block = gid[i] // width
        first = block * width
        bins[n] = block * count + instant
        cells[n] = cut * min(width, groups - first) + gid[i] - first
        ends[bins[n] + 1] += 1
    for n in range(ends.size - 1):
        ends[n + 1] += ends[n]
    ordered = np.empty(ends[-1], np.int64)
    ordered_cells = np.empty(ends[-1], np.int64)
    for n in range(rows.size):
        if bins[n] >= 0:
            place = ends[bins[n]]
            ordered[place] = rows[n]
            ordered_cells[place] = cells[n]
            ends[bins[n]] = place + 1
    return ordered, ordered_cells, ends[:-1].copy()
