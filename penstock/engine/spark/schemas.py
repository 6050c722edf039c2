"""Types as Spark has them: a stream's columns as DDL, as an empty DataFrame and as Arrow types; the types of join keys.

Both sides of an equality are hashed, so they must have one type before.  `penstock.sql.bind.conditions` knows the
declared types and many expressions, and leaves other types open (computed decimals, most functions).  Left open,
``a.amount * 2 = b.amount`` would hash decimals of two scales and miss pairs silently.

In:  a `Stream`, or a bound query and its streams.
Out: text, an empty DataFrame, Arrow types; the query, its computed keys with the types in which Spark compares them.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows
from pyspark.sql.types import ArrayType, MapType, StructField, StructType

from penstock.engine.spark.spark_errors import short_message
from penstock.errors import InputError
from penstock.sql.text.tree import always_quoted, quoted, unquoted
from penstock.sql.zones import ZONE
from penstock.state.spark_schema import PLAIN

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

    from penstock.sql.query import Key, Query, Stream

_LARGE = "spark.sql.execution.arrow.useLargeVarTypes"


# --- schemas ----------------------------------------------------------------------------------------------------


def schema_ddl(stream: Stream, names: Collection[str] | None = None) -> str:
    """Write a stream's columns, or some of them, as Spark DDL."""
    columns = [column for column in stream.columns if names is None or column.name in names]
    return ", ".join(f"{always_quoted(column.name)} {column.type}" for column in columns)


def empty_rows(spark: SparkSession, stream: Stream) -> DataFrame:
    """Return a DataFrame with a stream's columns and no rows, to check expressions on."""
    return spark.createDataFrame([], schema_ddl(stream))


def arrow_time_type(stream: Stream, spark: SparkSession) -> pa.DataType | None:
    """Return the Arrow type of a stream's time column in Spark; None for a date, which is not in microseconds."""
    if stream.timeless or stream.time_type == "date":
        return None
    return pa.timestamp("us", None if stream.time_type == "timestamp_ntz" else spark.conf.get(ZONE))


@cache
def arrow_types(spark: SparkSession, stream: Stream) -> dict[str, pa.DataType]:
    """Return the Arrow type of each column of a stream in Spark."""
    schema = arrow_schema(empty_rows(spark, stream))
    return dict(zip(schema.names, schema.types, strict=True))


def arrow_schema(rows: DataFrame) -> pa.Schema:
    """Return the schema that a DataFrame without rows has as an Arrow table.

    Spark needs a job for this, the first of a session, which takes seconds.  So it is asked only if the type of some
    column is not plain.
    """
    fields = [_arrow_field(field, rows.sparkSession) for field in rows.schema.fields]
    plain = [field for field in fields if field is not None]
    if len(plain) < len(fields) or rows.sparkSession.conf.get(_LARGE, "false") != "false":
        schema: pa.Schema = rows.limit(0).toArrow().schema  # without keys, an aggregate of no rows is a row
        return schema
    return pa.schema(plain)


def _arrow_field(field: StructField, spark: SparkSession) -> pa.Field | None:
    """Return the Arrow field for a column of a plain type; None for other types, and for times of another zone."""
    name = field.dataType.simpleString()
    utc = name == "timestamp" and spark.conf.get(ZONE) == "UTC"
    kind = pa.timestamp("us", "UTC") if utc else PLAIN.get(name)
    return None if kind is None else pa.field(field.name, kind, field.nullable)


def type_text(kind: DataType) -> str:
    """Write a type as DDL; Spark's own `simpleString` does not quote the names of fields.

    >>> from pyspark.sql.types import StringType
    >>> type_text(StructType([StructField("a.b", ArrayType(StringType()))]))
    'struct<`a.b`:array<string>>'
    """
    if isinstance(kind, StructType):
        fields = (f"{quoted(field.name)}:{type_text(field.dataType)}" for field in kind.fields)
        return f"struct<{','.join(fields)}>"
    if isinstance(kind, ArrayType):
        return f"array<{type_text(kind.elementType)}>"
    if isinstance(kind, MapType):
        return f"map<{type_text(kind.keyType)},{type_text(kind.valueType)}>"
    return kind.simpleString()


# --- join keys --------------------------------------------------------------------------------------------------


def with_key_types(
    query: Query, streams: Sequence[Stream], spark: Callable[[], SparkSession], *, ansi: bool = True
) -> Query:
    """Fill in the open types; `streams` are those of the query's inputs in their order.

    Spark is asked, and so started, only if there are open types.  Types that follow from declarations are those of
    ANSI mode; in a session without it Spark is asked for them too.
    """

    def typed(key: Key, left: int, right: int) -> Key:
        sides = streams[left], streams[right]
        asked = _is_open(key, *sides) or (key.type and not ansi)
        return _typed(key, query, *sides, spark()) if asked else key

    return query.with_keys(typed)


def _is_open(key: Key, left: Stream, right: Stream) -> bool:
    """Check whether a key has no type yet and is not two plain columns, whose types are known to be the same."""
    plain = left.column(unquoted(key.left)) and right.column(unquoted(key.right))
    return not key.type and not plain


def _typed(key: Key, query: Query, left: Stream, right: Stream, spark: SparkSession) -> Key:
    """Return the key with the type in which Spark compares its two sides."""
    try:
        sides = [
            empty_rows(spark, stream).select(F.expr(text)).schema[0].dataType
            for stream, text in ((left, key.left), (right, key.right))
        ]
        fields = [StructField(name, kind) for name, kind in zip("lr", sides, strict=True)]
        both = spark.createDataFrame([], StructType(fields))
        both.select(F.expr("l = r"))
        common = both.select(F.coalesce("l", "r")).schema[0].dataType
    except Exception as error:
        raise InputError(
            f"query {query.name} cannot join on {key.left} = {key.right}: {short_message(error)}"
        ) from error
    if " collate " in (kind := type_text(common)):
        raise InputError(
            f"query {query.name} cannot join on {key.left} = {key.right}, which is {kind}: only Spark knows which "
            "of such values are equal. Write COLLATE UTF8_BINARY behind both, or compare plain columns"
        )
    return replace(key, type=kind)
