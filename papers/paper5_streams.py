"""Paper 5's streams: rows numbered in order, two of each value, scrambled on their way, at rates that change.

A source numbers its rows; on the way each is overtaken by up to about so many others, and then they arrive one by one.
When a stream is congested, or comes in a burst, it is the arrivals that slow down or speed up, and values with them::

    rate    50/s ────┐              ┌──────────────          congestion: an eighth, from 10 s on for 30 s
                 10 s└──── 6.25 ────┘ 40 s
    behind  0 s ................... 26 s ..........          nothing is made up for afterwards; in the other reading
                                    26 s ... 0 s             what was held up comes at eight times the rate

In:  a `Flow` and a random generator.  Out: a `Stream`, its rows in the order of arrival.  Times are seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Sequence

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

RATE = 50.0
"""Rows a second: the paper's mean inter-arrival time is 20 ms."""

ALIKE = 2
"""Rows of each value: the paper's multiplicity."""


@dataclass(frozen=True, slots=True)
class Change:
    """A time from which on a stream has so many times its rate, until another one."""

    start: float
    end: float
    factor: float


CONGESTION = Change(10.0, 40.0, 1 / 8)
CAUGHT_UP = Change(40.0, 43.75, 8.0)
"""The other reading: 26.25 s of rows were held up, and come in 3.75 s beside those of that time."""

BURST = Change(80.0, 90.0, 8.0)


@dataclass(frozen=True, slots=True)
class Flow:
    """How a stream comes: by about how many rows one may be overtaken, and when its rate changes."""

    early: int
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True)
class Stream:
    """Rows in the order of arrival: their values and times."""

    value: Ints
    at: Floats

    @cached_property
    def scrambling(self) -> int:
        """Give the scrambling factor (Definition 2.2), exactly."""
        front = np.maximum.accumulate(self.value)
        return int((np.arange(front.size) - np.searchsorted(front, self.value)).max(initial=0))

    @cached_property
    def in_order(self) -> Ints:
        """Give the values, sorted: the virtual index is a place in it."""
        return np.sort(self.value)

    def arrived(self, times: Floats) -> Ints:
        """Count the rows that have arrived by each time."""
        return np.searchsorted(self.at, times, "right")


def make(flow: Flow, seconds: float, random: np.random.Generator) -> Stream:
    """Make a stream of so many seconds: a Poisson process whose rate changes, rows overtaken by up to `early`."""
    edges, factors = _pieces(flow.changes, seconds)
    passed = np.concatenate(([0.0], np.cumsum(np.diff(edges) * factors)))  # seconds at the usual rate
    gaps = random.exponential(1 / RATE, int(2 * RATE * passed[-1]) + 100)
    at = np.interp(np.cumsum(gaps), passed, edges, right=np.inf)
    at = at[at < seconds]
    rows = np.arange(at.size)
    overtaken = rows + random.uniform(0, flow.early, at.size)
    return Stream(np.argsort(overtaken, kind="stable") // ALIKE, at)


def _pieces(changes: Sequence[Change], seconds: float) -> tuple[Floats, Floats]:
    """Cut time where a rate changes: the cuts, and the factor of each piece."""
    edges = np.unique([0.0, seconds, *(edge for each in changes for edge in (each.start, each.end))])
    edges = edges[edges <= seconds]
    factors = np.ones(edges.size - 1)
    for each in changes:
        factors[(edges[:-1] >= each.start) & (edges[:-1] < each.end)] = each.factor
    return edges, factors
