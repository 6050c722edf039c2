"""Expressions as trees that can be written out again word by word.

A tree keeps the user's words and adds what Spark's grammar says about them: which words belong together, and which of
them are columns.  There are four kinds of node::

    Name      A.v                  a name as written, not yet resolved
    ColumnRef l.v                  a column of one stream of the query
    Constant  30  'x'  DATE'...'   a text without parts, kept as written; also a variable of a lambda
    Form      (l.v) > (30)         words, and the trees that stand between them

The `head` of a `Form` names it: an operator (``AND``, ``=``, ``IN``), a call (``LOWER(``), brackets (``(``).

In:  tokens, through `penstock.sql.text.parser`.
Out: text (`show`), which Spark reads as the same tree: an operand that binds less tightly than its operator needs
     gets brackets.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from penstock.sql.query import Side
from penstock.sql.text.tokens import Span

LOOSEST, OR, AND, NOT, PREDICATE, COMPARISON = range(6)
BIT_OR, BIT_XOR, BIT_AND, SHIFT, SUM, PRODUCT, SIGN, TIGHTEST = range(6, 14)
"""How tightly each kind of operator binds, by Spark's grammar; a predicate is ``x IN (...)`` and the like."""

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED_WORDS = """
    all and anti any array as asc at authorization between both by case cast check collate column
    constraint create cross current_date current_time current_timestamp current_user desc distinct
    div else end escape except exists false fetch filter for foreign from full grant group having
    ilike in inner intersect interval into is join lateral leading left like limit localtime localtimestamp map
    minus natural not null on only or order outer overlaps primary references regexp right rlike select
    semi session_user set some struct table then to trailing true union unique user using values when where with within
"""
_RESERVED = frozenset(_RESERVED_WORDS.split())
"""Names written in backquotes: where Spark would read a column anyway, quotes do no harm."""


def quoted(name: str) -> str:
    """Write a name for Spark SQL, in backquotes only where needed.

    >>> quoted("Value"), quoted("order"), quoted("a.b"), quoted("a`b")
    ('Value', '`order`', '`a.b`', '`a``b`')
    """
    plain = _PLAIN.fullmatch(name) and name.lower() not in _RESERVED
    return name if plain else always_quoted(name)


def always_quoted(name: str) -> str:
    """Write a name in backquotes."""
    return "`" + name.replace("`", "``") + "`"


def unquoted(text: str) -> str:
    """Read a name that may be in backquotes."""
    return text[1:-1].replace("``", "`") if text.startswith("`") else text


@dataclass(frozen=True, slots=True)
class Name:
    """A name of one or more parts, as written; `span` is its position."""

    parts: tuple[str, ...]
    span: Span = field(default=(0, 0), compare=False)


@dataclass(frozen=True, slots=True)
class ColumnRef:
    """A column of one side, in its declared spelling."""

    side: Side
    name: str
    span: Span = field(default=(0, 0), compare=False)


@dataclass(frozen=True, slots=True)
class Constant:
    """A text that Spark reads as one value: a literal, a keyword such as NULL, or the variable of a lambda.

    `kind` is number, string, interval, typed (``DATE '...'``), word, variable, call or answer.
    """

    text: str
    kind: str = "word"
    span: Span = field(default=(0, 0), compare=False)


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """Words and trees in the order in which they are written.

    `needs` has a rank for each of the trees: a tree that binds less tightly gets brackets.
    """

    head: str
    parts: tuple[str | Tree, ...]
    rank: int = TIGHTEST
    needs: tuple[int, ...] = ()
    span: Span = (0, 0)

    @property
    def trees(self) -> tuple[Tree, ...]:
        return tuple(part for part in self.parts if not isinstance(part, str))

    def with_trees(self, trees: Sequence[Tree]) -> Form:
        """Return the same form with other trees."""
        others = iter(trees)
        return replace(
            self, parts=tuple(part if isinstance(part, str) else next(others) for part in self.parts)
        )


Tree = Name | ColumnRef | Constant | Form


def rank_of(tree: Tree) -> int:
    """Return how tightly a tree binds; a number with a sign must not meet another sign."""
    if isinstance(tree, Form):
        return tree.rank
    return SIGN if isinstance(tree, Constant) and tree.text.startswith("-") else TIGHTEST


def binary(operator: str, rank: int, left: Tree, right: Tree) -> Form:
    """Build ``left operator right``, which groups from the left."""
    # Spark reads a chain of comparisons from the left too, but brackets make that visible
    least = rank + 1 if rank == COMPARISON else rank
    span = (left.span[0], right.span[1])
    return Form(operator, (left, f" {operator} ", right), rank, (least, rank + 1), span)


def chain(operator: str, operands: Sequence[Tree]) -> Tree:
    """Connect trees by ``AND`` or ``OR``; a single one stands alone."""
    first, *others = operands
    if not others:
        return first
    rank = AND if operator == "AND" else OR
    parts: list[str | Tree] = [first]
    for operand in others:
        parts += [f" {operator} ", operand]
    span = (first.span[0], others[-1].span[1])
    return Form(operator, tuple(parts), rank, (rank + 1,) * len(operands), span)


def negation(operand: Tree, span: Span) -> Form:
    """Build ``NOT operand``."""
    return Form("NOT", ("NOT ", operand), NOT, (NOT,), span)


def unwrapped(tree: Tree) -> Tree:
    """Take the brackets off a tree."""
    while isinstance(tree, Form) and tree.head == "(":
        (tree,) = tree.trees
    return tree


def cast_type(tree: Tree) -> str:
    """Return the type that a tree is cast to, as written; empty if it is no cast."""
    if isinstance(tree, Form) and tree.head in {"CAST(", "TRY_CAST("}:
        return str(tree.parts[2]).removeprefix(" AS ")
    return str(tree.parts[1]).removeprefix("::") if isinstance(tree, Form) and tree.head == "::" else ""


def inside_call(tree: Tree, opening: str) -> Tree | None:
    """Return the only argument of a call such as ``ABS(``; None if a tree is anything else."""
    is_call = isinstance(tree, Form) and tree.parts[0] == opening and len(tree.trees) == 1
    return tree.trees[0] if is_call and isinstance(tree, Form) else None


# --- writing ----------------------------------------------------------------------------------------------------


def show(tree: Tree, column: Callable[[ColumnRef], str] | None = None) -> str:
    """Write a tree as Spark SQL on one line.

    >>> show(binary("*", PRODUCT, binary("+", SUM, ColumnRef("l", "v"), Constant("1")), ColumnRef("r", "order")))
    '(l.v + 1) * r.`order`'
    """
    pieces: list[str] = []
    waiting: list[str | Tree] = [tree]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Form):
            waiting.extend(reversed(_with_brackets(part)))
        elif isinstance(part, ColumnRef):
            pieces.append(column(part) if column else f"{part.side}.{quoted(part.name)}")
        elif isinstance(part, Name):
            pieces.append(".".join(map(quoted, part.parts)))
        else:
            pieces.append(part.text if isinstance(part, Constant) else part)
    return "".join(pieces)


def show_bare(tree: Tree) -> str:
    """Write a tree over one stream with its columns bare, without ``l.`` or ``r.``."""
    return show(tree, lambda column: quoted(column.name))


def _with_brackets(form: Form) -> list[str | Tree]:
    """List the parts of a form, with brackets around those that bind too loosely."""
    parts: list[str | Tree] = []
    needs = iter(form.needs)
    for part in form.parts:
        needs_brackets = not isinstance(part, str) and rank_of(part) < next(needs, LOOSEST)
        parts += ["(", part, ")"] if needs_brackets else [part]
    return parts


# --- walking ----------------------------------------------------------------------------------------------------


def nodes(tree: Tree) -> Iterator[Tree]:
    """Walk all nodes of a tree from left to right, each before its parts."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, Form):
            waiting.extend(reversed(node.trees))


def columns_of(tree: Tree) -> Iterator[ColumnRef]:
    """Walk the columns of a resolved tree."""
    return (node for node in nodes(tree) if isinstance(node, ColumnRef))


def sides_of(tree: Tree) -> set[Side]:
    """Return the sides that a resolved tree reads."""
    return {column.side for column in columns_of(tree)}


Value = TypeVar("Value")


def folded(tree: Tree, combine: Callable[[Tree, list[Value]], Value]) -> Value:
    """Compute a value from the leaves up: `combine` gets each node and the values of its trees.

    >>> folded(binary("+", SUM, Constant("1"), Constant("2")), lambda node, sizes: 1 + sum(sizes))
    3
    """
    waiting, parents_first = [tree], list[Tree]()
    while waiting:
        node = waiting.pop()
        parents_first.append(node)
        waiting.extend(node.trees if isinstance(node, Form) else ())
    values: list[Value] = []
    for node in reversed(parents_first):
        first = len(values) - (len(node.trees) if isinstance(node, Form) else 0)
        values[first:] = [combine(node, values[first:])]
    return values[0]


def rebuilt(tree: Tree, change: Callable[[Tree], Tree]) -> Tree:
    """Change a tree from the leaves up: `change` gets each node with its parts changed already."""
    return folded(
        tree, lambda node, trees: change(node.with_trees(trees) if isinstance(node, Form) else node)
    )


def run(call: Generator[Generator[Any, Any, Any], Any, Value]) -> Value:
    """Return the result of a recursive generator, which yields its inner calls; so the depth has no limit.

    >>> def size(tree):
    ...     sizes = []
    ...     for child in tree:
    ...         sizes.append((yield size(child)))
    ...     return 1 + sum(sizes)
    >>> run(size([[], [[]]]))
    4
    """
    calls: list[Generator[Any, Any, Any]] = [call]
    result: Any = None
    while calls:
        try:
            inner = calls[-1].send(result)
        except StopIteration as done:
            calls.pop()
            result = done.value
        else:
            calls.append(inner)
            result = None
    final: Value = result
    return final


# --- aggregates -------------------------------------------------------------------------------------------------

AGGREGATE_MARK = "AGGREGATE "
FILTER_WORDS = " FILTER (WHERE "


def aggregate_form(
    function: str, arguments: Sequence[str | Tree], condition: Tree | None, *, distinct: bool, span: Span
) -> Form:
    """Build the call of an aggregate; the argument of ``COUNT(*)`` is a word and no tree."""
    filtered: list[str | Tree] = [FILTER_WORDS, condition, ")"] if condition else []
    opening = f"{function}({'DISTINCT ' * distinct}"
    return Form(f"{AGGREGATE_MARK}{function}(", (opening, *arguments, ")", *filtered), span=span)


def is_aggregate(tree: Tree) -> bool:
    """Check whether a tree is the call of an aggregate."""
    return isinstance(tree, Form) and tree.head.startswith(AGGREGATE_MARK)


def has_aggregate(tree: Tree) -> bool:
    """Check whether there is an aggregate in a tree."""
    return any(map(is_aggregate, nodes(tree)))
