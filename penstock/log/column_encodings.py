"""How each column of a file of results is encoded, by what its first rows are like.

    few values, again and again       a dictionary of them, and numbers into it      names, categories
    whole numbers not far apart       differences, in the bits that they need        keys, times
    anything else                     as it is                                       measurements

Parquet's writer begins a dictionary of every column and gives it up when it is too large; by then it has cost more than
all the rest, and what follows is written as it is.  A few thousand rows tell beforehand.  Of differences, Parquet keeps
as many bits as the widest of 32 in a row needs: a time within a minute takes three bytes, a key out of 50,000 two, and
no codec has to look for repetitions.  Spark's and DuckDB's readers read them as they read any page.

Any choice is correct; a wrong one is a larger file.  Columns with lists or maps are left to Parquet's writer.

In:  rows.  Out: `ColumnEncodings`, as Arrow's writer takes them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.types as is_a

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

DICTIONARY_BYTES = 1 << 14
"""Bytes of a column's distinct values after which they are no longer written as a dictionary, in each row group."""

SAMPLE_ROWS = 1 << 13
"""Rows that are looked at: enough for that many bytes of distinct values of any width but the least."""

BLOCK_ROWS = 1 << 7
"""Differences that are looked at together, of which the farthest apart say how many bits all of them need."""

MOST_BITS_OF_BYTE = 5
"""Bits for each byte of a number up to which differences are written: beyond, a codec may find more repetitions."""

DELTA = "DELTA_BINARY_PACKED"


@dataclass(frozen=True, slots=True)
class ColumnEncodings:
    """The columns that have a dictionary, by their paths, or all; and how others are encoded, if not as they are."""

    dictionary: tuple[str, ...] | bool = True
    others: Mapping[str, str] = field(default_factory=dict)


def choose_encodings(rows: pa.Table) -> ColumnEncodings:
    """Look at the first rows of a table, and choose."""
    sample, chosen, paths = rows.slice(0, SAMPLE_ROWS), dict[str, str](), Counter[str]()
    for name in sample.schema.names if len(set(sample.schema.names)) == sample.num_columns else ():
        for path, values in _leaves(name, sample.column(name).combine_chunks()):
            paths[path] += 1
            chosen[path] = "" if values is None else _encoding_of(values.drop_null())
    if not chosen or paths.most_common(1)[0][1] > 1:  # "a.b" may be a column, or b in a: there is no telling
        return ColumnEncodings()
    repeating = tuple(path for path, encoding in chosen.items() if not encoding)
    return ColumnEncodings(repeating, {path: each for path, each in chosen.items() if each == DELTA})


def _leaves(path: str, values: pa.Array) -> Iterator[tuple[str, pa.Array | None]]:
    """Give the paths of a column's leaves, with their values; without, where there are lists or maps in it."""
    if is_a.is_struct(values.type):
        for number, each in enumerate(values.type):
            yield from _leaves(f"{path}.{each.name}", values.field(number))
    elif is_a.is_nested(values.type):
        yield from ((each, None) for each in _paths(path, values.type))
    else:
        yield path, values


def _paths(path: str, kind: pa.DataType) -> Iterator[str]:
    """Name the leaves of a type, as Parquet does."""
    if is_a.is_map(kind):
        yield from _paths(f"{path}.key_value.key", kind.key_type)
        yield from _paths(f"{path}.key_value.value", kind.item_type)
    elif is_a.is_struct(kind):
        for each in kind:
            yield from _paths(f"{path}.{each.name}", each.type)
    elif is_a.is_nested(kind):
        yield from _paths(f"{path}.list.element", kind.value_type)
    else:
        yield path


def _encoding_of(values: pa.Array) -> str:
    """Choose for one column: nothing said is a dictionary.

    >>> _encoding_of(pa.array(range(5000))), _encoding_of(pa.array([1, 2] * 2500))
    ('DELTA_BINARY_PACKED', '')
    """
    if is_a.is_null(values.type) or values.unique().nbytes <= DICTIONARY_BYTES:
        return ""
    numbers = _whole_numbers(values)
    if numbers is not None and _bits_of_step(numbers) <= MOST_BITS_OF_BYTE * values.type.byte_width:
        return DELTA
    return "PLAIN"


def _whole_numbers(values: pa.Array) -> NDArray[np.int64] | None:
    """Give the numbers that Parquet stores of a column, if they are whole ones."""
    kind = values.type
    if is_a.is_int64(kind) or is_a.is_timestamp(kind) or is_a.is_time64(kind) or is_a.is_duration(kind):
        return np.asarray(values.view(pa.int64()))
    if is_a.is_int32(kind) or is_a.is_date32(kind):
        return np.asarray(values.view(pa.int32())).astype(np.int64)
    return None


def _bits_of_step(numbers: NDArray[np.int64]) -> float:
    """Say how many bits the differences of neighbours need, on average.

    >>> _bits_of_step(np.arange(1000)), round(_bits_of_step(np.arange(1000) % 2 * 2**20))
    (0.0, 21)
    """
    steps = np.diff(numbers)
    blocks = steps[: steps.size // BLOCK_ROWS * BLOCK_ROWS].reshape(-1, BLOCK_ROWS)
    # as unsigned numbers, which are right even where the difference overflows
    apart = (blocks.max(axis=1) - blocks.min(axis=1)).view(np.uint64)
    return float(np.log2(apart.astype(np.float64) + 1).mean())
