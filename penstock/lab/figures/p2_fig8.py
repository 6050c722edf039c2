"""Paper 2, Figure 8: average response time by window, for Small-Large windows and bursts of five on average.

The runs are the last ones of Figure 7.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from penstock.lab.figures.figure import Claim, Outcome, Panel, percent
from penstock.lab.figures.p2_fig6 import NEAR, by_policy, near_isolated, spread
from penstock.lab.figures.p2_fig7 import NOTES, WINDOWS
from penstock.lab.figures.p2_figure import draw, ms, table_of, window_names
from penstock.lab.paper2_settings import BURSTS, Setting

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.lab.paper2_settings import Measured


SAMPLES = 5
"""Streams of which the claims take the median: one stream of such bursts says little."""


def reproduce(seed: int) -> Outcome:
    """Run the largest bursts under every policy."""
    samples = [by_policy(Setting(WINDOWS, BURSTS[-1]), seed + number) for number in range(SAMPLES)]
    series = {name: each.mean for name, each in samples[0].items()}
    names = window_names(WINDOWS)
    table = table_of("average response time at bursts of 5", "window (s)", names, series)
    notes = (
        *NOTES,
        f"The table and the picture show the first of {SAMPLES} streams, the claims all of them.",
    )
    return Outcome((table,), claims(samples), notes, draw([Panel(WINDOWS, series)], names, "window (s)"))


def claims(samples: Sequence[Mapping[str, Measured]]) -> tuple[Claim, ...]:
    """Check what sections 5.1 and 5.2 say, by the median of several streams."""
    mqt, swf = ([each[name].mean[-1] for each in samples] for name in ("MQT", "SWF"))
    ratio = [theirs / ours for ours, theirs in zip(mqt, swf, strict=True)]
    late = [near_isolated(each, WINDOWS) for each in samples]
    lwo_late = [each["LWO"].mean[0] - each["isolated"].mean[0] for each in samples]
    flat = [spread(each["LWO"].mean) for each in samples]
    return (
        Claim(
            "the largest window takes SWF four times as long as MQT: 4 s for 1 s",
            2.5 < median(ratio) < 6,
            f"{median(swf):.1f} s for {median(mqt):.1f} s; {min(ratio):.1f} to {max(ratio):.1f} times, "
            f"median {median(ratio):.1f}",
        ),
        Claim(
            "small windows respond within milliseconds of isolated execution under SWF and MQT",
            median(late) < NEAR,
            f"{ms(min(late))} to {ms(max(late))} ms later, median {ms(median(late))} ms; "
            f"under LWO {ms(median(lwo_late))} ms",
        ),
        Claim(
            "LWO is nearly flat over the windows",
            median(flat) < 0.25,
            f"the fastest {percent(min(flat))} to {percent(max(flat))} below the slowest, "
            f"median {percent(median(flat))}",
        ),
    )
