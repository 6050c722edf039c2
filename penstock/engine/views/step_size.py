"""How far one unit may advance: over as many waiting rows as it can join in a few seconds.

Results are delivered, and the plan may change, only between units.  If rows arrive faster than they are joined, a unit
over all waiting rows would take longer each time::

    ingested    | a3 | a4 | a5 | a6 | a7 |        goal of the group: behind a7 and b7
                | b3 | b4 | b5 | b6 | b7 |
    this unit   | a3   b3   a4 |                  batches in order of arrival
                | a3 |#b3  |                      or rows older than a time, if one batch has too many

Where input waits for its time (sync-filter), the cut is always a time.  If watermarks allow no cut, the unit has one
batch.

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
    """The target duration of units, and how fast units may grow.

    The cost of a row is known from earlier units.  A key that becomes frequent makes rows cost more from unit to unit.
    So a unit has at most `growth` times the rows of the last one, priced as if rows had `growth` times the pairs.
    """

    turn_seconds: float = 2.0
    """Target for all units of one turn: results are delivered at its end."""
    least_seconds: float = 0.5
    """Target for the unit of one group if there are many: a shorter unit would be mostly job overhead."""
    growth: float = 2.0
    first_rows: int = 10_000
    """Rows that a unit may always join, however few the last unit had."""

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
        waiting = [
            max(segment.min_t, cursor.below) for segment in _from(ledger, log.id, cursor.batches[number])
        ]
        known = None if mark is None else min([mark, *waiting])
        marks.append(max((time for time in (known, before) if time is not None), default=None))
    return cursor, tuple(marks)


def furthest(group: Group, ledger: Ledger, groups: Sequence[Group]) -> Station:
    """Return the farthest station of several groups over the same logs."""
    states = [ledger.groups[group.id] for group in groups]
    cursors = [state.all_stations[-1][0] for state in states]
    if len(set(cursors)) == 1:
        return states[0].all_stations[-1]
    batches = tuple(max(numbers) for numbers in zip(*(cursor.batches for cursor in cursors), strict=True))
    cursor = cursors[0]._replace(batches=batches, below=max(cursor.below for cursor in cursors))
    return station_at(group, ledger, cursor, ledger.groups[group.id].all_stations[-1][1])


def within(goal: Station, group: Group, ledger: Ledger, most_rows: int) -> Station:
    """Return the goal, or a nearer station if more rows wait before it."""
    here, passed = ledger.groups[group.id].all_stations[-1]
    parts = [
        joined_between(ledger.segments(log.id), number, here, goal[0])
        for number, log in enumerate(group.logs)
    ]
    rows = sum(
        segment.segment.rows_between(segment.min_t, segment.max_t) for some in parts for segment in some
    )
    if rows <= most_rows or goal[0].sorters or here.sorters:
        return goal
    waiting = [[segment.segment for segment in some] for some in parts]
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
        rows += sum(batch.rows for batch in waiting[number] if batch.last == last)
        if rows > most_rows:
            break
        reached[number] = max(reached[number], last + 1)
    return None if tuple(reached) == here.batches else goal._replace(batches=tuple(reached))


def _first_batch(here: Cursor, goal: Cursor, waiting: Sequence[Sequence[Segment]]) -> Cursor:
    """Advance by one batch, however many rows it has."""
    _, last, number = _batches(waiting)[0]
    batches = (last + 1 if place == number else batch for place, batch in enumerate(here.batches))
    return here._replace(batches=tuple(batches)) if goal.below == here.below else goal


def _batches(waiting: Sequence[Sequence[Segment]]) -> list[tuple[float, int, int]]:
    """List the last batches of segments in order of arrival, as (arrival, batch, input)."""
    return sorted(
        {(segment.arrived, segment.last, number) for number, some in enumerate(waiting) for segment in some}
    )


def _by_time(
    here: Cursor, goal: Cursor, waiting: Sequence[Sequence[Segment]], latest: int, most_rows: int
) -> Cursor | None:
    """Advance to a time that the watermarks of all streams have passed; None if no waiting row is older than that.

    The unit joins a part of a batch, and `below` of the cursor is that time.
    """
    segments = [segment for some in waiting for segment in some]
    low, high = min(max(segment.min_t, here.below) for segment in segments) + 1, latest
    if high < low:
        return None
    while low < high:
        middle = (low + high + 1) // 2
        if sum(_rows_before(segment, here.below, middle) for segment in segments) <= most_rows:
            low = middle
        else:
            high = middle - 1
    batches = tuple(
        min([end, *(segment.first for segment in some if segment.max_t >= low)])
        for some, end in zip(waiting, goal.batches, strict=True)
    )
    return goal._replace(batches=batches, below=low)


def _rows_before(segment: Segment, since: int, until: int) -> float:
    """Estimate the rows from one time to before another, also where that is less than one row."""
    first, last = max(since, segment.min_t), min(until, segment.max_t + 1)
    return segment.rows * max(0, last - first) / (segment.max_t + 1 - segment.min_t)


def _from(ledger: Ledger, log: str, batch: int) -> list[Segment]:
    """Return the segments of a log that have this batch or a later one."""
    return [segment for segment in ledger.segments(log) if segment.last >= batch]
