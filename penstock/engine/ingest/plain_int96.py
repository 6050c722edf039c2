"""Timestamps as Spark itself writes them: INT96, a Julian day and the nanoseconds since midnight.

Spark writes them unless it is told otherwise.  Those of its own files are read without it; others write INT96 by other
calendars and clocks, and what they mean is for Spark to decide.

In:  a Parquet file.  Out: which of its columns are INT96, whether they are Spark's, and their rows as instants.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.engine.ingest.plain_columns import FILE_TYPES

SPARK_VERSION = b"org.apache.spark.version"
"""The key of a file's metadata under which Spark says which release wrote it."""

_LEGACY_INT96 = b"org.apache.spark.legacyINT96"

_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 1 << 38
"""Seconds since 1970 of the times that are read here, the years 1 to 10680.  Before 4714 BC Spark writes days and
nanoseconds below zero, which have no sign to Arrow; after the last, microseconds may overflow."""


def open_parquet(path: str) -> pq.ParquetFile:
    """Open a file; INT96 is read as microseconds, as Spark has them."""
    return pq.ParquetFile(path, coerce_int96_timestamp_unit="us")


def int96_columns(file: pq.ParquetFile) -> set[str]:
    """Name the columns of times that are written as a day and nanoseconds."""
    columns = (file.schema.column(number) for number in range(len(file.schema)))
    return {column.path for column in columns if column.physical_type == "INT96"}


def has_sparks_int96(metadata: pq.FileMetaData) -> bool:
    """Say whether INT96 in a file is of the calendar that we have, in UTC: Spark wrote others before it was 3.1."""
    said = metadata.metadata or {}
    by_spark = said.get(SPARK_VERSION, b"") >= b"3.1.0" and metadata.created_by.startswith("parquet-mr")
    return by_spark and _LEGACY_INT96 not in said


def refuse_far_times(path: str, groups: list[int], columns: list[str]) -> None:
    """Leave times to Spark that Arrow would read otherwise; seconds tell, which cannot overflow."""
    with pq.ParquetFile(path, coerce_int96_timestamp_unit="s") as file:
        for rows in file.iter_batches(1 << 16, row_groups=groups, columns=columns, use_threads=False):
            for column in rows.columns:
                ends = pc.min_max(column.cast(pa.int64())).as_py()
                least, most = ends["min"] or 0, ends["max"] or 0
                if least < _FIRST_SECOND or most > _LAST_SECOND:
                    raise OSError(f"file {path} has times that are too far away")


def with_instants(rows: pa.RecordBatch, columns: set[str]) -> pa.RecordBatch:
    """Say of times without a zone that they are in UTC.

    Arrow gives the beginning of 1970 for everything on the first Julian day, too: one that is exactly that is Spark's.
    """
    for name in columns:
        micros = rows.column(name).cast(pa.int64())
        if pc.any(pc.equal(micros, 0)).as_py():
            raise OSError(f"column {name} has a time that Arrow has two meanings for")
        rows = rows.set_column(rows.schema.get_field_index(name), name, micros.cast(FILE_TYPES["timestamp"]))
    return rows
