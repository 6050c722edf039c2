"""Columns of an ordered attribute as integers: in the same order, and equal where the values are.

    BIGINT, INT, …     as they are              DATE, TIMESTAMP    days, microseconds
    DECIMAL(18, s)     without the point        DOUBLE, FLOAT      their bits, turned so that they rise with the value

Spark's order is meant: NaN is equal to itself and above all numbers, and -0.0 is 0.0.  Rows without a value join with
nobody; they are left out, and have no position.

In:  an Arrow column.  Out: integers for `penstock.kernels.order_watch` and its like, in the order of arrival.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import InputError

if TYPE_CHECKING:
    from penstock.kernels.key_hash import Ints

MOST_DIGITS = 18
"""Of a decimal: those that 64 bits can hold."""

LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1
"""The integers that values can be."""

NO_ORDER = "a join without a window needs an ordered attribute, a number, date or time"


def ordered_values(column: pa.Array) -> Ints:
    """Give the values of a column that are there, as integers.

    >>> ordered_values(pa.array([3, None, -1])).tolist()
    [3, -1]
    >>> rising = ordered_values(pa.array([-2.5, -0.0, 0.0, 1e-300, float("inf"), float("nan")]))
    >>> np.sign(np.diff(rising)).tolist()
    [1, 0, 1, 1, 1]
    """
    kind, values = column.type, column.drop_null()
    if pa.types.is_floating(kind):
        return _rising_bits(values.cast(pa.float64()).to_numpy(zero_copy_only=False))
    if pa.types.is_decimal(kind) and kind.precision <= MOST_DIGITS:
        return _unscaled(values.cast(pa.decimal128(kind.precision, kind.scale)))
    if pa.types.is_integer(kind):
        return _integers(values, pa.int64())
    if pa.types.is_date(kind):
        return _integers(values.cast(pa.date32()), pa.int32())
    if pa.types.is_timestamp(kind):
        return _integers(values.cast(pa.timestamp("us", kind.tz)), pa.int64())
    raise InputError(
        f"{NO_ORDER}, and this is {kind}: write a WINDOW, declare punctuations, or say [UNBOUNDED] after each stream"
    )


def nearest_ordered(column: pa.Array) -> Ints:
    """Give the same, and decimals of too many digits as the nearest floating-point numbers: some fall together.

    >>> many_digits = pa.array([1, 2]).cast(pa.decimal128(38, 2))
    >>> (nearest_ordered(many_digits) == ordered_values(pa.array([1.0, 2.0]))).all()
    np.True_
    """
    if pa.types.is_decimal(column.type) and column.type.precision > MOST_DIGITS:
        column = pc.cast(column, pa.float64(), safe=False)
    return ordered_values(column)


def _integers(values: Any, kind: pa.DataType) -> Ints:
    return values.cast(kind).cast(pa.int64()).to_numpy(zero_copy_only=False)


def _unscaled(values: Any) -> Ints:
    """Give decimals without their point: the lower half of their 128 bits holds 18 digits and the sign."""
    halves = np.frombuffer(values.buffers()[1], np.int64).reshape(-1, 2)
    return halves[values.offset : values.offset + len(values), 0].copy()


def _rising_bits(values: np.ndarray) -> Ints:
    """Turn the bits of floats so that they rise with the values: those of negative ones fall.

    ``+ 0.0`` makes one zero of two.
    """
    bits = np.where(np.isnan(values), np.nan, values + 0.0).view(np.int64)
    return np.where(bits < 0, bits ^ np.int64(2**63 - 1), bits)
