"""How many results a join with buffers has missed, estimated in bounded memory by looking at a few values closely.

Of *sampled* values, those whose hash is below a threshold, every row of all streams is remembered by its position, also
after it has left its buffer.  So of these values it is known how many results exist and how many were found::

    S1   rows of value 57 at positions 410, 415      S1 has let go of its first 412 rows: one of two is left
    S2   a row of value 57 arrives                   2 results exist, 1 is found, 1 is missed

The counts are divided by the share of values that is sampled.  Sampling goes by value, the same in every stream, so
that the rows of a result are in the sample together or not at all: the estimate has no bias.  `error` is two standard
errors, computed from what the sampled values have missed.  While everything fits, every value is sampled: exact.

Memory is bounded by `ROWS_HELD`.  When it is used up and most of it is rows that have left their buffers, the lowest of
these values are *closed*; if not, the share is halved.  A row of a closed value is *behind*: it comes later than three
times the buffers.  Closed values have a sample of their own, of a smaller share, and nothing of it is closed::

    closed values, a small share: `far`              │ values near the buffers, a large share      rows that arrive
    ........ 3 ............ 19 ........ 28 ..........│ 51 52 54 55 57 58 60 61                 ◀── 57: judged here
                                                                                               ◀── 19: judged in `far`
                                                                                               ◀── 20: `unjudged`

Rows behind that are unjudged are counted as the judged ones are, and as long as few were judged, as rows that have
missed everything: an average row's results.  So `lost` is 0 only if no result was missed.  For that the caller says
whether a batch is in *doubt*: some row of it may have missed something.  Then at least one sampled value is counted.

Rows that left early because memory had no room for them count as still there: their partners come in time.  A row with
position 0 was set aside and never joined: its results exist and are missed.

In:  for each batch the values of each stream in the order of arrival, and how many rows each buffer has let go of.
Out: `AccuracySketch`, a frozen value that a commit can hold.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

from penstock.kernels.value_sample import ValueSample, chosen_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.kernels.key_hash import Ints
    from penstock.kernels.value_sample import Rows, SampledRows

ROWS_HELD = 1024
"""Rows of sampled values that are remembered; of closed values a quarter of that besides."""


@dataclass(frozen=True, slots=True)
class AccuracySketch(ValueSample):
    """The results found and missed by a join of so many streams.

    >>> sketch = AccuracySketch(2).then([np.array([5, 5, 6]), np.array([6])], gone=(0, 0))
    >>> sketch.then([np.array([]), np.array([5, 9])], gone=(1, 0)).lost
    1.0
    """

    streams: int
    taken: tuple[int, ...] = ()
    """Rows of each stream that `then` was given."""
    closed_to: int | None = None
    far: ValueSample = field(default_factory=ValueSample)
    """Of closed values."""
    rows: tuple[float, ...] = ()
    """Rows of each stream so far, weighted."""
    behind: tuple[float, ...] = ()
    """Of these the rows of closed values."""
    judged: float = 0.0
    """Of these the rows that are in `far`, weighted by its share."""
    unjudged: float = 0.0
    """Of these the rows that are not, weighted."""
    doubt: float = 0.0
    """Values that a sampled one stood for when results may have been missed, at the most; 0 while all were sampled."""
    capacity: int = ROWS_HELD

    @property
    def results_found(self) -> float:
        """Return about how many results were found."""
        return self.found + self._scale * self.far.found

    @property
    def lost(self) -> float:
        """Return about how many results were missed; 0 only if none was."""
        return max(self.missed + self._scale * self.far.missed + self._assumed, self.doubt)

    @property
    def error(self) -> float:
        """Return two standard errors of `lost`; 0 while every value is sampled."""
        squares = self._scale**2 * self.far.variance + self._assumed**2 + self.doubt**2
        return 2 * sqrt(self.variance + squares)

    @property
    def accuracy(self) -> float:
        """Return the share of results found (Eq. 1 of the paper), 1 while none exists."""
        found, lost = self.results_found, self.lost
        return found / (found + lost) if lost else 1.0

    @property
    def _prior(self) -> float:
        """Return the rows that are taken for judged besides, and to have missed all; 0 if all were judged."""
        return 1 / self.far.share if self.unjudged else 0.0

    @property
    def _scale(self) -> float:
        """Return how many rows behind came for each that was judged."""
        behind = max(sum(self.behind), self.unjudged)
        return behind / (self.judged + self._prior) if behind else 0.0

    @property
    def _assumed(self) -> float:
        """Return the results missed by the rows that nobody judged: as many as an average row of its stream brings."""
        if not self.unjudged:
            return 0.0
        exist = 1 + self.found + self.missed + self.far.found + self.far.missed
        parts = zip(self.behind, self.rows, strict=True)
        brought = exist * sum(behind / rows for behind, rows in parts if behind)
        return self._scale * self._prior * (brought / sum(self.behind) if self.behind else 1.0)

    def then(
        self,
        batch: Sequence[Ints],
        gone: Sequence[int],
        after: Sequence[int] | None = None,
        *,
        doubt: bool = False,
    ) -> AccuracySketch:
        """Add a batch: its rows meet each other, and what of each stream was left when it came.

        `after` is what buffers have let go of once the batch is joined: with it more values can be sampled.
        """
        taken = self.taken or (0,) * self.streams
        picked = []
        for stream, (rows, before) in enumerate(zip(batch, taken, strict=True)):
            values = np.asarray(rows, np.int64)
            picked.append((values, np.full(values.size, stream), np.arange(values.size) + before + 1))
        value, streams, position = (np.concatenate(each) for each in zip(*picked, strict=True))
        counted = replace(
            self, taken=tuple(count + len(rows) for count, rows in zip(taken, batch, strict=True))
        )
        return counted.plus((value, streams, position), gone, after or gone, doubt=doubt)

    def then_sampled(
        self,
        rows: SampledRows,
        halvings: int,
        gone: Sequence[int],
        after: Sequence[int] | None = None,
        *,
        doubt: bool = False,
    ) -> AccuracySketch:
        """Add the same, where rows of sampled values were picked out already: with so many halvings, or fewer.

        >>> from penstock.kernels.value_sample import SampledRows
        >>> rows = SampledRows((5, 5), (0, 1), (1, 1))
        >>> AccuracySketch(2).then_sampled(rows, 0, gone=(0, 0)).found
        1.0
        """
        return self.thinned(halvings).plus(rows.arrays(), gone, after or gone, doubt=doubt)

    def plus(self, rows: Rows, gone: Sequence[int], after: Sequence[int], *, doubt: bool) -> AccuracySketch:
        """Add rows that came together; `doubt`: some of them may have missed a result."""
        new = chosen_rows(rows, self.is_sampled(rows[0]))
        behind = np.zeros(new[0].size, bool)
        if self.closed_to is not None:
            behind = (new[0] <= self.closed_to) & ~np.isin(new[0], self.held.arrays()[0])
        far = chosen_rows(new, behind & self.far.is_sampled(new[0]))
        grown = replace(
            self.with_rows(chosen_rows(new, ~behind), np.array(gone)),
            far=self.far.with_rows(far, np.array(gone)),
            rows=self._added(self.rows, new[1]),
            behind=self._added(self.behind, new[1][behind]),
            judged=self.judged + far[0].size / self.far.share,
            unjudged=self.unjudged + (int(behind.sum()) - far[0].size) / self.share,
            doubt=max(self.doubt, 1 / self.share if doubt and self.halvings else 0.0),
        )
        return grown.bounded(np.array(after))

    def _added(self, counts: Sequence[float], streams: Ints) -> tuple[float, ...]:
        """Add rows to those of each stream."""
        more = np.bincount(streams, minlength=self.streams) / self.share
        return tuple((np.array(counts or (0.0,) * self.streams) + more).tolist())

    def thinned(self, halvings: int) -> AccuracySketch:
        """Sample only the values that are left after so many halvings, closed ones too."""
        return replace(self.halved(halvings), far=self.far.halved(halvings))

    def bounded(self, gone: Ints) -> AccuracySketch:
        """Close values, or sample fewer of them, until what is held is within the bound."""
        sketch = self
        while len(sketch.held.value) > sketch.capacity:
            value, stream, position = sketch.held.arrays()
            left = np.unique(value[position > gone[stream]])  # values with a row in some buffer
            dead = ~np.isin(value, left)
            if dead.sum() > 0.75 * sketch.capacity:
                lowest = np.flatnonzero(dead)[: value.size - 3 * sketch.capacity // 4]
                sketch = sketch.closing(np.isin(value, value[lowest]))
            else:
                sketch = sketch.thinned(sketch.halvings + 1)
        return sketch

    def closing(self, rows: np.ndarray) -> AccuracySketch:
        """Close the values of some rows: only the far sample still has them."""
        closed = chosen_rows(self.held.arrays(), rows)
        highest = int(closed[0].max())
        far = self.far.holding(chosen_rows(closed, self.far.is_sampled(closed[0])))
        while len(far.held.value) > self.capacity // 4:
            far = far.halved(far.halvings + 1)
        return replace(
            self.without(rows),
            far=far,
            closed_to=highest if self.closed_to is None else max(highest, self.closed_to),
        )
