"""The paper's strategies in virtual time: what each holds, compares and delivers, row by row, without waiting.

Every strategy is a set of one-way joins (Figures 1, 6 and 9): rows of one stream are *held* while their age is in
``[start, end)``, rows of the other are *males* that purge and probe.  Rows are processed in the order of their times,
each through the whole plan before the next, so when a male probes it meets exactly the rows held whose age is in the
range (Lemma 1).  In time order those are one run: two binary searches count what a nested loop would compare::

    held    ... x x x [x x x x x x] x x ...      x: rows of the stream, by time
                      ^ T - end    ^ T - start   T: the male's time

Counted as the paper counts: a probe compares a male with every row it meets; a purge, one time per male and join; a
router, one bound inside the join's range per result; a filter, one per condition and result (or row); the union of a
chain, one per male that reaches the slice where a window ends (it is the punctuation); the union of a stream
partition, one per result; the overhead, one per male and join.  Rows held are an average over the whole run, which
starts with empty states.

In:  `Streams` (made by a seed, or by a test), readers, a strategy (`penstock.lab.paper1_strategies`).
Out: a `Run`, in the terms of `penstock.plan.cost`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from penstock.plan.cost import PAPER, Coefficients, Cost
from penstock.plan.facts import Reader, other
from penstock.sql.query import SECOND, Range

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from penstock.sql.query import Side

    Ints = NDArray[np.int64]
    Mask = NDArray[np.bool_]

KEY_STEP = 1 << 40
"""Added to a time once per key, so that one sorted column holds every key's times: longer than any run, in µs."""

COMPARISON = 1e-6
"""Seconds that one comparison takes in virtual time.  It scales every service rate alike."""


# --- streams -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rows:
    """One stream in order of time: times (µs), keys, and for each condition the rows that satisfy it."""

    t: Ints
    key: Ints
    holds: Mapping[str, Mask]

    def satisfying(self, condition: str) -> Mask:
        """Mark the rows that satisfy a condition; '' is satisfied by all."""
        return self.holds[condition] if condition else np.ones(self.t.size, np.bool_)

    def wanted(self, conditions: Iterable[str]) -> Mask:
        """Mark the rows that satisfy at least one of the conditions."""
        marked = np.zeros(self.t.size, np.bool_)
        for condition in set(conditions):
            marked |= self.satisfying(condition)
        return marked


@dataclass(frozen=True)
class Streams:
    """Two streams and how long they run, in seconds."""

    left: Rows
    right: Rows
    seconds: float

    def side(self, side: Side) -> Rows:
        """Give one stream."""
        return self.left if side == "l" else self.right


def poisson_streams(
    rate: float,
    join: float,
    *,
    seconds: float = 90.0,
    left: Mapping[str, float] | None = None,
    right: Mapping[str, float] | None = None,
    seed: int = 1,
) -> Streams:
    """Make two streams with Poisson arrivals of `rate` rows a second, of whose pairs the share `join` matches.

    `left` and `right` give the share of rows that satisfy each condition; conditions are independent of each other.
    """
    random = np.random.default_rng(seed)
    shares = key_shares(join)
    rows = [_poisson_rows(random, rate, seconds, shares, conditions or {}) for conditions in (left, right)]
    return Streams(rows[0], rows[1], seconds)


def _poisson_rows(
    random: np.random.Generator,
    rate: float,
    seconds: float,
    keys: Sequence[float],
    conditions: Mapping[str, float],
) -> Rows:
    """Make one stream: a Poisson number of rows, uniform in time."""
    count = int(random.poisson(rate * seconds))
    t = np.sort(random.integers(0, int(seconds * SECOND), count))
    key = random.choice(len(keys), count, p=keys)
    return Rows(t, key, {name: random.random(count) < share for name, share in conditions.items()})


def key_shares(join: float) -> list[float]:
    """Distribute rows over keys so that two rows match with probability `join`: Σ share² = join.

    One key is more frequent than the rest where 1/join is no whole number.

    >>> [round(share, 3) for share in key_shares(0.4)], key_shares(0.25)
    ([0.544, 0.228, 0.228], [0.25, 0.25, 0.25, 0.25])
    """
    keys = int(np.ceil(1 / join - 1e-9))
    if keys == 1:
        return [1.0]
    # The larger root of  p² + (1 - p)² / (keys - 1) = join.
    first = (1 + np.sqrt(max(0.0, (keys - 1) * (keys * join - 1)))) / keys
    return [float(first), *[float(1 - first) / (keys - 1)] * (keys - 1)]


# --- one join ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Join:
    """A one-way join: which rows are held at which ages, which rows probe, and which males brought the held ones here.

    `feeders` are the males of the slice before, whose purge moves a row into this one; None for a first slice.
    """

    side: Side
    ages: tuple[int, int]
    held: Mask
    males: Mask
    feeders: Mask | None = None

    def rows_held(self, streams: Streams) -> float:
        """Average the number of rows held over the run."""
        t = streams.side(self.side).t[self.held]
        end = int(streams.seconds * SECOND)
        probing = streams.side(other(self.side)).t
        since = t if self.feeders is None else _first_at(probing[self.feeders], t + self.ages[0], end)
        until = _first_at(probing[self.males], t + self.ages[1], end)
        return float((until - since).sum()) / end

    def probes(self, streams: Streams) -> int:
        """Count the pairs that meet, whatever their keys."""
        state, probing = streams.side(self.side), streams.side(other(self.side))
        return _meetings(state.t[self.held], probing.t[self.males], self.ages)

    def results(self, streams: Streams, reader: Reader | None = None) -> int:
        """Count the pairs that match; with a reader, only those it wants."""
        mine, theirs, ages = self._wanted(streams, reader)
        if ages[0] >= ages[1]:
            return 0
        state, probing = streams.side(self.side), streams.side(other(self.side))
        return _meetings(_by_key(state, mine), _by_key(probing, theirs), ages)

    def pairs(self, streams: Streams, reader: Reader) -> Iterator[tuple[int, int]]:
        """List the pairs that a reader wants, as row numbers (left, right).  For small streams only."""
        mine, theirs, (start, end) = self._wanted(streams, reader)
        state, probing = streams.side(self.side), streams.side(other(self.side))
        for male in np.flatnonzero(theirs):
            age = probing.t[male] - state.t
            met = mine & (state.key == probing.key[male]) & (start <= age) & (age < end)
            for row in np.flatnonzero(met):
                yield (int(row), int(male)) if self.side == "l" else (int(male), int(row))

    def _wanted(self, streams: Streams, reader: Reader | None) -> tuple[Mask, Mask, tuple[int, int]]:
        """Mark the rows held, the males, and the ages that are for a reader."""
        if reader is None:
            return self.held, self.males, self.ages
        start, end = exact_reach(reader, self.side)
        return (
            self.held & streams.side(self.side).satisfying(reader.condition(self.side)),
            self.males & streams.side(other(self.side)).satisfying(reader.condition(other(self.side))),
            (max(start, self.ages[0]), min(end, self.ages[1])),
        )


def exact_reach(reader: Reader, side: Side) -> tuple[int, int]:
    """Give the ages a query reads to the microsecond: on the right they begin at 1, for age 0 is the left's."""
    lo, hi = reader.window.lo, reader.window.hi
    return (max(lo, 0), hi) if side == "l" else (max(1 - hi, 1), 1 - lo)


def _first_at(times: Ints, at: Ints, end: int) -> Ints:
    """Find for each moment the first time at or after it, or the end of the run."""
    place = np.searchsorted(times, at, "left")
    return np.append(times, end)[place]


def _by_key(rows: Rows, these: Mask) -> Ints:
    """Lay out the times of some rows, sorted by key and time, in one column."""
    return np.sort(rows.key[these] * KEY_STEP + rows.t[these])


def _meetings(held: Ints, males: Ints, ages: tuple[int, int]) -> int:
    """Count pairs whose age is in ``[start, end)``, that is ``T - end < t <= T - start``."""
    last = np.searchsorted(held, males - ages[0], "right")
    first = np.searchsorted(held, males - ages[1], "right")
    return int((last - first).sum())


# --- a run ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """A join and what its results go through: bounds a router knows, filters with the ages they stand at, unions."""

    join: Join
    serves: tuple[int, ...]
    bounds: int = 0
    filters: tuple[tuple[int, int], ...] = ()
    unions: int = 0


@dataclass(frozen=True)
class Strategy:
    """A plan ready to run: its joins, the evaluations of conditions on rows, and who merges results by time."""

    steps: tuple[Step, ...]
    trials: int = 0
    merged: tuple[int, ...] = ()


@dataclass(frozen=True)
class Run:
    """What a run came to: totals of comparisons, average rows held, and results delivered to each query."""

    cost: Cost
    delivered: tuple[int, ...]

    def seconds(self, weigh: Coefficients = PAPER) -> float:
        """Give the running time."""
        return self.cost.cpu(weigh) * COMPARISON

    def service_rate(self, weigh: Coefficients = PAPER) -> float:
        """Give the results delivered per second of running time."""
        return sum(self.delivered) / self.seconds(weigh)


def run(strategy: Strategy, streams: Streams, readers: Sequence[Reader]) -> Run:
    """Run a plan from empty states to the end of the streams."""
    cost, delivered = Cost(filter=strategy.trials), [0] * len(readers)
    counts: dict[tuple[int, Reader, tuple[int, int]], int] = {}
    for place, step in enumerate(strategy.steps):
        cost += _step_cost(step, streams)
        for number in step.serves:
            reader = readers[number]
            # Queries with one condition that read all of a slice get the same results from it.
            start, end = exact_reach(reader, step.join.side)
            ages = max(start, step.join.ages[0]), min(end, step.join.ages[1])
            same = place, Reader(Range(0, 1), reader.left, reader.right), ages
            if same not in counts:
                counts[same] = step.join.results(streams, reader)
            delivered[number] += counts[same]
    merged = Cost(union=sum(delivered[number] for number in strategy.merged))
    return Run(cost + merged, tuple(delivered))


def _step_cost(step: Step, streams: Streams) -> Cost:
    """Count what one join and the operators behind it do."""
    join = step.join
    males, held = int(join.males.sum()), join.rows_held(streams)
    results = join.results(streams) if step.bounds else 0
    state, probing = streams.side(join.side), streams.side(other(join.side))
    filtered = sum(
        _meetings(_by_key(state, join.held), _by_key(probing, join.males), ages) for ages in step.filters
    )
    return Cost(
        rows=held,
        bytes=held,
        probe=join.probes(streams),
        purge=males,
        route=results * step.bounds,
        filter=filtered,
        union=males * step.unions,
        overhead=males,
    )


def delivered_pairs(
    strategy: Strategy, streams: Streams, readers: Sequence[Reader]
) -> list[list[tuple[int, int]]]:
    """List what each query gets, pair by pair.  For small streams only."""
    out: list[list[tuple[int, int]]] = [[] for _ in readers]
    for step in strategy.steps:
        for number in step.serves:
            out[number] += step.join.pairs(streams, readers[number])
    return out
