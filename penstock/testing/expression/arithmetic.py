"""Arithmetic with Spark's result types, in ANSI mode.

    whole numbers   the wider type; beyond it the evaluation fails
    floating        FLOAT with FLOAT stays so, all else becomes DOUBLE; a division by zero fails
    decimals        more digits, as far as 38; then digits behind the point are rounded away, but six
    a / b           of whole numbers is DOUBLE; b is evaluated before a

In:  nodes of numbers.  Out: a node; `Refusal` for anything else.
"""

from __future__ import annotations

import math
import operator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.errors import RunError
from penstock.sql.spark_types import SparkType
from penstock.testing.expression.casts import cast
from penstock.testing.expression.coercion import alike, are_numbers, as_decimal, has_floating
from penstock.testing.expression.nodes import BIGINT, DOUBLE, Refusal, constant, made, strict
from penstock.testing.expression.values import EXACT, FLOATING, WHOLE, fitted, in_range, single

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from decimal import Decimal

    from penstock.testing.expression.nodes import Node, Row, Settings

_MOST_DIGITS, _LEAST_SCALE, _ROUNDED_DIGITS = 38, 6, 34
_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
_OF_NUMBERS: dict[str, Callable[[Any, Any], Any]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}
_BY_ZERO = {"/": "Division by zero (DIVIDE_BY_ZERO)", "%": "Remainder by zero (REMAINDER_BY_ZERO)"}
_OF_DECIMALS = {
    "+": EXACT.add,
    "-": EXACT.subtract,
    "*": EXACT.multiply,
    "/": EXACT.divide,
    "%": EXACT.remainder,
}


def calculate(head: str, left: Node, right: Node, settings: Settings) -> Node:
    """Make ``left + right``, or another of ``+ - * / % DIV``, of numbers."""
    nodes = [left, right]
    if not are_numbers(nodes):
        raise Refusal(f"only Spark computes {left.kind} {head} {right.kind}")
    if head != "DIV" and any(node.kind.name == "decimal" for node in nodes) and not has_floating(nodes):
        return _of_decimals(head, nodes, settings)
    if head == "/":
        return _divided(head, DOUBLE, operator.truediv, [cast(node, DOUBLE, settings) for node in nodes])
    if head == "DIV":
        return _whole_quotient(nodes, settings)
    nodes = alike(nodes, settings)
    kind = nodes[0].kind
    if head == "%":
        return _divided(head, kind, _floating_remainder if kind.name in FLOATING else _remainder, nodes)
    if kind.name in FLOATING:
        return strict(kind, _kept(_OF_NUMBERS[head], kind), nodes)
    return _chained(head, strict(kind, _kept(_OF_NUMBERS[head], kind), nodes, fails=True), nodes)


def _kept(function: Callable[..., Any], kind: SparkType) -> Callable[..., Any]:
    """Keep the results of a function in a type: whole numbers fail out of range, floats are rounded."""
    if kind.name == "double":
        return function
    if kind.name == "float":
        return lambda *values: single(function(*values))
    name = {"int": "integer", "bigint": "long"}.get(kind.name, kind.name)

    def in_type(*values: int) -> int:
        result: int = function(*values)
        if not in_range(result, kind):
            raise RunError(f"{name} overflow (ARITHMETIC_OVERFLOW)")
        return result

    return in_type


def _whole_quotient(nodes: Sequence[Node], settings: Settings) -> Node:
    """Make ``left DIV right`` of whole numbers: a BIGINT, cut towards zero."""
    if not {node.kind.name for node in nodes} <= {*WHOLE, "void"}:
        raise Refusal("only Spark divides with DIV what is no whole number")

    def quotient(dividend: int, divisor: int) -> int:
        size = abs(dividend) // abs(divisor)
        return size if (dividend < 0) == (divisor < 0) else -size

    operands = [cast(node, BIGINT, settings) for node in nodes]
    return replace(_divided("/", BIGINT, _kept(quotient, BIGINT), operands), fails=True)


def _chained(head: str, node: Node, nodes: Sequence[Node]) -> Node:
    """Count the constants of a sum or product: Spark puts several together, and then fails for other rows."""
    if node.constant or head == "-":
        return node
    constants = sum(each.constant + each.chain[1] * (each.chain[0] == head) for each in nodes)
    if constants > 1:
        raise Refusal("Spark computes with its constants first: write them as one")
    return replace(node, chain=(head, constants))


def _floating_remainder(dividend: float, divisor: float) -> float:
    return math.nan if math.isinf(dividend) else math.fmod(dividend, divisor)


def _remainder(dividend: int, divisor: int) -> int:
    """Give the remainder, which has the sign of the dividend."""
    rest = abs(dividend) % abs(divisor)
    return -rest if dividend < 0 else rest


def _divided(head: str, kind: SparkType, function: Callable[[Any, Any], Any], nodes: Sequence[Node]) -> Node:
    """Divide: the divisor is evaluated first, and no zero is divided by unless the dividend is NULL."""
    dividend, divisor = nodes
    if dividend.is_null or divisor.is_null:
        return constant(kind, None)

    def of(row: Row) -> Any:
        below = divisor.of(row)
        above = None if below is None else dividend.of(row)
        if above is None:
            return None
        if below == 0:
            raise RunError(_BY_ZERO[head])
        return function(above, below)

    return made(kind, of, nodes, fails=not (divisor.constant and divisor.value != 0))


def _of_decimals(head: str, nodes: Sequence[Node], settings: Settings) -> Node:
    """Compute with decimals."""
    kinds = [as_decimal(node) for node in nodes]
    if SparkType("void") in kinds:
        raise Refusal("only Spark knows the type of a decimal and NULL")
    (p, s), (q, t) = (kind.digits if kind.name == "decimal" else (_DIGITS[kind.name], 0) for kind in kinds)
    kind = _decimal_type(head, p, s, q, t)
    operands = [
        cast(node, SparkType("decimal", digits), settings)
        for node, digits in zip(nodes, ((p, s), (q, t)), strict=True)
    ]
    compute = _OF_DECIMALS[head]

    def function(left: Decimal, right: Decimal) -> Decimal:
        return fitted(compute(left, right), kind)

    if head in {"/", "%"}:
        return replace(_divided(head, kind, function, operands), fails=True)
    return strict(kind, function, operands, fails=True)


def _decimal_type(head: str, p: int, s: int, q: int, t: int) -> SparkType:
    """Give the digits of a result, as Spark's table has it."""
    scale = {"*": s + t, "/": max(_LEAST_SCALE, s + q + 1)}.get(head, max(s, t))
    digits = {
        "*": p + q + 1,
        "/": p - s + t + scale,
        "%": min(p - s, q - t) + scale,
    }.get(head, max(p - s, q - t) + scale + 1)
    if digits > _MOST_DIGITS:
        scale = max(_MOST_DIGITS - (digits - scale), min(scale, _LEAST_SCALE))
        digits = _MOST_DIGITS
    return SparkType("decimal", (digits, scale))


def kept(node: Node) -> Node:
    """Make ``+node``."""
    if not are_numbers([node]):
        raise Refusal(f"only Spark knows what it is of {node.kind}")
    return replace(node, literal=False)


def negated(node: Node) -> Node:
    """Make ``-node``."""
    return _of_one(node, operator.neg, EXACT.minus)


def absolute(node: Node) -> Node:
    """Make ``ABS(node)``."""
    return _of_one(node, abs, EXACT.abs)


def _of_one(node: Node, function: Callable[[Any], Any], of_decimal: Callable[[Decimal], Decimal]) -> Node:
    """Make a number of the same type; Spark rounds decimals to 34 digits here."""
    kind = node.kind
    if not are_numbers([node]) or (kind.name == "decimal" and kind.digits[0] > _ROUNDED_DIGITS):
        raise Refusal(f"only Spark knows what it is of {kind}")
    used = of_decimal if kind.name == "decimal" else _kept(function, kind)
    return strict(kind, used, [node], fails=kind.name in WHOLE)
