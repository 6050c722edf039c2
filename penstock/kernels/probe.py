"""Find the pairs of a batch and a segment, each with its slice.

Both inputs are sorted by ``(h, t)``, so the partners of a batch row are one run of consecutive segment rows, and the
runs of successive batch rows only move forward::

    batch     (h=7, t=100) -----.        window: -10 < T_state - T_batch < 10
                                v
    segment   ... (7, 85) [(7, 91) (7, 99) (7, 104)] (7, 110) (9, 3) ...
                           ^ first           count = 3

Two pointers move through the segment in galloping steps.  So a probe costs O(batch · log(segment / batch)), and reads
only the pages that it touches.

The *difference* of a pair is always ``T_right - T_left``; `batch_is_left` states the side of the batch.  The chain's
cuts divide the differences into slices; a pair's *level* is the number of its slice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numba import njit

from penstock import limits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from penstock.kernels.key_hash import Hashes, Ints

_Number = TypeVar("_Number", bound=np.generic)


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of one stream in segment order: hash, event time (µs), and pattern of predicate bits.

    `pattern` is the number of a row's combination of predicate bits in this segment; None if no query has a predicate
    on the stream.
    """

    h: Hashes
    t: Ints
    pattern: NDArray[np.int32] | None = None

    def part(self, rows: slice | Ints) -> Rows:
        """Return some rows, in order: neighbours without copying, others packed."""
        pattern = None if self.pattern is None else _packed(self.pattern[rows])
        return Rows(_packed(self.h[rows]), _packed(self.t[rows]), pattern)


def _packed(column: NDArray[_Number]) -> NDArray[_Number]:
    """Return a packed, read-only column, like that of a mapped segment; other types need another compiled kernel."""
    if column.flags.c_contiguous and not column.flags.writeable:
        return column
    packed = np.ascontiguousarray(column)
    packed.flags.writeable = False
    return packed


def _rows_of_whole(rows: Ints, part: slice | Ints) -> Ints:
    """Convert row numbers of a part to those of the whole; `rows` may be overwritten."""
    if not isinstance(part, slice):
        return part[rows]
    if part.step not in {None, 1}:
        rows *= part.step
    if part.start:
        rows += part.start
    return rows


@dataclass(frozen=True, slots=True)
class Pairs:
    """Some pairs: row numbers in batch and segment, the level of each, and the set of its queries.

    `sets` is None if every query takes every pair of its slices; else it has one row per pair and one 64-bit word per
    64 queries.
    """

    batch: Ints
    state: Ints
    level: NDArray[np.int16]
    sets: NDArray[np.uint64] | None = None

    def __len__(self) -> int:
        """Return the number of pairs."""
        return self.batch.size

    def moved(self, batch: slice | Ints, state: slice | Ints) -> Pairs:
        """Return the same pairs with row numbers of the whole segments, of which these parts were probed."""
        return Pairs(
            _rows_of_whole(self.batch, batch), _rows_of_whole(self.state, state), self.level, self.sets
        )

    def lifted(self, by: int) -> Pairs:
        """Return the same pairs with levels of the whole chain, of which levels from `by` on were probed."""
        return Pairs(self.batch, self.state, self.level + np.int16(by), self.sets)

    def by_level(self) -> Pairs:
        """Return the same pairs ordered by level; none of them has a set.

        >>> pairs = Pairs(np.array([5, 6, 7]), np.array([1, 2, 3]), np.array([2, 0, 2], np.int16)).by_level()
        >>> pairs.batch.tolist(), pairs.state.tolist(), pairs.level.tolist()
        ([6, 5, 7], [2, 1, 3], [0, 2, 2])
        """
        if self.sets is not None:
            raise ValueError("pairs with sets are not divided by level")
        return Pairs(*_by_level(self.batch, self.state, self.level)) if len(self) else self

    def only(self, these: NDArray[np.bool_] | slice) -> Pairs:
        """Return some of the pairs; neighbours without copying."""
        sets = None if self.sets is None else self.sets[these]
        return Pairs(self.batch[these], self.state[these], self.level[these], sets)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The query sets of levels, of patterns of batch rows, and of patterns of segment rows.

    Each table has one set (a row of 64-bit words) per level or pattern.  A pair's queries are the intersection of its
    three sets; a pair without queries is dropped.
    """

    by_level: NDArray[np.uint64]
    by_batch: NDArray[np.uint64]
    by_state: NDArray[np.uint64]


def probe(
    batch: Rows,
    state: Rows,
    cuts: Ints,
    *,
    batch_is_left: bool,
    wanted: Wanted | None = None,
    narrow: bool = True,
) -> Iterator[Pairs]:
    """Yield the pairs of `batch` and `state` whose difference lies in ``[cuts[0], cuts[-1])``.

    `cuts` ascend; level ``k`` is ``[cuts[k], cuts[k + 1])``.  With `narrow`, the run of a batch row is limited to the
    windows of the queries that accept the row.

    >>> left = Rows(np.array([7, 8], np.uint64), np.array([100, 100]))
    >>> right = Rows(np.array([7, 7, 7, 9], np.uint64), np.array([85, 95, 104, 99]))
    >>> pairs, = probe(left, right, np.array([-9, 0, 10]), batch_is_left=True)
    >>> pairs.batch, pairs.state, pairs.level
    (array([0, 0]), array([1, 2]), array([0, 1], dtype=int16))
    """
    low, high = int(cuts[0]), int(cuts[-1])
    # With a left batch the difference is t_state - t_batch; with a right one it is the negative of that.
    since, until = (low, high) if batch_is_left else (1 - high, 1 - low)
    first, count = _runs(batch.h, batch.t, state.h, state.t, since, until)
    sign = 1 if batch_is_left else -1
    if narrow and wanted is not None and batch.pattern is not None:
        reach = _reach(wanted.by_level, wanted.by_batch, cuts, sign)
        _narrow(first, count, batch.t, batch.pattern, state.h, state.t, reach)
    for rows, starts, counts in portions(first, count, wanted):
        pairs = _fill(batch, state, starts, counts, rows, cuts, sign, wanted)
        if len(pairs):
            yield pairs


def portions(first: Ints, count: Ints, wanted: Wanted | None = None) -> Iterator[tuple[slice, Ints, Ints]]:
    """Divide runs into portions of at most `limits.MAX_PROBE_PAIRS` pairs; a long run has several.

    >>> [(rows, runs.tolist()) for rows, _, runs in portions(np.array([0, 0]), np.array([2, 3]))]
    [(slice(0, 2, None), [2, 3])]
    """
    most = limits.MAX_PROBE_PAIRS if wanted is None else _most_pairs(wanted.by_level.shape[1])
    total = np.cumsum(count)
    start, done = 0, 0
    while start < count.size and done < total[-1]:
        stop = int(np.searchsorted(total, done + most, "right"))
        rows = slice(start, max(stop, start + 1))
        if rows.stop > stop:  # one row has too many partners
            ends = range(0, int(count[start]), most)
            runs = ((first[rows] + end, np.minimum(count[rows] - end, most)) for end in ends)
            yield from ((rows, *run) for run in runs)
        else:
            yield rows, first[rows], count[rows]
        start, done = rows.stop, int(total[rows.stop - 1])


def _most_pairs(words: int) -> int:
    """Return the number of pairs per portion, for sets of so many words."""
    return max(1, min(limits.MAX_PROBE_PAIRS, limits.MAX_PIECE_BYTES // (8 * words)))


def _fill(
    batch: Rows,
    state: Rows,
    starts: Ints,
    counts: Ints,
    rows: slice,
    cuts: Ints,
    sign: int,
    wanted: Wanted | None,
) -> Pairs:
    if wanted is None:
        return Pairs(*_expand(batch.t[rows], state.t, starts, counts, cuts, sign, rows.start))
    zero = np.zeros(1, np.int32)
    i, j, level, sets = _expand_wanted(
        batch.t[rows],
        zero if batch.pattern is None else batch.pattern[rows],
        state.t,
        zero if state.pattern is None else state.pattern,
        (starts, counts),
        cuts,
        sign,
        rows.start,
        (wanted.by_level, wanted.by_batch, wanted.by_state),
    )
    return Pairs(i, j, level, sets)


@njit(cache=True, nogil=True)
def _by_level(batch, state, level):
    ends = np.zeros(level.max() + 2, np.int64)
    for i in range(level.size):
        ends[level[i] + 1] += 1
    for i in range(1, ends.size):
        ends[i] += ends[i - 1]
    sorted_batch, sorted_state = np.empty(level.size, np.int64), np.empty(level.size, np.int64)
    sorted_level = np.empty(level.size, np.int16)
    for i in range(level.size):
        place = ends[level[i]]
        ends[level[i]] = place + 1
        sorted_batch[place], sorted_state[place] = batch[i], state[i]
        sorted_level[place] = level[i]
    return sorted_batch, sorted_state, sorted_level


@njit(cache=True, nogil=True)
def _before(h, t, i, key, time):
    return h[i] < key or (h[i] == key and t[i] < time)


@njit(cache=True, nogil=True)
def gallop(h, t, start, key, time) -> Any:
    """Find the first row at or after `start` that does not sort before (key, time)."""
    size = h.size
    step = 1
    low = start
    high = start
    while high < size and _before(h, t, high, key, time):
        low = high + 1
        high += step
        step *= 2
    high = min(high, size)
    while low < high:
        middle = (low + high) // 2
        if _before(h, t, middle, key, time):
            low = middle + 1
        else:
            high = middle
    return low


@njit(cache=True, nogil=True)
def _runs(batch_h, batch_t, state_h, state_t, since, until):
    """Return the start and length of the run of each batch row."""
    first = np.empty(batch_h.size, np.int64)
    count = np.empty(batch_h.size, np.int64)
    start = 0
    end = 0
    for i in range(batch_h.size):
        # since <= t_state - t_batch < until; batch rows ascend, so neither pointer ever goes back
        start = gallop(state_h, state_t, start, batch_h[i], batch_t[i] + since)
        end = max(end, start)
        end = gallop(state_h, state_t, end, batch_h[i], batch_t[i] + until)
        first[i] = start
        count[i] = end - start
    return first, count


@njit(cache=True, nogil=True)
def _reach(by_level, by_batch, cuts, sign):
    """Return, by pattern, the range ``[since, until)`` of partners of its queries, relative to the batch row."""
    patterns, words = by_batch.shape
    reach = np.zeros((patterns, 2), np.int64)
    for p in range(patterns):
        for level in range(by_level.shape[0]):
            for w in range(words):
                if by_level[level, w] & by_batch[p, w]:
                    since = cuts[level] if sign > 0 else 1 - cuts[level + 1]
                    until = cuts[level + 1] if sign > 0 else 1 - cuts[level]
                    if reach[p, 0] == reach[p, 1]:
                        reach[p, 0], reach[p, 1] = since, until
                    else:
                        reach[p, 0], reach[p, 1] = min(reach[p, 0], since), max(reach[p, 1], until)
                    break
    return reach


@njit(cache=True, nogil=True)
def _narrow(first, count, batch_t, pattern, state_h, state_t, reach):
    """Shorten each run to the windows of the queries that accept the batch row."""
    for i in range(first.size):
        if count[i] == 0:
            continue
        key = state_h[first[i]]
        since, until = batch_t[i] + reach[pattern[i], 0], batch_t[i] + reach[pattern[i], 1]
        end = first[i] + count[i]
        run_h, run_t = state_h[first[i] : end], state_t[first[i] : end]
        low = gallop(run_h, run_t, 0, key, since)
        high = gallop(run_h, run_t, low, key, until)
        first[i] += low
        count[i] = high - low


@njit(cache=True, nogil=True)
def _level(cuts, difference, level):
    """Return the slice of a difference; the search begins at the slice of the pair before."""
    while difference < cuts[level]:
        level -= 1
    while difference >= cuts[level + 1]:
        level += 1
    return level


@njit(cache=True, nogil=True)
def _expand(batch_t, state_t, first, count, cuts, sign, offset):
    total = count.sum()
    batch_row = np.empty(total, np.int64)
    state_row = np.empty(total, np.int64)
    levels = np.empty(total, np.int16)
    k = 0
    level = 0
    for i in range(batch_t.size):
        for j in range(first[i], first[i] + count[i]):
            level = _level(cuts, sign * (state_t[j] - batch_t[i]), level)
            batch_row[k] = i + offset
            state_row[k] = j
            levels[k] = level
            k += 1
    return batch_row, state_row, levels


@njit(cache=True, nogil=True)
def _expand_wanted(batch_t, batch_pattern, state_t, state_pattern, runs, cuts, sign, offset, tables):
    """Write the pairs of the runs that have a query, with their sets."""
    first, count = runs
    by_level, by_batch, by_state = tables
    words = by_level.shape[1]
    total = count.sum()
    batch_row = np.empty(total, np.int64)
    state_row = np.empty(total, np.int64)
    levels = np.empty(total, np.int16)
    sets = np.empty((total, words), np.uint64)
    k = 0
    level = 0
    for i in range(batch_t.size):
        batch_number = batch_pattern[i] if batch_pattern.size > 1 else batch_pattern[0]
        for j in range(first[i], first[i] + count[i]):
            level = _level(cuts, sign * (state_t[j] - batch_t[i]), level)
            state_number = state_pattern[j] if state_pattern.size > 1 else state_pattern[0]
            some = False
            for w in range(words):
                both = by_level[level, w] & by_batch[batch_number, w] & by_state[state_number, w]
                sets[k, w] = both
                some |= both != 0
            if some:
                batch_row[k] = i + offset
                state_row[k] = j
                levels[k] = level
                k += 1
    return batch_row[:k], state_row[:k], levels[:k], sets[:k]
