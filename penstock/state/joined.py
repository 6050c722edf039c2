"""The rows of a log that a cursor has joined, and those between two cursors.

A cursor has the number of a batch, and further rows that were joined out of turn: those older than a time, or, if rows
are sorted before the join, those up to a value of the join's attribute::

    batches       |  a3  |  a4  |  a5  |  a6  |           cursor: batches before 4, and before a6 values up to V
    values up     |######|##### |####  |      |           a6 is new: no row of it is joined yet
    to V joined                        ^ sorter's `until`

In:  segments of one log, the number of its input, and cursors.
Out: parts of segments, each with a range of times and values.
Always true: the parts before a cursor, and those between it and a later one, are disjoint, and together the parts
before the later one.
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
        """Return whether the part has no rows."""
        return self.min_t > self.max_t or self.values[0] > self.values[1]


def joined_before(segments: Iterable[Segment], index: int, cursor: Cursor) -> list[SegmentPart]:
    """Return the parts of one input that a slice at a cursor has joined."""
    parts = (_joined_of(segment, index, cursor) for segment in segments)
    return [part for part in parts if not part.is_empty]


def joined_between(
    segments: Iterable[Segment], index: int, since: Cursor, until: Cursor
) -> list[SegmentPart]:
    """Return the parts of one input to join on the way from one cursor to another."""
    later = [segment for segment in segments if segment.last >= since.batches[index]]
    parts = (_rest(part, index, since) for part in joined_before(later, index, until))
    return [part for part in parts if not part.is_empty]


def has_rows_between(segment: Segment, index: int, since: Cursor, until: Cursor) -> bool:
    """Return whether some of a segment's rows are between two cursors."""
    return bool(joined_between([segment], index, since, until))


def _joined_of(segment: Segment, index: int, cursor: Cursor) -> SegmentPart:
    """Return the part of a segment that a slice at a cursor has joined."""
    if segment.last < cursor.batches[index]:
        return SegmentPart(segment, segment.min_t, segment.max_t)
    if cursor.sorters and segment.last < cursor.sorters[index].until:
        return SegmentPart(segment, segment.min_t, segment.max_t, (LOWEST, cursor.sorters[index].value))
    return SegmentPart(segment, segment.min_t, min(segment.max_t, cursor.below - 1))


def _rest(part: SegmentPart, index: int, since: Cursor) -> SegmentPart:
    """Remove the rows of a part that an earlier cursor had joined."""
    segment, first = part.segment, max(part.min_t, since.below)
    if since.sorters and segment.last < since.sorters[index].until:
        return part._replace(values=(since.sorters[index].value + 1, part.values[1]))
    return part._replace(min_t=first)
