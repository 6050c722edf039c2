"""How many results a join with buffers has missed, estimated in bounded memory by looking at a few values closely.

Of *sampled* values, those whose hash is below a threshold, every row of all streams is remembered by its position, also
after it has left its buffer.  So of these values it is known how many results exist and how many were found::

    S1   rows of value 57 at positions 410, 415      S1 has let go of its first 412 rows: one of two is left
    S2   a row of value 57 arrives                   2 results exist, 1 is found, 1 is missed

What is counted is divided by the share of values that is sampled.  Sampling goes by value, the same in every stream, so
that the rows of a result are in the sample together or not at all: the estimate has no bias.  `error` is two standard
errors, reckoned from what the sampled values have missed.  While everything fits, every value is sampled: exact.

Memory is bounded by `ROWS_HELD`.  When it is used up and most of it is rows that have left their buffers, the lowest of
these values are *closed*; if not, the share is halved.  Rows that come for closed values are `unjudged`: they are later
than three times what buffers hold, and may have missed something that is not counted.  Rows that left early because
memory had no room for them count as still there: their partners come in time.

In:  for each batch the values of each stream in the order of arrival, and how many rows each buffer has let go of.
Out: `AccuracySketch`, a frozen value that a commit can hold.
True always: `missed` never falls, and is never below 0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

from penstock.join.key_hash import mix

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.join.key_hash import Ints

ROWS_HELD = 1024
"""Rows of sampled values that are remembered."""


def is_sampled(values: Ints, halvings: int) -> np.ndarray:
    """Say which values are in the sample after so many halvings."""
    if not halvings:
        return np.ones(values.size, bool)
    return mix(values) >> np.uint64(64 - halvings) == 0


@dataclass(frozen=True, slots=True)
class SampledRows:
    """Rows of sampled values: their value, stream and position, sorted by value."""

    value: tuple[int, ...] = ()
    stream: tuple[int, ...] = ()
    position: tuple[int, ...] = ()

    def arrays(self) -> tuple[Ints, Ints, Ints]:
        """Give them as arrays."""
        return tuple(np.array(each, np.int64) for each in (self.value, self.stream, self.position))  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class AccuracySketch:
    """What is known of results found and missed by a join of so many streams.

    >>> sketch = AccuracySketch(2).then([np.array([5, 5, 6]), np.array([6])], gone=(0, 0))
    >>> sketch.then([np.array([]), np.array([5, 9])], gone=(1, 0)).missed
    1.0
    """

    streams: int
    taken: tuple[int, ...] = ()
    """Rows of each stream so far."""
    halvings: int = 0
    held: SampledRows = SampledRows()
    open_missed: tuple[tuple[int, float], ...] = ()
    """Of open values that missed results: how many, weighted."""
    closed_to: int | None = None
    found: float = 0.0
    missed: float = 0.0
    squares: float = 0.0
    unjudged: float = 0.0
    capacity: int = ROWS_HELD

    @property
    def share(self) -> float:
        """Give the share of values that is sampled."""
        return 0.5**self.halvings

    @property
    def error(self) -> float:
        """Give two standard errors of `missed`; 0 while every value is sampled."""
        return 2 * sqrt(self.squares + (1 - self.share) * sum(each * each for _, each in self.open_missed))

    @property
    def accuracy(self) -> float:
        """Give the share of results found (Eq. 1 of the paper), 1 while none exists."""
        exist = self.found + self.missed
        return self.found / exist if exist else 1.0

    def then(
        self, batch: Sequence[Ints], gone: Sequence[int], after: Sequence[int] | None = None
    ) -> AccuracySketch:
        """Add a batch: its rows meet each other, and what of each stream was left when it came.

        `after` is what buffers have let go of once the batch is joined: with it more values can be sampled.
        """
        taken = self.taken or (0,) * self.streams
        counted = replace(
            self, taken=tuple(count + len(rows) for count, rows in zip(taken, batch, strict=True))
        )
        return counted.plus(self._sampled(batch, taken), gone, after or gone)

    def then_sampled(
        self, rows: SampledRows, halvings: int, gone: Sequence[int], after: Sequence[int] | None = None
    ) -> AccuracySketch:
        """Add the same, where rows of sampled values were picked out already: with so many halvings, or fewer.

        >>> rows = SampledRows((5, 5), (0, 1), (1, 1))
        >>> AccuracySketch(2).then_sampled(rows, 0, gone=(0, 0)).found
        1.0
        """
        sketch = self
        if halvings > self.halvings:
            sketch = replace(self, halvings=halvings)
            sketch = sketch.without(~sketch.is_sampled(self.held.arrays()[0]), closing=False)
        value, stream, position = rows.arrays()
        chosen = sketch.is_sampled(value)
        return sketch.plus((value[chosen], stream[chosen], position[chosen]), gone, after or gone)

    def plus(self, new: tuple[Ints, Ints, Ints], gone: Sequence[int], after: Sequence[int]) -> AccuracySketch:
        """Add rows of sampled values that came together."""
        old = self.held.arrays()
        late = 0
        if self.closed_to is not None:
            late = int((~np.isin(new[0], old[0]) & (new[0] <= self.closed_to)).sum())
        values = np.unique(new[0])
        exist, found = self._results(values, old, new, np.array(gone))
        missed = dict(self.open_missed)
        for value, each in zip(values.tolist(), ((exist - found) / self.share).tolist(), strict=True):
            if each:
                missed[value] = missed.get(value, 0.0) + each
        whole = tuple(np.concatenate(each) for each in zip(old, new, strict=True))
        order = np.argsort(whole[0], kind="stable")
        grown = replace(
            self,
            held=SampledRows(*(tuple(each[order].tolist()) for each in whole)),
            open_missed=tuple(sorted(missed.items())),
            found=self.found + float(found.sum()) / self.share,
            missed=self.missed + float((exist - found).sum()) / self.share,
            unjudged=self.unjudged + late / self.share,
        )
        return grown.bounded(np.array(after))

    def _sampled(self, batch: Sequence[Ints], taken: Sequence[int]) -> tuple[Ints, Ints, Ints]:
        """Pick the rows of sampled values out of a batch."""
        picked = []
        for stream, (rows, before) in enumerate(zip(batch, taken, strict=True)):
            values = np.asarray(rows, np.int64)
            chosen = np.flatnonzero(self.is_sampled(values))
            picked.append((values[chosen], np.full(chosen.size, stream), chosen + before + 1))
        value, stream_, position = (np.concatenate(each) for each in zip(*picked, strict=True))
        return value, stream_, position

    def is_sampled(self, values: Ints) -> np.ndarray:
        """Say which values are in the sample: those whose hash begins with enough zeros."""
        return is_sampled(values, self.halvings)

    def _results(
        self, values: Ints, old: tuple[Ints, Ints, Ints], new: tuple[Ints, Ints, Ints], gone: Ints
    ) -> tuple[Ints, Ints]:
        """Count for each value the results that the new rows bring, and those of them that are found."""
        there = old[2] > gone[old[1]]
        counts = [
            self._counts(values, each[0][rows], each[1][rows])
            for each, rows in ((old, slice(None)), (old, there), (new, slice(None)))
        ]
        before, left, come = counts
        exist = (before + come).prod(axis=1) - before.prod(axis=1)
        return exist, (left + come).prod(axis=1) - left.prod(axis=1)

    def _counts(self, values: Ints, of: Ints, stream: Ints) -> Ints:
        """Count rows by value and stream, of the given values only."""
        counts = np.zeros((values.size, self.streams), np.int64)
        if values.size:
            place = np.minimum(np.searchsorted(values, of), values.size - 1)
            known = values[place] == of
            np.add.at(counts, (place[known], stream[known]), 1)
        return counts

    def bounded(self, gone: Ints) -> AccuracySketch:
        """Close values, or sample fewer of them, until what is held is within the bound."""
        sketch = self
        while len(sketch.held.value) > sketch.capacity:
            value, stream, position = sketch.held.arrays()
            left = np.unique(value[position > gone[stream]])  # values with a row in some buffer
            dead = ~np.isin(value, left)
            if dead.sum() > 0.75 * sketch.capacity:
                lowest = np.flatnonzero(dead)[: value.size - 3 * sketch.capacity // 4]
                sketch = sketch.without(np.isin(value, value[lowest]), closing=True)
            else:
                sketch = replace(sketch, halvings=sketch.halvings + 1)
                sketch = sketch.without(~sketch.is_sampled(value), closing=False)
        return sketch

    def without(self, rows: np.ndarray, *, closing: bool) -> AccuracySketch:
        """Forget the rows of some values; what these have missed stays counted."""
        value, stream, position = self.held.arrays()
        left = set(value[~rows].tolist())
        went = [each for key, each in self.open_missed if key not in left]
        lowest = int(np.iinfo(np.int64).min)
        highest = int(value[rows].max(initial=lowest))
        closed_to = max(highest, lowest if self.closed_to is None else self.closed_to)
        return replace(
            self,
            held=SampledRows(*(tuple(each[~rows].tolist()) for each in (value, stream, position))),
            open_missed=tuple(each for each in self.open_missed if each[0] in left),
            squares=self.squares + (1 - self.share) * sum(each * each for each in went),
            closed_to=closed_to if closing else self.closed_to,
        )
