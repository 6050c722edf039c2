"""Event times as numbers: which expressions count the time of a row, and how far each may be off.

Users also write windows as comparisons of whole numbers.  Most of the functions round, so that the number is that of
the time to within one unit::

    CAST(ts AS LONG), unix_seconds(ts)     whole seconds, rounded down        off by -999,999 µs to 0
    unix_timestamp(ts)                     whole seconds, towards 1970        off by -999,999 µs to 999,999 µs
    unix_millis(ts), unix_micros(ts)       in milliseconds, microseconds      off by -999 µs to 0, or not at all
    timestampdiff(MINUTE, a.ts, b.ts)      whole minutes, towards 0           off by less than a minute

``timestampdiff`` compares readings of the session's wall clock; all others count from 1970 and need a TIMESTAMP.

In:  a resolved tree.  Out: a `TimeNumber`, or a plain number.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from penstock.sql.query import DAY, SECOND
from penstock.sql.bind.safety import is_unqualified
from penstock.sql.spark_types import TypeTextError, parse_type
from penstock.sql.text.tree import Column, Constant, Form, cast_type, nodes, unwrapped

if TYPE_CHECKING:
    from penstock.sql.text.tree import Tree

MILLISECOND, HOUR = 1_000, 3_600 * SECOND

_COUNTED = {
    "UNIX_SECONDS(": (SECOND, SECOND - 1, 0),
    "UNIX_MILLIS(": (MILLISECOND, MILLISECOND - 1, 0),
    "UNIX_MICROS(": (1, 0, 0),
    "UNIX_TIMESTAMP(": (SECOND, SECOND - 1, SECOND - 1),
    "TO_UNIX_TIMESTAMP(": (SECOND, SECOND - 1, SECOND - 1),
}
"""Functions of a TIMESTAMP: the unit, and how far the number may be below and above the time, in microseconds."""

_CASTS = {"bigint": (SECOND, SECOND - 1, 0), "double": (SECOND, MILLISECOND, MILLISECOND)}
"""The same for types that a TIMESTAMP is cast to; a DOUBLE rounds far less than a millisecond."""

_COUNTED |= {f"{name.upper()}(": form for name, form in _CASTS.items()}

_DIFFERENCES = frozenset({"TIMESTAMPDIFF(", "DATEDIFF(", "DATE_DIFF(", "TIMEDIFF("})
_UNITS = {
    "MICROSECOND": 1,
    "MILLISECOND": MILLISECOND,
    "SECOND": SECOND,
    "MINUTE": 60 * SECOND,
    "HOUR": HOUR,
    "DAY": DAY,
    "WEEK": 7 * DAY,
}
_NUMBER = re.compile(r"-?[0-9]{1,18}L?|-?[0-9]{1,9}\.[0-9]{1,9}", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class TimeNumber:
    """A number that counts the time of `added`, less that of `taken`, in units of so many microseconds.

    It is that time less `below` microseconds at the least, and plus `above` at the most.
    """

    unit: int
    below: int
    above: int
    added: Column
    taken: Column | None = None


def time_number(tree: Tree) -> TimeNumber | None:
    """Read a number that counts time; None when it is something else."""
    if not isinstance(tree, Form) or not is_unqualified(tree):
        return None
    columns = [each for each in map(unwrapped, tree.trees) if isinstance(each, Column)]
    if len(columns) != len(tree.trees) or len(columns) not in {1, 2}:
        return None
    if len(columns) == 1:
        form = _CASTS.get(_cast_type(tree)) if cast_type(tree) else _COUNTED.get(tree.head)
        return TimeNumber(*form, columns[0]) if form else None
    unit = _UNITS.get(str(tree.parts[1]).removesuffix(", ")) if tree.head in _DIFFERENCES else None
    taken, added = columns
    return TimeNumber(unit, unit - 1, unit - 1, added, taken) if unit else None


def _cast_type(tree: Form) -> str:
    try:
        return str(parse_type(cast_type(tree)))
    except TypeTextError:
        return ""


def time_numbers(tree: Tree) -> list[TimeNumber]:
    """List the numbers in a tree that count time."""
    return [each for each in map(time_number, nodes(tree)) if each]


def plain_number(constant: Constant) -> Fraction | None:
    """Read a number without an exponent; None when it is something else.

    >>> plain_number(Constant("3600", "number")), plain_number(Constant("1e3", "number"))
    (Fraction(3600, 1), None)
    """
    if constant.kind != "number" or not _NUMBER.fullmatch(constant.text):
        return None
    return Fraction(constant.text.rstrip("Ll"))
