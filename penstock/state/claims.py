"""What keeps a row: claims on a log.  Each says of a row whether it is still of use, and of a segment if it has ended.

A row at T that some query accepts is of use until the other stream's watermark passes ``T + reach``, where
`reach` is the longest window among the queries that accept it (`penstock.plan.group.Member.reach`)::

      T                      T + reach(q1)              T + reach(q2)
      |--------- q1 ---------|                          |
      |--------- q2 ------------------------------------|        row accepted by q1 only: goes at the first mark
                                                                 row accepted by q2 too:  goes at the second

A row goes when no claim on its log keeps it.  Windows claim rows (`WindowClaim`), of time or of rows counted, which are
looked up in time; so does a stream that retains its rows for queries to come (`RetainClaim`).  Where the partner makes
promises, a window's claim ends with them (`PromisedClaim`).  A join without a window claims the last rows that arrived,
so many as its buffer needs (`BufferClaim`).

In:  what `penstock.engine.views.needs` reads from the plan and the ledger.  Out: answers, for rows and for segments.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from penstock.kernels.sets import query_sets
from penstock.plan.links import POSITION
from penstock.state.promises import open_promises

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.kernels.key_hash import Ints
    from penstock.kernels.sets import Words
    from penstock.state.files import Files
    from penstock.state.promises import PromiseFiles
    from penstock.state.segment import PatternCount, Segment, SegmentRows

    Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]


class Claim(Protocol):
    """Somebody's claim on the rows of a log, all of one layout."""

    def live(self, rows: SegmentRows) -> Mask:
        """Say for each row of a segment whether it is still of use: exact, row by row."""

    def has_ended(self, segment: Segment) -> bool:
        """Say whether no row of a segment can be of use any more, by its statistics alone."""

    def ends_pattern(self, count: PatternCount) -> bool:
        """Say whether all rows of one pattern of a segment are of no more use."""

    def oldest_of_use(self, oldest: int) -> int:
        """Give the event time up to which no row is of use; `oldest` if all are."""


def live_rows(rows: SegmentRows, claims: Iterable[Claim]) -> Mask:
    """Say for each row of a segment whether some claim still keeps it."""
    live = np.zeros(rows.rows.t.size, np.bool_)
    for claim in claims:
        live |= claim.live(rows)
    return live


def is_ended(segment: Segment, claims: Sequence[Claim]) -> bool:
    """Say whether no claim keeps any row of a segment."""
    return all(claim.has_ended(segment) for claim in claims)


def ended_share(segment: Segment, claims: Sequence[Claim]) -> float:
    """Give the share of a segment's rows whose pattern has wholly ended, or that promises have made useless.

    Rows that end little by little, as time passes over the segment, do not count: they go with it, soon.
    """
    ended = (each.rows for each in segment.patterns if all(claim.ends_pattern(each) for claim in claims))
    return min(1.0, (sum(ended) + segment.finished) / segment.rows)


def left_share(segment: Segment, claims: Sequence[Claim]) -> float:
    """Give the share of a segment's rows that have left the buffers of all joins without a window; 0: nobody knows.

    By the times of its rows, where these are positions: nearly, and exactly of a small segment.
    """
    gone = [claim.gone for claim in claims if isinstance(claim, BufferClaim) and not claim.timed]
    if len(gone) < len(claims) or not gone or not segment.patterns:
        return 0.0
    return 1 - sum(each.rows_after(min(gone) - 1) for each in segment.patterns) / segment.rows


@dataclass(frozen=True, slots=True)
class WindowClaim:
    """One group's claim on a log: the masks and reaches of its queries, and the partner's watermark.

    `watermark` is None while the partner stream has sent nothing: then everything is of use.  A row that has all bits
    of one of the `excluded` masks is another group's.
    """

    masks: tuple[int, ...]
    reaches: tuple[int, ...]
    watermark: int | None
    excluded: tuple[int, ...] = ()

    def live(self, rows: SegmentRows) -> Mask:
        """Say for each row whether a partner that some query wants with it may still come."""
        reaches, accepted = self.reach_table(rows.table)
        t, pattern = rows.rows.t, rows.rows.pattern
        ends = (_BEFORE_ALL_TIMES if self.watermark is None else self.watermark) - reaches
        if pattern is None:
            return t > ends[0] if accepted[0] else np.zeros(t.size, np.bool_)
        return accepted[pattern] & (t > ends[pattern])

    def has_ended(self, segment: Segment) -> bool:
        """Say whether no partner of any row of a segment may still come."""
        if segment.patterns:
            return all(map(self.ends_pattern, segment.patterns))
        reach = max(self.reaches, default=0)
        return self.watermark is not None and segment.max_t + reach <= self.watermark

    def ends_pattern(self, count: PatternCount) -> bool:
        """Say whether no partner of any row of a pattern may still come."""
        end = self.ended_before(count.bits)
        return end is None or count.max_t <= end

    def oldest_of_use(self, oldest: int) -> int:
        """Give the event time up to which every row is out of reach of all partners to come."""
        return oldest if self.watermark is None else self.watermark - max(self.reaches, default=0)

    def reach(self, bits: int) -> int | None:
        """Say how long this group needs a row with these predicate bits; None if no query accepts it."""
        if any(bits & mask == mask for mask in self.excluded):
            return None
        accepted = (far for mask, far in zip(self.masks, self.reaches, strict=True) if bits & mask == mask)
        return max(accepted, default=None)

    def ended_before(self, bits: int) -> int | None:
        """Give the event time up to which rows with these bits are of no more use; None for all of them."""
        far = self.reach(bits)
        if far is None:
            return None
        return _BEFORE_ALL_TIMES if self.watermark is None else self.watermark - far

    def reach_table(self, table: Words) -> tuple[Ints, Mask]:
        """For each pattern of a segment: how long it is needed, and whether any query accepts it."""
        sets = query_sets(table, self.masks, self.excluded)
        far = np.zeros(len(table), np.int64)
        accepted = np.zeros(len(table), np.bool_)
        for number in np.argsort(np.array(self.reaches)):
            accepts = (sets[:, number // 64] >> np.uint64(number % 64)) & np.uint64(1) != 0
            far[accepts] = self.reaches[number]
            accepted |= accepts
        return far, accepted


@dataclass(frozen=True, slots=True)
class RetainClaim:
    """A stream's own claim on its rows: all of them, for so long behind its watermark (None: it has sent nothing)."""

    span: int
    watermark: int | None

    @property
    def _end(self) -> int:
        return _BEFORE_ALL_TIMES if self.watermark is None else self.watermark - self.span

    def live(self, rows: SegmentRows) -> Mask:
        """Say for each row whether it is younger than the stream retains."""
        return rows.rows.t > self._end

    def has_ended(self, segment: Segment) -> bool:
        """Say whether all of a segment is older than the stream retains."""
        return segment.max_t <= self._end

    def ends_pattern(self, count: PatternCount) -> bool:
        """Say whether all rows of a pattern are older than the stream retains."""
        return count.max_t <= self._end

    def oldest_of_use(self, oldest: int) -> int:
        """Give the event time up to which rows are not retained."""
        return oldest if self.watermark is None else self._end


@dataclass(frozen=True, slots=True)
class PromisedClaim:
    """One group's claim on a log whose partner makes promises: a row that the partner is done with is of no use.

    A promise takes effect when the partner's watermark, at the group's cursor, has passed its p: then every partner of
    the row is in the log, and joined.
    """

    window: WindowClaim
    partner: str
    known: PromiseFiles
    files: Files

    def live(self, rows: SegmentRows) -> Mask:
        """Say for each row whether a partner may still come, by its window and by what is promised."""
        live = self.window.live(rows)
        if self.window.watermark is None or not live.any():
            return live
        least = open_promises(self.files, self.known).earliest(rows.rows.h, rows.keys())
        return live & (least >= self.window.watermark)

    def has_ended(self, segment: Segment) -> bool:
        """Say whether no partner of any row of a segment may still come."""
        return self.is_finished(segment) or self.window.has_ended(segment)

    def is_finished(self, segment: Segment) -> bool:
        """Say whether promises that were there before a segment have ended the use of all its rows."""
        ends = dict(segment.ends).get(self.partner)
        return ends is not None and self.window.watermark is not None and ends < self.window.watermark

    def ends_pattern(self, count: PatternCount) -> bool:
        """Say whether all rows of a pattern are out of reach of all partners to come."""
        return self.window.ends_pattern(count)

    def oldest_of_use(self, oldest: int) -> int:
        """Give the event time up to which every row is out of reach of all partners to come."""
        return self.window.oldest_of_use(oldest)


@dataclass(frozen=True, slots=True)
class BufferClaim:
    """A claim of a join without a window: the rows that arrived last, all but the first `gone` of their stream.

    `window` says which rows its queries accept at all.  Where the stream has no event time, the time of a row is its
    position; else positions are stored beside times (`timed`), and rows that have none are not the join's.
    """

    window: WindowClaim
    gone: int
    timed: bool

    def live(self, rows: SegmentRows) -> Mask:
        """Say for each row whether it is accepted, and among the last."""
        if not self.timed:
            return self.window.live(rows) & (rows.rows.t >= self.gone)
        if not rows.has(POSITION):
            return np.zeros(rows.rows.t.size, np.bool_)
        arrived: Mask = rows.column(POSITION).to_numpy() >= self.gone
        return self.window.live(rows) & arrived

    def has_ended(self, segment: Segment) -> bool:
        """Say whether no row of a segment is accepted, or all have left the buffer."""
        newest = segment.newest if self.timed else segment.max_t
        return newest is None or newest < self.gone or self.window.has_ended(segment)

    def ends_pattern(self, count: PatternCount) -> bool:
        """Say whether no row of a pattern is accepted, or all have left the buffer."""
        return self.window.ends_pattern(count) or (not self.timed and count.max_t < self.gone)

    def oldest_of_use(self, oldest: int) -> int:
        """Give the event time up to which no row is of use."""
        return oldest if self.timed else self.gone - 1


def by_window(claim: Claim) -> Claim:
    """Give a claim as it would be without promises."""
    return claim.window if isinstance(claim, PromisedClaim) else claim


_BEFORE_ALL_TIMES = -(1 << 62)
