"""Spark's types as far as a join needs them: reading, writing and comparing.

In:  the type text of a declared column, such as ``DECIMAL(10,2)`` or ``STRUCT<a: INT>``.
Out: its normal spelling (`normal_type`), the type two columns are compared as (`common_type`), and whether values of it
     can be stored (`refusal_to_store`).

The rules of comparison are those of Spark 4 in ANSI mode::

    tinyint < smallint < int < bigint < decimal < double        float with anything exact: double
    date < timestamp_ntz < timestamp                            string: becomes the other's type
    boolean, binary: with themselves and string only            map, variant: never
    strings of two collations: never                            char, varchar: as string, where they are cast to
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from penstock.errors import did_you_mean

_ALIASES = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "dec": "decimal",
    "numeric": "decimal",
    "bool": "boolean",
    "timestamp_ltz": "timestamp",
}
_INTEGRAL_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
"""The exact numbers, narrowest first, and the digits each needs as a decimal."""
_FRACTIONAL = {"float", "double", "decimal"}
_TIMES = ("date", "timestamp_ntz", "timestamp")
TIME_TYPES = frozenset(_TIMES)
"""Types an event time may have."""
_TEXTS = {"string", "char", "varchar"}
_SCALARS = {*_INTEGRAL_DIGITS, *_FRACTIONAL, *_TIMES, *_TEXTS, "boolean", "binary", "variant", "void", "time"}
_SHAPES = {"geometry", "geography"}
_DAY_TIME = ("day", "hour", "minute", "second")
_YEAR_MONTH = ("year", "month")
_MOST_DECIMAL_DIGITS = 38
_DEEPEST_TYPE = 100
"""How deep types may be nested."""
_DIGITS = re.compile("[0-9]{1,9}")
_WORDS = re.compile(r"\s*(`(?:[^`]|``)*`|\w+|[<>(),:]|\S)")


class TypeTextError(ValueError):
    """A text that is not a Spark type; the message is a sentence."""


@dataclass(frozen=True, slots=True)
class SparkType:
    """A type: its name, the numbers in its parentheses, and what it is made of.

    `names` are the fields of a struct, one for each of `parts`.  `collation` is that of a string, if it is not Spark's
    default.
    """

    name: str
    numbers: tuple[int, ...] = ()
    parts: tuple[SparkType, ...] = ()
    names: tuple[str, ...] = ()
    collation: str = ""

    def __str__(self) -> str:
        """Write it as Spark's DDL does, in lower case but for the names of fields."""
        if self.name == "struct":
            fields = zip(self.names, self.parts, strict=True)
            return f"struct<{','.join(f'{name}:{part}' for name, part in fields)}>"
        if self.parts:
            return f"{self.name}<{','.join(map(str, self.parts))}>"
        numbers = f"({','.join(map(str, self.numbers))})" if self.numbers else ""
        return self.name + numbers + (f" collate {self.collation}" if self.collation else "")

    def holds(self, *names: str) -> bool:
        """Say whether it is, or is made of, one of some types.

        >>> parse_type("ARRAY<VARIANT>").holds("map", "variant")
        True
        """
        return self.name in names or any(part.holds(*names) for part in self.parts)

    def has_collation(self) -> bool:
        """Say whether it is, or is made of, a string that is not compared byte by byte."""
        return bool(self.collation) or any(part.has_collation() for part in self.parts)

    def field(self, name: str) -> SparkType:
        """Give the type of a field of a struct, by its name as it is written in SQL."""
        wanted = name.strip("`").lower()
        for each, part in zip(self.names, self.parts, strict=True) if self.name == "struct" else ():
            if each.strip("`").lower() == wanted:
                return part
        raise TypeTextError(f"{self} has no field {name}")

    @property
    def digits(self) -> tuple[int, int]:
        """Give precision and scale of an exact number."""
        return (
            (_INTEGRAL_DIGITS[self.name], 0)
            if self.name in _INTEGRAL_DIGITS
            else (self.numbers[0], self.numbers[1])
        )


def normal_type(text: str) -> str:
    """Write a type the one way it is written everywhere inside.

    >>> normal_type("DECIMAL( 10, 2 )"), normal_type("Array<LONG>"), normal_type("STRUCT<A: INT, b STRING>")
    ('decimal(10,2)', 'array<bigint>', 'struct<A:int,b:string>')
    """
    return str(parse_type(text))


def parse_type(text: str) -> SparkType:
    """Read a type, or raise `TypeTextError`."""
    parser = _TypeParser(_WORDS.findall(text))
    kind = parser.type()
    if parser.words:
        parser.fail(f"{parser.words[0]} does not belong in the type {text.strip()}")
    return kind


class _TypeParser:
    """Reads a type from left to right; `words` holds what is left."""

    def __init__(self, words: list[str]) -> None:
        self.words = words
        self.depth = 0

    def fail(self, message: str) -> NoReturn:
        raise TypeTextError(message)

    def take(self, wanted: str = "") -> str:
        if not self.words or (wanted and self.words[0] != wanted):
            word = self.words[0] if self.words else "its end"
            self.fail(f"found {word} in a type where {wanted or 'a type'} should be")
        return self.words.pop(0)

    def type(self) -> SparkType:
        written = self.take()
        name = _ALIASES.get(written.lower(), written.lower())
        if name in {"array", "map", "struct"}:
            return self._nested(name)
        if name == "interval":
            return self._interval()
        if name not in _SCALARS | _SHAPES:
            self.fail(f"{written} is not a Spark type: {did_you_mean(written, sorted(_SCALARS))}")
        numbers = self._numbers()
        return SparkType(
            name,
            (*numbers, 0)[:2] if name == "decimal" and numbers else self._default(name, numbers),
            collation=self._collation() if name in _TEXTS else "",
        )

    def _interval(self) -> SparkType:
        """Read ``INTERVAL``, ``INTERVAL DAY`` or ``INTERVAL DAY TO SECOND``; the first alone is a calendar interval."""
        words = ["interval"]
        units = next((each for each in (_DAY_TIME, _YEAR_MONTH) if self._next() in each), None)
        if units is not None:
            words.append(self.take().lower())
            if self._next() == "to":
                self.take()
                last = self.take().lower()
                if last not in units[units.index(words[1]) + 1 :]:
                    self.fail(f"an interval does not go from {words[1]} to {last}")
                words += ["to", last]
        return SparkType(" ".join(words))

    def _next(self) -> str:
        return self.words[0].lower() if self.words else ""

    def _nested(self, name: str) -> SparkType:
        self.depth += 1
        if self.depth > _DEEPEST_TYPE:
            self.fail(f"types are nested more than {_DEEPEST_TYPE} deep")
        kind = self._struct() if name == "struct" else SparkType(name, parts=self._parts(1 + (name == "map")))
        self.depth -= 1
        return kind

    def _collation(self) -> str:
        """Read ``COLLATE name``; the default is not written."""
        if not self.words or self.words[0].lower() != "collate":
            return ""
        self.take()
        name = self.take().upper()
        return "" if name == "UTF8_BINARY" else name

    @staticmethod
    def _default(name: str, numbers: tuple[int, ...]) -> tuple[int, ...]:
        return (10, 0) if name == "decimal" else numbers

    def _numbers(self) -> tuple[int, ...]:
        numbers: list[int] = []
        if not self.words or self.words[0] != "(":
            return ()
        while self.take() != ")":
            number = self.take()
            if not _DIGITS.fullmatch(number):
                self.fail(f"{number} is not a number of digits")
            numbers.append(int(number))
            if not self.words or self.words[0] not in {",", ")"}:
                self.fail("a ) is missing in a type")
        return tuple(numbers)

    def _parts(self, count: int) -> tuple[SparkType, ...]:
        self.take("<")
        parts = [self.type()]
        while len(parts) < count:
            self.take(",")
            parts.append(self.type())
        self.take(">")
        return tuple(parts)

    def _struct(self) -> SparkType:
        names: list[str] = []
        parts: list[SparkType] = []
        self.take("<")
        while not self.words or self.words[0] != ">":
            names.append(self.take())
            if self.words and self.words[0] == ":":
                self.take()
            parts.append(self.type())
            if self.words and self.words[0] == ",":
                self.take()
        self.take(">")
        return SparkType("struct", parts=tuple(parts), names=tuple(names))


def refusal_to_store(text: str) -> str:
    """Say why values of a type cannot be stored, and the way out; empty if they can be.

    Rows are stored as Arrow has them, late rows and results as Spark's Parquet: what either lacks is refused.

    >>> refusal_to_store("array<interval day to second>")
    ''
    >>> refusal_to_store("array<interval month>")
    'Arrow has no interval month: write CAST(... AS STRING), or what you need of it, as in extract(MONTH FROM ...)'
    """
    try:
        return _refusal(parse_type(text))
    except TypeTextError as error:
        return f"{error}: write CAST(... AS STRING)"


def _refusal(kind: SparkType) -> str:
    """Find the first part of a type that cannot be stored."""
    as_text = "write CAST(... AS STRING)"
    if kind.name == "time":
        return f"Spark's Parquet has no TIME: {as_text}"
    if kind.name == "interval" or kind.name.removeprefix("interval ").startswith(_YEAR_MONTH):
        wanted = "or what you need of it, as in extract(MONTH FROM ...)"
        return f"Arrow has no {'calendar ' * (kind.name == 'interval')}{kind.name}: {as_text}, {wanted}"
    if kind.name in _SHAPES:
        return f"Parquet files of Arrow have no {kind.name.upper()}: write st_asbinary(...)"
    if kind.name == "map" and (kind.parts[0].name == "void" or kind.parts[0].has_collation()):
        return f"Spark's Parquet has no map with keys of {kind.parts[0]}: {as_text}, or map_entries(...)"
    return next(filter(None, map(_refusal, kind.parts)), "")


def common_type(left: str, right: str) -> str | None:
    """Give the type Spark compares two types as, or None where it would refuse.

    >>> common_type("int", "bigint"), common_type("decimal(10,2)", "int"), common_type("float", "int")
    ('bigint', 'decimal(12,2)', 'double')
    >>> common_type("date", "timestamp"), common_type("string", "int"), common_type("bigint", "boolean")
    ('timestamp', 'bigint', None)
    """
    try:
        common = _common(parse_type(left), parse_type(right))
    except TypeTextError:
        return left if left == right else None
    return str(common) if common else None


def _common(left: SparkType, right: SparkType) -> SparkType | None:
    if left.holds("map", "variant") or right.holds("map", "variant"):
        return None
    if left == right:
        return left
    if left.parts or right.parts:
        return _common_parts(left, right)
    if left.name in _TEXTS or right.name in _TEXTS:
        return _common_with_text(left, right)
    return _common_number(left, right) or _common_time(left, right)


def _common_parts(left: SparkType, right: SparkType) -> SparkType | None:
    """Compare arrays by their elements, and structs field by field."""
    same_names = [n.lower() for n in left.names] == [n.lower() for n in right.names]
    if left.name != right.name or len(left.parts) != len(right.parts) or not same_names:
        return None
    parts = [_common(a, b) for a, b in zip(left.parts, right.parts, strict=True)]
    common = tuple(part for part in parts if part)
    return SparkType(left.name, parts=common, names=left.names) if len(common) == len(parts) else None


def _common_with_text(left: SparkType, right: SparkType) -> SparkType | None:
    """Turn the string into the other's kind, as ANSI Spark does."""
    other = right if left.name in _TEXTS else left
    if other.name in _TEXTS:
        return SparkType("string", collation=left.collation) if left.collation == right.collation else None
    if other.name in _INTEGRAL_DIGITS:
        return SparkType("bigint")
    if other.name in _FRACTIONAL:
        return SparkType("double")
    return other if other.name in {*_TIMES, "boolean", "binary"} else None


def _common_number(left: SparkType, right: SparkType) -> SparkType | None:
    """Widen two numbers: exact ones exactly, all others to double."""
    if not {left.name, right.name} <= {*_INTEGRAL_DIGITS, *_FRACTIONAL}:
        return None
    if {left.name, right.name} <= set(_INTEGRAL_DIGITS):
        return max(left, right, key=lambda each: _INTEGRAL_DIGITS[each.name])
    if {left.name, right.name} & {"float", "double"}:
        return SparkType("double")
    (p, s), (q, t) = left.digits, right.digits
    scale, whole = max(s, t), max(p - s, q - t)
    if whole + scale > _MOST_DECIMAL_DIGITS:  # digits before the point are kept rather than those after it
        scale = max(0, _MOST_DECIMAL_DIGITS - whole)
    return SparkType("decimal", (min(whole + scale, _MOST_DECIMAL_DIGITS), scale))


def always_widens(source: SparkType, target: SparkType) -> bool:
    """Say whether every value of one type is a value of the other, so that no cast between them fails.

    >>> always_widens(parse_type("int"), parse_type("bigint")), always_widens(parse_type("string"), parse_type("int"))
    (True, False)
    """
    if source == target or (target.name == "string" and source.name in _SCALARS - {"variant"}):
        return True
    if source.name in {*_INTEGRAL_DIGITS, *_FRACTIONAL} and target.name in {"double", "float"}:
        return True
    if source.name in _INTEGRAL_DIGITS and target.name in _INTEGRAL_DIGITS:
        return _INTEGRAL_DIGITS[source.name] <= _INTEGRAL_DIGITS[target.name]
    if source.name in {*_INTEGRAL_DIGITS, "decimal"} and target.name == "decimal":
        (p, s), (q, t) = source.digits, target.digits
        return s <= t and p - s <= q - t
    return False


def _common_time(left: SparkType, right: SparkType) -> SparkType | None:
    """Widen two times: the later in `_TIMES` wins."""
    if {left.name, right.name} <= TIME_TYPES:
        return max(left, right, key=lambda each: _TIMES.index(each.name))
    return None


def type_of_field(declared: str, path: Sequence[str]) -> str:
    """Give the type of a field of a struct, of a field of that, and so on; empty if there is none.

    >>> type_of_field("struct<a:int,B:struct<c:double>>", ["b", "c"]), type_of_field("int", ["a"])
    ('double', '')
    """
    try:
        kind = parse_type(declared)
    except TypeTextError:
        return ""
    for name in path:
        parts = [
            part for field, part in zip(kind.names, kind.parts, strict=False) if field.lower() == name.lower()
        ]
        if kind.name != "struct" or len(parts) != 1:
            return ""
        kind = parts[0]
    return str(kind)
