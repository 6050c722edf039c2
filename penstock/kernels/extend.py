"""Extend partial results by one more input: the probe of a join of many streams.

A *partial* result has rows of some inputs.  Segments of the next input are sorted by ``(h, t)``, so the partners of a
partial are one run of rows in each segment: those with its hash, and with times between its bounds::

    partial        h = 7, since = 90, until = 110
    segment        (7, 80) (7, 95) (7, 99) (7, 110) (8, 95)
    run                    =======================)         first 1, count 2

In:  hashes and bounds of partials, segments.  Out: for each new partial the old one it extends, the segment, the row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import njit

from penstock import limits

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from penstock.kernels.key_hash import Hashes, Ints
    from penstock.kernels.probe import Rows


def runs_in(h: Hashes, since: Ints, until: Ints, segment: Rows) -> tuple[Ints, Ints]:
    """Return the start and length of the run of each partial in a segment.

    >>> from penstock.kernels.probe import Rows
    >>> segment = Rows(np.array([7, 7, 7, 7, 8], np.uint64), np.array([80, 95, 99, 110, 95]))
    >>> runs_in(np.array([7], np.uint64), np.array([90]), np.array([110]), segment)
    (array([1]), array([2]))
    """
    first, count = _runs_in(h, since, until, segment.h, segment.t)
    return first, count


def extended(
    firsts: NDArray[np.int64], counts: NDArray[np.int64]
) -> Iterator[tuple[Ints, NDArray[np.int16], Ints]]:
    """Expand the runs of all segments, a bounded number of new partials at a time.

    `firsts` and `counts` have a row for each segment and a column for each partial.  The result has the old partial,
    segment and row of each new partial.  A partial with very many partners is divided.

    >>> [tuple(map(np.ndarray.tolist, part)) for part in extended(np.array([[4], [0]]), np.array([[2], [1]]))]
    [([0, 0, 0], [0, 0, 1], [4, 5, 0])]
    """
    totals = np.cumsum(counts.sum(axis=0))
    start, done = 0, 0
    while start < totals.size and done < totals[-1]:
        stop = int(np.searchsorted(totals, done + limits.MAX_PROBE_PAIRS, "right"))
        if stop > start:
            yield _written_out(firsts[:, start:stop], counts[:, start:stop], start)
        else:
            yield from _one(firsts[:, start], counts[:, start], start)
            stop = start + 1
        start, done = stop, int(totals[stop - 1])


def _one(first: Ints, count: Ints, partial: int) -> Iterator[tuple[Ints, NDArray[np.int16], Ints]]:
    """Expand one partial with more partners than a portion holds."""
    for segment in range(first.size):
        for begin in range(0, int(count[segment]), limits.MAX_PROBE_PAIRS):
            size = min(limits.MAX_PROBE_PAIRS, int(count[segment]) - begin)
            rows = np.arange(first[segment] + begin, first[segment] + begin + size)
            yield np.full(size, partial), np.full(size, segment, np.int16), rows


def _written_out(
    firsts: NDArray[np.int64], counts: NDArray[np.int64], offset: int
) -> tuple[Ints, NDArray[np.int16], Ints]:
    pieces = [_expand(first, count, offset) for first, count in zip(firsts, counts, strict=True)]
    sizes = [row.size for _, row in pieces]
    segment = np.repeat(np.arange(len(pieces), dtype=np.int16), sizes)
    return np.concatenate([piece for piece, _ in pieces]), segment, np.concatenate([row for _, row in pieces])


def within(times: Sequence[Ints], limits: Sequence[Sequence[int]]) -> NDArray[np.bool_]:
    """Return which results satisfy every limit: ``T_j - T_i < limits[i][j]``.

    >>> within([np.array([0, 0]), np.array([5, 9])], [[1, 9], [1, 1]]).tolist()
    [True, False]
    """
    kept = np.ones(times[0].size, np.bool_)
    for i, row in enumerate(limits):
        for j, limit in enumerate(row):
            if i != j:
                kept &= times[j] - times[i] < limit
    return kept


@njit(cache=True, nogil=True)
def _ahead(h, start, key, beyond):
    """Return the first row from `start` on whose hash is at least the key, or `beyond` it, in galloping steps."""
    low, high, step = start, start, 1
    while high < h.size and (h[high] < key or (beyond and h[high] == key)):
        low = high + 1
        high += step
        step *= 2
    high = min(high, h.size)
    while low < high:
        middle = (low + high) // 2
        if h[middle] < key or (beyond and h[middle] == key):
            low = middle + 1
        else:
            high = middle
    return low


@njit(cache=True, nogil=True)
def _first_from(t, low, high, time):
    """Return the first row in ``[low, high)``, which is sorted, that is not before a time."""
    while low < high:
        middle = (low + high) // 2
        if t[middle] < time:
            low = middle + 1
        else:
            high = middle
    return low


@njit(cache=True, nogil=True)
def _runs_in(h, since, until, state_h, state_t):
    """Return the start and length of each partial's run; neighbours with one hash share a search."""
    first = np.empty(h.size, np.int64)
    count = np.empty(h.size, np.int64)
    begin = 0
    end = 0
    for i in range(h.size):
        if i == 0 or h[i] != h[i - 1]:
            # hashes mostly ascend: then the run is farther on
            begin = _ahead(state_h, end if i > 0 and h[i] > h[i - 1] else 0, h[i], False)
            end = _ahead(state_h, begin, h[i], True)
        # since <= t < until, among the rows of this hash
        start = _first_from(state_t, begin, end, since[i])
        first[i] = start
        count[i] = _first_from(state_t, start, end, until[i]) - start
    return first, count


@njit(cache=True, nogil=True)
def _expand(first, count, offset):
    total = count.sum()
    partial = np.empty(total, np.int64)
    row = np.empty(total, np.int64)
    k = 0
    for p in range(first.size):
        for r in range(first[p], first[p] + count[p]):
            partial[k] = p + offset
            row[k] = r
            k += 1
    return partial, row
