"""The definition of the join as nested loops: every faster implementation is tested against it.

A pair ``(left, right)`` is a result of a query if both rows have the same non-null key, each satisfies the query's
predicate on its own stream, and the difference of their event times is in the query's window; or, where windows count
rows, the number of rows between them (`difference_in_rows`).  This module shares no code with the implementation.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterable

    from penstock.sql.query import Range


@dataclass(frozen=True, slots=True)
class Event:
    """A row of the reference: key (None for null), event time in µs, and a name."""

    key: Hashable | None
    time: int
    name: Hashable = 0


def _always(_row: Event) -> bool:
    return True


def _in_time(left: Event, right: Event) -> int:
    return right.time - left.time


def difference_in_rows(
    left_times: Collection[int], right_times: Collection[int], rows: tuple[bool, bool] = (True, True)
) -> Callable[[Event, Event], int]:
    """Return a measure of pairs in rows of the older row's stream, on the sides where windows count rows.

    The times are those of all rows of either stream.  Rows of equal time enter and leave a window together, so the
    order of arrival does not matter; at equal times the left row is the older.

    >>> measure = difference_in_rows([0, 3, 3, 8], [5, 6])
    >>> measure(Event(7, 0), Event(7, 5)), measure(Event(7, 3), Event(7, 5)), measure(Event(7, 8), Event(7, 5))
    (2, 0, -2)
    """

    def measure(left: Event, right: Event) -> int:
        if left.time <= right.time:
            later = sum(left.time < t <= right.time for t in left_times)
            return later if rows[0] else right.time - left.time
        later = sum(right.time < t <= left.time for t in right_times)
        return -1 - later if rows[1] else right.time - left.time

    return measure


def nested_loop_join(
    left: Iterable[Event],
    right: Iterable[Event],
    window: Range,
    keep_left: Callable[[Event], bool] = _always,
    keep_right: Callable[[Event], bool] = _always,
    difference: Callable[[Event, Event], int] = _in_time,
) -> Counter[tuple[Event, Event]]:
    """Join two bags of rows in one window; count each pair as often as it occurs.

    >>> from penstock.sql.query import Range
    >>> pairs = nested_loop_join([Event(7, 0)], [Event(7, 9), Event(7, 10), Event(8, 5)], Range.window(10, 10))
    >>> [(a.time, b.time) for a, b in pairs]
    [(0, 9)]
    """
    rows = list(right)
    return Counter(
        (a, b)
        for a in left
        for b in rows
        if a.key is not None and a.key == b.key
        if keep_left(a) and keep_right(b) and difference(a, b) in window
    )


def rows_needed(rows: Iterable[Event], reach: Callable[[Event], int | None], watermark: int) -> int:
    """Count the rows that may have a later partner: the minimum state of any join.

    `reach(row)` is the maximum difference between the row's time and a partner's (None: no query accepts the row).  No
    partner older than `watermark`, that of the other stream, will arrive.

    >>> rows_needed([Event(1, 0), Event(1, 5)], lambda row: 10, watermark=11)
    1
    """
    return sum(1 for row in rows if (far := reach(row)) is not None and row.time + far > watermark)
