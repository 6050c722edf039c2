"""Curves of paper 5: buffers by the second, averaged over sets of streams, laid out and drawn."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.printing import percent
from papers.paper5_streams import BURST, CONGESTION

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from papers.figure import Outcome, Series
    from papers.paper5_streams import Ints


def spread(shares: Sequence[float]) -> str:
    """Say between which shares all are."""
    return f"{percent(min(shares))} to {percent(max(shares))}"


def mean_curve(curves: Sequence[Ints], stream: int) -> list[float]:
    """Average a stream's curves, second by second."""
    shortest = min(each.shape[0] for each in curves)
    return [float(each) for each in np.mean([each[:shortest, stream] for each in curves], axis=0)]


def show(out: Outcome, panels: Mapping[str, Series]) -> None:
    """Lay buffers out, every ten seconds, and draw them."""
    length = min(len(y) for y in chain(*(each.values() for each in panels.values())))
    panels = {name: {key: list(y[:length]) for key, y in each.items()} for name, each in panels.items()}
    for name, series in panels.items():
        some = {key: y[4::10] for key, y in series.items()}
        out.series(
            f"rows of {name}", "second", [n + 1 for n in range(length)][4::10], some, lambda y: f"{y:,.0f}"
        )
    out.draw(panels, [n + 1 for n in range(length)], "time (s)", "rows kept", columns=3)
    out.note(
        f"The most of each second, averaged over sets of streams; congestion {CONGESTION.start:.0f} to "
        f"{CONGESTION.end:.0f} s, burst {BURST.start:.0f} to {BURST.end:.0f} s."
    )
