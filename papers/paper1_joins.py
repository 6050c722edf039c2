"""The paper's strategies in virtual time: what each holds, compares and delivers, row by row, without waiting.

Every strategy is a set of one-way joins (Figures 1, 6 and 9): rows of one stream are *held* while their age is in
``[start, end)``, rows of the other are *males* that purge and probe.  Rows are processed in the order of their times,
each through the whole plan before the next, so when a male probes it meets exactly the rows held whose age is in the
range (Lemma 1).  In time order those are one run: two binary searches count what a nested loop would compare::

    held    ... x x x [x x x x x x] x x ...      x: rows of the stream, by time
                      ^ T - end    ^ T - start   T: the male's time

What counts as a comparison, operator by operator, is in docs/papers/paper1.md.  Rows held are an average over the
whole run, which starts with empty states.

In:  `Streams` (made by a seed, or by a test), readers; for state-slice also a chain, Mem-Opt, CPU-Opt or any other.
Out: a `Strategy`, and what running it comes to: a `Run`, in the terms of `penstock.plan.cost`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from penstock.plan.cost import PAPER, Coefficients, Cost, lineage_order
from penstock.plan.facts import SIDES, PricedQuery, other
from penstock.sql.query import SECOND, Side

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from penstock.plan.chain import Chain

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

    def part_for(self, reader: PricedQuery, streams: Streams) -> Join | None:
        """Narrow the join to the rows and ages that a reader wants; None if there are none."""
        start, end = exact_reach(reader, self.side)
        ages = max(start, self.ages[0]), min(end, self.ages[1])
        if ages[0] >= ages[1]:
            return None
        both = ((self.held, self.side), (self.males, other(self.side)))
        wanted = (mask & streams.side(side).satisfying(reader.condition(side)) for mask, side in both)
        return Join(self.side, ages, *wanted)


def exact_reach(reader: PricedQuery, side: Side) -> tuple[int, int]:
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


def run(strategy: Strategy, streams: Streams, readers: Sequence[PricedQuery]) -> Run:
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


def state_slice(streams: Streams, readers: Sequence[PricedQuery], chain: Chain) -> Strategy:
    """Build the chain of sliced joins, with the selections pushed into it (Figures 10, 13 and 15)."""
    steps: list[Step] = []
    for side in SIDES:
        feeders: Mask | None = None
        for _, piece in chain.side(side):
            beyond = [each for each in readers if exact_reach(each, side)[1] > piece.ages[0]]
            wanted = {stream: {each.condition(stream) for each in beyond} for stream in SIDES}
            held, males = (streams.side(each).wanted(wanted[each]) for each in (side, other(side)))
            # A selection that all who read on have in common has been pushed, and no result need be asked again.
            asked = [stream for stream in SIDES if len(wanted[stream]) > 1]
            join = Join(side, piece.ages, held, males, feeders)
            steps.append(_step(join, readers, range(len(readers)), asked))
            feeders = males
    return Strategy(tuple(steps), _trials(streams, readers, chain))


def pull_up(streams: Streams, readers: Sequence[PricedQuery]) -> Strategy:
    """Build one join with the longest window, a router and the filters behind it (Figure 3)."""
    left, right = (np.ones(streams.side(side).t.size, np.bool_) for side in SIDES)
    return Strategy(tuple(_regular(readers, range(len(readers)), left, right, asked=SIDES)))


def push_down(streams: Streams, readers: Sequence[PricedQuery]) -> Strategy:
    """Build one join for each part of the streams that satisfies the same conditions (Figure 4)."""
    parts = [list(_parts(streams.side(side), readers, side)) for side in SIDES]
    steps: list[Step] = []
    fed = Counter[int]()
    for (left, left_rows), (right, right_rows) in product(*parts):
        if served := sorted(left & right):
            steps += _regular(readers, served, left_rows, right_rows)
            fed.update(served)
    conditions = {side: {each.condition(side) for each in readers} - {""} for side in SIDES}
    split = sum(streams.side(side).t.size * len(asked) for side, asked in conditions.items())
    return Strategy(tuple(steps), split, tuple(number for number, joins in sorted(fed.items()) if joins > 1))


def _step(join: Join, readers: Sequence[PricedQuery], served: Iterable[int], asked: Sequence[Side]) -> Step:
    """Put a router, filters (for the streams whose conditions must still be asked) and unions behind a join."""
    start, end = join.ages
    reaches = {number: exact_reach(readers[number], join.side) for number in served}
    reaches = {number: (a, b) for number, (a, b) in reaches.items() if b > max(start, a) and a < end}
    filters = []
    for stream in asked:
        reads = defaultdict(list)
        for number, reach in reaches.items():
            reads[readers[number].condition(stream)].append(reach)
        for begins, ends in (zip(*read, strict=True) for condition, read in reads.items() if condition):
            filters.append((max(start, min(begins)), min(end, max(ends))))
    bounds = {age for reach in reaches.values() for age in reach if start < age < end}
    unions = {(a, b) for a, b in reaches.values() if a < start and b <= end}
    return Step(join, tuple(reaches), len(bounds), tuple(filters), len(unions))


def _regular(
    readers: Sequence[PricedQuery], served: Sequence[int], left: Mask, right: Mask, asked: Sequence[Side] = ()
) -> Iterator[Step]:
    """Build both ways of a regular join of parts of the streams, with a router to the readers it serves."""
    masks = {"l": left, "r": right}
    for side in SIDES:
        first = 0 if side == "l" else 1
        longest = max(exact_reach(readers[number], side)[1] for number in served)
        if longest > first:
            join = Join(side, (first, longest), masks[side], masks[other(side)])
            yield _step(join, readers, served, asked)


def _parts(
    rows: TimedRows, readers: Sequence[PricedQuery], side: Side
) -> Iterator[tuple[frozenset[int], Mask]]:
    """Divide a stream by which readers' conditions a row satisfies."""
    wants = np.array([rows.satisfying(each.condition(side)) for each in readers]).T
    patterns, part = np.unique(wants, axis=0, return_inverse=True)
    for number, pattern in enumerate(patterns):
        yield frozenset(np.flatnonzero(pattern).tolist()), part.reshape(-1) == number


def _trials(streams: Streams, readers: Sequence[PricedQuery], chain: Chain) -> int:
    """Count evaluations of conditions on rows: from the longest window down, until one holds (6.1)."""
    tried = 0
    for stream in SIDES:
        side = stream if chain.side(stream) else other(stream)
        order, rows = lineage_order(readers, side, stream), streams.side(stream)
        open_until = max((age for age, condition in order if not condition), default=0)
        left = np.ones(rows.t.size, np.bool_)
        for age, condition in order:
            starts = [piece.ages[0] for _, piece in chain.side(side) if piece.ages[0] < age]
            if condition and open_until <= max(starts, default=0):
                tried += int(left.sum())
                left = left & ~rows.satisfying(condition)
    return tried
