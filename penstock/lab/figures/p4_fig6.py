"""Paper 4, Figure 6: response time over the rate of the slow stream, by Eq. 3 and 5, and simulated.

The fast stream has 1 row a second, the slow one 0.0001 to 0.1; a window of one day, and c = 0.1 ms.
"""

from __future__ import annotations

from penstock.lab.figures.figure import Claim, Outcome, Panel, percent
from penstock.lab.figures.p4_fig5 import GAIN, agreement, compared, one_processor, simulated
from penstock.lab.figures.p4_figure import draw, gains, seconds, times_table
from penstock.lab.paper4_settings import Point

STEP = 1e-4
FAST = 1.0
SLOWS = (0.0001, 0.001, 0.01, 0.02, 0.05, 0.1)


def reproduce(_seed: int) -> Outcome:
    """Draw Eq. 3 and 5, and put simulated points on them."""
    points = [Point(slow, FAST, STEP, 20 if slow > 0.0001 else 2) for slow in SLOWS]
    series = compared(points)
    single, one = one_processor(series, points)
    run = simulated(series)
    sync, hold = run["Sync-Filter"], run["Filter-Order"]
    claims = (
        *agreement(series, points),
        Claim(
            "at the highest rate from 10 s to 5 s",
            9.5 < sync[-1] < 10.5 and 4.5 < hold[-1] <= 5.5,
            f"{seconds(sync[-1])} s to {seconds(hold[-1])} s",
        ),
        Claim(
            "the gain grows with the slow stream's rate",
            gains(run) == sorted(gains(run)),
            ", ".join(f"{100 * each:.2g} %" for each in gains(run)),
        ),
        single,
    )
    table = times_table(
        "average response of the fast stream's rows",
        "λ1 (rows/s)",
        [f"{slow:g}" for slow in SLOWS],
        {**series, "Sync-Filter, one processor": one},
    )
    panels = [
        Panel("average response time", series),
        Panel("gain", {"Filter-Order": gains(series), "Filter-Order, simulated": gains(run)}),
    ]
    picture = draw(panels, SLOWS, "λ1 (rows/s)", ["response time (s)", GAIN])
    return Outcome((table,), claims, NOTES, picture)


NOTES = (
    (
        "w = 1 day, c = 0.1 ms.  The paper does not name λ2; 1 row/s, its upper bound, gives the 10 s and 5 s of its "
        f"text: {percent(0.864 / 1.864)} at λ1 = 0.1."
    ),
    "At λ1 = 0.0001 a window holds 8.64 slow rows on average, so a fast row meets 9 or 10: hence the difference there.",
)
