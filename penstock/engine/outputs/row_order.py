"""Rows of output files in the order in which they were written.

Spark reads files and parts of files in an order of its own.  So each row is given its *position*, and rows are sorted
by that: the name of its file (names ascend), and its number there.

In:  DataFrames over output files.  Out: the same rows in order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FILE, _ROW = "penstock.file", "penstock.row"


def positioned(rows: DataFrame) -> DataFrame:
    """Give the rows of some files their positions."""
    metadata = rows.metadataColumn("_metadata")
    return rows.select("*", metadata["file_name"].alias(_FILE), metadata["row_index"].alias(_ROW))


def unpositioned(rows: DataFrame) -> DataFrame:
    """Give rows that are in no order among themselves a position before all others."""
    return rows.select("*", F.lit("").alias(_FILE), F.lit(0).cast("bigint").alias(_ROW))


def in_order(rows: DataFrame) -> DataFrame:
    """Sort rows by their positions, and forget the positions."""
    return rows.orderBy(*(f"`{each}`" for each in (_FILE, _ROW))).drop(_FILE, _ROW)
