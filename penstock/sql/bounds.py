"""Interval predicates: conditions between the two event times that say how far apart they may be.

Spark and Flink users write their windows as predicates.  Each such comparison is linear in the two times, and
so is a bound on ``d = T_right - T_left``::

    r.ts BETWEEN l.ts - INTERVAL 10 SECONDS AND l.ts + INTERVAL 1 MINUTE

        r.ts >= l.ts - 10 s       d >= -10 s              lo = -10 s
        r.ts <= l.ts + 1 min      d <= 1 min              hi = 1 min + 1 µs  (hi is exclusive)

In:  canonical comparisons over ``l.`` and ``r.`` columns.
Out: `Bound`s, intersected by `penstock.sql.bind`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from penstock.sql.canonical import MIRROR
from penstock.sql.interval import DurationError, parse_duration, parse_span
from penstock.sql.query import FOREVER

if TYPE_CHECKING:
    from penstock.sql.names import Scope


@dataclass(frozen=True, slots=True)
class Bound:
    """The differences ``lo <= d < hi`` that one predicate admits, in microseconds."""

    lo: int = -FOREVER + 1
    hi: int = FOREVER


@dataclass(frozen=True, slots=True)
class _Linear:
    """``left * T_left + right * T_right + micros``."""

    left: int = 0
    right: int = 0
    micros: int = 0

    def plus(self, other: _Linear, sign: int) -> _Linear:
        return _Linear(
            self.left + sign * other.left, self.right + sign * other.right, self.micros + sign * other.micros
        )


class _CalendarError(Exception):
    """An interval of months or years: `args` holds the tree and why."""


def read_bound(scope: Scope, comparison: exp.Expr) -> Bound | None:
    """Read a comparison of the two event times; None when it is something else."""
    if type(comparison) not in MIRROR or type(comparison) in {exp.NEQ, exp.NullSafeEQ, exp.NullSafeNEQ}:
        return None
    if not _names_both_times(scope, comparison):
        return None
    try:
        left, right = _linear(scope, comparison.this), _linear(scope, comparison.expression)
    except _CalendarError as error:
        node, why = error.args
        message = f"the interval of this window {why}"
        raise scope.error(message, node if "start" in node.meta else comparison) from None
    if left is None or right is None:
        return None
    return _solve(left.plus(right, -1), type(comparison))


def _solve(zero: _Linear, kind: type[exp.Expr]) -> Bound | None:
    """Solve ``zero <kind> 0`` for d, when it is d, or -d, and a constant."""
    if (zero.left, zero.right) == (1, -1):
        zero, kind = _Linear(-1, 1, -zero.micros), MIRROR[kind]
    if (zero.left, zero.right) != (-1, 1):
        return None
    edge = -zero.micros
    return {
        exp.EQ: Bound(edge, edge + 1),
        exp.LT: Bound(hi=edge),
        exp.LTE: Bound(hi=edge + 1),
        exp.GT: Bound(lo=edge + 1),
        exp.GTE: Bound(lo=edge),
    }[kind]  # type: ignore[index]


def _names_both_times(scope: Scope, tree: exp.Expr) -> bool:
    """Say whether the columns of a tree are the two event times and no others."""
    found = {(column.table, column.name) for column in tree.find_all(exp.Column)}
    return found == {(each.side, each.stream.time) for each in scope.inputs}


def _linear(scope: Scope, tree: exp.Expr) -> _Linear | None:
    """Read a sum of event times and constant intervals."""
    if isinstance(tree, exp.Paren):
        return _linear(scope, tree.this)
    if isinstance(tree, exp.Column):
        return _Linear(left=1) if tree.table == "l" else _Linear(right=1)
    if isinstance(tree, exp.Interval):
        micros = interval_micros(tree)
        return None if micros is None else _Linear(micros=micros)
    if isinstance(tree, exp.Neg):
        inner = _linear(scope, tree.this)
        return inner and _Linear().plus(inner, -1)
    if isinstance(tree, (exp.Add, exp.Sub)):
        left, right = _linear(scope, tree.this), _linear(scope, tree.expression)
        return left and right and left.plus(right, 1 if isinstance(tree, exp.Add) else -1)
    return None


def interval_micros(tree: exp.Interval) -> int | None:
    """Give the length of a constant interval; None when it is not constant or not understood."""
    value, unit = tree.this, tree.args.get("unit")
    sign = -1 if isinstance(value, exp.Neg) else 1
    literal = value.this if isinstance(value, exp.Neg) else value
    if not isinstance(literal, exp.Literal):
        return None
    try:
        if isinstance(unit, exp.IntervalSpan):
            return sign * parse_span(literal.name, unit.this.name.upper(), unit.expression.name.upper())
        return sign * parse_duration(f"{literal.name} {unit.name if unit else ''}")
    except DurationError as error:
        if "fixed length" in str(error):
            raise _CalendarError(literal, str(error)) from None
        return None
