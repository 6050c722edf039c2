"""What the ledger says of the streams: rates, selectivities, the share of pairs that join, and the prices of work.

Everything is a value computed from the ledger, so that EXPLAIN, `penstock plan` and the choice of a chain see the same,
also from outside and also after a restart.

In:  a plan and a ledger.  Out: `Measured`, per signature.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.plan.cost import chain_cost
from penstock.plan.facts import Independent, Reader, Statistics
from penstock.plan.facts import Measured as Patterns
from penstock.plan.optimize import mem_opt
from penstock.plan.prices import Pace, Prices, updated
from penstock.sql.query import FOREVER, SECOND, SIDES, Range

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from penstock.log.ledger import Ledger
    from penstock.log.tally import Traffic
    from penstock.plan.build import Plan
    from penstock.plan.facts import Selection
    from penstock.plan.group import Group
    from penstock.sql.query import Query, Side, Signature

    Counted = tuple[Sequence[str], Traffic]
    """The predicates that bits stand for, and how many rows had which bits."""

ASSUMED_RATE = 1000.0
"""Rows a second of a stream that nobody has seen yet."""

ASSUMED_SHARE = 0.5
"""The share of rows that a condition lets through before anybody has counted."""

ASSUMED_JOIN = 1e-4
"""The share of pairs that join before anybody has counted: each row meets one in ten thousand."""

ASSUMED_ROW = 48.0
"""Bytes of a row that nobody has stored yet."""

ROWS_PER_UNIT = 100_000.0
"""Rows that a unit takes before one has run."""

ENOUGH = 3
"""Batches after which a stream counts as known; faded as `penstock.log.tally` fades them."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What is known of one signature's streams, and how its work arrives; `seen` is False where it is assumed."""

    readers: tuple[Reader, ...]
    known: Statistics
    pace: Pace
    prices: Prices
    seen: bool
    pairs: float = 0.0
    """Pairs found in a second of the streams."""
    seconds: float = 0.0
    """What units took, per second of the streams."""


def prices_of(ledger: Ledger) -> Prices:
    """Give the prices: calibrated or default, following what units and rewrites took since."""
    return updated(Prices.from_json(ledger.prices), ledger.unit_fit, ledger.rewrite_fit)


def signatures(plan: Plan) -> dict[Signature, tuple[Query, ...]]:
    """List the signatures of a plan, each with its queries."""
    found: dict[Signature, list[Query]] = {}
    for query in plan.queries:
        found.setdefault(query.signature, []).append(query)
    return {signature: tuple(queries) for signature, queries in found.items()}


def measure(plan: Plan, ledger: Ledger, signature: Signature) -> Measured:
    """Say what is known of one signature's streams."""
    queries = signatures(plan)[signature]
    groups = [group for group in plan.groups if group.signature == signature]
    traffic = {side: _traffic(groups, ledger, side) for side in SIDES}
    rates = [_rate(traffic[side]) for side in SIDES]
    readers = tuple(_reader(query, [each or ASSUMED_RATE for each in rates]) for query in queries)
    selections = [_selection(_conditions(queries, side), _counted(groups, ledger, side)) for side in SIDES]
    known = Statistics(
        rates[0] or ASSUMED_RATE,
        rates[1] or ASSUMED_RATE,
        1.0,
        selections[0],
        selections[1],
        _row_bytes(groups, ledger),
    )
    effort = [ledger.groups[group.id].effort for group in groups if group.id in ledger.groups]
    rows, pairs, took = (sum(getattr(each, name) for each in effort) for name in ("rows", "pairs", "seconds"))
    units = sum(each.units for each in effort)
    both = known.left_rate + known.right_rate
    pace = Pace(both, rows / units if units else ROWS_PER_UNIT)
    found = pairs / rows * both if rows else 0.0
    return Measured(
        readers,
        replace(known, join=_join_share(found, readers, known) if rows else ASSUMED_JOIN),
        pace,
        prices_of(ledger),
        seen=all(rates) and units >= ENOUGH * 0.9,
        pairs=found,
        seconds=took / rows * both if rows else 0.0,
    )


def _reader(query: Query, rates: Sequence[float]) -> Reader:
    """Take from a query what its cost depends on; a window without an end is priced as one of a day.

    A window that counts rows is as long as its stream takes to send so many.
    """
    window = query.window
    day = 86_400 * SECOND
    lo = -day if window.lo <= -FOREVER + 1 else window.lo
    hi = day if window.hi >= FOREVER else window.hi
    if query.rows[0]:
        hi = max(1, int(hi * SECOND / rates[0]))
    if query.rows[1]:
        lo = min(-1, int(lo * SECOND / rates[1]))
    return replace(Reader.of(query), window=Range(lo, hi))


def _traffic(groups: Iterable[Group], ledger: Ledger, side: Side) -> Traffic | None:
    """Find what was counted of one side's stream: any of the group's logs sees all its rows."""
    for group in groups:
        if known := ledger.traffic.get(group.log(side).id):
            return known
    return None


def _counted(groups: Iterable[Group], ledger: Ledger, side: Side) -> list[Counted]:
    """List what was counted in the logs of one side, each with the predicates that its bits stand for."""
    logs = dict.fromkeys(group.log(side).id for group in groups)
    known = [(ledger.layouts.get(log, ()), ledger.traffic.get(log)) for log in logs]
    return [
        (layouts[traffic.layout].predicates, traffic)
        for layouts, traffic in known
        if traffic is not None and traffic.layout < len(layouts)
    ]


def _rate(traffic: Traffic | None) -> float:
    """Give rows per second of event time, 0 if that is not known."""
    return traffic.rows / traffic.micros * SECOND if traffic and traffic.micros else 0.0


def _conditions(queries: Iterable[Query], side: Side) -> dict[str, frozenset[str]]:
    """List the distinct conditions on one side, by the text a `Reader` knows them by, with their predicates."""
    return {
        Reader.of(query).condition(side): frozenset(
            query.left_predicates if side == "l" else query.right_predicates
        )
        for query in queries
        if (query.left_predicates if side == "l" else query.right_predicates)
    }


def _selection(conditions: Mapping[str, frozenset[str]], counted: Iterable[Counted]) -> Selection:
    """Say which conditions rows satisfy together: as counted in one log, else each by itself, else by assumption."""
    shares: dict[str, float] = dict.fromkeys(conditions, ASSUMED_SHARE)
    for predicates, traffic in counted:
        total = sum(rows for _, rows in traffic.patterns)
        mine = [each for each, needs in conditions.items() if total and needs <= set(predicates)]
        patterns = Patterns(
            tuple(
                (frozenset(each for each in mine if _holds(conditions[each], predicates, bits)), rows / total)
                for bits, rows in traffic.patterns
            )
            if mine
            else ()
        )
        if len(mine) == len(conditions):
            return patterns
        shares |= {each: patterns.any_of({each}) for each in mine}
    return Independent(shares)


def _holds(needs: Iterable[str], predicates: Sequence[str], bits: int) -> bool:
    """Say whether a pattern of bits has all predicates of a condition."""
    return all(bits >> predicates.index(each) & 1 for each in needs)


def _row_bytes(groups: Iterable[Group], ledger: Ledger) -> float:
    """Give the average size of a stored row, of both sides together."""
    segments = [each for group in groups for side in SIDES for each in ledger.segments(group.log(side).id)]
    rows = sum(each.rows for each in segments)
    return sum(each.bytes for each in segments) / rows if rows else ASSUMED_ROW


def _join_share(pairs: float, readers: Sequence[Reader], known: Statistics) -> float:
    """Give the share of the comparisons of nested loops that find a pair: the paper's S⋈."""
    cuts = mem_opt(readers)
    compared = chain_cost(readers, known, {"l": cuts.left, "r": cuts.right}).probe
    return min(1.0, pairs / compared) if compared else ASSUMED_JOIN
