"""The SELECT list: what the result's columns are called and what they hold.

``*`` is every column of every stream in the order of FROM.  A name that is taken already is qualified by what
the query calls its stream: ``SELECT A.Value, B.Value`` gives ``Value`` and ``B_Value``.  Names are compared
as Spark compares them, ignoring case.

In:  the items of a SELECT list (an expression without a name is called by its own text).
Out: `Output`s over ``l.`` and ``r.`` columns.
True: no two names are equal, ignoring case; expressions are the user's, word by word.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.sql.query import RESERVED_NAMES, Output, is_reserved
from penstock.sql.tree import Column, Form, Tree, show, unquoted, unwrapped

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.sql.names import Scope
    from penstock.sql.shape import Item
    from penstock.sql.tokens import Span


@dataclass(frozen=True, slots=True)
class _Output:
    """One column to be: its name, its tree, and the alias to qualify it by (empty: it cannot be)."""

    name: str
    tree: Tree
    qualifier: str
    span: Span


def make_outputs(scope: Scope, items: Sequence[Item]) -> tuple[tuple[Output, ...], list[Tree]]:
    """Give the outputs, and their trees to see which columns they read."""
    outputs = [output for item in items for output in _outputs(scope, item)]
    names = _unique_names(scope, outputs)
    return (
        tuple(_plain(name, each.tree) for name, each in zip(names, outputs, strict=True)),
        [each.tree for each in outputs],
    )


def _plain(name: str, tree: Tree) -> Output:
    bare = unwrapped(tree)
    return Output(name, show(tree), (bare.side, bare.name) if isinstance(bare, Column) else None)


def _outputs(scope: Scope, item: Item) -> Iterator[_Output]:
    """Give the columns one entry of the list stands for."""
    if isinstance(item.tree, Form) and item.tree.head == "STAR":
        for where, column in scope.star(item.tree):
            yield _Output(column.name, where.column(column, item.span), where.alias, item.span)
    elif item.alias is not None:
        yield _Output(item.alias, scope.resolve(item.tree), "", item.span)
    else:
        yield _unnamed(scope, item)


def _unnamed(scope: Scope, item: Item) -> _Output:
    """Name a column by itself, a field by its last part, and an expression by its text."""
    tree = unwrapped(scope.resolve(item.tree))
    if isinstance(tree, Column):
        return _Output(tree.name, tree, scope.side(tree.side).alias, item.span)
    if isinstance(tree, Form) and tree.head == ".":
        return _Output(unquoted(str(tree.parts[-1])[1:]), tree, "", item.span)
    return _Output(" ".join(item.text.split()), tree, "", item.span)


def _unique_names(scope: Scope, outputs: Sequence[_Output]) -> list[str]:
    """Qualify names that are taken; what is still taken then is the user's to name."""
    taken: dict[str, str] = {}
    for output in outputs:
        name = output.name
        if name.lower() in taken and output.qualifier:
            name = f"{output.qualifier}_{name}"
        if name.lower() in taken:
            message = f"two columns of the result are called {name}: give one another name with AS"
            raise scope.source.error(message, output.span)
        if is_reserved(name):
            message = f"a column of the result is called {name}: {RESERVED_NAMES} with AS"
            raise scope.source.error(message, output.span)
        taken[name.lower()] = name
    return list(taken.values())
