"""How the lab prints numbers and tables and draws bars, for papers and benchmarks alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.figure import Figure as Picture
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def table(title: str, headings: Iterable[str], rows: Iterable[Iterable[object]]) -> Table:
    """Lay rows out under headings."""
    shown = Table(*headings, title=title or None)
    for row in rows:
        shown.add_row(*map(str, row))
    return shown


def bars(
    panels: Mapping[str, Mapping[str, float]], ours: str, *, log: bool = False, caption: str = ""
) -> Picture:
    """Draw bars with their lengths written beside them, a panel below the other; `ours` is in another colour."""
    drawing = Picture(figsize=(9, 0.8 + 2.4 * len(panels)), layout="constrained", dpi=90)
    drawn = drawing.subplots(len(panels), 1, squeeze=False)[:, 0]
    for axes, (title, lengths) in zip(drawn, panels.items(), strict=True):
        colours = ["tab:blue" if name == ours else "tab:gray" for name in lengths]
        shown = axes.barh(list(lengths), list(lengths.values()), color=colours)
        axes.bar_label(shown, [f"{each:,.0f}" for each in lengths.values()], fontsize=7, padding=2)
        axes.set_xscale("log" if log else "linear")
        axes.invert_yaxis()
        axes.margins(x=0.15)
        axes.tick_params(labelsize=8)
        axes.set_title(title, fontsize=9)
    drawing.supxlabel(caption, fontsize=7)
    return drawing


def percents(shares: Iterable[float], digits: int = 0) -> str:
    """Print shares: `percents([0.01, 0.5])` is "1, 50 %"."""
    return f"{', '.join(f'{100 * each + 0.0:.{digits}f}' for each in shares)} %".replace("-0 ", "0 ")


def percent(share: float) -> str:
    """Print a share."""
    return percents([share])


def span(shares: Iterable[float]) -> str:
    """Print the least and the largest share: `span([0.3, 0.1])` is "10 to 30 %"."""
    low, *_, high = sorted([*shares] * 2)
    return f"{100 * low:.0f} to {percent(high)}"


def ms(seconds: float) -> str:
    """Print a time in milliseconds: `ms(0.0224)` is "22.4"."""
    return f"{1000 * seconds:,.{0 if seconds >= 1 else 1 if seconds >= 0.01 else 2}f}"


def seconds(time: float) -> str:
    """Print a time in seconds: `seconds(0.5499)` is "0.550"."""
    return f"{time:,.{0 if time >= 1000 else 1 if time >= 10 else 3}f}"
