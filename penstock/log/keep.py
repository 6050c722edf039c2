"""How long a row is of use, and so what may go: lineage, retention, and which segments to rewrite.

A row at T that some query accepts is of use until the other stream's watermark passes ``T + reach``, where
`reach` is the longest window among the queries that accept it (`penstock.plan.group.Member.reach`)::

      T                      T + reach(q1)              T + reach(q2)
      |--------- q1 ---------|                          |
      |--------- q2 ------------------------------------|        row accepted by q1 only: goes at the first mark
                                                                 row accepted by q2 too:  goes at the second

Rows whose use has ended are left out when their segment is rewritten, and a segment goes as a whole when its last
row's use has ended: by time alone, so also when its key is never seen again.

Segments are rewritten for two reasons only, each bounding a cost:

* `FAN` neighbours of one generation become one of the next, or `FEW` and more if they fill the time that one segment
  may span: a probe visits O(log batches) segments;
* a segment most of whose rows are of patterns that have ended is thinned: the rows stored stay within a factor of
  the rows of use.

In:  the segments of a log, the plan, and how far the other streams' watermarks are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from penstock.join.sets import query_sets
from penstock.plan.cost import THIN

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from penstock.join.keys import Ints
    from penstock.join.sets import Words
    from penstock.log.segment import PatternCount, Segment, SegmentRows

FAN = 8
"""Neighbours of one generation that are merged into one of the next."""

FEW = 3
"""Neighbours that are merged at the least, where more would span too much time."""

SHARES = 8
"""Segments become one only if they end within this share of the time that rows are kept, so that what has ended is
never a large part of what is stored."""

MOST_BYTES = 256 << 20
"""A merged segment has about this size at the most, so that merging it fits in a worker's memory."""


@dataclass(frozen=True, slots=True)
class Horizon:
    """One group's claim on a log: the masks and reaches of its queries, and the partner's watermark.

    `watermark` is None while the partner stream has sent nothing: then everything is of use.  A row that has all bits
    of one of the `shunned` masks is another group's.
    """

    masks: tuple[int, ...]
    reaches: tuple[int, ...]
    watermark: int | None
    shunned: tuple[int, ...] = ()

    def reach(self, bits: int) -> int | None:
        """Say how long this group needs a row with these predicate bits; None if no query accepts it."""
        if any(bits & mask == mask for mask in self.shunned):
            return None
        accepted = (far for mask, far in zip(self.masks, self.reaches, strict=True) if bits & mask == mask)
        return max(accepted, default=None)

    def ended_before(self, bits: int) -> int | None:
        """Give the event time up to which rows with these bits are of no more use; None for all of them."""
        far = self.reach(bits)
        if far is None:
            return None
        return _NEVER if self.watermark is None else self.watermark - far

    def reach_table(self, table: Words) -> tuple[Ints, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
        """For each pattern of a segment: how long it is needed, and whether any query accepts it."""
        sets = query_sets(table, self.masks, self.shunned)
        far = np.zeros(len(table), np.int64)
        some = np.zeros(len(table), np.bool_)
        for number in np.argsort(np.array(self.reaches)):
            mine = (sets[:, number // 64] >> np.uint64(number % 64)) & np.uint64(1) != 0
            far[mine] = self.reaches[number]
            some |= mine
        return far, some


_NEVER = -(1 << 62)


def live_rows(rows: SegmentRows, claims: Iterable[Horizon]) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Say for each row of a segment whether some group still needs it: exact, row by row."""
    t = rows.rows.t
    live = np.zeros(t.size, np.bool_)
    for claim in claims:
        far, some = claim.reach_table(rows.table)
        end = _NEVER if claim.watermark is None else claim.watermark
        if rows.rows.pattern is None:
            if some[0]:
                live |= t > end - far[0]
        else:
            live |= some[rows.rows.pattern] & (t > (end - far)[rows.rows.pattern])
    return live


def is_ended(segment: Segment, claims: Sequence[Horizon]) -> bool:
    """Say whether no row of a segment can be of use any more, by its statistics alone."""
    if not segment.patterns:
        reach = max((far for claim in claims for far in claim.reaches), default=0)
        return all(c.watermark is not None and segment.max_t + reach <= c.watermark for c in claims)
    return all(_has_ended(count, claims) for count in segment.patterns)


def ended_share(segment: Segment, claims: Sequence[Horizon]) -> float:
    """Give the share of a segment's rows whose pattern has wholly ended.

    Rows that end little by little, as time passes over the segment, do not count: they go with it, soon.
    """
    return sum(count.rows for count in segment.patterns if _has_ended(count, claims)) / segment.rows


def _has_ended(count: PatternCount, claims: Iterable[Horizon]) -> bool:
    """Say whether all rows of one pattern are of no more use to any group."""
    ends = (claim.ended_before(count.bits) for claim in claims)
    return all(end is None or count.max_t <= end for end in ends)


def choose_rewrites(
    segments: Sequence[Segment],
    claims: Sequence[Horizon],
    passed: int,
    by_layout: Mapping[int, Sequence[Horizon]] | None = None,
) -> list[tuple[Segment, ...]]:
    """Choose which segments to rewrite into one: runs of neighbours to merge, single ones to thin.

    Only segments whose batches every slice has `passed` are touched, so no cursor points into one.  Where segments of
    several layouts are merged, their bits mean different things, and so do the claims on them: `by_layout`.
    """
    own = by_layout or {}
    settled = sorted(
        (each for each in segments if each.last < passed), key=lambda each: (each.first, each.name)
    )
    widest = _kept_time(settled, claims) // SHARES
    chosen: list[tuple[Segment, ...]] = []
    run: list[Segment] = []
    for segment in settled:
        if run and not _may_join(run, segment, widest):
            chosen += [tuple(run)] if _is_full(run, segment, widest) else _thin(run, claims, own)
            run = []
        run.append(segment)
        if len(run) == FAN:
            chosen.append(tuple(run))
            run = []
    return chosen + _thin(run, claims, own)


def _kept_time(segments: Sequence[Segment], claims: Iterable[Horizon]) -> int:
    """Say how much time lies between the newest row and the oldest that may be of use.

    In order and in step that is the longest window.  It is more while the partner is behind or lets rows be late::

        oldest of use        watermark of the partner        newest
        |------ reach -------|------ lateness, lag ----------|
    """
    if not segments:
        return 0
    newest, oldest = max(each.max_t for each in segments), min(each.min_t for each in segments)
    ends = [
        oldest if claim.watermark is None else claim.watermark - max(claim.reaches, default=0)
        for claim in claims
    ]
    return max(0, newest - min(ends, default=newest))


def _may_join(run: Sequence[Segment], segment: Segment, widest: int) -> bool:
    """Say whether a segment can be merged with those before it: same generation, and ending at about the same time.

    How far back each reaches does not matter: rows that came late end before the segment they are in.
    """
    all_of_them = (*run, segment)
    ends = [each.max_t for each in all_of_them]
    small = sum(each.bytes for each in all_of_them) <= MOST_BYTES
    return small and segment.generation == run[0].generation and max(ends) - min(ends) <= widest


def _is_full(run: Sequence[Segment], segment: Segment, widest: int) -> bool:
    """Say whether some neighbours fill the time that one segment may span, the next one being beyond it.

    Few batches fit where a window is some dozens of them long; still a probe should not visit each by itself.
    """
    beyond = segment.max_t - min(each.max_t for each in run) > widest
    return len(run) >= FEW and beyond and segment.generation == run[0].generation


def _thin(
    segments: Sequence[Segment], claims: Sequence[Horizon], by_layout: Mapping[int, Sequence[Horizon]]
) -> list[tuple[Segment, ...]]:
    """Choose the segments of which most rows have ended."""
    return [(each,) for each in segments if ended_share(each, by_layout.get(each.layout, claims)) >= THIN]
