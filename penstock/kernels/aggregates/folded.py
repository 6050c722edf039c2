"""Partial results of an aggregate function, by group: its parts, which are put together in any order.

    function           parts                                  two of them make
    count              n                                      the sum
    sum, avg           n, limbs 0 1 (2 3) or a float s        the sums
    min, max           the value, as a number in its order    the lesser
    min_by, max_by     the pair (y, x), as its rank           the lesser
    stddev, var        n, mean, m2                            Chan's formula

A group without a value has n = 0, or no valid value.  Nothing is ever subtracted: a window that moves on leaves older
partial results out.

`Folded` puts parts together by addition.  A function whose parts are sums needs `from_rows`, `finished` and
`result_type`; others override what differs.  Always true: rows folded in pieces, and then the pieces, give what all
rows folded at once give.

In:  columns of pairs, or parts that were stored.  Out: parts by group, and the finished values.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from penstock.kernels.fold import add_into, group_sums
from penstock.sql.aggregates import AggregateSyntax, aggregate_class

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Self

    from numpy.typing import NDArray

    from penstock.kernels.fold import Mask
    from penstock.kernels.key_hash import Ints
    from penstock.kernels.ordered_values import Ordered
    from penstock.kernels.slide import Sliding, WindowAnswers

    Numbers = NDArray[Any]
    """Whole numbers or floating point, each part its own."""


@dataclass(frozen=True, slots=True)
class Folded(AggregateSyntax, ABC):
    """The parts of one aggregate, with one entry for each group, or for each row before rows are folded.

    `kind` is the type of the argument.  Functions that compare have `ordered`, which turns the numbers of parts
    back into values, and `valid`: the entries that have a value.
    """

    function: str
    parts: Mapping[str, Numbers]
    kind: pa.DataType | None = None
    ordered: Ordered | None = None
    valid: Mask | None = None
    adds_in_place: ClassVar[bool] = True
    """Whether new entries can be added to totals without a look at other columns (`from_rows`)."""

    # --- from rows ------------------------------------------------------------------------------------------------

    @classmethod
    def from_values(cls, function: str, column: pa.Array, ids: Ints, size: int) -> Self:
        """Fold the values of a column by group."""
        entries = cls.from_rows(function, column)
        assert entries is not None  # noqa: S101 - only functions that compare may return None, and they override this
        return entries.by(ids, size)

    @classmethod
    @abstractmethod
    def from_rows(cls, function: str, column: pa.Array) -> Self | None:
        """Return an entry for each value; two arguments are one struct of y and x (`as_one_column`).

        None where values become numbers only among the values of one column, so that no totals can be kept.
        """

    @classmethod
    def stored_rows(cls, function: str, column: pa.Array) -> tuple[dict[str, pa.Array], pa.DataType | None]:
        """Return an entry for each value as columns to be stored, and the type of what was folded."""
        entries = cls.from_rows(function, column)
        assert entries is not None  # noqa: S101 - only functions that compare may return None, and they override this
        return entries.stored(), entries.kind

    # --- put together ---------------------------------------------------------------------------------------------

    def by(self, ids: Ints, size: int) -> Self:
        """Fold entries by group."""
        return replace(self, parts={name: group_sums(ids, part, size) for name, part in self.parts.items()})

    def plus(self, other: Self) -> Self:
        """Put entries together one by one; both have the same values behind their numbers.

        >>> from penstock.kernels.aggregates.count import counted
        >>> counted(np.array([1, 2])).plus(counted(np.array([5, 0]))).parts["n"].tolist()
        [6, 2]
        """
        return replace(self, parts={name: part + other.parts[name] for name, part in self.parts.items()})

    def add(self, ids: Ints, entries: Self) -> Self:
        """Add entries to those with these numbers; the arrays of this one are changed, and returned."""
        for name, total in self.parts.items():
            add_into(total, ids, entries.parts[name])
        return self

    def slid(self, sliding: Sliding, seen: WindowAnswers, rows: Ints, counts: Ints) -> Self:
        """Return what windows come to that slide over some of the entries; entry i has `counts[i]` pairs.

        Most functions slide together in one pass (`penstock.kernels.slide_measures`) and not by this method.
        """
        slid = {
            name: seen.counts if part is counts else sliding.sums(part[rows], seen)
            for name, part in self.parts.items()
        }
        return replace(self, parts=slid)

    def times(self, counts: Ints, rows: Ints, pairs: Ints) -> Self:
        """Count every entry as often as it meets rows of the other side: its `rows` times `counts` make `pairs`."""
        parts = {name: pairs if part is rows else part * counts for name, part in self.parts.items()}
        return replace(self, parts=parts)

    # --- some entries ---------------------------------------------------------------------------------------------

    def nothing(self, size: int) -> Self:
        """Return entries without a value."""
        parts = {name: np.zeros(size, part.dtype) for name, part in self.parts.items()}
        return replace(self, parts=parts, valid=None if self.valid is None else np.zeros(size, np.bool_))

    def grown(self, size: int) -> Self:
        """Return more entries, the new ones without a value."""
        old = next(iter(self.parts.values())).size
        more = self.nothing(size)
        for name, part in self.parts.items():
            more.parts[name][:old] = part
        if self.valid is not None and more.valid is not None:
            more.valid[:old] = self.valid
        return more

    def at(self, entries: Ints | Mask | slice) -> Self:
        """Return some of the entries."""
        parts = {name: part[entries] for name, part in self.parts.items()}
        return replace(self, parts=parts, valid=None if self.valid is None else self.valid[entries])

    # --- stored and finished --------------------------------------------------------------------------------------

    def stored(self) -> dict[str, pa.Array]:
        """Return the parts as columns."""
        return {name: pa.array(part) for name, part in self.parts.items()}

    @classmethod
    def from_stored(
        cls,
        function: str,
        columns: Mapping[str, pa.Array],
        kind: pa.DataType | None,
        known: Mapping[str, Numbers] | None = None,
    ) -> Self:
        """Read parts that were stored, or are `known` without; `kind` is the type of the argument."""
        parts = {name: column.to_numpy(zero_copy_only=False) for name, column in columns.items()}
        return cls(function, {**(known or {}), **parts}, kind)

    @abstractmethod
    def finished(self, kind: pa.DataType) -> pa.Array:
        """Return the values of the function, in the type of the result."""

    @property
    def is_finished_by_sliding(self) -> bool:
        """Return whether the pass over windows computes the very values, so that nothing can fail afterwards."""
        return False


def folded_class(function: str) -> type[Folded]:
    """Return the class that folds a function."""
    found = aggregate_class(function)
    assert issubclass(found, Folded)  # noqa: S101 - the registry holds such classes
    return found


def fold_values(function: str, column: pa.Array, ids: Ints, size: int) -> Folded:
    """Fold the values of a column by group.

    >>> folded = fold_values("sum", pa.array([5, 1, None]), np.array([0, 0, 1]), 2)
    >>> folded.finished(pa.int64()).to_pylist()
    [6, None]
    """
    return folded_class(function).from_values(function, column, ids, size)


def as_one_column(arguments: Sequence[pa.Array]) -> pa.Array:
    """Return what a function folds: its argument, or structs of its two arguments x and y.

    >>> as_one_column([pa.array(["a"]), pa.array([5])]).to_pylist()
    [{'y': 5, 'x': 'a'}]
    """
    if len(arguments) == 1:
        return arguments[0]
    x, y = arguments
    return pa.StructArray.from_arrays([y, x], names=["y", "x"])


def counts_of(column: pa.Array) -> Ints:
    """Return 1 for each value, and 0 for each null."""
    if not column.null_count:
        return np.ones(len(column), np.int64)
    valid: Ints = column.is_valid().to_numpy(zero_copy_only=False).astype(np.int64)
    return valid


def floats_of(column: pa.Array) -> NDArray[np.float64]:
    """Read numbers as floating point; null counts as 0."""
    floats = column.cast(pa.float64())
    known = floats.fill_null(0) if floats.null_count else floats
    return np.asarray(known.to_numpy(zero_copy_only=False))
