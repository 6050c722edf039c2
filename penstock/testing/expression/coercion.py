"""The type that operands of several types are brought to, as Spark does in ANSI mode.

In:  nodes.  Out: the same nodes, cast to one type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.sql.spark_types import SparkType, common_type, parse_type
from penstock.testing.expression.casts import cast
from penstock.testing.expression.nodes import VOID, Refusal
from penstock.testing.expression.values import FLOATING, NUMBERS, WHOLE, is_interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.testing.expression.nodes import Node, Settings

_LONG_DIGITS = 18


def compared(sides: Sequence[Node], settings: Settings) -> list[Node]:
    """Bring the two sides of a comparison to the type they are compared as."""
    left, right = sides
    names = {left.kind.name, right.kind.name}
    if is_interval(left.kind) and is_interval(right.kind):
        return [left, right]
    if "decimal" in names and "string" not in names:
        _refuse_huge_literal(left, right)
        _refuse_huge_literal(right, left)
        kind = widest([as_decimal(left), as_decimal(right)], settings)
        return [cast(node, kind, settings) for node in sides]
    return alike(sides, settings, strings=True)


def _refuse_huge_literal(literal: Node, other: Node) -> None:
    """Refuse a whole number beside a decimal that is beyond all of them: Spark answers without a look at the number."""
    digits = literal.kind.digits if literal.kind.name == "decimal" else (0, 0)
    if literal.constant and other.kind.name in WHOLE and digits[0] - digits[1] > _LONG_DIGITS:
        raise Refusal("it is compared with a decimal beyond BIGINT")


def as_decimal(node: Node) -> SparkType:
    """Give the type that a number has beside a decimal: a literal has the digits it is written with."""
    if node.literal and node.kind.name in {"smallint", "int", "bigint"}:
        return SparkType("decimal", (len(str(abs(node.value))), 0))
    return node.kind


def alike(nodes: Sequence[Node], settings: Settings, *, strings: bool = False) -> list[Node]:
    """Bring nodes to the one type that holds them all; a string beside another type only where `strings` says so."""
    kind = widest([node.kind for node in nodes], settings, strings=strings)
    return [cast(node, kind, settings) for node in nodes]


def widest(kinds: Sequence[SparkType], settings: Settings, *, strings: bool = False) -> SparkType:
    """Give the type that several are brought to."""
    kind = VOID
    for each in kinds:
        kind = _wider(kind, each, settings, strings=strings)
    return kind


def _wider(one: SparkType, other: SparkType, settings: Settings, *, strings: bool) -> SparkType:
    if other in {one, VOID}:
        return one
    if one == VOID:
        return other
    names = {one.name, other.name}
    common = common_type(str(one), str(other))
    if common is None or ("string" in names and not strings):
        return _refused(one, other)
    if not settings.ansi and "float" in names:
        return _refused(one, other)
    return parse_type(common)


def _refused(one: SparkType, other: SparkType) -> SparkType:
    raise Refusal(f"only Spark brings {str(one).upper()} and {str(other).upper()} to one type")


def are_numbers(nodes: Sequence[Node]) -> bool:
    """Say whether nodes are numbers, or NULL, but not all NULL."""
    kinds = {node.kind.name for node in nodes} - {"void"}
    return bool(kinds) and kinds <= set(NUMBERS)


def has_floating(nodes: Sequence[Node]) -> bool:
    """Say whether some node is a floating number."""
    return any(node.kind.name in FLOATING for node in nodes)
