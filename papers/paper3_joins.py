"""Paper 3 in virtual time: PWJoin, and beside it WJoin, which knows windows only, and PJoin, which knows punctuations.

Each side has a *state*: its rows in a *time list*, oldest first, and for each value an *I-Node* with the rows of that
value in a *value list* and a flag::

    time list    7@1 -- 4@2 -- 7@5 -- 9@6            oldest rows leave here, by the window
    I-Nodes      7: [7@1, 7@5] punctuated            "no later row of this stream has a 7"
                 4: [4@2]      none
                 2: []         propagated            told downstream already; the other side's 2s are dropped

What happens when something arrives from A (from B the same, sides exchanged; sections 4.2 to 4.4):

* a row: rows of B that are out of its window leave (*invalidation*); it is joined with the rows of B's I-Node of its
  value (*probe*); then it is kept in A, unless B has punctuated its value (*on-the-fly discard*).  If B's I-Node is
  propagated the row is dropped before it is joined;
* a punctuation: B's rows of its value go (*purge*).  If B has punctuated it too, the result is punctuated
  (*propagation*); if not, A's I-Node is flagged, and its last row remembers that.  When that row leaves by the window,
  the result is punctuated (*early propagation*), for no later row of B can meet an A of this value.

WJoin is this without punctuations, PJoin this without windows.  All is counted in *visits* of nodes (`Costs`).

In:  items in the order of their times (`papers.paper3_streams`).
Out: a `Run`: samples at steps of running time, punctuations of the result, and what was visited for what.
True always: results are those of the window join, if no row breaks a promise of its stream.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from papers.paper3_streams import Item

NONE, PUNCTUATED, PROPAGATED = "none", "punctuated", "propagated"


@dataclass(frozen=True, slots=True)
class Costs:
    """What is charged, in visits: one for each node looked at or linked, and so much more for these.

    Searching an index takes the rows of one of its `buckets`: none with inf, as the paper's I-Nodes have it.  A
    `result` has to be formed, a purged row to be freed (`purge`).
    """

    buckets: float = inf
    purge: float = 1.0
    result: float = 1.0
    speed: float = 6000.0  # visits a second

    def of(self, run: Run) -> float:
        """Give the visits that all a join did comes to."""
        more = run.scanned / self.buckets + self.purge * run.counts["purged"] + self.result * run.results
        return run.visits.total() + more


class Sample(NamedTuple):
    """What the join had done at a step of its running time: rows in both states, results, and punctuations told.

    `at` is the time of the streams by then, in milliseconds.
    """

    at: int
    held: int
    results: int
    punctuations: int


class Told(NamedTuple):
    """A punctuation of the result: its value, when (streams' time, milliseconds), and whether the window brought it."""

    value: int
    at: int
    early: bool


class TNode:
    """A row in both lists; `live` until it is invalidated or purged; `ring` leads back to a punctuated I-Node."""

    __slots__ = ("live", "number", "ring", "ts")

    def __init__(self, ts: int, number: int) -> None:
        self.ts, self.number, self.live = ts, number, True
        self.ring: INode | None = None


class INode:
    """A value's rows in a state, oldest first, and whether its stream has punctuated it."""

    __slots__ = ("flag", "rows", "value")

    def __init__(self, value: int) -> None:
        self.value, self.flag = value, NONE
        self.rows: deque[TNode] = deque()


class State:
    """One side's rows.  `window` is in milliseconds."""

    def __init__(self, window: float) -> None:
        self.window, self.held = window, 0
        self.time_list: deque[TNode] = deque()
        self.index: dict[int, INode] = {}


@dataclass(slots=True)
class Run:
    """What a join did: `visits` by operation, `counts` of rows by what became of them, samples, and what it told.

    `scanned` are the rows that were in the states searched, one search after the other, `held` those that were held,
    one item after the other; `most` rows were held at once, and so many I-Nodes at the end.
    `log`, where it is kept, has the results as pairs of row numbers, and the values told, in their order.
    """

    visits: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    samples: list[Sample] = field(default_factory=list)
    told: list[Told] = field(default_factory=list)
    log: list[tuple[int, ...]] | None = None
    results: int = 0
    scanned: int = 0
    held: int = 0
    most: int = 0
    inodes: int = 0


class Join:
    """A join at work: windows of both sides in milliseconds, and whether punctuations are heeded."""

    def __init__(
        self, windows: tuple[float, float], costs: Costs, *, heeds: bool = True, log: bool = False
    ) -> None:
        self.states = State(windows[0]), State(windows[1])
        self.costs, self.heeds, self.run = costs, heeds, Run(log=[] if log else None)

    @property
    def held(self) -> int:
        """Count the rows in both states."""
        return self.states[0].held + self.states[1].held

    def process(self, items: Iterable[Item], step: float = inf, steps: int = 0) -> Run:
        """Take items one after the other; sample every `step` seconds of running time, and stop after so many."""
        run, due = self.run, step * self.costs.speed
        for item in items:
            if item.number >= 0:
                self._row(item)
            elif self.heeds:
                self._punctuation(item)
            run.most, run.held = max(run.most, self.held), run.held + self.held
            while steps and self.costs.of(run) >= due * (len(run.samples) + 1):
                run.samples.append(Sample(item.ts, self.held, run.results, len(run.told)))
            if steps and len(run.samples) >= steps:
                break
        run.inodes = sum(len(each.index) for each in self.states)
        return run

    def _row(self, row: Item) -> None:
        """Invalidate, probe, and keep the row if it is still of use."""
        own, other = self.states[row.stream], self.states[1 - row.stream]
        self._invalidate(row.ts, other)
        met = self._search("probe", other, row.value)
        if met is not None and met.flag == PROPAGATED:
            self.run.counts["dropped"] += 1
            return
        if met is not None:
            self._probe(row, met, other)
        if met is not None and met.flag == PUNCTUATED:
            self.run.counts["discarded"] += 1
        else:
            self._insert(row, own)

    def _invalidate(self, ts: int, state: State) -> None:
        """Remove rows out of the window, and nodes that a purge has emptied, from the head of the time list."""
        rows, visits = state.time_list, 0
        while rows:
            visits += 1
            head = rows[0]
            if head.live and head.ts + state.window >= ts:
                break
            rows.popleft()
            if head.live:
                head.live = False
                state.held -= 1
                if head.ring is not None:
                    head.ring.flag = PROPAGATED
                    self._tell(head.ring.value, ts, early=True)
        # Without a window there is nothing to look for.
        self.run.visits["invalidate"] += visits if state.window < inf else 0

    def _probe(self, row: Item, met: INode, state: State) -> None:
        """Join a row with a value list, of which nodes that the window has emptied are removed first."""
        rows, run = met.rows, self.run
        while rows and not rows[0].live:
            rows.popleft()
            run.visits["probe"] += 1
        run.results += len(rows)
        run.visits["probe"] += len(rows)
        if run.log is not None:
            run.log += [(row.number, each.number)[:: -1 if row.stream else 1] for each in rows]
        if not rows and met.flag == NONE:
            del state.index[row.value]

    def _insert(self, row: Item, state: State) -> None:
        """Append a row to the time list and to its value list."""
        node, found = TNode(row.ts, row.number), self._search("insert", state, row.value)
        self.run.visits["insert"] += 1 + (found is None)
        if found is None:
            found = state.index[row.value] = INode(row.value)
        state.time_list.append(node)
        found.rows.append(node)
        state.held += 1

    def _punctuation(self, punctuation: Item) -> None:
        """Purge the other side; tell the result if both sides have promised, and keep the promise if not."""
        own, other = self.states[punctuation.stream], self.states[1 - punctuation.stream]
        met = self._search("purge", other, punctuation.value)
        if met is not None:
            self._purge(met, other)
        if met is None or met.flag == NONE:
            self._mark(punctuation.value, own)
        elif met.flag == PUNCTUATED:
            self._tell(punctuation.value, punctuation.ts, early=False)

    def _purge(self, met: INode, state: State) -> None:
        """Empty the nodes of a value list, and remove its I-Node; the time list is mended by invalidation."""
        live = [each for each in met.rows if each.live]
        for each in live:
            each.live = False
        state.held -= len(live)
        self.run.counts["purged"] += len(live)
        self.run.visits["purge"] += 1
        del state.index[met.value]

    def _mark(self, value: int, state: State) -> None:
        """Flag the I-Node of a value in its own stream's state, and let its last row lead back to it."""
        found = self._search("purge", state, value)
        self.run.visits["purge"] += 1
        if found is None:
            found = state.index[value] = INode(value)
        found.flag = PUNCTUATED
        if found.rows:
            found.rows[-1].ring = found

    def _search(self, why: str, state: State, value: int) -> INode | None:
        self.run.visits[why] += 1
        self.run.scanned += state.held
        return state.index.get(value)

    def _tell(self, value: int, ts: int, *, early: bool) -> None:
        self.run.told.append(Told(value, ts, early))
        if self.run.log is not None:
            self.run.log.append((value,))
