"""Schemas that are known without asking Spark are those that Spark has."""

from __future__ import annotations

import pytest

from penstock.engine.spark.schemas import PLAIN, arrow_schema
from penstock.sql.zones import ZONE

pytestmark = pytest.mark.spark

OTHERS = (
    "timestamp",
    "decimal(12, 3)",
    "array<int>",
    "struct<a: int, b: string>",
    "map<string, int>",
    "interval day to second",
    "string collate UTF8_LCASE",
)


@pytest.mark.parametrize("kind", [*PLAIN, *OTHERS])
@pytest.mark.parametrize("null", ["", " not null"])
def test_a_column_of_any_type_has_the_arrow_type_that_spark_gives_it(spark, kind, null):
    rows = spark.createDataFrame([], f"`a.b` {kind}{null}, other int")
    assert arrow_schema(rows).equals(rows.toArrow().schema)


def test_in_another_zone_times_have_the_zone_that_spark_gives_them(spark):
    before = spark.conf.get(ZONE)
    spark.conf.set(ZONE, "Europe/Vienna")
    try:
        rows = spark.createDataFrame([], "t timestamp, n timestamp_ntz")
        assert arrow_schema(rows).equals(rows.toArrow().schema)
    finally:
        spark.conf.set(ZONE, before)


def test_a_session_with_large_columns_is_asked(spark):
    spark.conf.set("spark.sql.execution.arrow.useLargeVarTypes", "true")
    try:
        rows = spark.createDataFrame([], "s string")
        assert arrow_schema(rows).equals(rows.toArrow().schema)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.useLargeVarTypes")
