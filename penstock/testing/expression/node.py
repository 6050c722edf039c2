"""A translated expression: its Spark type and its DuckDB SQL.

Every translation casts its operands explicitly, so DuckDB's own rules for mixed types never apply.  DuckDB has other
values for three groups of types::

    timestamp, timestamp_ntz   TIMESTAMP without a zone, in UTC
    interval day to second     BIGINT, in microseconds
    all others                 the type of the same name

In:  nodes of operands.  Out: nodes; `Refusal` where DuckDB's answer may differ from Spark's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.sql.spark_types import SparkType

if TYPE_CHECKING:
    from collections.abc import Sequence

VOID, BOOLEAN, STRING, BINARY = (SparkType(name) for name in ("void", "boolean", "string", "binary"))
INT, BIGINT, FLOAT, DOUBLE = (SparkType(name) for name in ("int", "bigint", "float", "double"))
DATE, TIMESTAMP, TIMESTAMP_NTZ = (SparkType(name) for name in ("date", "timestamp", "timestamp_ntz"))

WHOLE = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
"""Whole numbers and their bits."""
FLOATING = frozenset({"float", "double"})
NUMBERS = frozenset({*WHOLE, *FLOATING, "decimal"})
STAMPS = frozenset({"timestamp", "timestamp_ntz"})
DAY_MICROS = 86_400_000_000
MOST_SQL_CHARACTERS = 200_000
"""The longest translation: guards repeat their operands, so deep nesting grows fast."""

_DUCKDB_TYPES = {
    **{name: name.upper() for name in (*WHOLE, *FLOATING, "boolean", "date")},
    **dict.fromkeys(STAMPS, "TIMESTAMP"),
    "string": "VARCHAR",
    "binary": "BLOB",
    "void": "INTEGER",
}
ONLY_SPARK = "ONLY SPARK KNOWS "
"""The beginning of a DuckDB error that reports a value with an answer that only Spark has."""


class Refusal(Exception):  # noqa: N818 - it becomes a NeedsSparkError
    """A part of an expression that only Spark evaluates; the message says why."""


@dataclass(frozen=True, slots=True)
class EvaluationSettings:
    """The settings of a Spark session that change the meaning of an expression."""

    utc: bool = True
    ansi: bool = True


@dataclass(frozen=True, slots=True)
class Node:
    """A typed expression in DuckDB SQL."""

    kind: SparkType
    sql: str
    fails: bool = False
    """Whether its evaluation can fail for some row."""
    literal: object = None
    """The value of a literal number or string."""
    constant: bool = False
    """Whether it reads no column."""

    @property
    def is_null(self) -> bool:
        """Check whether it is the literal NULL, or a cast of it."""
        return self.constant and self.sql.endswith("(NULL AS " + duckdb_type(self.kind) + ")")


def is_interval(kind: SparkType) -> bool:
    """Check whether a type is an interval of days or less."""
    return kind.name.startswith("interval ") and not kind.name.endswith(("year", "month"))


def is_supported(kind: SparkType) -> bool:
    """Check whether values of a type can be evaluated here."""
    return (kind.name in _DUCKDB_TYPES or kind.name == "decimal" or is_interval(kind)) and not kind.collation


def duckdb_type(kind: SparkType) -> str:
    """Return the DuckDB type that holds values of a Spark type."""
    if kind.name == "decimal":
        return f"DECIMAL({kind.digits[0]},{kind.digits[1]})"
    return "BIGINT" if is_interval(kind) else _DUCKDB_TYPES[kind.name]


def null(kind: SparkType) -> Node:
    """Return NULL of a type."""
    return Node(kind, f"CAST(NULL AS {duckdb_type(kind)})", constant=True)


def text_sql(text: str) -> str:
    """Write a string as a DuckDB literal."""
    return "'" + text.replace("'", "''") + "'"


def failure(message: str) -> str:
    """Write an expression that fails with a message."""
    return f"error({text_sql(message)})"


def only_spark(what: str) -> str:
    """Write an expression that fails because only Spark has the answer for a value."""
    return failure(ONLY_SPARK + what)


def combine(kind: SparkType, sql: str, nodes: Sequence[Node], *, fails: bool = False) -> Node:
    """Return a node of its operands, all of which are always evaluated or guarded in `sql`."""
    if len(sql) > MOST_SQL_CHARACTERS:
        raise Refusal("it is nested too deep")
    return Node(
        kind,
        sql,
        fails=fails or any(node.fails for node in nodes),
        constant=all(node.constant for node in nodes),
    )


def strict(kind: SparkType, template: str, nodes: Sequence[Node], *, fails: bool = False) -> Node:
    """Return a node that is NULL where an operand is; operands behind a NULL are not evaluated if they can fail."""
    sql = template.format(*(node.sql for node in nodes))
    guarded = [node for number, node in enumerate(nodes) if any(later.fails for later in nodes[number + 1 :])]
    tests = [f"{node.sql} IS NULL" for node in guarded if not node.constant]
    if tests:
        sql = f"CASE WHEN {' OR '.join(tests)} THEN NULL ELSE {sql} END"
    return combine(kind, f"({sql})", nodes, fails=fails)
