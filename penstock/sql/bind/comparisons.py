"""Conditions on pairs that compare two columns: a cheap test before Spark evaluates them.

Spark SQL evaluates every condition on a pair, but the pair has to be written for Spark first.  That is expensive where
few pairs satisfy the condition.  Many such conditions bound the difference of two columns::

    l.v < r.v                           d = l.v - r.v       d <= -1  (whole numbers)
    ABS(l.v - r.v) <= 5                                     -5 <= d <= 5
    l.x >= r.x - 0.5                                        d >= -0.5, with an error of rounding

A `Comparison` is that bound, *wide enough* for NaN, rounding and overflow in Spark.  For a pair outside the bound Spark
would never return true.  Pairs inside it are still evaluated by Spark.

In:  the residual conditions of a query, canonical.  Out: `Comparison`s, tested by `penstock.kernels.column_checks`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, floor

from penstock.sql.bind.canonical import MIRROR
from penstock.sql.bind.scope import Scope
from penstock.sql.query import Comparison
from penstock.sql.spark_types import FLOATING_TYPES, TIME_TYPES
from penstock.sql.text.tree import ColumnRef, Constant, Form, Tree, folded, inside_call

_WHOLE_BITS = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}
"""Whole numbers, and the bits of their values."""
_LARGEST_LONG = (1 << 63) - 1

_PLAIN_NUMBER = re.compile(r"-?(?:[0-9]{1,40}\.?[0-9]{0,40}|\.[0-9]{1,40})")

_ROUNDING_SHARE = {True: 2.0**-19, False: 2.0**-48}
"""The share of the values' size that a few roundings cannot exceed, with a FLOAT among them and without."""


@dataclass(frozen=True, slots=True)
class _Sum:
    """``left * l.column + right * r.column + constant``; `size` is the sum of the absolute constants."""

    left: int = 0
    right: int = 0
    names: tuple[str, str] = ("", "")
    constant: Fraction = Fraction(0)
    size: Fraction = Fraction(0)
    computed: bool = False
    """Whether there is arithmetic on a column, which may overflow or round."""

    def negated(self) -> _Sum:
        return replace(self, left=-self.left, right=-self.right, constant=-self.constant)

    def plus(self, other: _Sum) -> _Sum | None:
        """Add two sums; None if both read the same side."""
        if (self.left and other.left) or (self.right and other.right):
            return None
        names = (self.names[0] or other.names[0], self.names[1] or other.names[1])
        return _Sum(
            self.left + other.left,
            self.right + other.right,
            names,
            self.constant + other.constant,
            self.size + other.size,
            self.computed or other.computed,
        )


@dataclass(frozen=True, slots=True)
class _Bounds:
    """Bounds of ``d``; `strict`: they are excluded."""

    least: Fraction | None = None
    most: Fraction | None = None
    strict: bool = False


def read_comparison(scope: Scope, condition: Tree) -> Comparison | None:
    """Read a residual condition that bounds the difference of two columns; None if it is anything else."""
    if not isinstance(condition, Form) or condition.head not in {"<", "<=", ">", ">="}:
        return None
    first, second = condition.trees
    inner = inside_call(first, "ABS(")
    left, right = folded(inner or first, _read), folded(second, _read)
    zero = left and right and left.plus(right.negated())
    if left is None or right is None or not zero or zero.left * zero.right != -1:
        return None
    if not inner:
        return _typed(scope, zero, _solve(zero, condition.head))
    if condition.head in {">", ">="} or right.left or right.right:
        return None
    return _typed(scope, zero, _within(left, right.constant, strict=condition.head == "<"))


def _read(node: Tree, parts: list[_Sum | None]) -> _Sum | None:
    """Read a sum of columns and constants; `parts` are the sums of its trees."""
    if isinstance(node, ColumnRef):
        is_left = node.side == "l"
        return _Sum(left=1, names=(node.name, "")) if is_left else _Sum(right=1, names=("", node.name))
    if isinstance(node, Constant):
        return _constant(node)
    first, last = (parts[0], parts[-1]) if parts else (None, None)
    if not isinstance(node, Form) or node.head not in {"(", "NEG", "+", "-"} or first is None or last is None:
        return None
    if node.head == "(":
        return first
    total = (
        first.negated() if node.head == "NEG" else first.plus(last if node.head == "+" else last.negated())
    )
    return total and replace(total, computed=bool(total.left or total.right))


def _constant(literal: Constant) -> _Sum | None:
    """Read a plain number; one with an exponent is a DOUBLE in Spark and causes rounding."""
    if literal.kind != "number" or not _PLAIN_NUMBER.fullmatch(literal.text):
        return None
    value = Fraction(literal.text)
    return _Sum(constant=value, size=abs(value))


def _solve(zero: _Sum, operator: str) -> _Bounds:
    if zero.left < 0:
        zero, operator = zero.negated(), MIRROR[operator]
    strict = operator in {"<", ">"}
    if operator in {"<", "<="}:
        return _Bounds(most=-zero.constant, strict=strict)
    return _Bounds(least=-zero.constant, strict=strict)


def _within(inner: _Sum, far: Fraction, *, strict: bool) -> _Bounds:
    middle = -inner.constant * inner.left
    return _Bounds(middle - far, middle + far, strict)


def _typed(scope: Scope, zero: _Sum, bounds: _Bounds) -> Comparison | None:
    """Fit the bounds to the types of the columns; None for types that are not compared here."""
    sides = zip(("l", "r"), zero.names, strict=True)
    kinds = [scope.side(side).stream.type_of(name) for side, name in sides]
    if set(kinds) <= set(_WHOLE_BITS):
        return _whole(zero, bounds, min(_overflow_limit(kind, zero) for kind in kinds))
    if kinds[0] == kinds[1] and kinds[0] in TIME_TYPES and not zero.computed and not zero.size:
        return _whole(zero, bounds, _LARGEST_LONG // 2)
    if set(kinds) <= {*_WHOLE_BITS, *FLOATING_TYPES}:
        return _rounded(zero, bounds, kinds)
    return None


def _overflow_limit(kind: str, zero: _Sum) -> int:
    """Return the largest column value for which no step of the computation overflows."""
    bits = _WHOLE_BITS[kind] if zero.computed else _WHOLE_BITS["bigint"]
    return ((1 << bits) - 1 - ceil(zero.size)) // 2


def _whole(zero: _Sum, bounds: _Bounds, limit: int) -> Comparison | None:
    least, most = bounds.least, bounds.most
    if limit < 0:
        return None
    return Comparison(
        *zero.names,
        None if least is None else floor(least) + 1 if bounds.strict else ceil(least),
        None if most is None else ceil(most) - 1 if bounds.strict else floor(most),
        (limit, limit),
    )


def _rounded(zero: _Sum, bounds: _Bounds, kinds: list[str]) -> Comparison:
    """Bound floating numbers with more slack than any order of rounding needs."""
    first, second = (_overflow_limit(kind, zero) if kind in _WHOLE_BITS else None for kind in kinds)
    return Comparison(
        *zero.names,
        None if bounds.least is None else float(bounds.least),
        None if bounds.most is None else float(bounds.most),
        (first, second),
        slack=_ROUNDING_SHARE["float" in kinds],
        size=float(zero.size),
    )
