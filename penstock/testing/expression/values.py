"""Values of Spark's types as Python has them, from Arrow and back.

    boolean  bool       tinyint..bigint  int       float, double  float (a float is one of 32 bits)
    decimal  Decimal    string  str                binary  bytes
    date     days since 1970                       timestamp, timestamp_ntz, interval  microseconds

In:  Arrow columns.
Out: lists of values with None for NULL, their order, and Arrow arrays of the types that Spark gives.
"""

from __future__ import annotations

import math
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.errors import RunError
from penstock.state.spark_schema import PLAIN

if TYPE_CHECKING:
    from penstock.sql.spark_types import SparkType

BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
WHOLE = tuple(BITS)
FLOATING = ("float", "double")
NUMBERS = (*WHOLE, *FLOATING, "decimal")
STAMPS = ("timestamp", "timestamp_ntz")
EXACT = Context(prec=200, rounding=ROUND_HALF_UP)
"""Arithmetic of decimals that loses nothing: Spark rounds results only."""
DAY = 86_400_000_000

_ARROW = {"void": pa.null(), **PLAIN}


def is_interval(kind: SparkType) -> bool:
    """Say whether a type is an interval of days or less."""
    return kind.name.startswith("interval ") and not kind.name.endswith(("year", "month"))


def is_supported(kind: SparkType) -> bool:
    """Say whether values of a type are understood here."""
    plain = kind.name in {*_ARROW, "timestamp", "decimal"} and not kind.collation
    return plain or is_interval(kind)


def arrow_type(kind: SparkType, zone: str) -> pa.DataType:
    """Give the Arrow type of a Spark type, as Spark's own conversion has it."""
    if kind.name == "decimal":
        return pa.decimal128(*kind.digits)
    if kind.name == "timestamp":
        return pa.timestamp("us", tz=zone)
    return pa.duration("us") if is_interval(kind) else _ARROW[kind.name]


def from_arrow(column: pa.ChunkedArray, kind: SparkType) -> list[Any]:
    """Give the values of a column."""
    if kind.name in STAMPS:
        column = column.cast(pa.timestamp("us", tz=getattr(column.type, "tz", None))).cast(pa.int64())
    elif is_interval(kind):
        column = column.cast(pa.duration("us")).cast(pa.int64())
    elif kind.name == "date":
        column = column.cast(pa.date32()).cast(pa.int32())
    else:
        column = column.cast(arrow_type(kind, "UTC"))
    values: list[Any] = column.to_pylist()
    return values


def to_arrow(values: list[Any], kind: SparkType, zone: str) -> pa.Array:
    """Make an Arrow array of values."""
    wanted = arrow_type(kind, zone)
    if kind.name in STAMPS or is_interval(kind):
        return pa.array(values, pa.int64()).cast(wanted)
    return pa.array(values, pa.int32()).cast(wanted) if kind.name == "date" else pa.array(values, wanted)


def single(value: float) -> float:
    """Round to a float of 32 bits."""
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def order(value: Any) -> Any:
    """Give what values of one type are compared by: NaN equals itself and is the greatest number."""
    if isinstance(value, float):
        return (True, 0.0) if math.isnan(value) else (False, value)
    return value


def in_range(value: int, kind: SparkType) -> bool:
    """Say whether a whole number is one of a type."""
    half = 1 << (BITS[kind.name] - 1)
    return -half <= value < half


def fitted(value: Decimal, kind: SparkType) -> Decimal:
    """Round a decimal to a type, or raise if it has too many digits."""
    precision, scale = kind.digits
    huge = bool(value) and value.adjusted() > precision
    rounded = value if huge else EXACT.plus(EXACT.quantize(value, Decimal(1).scaleb(-scale)))
    if huge or abs(rounded) >= Decimal(10) ** (precision - scale):
        raise RunError(
            f"{value:f} cannot be represented as Decimal({precision}, {scale}) (NUMERIC_VALUE_OUT_OF_RANGE)"
        )
    return rounded


def civil(days: int) -> tuple[int, int, int]:
    """Give year, month and day of a date, in the calendar of today carried on for ever.

    >>> civil(0), civil(-719529), civil(2932897)
    ((1970, 1, 1), (-1, 12, 31), (10000, 1, 1))
    """
    era, of_era = divmod(days + 719_468, 146_097)
    year = (of_era - of_era // 1_460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153  # March is 0
    day = of_year - (153 * month + 2) // 5 + 1
    shown = month + 3 if month < 10 else month - 9  # noqa: PLR2004 - January and February are of the next year
    return year + 400 * era + (shown <= 2), shown, day  # noqa: PLR2004


def days_of(year: int, month: int, day: int) -> int:
    """Give the days since 1970 of a date.

    >>> days_of(1970, 1, 1), days_of(2024, 2, 29)
    (0, 19782)
    """
    year -= month <= 2  # noqa: PLR2004 - the year begins in March, so that the leap day is its last
    era, of_era = divmod(year, 400)
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468
