"""Spark's types as far as a join needs them: reading, writing and comparing.

In:  the type text of a declared column, such as ``DECIMAL(10,2)`` or ``STRUCT<a: INT>``.
Out: its normal spelling, the type by which two columns are compared (`common_type`), which types hold all values of
     another (`widens`), and why values of a type cannot be stored (`refusal_to_store`).

The rules of comparison are those of Spark 4 in ANSI mode::

    tinyint < smallint < int < bigint < decimal < double        float with anything exact: double
    date < timestamp_ntz < timestamp                            string: becomes the other's type
    boolean, binary: with themselves and string only            map, variant: never
    strings of two collations: never                            char, varchar: as string, where they are cast to
"""

from __future__ import annotations

import re
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
_WHOLE_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}
"""Whole numbers, narrowest first, and the most digits of their values."""
WHOLE_TYPES = tuple(_WHOLE_DIGITS)
FLOATING_TYPES = ("float", "double")
_NUMBERS = {*WHOLE_TYPES, *FLOATING_TYPES, "decimal"}
_TIMES = ("date", "timestamp_ntz", "timestamp")
TIME_TYPES = frozenset(_TIMES)
"""Types an event time may have."""
_TEXTS = {"string", "char", "varchar"}
_SCALARS = {*_NUMBERS, *_TIMES, *_TEXTS, "boolean", "binary", "variant", "void", "time"}
_SHAPES = {"geometry", "geography"}
_DAY_TIME = ("day", "hour", "minute", "second")
_YEAR_MONTH = ("year", "month")
_MAX_DECIMAL_DIGITS = 38
_BIGINT_AS_DECIMAL_DIGITS = 20
"""The precision of the decimal that Spark makes of a BIGINT."""
_MAX_NESTING = 100
_DIGITS = re.compile("[0-9]{1,9}")
_WORDS = re.compile(r"\s*(`(?:[^`]|``)*`|\w+|[<>(),:]|\S)")


class TypeTextError(ValueError):
    """A text that is not a Spark type; the message is a sentence."""


@dataclass(frozen=True, slots=True)
class SparkType:
    """A type: its name, the numbers in its parentheses, and the types of its parts.

    `names` are the fields of a struct, one for each of `parts`.  `collation` is that of a string, if it is not Spark's
    default.
    """

    name: str
    numbers: tuple[int, ...] = ()
    parts: tuple[SparkType, ...] = ()
    names: tuple[str, ...] = ()
    collation: str = ""

    def __str__(self) -> str:
        """Write the type as Spark's DDL, in lower case except for the names of fields."""
        if self.name == "struct":
            fields = zip(self.names, self.parts, strict=True)
            return f"struct<{','.join(f'{name}:{part}' for name, part in fields)}>"
        if self.parts:
            return f"{self.name}<{','.join(map(str, self.parts))}>"
        numbers = f"({','.join(map(str, self.numbers))})" if self.numbers else ""
        return self.name + numbers + (f" collate {self.collation}" if self.collation else "")

    def holds(self, *names: str) -> bool:
        """Check whether it is, or contains, one of some types.

        >>> parse_type("ARRAY<VARIANT>").holds("map", "variant")
        True
        """
        return self.name in names or any(part.holds(*names) for part in self.parts)

    def has_collation(self) -> bool:
        """Check whether it is, or contains, a string with a collation."""
        return bool(self.collation) or any(part.has_collation() for part in self.parts)

    def field(self, name: str) -> SparkType:
        """Return the type of a field of a struct, by its name as written in SQL."""
        wanted = name.strip("`").lower()
        for field, part in zip(self.names, self.parts, strict=False):
            if field.strip("`").lower() == wanted:
                return part
        raise TypeTextError(f"{self} has no field {name}")

    @property
    def digits(self) -> tuple[int, int]:
        """The precision and scale of an exact number."""
        if self.name in _WHOLE_DIGITS:
            return _WHOLE_DIGITS[self.name], 0
        return self.numbers[0], self.numbers[1]


def parse_type(text: str) -> SparkType:
    """Read a type, or raise `TypeTextError`.

    >>> str(parse_type("DECIMAL( 10, 2 )")), str(parse_type("STRUCT<A: Array<LONG>, b STRING>"))
    ('decimal(10,2)', 'struct<A:array<bigint>,b:string>')
    """
    parser = _TypeParser(_WORDS.findall(text))
    kind = parser.type()
    if parser.words:
        parser.fail(f"{parser.words[0]} does not belong in the type {text.strip()}")
    return kind


def known_type(text: str, *fields: str) -> SparkType | None:
    """Read a type, or the type of a field in it; None if there is no such type.

    >>> str(known_type("struct<a:int,B:struct<c:double>>", "b", "c")), known_type("int", "a"), known_type("")
    ('double', None, None)
    """
    try:
        kind = parse_type(text)
        for field in fields:
            kind = kind.field(field)
    except TypeTextError:
        return None
    return kind


class _TypeParser:
    """Reads a type from left to right; `words` holds the rest."""

    def __init__(self, words: list[str]) -> None:
        self.words = words
        self.depth = 0

    def fail(self, message: str) -> NoReturn:
        raise TypeTextError(message)

    def next(self) -> str:
        return self.words[0].lower() if self.words else ""

    def accept(self, word: str) -> bool:
        if self.next() != word:
            return False
        self.words.pop(0)
        return True

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
        if name == "decimal":
            numbers = (*numbers, 0)[:2] if numbers else (10, 0)
        return SparkType(name, numbers, collation=self._collation() if name in _TEXTS else "")

    def _interval(self) -> SparkType:
        """Read ``INTERVAL``, ``INTERVAL DAY`` or ``INTERVAL DAY TO SECOND``; the first is a calendar interval."""
        words = ["interval"]
        units = next((units for units in (_DAY_TIME, _YEAR_MONTH) if self.next() in units), None)
        if units is not None:
            words.append(self.take().lower())
            if self.accept("to"):
                last = self.take().lower()
                if last not in units[units.index(words[1]) + 1 :]:
                    self.fail(f"an interval does not go from {words[1]} to {last}")
                words += ["to", last]
        return SparkType(" ".join(words))

    def _nested(self, name: str) -> SparkType:
        self.depth += 1
        if self.depth > _MAX_NESTING:
            self.fail(f"types are nested more than {_MAX_NESTING} deep: declare a part as STRING")
        self.take("<")
        names, parts = list[str](), list[SparkType]()
        while name == "struct" and not self.accept(">"):
            names.append(self.take())
            self.accept(":")
            parts.append(self.type())
            self.accept(",")
        if name != "struct":
            parts.append(self.type())
            if name == "map":
                self.take(",")
                parts.append(self.type())
            self.take(">")
        self.depth -= 1
        return SparkType(name, parts=tuple(parts), names=tuple(names))

    def _collation(self) -> str:
        """Read ``COLLATE name``; the default collation becomes empty."""
        if not self.accept("collate"):
            return ""
        name = self.take().upper()
        return "" if name == "UTF8_BINARY" else name

    def _numbers(self) -> tuple[int, ...]:
        numbers: list[int] = []
        while self.accept("," if numbers else "("):
            number = self.take()
            if not _DIGITS.fullmatch(number):
                self.fail(f"{number} is not a number of digits: write a whole number")
            numbers.append(int(number))
            if self.next() not in {",", ")"}:
                self.fail("a ) is missing in a type")
        if numbers:
            self.take(")")
        return tuple(numbers)


def refusal_to_store(text: str) -> str:
    """Return why values of a type cannot be stored, and the fix; empty if they can be.

    Rows are stored as Arrow, late rows and results as Parquet of Spark.  A type must exist in both.

    >>> refusal_to_store("array<interval day to second>")
    ''
    >>> refusal_to_store("array<interval month>")
    'Arrow has no interval month: write CAST(... AS STRING), or a part of it, such as extract(MONTH FROM ...)'
    """
    try:
        return _refusal(parse_type(text))
    except TypeTextError as error:
        return f"{error}: write CAST(... AS STRING)"


def _refusal(kind: SparkType) -> str:
    """Return the refusal of the first part of a type that cannot be stored."""
    as_text = "write CAST(... AS STRING)"
    if kind.name == "time":
        return f"Spark's Parquet has no TIME: {as_text}"
    if kind.name == "interval" or kind.name.removeprefix("interval ").startswith(_YEAR_MONTH):
        part = "or a part of it, such as extract(MONTH FROM ...)"
        return f"Arrow has no {'calendar ' * (kind.name == 'interval')}{kind.name}: {as_text}, {part}"
    if kind.name in _SHAPES:
        return f"Parquet files of Arrow have no {kind.name.upper()}: write st_asbinary(...)"
    if kind.name == "map" and (kind.parts[0].name == "void" or kind.parts[0].has_collation()):
        return f"Spark's Parquet has no map with keys of {kind.parts[0]}: {as_text}, or map_entries(...)"
    return next(filter(None, map(_refusal, kind.parts)), "")


# --- comparing --------------------------------------------------------------------------------------------------


def common_type(left: str, right: str) -> str | None:
    """Return the type by which Spark compares two types, or None where it would refuse.

    >>> common_type("int", "bigint"), common_type("decimal(10,2)", "int"), common_type("float", "int")
    ('bigint', 'decimal(12,2)', 'double')
    >>> common_type("date", "timestamp"), common_type("string", "int"), common_type("bigint", "boolean")
    ('timestamp', 'bigint', None)
    """
    one, other = known_type(left), known_type(right)
    if one is None or other is None:
        return left if left == right else None
    common = _common(one, other)
    return str(common) if common else None


def _common(left: SparkType, right: SparkType) -> SparkType | None:
    names = {left.name, right.name}
    if left.holds("map", "variant") or right.holds("map", "variant"):
        return None
    if left == right:
        return left
    if left.parts or right.parts:
        return _common_parts(left, right)
    if names & _TEXTS:
        return _common_with_text(left, right)
    if names <= TIME_TYPES:
        return max(left, right, key=lambda kind: _TIMES.index(kind.name))
    return _common_number(left, right) if names <= _NUMBERS else None


def _common_parts(left: SparkType, right: SparkType) -> SparkType | None:
    """Compare arrays by their elements, and structs field by field."""
    same_names = [name.lower() for name in left.names] == [name.lower() for name in right.names]
    if left.name != right.name or len(left.parts) != len(right.parts) or not same_names:
        return None
    parts = [_common(one, other) for one, other in zip(left.parts, right.parts, strict=True)]
    common = tuple(part for part in parts if part)
    return SparkType(left.name, parts=common, names=left.names) if len(common) == len(parts) else None


def _common_with_text(left: SparkType, right: SparkType) -> SparkType | None:
    """Convert the string to the other type, as ANSI Spark does."""
    other = right if left.name in _TEXTS else left
    if other.name in _TEXTS:
        return SparkType("string", collation=left.collation) if left.collation == right.collation else None
    if other.name in _NUMBERS:
        return SparkType("bigint" if other.name in _WHOLE_DIGITS else "double")
    return other if other.name in {*_TIMES, "boolean", "binary"} else None


def _common_number(left: SparkType, right: SparkType) -> SparkType:
    """Widen two numbers: exact ones exactly, all others to double."""
    if {left.name, right.name} <= set(_WHOLE_DIGITS):
        return max(left, right, key=lambda kind: _WHOLE_DIGITS[kind.name])
    if {left.name, right.name} & set(FLOATING_TYPES):
        return SparkType("double")
    (p, s), (q, t) = (
        (_BIGINT_AS_DECIMAL_DIGITS, 0) if kind.name == "bigint" else kind.digits for kind in (left, right)
    )
    scale, whole = max(s, t), max(p - s, q - t)
    if whole + scale > _MAX_DECIMAL_DIGITS:  # digits before the point are kept rather than those after it
        scale = max(0, _MAX_DECIMAL_DIGITS - whole)
    return SparkType("decimal", (min(whole + scale, _MAX_DECIMAL_DIGITS), scale))


_EXACT_FLOATS = {"float": {"tinyint", "smallint"}, "double": {"tinyint", "smallint", "int", "float"}}
"""The numbers that are exact as floating ones: a float has 24 bits for digits, a double 53."""


def widens(source: SparkType, target: SparkType) -> bool:
    """Check whether a cast loses nothing and keeps the order.

    >>> [widens(parse_type("int"), parse_type(name)) for name in ("bigint", "decimal(10,2)", "double", "float")]
    [True, False, True, False]
    """
    if source == target:
        return True
    if source.name in _WHOLE_DIGITS and target.name in _WHOLE_DIGITS:
        return _WHOLE_DIGITS[source.name] < _WHOLE_DIGITS[target.name]
    if target.name == "decimal" and source.name in {*_WHOLE_DIGITS, "decimal"}:
        (p, s), (q, t) = source.digits, target.digits
        return s <= t and p - s <= q - t
    return source.name in _EXACT_FLOATS.get(target.name, ())


def never_fails(source: SparkType, target: SparkType) -> bool:
    """Check whether a cast succeeds for every value, with or without rounding.

    >>> never_fails(parse_type("bigint"), parse_type("float")), never_fails(parse_type("string"), parse_type("int"))
    (True, False)
    """
    becomes_text = target.name == "string" and source.name in _SCALARS - {"variant"}
    becomes_floating = target.name in FLOATING_TYPES and source.name in _NUMBERS
    return becomes_text or becomes_floating or widens(source, target)
