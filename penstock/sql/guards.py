"""Which texts over one stream may be evaluated where others are, for every row.

Predicates and keys reach the engine as texts.  Beside each other in one projection, Spark computes what they have in
common first and once; that must not bring forward what stands behind a guard.

In:  a text over the bare columns of a stream.  Out: what holds of it for every row; False where it cannot be read.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from penstock.sql.text.parser import parse_text
from penstock.sql.bind.safety import cannot_fail
from penstock.sql.text.tree import Column, Constant, Form, Name, rebuilt

if TYPE_CHECKING:
    from penstock.sql.query import Stream
    from penstock.sql.text.tree import Tree

_STRICT_FORMS = frozenset(
    {"(", "=", "<>", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "DIV", "NEG", "::", ".", "[", "NOT"}
)
_LAZY_FUNCTIONS = frozenset({"IF(", "IFF(", "COALESCE(", "NVL(", "NVL2(", "IFNULL(", "NULLIF(", "DECODE("})
"""Forms that evaluate all they are made of, and functions that do not."""


@lru_cache(maxsize=4096)
def always_succeeds(text: str, stream: Stream) -> bool:
    """Say whether a text has a value for every row."""
    tree = _parsed(text, stream)
    return tree is not None and _succeeds(tree, stream)


@lru_cache(maxsize=4096)
def guards_nothing(text: str, stream: Stream) -> bool:
    """Say whether Spark evaluates all of a text for every row, so that no part of it can be brought forward.

    ``f(s) > 5`` is such a text, also if f may fail; ``x = 0 OR 10 / x > 1`` is not, nor is ``y > 10 / x``: where y is
    NULL, Spark does not look at x.
    """
    tree = _parsed(text, stream)
    while isinstance(tree, Form) and not _succeeds(tree, stream):
        if not (tree.head in _STRICT_FORMS or (tree.head.endswith("(") and tree.head not in _LAZY_FUNCTIONS)):
            return False
        operands = tree.trees or (Constant("NULL"),)
        if not all(isinstance(each, Constant) for each in operands[1:]):
            return all(_succeeds(each, stream) for each in operands)
        tree = operands[0]
    return tree is not None


def _parsed(text: str, stream: Stream) -> Tree | None:
    """Read a text, its names as columns of a stream; None if it cannot be read."""
    tree = parse_text(text)
    return None if tree is None else rebuilt(tree, lambda node: _column(node, stream))


def _column(node: Tree, stream: Stream) -> Tree:
    """Make a column of its name."""
    column = stream.column(node.parts[0]) if isinstance(node, Name) and len(node.parts) == 1 else None
    return Column("l", column.name) if column else node


def _succeeds(tree: Tree, stream: Stream) -> bool:
    """Say whether a tree over one stream cannot fail."""
    types = {column.name: column.type for column in stream.columns}
    return cannot_fail(tree, lambda column: types[column.name])
