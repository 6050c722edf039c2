"""Sums of two event times and constants, read from expressions.

    r.ts - l.ts - INTERVAL 10 SECONDS                  T_right - T_left - 10 s
    2 * (unix_seconds(r.ts) - unix_seconds(l.ts))      2 T_right - 2 T_left, with an error of less than 2 s

In:  one side of a comparison, resolved and canonical.  Out: a `Linear`; None if it is anything else.
True: where Spark computes the expression without an error, its value is within `below` and `above` of the sum.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from penstock.sql.bind.safety import is_unqualified
from penstock.sql.query import FOREVER, SECOND, Side
from penstock.sql.spark_types import known_type
from penstock.sql.text.lexer import string_value, tokenize
from penstock.sql.text.tree import ColumnRef, Constant, Form, Tree, cast_type, nodes, unwrapped
from penstock.sql.units import UNITS, DurationError, parse_duration, parse_span

_SUMS = frozenset({"NEG", "+", "-"})
_ARITHMETIC = _SUMS | {"*", "/", "DIV"}
_MAX_INT = (1 << 31) - 1
"""The limit of literal arithmetic, which Spark does in INT."""


@dataclass(frozen=True, slots=True)
class Linear:
    """``left * T_left + right * T_right + micros``, with an error from ``-below`` to ``+above``."""

    left: Fraction = Fraction(0)
    right: Fraction = Fraction(0)
    micros: Fraction = Fraction(0)
    below: Fraction = Fraction(0)
    above: Fraction = Fraction(0)
    spans: tuple[int, ...] = ()
    """The lengths of its intervals."""

    @property
    def is_constant(self) -> bool:
        return not (self.left or self.right)

    @property
    def is_known(self) -> bool:
        """Whether it is an exact constant."""
        return self.is_constant and not (self.below or self.above)

    def plus(self, other: Linear) -> Linear:
        return Linear(
            self.left + other.left,
            self.right + other.right,
            self.micros + other.micros,
            self.below + other.below,
            self.above + other.above,
            (*self.spans, *other.spans),
        )

    def times(self, factor: Fraction | int) -> Linear:
        """Multiply by a constant; a negative one exchanges `below` and `above`."""
        below, above = (self.below, self.above) if factor > 0 else (-self.above, -self.below)
        return Linear(
            self.left * factor,
            self.right * factor,
            self.micros * factor,
            below * factor,
            above * factor,
            self.spans,
        )

    def rounded(self, micros: int) -> Linear:
        return replace(self, below=self.below + micros, above=self.above + micros)


class CalendarError(Exception):
    """An interval of months or years, which has no fixed length."""


def linear(tree: Tree, left: Side, unit: int) -> Generator[Any, Any, Linear | None]:
    """Read a sum of two event times and constants; `left` is the side of one, `unit` that of whole numbers."""
    tree = unwrapped(tree)
    if isinstance(tree, ColumnRef):
        return None if unit else _time(tree, left)
    if isinstance(tree, Constant):
        return _constant(tree, unit)
    number = time_number(tree) if unit else None
    if number:
        taken = _time(number.taken, left).times(-1) if number.taken else Linear()
        total = _time(number.added, left).plus(taken)
        return replace(total, below=Fraction(number.below), above=Fraction(number.above))
    if not isinstance(tree, Form) or tree.head not in (_ARITHMETIC if unit else _SUMS):
        return None
    parts: list[Linear] = []
    for operand in tree.trees:
        part: Linear | None = yield linear(operand, left, unit)
        if part is None:
            return None
        parts.append(part)
    return _computed(tree.head, parts, unit)


def _time(column: ColumnRef, left: Side) -> Linear:
    return Linear(left=Fraction(1)) if column.side == left else Linear(right=Fraction(1))


def _constant(constant: Constant, unit: int) -> Linear | None:
    if unit:
        number = plain_number(constant)
        return None if number is None else Linear(micros=number * unit)
    micros = interval_micros(constant)
    return None if micros is None else Linear(micros=Fraction(micros), spans=(micros,))


def _computed(operator: str, parts: Sequence[Linear], unit: int) -> Linear | None:
    """Compute a sum, or a product or quotient with a whole number; None where Spark might overflow."""
    first, second = parts[0], parts[-1]
    if operator in _SUMS:
        total = first.times(-1) if operator == "NEG" else first
        total = total if len(parts) == 1 else first.plus(second.times(1 if operator == "+" else -1))
        return total if not unit or not _overflows(total, unit) else None
    if operator == "*" and first.is_known:
        first, second = second, first
    factor = second.micros / unit
    if not second.is_known or not factor or factor.denominator != 1:
        return None
    if operator != "*":
        return first.times(1 / factor).rounded(max(unit, MILLISECOND))
    product = first.times(factor)
    return None if abs(factor) > 2 * unit or _overflows(product, unit) else product


def _overflows(total: Linear, unit: int) -> bool:
    """Check whether arithmetic of literals leaves the range of INT, or that with times the range of BIGINT.

    Times are at most FOREVER / unit, so products up to 2 * FOREVER fit into BIGINT.  A DOUBLE is exact enough while no
    constant is greater than the times.
    """
    if total.is_constant:
        return abs(total.micros) > _MAX_INT * unit
    most = max(abs(total.left), abs(total.right), Fraction(1))
    return most > 2 * unit or abs(total.micros) > FOREVER * most


def interval_micros(constant: Constant) -> int | None:
    """Return the length of a constant interval; None if it is anything else.

    >>> interval_micros(Constant("INTERVAL 1 HOUR -30 MINUTES", "interval"))
    1800000000
    """
    if constant.kind != "interval":
        return None
    words = [
        string_value(token) if token.kind == "string" else token.text for token in tokenize(constant.text)
    ]
    try:
        if "TO" in words[1:]:
            *sign, text, first, _, last = words[1:]
            return parse_span(text, first, last) * (-1 if sign == ["-"] else 1)
        return parse_duration(" ".join(words[1:]).replace("- ", "-").replace("+ ", "+"))
    except DurationError as error:
        if "fixed length" in str(error):
            raise CalendarError(str(error)) from None
        return None


MILLISECOND = 1_000

_COUNTED = {
    "UNIX_SECONDS(": (SECOND, SECOND - 1, 0),
    "UNIX_MILLIS(": (MILLISECOND, MILLISECOND - 1, 0),
    "UNIX_MICROS(": (1, 0, 0),
    "UNIX_TIMESTAMP(": (SECOND, SECOND - 1, SECOND - 1),
    "TO_UNIX_TIMESTAMP(": (SECOND, SECOND - 1, SECOND - 1),
}
"""Functions of a TIMESTAMP: the unit, and the error below and above the time, in microseconds."""

_CASTS = {"bigint": (SECOND, SECOND - 1, 0), "double": (SECOND, MILLISECOND, MILLISECOND)}
"""The same for casts of a TIMESTAMP; a DOUBLE rounds far less than a millisecond."""

_COUNTED |= {f"{name.upper()}(": form for name, form in _CASTS.items()}

_DIFFERENCES = frozenset({"TIMESTAMPDIFF(", "DATEDIFF(", "DATE_DIFF(", "TIMEDIFF("})
_NUMBER = re.compile(r"-?[0-9]{1,18}L?|-?[0-9]{1,9}\.[0-9]{1,9}", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class TimeNumber:
    """A number that counts the time of `added` less that of `taken`, in units of `unit` microseconds.

    Its error is from ``-below`` to ``+above`` microseconds.
    """

    unit: int
    below: int
    above: int
    added: ColumnRef
    taken: ColumnRef | None = None


def time_number(tree: Tree) -> TimeNumber | None:
    """Read a number that counts time; None if it is anything else."""
    if not isinstance(tree, Form) or not is_unqualified(tree):
        return None
    columns = [part for part in map(unwrapped, tree.trees) if isinstance(part, ColumnRef)]
    if len(columns) != len(tree.trees) or len(columns) not in {1, 2}:
        return None
    if len(columns) == 1:
        form = _CASTS.get(str(known_type(cast_type(tree)))) if cast_type(tree) else _COUNTED.get(tree.head)
        return TimeNumber(*form, columns[0]) if form else None
    unit = UNITS.get(str(tree.parts[1]).removesuffix(", ").lower()) if tree.head in _DIFFERENCES else None
    taken, added = columns
    return TimeNumber(unit, unit - 1, unit - 1, added, taken) if unit else None


def time_numbers(tree: Tree) -> list[TimeNumber]:
    """List the numbers in a tree that count time."""
    return [node for node in map(time_number, nodes(tree)) if node]


def plain_number(constant: Constant) -> Fraction | None:
    """Read a number without an exponent; None if it is anything else.

    >>> plain_number(Constant("3600", "number")), plain_number(Constant("1e3", "number"))
    (Fraction(3600, 1), None)
    """
    if constant.kind != "number" or not _NUMBER.fullmatch(constant.text):
        return None
    return Fraction(constant.text.rstrip("Ll"))
