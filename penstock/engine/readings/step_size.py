"""How far one unit may advance: over as many waiting rows as it can join in a few seconds.

Results are delivered, and the plan may change, only between units.  If rows arrive faster than they are joined, a unit
over all waiting rows would take longer each time::

    ingested    | a3 | a4 | a5 | a6 | a7 |        goal of the group: behind a7 and b7
                | b3 | b4 | b5 | b6 | b7 |
    this unit   | a3   b3   a4 |                  batches in order of arrival, at least one

Where input waits for its time (sync-filter), the bound is a time before the goal, and older rows are joined.

In:  a goal, the ledger, and how many rows a unit may join.  Out: a station on the way to the goal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.log.joined import joined_between

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.log.ledger import Ledger
    from penstock.log.segment import Segment
    from penstock.log.values import Cursor, Station, Watermarks
    from penstock.plan.group import Group


@dataclass(frozen=True, slots=True)
class UnitBound:
    """The seconds that units should take at most."""

    turn_seconds: float = 4.0
    """Target for the units of one turn, all groups together.  Results are delivered at the end of a turn."""
    least_seconds: float = 0.5
    """Target for the unit of one group if there are many: shorter units would mostly be the cost of a job."""

    def rows(self, row_seconds: float, groups: int) -> int:
        """Return how many rows a unit may join, by the price of a row with its pairs.

        >>> UnitBound().rows(row_seconds=1e-6, groups=2)
        2000000
        """
        return max(1, int(max(self.least_seconds, self.turn_seconds / groups) / row_seconds))


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
    """Return the goal, or a nearer station if more rows wait before it; the unit has one batch at least."""
    here, passed = ledger.groups[group.id].all_stations[-1]
    parts = [
        joined_between(ledger.segments(log.id), number, here, goal[0])
        for number, log in enumerate(group.logs)
    ]
    rows = sum(each.segment.rows_between(each.min_t, each.max_t) for some in parts for each in some)
    if rows <= most_rows or goal[0].sorters or here.sorters:
        return goal
    waiting = [[each.segment for each in some] for some in parts]
    if goal[0].below > here.below:
        cursor = _by_time(here, goal[0], waiting, most_rows)
    else:
        cursor = _by_batch(here, goal[0], waiting, most_rows)
    return station_at(group, ledger, cursor, passed)


def _by_batch(here: Cursor, goal: Cursor, waiting: Sequence[Sequence[Segment]], most_rows: int) -> Cursor:
    """Advance batch by batch, in order of arrival."""
    batches = sorted(
        {(each.arrived, each.last, number) for number, some in enumerate(waiting) for each in some}
    )
    reached, rows = list(here.batches), 0
    for _, last, number in batches:
        rows += sum(each.rows for each in waiting[number] if each.last == last)
        if rows > most_rows and tuple(reached) != here.batches:
            break
        reached[number] = max(reached[number], last + 1)
    return goal._replace(batches=tuple(reached))


def _by_time(here: Cursor, goal: Cursor, waiting: Sequence[Sequence[Segment]], most_rows: int) -> Cursor:
    """Advance to a time at which some segment ends."""
    segments = [each for some in waiting for each in some]
    times = sorted({each.max_t + 1 for each in segments if here.below <= each.max_t < goal.below - 1})
    fitting = [
        time
        for time in times
        if sum(each.rows_between(here.below, time - 1) for each in segments) <= most_rows
    ]
    below = fitting[-1] if fitting else times[0] if times else goal.below
    batches = tuple(
        min([end, *(each.first for each in some if each.max_t >= below)])
        for some, end in zip(waiting, goal.batches, strict=True)
    )
    return goal._replace(batches=batches, below=below)


def _from(ledger: Ledger, log: str, batch: int) -> list[Segment]:
    """Return the segments of a log that have this batch or a later one."""
    return [each for each in ledger.segments(log) if each.last >= batch]
