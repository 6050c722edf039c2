"""The sweep of paper 1: the settings of Tables 3 and 4, run under every strategy, and priced by the cost model.

Rates go from 20 to 80 rows a second, runs take 90 seconds, and each is averaged over streams of several seeds.  The
costs that runs are held against are those of `penstock.plan.cost`, the chains those of `penstock.plan.optimize`.

In:  a `Sweep`.  Out: runs, each made once, shared by Figures 17, 18 and 19.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product
from typing import TYPE_CHECKING

from papers import paper1_joins as joins
from penstock.plan.chain import Chain
from penstock.plan.cost import Coefficients, Cost, chain_cost, pull_up_cost, push_down_cost, total
from penstock.plan.facts import Independent, PricedQuery, Statistics
from penstock.plan.optimize import Cuts, cpu_opt, mem_opt
from penstock.sql.query import SECOND, Range

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

RATES = (20, 30, 40, 50, 60, 70, 80)  # rows a second, of either stream
SECONDS = 90.0
JOINS = (0.025, 0.1, 0.4)
SELECTS = (0.2, 0.5, 0.8)
UP, OURS, DOWN = "Selection-PullUp", "State-Slice-Chain", "Selection-PushDown"

TABLE_3 = {"Mostly-Small": (5, 10, 30), "Uniform": (10, 20, 30), "Mostly-Large": (20, 25, 30)}
"""Windows of the three queries, seconds."""

C_SYS = 20.0
RESULT = 1.0
"""Comparisons that it takes to move a row through one more slice, and to deliver a result.  The paper gives neither;
with these the gains of Figures 18 and 19 are as large as it says."""

FEW_JOIN = 0.025  # S⋈ of Figure 19


@dataclass(frozen=True, slots=True)
class Setting:
    """One experiment of section 7.2: windows, selectivity of the selection, selectivity of the join."""

    windows: str
    select: float
    join: float

    @property
    def readers(self) -> list[PricedQuery]:
        """Give Q1, and Q2 and Q3 with the selection."""
        return readers_of(TABLE_3[self.windows], ("", "σ", "σ"))

    def statistics(self, rate: float) -> Statistics:
        """Say what the cost model may know of the streams."""
        return Statistics(rate, rate, self.join, Independent({"σ": self.select}))

    def __str__(self) -> str:
        return f"{self.windows}, Sσ = {self.select}, S⋈ = {self.join}"


SETTINGS = tuple(Setting(*each) for each in product(TABLE_3, SELECTS, JOINS))  # all 27 combinations
BY_WINDOWS = tuple(Setting(windows, 0.5, 0.1) for windows in TABLE_3)


@dataclass(frozen=True, slots=True)
class Sweep:
    """All runs of the paper, by a seed: `samples` streams for each setting and rate."""

    seed: int = 1
    samples: int = 4
    rates: tuple[int, ...] = RATES

    def streams(self, rate: int, join: float, **left: float) -> Iterator[joins.Streams]:
        """Make the streams of one rate, as many as there are samples."""
        for sample in range(self.samples):
            yield joins.poisson_streams(rate, join, [self.seed, sample, rate], SECONDS, left)


def readers_of(windows: Iterable[float], conditions: Sequence[str] = ()) -> list[PricedQuery]:
    """Make queries with these windows (seconds on both sides), and conditions on A."""
    ends = [round(each * SECOND) for each in windows]
    both = zip(ends, conditions or [""] * len(ends), strict=True)
    return [PricedQuery(Range.window(end, end), condition) for end, condition in both]


def chain_of(cuts: Cuts, readers: Sequence[PricedQuery]) -> Chain:
    """Build the chain with these cuts; queries are numbered from 1."""
    return Chain.from_windows(
        {f"Q{number + 1}": query.window for number, query in enumerate(readers)}, cuts.axis
    )


def cut_cost(cuts: Cuts, readers: Sequence[PricedQuery], statistics: Statistics) -> Cost:
    """Price a chain with these cuts."""
    return chain_cost(readers, statistics, {"l": cuts.left, "r": cuts.right})


def modelled(readers: Sequence[PricedQuery], statistics: Statistics) -> dict[str, Cost]:
    """Price every strategy of section 7.2."""
    return {
        UP: pull_up_cost(readers, statistics),
        OURS: cut_cost(mem_opt(readers), readers, statistics),
        DOWN: push_down_cost(readers, statistics),
    }


@cache
def sharing(sweep: Sweep, setting: Setting, rate: int) -> dict[str, joins.Run]:
    """Run Q1, Q2 and Q3 under each strategy of section 7.2 (Mem-Opt chain)."""
    readers = setting.readers
    chain = partial(joins.state_slice, chain=chain_of(mem_opt(readers), readers))
    made = sweep.streams(rate, setting.join, σ=setting.select)
    return _runs(made, readers, {UP: joins.pull_up, OURS: chain, DOWN: joins.push_down})


@cache
def chains(sweep: Sweep, windows: str, queries: int, rate: int) -> dict[str, joins.Run]:
    """Run the Mem-Opt and the CPU-Opt chain of section 7.3."""
    readers = readers_of(table_4(windows, queries))
    both = {"Mem-Opt": mem_opt(readers), "CPU-Opt": cpu_opt_cuts(windows, queries, rate)}
    plans = {name: partial(joins.state_slice, chain=chain_of(cuts, readers)) for name, cuts in both.items()}
    return _runs(sweep.streams(rate, FEW_JOIN), readers, plans)


@cache
def cpu_opt_cuts(windows: str, queries: int, rate: int, overhead: float = C_SYS) -> Cuts:
    """Find where the CPU-Opt chain is cut."""
    statistics = Statistics(rate, rate, FEW_JOIN)
    return cpu_opt(readers_of(table_4(windows, queries)), statistics, Coefficients(overhead=overhead)).cuts


def ages_of(windows: str, rate: int, overhead: float = C_SYS) -> tuple[float, ...]:
    """Give the cuts of the CPU-Opt chain of 12 queries in seconds; both sides are alike, for the rates are equal."""
    return tuple(age / SECOND for age in cpu_opt_cuts(windows, 12, rate, overhead).left)


def _runs(
    made: Iterable[joins.Streams],
    readers: list[PricedQuery],
    plans: Mapping[str, Callable[..., joins.Strategy]],
) -> dict[str, joins.Run]:
    """Run every plan on several streams, and add the runs up; rows held are averaged."""
    runs, every = {}, list(made)
    for name, plan in plans.items():
        each = (joins.run(plan(streams, readers), streams, readers) for streams in every)
        costs, delivered = zip(*each, strict=True)
        cost = replace(total(costs), rows=total(costs).rows / len(costs))
        runs[name] = joins.Run(cost, tuple(map(sum, zip(*delivered, strict=True))))
    return runs


def table_4(name: str, queries: int) -> list[float]:
    """Give the windows of Table 4, seconds; for more than 12 queries the same ranges are divided more finely."""
    half, step = queries // 2, 12 / queries
    if name == "Uniform":
        return [30 / queries * number for number in range(1, queries + 1)]
    if name == "Mostly-Small":
        return [10 / (queries - 2) * number for number in range(1, queries - 1)] + [20.0, 30.0]
    small = [step * number for number in range(1, half + 1)]
    return small + [30 - step * half + each for each in small]
