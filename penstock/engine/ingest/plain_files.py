"""Batches of Parquet files that are read without Spark, where that gives what Spark would give.

Spark's source still finds the files, divides them into batches and remembers them; which files a batch has, its origin
says.  But no row passes through the JVM, and a few rows do not even take a job::

    Spark      list ─▶ offsets ─▶ batch 7: these files ─▶ plan ─▶ job: Parquet to rows to Arrow to Python ─▶ segments
    here       list ─▶ offsets ─▶ batch 7: these files ─▶ ────────── Parquet to Arrow ──────────────────▶ segments

Whether the two are the same is a question of types, which each file answers before it is read: every column must be
there once, under its declared name and with the very type that its declared one has in Parquet.  Spark reads what is
left: directories that are columns, times of the old calendar, casts, options that say how to read, broken files, and
files of a codec that it does not have.  A file that is no longer what it said when it is read is for Spark too.

In:  a stream, what the tasks of its batches are told, and the origin of a batch.  Out: a `PlainBatch`, or None.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.engine.ingest.batch_task import run_ingest
from penstock.engine.ingest.plain_columns import FILE_TYPES
from penstock.engine.ingest.plain_int96 import (
    SPARK_VERSION,
    has_sparks_int96,
    int96_columns,
    open_parquet,
    refuse_far_times,
    with_instants,
)
from penstock.join.width import gathered
from penstock.sql.streams import KEPT_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.engine.ingest.batch_task import BatchPart, BatchTask
    from penstock.engine.ingest.plain_columns import PlainColumns
    from penstock.sql.query import Stream

_WHICH_FILES = frozenset(
    {
        "path",
        "maxfilespertrigger",
        "maxbytespertrigger",
        "latestfirst",
        "filenameonly",
        "maxfileage",
        "maxcachedfiles",
        "discardcachedinputratio",
        "pathglobfilter",
    }
)
"""Options of a source that say which files are read and when, not how."""

MOST_LITTLE_ROWS = 1 << 17
"""Rows of a batch that are sooner written here than told to tasks."""

MOST_LITTLE_BYTES = 1 << 23
"""Bytes of them."""

_READ_ROWS = 1 << 12
"""Rows that are read at a time: how long values are, a file does not say, since one that comes again and again is in it
once."""

_PIECE_BYTES = 1 << 23
"""Bytes of them that are put together before columns are made, which takes its time for each piece."""

_CODECS = frozenset({"UNCOMPRESSED", "SNAPPY", "GZIP", "LZ4", "LZ4_RAW", "ZSTD"})
"""How files are compressed that Spark can read too: it has to, if a row is late."""

REBASE = "spark.sql.parquet.datetimeRebaseModeInRead"
"""Spark's setting for times in files that do not say which calendar they are of."""

_LEGACY = b"org.apache.spark.legacyDateTime"


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A part of a file that can be read by itself."""

    path: str
    number: int
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class PlainBatch:
    """A batch whose files can be read without Spark."""

    columns: PlainColumns
    groups: tuple[RowGroup, ...]

    @property
    def is_little(self) -> bool:
        """Say whether it is sooner read here than told to tasks."""
        rows, size = sum(each.rows for each in self.groups), sum(each.bytes for each in self.groups)
        return rows <= MOST_LITTLE_ROWS and size <= MOST_LITTLE_BYTES

    def shares(self, tasks: int) -> list[PlainBatch]:
        """Divide it among tasks, neighbouring row groups together, so that each has about as many rows."""
        whole = sum(each.rows for each in self.groups) or 1
        shares: list[tuple[RowGroup, ...]] = [()] * tasks
        before = 0
        for each in self.groups:
            shares[min(tasks - 1, (before + each.rows // 2) * tasks // whole)] += (each,)
            before += each.rows
        return [PlainBatch(self.columns, each) for each in shares if each]

    @property
    def has_checksums(self) -> bool:
        """Say whether Hadoop has written a checksum beside one of the files."""
        files = {Path(each.path) for each in self.groups}
        return any(each.with_name(f".{each.name}.crc").exists() for each in files)

    def ingest(self, task: BatchTask) -> Iterator[BatchPart]:
        """Read it and write its segments."""
        return run_ingest(task, self._read())

    def _read(self) -> Iterator[pa.RecordBatch]:
        for path, of_file in groupby(self.groups, lambda each: each.path):
            groups = list(of_file)
            with open_parquet(path) as file:
                if not set(groups) <= set(_row_groups(path, file, self.columns) or ()):
                    raise OSError(f"file {path} was changed while it was being read")
                int96 = int96_columns(file) & set(self.columns.types)
                if int96:
                    refuse_far_times(path, [each.number for each in groups], sorted(int96))
                rows = file.iter_batches(
                    _READ_ROWS,
                    row_groups=[each.number for each in groups],
                    columns=list(self.columns.types),
                    use_threads=False,
                )
                for piece in gathered(rows, _PIECE_BYTES):
                    yield self.columns.of(with_instants(pa.concat_batches(piece), int96))


def only_says_which_files(stream: Stream) -> bool:
    """Say whether a stream is of Parquet files, and none of its options says how they are to be read."""
    return stream.format.lower() == "parquet" and all(
        name.lower() in _WHICH_FILES | KEPT_OPTIONS for name, _ in stream.options
    )


def plain_batch(columns: PlainColumns, origin: dict[str, Any]) -> PlainBatch | None:
    """Look at the files of a batch; None if some of them are for Spark."""
    paths = [_local_path(url) for url in _urls(origin) or ("",)]
    try:
        found = [_row_groups_of(path, columns) if path else None for path in paths]
    except (OSError, ValueError, pa.ArrowException):  # Spark says what is wrong, or passes over it
        return None
    groups = [each for each in found if each is not None]
    return PlainBatch(columns, tuple(sum(groups, ()))) if len(groups) == len(found) else None


def _urls(origin: dict[str, Any]) -> list[str] | None:
    """List the files of a batch, if it is of one source of files and names them all."""
    if len(origin["entries"]) != 1 or origin["begun"]:
        return None
    (entries,) = origin["entries"].values()
    return None if entries is None else [url for files in entries.values() for url, _ in files]


def _local_path(url: str) -> str:
    """Give the path of a file on this machine; empty if it is elsewhere, or its directories are columns.

    >>> _local_path("file:///data/in/a%20b.parquet"), _local_path("s3a://bucket/x"), _local_path("file:/d/k=3/x")
    ('/data/in/a b.parquet', '', '')
    """
    parts = urlsplit(url)
    path = unquote(parts.path)
    plain = parts.scheme == "file" and not parts.netloc and not parts.query and not parts.fragment
    return path if plain and "=" not in path.rpartition("/")[0] else ""


def _row_groups_of(path: str, columns: PlainColumns) -> tuple[RowGroup, ...] | None:
    """Read what a file says of itself; None if Spark would read it otherwise."""
    with open_parquet(path) as file:
        return _row_groups(path, file, columns)


def _row_groups(path: str, file: pq.ParquetFile, columns: PlainColumns) -> tuple[RowGroup, ...] | None:
    """List the parts of a file; None if Spark would read it otherwise."""
    if not _has_columns(file, columns) or not _is_of_today(file.metadata.metadata or {}):
        return None
    parts = [file.metadata.row_group(number) for number in range(file.num_row_groups)]
    if not all(map(_has_known_codecs, parts[:1])):
        return None
    return tuple(
        RowGroup(path, number, each.num_rows, each.total_byte_size) for number, each in enumerate(parts)
    )


def _has_known_codecs(part: pq.RowGroupMetaData) -> bool:
    """Say whether Spark can decompress all columns of a row group; those of a file are alike."""
    return all(part.column(number).compression in _CODECS for number in range(part.num_columns))


def _has_columns(file: pq.ParquetFile, columns: PlainColumns) -> bool:
    """Say whether a file has every column that is read, once and with the type that it should have."""
    schema, int96 = file.schema_arrow, int96_columns(file)
    lower = [name.lower() for name in schema.names]
    instants = {name for name, kind in columns.types.items() if kind == FILE_TYPES["timestamp"]}
    sparks = instants & int96 if has_sparks_int96(file.metadata) else set()
    return all(
        name in schema.names
        and lower.count(name.lower()) == 1
        and (name in sparks or (name not in int96 and _is(schema.field(name).type, kind)))
        for name, kind in columns.types.items()
    )


def _is(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Compare the types of two columns; instants are the same in every zone."""
    if pa.types.is_timestamp(found) and pa.types.is_timestamp(wanted):
        return found.unit == wanted.unit and (found.tz is None) == (wanted.tz is None)
    return bool(found == wanted)


def _is_of_today(metadata: dict[bytes, bytes]) -> bool:
    """Say whether times in a file are of the calendar that we have: Spark wrote others before it was 3."""
    return _LEGACY not in metadata and metadata.get(SPARK_VERSION, b"3.0.0") >= b"3.0.0"
