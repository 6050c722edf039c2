"""Claims on a log: which rows are still needed, and which segments are not.

A row at T that some query accepts is needed until the other stream's watermark passes ``T + reach``, where `reach` is
the longest window of the queries that accept it (`penstock.plan.group.Member.reach`)::

      T                      T + reach(q1)              T + reach(q2)
      |--------- q1 ---------|                          |
      |--------- q2 ------------------------------------|        row accepted by q1 only: removed at the first mark
                                                                 row accepted by q2 too:  removed at the second

A row is removed when no claim on its log needs it.  There are three kinds:

* `WindowClaim`: a window of time, or of rows, whose extent in time is known; also a stream that retains its rows for
  later queries (`retain_claim`);
* `PromisedClaim`: a window that ends early because the partner makes promises;
* `BufferClaim`: the last rows to arrive, for a join without a window.

In:  the plan and the ledger, through `penstock.engine.views.needs`.  Out: answers, for rows and for segments.
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
    """A claim on the rows of a log, all of one layout."""

    def live(self, rows: SegmentRows) -> Mask:
        """Return which rows of a segment are needed, exactly."""

    def has_ended(self, segment: Segment) -> bool:
        """Return whether no row of a segment is needed, by its statistics alone."""

    def ends_pattern(self, count: PatternCount) -> bool:
        """Return whether no row of one pattern of a segment is needed."""

    def oldest_of_use(self, oldest: int) -> int:
        """Return the event time up to which no row is needed; `oldest` if all rows are."""


def live_rows(rows: SegmentRows, claims: Iterable[Claim]) -> Mask:
    """Return which rows of a segment some claim needs."""
    live = np.zeros(rows.rows.t.size, np.bool_)
    for claim in claims:
        live |= claim.live(rows)
    return live


def is_ended(segment: Segment, claims: Sequence[Claim]) -> bool:
    """Return whether no claim needs any row of a segment."""
    return all(claim.has_ended(segment) for claim in claims)


def ended_share(segment: Segment, claims: Sequence[Claim]) -> float:
    """Return the share of a segment's rows whose pattern has ended, or that promises have made useless.

    Rows of other patterns end one by one as time passes, and do not count: their segment ends soon.
    """
    ended = (
        pattern.rows for pattern in segment.patterns if all(claim.ends_pattern(pattern) for claim in claims)
    )
    return min(1.0, (sum(ended) + segment.finished) / segment.rows)


def left_share(segment: Segment, claims: Sequence[Claim]) -> float:
    """Return the share of a segment's rows that have left the buffers of all joins without a window; 0 if unknown.

    It follows from the times of rows if these are positions: exact for a small segment, else an estimate.
    """
    gone = [claim.gone for claim in claims if isinstance(claim, BufferClaim) and not claim.timed]
    if len(gone) < len(claims) or not gone or not segment.patterns:
        return 0.0
    return 1 - sum(pattern.rows_after(min(gone) - 1) for pattern in segment.patterns) / segment.rows


@dataclass(frozen=True, slots=True)
class WindowClaim:
    """One group's claim on a log: the masks and reaches of its queries, and the partner's watermark.

    `watermark` is None while the partner stream has sent nothing: then every row is needed.  A row with all bits of one
    of the `excluded` masks belongs to another group.
    """

    masks: tuple[int, ...]
    reaches: tuple[int, ...]
    watermark: int | None
    excluded: tuple[int, ...] = ()

    def live(self, rows: SegmentRows) -> Mask:
        """Return which rows have a later partner that some query accepts."""
        reaches, accepted = self.reach_table(rows.table)
        t, pattern = rows.rows.t, rows.rows.pattern
        ends = (_BEFORE_ALL_TIMES if self.watermark is None else self.watermark) - reaches
        if pattern is None:
            return t > ends[0] if accepted[0] else np.zeros(t.size, np.bool_)
        return accepted[pattern] & (t > ends[pattern])

    def has_ended(self, segment: Segment) -> bool:
        """Return whether no row of a segment has a later partner."""
        if segment.patterns:
            return all(map(self.ends_pattern, segment.patterns))
        reach = max(self.reaches, default=0)
        return self.watermark is not None and segment.max_t + reach <= self.watermark

    def ends_pattern(self, count: PatternCount) -> bool:
        """Return whether no row of a pattern has a later partner."""
        end = self.ended_before(count.bits)
        return end is None or count.max_t <= end

    def oldest_of_use(self, oldest: int) -> int:
        """Return the event time up to which no row has a later partner."""
        return oldest if self.watermark is None else self.watermark - max(self.reaches, default=0)

    def reach(self, bits: int) -> int | None:
        """Return how long this group needs a row with these predicate bits; None if no query accepts it."""
        if any(bits & mask == mask for mask in self.excluded):
            return None
        accepted = (far for mask, far in zip(self.masks, self.reaches, strict=True) if bits & mask == mask)
        return max(accepted, default=None)

    def ended_before(self, bits: int) -> int | None:
        """Return the event time up to which rows with these bits are not needed; None: none of them is needed."""
        far = self.reach(bits)
        if far is None:
            return None
        return _BEFORE_ALL_TIMES if self.watermark is None else self.watermark - far

    def reach_table(self, table: Words) -> tuple[Ints, Mask]:
        """Return, by pattern of a segment, how long it is needed, and whether a query accepts it."""
        sets = query_sets(table, self.masks, self.excluded)
        far = np.zeros(len(table), np.int64)
        accepted = np.zeros(len(table), np.bool_)
        for number in np.argsort(np.array(self.reaches)):
            accepts = (sets[:, number // 64] >> np.uint64(number % 64)) & np.uint64(1) != 0
            far[accepts] = self.reaches[number]
            accepted |= accepts
        return far, accepted


def retain_claim(span: int, watermark: int | None) -> WindowClaim:
    """Return a stream's own claim on all its rows, for a time span behind its own watermark."""
    return WindowClaim((0,), (span,), watermark)


@dataclass(frozen=True, slots=True)
class PromisedClaim:
    """One group's claim on a log whose partner makes promises: a row whose partners are all joined is not needed.

    A promise takes effect when the partner's watermark, at the group's cursor, has passed its p: then every partner of
    the row is in the log, and joined.
    """

    window: WindowClaim
    partner: str
    known: PromiseFiles
    files: Files

    def live(self, rows: SegmentRows) -> Mask:
        """Return which rows have a later partner, by their window and by promises."""
        live = self.window.live(rows)
        if self.window.watermark is None or not live.any():
            return live
        least = open_promises(self.files, self.known).earliest(rows.rows.h, rows.keys())
        return live & (least >= self.window.watermark)

    def has_ended(self, segment: Segment) -> bool:
        """Return whether no row of a segment has a later partner."""
        return self.is_finished(segment) or self.window.has_ended(segment)

    def is_finished(self, segment: Segment) -> bool:
        """Return whether promises made before a segment was written have ended the use of all its rows."""
        ends = dict(segment.ends).get(self.partner)
        return ends is not None and self.window.watermark is not None and ends < self.window.watermark

    def ends_pattern(self, count: PatternCount) -> bool:
        """Return whether no row of a pattern has a later partner."""
        return self.window.ends_pattern(count)

    def oldest_of_use(self, oldest: int) -> int:
        """Return the event time up to which no row has a later partner."""
        return self.window.oldest_of_use(oldest)


@dataclass(frozen=True, slots=True)
class BufferClaim:
    """A claim of a join without a window: the last rows to arrive, all but the first `gone` of their stream.

    `window` has the masks of the queries.  If the stream has no event time, the time of a row is its position; else
    positions are stored beside times (`timed`), and rows without one are not in the join.
    """

    window: WindowClaim
    gone: int
    timed: bool

    def live(self, rows: SegmentRows) -> Mask:
        """Return which rows are accepted, and among the last."""
        if not self.timed:
            return self.window.live(rows) & (rows.rows.t >= self.gone)
        if not rows.has(POSITION):
            return np.zeros(rows.rows.t.size, np.bool_)
        arrived: Mask = rows.column(POSITION).to_numpy() >= self.gone
        return self.window.live(rows) & arrived

    def has_ended(self, segment: Segment) -> bool:
        """Return whether no row of a segment is accepted, or all have left the buffer."""
        newest = segment.newest if self.timed else segment.max_t
        return newest is None or newest < self.gone or self.window.has_ended(segment)

    def ends_pattern(self, count: PatternCount) -> bool:
        """Return whether no row of a pattern is accepted, or all have left the buffer."""
        return self.window.ends_pattern(count) or (not self.timed and count.max_t < self.gone)

    def oldest_of_use(self, oldest: int) -> int:
        """Return the event time up to which no row is needed."""
        return oldest if self.timed else self.gone - 1


def by_window(claim: Claim) -> Claim:
    """Return a claim without its promises."""
    return claim.window if isinstance(claim, PromisedClaim) else claim


_BEFORE_ALL_TIMES = -(1 << 62)
