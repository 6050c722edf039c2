"""Columns as integers in the order of their values; equal values are equal integers.

`ordered_values` converts the ordered attribute of a join without a window; a type of more than 64 bits is refused.
`Ordered` converts a column of any ordered type for minima and maxima, by ranks if need be, and back.

    BIGINT, INT, …     unchanged                DATE, TIMESTAMP    days, microseconds
    DECIMAL(18, s)     without the point        DOUBLE, FLOAT      their bits, transformed to the order of values

The order is Spark's: NaN is equal to itself and above all numbers, and -0.0 is 0.0.

In:  an Arrow column.  Out: integers, row by row; `ordered_values` leaves out nulls, which have no partners.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit

from penstock.errors import InputError
from penstock.kernels.fold import from_whole_numbers, null_mask, whole_numbers

if TYPE_CHECKING:
    from penstock.kernels.fold import Mask
    from penstock.kernels.key_hash import Ints

MOST_DIGITS = 18
"""The maximum precision of a decimal that fits 64 bits."""

LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1
"""The range of the integers."""


def ordered_values(column: pa.Array) -> Ints:
    """Return the values of a column that are not null, as integers.

    >>> ordered_values(pa.array([3, None, -1])).tolist()
    [3, -1]
    >>> rising = ordered_values(pa.array([-2.5, -0.0, 0.0, 1e-300, float("inf"), float("nan")]))
    >>> np.sign(np.diff(rising)).tolist()
    [1, 0, 1, 1, 1]
    """
    kind, values, types = column.type, column.drop_null(), pa.types
    if types.is_floating(kind):
        return rising_numbers(values)
    if types.is_decimal(kind) and kind.precision <= MOST_DIGITS:
        return _unscaled(values.cast(pa.decimal128(kind.precision, kind.scale)))
    if types.is_date(kind):
        values = values.cast(pa.date32())
    elif types.is_timestamp(kind):
        values = values.cast(pa.timestamp("us", kind.tz))
    elif not types.is_integer(kind):
        raise InputError(
            f"a join without a window needs an ordered attribute (a number, date or time), and this is {kind}. "
            "Write a WINDOW, declare punctuations, or add [UNBOUNDED] to each stream"
        )
    numbers = whole_numbers(values)
    assert numbers is not None  # noqa: S101 - of one of these types
    return numbers


def nearest_ordered(column: pa.Array) -> Ints:
    """Return the same; decimals of more digits become the nearest floats, so some become equal.

    >>> many_digits = pa.array([1, 2]).cast(pa.decimal128(38, 2))
    >>> (nearest_ordered(many_digits) == ordered_values(pa.array([1.0, 2.0]))).all()
    np.True_
    """
    if pa.types.is_decimal(column.type) and column.type.precision > MOST_DIGITS:
        column = pc.cast(column, pa.float64(), safe=False)
    return ordered_values(column)


def _unscaled(values: Any) -> Ints:
    """Return decimals without their point: the lower half of their 128 bits has 18 digits and the sign."""
    halves = np.frombuffer(values.buffers()[1], np.int64).reshape(-1, 2)
    return halves[values.offset : values.offset + len(values), 0].copy()


# --- values of any ordered type, and back ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ordered:
    """A column as numbers in the order of its values, and the way back to values."""

    numbers: Ints
    valid: Mask
    kind: pa.DataType
    values: pa.Array | None = None
    """If numbers are ranks: the distinct values in order."""

    @classmethod
    def of(cls, column: pa.Array) -> Ordered:
        """Convert a column; NaN is the greatest value, as in Spark.

        >>> Ordered.of(pa.array(["b", None, "a"])).numbers.tolist()
        [1, 1, 0]
        """
        valid = ~null_mask(column) if column.null_count else np.ones(len(column), np.bool_)
        if (numbers := whole_numbers(column)) is not None:
            return cls(numbers, valid, column.type)
        if pa.types.is_floating(column.type):
            return cls(rising_numbers(column), valid, column.type)
        encoded = column.dictionary_encode()
        order = pc.sort_indices(encoded.dictionary).to_numpy().astype(np.int64)
        ranks = np.empty_like(order)
        ranks[order] = np.arange(order.size)
        codes = encoded.indices.fill_null(0).to_numpy(zero_copy_only=False)
        numbers = ranks[codes] if order.size else np.zeros(len(column), np.int64)
        return cls(numbers, valid, column.type, encoded.dictionary.take(pa.array(order)))

    def back(self, numbers: Ints, valid: Mask) -> pa.Array:
        """Return the values of some numbers; null where `valid` is false."""
        is_float = self.values is None and pa.types.is_floating(self.kind)
        return self.of_bits(_ordered_bits(numbers) if is_float else numbers, valid)

    def turns(self, *, greatest: bool) -> tuple[int, int]:
        """Return the two masks that turn a number into the bits of its value; maxima are stored inverted."""
        is_float = self.values is None and pa.types.is_floating(self.kind)
        return -1 if greatest else 0, _SIGN if is_float else 0

    def of_bits(self, numbers: Ints, valid: Mask) -> pa.Array:
        """Return the values of some numbers, which are the bits of floats if the values are floats."""
        missing = None if valid.all() else ~valid
        if self.values is not None:
            return self.values.take(pa.array(numbers, mask=missing))
        if pa.types.is_floating(self.kind):
            return pa.array(numbers.view(np.float64), mask=missing, from_pandas=False).cast(self.kind)
        return from_whole_numbers(numbers, self.kind, missing)


def rising_numbers(column: pa.Array) -> Ints:
    """Return numbers in the order of floats: -0.0 is 0.0, NaN is the greatest; null counts as 0."""
    known = column.fill_null(0) if column.null_count else column
    floats = np.ascontiguousarray(known.to_numpy(zero_copy_only=False).astype(np.float64, copy=False))
    return _ordered_floats(floats, floats.view(np.int64))


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
def _ordered_floats(floats, bits):
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
def _ordered_bits(numbers):
    """Convert numbers in the order of floats to their bits, and back."""
    out = np.empty(numbers.size, np.int64)
    for i in range(numbers.size):
        out[i] = numbers[i] ^ ((numbers[i] >> np.int64(63)) & np.int64(_SIGN))
    return out
