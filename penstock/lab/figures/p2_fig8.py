"""Paper 2, Figure 8: average response time by window, for Small-Large windows and bursts of five on average.

The runs are the last ones of Figure 7.
"""

from __future__ import annotations

from penstock.lab.figures.figure import Claim, Outcome, Panel, percent
from penstock.lab.figures.p2_fig6 import NEAR, by_policy, near_isolated, spread
from penstock.lab.figures.p2_fig7 import NOTES, WINDOWS
from penstock.lab.figures.p2_figure import draw, ms, table_of, window_names
from penstock.lab.paper2_settings import BURSTS, Setting


def reproduce(seed: int) -> Outcome:
    """Run the largest bursts under every policy."""
    found = by_policy(Setting(WINDOWS, BURSTS[-1]), seed)
    series = {name: each.mean for name, each in found.items()}
    names = window_names(WINDOWS)
    mqt, swf, lwo = (found[name].mean for name in ("MQT", "SWF", "LWO"))
    late = near_isolated(found, WINDOWS)
    claims = (
        Claim(
            "the largest window takes SWF four times as long as MQT: 4 s for 1 s",
            swf[-1] > 2.5 * mqt[-1],
            f"{swf[-1]:.2f} s for {mqt[-1]:.2f} s, {swf[-1] / mqt[-1]:.1f} times; LWO {lwo[-1]:.2f} s",
        ),
        Claim(
            "small windows respond within milliseconds of isolated execution under SWF and MQT",
            late < NEAR,
            f"at most {ms(late)} ms later; under LWO {ms(lwo[0] - found['isolated'].mean[0])} ms",
        ),
        Claim(
            "LWO is nearly flat over the windows",
            spread(lwo) < 0.25,
            f"the fastest {percent(spread(lwo))} below the slowest",
        ),
    )
    table = table_of("average response time at bursts of 5", "window (s)", names, series)
    return Outcome((table,), claims, NOTES, draw([Panel(WINDOWS, series)], names, "window (s)"))
