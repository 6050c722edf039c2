"""Paper 4, Figure 10: the response times of Figure 9 relative to those of Sync-Filter."""

from __future__ import annotations

from penstock.lab.figures.figure import Claim, Outcome, Panel, percent
from penstock.lab.figures.p4_fig8 import gains_table
from penstock.lab.figures.p4_fig9 import NAMES, SHARES, averages
from penstock.lab.figures.p4_figure import SETTINGS_NOTE, draw, gains, relative, responses
from penstock.lab.paper4 import EACH, ONE
from penstock.lab.paper4_settings import ALPHA, SLOWS
from penstock.plan.order import gain


def reproduce(seed: int) -> Outcome:
    """Set the runs of Figure 9 beside Eq. 7."""
    own, one = responses(averages(EACH, seed)), responses(averages(ONE, seed))
    mine, adaptive = gains(own), gains(own, "Adaptive")
    claims = (
        Claim(
            "the gain is small at low rates and grows with the slow stream's",
            mine == sorted(mine) and mine[0] < 0.01,
            f"{', '.join(f'{100 * each:.2g} %' for each in mine)}; by Eq. 7 "
            f"{', '.join(f'{100 * gain(each):.2g} %' for each in SHARES)}",
        ),
        Claim(
            "Adaptive gains nothing before it switches, and alpha / (1 + alpha) after",
            max(map(abs, adaptive[:-1])) == 0 and adaptive[-1] >= gain(ALPHA),
            f"{percent(max(adaptive[:-1]))} below 1 row/s, {percent(adaptive[-1])} there, "
            f"{percent(gain(ALPHA))} promised",
        ),
    )
    panels = [Panel(EACH, relative(own)), Panel(ONE, relative(one))]
    picture = draw(panels, SLOWS, "λ1 (rows/s)", ["relative to Sync-Filter"] * 2)
    return Outcome((gains_table("λ1 (rows/s)", NAMES, SHARES, own, one),), claims, SETTINGS_NOTE, picture)
