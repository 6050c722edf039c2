"""A sample of values for estimating a join's accuracy: their rows, and the results that they found and missed.

Values are sampled, not rows, and the same values in every stream, so all rows of a result are sampled or none is.  A
value is sampled if its hash begins with enough zeros; each halving requires one more.

In:  rows of sampled values, and the rows that each buffer no longer has.  Out: `ValueSample`, a frozen value.
Always true: counts never fall.  A row with position 0 is a dead letter: its results exist, and none is found.
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
        return cls(*(tuple(column[order].tolist()) for column in rows))

    def arrays(self) -> Rows:
        """Return the columns as arrays."""
        return tuple(np.array(column, np.int64) for column in (self.value, self.stream, self.position))  # type: ignore[return-value]


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueSample:
    """The rows of a share of all values, and the results found and missed, divided by the share."""

    halvings: int = 0
    held: SampledRows = SampledRows()
    open_missed: tuple[tuple[int, float], ...] = ()
    """By held value with missed results: their number, weighted."""
    found: float = 0.0
    missed: float = 0.0
    squares: float = 0.0

    @property
    def share(self) -> float:
        """Return the share of values that is sampled."""
        return 0.5**self.halvings

    @property
    def dead_letters(self) -> int:
        """Return the number of sampled rows that were never joined."""
        return self.held.position.count(0)

    @property
    def variance(self) -> float:
        """Return the variance of `missed`; 0 while every value is sampled."""
        return self.squares + (1 - self.share) * sum(miss * miss for _, miss in self.open_missed)

    def is_sampled(self, values: Ints) -> np.ndarray:
        """Return which values are in the sample."""
        return is_sampled(values, self.halvings)

    def with_rows(self, new: Rows, gone: Ints) -> Self:
        """Add rows of sampled values that arrived together, and count their results."""
        old = self.held.arrays()
        values = np.unique(new[0])
        exist, found = _results(values, old, new, gone)
        missed = dict(self.open_missed)
        for value, count in zip(values.tolist(), ((exist - found) / self.share).tolist(), strict=True):
            if count:
                missed[value] = missed.get(value, 0.0) + count
        return replace(
            self.holding(new),
            open_missed=tuple(sorted(missed.items())),
            found=self.found + float(found.sum()) / self.share,
            missed=self.missed + float((exist - found).sum()) / self.share,
        )

    def holding(self, rows: Rows) -> Self:
        """Add rows without counting results."""
        both = zip(self.held.arrays(), rows, strict=True)
        value, stream, position = (np.concatenate(column) for column in both)
        return replace(self, held=SampledRows.of((value, stream, position)))

    def without(self, rows: np.ndarray) -> Self:
        """Forget the rows of some values; their missed results stay counted."""
        kept = [column[~rows] for column in self.held.arrays()]
        left = set(kept[0].tolist())
        went = [miss for key, miss in self.open_missed if key not in left]
        return replace(
            self,
            held=SampledRows(*(tuple(column.tolist()) for column in kept)),
            open_missed=tuple(miss for miss in self.open_missed if miss[0] in left),
            squares=self.squares + (1 - self.share) * sum(miss * miss for miss in went),
        )

    def halved(self, halvings: int) -> Self:
        """Keep only the values that remain after so many halvings."""
        if halvings <= self.halvings:
            return self
        out = ~is_sampled(self.held.arrays()[0], halvings)
        return replace(self.without(out), halvings=halvings)


def chosen_rows(rows: Rows, which: np.ndarray | slice) -> Rows:
    """Return some of the rows."""
    value, stream, position = (column[which] for column in rows)
    return value, stream, position


def _results(values: Ints, old: Rows, new: Rows, gone: Ints) -> tuple[Ints, Ints]:
    """Count, by value, the results of the new rows, and those of them that are found."""
    left, joined = (part[2] > limit for part, limit in ((old, gone[old[1]]), (new, 0)))
    before, there, come, met = (
        _counts(values, chosen_rows(rows, which), gone.size)
        for rows, which in ((old, slice(None)), (old, left), (new, slice(None)), (new, joined))
    )
    exist = (before + come).prod(axis=1) - before.prod(axis=1)
    return exist, (there + met).prod(axis=1) - there.prod(axis=1)


def _counts(values: Ints, rows: Rows, streams: int) -> Ints:
    """Count rows by value and stream, for the given values only."""
    counts = np.zeros((values.size, streams), np.int64)
    if values.size:
        place = np.minimum(np.searchsorted(values, rows[0]), values.size - 1)
        known = values[place] == rows[0]
        np.add.at(counts, (place[known], rows[1][known]), 1)
    return counts
