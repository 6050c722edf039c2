"""What paper 4's join is given: streams that arrive out of step, and how their rows stand to each other.

Rows of all streams are *ranked* by their times, ties by the number of the stream; results are, by the last of their
rows.  That is the order of release, whatever the policy::

    stream 0     a1 ------- b4 ------------        ranks   a1 0, c3 1, b4 2, d9 3
    stream 1     ---- c3 ------------- d9 -        results (a1, c3), (b4, c3), (a1, d9) ...

In:  times, arrivals and keys.  Out: a `Join`, run by `penstock.lab.papers.paper4_operator`; all that does not depend on
the policy is worked out here, once.  Times are seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import inf, nextafter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from penstock.errors import InputError
from penstock.plan.order import trigger

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Stream:
    """Rows in order: their times, their arrivals, and their keys.  Those that arrived before 0 are joined already."""

    ts: Floats
    at: Floats
    key: Ints

    def __post_init__(self) -> None:
        """Refuse what no stream of the paper does."""
        if np.any(np.diff(self.ts) <= 0):
            raise InputError("the times of a stream's rows must increase")
        if np.any(np.diff(self.at) < 0):
            raise InputError("rows of a stream must arrive in the order of their times")

    @property
    def old(self) -> int:
        """Count the rows that are there from the beginning."""
        return int(np.searchsorted(self.at, 0.0))


class RankedRows(NamedTuple):
    """New rows of all streams in the order of release: time, arrival, and number of the stream."""

    ts: Floats
    at: Floats
    stream: Ints


@dataclass(frozen=True)
class Join:
    """Streams, the window, the seconds of a join step, until when arrivals are counted, and what rows are charged.

    Rows join if they have one key and any two are at most a window apart.  Later arrivals only raise the trigger.
    `slow_charge` is the part of its join steps that a row of the first stream is charged.
    """

    streams: tuple[Stream, ...]
    window: float
    step: float
    until: float = inf
    slow_charge: float = 1.0

    @cached_property
    def rows(self) -> RankedRows:
        """Lay the new rows of all streams out in the order of release."""
        ts, at = (np.concatenate([getattr(s, name)[s.old :] for s in self.streams]) for name in ("ts", "at"))
        stream = np.repeat(np.arange(len(self.streams)), [each.ts.size - each.old for each in self.streams])
        order = np.lexsort((stream, ts))
        return RankedRows(ts[order], at[order], stream[order])

    @cached_property
    def arrivals(self) -> tuple[list[float], list[int], list[float]]:
        """List the arrivals: when, in which stream, and the trigger from then on (-inf: some stream is silent so far).

        The watermark of a stream is right behind its last row.
        """
        marks = [nextafter(float(each.ts[each.old - 1]), inf) if each.old else None for each in self.streams]
        rows = self.rows
        order = np.lexsort((rows.stream, rows.at)).tolist()
        ts, stream, triggers = rows.ts.tolist(), rows.stream.tolist(), []
        for row in order:
            marks[stream[row]] = nextafter(ts[row], inf)
            now = trigger(marks)
            triggers.append(-inf if now is None else now)
        return rows.at[order].tolist(), [stream[row] for row in order], triggers

    @cached_property
    def reach(self) -> list[list[list[tuple[int, int, int]]]]:
        """Say for each new row of a stream which rows of each other stream its window spans: (stream, first, end)."""
        found = []
        for number, each in enumerate(self.streams):
            ts, spans = each.ts[each.old :], []
            for n, other in enumerate(self.streams):
                if n != number:
                    first = np.searchsorted(other.ts, ts - self.window)
                    end = np.searchsorted(other.ts, ts + self.window, "right")
                    spans.append(list(zip([n] * ts.size, first.tolist(), end.tolist(), strict=True)))
            found.append([list(each) for each in zip(*spans, strict=True)])
        return found

    @cached_property
    def results(self) -> Ints:
        """List the results that a new row completes, in the order of release: the number of the row in each stream."""
        found = np.arange(self.streams[0].ts.size)[:, None]
        for number in range(1, len(self.streams)):
            found = self._extended(found, number)
        last = self.ranks_of(found).max(axis=0)
        order = np.lexsort((*found.T[::-1], last))
        return found[order][last[order] >= 0]

    def _extended(self, found: Ints, number: int) -> Ints:
        """Combine what was found so far with the rows of one more stream."""
        # One sorted column holds the times of every key, keys further apart than any two times.
        first, other = self.streams[0], self.streams[number]
        every = np.concatenate([each.ts for each in self.streams])
        apart = 1 + every.max(initial=0.0) - every.min(initial=0.0) + 2 * self.window
        by_key = np.argsort(other.key * apart + other.ts)
        times = (other.key * apart + other.ts)[by_key]
        wanted = (first.key * apart + first.ts)[found[:, 0]]
        begin = np.searchsorted(times, wanted - self.window)
        count = np.searchsorted(times, wanted + self.window, "right") - begin
        partner = np.arange(count.sum()) + np.repeat(begin - (np.cumsum(count) - count), count)
        longer = np.column_stack((np.repeat(found, count, axis=0), by_key[partner]))
        times = np.stack([self.streams[n].ts[longer[:, n]] for n in range(number + 1)])
        return longer[np.ptp(times, axis=0) <= self.window]

    @cached_property
    def ranks(self) -> list[Ints]:
        """Give for each stream the ranks of its rows in the order of release; -1: joined before the run."""
        return [
            np.concatenate((np.full(each.old, -1), np.flatnonzero(self.rows.stream == number)))
            for number, each in enumerate(self.streams)
        ]

    def ranks_of(self, results: Ints) -> Ints:
        """Give the ranks of the rows of results: a line for each stream."""
        return np.stack([rank[results[:, number]] for number, rank in enumerate(self.ranks)])
