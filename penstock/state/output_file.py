"""A Parquet file of results, written by a task in row groups of bounded bytes.

A file of a sink is written under ``_staging``, where readers do not look, and moved into place after the commit that
names it.  A file that the state keeps is not staged, because readers read only files that the ledger names.

If several queries have identical output, the file is written once and shared::

    directory of q0     part-…-0003-02.parquet ──┐
    directory of q1     part-…-0003-02.parquet ──┼──  hard links to one file, or copies of it
    directory of q2     part-…-0003-02.parquet ──┘

Result files never change, and removing one link leaves the others.  Links share owner and rights, so the file is copied
if those of the directories differ, or if the filesystem has no links.

Columns are encoded by the file's first rows::

    integers and times in a narrow range     differences of neighbours, packed into bits    keys, times
    any other column                         a small dictionary, else plain values          names, measurements

By default, the Parquet writer starts a large dictionary for every column and drops it when it is full.  That takes
longer than all other encoding, and stores keys and times in full width (docs/decisions/032-whole-files.md).  Any choice
is correct; a bad one only makes the file larger.  Values in lists and maps are never written as differences.

In:  record batches of one schema, with Spark's description of it (`penstock.state.spark_schema`).
Out: a file, and its entry in a commit.
"""

from __future__ import annotations

import json
import uuid
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as is_a

from penstock import limits
from penstock.state.checksum import SummedFile
from penstock.state.files import LocalFiles, open_files
from penstock.state.spark_schema import SPARK_SCHEMA, described, loosened
from penstock.state.tables import StoredFile
from penstock.state.values import Move

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from penstock.state.files import Files

NOTE = b"penstock"
"""The key of a note (JSON) on the origin of the results, in the file's metadata."""


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file of a query's results, or of a group's pairs: to be moved, or kept by the state."""

    query: str
    move: Move | None = None
    kept: StoredFile | None = None


class OutputFile:
    """A Parquet file being written; it is created with the first rows."""

    def __init__(self, root: str, final: str, compression: str = "snappy", *, kept: bool = False) -> None:
        """Name the file, which the state keeps or a sink gets."""
        self.root, self.final, self.kept = root, final, kept
        self.staged = final if kept else f"_staging/{uuid.uuid4().hex}-{final.rsplit('/', 1)[-1]}"
        self.rows = 0
        self._compression = compression
        self._waiting = RowBuffer(limits.MAX_ROWS_PER_ROW_GROUP)
        self._summed: SummedFile | None = None
        self._writer: pq.ParquetWriter | None = None
        self._stack = ExitStack()

    @property
    def waiting(self) -> int:
        """Return the bytes of rows that are not written yet."""
        return self._waiting.bytes

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        self.rows += batch.num_rows
        if self._waiting.add(batch):
            self.flush()

    def flush(self) -> None:
        """Write the added rows as one row group."""
        if batches := self._waiting.drain():
            table = loosened(pa.Table.from_batches(batches))
            self._writer = self._writer or self._open(table)
            self._writer.write_table(table)

    def _open(self, table: pa.Table) -> pq.ParquetWriter:
        sink = self._stack.enter_context(open_files(self.root, sync=False).writer(self.staged))
        self._summed = SummedFile(sink) if self.kept else None
        return pq.ParquetWriter(
            self._summed or sink,
            described(table.schema),
            compression=self._compression,
            write_page_checksum=True,
            **writer_options(table),
        )

    def close(self, about: Mapping[str, object] | None = None) -> None:
        """Write the remaining rows and complete the file, with a note on its content."""
        self.flush()
        if self._writer is not None:
            if about is not None:
                self._writer.add_key_value_metadata({NOTE: json.dumps(about).encode()})
            self._writer.close()
        self._stack.close()

    def report(self, query: str) -> WrittenFile:
        """Return the written file, for a query."""
        if self._summed is not None and self._writer is not None:
            shape = shape_of(self._writer.schema)
            file = StoredFile(self.final, self._summed.tell(), shape=shape, checksum=self._summed.checksum)
            return WrittenFile(query, kept=file)
        return WrittenFile(query, move=Move(self.root, self.staged, self.final))

    def share(self, root: str, query: str) -> WrittenFile:
        """Share the complete file with another query: a hard link in its directory, or a copy."""
        own, other = open_files(self.root, sync=False), open_files(root, sync=False)
        if not (_are_alike(own, other, "_staging") and own.link(self.staged, other, self.staged)):
            own.copy(self.staged, other, self.staged)
        return WrittenFile(query, move=Move(root, self.staged, self.final))


def _are_alike(own: Files, other: Files, folder: str) -> bool:
    """Return whether files in two directories have the same owner and rights."""
    if not (isinstance(own, LocalFiles) and isinstance(other, LocalFiles)):
        return False
    other.make_dirs(folder)
    return own.rights(folder) == other.rights(folder)


def shape_of(schema: pa.Schema) -> str:
    """Return a digest of a schema: files of one shape have the same columns of the same types.

    >>> shape_of(pa.schema({"x": pa.int64()})) == shape_of(pa.schema({"x": pa.int32()}))
    False
    """
    spark_types = (schema.metadata or {}).get(SPARK_SCHEMA, b"")
    return f"{crc32(str(schema.remove_metadata()).encode() + spark_types):08x}"


class RowBuffer:
    """Rows to be written together: at most so many rows, or `limits.MAX_PIECE_BYTES`."""

    def __init__(self, most_rows: int, copies: int = 1) -> None:
        """Begin empty; the writer makes so many copies of the rows."""
        self._most_rows, self._copies = most_rows, copies
        self._batches: list[pa.RecordBatch] = []
        self.rows = 0
        self.bytes = 0

    def add(self, batch: pa.RecordBatch) -> bool:
        """Add rows, and return whether it is time to write."""
        self._batches.append(batch)
        self.rows += batch.num_rows
        self.bytes += batch.nbytes
        return self.rows >= self._most_rows or self._copies * self.bytes >= limits.MAX_PIECE_BYTES

    def drain(self) -> list[pa.RecordBatch]:
        """Return all rows and remove them."""
        batches, self._batches, self.rows, self.bytes = self._batches, [], 0, 0
        return batches


# --- how columns are encoded -----------------------------------------------------------------------------------------

DELTA = "DELTA_BINARY_PACKED"


def writer_options(rows: pa.Table) -> dict[str, Any]:
    """Return options of `ParquetWriter` for a file that begins with these rows."""
    sample, options = (
        rows.slice(0, limits.ENCODING_SAMPLE_ROWS),
        {"dictionary_pagesize_limit": limits.MAX_DICTIONARY_BYTES},
    )
    while any(is_a.is_struct(kind) for kind in sample.schema.types):
        sample = sample.flatten()
    names = sample.schema.names
    paths = _paths(rows.schema) if any(is_a.is_nested(kind) for kind in sample.schema.types) else names
    if len(set(paths)) < len(paths):  # the writer cannot distinguish a column "a.b" from field b of a
        return options
    narrow = [name for name in names if _is_narrow(sample.column(name).combine_chunks())]
    others = [path for path in paths if path not in narrow]
    return options | {"use_dictionary": others, "column_encoding": dict.fromkeys(narrow, DELTA)}


def _paths(schema: pa.Schema) -> list[str]:
    """Return the Parquet paths of the leaves of a schema, including those in lists and maps."""
    out = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), out)
    leaves = pq.ParquetFile(out.getvalue()).schema
    return [leaves.column(number).path for number in range(len(leaves))]


def _is_narrow(values: pa.Array) -> bool:
    """Return whether Parquet stores a column as integers, and their range is narrow.

    >>> [_is_narrow(pa.array(each)) for each in ([7, 1 << 32], [7, 1 << 33], [7.0], [True])]
    [True, False, False, False]
    """
    kind = values.type
    is_time = (
        is_a.is_timestamp(kind) or is_a.is_duration(kind) or is_a.is_time64(kind) or is_a.is_date32(kind)
    )
    if not (is_time or is_a.is_int64(kind) or is_a.is_int32(kind)) or values.null_count == len(values):
        return False
    ends = pc.min_max(values.view(f"int{kind.bit_width}")).as_py()
    return bool((ends["max"] - ends["min"]).bit_length() <= limits.MAX_DELTA_BITS)
