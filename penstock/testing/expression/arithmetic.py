"""Arithmetic of numbers and times with Spark's result types, in ANSI mode.

    whole numbers   the wider type; an overflow fails
    floating        FLOAT with FLOAT stays FLOAT, all else is DOUBLE; a division by zero fails
    decimals        exact results of up to 38 digits; results that Spark rounds to fit are refused
    a / b           of whole numbers is DOUBLE
    times           moved by intervals, which are microseconds, in UTC

In:  nodes of numbers or times.  Out: a node; `Refusal` for anything else.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from penstock.sql.spark_types import SparkType
from penstock.testing.expression.casts import alike, are_numbers, as_decimal, cast
from penstock.testing.expression.node import (
    BIGINT,
    DATE,
    DAY_MICROS,
    DOUBLE,
    FLOATING,
    STAMPS,
    TIMESTAMP,
    WHOLE,
    Refusal,
    combine,
    duckdb_type,
    failure,
    is_interval,
    strict,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.testing.expression.node import EvaluationSettings, Node

MOST_DIGITS = 38
_LEAST_SCALE, _ROUNDED_DIGITS, _LEAST_WIDE_DIGITS = 6, 34, 19
_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
DAY_COUNTS = frozenset({"tinyint", "smallint", "int"})
ZONED = "it depends on the clock of the session's time zone, which is not UTC"
_BY_ZERO = {"%": "Remainder by zero (REMAINDER_BY_ZERO)"}


def calculate(head: str, left: Node, right: Node, settings: EvaluationSettings) -> Node:
    """Return ``left + right``, or another of ``+ - * / % DIV``, of numbers."""
    nodes = [left, right]
    if not are_numbers(nodes):
        raise Refusal(f"only Spark computes {left.kind} {head} {right.kind}")
    floating = any(node.kind.name in FLOATING for node in nodes)
    if head != "DIV" and not floating and any(node.kind.name == "decimal" for node in nodes):
        return _of_decimals(head, nodes, settings)
    if head == "/":
        return _divided(head, DOUBLE, "{0} / {1}", [cast(node, DOUBLE, settings) for node in nodes], right)
    if head == "DIV":
        if not {node.kind.name for node in nodes} <= {*WHOLE, "void"}:
            raise Refusal("only Spark divides with DIV what is no whole number")
        operands = [cast(node, BIGINT, settings) for node in nodes]
        return _divided(head, BIGINT, "{0} // {1}", operands, right)
    operands = alike(nodes, settings)
    kind = operands[0].kind
    if head == "%":
        return _divided(head, kind, "{0} % {1}", operands, right)
    return strict(kind, f"{{0}} {head} {{1}}", operands, fails=kind.name in WHOLE)


def _divided(head: str, kind: SparkType, template: str, nodes: Sequence[Node], divisor: Node) -> Node:
    """Divide: a zero divisor fails unless the dividend is NULL."""
    never_zero = isinstance(divisor.literal, int | float | Decimal) and divisor.literal != 0
    if divisor.constant and divisor.literal == 0 and divisor.literal is not None:
        raise Refusal("it divides by zero in every row")
    if never_zero:
        return strict(kind, template, nodes, fails=kind == BIGINT)
    zero = failure(_BY_ZERO.get(head, "Division by zero (DIVIDE_BY_ZERO)"))
    guarded = f"CASE WHEN {{1}} = 0 THEN CASE WHEN {{0}} IS NOT NULL THEN {zero} END ELSE {template} END"
    dividend, divider = nodes
    sql = guarded.format(dividend.sql, divider.sql)
    if dividend.fails:  # Spark evaluates the divisor first
        sql = f"CASE WHEN {divider.sql} IS NOT NULL THEN {sql} END"
    return combine(kind, f"({sql})", nodes, fails=True)


def _of_decimals(head: str, nodes: Sequence[Node], settings: EvaluationSettings) -> Node:
    """Compute with decimals."""
    kinds = [as_decimal(node) for node in nodes]
    if SparkType("void") in kinds:
        raise Refusal("only Spark knows the type of a decimal and NULL")
    (p, s), (q, t) = (kind.digits if kind.name == "decimal" else (_DIGITS[kind.name], 0) for kind in kinds)
    kind = _decimal_type(head, p, s, q, t)
    # DuckDB computes with the digits of the wider operand: 64 or 128 bits
    wide = max(p, _LEAST_WIDE_DIGITS) if kind.digits[0] >= _LEAST_WIDE_DIGITS else p
    operands = [
        cast(node, SparkType("decimal", (min(digits, MOST_DIGITS), scale)), settings)
        for node, digits, scale in zip(nodes, (p if head == "/" else wide, q), (s, t), strict=True)
    ]
    if head == "/":
        return _divided(head, kind, _quotient(kind, (p, s), (q, t)), operands, nodes[1])
    template = f"CAST({{0}} {head} {{1}} AS {duckdb_type(kind)})"
    if head == "%":
        return _divided(head, kind, template, operands, nodes[1])
    return strict(kind, template, operands)


def _quotient(kind: SparkType, dividend: tuple[int, int], divisor: tuple[int, int]) -> str:
    """Divide decimals as whole numbers of 128 bits, rounded half up; DuckDB would divide them as DOUBLE."""
    (p, s), (q, t) = dividend, divisor
    shift = kind.digits[1] + t - s
    if max(p + s, q + t, p + shift + 1) >= MOST_DIGITS:
        raise Refusal("its digits exceed DuckDB's")
    above, below = (
        f"CAST({{{number}}} * CAST('1{'0' * scale}' AS DECIMAL({scale + 1},0)) AS HUGEINT)"
        for number, scale in enumerate((s, t))
    )
    halves = f"(abs({above}) * CAST('2{'0' * shift}' AS HUGEINT) + abs({below}))"
    whole = f"{halves} // (2 * abs({below})) * CAST(sign({{0}}) * sign({{1}}) AS HUGEINT)"
    scale = kind.digits[1]
    unit = f"CAST('{Decimal(1).scaleb(-scale):f}' AS DECIMAL({scale + 1},{scale}))"
    return f"CAST(CAST({whole} AS DECIMAL(38,0)) * {unit} AS {duckdb_type(kind)})"


def _decimal_type(head: str, p: int, s: int, q: int, t: int) -> SparkType:
    """Return the digits of a result by Spark's table; refuse one with more than 38, which Spark rounds."""
    scale = {"*": s + t, "/": max(_LEAST_SCALE, s + q + 1)}.get(head, max(s, t))
    digits = {
        "*": p + q + 1,
        "/": p - s + t + scale,
        "%": min(p - s, q - t) + scale,
    }.get(head, max(p - s, q - t) + scale + 1)
    if digits > MOST_DIGITS:
        raise Refusal(f"its result has {digits} digits, and Spark rounds it to {MOST_DIGITS}")
    return SparkType("decimal", (digits, scale))


def positive(node: Node) -> Node:
    """Return ``+node``."""
    if not are_numbers([node]):
        raise Refusal(f"only Spark computes + {node.kind}")
    return combine(node.kind, node.sql, [node])


def negative(node: Node) -> Node:
    """Return ``-node``; DuckDB's own negation does not overflow in a comparison."""
    whole = node.kind.name in WHOLE
    return _of_one(node, f"CAST(0 AS {duckdb_type(node.kind)}) - {{0}}" if whole else "-{0}")


def absolute(nodes: Sequence[Node], _: EvaluationSettings) -> Node:
    """Return ``ABS(node)``."""
    return _of_one(nodes[0], "abs({0})")


def _of_one(node: Node, template: str) -> Node:
    """Return a number of the same type; Spark rounds decimals to 34 digits here."""
    kind = node.kind
    if not are_numbers([node]) or (kind.name == "decimal" and kind.digits[0] > _ROUNDED_DIGITS):
        raise Refusal(f"only Spark computes it of {kind}")
    return strict(kind, template, [node], fails=kind.name in WHOLE)


# --- times and intervals ----------------------------------------------------------------------------------------------


def shifts_time(left: Node, right: Node) -> bool:
    """Check whether a sum or difference is one of times."""
    return any(node.kind.name in {"date", *STAMPS} or is_interval(node.kind) for node in (left, right))


def shift(head: str, left: Node, right: Node, settings: EvaluationSettings) -> Node:
    """Return a sum or difference of times, intervals and days."""
    if head == "+" and left.kind.name not in {"date", *STAMPS}:
        left, right = right, left
    if left.kind.name in STAMPS and is_interval(right.kind):
        return _moved(head, left, right, settings)
    if left.kind == DATE and is_interval(right.kind):
        if right.kind.name == "interval day":
            days = f"CAST({{1}} // {DAY_MICROS} AS INTEGER)"
            return strict(DATE, f"CAST({{0}} {head} {days} AS DATE)", [left, right], fails=True)
        return _moved(head, cast(left, TIMESTAMP, settings), right, settings)
    if left.kind == DATE and right.kind.name in DAY_COUNTS:
        return shift_days(head, left, right)
    if head == "-" and left.kind == right.kind and left.kind.name in {"date", *STAMPS}:
        return _elapsed(left, right, settings)
    raise Refusal(f"only Spark computes {left.kind} {head} {right.kind}")


def shift_days(head: str, day: Node, days: Node) -> Node:
    """Return a date some days later or earlier."""
    if day.kind != DATE or days.kind.name not in DAY_COUNTS:
        raise Refusal("it is known of a DATE and a whole number only")
    return strict(DATE, f"CAST({{0}} {head} CAST({{1}} AS INTEGER) AS DATE)", [day, days], fails=True)


def _moved(head: str, time: Node, span: Node, settings: EvaluationSettings) -> Node:
    """Move a timestamp by an interval; whole days are those of the session's clock."""
    short = isinstance(span.literal, int) and abs(span.literal) < DAY_MICROS
    if time.kind == TIMESTAMP and not settings.utc and not short:
        raise Refusal(ZONED)
    return strict(time.kind, f"make_timestamp(epoch_us({{0}}) {head} {{1}})", [time, span], fails=True)


def _elapsed(left: Node, right: Node, settings: EvaluationSettings) -> Node:
    """Return the difference of two times of one type."""
    if left.kind == DATE:
        return strict(SparkType("interval day"), f"({{0}} - {{1}}) * {DAY_MICROS}", [left, right])
    if left.kind == TIMESTAMP and not settings.utc:
        raise Refusal(ZONED)
    kind = SparkType("interval day to second")
    return strict(kind, "epoch_us({0}) - epoch_us({1})", [left, right], fails=True)
