"""What batches and units have been like lately: sums in which the past fades, so that they follow the streams.

Each new observation counts full, the one before it `FADE_FACTOR`, the one before that its square, and so on; after
about twenty nothing is left of a stream that has changed.  The sums are part of the ledger, so they survive a restart.

In:  what a commit reports.  Out: rates, shares and averages, for `penstock.engine.views.estimates`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from penstock import limits


@dataclass(frozen=True, slots=True)
class BatchTraffic:
    """What a batch was like for one log: rows in time, event time added (µs), rows by pattern and by predicate."""

    layout: int
    rows: int
    micros: int
    patterns: tuple[tuple[int, int], ...] = ()
    holds: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Traffic:
    """A log's input lately: rows, the event time they span (µs), and how many had each pattern of predicate bits.

    `layout` says what the bits mean; under another one counting begins anew.  `holds` counts the rows that satisfy each
    predicate, exactly, also where there are more patterns than are told apart.
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
        often = sorted(counts.items(), key=lambda each: -each[1])[: limits.MAX_TRAFFIC_PATTERNS]
        return replace(
            self,
            rows=limits.FADE_FACTOR * self.rows + batch.rows,
            micros=limits.FADE_FACTOR * self.micros + batch.micros,
            patterns=tuple(often),
            holds=tuple(limits.FADE_FACTOR * old + new for old, new in zip(before, batch.holds, strict=True)),
        )


@dataclass(frozen=True, slots=True)
class Fanout:
    """How many partners rows find by one step of a join of many streams, by those that were looked at.

    `most` is how many one of them found at the last look, and `key` the key of that one.
    """

    rows: float = 0.0
    partners: float = 0.0
    most: int = 0
    key: str = ""

    @property
    def average(self) -> float:
        """Give the partners of one row."""
        return self.partners / self.rows if self.rows else 0.0

    def then(self, seen: Fanout) -> Fanout:
        """Add what was seen at another look.

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
    """What a group's units did and took lately: event time (µs), input rows, pairs, and seconds.

    `units` is their faded number.
    """

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
        """Add to what the units so far have done."""
        return replace(
            self,
            units=self.units + units,
            rows=self.rows + rows,
            pairs=self.pairs + pairs,
            seconds=self.seconds + seconds,
        )


@dataclass(frozen=True, slots=True)
class Delays:
    """How long results took from the arrival of their second row to their release, in seconds; the past fades.

    `counts` has for each bucket of a logarithmic scale how many results fell into it.

    >>> delays = Delays().then([(0.5, 98), (4.0, 2)])
    >>> round(delays.average, 2), delays.longest, delays.within(0.5) < 0.6, delays.within(0.99) > 3
    (0.57, 4.0, True, True)
    """

    counts: Mapping[int, float] = field(default_factory=dict)
    seconds: float = 0.0
    longest: float = 0.0

    def then(self, delays: Iterable[tuple[float, int]]) -> Delays:
        """Add what a unit or a release has brought: seconds, and the number of results that took so long."""
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
        """Count the results that have not faded."""
        return sum(self.counts.values())

    @property
    def average(self) -> float:
        """Give the mean delay in seconds; 0 if nothing was seen."""
        return self.seconds / self.seen if self.seen else 0.0

    def within(self, share: float) -> float:
        """Give the seconds within which this share of the results came: the end of its bucket, 0 if none came."""
        passed = 0.0
        for bucket, count in self.counts.items():
            passed += count
            if passed >= share * self.seen:
                return min(self.longest, FINEST_DELAY_SECONDS * math.pow(DELAY_BUCKET_RATIO, bucket + 1))
        return 0.0

    def figures(self) -> dict[str, float]:
        """Sum up: average, the times within which half and 99 % of the results came, and the longest."""
        return {
            "average": self.average,
            "p50": self.within(0.5),
            "p99": self.within(0.99),
            "longest": self.longest,
        }


def delays_of(arrivals: Iterable[tuple[float, int]], now: float) -> list[tuple[float, int]]:
    """Say how long results took until now; those whose arrival is not known do not count.

    >>> delays_of([(100.0, 3), (0.0, 5)], now=101.5)
    [(1.5, 3)]
    """
    return [(now - arrived, count) for arrived, count in arrivals if arrived and count]


FINEST_DELAY_SECONDS, DELAY_BUCKET_RATIO = 0.001, 2**0.25
"""The scale of delays: from a millisecond on, each bucket ends 19 % above the one before."""


def _bucket(seconds: float) -> int:
    """Find the bucket of a delay.

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
    """The sums of a least-squares fit: seconds as a price for each thing that was counted.

    `squares` is the matrix of sums of products of the counts, row by row; `products` the sums of count times seconds.
    """

    squares: tuple[float, ...] = ()
    products: tuple[float, ...] = ()
    seen: float = 0.0
    """How many observations there are, faded like their sums."""

    def then(self, counts: Iterable[float], seconds: float) -> Fit:
        """Add an observation: so many of each thing took so many seconds."""
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
class Departures:
    """Rows of a log that went before their window ended: the newest event time of some of them, and how many."""

    notes: tuple[tuple[int, int], ...] = ()

    @property
    def newest(self) -> int | None:
        """Give the newest event time of such rows; None if there were none."""
        return max((time for time, _ in self.notes), default=None)

    def then(self, newest: int, rows: int) -> Departures:
        """Add some rows.

        >>> Departures().then(10, 5).then(20, 3).since(10)
        3
        """
        notes = sorted((*self.notes, (newest, rows)))
        if len(notes) > limits.MAX_EARLY_REMOVALS:  # the two that are nearest in time, of all but the last
            at = min(range(len(notes) - 2), key=lambda each: notes[each + 1][0] - notes[each][0])
            notes[at : at + 2] = [(notes[at + 1][0], notes[at][1] + notes[at + 1][1])]
        return Departures(tuple(notes))

    def since(self, time: int) -> int:
        """Count about how many rows went that are younger than an event time."""
        return sum(rows for newest, rows in self.notes if newest > time)
