"""Every strategy priced for the same queries: what EXPLAIN shows beside the plan that runs (paper 1, Eq. 1 to 4).

In:  the queries of one signature, statistics of their streams, and prices.
Out: an `Offer` per strategy: joins, slices, rows and bytes held, comparisons (the paper's unit), and seconds of work in
a second of the streams (the engine's).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from penstock.errors import InputError
from penstock.plan.cost import isolated_cost, pull_up_cost, push_down_cost
from penstock.plan.facts import SIDES
from penstock.plan.optimize import auto, cpu_opt, mem_opt, priced
from penstock.plan.prices import Flow, seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.plan.cost import Cost
    from penstock.plan.facts import PricedQuery, Statistics
    from penstock.plan.optimize import Cuts, PricedChain
    from penstock.plan.prices import ArrivalPace, Prices

    _Price = Callable[[Sequence[PricedQuery], Statistics], Cost]


@dataclass(frozen=True, slots=True)
class Offer:
    """What one strategy would cost; `refused` says why it cannot be had, and then there is no cost."""

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
    """Cut a chain as a strategy does: everywhere, or where it is cheapest, within a budget of bytes if there is one."""
    weigh = prices.weigh(statistics)
    if strategy == "cpu-opt" or (strategy == "auto" and budget is None):
        return cpu_opt(readers, statistics, weigh)
    if strategy == "auto" and budget is not None:
        return auto(readers, statistics, budget, weigh)
    return priced(mem_opt(readers), readers, statistics, weigh)


@dataclass(frozen=True, slots=True)
class Pricing:
    """All that a price depends on but the strategy: the queries, their streams, the prices, and how work arrives."""

    readers: Sequence[PricedQuery]
    statistics: Statistics
    prices: Prices
    pace: ArrivalPace

    def offers(self, budget: float | None = None, joins: int = 1) -> list[Offer]:
        """Price every strategy; `joins` is how many push-down would make."""
        chains = ("mem-opt", "cpu-opt", *(["auto"] if budget is not None else []))
        rivals: dict[str, tuple[_Price, int]] = {
            "pull-up": (pull_up_cost, 1),
            "push-down": (push_down_cost, joins),
            "isolated": (isolated_cost, len(self.readers)),
        }
        return [
            *(_tried(each, partial(self._chain, each, budget)) for each in chains),
            *(_tried(each, partial(self._rival, each, *rivals[each])) for each in rivals),
        ]

    def _chain(self, strategy: str, budget: float | None) -> Offer:
        """Price a chain: all rows go once into one join, and once into the logs."""
        choice = chosen_cuts(strategy, self.readers, self.statistics, self.prices, budget)
        flow = Flow(1, self.pace.rows, self.pace.rows)
        return self._offer(strategy, choice.cost, flow, slice_count(choice.cuts))

    def _rival(self, strategy: str, price: _Price, joins: int) -> Offer:
        """Price regular joins; their overhead counts the rows that go into each."""
        cost = price(self.readers, self.statistics)
        stored = cost.overhead if strategy == "isolated" else self.pace.rows
        return self._offer(strategy, cost, Flow(joins, cost.overhead, stored))

    def _offer(self, strategy: str, cost: Cost, flow: Flow, slices: int = 0) -> Offer:
        work = seconds(cost, self.statistics, self.prices, self.pace, flow)
        return Offer(strategy, flow.joins, slices, cost.rows, cost.bytes, cost.cpu(), work)


def _tried(strategy: str, price: Callable[[], Offer]) -> Offer:
    """Price a strategy, or say why it cannot be had."""
    try:
        return price()
    except InputError as refusal:
        return Offer(strategy, refused=str(refusal))


def slice_count(cuts: Cuts) -> int:
    """Count the slices of both sides."""
    return sum(max(0, len(cuts.side(side)) - 1) for side in SIDES)
