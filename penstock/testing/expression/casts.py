"""Casts between types, explicit and implied, as Spark makes them in ANSI mode.

    floating number, decimal -> whole number   cut towards zero, where DuckDB rounds
    string -> number, boolean                  only the forms that Spark reads, without blanks around them
    string -> time                             constants only
    time -> time, number, string               in UTC, years 1 to 9999
    DOUBLE -> STRING, DECIMAL                  refused: Spark writes the digits of the JVM

In:  nodes and a type.  Out: nodes of that type; `Refusal` for a cast with another result in DuckDB.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.sql.spark_types import SparkType, common_type, never_fails, parse_type
from penstock.testing.expression.literals import time_node
from penstock.testing.expression.node import (
    BIGINT,
    FLOATING,
    NUMBERS,
    STAMPS,
    STRING,
    VOID,
    WHOLE,
    Refusal,
    combine,
    duckdb_type,
    is_interval,
    null,
    only_spark,
    strict,
    text_sql,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.testing.expression.node import EvaluationSettings, Node

_BLANKS = "||".join(["' '", *(f"chr({code})" for code in (*range(1, 32), 127))])
_DECIMAL_TEXT = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"
_TEXT_FORMS = {
    **dict.fromkeys(WHOLE, "[+-]?[0-9]+"),
    "double": f"({_DECIMAL_TEXT}[dDfF]?|[+-]?(?i:inf|infinity)|(?i:nan))",
    "decimal": _DECIMAL_TEXT,
    "boolean": "(?i:t|true|y|yes|1|f|false|n|no|0)",
}
"""Strings that Spark reads as a value of a type, as regular expressions."""
_EXACT_DOUBLE_DIGITS = 15
_MOST_FLOAT = "3.4028234663852886e38"
_MOST_SECONDS = 9_000_000_000_000


def cast(node: Node, kind: SparkType, settings: EvaluationSettings) -> Node:  # noqa: PLR0911 - one for each family
    """Cast a node to a type."""
    if node.kind == kind:
        return node
    if node.is_null:
        return null(kind)
    if node.kind.name == "string" and kind.name in {"date", *STAMPS}:
        if not isinstance(node.literal, str):
            raise Refusal(f"only Spark reads a {str(kind).upper()} from strings that are not constant")
        return time_node(node.literal.strip(" "), kind, settings)
    if {node.kind.name, kind.name} <= {*NUMBERS, "boolean"}:
        return _to_number(node, kind)
    if node.kind.name == "string":
        return _from_string(node, kind)
    if kind.name == "string":
        return _to_string(node, settings)
    if settings.utc:
        return _between_times(node, kind)
    raise _unknown(node, kind)


def _unknown(node: Node, kind: SparkType) -> Refusal:
    return Refusal(f"only Spark casts {str(node.kind).upper()} to {str(kind).upper()}")


def _plain(node: Node, kind: SparkType, *, fails: bool = False) -> Node:
    return strict(kind, f"CAST({{0}} AS {duckdb_type(kind)})", [node], fails=fails)


def _to_number(node: Node, kind: SparkType) -> Node:  # noqa: PLR0911 - one for each type
    """Cast numbers and booleans to each other."""
    source = node.kind
    if kind.name == "boolean":
        return strict(kind, "{0} <> 0", [node])
    if kind.name in WHOLE:
        return _to_whole(node, kind)
    if source.name == "boolean":
        return _to_number(_plain(node, SparkType("int")), kind)
    if kind.name == "decimal" and source.name not in FLOATING:
        return _plain(node, kind, fails=not never_fails(source, kind))
    if kind.name == "double":
        exact = source.name != "decimal" or source.digits[0] <= _EXACT_DOUBLE_DIGITS
        return strict(kind, f"CAST({'{0}' if exact else 'CAST({0} AS VARCHAR)'} AS DOUBLE)", [node])
    if kind.name == "float" and source.name == "double":
        beyond = only_spark("a DOUBLE beyond FLOAT")
        near = f"isnan({{0}}) OR isinf({{0}}) OR abs({{0}}) <= {_MOST_FLOAT}"
        return strict(kind, f"CASE WHEN {near} THEN CAST({{0}} AS FLOAT) ELSE {beyond} END", [node])
    if kind.name == "float" and source.name in WHOLE:
        return _plain(node, kind)
    raise _unknown(node, kind)


def _to_whole(node: Node, kind: SparkType) -> Node:
    if node.kind.name not in {*FLOATING, "decimal"}:
        fails = node.kind.name != "boolean" and not never_fails(node.kind, kind)
        return replace(_plain(node, kind, fails=fails), literal=None)
    cut = f"CAST(trunc({{0}}) AS {duckdb_type(kind)})"
    if kind == BIGINT and node.kind.name in FLOATING:  # 2^63 is the nearest DOUBLE to the largest BIGINT
        cut = f"CASE WHEN {{0}} = 9223372036854775808 THEN 9223372036854775807 ELSE {cut} END"
    return strict(kind, cut, [node], fails=True)


def _from_string(node: Node, kind: SparkType) -> Node:
    """Cast a string to a number or a boolean."""
    if kind.name == "binary":
        return strict(kind, "encode({0})", [node])
    form = _TEXT_FORMS.get("double" if kind.name == "float" else kind.name)
    if form is None or (kind.name == "float" and node.literal is None):
        raise _unknown(node, kind)
    trimmed = f"trim({node.sql}, {_BLANKS})"
    read = f"CAST({trimmed} AS {duckdb_type(kind)})"
    if kind.name == "boolean":
        read = f"lower({trimmed}) IN ('t', 'true', 'y', 'yes', '1')"
    elif kind.name in FLOATING:  # a number may end in d or f, but inf does not
        read = f"CAST(regexp_replace({trimmed}, '([0-9.])[dDfF]$', '\\1') AS {duckdb_type(kind)})"
    if isinstance(node.literal, str) and not re.fullmatch(form, node.literal.strip()):
        raise Refusal(f"{node.literal!r} is no {str(kind).upper()}")
    before = text_sql("The value '")
    after = text_sql(f"' of the type STRING cannot be cast to {str(kind).upper()} (CAST_INVALID_INPUT)")
    failed = f"error({before} || {node.sql} || {after})"
    test = f"regexp_full_match({trimmed}, '{form}')"
    sql = f"(CASE WHEN {test} THEN {read} WHEN {node.sql} IS NOT NULL THEN {failed} END)"
    return combine(kind, sql, [node], fails=True)


def _to_string(node: Node, settings: EvaluationSettings) -> Node:
    """Write a value as a string."""
    name = node.kind.name
    if name in {*WHOLE, "boolean", "decimal"}:
        return _plain(node, STRING)
    if name in {"date", "timestamp_ntz"} or (name == "timestamp" and settings.utc):
        written = f"CASE WHEN {_in_years('{0}')} THEN CAST({{0}} AS VARCHAR)"
        return strict(STRING, f"{written} ELSE {only_spark('a year beyond 1 to 9999')} END", [node])
    raise _unknown(node, STRING)


def _in_years(sql: str) -> str:
    """Write a test for the years 1 to 9999."""
    return f"{sql} IS NULL OR ({sql} >= DATE '0001-01-01' AND {sql} < DATE '10000-01-01')"


def _between_times(node: Node, kind: SparkType) -> Node:
    """Cast times to each other, and to and from seconds since 1970."""
    source = node.kind.name
    if (source in STAMPS and kind.name in {"date", *STAMPS}) or (source == "date" and kind.name in STAMPS):
        return _plain(node, kind, fails=source == "date")
    if source == "timestamp" and kind.name == "double":
        return strict(kind, "CAST(epoch_us({0}) AS DOUBLE) / 1000000", [node])
    if source == "timestamp" and kind.name in WHOLE:
        return _to_number(strict(BIGINT, "epoch_us(date_trunc('second', {0})) // 1000000", [node]), kind)
    if source in WHOLE and kind.name == "timestamp":
        beyond = only_spark("seconds beyond all timestamps")
        near = f"{{0}} IS NULL OR {{0}} BETWEEN -{_MOST_SECONDS} AND {_MOST_SECONDS}"
        made = "make_timestamp(CAST({0} AS BIGINT) * 1000000)"
        return strict(kind, f"CASE WHEN {near} THEN {made} ELSE {beyond} END", [node])
    raise _unknown(node, kind)


# --- one type for several operands ------------------------------------------------------------------------------------


def compared(sides: Sequence[Node], settings: EvaluationSettings) -> list[Node]:
    """Cast the two sides of a comparison to the type that Spark compares them as."""
    left, right = sides
    names = {left.kind.name, right.kind.name}
    if is_interval(left.kind) and is_interval(right.kind):
        return [left, right]
    if "decimal" in names and "string" not in names:
        kind = _widest([as_decimal(left), as_decimal(right)], settings)
        return [cast(node, kind, settings) for node in sides]
    return alike(sides, settings, strings=True)


def as_decimal(node: Node) -> SparkType:
    """Return the type of a number beside a decimal: a literal has the digits it is written with."""
    if isinstance(node.literal, int) and node.kind.name in {"smallint", "int", "bigint"}:
        return SparkType("decimal", (len(str(abs(node.literal))), 0))
    return node.kind


def alike(nodes: Sequence[Node], settings: EvaluationSettings, *, strings: bool = False) -> list[Node]:
    """Cast nodes to the one type that holds them all; a string beside another type only if `strings`."""
    kind = _widest([node.kind for node in nodes], settings, strings=strings)
    return [cast(node, kind, settings) for node in nodes]


def _widest(kinds: Sequence[SparkType], settings: EvaluationSettings, *, strings: bool = False) -> SparkType:
    """Return the type that several types are cast to."""
    kind = VOID
    for other in kinds:
        if other in {kind, VOID} or kind == VOID:
            kind = other if kind == VOID else kind
            continue
        names = {kind.name, other.name}
        common = common_type(str(kind), str(other))
        refused = ("string" in names and not strings) or (not settings.ansi and "float" in names)
        if common is None or refused:
            raise Refusal(f"only Spark casts {str(kind).upper()} and {str(other).upper()} to one type")
        kind = parse_type(common)
    return kind


def are_numbers(nodes: Sequence[Node]) -> bool:
    """Check whether all nodes are numbers or NULL, and not all NULL."""
    kinds = {node.kind.name for node in nodes} - {"void"}
    return bool(kinds) and kinds <= NUMBERS
