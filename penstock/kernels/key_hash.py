"""Hashes of join keys, and how they divide the work of a unit among its tasks.

A segment is sorted by ``(h, t)``: a hash of the join key and the event time.  Hashes are uniform over 64 bits, so any
range of them is a fair share of the keys.  A task finds the rows of its range in every segment by two binary searches;
no row is moved between tasks::

    h   0 ------------------------------------------------------------ 2**64
        |      task 0      |      task 1      |      task 2      |  ...

For a key of one integer the hash is a bijection (`mix`), so equal hashes mean equal keys.  For any other key it is a
digest, and the keys themselves are compared too (`penstock.kernels.column_checks`).

Without a key, any two rows may be partners.  Then each task takes a share of the *probing* rows and all *probed* rows::

    rows of a new segment, by time     a0 a1 a2 a3 a4 a5 a6
    task that probes with the row       0  1  2  0  1  2  0
    probed by each of them             all segments of the other stream

Probing rows are dealt one by one.  A segment is sorted by time, and the rows at its young end may have far fewer
partners than those at its old end, so ranges of neighbours would be unfair.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numba import njit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Hashes: TypeAlias = NDArray[np.uint64]
    Ints: TypeAlias = NDArray[np.int64]


def mix(keys: Ints) -> Hashes:
    """Hash integers to 64 bits, one to one (the finaliser of splitmix64).

    >>> hashes = mix(np.arange(1000))
    >>> len(set(hashes.tolist()))
    1000
    """
    return _mix(keys)


@njit(cache=True, nogil=True)
def _mix(keys):
    out = np.empty(keys.size, np.uint64)
    for i in range(keys.size):
        x = np.uint64(keys[i]) + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        out[i] = x ^ (x >> np.uint64(31))
    return out


def digests(keys: Ints, bits: int = 64) -> Hashes:
    """Hash digests of keys to `bits` bits; tests use fewer than 64 to get collisions.

    >>> few = digests(np.array([1, 2]), bits=8)
    >>> (few << np.uint64(8)).tolist()
    [0, 0]
    """
    return mix(keys) if bits == _ALL_BITS else mix(keys) << np.uint64(_ALL_BITS - bits)


_ALL_BITS = 64


def unmixed(hashes: Hashes) -> Ints:
    """Return the integers of some hashes.

    >>> unmixed(mix(np.array([0, -1, 1 << 62]))).tolist()
    [0, -1, 4611686018427387904]
    """
    return _unmixed(hashes)


@njit(cache=True, nogil=True)
def _unmixed(hashes):
    out = np.empty(hashes.size, np.int64)
    for i in range(hashes.size):
        x = hashes[i]
        x = (x ^ (x >> np.uint64(31)) ^ (x >> np.uint64(62))) * np.uint64(0x319642B2D24D8EC3)
        x = (x ^ (x >> np.uint64(27)) ^ (x >> np.uint64(54))) * np.uint64(0x96DE1B173F119089)
        x = x ^ (x >> np.uint64(30)) ^ (x >> np.uint64(60))
        out[i] = np.int64(x - np.uint64(0x9E3779B97F4A7C15))
    return out


def hash_range(part: int, parts: int) -> tuple[int, int]:
    """Return the range ``[first, last]`` (inclusive) of hashes of one of `parts` equal shares.

    >>> hash_range(0, 2), hash_range(1, 2)
    ((0, 9223372036854775807), (9223372036854775808, 18446744073709551615))
    """
    first = (part << 64) // parts
    last = ((part + 1) << 64) // parts - 1
    return first, last


def rows_in_range(hashes: Hashes, first: int, last: int) -> slice:
    """Return the rows of a sorted segment whose hash is in ``[first, last]``.

    >>> rows_in_range(np.array([1, 5, 5, 9], np.uint64), 5, 8)
    slice(1, 3, None)
    """
    start = int(np.searchsorted(hashes, np.uint64(first), "left"))
    stop = int(np.searchsorted(hashes, np.uint64(last), "right"))
    return slice(start, stop)


@dataclass(frozen=True, slots=True)
class Division:
    """The share of one of `parts` tasks in a unit."""

    part: int
    parts: int
    keyed: bool

    def probed(self, hashes: Hashes) -> slice:
        """Return the rows of a segment that this task searches.

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
        """Return the rows of the unit's segment `number` whose partners this task finds.

        The first row of each segment goes to another task, so that small segments are divided too.

        >>> import numpy as np
        >>> [Division(part, 2, keyed=False).probing(np.zeros(5, np.uint64)) for part in range(2)]
        [slice(0, 5, 2), slice(1, 5, 2)]
        """
        if self.keyed:
            return self.probed(hashes)
        return slice((self.part + number) % self.parts, hashes.size, self.parts)
