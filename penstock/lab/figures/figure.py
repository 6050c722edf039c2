"""What a figure of the lab is, and how its lines are drawn.

In:  a seed.  Out: an `Outcome`, printed and saved by `penstock.lab.cli`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from matplotlib.figure import Figure as Picture
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from matplotlib.axes import Axes


@dataclass(frozen=True, slots=True)
class Claim:
    """A sentence of a paper, whether it held here, and the number that says so."""

    text: str
    held: bool
    number: str

    def __str__(self) -> str:
        return f"{self.text}: {'held' if self.held else 'not held'} ({self.number})"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What reproducing a figure gave: tables, claims, remarks on how it was done, and a picture."""

    tables: tuple[Table, ...]
    claims: tuple[Claim, ...]
    notes: tuple[str, ...] = ()
    picture: Picture | None = None


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure or table, the number of the paper it is from, and how to reproduce it."""

    name: str
    paper: int
    title: str
    reproduce: Callable[[int], Outcome]
    on_spark: Callable[[int, Callable[[str], None]], Outcome] | None = None
    """The same experiment measured on the engine, where there is one; it tells how far it is."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One plot of a figure: a title, and the y values of each series."""

    title: str
    series: Mapping[str, Sequence[float]]


STYLES = {
    "Selection-PullUp": ("tab:red", "s"),
    "State-Slice-Chain": ("tab:blue", "o"),
    "Selection-PushDown": ("tab:green", "^"),
    "Mem-Opt": ("tab:red", "s"),
    "CPU-Opt": ("tab:blue", "o"),
    "LWO": ("tab:red", "s"),
    "SWF": ("tab:green", "^"),
    "MQT": ("tab:blue", "o"),
    "isolated": ("tab:gray", "x"),
    "Sync-Filter": ("tab:red", "s"),
    "Filter-Order": ("tab:green", "^"),
    "Adaptive": ("tab:blue", "o"),
}
"""Colour and marker of each series, the same in every figure."""


def plot_series(axes: Axes, panel: Panel, x: Sequence[float] | None = None) -> None:
    """Plot a panel's series, by their place where no x is given.

    A series called "LWO, simulated" is drawn as large hollow marks in the colour of LWO.
    """
    for name, y in panel.series.items():
        kind, _, simulated = name.partition(", ")
        colour, marker = STYLES[kind]
        look = {"linestyle": "none", "markersize": 9, "fillstyle": "none"} if simulated else {"markersize": 4}
        places = range(len(y)) if x is None else x
        axes.plot(places, y, label=name, color=colour, marker=marker, linewidth=1.2, **look)


def finish_axes(axes: Axes, title: str, x_name: str, y_name: str) -> None:
    """Write what a plot shows, and lay a grid under it."""
    axes.set_title(title, fontsize=9)
    axes.set_xlabel(x_name, fontsize=8)
    axes.set_ylabel(y_name, fontsize=8)
    axes.tick_params(which="both", labelsize=7)
    axes.grid(visible=True, linewidth=0.3)
    axes.legend(fontsize=7)


def series_table(
    title: str,
    first: str,
    rows: Sequence[str],
    series: Mapping[str, Sequence[float]],
    show: Callable[[float], str],
) -> Table:
    """Lay out series: a row for each setting, a column for each series."""
    table = Table(first, *series, title=title)
    for place, name in enumerate(rows):
        table.add_row(name, *(show(values[place]) for values in series.values()))
    return table


def draw_lines(panels: Sequence[Panel], x: Sequence[float], x_name: str, y_name: str) -> Picture:
    """Draw panels (a), (b), ... three in a row, all with the same x axis."""
    rows = -(-len(panels) // 3)
    picture = Picture(figsize=(11, 3.3 * rows), layout="constrained", dpi=90)
    for number, panel in enumerate(panels):
        axes = picture.add_subplot(rows, 3, number + 1)
        plot_series(axes, panel, x)
        axes.set_ylim(0, 1.08 * max(max(y) for y in panel.series.values()))
        finish_axes(axes, f"({chr(ord('a') + number)}) {panel.title}", x_name, y_name)
    return picture


def percent(share: float) -> str:
    """Print a share.

    >>> percent(0.256), percent(-0.0001)
    ('26 %', '0 %')
    """
    return f"{round(100 * share) or 0} %"
