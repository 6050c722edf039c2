"""Every strategy priced for the same queries: EXPLAIN shows them beside the plan that runs (paper 1, Eq. 1 to 4).

In:  the queries of one signature, statistics of their streams, and prices.
Out: an `Offer` per strategy: joins, slices, rows and bytes held, comparisons (the paper's unit), and seconds of work
per second of the streams (the engine's unit).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import InputError
from penstock.plan.cost import isolated_cost, pull_up_cost, push_down_cost
from penstock.plan.optimize import auto, cpu_opt, mem_opt, priced
from penstock.plan.prices import Flow, seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.plan.facts import PricedQuery, Statistics
    from penstock.plan.optimize import PricedChain
    from penstock.plan.prices import ArrivalPace, Prices


@dataclass(frozen=True, slots=True)
class Offer:
    """The cost of one strategy; `refused` is the reason if it cannot be used, and then there is no cost."""

    strategy: str
    joins: int = 0
    slices: int = 0
    rows: float = 0.0
    bytes: float = 0.0
    comparisons: float = 0.0
    seconds: float = 0.0
    refused: str = ""


def chosen_cuts(
    strategy: str,
    readers: Sequence[PricedQuery],
    statistics: Statistics,
    prices: Prices,
    budget: float | None = None,
) -> PricedChain:
    """Cut a chain as a strategy does: at every window, or where it is cheapest within a budget of bytes."""
    weigh = prices.weigh(statistics)
    if strategy == "auto" and budget is not None:
        return auto(readers, statistics, budget, weigh)
    if strategy in {"cpu-opt", "auto"}:
        return cpu_opt(readers, statistics, weigh)
    return priced(mem_opt(readers), readers, statistics, weigh)


@dataclass(frozen=True, slots=True)
class Pricing:
    """The facts that all prices share: the queries, their streams, the prices, and how work arrives."""

    readers: Sequence[PricedQuery]
    statistics: Statistics
    prices: Prices
    pace: ArrivalPace

    def offers(self, budget: float | None = None, joins: int = 1) -> list[Offer]:
        """Price every strategy; `joins` is the number of joins that push-down would make."""
        chains = ("mem-opt", "cpu-opt", *(["auto"] if budget is not None else []))
        rivals = {"pull-up": 1, "push-down": joins, "isolated": len(self.readers)}
        return [
            *(self._offer(strategy, 1, budget) for strategy in chains),
            *(self._offer(strategy, count, None) for strategy, count in rivals.items()),
        ]

    def _offer(self, strategy: str, joins: int, budget: float | None) -> Offer:
        slices, rows = 0, self.pace.rows
        try:
            if strategy in _RIVAL_COSTS:
                cost = _RIVAL_COSTS[strategy](self.readers, self.statistics)
                rows = cost.overhead  # it counts the rows that go into each join
            else:
                chain = chosen_cuts(strategy, self.readers, self.statistics, self.prices, budget)
                cost, slices = chain.cost, chain.cuts.slice_count
        except InputError as refusal:
            return Offer(strategy, refused=str(refusal))
        # Shared logs store each row once, a query's own logs store it once more.
        flow = Flow(joins, joined=rows, stored=rows if strategy == "isolated" else self.pace.rows)
        work = seconds(cost, self.statistics, self.prices, self.pace, flow)
        return Offer(strategy, joins, slices, cost.rows, cost.bytes, cost.cpu(), work)


_RIVAL_COSTS = {"pull-up": pull_up_cost, "push-down": push_down_cost, "isolated": isolated_cost}
