"""Sort rows in segment order ``(h, t)``, and merge sorted runs.

In:  columns of hashes and event times.  Out: the permutation that sorts them.
Both are stable: rows equal in hash and time keep their order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import njit

if TYPE_CHECKING:
    from penstock.kernels.key_hash import Hashes, Ints


def sort_rows(h: Hashes, t: Ints) -> Ints:
    """Return the permutation that sorts a batch by ``(h, t)``.

    >>> sort_rows(np.array([2, 1, 1], np.uint64), np.array([0, 9, 3]))
    array([2, 1, 0])
    """
    if t.size and bool(np.all(t[:-1] <= t[1:])):
        return np.argsort(h, kind="stable")
    return np.lexsort((t, h))


def merge_runs(h: Hashes, t: Ints, starts: Ints) -> Ints:
    """Return the permutation that merges runs, each sorted by ``(h, t)``, into one.

    Run ``i`` is ``starts[i] .. starts[i + 1]``.  Runs are merged two by two, so each row is moved once per halving of
    the number of runs.

    >>> merge_runs(np.array([1, 4, 2, 4], np.uint64), np.array([0, 5, 0, 3]), np.array([0, 2, 4]))
    array([0, 2, 3, 1])
    """
    order = np.arange(h.size)
    bounds = np.asarray(starts, np.int64)
    while bounds.size - 1 > 1:
        order = _merge_neighbours(h, t, order, bounds)
        bounds = np.append(bounds[:-1:2], bounds[-1])
    return order


@njit(cache=True, nogil=True)
def _merge_neighbours(h, t, order, bounds):
    """Merge runs 0 and 1, 2 and 3, ...; copy a last odd run."""
    out = np.empty_like(order)
    runs = bounds.size - 1
    for run in range(0, runs, 2):
        i, middle = bounds[run], bounds[run + 1]
        end = bounds[run + 2] if run + 2 <= runs else middle
        j, k = middle, i
        while i < middle and j < end:
            a, b = order[i], order[j]
            if h[b] < h[a] or (h[b] == h[a] and t[b] < t[a]):
                out[k] = b
                j += 1
            else:
                out[k] = a
                i += 1
            k += 1
        while i < middle:
            out[k] = order[i]
            i += 1
            k += 1
        while j < end:
            out[k] = order[j]
            j += 1
            k += 1
    return out


def lay_ranges(first: Ints, last: Ints) -> tuple[Ints, Ints]:
    """Concatenate the ranges ``first[i] .. last[i]``, and return the range of each number.

    >>> lay_ranges(np.array([5, 3, 0]), np.array([7, 3, 1]))
    (array([5, 6, 0]), array([0, 0, 2]))
    """
    count = last - first
    offset = np.cumsum(count) - count
    return np.arange(count.sum()) + np.repeat(first - offset, count), np.repeat(np.arange(count.size), count)
