"""The cost of a plan: rows held, and comparisons made in a second (paper 1, Eq. 1 to 4, for any number of queries).

The paper counts comparisons, all at the same price.  A probing row is compared with every row held, and a purging row
once with a time.  A result is compared once with each bound of a router, and once by each filter.  `Cost` counts the
kinds separately, so that `Coefficients` measured on an engine can weigh them; the paper's weigh 1 each.

Every cost is a sum over *one-way slices*: ages ``[start, end)`` of one stream's rows, probed by the other stream's::

    age        0          W1                    W2
               |----------|---------------------|
    held       λ·P(c1∨c2) | λ·P(c2)                   rows of this stream that a query reading at or beyond wants
    probed by  λ·P(c1∨c2) | λ·P(c2)                   rows of the other stream that such a query wants

A merged slice keeps the wider selection of its first part (6.2), and needs a router at each bound inside.  It saves a
purge, the overhead of an operator and, in the first slice, the unions.  No slice's cost depends on another's (Lemma 2).

As in the paper's equations, a purge and a union are charged for every row of a stream at every slice, also for rows
that a selection has stopped.  A condition is evaluated once per row or result, however many queries have it.

In:  readers and statistics (`penstock.plan.facts`).  Out: `Cost` per second.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING

from penstock.plan.facts import SIDES, age_bounds, other
from penstock.sql.query import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from penstock.plan.facts import PricedQuery, Statistics
    from penstock.sql.query import Side


@dataclass(frozen=True, slots=True)
class Coefficients:
    """The weight of each kind of work: by default the paper's units, in which a comparison is 1.

    `overhead` is the paper's C_sys: moving one row through one more slice.  Eq. 1 to 3 leave it out, so it is 0 here.
    `rewrite` is writing a row again where a slice ends and few rows are still needed.  The paper's states are lists,
    from which rows are dropped for free.  `state_byte` is the price of holding a byte for a second.
    """

    probe: float = 1.0
    purge: float = 1.0
    route: float = 1.0
    filter: float = 1.0
    union: float = 1.0
    overhead: float = 0.0
    rewrite: float = 0.0
    state_byte: float = 0.0


PAPER = Coefficients()

THIN_SHARE = 0.5
"""The share of rows no longer needed from which on a segment is written again without them."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Rows and bytes held, and how often each kind of work is done; `overhead` counts rows into operators."""

    rows: float = 0.0
    bytes: float = 0.0
    probe: float = 0.0
    purge: float = 0.0
    route: float = 0.0
    filter: float = 0.0
    union: float = 0.0
    overhead: float = 0.0
    rewrite: float = 0.0

    def __add__(self, more: Cost) -> Cost:
        """Add two costs, kind by kind."""
        return Cost(*(getattr(self, kind.name) + getattr(more, kind.name) for kind in fields(self)))

    def cpu(self, weigh: Coefficients = PAPER) -> float:
        """Return the total work: the paper's C_p."""
        return (
            self.probe * weigh.probe
            + self.purge * weigh.purge
            + self.route * weigh.route
            + self.filter * weigh.filter
            + self.union * weigh.union
            + self.overhead * weigh.overhead
            + self.rewrite * weigh.rewrite
            + self.bytes * weigh.state_byte
        )


def total(costs: Iterable[Cost]) -> Cost:
    """Add costs up."""
    return sum(costs, start=Cost())


# --- state-slice: Eq. 3, sections 5 and 6 ----------------------------------------------------------


def chain_cost(
    readers: Sequence[PricedQuery], statistics: Statistics, cuts: Mapping[Side, Sequence[int]]
) -> Cost:
    """Price a chain that is cut at these ages."""
    sides = [SideCosts(readers, statistics, side) for side in SIDES]
    return total(side.slice_cost(ages) for side in sides for ages in pairwise(cuts.get(side.side, ())))


@dataclass(frozen=True)
class SideCosts:
    """Prices any slice of one side of a chain; values that depend on one bound only are computed once."""

    readers: Sequence[PricedQuery]
    statistics: Statistics
    side: Side
    _rates: dict[int, tuple[float, float]] = field(default_factory=dict, init=False, repr=False)
    _starts: dict[int, _QueriesBeyond] = field(default_factory=dict, init=False, repr=False)

    def slice_cost(self, ages: tuple[int, int]) -> Cost:
        """Price the slice that holds this side's rows of these ages: the length of an edge of Figure 14."""
        start, end = ages
        held, probing = self._wanted(start)
        beyond = self._beyond(start)
        rows = held * (end - start) / SECOND
        probe = rows * probing if beyond.first < end else 0.0
        inside = bisect_left(self._bounds, end) - bisect_right(self._bounds, start)
        united = bisect_right(beyond.ends, end)
        males = self.statistics.rate(other(self.side))
        filters = beyond.filters(ages)
        return Cost(
            rows=rows,
            bytes=rows * self.statistics.row_bytes,
            probe=probe,
            purge=males,
            route=probe * self.statistics.join * inside,
            filter=probe * self.statistics.join * filters + self._lineage(ages),
            union=males * united,
            overhead=males,
            rewrite=self._rewritten(held, end),
        )

    def _rewritten(self, held: float, end: int) -> float:
        """Return the rate of rows that are written again where a slice ends.

        These are all rows if few of them are needed beyond it.  If many are needed, all stay as they are; if none is,
        whole segments are deleted.
        """
        going_on, _ = self._wanted(end)
        return held if 0 < going_on <= held * (1 - THIN_SHARE) else 0.0

    @cached_property
    def _reaches(self) -> list[tuple[PricedQuery, tuple[int, int]]]:
        """List the queries that read this side, with the ages they read."""
        return [(query, reach) for query in self.readers if (reach := query.reach(self.side))]

    @cached_property
    def _bounds(self) -> tuple[int, ...]:
        return age_bounds(self.readers, self.side)

    def _beyond(self, start: int) -> _QueriesBeyond:
        if start not in self._starts:
            self._starts[start] = _QueriesBeyond.of(
                [(query, reach) for query, reach in self._reaches if reach[1] > start], start
            )
        return self._starts[start]

    def _wanted(self, start: int) -> tuple[float, float]:
        """Return the rates of this stream's and the other's rows that some query reading beyond an age wants."""
        if start not in self._rates:
            beyond = [query for query, reach in self._reaches if reach[1] > start]
            own, opposite = (self.statistics.wanted(side, beyond) for side in (self.side, other(self.side)))
            self._rates[start] = own, opposite
        return self._rates[start]

    def _lineage(self, ages: tuple[int, int]) -> float:
        """Count the evaluations per second that decide whether rows enter a slice (6.1).

        Conditions are tried from the longest window down, until one holds.  Each is charged to the slice in which its
        longest window ends.  A slice that every row enters needs no evaluation.
        """
        start, end = ages
        return sum(
            tries
            for open_until, trials in self._trials
            if open_until <= start
            for age, tries in trials
            if start < age <= end
        )

    @cached_property
    def _trials(self) -> list[tuple[int, list[tuple[int, float]]]]:
        """For each stream charged here: the age below which every row is wanted, and each condition's age and trials.

        A stream is charged on its own side of the chain; a stream that is never held, on the other.
        """
        both = any(query.reach(other(self.side)) for query in self.readers)
        return [self._trials_of(stream) for stream in ([self.side] if both else SIDES)]

    def _trials_of(self, stream: Side) -> tuple[int, list[tuple[int, float]]]:
        order = lineage_order(self.readers, self.side, stream)
        open_until = max((age for age, condition in order if not condition), default=0)
        tried: set[str] = set()
        trials = []
        for age, condition in order:
            share = 1 - self.statistics.selection(stream).any_of(tried)
            trials.append((age, self.statistics.rate(stream) * share))
            tried.add(condition)
        return open_until, trials


@dataclass(frozen=True, slots=True)
class _QueriesBeyond:
    """The queries that read beyond an age, prepared for slices that end at any later age.

    `first` is the lowest age at which one of them begins.  `ends` are the ends of queries that began before the age:
    their results are united.  `spans` hold, for each condition still to be tested, the ages read under it.
    """

    first: float
    ends: tuple[int, ...]
    spans: tuple[tuple[tuple[int, int], ...], ...]

    @classmethod
    def of(
        cls, here: Sequence[tuple[PricedQuery, tuple[int, int]]], start: int, *, pushed: bool = True
    ) -> _QueriesBeyond:
        """Collect queries; if conditions were `pushed` down, a condition of all of them is tested already."""
        spans: list[tuple[tuple[int, int], ...]] = []
        for side in SIDES:
            read: dict[str, set[tuple[int, int]]] = {}
            for query, reach in here:
                read.setdefault(query.condition(side), set()).add(reach)
            if len(read) > 1 or not pushed:
                spans += [tuple(sorted(reaches)) for condition, reaches in read.items() if condition]
        return cls(
            min((reach[0] for _, reach in here), default=inf),
            tuple(sorted(last for first, last in {reach for _, reach in here} if first < start)),
            tuple(spans),
        )

    def filters(self, ages: tuple[int, int]) -> float:
        """Count the filters that a result of a slice passes: one per condition, at the ages where some query has it."""
        start, end = ages
        met = 0
        for reaches in self.spans:
            here = [last for first, last in reaches if first < end]
            if here:
                met += min(max(here), end) - max(reaches[0][0], start)
        return met / (end - start)


def lineage_order(readers: Iterable[PricedQuery], side: Side, stream: Side) -> list[tuple[int, str]]:
    """List one stream's conditions in the order of evaluation, each with the last age at which it is evaluated."""
    last: dict[str, int] = {}
    for query in readers:
        if reach := query.reach(side):
            condition = query.condition(stream)
            last[condition] = max(last.get(condition, 0), reach[1])
    return sorted(((age, condition) for condition, age in last.items()), reverse=True)


# --- the rivals: Eq. 1, Eq. 2, and no sharing (section 3) -------------------------------------------


def pull_up_cost(readers: Sequence[PricedQuery], statistics: Statistics) -> Cost:
    """Price one join with the longest window, a router behind it and the selections last (Eq. 1)."""
    join = _join_cost(readers, statistics, statistics.left_rate, statistics.right_rate)
    filters = 0.0
    for side in SIDES:
        bounds = age_bounds(readers, side)
        if bounds:
            here = [(query, reach) for query in readers if (reach := query.reach(side))]
            results = statistics.left_rate * statistics.right_rate * statistics.join * bounds[-1] / SECOND
            filters += results * _QueriesBeyond.of(here, 0, pushed=False).filters((0, bounds[-1]))
    return join + Cost(filter=filters)


def push_down_cost(readers: Sequence[PricedQuery], statistics: Statistics) -> Cost:
    """Price one join for each part of the streams that satisfies the same conditions (Eq. 2, which is derived)."""
    conditions = {side: {query.condition(side) for query in readers} - {""} for side in SIDES}
    split = sum(statistics.rate(side) * len(conditions[side]) for side in SIDES)
    cost = Cost(filter=split)
    fed = dict.fromkeys(range(len(readers)), 0)
    for left, left_share in statistics.left.patterns(conditions["l"]):
        for right, right_share in statistics.right.patterns(conditions["r"]):
            served = [number for number, query in enumerate(readers) if _holds(query, left, right)]
            if not served or not left_share * right_share:
                continue
            members = [readers[number] for number in served]
            cost += _join_cost(
                members, statistics, statistics.left_rate * left_share, statistics.right_rate * right_share
            )
            for number in served:
                fed[number] += 1
    # A query fed by several joins merges their results by time: one comparison per result.
    merged = total(
        Cost(union=_results(readers[number], statistics)) for number, parts in fed.items() if parts > 1
    )
    return cost + merged


def isolated_cost(readers: Sequence[PricedQuery], statistics: Statistics) -> Cost:
    """Price each query alone: its selections first, then a join with its own window (Figure 2)."""
    return total(
        _join_cost([query], statistics, statistics.wanted("l", [query]), statistics.wanted("r", [query]))
        + Cost(filter=sum(statistics.rate(side) for side in SIDES if query.condition(side)))
        for query in readers
    )


def _holds(reader: PricedQuery, left: frozenset[str], right: frozenset[str]) -> bool:
    """Check whether a query wants rows that satisfy exactly these conditions."""
    return (not reader.left or reader.left in left) and (not reader.right or reader.right in right)


def _join_cost(readers: Sequence[PricedQuery], statistics: Statistics, left: float, right: float) -> Cost:
    """Price a regular join of parts of both streams (rates), with a router to its readers (Figure 1)."""
    cost = Cost()
    for side, held, males in (("l", left, right), ("r", right, left)):
        bounds = age_bounds(readers, side)
        if bounds:
            rows = held * bounds[-1] / SECOND
            cost += Cost(
                rows=rows,
                bytes=rows * statistics.row_bytes,
                probe=rows * males,
                purge=males,
                route=rows * males * statistics.join * (len(bounds) - 2),
                overhead=males,
            )
    return cost


def _results(reader: PricedQuery, statistics: Statistics) -> float:
    pairs = statistics.wanted("l", [reader]) * statistics.wanted("r", [reader])
    return (
        pairs
        * statistics.join
        * sum(b - a for side in SIDES for a, b in [reader.reach(side) or (0, 0)])
        / SECOND
    )


def saving(ours: float, theirs: float) -> float:
    """Return the share of their cost that ours saves (Eq. 4).

    >>> saving(70, 100)
    0.3
    """
    return (theirs - ours) / theirs
