"""Which expressions are equal: a number for each, the same for all ways to write it (`penstock.sql.bind.canonical`).

Every part of an expression may be the one that another expression is equal to, so that parts are numbered too, each
once::

    GROUP BY A.n + 1          l.n -> 0   1 -> 1   0 + 1 -> 2
    SELECT ((a.N) + 1) * 2    l.n -> 0   1 -> 1   0 + 1 -> 2   2 -> 3   2 * 3 -> 4

In:  resolved trees.  Out: numbers; the time it takes is that of reading each part once, however deep they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.sql.bind.canonical import tidied
from penstock.sql.trampoline import run
from penstock.sql.text.tree import Form

if TYPE_CHECKING:
    from collections.abc import Generator

    from penstock.sql.bind.canonical import Types
    from penstock.sql.text.tree import Tree


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
