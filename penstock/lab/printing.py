"""How the lab prints numbers and tables, for papers and benchmarks alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterable


def table(title: str, headings: Iterable[str], rows: Iterable[Iterable[object]]) -> Table:
    """Lay rows out under headings."""
    shown = Table(*headings, title=title or None)
    for row in rows:
        shown.add_row(*map(str, row))
    return shown


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
