"""Schemas as Spark has them: a stream's columns as DDL, as a DataFrame without rows, and as Arrow types.

In:  a `Stream`.  Out: text, an empty DataFrame, Arrow types.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.sql.tree import always_quoted
from penstock.sql.zones import ZONE

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import DataFrame, SparkSession

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
    if stream.time_type == "date":
        return None
    return pa.timestamp("us", None if stream.time_type == "timestamp_ntz" else spark.conf.get(ZONE))


@cache
def arrow_types(spark: SparkSession, stream: Stream) -> dict[str, pa.DataType]:
    """Give the Arrow type of each column of a stream, as Spark has it."""
    schema = empty_rows(spark, stream).toArrow().schema
    return dict(zip(schema.names, schema.types, strict=True))
