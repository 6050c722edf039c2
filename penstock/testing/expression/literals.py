"""Spark SQL literals as DuckDB SQL.

In:  a `Constant` of the tree.  Out: a node with its Spark type; `Refusal` for a literal in an unusual form.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from penstock.sql.bind.linear import interval_micros
from penstock.sql.spark_types import SparkType
from penstock.sql.text.lexer import string_value, tokenize
from penstock.testing.expression.node import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VOID,
    WHOLE,
    Node,
    Refusal,
    duckdb_type,
    null,
    text_sql,
)

if TYPE_CHECKING:
    from penstock.sql.text.tree import Constant
    from penstock.testing.expression.node import EvaluationSettings

_SUFFIXES = {"L": "bigint", "S": "smallint", "Y": "tinyint"}
_MOST_DIGITS, _MOST_FLOAT_DIGITS = 38, 15
_NUMBER = re.compile(r"(-?)([0-9]*)\.?([0-9]*)(?:E[+-]?[0-9]+)?(BD|[DFLSY]?)", re.IGNORECASE)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_STAMP = re.compile(
    rf"({_DATE.pattern})(?:[ T]([0-9]{{2}}:[0-9]{{2}}(?::[0-9]{{2}}(?:\.[0-9]{{1,6}})?)?)(Z?))?"
)
_FIELDS = ("day", "hour", "minute", "second")
_UNIT = re.compile("(day|week|hour|minute|second|millisecond|microsecond)s?", re.IGNORECASE)
_INTERVAL = re.compile(
    rf"INTERVAL (?:-?'?-?[0-9]+'? {_UNIT.pattern} ?)+|INTERVAL -?'?-?[0-9]+\.[0-9]{{1,6}}'? (?:second)s?"
    rf"|INTERVAL '(?:-?[0-9]+ {_UNIT.pattern} ?)+'"
    r"|INTERVAL '-?[0-9: .]+' (?:DAY|HOUR|MINUTE) TO (?:HOUR|MINUTE|SECOND)",
    re.IGNORECASE,
)


def read_literal(tree: Constant, settings: EvaluationSettings) -> Node:
    """Read a literal."""
    if tree.kind == "word" and tree.text == "NULL":
        return null(VOID)
    if tree.kind == "word" and tree.text in {"TRUE", "FALSE"}:
        return Node(BOOLEAN, tree.text, constant=True)
    if tree.kind == "number":
        return _number(tree.text)
    if tree.kind == "string":
        return text_node(_string(tree.text))
    if tree.kind == "typed":
        return _typed(tree.text, settings)
    if tree.kind == "interval":
        return _interval(tree)
    raise Refusal("it is no literal that is known here")


def _string(text: str) -> str:
    return "".join(string_value(token) for token in tokenize(text))


def text_node(text: str) -> Node:
    """Return a string as a node."""
    if "\0" in text:
        raise Refusal("it has a zero byte")
    return Node(STRING, text_sql(text), literal=text, constant=True)


def whole_node(value: int, kind: SparkType) -> Node:
    """Return a whole number as a node."""
    return Node(kind, f"CAST('{value}' AS {duckdb_type(kind)})", literal=value, constant=True)


def _number(text: str) -> Node:
    """Read a number, whose suffix or form decides its type."""
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise Refusal("it is no number that is known here")
    suffix, bare = match[4].upper(), text[: len(text) - len(match[4])]
    exponent, digits = "e" in bare.lower(), len(match[2] + match[3])
    if suffix in {"D", "F"} or (exponent and not suffix):
        if suffix == "F" and digits > _MOST_FLOAT_DIGITS:
            raise Refusal("it has more digits than a FLOAT")
        kind, most = (FLOAT, 3.4e38) if suffix == "F" else (DOUBLE, 1.7e308)
        if abs(float(bare)) > most:
            raise Refusal("it is out of range")
        return Node(kind, f"CAST('{bare}' AS {duckdb_type(kind)})", literal=float(bare), constant=True)
    if exponent:
        raise Refusal("it is a decimal with an exponent")
    return _decimal(bare) if suffix == "BD" or "." in bare else _whole(int(bare), suffix)


def _whole(value: int, suffix: str) -> Node:
    """Return the type of the suffix, or the narrowest of INT, BIGINT and DECIMAL."""
    for name in [_SUFFIXES[suffix]] if suffix else ["int", "bigint"]:
        half = 1 << (WHOLE[name] - 1)
        if -half <= value < half:
            return whole_node(value, SparkType(name))
    if suffix:
        raise Refusal("it is out of range")
    return _decimal(str(value))


def _decimal(text: str) -> Node:
    value = Decimal(text)
    _, digits, exponent = value.as_tuple()
    scale = -int(exponent)
    precision = max(len(digits), scale, 1)
    if precision > _MOST_DIGITS:
        raise Refusal("it has more digits than a DECIMAL")
    kind = SparkType("decimal", (precision, scale))
    return Node(kind, f"CAST('{value:f}' AS {duckdb_type(kind)})", literal=value, constant=True)


def _typed(text: str, settings: EvaluationSettings) -> Node:
    """Read a string behind the name of its type."""
    word, _, rest = text.partition(" ")
    value = _string(rest)
    if word == "DATE":
        return time_node(value, DATE, settings)
    if word in {"TIMESTAMP", "TIMESTAMP_LTZ"}:
        return time_node(value, TIMESTAMP, settings)
    if word == "TIMESTAMP_NTZ":
        return time_node(value, TIMESTAMP_NTZ, settings)
    if word == "X" and re.fullmatch("(?:[0-9a-fA-F]{2})*", value):
        return Node(BINARY, f"unhex('{value}')", constant=True)
    raise Refusal("it is a literal of a type that is not known here")


def time_node(text: str, kind: SparkType, settings: EvaluationSettings) -> Node:
    """Read a date or timestamp in its plain form."""
    match = (_DATE if kind == DATE else _STAMP).fullmatch(text)
    zoned = kind == TIMESTAMP and not settings.utc
    misplaced = match and kind != DATE and (bool(match[3]) < zoned or (match[3] and kind == TIMESTAMP_NTZ))
    try:
        moment = datetime.fromisoformat(text.removesuffix("Z")).replace(tzinfo=UTC) if match else None
    except ValueError:
        moment = None
    if moment is None or misplaced:
        raise Refusal(f"{text!r} is not a time written as 2024-01-31 or 2024-01-31 12:00:00 in UTC")
    shown = f"{moment:%Y-%m-%d}".zfill(10) if kind == DATE else f"{moment.replace(tzinfo=None)}"
    return Node(kind, f"{duckdb_type(kind)} '{shown}'", constant=True)


def _interval(tree: Constant) -> Node:
    """Read an interval of days or less."""
    micros = interval_micros(tree) if _INTERVAL.fullmatch(tree.text) else None
    if micros is None:
        raise Refusal("it is no interval of fixed length that is known here")
    return whole_node(micros, SparkType(_interval_type(_UNIT.findall(tree.text.lower()))))


def _interval_type(units: list[str]) -> str:
    """Return the type of an interval: from the largest of its units to the smallest."""
    fields = sorted(
        {
            _FIELDS.index({"week": "day"}.get(unit, unit.removeprefix("milli").removeprefix("micro")))
            for unit in units
        }
    )
    first, last = _FIELDS[fields[0]], _FIELDS[fields[-1]]
    return f"interval {first}" if first == last else f"interval {first} to {last}"
