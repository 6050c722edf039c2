"""The settings of paper 1's experiments: Tables 3 and 4, rates from 20 to 80 rows a second, 90 seconds.

In:  a seed.  Out: runs of every strategy, shared by Figures 17 and 18.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import TYPE_CHECKING

from penstock.lab.paper1_strategies import pull_up, push_down, state_slice
from penstock.lab.simulate import poisson_streams, run
from penstock.plan.facts import Reader
from penstock.plan.optimize import mem_opt
from penstock.sql.query import SECOND, Range

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.lab.simulate import Run
    from penstock.plan.chain import Chain
    from penstock.plan.optimize import Cuts

RATES = (20, 30, 40, 50, 60, 70, 80)
"""Rows a second, of either stream."""

SECONDS = 90.0
JOINS = (0.025, 0.1, 0.4)
SELECTS = (0.2, 0.5, 0.8)

TABLE_3 = {"Mostly-Small": (5, 10, 30), "Uniform": (10, 20, 30), "Mostly-Large": (20, 25, 30)}
"""Windows of the three queries, seconds."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One experiment of section 7.2: windows, selectivity of the selection, selectivity of the join."""

    windows: str
    select: float
    join: float


SETTINGS = tuple(Setting(*each) for each in product(TABLE_3, SELECTS, JOINS))
"""All 27 combinations."""


def readers_of(windows: Iterable[float], conditions: Sequence[str] = ()) -> list[Reader]:
    """Make queries with these windows (seconds on both sides), and conditions on A."""
    ends = [round(each * SECOND) for each in windows]
    return [
        Reader(Range.window(end, end), condition)
        for end, condition in zip(ends, conditions or [""] * len(ends), strict=True)
    ]


def chain_of(cuts: Cuts, readers: Sequence[Reader]) -> Chain:
    """Build the chain with these cuts; queries are named by their place."""
    return cuts.chain({f"Q{number + 1}": each.window for number, each in enumerate(readers)})


@cache
def sharing_runs(setting: Setting, rate: int, seed: int) -> dict[str, Run]:
    """Run Q1, and Q2 and Q3 with the selection, under each strategy of section 7.2 (Mem-Opt chain)."""
    readers = readers_of(TABLE_3[setting.windows], ("", "σ", "σ"))
    streams = poisson_streams(
        rate, setting.join, seconds=SECONDS, left={"σ": setting.select}, seed=seed + rate
    )
    strategies = {
        "Selection-PullUp": pull_up(streams, readers),
        "State-Slice-Chain": state_slice(streams, readers, chain_of(mem_opt(readers), readers)),
        "Selection-PushDown": push_down(streams, readers),
    }
    return {name: run(each, streams, readers) for name, each in strategies.items()}


def table_4(name: str, queries: int) -> list[float]:
    """Give the windows of Table 4, seconds; for more than 12 queries the same ranges are divided more finely.

    >>> table_4("Small-Large", 12)
    [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 25.0, 26.0, 27.0, 28.0, 29.0, 30.0]
    >>> table_4("Mostly-Small", 12)
    [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 20.0, 30.0]
    """
    half, step = queries // 2, 12 / queries
    if name == "Uniform":
        return [30 / queries * place for place in range(1, queries + 1)]
    if name == "Mostly-Small":
        return [10 / (queries - 2) * place for place in range(1, queries - 1)] + [20.0, 30.0]
    return [step * place for place in range(1, half + 1)] + [
        30 - step * (half - place) for place in range(1, half + 1)
    ]
