"""Recent statistics of batches and units: fading sums, which follow changes of the streams.

The latest observation has weight 1, the one before `FADE_FACTOR`, the one before that its square, and so on; after
about twenty observations the influence of an old one is gone.  The sums are part of the ledger and survive a restart.

In:  the numbers in commits.  Out: rates, shares and averages, for `penstock.engine.views.estimates`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from penstock import limits


@dataclass(frozen=True, slots=True)
class BatchTraffic:
    """Statistics of a batch for one log: rows in time, event time added (µs), rows by pattern and by predicate."""

    layout: int
    rows: int
    micros: int
    patterns: tuple[tuple[int, int], ...] = ()
    holds: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Traffic:
    """The recent input of a log: rows, their span of event time (µs), and rows by pattern of predicate bits.

    `layout` has the meaning of the bits; with another layout the counts begin again.  `holds` are the rows that satisfy
    each predicate, exact even if there are more patterns than are counted.
    """

    layout: int
    rows: float = 0.0
    micros: float = 0.0
    patterns: tuple[tuple[int, float], ...] = ()
    holds: tuple[float, ...] = ()

    def then(self, batch: BatchTraffic) -> Traffic:
        """Add a batch."""
        if batch.layout != self.layout:
            return Traffic(batch.layout).then(batch)
        counts = {bits: limits.FADE_FACTOR * rows for bits, rows in self.patterns}
        for bits, rows in batch.patterns:
            counts[bits] = counts.get(bits, 0.0) + rows
        before = self.holds or (0.0,) * len(batch.holds)
        often = sorted(counts.items(), key=lambda item: -item[1])[: limits.MAX_TRAFFIC_PATTERNS]
        return replace(
            self,
            rows=limits.FADE_FACTOR * self.rows + batch.rows,
            micros=limits.FADE_FACTOR * self.micros + batch.micros,
            patterns=tuple(often),
            holds=tuple(limits.FADE_FACTOR * old + new for old, new in zip(before, batch.holds, strict=True)),
        )


@dataclass(frozen=True, slots=True)
class Fanout:
    """The fan-out of one step of a join of many streams: sampled rows, and their partners.

    `most` is the maximum in the last sample, and `key` the key of that row.
    """

    rows: float = 0.0
    partners: float = 0.0
    most: int = 0
    key: str = ""

    @property
    def average(self) -> float:
        """Return the average number of partners."""
        return self.partners / self.rows if self.rows else 0.0

    def then(self, seen: Fanout) -> Fanout:
        """Add a sample.

        >>> Fanout(10.0, 20.0, 9, "a").then(Fanout(10.0, 0.0, 0, "b"))
        Fanout(rows=19.0, partners=18.0, most=0, key='b')
        """
        return replace(
            seen,
            rows=limits.FADE_FACTOR * self.rows + seen.rows,
            partners=limits.FADE_FACTOR * self.partners + seen.partners,
        )


@dataclass(frozen=True, slots=True)
class Effort:
    """The recent work of a group: units, event time (µs), input rows, pairs, and seconds."""

    units: float = 0.0
    micros: float = 0.0
    rows: float = 0.0
    pairs: float = 0.0
    seconds: float = 0.0

    def then(self, micros: float, rows: int, pairs: int, seconds: float) -> Effort:
        """Add a unit."""
        return Effort(
            limits.FADE_FACTOR * self.units + 1,
            limits.FADE_FACTOR * self.micros + micros,
            limits.FADE_FACTOR * self.rows + rows,
            limits.FADE_FACTOR * self.pairs + pairs,
            limits.FADE_FACTOR * self.seconds + seconds,
        )

    def plus(self, units: int, rows: int, pairs: int, seconds: float) -> Effort:
        """Add to the last unit."""
        return replace(
            self,
            units=self.units + units,
            rows=self.rows + rows,
            pairs=self.pairs + pairs,
            seconds=self.seconds + seconds,
        )


@dataclass(frozen=True, slots=True)
class Delays:
    """Recent delays of results, in seconds from the arrival of their later row to their release.

    `counts` are the results in each bucket of a logarithmic scale.

    >>> delays = Delays().then([(0.5, 98), (4.0, 2)])
    >>> round(delays.average, 2), delays.longest, delays.within(0.5) < 0.6, delays.within(0.99) > 3
    (0.57, 4.0, True, True)
    """

    counts: Mapping[int, float] = field(default_factory=dict)
    seconds: float = 0.0
    longest: float = 0.0

    def then(self, delays: Iterable[tuple[float, int]]) -> Delays:
        """Add results: seconds, and the number of results with this delay."""
        counted = [(max(0.0, seconds), count) for seconds, count in delays if count]
        if not counted:
            return self
        counts = Counter({bucket: limits.DELAY_FADE_FACTOR * count for bucket, count in self.counts.items()})
        for seconds, count in counted:
            counts[_bucket(seconds)] += count
        return Delays(
            {bucket: count for bucket, count in sorted(counts.items()) if count > limits.MIN_DELAY_COUNT},
            limits.DELAY_FADE_FACTOR * self.seconds + sum(seconds * count for seconds, count in counted),
            max(self.longest, *(seconds for seconds, _ in counted)),
        )

    @property
    def seen(self) -> float:
        """Return the faded number of results."""
        return sum(self.counts.values())

    @property
    def average(self) -> float:
        """Return the mean delay in seconds; 0 without results."""
        return self.seconds / self.seen if self.seen else 0.0

    def within(self, share: float) -> float:
        """Return the delay of so large a share of the results: the end of its bucket, 0 without results."""
        passed = 0.0
        for bucket, count in self.counts.items():
            passed += count
            if passed >= share * self.seen:
                return min(self.longest, FINEST_DELAY_SECONDS * math.pow(DELAY_BUCKET_RATIO, bucket + 1))
        return 0.0

    def figures(self) -> dict[str, float]:
        """Return the average, the median, the 99th percentile, and the maximum."""
        return {
            "average": self.average,
            "p50": self.within(0.5),
            "p99": self.within(0.99),
            "longest": self.longest,
        }


def delays_of(arrivals: Iterable[tuple[float, int]], now: float) -> list[tuple[float, int]]:
    """Return the delays of results until now; results with unknown arrival are left out.

    >>> delays_of([(100.0, 3), (0.0, 5)], now=101.5)
    [(1.5, 3)]
    """
    return [(now - arrived, count) for arrived, count in arrivals if arrived and count]


FINEST_DELAY_SECONDS, DELAY_BUCKET_RATIO = 0.001, 2**0.25
"""The scale of delays: the first bucket ends at a millisecond, each further one 19 % above the one before."""


def _bucket(seconds: float) -> int:
    """Return the bucket of a delay.

    >>> _bucket(0.0), _bucket(0.001), _bucket(1.0)
    (0, 0, 39)
    """
    return (
        max(0, int(math.log(seconds / FINEST_DELAY_SECONDS, DELAY_BUCKET_RATIO)))
        if seconds > FINEST_DELAY_SECONDS
        else 0
    )


@dataclass(frozen=True, slots=True)
class Fit:
    """The sums of a least-squares fit of seconds to several counts.

    `squares` is the matrix of sums of products of the counts, row by row; `products` the sums of count times seconds.
    """

    squares: tuple[float, ...] = ()
    products: tuple[float, ...] = ()
    seen: float = 0.0
    """The number of observations, faded like the sums."""

    def then(self, counts: Iterable[float], seconds: float) -> Fit:
        """Add an observation: so many seconds for these counts."""
        observed = tuple(counts)
        squares = self.squares or (0.0,) * len(observed) ** 2
        products = self.products or (0.0,) * len(observed)
        return Fit(
            tuple(
                limits.FADE_FACTOR * old + a * b
                for old, (a, b) in zip(squares, _pairs(observed), strict=True)
            ),
            tuple(limits.FADE_FACTOR * old + a * seconds for old, a in zip(products, observed, strict=True)),
            limits.FADE_FACTOR * self.seen + 1,
        )


def _pairs(counts: tuple[float, ...]) -> list[tuple[float, float]]:
    return [(a, b) for a in counts for b in counts]


@dataclass(frozen=True, slots=True)
class EarlyRemovals:
    """Rows of a log removed before their window ended: the newest event time of some of them, and their number."""

    notes: tuple[tuple[int, int], ...] = ()

    @property
    def newest(self) -> int | None:
        """Return the newest event time; None if there are none."""
        return max((time for time, _ in self.notes), default=None)

    def then(self, newest: int, rows: int) -> EarlyRemovals:
        """Add some rows.

        >>> EarlyRemovals().then(10, 5).then(20, 3).since(10)
        3
        """
        notes = sorted((*self.notes, (newest, rows)))
        if len(notes) > limits.MAX_EARLY_REMOVALS:  # merge the two that are nearest in time, except the last
            at = min(range(len(notes) - 2), key=lambda at: notes[at + 1][0] - notes[at][0])
            notes[at : at + 2] = [(notes[at + 1][0], notes[at][1] + notes[at + 1][1])]
        return EarlyRemovals(tuple(notes))

    def since(self, time: int) -> int:
        """Return the estimated number of removed rows younger than an event time."""
        return sum(rows for newest, rows in self.notes if newest > time)
