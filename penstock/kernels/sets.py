"""Query sets: the queries of a row or a pair, as bits in 64-bit words.

A row's *pattern* has one bit for each predicate of its stream that the row satisfies.  A query accepts the row if the
pattern has all bits of the query's own predicates.  This is computed once per distinct pattern, in a small table; a
pair's queries are the intersection of three table rows (`penstock.kernels.probe.Wanted`)::

    predicates of stream A     p0: Value > 30    p1: Value > 50
    queries                    q0: p0            q1: p0, p1        q2: none
    pattern 01 (only p0)  ->   q0, q2            = set 101

Bits are numbered from the least significant; word ``w`` holds bits ``64 w .. 64 w + 63``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import njit

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from penstock.kernels.key_hash import Ints

    Words = NDArray[np.uint64]


def words_for(bits: int) -> int:
    """Return the number of 64-bit words for so many bits, at least one.

    >>> words_for(0), words_for(64), words_for(65)
    (1, 1, 2)
    """
    return max(1, (bits + 63) // 64)


def to_words(sets: Iterable[int], bits: int) -> Words:
    """Convert sets from Python integers to words, one row each.

    >>> to_words([5, 1 << 64], 65).tolist()
    [[5, 0], [0, 1]]
    """
    words = words_for(bits)
    rows = [[(members >> (64 * w)) & 0xFFFFFFFFFFFFFFFF for w in range(words)] for members in sets]
    return np.array(rows, np.uint64).reshape(-1, words)


def from_words(words: Words) -> int:
    """Convert one set to a Python integer.

    >>> from_words(to_words([1 << 64], 65)[0]) == 1 << 64
    True
    """
    return sum(int(word) << (64 * w) for w, word in enumerate(words))


def query_sets(patterns: Words, masks: Sequence[int | None], excluded: Sequence[int] = ()) -> Words:
    """Return, for each pattern of predicate bits, the queries that accept it; a mask has the bits of a query.

    A mask of None accepts nothing, and no query accepts a pattern with all bits of one of the `excluded` masks.

    >>> query_sets(to_words([0b01, 0b11], 2), [0b01, 0b11, 0b00]).tolist()
    [[5], [7]]
    """
    bits = 64 * patterns.shape[1]
    needed = to_words((mask or 0 for mask in masks), bits)
    out = np.zeros((patterns.shape[0], words_for(len(masks))), np.uint64)
    for q, need in enumerate(needed):
        if masks[q] is None:
            continue
        accepted = ((patterns & need) == need).all(axis=1)
        out[:, q // 64] |= accepted.astype(np.uint64) << np.uint64(q % 64)
    for mask in to_words(excluded, bits):
        out[((patterns & mask) == mask).all(axis=1)] = 0
    return out


def find_patterns(bits: Words) -> tuple[Words, NDArray[np.int32]]:
    """Return the distinct rows of predicate bits, and the number of each row's pattern among them.

    >>> table, number = find_patterns(np.array([[3], [1], [3]], np.uint64))
    >>> table.tolist(), number.tolist()
    ([[1], [3]], [1, 0, 1])
    """
    if bits.shape[1] == 1:
        table, number = np.unique(bits[:, 0], return_inverse=True)
        return table.reshape(-1, 1), number.astype(np.int32)
    table, number = np.unique(bits, axis=0, return_inverse=True)
    return table, number.reshape(-1).astype(np.int32)


def members(sets: Words, query: int) -> NDArray[np.bool_]:
    """Return which sets contain a query.

    >>> members(np.array([[5], [2]], np.uint64), 0).tolist()
    [True, False]
    """
    return (sets[:, query // 64] >> np.uint64(query % 64)) & np.uint64(1) != 0


def count_members(sets: Words, queries: int) -> Ints:
    """Count the sets that contain each query.

    >>> count_members(np.array([[5], [4]], np.uint64), 3).tolist()
    [1, 0, 2]
    """
    return _count_members(sets, (queries + 7) // 8)[:queries]


@njit(cache=True, nogil=True)
def _count_members(sets, octets):
    """Count the values of every eight bits, then the bits of these values: one step for eight queries."""
    seen = np.zeros((octets, 256), np.int64)
    for i in range(sets.shape[0]):
        for octet in range(octets):
            word = sets[i, octet >> 3] >> np.uint64(8 * (octet & 7))
            seen[octet, word & np.uint64(0xFF)] += 1
    out = np.zeros(octets * 8, np.int64)
    for octet in range(octets):
        for value in range(256):
            for bit in range(8):
                if (value >> bit) & 1:
                    out[8 * octet + bit] += seen[octet, value]
    return out
