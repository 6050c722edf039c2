"""What the ledger says of the streams: rates, selectivities, the share of pairs that join, and the prices of work.

All of it is computed from the ledger.  So EXPLAIN, `penstock plan` and the choice of a chain agree, also from another
process and after a restart.

In:  a plan and a ledger.  Out: `Estimate`, per signature.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod
from statistics import mean
from typing import TYPE_CHECKING

from penstock.errors import InputError
from penstock.plan.cost import chain_cost, isolated_cost
from penstock.plan.facts import Independent, PatternShares, PricedQuery, Statistics, age_bounds
from penstock.plan.optimize import mem_opt
from penstock.plan.prices import ArrivalPace, Prices, updated
from penstock.sql.query import FOREVER, SECOND, SIDES, Range

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from penstock.plan.build import Plan
    from penstock.plan.facts import Selection
    from penstock.plan.group import Group
    from penstock.sql.query import Query, Side, Signature
    from penstock.state.ledger import Ledger
    from penstock.state.recent import Effort, Traffic

    Counted = tuple[Sequence[str], Traffic]
    """The predicates that bits stand for, and how many rows had which bits."""

ASSUMED_RATE = 1000.0
"""Rows per second of a stream without any rows yet."""

ASSUMED_SHARE = 0.5
"""The share of rows that satisfy a condition, before rows were counted."""

ASSUMED_JOIN = 1e-4
"""The share of pairs that join, before pairs were counted."""

ASSUMED_ROW_BYTES = 48.0
"""Bytes of a row, before rows were stored."""

ASSUMED_UNIT_ROWS = 100_000.0
"""Rows of a unit, before one has run."""

MIN_PATTERN_SHARE = 0.9
"""Minimum share of rows with known patterns; with less, conditions are counted singly."""

MIN_KNOWN_UNITS = 2.5
"""Units after which a stream counts as known: three, as `penstock.state.recent` fades their number."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """What is known of one signature's streams and its work; `seen` is False where it is assumed."""

    readers: tuple[PricedQuery, ...]
    statistics: Statistics
    pace: ArrivalPace
    prices: Prices
    seen: bool
    pairs: float = 0.0
    """Pairs found in a second of the streams."""
    seconds: float = 0.0
    """Time of units per second of the streams."""


def prices_of(ledger: Ledger) -> Prices:
    """Return the prices: calibrated or default, adjusted by what units and rewrites took since."""
    return updated(ledger.prices or Prices(), ledger.unit_fit, ledger.rewrite_fit)


def signatures(plan: Plan) -> dict[Signature, tuple[Query, ...]]:
    """List the signatures of a plan, each with its queries."""
    queries_of: dict[Signature, list[Query]] = {}
    for query in plan.queries:
        queries_of.setdefault(query.signature, []).append(query)
    return {signature: tuple(queries) for signature, queries in queries_of.items()}


def measure(plan: Plan, ledger: Ledger, signature: Signature) -> Estimate:
    """Return what is known of one signature's streams."""
    queries = signatures(plan)[signature]
    groups = [group for group in plan.groups if group.signature == signature]
    traffic = {side: _traffic(plan, groups, ledger, side) for side in SIDES}
    rates = [_rate(traffic[side]) for side in SIDES]
    far = longest_finite(queries)
    readers = tuple(_reader(query, [rate or ASSUMED_RATE for rate in rates], far) for query in queries)
    selections = [_selection(_conditions(queries, side), _counted(groups, ledger, side)) for side in SIDES]
    statistics = Statistics(
        rates[0] or ASSUMED_RATE,
        rates[1] or ASSUMED_RATE,
        1.0,
        selections[0],
        selections[1],
        _row_bytes(groups, ledger),
    )
    work = _work(ledger.groups[group.id].effort for group in groups if group.id in ledger.groups)
    both = statistics.left_rate + statistics.right_rate
    compared = _compared(readers, statistics, alone=plan.strategy == "isolated")
    join = min(1.0, work.pairs / compared) if work.units and compared else ASSUMED_JOIN
    return Estimate(
        readers,
        replace(statistics, join=join),
        ArrivalPace(both, both / work.units if work.units else ASSUMED_UNIT_ROWS),
        prices_of(ledger),
        seen=all(rates) and work.seen >= MIN_KNOWN_UNITS,
        pairs=work.pairs,
        seconds=work.seconds,
    )


@dataclass(frozen=True, slots=True)
class _JoinWork:
    """What all joins of a signature do in a second of the streams; `units` are those of one join."""

    units: float = 0.0
    pairs: float = 0.0
    seconds: float = 0.0
    seen: float = 0.0


def _work(efforts: Iterable[Effort]) -> _JoinWork:
    """Add up the joins of a signature, each over the event time that its own units have covered."""
    timed = [effort for effort in efforts if effort.micros]
    if not timed:
        return _JoinWork()
    return _JoinWork(
        units=mean(effort.units / effort.micros for effort in timed) * SECOND,
        pairs=sum(effort.pairs / effort.micros for effort in timed) * SECOND,
        seconds=sum(effort.seconds / effort.micros for effort in timed) * SECOND,
        seen=min(effort.units for effort in timed),
    )


def longest_finite(queries: Iterable[Query]) -> int:
    """Return the assumed length of a window without an end: a day, or twice the longest window that has one."""
    ends = (abs(end) for query in queries for end in (query.window.lo, query.window.hi))
    return max(86_400 * SECOND, 2 * max((end for end in ends if end < FOREVER - 1), default=0))


def _reader(query: Query, rates: Sequence[float], far: int) -> PricedQuery:
    """Return what the cost of a query depends on; a window without an end is priced as `far` long.

    A window that counts rows is as long as its stream takes to send so many.
    """
    window = query.window
    lo = -far if window.lo <= -FOREVER + 1 else window.lo
    hi = far if window.hi >= FOREVER else window.hi
    if query.rows[0]:
        hi = max(1, int(hi * SECOND / rates[0]))
    if query.rows[1]:
        lo = min(-1, int(lo * SECOND / rates[1]))
    return replace(PricedQuery.of(query), window=Range(lo, hi))


def _traffic(plan: Plan, groups: Iterable[Group], ledger: Ledger, side: Side) -> Traffic | None:
    """Return what was counted of one side's stream: any log of the stream has seen all its rows."""
    logs = [group.log(side) for group in groups]
    streams = {log.stream for log in logs}
    for log in [*logs, *(log for log in plan.logs if log.stream in streams)]:
        if traffic := ledger.traffic.get(log.id):
            return traffic
    return None


def stream_rates(plan: Plan, ledger: Ledger, group: Group) -> tuple[float, ...]:
    """Return the rows per second of event time of a group's streams, 0 where that is not known."""
    return tuple(_rate(_traffic(plan, [group], ledger, side)) for side in group.sides)


def _counted(groups: Iterable[Group], ledger: Ledger, side: Side) -> list[Counted]:
    """List what was counted in the logs of one side, each with the predicates that its bits stand for."""
    logs = dict.fromkeys(group.log(side).id for group in groups)
    recorded = [(ledger.layouts.get(log, {}), ledger.traffic.get(log)) for log in logs]
    return [
        (layouts[traffic.layout].predicates, traffic)
        for layouts, traffic in recorded
        if traffic is not None and traffic.layout in layouts
    ]


def _rate(traffic: Traffic | None) -> float:
    return traffic.rows / traffic.micros * SECOND if traffic and traffic.micros else 0.0


def _conditions(queries: Iterable[Query], side: Side) -> dict[str, frozenset[str]]:
    """Return by distinct condition on one side, as text, its predicates."""
    return {
        PricedQuery.of(query).condition(side): frozenset(query.predicates(side))
        for query in queries
        if query.predicates(side)
    }


def _selection(conditions: Mapping[str, frozenset[str]], counted: Iterable[Counted]) -> Selection:
    """Return which conditions rows satisfy together: as counted in one log, else each alone, else as assumed."""
    shares: dict[str, float] = dict.fromkeys(conditions, ASSUMED_SHARE)
    for predicates, traffic in counted:
        counted_here = [
            condition for condition, needs in conditions.items() if traffic.rows and needs <= set(predicates)
        ]
        shares |= {
            condition: _share(conditions[condition], predicates, traffic) for condition in counted_here
        }
        total = sum(rows for _, rows in traffic.patterns)
        if len(counted_here) == len(conditions) and total >= MIN_PATTERN_SHARE * traffic.rows:
            return PatternShares(
                tuple(
                    (
                        frozenset(
                            condition
                            for condition in counted_here
                            if _holds(conditions[condition], predicates, bits)
                        ),
                        rows / total,
                    )
                    for bits, rows in traffic.patterns
                )
            )
    return Independent(shares)


def _share(needs: Iterable[str], predicates: Sequence[str], traffic: Traffic) -> float:
    """Return the share of rows that satisfy a condition, with its predicates taken to be independent."""
    return prod(traffic.holds[predicates.index(predicate)] / traffic.rows for predicate in needs)


def _holds(needs: Iterable[str], predicates: Sequence[str], bits: int) -> bool:
    """Return whether a pattern of bits has all predicates of a condition."""
    return all(bits >> predicates.index(predicate) & 1 for predicate in needs)


def _row_bytes(groups: Iterable[Group], ledger: Ledger) -> float:
    """Return the average size of a stored row, of both sides together."""
    segments = [segment for group in groups for log in group.logs for segment in ledger.segments(log.id)]
    rows = sum(segment.rows for segment in segments)
    return sum(segment.bytes for segment in segments) / rows if rows else ASSUMED_ROW_BYTES


def _compared(readers: Sequence[PricedQuery], statistics: Statistics, *, alone: bool) -> float:
    """Count the comparisons, in a second, of rows that some query needs together: the divisor of the paper's S⋈.

    If queries share nothing, each compares for itself.
    """
    if alone:
        return isolated_cost(readers, statistics).probe
    try:
        left, right = (_wanted_by(readers, statistics, side) for side in SIDES)
    except InputError:  # too many conditions to tell all their combinations apart
        cuts = mem_opt(readers)
        return chain_cost(readers, statistics, {"l": cuts.left, "r": cuts.right}).probe
    total = 0.0
    for side in SIDES:
        for start, end in pairwise(age_bounds(readers, side)):
            here = sum(
                1 << number
                for number, reader in enumerate(readers)
                if (reach := reader.reach(side)) and reach[0] < end and reach[1] > start
            )
            shares = (
                left_share * right_share
                for one, left_share in left.items()
                for other, right_share in right.items()
                if one & other & here
            )
            total += sum(shares) * (end - start) / SECOND
    return total * statistics.left_rate * statistics.right_rate


def _wanted_by(readers: Sequence[PricedQuery], statistics: Statistics, side: Side) -> dict[int, float]:
    """Divide one stream's rows by the set of queries, as bits, whose condition they satisfy."""
    shares: dict[int, float] = {}
    conditions = {reader.condition(side) for reader in readers}
    for holds, share in statistics.selection(side).patterns(conditions):
        queries = sum(
            1 << number
            for number, reader in enumerate(readers)
            if not reader.condition(side) or reader.condition(side) in holds
        )
        shares[queries] = shares.get(queries, 0.0) + share
    return shares
