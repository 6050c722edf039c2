"""STDDEV and VARIANCE: the count, the mean, and the sum of squared distances from the mean.

Two groups are put together by Chan's formula, which loses no digits where the mean is far from 0.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.kernels.aggregates.folded import Folded, counts_of, floats_of
from penstock.kernels.aggregates.sums import refuse_text
from penstock.kernels.fold import group_sums, number_groups

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Self

    from penstock.kernels.aggregates.folded import Numbers
    from penstock.kernels.key_hash import Ints
    from penstock.kernels.slide import Sliding, WindowAnswers

_PARTS = ("n", "mean", "m2")


class Spread(Folded):
    """The count, mean and squared distances of each group: parts n, mean and m2."""

    __slots__ = ()

    @classmethod
    def result_type(cls, function: str, arguments: Sequence[str]) -> str:
        """Return the type of a variance."""
        refuse_text(function, arguments[0])
        return "double"

    @classmethod
    def from_rows(cls, function: str, column: pa.Array) -> Self:
        """Return each value as a group of one."""
        parts = {"n": counts_of(column), "mean": floats_of(column), "m2": np.zeros(len(column))}
        return cls(function, parts, column.type)

    def by(self, ids: Ints, size: int) -> Self:
        """Put entries together by group: each mean is as far from the common one as its values are on average."""
        parts = self.parts
        n = group_sums(ids, parts["n"], size)
        known, near = parts["n"] > 0, np.zeros(size)
        near[ids[known]] = parts["mean"][known]  # one of the values, from which the others are not far
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            weighted = np.where(known, parts["n"] * (parts["mean"] - near[ids]), 0.0)
            mean = np.where(n > 0, near + group_sums(ids, weighted, size) / n, 0.0)
            squares = np.where(known, parts["n"] * (parts["mean"] - mean[ids]) ** 2, 0.0)
        m2 = group_sums(ids, parts["m2"] + squares, size)
        return replace(self, parts={"n": n, "mean": mean, "m2": m2})

    def plus(self, other: Self) -> Self:
        """Put entries together one by one."""
        return replace(self, parts=_joined(self.parts, other.parts))

    def add(self, ids: Ints, entries: Self) -> Self:
        """Add entries to those with these numbers."""
        numbers, firsts = number_groups([ids])
        known = {name: part[ids[firsts]] for name, part in self.parts.items()}
        joined = _joined(known, entries.by(numbers, firsts.size).parts)
        for name, total in self.parts.items():
            total[ids[firsts]] = joined[name]
        return self

    def slid(self, sliding: Sliding, seen: WindowAnswers, rows: Ints, _counts: Ints) -> Self:
        """Return what windows come to that slide over some of the entries."""
        n, mean, m2 = (self.parts[name][rows] for name in _PARTS)
        parts = dict(zip(_PARTS, sliding.spreads((n, mean, m2), seen), strict=True))
        return replace(self, parts=parts)

    def times(self, counts: Ints, rows: Ints, pairs: Ints) -> Self:
        """Count every entry as often as it meets rows of the other side: the mean stays."""
        more = super().times(counts, rows, pairs)
        return replace(more, parts={**more.parts, "mean": self.parts["mean"]})

    def finished(self, kind: pa.DataType) -> pa.Array:
        """Return variances or their roots; a sample of one has none, as in Spark."""
        n = self.parts["n"]
        of_sample = self.function.endswith("samp")
        with np.errstate(invalid="ignore", divide="ignore"):
            squares = np.where(np.isfinite(self.parts["mean"]), self.parts["m2"], np.nan)
            variance = squares / (n - 1 if of_sample else n)
            values = np.sqrt(variance) if self.function.startswith("stddev") else variance
        return pa.array(values, mask=n < (2 if of_sample else 1), from_pandas=False).cast(kind)


def _joined(one: Mapping[str, Numbers], other: Mapping[str, Numbers]) -> dict[str, Numbers]:
    """Put groups together one by one."""
    n = one["n"] + other["n"]
    share = other["n"] / np.maximum(n, 1)
    with np.errstate(invalid="ignore", over="ignore"):
        apart = other["mean"] - one["mean"]
        moved = one["mean"] + np.where(other["n"] == 0, 0, apart * share)
        both = (one["n"] > 0) & (other["n"] > 0)
        return {
            "n": n,
            "mean": np.where(one["n"] == 0, other["mean"], moved),
            "m2": one["m2"] + other["m2"] + np.where(both, apart**2 * one["n"] * share, 0),
        }
