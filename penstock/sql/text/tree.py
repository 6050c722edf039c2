"""Expressions as trees that can be written out again word by word.

A tree keeps what the user wrote and adds what Spark's grammar says about it: which words belong together, and which of
them are columns.  There are four kinds::

    Name      A.v                  a name as written, not yet resolved
    ColumnRef l.v                  a column of one of the two streams
    Constant  30  'x'  DATE'...'   anything without parts of its own, written as it is; also a variable of a lambda
    Form      (l.v) > (30)         words, and the trees that stand between them

A `Form` says by its `head` what it is: an operator (``AND``, ``=``, ``IN``), a call (``LOWER(``), brackets (``(``).

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
    """Write a name as it must stand in Spark SQL, in backquotes only where needed.

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
    """A name of one or more parts, as written; `span` is where."""

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

    `kind` is number, string, interval, typed (``DATE '...'``), word or variable.
    """

    text: str
    kind: str = "word"
    span: Span = field(default=(0, 0), compare=False)

    @property
    def negative(self) -> bool:
        """Say whether it begins with a sign, which must not meet another."""
        return self.text.startswith("-")


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """Words and trees in the order in which they are written.

    `needs` says, for each of the trees, how tightly it must bind to stand there without brackets.
    """

    head: str
    parts: tuple[str | Tree, ...]
    rank: int = TIGHTEST
    needs: tuple[int, ...] = ()
    span: Span = (0, 0)

    @property
    def trees(self) -> tuple[Tree, ...]:
        """Give the trees among the parts."""
        return tuple(part for part in self.parts if not isinstance(part, str))

    def with_trees(self, trees: tuple[Tree, ...]) -> Form:
        """Give the same form with other trees."""
        others = iter(trees)
        return replace(self, parts=tuple(p if isinstance(p, str) else next(others) for p in self.parts))


Tree = Name | ColumnRef | Constant | Form


def rank_of(tree: Tree) -> int:
    """Say how tightly a tree binds."""
    if isinstance(tree, Form):
        return tree.rank
    return SIGN if isinstance(tree, Constant) and tree.negative else TIGHTEST


def binary(operator: str, rank: int, left: Tree, right: Tree) -> Form:
    """Make ``left operator right``, which groups from the left."""
    span = (span_of(left)[0], span_of(right)[1])
    # a chain of comparisons is read from the left too, but nobody would guess so
    least = rank + 1 if rank == COMPARISON else rank
    return Form(operator, (left, f" {operator} ", right), rank, (least, rank + 1), span)


def chain(operator: str, operands: list[Tree]) -> Tree:
    """Hold trees together by ``AND`` or ``OR``; a single one stands alone."""
    if len(operands) == 1:
        return operands[0]
    rank = AND if operator == "AND" else OR
    parts: list[str | Tree] = [operands[0]]
    for each in operands[1:]:
        parts += [f" {operator} ", each]
    span = (span_of(operands[0])[0], span_of(operands[-1])[1])
    return Form(operator, tuple(parts), rank, (rank + 1,) * len(operands), span)


def span_of(tree: Tree) -> Span:
    """Say where a tree stands in the text."""
    return tree.span


def unwrapped(tree: Tree) -> Tree:
    """Take the brackets off a tree."""
    while isinstance(tree, Form) and tree.head == "(":
        (tree,) = tree.trees
    return tree


def cast_type(tree: Tree) -> str:
    """Give the type that a tree is cast to, as written; empty if it is no cast."""
    if isinstance(tree, Form) and tree.head in {"CAST(", "TRY_CAST("}:
        return str(tree.parts[2]).removeprefix(" AS ")
    return str(tree.parts[1]).removeprefix("::") if isinstance(tree, Form) and tree.head == "::" else ""


def show(tree: Tree, column: Callable[[ColumnRef], str] | None = None) -> str:
    """Write a tree as Spark SQL on one line.

    >>> show(binary("*", PRODUCT, binary("+", SUM, ColumnRef("l", "v"), Constant("1")), ColumnRef("r", "order")))
    '(l.v + 1) * r.`order`'
    """
    pieces: list[str] = []
    run(_write(tree, pieces, column or _qualified))
    return "".join(pieces)


def show_bare(tree: Tree) -> str:
    """Write a tree over one stream with its columns bare, without ``l.`` or ``r.``."""
    return show(tree, lambda column: quoted(column.name))


def _qualified(column: ColumnRef) -> str:
    return f"{column.side}.{quoted(column.name)}"


def _write(
    tree: Tree, pieces: list[str], column: Callable[[ColumnRef], str]
) -> Generator[Generator[Any, Any, None], None, None]:
    if isinstance(tree, ColumnRef):
        pieces.append(column(tree))
    elif isinstance(tree, Name):
        pieces.append(".".join(map(quoted, tree.parts)))
    elif isinstance(tree, Constant):
        pieces.append(tree.text)
    else:
        needs = iter(tree.needs)
        for part in tree.parts:
            if isinstance(part, str):
                pieces.append(part)
                continue
            bracketed = rank_of(part) < next(needs, LOOSEST)
            pieces.append("(" * bracketed)
            yield _write(part, pieces, column)
            pieces.append(")" * bracketed)


def nodes(tree: Tree) -> Iterator[Tree]:
    """Walk a tree and all that it is made of, from left to right, each before its parts."""
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
    """Say which sides a resolved tree reads."""
    return {column.side for column in columns_of(tree)}


def rebuilt(tree: Tree, change: Callable[[Tree], Tree]) -> Tree:
    """Change a tree from the leaves up: each node is given with its parts changed already."""
    return run(_rebuild(tree, change))


def _rebuild(tree: Tree, change: Callable[[Tree], Tree]) -> Generator[Generator[Any, Any, Tree], Tree, Tree]:
    if not isinstance(tree, Form):
        return change(tree)
    trees = []
    for each in tree.trees:
        trees.append((yield _rebuild(each, change)))  # noqa: PERF401 - a comprehension cannot yield
    return change(tree.with_trees(tuple(trees)))


Result = TypeVar("Result")
Deep = "Generator[Generator[Any, Any, Any], Any, Result]"
"""What a function that recurses like this gives; called with `run`, it gives its result."""


def run(call: Generator[Generator[Any, Any, Any], Any, Result]) -> Result:
    """Give the result of a deep function.

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
    final: Result = result
    return final


_MARK = "AGGREGATE "


_FILTER = " FILTER (WHERE "


def aggregate_form(
    function: str, arguments: Sequence[str | Tree], condition: Tree | None, *, distinct: bool, span: Span
) -> Form:
    """Make the call of an aggregate; the argument of ``COUNT(*)`` is a word and no tree."""
    filtered: list[str | Tree] = [_FILTER, condition, ")"] if condition else []
    opening = f"{function}({'DISTINCT ' * distinct}"
    return Form(f"{_MARK}{function}(", (opening, *arguments, ")", *filtered), span=span)


def is_aggregate(tree: Tree) -> bool:
    """Say whether a tree is the call of an aggregate."""
    return isinstance(tree, Form) and tree.head.startswith(_MARK)


def has_aggregate(tree: Tree) -> bool:
    """Say whether there is an aggregate in a tree."""
    return any(map(is_aggregate, nodes(tree)))
