"""Which rows of a log a cursor has joined, and which lie between two cursors.

A cursor names batches, and besides them rows that were joined out of turn: those older than a time, or, where rows
wait to be sorted, those up to a value of the attribute that the streams are joined on::

    batches       |  a3  |  a4  |  a5  |  a6  |           cursor: batches before 4, and up to a6 values up to V
    values up     |######|##### |####  |      |           a6 came since: whatever its values are, none is joined yet
    to V joined                        ^ sorter's `until`

In:  segments of one log, the number of the input that it is, and cursors.
Out: parts of segments, each with the rows of it that are meant.
True: the parts before a cursor, and those from there to the next, are the parts before the next: no row twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.kernels.ordered_values import HIGHEST, LOWEST

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.state.segment import Segment
    from penstock.state.values import Cursor

ALL_VALUES = (LOWEST, HIGHEST)


class SegmentPart(NamedTuple):
    """Rows of a segment: those between two times, and between two values of the join's attribute, both included."""

    segment: Segment
    min_t: int
    max_t: int
    values: tuple[int, int] = ALL_VALUES

    @property
    def is_empty(self) -> bool:
        """Say whether no row can be meant."""
        return self.min_t > self.max_t or self.values[0] > self.values[1]


def joined_before(segments: Iterable[Segment], index: int, cursor: Cursor) -> list[SegmentPart]:
    """Choose the segments of one input with rows that a slice at a cursor has joined, and say which rows."""
    parts = (_joined_of(each, index, cursor) for each in segments)
    return [each for each in parts if not each.is_empty]


def joined_between(
    segments: Iterable[Segment], index: int, since: Cursor, until: Cursor
) -> list[SegmentPart]:
    """Choose the segments of one input with rows to join on the way from one cursor to another, and say which rows."""
    later = [each for each in segments if each.last >= since.batches[index]]
    parts = (_rest(part, index, since) for part in joined_before(later, index, until))
    return [each for each in parts if not each.is_empty]


def has_rows_between(segment: Segment, index: int, since: Cursor, until: Cursor) -> bool:
    """Say whether some of a segment's rows lie between two cursors."""
    return bool(joined_between([segment], index, since, until))


def _joined_of(segment: Segment, index: int, cursor: Cursor) -> SegmentPart:
    """Say which rows of a segment a slice at a cursor has joined."""
    if segment.last < cursor.batches[index]:
        return SegmentPart(segment, segment.min_t, segment.max_t)
    if cursor.sorters and segment.last < cursor.sorters[index].until:
        return SegmentPart(segment, segment.min_t, segment.max_t, (LOWEST, cursor.sorters[index].value))
    return SegmentPart(segment, segment.min_t, min(segment.max_t, cursor.below - 1))


def _rest(part: SegmentPart, index: int, since: Cursor) -> SegmentPart:
    """Leave out the rows of a part that had been joined at a cursor before."""
    segment, first = part.segment, max(part.min_t, since.below)
    if since.sorters and segment.last < since.sorters[index].until:
        return part._replace(values=(since.sorters[index].value + 1, part.values[1]))
    return part._replace(min_t=first)
