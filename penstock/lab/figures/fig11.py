"""Paper 1, Figure 11: what state-slice saves over its rivals, by Eq. 4.

Two queries: Q1 with window W1, Q2 with window W2 and a selection on A.  Drawn over the window ratio ρ = W1 / W2 and the
selectivity of the selection.  Eq. 4 leaves out what grows with the rate and not its square (purging, splitting and the
chain's union); here the savings come from the cost model itself at a rate so high that those terms vanish.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np
from matplotlib.figure import Figure as Picture
from rich.table import Table

from penstock.lab.figures.figure import Claim, Outcome, percent
from penstock.plan.cost import chain_cost, pull_up_cost, push_down_cost, saving
from penstock.plan.facts import Independent, Reader, Statistics
from penstock.sql.query import SECOND, Range

GRID = tuple(float(each) for each in np.linspace(0.05, 0.95, 10))
"""Window ratios and selectivities over which savings are averaged."""

DRAWN = tuple(float(each) for each in np.linspace(0.05, 0.95, 7))
"""And those at which the surfaces are drawn."""

JOINS = (0.025, 0.1, 0.4)
HIGH_RATE = 1e9
LONG = 1000 * SECOND


@dataclass(frozen=True, slots=True)
class Savings:
    """Eq. 4: the share of memory and of comparisons saved over pull-up and over push-down."""

    memory_up: float
    memory_down: float
    cpu_up: float
    cpu_down: float


@cache
def savings(ratio: float, select: float, join: float, rate: float = HIGH_RATE) -> Savings:
    """Price the three plans of the two queries and compare them."""
    short = round(ratio * LONG)
    readers = [Reader(Range.window(short, short)), Reader(Range.window(LONG, LONG), "σ")]
    known = Statistics(rate, rate, join, Independent({"σ": select}))
    ours = chain_cost(readers, known, {"l": (0, short, LONG), "r": (0, short, LONG)})
    up, down = pull_up_cost(readers, known), push_down_cost(readers, known)
    return Savings(
        saving(ours.rows, up.rows),
        saving(ours.rows, down.rows),
        saving(ours.cpu(), up.cpu()),
        saving(ours.cpu(), down.cpu()),
    )


def equation_4(ratio: float, select: float, join: float) -> Savings:
    """Give the savings as the paper prints them."""
    down = ratio * (1 - select) + select + select * join + ratio * join
    return Savings(
        (1 - ratio) * (1 - select) / 2,
        ratio / (1 + 2 * ratio + (1 - ratio) * select),
        ((1 - ratio) * (1 - select) + (2 - ratio) * join) / (1 + 2 * join),
        select * join / down,
    )


def reproduce(_seed: int) -> Outcome:
    """Draw the surfaces and check what the paper says of them."""
    points = list(product(GRID, GRID, JOINS))
    found = [savings(*point) for point in points]
    table = Table(
        "S⋈",
        "memory / pull-up",
        "memory / push-down",
        "CPU / pull-up",
        "CPU / push-down",
        title="mean savings",
    )
    for join in JOINS:
        mine = [each for point, each in zip(points, found, strict=True) if point[2] == join]
        table.add_row(str(join), *(percent(float(mean)) for mean in _means(mine)))
    return Outcome((table,), _claims(points, found), (_NOTE,), _draw())


_NOTE = "Eq. 2 is derived: (2 - Sσ)λW1 + (1 + Sσ)λW2 rows, and λ + 2(1-Sσ)λ²W1 + 2Sσλ²W2 + 3λ + 2Sσλ²W2S⋈ + 2λ²W1S⋈."


def _means(found: list[Savings]) -> list[float]:
    """Average each kind of saving."""
    return [
        float(np.mean([getattr(each, name) for each in found]))
        for name in ("memory_up", "memory_down", "cpu_up", "cpu_down")
    ]


def _claims(points: list[tuple[float, float, float]], found: list[Savings]) -> tuple[Claim, ...]:
    """Check the paper's sentences below Eq. 4."""
    off = max(
        abs(getattr(ours, name) - getattr(equation_4(*point), name))
        for point, ours in zip(points, found, strict=True)
        for name in ("memory_up", "memory_down", "cpu_up", "cpu_down")
    )
    positive = sum(min(each.memory_up, each.memory_down, each.cpu_up, each.cpu_down) > 0 for each in found)
    no_selection = [savings(0.5, 1.0, join) for join in JOINS]
    proportion = [each.cpu_up * (1 + 2 * join) / join for each, join in zip(no_selection, JOINS, strict=True)]
    memory_up, memory_down, cpu_up, cpu_down = _means(found)
    return (
        Claim("Eq. 4 follows from Eq. 1, 2 and 3", off < 1e-6, f"largest difference {off:.0e}"),
        Claim("all savings are positive", positive == len(found), f"{positive} of {len(found)} points"),
        Claim(
            "about 20-30 % memory saved on average",
            0.15 < memory_up < 0.35 and 0.15 < memory_down < 0.35,
            f"{percent(memory_up)} over pull-up, {percent(memory_down)} over push-down",
        ),
        Claim(
            "10-40 % CPU saved on average",
            0.1 <= cpu_up <= 0.4 and 0.1 <= cpu_down <= 0.4,
            f"{percent(cpu_up)} over pull-up, {percent(cpu_down)} over push-down",
        ),
        Claim(
            "memory savings reach about 50 %",
            savings(0.001, 0.001, 0.1).memory_up > 0.49,
            percent(savings(0.001, 0.001, 0.1).memory_up),
        ),
        Claim(
            "CPU savings reach about 100 %",
            savings(0.001, 0.001, 0.1).cpu_up > 0.99,
            percent(savings(0.001, 0.001, 0.1).cpu_up),
        ),
        Claim(
            "without a selection: pull-up's memory, and CPU saved in proportion to S⋈ / (1 + 2 S⋈)",
            max(abs(each.memory_up) for each in no_selection) < 1e-9
            and max(proportion) - min(proportion) < 1e-6,
            f"factor {proportion[0]:.2f} at ρ = 0.5",
        ),
    )


def _draw() -> Picture:
    """Draw the three surfaces as the paper does."""
    ratio, select = np.meshgrid(DRAWN, DRAWN)
    surfaces = (
        ("(a) memory saved (%)", [("memory_up", 0.1, "over PullUp"), ("memory_down", 0.1, "over PushDown")]),
        ("(b) CPU saved over PullUp (%)", [("cpu_up", join, f"S⋈ = {join}") for join in reversed(JOINS)]),
        ("(c) CPU saved over PushDown (%)", [("cpu_down", join, f"S⋈ = {join}") for join in reversed(JOINS)]),
    )
    picture = Picture(figsize=(11, 3.9), layout="constrained", dpi=72)
    for number, (title, mine) in enumerate(surfaces):
        axes = picture.add_subplot(1, 3, number + 1, projection="3d")
        for (name, join, label), colour in zip(mine, ("tab:red", "tab:blue", "tab:green"), strict=False):
            z = [[100 * getattr(savings(r, s, join), name) for r in DRAWN] for s in DRAWN]
            axes.plot_wireframe(ratio, select, np.array(z), color=colour, linewidth=0.7, label=label)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("window ratio ρ", fontsize=8)
        axes.set_ylabel("selectivity Sσ", fontsize=8)
        axes.tick_params(labelsize=7)
        axes.legend(fontsize=7, loc="upper right")
    return picture
