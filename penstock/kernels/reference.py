"""What the join means, in nested loops: every faster path is tested against this page.

A pair ``(left, right)`` is a result of a query when both rows have the same non-null key, each
satisfies the query's predicate on its own stream, and the difference of their event times lies in
the query's window; or, where windows count rows, the number of rows between them (`difference_in_rows`).
Nothing here is fast, and nothing here shares code with what is.
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
    """A row as the reference sees it: key (None for null), event time in µs, and a name to tell it by."""

    key: Hashable | None
    time: int
    name: Hashable = 0


def _always(_row: Event) -> bool:
    """Accept every row."""
    return True


def _in_time(left: Event, right: Event) -> int:
    """Give the difference of two event times."""
    return right.time - left.time


def difference_in_rows(
    left_times: Collection[int], right_times: Collection[int], rows: tuple[bool, bool] = (True, True)
) -> Callable[[Event, Event], int]:
    """Measure the difference of a pair in rows of the older row's stream, on the sides where windows count them.

    The times are those of all rows of either stream.  Rows of equal time go in and out together, so nothing depends on
    the order of arrival; at equal times the left row is the older.

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
    """Join two bags of rows in one window, counting each pair as often as it occurs.

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
    """Count the rows that a partner still to come can reach: the least state any join can hold.

    `reach(row)` is how far beyond the row's own time a partner may lie (None: no query wants the row), and
    no partner older than `watermark` (that of the other stream) will come any more.

    >>> rows_needed([Event(1, 0), Event(1, 5)], lambda row: 10, watermark=11)
    1
    """
    return sum(1 for row in rows if (far := reach(row)) is not None and row.time + far > watermark)
