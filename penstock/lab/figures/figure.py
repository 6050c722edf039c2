"""What a figure of the lab is, and how its lines are drawn.

In:  a seed.  Out: an `Outcome`, printed and saved by `penstock.lab.cli`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from matplotlib.figure import Figure as Picture

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rich.table import Table


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


def draw_lines(panels: Sequence[Panel], x: Sequence[float], x_name: str, y_name: str) -> Picture:
    """Draw panels (a), (b), ... three in a row, all with the same x axis."""
    rows = -(-len(panels) // 3)
    picture = Picture(figsize=(11, 3.3 * rows), layout="constrained", dpi=90)
    for number, panel in enumerate(panels):
        axes = picture.add_subplot(rows, 3, number + 1)
        for name, y in panel.series.items():
            colour, marker = STYLES[name]
            axes.plot(x, y, label=name, color=colour, marker=marker, markersize=4, linewidth=1.2)
        axes.set_title(f"({chr(ord('a') + number)}) {panel.title}", fontsize=9)
        axes.set_xlabel(x_name, fontsize=8)
        axes.set_ylabel(y_name, fontsize=8)
        axes.set_ylim(0, 1.08 * max(max(y) for y in panel.series.values()))
        axes.tick_params(labelsize=7)
        axes.grid(visible=True, linewidth=0.3)
        axes.legend(fontsize=7)
    return picture


def percent(share: float) -> str:
    """Print a share.

    >>> percent(0.256), percent(-0.0001)
    ('26 %', '0 %')
    """
    return f"{round(100 * share) or 0} %"
