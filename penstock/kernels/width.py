"""How many bytes rows have, and how to take them in pieces of bounded bytes.

A million pairs are 40 MB of numbers, or 4 GB of text.  So whatever gathers, sorts or writes rows first asks how wide
they are and goes on piece by piece::

    bytes of a pair     8  8  2000  8  8  3000  8          at most 4 KB a piece
    pieces             |------------|-----------|-|

The bytes of a value are read off the offsets of its column, for the rows at hand only: asking costs what the rows are,
whatever the state is, and nothing where all columns have values of one width.

In:  Arrow columns and row numbers.  Out: bytes, and ranges of rows.
Always true: a piece has one row, or at most so many bytes as asked for; pieces cover all rows, in order.
"""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from penstock.kernels.key_hash import Ints

MOST_BYTES = 64 << 20
"""Bytes of rows that are held, sorted or gathered in one go.  A worker has a few such pieces in memory at once."""


def row_widths(columns: Iterable[pa.Array], rows: Ints | None = None) -> int | Ints:
    """Say how many bytes some rows have in some columns; all rows if none are named.

    >>> row_widths([pa.array([1, 2]), pa.array([True, False])])
    9
    >>> row_widths([pa.array(["a", "four"])], np.array([1, 1, 0]))
    array([8, 8, 5])
    """
    return reduce(add, (_widths(each, rows) for each in columns), 0)


def _widths(column: pa.Array, rows: Ints | None) -> int | Ints:
    """Give the bytes of each value of a column."""
    if (fixed := _fixed_width(column.type)) is not None:
        return fixed
    first = np.arange(len(column)) if rows is None else rows
    return _spans(column, first, first + 1)


def _fixed_width(kind: pa.DataType) -> int | None:
    """Give the bytes of a value where all have the same; None where they differ.

    >>> _fixed_width(pa.struct({"x": pa.int32(), "y": pa.float64()})), _fixed_width(pa.string())
    (12, None)
    """
    if pa.types.is_struct(kind):
        parts = [_fixed_width(kind.field(number).type) for number in range(kind.num_fields)]
        return None if None in parts else sum(each for each in parts if each is not None)
    if pa.types.is_dictionary(kind):
        return _fixed_width(kind.index_type)
    if pa.types.is_null(kind):
        return 0
    try:
        return max(1, int(kind.bit_width) // 8)
    except ValueError:  # Arrow's answer for whatever has no width of its own
        return None


def _spans(column: pa.Array, first: Ints, last: Ints) -> Ints:
    """Count the bytes of the values ``first .. last`` of a column, the last left out, for each of many such runs."""
    kind = column.type
    if (fixed := _fixed_width(kind)) is not None:
        return (last - first) * fixed
    if pa.types.is_struct(kind):
        parts = (_spans(column.field(number), first, last) for number in range(kind.num_fields))
        return reduce(add, parts)
    if pa.types.is_fixed_size_list(kind):
        return _spans(column.values, *((each + column.offset) * kind.list_size for each in (first, last)))
    if _has_offsets(kind):
        ends = _offsets(column)
        start, stop = ends[first].astype(np.int64), ends[last].astype(np.int64)
        own = (last - first) * ends.dtype.itemsize
        return own + (_spans(column.values, start, stop) if pa.types.is_nested(kind) else stop - start)
    # a type that Spark does not make: as much as its values have on average
    return (last - first) * -(-column.nbytes // max(1, len(column)))


def _has_offsets(kind: pa.DataType) -> bool:
    """Say whether a column has one more offset than values."""
    types = pa.types
    return bool(
        types.is_string(kind)
        or types.is_binary(kind)
        or types.is_large_string(kind)
        or types.is_large_binary(kind)
        or types.is_list(kind)
        or types.is_large_list(kind)
        or types.is_map(kind)
    )


def _offsets(column: pa.Array) -> NDArray[np.signedinteger]:
    """Give where each value begins, and where the last one ends, without copying."""
    types = pa.types
    large = (
        types.is_large_string(column.type)
        or types.is_large_binary(column.type)
        or types.is_large_list(column.type)
    )
    kind: type[np.signedinteger] = np.int64 if large else np.int32
    whole = np.frombuffer(column.buffers()[1] or b"", kind)
    if not whole.size:  # a column without values may have no memory at all
        return np.zeros(1, np.int32)
    return whole[column.offset : column.offset + len(column) + 1]


def pieces(rows: int, widths: int | Ints, most: int | None = None) -> Iterator[slice]:
    """Cut so many rows into pieces of bounded bytes, `MOST_BYTES` if none are named.

    >>> list(pieces(5, np.array([8, 8, 2000, 8, 3000]), 2016))
    [slice(0, 3, None), slice(3, 4, None), slice(4, 5, None)]
    >>> list(pieces(5, 8, 20))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    bound = MOST_BYTES if most is None else most
    if isinstance(widths, int):
        step = max(1, bound // max(1, widths))
        yield from (slice(start, min(start + step, rows)) for start in range(0, rows, step))
        return
    total = np.cumsum(widths)
    start, done = 0, 0
    while start < rows:
        stop = max(start + 1, int(np.searchsorted(total, done + bound, "right")))
        yield slice(start, stop)
        start, done = stop, int(total[stop - 1])


def bounded(batches: Iterable[pa.RecordBatch], most: int | None = None) -> Iterator[pa.RecordBatch]:
    """Cut record batches that are too wide; nothing is copied.

    >>> wide = pa.record_batch({"x": ["abc", "def", "g"]})
    >>> [each.num_rows for each in bounded([wide], 14)]
    [2, 1]
    """
    bound = MOST_BYTES if most is None else most
    for batch in batches:
        if batch.nbytes <= bound:
            yield batch
            continue
        for piece in pieces(batch.num_rows, row_widths(batch.columns), bound):
            yield batch.slice(piece.start, piece.stop - piece.start)


def gathered(batches: Iterable[pa.RecordBatch], most: int | None = None) -> Iterator[list[pa.RecordBatch]]:
    """Bring batches together up to bounded bytes, and cut those that are too wide by themselves.

    >>> [len(each) for each in gathered([pa.record_batch({"x": [1, 2]})] * 5, 40)]
    [2, 2, 1]
    """
    bound = MOST_BYTES if most is None else most
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in bounded(batches, bound):
        if waiting and size + batch.nbytes > bound:
            yield waiting
            waiting, size = [], 0
        waiting.append(batch)
        size += batch.nbytes
    if waiting:
        yield waiting


def take_rows(batches: Sequence[pa.RecordBatch], rows: Ints) -> pa.RecordBatch:
    """Lay out some rows of several batches, numbered from the first row of the first batch, in the order given.

    Only those rows are copied, however much the batches are in all.

    >>> parts = [pa.record_batch({"x": [0, 1]}), pa.record_batch({"x": [2, 3, 4]})]
    >>> take_rows(parts, np.array([4, 0, 3])).column(0).to_pylist()
    [4, 0, 3]
    """
    starts = np.concatenate(([0], np.cumsum([each.num_rows for each in batches])))
    which = np.searchsorted(starts, rows, "right") - 1
    order = np.argsort(which, kind="stable")
    edges = np.searchsorted(which[order], np.arange(len(batches) + 1))
    parts = [
        batch.take(pa.array(rows[order[edges[number] : edges[number + 1]]] - starts[number]))
        for number, batch in enumerate(batches)
        if edges[number] < edges[number + 1]
    ]
    back = np.empty(order.size, np.int64)
    back[order] = np.arange(order.size)
    return pa.concat_batches(parts).take(pa.array(back))
