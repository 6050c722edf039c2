"""Committed results, read back: a query's rows, a stream's late rows, and sinks that can be read from the start.

In:  the plan and the state's files.  Out: Spark DataFrames.  Nothing here sees output that is not committed.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.engine.pairs import output_columns, wanted_pairs
from penstock.engine.sources import empty_rows
from penstock.errors import InputError
from penstock.log.files import open_files

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from penstock.log.files import Files
    from penstock.log.ledger import Ledger
    from penstock.plan.build import Plan
    from penstock.sql.query import Stream

_EMPTY = "part-00000000-schema.parquet"
"""The file without rows that every parquet sink begins with."""


def read_results(spark: SparkSession, files: Files, plan: Plan, ledger: Ledger, name: str) -> DataFrame:
    """Read a query's committed results from its sink."""
    query = plan.find(name)[2].query
    if query.sink.kind == "parquet":
        return spark.read.parquet(query.sink.option("path"))
    if query.sink.kind != "table":
        raise InputError(f"query {query.name} has a {query.sink.kind} sink, which keeps no results to read")
    rows = [
        _read_table(spark, files, f"table/{group}/{table['directory']}", table, table["members"][query.name])
        for group, tables in ledger.tables.items()
        for table in tables
        if query.name in table["members"] and table["version"] >= ledger.query(query.name).born
    ]
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), rows)


def _read_table(
    spark: SparkSession, files: Files, place: str, table: Mapping[str, Any], member: Mapping[str, Any]
) -> DataFrame:
    """Select a query's results, as it was defined then, from the pairs stored under one version of the plan."""
    there = files.list(place)  # the directory comes with the first pair
    reader = spark.read.schema(table["schema"])
    pairs = reader.parquet(files.path(place)) if there else spark.createDataFrame([], table["schema"])
    levels = (member["levels"][0], member["levels"][1])
    mine = wanted_pairs(member["residual"], member["number"], levels, selective=table["selective"])
    return pairs.where(mine).select(*output_columns(member["outputs"]))


def read_late(spark: SparkSession, files: Files, stream: Stream) -> DataFrame:
    """Read the rows of a stream that came too late, or had no event time."""
    place = f"late/{stream.name.lower()}"
    if not files.list(place):
        return empty_rows(spark, stream)
    names = [f"`{column.name}`" for column in stream.columns]
    return spark.read.parquet(files.path(place)).select(*names)


def write_empty_results(plan: Plan, empty: Mapping[str, DataFrame]) -> None:
    """Put a file without rows in every parquet sink, so that it can be read from the first moment."""
    for query in plan.queries:
        if query.sink.kind != "parquet":
            continue
        sink = open_files(query.sink.option("path"), sync=False)
        if not sink.exists(_EMPTY):
            out = pa.BufferOutputStream()
            pq.write_table(empty[query.name].toArrow(), out)
            sink.put(_EMPTY, out.getvalue().to_pybytes())  # whole or not at all: it is in the readers' sight
