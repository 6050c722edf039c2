"""Join keys as Spark SQL: values that Spark takes as equal get equal bytes, and no others do.

A log is sorted by a 64-bit number for each key; where that is not the whole key, the value itself is stored beside it
and compared byte by byte.  So a value is written in one way only::

    whole in 64 bits          bigint, int, boolean, date, timestamp: the number itself
    float, double             one zero for 0.0 and -0.0, one NaN
    array, struct             text (JSON) of their parts, each written in one way; times as numbers, because text
                              would cut them to milliseconds and write two hours of an autumn night alike
    year-month interval       text, because Arrow has no such type

Null inside an array or struct equals null, as in Spark; a key that is null itself never matches.

In:  an expression and the type that it is compared as.  Out: an expression.
"""

from __future__ import annotations

from penstock.errors import InputError
from penstock.sql.spark_types import SparkType, TypeTextError, parse_type

_FLOATS = frozenset({"float", "double"})
_NESTED = frozenset({"array", "struct"})
_EPOCH = "TIMESTAMP_NTZ'1970-01-01 00:00:00'"


def as_bigint(value: str, kind: str) -> str:
    """Write a key of a type that fits in 64 bits as a bigint."""
    if kind == "date":
        return f"cast(unix_date({value}) AS BIGINT)"
    if kind == "timestamp":
        return f"unix_micros({value})"
    if kind == "timestamp_ntz":
        return f"timestampdiff(MICROSECOND, {_EPOCH}, {value})"
    return f"cast({value} AS BIGINT)"


def as_bytes(value: str, kind: str) -> str:
    """Write a key of any other type so that equal values have equal bytes.

    >>> as_bytes("x", "array<timestamp>")
    "CASE WHEN (x) IS NOT NULL THEN to_json(named_struct('v', transform((x), x0 -> unix_micros(x0))),
    map('ignoreNullFields', 'false')) END"
    """
    try:
        parsed = parse_type(kind)
    except TypeTextError as error:
        raise InputError(f"cannot join on {value}, which is {kind}: {error}; join on its parts") from None
    if parsed.name in _FLOATS:
        return _one_way(value, parsed)
    if parsed.name in _NESTED:
        inside = _one_way(f"({value})", parsed)
        text = f"to_json(named_struct('v', {inside}), map('ignoreNullFields', 'false'))"
        return f"CASE WHEN ({value}) IS NOT NULL THEN {text} END"
    return f"cast({value} AS STRING)" if _counts_months(parsed) else value


def _one_way(value: str, kind: SparkType, depth: int = 0) -> str:
    """Write a value, or a part of one, in one way only."""
    if kind.name in _FLOATS:
        nan = f"cast('NaN' AS {kind.name})"
        return f"CASE WHEN isnan({value}) THEN {nan} ELSE {value} + cast(0 AS {kind.name}) END"
    if kind.name == "array":
        inside = _one_way(f"x{depth}", kind.parts[0], depth + 1)
        return f"transform({value}, x{depth} -> {inside})"
    if kind.name == "struct":
        fields = zip(kind.names, kind.parts, strict=True)
        inside = ", ".join(
            f"'f{number}', {_one_way(f'{value}.{name}', part, depth)}"
            for number, (name, part) in enumerate(fields)
        )
        return f"CASE WHEN {value} IS NOT NULL THEN named_struct({inside}) END"
    if kind.name in {"date", "timestamp", "timestamp_ntz"}:
        return as_bigint(value, kind.name)
    if kind.name == "time" or kind.name.startswith("interval"):
        return f"cast({value} AS STRING)"
    return value


def _counts_months(kind: SparkType) -> bool:
    """Say whether a type is an interval of months or years."""
    return kind.name.startswith("interval") and ("month" in kind.name or "year" in kind.name)
