"""The equalities of a join and the types they are compared as.

Both sides of an equality are hashed, so they must have one type before they are hashed.  The types of columns, of their
fields and of casts are known.  Of plain arithmetic and of a few functions the family is known (a whole number, a text),
which is enough: a wider type of the same family compares the same.  Where nothing is known, Spark will be asked.

In:  the two sides of an equality, resolved and canonical.
Out: a `Key`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.sql.graph import Key
from penstock.sql.spark_types import TypeTextError, common_type, parse_type
from penstock.sql.trampoline import run
from penstock.sql.text.tree import Column, Form, cast_type, show_bare, sides_of, unwrapped

if TYPE_CHECKING:
    from collections.abc import Generator

    from penstock.sql.bind.scope import Scope
    from penstock.sql.text.tree import Tree

_WIDEST_TYPE = {
    "tinyint": "bigint",
    "smallint": "bigint",
    "int": "bigint",
    "bigint": "bigint",
    "float": "double",
    "double": "double",
}
_TEXT_FUNCTIONS = {"LOWER(", "UPPER(", "TRIM(", "LTRIM(", "RTRIM("}


def make_key(scope: Scope, left: Tree, right: Tree, at: Tree) -> Key:
    """Make the key of ``left = right``; `at` is the whole equality, for errors."""
    return Key(show_bare(left), show_bare(right), _key_type(scope, left, right, at))


def _key_type(scope: Scope, left: Tree, right: Tree, at: Tree) -> str:
    """Give the type to cast both sides to, or nothing where that is not needed or not known."""
    exact = [exact_type(scope, side) for side in (left, right)]
    first, second = (
        kind or run(_family(scope, side)) for kind, side in zip(exact, (left, right), strict=True)
    )
    if not first or not second:
        return ""
    common = common_type(first, second)
    if common is None:
        if not all(exact):
            return ""
        raise scope.error(_mismatch(scope, (left, first), (right, second)), at)
    certain = all(exact) or common not in _WIDEST_TYPE
    return "" if certain and first == second else common


def _mismatch(scope: Scope, left: tuple[Tree, str], right: tuple[Tree, str]) -> str:
    sides = [
        f"{each.alias}.{show_bare(tree)} is {kind}"
        for each in scope.inputs
        for tree, kind in (left, right)
        if each.side in sides_of(tree)
    ]
    hint = "CAST one of them"
    if "collate" in left[1] + right[1]:
        hint = "write COLLATE behind one of them"
    never = next(
        (kind for kind in ("map", "variant") if any(_holds(each[1], kind) for each in (left, right))), ""
    )
    hint = f"a {never.upper()} cannot be compared" if never else hint
    return f"cannot join on these: {sides[0]} and {sides[1]}; {hint}"


def _holds(kind: str, name: str) -> bool:
    try:
        return parse_type(kind).holds(name)
    except TypeTextError:
        return False


def exact_type(scope: Scope, side: Tree) -> str:
    """Give the type of a column, of its fields, or of a cast; empty for anything else."""
    fields: list[str] = []
    while isinstance(side, Form) and side.head == ".":
        fields.append(str(side.parts[-1])[1:])
        (side,) = side.trees
    kind = scope.type_of(side) if isinstance(side, Column) else cast_type(side)
    try:
        exact = parse_type(kind)
        for each in reversed(fields):
            exact = exact.field(each)
    except TypeTextError:
        return ""
    return "string" if exact.name in {"char", "varchar"} else str(exact)


def _family(scope: Scope, side: Tree) -> Generator[Any, Any, str]:
    """Give a type wide enough for every value of an expression, if its family is known.

    Decimals are left to Spark: their digits follow rules of their own.
    """
    side = unwrapped(side)
    if not isinstance(side, Form) or side.head == "." or cast_type(side):
        kind = exact_type(scope, side) if not hasattr(side, "text") else _literal(side.text)
        return _WIDEST_TYPE.get(kind, kind)
    kinds = []
    for each in side.trees:
        kinds.append((yield _family(scope, each)))  # noqa: PERF401 - a comprehension cannot yield
    if side.head in _TEXT_FUNCTIONS and kinds == ["string"]:
        return "string"
    if side.head not in {"+", "-", "*", "/", "%", "NEG"} or not set(kinds) <= {"bigint", "double"}:
        return ""
    return "double" if "double" in kinds or side.head == "/" else "bigint"


def _literal(text: str) -> str:
    """Give the type of a literal that is a whole number small enough for an INT; empty for any other."""
    return "bigint" if text.lstrip("-").isdecimal() and len(text) < len("1234567890") else ""
