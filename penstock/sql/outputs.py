"""The SELECT list: what the result's columns are called and what they hold.

``*`` is every column of every stream in the order of FROM.  A name that is taken already is qualified by what
the query calls its stream: ``SELECT A.Value, B.Value`` gives ``Value`` and ``B_Value``.  Names are compared
as Spark compares them, ignoring case.

In:  the SELECT list, as trees and as tokens (an expression without a name is called by its own text).
Out: `Output`s over ``l.`` and ``r.`` columns.
True: no two names are equal, ignoring case.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from penstock.sql.canonical import canonical, show
from penstock.sql.query import Output
from penstock.sql.tokens import depths, span_of_tokens

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.sql.names import Input, Scope
    from penstock.sql.tokens import Span


@dataclass(frozen=True, slots=True)
class _Item:
    """One column to be: its name, its tree, and the alias to qualify it by (empty: it cannot be)."""

    name: str
    tree: exp.Expr
    qualifier: str
    span: Span


def make_outputs(
    scope: Scope, select: exp.Select, tokens: Sequence[Token]
) -> tuple[tuple[Output, ...], list[exp.Expr]]:
    """Give the outputs, and their trees to see which columns they read."""
    texts = _split_list(tokens)
    if len(texts) != len(select.expressions) or not all(texts):
        message = "cannot read the SELECT list: it is columns and expressions separated by commas"
        raise scope.source.error(message, (tokens[0].start, tokens[0].end + 1))
    items = [
        item
        for tree, text in zip(select.expressions, texts, strict=True)
        for item in _items(scope, tree, text)
    ]
    names = _unique_names(scope, items)
    return (
        tuple(_output(name, item.tree) for name, item in zip(names, items, strict=True)),
        [item.tree for item in items],
    )


def _output(name: str, tree: exp.Expr) -> Output:
    column = ("l" if tree.table == "l" else "r", tree.name) if isinstance(tree, exp.Column) else None
    return Output(name, show(tree), column)  # type: ignore[arg-type]


def _split_list(tokens: Sequence[Token]) -> list[Sequence[Token]]:
    """Cut the SELECT list at its commas."""
    depth = depths(tokens)
    outside = [i for i in range(1, len(tokens)) if depth[i] == 0]
    end = next((i for i in outside if tokens[i].token_type == TokenType.FROM), len(tokens))
    begin = 1 if len(tokens) > 1 and tokens[1].token_type == TokenType.ALL else 0
    cuts = [begin, *(i for i in outside if tokens[i].token_type == TokenType.COMMA and i < end), end]
    return [tokens[start + 1 : stop] for start, stop in pairwise(cuts)]


def _items(scope: Scope, tree: exp.Expr, text: Sequence[Token]) -> Iterator[_Item]:
    """Give the columns one entry of the list stands for."""
    span = span_of_tokens(text)
    star = tree.this if isinstance(tree, exp.Column) else tree
    if isinstance(star, exp.Star):
        if any(star.args.values()):
            raise scope.source.error("* is every column and takes no EXCEPT: list the columns you want", span)
        yield from _expand(scope, tree, span)
    elif isinstance(tree, exp.Alias):
        yield _Item(tree.alias, _resolved(scope, tree.this), "", span)
    else:
        yield _unnamed(scope, tree, text, span)


def _expand(scope: Scope, tree: exp.Expr, span: Span) -> Iterator[_Item]:
    """Give the columns of ``*`` or ``A.*``; those of USING come first and once, as in Spark."""
    if isinstance(tree, exp.Column):
        if len(tree.parts) > len(("alias", "*")):
            raise scope.source.error("the fields of a struct cannot be listed by *: name them", span)
        yield from _columns(scope.input_called(tree.parts[0]), (), span)
        return
    first, second = scope.inputs
    for name in scope.using:
        yield from (each for each in _columns(first, (), span) if each.name.lower() == name)
    yield from _columns(first, scope.using, span)
    yield from _columns(second, scope.using, span)


def _columns(where: Input, without: Sequence[str], span: Span) -> Iterator[_Item]:
    for column in where.stream.columns:
        if column.name.lower() not in without:
            yield _Item(column.name, where.column(column), where.alias, span)


def _unnamed(scope: Scope, tree: exp.Expr, text: Sequence[Token], span: Span) -> _Item:
    """Name a column by itself, a field by its last part, and an expression by its text."""
    found = _resolved(scope, tree)
    if isinstance(found, exp.Column):
        qualifier = next(each.alias for each in scope.inputs if each.side == found.table)
        return _Item(found.name, found, qualifier, span)
    if isinstance(found, exp.Dot):
        return _Item(found.expression.name, found, "", span)
    return _Item(" ".join(scope.source.slice(text).split()), found, "", span)


def _resolved(scope: Scope, tree: exp.Expr) -> exp.Expr:
    return canonical(scope.resolve(tree))


def _unique_names(scope: Scope, items: Sequence[_Item]) -> list[str]:
    """Qualify names that are taken; what is still taken then is the user's to name."""
    taken: dict[str, str] = {}
    for item in items:
        name = item.name
        if name.lower() in taken and item.qualifier:
            name = f"{item.qualifier}_{name}"
        if name.lower() in taken:
            message = f"two columns of the result are called {name}: give one another name with AS"
            raise scope.source.error(message, item.span)
        taken[name.lower()] = name
    return list(taken.values())
