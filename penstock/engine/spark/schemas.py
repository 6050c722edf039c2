"""Schemas as Spark has them: a stream's columns as DDL, as a DataFrame without rows, and as Arrow types.

In:  a `Stream`.  Out: text, an empty DataFrame, Arrow types.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.sql.text.tree import always_quoted
from penstock.sql.zones import ZONE
from penstock.state.spark_schema import PLAIN

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructField

    from penstock.sql.query import Stream


def schema_ddl(stream: Stream, names: Collection[str] | None = None) -> str:
    """Write a stream's columns, or some of them, as Spark DDL."""
    columns = [each for each in stream.columns if names is None or each.name in names]
    return ", ".join(f"{always_quoted(each.name)} {each.type}" for each in columns)


def empty_rows(spark: SparkSession, stream: Stream) -> DataFrame:
    """Make a DataFrame with a stream's columns and no rows, to check expressions against."""
    return spark.createDataFrame([], schema_ddl(stream))


def arrow_time_type(stream: Stream, spark: SparkSession) -> pa.DataType | None:
    """Give the Arrow type Spark uses for a timestamp column; None for a date, which is not in microseconds."""
    if stream.timeless or stream.time_type == "date":
        return None
    return pa.timestamp("us", None if stream.time_type == "timestamp_ntz" else spark.conf.get(ZONE))


@cache
def arrow_types(spark: SparkSession, stream: Stream) -> dict[str, pa.DataType]:
    """Give the Arrow type of each column of a stream, as Spark has it."""
    schema = arrow_schema(empty_rows(spark, stream))
    return dict(zip(schema.names, schema.types, strict=True))


_LARGE = "spark.sql.execution.arrow.useLargeVarTypes"


def arrow_schema(rows: DataFrame) -> pa.Schema:
    """Give the schema that a DataFrame without rows has as an Arrow table.

    Spark tells by running a job, the first of a session, which takes seconds; so it is asked only where some column has
    a type that is not plain.
    """
    fields = [_arrow_field(each, rows.sparkSession) for each in rows.schema.fields]
    plain = [each for each in fields if each is not None]
    if len(plain) < len(fields) or rows.sparkSession.conf.get(_LARGE, "false") != "false":
        schema: pa.Schema = rows.limit(0).toArrow().schema  # without keys, an aggregate of no rows is a row
        return schema
    return pa.schema(plain)


def _arrow_field(field: StructField, spark: SparkSession) -> pa.Field | None:
    """Give the Arrow field for a column of a plain type, None for others; which zone a time has is Spark's to say."""
    name = field.dataType.simpleString()
    utc = name == "timestamp" and spark.conf.get(ZONE) == "UTC"
    kind = pa.timestamp("us", "UTC") if utc else PLAIN.get(name)
    return None if kind is None else pa.field(field.name, kind, field.nullable)
