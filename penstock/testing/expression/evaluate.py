"""Spark SQL expressions over Arrow rows, evaluated by DuckDB.

In:  expressions, their columns' types, and rows as an Arrow table; columns of pairs are fields of the structs
     ``l``, ``r`` …
Out: an Arrow array of values for each expression; `RunError` for a value that Spark fails to compute too.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import InputError, RunError
from penstock.sql.zones import is_utc
from penstock.state.spark_schema import PLAIN
from penstock.testing.expression.node import (
    ONLY_SPARK,
    STAMPS,
    EvaluationSettings,
    is_interval,
)
from penstock.testing.expression.translate import NeedsSparkError, read_type, translate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.sql.spark_types import SparkType
    from penstock.testing.expression.translate import Translation

_ROWS = "input_rows"
_RANGES = ("date", "timestamp", "interval")
"""Types with other limits in DuckDB: an error about one of them says nothing about Spark."""


def evaluate(
    expression: str, rows: pa.Table, types: Mapping[str, str], *, zone: str = "UTC", ansi: bool = True
) -> pa.Array:
    """Return the value of an expression for each row, in the Arrow type that Spark would give.

    >>> import pyarrow as pa
    >>> evaluate("n % 3 = 1", pa.table({"n": [1, 2, None]}), {"n": "bigint"}).to_pylist()
    [True, False, None]
    """
    return evaluate_all([expression], rows, types, zone=zone, ansi=ansi)[0]


def evaluate_all(
    expressions: Sequence[str],
    rows: pa.Table | pa.RecordBatch,
    types: Mapping[str, str],
    *,
    zone: str = "UTC",
    ansi: bool = True,
) -> list[pa.Array]:
    """Return the values of several expressions, all by one DuckDB query."""
    settings = EvaluationSettings(utc=is_utc(zone), ansi=ansi)
    made = [translate(expression, types, settings) for expression in expressions]
    asked = [number for number, one in enumerate(made) if not one.column and rows.num_rows]
    answers = _ask([made[number] for number in asked], [expressions[n] for n in asked], rows, types)
    values = {
        number: _from_duckdb(answer, made[number].kind, zone)
        for number, answer in zip(asked, answers, strict=True)
    }
    return [
        values[number] if number in values else _column_values(rows, one, zone)
        for number, one in enumerate(made)
    ]


def _column_values(rows: pa.Table | pa.RecordBatch, plain: Translation, zone: str) -> pa.Array:
    """Return a column as it is, or no values."""
    wanted = arrow_type(plain.kind, zone)
    return _column(rows, plain.column).cast(wanted) if plain.column else pa.array([], wanted)


def _ask(
    made: Sequence[Translation],
    expressions: Sequence[str],
    rows: pa.Table | pa.RecordBatch,
    types: Mapping[str, str],
) -> list[pa.Array]:
    """Return the values of translations as DuckDB has them."""
    if not made:
        return []
    names = dict.fromkeys(name for translation in made for name in translation.columns)
    columns = {name: to_duckdb(_column(rows, name), types[name]) for name in names}
    query = ", ".join(f"{translation.sql} AS c{number}" for number, translation in enumerate(made))
    connection = connect()
    connection.register(_ROWS, pa.table(columns or {"nothing": pa.nulls(rows.num_rows, pa.int8())}))
    try:
        answer = connection.sql(f"SELECT {query} FROM {_ROWS}").to_arrow_table()  # noqa: S608 - translated
    except _duckdb().Error as error:
        raise _explained(str(error), " and ".join(expressions)) from None
    finally:
        connection.close()
    return [answer.column(number).combine_chunks() for number in range(len(made))]


def _explained(message: str, expression: str) -> RunError | NeedsSparkError:
    """Read a DuckDB error: a value with an answer that only Spark has, or a failure in Spark too."""
    message = message.splitlines()[0].partition(" Error: ")[2].partition(" when casting from")[0]
    if ONLY_SPARK in message:
        return NeedsSparkError(expression, expression, f"it has {message.partition(ONLY_SPARK)[2]}")
    if any(name in message.lower() for name in _RANGES):
        return NeedsSparkError(expression, expression, f"DuckDB says {message}")
    return RunError(f"{message} in {expression}")


def connect() -> Any:
    """Open a connection to the DuckDB database of this process; it is cheap, and temporary views are its own."""
    return _database().cursor()


@cache
def _database() -> Any:
    database = _duckdb().connect()
    database.execute("SET TimeZone = 'UTC'")
    database.execute("SET threads = 1")
    database.execute("PRAGMA disable_optimizer")
    return database


def _duckdb() -> Any:
    try:
        import duckdb  # noqa: PLC0415 - the extra `testing` has it
    except ImportError:
        raise InputError("penstock.testing needs DuckDB: pip install penstock[testing]") from None
    return duckdb


# --- values -----------------------------------------------------------------------------------------------------------


def arrow_type(kind: SparkType, zone: str) -> pa.DataType:
    """Return the Arrow type of a Spark type, as Spark's own conversion has it."""
    if kind.name == "decimal":
        return pa.decimal128(*kind.digits)
    if kind.name == "timestamp":
        return pa.timestamp("us", tz=zone)
    if kind.name == "void":
        return pa.null()
    return pa.duration("us") if is_interval(kind) else PLAIN[kind.name]


def _column(rows: pa.Table | pa.RecordBatch, name: str) -> pa.Array:
    """Return a column by its name in expressions: ``l.v`` is a field of the struct ``l``."""
    if name in rows.schema.names:
        column = rows.column(name)
        return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    side, _, field = name.partition(".")
    return _column(rows, side).field(field)


def to_duckdb(column: pa.Array, kind: str) -> pa.Array:
    """Convert a column to DuckDB's type: timestamps have no zone, intervals are microseconds."""
    parsed = read_type(kind)
    if parsed is None:
        return column
    if parsed.name in STAMPS:
        zoned = column.cast(pa.timestamp("us", getattr(column.type, "tz", None)))
        return zoned.cast(pa.int64()).cast(pa.timestamp("us"))
    if is_interval(parsed):
        return column.cast(pa.duration("us")).cast(pa.int64())
    return column.cast(arrow_type(parsed, "UTC"))


def _from_duckdb(column: pa.Array, kind: SparkType, zone: str) -> pa.Array:
    """Convert a column to Spark's Arrow type."""
    if kind.name == "struct":
        fields = [_from_duckdb(column.field(number), part, zone) for number, part in enumerate(kind.parts)]
        return pa.StructArray.from_arrays(fields, list(kind.names), mask=pc.is_null(column))
    if kind.name == "void":
        return pa.nulls(len(column))
    wanted = arrow_type(kind, zone)
    return column.cast(pa.int64()).cast(wanted) if kind.name == "timestamp" else column.cast(wanted)
