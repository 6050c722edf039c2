"""The canonical spelling of conditions: equal conditions become equal texts.

Two queries share a predicate bit, or a whole join, when their texts are equal here.  The rules change the spelling and
never the meaning, also where values are NULL::

    v != 30                   v <> 30             one spelling of each operator
    v NOT IN (2, 1)           NOT v IN (1, 2)     one place for NOT; literals of one kind in order
    ((v)) + (1)               v + 1               brackets where they are needed only

    30 < v                    v > 30              the constant stands on the right

Spark evaluates from the left, so these rules move only expressions that cannot fail (`penstock.sql.bind.safety`)::

    b = a                     a = b               the lesser text stands on the left
    v BETWEEN 1 AND 2         v >= 1 AND v <= 2   shares a bit with v >= 1
    x OR (y OR x)             x OR y              AND and OR flattened, sorted, without repeats

In:  trees whose columns are resolved (`penstock.sql.bind.scope`), and the types of the columns.
Out: trees; `penstock.sql.text.tree.show` gives their text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from penstock.sql.bind.safety import cannot_fail, is_steady
from penstock.sql.text.tokens import Span
from penstock.sql.text.tree import (
    COMPARISON,
    ColumnRef,
    Constant,
    Form,
    Tree,
    binary,
    chain,
    columns_of,
    folded,
    negation,
    rebuilt,
    show,
    unwrapped,
)

Types = Callable[[ColumnRef], str]
"""How to look up the type of a column."""

MIRROR = {"=": "=", "<>": "<>", "<=>": "<=>", "<": ">", ">": "<", "<=": ">=", ">=": "<="}
"""Comparisons, and what each becomes when its sides are exchanged."""

_QUANTIFIERS = (" ALL", " ANY", " SOME")
"""Tests whose NOT stays in place: ``s NOT LIKE ALL (...)`` negates every pattern by itself."""
SPELLINGS = {"==": "=", "!=": "<>", "!>": "<=", "!<": ">="}
"""Second spellings of comparisons."""


def canonical(tree: Tree, type_of: Types) -> Tree:
    """Return the canonical spelling of a tree."""
    return unwrapped(rebuilt(tree, lambda node: tidied(node, type_of)))


def conjuncts(tree: Tree) -> Iterator[Tree]:
    """Walk the operands of AND from left to right, without brackets."""
    waiting = [tree]
    while waiting:
        part = unwrapped(waiting.pop())
        if isinstance(part, Form) and part.head == "AND":
            waiting.extend(reversed(part.trees))
        else:
            yield part


def affirmed(tree: Tree) -> Iterator[Tree]:
    """Walk the conjuncts of a tree, also those behind NOT: ``NOT (x OR y)`` is NOT x and NOT y."""
    waiting = [tree]
    while waiting:
        part = unwrapped(waiting.pop())
        inner = unwrapped(part.trees[0]) if isinstance(part, Form) and part.head == "NOT" else None
        if isinstance(inner, Form) and inner.head == "NOT":
            waiting.append(inner.trees[0])
        elif isinstance(inner, Form) and inner.head == "OR":
            waiting.extend(negation(operand, operand.span) for operand in reversed(inner.trees))
        elif isinstance(part, Form) and part.head == "AND":
            waiting.extend(reversed(part.trees))
        else:
            yield part


def tidied(node: Tree, type_of: Types) -> Tree:
    """Rewrite a node whose trees are rewritten already."""
    if not isinstance(node, Form):
        return node
    if node.head in SPELLINGS:
        node = replace(binary(SPELLINGS[node.head], COMPARISON, *node.trees), span=node.span)
    if node.head.startswith(("NOT ", "IS NOT ")) and not node.head.endswith(_QUANTIFIERS):
        return negation(tidied(_affirmed(node), type_of), node.span)
    rule = _RULES.get(node.head)
    return rule(node, type_of) if rule else node


def _bare(node: Form, _: Types) -> Tree:
    return node.trees[0]


def _affirmed(node: Form) -> Form:
    """Take the NOT out of ``x NOT IN (...)`` and ``x IS NOT NULL``."""
    head = node.head.replace("NOT ", "", 1)
    value, test, *more = node.parts
    return replace(node, head=head, parts=(value, str(test).replace("NOT ", "", 1), *more))


def _oriented(node: Form, type_of: Types) -> Form:
    """Put the constant on the right; without one, put the lesser text on the left."""
    left, right = node.trees
    if _side_order(left) <= _side_order(right):
        return node
    # Spark does not look at the right side where the left is NULL
    if not is_value(left) and not all(cannot_fail(side, type_of) for side in (left, right)):
        return node
    return replace(binary(MIRROR[node.head], COMPARISON, right, left), span=node.span)


def is_value(tree: Tree) -> bool:
    """Check whether a tree is a literal other than NULL."""
    return isinstance(tree, Constant) and tree.kind in {"number", "string", "typed", "interval"}


def _side_order(side: Tree) -> tuple[bool, str]:
    return next(columns_of(side), None) is None, show(side)


def _flattened(node: Form, type_of: Types) -> Tree:
    operands: list[Tree] = []
    for part in node.trees:
        operands += part.trees if isinstance(part, Form) and part.head == node.head else [part]
    return _in_order(node.head, operands, node.span, type_of)


def _in_order(connector: str, operands: list[Tree], span: Span, type_of: Types) -> Tree:
    """Sort operands and drop repeats, if none of them can fail."""
    if all(cannot_fail(operand, type_of) for operand in operands):
        texts = {show(operand): operand for operand in operands}
        operands = [texts[text] for text in sorted(texts)]
    return replace(chain(connector, operands), span=span)


def _halved(node: Form, type_of: Types) -> Tree:
    """Split ``x BETWEEN a AND b`` into two comparisons, if x may be evaluated twice."""
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
    """Return whole or string for literals that may be sorted; Spark may depend on the order of others."""
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
"""The rule for each kind of form."""


class Identities:
    """Numbers expressions over columns of known types; equal expressions have the same number."""

    def __init__(self, type_of: Types) -> None:
        self._type_of = type_of
        # by id; keeping each tree keeps its id unique
        self._canonical: dict[int, tuple[Tree, Tree]] = {}
        self._numbers: dict[int, tuple[Tree, int]] = {}
        self._known: dict[object, int] = {}

    def number(self, tree: Tree) -> int:
        if id(tree) not in self._canonical:
            folded(tree, self._rewrite)
        return self._number(self._canonical[id(tree)][1])

    def _rewrite(self, node: Tree, trees: list[Tree]) -> Tree:
        """Return the canonical form of a node whose trees are rewritten already, and number it."""
        canonical = tidied(node.with_trees(trees) if isinstance(node, Form) else node, self._type_of)
        self._canonical[id(node)] = node, canonical
        self._number(canonical)
        return canonical

    def _number(self, tree: Tree) -> int:
        if id(tree) not in self._numbers:
            key: object = tree
            if isinstance(tree, Form):
                parts = (part if isinstance(part, str) else self._number(part) for part in tree.parts)
                key = (tree.head, *parts)
            self._numbers[id(tree)] = tree, self._known.setdefault(key, len(self._known))
        return self._numbers[id(tree)][1]
