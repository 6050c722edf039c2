"""Choose how Parquet's writer encodes each column of a file of results, from the file's first rows.

    few distinct values              a dictionary, and numbers into it              names, categories
    integers in a narrow range       differences of neighbours, packed into bits    keys, times
    anything else                    plain values                                   measurements

By default Parquet's writer begins a dictionary for every column, and gives it up when it becomes too large.  That costs
more than all other encoding, and keys and times stay as wide as their type (docs/decisions/032-whole-files.md).

Any choice is correct; a wrong one is a larger file.  A table with lists or maps keeps the writer's defaults.

In:  rows.  Out: options of `pyarrow.parquet.ParquetWriter`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as is_a

if TYPE_CHECKING:
    from typing import Any

DICTIONARY_BYTES = 1 << 14
"""Bytes of a column's distinct values, in a row group, up to which they are written as a dictionary."""

SAMPLE_ROWS = 1 << 12
"""Rows that are looked at."""

MOST_BITS_OF_BYTE = 5
"""Bits of a range, for each byte of its type, up to which differences are written: plain values compress better."""

DELTA = "DELTA_BINARY_PACKED"


def writer_options(rows: pa.Table) -> dict[str, Any]:
    """Return the options for a file that begins with these rows."""
    sample = rows.slice(0, SAMPLE_ROWS)
    while any(is_a.is_struct(kind) for kind in sample.schema.types):
        sample = sample.flatten()
    names, limit = sample.schema.names, {"dictionary_pagesize_limit": DICTIONARY_BYTES}
    # "a.b" may be a column, or b in a: Parquet's writer does not tell them apart
    if len(set(names)) < len(names) or any(is_a.is_nested(kind) for kind in sample.schema.types):
        return limit
    many = [name for name in names if sample.column(name).unique().nbytes > DICTIONARY_BYTES]
    narrow = [name for name in many if _is_narrow(sample.column(name).combine_chunks())]
    return limit | {
        "use_dictionary": [name for name in names if name not in many],
        "column_encoding": dict.fromkeys(narrow, DELTA),
    }


def _is_narrow(values: pa.Array) -> bool:
    """Return whether a column is of integers, as Parquet stores it, whose range is narrow for their type.

    >>> _is_narrow(pa.array([7, 1 << 40])), _is_narrow(pa.array([7, 1 << 41])), _is_narrow(pa.array([7.0]))
    (True, False, False)
    """
    kind = values.type
    whole = is_a.is_int32(kind) or is_a.is_int64(kind) or is_a.is_timestamp(kind) or is_a.is_duration(kind)
    if not (whole or is_a.is_time64(kind) or is_a.is_date32(kind)):
        return False
    ends = pc.min_max(values.view(f"int{kind.bit_width}")).as_py()
    span = ends["max"] - ends["min"]
    return bool(span.bit_length() <= MOST_BITS_OF_BYTE * kind.byte_width)
