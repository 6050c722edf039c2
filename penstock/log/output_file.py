"""A Parquet file of results, written by a task in row groups of bounded bytes.

A file of a sink is written under ``_staging``, where no reader looks, and moved into place after the commit that names
it.  A file that the state keeps needs no such detour: it has a name that nobody else has, and readers read only the
files that the ledger names.

In:  record batches of one schema, with what Spark has to know of it (`penstock.log.spark_schema`).
Out: a file, and what a commit says of it.
"""

from __future__ import annotations

import json
import uuid
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING
from zlib import crc32

import pyarrow as pa

from penstock.log.checksum import SummedFile
from penstock.log.column_encodings import SAMPLE_ROWS, ColumnEncodings, choose_encodings
from penstock.log.files import open_files
from penstock.log.row_buffer import RowBuffer
from penstock.log.row_groups import MAGIC, About, RowGroups, encoded, footer
from penstock.log.spark_schema import SPARK_SCHEMA, described, loosened
from penstock.log.tables import StoredFile
from penstock.log.values import Move

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import BinaryIO

NOTE = b"penstock"
"""The key under which a file of results has, in its metadata, a note (JSON) on how its results came about."""

ROWS_PER_WRITE = 1 << 17
"""Rows gathered before they are encoded: the size of a row group, unless they are wide."""


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file of a query's results, or of a group's pairs: where it has to go, or what the state keeps."""

    query: str
    move: Move | None = None
    kept: StoredFile | None = None


class OutputFile:
    """A Parquet file being written; opened with the first rows.

    It takes rows, which it encodes, and row groups that were encoded for several files.
    """

    def __init__(self, root: str, final: str, compression: str = "snappy", *, kept: bool = False) -> None:
        """Name the file, which the state keeps or a sink gets; nothing is created yet."""
        self.root, self.final, self.kept = root, final, kept
        self.staged = final if kept else f"_staging/{uuid.uuid4().hex}-{final.rsplit('/', 1)[-1]}"
        self.rows = 0
        self._waiting, self._encoder = RowBuffer(ROWS_PER_WRITE), Encoder(compression)
        self._groups: list[About] = []
        self._file: BinaryIO | SummedFile | None = None
        self._stack = ExitStack()

    @property
    def waiting(self) -> int:
        """Count the bytes of the rows taken and not written yet."""
        return self._waiting.bytes

    def write(self, batch: pa.RecordBatch) -> None:
        """Take some rows."""
        self.rows += batch.num_rows
        if self._waiting.add(batch):
            self.flush()

    def flush(self) -> None:
        """Write the rows taken so far as one row group."""
        if batches := self._waiting.drain():
            self._put(self._encoder.encode(batches))

    def append(self, groups: RowGroups) -> None:
        """Take rows that are encoded already."""
        self.rows += groups.about.rows
        self._put(groups)

    def _put(self, groups: RowGroups) -> None:
        if self._file is None:
            sink = self._stack.enter_context(open_files(self.root, sync=False).writer(self.staged))
            self._file = SummedFile(sink) if self.kept else sink
            self._file.write(MAGIC)
        elif groups.about.schema != self._groups[0].schema:
            raise ValueError(f"rows of another schema than those before in {self.final}")
        self._file.write(groups.data)
        self._groups.append(groups.about)

    def close(self, about: Mapping[str, object] | None = None) -> None:
        """Write what is left and complete the file, with a note on what is in it."""
        self.flush()
        if self._file is not None:
            own = {} if about is None else {NOTE: json.dumps(about).encode()}
            notes = {key: value for key, value in self._groups[0].notes.items() if key != NOTE}
            self._file.write(footer(self._groups, notes | own))
        self._stack.close()

    def report(self, query: str) -> WrittenFile:
        """Say what was written, and for which query."""
        if isinstance(self._file, SummedFile):
            shape = shape_of(self._groups[0].arrow)
            file = StoredFile(self.final, self._file.tell(), shape=shape, checksum=self._file.checksum)
            return WrittenFile(query, kept=file)
        return WrittenFile(query, move=Move(self.root, self.staged, self.final))


class Encoder:
    """Encodes rows as files of results have them, all of them by what the first were like."""

    def __init__(self, compression: str) -> None:
        """Begin without having seen any row."""
        self._compression = compression
        self._encodings: ColumnEncodings | None = None

    def encode(self, batches: Sequence[pa.RecordBatch]) -> RowGroups:
        """Encode some rows."""
        table = loosened(pa.Table.from_batches(batches))
        if self._encodings is None and table.num_rows >= SAMPLE_ROWS:
            self._encodings = choose_encodings(table)
        described_rows = table.replace_schema_metadata(described(table.schema).metadata)
        return encoded(described_rows, self._compression, self._encodings or ColumnEncodings())


def shape_of(schema: pa.Schema) -> str:
    """Tell schemas apart by a few characters: files of one shape have the same columns, of the same types.

    >>> shape_of(pa.schema({"x": pa.int64()})) == shape_of(pa.schema({"x": pa.int32()}))
    False
    """
    spark_types = (schema.metadata or {}).get(SPARK_SCHEMA, b"")
    return f"{crc32(str(schema.remove_metadata()).encode() + spark_types):08x}"
