"""MIN and MAX, and BOOL_AND and BOOL_OR: the least or greatest value of a group.

A value is a number in the order of values.  For MAX the bits of all numbers are flipped, so that the least number is
looked for in either case.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from penstock.kernels.aggregates.folded import Folded
from penstock.kernels.fold import least, lower_into
from penstock.kernels.ordered_values import Ordered

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Self

    import pyarrow as pa

    from penstock.kernels.aggregates.folded import Numbers
    from penstock.kernels.fold import Mask
    from penstock.kernels.key_hash import Ints
    from penstock.kernels.slide import Sliding, WindowAnswers

_MOST = np.iinfo(np.int64).max
"""The number of a group without a value."""


class Extreme(Folded):
    """The least number of each group: part v."""

    __slots__ = ()
    compares: ClassVar[bool] = True
    adds: ClassVar[bool] = False
    of_conditions: ClassVar[frozenset[str]] = frozenset({"BOOL_AND", "BOOL_OR", "EVERY", "ANY", "SOME"})

    @classmethod
    def result_type(cls, _function: str, arguments: Sequence[str]) -> str:
        """Return the type of the value."""
        return arguments[0]

    @classmethod
    def order(cls, _function: str, column: pa.Array) -> Ordered:
        """Put the values of a column in order."""
        return Ordered.of(column)

    @classmethod
    def numbered(cls, function: str, column: pa.Array) -> tuple[Ordered, Ints]:
        """Put the values of a column in order, and number them so that the least number is looked for."""
        ordered = cls.order(function, column)
        return ordered, ~ordered.numbers if is_greatest(function) else ordered.numbers

    @classmethod
    def from_values(cls, function: str, column: pa.Array, ids: Ints, size: int) -> Self:
        """Find the least or greatest value of each group."""
        ordered, numbers = cls.numbered(function, column)
        found, valid = _least(numbers, ordered.valid, ids, size)
        return cls(function, {"v": found}, column.type, ordered, valid)

    @classmethod
    def from_rows(cls, function: str, column: pa.Array) -> Self | None:
        """Return each value; None for texts and decimals, whose numbers are ranks among the values of one column."""
        ordered, numbers = cls.numbered(function, column)
        if ordered.values is not None:
            return None
        return cls(function, {"v": numbers}, column.type, ordered, ordered.valid)

    @classmethod
    def stored_rows(cls, _function: str, column: pa.Array) -> tuple[dict[str, pa.Array], pa.DataType]:
        """Return the values themselves."""
        return {"v": column}, column.type

    def by(self, ids: Ints, size: int) -> Self:
        """Find the least entry of each group."""
        found, valid = _least(self.parts["v"], self._known, ids, size)
        return replace(self, parts={"v": found}, valid=valid)

    def plus(self, other: Self) -> Self:
        """Take the lesser of two entries, one by one."""
        lesser = np.minimum(self.parts["v"], other.parts["v"])
        return replace(self, parts={"v": lesser}, valid=self._known | other._known)

    def add(self, ids: Ints, entries: Self) -> Self:
        """Lower the entries with these numbers."""
        lower_into(self.parts["v"], self._known, ids, entries.parts["v"], entries._known)
        return self

    def slid(self, _sliding: Sliding, _seen: WindowAnswers, _rows: Ints, _counts: Ints) -> Self:
        """Refuse: the least always slides together with other functions."""
        raise NotImplementedError

    def times(self, _counts: Ints, _rows: Ints, _pairs: Ints) -> Self:
        """Return the same: an extreme does not depend on how often a value comes."""
        return self

    def nothing(self, size: int) -> Self:
        """Return entries without a value."""
        return replace(self, parts={"v": np.full(size, _MOST)}, valid=np.zeros(size, np.bool_))

    def stored(self) -> dict[str, pa.Array]:
        """Return the values."""
        assert self.ordered is not None  # noqa: S101 - see `from_values`
        numbers = self.parts["v"]
        return {"v": self.ordered.back(~numbers if is_greatest(self.function) else numbers, self._known)}

    @classmethod
    def from_stored(
        cls,
        function: str,
        columns: Mapping[str, pa.Array],
        _kind: pa.DataType | None,
        _known: Mapping[str, Numbers] | None = None,
    ) -> Self:
        """Read values that were stored."""
        ordered, numbers = cls.numbered(function, columns["v"])
        values = np.where(ordered.valid, numbers, _MOST)
        return cls(function, {"v": values}, columns["v"].type, ordered, ordered.valid)

    def finished(self, kind: pa.DataType) -> pa.Array:
        """Return the values; null where there is none."""
        found = self._values()
        return found if found.type == kind else found.cast(kind)

    @property
    def is_finished_by_sliding(self) -> bool:
        """A number that is no rank is the value itself."""
        return self.ordered is None or self.ordered.values is None

    def _values(self) -> pa.Array:
        if "bits" in self.parts:
            assert self.ordered is not None  # noqa: S101 - see `from_values`
            return self.ordered.of_bits(self.parts["bits"], self._known)
        return self.stored()["v"]

    @property
    def _known(self) -> Mask:
        assert self.valid is not None  # noqa: S101 - see `from_values`
        return self.valid


def is_greatest(function: str) -> bool:
    """Return whether a function looks for the greatest value."""
    return function.startswith("max")


def _least(numbers: Ints, valid: Mask, ids: Ints, size: int) -> tuple[Ints, Mask]:
    """Find the least number of each group, and which groups have one."""
    found, seen = least(ids, numbers, valid, size)
    return np.where(seen, found, _MOST), seen
