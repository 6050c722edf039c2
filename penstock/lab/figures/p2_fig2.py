"""Paper 2, Figure 2 (b): LWO against isolated execution when 50 tuples arrive at once, by Eq. 1 and simulated.

Every tuple matches every other (α = 1), a scan takes 1 µs per tuple, and windows hold λw tuples.  The paper says of its
seven windows only that they reach from 1 s to 10 min: these are the Mostly-Small ones of its Table 1.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from penstock.lab.figures.figure import Claim, Outcome, Panel
from penstock.lab.figures.p2_figure import draw, ms, table_of, window_names
from penstock.lab.paper2 import Work, isolated, shared
from penstock.lab.paper2_settings import TABLE_1
from penstock.plan.schedule import Rings, Scheduler

if TYPE_CHECKING:
    from collections.abc import Sequence

SCAN = 1e-6
RATE = 100
TOGETHER = 50
WINDOWS = "Mostly-Small"
SIZES = tuple(RATE * window for window in TABLE_1[WINDOWS])
"""Tuples in each window: S_i."""

WIDTHS = tuple(outer - inner for inner, outer in pairwise((0, *SIZES)))


def equation_1(size: int, largest: int = SIZES[-1], together: int = TOGETHER) -> float:
    """Give the average response time under LWO.

    >>> f"{equation_1(100):.4f}, {equation_1(60_000):.4f}"
    '1.4701, 1.5000'
    """
    return SCAN / 2 * ((size + 1) + (together - 1) * largest)


def equation_alone(size: int, together: int = TOGETHER) -> float:
    """Give the average response time of a query by itself: Eq. 1 with its own window for the largest.

    >>> f"{equation_alone(100):.4f}"
    '0.0025'
    """
    return equation_1(size, size, together)


def burst(together: int = TOGETHER) -> Work:
    """Make the work of tuples that arrive together at time 0."""
    found = np.tile(np.array(WIDTHS, np.int64), (together, 1))
    return Work(np.zeros(together), found.astype(np.float64) * SCAN, found)


def simulated(policy: str) -> list[float]:
    """Give the average response time of each window when the burst is run."""
    run = shared(burst(), Scheduler(policy, Rings((1,) * len(WIDTHS), tuple(map(float, WIDTHS)))))
    return [run.responses(query).mean for query in range(len(WIDTHS))]


def simulated_alone() -> list[float]:
    """Give the average response time of each window by itself."""
    return [isolated(burst(), query).responses(query).mean for query in range(len(WIDTHS))]


def off(formula: Sequence[float], run: Sequence[float]) -> float:
    """Give the largest relative difference."""
    return max(abs(each / said - 1) for said, each in zip(formula, run, strict=True))


def reproduce(_seed: int) -> Outcome:
    """Set Eq. 1 beside the simulated burst."""
    series = {
        "LWO": [equation_1(size) for size in SIZES],
        "LWO, simulated": simulated("lwo"),
        "isolated": [equation_alone(size) for size in SIZES],
        "isolated, simulated": simulated_alone(),
    }
    names = window_names(WINDOWS)
    first, alone = series["LWO"][0], series["isolated"][0]
    claims = (
        _agreement("Eq. 1 is what the simulated burst gives", series, "LWO"),
        _agreement("so is the formula of isolated execution", series, "isolated"),
        Claim(
            "the smallest window goes from milliseconds to seconds",
            alone < 0.01 and first > 1,
            f"{ms(alone)} ms to {ms(first)} ms",
        ),
    )
    table = table_of("50 tuples at once", "window (s)", names, series)
    picture = draw([Panel("LWO and isolated execution", series)], names, "window (s)")
    return Outcome((table,), claims, NOTES, picture)


NOTES = (
    "t_p = 1 µs, λ = 100, m = 50, α = 1.  The seven windows are those of Mostly-Small: the paper names only the ends.",
)


def _agreement(text: str, series: dict[str, list[float]], name: str) -> Claim:
    """Compare a formula with its simulation."""
    apart = off(series[name], series[f"{name}, simulated"])
    return Claim(text, apart < 1e-6, f"largest difference {apart:.0e}")
