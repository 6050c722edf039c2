"""Committed results, read back: a query's rows, a stream's late rows, and sinks that can be read from the start.

In:  the plan and the state's files.  Out: Spark DataFrames.  Nothing here sees output that is not committed.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.engine.pairs import output_columns, view, wanted_pairs
from penstock.engine.places import in_order, placed, unplaced
from penstock.engine.release import RELEASE
from penstock.engine.shape import pair_schema
from penstock.engine.sinks import ordered_folder
from penstock.engine.sources import empty_rows
from penstock.errors import InputError
from penstock.log.files import open_files
from penstock.log.locations import literal
from penstock.sql.query import SIDES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from penstock.log.files import Files
    from penstock.log.ledger import Ledger, Publication
    from penstock.plan.build import Plan
    from penstock.sql.query import Stream

_EMPTY = "part-00000000-schema.parquet"
"""The file without rows that every parquet sink begins with."""


def read_results(spark: SparkSession, files: Files, plan: Plan, ledger: Ledger, name: str) -> DataFrame:
    """Read a query's committed results from its sink, in order if it asks for that."""
    query = plan.query(name)
    if query.sink.kind == "parquet":
        rows = spark.read.parquet(literal(query.sink.option("path")))
        return in_order(placed(rows)) if query.ordered else rows
    if query.sink.kind != "table":
        raise InputError(f"query {query.name} has a {query.sink.kind} sink, which keeps no results to read")
    born = ledger.query(query.name).born
    tables = [
        (
            table["version"],
            _read_table(
                spark, files, f"table/{group}/{table['directory']}", table, table["members"][query.name]
            ),
        )
        for group, tables in ledger.tables.items()
        for table in tables
        if query.name in table["members"] and table["version"] >= born
    ]
    released = _read_released(spark, files, query.name, born)
    if tables and not (released or query.ordered):
        return _together(rows for _, rows in tables)
    eras = [unplaced(rows, version) for version, rows in tables] + released
    nothing = [unplaced(_empty(spark, plan, query.name))] if any(plan.places(name)) or not eras else []
    return in_order(_together([*nothing, *eras]))


def _together(parts: Iterable[DataFrame]) -> DataFrame:
    """Lay results end to end; a column that a definition of the query did not have is null there."""
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), parts)


def _read_released(spark: SparkSession, files: Files, query: str, born: int) -> list[DataFrame]:
    """Read the results that the state keeps in order, definition by definition, with the place of each row."""
    folder = ordered_folder(query)
    eras = {int(each[1:]): f"{folder}/{each}" for each in files.list(folder) if each.startswith("v")}
    return [placed(spark.read.parquet(files.to_read(eras[era])), era) for era in sorted(eras) if era >= born]


def _empty(spark: SparkSession, plan: Plan, name: str) -> DataFrame:
    """Give the result of a query before its first row."""
    group, number, member = plan.find(name)
    left, right = (plan.stream(group.log(side).stream) for side in SIDES)
    return view(spark.createDataFrame([], pair_schema(group, left, right)), group, number, member)


def read_output(spark: SparkSession, publication: Publication) -> DataFrame:
    """Read what is to be handed over; the results of a release in their order."""
    rows = spark.read.parquet(*(literal(f"{move.root}/{move.final}") for move in publication.moves))
    return in_order(placed(rows)) if publication.unit.startswith(RELEASE) else rows


def _read_table(
    spark: SparkSession, files: Files, place: str, table: Mapping[str, Any], member: Mapping[str, Any]
) -> DataFrame:
    """Select a query's results, as it was defined then, from the pairs stored under one version of the plan."""
    there = files.list(place)  # the directory comes with the first pair
    reader = spark.read.schema(table["schema"])
    pairs = reader.parquet(files.to_read(place)) if there else spark.createDataFrame([], table["schema"])
    levels = (member["levels"][0], member["levels"][1])
    mine = wanted_pairs(member["residual"], member["number"], levels, selective=table["selective"])
    return pairs.where(mine).select(*output_columns(member["outputs"]))


def read_late(spark: SparkSession, files: Files, stream: Stream) -> DataFrame:
    """Read the rows of a stream that came too late, or had no event time."""
    place = f"late/{stream.name.lower()}"
    if not files.list(place):
        return empty_rows(spark, stream)
    names = [f"`{column.name}`" for column in stream.columns]
    return spark.read.parquet(files.to_read(place)).select(*names)


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
