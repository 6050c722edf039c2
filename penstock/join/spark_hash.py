"""Spark's hash of a key that 64 bits do not hold: ``xxhash64(a, b, …)``, bit by bit the same.

The hash of each part is the seed of the next one, and the first seed is 42::

    42 ──a──▶ h1 ──b──▶ h2 ──c──▶ h3        text and binary: the bytes (XXH64)
                                            bigint, timestamp: 8 bytes       int and shorter, boolean, date: 4 bytes

So rows that were hashed here meet those that Spark has hashed.

In:  the columns of a key as plain arrays, without nulls (or with anything in their place).  Out: 64 bits for each row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numba import njit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Hashes: TypeAlias = NDArray[np.uint64]

SEED = 42

_P1, _P2 = np.uint64(0x9E3779B185EBCA87), np.uint64(0xC2B2AE3D27D4EB4F)
_P3, _P4 = np.uint64(0x165667B19E3779F9), np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)
_WORD, _HALF, _STRIPE = 8, 4, 32
"""Bytes that are taken at a time."""


def first_seeds(rows: int) -> Hashes:
    """Give the seeds of the first part."""
    return np.full(rows, SEED, np.uint64)


def hash_longs(values: NDArray[np.int64], seeds: Hashes) -> Hashes:
    """Hash numbers of 8 bytes.

    >>> hash_longs(np.array([42]), first_seeds(1)).view(np.int64).tolist()  # SELECT xxhash64(42L)
    [-6876166290308861218]
    """
    return _hash_longs(values, seeds)


def hash_ints(values: NDArray[np.int32], seeds: Hashes) -> Hashes:
    """Hash numbers of 4 bytes.

    >>> hash_ints(np.array([42], np.int32), first_seeds(1)).view(np.int64).tolist()  # SELECT xxhash64(42)
    [-387659249110444264]
    """
    return _hash_ints(values, seeds)


def hash_bytes(data: NDArray[np.uint8], offsets: NDArray[np.int32], seeds: Hashes) -> Hashes:
    """Hash texts, which lie end to end: text i from ``offsets[i]`` to ``offsets[i + 1]``.

    >>> data = np.frombuffer(b"Spark", np.uint8)
    >>> hash_bytes(data, np.array([0, 5, 5], np.int32), first_seeds(2)).view(np.int64).tolist()
    [-4294468057691064905, -7444071767201028348]
    """
    return _hash_bytes(data, offsets, seeds)


@njit(cache=True, nogil=True, inline="always")
def _rotated(x: Any, bits: Any) -> Any:
    return (x << np.uint64(bits)) | (x >> np.uint64(64 - bits))


@njit(cache=True, nogil=True, inline="always")
def _scattered(x: Any) -> Any:
    x = (x ^ (x >> np.uint64(33))) * _P2
    x = (x ^ (x >> np.uint64(29))) * _P3
    return x ^ (x >> np.uint64(32))


@njit(cache=True, nogil=True, inline="always")
def _with_word(x: Any, word: Any) -> Any:
    return _rotated(x ^ (_rotated(word * _P2, 31) * _P1), 27) * _P1 + _P4


@njit(cache=True, nogil=True, inline="always")
def _with_half(x: Any, half: Any) -> Any:
    return _rotated(x ^ (half * _P1), 23) * _P2 + _P3


@njit(cache=True, nogil=True, inline="always")
def _read(data: Any, at: Any, size: Any) -> Any:
    """Read a little-endian number."""
    x = np.uint64(0)
    for i in range(size):
        x |= np.uint64(data[at + i]) << np.uint64(8 * i)
    return x


@njit(cache=True, nogil=True)
def _hash_longs(values: Any, seeds: Any) -> Any:
    out = np.empty(values.size, np.uint64)
    for i in range(values.size):
        out[i] = _scattered(_with_word(seeds[i] + _P5 + np.uint64(_WORD), np.uint64(values[i])))
    return out


@njit(cache=True, nogil=True)
def _hash_ints(values: Any, seeds: Any) -> Any:
    out = np.empty(values.size, np.uint64)
    for i in range(values.size):
        half = np.uint64(values[i]) & np.uint64(0xFFFFFFFF)
        out[i] = _scattered(_with_half(seeds[i] + _P5 + np.uint64(_HALF), half))
    return out


@njit(cache=True, nogil=True)
def _hash_bytes(data: Any, offsets: Any, seeds: Any) -> Any:
    out = np.empty(seeds.size, np.uint64)
    for i in range(seeds.size):
        out[i] = _hash_one(data, np.int64(offsets[i]), np.int64(offsets[i + 1]), seeds[i])
    return out


@njit(cache=True, nogil=True)
def _hash_one(data: Any, at: Any, end: Any, seed: Any) -> Any:
    length = end - at
    x = seed + _P5
    if length >= _STRIPE:
        x = _hash_stripes(data, at, end, seed)
        at += length // _STRIPE * _STRIPE
    x += np.uint64(length)
    while at + _WORD <= end:
        x = _with_word(x, _read(data, at, _WORD))
        at += _WORD
    if at + _HALF <= end:
        x = _with_half(x, _read(data, at, _HALF))
        at += _HALF
    while at < end:
        x = _rotated(x ^ (np.uint64(data[at]) * _P5), 11) * _P1
        at += 1
    return _scattered(x)


@njit(cache=True, nogil=True)
def _hash_stripes(data: Any, at: Any, end: Any, seed: Any) -> Any:
    a, b, c, d = seed + _P1 + _P2, seed + _P2, seed, seed - _P1
    while at + _STRIPE <= end:
        a = _rotated(a + _read(data, at, _WORD) * _P2, 31) * _P1
        b = _rotated(b + _read(data, at + 8, _WORD) * _P2, 31) * _P1
        c = _rotated(c + _read(data, at + 16, _WORD) * _P2, 31) * _P1
        d = _rotated(d + _read(data, at + 24, _WORD) * _P2, 31) * _P1
        at += _STRIPE
    x = _rotated(a, 1) + _rotated(b, 7) + _rotated(c, 12) + _rotated(d, 18)
    for lane in (a, b, c, d):
        x = (x ^ (_rotated(lane * _P2, 31) * _P1)) * _P1 + _P4
    return x
