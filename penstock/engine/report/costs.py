"""EXPLAIN with numbers: statistics of the streams, and predicted and measured costs of the plan and other strategies.

The predictions are the paper's Eq. 1 to 3, for any number of queries: rows held, and comparisons a second in nested
loops.  The prices of `penstock.plan.prices` also give seconds of work for each second of the streams.

In:  a plan, and the ledger it runs on (an empty one before the first run).
Out: `Costs` per signature; as text, or as JSON.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from penstock.engine.report.status import held_rows
from penstock.engine.views.estimates import measure, signatures
from penstock.errors import InputError
from penstock.plan.cost import saving
from penstock.plan.share import CHOSEN, divide
from penstock.plan.strategy_comparison import Offer, Pricing, chosen_cuts
from penstock.sql.query import SIDES
from penstock.sql.units import show_duration, show_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.engine.views.estimates import Estimate
    from penstock.plan.build import Plan
    from penstock.sql.query import Query, Side, Signature
    from penstock.state.ledger import Ledger


MOST_NAMES = 4
"""The most queries that a heading names."""


@dataclass(frozen=True, slots=True)
class MeasuredCosts:
    """The measured costs of one signature: rows held by its joins, and pairs and seconds of work for each second."""

    rows: int
    pairs: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Costs:
    """One signature: statistics of its streams, predicted costs of each strategy, and measured costs."""

    left: str
    right: str
    queries: str
    strategy: str
    estimate: Estimate
    shares: dict[Side, dict[str, float]]
    offers: tuple[Offer, ...]
    measured: MeasuredCosts | None

    @property
    def own(self) -> Offer:
        """Return the costs of the strategy that runs; without a budget `auto` is `cpu-opt`."""
        named = {offer.strategy: offer for offer in self.offers}
        return named.get(self.strategy) or named["cpu-opt"]

    def to_json(self) -> dict[str, Any]:
        """Write as a JSON object."""
        statistics = self.estimate.statistics
        return {
            "left": self.left,
            "right": self.right,
            "queries": self.queries,
            "strategy": self.strategy,
            "measured": self.estimate.seen,
            "rates": [statistics.left_rate, statistics.right_rate],
            "join_selectivity": statistics.join,
            "row_bytes": statistics.row_bytes,
            "selectivities": self.shares,
            "prices": self.estimate.prices.to_json(),
            "offers": [asdict(offer) for offer in self.offers],
            "found": asdict(self.measured) if self.measured else None,
        }


def costs(plan: Plan, ledger: Ledger, budget: float | None = None, *, runs: bool = False) -> list[Costs]:
    """Return the costs of a plan and of other strategies, by signature; if the plan runs, also the rows held.

    Joins of more than two streams have no cost model.  Joins without a window have no chains: see
    `penstock.engine.report.buffer_costs`.
    """
    pairs = (one for one in signatures(plan) if not one.streams and not one.oblivious)
    return [_costs(plan, ledger, signature, budget, runs=runs) for signature in pairs]


def _costs(plan: Plan, ledger: Ledger, signature: Signature, budget: float | None, *, runs: bool) -> Costs:
    """Return the costs of one signature."""
    estimate = measure(plan, ledger, signature)
    pricing = Pricing(estimate.readers, estimate.statistics, estimate.prices, estimate.pace)
    shares = {
        side: {
            condition: estimate.statistics.selection(side).any_of({condition})
            for condition in sorted({reader.condition(side) for reader in estimate.readers} - {""})
        }
        for side in SIDES
    }
    offers = tuple(pricing.offers(budget, _joins(signatures(plan)[signature])))
    return Costs(
        signature.left,
        signature.right,
        _named([query.name for query in signatures(plan)[signature]]),
        plan.strategy,
        estimate,
        shares,
        offers,
        _measured(plan, ledger, signature, estimate) if runs and estimate.pairs else None,
    )


def _named(names: list[str]) -> str:
    """Write the names of a few queries, or the number of many."""
    return (
        ", ".join(names)
        if len(names) <= MOST_NAMES
        else f"{', '.join(names[:MOST_NAMES])} and {len(names) - MOST_NAMES} more"
    )


def _joins(queries: tuple[Query, ...]) -> int:
    """Return the number of joins with push-down; 1 where push-down is refused, and its costs show that."""
    try:
        return len(divide(queries, "push-down"))
    except InputError:
        return 1


def _measured(plan: Plan, ledger: Ledger, signature: Signature, estimate: Estimate) -> MeasuredCosts:
    """Return the measured costs of the joins of a signature."""
    rows = sum(
        held_rows(group, ledger)
        for group in plan.groups
        if group.signature == signature and group.id in ledger.groups
    )
    return MeasuredCosts(rows, estimate.pairs, estimate.seconds)


# --- as text -------------------------------------------------------------------------------------------


def cost_lines(all_costs: Iterable[Costs], *, compare: bool = False) -> Iterator[str]:
    """Write the costs; with `compare`, also where each chain would be cut, and what it saves (Eq. 4)."""
    for one in all_costs:
        yield ""
        yield f"Costs of {one.left} l ⋈ {one.right} r ({one.queries}), strategy {one.strategy}"
        yield from _known_lines(one)
        yield from _offer_lines(one)
        if compare:
            yield from _compare_lines(one)


def _known_lines(costs: Costs) -> Iterator[str]:
    """Write the statistics that costs depend on, and whether they are measured."""
    statistics = costs.estimate.statistics
    how = "measured" if costs.estimate.seen else "assumed: too little has come to measure it"
    yield f"  streams ({how})"
    yield f"    rates       l {statistics.left_rate:,.0f}, r {statistics.right_rate:,.0f} rows a second of event time"
    yield f"    rows        {show_size(statistics.row_bytes)} each; of all pairs, {statistics.join:.3g} join (S⋈)"
    for side in SIDES:
        for condition, share in costs.shares[side].items():
            yield f"    {side} keeps     {share:6.1%}  {condition}"


def _offer_lines(costs: Costs) -> Iterator[str]:
    """Write a table of strategies, with a mark at the one that runs, and its measured costs."""
    yield "  predicted     joins slices    rows held      state  comparisons/s   work"
    for offer in costs.offers:
        mark = "*" if offer is costs.own else " "
        if offer.refused:
            yield f"  {mark} {offer.strategy:<10} not possible: {offer.refused}"
            continue
        slices = str(offer.slices) if offer.slices else "-"
        yield (
            f"  {mark} {offer.strategy:<11} {offer.joins:>5} {slices:>6} {offer.rows:>12,.0f} "
            f"{show_size(offer.bytes):>10} {offer.comparisons:>14,.0f} {offer.seconds:>6.1%}"
        )
    if (measured := costs.measured) is not None:
        pairs = f"{measured.pairs:,.0f} pairs/s"
        yield f"  measured                   {measured.rows:>12,} {'':>10} {pairs:>14} {measured.seconds:>6.1%}"
    yield "  (comparisons as nested loops make them, Eq. 1-3; work: seconds of units in a second of the streams)"


def _compare_lines(costs: Costs) -> Iterator[str]:
    """Write the cuts of each chain, and the savings of the running strategy against each other one."""
    estimate = costs.estimate
    for strategy in ("mem-opt", *sorted(CHOSEN - {"auto"})):
        cuts = chosen_cuts(strategy, estimate.readers, estimate.statistics, estimate.prices).cuts
        for side in SIDES:
            ages = " ".join(show_duration(age) for age in cuts.side(side))
            yield f"  {strategy} cuts {side}  {ages or '(nothing is held on this side)'}"
    own = costs.own
    for offer in costs.offers:
        if offer.strategy != own.strategy and not offer.refused and not own.refused:
            yield f"  {own.strategy} against {offer.strategy:<10} {_savings(own, offer)}"


def _savings(own: Offer, other: Offer) -> str:
    """Write how much less, or more, memory, comparisons and work one strategy needs than another (Eq. 4)."""
    words = (("memory", "rows"), ("comparisons", "comparisons"), ("work", "seconds"))
    shares = [
        (saving(getattr(own, field), getattr(other, field)), word)
        for word, field in words
        if getattr(other, field)
    ]
    return ", ".join(
        f"{abs(share) * 100:.0f} % {'less' if share >= 0 else 'more'} {word}" for share, word in shares
    )
