"""What the figures of paper 2 share: how times are printed and drawn, and what every note says.

In:  response times in seconds.  Out: tables, pictures, and the settings in words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.figure import Figure as Picture

from penstock.lab.figures.figure import finish_axes, plot_series, series_table
from penstock.lab.paper2_settings import HASH, TABLE_1, TUPLES
from penstock.plan.cost import saving

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.table import Table

    from penstock.lab.figures.figure import Panel

SETTINGS_NOTE = (
    (
        f"Each run: {TUPLES:,} new tuples of two streams, 100 a second each, where the paper ran 100,000; 600 s of "
        "older tuples are there from the beginning; 500 keys.  Every policy gets the same tuples."
    ),
    (
        f"The paper gives no costs.  Hash: {HASH.look * 1e6:g} µs per tuple of the bucket and "
        f"{HASH.produce * 1e6:g} µs per result (40 %, section 3.4): the processor is busy 90 % of the time."
    ),
)
"""How the experiments of section 5 were run."""

AVERAGE_NOTE = (
    "The average over the windows is that of the windows' averages.  Weighted by results instead, large windows are "
    "nearly all there is, and what MQT gains for small ones does not show."
)
"""How the paper's `averaged over all windows` is read."""


def ms(seconds: float) -> str:
    """Print a time in milliseconds.

    >>> ms(1.47), ms(0.0224), ms(0.00252), ms(0.0)
    ('1,470', '22.4', '2.52', '0.00')
    """
    digits = 0 if seconds >= 1 else 1 if seconds >= 0.01 else 2
    return f"{1000 * seconds:,.{digits}f}"


def under(ours: float, theirs: float) -> str:
    """Print by how much one time is below another.

    >>> under(4.0, 10.0), under(11.0, 10.0)
    ('60 %', '-10 %')
    """
    return f"{round(100 * saving(ours, theirs)) or 0} %"


def window_names(windows: str) -> list[str]:
    """Name the windows of a distribution by their seconds."""
    return [str(each) for each in TABLE_1[windows]]


def table_of(title: str, first: str, rows: Sequence[str], series: Mapping[str, Sequence[float]]) -> Table:
    """Lay out response times in milliseconds: a row for each setting, a column for each series."""
    return series_table(f"{title} (ms)", first, rows, series, ms)


def draw(
    panels: Sequence[Panel], ticks: Sequence[str], x_name: str, y_name: str = "response time (s)"
) -> Picture:
    """Draw panels two in a row, with names along the x axis and a logarithmic y axis."""
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    picture = Picture(figsize=(5.5 * columns, 3.4 * rows), layout="constrained", dpi=90)
    for number, panel in enumerate(panels):
        axes = picture.add_subplot(rows, columns, number + 1)
        plot_series(axes, panel)
        axes.set_yscale("log")
        axes.set_xticks(range(len(ticks)), ticks)
        finish_axes(axes, panel.title, x_name, y_name)
    return picture
