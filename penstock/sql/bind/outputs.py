"""The SELECT list: the names and expressions of the result's columns.

``*`` is every column of every stream in the order of FROM.  A repeated name is qualified by the alias of its stream:
``SELECT A.Value, B.Value`` gives ``Value`` and ``B_Value``.  An expression without a name is called by its own text.

In:  the items of a SELECT list.
Out: `OutputColumn`s over the columns of sides, or `Entry`s where the items are groups and aggregates.
True: no two names are equal, ignoring case as Spark does; expressions keep the user's words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from penstock.sql.bind.scope import Scope
from penstock.sql.query import RESERVED_NAMES, OutputColumn, Remainder, is_reserved
from penstock.sql.spark_types import WHOLE_TYPES
from penstock.sql.text.select import Item
from penstock.sql.text.tokens import Span
from penstock.sql.text.tree import ColumnRef, Constant, Form, Tree, show, unquoted, unwrapped


@dataclass(frozen=True, slots=True)
class Entry:
    """A column of the result: its name, its tree, and the alias that may qualify the name (empty: none)."""

    name: str
    tree: Tree
    qualifier: str
    span: Span


def make_outputs(scope: Scope, items: Sequence[Item]) -> tuple[tuple[OutputColumn, ...], list[Tree]]:
    """Return the outputs and their trees."""
    entries = list_entries(scope, items)
    names = unique_names(scope, entries)
    return (
        tuple(make_output(name, entry.tree) for name, entry in zip(names, entries, strict=True)),
        [entry.tree for entry in entries],
    )


def list_entries(scope: Scope, items: Sequence[Item]) -> list[Entry]:
    """Resolve the items of a SELECT list, each star as its columns."""
    return [entry for item in items for entry in _entries(scope, item)]


def make_output(name: str, tree: Tree) -> OutputColumn:
    """Build an output of a resolved tree."""
    bare = unwrapped(tree)
    return OutputColumn(name, show(tree), (bare.side, bare.name) if isinstance(bare, ColumnRef) else None)


def _entries(scope: Scope, item: Item) -> Iterator[Entry]:
    """Return the columns of one item."""
    if isinstance(item.tree, Form) and item.tree.head == "STAR":
        for where, column in scope.star(item.tree):
            yield Entry(column.name, where.column(column, item.span), where.alias, item.span)
    elif item.alias is not None:
        yield Entry(item.alias, scope.resolve(item.tree), "", item.span)
    else:
        yield _unnamed(scope, item)


def _unnamed(scope: Scope, item: Item) -> Entry:
    """Name a column by itself, a field by its last part, and an expression by its text."""
    tree = unwrapped(scope.resolve(item.tree))
    if isinstance(tree, ColumnRef):
        return Entry(tree.name, tree, scope.side(tree.side).alias, item.span)
    if isinstance(tree, Form) and tree.head == ".":
        return Entry(unquoted(str(tree.parts[-1])[1:]), tree, "", item.span)
    return Entry(" ".join(item.text.split()), tree, "", item.span)


def unique_names(scope: Scope, entries: Sequence[Entry]) -> list[str]:
    """Qualify repeated names, and refuse those that are still repeated."""
    taken: dict[str, str] = {}
    for entry in entries:
        name = entry.name
        if name.lower() in taken and entry.qualifier:
            name = f"{entry.qualifier}_{name}"
        if name.lower() in taken:
            message = f"two columns of the result are called {name}: give one another name with AS"
            raise scope.source.error(message, entry.span)
        if is_reserved(name):
            message = f"a column of the result is called {name}: {RESERVED_NAMES} with AS"
            raise scope.source.error(message, entry.span)
        taken[name.lower()] = name
    return list(taken.values())


_FORMS = frozenset({"%", "MOD(", "PMOD("})
_MAX_INT, _MAX_BIGINT = (1 << 31) - 1, (1 << 63) - 1


def remainder_of(tree: Tree, type_of: Callable[[ColumnRef], str]) -> Remainder | None:
    """Read ``column % constant``, or the same as a function; None if a tree is anything else."""
    form = unwrapped(tree)
    if not isinstance(form, Form) or form.head not in _FORMS or len(form.trees) != 2:  # noqa: PLR2004 - operands
        return None
    column, constant = map(unwrapped, form.trees)
    if not isinstance(column, ColumnRef) or type_of(column) not in WHOLE_TYPES:
        return None
    if not isinstance(constant, Constant) or constant.kind != "number":
        return None
    digits = constant.text.removesuffix("L")
    if not (digits.isascii() and digits.isdecimal() and 0 < int(digits) <= _MAX_BIGINT):
        return None
    wide = digits != constant.text or int(digits) > _MAX_INT
    return Remainder(column.side, column.name, int(digits), wide=wide, floored=form.head == "PMOD(")
