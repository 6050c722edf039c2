"""Literals as values.

In:  a `Constant` of the tree.  Out: a node with its Spark type; `Refusal` for a spelling that is not plain.
"""

from __future__ import annotations

import re
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from penstock.sql.bind.linear import interval_micros
from penstock.sql.spark_types import SparkType
from penstock.sql.text.lexer import string_value, tokenize
from penstock.testing.expression.nodes import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VOID,
    Refusal,
    constant,
)
from penstock.testing.expression.values import DAY, EXACT, in_range, single

if TYPE_CHECKING:
    from penstock.sql.text.tree import Constant
    from penstock.testing.expression.nodes import Node, Settings

_WORDS = {"NULL": (VOID, None), "TRUE": (BOOLEAN, True), "FALSE": (BOOLEAN, False)}
_SUFFIXES = {"L": "bigint", "S": "smallint", "Y": "tinyint"}
_MOST_DIGITS, _SURE_DIGITS = 38, 15
_NUMBER = re.compile(r"(-?)([0-9]*)\.?([0-9]*)(?:E[+-]?[0-9]+)?(BD|[DFLSY]?)", re.IGNORECASE)
_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_STAMP = re.compile(
    rf"({_DATE.pattern})(?:[ T]([0-9]{{2}}):([0-9]{{2}})(?::([0-9]{{2}})(\.[0-9]{{1,6}})?)?(Z?))?"
)
_FIELDS = ("day", "hour", "minute", "second")
_UNIT = re.compile("(day|week|hour|minute|second|millisecond|microsecond)s?", re.IGNORECASE)
_INTERVAL = re.compile(
    rf"INTERVAL (?:-?'?-?[0-9]+'? {_UNIT.pattern} ?)+|INTERVAL -?'?-?[0-9]+\.[0-9]{{1,6}}'? (?:second)s?"
    rf"|INTERVAL '(?:-?[0-9]+ {_UNIT.pattern} ?)+'"
    r"|INTERVAL '-?[0-9: .]+' (?:DAY|HOUR|MINUTE) TO (?:HOUR|MINUTE|SECOND)",
    re.IGNORECASE,
)


def read(tree: Constant, settings: Settings) -> Node:
    """Read a literal."""
    value: Any
    if tree.kind == "word" and tree.text in _WORDS:
        kind, value = _WORDS[tree.text]
    elif tree.kind == "number":
        kind, value = _number(tree.text)
    elif tree.kind == "string":
        kind, value = STRING, _string(tree.text)
    elif tree.kind == "typed":
        kind, value = _typed(tree.text, settings)
    elif tree.kind == "interval":
        kind, value = _interval(tree)
    else:
        raise Refusal("it is no literal that is read here")
    return constant(kind, value, tree.text, literal=True)


def _string(text: str) -> str:
    return "".join(string_value(token) for token in tokenize(text))


def _number(text: str) -> tuple[SparkType, Any]:
    """Read a number, whose suffix or form says its type."""
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise Refusal("it is no number that is read here")
    suffix, bare = match[4].upper(), text[: len(text) - len(match[4])]
    exponent, digits = "e" in bare.lower(), len(match[2] + match[3])
    if suffix == "F":
        if digits > _SURE_DIGITS:
            raise Refusal("it has more digits than a FLOAT")
        return FLOAT, _finite(single(float(bare)))
    if suffix == "D" or (exponent and not suffix):
        return DOUBLE, _finite(float(bare))
    if exponent:
        raise Refusal("it is a decimal with an exponent")
    return _decimal(bare) if suffix == "BD" or "." in bare else _whole(int(bare), suffix)


def _finite(value: float) -> float:
    if value in {float("inf"), float("-inf")}:
        raise Refusal("it is out of range")
    return value


def _whole(value: int, suffix: str) -> tuple[SparkType, Any]:
    """Take the suffix's type, or the narrowest of INT, BIGINT and DECIMAL."""
    for name in [_SUFFIXES[suffix]] if suffix else ["int", "bigint"]:
        if in_range(value, SparkType(name)):
            return SparkType(name), value
    if suffix:
        raise Refusal("it is out of range")
    return _decimal(str(value))


def _decimal(text: str) -> tuple[SparkType, Decimal]:
    value = Decimal(text)
    _, digits, exponent = value.as_tuple()
    scale = -int(exponent)
    precision = max(len(digits), scale, 1)
    if precision > _MOST_DIGITS:
        raise Refusal("it has more digits than a DECIMAL")
    return SparkType("decimal", (precision, scale)), EXACT.plus(value)


def _typed(text: str, settings: Settings) -> tuple[SparkType, Any]:
    """Read a string with its type before it."""
    word, _, rest = text.partition(" ")
    said = _string(rest)
    if word == "DATE":
        return DATE, read_date(said)
    if word in {"TIMESTAMP", "TIMESTAMP_LTZ"}:
        return TIMESTAMP, read_timestamp(said, settings)
    if word == "TIMESTAMP_NTZ" and not said.endswith("Z"):
        return TIMESTAMP_NTZ, read_timestamp(said + ("Z" if ":" in said else " 00:00Z"), settings)
    if word == "X" and re.fullmatch("(?:[0-9a-fA-F]{2})*", said):
        return BINARY, bytes.fromhex(said)
    raise Refusal("it is a literal of a type that is not read here")


def read_date(text: str) -> int:
    """Read a date that is written plainly."""
    match = _DATE.fullmatch(text)
    try:
        return (date(*map(int, match.groups())) - date(1970, 1, 1)).days if match else _unread(text)
    except ValueError:
        return _unread(text)


def read_timestamp(text: str, settings: Settings) -> int:
    """Read a timestamp that is written plainly."""
    match = _STAMP.fullmatch(text)
    if not match or (not settings.utc and not match[9]):
        return _unread(text)
    hour, minute, second = (int(match[group] or 0) for group in (5, 6, 7))
    if hour > 23 or minute > 59 or second > 59:  # noqa: PLR2004 - a clock's
        return _unread(text)
    fraction = int((match[8] or ".")[1:].ljust(6, "0"))
    return read_date(match[1]) * DAY + ((hour * 60 + minute) * 60 + second) * 1_000_000 + fraction


def _unread(text: str) -> int:
    raise Refusal(f"{text!r} is not a time written as 2024-01-31 or 2024-01-31 12:00:00 in UTC")


def _interval(tree: Constant) -> tuple[SparkType, int]:
    """Read an interval of days or less."""
    micros = interval_micros(tree) if _INTERVAL.fullmatch(tree.text) else None
    if micros is None:
        raise Refusal("it is no interval of fixed length that is read here")
    return SparkType(_interval_type(_UNIT.findall(tree.text.lower()))), micros


def _interval_type(units: list[str]) -> str:
    """Name the type of an interval by its units: Spark has it go from the largest to the smallest."""
    fields = sorted(
        {
            _FIELDS.index({"week": "day"}.get(unit, unit.removeprefix("milli").removeprefix("micro")))
            for unit in units
        }
    )
    first, last = _FIELDS[fields[0]], _FIELDS[fields[-1]]
    return f"interval {first}" if first == last else f"interval {first} to {last}"
