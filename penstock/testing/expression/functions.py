"""Functions of strings and numbers.

In:  nodes of the arguments, of the very types a function takes.  Out: a node; `Refusal` for any other type or number of
     arguments.
"""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from penstock.errors import RunError
from penstock.sql.spark_types import SparkType
from penstock.testing.expression import times
from penstock.testing.expression.arithmetic import absolute
from penstock.testing.expression.casts import cast
from penstock.testing.expression.conditions import choose, compare, extreme, first, is_null, negation
from penstock.testing.expression.nodes import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    INT,
    STRING,
    Refusal,
    constant,
    made,
    strict,
)
from penstock.testing.expression.values import EXACT, WHOLE, fitted, in_range

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.testing.expression.nodes import Node, Row, Settings

    Function = Callable[[list[Node], Settings], Node]

_MOST_DIGITS = 38


def call(name: str, nodes: list[Node], settings: Settings) -> Node:
    """Make the call of a function."""
    least, most, function = _FUNCTIONS.get(name, (0, 0, None))
    if function is None:
        raise Refusal(f"the function {name} is known to Spark only")
    if not least <= len(nodes) <= most:
        raise Refusal(f"{name} is not known with {len(nodes)} arguments")
    return function(nodes, settings)


def _of(kind: SparkType, function: Callable[..., Any], *names: str) -> Function:
    """Make a function of arguments of these types."""

    def build(nodes: list[Node], _: Settings) -> Node:
        for node, wanted in zip(nodes, names, strict=False):
            if node.kind.name != wanted or node.kind.collation:
                raise Refusal(f"it is known of {wanted.upper()}, not of {str(node.kind).upper()}")
        return strict(kind, function, nodes)

    return build


def _substring(text: str, start: int, length: int = 1 << 31) -> str:
    """Cut a string as Spark does: from 1, or from the end; 0 is the beginning too."""
    begin = start - 1 if start > 0 else len(text) + start if start < 0 else 0
    return text[max(begin, 0) : max(begin + length, 0)]


def concat(nodes: list[Node], settings: Settings) -> Node:
    """Make CONCAT or ``||``: anything written as a string."""
    if any(node.kind.name == "binary" for node in nodes):
        raise Refusal("only Spark puts BINARY together")
    texts = [cast(node, STRING, settings) for node in nodes]
    return strict(STRING, lambda *values: "".join(values), texts)


def _length(nodes: list[Node], _: Settings) -> Node:
    (node,) = nodes
    if node.kind.name not in {"string", "binary"}:
        raise Refusal(f"only Spark knows the length of {node.kind}")
    return strict(INT, len, nodes)


def _cut(nodes: list[Node], settings: Settings, function: Callable[[Any], int]) -> Node:
    """Make FLOOR or CEIL."""
    (node,) = nodes
    if node.kind.name == "decimal":
        precision, scale = node.kind.digits
        kind = SparkType("decimal", (min(precision - scale + 1, _MOST_DIGITS), 0)) if scale else node.kind
        return strict(kind, lambda value: fitted(Decimal(function(value)), kind), nodes, fails=True)
    if node.kind.name in WHOLE:
        return replace(cast(node, BIGINT, settings), literal=False)
    if node.kind.name not in {"float", "double"}:
        raise Refusal(f"only Spark rounds {node.kind}")
    return strict(BIGINT, lambda value: _whole(value, function), nodes, fails=True)


def _whole(value: float, function: Callable[[Any], int]) -> int:
    """Make a BIGINT of a floating number; that of NaN is 0."""
    if math.isnan(value):
        return 0
    if math.isinf(value) or not in_range(function(value), BIGINT):
        raise RunError("overflow (ARITHMETIC_OVERFLOW)")
    return function(value)


def _round(nodes: list[Node], _: Settings) -> Node:
    """Make ROUND to a constant number of digits behind the point."""
    node, digits = nodes[0], nodes[1] if len(nodes) > 1 else constant(INT, 0)
    if not (
        digits.constant
        and digits.kind == INT
        and digits.value is not None
        and 0 <= digits.value <= _MOST_DIGITS
    ):
        raise Refusal(
            "only Spark rounds to digits before the point, or to a number of them that is not constant"
        )
    places = digits.value
    if node.kind.name in WHOLE:
        return strict(node.kind, lambda value: value, [node])
    if node.kind == DOUBLE:
        return strict(DOUBLE, lambda value: _rounded(value, places), [node])
    if node.kind.name != "decimal":
        raise Refusal(f"only Spark rounds {node.kind}")
    precision, scale = node.kind.digits
    kept = min(scale, places)
    kind = SparkType("decimal", (min(precision - scale + 1 + kept, _MOST_DIGITS), kept))
    return strict(kind, lambda value: fitted(value, kind), [node], fails=True)


def _rounded(value: float, places: int) -> float:
    if math.isnan(value) or math.isinf(value):
        return value
    exact = Decimal(repr(value))
    return float(EXACT.quantize(exact, Decimal(1).scaleb(-places))) + 0.0 if exact.adjusted() < 100 else value  # noqa: PLR2004


def _nullif(nodes: list[Node], settings: Settings) -> Node:
    value = nodes[0]
    return choose([compare("=", nodes, settings)], [constant(value.kind, None, "NULL"), value], settings)


def _if(nodes: list[Node], settings: Settings) -> Node:
    return choose(nodes[:1], nodes[1:], settings)


def _isnan(nodes: list[Node], _: Settings) -> Node:
    (node,) = nodes
    if node.kind.name not in {"float", "double"}:
        raise Refusal("it is known of FLOAT and DOUBLE only")

    def of(row: Row) -> bool:
        value = node.of(row)
        return value is not None and math.isnan(value)

    return made(BOOLEAN, of, nodes, nullable=False)


_MANY = 1_000
_FUNCTIONS: dict[str, tuple[int, int, Function]] = {
    "LOWER": (1, 1, _of(STRING, str.lower, "string")),
    "UPPER": (1, 1, _of(STRING, str.upper, "string")),
    "LCASE": (1, 1, _of(STRING, str.lower, "string")),
    "UCASE": (1, 1, _of(STRING, str.upper, "string")),
    "TRIM": (1, 1, _of(STRING, lambda text: text.strip(" "), "string")),
    "LTRIM": (1, 1, _of(STRING, lambda text: text.lstrip(" "), "string")),
    "RTRIM": (1, 1, _of(STRING, lambda text: text.rstrip(" "), "string")),
    **dict.fromkeys(("SUBSTRING", "SUBSTR"), (2, 3, _of(STRING, _substring, "string", "int", "int"))),
    **dict.fromkeys(("LENGTH", "LEN", "CHAR_LENGTH", "CHARACTER_LENGTH"), (1, 1, _length)),
    "STARTSWITH": (2, 2, _of(BOOLEAN, str.startswith, "string", "string")),
    "ENDSWITH": (2, 2, _of(BOOLEAN, str.endswith, "string", "string")),
    "CONTAINS": (2, 2, _of(BOOLEAN, lambda text, other: other in text, "string", "string")),
    "LEFT": (2, 2, _of(STRING, lambda text, length: text[: max(length, 0)], "string", "int")),
    "CONCAT": (1, _MANY, concat),
    "ABS": (1, 1, lambda nodes, _: absolute(*nodes)),
    "FLOOR": (1, 1, lambda nodes, settings: _cut(nodes, settings, math.floor)),
    **dict.fromkeys(("CEIL", "CEILING"), (1, 1, lambda nodes, settings: _cut(nodes, settings, math.ceil))),
    "ROUND": (1, 2, _round),
    "ISNAN": (1, 1, _isnan),
    "ISNOTNULL": (1, 1, lambda nodes, _: negation(is_null(*nodes))),
    "ISNULL": (1, 1, lambda nodes, _: is_null(*nodes)),
    "GREATEST": (2, _MANY, lambda nodes, settings: extreme(nodes, settings, greatest=True)),
    "LEAST": (2, _MANY, lambda nodes, settings: extreme(nodes, settings, greatest=False)),
    "COALESCE": (1, _MANY, first),
    **dict.fromkeys(("IFNULL", "NVL"), (2, 2, first)),
    "NULLIF": (2, 2, _nullif),
    "IF": (3, 3, _if),
    **dict.fromkeys(("DATEDIFF", "DATE_DIFF"), (2, 2, _of(INT, times.days_between, "date", "date"))),
    **dict.fromkeys(
        ("DATE_ADD", "DATEADD"), (2, 2, lambda nodes, settings: times.shift_days("+", nodes, settings))
    ),
    "DATE_SUB": (2, 2, lambda nodes, settings: times.shift_days("-", nodes, settings)),
    "DATE_TRUNC": (2, 2, times.truncated),
    **{unit: (1, 1, times.part(unit)) for unit in ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND")},
    "DAYOFMONTH": (1, 1, times.part("DAY")),
    "UNIX_MICROS": (1, 1, times.since_1970(1)),
    "UNIX_MILLIS": (1, 1, times.since_1970(1_000)),
    "UNIX_SECONDS": (1, 1, times.since_1970(1_000_000)),
}
"""Each function: how many arguments it takes at the least and at the most, and what makes it."""
