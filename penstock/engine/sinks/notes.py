"""The note in the metadata of a file of results: its queries, their response times, and the rows that waited then.

In:  counts of a task that completes a file.  Out: plain values, which are written as JSON.
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
    """Rows and results on their way to a query: input rows, results held for their order, results to be published."""

    waiting: int = 0
    held: int = 0
    output: int = 0
    accuracy: float | None = None
    """Without a window: the share of results found so far, and about how many were missed."""
    missed: float | None = None

    def known(self) -> dict[str, object]:
        """Return the numbers that are known."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def note(query: str, unit: str, arrivals: Iterable[tuple[float, int]], buffers: Buffers) -> dict[str, object]:
    """Describe a file of results: the times from arrival until now, and the rows that waited when the unit began."""
    return {"query": query, **_results(unit, list(arrivals)), **buffers.known()}


def common_note(
    buffers: Mapping[str, Buffers], unit: str, arrivals: Iterable[tuple[float, int]]
) -> dict[str, object]:
    """Describe a file of results that several queries get."""
    waited = {query: rows.known() for query, rows in buffers.items()}
    return {"queries": waited, **_results(unit, list(arrivals))}


def _results(unit: str, arrivals: list[tuple[float, int]]) -> dict[str, object]:
    delays = Delays().then(delays_of(arrivals, time.time()))
    return {
        "unit": unit,
        "results": sum(count for _, count in arrivals),
        "response": delays.figures() if delays.seen else None,
    }
