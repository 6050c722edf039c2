"""The width of rows in bytes, and the division of rows into pieces of bounded bytes.

A million pairs are 40 MB of numbers, or 4 GB of text.  So code that gathers, sorts or writes rows first computes their
widths, and continues piece by piece::

    bytes of a pair     8  8  2000  8  8  3000  8          at most 4 KB a piece
    pieces             |------------|-----------|-|

The bytes of a value follow from the offsets of its column, and are read for the given rows only.  If all columns have a
fixed width, nothing is read.

In:  Arrow columns and row numbers.  Out: bytes, and ranges of rows.
Always true: a piece has one row, or at most the requested number of bytes; pieces cover all rows, in order.
"""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock import limits

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from penstock.kernels.key_hash import Ints


def row_widths(columns: Iterable[pa.Array], rows: Ints | None = None) -> int | Ints:
    """Return the bytes of some rows in some columns; of all rows if none are given.

    >>> row_widths([pa.array([1, 2]), pa.array([True, False])])
    9
    >>> row_widths([pa.array(["a", "four"])], np.array([1, 1, 0]))
    array([8, 8, 5])
    """
    return reduce(add, (_widths(column, rows) for column in columns), 0)


def _widths(column: pa.Array, rows: Ints | None) -> int | Ints:
    if (fixed := _fixed_width(column.type)) is not None:
        return fixed
    first = np.arange(len(column)) if rows is None else rows
    return _spans(column, first, first + 1)


def _fixed_width(kind: pa.DataType) -> int | None:
    """Return the bytes of a value of a type with a fixed width; None for any other type.

    >>> _fixed_width(pa.struct({"x": pa.int32(), "y": pa.float64()})), _fixed_width(pa.string())
    (12, None)
    """
    if pa.types.is_struct(kind):
        parts = [_fixed_width(kind.field(number).type) for number in range(kind.num_fields)]
        return None if None in parts else sum(part for part in parts if part is not None)
    if pa.types.is_dictionary(kind):
        return _fixed_width(kind.index_type)
    if pa.types.is_null(kind):
        return 0
    try:
        return max(1, int(kind.bit_width) // 8)
    except ValueError:  # a type without a fixed width
        return None


def _spans(column: pa.Array, first: Ints, last: Ints) -> Ints:
    """Return the bytes of many runs of values ``first .. last`` of a column, without the last."""
    kind = column.type
    if (fixed := _fixed_width(kind)) is not None:
        return (last - first) * fixed
    if pa.types.is_struct(kind):
        parts = (_spans(column.field(number), first, last) for number in range(kind.num_fields))
        return reduce(add, parts)
    if pa.types.is_fixed_size_list(kind):
        return _spans(column.values, *((end + column.offset) * kind.list_size for end in (first, last)))
    if _has_offsets(kind):
        ends = _offsets(column)
        start, stop = ends[first].astype(np.int64), ends[last].astype(np.int64)
        own = (last - first) * ends.dtype.itemsize
        return own + (_spans(column.values, start, stop) if pa.types.is_nested(kind) else stop - start)
    # a type that Spark does not use: the average width
    return (last - first) * -(-column.nbytes // max(1, len(column)))


def _has_offsets(kind: pa.DataType) -> bool:
    types = pa.types
    is_text = types.is_string(kind) or types.is_binary(kind)
    return bool(is_text or types.is_list(kind) or types.is_map(kind) or _has_large_offsets(kind))


def _has_large_offsets(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_large_string(kind) or types.is_large_binary(kind) or types.is_large_list(kind))


def _offsets(column: pa.Array) -> NDArray[np.signedinteger]:
    """Return the start of each value, and the end of the last one, without copying."""
    kind: type[np.signedinteger] = np.int64 if _has_large_offsets(column.type) else np.int32
    whole = np.frombuffer(column.buffers()[1] or b"", kind)
    if not whole.size:  # a column without values may have no buffer
        return np.zeros(1, np.int32)
    return whole[column.offset : column.offset + len(column) + 1]


def pieces(rows: int, widths: int | Ints, most: int | None = None) -> Iterator[slice]:
    """Divide rows into pieces of bounded bytes, by default `limits.MAX_PIECE_BYTES`.

    >>> list(pieces(5, np.array([8, 8, 2000, 8, 3000]), 2016))
    [slice(0, 3, None), slice(3, 4, None), slice(4, 5, None)]
    >>> list(pieces(5, 8, 20))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    bound = limits.MAX_PIECE_BYTES if most is None else most
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
    """Divide record batches that are too wide, without copying.

    >>> wide = pa.record_batch({"x": ["abc", "def", "g"]})
    >>> [each.num_rows for each in bounded([wide], 14)]
    [2, 1]
    """
    bound = limits.MAX_PIECE_BYTES if most is None else most
    for batch in batches:
        if batch.nbytes <= bound:
            yield batch
            continue
        for piece in pieces(batch.num_rows, row_widths(batch.columns), bound):
            yield batch.slice(piece.start, piece.stop - piece.start)


def gathered(batches: Iterable[pa.RecordBatch], most: int | None = None) -> Iterator[list[pa.RecordBatch]]:
    """Group batches up to bounded bytes, and divide those that are too wide.

    >>> [len(each) for each in gathered([pa.record_batch({"x": [1, 2]})] * 5, 40)]
    [2, 2, 1]
    """
    bound = limits.MAX_PIECE_BYTES if most is None else most
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
    """Copy some rows of several batches, numbered from the first row of the first batch, in the given order.

    Only those rows are copied, however much the batches are in all.

    >>> parts = [pa.record_batch({"x": [0, 1]}), pa.record_batch({"x": [2, 3, 4]})]
    >>> take_rows(parts, np.array([4, 0, 3])).column(0).to_pylist()
    [4, 0, 3]
    """
    starts = np.concatenate(([0], np.cumsum([batch.num_rows for batch in batches])))
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
