"""Paper 5 in virtual time: a join that keeps the last so many rows of each stream, batch by batch.

Rows come in batches of a tenth of a second, and on their way to the join may wait in a sorter, and on disk::

    arrive ──▶ sorter: the k lowest stay ──▶ disk: what is far ahead stays ──▶ join: buffers, oldest rows go
               msf, hybrid                   dbf, hybrid                       every strategy

What may go from a buffer is said by the product's own code: `penstock.kernels.order_watch` by what it has measured so
far, or with scrambling that is known; `penstock.plan.buffers` by Eq. 7, from rates and lags that are known.  W-Join
keeps a fixed number of rows.

In:  streams, a `Way` to join them.  Out: a `Run`: rows kept over time, results found of those that exist, latencies.
True always: a result is found if and only if all its rows are in their buffers when the batch of its last one comes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from papers.paper5_streams import ALIKE, Floats, Ints, Stream
from penstock.kernels.accuracy_sketch import AccuracySketch
from penstock.kernels.order_watch import Order, rows_done
from penstock.plan.buffers import DBF, DEFAULT_AHEAD, HYBRID, MSF, PLAIN, Characteristics, rows_needed

if TYPE_CHECKING:
    from collections.abc import Sequence

BATCH = 0.1
"""Seconds of arrivals that are joined at once."""

ROW, RESULT, WATCH, ACCESS = 1e-4, 2e-5, 1e-5, 1.2e-2
"""Seconds for a row, a result, watching a row, and an access to the disk; chosen, see docs/papers/paper5.md."""

MONITORED, KNOWN, FIXED = "monitored", "known", "W-Join"


@dataclass(frozen=True)
class Way:
    """How streams are joined: a strategy, and how the sizes of buffers are found.

    `scrambling`, where it is given, is that of the join's inputs after each batch, at least; it is measured too, and
    reckoned with some `headroom`.  `rows` are those of W-Join.  `sketch` is how many rows an
    `AccuracySketch` may hold, 0 for none.
    """

    strategy: str = PLAIN
    sizes: str = MONITORED
    scrambling: Ints | None = None
    headroom: float = 0.0
    rows: tuple[int, ...] = ()
    ahead: int = DEFAULT_AHEAD
    sketch: int = 0


@dataclass(frozen=True)
class Results:
    """All results that exist: the number of the row in each stream, in the order of the join's input."""

    rows: Ints  # streams × results

    @classmethod
    def of(cls, values: Sequence[Ints]) -> Results:
        """Join the whole streams."""
        orders = [np.argsort(each, kind="stable") for each in values]
        common = np.unique(values[0])
        for each in values[1:]:
            common = np.intersect1d(common, each)
        spans = [
            (np.searchsorted(each[order], common), np.searchsorted(each[order], common, "right"))
            for each, order in zip(values, orders, strict=True)
        ]
        counts = np.array([end - start for start, end in spans])
        total = counts.prod(axis=0)
        which, nth = np.repeat(np.arange(common.size), total), _counted(total)
        rows = []
        for (start, _), order, count in zip(spans, orders, counts, strict=True):
            rows.append(order[start[which] + nth % count[which]])
            nth //= count[which]
        return cls(np.array(rows))


def _counted(totals: Ints) -> Ints:
    """Count from 0 up to each total, one after the other."""
    return np.arange(totals.sum()) - np.repeat(np.cumsum(totals) - totals, totals)


@dataclass
class _Inlet:
    """One stream's way to the join: what waits in the sorter and on disk, and what has been handed on, row numbers."""

    stream: Stream
    sorts: bool
    watched: bool
    raw: Order = field(default_factory=Order)  # as rows arrive
    queued: Order = field(default_factory=Order)  # as they leave the sorter
    taken: Order = field(default_factory=Order)  # as they are joined
    pool: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    disk: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    batch: list[int] = field(default_factory=list)

    def arrive(self, start: int, end: int, *, last: bool) -> None:
        """Take rows in, and let those out of the sorter that no row to come is below."""
        new = np.arange(start, end)
        if not self.sorts:
            self.disk += new.tolist()
            self.queued = self.queued.then(self.stream.value[new]) if self.watched else self.queued
            return
        self.raw = self.raw.then(self.stream.value[new])
        pool = np.concatenate((self.pool, new))
        pool = pool[np.argsort(self.stream.value[pool], kind="stable")]
        out = pool.size if last else max(0, pool.size - self.raw.expected())
        self.disk += pool[:out].tolist()
        self.queued = self.queued.then(self.stream.value[pool[:out]])
        self.pool = pool[out:]

    def rows_up_to(self, front: int) -> int:
        """Count the rows, joined or on disk, before the first that is above a value."""
        joined = self.taken.rows_up_to(front)
        if joined < self.taken.rows or not self.disk:
            return joined
        above = self.stream.value[self.disk] > front
        return joined + (int(above.argmax()) if above.any() else len(self.disk))

    def admit(self, count: int, batch: int) -> Ints:
        """Hand the next so many rows to the join."""
        rows, self.disk = self.disk[:count], self.disk[count:]
        self.rows += rows
        self.batch += [batch] * len(rows)
        return self.stream.value[np.array(rows, np.int64)]


class Run:
    """A join at work, and what came of it.  Arrays over time have a row for each batch and a column for each stream."""

    def __init__(self, streams: Sequence[Stream], way: Way, seconds: float) -> None:
        self.streams, self.way = tuple(streams), way
        self.times: Floats = BATCH * np.arange(1, round(seconds / BATCH) + 1, dtype=np.float64)
        sorts, watched = way.strategy in {MSF, HYBRID}, way.sizes != FIXED
        self.inlets = [_Inlet(each, sorts, watched) for each in streams]
        self.measured = np.zeros((self.times.size, len(streams)), np.int64)
        shape = self.times.size, len(streams)
        self.gone, self.come = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        self.sorting, self.on_disk = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        self.accesses = np.zeros(self.times.size)
        self.sketch = AccuracySketch(len(streams), capacity=way.sketch) if way.sketch else None
        self._work()

    def _work(self) -> None:
        """Take batch after batch."""
        arrived = np.array([each.arrived(self.times) for each in self.streams]).T
        before = np.zeros(len(self.streams), np.int64)
        for number, upto in enumerate(arrived):
            last = number == self.times.size - 1
            gone = self.gone[number - 1] if number else before * 0
            for inlet, start, end in zip(self.inlets, before.tolist(), upto.tolist(), strict=True):
                inlet.arrive(start, end, last=last)
            values = self._admit(number, last=last)
            if self.sketch is not None:
                self.sketch = self.sketch.then(values, gone.tolist())
            self.come[number] = [len(each.rows) for each in self.inlets]
            self.measured[number] = [max(each.raw.scrambling, each.queued.scrambling) for each in self.inlets]
            self.gone[number] = np.maximum(gone, self._done(number))
            before = upto

    def _admit(self, number: int, *, last: bool) -> list[Ints]:
        """Let rows out of the disk queues whose partners are near, and count what is read and written."""
        values = []
        holds = self.way.strategy in {DBF, HYBRID} and not last
        for i, inlet in enumerate(self.inlets):
            ready = self._limit(number, i) - len(inlet.rows) if holds else len(inlet.disk)
            was = self.on_disk[number - 1, i] if number else 0
            values.append(inlet.admit(max(0, ready), number))
            self.on_disk[number, i], self.sorting[number, i] = len(inlet.disk), inlet.pool.size
            self.accesses[number] += (len(inlet.disk) > 0) + (was > 0 and len(values[-1]) > 0)
            inlet.taken = inlet.taken.then(values[-1]) if holds else inlet.queued
        return values

    def _scrambling(self, number: int) -> list[int]:
        """Give the scrambling of what is joined: as it was measured so far, and at least what was told."""
        told = (
            self.way.scrambling[number].tolist()
            if self.way.scrambling is not None
            else [0] * len(self.inlets)
        )
        seen = [each.taken.expected(self.way.headroom) for each in self.inlets]
        return [max(each) for each in zip(told, seen, strict=True)]

    def _limit(self, number: int, i: int) -> int:
        """Give how many rows of a stream may be joined: those that may meet what has come of the others, and some."""
        fronts = [each.queued.front.value[-1:] for j, each in enumerate(self.inlets) if j != i]
        near = min(self.inlets[i].rows_up_to(front[0]) if front else 0 for front in fronts)
        return int(near + self._scrambling(number)[i] + 1 + self.way.ahead)

    def _done(self, number: int) -> Sequence[int] | Ints:
        """Say how many of its first rows each buffer need not keep any more."""
        if self.way.sizes == FIXED:
            return self.come[number] - np.array(self.way.rows)
        if self.way.sizes == KNOWN:
            return self.come[number] - self._by_equation_7(number)
        return rows_done([each.taken for each in self.inlets], self._scrambling(number))

    def _by_equation_7(self, number: int) -> Ints:
        """Size buffers by Eq. 7 and 8, with lags as they were k_j rows of S_j ago, and rates as they were since."""
        rows = np.ones(len(self.streams), np.int64)
        for (i, own), (j, other) in (
            (a, b) for a in enumerate(self.streams) for b in enumerate(self.streams)
        ):
            turn = int(self.come[number, j]) - other.scrambling
            if i == j:
                continue
            if turn < 1:  # anything may come yet
                rows[i] = self.come[number, i]
                continue
            then = float(other.at[turn - 1])
            since = max(self.times[number] - then, 1e-9)
            came = int(np.searchsorted(own.at, then, "right"))
            rate = max((self.come[number, i] - came) / since, 1e-9)
            behind = int(np.searchsorted(own.in_order, other.in_order[turn - 1], "right"))
            known = Characteristics(own.scrambling, min(ALIKE, own.scrambling + 1), rate)
            partner = Characteristics(other.scrambling, 1, 1.0, disorder=since)
            rows[i] = max(rows[i], rows_needed(known, partner, came - behind))
        return rows

    # --- what came of it ------------------------------------------------------------------------------------

    @property
    def held(self) -> Ints:
        """Count the rows in memory over time: in buffers and in sorters."""
        return self.come - self.gone + self.sorting

    @cached_property
    def results(self) -> Results:
        """List the results that exist, by places in the join's input."""
        return Results.of([each.stream.value[each.rows] for each in self.inlets])

    @cached_property
    def ends(self) -> Ints:
        """Say for each result in which batch its last row was joined."""
        batches = [np.array(each.batch) for each in self.inlets]
        return np.max([b[rows] for b, rows in zip(batches, self.results.rows, strict=True)], axis=0)

    @cached_property
    def found(self) -> np.ndarray:
        """Say which results were found."""
        return found_with(self, self.gone)

    @property
    def accuracy(self) -> float:
        """Give the share of results that was found (Eq. 1)."""
        return float(self.found.mean()) if self.found.size else 1.0

    def optimal(self) -> Ints:
        """Give for each second and stream the rows it took to find the results of that second, tracked back."""
        before = np.vstack((np.zeros((1, len(self.streams)), np.int64), self.come))[self.ends].T
        needed = np.maximum(before - self.results.rows, 0)
        seconds = (self.times[self.ends] - BATCH / 2).astype(np.int64)
        most = np.zeros((int(self.times[-1]) + 1, len(self.streams)), np.int64)
        for stream, rows in enumerate(needed):
            np.maximum.at(most[:, stream], seconds, rows)
        return most[: int(np.ceil(self.times[-1] - BATCH / 2))]

    def per_second(self, rows: Ints) -> Ints:
        """Give the most of each second."""
        steps = round(1 / BATCH)
        return rows[: rows.shape[0] // steps * steps].reshape(-1, steps, rows.shape[1]).max(axis=1)

    def emitted(self) -> Stream:
        """Give the results that were found as a stream: in the order of their batches, then of their last rows."""
        ends, found = self.ends, self.found
        at = self._arrivals().max(axis=0)[found]
        values = self.inlets[0].stream.value[self.inlets[0].rows][self.results.rows[0]][found]
        order = np.lexsort((at, ends[found]))
        return Stream(values[order], self.times[ends[found]][order])

    def _arrivals(self) -> Floats:
        """Give when each row of each result arrived in its stream."""
        pairs = zip(self.inlets, self.results.rows, strict=True)
        return np.array([each.stream.at[np.array(each.rows)[rows]] for each, rows in pairs])

    def latency(self, *, watched: bool = True) -> float:
        """Give the average time from the arrival of a result's last row to its output, in seconds.

        What the last batch brings is left out: sorters and disks are emptied then.
        """
        batches = self.times.size
        rows = np.diff(self.come.sum(axis=1), prepend=0)
        made = np.bincount(self.ends[self.found], minlength=batches)
        busy = rows * (ROW + WATCH * watched) + made * RESULT + self.accesses * ACCESS
        free, out = -inf, np.empty(batches)
        for number, (time, work) in enumerate(zip(self.times.tolist(), busy.tolist(), strict=True)):
            free = out[number] = max(free, time) + work
        counted = self.found & (self.ends < batches - 1)
        return float((out[self.ends] - self._arrivals().max(axis=0))[counted].mean())


def found_with(run: Run, gone: Ints) -> np.ndarray:
    """Say which results of a run are found if buffers let go of so many rows: those after each batch."""
    left = np.vstack((np.zeros((1, len(run.streams)), np.int64), gone))[run.ends].T
    return np.asarray((run.results.rows >= left).all(axis=0))


def fixed_rows(run: Run, rows: Floats) -> Ints:
    """Give how many rows W-Join has let go of after each batch, with so many kept of each stream."""
    return np.maximum(run.come - np.floor(rows).astype(np.int64), 0)
