"""Scheduling: which slices of a group advance next, and how far (paper 2, on cursors instead of rows).

A slice's cursor says which batches it has joined.  Inner slices of a chain may be ahead of outer ones, never behind.
The cursors of slices are called *stations*, from the slowest to the newest.  Rows between two stations wait for the
ring of slices at the first of them::

    batches ingested        ...  7   8   9   10  11
    ring 0  (1 s)                                 ^ 11
    ring 1  (1 min)                      ^ 9            waiting: batches 9 and 10
    ring 2  (1 h)                ^ 7                    waiting: batches 7 and 8

`penstock.schedulers` chooses.  The cost of a ring follows from the chain, from the pairs that units have found, and
from the rows that wait; a unit, which is a Spark job, has a price of its own.  A unit cannot be interrupted, so it
takes the waiting batches that can be joined in `OUTER_UNIT_SECONDS`, and at least those up to the next station.

In:  the group and the ledger.  Out: an `Advance`, executed by the join stage.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from penstock import limits
from penstock.engine.views.estimates import prices_of
from penstock.schedulers import Rings, ScanStep, make_scheduler
from penstock.sql.units import parse_duration
from penstock.state.joined import has_rows_between

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.plan.chain import Chain
    from penstock.plan.group import Group
    from penstock.plan.prices import Prices
    from penstock.state.ledger import Ledger
    from penstock.state.values import Cursor, GroupState, Station, Watermarks

_NEVER = 1 << 62


@dataclass(frozen=True, slots=True)
class Advance:
    """A unit: the slices that go from one cursor to another, and the stations of all slices of the group after it."""

    slices: tuple[int, ...]
    since: Cursor
    until: Cursor
    cursors: tuple[Cursor, ...]
    stations: tuple[Station, ...]
    overdue: str = ""
    """The query that exceeds its max_lag, if that is why they advance."""

    @property
    def watermarks(self) -> Watermarks:
        """Return the watermarks of the slowest slice."""
        return self.stations[0][1]

    def runs(self, chain: Chain) -> tuple[tuple[int, int], ...]:
        """Return the levels of the slices that advance, as runs ``[first, last)``."""
        runs: list[tuple[int, int]] = []
        slices = chain.slices
        for number in sorted(self.slices):
            first, last = chain.levels(slices[number].range)
            if runs and runs[-1][1] == first:
                runs[-1] = (runs[-1][0], last)
            else:
                runs.append((first, last))
        return tuple(runs)


def rings_of(chain: Chain) -> list[tuple[int, ...]]:
    """Sort the slices of a chain by how far out they end, both sides together.

    >>> from penstock.plan.chain import Chain
    >>> from penstock.sql.query import Range
    >>> rings_of(Chain.from_windows({"q1": Range.window(10, 10), "q2": Range.window(60, 60)}))
    [(1, 2), (0, 3)]
    """
    rings: dict[int, tuple[int, ...]] = {}
    for number, piece in enumerate(chain.slices):
        end = piece.ages[1]
        rings[end] = (*rings.get(end, ()), number)
    return [numbers for _, numbers in sorted(rings.items())]


def next_advance(group: Group, ledger: Ledger, policy: str, goal: Station) -> Advance | None:
    """Choose the next unit of a group; None if all its slices are at the goal."""
    outlook = _Outlook.of(group, ledger, goal)
    if not any(outlook.stands):
        return None
    return outlook.advance(policy, outlook.overdue())


@dataclass(frozen=True, slots=True)
class _Outlook:
    """The stations of the rings of a group, and the rows that wait."""

    group: Group
    ledger: Ledger
    prices: Prices
    rings: list[tuple[int, ...]]
    stations: tuple[Station, ...]
    """The stations, and the goal as the last of them."""
    at: list[int]
    """For each ring, the number of the station it stands at."""
    stands: list[bool]
    """For each ring, whether rows wait in front of it."""

    @classmethod
    def of(cls, group: Group, ledger: Ledger, goal: Station) -> _Outlook:
        state = ledger.groups[group.id]
        stations = state.all_stations if state.all_stations[-1][0] == goal[0] else (*state.all_stations, goal)
        numbers = {cursor: number for number, (cursor, _) in enumerate(stations)}
        rings = rings_of(group.chain)
        at = [numbers[state.cursors[ring[0]]] for ring in rings]
        stands = [here < there for here, there in zip(at, (len(stations) - 1, *at), strict=False)]
        return cls(group, ledger, prices_of(ledger), rings, stations, at, stands)

    @property
    def state(self) -> GroupState:
        """Return the state of the group."""
        return self.ledger.groups[self.group.id]

    def ahead(self, ring: int) -> int:
        """Return the station up to which a ring may advance: that of the next inner ring, or the goal."""
        return self.at[ring - 1] if ring else len(self.stations) - 1

    def rows(self, since: int, until: int) -> int:
        """Count the rows of both streams between two stations."""
        first, last = self.stations[since][0], self.stations[until][0]
        return sum(
            segment.rows
            for index, log in enumerate(self.group.logs)
            for segment in self.ledger.segments(log.id)
            if has_rows_between(segment, index, first, last)
        )

    def costs(self) -> list[float]:
        """Return by ring the seconds per row: its share of the cost of a row, and of the pairs that a row finds."""
        slices = self.group.chain.slices
        widths = [
            max(slices[number].ages[1] - slices[number].ages[0] for number in ring) for ring in self.rings
        ]
        prices, effort = self.prices, self.state.effort
        pairs = effort.pairs / effort.rows if effort.rows else 1.0
        whole = sum(widths)
        return [prices.row / len(widths) + prices.pair * pairs * width / whole for width in widths]

    def ring_runs(self, costs: Sequence[float], waiting: Sequence[float]) -> list[range]:
        """Combine neighbouring rings where joining the next rows in one ring costs less than a unit by itself."""
        unit, whole = self.prices.unit, sum(costs)
        starts, spent, rows = [0], 0.0, 0.0
        for ring, cost in enumerate(costs):
            rows = waiting[ring] or rows
            if ring and (self.stands[ring] or spent >= max(unit, whole * rows / limits.MAX_RING_RUNS)):
                starts.append(ring)
                spent = 0.0
            spent += cost * rows
        return [range(first, last) for first, last in pairwise([*starts, len(costs)])]

    def advance(self, policy: str, late: str) -> Advance:
        """Translate the choice of the scheduler to slices and cursors."""
        costs = self.costs()
        waiting = [self._waiting(ring) for ring in range(len(costs))]
        ring_runs = self.ring_runs(costs, waiting)
        outermost = self._outermost()
        ends = [outermost[member.query.name] for member in self.group.members]
        priced = Rings(
            tuple(sum(end in run for end in ends) for run in ring_runs),
            tuple(sum(costs[ring] for ring in run) for run in ring_runs),
            self.prices.unit,
        )
        before = [waiting[run[0]] for run in ring_runs]
        step = (
            self._at_last(outermost[late], ring_runs)
            if late
            else make_scheduler(policy, priced).choose(before)
        )
        assert step is not None  # noqa: S101 - rows wait somewhere
        first = ring_runs[step.first][0]
        going = range(first, ring_runs[step.last - 1][-1] + 1)
        moved = {number for ring in going for number in self.rings[ring]}
        target = self._target(first, priced, step)
        until = self.stations[target][0]
        cursors = tuple(
            until if number in moved else cursor for number, cursor in enumerate(self.state.cursors)
        )
        at = [target if ring in going else here for ring, here in enumerate(self.at)]
        kept = _thinned(self.stations[min(at) : max(at) + 1], cursors)
        return Advance(tuple(sorted(moved)), self.stations[self.at[first]][0], until, cursors, kept, late)

    def _at_last(self, outermost: int, ring_runs: Sequence[range]) -> ScanStep:
        """Advance the slowest slices of an overdue query, up to its outermost ring."""
        last = next(number for number, run in enumerate(ring_runs) if outermost in run)
        waiting = [number for number in range(last + 1) if self.stands[ring_runs[number][0]]]
        return ScanStep(waiting[-1], last + 1)

    def _waiting(self, ring: int) -> float:
        """Count the rows in front of a ring; a batch without rows counts as one, since it is to be passed too."""
        return max(1.0, float(self.rows(self.at[ring], self.ahead(ring)))) if self.stands[ring] else 0.0

    def _outermost(self) -> dict[str, int]:
        """Return the outermost ring that each query reads."""
        readers = self.group.chain.readers
        return {name: n for n, ring in enumerate(self.rings) for number in ring for name in readers[number]}

    def _target(self, ring: int, priced: Rings, step: ScanStep) -> int:
        """Return the farthest station within `OUTER_UNIT_SECONDS`, at least the next one; for inner rings, the goal."""
        if ring == 0:
            return self.ahead(0)
        legs = accumulate(self.rows(stop, stop + 1) for stop in range(self.at[ring], self.ahead(ring)))
        return self.at[ring] + max(
            1, sum(priced.cost(step, rows) <= limits.OUTER_UNIT_SECONDS for rows in legs)
        )

    def overdue(self) -> str:
        """Return a query that is behind the newest rows by more than its `max_lag` of event time; empty if none is."""
        newest = self.stations[-1][1]
        for member in self.group.members:
            name, most = member.query.name, dict(member.query.options).get("max_lag")
            if most is None:
                continue
            lags = [new - old for new, old in zip(newest, self._since(name), strict=True) if new is not None]
            if lags and max(lags) > parse_duration(most):
                return name
        return ""

    def _since(self, query: str) -> list[int]:
        """Return by stream the watermark of a query's slowest slice, or the time of the first row it has not joined."""
        slices = self.group.chain.read_by(query)
        behind = min(self.state.cursors[piece] for piece in slices).batches
        times = []
        for mark, log, batch in zip(self.state.watermarks_of(slices), self.group.logs, behind, strict=True):
            waiting = [segment.min_t for segment in self.ledger.segments(log.id) if segment.last >= batch]
            times.append(mark if mark is not None else min(waiting, default=_NEVER))
        return times


def _thinned(stations: Sequence[Station], cursors: Iterable[Cursor]) -> tuple[Station, ...]:
    """Remove every other station without a slice, if there are too many."""
    if len(stations) <= limits.MAX_STATIONS:
        return tuple(stations)
    taken = set(cursors)
    return tuple(stop for number, stop in enumerate(stations) if number % 2 == 0 or stop[0] in taken)
