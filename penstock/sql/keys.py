"""The equalities of a join and the types they are compared as.

Both sides of an equality are hashed into buckets, so they must have one type before they are hashed.  Where
the types are declared they are known; of an expression sqlglot often knows the family (a whole number, a
text), which is enough, because a wider type of the same family compares the same.  Where nothing is known,
Spark will check.

In:  the two sides of an equality, resolved and canonical.
Out: a `Key`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types

from penstock.sql.canonical import show, show_bare
from penstock.sql.query import Key
from penstock.sql.spark_types import TypeTextError, common_type, normal_type

if TYPE_CHECKING:
    from penstock.sql.names import Scope

_WIDEST = {
    "tinyint": "bigint",
    "smallint": "bigint",
    "int": "bigint",
    "bigint": "bigint",
    "float": "double",
    "double": "double",
}


def make_key(scope: Scope, left: exp.Expr, right: exp.Expr, at: exp.Expr) -> Key:
    """Make the key of ``left = right``; `at` is the whole equality, for errors."""
    return Key(show_bare(left), show_bare(right), _key_type(scope, left, right, at))


def _key_type(scope: Scope, left: exp.Expr, right: exp.Expr, at: exp.Expr) -> str:
    """Give the type to cast both sides to, or nothing where that is not needed or not known."""
    exact = [_exact_type(scope, side) for side in (left, right)]
    first, second = (
        each or _inferred_type(scope, side) for each, side in zip(exact, (left, right), strict=True)
    )
    if not first or not second:
        return ""
    common = common_type(first, second)
    if common is None:
        if not all(exact):
            return ""
        raise scope.error(_mismatch(scope, (left, first), (right, second)), at)
    certain = all(exact) or common not in _WIDEST
    return "" if certain and first == second else common


def _mismatch(scope: Scope, left: tuple[exp.Expr, str], right: tuple[exp.Expr, str]) -> str:
    """Say which two things cannot be compared."""
    named = {side: scope.side(side).alias for side in ("l", "r")}
    sides = [
        f"{named['l']}.{show_bare(left[0])} is {left[1]}",
        f"{named['r']}.{show_bare(right[0])} is {right[1]}",
    ]
    if scope.inputs[0].side == "r":
        sides.reverse()
    hint = "a MAP cannot be compared" if "map<" in " ".join(sides) else "CAST one of them"
    return f"cannot join on these: {sides[0]} and {sides[1]}; {hint}"


def _exact_type(scope: Scope, side: exp.Expr) -> str:
    """Give the type of a plain column or of a cast; empty for anything else."""
    if isinstance(side, exp.Column):
        return _declared(scope, side)
    if isinstance(side, exp.Cast):
        return _normal(side.to)
    return ""


def _declared(scope: Scope, column: exp.Column) -> str:
    """Look up a resolved column."""
    found = scope.side("l" if column.table == "l" else "r").stream.column(column.name)
    return found.type if found else ""


def _normal(kind: exp.DataType) -> str:
    """Write sqlglot's type our way; empty where it is none of Spark's."""
    try:
        return normal_type(kind.sql(dialect="spark"))
    except TypeTextError:
        return ""


def _inferred_type(scope: Scope, side: exp.Expr) -> str:
    """Ask sqlglot for the type of an expression, trusting it with the family only.

    Decimals are left to Spark: their digits follow rules of their own.
    """
    typed = exp.Alias(this=side.copy())
    for column in list(typed.find_all(exp.Column)):
        column.replace(
            exp.cast(exp.column(column.name), _declared(scope, column) or "string", dialect="spark")
        )
    try:
        tree = annotate_types(sqlglot.parse_one(show(typed.this), dialect="spark"), dialect="spark")
    except (SqlglotError, ValueError):
        return ""
    found = _normal(tree.type) if tree.type else ""
    if "decimal" in show(typed.this).lower() or any("." in each.name for each in side.find_all(exp.Literal)):
        return "" if found in _WIDEST or "decimal" in found else found
    return _WIDEST.get(found, found)
