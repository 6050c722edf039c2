"""Choose how Parquet's writer encodes each column of a file of results, from the file's first rows.

    integers and times in a narrow range     differences of neighbours, packed into bits    keys, times
    anything else                            a small dictionary, else plain values          names, measurements

By default the writer begins a large dictionary for every column and gives it up when it is full.  That takes longer
than all other encoding, and leaves keys and times as wide as their type (docs/decisions/032-whole-files.md).

Any choice is correct; a wrong one is a larger file.  Values in lists and maps are never written as differences.

In:  rows.  Out: options of `pyarrow.parquet.ParquetWriter`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as is_a

from penstock import limits

if TYPE_CHECKING:
    from typing import Any

DELTA = "DELTA_BINARY_PACKED"


def writer_options(rows: pa.Table) -> dict[str, Any]:
    """Return the options for a file that begins with these rows."""
    sample, options = (
        rows.slice(0, limits.ENCODING_SAMPLE_ROWS),
        {"dictionary_pagesize_limit": limits.MAX_DICTIONARY_BYTES},
    )
    while any(is_a.is_struct(kind) for kind in sample.schema.types):
        sample = sample.flatten()
    names = sample.schema.names
    paths = _paths(rows.schema) if any(is_a.is_nested(kind) for kind in sample.schema.types) else names
    if len(set(paths)) < len(paths):  # "a.b" may be a column, or b in a: the writer does not tell them apart
        return options
    narrow = [name for name in names if _is_narrow(sample.column(name).combine_chunks())]
    others = [path for path in paths if path not in narrow]
    return options | {"use_dictionary": others, "column_encoding": dict.fromkeys(narrow, DELTA)}


def _paths(schema: pa.Schema) -> list[str]:
    """Return the paths of a schema's leaves, as Parquet names them in lists and maps."""
    out = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), out)
    leaves = pq.ParquetFile(out.getvalue()).schema
    return [leaves.column(number).path for number in range(len(leaves))]


def _is_narrow(values: pa.Array) -> bool:
    """Return whether a column has integers, as Parquet stores it, and their range is narrow.

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
