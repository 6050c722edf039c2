"""Estimate the number of results that a join with buffers has missed, in bounded memory, from a sample of values.

A value is *sampled* if its hash is below a threshold.  For sampled values, the positions of all rows of all streams are
kept, also after a row has left its buffer.  So all results of these values, found or missed, are known::

    S1   rows of value 57 at positions 410, 415      the buffer of S1 no longer has its first 412 rows: one row is left
    S2   a row of value 57 arrives                   2 results exist, 1 is found, 1 is missed

The counts are divided by the sampled share of values.  All rows of a result have the same value, so they are all
sampled or none is: the estimate has no bias.  `error` is two standard errors, computed from the missed results of each
sampled value.  As long as all rows fit, every value is sampled and the counts are exact.

Memory is bounded by `limits.MAX_SAMPLED_ROWS`.  When it is full and most rows have left their buffers, the lowest of
these values are *closed*; else the share is halved.  A row of a closed value is *behind*: it is later than three times
the buffers.  Closed values have a second sample, `far`, of a smaller share, in which no value is closed::

    closed values, a small share: `far`              │ values near the buffers, a large share      rows that arrive
    ........ 3 ............ 19 ........ 28 ..........│ 51 52 54 55 57 58 60 61                 ◀── 57: judged here
                                                                                               ◀── 19: judged in `far`
                                                                                               ◀── 20: `unjudged`

Rows behind that are not in `far` are unjudged.  They are assumed to miss as many results as the judged rows; while few
are judged, as many as an average row has.  So `lost` is 0 only if no result was missed.  A batch is in *doubt* if some
of its rows may have missed a result; then at least one sampled value is counted.

Rows that were removed early for lack of memory count as present: their partners are in time.  A row with position 0 is
a dead letter that was never joined: its results exist and are missed.

In:  for each batch the values of each stream in the order of arrival, and the rows that each buffer no longer has.
Out: `AccuracySketch`, a small frozen value for commits.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

from penstock import limits
from penstock.kernels.value_sample import ValueSample, chosen_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.kernels.key_hash import Ints
    from penstock.kernels.value_sample import Rows, SampledRows


@dataclass(frozen=True, slots=True)
class AccuracySketch(ValueSample):
    """The results found and missed by a join of some streams.

    >>> sketch = AccuracySketch(2).then([np.array([5, 5, 6]), np.array([6])], gone=(0, 0))
    >>> sketch.then([np.array([]), np.array([5, 9])], gone=(1, 0)).lost
    1.0
    """

    streams: int
    taken: tuple[int, ...] = ()
    """By stream: the rows passed to `then`."""
    closed_to: int | None = None
    far: ValueSample = field(default_factory=ValueSample)
    """The sample of closed values."""
    rows: tuple[float, ...] = ()
    """By stream: the rows so far, weighted."""
    behind: tuple[float, ...] = ()
    """By stream: the rows of closed values."""
    judged: float = 0.0
    """Rows of closed values that are in `far`, weighted by its share."""
    unjudged: float = 0.0
    """Rows of closed values that are not, weighted."""
    doubt: float = 0.0
    """The maximum weight of a sampled value at a batch in doubt; 0 if all values were sampled then."""
    capacity: int = limits.MAX_SAMPLED_ROWS

    @property
    def results_found(self) -> float:
        """Return the estimated number of results found."""
        return self.found + self._scale * self.far.found

    @property
    def lost(self) -> float:
        """Return the estimated number of results missed; 0 only if none was."""
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
        """Return the number of rows assumed to be judged and to have missed all results; 0 if all were judged."""
        return 1 / self.far.share if self.unjudged else 0.0

    @property
    def _scale(self) -> float:
        """Return the number of rows behind for each judged one."""
        behind = max(sum(self.behind), self.unjudged)
        return behind / (self.judged + self._prior) if behind else 0.0

    @property
    def _assumed(self) -> float:
        """Return the results missed by unjudged rows: as many as an average row of their stream has."""
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
        """Add a batch, which is joined with itself and with the rows in the buffers.

        `gone` and `after` are the rows that each buffer no longer has, before and after the batch is joined.
        """
        taken = self.taken or (0,) * self.streams
        picked = []
        for stream, (rows, before) in enumerate(zip(batch, taken, strict=True)):
            values = np.asarray(rows, np.int64)
            picked.append((values, np.full(values.size, stream), np.arange(values.size) + before + 1))
        value, streams, position = (np.concatenate(column) for column in zip(*picked, strict=True))
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
        """Add a batch of which only the rows of sampled values are given, after so many halvings or fewer.

        >>> from penstock.kernels.value_sample import SampledRows
        >>> rows = SampledRows((5, 5), (0, 1), (1, 1))
        >>> AccuracySketch(2).then_sampled(rows, 0, gone=(0, 0)).found
        1.0
        """
        return self.thinned(halvings).plus(rows.arrays(), gone, after or gone, doubt=doubt)

    def plus(self, rows: Rows, gone: Sequence[int], after: Sequence[int], *, doubt: bool) -> AccuracySketch:
        """Add rows that arrived together; `doubt`: some of them may have missed a result."""
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
        more = np.bincount(streams, minlength=self.streams) / self.share
        return tuple((np.array(counts or (0.0,) * self.streams) + more).tolist())

    def thinned(self, halvings: int) -> AccuracySketch:
        """Sample only the values that remain after so many halvings, also among closed values.

        A dead letter that leaves the sample may miss results of partners to come: it is in doubt.

        >>> late = AccuracySketch(2).plus(tuple(np.array([[5], [0], [0]])), [0, 0], [0, 0], doubt=True)
        >>> late.lost, late.thinned(9).lost
        (0.0, 512.0)
        """
        thin = replace(self.halved(halvings), far=self.far.halved(halvings))
        if thin.dead_letters == self.dead_letters:
            return thin
        return replace(thin, doubt=max(self.doubt, 1 / thin.share))

    def bounded(self, gone: Ints) -> AccuracySketch:
        """Close values, or halve the share, until the rows are within the bound."""
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
        """Close the values of some rows: only `far` has them from then on."""
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
