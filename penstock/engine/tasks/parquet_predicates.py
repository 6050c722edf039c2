"""Predicates as Arrow expressions: columns of numbers compared with numbers, IS NULL, AND, OR and NOT.

Whole numbers are compared with whole numbers, and a DOUBLE with a number that is exact or is rounded alike by both
engines.  Spark orders NaN above all numbers, Arrow does not order it::

    v > 80, v >= 80       the comparison, or v is NaN
    v < 80, =, <>         the comparison alone: both engines agree

Spark evaluates all other predicates (text, FLOAT, DECIMAL, arithmetic, functions).

In:  the text of a predicate over one stream.  Out: an `ArrowColumn` with the three values of SQL, or None.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from penstock.sql.bind.canonical import MIRROR
from penstock.sql.text.parser import parse_text
from penstock.sql.text.tree import Constant, Form, Name, run, unwrapped

if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

    from penstock.sql.query import Stream
    from penstock.sql.text.tree import Tree

MOST_PREDICATE_CHARACTERS = 2000
"""Length of a predicate that Arrow evaluates.  It recurses, so this also bounds the depth of its stack."""

_WHOLE = frozenset({"tinyint", "smallint", "int", "bigint"})
_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,18}")
_NUMBER = re.compile(r"-?(?:[0-9]{1,15}(?:\.[0-9]{0,15})?|\.[0-9]{1,15})")
_COMPARISONS = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_SAME = {"==": "=", "!=": "<>"}
_CONNECTORS = {"AND": pc.and_kleene, "OR": pc.or_kleene}


@dataclass(frozen=True, slots=True)
class ArrowColumn:
    """An Arrow expression and the columns of the file that it reads."""

    expression: pc.Expression
    reads: frozenset[str] = frozenset()


def arrow_predicate(predicate: str, stream: Stream) -> ArrowColumn | None:
    """Build the expression of a predicate; None if only Spark can evaluate it.

    >>> from penstock.sql.query import Column, Stream
    >>> stream = Stream("S", (Column("v", "double"), Column("s", "string")), time="", options=())
    >>> arrow_predicate("80 > v", stream)
    ArrowColumn(expression=<pyarrow.compute.Expression (v < 80)>, reads=frozenset({'v'}))
    >>> arrow_predicate("s = 'x'", stream)
    """
    tree = parse_text(predicate) if len(predicate) <= MOST_PREDICATE_CHARACTERS else None
    return None if tree is None else run(_column(tree, stream))


def _column(tree: Tree, stream: Stream) -> Generator[Any, Any, ArrowColumn | None]:
    tree = unwrapped(tree)
    if not isinstance(tree, Form):
        return None
    if tree.head in {"IS NULL", "IS NOT NULL"}:
        name = _name(tree.trees[0], stream)
        test = pc.is_null if tree.head == "IS NULL" else pc.is_valid
        return ArrowColumn(test(pc.field(name)), frozenset({name})) if name else None
    if tree.head not in {"AND", "OR", "NOT"}:
        return _comparison(tree, stream)
    operands = []
    for operand in tree.trees:
        operands.append((yield _column(operand, stream)))
        if operands[-1] is None:
            return None
    expressions = [operand.expression for operand in operands]
    whole = pc.invert(*expressions) if tree.head == "NOT" else reduce(_CONNECTORS[tree.head], expressions)
    return ArrowColumn(whole, frozenset().union(*(operand.reads for operand in operands)))


def _comparison(tree: Form, stream: Stream) -> ArrowColumn | None:
    """Build the comparison of a column with a number, in whichever order they are written."""
    operator = _SAME.get(tree.head, tree.head)
    if operator not in _COMPARISONS:
        return None
    left, right = map(unwrapped, tree.trees)
    if isinstance(left, Constant):
        left, right, operator = right, left, MIRROR.get(operator, operator)
    name = _name(left, stream)
    declared = stream.column(name) if name else None
    number = _number(right, declared.type) if declared and isinstance(right, Constant) else None
    if number is None:
        return None
    column = pc.field(name) if pa.types.is_floating(number.type) else pc.field(name).cast(number.type)
    compared = _COMPARISONS[operator](column, number)
    if operator in {">", ">="} and pa.types.is_floating(number.type):
        compared = pc.or_kleene(compared, pc.is_nan(column))
    return ArrowColumn(compared, frozenset({name}))


def _name(tree: Tree, stream: Stream) -> str:
    """Return the name of the column that a tree is; empty if it is something else."""
    tree = unwrapped(tree)
    column = stream.column(tree.parts[0]) if isinstance(tree, Name) and len(tree.parts) == 1 else None
    return column.name if column else ""


def _number(literal: Constant, kind: str) -> pa.Scalar | None:
    """Read a number to compare with a column of a type; None where Spark would cast the column, or may round."""
    if literal.kind != "number":
        return None
    if kind in _WHOLE and _WHOLE_NUMBER.fullmatch(literal.text):
        return pa.scalar(int(literal.text), pa.int64())
    exact = kind == "double" and _NUMBER.fullmatch(literal.text)
    return pa.scalar(float(literal.text), pa.float64()) if exact else None
