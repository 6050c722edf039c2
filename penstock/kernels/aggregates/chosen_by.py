"""Order the pairs (y, x) of MIN_BY(x, y) and MAX_BY(x, y).

A pair is a struct of y and x.  Pairs are ranked by y, and by x if y is equal, so MAX_BY returns the x of the maximum
pair, and MIN_BY that of the minimum.  Ranks are folded and merged like those of texts (`Ordered`)::

    y      5    7    7    null                   MAX_BY    x = 'c'
    x      'a'  'b'  'c'  'd'     ──▶  ranks     MIN_BY    x = 'a'

In:  columns x and y.  Out: pairs, and the order of pairs.
Always true: the order depends on x and y alone, so the answer does not depend on the order of arrival.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa

from penstock.kernels.aggregates.extremes import Extreme, is_greatest
from penstock.kernels.fold import least
from penstock.kernels.ordered_values import Ordered, float_bits

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from penstock.kernels.key_hash import Ints


class ChosenBy(Extreme):
    """The pair with the least or greatest y, and of those the least or greatest x."""

    __slots__ = ()
    adds_in_place: ClassVar[bool] = False

    @classmethod
    def wrong_number(cls, name: str, count: int) -> str:
        """Take two arguments."""
        if count == 2:  # noqa: PLR2004 - x and y
            return ""
        end = "greatest" if name == "MAX_BY" else "least"
        return (
            f"{name} takes two arguments, and this call has {count}: write {name}(x, y) for the x of the pair with the "
            f"{end} y"
        )

    @classmethod
    def in_duckdb(cls, function: str, arguments: Sequence[str], *, distinct: bool) -> str:  # noqa: ARG003 - no matter
        """Write the call; where several pairs have the best y, DuckDB's own MAX_BY chooses any of them."""
        (x, y), order = arguments, "DESC" if is_greatest(function) else "ASC"
        return f"first({x} ORDER BY {y} {order}, {x} {order} NULLS LAST) FILTER (WHERE {y} IS NOT NULL)"

    @classmethod
    def order(cls, function: str, column: pa.Array) -> Ordered:
        """Put pairs in order."""
        return ordered_pairs(column, greatest=is_greatest(function))

    @classmethod
    def from_values(cls, function: str, column: pa.Array, ids: Ints, size: int) -> Self:
        """Find the least or greatest pair of each group."""
        return super().from_values(
            function, *best_by_y(column, ids, size, greatest=is_greatest(function)), size
        )

    def finished(self, kind: pa.DataType) -> pa.Array:
        """Return the x of pairs."""
        found = chosen_values(self._values())
        return found if found.type == kind else found.cast(kind)


def chosen_values(pairs: pa.StructArray) -> pa.Array:
    """Return the x of pairs; null where there is no pair."""
    return pairs.flatten()[1]


def best_by_y(pairs: pa.StructArray, ids: Ints, size: int, *, greatest: bool) -> tuple[pa.StructArray, Ints]:
    """Return the pairs with the best y of their group, and their groups, so that few pairs must be ordered.

    >>> from penstock.kernels.aggregates.folded import as_one_column
    >>> pairs = as_one_column([pa.array(["a", "b", "c"]), pa.array([5, 7, 7])])
    >>> [each.tolist() for each in best_by_y(pairs, np.zeros(3, np.int64), 1, greatest=True)]
    [[{'y': 7, 'x': 'b'}, {'y': 7, 'x': 'c'}], [0, 0]]
    """
    by = Ordered.of(pairs.flatten()[0])
    numbers = ~by.numbers if greatest else by.numbers
    found, _ = least(ids, numbers, by.valid, size)
    best = np.flatnonzero(by.valid & (numbers == found[ids]))
    return pairs.take(pa.array(best)), ids[best]


def ordered_pairs(pairs: pa.StructArray, *, greatest: bool) -> Ordered:
    """Order pairs by y and then by x; a null x is taken last.  A pair without y is ignored.

    >>> from penstock.kernels.aggregates.folded import as_one_column
    >>> pairs = as_one_column([pa.array(["a", None, "c"]), pa.array([7, 7, None])])
    >>> ordered = ordered_pairs(pairs, greatest=True)
    >>> ordered.numbers.tolist(), ordered.valid.tolist()
    ([2, 1, 0], [True, True, False])
    """
    y, x = pairs.flatten()
    by = Ordered.of(y)
    order = np.lexsort([*reversed(_sort_keys(x, nulls_first=greatest)), by.numbers])
    ranks = np.empty(order.size, np.int64)
    ranks[order] = np.arange(order.size)
    return Ordered(ranks, by.valid, pairs.type, pairs.take(pa.array(order)))


def _sort_keys(column: pa.Array, *, nulls_first: bool = True) -> list[Ints]:
    """Return sort keys for a column of any type, the most significant first.

    Structs are compared field by field, arrays and maps element by element; -0.0 comes before 0.0.
    """
    types, kind = pa.types, column.type
    keys = []
    if column.null_count:
        known = column.is_valid().to_numpy(zero_copy_only=False)
        keys.append((known if nulls_first else ~known).astype(np.int64))
    if types.is_null(kind):
        return keys
    if types.is_struct(kind):
        return [*keys, *(key for field in column.flatten() for key in _sort_keys(field))]
    if types.is_list(kind) or types.is_large_list(kind) or types.is_map(kind):
        return [*keys, _list_ranks(column)]
    return [*keys, float_bits(column) if types.is_floating(kind) else Ordered.of(column).numbers]


def _list_ranks(column: pa.Array) -> Ints:
    """Rank lists: each is written as the ranks of its elements, in bytes whose order is that of the lists."""
    ends = column.offsets.to_numpy().astype(np.int64)
    first, size = int(ends[0]), int(ends[-1] - ends[0])
    ends -= first
    parts = (column.keys, column.items) if pa.types.is_map(column.type) else (column.values,)
    keys = [key for part in parts for key in _sort_keys(part.slice(first, size))]
    ranks = _dense_ranks(keys, size).astype(">i8")
    lengths = pa.py_buffer(ends * ranks.itemsize)
    texts = pa.Array.from_buffers(
        pa.large_binary(), len(column), [None, lengths, pa.py_buffer(ranks.tobytes())]
    )
    return Ordered.of(texts).numbers


def _dense_ranks(keys: Sequence[Ints], size: int) -> Ints:
    """Rank rows by sort keys; equal rows have equal ranks."""
    if not keys or not size:
        return np.zeros(size, np.int64)
    order = np.lexsort(keys[::-1])
    changes = np.zeros(size, np.bool_)
    for key in keys:
        changes[1:] |= key[order[1:]] != key[order[:-1]]
    ranks = np.empty(size, np.int64)
    ranks[order] = np.cumsum(changes)
    return ranks
