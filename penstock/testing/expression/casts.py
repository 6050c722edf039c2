"""Casts between types, explicit and implied, as Spark makes them in ANSI mode.

    whole number -> narrower one          fails out of range
    floating number -> whole number       cut towards zero; fails out of range, and for NaN
    anything -> decimal                   rounded half up; fails if digits do not suffice
    string -> number, boolean             blanks around it do not count; fails if it is none
    string -> time                        of constants only
    time -> time, number, string          in UTC only

In:  a node and a type.
Out: a node of that type; `Refusal` for a cast that only Spark makes, such as DOUBLE to STRING (digits as the JVM has).
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from penstock.errors import RunError
from penstock.sql.spark_types import never_fails
from penstock.testing.expression.literals import read_date, read_timestamp
from penstock.testing.expression.nodes import Refusal, constant, named, strict
from penstock.testing.expression.values import (
    BITS,
    DAY,
    FLOATING,
    NUMBERS,
    STAMPS,
    WHOLE,
    civil,
    fitted,
    in_range,
    single,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.sql.spark_types import SparkType
    from penstock.testing.expression.nodes import Node, Settings

    Cast = tuple[Callable[[Any], Any], bool]
    """A function of one value, and whether it may fail."""

_BLANK = "".join(map(chr, [*range(33), 127]))
_WHOLE_TEXT = re.compile("[+-]?[0-9]+")
_DECIMAL_TEXT = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_LONGEST_NUMBER = 100
_SPECIAL = {
    **dict.fromkeys(("inf", "+inf", "infinity", "+infinity"), math.inf),
    **dict.fromkeys(("-inf", "-infinity"), -math.inf),
    "nan": math.nan,
}
_TRUE, _FALSE = {"t", "true", "y", "yes", "1"}, {"f", "false", "n", "no", "0"}
_COMPACT_DIGITS = 18
"""Spark holds decimals of so many digits as whole numbers, and others otherwise."""
_FOUR_DIGITS = 9999


def cast(node: Node, kind: SparkType, settings: Settings) -> Node:
    """Cast a node to a type."""
    if node.kind == kind:
        return node
    text = f"CAST({node.text} AS {kind})"
    if node.is_null:
        return constant(kind, None, text)
    if node.kind.name == "string" and kind.name in {"date", *STAMPS}:
        return constant(kind, _time_of(node, kind, settings), text)
    function, fails = _cast(node.kind, kind, settings)
    made = named(strict(kind, function, [node], fails=fails), text)
    return replace(made, unchecked=_unchecked(node, kind))


def _unchecked(node: Node, kind: SparkType) -> Node | None:
    """Give a date as a timestamp that may be beyond all timestamps."""
    if kind.name not in STAMPS or node.constant:
        return None
    return strict(kind, lambda days: days * DAY, [node]) if node.kind.name == "date" else node.unchecked


def _time_of(node: Node, kind: SparkType, settings: Settings) -> int:
    """Read a constant string as a time."""
    if not node.constant:
        raise Refusal(f"only Spark reads a {str(kind).upper()} from strings that are not constant")
    said = node.value.strip(" ")
    if kind.name == "date":
        return read_date(said)
    if kind.name == "timestamp_ntz" and said.endswith("Z"):
        raise Refusal("it has a time zone")
    return read_timestamp(said, settings)


def _cast(source: SparkType, target: SparkType, settings: Settings) -> Cast:
    """Find the function that casts one type to another."""
    if source.name in {*NUMBERS, "boolean"} and target.name in {*NUMBERS, "boolean"}:
        return _to_number(source, target)
    if source.name == "string":
        return _from_string(target)
    if target.name == "string":
        return _to_string(source, settings)
    if settings.utc:
        return _between_times(source, target)
    raise _unknown(source, target)


def _unknown(source: SparkType, target: SparkType) -> Refusal:
    return Refusal(f"only Spark casts {str(source).upper()} to {str(target).upper()}")


def _overflow(value: Any, source: SparkType, target: SparkType) -> RunError:
    said = f"The value {value} of the type {str(source).upper()} cannot be cast to {str(target).upper()}"
    return RunError(f"{said} due to an overflow (CAST_OVERFLOW)")


def _to_number(source: SparkType, target: SparkType) -> Cast:
    """Cast numbers and booleans to each other."""
    if target.name == "boolean":
        return (lambda value: value != 0), False
    if target.name in WHOLE:
        return _to_whole(source, target), not (source.name == "boolean" or never_fails(source, target))
    if target.name == "decimal" and source.name not in FLOATING:
        wide = never_fails(source, target) or (
            source.name == "boolean" and target.digits[0] > target.digits[1]
        )
        return (lambda value: fitted(Decimal(value), target)), not wide
    if target.name == "double":
        return float, False
    if target.name == "float" and source.name != "decimal":
        return single, False
    raise _unknown(source, target)


def _to_whole(source: SparkType, target: SparkType) -> Callable[[Any], int]:
    if source.name in FLOATING:
        return lambda value: _cut(value, source, target)
    wide = source.name == "decimal" and source.digits[0] > _COMPACT_DIGITS and target.name != "bigint"

    def cut(value: Any) -> int:
        whole = int(value)
        beyond = wide and not in_range(int(float(value)), target)
        if beyond or not in_range(whole, target):
            raise _overflow(value, source, target)
        return whole

    return cut


def _cut(value: float, source: SparkType, target: SparkType) -> int:
    """Cut a floating number; the ends of BIGINT are rounded to floating numbers themselves."""
    bits = max(BITS[target.name], 32)
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1
    if (
        math.isnan(value)
        or math.isinf(value)
        or not (math.floor(value) <= float(high) and math.ceil(value) >= float(low))
    ):
        raise _overflow(value, source, target)
    whole = min(max(int(value), low), high)
    if not in_range(whole, target):
        raise _overflow(value, source, target)
    return whole


def _from_string(target: SparkType) -> Cast:
    """Cast a string to a number or a boolean."""
    readers: dict[str, Callable[[str], Any]] = {
        **dict.fromkeys(WHOLE, lambda text: _read_whole(text, target)),
        "double": _read_double,
        "decimal": lambda text: _read_decimal(text, target),
        "boolean": lambda text: {**dict.fromkeys(_TRUE, True), **dict.fromkeys(_FALSE, False)}.get(
            text.lower()
        ),
        "binary": lambda text: text.encode(),
    }
    reader = readers.get(target.name)
    if reader is None:
        raise Refusal(f"only Spark casts STRING to {str(target).upper()}")
    if target.name == "binary":
        return reader, False

    def read(text: str) -> Any:
        value = reader(text.strip(_BLANK))
        if value is None:
            said = f"The value '{text}' of the type STRING cannot be cast to {str(target).upper()}"
            raise RunError(f"{said} because it is malformed (CAST_INVALID_INPUT)")
        return value

    return read, True


def _read_whole(text: str, target: SparkType) -> int | None:
    if not _WHOLE_TEXT.fullmatch(text) or len(text) > _LONGEST_NUMBER:
        return None
    return int(text) if in_range(int(text), target) else None


def _read_double(text: str) -> float | None:
    bare = text[:-1] if text[-1:] in {"d", "D", "f", "F"} else text
    if _DECIMAL_TEXT.fullmatch(bare):
        return float(bare)
    return _SPECIAL.get(text.lower())


def _read_decimal(text: str, target: SparkType) -> Decimal | None:
    if not _DECIMAL_TEXT.fullmatch(text):
        return None
    return fitted(Decimal(text), target)


def _to_string(source: SparkType, settings: Settings) -> Cast:
    """Write a value as a string."""
    writers: dict[str, Callable[[Any], str]] = {
        **dict.fromkeys(WHOLE, str),
        "boolean": lambda value: "true" if value else "false",
        "decimal": lambda value: f"{value:f}",
        "date": _write_date,
        "timestamp_ntz": _write_timestamp,
        **({"timestamp": _write_timestamp} if settings.utc else {}),
    }
    if source.name not in writers:
        raise Refusal(f"only Spark casts {str(source).upper()} to STRING")
    return writers[source.name], False


def _write_date(days: int) -> str:
    year, month, day = civil(days)
    sign = "-" if year < 0 else "+" if year > _FOUR_DIGITS else ""
    return f"{sign}{abs(year):04}-{month:02}-{day:02}"


def _write_timestamp(micros: int) -> str:
    days, clock = divmod(micros, DAY)
    seconds, fraction = divmod(clock, 1_000_000)
    shown = f"{_write_date(days)} {seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{shown}.{fraction:06}".rstrip("0") if fraction else shown


def _between_times(source: SparkType, target: SparkType) -> Cast:
    """Cast times to each other, and to and from seconds since 1970."""
    if source.name in STAMPS and target.name in STAMPS:
        return (lambda micros: micros), False
    if source.name in STAMPS and target.name == "date":
        return (lambda micros: micros // DAY), False
    if source.name == "date" and target.name in STAMPS:
        return _midnight, True
    if source.name == "timestamp" and target.name == "double":
        return (lambda micros: float(micros) / 1_000_000), False
    if source.name == "timestamp" and target.name in WHOLE:
        cut = _to_whole(source, target)
        return (lambda micros: cut(micros // 1_000_000)), target.name != "bigint"
    if source.name in WHOLE and target.name == "timestamp":
        return (lambda seconds: min(max(seconds * 1_000_000, -(1 << 63)), (1 << 63) - 1)), False
    raise _unknown(source, target)


def _midnight(days: int) -> int:
    micros = days * DAY
    if not -(1 << 63) <= micros < 1 << 63:
        raise RunError("long overflow (ARITHMETIC_OVERFLOW)")
    return micros
