"""How far one unit may advance: over as many waiting rows as it can join in a few seconds.

Results are delivered, and the plan may change, only between units.  If rows arrive faster than they are joined, a unit
over all waiting rows would take longer each time::

    ingested    | a3 | a4 | a5 | a6 | a7 |        goal of the group: behind a7 and b7
                | b3 | b4 | b5 | b6 | b7 |
    this unit   | a3   b3   a4 |                  batches in order of arrival
                | a3 |#b3  |                      or rows older than a time, if one batch has too many

Where input waits for its time (sync-filter), it is always a time.  If watermarks allow no cut, the unit has one batch.

In:  a goal, the ledger, and how many rows a unit may join.  Out: a station on the way to the goal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.plan.order_policy import trigger
from penstock.state.joined import joined_between

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.plan.group import Group
    from penstock.plan.prices import Prices
    from penstock.state.ledger import Ledger
    from penstock.state.segment import Segment
    from penstock.state.values import Cursor, Station, Watermarks


@dataclass(frozen=True, slots=True)
class UnitBound:
    """The seconds that units should take at most, and how fast units may grow.

    What a row costs is known from earlier units.  A key that becomes frequent makes rows cost more from unit to unit.
    So a unit has at most `growth` times the rows of the last one, priced as if rows had `growth` times the pairs.
    """

    turn_seconds: float = 2.0
    """Target for the units of one turn, all groups together.  Results are delivered at the end of a turn."""
    least_seconds: float = 0.5
    """Target for the unit of one group if there are many: shorter units would mostly be the cost of a job."""
    growth: float = 2.0
    first_rows: int = 10_000
    """Rows of a unit that may always be joined together, however few the last unit had."""

    def rows(self, prices: Prices, pairs_per_row: float, groups: int, last: int | None) -> int:
        """Return how many rows a unit may join; `last` is the number of rows of the last unit, None if any will do.

        >>> from penstock.plan.prices import Prices
        >>> UnitBound().rows(Prices(row=1e-6, pair=5e-7), pairs_per_row=1.0, groups=2, last=None)
        500000
        >>> UnitBound().rows(Prices(row=1e-6, pair=5e-7), pairs_per_row=1.0, groups=2, last=30_000)
        60000
        """
        seconds = max(self.least_seconds, self.turn_seconds / groups)
        most = int(seconds / (prices.row + self.growth * prices.pair * pairs_per_row))
        if last is not None:
            most = min(most, max(self.first_rows, int(self.growth * last)))
        return max(1, most)


def station_at(group: Group, ledger: Ledger, cursor: Cursor, passed: Watermarks) -> Station:
    """Return a cursor with its watermarks: every row that is not joined there, or still to come, is as new or newer.

    `passed` are the watermarks of an earlier cursor.
    """
    marks = []
    for number, (log, before) in enumerate(zip(group.logs, passed, strict=True)):
        mark = ledger.stream(log.stream).watermark
        waiting = [max(each.min_t, cursor.below) for each in _from(ledger, log.id, cursor.batches[number])]
        known = None if mark is None else min([mark, *waiting])
        marks.append(max((each for each in (known, before) if each is not None), default=None))
    return cursor, tuple(marks)


def furthest(group: Group, ledger: Ledger, groups: Sequence[Group]) -> Station:
    """Return the farthest station of several groups over the same logs."""
    states = [ledger.groups[each.id] for each in groups]
    cursors = [each.all_stations[-1][0] for each in states]
    if len(set(cursors)) == 1:
        return states[0].all_stations[-1]
    batches = tuple(max(each) for each in zip(*(cursor.batches for cursor in cursors), strict=True))
    cursor = cursors[0]._replace(batches=batches, below=max(each.below for each in cursors))
    return station_at(group, ledger, cursor, ledger.groups[group.id].all_stations[-1][1])


def within(goal: Station, group: Group, ledger: Ledger, most_rows: int) -> Station:
    """Return the goal, or a nearer station if more rows wait before it."""
    here, passed = ledger.groups[group.id].all_stations[-1]
    parts = [
        joined_between(ledger.segments(log.id), number, here, goal[0])
        for number, log in enumerate(group.logs)
    ]
    rows = sum(each.segment.rows_between(each.min_t, each.max_t) for some in parts for each in some)
    if rows <= most_rows or goal[0].sorters or here.sorters:
        return goal
    waiting = [[each.segment for each in some] for some in parts]
    cursor = None if goal[0].below > here.below else _by_batch(here, goal[0], waiting, most_rows)
    if cursor is None and not group.oblivious:
        marks = [ledger.stream(log.stream).watermark for log in group.logs]
        latest = goal[0].below if goal[0].below > here.below else trigger(marks)
        cursor = None if latest is None else _by_time(here, goal[0], waiting, latest, most_rows)
    return station_at(group, ledger, cursor or _first_batch(here, goal[0], waiting), passed)


def _by_batch(
    here: Cursor, goal: Cursor, waiting: Sequence[Sequence[Segment]], most_rows: int
) -> Cursor | None:
    """Advance batch by batch, in order of arrival; None if the first one has too many rows."""
    reached, rows = list(here.batches), 0
    for _, last, number in _batches(waiting):
        rows += sum(each.rows for each in waiting[number] if each.last == last)
        if rows > most_rows:
            break
        reached[number] = max(reached[number], last + 1)
    return None if tuple(reached) == here.batches else goal._replace(batches=tuple(reached))


def _first_batch(here: Cursor, goal: Cursor, waiting: Sequence[Sequence[Segment]]) -> Cursor:
    """Advance by one batch, however many rows it has."""
    _, last, number = _batches(waiting)[0]
    batches = (last + 1 if each == number else batch for each, batch in enumerate(here.batches))
    return here._replace(batches=tuple(batches)) if goal.below == here.below else goal


def _batches(waiting: Sequence[Sequence[Segment]]) -> list[tuple[float, int, int]]:
    """List the batches that segments end with, in order of arrival: when, which, and of which input."""
    return sorted({(each.arrived, each.last, number) for number, some in enumerate(waiting) for each in some})


def _by_time(
    here: Cursor, goal: Cursor, waiting: Sequence[Sequence[Segment]], latest: int, most_rows: int
) -> Cursor | None:
    """Advance to a time that the watermarks of all streams have passed; None if no waiting row is older than that.

    Part of a batch is joined then; the cursor's `below` says so.
    """
    segments = [each for some in waiting for each in some]
    low, high = min(max(each.min_t, here.below) for each in segments) + 1, latest
    if high < low:
        return None
    while low < high:
        middle = (low + high + 1) // 2
        if sum(_rows_before(each, here.below, middle) for each in segments) <= most_rows:
            low = middle
        else:
            high = middle - 1
    batches = tuple(
        min([end, *(each.first for each in some if each.max_t >= low)])
        for some, end in zip(waiting, goal.batches, strict=True)
    )
    return goal._replace(batches=batches, below=low)


def _rows_before(segment: Segment, since: int, until: int) -> float:
    """Estimate the rows from one time to before another, also where that is less than one row."""
    first, last = max(since, segment.min_t), min(until, segment.max_t + 1)
    return segment.rows * max(0, last - first) / (segment.max_t + 1 - segment.min_t)


def _from(ledger: Ledger, log: str, batch: int) -> list[Segment]:
    """Return the segments of a log that have this batch or a later one."""
    return [each for each in ledger.segments(log) if each.last >= batch]
