"""Rows of output files in the order in which they were written.

Spark reads files and parts of files in an order of its own.  So each row is given its *place*, and rows are sorted by
that: the version of the plan that its query was defined by, the name of its file (names ascend), its number there.

In:  DataFrames over output files.  Out: the same rows in order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ERA, _FILE, _ROW = "penstock.era", "penstock.file", "penstock.row"


def placed(rows: DataFrame, era: int = 0) -> DataFrame:
    """Give the rows of some files their places."""
    metadata = rows.metadataColumn("_metadata")
    return rows.select(
        "*", F.lit(era).alias(_ERA), metadata["file_name"].alias(_FILE), metadata["row_index"].alias(_ROW)
    )


def unplaced(rows: DataFrame, era: int = 0) -> DataFrame:
    """Give rows that are in no order among themselves a place before all others of their era."""
    return rows.select(
        "*", F.lit(era).alias(_ERA), F.lit("").alias(_FILE), F.lit(0).cast("bigint").alias(_ROW)
    )


def in_order(rows: DataFrame) -> DataFrame:
    """Sort rows by their places, and forget the places."""
    return rows.orderBy(*(f"`{each}`" for each in (_ERA, _FILE, _ROW))).drop(_ERA, _FILE, _ROW)
