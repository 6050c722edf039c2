"""The cuts of a chain: Mem-Opt, CPU-Opt, and the cheapest chain in a memory budget (paper 1, 5.1, 5.2, 6.2).

Every slice that a chain could have is an edge between two bounds of the queries' windows, and every chain is a path::

    bounds      0 -------- 5 -------- 10 ------------------ 30
    Mem-Opt     o--------->o--------->o-------------------->o      every bound is a cut: the least state
    CPU-Opt     o-------------------->o-------------------->o      the shortest path
    pull-up     o------------------------------------------>o      no cut at all

An edge's length is the cost of its slice, including the extra state and probing of merged slices.  It depends on no
other edge (Lemma 2), so the shortest path over the N(N+1)/2 edges is the cheapest chain.  The two sides of a chain are
cut independently: one path after the other, left side first.

With a budget there are two lengths, comparisons and bytes.  `auto` walks the same graph.  At each bound it keeps the
paths that no other path beats in both lengths, and drops paths that cannot be finished within the budget or for less
than the best chain so far.

In:  readers and statistics (`penstock.plan.facts`).  Out: a `PricedChain`: the cuts, and the cost of each slice.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING

from penstock.errors import InputError
from penstock.plan.cost import PAPER, Coefficients, Cost, SideCosts, total
from penstock.plan.facts import SIDES, age_bounds

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.plan.facts import PricedQuery, Statistics
    from penstock.sql.query import Side

BUDGET_ROUNDING_SHARE = 1e-9
"""Budgets are compared with sums of floats: a chain may exceed its budget by this share."""

DEAREST_BYTE_PRICE = 1e18
"""A price of a byte at which the cost of work is negligible."""


@dataclass(frozen=True, slots=True)
class PricedSlice:
    """A slice that a chain could have: one stream's rows of ages ``[start, end)``, and its cost per second."""

    side: Side
    ages: tuple[int, int]
    cost: Cost
    cpu: float


@dataclass(frozen=True, slots=True)
class Cuts:
    """The ages at which each side of a chain is cut, from 0 up; empty for a side that no query reads."""

    left: tuple[int, ...]
    right: tuple[int, ...]

    def side(self, side: Side) -> tuple[int, ...]:
        """Return one side's ages."""
        return self.left if side == "l" else self.right

    @property
    def axis(self) -> tuple[int, ...]:
        """Return the same cuts on the axis of differences.

        >>> Cuts((0, 5), (0, 9)).axis
        (-8, 0, 5)
        """
        return tuple(sorted({*self.left, *(1 - age if age else 0 for age in self.right)}))

    @property
    def slice_count(self) -> int:
        """Count the slices of both sides."""
        return sum(max(0, len(self.side(side)) - 1) for side in SIDES)


@dataclass(frozen=True, slots=True)
class PricedChain:
    """A chosen chain: its slices, left side first, each with its cost."""

    edges: tuple[PricedSlice, ...]

    @property
    def cost(self) -> Cost:
        """Add up the slices' costs."""
        return total(edge.cost for edge in self.edges)

    @property
    def cpu(self) -> float:
        """Add up the slices' lengths."""
        return sum(edge.cpu for edge in self.edges)

    @property
    def cuts(self) -> Cuts:
        """Return the ages at which the chain is cut."""
        left, right = (
            tuple(sorted({age for edge in self.edges if edge.side == side for age in edge.ages}))
            for side in SIDES
        )
        return Cuts(left, right)


def mem_opt(readers: Sequence[PricedQuery]) -> Cuts:
    """Cut at every window: no row is held longer than some query needs it (Theorems 3 and 4)."""
    left, right = (age_bounds(readers, side) for side in SIDES)
    return Cuts(left, right)


def priced(
    cuts: Cuts, readers: Sequence[PricedQuery], statistics: Statistics, weigh: Coefficients = PAPER
) -> PricedChain:
    """Price a chain with these cuts, slice by slice."""
    sides = [SideCosts(readers, statistics, side) for side in SIDES]
    return PricedChain(
        tuple(_edge(side, ages, weigh) for side in sides for ages in pairwise(cuts.side(side.side)))
    )


def cpu_opt(
    readers: Sequence[PricedQuery], statistics: Statistics, weigh: Coefficients = PAPER
) -> PricedChain:
    """Find the chain with the least work: the shortest path over all slices."""
    graph = _graph(readers, statistics, weigh)
    return PricedChain(tuple(_shortest(graph, lambda edge: edge.cpu)))


def auto(
    readers: Sequence[PricedQuery], statistics: Statistics, budget: float, weigh: Coefficients = PAPER
) -> PricedChain:
    """Find the chain with the least work among those that hold at most `budget` bytes."""
    graph = _graph(readers, statistics, weigh)
    least = sum(edge.cost.bytes for edge in _shortest(graph, lambda edge: edge.cost.bytes))
    room = budget * (1 + BUDGET_ROUNDING_SHARE)
    if least > room:
        raise InputError(
            f"a memory budget of {budget:,.0f} bytes is too small: these queries need {least:,.0f} bytes of state "
            "whatever the chain; raise the budget or shorten the longest window"
        )
    return PricedChain(tuple(_cheapest_within(graph, room)))


# --- the graph of Figure 14 --------------------------------------------------------------------------

Graph = list[list[tuple[int, PricedSlice]]]
"""The edges that leave each node, with their targets.  Node 0 is the left side's age 0; the last node is the end."""


def _edge(side: SideCosts, ages: tuple[int, int], weigh: Coefficients) -> PricedSlice:
    cost = side.slice_cost(ages)
    return PricedSlice(side.side, ages, cost, cost.cpu(weigh))


def _graph(readers: Sequence[PricedQuery], statistics: Statistics, weigh: Coefficients) -> Graph:
    """Build every slice that a chain could have; the right side's first node is the left side's last."""
    graph: Graph = [[]]
    for side in SIDES:
        costs, bounds, base = SideCosts(readers, statistics, side), age_bounds(readers, side), len(graph) - 1
        graph += [[] for _ in bounds[1:]]
        for i, start in enumerate(bounds):
            for j, end in enumerate(bounds[i + 1 :], i + 1):
                graph[base + i].append((base + j, _edge(costs, (start, end), weigh)))
    return graph


def _to_go(graph: Graph, length: Callable[[PricedSlice], float]) -> list[float]:
    """Return the shortest distance from each node to the end: nodes are in order, so one pass backwards suffices."""
    away = [inf] * (len(graph) - 1) + [0.0]
    for node in range(len(graph) - 2, -1, -1):
        away[node] = min(length(edge) + away[then] for then, edge in graph[node])
    return away


def _shortest(graph: Graph, length: Callable[[PricedSlice], float]) -> list[PricedSlice]:
    """Return the shortest path; of two equally short ones, the one with more cuts, which never holds more rows."""
    away = _to_go(graph, length)
    path: list[PricedSlice] = []
    node = 0
    while node < len(graph) - 1:
        node, edge = min(graph[node], key=lambda step: length(step[1]) + away[step[0]])
        path.append(edge)
    return path


@dataclass(frozen=True, slots=True)
class _Path:
    """A path from the start to a node: its two lengths, its last edge, and the path before that edge."""

    cpu: float = 0.0
    bytes: float = 0.0
    edge: PricedSlice | None = None
    before: _Path | None = None

    def then(self, edge: PricedSlice) -> _Path:
        """Append an edge."""
        return _Path(self.cpu + edge.cpu, self.bytes + edge.cost.bytes, edge, self)

    def edges(self) -> list[PricedSlice]:
        """List the edges from the start."""
        return [] if self.before is None or self.edge is None else [*self.before.edges(), self.edge]


def _cheapest_within(graph: Graph, room: float) -> list[PricedSlice]:
    """Find the path with the least work among the paths of at most `room` bytes."""
    price, best = _lagrange(graph, room)
    bytes_to_go = _to_go(graph, lambda edge: edge.cost.bytes)
    cpu_to_go = _to_go(graph, lambda edge: edge.cpu)
    both_to_go = _to_go(graph, lambda edge: edge.cpu + price * edge.cost.bytes)
    most = sum(edge.cpu for edge in best)

    def hopeful(path: _Path, node: int) -> bool:
        """Check whether a path can still be finished within the room, for less than the best one so far."""
        left = room - path.bytes
        least = path.cpu + max(cpu_to_go[node], both_to_go[node] - price * left)
        return bytes_to_go[node] <= left and least < most

    arriving: list[list[_Path]] = [[_Path()], *([] for _ in graph[1:])]
    for node, edges in enumerate(graph[:-1]):
        for path in _unbeaten(arriving[node]):
            for then, edge in edges:
                longer = path.then(edge)
                if hopeful(longer, then):
                    arriving[then].append(longer)
    finished = _unbeaten(arriving[-1])
    return finished[0].edges() if finished else best


def _unbeaten(paths: list[_Path]) -> list[_Path]:
    """Keep the paths that no other path beats in both lengths, cheapest first."""
    kept: list[_Path] = []
    for path in sorted(paths, key=lambda path: (path.cpu, path.bytes)):
        if not kept or path.bytes < kept[-1].bytes:
            kept.append(path)
    return kept


def _lagrange(graph: Graph, room: float) -> tuple[float, list[PricedSlice]]:
    """Choose a price of a byte with which the shortest path just fits: a good chain, and a bound on all others.

    For any price ``p >= 0``, a path that fits costs at least the shortest length ``cpu + p * bytes`` less ``p * room``.
    """

    def at(price: float) -> list[PricedSlice]:
        return _shortest(graph, lambda edge: edge.cpu + price * edge.cost.bytes)

    def fits(path: list[PricedSlice]) -> bool:
        return sum(edge.cost.bytes for edge in path) <= room

    low, high = 0.0, 1.0
    free = at(low)
    if fits(free):
        return low, free
    # At a high enough price the shortest path is the one of least bytes, which fits but for rounding: hence a limit.
    while not fits(at(high)) and high < DEAREST_BYTE_PRICE:
        low, high = high, high * 4
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if fits(at(middle)) else (middle, high)
    best = at(high)
    return high, best if fits(best) else _shortest(graph, lambda edge: edge.cost.bytes)
