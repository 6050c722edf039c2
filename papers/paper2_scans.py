"""Paper 2 in virtual time: one processor scans rings for one tuple after the other, as a scheduler tells it.

A tuple that arrives is the *outer* tuple of the results it finds among older tuples of the other stream.  It scans the
rings (`penstock.schedulers`) from the inside outwards; between two rings the scheduler is asked again, as in step 4
of section 3.2, for others may have arrived.  Queues are first in, first out, so per ring the tuples finish in the order
of their arrival; everything after that follows from *when each tuple finished each ring*::

    LWO    a0 a1 a2 | b0 b1 b2 |                        a, b: tuples; 0, 1, 2: rings; read from left to right
    SWF    a0 | b0 | a1 | b1 | a2 | b2 |
                        ^ b's results of ring 0 wait here for a1, in the query of ring 1

Results of one ring come evenly spaced, the last one at its end.  Queries receive the results of outer tuples in the
order of arrival (isolated execution), by one of four rules:

    IN_TURN   as soon as they are produced, once every earlier tuple has scanned the query's window (3.1, 3.3)
    HELD      all together, once the tuple itself has scanned the query's window (3.2)
    LARGEST   in turn for the largest window, held for the others (5.1)
    DRAWN     as produced if the tuple's turn has come by then, else held (the steps of Figure 3 (a))

A tuple never scans while its predecessor does, so results of a ring are either all released as they are produced or
all together when the turn comes.

In:  `Work` and a `Scheduler`.  Out: a `Run`: response times (release less arrival of the outer tuple) and buffers.
True always: the results are those of isolated execution in its order, whatever the scheduler.  Times are seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from penstock.errors import InputError

if TYPE_CHECKING:
    from penstock.schedulers import Scheduler

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
IN_TURN, HELD, LARGEST, DRAWN = "in turn", "held", "largest", "drawn"
RELEASE = {"lwo": IN_TURN, "swf": HELD, "mqt": IN_TURN}
"""How the router of each policy releases results (sections 3.1 to 3.3)."""


@dataclass(frozen=True)
class Work:
    """Outer tuples in order: arrivals, and for each ring (a column) the time its scan takes and what it finds."""

    at: Floats
    cost: Floats
    found: Ints

    def __post_init__(self) -> None:
        """Refuse what does not go together."""
        at, cost, found = self.at.shape, self.cost.shape, self.found.shape
        if cost != found or cost[:1] != at:
            raise InputError(f"{at} arrivals, {cost} costs and {found} findings")
        if np.any(np.diff(self.at) < 0):
            raise InputError("tuples must be in the order of their arrival")

    @property
    def rings(self) -> int:
        """Count the rings."""
        return self.cost.shape[1]

    @cached_property
    def early(self) -> Floats:
        """Tell by how much results come before the end of their ring on average.

        K results come at start + cost · k / K, k = 1..K: on average half a spacing after the middle.
        """
        return self.cost * (1 - (self.found + 1) / (2 * np.maximum(self.found, 1)))


class Responses(NamedTuple):
    """Response times of the results that one query received: how many, on average, the longest."""

    results: int
    mean: float
    longest: float


@dataclass(frozen=True)
class Run:
    """A run: what was to be done, when each tuple finished each ring, and how results were released."""

    work: Work
    ends: Floats
    release: str

    def held_until(self, query: int) -> Floats:
        """Tell until when results wait, by tuple and ring up to the query's; -inf: they leave as they are produced."""
        ends = self.ends[:, : query + 1]
        own = np.broadcast_to(ends[:, -1:], ends.shape)
        if self.release == HELD or (self.release == LARGEST and query < self.work.rings - 1):
            return own
        turns = np.concatenate(([-np.inf], ends[:-1, -1]))[:, None]
        late = turns >= ends  # the predecessor had not yet scanned the window
        if self.release == DRAWN:
            held = np.logical_or.accumulate(late & (self.work.found[:, : query + 1] > 0), axis=1)
            return np.where(held, own, -np.inf)
        return np.where(late, turns, -np.inf)

    def responses(self, query: int) -> Responses:
        """Sum up the response times of the query whose window ends in a ring."""
        upto = slice(query + 1)
        at, found, ends = self.work.at[:, None], self.work.found[:, upto], self.ends[:, upto]
        until = self.held_until(query)  # not before the end, where they are held
        total = ((np.maximum(until, ends - self.work.early[:, upto]) - at) * found).sum()
        longest = ((np.maximum(until, ends) - at) * (found > 0)).max(initial=0.0)
        return Responses(results := int(found.sum()), float(total) / max(results, 1), float(longest))

    def released(self, query: int) -> list[tuple[float, int, int, int]]:
        """List what a query received: (time, tuple, ring, number) in its order.  For small runs only."""
        until, listed = self.held_until(query), []
        for outer, found in enumerate(self.work.found[:, : query + 1].tolist()):
            for ring, count in enumerate(found):
                cost, end = self.work.cost[outer, ring], self.ends[outer, ring]
                for number in range(count):
                    made = end - cost * (1 - (number + 1) / count)
                    listed.append((float(max(made, until[outer, ring])), outer, ring, number))
        return listed

    def input_buffer(self) -> int:
        """Give the most tuples that were waiting or scanning at one time, of both streams."""
        return _most(self.work.at, self.ends[:, -1], np.ones(len(self.work.at), np.int64))

    def output_buffer(self) -> int:
        """Give the most results that were held at one time for at least one query, each counted once."""
        until = self.held_until(self.work.rings - 1)
        held = until >= self.ends  # a result leaves the buffer with the query of the largest window
        return _most(self.ends[held], until[held], self.work.found[held])


def _most(come: Floats, go: Floats, count: Ints) -> int:
    """Give the largest sum of those that have come and not gone."""
    times, change = np.concatenate((come, go)), np.concatenate((count, -count))
    # At one moment, those that come are counted first: results that end a window are held with the others.
    return int(np.cumsum(change[np.lexsort((-change, times))]).max(initial=0))


@njit(cache=True, nogil=True)
def scan(at: Floats, cost: Floats, choices: NDArray[np.int64]) -> Floats:
    """Tell when each tuple finished each ring.

    `choices` gives for each set of queues in which tuples wait, a bit for each, the ring to scan next; -1: none.
    Tuples pass a ring in the order of their arrival, so a queue is the tuples from its own next one to that of the ring
    before.
    """
    tuples, rings = cost.shape
    ends = np.zeros((tuples, rings))
    first = np.zeros(rings, np.int64)
    clock, arrived, waiting = 0.0, 0, 0
    while True:
        while arrived < tuples and at[arrived] <= clock:
            waiting |= 1
            arrived += 1
        ring = choices[waiting]
        if ring >= 0:
            clock += cost[first[ring], ring]
            ends[first[ring], ring] = clock
            first[ring] += 1
            if first[ring] == (first[ring - 1] if ring else arrived):
                waiting ^= 1 << ring
            if ring + 1 < rings:
                waiting |= 2 << ring
        elif arrived < tuples:
            clock = at[arrived]
        else:
            return ends


def shared(work: Work, scheduler: Scheduler, release: str = "") -> Run:
    """Run the join shared by all queries under a policy; results are released by its rule, or by another."""
    # A bit for each queue, the innermost ring's first: so that the loop need not ask.
    sets = [waiting[::-1] for waiting in product((False, True), repeat=work.rings)]
    steps = [scheduler.choose(waiting) for waiting in sets]
    choices = np.array([-1 if step is None else step.first for step in steps])
    return Run(work, scan(work.at, work.cost, choices), release or RELEASE[scheduler.name])


def isolated(work: Work, query: int) -> Run:
    """Run a query by itself on a processor of its own: every tuple scans its window before the next."""
    own = Work(work.at, work.cost[:, : query + 1], work.found[:, : query + 1])
    service = own.cost.sum(axis=1)
    done = np.cumsum(service)
    # A busy period begins where a tuple arrives after all the work before it is done.
    begun = np.maximum.accumulate(own.at - (done - service))
    ends = (begun + done - service)[:, None] + np.cumsum(own.cost, axis=1)
    return Run(own, ends, IN_TURN)
