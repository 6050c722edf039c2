"""Interval predicates: conditions between two event times that say how far apart they may be.

Spark and Flink users write their windows as predicates.  Each such comparison is linear in the two times, and
so is a bound on ``d = T_right - T_left``, the left one being of the side that comes first::

    r.ts BETWEEN l.ts - INTERVAL 10 SECONDS AND l.ts + INTERVAL 1 MINUTE

        r.ts >= l.ts - 10 s       d >= -10 s              lo = -10 s
        r.ts <= l.ts + 1 min      d <= 1 min              hi = 1 min + 1 µs  (hi is exclusive)

Where the session's clock is put forward and back, some of these comparisons go by that clock and not by time
(`penstock.sql.zones`).  Their bound is as much wider as the clock may move, and Spark is asked about each pair.

In:  canonical comparisons over the columns of sides.
Out: `Bound`s, intersected by `penstock.sql.bind` and `penstock.sql.limits`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from penstock.sql.canonical import MIRROR
from penstock.sql.deep import run
from penstock.sql.interval import DurationError, parse_duration, parse_span
from penstock.sql.lexer import string_value, tokenize
from penstock.sql.query import DAY, FOREVER, SIDES
from penstock.sql.tree import Column, Constant, Form, columns_of
from penstock.sql.zones import clock_shift, has_fixed_offset

if TYPE_CHECKING:
    from collections.abc import Generator

    from penstock.sql.names import Input, Scope
    from penstock.sql.query import Side
    from penstock.sql.tree import Tree


@dataclass(frozen=True, slots=True)
class Bound:
    """The differences ``lo <= d < hi`` that one predicate admits, in microseconds."""

    lo: int = -FOREVER + 1
    hi: int = FOREVER
    exact: bool = True
    """Whether it admits no more than the predicate does."""
    between: tuple[int, int] = (0, 1)
    """The numbers of the two sides, the left one first."""

    def widened(self, micros: int) -> Bound:
        """Move both ends outwards; the result is no longer exact."""
        lo, hi = max(self.lo - micros, -FOREVER + 1), min(self.hi + micros, FOREVER)
        return replace(self, lo=lo, hi=hi, exact=False)


@dataclass(frozen=True, slots=True)
class _Linear:
    """``left * T_left + right * T_right + micros``."""

    left: int = 0
    right: int = 0
    micros: int = 0
    spans: tuple[int, ...] = ()
    """The lengths of all intervals in it."""

    def plus(self, other: _Linear, sign: int) -> _Linear:
        return _Linear(
            self.left + sign * other.left,
            self.right + sign * other.right,
            self.micros + sign * other.micros,
            (*self.spans, *other.spans),
        )


class _CalendarError(Exception):
    """An interval of months or years: `args` holds the tree and why."""


def read_bound(scope: Scope, condition: Tree) -> Bound | None:
    """Read a comparison of two event times; None when it is something else."""
    if not isinstance(condition, Form) or condition.head not in {"=", "<", "<=", ">", ">="}:
        return None
    both = _two_times(scope, condition)
    if both is None:
        return None
    try:
        left, right = (run(_linear(each, both[0].side)) for each in condition.trees)
    except _CalendarError as error:
        raise scope.error(f"the interval of this window {error}", condition) from None
    if left is None or right is None:
        return None
    bound = _solve(left.plus(right, -1), condition.head)
    if bound is None:
        return None
    bound = replace(bound, between=(both[0].number, both[1].number))
    types = {each.stream.time_type for each in both}
    exact = has_fixed_offset(scope.zone) or _is_elapsed_time(types, left, right)
    return bound if exact else bound.widened(clock_shift(scope.zone))


def _is_elapsed_time(types: set[str], *sides: _Linear) -> bool:
    """Say whether Spark compares elapsed time here, and not readings of the session's wall clock."""
    spans = [abs(each) for side in sides for each in side.spans]
    if types == {"timestamp_ntz"}:
        return True
    if types == {"timestamp"}:
        return sum(spans) < DAY and not any(side.left and side.right for side in sides)
    return all(each % DAY == 0 for each in spans)


def _solve(zero: _Linear, operator: str) -> Bound | None:
    """Solve ``zero <operator> 0`` for d, when it is d, or -d, and a constant."""
    if (zero.left, zero.right) == (1, -1):
        zero, operator = _Linear(-1, 1, -zero.micros), MIRROR[operator]
    if (zero.left, zero.right) != (-1, 1):
        return None
    edge = -zero.micros
    return {
        "=": Bound(edge, edge + 1),
        "<": Bound(hi=edge),
        "<=": Bound(hi=edge + 1),
        ">": Bound(lo=edge + 1),
        ">=": Bound(lo=edge),
    }[operator]


def _two_times(scope: Scope, tree: Tree) -> list[Input] | None:
    """Give the two streams, in the order of their sides, whose event times are all the columns of a tree."""
    read = {(column.side, column.name) for column in columns_of(tree)}
    both = [each for each in scope.inputs if (each.side, each.stream.time) in read]
    only_times = len(both) == len(read) == len(SIDES)
    return sorted(both, key=lambda each: each.number) if only_times else None


def _linear(tree: Tree, left: Side) -> Generator[Any, Any, _Linear | None]:
    """Read a sum of two event times, one of which is of the left side, and constant intervals."""
    if isinstance(tree, Column):
        return _Linear(left=1) if tree.side == left else _Linear(right=1)
    if isinstance(tree, Constant):
        micros = interval_micros(tree)
        return None if micros is None else _Linear(micros=micros, spans=(micros,))
    if not isinstance(tree, Form) or tree.head not in {"(", "NEG", "+", "-"}:
        return None
    total = _Linear()
    for number, each in enumerate(tree.trees):
        part: _Linear | None = yield _linear(each, left)
        if part is None:
            return None
        minus = tree.head == "NEG" or (tree.head == "-" and number == 1)
        total = total.plus(part, -1 if minus else 1)
    return total


def interval_micros(constant: Constant) -> int | None:
    """Give the length of a constant interval; None when it is something else or not understood.

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
            raise _CalendarError(str(error)) from None
        return None
