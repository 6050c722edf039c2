"""Remainders: ``k % 64`` of a column of whole numbers, by which many group, is taken without Spark SQL.

Every whole number has one by a positive constant, of a type that is known, so it can be computed wherever the column
is: of pairs that no Spark SQL sees, as their plain columns are.

In:  a resolved tree.  Out: the `Remainder` that it is, or None.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.sql.query import Remainder
from penstock.sql.text.tree import Column, Constant, Form, unwrapped

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.sql.text.tree import Tree

_WHOLE = frozenset({"tinyint", "smallint", "int", "bigint"})
_FORMS = frozenset({"%", "MOD(", "PMOD("})
_MOST_INT, _MOST_BIGINT = (1 << 31) - 1, (1 << 63) - 1


def remainder_of(tree: Tree, type_of: Callable[[Column], str]) -> Remainder | None:
    """Read ``column % constant``, or the same as a function; None if a tree is anything else."""
    form = unwrapped(tree)
    if not isinstance(form, Form) or form.head not in _FORMS or len(form.trees) != 2:  # noqa: PLR2004 - operands
        return None
    column, constant = map(unwrapped, form.trees)
    if not isinstance(column, Column) or type_of(column) not in _WHOLE:
        return None
    if not isinstance(constant, Constant) or constant.kind != "number":
        return None
    digits = constant.text.removesuffix("L")
    if not (digits.isascii() and digits.isdecimal() and 0 < int(digits) <= _MOST_BIGINT):
        return None
    wide = digits != constant.text or int(digits) > _MOST_INT
    return Remainder(column.side, column.name, int(digits), wide=wide, floored=form.head == "PMOD(")
