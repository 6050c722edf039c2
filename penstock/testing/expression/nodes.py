"""Expressions made ready to be evaluated row by row.

A `Node` has a type and a function of one row; a rule makes it of the nodes of its operands.  Besides the value a node
says what Spark's optimizer would ask of it, because Spark leaves out what it need not evaluate, and what is not
evaluated does not fail::

    constant    a value without columns: Spark computes it before it sees a row
    fails       its evaluation may fail for some row
    nullable    Spark takes it that it may be NULL
    chain       the operator of a sum or product of whole numbers, and how many constants are in it
    terms       the conditions that AND, OR and NOT make it of, as text
    unchecked   a date cast to a timestamp, without the check that it is one: it is not made beside a constant
    folded      a choice whose condition may fail between values that Spark may find equal once it computes with them

In:  nodes of operands.  Out: nodes; `Refusal` where only Spark knows.
True: a constant node was evaluated, and did not fail.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from penstock.errors import RunError
from penstock.sql.spark_types import SparkType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    Row = Sequence[Any]

VOID, BOOLEAN, STRING, BINARY = (SparkType(name) for name in ("void", "boolean", "string", "binary"))
INT, BIGINT, FLOAT, DOUBLE = (SparkType(name) for name in ("int", "bigint", "float", "double"))
DATE, TIMESTAMP, TIMESTAMP_NTZ = (SparkType(name) for name in ("date", "timestamp", "timestamp_ntz"))


class Refusal(Exception):  # noqa: N818 - it is caught, and told as a NeedsSparkError
    """Something that only Spark knows; the message says what."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the session that change what an expression means."""

    utc: bool
    ansi: bool


@dataclass(frozen=True, slots=True)
class Node:
    """A typed expression: `of` gives its value for a row, None for NULL."""

    kind: SparkType
    of: Callable[[Row], Any]
    text: str = ""
    constant: bool = False
    literal: bool = False
    fails: bool = False
    nullable: bool = True
    folded: bool = False
    chain: tuple[str, int] = ("", 0)
    terms: tuple[str, ...] = ()
    unchecked: Node | None = None

    @property
    def value(self) -> Any:
        """Give the value of a constant."""
        return self.of(())

    @property
    def is_null(self) -> bool:
        """Say whether it is a constant NULL."""
        return self.constant and self.value is None


def constant(kind: SparkType, value: Any, text: str = "", *, literal: bool = False) -> Node:
    """Make a node of one value."""
    return Node(kind, lambda _: value, text, constant=True, literal=literal, nullable=value is None)


def made(
    kind: SparkType,
    of: Callable[[Row], Any],
    nodes: Sequence[Node],
    *,
    fails: bool = False,
    nullable: bool | None = None,
) -> Node:
    """Make a node of its operands; a constant is evaluated at once."""
    if all(node.constant for node in nodes):
        try:
            return constant(kind, of(()))
        except RunError as error:
            raise Refusal(f"it fails for every row ({error}), if Spark evaluates it at all") from None
    refuse_folded(nodes)
    known = any(node.nullable for node in nodes) if nullable is None else nullable
    return Node(kind, of, fails=fails or any(node.fails for node in nodes), nullable=known)


def refuse_folded(nodes: Sequence[Node]) -> None:
    """Refuse to compute with the values of a choice where Spark may do so before it makes the choice."""
    if any(node.folded for node in nodes) and sum(not node.constant for node in nodes) == 1:
        raise Refusal("Spark may leave out a condition that can fail")


def strict(
    kind: SparkType, function: Callable[..., Any], nodes: Sequence[Node], *, fails: bool = False
) -> Node:
    """Make a node that is NULL where an operand is; operands behind the first NULL are not evaluated."""
    if any(node.is_null for node in nodes):
        return constant(kind, None)

    def of(row: Row) -> Any:
        values = []
        for node in nodes:
            value = node.of(row)
            if value is None:
                return None
            values.append(value)
        return function(*values)

    return made(kind, of, nodes, fails=fails)


def eager(kind: SparkType, function: Callable[..., Any], nodes: Sequence[Node]) -> Node:
    """Make a node that is given the values of all operands, NULL too."""
    return made(kind, lambda row: function(*[node.of(row) for node in nodes]), nodes)


def named(node: Node, text: str) -> Node:
    """Say how a node is written."""
    return replace(node, text=text)


def refuse_repeats(nodes: Iterable[Node], fails: bool) -> None:
    """Refuse equal operands where Spark may leave out what can fail."""
    texts = [node.text for node in nodes]
    if fails and len(set(texts)) < len(texts):
        raise Refusal("Spark may leave out what can fail where two operands are equal")
