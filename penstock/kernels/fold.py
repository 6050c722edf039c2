"""Fold rows into groups: counts, sums, minima and maxima by the number of their group.

Groups are numbered by hashing, without a sort.  Only columns of numbers are folded; other values (texts, decimals) are
replaced by their ranks (`penstock.kernels.ordered_values`)::

    key       a   b   a   c   b           number of group   0  1  0  2  1
    value     5   1   2   7   4           sum               7  5  7         least  2  1  7

Integers and decimals are summed exactly, as limbs of 32 bits that are combined at the end.

In:  Arrow columns.  Out: NumPy columns with one entry for each group.
Always true: folding rows in parts, and then the parts, gives the same as folding all rows at once (floating-point sums
up to rounding).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numba import njit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from penstock.kernels.key_hash import Ints

    Floats = NDArray[np.float64]
    Mask = NDArray[np.bool_]

_WIDEST = 1 << 62
_FIRST_SLOTS = 1 << 12


# --- groups --------------------------------------------------------------------------------------------------------


def number_groups(columns: Sequence[Ints]) -> tuple[Ints, Ints]:
    """Assign numbers from 0 on to the distinct rows of some columns: the number of each row, and a row of each number.

    >>> ids, rows = number_groups([np.array([7, 7, 9, 7]), np.array([1, 2, 1, 1])])
    >>> ids.tolist(), rows.tolist()
    ([0, 1, 2, 0], [0, 1, 2])
    """
    code = columns[0]
    for column in columns[1:]:
        code = _combined(code, column)
    return _densified(code)


def _combined(one: Ints, other: Ints) -> Ints:
    """Combine two columns into one, so that rows are equal if both were."""
    if not one.size:
        return one
    (low, span), (least, width) = _span(one), _span(other)
    if span * width >= _WIDEST:
        one, other = _densified(one)[0], _densified(other)[0]
        (low, span), (least, width) = _span(one), _span(other)
    return (one - low) * width + (other - least)


def number_runs(columns: Sequence[Ints]) -> tuple[Ints, Ints]:
    """Assign numbers to the runs of equal neighbouring rows: the numbers, and the first row of each.

    Equal rows that are not neighbours have different numbers.  Cheaper than `number_groups` for sorted rows.

    >>> [numbers.tolist() for numbers in number_runs([np.array([7, 7, 7, 8]), np.array([1, 1, 2, 2])])]
    [[0, 0, 1, 2], [0, 2, 3]]
    """
    changes = np.zeros(columns[0].size, np.bool_)
    changes[:1] = True
    for column in columns:
        changes[1:] |= column[1:] != column[:-1]
    return np.cumsum(changes) - 1, np.flatnonzero(changes)


def _span(column: Ints) -> tuple[int, int]:
    """Return the minimum of a column, and the size of its range."""
    least, most = int(column.min()), int(column.max())
    return least, most - least + 1


def _densified(codes: Ints) -> tuple[Ints, Ints]:
    if not codes.size:
        return codes, codes
    codes = np.ascontiguousarray(codes)
    low, span = _span(codes)
    if span <= max(4 * codes.size, _FIRST_SLOTS):
        return _number_by_table(codes, low, span)
    return _number(codes, _FIRST_SLOTS)


@njit(cache=True, nogil=True)
def _number_by_table(codes, low, span):
    """Assign numbers to codes in the order of first sight, by a table with an entry for each possible code."""
    ids = np.empty(codes.size, np.int64)
    table = np.full(span, -1, np.int64)
    firsts = np.empty(min(span, codes.size), np.int64)
    size = 0
    for i in range(codes.size):
        n = table[codes[i] - low]
        if n < 0:
            n = size
            table[codes[i] - low] = n
            firsts[n] = i
            size += 1
        ids[i] = n
    return ids, firsts[:size].copy()


@njit(cache=True, nogil=True)
def _slot(code, mask):
    x = np.uint64(code) * np.uint64(0x9E3779B97F4A7C15)
    return np.int64((x ^ (x >> np.uint64(32))) & np.uint64(mask))


@njit(cache=True, nogil=True)
def _number(codes, slots):
    """Assign numbers to codes in the order of first sight, by a hash table that grows when it is half full."""
    ids = np.empty(codes.size, np.int64)
    firsts = np.empty(16, np.int64)
    table = np.full(slots, -1, np.int64)
    size = 0
    for i in range(codes.size):
        slot = _slot(codes[i], table.size - 1)
        while table[slot] >= 0 and codes[firsts[table[slot]]] != codes[i]:
            slot = (slot + 1) & (table.size - 1)
        if table[slot] < 0:
            if size == firsts.size:
                grown = np.empty(2 * size, np.int64)
                grown[:size] = firsts
                firsts = grown
            firsts[size] = i
            table[slot] = size
            size += 1
            if 2 * size > table.size:
                table = np.full(4 * table.size, -1, np.int64)
                for n in range(size):
                    slot = _slot(codes[firsts[n]], table.size - 1)
                    while table[slot] >= 0:
                        slot = (slot + 1) & (table.size - 1)
                    table[slot] = n
            ids[i] = size - 1
        else:
            ids[i] = table[slot]
    return ids, firsts[:size].copy()


def codes_of(column: pa.Array) -> Ints:
    """Return numbers for the values of a column: equal values, as GROUP BY compares them, have equal numbers.

    >>> codes = codes_of(pa.array([0.0, -0.0, None, float("nan"), None]))
    >>> codes[0] == codes[1], codes[2] == codes[4], len(set(codes.tolist()))
    (np.True_, np.True_, 3)
    """
    if not column.null_count and (numbers := whole_numbers(column)) is not None:
        return numbers
    if pa.types.is_floating(column.type):
        column = normal_floats(column).view(pa.int64())
    encoded = column.dictionary_encode(null_encoding="encode")
    return np.asarray(encoded.indices.to_numpy(zero_copy_only=False)).astype(np.int64)


def normal_floats(column: pa.Array) -> pa.Array:
    """Return floats with one NaN and one zero, so that equal values have equal bits."""
    values = column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.float64) + 0.0
    values[np.isnan(values)] = np.nan
    return pa.array(values, mask=null_mask(column) if column.null_count else None, from_pandas=False)


def null_mask(column: pa.Array) -> Mask:
    """Return which values of a column are null."""
    return np.asarray(column.is_null().to_numpy(zero_copy_only=False))


def whole_numbers(column: pa.Array) -> Ints | None:
    """View integers, times and booleans as 64-bit numbers, null as 0; None for any other type."""
    kind, types = column.type, pa.types
    is_time = types.is_timestamp(kind) or types.is_duration(kind) or types.is_date32(kind)
    if not (is_time or types.is_integer(kind) or types.is_boolean(kind)):
        return None
    width = pa.int32() if types.is_date32(kind) else pa.int64()
    if column.null_count:
        zero = pa.scalar(value=False) if types.is_boolean(kind) else pa.scalar(0, width).cast(kind)
        column = column.fill_null(zero)
    values = column.view(width) if is_time else column
    return np.asarray(values.to_numpy(zero_copy_only=False)).astype(np.int64, copy=False)


def from_whole_numbers(numbers: Ints, kind: pa.DataType, missing: Mask | None = None) -> pa.Array:
    """Convert 64-bit numbers of `whole_numbers` back to a type; null where `missing`.

    >>> from_whole_numbers(np.array([1]), pa.date32())[0].as_py().isoformat()
    '1970-01-02'
    """
    types, values = pa.types, pa.array(numbers, mask=missing)
    if types.is_date32(kind):
        return values.cast(pa.int32()).view(kind)
    return values.cast(kind) if types.is_boolean(kind) or types.is_integer(kind) else values.view(kind)


def remainders(column: pa.Array, divisor: int, *, wide: bool, floored: bool) -> pa.Array:
    """Return the remainders of a division by a positive integer, in Spark's type of the result.

    The result has the sign of the number; if `floored`, it is never negative.  A `wide` divisor is a BIGINT, and so is
    the result.

    >>> remainders(pa.array([7, -7, None]), 4, wide=False, floored=False).to_pylist()
    [3, -3, None]
    >>> remainders(pa.array([-7], pa.int8()), 4, wide=False, floored=True)[0]
    <pyarrow.Int32Scalar: 1>
    """
    kind = pa.int64() if wide or pa.types.is_int64(column.type) else pa.int32()
    numbers = column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    left = np.fmod(numbers, np.int64(divisor))
    if floored:
        left = np.where(left < 0, left + divisor, left)
    return pa.array(left, mask=null_mask(column) if column.null_count else None).cast(kind)


# --- folds ---------------------------------------------------------------------------------------------------------


def group_sums(ids: Ints, values: NDArray[Any], size: int) -> NDArray[Any]:
    """Sum integers or floats by group.

    >>> group_sums(np.array([0, 1, 0]), np.array([5, 1, 2]), 2)
    array([7, 1])
    """
    return _sum(ids, np.ascontiguousarray(values), np.zeros(size, values.dtype))


def count(ids: Ints, size: int) -> Ints:
    """Count the rows of each group."""
    return np.bincount(ids, minlength=size)


def least(ids: Ints, values: Ints, valid: Mask, size: int) -> tuple[Ints, Mask]:
    """Return the minimum of the valid numbers of each group, and the groups that have one.

    >>> least(np.array([0, 1, 0]), np.array([5, 1, 2]), np.array([True, False, True]), 2)
    (array([2, 0]), array([ True, False]))
    """
    out, seen = np.zeros(size, np.int64), np.zeros(size, np.bool_)
    _lower(out, seen, ids, values, valid)
    return out, seen


@njit(cache=True, nogil=True)
def _sum(ids, values, out):
    for i in range(ids.size):
        out[ids[i]] += values[i]
    return out


def add_into(total: NDArray[Any], ids: Ints, values: NDArray[Any]) -> None:
    """Add numbers to the totals of their groups, in place."""
    _sum(ids, np.ascontiguousarray(values), total)


def lower_into(total: Ints, seen: Mask, ids: Ints, values: Ints, valid: Mask) -> None:
    """Update the minima of groups with further rows, in place."""
    _lower(total, seen, ids, values, valid)


@njit(cache=True, nogil=True)
def _lower(out, seen, ids, values, valid):
    for i in range(ids.size):
        n = ids[i]
        if valid[i] and (not seen[n] or values[i] < out[n]):
            out[n] = values[i]
            seen[n] = True


# --- exact sums ----------------------------------------------------------------------------------------------------

LIMB = 32
_LOW = (1 << LIMB) - 1
_TOO_MANY_DIGITS = 10**38


def limbs_of(column: pa.Array) -> list[Ints]:
    """Return integers or decimals as limbs of 32 bits, the lowest first; null counts as 0.

    >>> [each.tolist() for each in limbs_of(pa.array([-1, 1 << 33, None]))]
    [[4294967295, 0, 0], [-1, 2, 0]]
    """
    if pa.types.is_decimal(column.type):
        wide = column.cast(pa.decimal128(38, column.type.scale)).fill_null(0)
        words = np.frombuffer(wide.buffers()[1], np.uint32).reshape(-1, 4)[
            wide.offset : wide.offset + len(wide)
        ]
        lowest = [words[:, n].astype(np.int64) for n in range(3)]
        return [*lowest, words[:, 3].copy().view(np.int32).astype(np.int64)]
    numbers = whole_numbers(column)
    assert numbers is not None, column.type  # noqa: S101 - asked of whole numbers only
    return [numbers & _LOW, numbers >> LIMB]


def carried(limbs: Sequence[Ints]) -> list[Ints]:
    """Carry the overflow of each limb into the next; the last one keeps its sign.

    >>> [each.tolist() for each in carried([np.array([2 << 32]), np.array([5])])]
    [[0], [7]]
    """
    out: list[Ints] = []
    carry = np.zeros_like(limbs[0])
    for limb in limbs[:-1]:
        total = limb + carry
        out.append(total & _LOW)
        carry = total >> LIMB
    return [*out, limbs[-1] + carry]


def is_too_large(limbs: Sequence[Ints]) -> bool:
    """Return whether a sum overflows: two limbs are a signed 64-bit number, four limbs a decimal of 38 digits."""
    whole = carried(limbs)
    last = whole[-1]
    if len(limbs) == 2:  # noqa: PLR2004 - a whole number's
        return bool(((last > (1 << 31) - 1) | (last < -(1 << 31))).any())
    near = np.flatnonzero(np.abs(last) >= _TOO_MANY_DIGITS >> 3 * LIMB)
    return any(
        abs(sum(int(limb[n]) << place * LIMB for place, limb in enumerate(whole))) >= _TOO_MANY_DIGITS
        for n in near
    )


def to_ints(limbs: Sequence[Ints]) -> Ints:
    """Combine two limbs; a sum that does not fit 64 bits wraps, as in Spark."""
    low, high = carried(limbs)
    return (high << LIMB) | low


def to_decimals(limbs: Sequence[Ints], kind: pa.DataType) -> pa.Array:
    """Combine four limbs to decimals of one scale."""
    whole = carried(limbs)
    words = np.stack(
        [*(limb.astype(np.uint32) for limb in whole[:-1]), whole[-1].astype(np.int32).view(np.uint32)], 1
    )
    buffer = pa.py_buffer(np.ascontiguousarray(words).tobytes())
    return pa.Array.from_buffers(pa.decimal128(38, kind.scale), len(whole[0]), [None, buffer])
