"""The note in the metadata of a file of results: whose they are, how long they took, and what waited then.

In:  what a task knows when it completes a file.  Out: plain values, which are written as JSON.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from penstock.state.recent import Delays, delays_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True, slots=True)
class Buffers:
    """What waits on the way to a query: input rows, results held for their turn, and results not yet published."""

    waiting: int = 0
    held: int = 0
    output: int = 0
    accuracy: float | None = None
    """Where there is no window: the share of results found so far, and about how many were missed."""
    missed: float | None = None

    def known(self) -> dict[str, object]:
        """Give what is known."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def note(query: str, unit: str, arrivals: Iterable[tuple[float, int]], buffers: Buffers) -> dict[str, object]:
    """Describe a file of results: how long they took from arrival until now, and what waited when their unit began."""
    return {"query": query, **_results(unit, list(arrivals)), **buffers.known()}


def common_note(
    buffers: Mapping[str, Buffers], unit: str, arrivals: Iterable[tuple[float, int]]
) -> dict[str, object]:
    """Describe a file of results that several queries get, and what waited for each of them."""
    waited = {query: each.known() for query, each in buffers.items()}
    return {"queries": waited, **_results(unit, list(arrivals))}


def _results(unit: str, arrivals: list[tuple[float, int]]) -> dict[str, object]:
    delays = Delays().then(delays_of(arrivals, time.time()))
    return {
        "unit": unit,
        "results": sum(count for _, count in arrivals),
        "response": delays.figures() if delays.seen else None,
    }
