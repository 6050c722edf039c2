"""How the lab prints numbers and tables, for papers and benchmarks alike.

In:  numbers.  Out: text, and tables for a terminal.
"""

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


def percent(share: float) -> str:
    """Print a share.

    >>> percent(0.256), percent(-0.0001)
    ('26 %', '0 %')
    """
    return f"{round(100 * share) or 0} %"


def percents(shares: Iterable[float], digits: int = 0) -> str:
    """Print several.

    >>> percents([0.01, 0.5]), percents([0.012], 1)
    ('1, 50 %', '1.2 %')
    """
    return f"{', '.join(f'{100 * each:.{digits}f}' for each in shares)} %"


def span(shares: Iterable[float]) -> str:
    """Print the least and the largest.

    >>> span([0.3, 0.1, 0.2])
    '10 to 30 %'
    """
    low, *_, high = sorted([*shares] * 2)
    return f"{round(100 * low) or 0} to {round(100 * high) or 0} %"


def ms(seconds: float) -> str:
    """Print a time in milliseconds.

    >>> ms(1.47), ms(0.0224), ms(0.00252), ms(0.0)
    ('1,470', '22.4', '2.52', '0.00')
    """
    digits = 0 if seconds >= 1 else 1 if seconds >= 0.01 else 2
    return f"{1000 * seconds:,.{digits}f}"


def seconds(time: float) -> str:
    """Print a time in seconds.

    >>> seconds(5004.8), seconds(79.413), seconds(0.5499)
    ('5,005', '79.4', '0.550')
    """
    return f"{time:,.{0 if time >= 1000 else 1 if time >= 10 else 3}f}"
