"""What the figures of paper 4 share: how response times are printed and drawn, and what every note says.

In:  response times in seconds.  Out: tables, pictures, and the settings in words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.figure import Figure as Picture
from rich.table import Table

from penstock.lab.figures.figure import finish_axes, plot_series, series_table
from penstock.lab.paper4 import EACH, OBSERVATIONS, ONE
from penstock.lab.paper4_settings import ALPHA, KEYS, REPEATS, WINDOW

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.lab.figures.figure import Panel
    from penstock.lab.paper4 import Size
    from penstock.lab.paper4_settings import Measured

SETTINGS_NOTE = (
    (
        f"Each point: {REPEATS} runs of 20 minutes with other streams, averaged; exponential gaps; a window of a "
        f"minute, full from the beginning; {KEYS} keys.  Every policy gets the same rows."
    ),
    (
        f"Drawn first is {EACH}: the paper's Eq. 1 asks of each stream by itself whether it keeps up.  One processor "
        "has twice the work, 2·c·w·λ1·λ2, and from 1 on it falls behind whatever the policy: it cannot have run "
        "Figure 7 up to 1 ms with Filter-Order flat.  It is shown beside it."
    ),
    (
        f"Adaptive is asked every {WINDOW / OBSERVATIONS:g} s, with rates and cost as measured, the past fading by a "
        f"tenth each time; alpha = {ALPHA:g}."
    ),
)
"""How the experiments of section 7 were run."""


def seconds(time: float) -> str:
    """Print a time in seconds.

    >>> seconds(5004.8), seconds(79.413), seconds(0.5499)
    ('5,005', '79.4', '0.550')
    """
    return f"{time:,.{0 if time >= 1000 else 1 if time >= 10 else 3}f}"


def responses(found: Mapping[str, Sequence[Measured]]) -> dict[str, list[float]]:
    """Give the average response times."""
    return {name: [each.response for each in runs] for name, runs in found.items()}


def relative(series: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    """Give the times relative to those of Sync-Filter."""
    theirs = series["Sync-Filter"]
    return {name: [a / b for a, b in zip(mine, theirs, strict=True)] for name, mine in series.items()}


def gains(series: Mapping[str, Sequence[float]], name: str = "Filter-Order") -> list[float]:
    """Give the parts by which a policy is below Sync-Filter."""
    return [1 - each for each in relative(series)[name]]


def times_table(title: str, first: str, rows: Sequence[str], series: Mapping[str, Sequence[float]]) -> Table:
    """Lay out times in seconds: a row for each setting, a column for each series."""
    return series_table(f"{title} (s)", first, rows, series, seconds)


def buffers_table(
    title: str, first: str, rows: Sequence[str], found: Mapping[str, Sequence[Measured]]
) -> Table:
    """Lay out what waited as input and what was held: on average / at most."""
    table = Table(first, *(f"{name} {kind}" for kind in ("waiting", "held") for name in found), title=title)
    for place, name in enumerate(rows):
        here = [runs[place] for runs in found.values()]
        table.add_row(name, *(size(each.waiting) for each in here), *(size(each.held) for each in here))
    return table


def size(buffer: Size) -> str:
    """Print a buffer: on average / at most."""
    return f"{buffer.mean:,.{0 if buffer.mean >= 100 else 1}f} / {buffer.most:,}"


def switches_table(
    first: str, rows: Sequence[str], shares: Sequence[float], found: Sequence[Measured]
) -> Table:
    """Lay out when an adaptive policy changed its mind, and why it did so first."""
    table = Table(first, "c·w·λ1·λ2", "switches", "time held", "first", "reason")
    table.title = "Adaptive: switches per run, share of the time in filter-order, first switch"
    for name, share, each in zip(rows, shares, found, strict=True):
        why = ("", "") if each.first is None else (f"{each.first.at:.0f} s", each.first.switch.reason)
        table.add_row(name, f"{share:.2g}", f"{each.switches:.1f}", f"{100 * each.holding:.0f} %", *why)
    return table


def policy_tables(
    first: str,
    rows: Sequence[str],
    shares: Sequence[float],
    own: Mapping[str, Sequence[Measured]],
    one: Mapping[str, Sequence[Measured]],
) -> tuple[Table, ...]:
    """Lay out what the policies gave: times with a processor for each stream and with one, switches, and buffers."""
    return (
        times_table(f"average response, {EACH}", first, rows, responses(own)),
        times_table(f"average response, {ONE}", first, rows, responses(one)),
        switches_table(first, rows, shares, own["Adaptive"]),
        buffers_table(f"rows waiting and results held, {ONE}: on average / at most", first, rows, one),
    )


def draw(panels: Sequence[Panel], x: Sequence[float], x_name: str, y_names: Sequence[str]) -> Picture:
    """Draw panels side by side over a logarithmic x axis; the y axis is so too if what is on it differs tenfold."""
    picture = Picture(figsize=(5.5 * len(panels), 3.4), layout="constrained", dpi=90)
    for number, (panel, y_name) in enumerate(zip(panels, y_names, strict=True)):
        axes = picture.add_subplot(1, len(panels), number + 1)
        plot_series(axes, panel, x)
        axes.set_xscale("log")
        values = [each for y in panel.series.values() for each in y]
        if y_name.endswith("(s)") and max(values) > 10 * min(values):
            axes.set_yscale("log")
        else:
            axes.set_ylim(0, 1.08 * max(values))
        finish_axes(axes, f"({chr(ord('a') + number)}) {panel.title}", x_name, y_name)
    return picture
