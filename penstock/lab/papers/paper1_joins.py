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

In:  `Streams` (made by a seed, or by a test), readers, a strategy (`penstock.lab.papers.paper1_plans`).
Out: a `Run`, in the terms of `penstock.plan.cost`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from penstock.plan.cost import PAPER, Coefficients, Cost
from penstock.plan.facts import other
from penstock.sql.query import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from penstock.plan.facts import Reader
    from penstock.sql.query import Side

    Ints = NDArray[np.int64]
    Mask = NDArray[np.bool_]

KEY_STEP = 1 << 40
"""Added to a time once per key, so that one sorted column holds every key's times: longer than any run, in µs."""

COMPARISON = 1e-6  # seconds that one comparison takes in virtual time.  It scales every service rate alike


class TimedRows(NamedTuple):
    """One stream in order of time: times (µs), keys, and for each condition the rows that satisfy it."""

    t: Ints
    key: Ints
    holds: Mapping[str, Mask]

    def satisfying(self, condition: str) -> Mask:
        """Mark the rows that satisfy a condition; '' is satisfied by all."""
        return self.holds[condition] if condition else np.ones(self.t.size, np.bool_)

    def wanted(self, conditions: Iterable[str]) -> Mask:
        """Mark the rows that satisfy at least one of the conditions."""
        return np.logical_or.reduce([self.satisfying(each) for each in set(conditions)])


class Streams(NamedTuple):
    """Two streams and how long they run, in seconds."""

    left: TimedRows
    right: TimedRows
    seconds: float

    def side(self, side: Side) -> TimedRows:
        """Give one stream."""
        return self.left if side == "l" else self.right


def poisson_streams(
    rate: float, join: float, seed: Sequence[int], seconds: float, left: Mapping[str, float]
) -> Streams:
    """Make two streams with Poisson arrivals of `rate` rows a second, of whose pairs the share `join` matches.

    `left` gives the share of the left stream's rows that satisfy each condition, independently of the others.
    """
    random, shares, made = np.random.default_rng(seed), key_shares(join), []
    for conditions in (left, {}):
        count = int(random.poisson(rate * seconds))
        t = np.sort(random.integers(0, int(seconds * SECOND), count))
        key = random.choice(len(shares), count, p=shares)
        holds = {name: random.random(count) < share for name, share in conditions.items()}
        made.append(TimedRows(t, key, holds))
    return Streams(made[0], made[1], seconds)


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


class Join(NamedTuple):
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

    def meetings(self, streams: Streams, ages: tuple[int, int] | None = None, *, by_key: bool = True) -> int:
        """Count the pairs whose age is in ``[start, end)``, of some ages or all: those that match, or whatever keys.

        In one sorted column of times the rows with ``T - end < t <= T - start`` are one run.
        """
        both = ((streams.side(self.side), self.held), (streams.side(other(self.side)), self.males))
        held, males = (np.sort(rows.t[these] + by_key * KEY_STEP * rows.key[these]) for rows, these in both)
        start, end = ages or self.ages
        last, first = (np.searchsorted(held, males - age, "right") for age in (start, end))
        return int((last - first).sum())

    def part_for(self, reader: Reader, streams: Streams) -> Join | None:
        """Narrow the join to the rows and ages that a reader wants; None if there are none."""
        start, end = exact_reach(reader, self.side)
        ages = max(start, self.ages[0]), min(end, self.ages[1])
        if ages[0] >= ages[1]:
            return None
        both = ((self.held, self.side), (self.males, other(self.side)))
        wanted = (mask & streams.side(side).satisfying(reader.condition(side)) for mask, side in both)
        return Join(self.side, ages, *wanted)


def exact_reach(reader: Reader, side: Side) -> tuple[int, int]:
    """Give the ages a query reads to the microsecond: on the right they begin at 1, for age 0 is the left's."""
    lo, hi = reader.window.lo, reader.window.hi
    return (max(lo, 0), hi) if side == "l" else (max(1 - hi, 1), 1 - lo)


def _first_at(times: Ints, at: Ints, end: int) -> Ints:
    """Find for each moment the first time at or after it, or the end of the run."""
    return np.append(times, end)[np.searchsorted(times, at, "left")]


class Step(NamedTuple):
    """A join and what its results go through: bounds a router knows, filters with the ages they stand at, unions."""

    join: Join
    serves: tuple[int, ...]
    bounds: int = 0
    filters: tuple[tuple[int, int], ...] = ()
    unions: int = 0

    def cost(self, streams: Streams) -> Cost:
        """Count what the join and the operators behind it do."""
        males, held = int(self.join.males.sum()), self.join.rows_held(streams)
        return Cost(
            rows=held,
            bytes=held,
            probe=self.join.meetings(streams, by_key=False),
            purge=males,
            route=self.join.meetings(streams) * self.bounds if self.bounds else 0,
            filter=sum(self.join.meetings(streams, ages) for ages in self.filters),
            union=males * self.unions,
            overhead=males,
        )


class Strategy(NamedTuple):
    """A plan ready to run: its joins, the evaluations of conditions on rows, and who merges results by time."""

    steps: tuple[Step, ...]
    trials: int = 0
    merged: tuple[int, ...] = ()


class Run(NamedTuple):
    """What a run came to: totals of comparisons, average rows held, and results delivered to each query."""

    cost: Cost
    delivered: tuple[int, ...]

    def service_rate(self, weigh: Coefficients = PAPER, result: float = 0.0) -> float:
        """Give the results delivered per second of running time, if delivering one takes `result` comparisons."""
        delivered = sum(self.delivered)
        return delivered / ((self.cost.cpu(weigh) + result * delivered) * COMPARISON)


def run(strategy: Strategy, streams: Streams, readers: Sequence[Reader]) -> Run:
    """Run a plan from empty states to the end of the streams."""
    cost, delivered = Cost(filter=strategy.trials), [0] * len(readers)
    for step in strategy.steps:
        cost += step.cost(streams)
        counts: dict[object, int] = {}
        for number in step.serves:
            reader = readers[number]
            if part := step.join.part_for(reader, streams):
                # Queries with one condition that read all of a slice get the same results from it.
                same = (reader.left, reader.right, part.ages)
                if same not in counts:
                    counts[same] = part.meetings(streams)
                delivered[number] += counts[same]
    merged = Cost(union=sum(delivered[number] for number in strategy.merged))
    return Run(cost + merged, tuple(delivered))
