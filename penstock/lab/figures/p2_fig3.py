"""Paper 2, Figure 3 (b): SWF against isolated execution when 50 tuples arrive at once, by Eq. 2 and simulated.

The setting is that of `penstock.lab.figures.p2_fig2`; MQT, for which the paper has no formula, is simulated beside it.
"""

from __future__ import annotations

from itertools import pairwise

from penstock.lab.figures.figure import Claim, Outcome, Panel
from penstock.lab.figures.p2_fig2 import (
    NOTES,
    SCAN,
    SIZES,
    TOGETHER,
    WINDOWS,
    equation_1,
    equation_alone,
    off,
    simulated,
)
from penstock.lab.figures.p2_figure import draw, ms, table_of, window_names


def equation_2(inner: int, size: int, together: int = TOGETHER) -> float:
    """Give the average response time under SWF of a window, and `inner` the next smaller one.

    >>> f"{equation_2(0, 100):.5f}, {equation_2(30_000, 60_000):.3f}"
    '0.00255, 2.265'
    """
    return (together * inner + (together + 1) / 2 * (size - inner)) * SCAN


def reproduce(_seed: int) -> Outcome:
    """Set Eq. 2 beside the simulated burst."""
    series = {
        "SWF": [equation_2(inner, size) for inner, size in pairwise((0, *SIZES))],
        "SWF, simulated": simulated("swf"),
        "MQT": simulated("mqt"),
        "LWO": [equation_1(size) for size in SIZES],
        "isolated": [equation_alone(size) for size in SIZES],
    }
    names = window_names(WINDOWS)
    apart = off(series["SWF"], series["SWF, simulated"])
    swf, lwo = series["SWF"], series["LWO"]
    claims = (
        Claim("Eq. 2 is what the simulated burst gives", apart < 1e-6, f"largest difference {apart:.0e}"),
        Claim(
            "small windows respond much faster than under LWO",
            all(ours < theirs / 5 for ours, theirs in zip(swf[:5], lwo[:5], strict=True)),
            f"the smallest {ms(swf[0])} ms for {ms(lwo[0])} ms, 60 s {ms(swf[4])} ms for {ms(lwo[4])} ms",
        ),
        Claim(
            "at the expense of the largest",
            swf[-1] > lwo[-1],
            f"{ms(swf[-1])} ms for {ms(lwo[-1])} ms; MQT {ms(series['MQT'][-1])} ms",
        ),
    )
    table = table_of("50 tuples at once", "window (s)", names, series)
    picture = draw([Panel("SWF, MQT and isolated execution", series)], names, "window (s)")
    return Outcome((table,), claims, NOTES, picture)
