"""One way to write each condition, so that equal conditions are equal texts.

Two queries share a predicate bit, or a whole join, when their texts are equal here.  The rules change the writing and
never the meaning, also where values are NULL::

    v != 30                   v <> 30             one spelling of each operator
    v NOT IN (2, 1)           NOT v IN (1, 2)     one place for NOT; literals of one kind in order
    ((v)) + (1)               v + 1               brackets where they are needed only

    30 < v                    v > 30              the constant stands on the right

and these, only where what is moved cannot fail (`penstock.sql.bind.safety`), as Spark evaluates from the left::

    b = a                     a = b               the lesser text stands on the left
    v BETWEEN 1 AND 2         v >= 1 AND v <= 2   shares a bit with v >= 1
    x OR (y OR x)             x OR y              AND and OR flattened, sorted, without repeats

In:  trees whose columns are resolved (`penstock.sql.bind.scope`), and the types of the columns.
Out: trees; `penstock.sql.text.tree.show` gives their text.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from typing import Any

from penstock.sql.bind.safety import cannot_fail, is_steady
from penstock.sql.text.tokens import Span
from penstock.sql.text.tree import (
    COMPARISON,
    NOT,
    ColumnRef,
    Constant,
    Form,
    Tree,
    binary,
    chain,
    columns_of,
    rebuilt,
    run,
    show,
    unwrapped,
)

Types = Callable[[ColumnRef], str]
"""How to look up the type of a column."""

MIRROR = {"=": "=", "<>": "<>", "<=>": "<=>", "<": ">", ">": "<", "<=": ">=", ">=": "<="}
"""Each comparison and what it becomes when its sides are exchanged."""

_QUANTIFIERS = (" ALL", " ANY", " SOME")
"""What NOT stands before in ``s NOT LIKE ALL (...)``: each of the tests, and not all of them together."""
SPELLINGS = {"==": "=", "!=": "<>", "!>": "<=", "!<": ">="}
"""Comparisons that are another's second spelling."""


def canonical(tree: Tree, type_of: Types) -> Tree:
    """Give the one way to write this."""
    return unwrapped(rebuilt(tree, lambda node: tidied(node, type_of)))


def conjuncts(tree: Tree) -> Iterator[Tree]:
    """Give the parts that AND holds together, from left to right, brackets taken off."""
    waiting = [tree]
    while waiting:
        each = unwrapped(waiting.pop())
        if isinstance(each, Form) and each.head == "AND":
            waiting.extend(reversed(each.trees))
        else:
            yield each


def affirmed(tree: Tree) -> Iterator[Tree]:
    """Give the conjuncts of a tree, also those that it is by NOT: ``NOT (x OR y)`` is NOT x and NOT y."""
    waiting = [tree]
    while waiting:
        each = unwrapped(waiting.pop())
        inner = unwrapped(each.trees[0]) if isinstance(each, Form) and each.head == "NOT" else None
        if isinstance(inner, Form) and inner.head == "NOT":
            waiting.append(inner.trees[0])
        elif isinstance(inner, Form) and inner.head == "OR":
            waiting.extend(
                Form("NOT", ("NOT ", part), NOT, (NOT,), part.span) for part in reversed(inner.trees)
            )
        elif isinstance(each, Form) and each.head == "AND":
            waiting.extend(reversed(each.trees))
        else:
            yield each


def tidied(node: Tree, type_of: Types) -> Tree:
    """Rewrite a node whose parts are rewritten already."""
    if not isinstance(node, Form):
        return node
    if node.head in SPELLINGS:
        node = replace(binary(SPELLINGS[node.head], COMPARISON, *node.trees), span=node.span)
    if node.head.startswith(("NOT ", "IS NOT ")) and not node.head.endswith(_QUANTIFIERS):
        return Form("NOT", ("NOT ", tidied(_affirmed(node), type_of)), NOT, (NOT,), node.span)
    rule = _RULES.get(node.head)
    return rule(node, type_of) if rule else node


def _bare(node: Form, _: Types) -> Tree:
    """Take off brackets: they are put back where they are needed."""
    return node.trees[0]


def _affirmed(node: Form) -> Form:
    """Take the NOT out of ``x NOT IN (...)`` and ``x IS NOT NULL``."""
    head = node.head.replace("NOT ", "", 1)
    value, test, *more = node.parts
    return replace(node, head=head, parts=(value, str(test).replace("NOT ", "", 1), *more))


def _oriented(node: Form, type_of: Types) -> Form:
    """Put the constant on the right, or else the lesser text on the left."""
    left, right = node.trees
    if _side_order(left) <= _side_order(right):
        return node
    # Spark does not look at the right side where the left is NULL
    if not is_value(left) and not all(cannot_fail(side, type_of) for side in (left, right)):
        return node
    return replace(binary(MIRROR[node.head], COMPARISON, right, left), span=node.span)


def is_value(tree: Tree) -> bool:
    """Say whether a tree is a literal other than NULL."""
    return isinstance(tree, Constant) and tree.kind in {"number", "string", "typed", "interval"}


def _side_order(side: Tree) -> tuple[bool, str]:
    return next(columns_of(side), None) is None, show(side)


def _flattened(node: Form, type_of: Types) -> Tree:
    return _in_order(node.head, list(_operands(node)), node.span, type_of)


def _in_order(connector: str, operands: list[Tree], span: Span, type_of: Types) -> Tree:
    """Sort what a connector holds together and drop repeats, if nothing of it can fail."""
    if all(cannot_fail(each, type_of) for each in operands):
        texts = {show(each): each for each in operands}
        operands = [texts[text] for text in sorted(texts)]
    return replace(chain(connector, operands), span=span)


def _operands(node: Form) -> Iterator[Tree]:
    """Walk the operands of nested ANDs, or nested ORs."""
    for each in node.trees:
        if isinstance(each, Form) and each.head == node.head:
            yield from each.trees  # flattened already
        else:
            yield each


def _halved(node: Form, type_of: Types) -> Tree:
    """Turn ``x BETWEEN a AND b`` into the two comparisons it stands for, if x is the same when evaluated twice."""
    value, low, high = node.trees
    if not is_steady(value):
        return node
    halves: list[Tree] = [
        _oriented(replace(binary(operator, COMPARISON, value, end), span=node.span), type_of)
        for operator, end in ((">=", low), ("<=", high))
    ]
    return _in_order("AND", halves, node.span, type_of)


def _listed(node: Form, _: Types) -> Form:
    """Sort a list of literals of one kind, and drop repeats."""
    value, *items = node.trees
    kinds = {_kind(item) for item in items}
    if len(kinds) != 1 or not kinds <= {"whole", "string"}:
        return node
    texts = {show(item): item for item in items}
    parts: list[str | Tree] = []
    for text in sorted(texts):
        parts += [", ", texts[text]]
    return replace(node, parts=(value, " IN (", *parts[1:], ")"))


def _kind(item: Tree) -> str:
    """Tell whole numbers and strings apart from all else, whose order in a list may matter to Spark."""
    if not isinstance(item, Constant):
        return ""
    return "whole" if item.kind == "number" and item.text.lstrip("-").isdecimal() else item.kind


_RULES: dict[str, Callable[[Form, Types], Tree]] = {
    "(": _bare,
    **dict.fromkeys(MIRROR, _oriented),
    **dict.fromkeys(("AND", "OR"), _flattened),
    "BETWEEN": _halved,
    "IN": _listed,
}
"""What is done about each kind of form."""


class Identities:
    """Numbers expressions over columns of known types."""

    def __init__(self, type_of: Types) -> None:
        """Begin without any."""
        self._type_of = type_of
        self._canonical: dict[
            int, tuple[Tree, Tree]
        ] = {}  # by id; the tree is held so that its id stays its own
        self._numbers: dict[int, tuple[Tree, int]] = {}
        self._known: dict[object, int] = {}

    def number(self, tree: Tree) -> int:
        """Give the number of an expression: equal ones have the same."""
        return run(self._number(run(self._rewrite(tree))))

    def _rewrite(self, tree: Tree) -> Generator[Any, Any, Tree]:
        """Give the one way to write a tree."""
        if id(tree) in self._canonical:
            return self._canonical[id(tree)][1]
        node = tree
        if isinstance(tree, Form):
            trees = []
            for each in tree.trees:
                trees.append((yield self._rewrite(each)))  # noqa: PERF401 - a comprehension cannot yield
            node = tidied(tree.with_trees(tuple(trees)), self._type_of)
        self._canonical[id(tree)] = tree, node
        return node

    def _number(self, tree: Tree) -> Generator[Any, Any, int]:
        """Give the number of a canonical tree, which is that of its words and of its parts' numbers."""
        if id(tree) in self._numbers:
            return self._numbers[id(tree)][1]
        key: object = tree
        if isinstance(tree, Form):
            parts: list[str | int] = []
            for part in tree.parts:
                parts.append(part if isinstance(part, str) else (yield self._number(part)))  # noqa: PERF401 - see above
            key = (tree.head, *parts)
        number = self._known.setdefault(key, len(self._known))
        self._numbers[id(tree)] = tree, number
        return number
