"""Paper 4 in virtual time: a join whose streams arrive out of step, under each order policy.

Rows of one stream come in the order of their times; across streams they do not.  What may be done when is decided by
the engine's own code (`penstock.plan.order_policy`): its `trigger`, and its `Adaptive`, which is asked again and again
with the load as measured so far::

    stream 0     a1 ---------------- a6 |                  a1: a row of time 1; arrivals from left to right
    stream 1     ---------- b4 ---------|----- b9 -- c10
                                        | trigger: right behind 6
    sync-filter  b9 and c10 wait as input until a row of stream 0 is at least as late
    filter-order b9 and c10 are joined as they come; what they find is held until then

A row is joined with those that began before it, so each pair of rows meets once; it takes `step` seconds for each
combination of rows of the other streams within the window.  A row is *released* in its turn: once the trigger has
passed it, it is joined, and so are all rows before it.  Its response time is from its arrival until then.

Who works: *one* processor takes the rows of all streams, or each stream has its own.  What rows are charged, and how
adaptive goes back to sync-filter, is in docs/papers/paper4.md.

In:  a `Join` (`papers.paper4_sweep`) and a policy.
Out: a `Run`: when each row began, was joined and was released; changes of mind; buffers.
True always: rows are released in the order of their times, ties by the number of the stream.  Times are seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.plan.order_policy import HOLD, SYNC, Adaptive, Load, Switch
from penstock.state.recent import Effort

if TYPE_CHECKING:
    from collections.abc import Sequence

    from papers.paper4_sweep import Join, Stream

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

OBSERVATIONS = 10
"""How often the load is looked at in a window's time: what is remembered (`FADE_FACTOR`) is then about a window."""

ONE, EACH = "one processor", "a processor for each stream"


class Change(NamedTuple):
    """A switch, when it came, and from when on nothing was left of what had been held."""

    at: float
    switch: Switch
    drained: float


class Size(NamedTuple):
    """How large a buffer was: on average over the run, and at most."""

    mean: float
    most: int


@dataclass(frozen=True)
class Run:
    """A run: when each row, in the order of release, began, was joined, and was released (inf: never).

    `turn` is the how manieth it was to begin: of the rows of a result, the last to begin finds it.
    """

    join: Join
    begin: Floats
    done: Floats
    release: Floats
    turn: Ints
    changes: tuple[Change, ...]

    def responses(self, stream: int | None = None) -> Floats:
        """Give the response times of the rows that count, of one stream or all."""
        rows = self.join.rows
        counted = (rows.at < self.join.until) & ((rows.stream == stream) | (stream is None))
        return self.release[counted] - rows.at[counted]

    def waiting(self) -> Size:
        """Measure the input that had arrived and not begun."""
        return _size(self.join.rows.at, self.begin, self.end)

    def held(self) -> Size:
        """Measure the hold buffer: results that were found and not released."""
        return _size(*self.hold(), self.end)

    def hold(self) -> tuple[Floats, Floats]:
        """Tell when each result was found and when it was released."""
        ranks = self.join.ranks_of(self.join.results)
        turns = np.where(ranks >= 0, self.turn[ranks], -1)
        finder = np.take_along_axis(ranks, turns.argmax(axis=0)[None], axis=0)[0]
        return self.done[finder], self.release[ranks.max(axis=0)]

    @property
    def end(self) -> float:
        """Give the end of the time that counts."""
        return min(self.join.until, float(self.join.rows.at.max(initial=0.0)))

    def share_of_time(self, mode: str) -> float:
        """Give the share of the time that an adaptive run was in a mode."""
        moments = [0.0, *(each.at for each in self.changes), self.end]
        modes = [SYNC, *(each.switch.mode for each in self.changes)]
        spans = np.diff(np.minimum(moments, self.end))
        return float(sum(span for span, each in zip(spans, modes, strict=True) if each == mode) / self.end)


def _size(come: Floats, go: Floats, end: float) -> Size:
    """Measure a buffer from when things came into it and went from it."""
    stays = (come < end) & (go > come)
    come, go = come[stays], np.minimum(go[stays], end)
    change = np.repeat([1, -1], [come.size, go.size])
    order = np.lexsort((change, np.concatenate((come, go))))  # those that go make room first
    mean = float((go - come).sum() / end) if end else 0.0
    return Size(mean, int(np.cumsum(change[order]).max(initial=0)))


def run(join: Join, policy: str | Adaptive, who: str = ONE) -> Run:
    """Join the streams under a policy: sync-filter, filter-order, or adaptive."""
    operator = _Operator(join, policy, who)
    operator.work()
    return operator.outcome()


class _Operator:
    """The join at work.  Rows are numbered per stream, from its first new one."""

    def __init__(self, join: Join, policy: str | Adaptive, who: str) -> None:
        self.join, self.mode = join, HOLD if policy == HOLD else SYNC
        self.adaptive = policy if isinstance(policy, Adaptive) else None
        count, rows = len(join.streams), join.rows.ts.size
        self.old = [each.old for each in join.streams]
        self.ts = [each.ts[each.old :].tolist() for each in join.streams]
        self.at = [each.at[each.old :].tolist() for each in join.streams]
        self.rank = [ranks[old:].tolist() for ranks, old in zip(join.ranks, self.old, strict=True)]
        self.order = [*join.rows.ts.tolist(), inf]  # with an end that is never released
        self.when, self.whose, self.triggers = join.arrivals

        self.now, self.trigger = 0.0, -inf
        self.admitted = 0  # of all arrivals
        self.arrived, self.next = [0] * count, [0] * count
        self.serves = [[*range(count)]] if who == ONE else [[number] for number in range(count)]
        self.free = [inf] * len(self.serves)  # when a processor will be; inf: it is
        self.working = [-1] * len(self.serves)  # on which rank
        self.begin, self.done, self.release = [inf] * rows, [inf] * (rows + 1), [inf] * rows
        self.turn, self.turns = [rows] * rows, 0  # `rows` as long as it has not begun
        self.head = self.furthest = 0  # the next rank to be released; the one behind the last that began

        self.tick = self.look = join.window / OBSERVATIONS
        self.efforts = [_before(each, join.window) for each in join.streams]
        self.seen, self.steps, self.busy = [0] * count, [0.0] * count, [0.0] * count
        self.draining = 0  # rows below this rank were held when the policy went back
        self.changes: list[tuple[float, Switch, int]] = []

    def work(self) -> None:
        """Go from event to event: an arrival, a row joined, a look at the load."""
        when, free = [*self.when, inf], self.free
        while True:
            self.now = now = min(when[self.admitted], *free)
            if now == inf:
                return
            if self.look < now:
                self.now = now = self.look
            for processor, ends in enumerate(free):
                if ends == now:
                    self.done[self.working[processor]] = now
                    free[processor] = inf
            while when[self.admitted] == now:
                self.arrived[self.whose[self.admitted]] += 1
                self.trigger = self.triggers[self.admitted]
                self.admitted += 1
            self._release()
            if self.look == now:
                self.look = now + self.tick if now < self.join.until else inf
                self._observe()
            for processor, ends in enumerate(free):
                if ends == inf:
                    self._begin(processor)

    def _begin(self, processor: int) -> None:
        """Let a processor take the next row, if there is one that need not wait."""
        marks, first = (self.at, inf) if self.mode == HOLD else (self.ts, self.trigger)
        chosen = -1
        for stream in self.serves[processor]:
            row = self.next[stream]
            if row < self.arrived[stream] and marks[stream][row] < first:
                first, chosen = marks[stream][row], stream
        if chosen < 0:
            return
        row = self.next[chosen]
        steps = 1.0 if chosen else self.join.slow_charge
        for other, start, end in self.join.reach[chosen][row]:
            steps *= max(0, min(end, self.old[other] + self.next[other]) - start)
        self.next[chosen] += 1
        self.steps[chosen] += steps
        self.busy[chosen] += steps * self.join.step
        rank = self.rank[chosen][row]
        self.begin[rank], self.turn[rank] = self.now, self.turns
        self.turns += 1
        self.furthest = max(self.furthest, rank + 1)
        self.working[processor], self.free[processor] = rank, self.now + steps * self.join.step

    def _release(self) -> None:
        """Release whatever is in its turn: joined, and passed by the trigger."""
        while self.done[self.head] < inf and self.order[self.head] < self.trigger:
            self.release[self.head] = self.now
            self.head += 1

    def _observe(self) -> None:
        """Look at the load, and ask whether something else should wait from now on."""
        for stream, arrived in enumerate(self.arrived):
            rows, steps, busy = arrived - self.seen[stream], round(self.steps[stream]), self.busy[stream]
            self.efforts[stream] = self.efforts[stream].then(1e6 * self.tick, rows, steps, busy)
            self.seen[stream], self.steps[stream], self.busy[stream] = arrived, 0.0, 0.0
        load = measured(self.efforts, self.join.window)
        if self.adaptive is None or load is None or self.head < self.draining:
            return
        switch = self.adaptive.choose(self.mode, load)
        if switch is not None:
            self.mode = switch.mode
            self.draining = self.furthest if switch.mode == SYNC else 0
            self.changes.append((self.now, switch, self.draining))

    def outcome(self) -> Run:
        """Say what happened."""
        changes = []
        for at, switch, upto in self.changes:
            changes.append(Change(at, switch, max(at, self.release[upto - 1]) if upto else at))
        begin, done, release = (np.array(each) for each in (self.begin, self.done[:-1], self.release))
        return Run(self.join, begin, done, release, np.array(self.turn, np.int64), tuple(changes))


def _before(stream: Stream, window: float) -> Effort:
    """Look at the rows of the last window before the run, if there are any."""
    effort, edges = Effort(), np.linspace(-window, 0.0, OBSERVATIONS + 1)
    for rows in np.diff(np.searchsorted(stream.at[: stream.old], edges)).tolist() if stream.old else []:
        effort = effort.then(1e6 * window / OBSERVATIONS, rows, 0, 0.0)
    return effort


def measured(efforts: Sequence[Effort], window: float) -> Load | None:
    """Give the load of streams as measured lately; None while no join step has been."""
    steps = sum(each.pairs for each in efforts)
    if not steps:
        return None
    rates = tuple(1e6 * each.rows / each.micros for each in efforts)
    return Load(sum(each.seconds for each in efforts) / steps, window, rates)
