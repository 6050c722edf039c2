"""A sample to estimate a join's accuracy by: the rows of a share of all values, and the results that these missed.

Sampling goes by value, the same in every stream, so that the rows of a result are in the sample together or not at all.
Values are in it whose hash begins with enough zeros; each halving asks for one more.

In:  rows of sampled values, and how many rows each buffer has let go of.  Out: `ValueSample`, a frozen value.
True always: what is counted never falls.  A row with position 0 was set aside: it is in results that exist, and in none
that is found.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import numpy as np

from penstock.kernels.key_hash import mix

if TYPE_CHECKING:
    from penstock.kernels.key_hash import Ints

    Rows = tuple[Ints, Ints, Ints]
    """Values, streams and positions of rows."""


def is_sampled(values: Ints, halvings: int) -> np.ndarray:
    """Return which values are in the sample after so many halvings."""
    if not halvings:
        return np.ones(values.size, bool)
    return mix(values) >> np.uint64(64 - halvings) == 0


@dataclass(frozen=True, slots=True)
class SampledRows:
    """Rows of sampled values: their value, stream and position, sorted by value."""

    value: tuple[int, ...] = ()
    stream: tuple[int, ...] = ()
    position: tuple[int, ...] = ()

    @classmethod
    def of(cls, rows: Rows) -> SampledRows:
        """Sort rows by value."""
        order = np.argsort(rows[0], kind="stable")
        return cls(*(tuple(each[order].tolist()) for each in rows))

    def arrays(self) -> Rows:
        """Return them as arrays."""
        return tuple(np.array(each, np.int64) for each in (self.value, self.stream, self.position))  # type: ignore[return-value]


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueSample:
    """The rows of a share of all values, and the results that these values have found and missed, divided by it."""

    halvings: int = 0
    held: SampledRows = SampledRows()
    open_missed: tuple[tuple[int, float], ...] = ()
    """Of values that are held and missed results: how many, weighted."""
    found: float = 0.0
    missed: float = 0.0
    squares: float = 0.0

    @property
    def share(self) -> float:
        """Return the share of values that is sampled."""
        return 0.5**self.halvings

    @property
    def variance(self) -> float:
        """Return the variance of `missed`; 0 while every value is sampled."""
        return self.squares + (1 - self.share) * sum(each * each for _, each in self.open_missed)

    def is_sampled(self, values: Ints) -> np.ndarray:
        """Return which values are in the sample: those whose hash begins with enough zeros."""
        return is_sampled(values, self.halvings)

    def with_rows(self, new: Rows, gone: Ints) -> Self:
        """Add rows of sampled values that came together, and count the results that they bring."""
        old = self.held.arrays()
        values = np.unique(new[0])
        exist, found = _results(values, old, new, gone)
        missed = dict(self.open_missed)
        for value, each in zip(values.tolist(), ((exist - found) / self.share).tolist(), strict=True):
            if each:
                missed[value] = missed.get(value, 0.0) + each
        return replace(
            self.holding(new),
            open_missed=tuple(sorted(missed.items())),
            found=self.found + float(found.sum()) / self.share,
            missed=self.missed + float((exist - found).sum()) / self.share,
        )

    def holding(self, rows: Rows) -> Self:
        """Remember rows besides, without counting."""
        both = zip(self.held.arrays(), rows, strict=True)
        value, stream, position = (np.concatenate(each) for each in both)
        return replace(self, held=SampledRows.of((value, stream, position)))

    def without(self, rows: np.ndarray) -> Self:
        """Forget the rows of some values; what these have missed stays counted."""
        kept = [each[~rows] for each in self.held.arrays()]
        left = set(kept[0].tolist())
        went = [each for key, each in self.open_missed if key not in left]
        return replace(
            self,
            held=SampledRows(*(tuple(each.tolist()) for each in kept)),
            open_missed=tuple(each for each in self.open_missed if each[0] in left),
            squares=self.squares + (1 - self.share) * sum(each * each for each in went),
        )

    def halved(self, halvings: int) -> Self:
        """Sample only the values that are left after so many halvings, if these are more."""
        if halvings <= self.halvings:
            return self
        out = ~is_sampled(self.held.arrays()[0], halvings)
        return replace(self.without(out), halvings=halvings)


def chosen_rows(rows: Rows, which: np.ndarray | slice) -> Rows:
    """Return some of the rows."""
    value, stream, position = (each[which] for each in rows)
    return value, stream, position


def _results(values: Ints, old: Rows, new: Rows, gone: Ints) -> tuple[Ints, Ints]:
    """Count for each value the results that the new rows bring, and those of them that are found."""
    left, joined = (each[2] > limit for each, limit in ((old, gone[old[1]]), (new, 0)))
    before, there, come, met = (
        _counts(values, chosen_rows(rows, which), gone.size)
        for rows, which in ((old, slice(None)), (old, left), (new, slice(None)), (new, joined))
    )
    exist = (before + come).prod(axis=1) - before.prod(axis=1)
    return exist, (there + met).prod(axis=1) - there.prod(axis=1)


def _counts(values: Ints, rows: Rows, streams: int) -> Ints:
    """Count rows by value and stream, of the given values only."""
    counts = np.zeros((values.size, streams), np.int64)
    if values.size:
        place = np.minimum(np.searchsorted(values, rows[0]), values.size - 1)
        known = values[place] == rows[0]
        np.add.at(counts, (place[known], rows[1][known]), 1)
    return counts
