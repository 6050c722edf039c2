"""Merge files of pairs, or of a query's own results, into one file.

A task reads and writes a row group at a time, so its memory depends neither on the number of files nor on their size.
Pairs that move to another table get the bits of its queries; a pair without a bit is left out::

    table v3     l{a} r{b} level 2            query q reads levels 0 to 4
    table m      l{a} r{b, c} s0 = 0b100      q has bit 2; c is null where v3 had none

In:  a `FileMerge`.  Out: the new file, or None where nothing is left.  The order of rows is that of the files.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.kernels.sets import members
from penstock.sql.query import is_side
from penstock.state.checksum import map_whole
from penstock.state.output_file import NOTE, OutputFile
from penstock.state.spark_schema import described_together

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from penstock.state.files import Files
    from penstock.state.tables import BitSource, FileMerge, StoredFile

CONFLICT = "conflict"
"""The report on files of which a column has two types."""


@dataclass(frozen=True, slots=True)
class MergeTask:
    """Merges several files of results into one."""

    merge: FileMerge

    def run(self, files: Files) -> StoredFile | str | None:
        """Write the file; return None if no row is left, `CONFLICT` if a column has two types in the files."""
        try:
            return merge_files(files, self.merge)
        except pa.ArrowTypeError:
            return CONFLICT


def merge_files(files: Files, merge: FileMerge) -> StoredFile | None:
    """Write the rows of several files to one, and return it; None if no row is left."""
    out = OutputFile(files.root, f"{merge.prefix}{uuid.uuid4().hex}.parquet", kept=True)
    schema = _schema(files, merge)
    for file in merge.inputs:
        for batch in _batches(files, file):
            rows = _with_bits(batch, merge.bits[file.name], merge.words) if merge.bits else batch
            if rows.num_rows:
                out.write(_as(rows, schema))
    out.close(_last_note(files, merge.inputs))
    if not out.rows:
        return None
    made = out.report("").kept
    return replace(made, generation=merge.generation) if made else None


def _last_note(files: Files, inputs: Sequence[StoredFile]) -> dict[str, object] | None:
    """Return the note of the newest file that has one."""
    for file in reversed(inputs):
        metadata = pq.read_metadata(map_whole(files, file)).metadata or {}
        if NOTE in metadata:
            return dict(json.loads(metadata[NOTE]))
    return None


def _batches(files: Files, file: StoredFile) -> Iterator[pa.RecordBatch]:
    """Read a file, a row group at a time."""
    with pq.ParquetFile(map_whole(files, file)) as content:
        for group in range(content.num_row_groups):
            yield from content.read_row_group(group, use_threads=False).to_batches()


def _schema(files: Files, merge: FileMerge) -> pa.Schema:
    """Return the columns of the new file: those of all inputs."""
    schemas = []
    for file in merge.inputs:
        with pq.ParquetFile(map_whole(files, file)) as content:
            schemas.append(content.schema_arrow)
    if not merge.bits:  # raises ArrowTypeError where types differ
        return described_together(schemas)
    sides = [
        pa.field(side, _struct([schema.field(side).type for schema in schemas]))
        for side in filter(is_side, schemas[0].names)
    ]
    return pa.schema([*sides, *(pa.field(f"s{word}", pa.int64()) for word in range(merge.words))])


def _struct(kinds: Sequence[pa.StructType]) -> pa.StructType:
    """Merge the columns of one side; ``nothing`` stays only if there is no other column."""
    fields = {field.name: field for kind in kinds for field in kind}
    if len(fields) > 1 and all(
        len(kind) == 1 for kind in kinds if "nothing" in {field.name for field in kind}
    ):
        fields.pop("nothing", None)
    return pa.struct(list(fields.values()))


def _with_bits(batch: pa.RecordBatch, bits: Sequence[BitSource], words: int) -> pa.RecordBatch:
    """Replace the bits of pairs by those of another table; leave out pairs without a bit."""
    out = np.zeros((batch.num_rows, words), np.uint64)
    for bit in bits:
        out[:, bit.target // 64] |= _has(batch, bit).astype(np.uint64) << np.uint64(bit.target % 64)
    wanted = out.any(axis=1)
    columns = {
        f"s{word}": pa.array(np.ascontiguousarray(out[:, word]).view(np.int64)) for word in range(words)
    }
    sides = {name: batch.column(name) for name in filter(is_side, batch.schema.names)}
    made = pa.RecordBatch.from_arrays([*sides.values(), *columns.values()], [*sides, *columns])
    return made if wanted.all() else made.filter(pa.array(wanted))


def _has(batch: pa.RecordBatch, bit: BitSource) -> NDArray[np.bool_]:
    """Return which pairs a bit stands for."""
    if bit.source >= 0:
        word = batch.column(f"s{bit.source // 64}").to_numpy().view(np.uint64)
        return members(word.reshape(-1, 1), bit.source % 64)
    level = batch.column("level").to_numpy()
    return np.asarray((level >= bit.levels[0]) & (level < bit.levels[1]))


def _as(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the columns of a schema, in its order: null where the rows have none."""
    if batch.schema.equals(schema):
        return batch.replace_schema_metadata(schema.metadata)
    return pa.RecordBatch.from_arrays(
        [
            _column(
                batch.column(field.name) if field.name in batch.schema.names else None,
                field.type,
                batch.num_rows,
            )
            for field in schema
        ],
        schema=schema,
    )


def _column(array: pa.Array | None, kind: pa.DataType, rows: int) -> pa.Array:
    """Cast a column to a type; structs field by field."""
    if array is None:
        return pa.nulls(rows, kind)
    if array.type.equals(kind):
        return array
    if not pa.types.is_struct(kind) or not pa.types.is_struct(array.type):
        return array.cast(kind)
    own = {field.name for field in array.type}
    fields = [
        _column(array.field(field.name) if field.name in own else None, field.type, rows) for field in kind
    ]
    return pa.StructArray.from_arrays(fields, fields=list(kind), mask=array.is_null())
