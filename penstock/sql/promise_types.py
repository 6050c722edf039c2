"""Which columns a promise can be about, and which columns its values can be read from.

A value is compared as the column that is promised about, so it must become one without loss and in the same order::

    tinyint < smallint < int < bigint        each of these, and decimals: any decimal with as many digits
    float < double                           tinyint, smallint: float;  those and int: double
    anything else: itself only

A DATE does not become a TIMESTAMP: where a zone left a day out, as Samoa did on 30 December 2011, two dates are one
instant.

In:  patterns, and the types of the columns they name.  Out: nothing, or a refusal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.sql.punctuates import PromiseError
from penstock.sql.spark_types import TIME_TYPES, TypeTextError, parse_type

if TYPE_CHECKING:
    from penstock.sql.bind.promises import Pattern
    from penstock.sql.query import Stream
    from penstock.sql.spark_types import SparkType

_WHOLE_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}
"""Whole numbers, narrowest first, and how many digits their values have at the most."""
_EXACT_FLOATS = {"float": {"tinyint", "smallint"}, "double": {"tinyint", "smallint", "int", "float"}}
"""Which numbers are all among the floating ones: a float has 24 bits for digits, a double 53."""
_ORDERED = frozenset({*_WHOLE_DIGITS, *_EXACT_FLOATS, *TIME_TYPES, "decimal", "string", "binary"})
_NOT_PLAIN = ("map", "array", "struct", "variant", "void")


def widens(narrow: str, wide: str) -> bool:
    """Say whether every value of one type is one of the other: the cast loses nothing and keeps the order.

    >>> widens("int", "bigint"), widens("bigint", "decimal(19,0)"), widens("int", "decimal(10,2)")
    (True, True, False)
    >>> widens("float", "double"), widens("bigint", "double"), widens("date", "timestamp")
    (True, False, False)
    """
    try:
        source, target = parse_type(narrow), parse_type(wide)
    except TypeTextError:
        return narrow == wide
    if source == target:
        return True
    if source.name in _WHOLE_DIGITS and target.name in _WHOLE_DIGITS:
        return _WHOLE_DIGITS[source.name] < _WHOLE_DIGITS[target.name]
    if target.name == "decimal" and source.name in {*_WHOLE_DIGITS, "decimal"}:
        (digits, scale), (most, places) = _digits(source), target.digits
        return scale <= places and digits - scale <= most - places
    return source.name in _EXACT_FLOATS.get(target.name, ())


def _digits(kind: SparkType) -> tuple[int, int]:
    """Give how many digits a number has, and how many of them behind the point."""
    return kind.digits if kind.name == "decimal" else (_WHOLE_DIGITS[kind.name], 0)


def check_types(pattern: Pattern, about: Stream, carrier: Stream, option: str) -> None:
    """Refuse a pattern whose column cannot be promised about, or whose values are none of that column."""
    kind = _type(about, pattern.column)
    parsed = parse_type(kind)
    if parsed.holds(*_NOT_PLAIN) or parsed.has_collation():
        raise PromiseError(
            f"{option} names {pattern.column}, which is {kind}: a promise is about plain values, compared byte by "
            "byte; name a column of numbers, of text without a collation, or of times",
            option,
        )
    if pattern.kind == "range" and parsed.name not in _ORDERED:
        raise PromiseError(
            f"{option} has a range of {pattern.column}, which is {kind}: a range is of numbers, texts, times or binary "
            f"values; write {pattern.column} = {pattern.low}, or {pattern.column} IN an array",
            option,
        )
    for name in filter(None, (pattern.low, pattern.high)):
        _check_value(pattern, kind, name, _value_type(pattern, name, _type(carrier, name), option), option)


def _check_value(pattern: Pattern, kind: str, name: str, given: str, option: str) -> None:
    """Refuse values that do not become values of the column without loss."""
    if not widens(given, kind):
        what = f"{name} holds {given}" if pattern.kind == "list" else f"{name} is {given}"
        raise PromiseError(
            f"{option} compares {pattern.column}, which is {kind}, with {name}: {what}, which does not become {kind} "
            "without loss; give both one type",
            option,
        )


def _value_type(pattern: Pattern, name: str, given: str, option: str) -> str:
    """Give the type of the values that a column has: of a list, that of its elements."""
    if pattern.kind != "list":
        return given
    parsed = parse_type(given)
    if parsed.name != "array":
        raise PromiseError(
            f"{option} says {pattern.column} IN {name}, and {name} is {given}: IN needs a column that is an array; for "
            f"one value write {pattern.column} = {name}",
            option,
        )
    return str(parsed.parts[0])


def _type(stream: Stream, name: str) -> str:
    """Give the type of a column that is there."""
    column = stream.column(name)
    return column.type if column else ""
