"""Functions of strings, numbers and times.

Each has its DuckDB template and the argument types it is known for; any other type or number of arguments is refused.

In:  nodes of the arguments.  Out: a node; `Refusal`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.sql.spark_types import SparkType
from penstock.testing.expression.arithmetic import MOST_DIGITS, ZONED, absolute, shift_days
from penstock.testing.expression.casts import alike, cast
from penstock.testing.expression.conditions import choose, coalesce, compare, is_null, negation
from penstock.testing.expression.literals import whole_node
from penstock.testing.expression.node import (
    BIGINT,
    BOOLEAN,
    DAY_MICROS,
    DOUBLE,
    FLOATING,
    INT,
    STAMPS,
    STRING,
    TIMESTAMP,
    WHOLE,
    Refusal,
    combine,
    duckdb_type,
    null,
    only_spark,
    strict,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.testing.expression.node import EvaluationSettings, Node

    Function = Callable[[list[Node], EvaluationSettings], Node]

_MOST_PLACES = 15
_MANY_ARGUMENTS = 1_000
_LATIN_1 = "[\\x00-\\x7F\\xA0-\\xB4\\xB6-\\xFF]*"
"""Letters that DuckDB and the JVM write alike in the other case, but for ß."""


def call(name: str, nodes: list[Node], settings: EvaluationSettings) -> Node:
    """Return the call of a function."""
    least, most, function = _FUNCTIONS.get(name, (0, 0, None))
    if function is None:
        raise Refusal(f"the function {name} is known to Spark only")
    if not least <= len(nodes) <= most:
        raise Refusal(f"{name} is not known with {len(nodes)} arguments")
    return function(nodes, settings)


def _of(kind: SparkType, template: str, *names: str) -> Function:
    """Build a function of arguments of exactly these types."""

    def build(nodes: list[Node], _: EvaluationSettings) -> Node:
        for node, wanted in zip(nodes, names, strict=False):
            if node.kind.name != wanted or node.kind.collation:
                raise Refusal(f"it is known of {wanted.upper()}, not of {str(node.kind).upper()}")
        return strict(kind, template, nodes)

    return build


def _in_case(name: str, template: str) -> Function:
    guard = f"{{0}} IS NULL OR regexp_full_match({{0}}, '{_LATIN_1}')"
    beyond = only_spark(f"{name} of letters beyond Latin-1")
    return _of(STRING, f"CASE WHEN {guard} THEN {template} ELSE {beyond} END", "string")


def _substring(nodes: list[Node], settings: EvaluationSettings) -> Node:
    """Return SUBSTRING: from 1, or from the end; 0 is the beginning too."""
    text, start = nodes[:2]
    length = nodes[2] if len(nodes) > len(("text", "start")) else whole_node((1 << 31) - 1, INT)
    first, count = "CAST({1} AS BIGINT)", "CAST({2} AS BIGINT)"
    begin = f"(CASE WHEN {{1}} > 0 THEN {first} - 1 WHEN {{1}} < 0 THEN length({{0}}) + {first} ELSE 0 END)"
    kept = f"greatest({begin} + {count}, 0) - greatest({begin}, 0)"
    cut = f"substring({{0}}, greatest({begin}, 0) + 1, least(greatest({kept}, 0), 2147483647))"
    known = "CASE WHEN {1} IS NOT NULL AND {2} IS NOT NULL"
    return _of(STRING, f"{known} THEN {cut} END", "string", "int", "int")([text, start, length], settings)


def concat(nodes: list[Node], settings: EvaluationSettings) -> Node:
    """Return CONCAT or ``||``: anything written as a string."""
    if any(node.kind.name == "binary" for node in nodes):
        raise Refusal("only Spark puts BINARY together")
    texts = [cast(node, STRING, settings) for node in nodes]
    return strict(STRING, " || ".join(f"{{{number}}}" for number in range(len(texts))), texts)


def _length(nodes: list[Node], settings: EvaluationSettings) -> Node:
    name = "octet_length" if nodes[0].kind.name == "binary" else "length"
    kind = "binary" if nodes[0].kind.name == "binary" else "string"
    return _of(INT, f"CAST({name}({{0}}) AS INTEGER)", kind)(nodes, settings)


def _whole_part(name: str) -> Function:
    """Build FLOOR or CEIL."""

    def build(nodes: list[Node], settings: EvaluationSettings) -> Node:
        (node,) = nodes
        if node.kind.name == "decimal":
            precision, scale = node.kind.digits
            kind = SparkType("decimal", (min(precision - scale + 1, MOST_DIGITS), 0)) if scale else node.kind
            return strict(kind, f"CAST({name}({{0}}) AS {duckdb_type(kind)})", nodes, fails=True)
        if node.kind.name in WHOLE:
            return combine(BIGINT, cast(node, BIGINT, settings).sql, nodes)
        if node.kind.name not in FLOATING:
            raise Refusal(f"only Spark rounds {node.kind}")
        cut = f"CASE WHEN isnan({{0}}) THEN 0 ELSE CAST({name}({{0}}) AS BIGINT) END"
        return strict(BIGINT, cut, nodes, fails=True)

    return build


def _round(nodes: list[Node], _: EvaluationSettings) -> Node:
    """Return ROUND to a constant number of digits behind the point, half up by the digits that are shown."""
    node, places = nodes[0], nodes[1].literal if len(nodes) > 1 else 0
    if not isinstance(places, int) or not 0 <= places <= _MOST_PLACES:
        raise Refusal(f"only Spark rounds to other than 0 to {_MOST_PLACES} digits behind the point")
    if node.kind.name in WHOLE:
        return combine(node.kind, node.sql, [node])
    if node.kind == DOUBLE:
        exact = f"CAST(CAST(CAST({{0}} AS VARCHAR) AS DECIMAL(38,{places})) AS VARCHAR)"
        return strict(
            DOUBLE, f"CASE WHEN abs({{0}}) < 1e18 THEN CAST({exact} AS DOUBLE) + 0.0 ELSE {{0}} END", [node]
        )
    if node.kind.name != "decimal":
        raise Refusal(f"only Spark rounds {node.kind}")
    precision, scale = node.kind.digits
    kept = min(scale, places)
    kind = SparkType("decimal", (min(precision - scale + 1 + kept, MOST_DIGITS), kept))
    return strict(kind, f"CAST({{0}} AS {duckdb_type(kind)})", [node], fails=True)


def _isnan(nodes: list[Node], _: EvaluationSettings) -> Node:
    if nodes[0].kind.name not in FLOATING:
        raise Refusal("it is known of FLOAT and DOUBLE only")
    return combine(BOOLEAN, f"coalesce(isnan({nodes[0].sql}), FALSE)", nodes)


def _extreme(name: str) -> Function:
    """Build GREATEST or LEAST of the values that are not NULL."""

    def build(nodes: list[Node], settings: EvaluationSettings) -> Node:
        values = alike(nodes, settings)
        return combine(values[0].kind, f"{name}({', '.join(node.sql for node in values)})", values)

    return build


def _nullif(nodes: list[Node], settings: EvaluationSettings) -> Node:
    if nodes[0].fails:
        raise Refusal("Spark evaluates what can fail in NULLIF before the conditions that guard it")
    return choose([compare("=", nodes, settings)], [null(nodes[0].kind), nodes[0]], settings)


# --- times ------------------------------------------------------------------------------------------------------------

_MICROS = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": DAY_MICROS,
    "WEEK": 7 * DAY_MICROS,
}
_TRUNCATED = {
    **{unit: unit for unit in (*_MICROS, "MONTH", "QUARTER", "YEAR")},
    "MICROSECOND": "microseconds",
    "MILLISECOND": "milliseconds",
    **dict.fromkeys(("MON", "MM"), "MONTH"),
    **dict.fromkeys(("YYYY", "YY"), "YEAR"),
    "DD": "DAY",
}


def part_of_time(unit: str) -> Function:
    """Build YEAR, MONTH, DAY, HOUR, MINUTE or SECOND of a time."""
    kinds = STAMPS if unit in {"HOUR", "MINUTE", "SECOND"} else {"date", *STAMPS}

    def build(nodes: list[Node], settings: EvaluationSettings) -> Node:
        (node,) = nodes
        if node.kind == TIMESTAMP and not settings.utc:
            raise Refusal(ZONED)
        if node.kind.name not in kinds:
            raise Refusal(f"only Spark knows the {unit} of {node.kind}")
        return strict(INT, f"CAST({unit.lower()}({{0}}) AS INTEGER)", nodes)

    return build


def truncated_time(nodes: list[Node], settings: EvaluationSettings) -> Node:
    """Return DATE_TRUNC to a constant unit."""
    unit, time = nodes
    if not isinstance(unit.literal, str) or time.kind != TIMESTAMP:
        raise Refusal("only Spark truncates what is no TIMESTAMP to what is no constant unit")
    name = _TRUNCATED.get(unit.literal.upper())
    if name is None:
        raise Refusal(f"{unit.literal} is no unit that is known here")
    if not settings.utc:
        raise Refusal(ZONED)
    return strict(TIMESTAMP, f"date_trunc('{name.lower()}', {{0}})", [time], fails=True)


def counted_units(unit: str, nodes: list[Node], settings: EvaluationSettings) -> Node:
    """Return TIMESTAMPDIFF in whole units of fixed length."""
    kinds = {node.kind.name for node in nodes}
    if unit not in _MICROS or kinds not in ({"timestamp"}, {"timestamp_ntz"}) or not settings.utc:
        raise Refusal("only Spark counts months, and units between what is no TIMESTAMP of UTC")
    return strict(BIGINT, f"(epoch_us({{1}}) - epoch_us({{0}})) // {_MICROS[unit]}", nodes, fails=True)


def time_number(unit: str, size: int) -> Function:
    """Build UNIX_MICROS, UNIX_MILLIS or UNIX_SECONDS."""

    def build(nodes: list[Node], _: EvaluationSettings) -> Node:
        if nodes[0].kind != TIMESTAMP:
            raise Refusal("it is known of a TIMESTAMP only")
        return strict(BIGINT, f"epoch_us(date_trunc('{unit}', {{0}})) // {size}", nodes)

    return build


# --- functions that the engine's own SQL uses -------------------------------------------------------------------------


def _bit(nodes: list[Node], _: EvaluationSettings) -> Node:
    return strict(SparkType("tinyint"), "CAST(({0} >> {1}) & 1 AS TINYINT)", nodes)


def _shifted(nodes: list[Node], _: EvaluationSettings) -> Node:
    """Return SHIFTLEFT of constants, in 64 bits."""
    number, places = (node.literal for node in nodes)
    if not isinstance(number, int) or not isinstance(places, int) or nodes[0].kind != BIGINT:
        raise Refusal("only Spark shifts what is no constant BIGINT")
    return whole_node((((number << places) + (1 << 63)) % (1 << 64)) - (1 << 63), BIGINT)


def bitwise_or(nodes: list[Node]) -> Node:
    """Return ``left | right`` of BIGINT."""
    if any(node.kind != BIGINT for node in nodes):
        raise Refusal("only Spark computes | of what is no BIGINT")
    return strict(BIGINT, "{0} | {1}", nodes)


def _digest(nodes: list[Node], _: EvaluationSettings) -> Node:
    """Return a digest of a key in place of XXHASH64: it is never shown, and equal keys have equal digests."""
    return combine(BIGINT, f"CAST(hash({', '.join(node.sql for node in nodes)}) // 2 AS BIGINT)", nodes)


_FUNCTIONS: dict[str, tuple[int, int, Function]] = {
    **dict.fromkeys(("LOWER", "LCASE"), (1, 1, _in_case("LOWER", "lower({0})"))),
    **dict.fromkeys(("UPPER", "UCASE"), (1, 1, _in_case("UPPER", "replace(upper({0}), 'ẞ', 'SS')"))),
    **{
        name: (1, 1, _of(STRING, f"{name.lower()}({{0}}, ' ')", "string"))
        for name in ("TRIM", "LTRIM", "RTRIM")
    },
    **dict.fromkeys(("SUBSTRING", "SUBSTR"), (2, 3, _substring)),
    **dict.fromkeys(("LENGTH", "LEN", "CHAR_LENGTH", "CHARACTER_LENGTH"), (1, 1, _length)),
    "STARTSWITH": (2, 2, _of(BOOLEAN, "starts_with({0}, {1})", "string", "string")),
    "ENDSWITH": (2, 2, _of(BOOLEAN, "suffix({0}, {1})", "string", "string")),
    "CONTAINS": (2, 2, _of(BOOLEAN, "contains({0}, {1})", "string", "string")),
    "LEFT": (2, 2, _of(STRING, "left({0}, CASE WHEN {1} < 0 THEN 0 ELSE {1} END)", "string", "int")),
    "CONCAT": (1, _MANY_ARGUMENTS, concat),
    "ABS": (1, 1, absolute),
    "FLOOR": (1, 1, _whole_part("floor")),
    **dict.fromkeys(("CEIL", "CEILING"), (1, 1, _whole_part("ceil"))),
    "ROUND": (1, 2, _round),
    "ISNAN": (1, 1, _isnan),
    "ISNOTNULL": (1, 1, lambda nodes, _: negation(is_null(nodes[0]))),
    "ISNULL": (1, 1, lambda nodes, _: is_null(nodes[0])),
    "GREATEST": (2, _MANY_ARGUMENTS, _extreme("greatest")),
    "LEAST": (2, _MANY_ARGUMENTS, _extreme("least")),
    "COALESCE": (1, _MANY_ARGUMENTS, coalesce),
    **dict.fromkeys(("IFNULL", "NVL"), (2, 2, coalesce)),
    "NULLIF": (2, 2, _nullif),
    "IF": (3, 3, lambda nodes, settings: choose(nodes[:1], nodes[1:], settings)),
    **dict.fromkeys(
        ("DATEDIFF", "DATE_DIFF"), (2, 2, _of(INT, "CAST({0} - {1} AS INTEGER)", "date", "date"))
    ),
    **dict.fromkeys(("DATE_ADD", "DATEADD"), (2, 2, lambda nodes, _: shift_days("+", *nodes))),
    "DATE_SUB": (2, 2, lambda nodes, _: shift_days("-", *nodes)),
    "DATE_TRUNC": (2, 2, truncated_time),
    **{unit: (1, 1, part_of_time(unit)) for unit in ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND")},
    "DAYOFMONTH": (1, 1, part_of_time("DAY")),
    "UNIX_MICROS": (1, 1, time_number("microseconds", 1)),
    "UNIX_MILLIS": (1, 1, time_number("milliseconds", 1_000)),
    "UNIX_SECONDS": (1, 1, time_number("second", 1_000_000)),
    "UNIX_DATE": (1, 1, _of(INT, "CAST({0} - DATE '1970-01-01' AS INTEGER)", "date")),
    "GETBIT": (2, 2, _bit),
    "SHIFTLEFT": (2, 2, _shifted),
    "XXHASH64": (1, _MANY_ARGUMENTS, _digest),
}
"""Each function: its least and most arguments, and the function that translates it."""
