"""Predicates that Arrow answers as Spark does: columns of numbers compared with numbers.

Exactness is a question of types.  Whole numbers are compared with whole numbers as they are, and a DOUBLE with any
number as a DOUBLE, which both engines round to alike; but Spark takes NaN for the largest number of all::

    v > 80          v > 80, or v is NaN             v < 80          as it is: no comparison of NaN is true
    v = 80          as it is                        v <> 80         as it is: NaN differs from every number

Whatever is not listed here (text, FLOAT, DECIMAL, arithmetic, functions) is for Spark.

In:  the text of a predicate over one stream.  Out: a `RowTest` that tasks can be told, or None.
True: a test has the three values of SQL, null where a column is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from penstock.sql.canonical import MIRROR
from penstock.sql.deep import run
from penstock.sql.parse import parse_text
from penstock.sql.tree import Constant, Form, Name, unwrapped

if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

    from penstock.sql.query import Stream
    from penstock.sql.tree import Tree

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


class RowTest(Protocol):
    """A question about each row of a batch."""

    def ask(self, rows: pa.RecordBatch) -> pa.Array:
        """Answer it: true, false or null."""

    def columns(self) -> set[str]:
        """Name the columns that it reads."""


@dataclass(frozen=True, slots=True)
class Compared:
    """A column compared with a number of its own kind."""

    column: str
    operator: str
    number: int | float

    def ask(self, rows: pa.RecordBatch) -> pa.Array:
        """Compare."""
        values = rows.column(self.column)
        if isinstance(self.number, int):
            return _COMPARISONS[self.operator](values.cast(pa.int64()), pa.scalar(self.number, pa.int64()))
        answers = _COMPARISONS[self.operator](values, pa.scalar(self.number, pa.float64()))
        return pc.or_(answers, pc.is_nan(values)) if self.operator in {">", ">="} else answers

    def columns(self) -> set[str]:
        """Name the column."""
        return {self.column}


@dataclass(frozen=True, slots=True)
class IsNull:
    """Whether a column is null, or is not."""

    column: str
    wanted: bool

    def ask(self, rows: pa.RecordBatch) -> pa.Array:
        """Look."""
        values = rows.column(self.column)
        return values.is_null() if self.wanted else values.is_valid()

    def columns(self) -> set[str]:
        """Name the column."""
        return {self.column}


@dataclass(frozen=True, slots=True)
class Connected:
    """Tests held together by AND or OR."""

    operator: str
    tests: tuple[RowTest, ...]

    def ask(self, rows: pa.RecordBatch) -> pa.Array:
        """Ask all of them."""
        answers, *more = (each.ask(rows) for each in self.tests)
        for each in more:
            answers = _CONNECTORS[self.operator](answers, each)
        return answers

    def columns(self) -> set[str]:
        """Name the columns of all."""
        return {name for each in self.tests for name in each.columns()}


@dataclass(frozen=True, slots=True)
class Negated:
    """The opposite of a test."""

    test: RowTest

    def ask(self, rows: pa.RecordBatch) -> pa.Array:
        """Ask the opposite."""
        return pc.invert(self.test.ask(rows))

    def columns(self) -> set[str]:
        """Name the columns of the test."""
        return self.test.columns()


def plain_test(predicate: str, stream: Stream) -> RowTest | None:
    """Read a predicate; None if only Spark can answer it.

    >>> from penstock.sql.query import Column, Stream
    >>> stream = Stream("S", (Column("v", "double"), Column("s", "string")), time="", options=())
    >>> plain_test("80 < v", stream)
    Compared(column='v', operator='>', number=80.0)
    >>> plain_test("s = 'x'", stream)
    """
    tree = parse_text(predicate)
    return None if tree is None else run(_read(tree, stream))


def _read(tree: Tree, stream: Stream) -> Generator[Any, Any, RowTest | None]:
    tree = unwrapped(tree)
    if not isinstance(tree, Form):
        return None
    if tree.head in {"IS NULL", "IS NOT NULL"}:
        name = _column(tree.trees[0], stream)
        return IsNull(name, tree.head == "IS NULL") if name else None
    if tree.head not in {"AND", "OR", "NOT"}:
        return _compared(tree, stream)
    tests = []
    for each in tree.trees:
        tests.append((yield _read(each, stream)))
        if tests[-1] is None:
            return None
    return Negated(tests[0]) if tree.head == "NOT" else Connected(tree.head, tuple(tests))


def _compared(tree: Form, stream: Stream) -> Compared | None:
    """Read a comparison of a column and a number, in whichever order they stand."""
    operator = _SAME.get(tree.head, tree.head)
    if operator not in _COMPARISONS:
        return None
    left, right = map(unwrapped, tree.trees)
    if isinstance(left, Constant):
        left, right, operator = right, left, MIRROR.get(operator, operator)
    name = _column(left, stream)
    declared = stream.column(name) if name else None
    number = _number(right, declared.type) if declared and isinstance(right, Constant) else None
    return None if number is None else Compared(name, operator, number)


def _column(tree: Tree, stream: Stream) -> str:
    """Name the column that a tree is; empty if it is something else."""
    tree = unwrapped(tree)
    column = stream.column(tree.parts[0]) if isinstance(tree, Name) and len(tree.parts) == 1 else None
    return column.name if column else ""


def _number(literal: Constant, kind: str) -> int | float | None:
    """Read a number as it is compared with a column of some type; None where that may round or has to be cast."""
    if literal.kind != "number":
        return None
    if kind in _WHOLE:
        return int(literal.text) if _WHOLE_NUMBER.fullmatch(literal.text) else None
    return float(literal.text) if kind == "double" and _NUMBER.fullmatch(literal.text) else None
