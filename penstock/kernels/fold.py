"""Fold rows into groups: sums, counts, least and greatest values, and moments, each by the number of its group.

A group's number is found by hashing, so nothing is sorted; what is folded is a column of numbers.  Values that are no
numbers (texts, decimals) have ranks in place of them (`Ordered`)::

    key       a   b   a   c   b           number of group   0  1  0  2  1
    value     5   1   2   7   4           sum               7  5  7         least  2  1  7

Whole numbers are summed exactly, however many: as limbs of 32 bits, which are put together at the end.

In:  Arrow columns.  Out: NumPy columns with one entry for each group.
Always true: folding rows in parts, and then the parts, gives what folding all rows at once gives; for sums of floating
point, but for rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from penstock.kernels.key_hash import Ints

    Floats = NDArray[np.float64]
    Mask = NDArray[np.bool_]

_WIDEST = 1 << 62
_FIRST_SLOTS = 1 << 12


# --- which group ---------------------------------------------------------------------------------------------------


def number_groups(columns: Sequence[Ints]) -> tuple[Ints, Ints]:
    """Give the distinct rows of some columns numbers from 0 on: the number of each row, and a row of each number.

    >>> ids, rows = number_groups([np.array([7, 7, 9, 7]), np.array([1, 2, 1, 1])])
    >>> ids.tolist(), rows.tolist()
    ([0, 1, 2, 0], [0, 1, 2])
    """
    code = columns[0]
    for column in columns[1:]:
        code = _combined(code, column)
    return _densified(code)


def _combined(one: Ints, other: Ints) -> Ints:
    """Write two columns as one, so that rows are equal where both were."""
    if not one.size:
        return one
    (low, span), (least, width) = _span(one), _span(other)
    if span * width >= _WIDEST:
        one, other = _densified(one)[0], _densified(other)[0]
        (low, span), (least, width) = _span(one), _span(other)
    return (one - low) * width + (other - least)


def number_runs(columns: Sequence[Ints]) -> tuple[Ints, Ints]:
    """Give neighbours that are equal in all columns the same number: the numbers, and the first row of each.

    Rows that are alike but far apart have different ones: cheaper than `number_groups`, for rows that are in order.

    >>> [each.tolist() for each in number_runs([np.array([7, 7, 7, 8]), np.array([1, 1, 2, 2])])]
    [[0, 0, 1, 2], [0, 2, 3]]
    """
    changes = np.zeros(columns[0].size, np.bool_)
    changes[:1] = True
    for each in columns:
        changes[1:] |= each[1:] != each[:-1]
    return np.cumsum(changes) - 1, np.flatnonzero(changes)


def _span(column: Ints) -> tuple[int, int]:
    """Give the least value of a column, and how many there may be from it on."""
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
def _number_by_table(codes: Any, low: Any, span: Any) -> Any:
    """Give each code a number in the order of first sight, with a table that has a place for each."""
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
def _slot(code: Any, mask: Any) -> Any:
    """Scatter a code over the slots of a table."""
    x = np.uint64(code) * np.uint64(0x9E3779B97F4A7C15)
    return np.int64((x ^ (x >> np.uint64(32))) & np.uint64(mask))


@njit(cache=True, nogil=True)
def _number(codes: Any, slots: Any) -> Any:
    """Give each code a number in the order of first sight, with a hash table that doubles when it is half full."""
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
    """Give equal values of a column equal numbers, null being a value; as Spark groups, -0.0 is 0.0 and NaN is NaN.

    >>> codes = codes_of(pa.array([0.0, -0.0, None, float("nan"), None]))
    >>> codes[0] == codes[1], codes[2] == codes[4], len(set(codes.tolist()))
    (np.True_, np.True_, 3)
    """
    kind = column.type
    if not column.null_count and (numbers := whole_numbers(column)) is not None:
        return numbers
    if pa.types.is_floating(kind):
        values = column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.float64) + 0.0
        values[np.isnan(values)] = np.nan
        column = pa.array(values.view(np.int64), mask=_nulls(column))
    encoded = column.dictionary_encode(null_encoding="encode")
    return np.asarray(encoded.indices.to_numpy(zero_copy_only=False)).astype(np.int64)


def _nulls(column: pa.Array) -> Mask:
    return np.asarray(column.is_null().to_numpy(zero_copy_only=False))


def whole_numbers(column: pa.Array) -> Ints | None:
    """View whole numbers, times and truth values without nulls as 64-bit numbers; None for any other column."""
    kind = column.type
    types = pa.types
    if types.is_boolean(kind):
        return np.asarray(column.to_numpy(zero_copy_only=False)).astype(np.int64)
    if types.is_integer(kind):
        return np.asarray(column.to_numpy(zero_copy_only=False)).astype(np.int64, copy=False)
    if types.is_timestamp(kind) or types.is_duration(kind) or types.is_date32(kind):
        width = pa.int32() if types.is_date32(kind) else pa.int64()
        return np.asarray(column.view(width).to_numpy(zero_copy_only=False)).astype(np.int64, copy=False)
    return None


def from_whole_numbers(numbers: Ints, kind: pa.DataType) -> pa.Array:
    """Read 64-bit numbers as what `whole_numbers` took them from.

    >>> from_whole_numbers(np.array([1]), pa.date32())[0].as_py().isoformat()
    '1970-01-02'
    """
    types = pa.types
    if types.is_date32(kind):
        return pa.array(numbers).cast(pa.int32()).view(kind)
    if types.is_boolean(kind) or types.is_integer(kind):
        return pa.array(numbers).cast(kind)
    return pa.array(numbers).view(kind)


def remainders(column: pa.Array, divisor: int, *, wide: bool, floored: bool) -> pa.Array:
    """Divide whole numbers by a positive one and give what is left, in the type that Spark gives it.

    It has the sign of the number, or none if it is `floored`; a `wide` divisor is a BIGINT, which makes all wide.

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
    return pa.array(left, mask=_nulls(column) if column.null_count else None).cast(kind)


# --- folds ---------------------------------------------------------------------------------------------------------


def sum_ints(ids: Ints, values: Ints, size: int) -> Ints:
    """Sum whole numbers by group.

    >>> sum_ints(np.array([0, 1, 0]), np.array([5, 1, 2]), 2)
    array([7, 1])
    """
    return _sum(ids, np.ascontiguousarray(values), np.zeros(size, np.int64))


def sum_floats(ids: Ints, values: Floats, size: int) -> Floats:
    """Sum floating point numbers by group."""
    return _sum(ids, np.ascontiguousarray(values), np.zeros(size, np.float64))


def count(ids: Ints, size: int) -> Ints:
    """Count the rows of each group."""
    return np.bincount(ids, minlength=size)


def least(ids: Ints, values: Ints, valid: Mask, size: int) -> tuple[Ints, Mask]:
    """Give the least valid number of each group, and which groups have one.

    >>> least(np.array([0, 1, 0]), np.array([5, 1, 2]), np.array([True, False, True]), 2)
    (array([2, 0]), array([ True, False]))
    """
    return _least(ids, values, valid, size)


@njit(cache=True, nogil=True)
def _sum(ids: Any, values: Any, out: Any) -> Any:
    for i in range(ids.size):
        out[ids[i]] += values[i]
    return out


def add_into(total: NDArray[Any], ids: Ints, values: NDArray[Any]) -> None:
    """Add numbers to the totals of their groups, in place."""
    _sum(ids, np.ascontiguousarray(values), total)


def lower_into(total: Ints, seen: Mask, ids: Ints, values: Ints, valid: Mask) -> None:
    """Lower the least numbers of groups to those of further rows, in place."""
    _lower(total, seen, ids, values, valid)


@njit(cache=True, nogil=True)
def _lower(out: Any, seen: Any, ids: Any, values: Any, valid: Any) -> None:
    for i in range(ids.size):
        n = ids[i]
        if valid[i] and (not seen[n] or values[i] < out[n]):
            out[n] = values[i]
            seen[n] = True


@njit(cache=True, nogil=True)
def _least(ids: Any, values: Any, valid: Any, size: Any) -> Any:
    out = np.zeros(size, np.int64)
    seen = np.zeros(size, np.bool_)
    for i in range(ids.size):
        n = ids[i]
        if valid[i] and (not seen[n] or values[i] < out[n]):
            out[n] = values[i]
            seen[n] = True
    return out, seen


# --- exact sums ----------------------------------------------------------------------------------------------------

LIMB = 32
_LOW = (1 << LIMB) - 1
_TOO_MANY_DIGITS = 10**38


def limbs_of(column: pa.Array) -> list[Ints]:
    """Write whole numbers or decimals as limbs of 32 bits, from the lowest on; null counts as 0.

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
    numbers = whole_numbers(column.fill_null(_zero(column.type)) if column.null_count else column)
    assert numbers is not None, column.type  # noqa: S101 - asked of whole numbers only
    return [numbers & _LOW, numbers >> LIMB]


def _zero(kind: pa.DataType) -> pa.Scalar:
    if pa.types.is_boolean(kind):
        return pa.scalar(value=False)
    return pa.scalar(0, pa.int32() if pa.types.is_date32(kind) else pa.int64()).cast(kind)


def carried(limbs: Sequence[Ints]) -> list[Ints]:
    """Carry what is too large for a limb to the next one; the last one keeps its sign.

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
    """Say whether some sum does not fit: two limbs 64 bits, of which one is the sign, four the digits of a decimal."""
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
    """Put two limbs together again; what does not fit 64 bits wraps, as Spark's own sums do where they may."""
    low, high = carried(limbs)
    return (high << LIMB) | low


def to_decimals(limbs: Sequence[Ints], kind: pa.DataType) -> pa.Array:
    """Put four limbs together as decimals of one scale."""
    whole = carried(limbs)
    words = np.stack(
        [*(each.astype(np.uint32) for each in whole[:-1]), whole[-1].astype(np.int32).view(np.uint32)], 1
    )
    buffer = pa.py_buffer(np.ascontiguousarray(words).tobytes())
    return pa.Array.from_buffers(pa.decimal128(38, kind.scale), len(whole[0]), [None, buffer])


# --- least and greatest, of any type that has an order ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ordered:
    """A column as numbers in the order of its values, and the way back."""

    numbers: Ints
    valid: Mask
    kind: pa.DataType
    values: pa.Array | None = None
    """The distinct values in order, where numbers are ranks."""

    @classmethod
    def of(cls, column: pa.Array) -> Ordered:
        """Read a column; NaN comes after every number, as in Spark.

        >>> Ordered.of(pa.array(["b", None, "a"])).numbers.tolist()
        [1, 1, 0]
        """
        valid = ~_nulls(column) if column.null_count else np.ones(len(column), np.bool_)
        filled = (
            column.fill_null(_zero(column.type)) if column.null_count and _is_whole(column.type) else column
        )
        if not filled.null_count and (numbers := whole_numbers(filled)) is not None:
            return cls(numbers, valid, column.type)
        if pa.types.is_floating(column.type):
            known = column.fill_null(0) if column.null_count else column
            floats = known.to_numpy(zero_copy_only=False).astype(np.float64, copy=False)
            floats = np.ascontiguousarray(floats)
            return cls(_ordered_floats(floats, floats.view(np.int64)), valid, column.type)
        encoded = column.dictionary_encode()
        order = pc.sort_indices(encoded.dictionary).to_numpy().astype(np.int64)
        ranks = np.empty_like(order)
        ranks[order] = np.arange(order.size)
        codes = encoded.indices.fill_null(0).to_numpy(zero_copy_only=False)
        numbers = ranks[codes] if order.size else np.zeros(len(column), np.int64)
        return cls(numbers, valid, column.type, encoded.dictionary.take(pa.array(order)))

    def back(self, numbers: Ints, valid: Mask) -> pa.Array:
        """Give the values of some numbers; null where there is none."""
        is_float = self.values is None and pa.types.is_floating(self.kind)
        return self.of_bits(_ordered_bits(numbers) if is_float else numbers, valid)

    def turns(self, *, greatest: bool) -> tuple[int, int]:
        """Give what turns a number into the bits of its value, where the greatest are kept flipped."""
        is_float = self.values is None and pa.types.is_floating(self.kind)
        return -1 if greatest else 0, _SIGN if is_float else 0

    def of_bits(self, numbers: Ints, valid: Mask) -> pa.Array:
        """Give the values of some numbers, which are the bits of floats if those are the values."""
        missing = None if valid.all() else ~valid
        if self.values is not None:
            return self.values.take(pa.array(numbers, mask=missing))
        if pa.types.is_floating(self.kind):
            return pa.array(numbers.view(np.float64), mask=missing, from_pandas=False).cast(self.kind)
        if pa.types.is_boolean(self.kind):
            return pa.array(numbers.astype(np.bool_), mask=missing)
        if pa.types.is_integer(self.kind):
            return pa.array(numbers, mask=missing).cast(self.kind)
        if pa.types.is_date32(self.kind):
            return pa.array(numbers.astype(np.int32), mask=missing).view(self.kind)
        return pa.array(numbers, mask=missing).view(self.kind)


def _is_whole(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_integer(kind)
        or types.is_boolean(kind)
        or types.is_timestamp(kind)
        or types.is_duration(kind)
        or types.is_date32(kind)
    )


def float_bits(column: pa.Array) -> Ints:
    """Return numbers in the order of floats, in which -0.0 comes before 0.0, and NaN last; null counts as 0.

    >>> float_bits(pa.array([1.5, -0.0, 0.0, None])).argsort(kind="stable").tolist()
    [1, 2, 3, 0]
    """
    known = column.fill_null(0) if column.null_count else column
    floats = known.to_numpy(zero_copy_only=False).astype(np.float64)
    floats[np.isnan(floats)] = np.nan
    return _ordered_bits(floats.view(np.int64))


_SIGN = (1 << 63) - 1
_NAN = int(np.array(np.nan).view(np.int64))


@njit(cache=True, nogil=True)
def _ordered_floats(floats: Any, bits: Any) -> Any:
    """Turn floats into numbers in their order; -0.0 is 0.0, and NaN the greatest."""
    out = np.empty(floats.size, np.int64)
    for i in range(floats.size):
        own = bits[i]
        if floats[i] != floats[i]:
            own = np.int64(_NAN)
        elif floats[i] == 0:
            own = np.int64(0)
        out[i] = own ^ ((own >> np.int64(63)) & np.int64(_SIGN))
    return out


@njit(cache=True, nogil=True)
def _ordered_bits(numbers: Any) -> Any:
    """Turn numbers in the order of floats into the bits of these."""
    out = np.empty(numbers.size, np.int64)
    for i in range(numbers.size):
        out[i] = numbers[i] ^ ((numbers[i] >> np.int64(63)) & np.int64(_SIGN))
    return out
