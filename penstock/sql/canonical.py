"""One way to write each condition, so that equal conditions are equal texts.

Two queries share a predicate bit, or a whole join, when their texts are equal here.  The rules change the
writing and never the meaning, also where values are NULL::

    30 < v                    v > 30              the constant stands on the right
    b = a                     a = b               else the lesser text stands on the left
    v BETWEEN 1 AND 2         v >= 1 AND v <= 2   shares a bit with v >= 1
    x OR (y OR x)             x OR y              AND and OR flattened, sorted, without repeats
    ((v)) + (1)               v + 1               brackets where they are needed only

In:  trees whose columns are resolved (`penstock.sql.names`).
Out: trees (`canonical`) and their text (`show`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from penstock.sql.dialect import PlainSpark

if TYPE_CHECKING:
    from collections.abc import Iterator

MIRROR: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.EQ: exp.EQ,
    exp.NEQ: exp.NEQ,
    exp.NullSafeEQ: exp.NullSafeEQ,
    exp.NullSafeNEQ: exp.NullSafeNEQ,
    exp.LT: exp.GT,
    exp.GT: exp.LT,
    exp.LTE: exp.GTE,
    exp.GTE: exp.LTE,
}
"""Each comparison and what it becomes when its sides are exchanged."""

RANGE_TESTS = (exp.Is, exp.In, exp.Between, exp.Like, exp.ILike, exp.RegexpLike, exp.Escape)
"""Tests such as ``x IN (…)``, which Spark and sqlglot group differently beside a comparison."""

_COMPARISON = 4
_RANKS: dict[type[exp.Expr], int] = {
    exp.Or: 1,
    exp.And: 2,
    exp.Not: 3,
    **dict.fromkeys(MIRROR, _COMPARISON),
    **dict.fromkeys(RANGE_TESTS, _COMPARISON),
    exp.Add: 6,
    exp.Sub: 6,
    exp.Mul: 7,
    exp.Div: 7,
    exp.Mod: 7,
    exp.IntDiv: 7,
    exp.Neg: 8,
}
"""How tightly each operator binds."""
_TIGHTEST = 9
_CHAINS = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.IntDiv)
_BRACKETED = (exp.Anonymous, exp.Cast, exp.Case, exp.If, exp.Alias)
"""Parents that delimit their children anyway."""


def canonical(tree: exp.Expr) -> exp.Expr:
    """Give the one way to write this; the tree itself is left as it is."""
    holder = exp.Alias(this=tree.copy())
    _tidy(holder)
    _bracket(holder)
    found: exp.Expr = holder.this
    return found.pop()


def show(tree: exp.Expr) -> str:
    """Write a tree as Spark SQL on one line."""
    return tree.sql(dialect=PlainSpark, comments=False)


def show_bare(tree: exp.Expr) -> str:
    """Write a tree over one stream with its columns bare, without ``l.`` or ``r.``."""
    bare = exp.Alias(this=tree.copy())
    for column in bare.find_all(exp.Column):
        column.set("table", None)
    return show(bare.this)


def conjuncts(tree: exp.Expr) -> Iterator[exp.Expr]:
    """Give the parts that AND holds together, brackets taken off."""
    inner = tree.unnest()
    if isinstance(inner, exp.And):
        yield from conjuncts(inner.left)
        yield from conjuncts(inner.right)
    else:
        yield inner


def may_fail(node: exp.Expr) -> bool:
    """Say whether evaluating this may raise, as a division or a cast may."""
    risky = node.find_all(exp.Div, exp.IntDiv, exp.Mod, exp.Func, exp.Bracket)
    return any(not isinstance(each, exp.Connector) for each in risky)  # sqlglot counts AND as a function


def _tidy(node: exp.Expr) -> exp.Expr:
    """Rewrite from the leaves up, and give what now stands in the node's place."""
    for child in list(node.iter_expressions()):
        tidied = _tidy(child)
        if tidied is not child:
            child.replace(tidied)
    if isinstance(node, exp.Paren) and _brackets_are_idle(node):
        return node.unnest()
    if isinstance(node, exp.Between) and not node.args.get("symmetric"):
        return _tidy(_split_between(node))
    if type(node) in MIRROR:
        return _orient(node)
    if isinstance(node, (exp.And, exp.Or)):
        return _sort(node)
    if isinstance(node, exp.In) and node.expressions:
        node.set("expressions", _in_order(node.expressions))
    return node


def _brackets_are_idle(node: exp.Paren) -> bool:
    """Say whether `_bracket` will know by itself if these brackets are needed."""
    if isinstance(node.parent, _BRACKETED):
        return True
    return type(node.parent) in _RANKS and (type(node.this) in _RANKS or _rank(node.this) == _TIGHTEST)


def _split_between(node: exp.Between) -> exp.And:
    """Turn ``x BETWEEN a AND b`` into the two comparisons it stands for."""
    low = exp.GTE(this=node.this.copy(), expression=node.args["low"].copy())
    high = exp.LTE(this=node.this.copy(), expression=node.args["high"].copy())
    return exp.And(this=low, expression=high)


def _orient(node: exp.Expr) -> exp.Expr:
    """Put the constant on the right, or else the lesser text on the left."""
    left, right = node.this, node.expression
    if _side_order(left) <= _side_order(right):
        return node
    return MIRROR[type(node)](this=right.copy(), expression=left.copy())


def _side_order(side: exp.Expr) -> tuple[bool, str]:
    return side.find(exp.Column) is None, show(side)


def _sort(node: exp.And | exp.Or) -> exp.Expr:
    """Flatten a chain of one connector, sort it and drop repeats."""
    first, *others = _in_order(list(_operands(node, type(node))))
    for other in others:
        first = type(node)(this=first, expression=other)
    return first


def _operands(node: exp.Expr, kind: type[exp.Expr]) -> Iterator[exp.Expr]:
    """Walk the operands of nested ANDs, or nested ORs."""
    if isinstance(node, kind):
        yield from _operands(node.this, kind)
        yield from _operands(node.expression, kind)
    else:
        yield node.copy()


def _in_order(nodes: list[exp.Expr]) -> list[exp.Expr]:
    """Sort by text without repeats, plain tests first: ``x = 0 OR 1 / x > 2`` must not divide first."""
    texts = {show(each): each for each in nodes}
    return [texts[text] for text in sorted(texts, key=lambda text: (may_fail(texts[text]), text))]


def _bracket(node: exp.Expr) -> None:
    """Put brackets round every operand that binds less tightly than its operator."""
    for child in list(node.iter_expressions()):
        _bracket(child)
        if _needs_brackets(node, child):
            child.replace(exp.Paren(this=child.copy()))


def _needs_brackets(parent: exp.Expr, child: exp.Expr) -> bool:
    own = _RANKS.get(type(parent))
    if (
        own is None
        or isinstance(parent, exp.Escape)
        or (isinstance(parent, exp.In) and child.arg_key != "this")
    ):
        return False
    if _rank(child) != own:
        return _rank(child) < own
    chained = isinstance(parent, (*_CHAINS, exp.And, exp.Or)) and child.arg_key == "this"
    return not (chained or isinstance(parent, exp.Not))


def _rank(node: exp.Expr) -> int:
    """Say how tightly a tree binds; operators not in the table get brackets everywhere."""
    if type(node) in _RANKS:
        return _RANKS[type(node)]
    loose = isinstance(node, (exp.Binary, exp.Unary, exp.Predicate, exp.Lambda))
    return 0 if loose and not isinstance(node, (exp.Paren, exp.Dot)) else _TIGHTEST
