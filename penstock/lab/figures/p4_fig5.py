"""Paper 4, Figure 5: response time over the cost of a join step, by Eq. 3 and 5, and simulated.

1 and 10 rows a second, evenly spaced, a window of one day, c from 0.01 µs on, doubled at each point; and one point more
where the join can hardly keep up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.lab.figures.figure import Claim, Outcome, Panel, percent
from penstock.lab.figures.p4_figure import draw, gains, times_table
from penstock.lab.paper4 import ONE
from penstock.lab.paper4_equations import equation_7, equation_8
from penstock.lab.paper4_settings import FAST, Point
from penstock.plan.order import HOLD, SYNC

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DAY = 86_400.0
SLOW = 1.0
HARDLY = 0.999 / (DAY * SLOW * FAST)
STEPS = (*(1e-8 * 2**doubled for doubled in range(7)), HARDLY)
GAPS = 20
"""How long the simulated streams run, in gaps of the slow one."""

CLOSE = 1e-3
"""Simulated and reckoned agree if they differ by less."""


def compared(points: Sequence[Point]) -> dict[str, list[float]]:
    """Set the equations beside what the streams of the analysis give."""
    return {
        "Sync-Filter": [each.reckoned(SYNC) for each in points],
        "Sync-Filter, simulated": [each.simulated(SYNC) for each in points],
        "Filter-Order": [each.reckoned(HOLD) for each in points],
        "Filter-Order, simulated": [each.simulated(HOLD) for each in points],
    }


def off(series: Mapping[str, Sequence[float]], name: str) -> float:
    """Give the largest relative difference of an equation and its simulation."""
    both = zip(series[name], series[f"{name}, simulated"], strict=True)
    return max(abs(run / said - 1) for said, run in both)


def agreement(series: Mapping[str, Sequence[float]], points: Sequence[Point]) -> tuple[Claim, ...]:
    """Check the equations against the simulation, and Eq. 7 against them."""
    said = [equation_7(each.step, each.window, each.slow, each.fast) for each in points]
    apart = max(abs(mine - each) for mine, each in zip(gains(series), said, strict=True))
    claims = [
        Claim(
            f"{equation} is what the simulated streams give",
            off(series, name) < CLOSE,
            f"largest difference {off(series, name):.0e}",
        )
        for equation, name in (("Eq. 3", "Sync-Filter"), ("Eq. 5", "Filter-Order"))
    ]
    return (*claims, Claim("Eq. 7 follows from Eq. 3 and 5", apart < 1e-9, f"largest difference {apart:.0e}"))


def one_processor(
    series: Mapping[str, Sequence[float]], points: Sequence[Point]
) -> tuple[Claim, Sequence[float]]:
    """Run the analysis on one processor: does it keep up, as Eq. 1 says?"""
    found = [each.simulated(SYNC, ONE) for each in points]
    apart = [abs(run / said - 1) for run, said in zip(found, series["Sync-Filter"], strict=True)]
    keeps = [each.share for each, part in zip(points, apart, strict=True) if part < CLOSE]
    lags = [each.share for each, part in zip(points, apart, strict=True) if part >= CLOSE]
    number = f"until c·w·λ1·λ2 = {max(keeps):.2f}, not at {', '.join(f'{each:.2f}' for each in lags)}"
    return Claim("one processor keeps up while c·w·λ1·λ2 < 1 (Eq. 1)", not lags, number), found


def reproduce(_seed: int) -> Outcome:
    """Draw Eq. 3 and 5, and put simulated points on them."""
    points = [Point(SLOW, FAST, step, GAPS) for step in STEPS]
    series = compared(points)
    single, one = one_processor(series, points)
    below, flat = gains(series), series["Filter-Order, simulated"]
    claims = (
        *agreement(series, points),
        Claim(
            "Filter-Order's response does not depend on c",
            max(flat) / min(flat) < 1 + 1e-9,
            f"{min(flat):.3f} s",
        ),
        Claim(
            "the gain tends to 50 % where the join can hardly keep up (Eq. 8)",
            abs(gains(simulated(series))[-1] - equation_8()) < 0.005,
            ", ".join(percent(each) for each in gains(simulated(series))),
        ),
        single,
    )
    table = times_table(
        "average response of the fast stream's rows",
        "c (µs)",
        [f"{1e6 * step:.3g}" for step in STEPS],
        {**series, "Sync-Filter, one processor": one},
    )
    panels = [
        Panel("average response time", series),
        Panel("gain", {"Filter-Order": below, "Filter-Order, simulated": gains(simulated(series))}),
    ]
    picture = draw(panels, [1e6 * step for step in STEPS], "c (µs)", ["response time (s)", GAIN])
    return Outcome((table,), claims, NOTES, picture)


GAIN = "part by which Filter-Order is below Sync-Filter"


def simulated(series: Mapping[str, Sequence[float]]) -> dict[str, Sequence[float]]:
    """Give what was simulated, by the names of the policies."""
    return {
        name.removesuffix(", simulated"): values
        for name, values in series.items()
        if name.endswith("simulated")
    }


NOTES = (
    "λ1 = 1 and λ2 = 10 rows/s, w = 1 day, evenly spaced; responses are those of the fast stream's rows, as in Eq. 3.",
    (
        "The analysis gives each stream a processor of its own, and so do the simulated points.  The slow stream's "
        "rows take as much joining as the fast one's: one processor keeps up until c·w·λ1·λ2 = 1/2 only, and up to "
        f"there Eq. 3 and 5 hold for it as well; the most it can gain is {percent(equation_8(processors=1))}, not 50 %."
    ),
)
