"""Retention: which segments to rewrite as the claims on their rows end (`penstock.state.claims`).

A rewrite leaves out rows that are no longer needed.  A segment without a needed row is removed as a whole, by its
statistics alone, so also if its keys never occur again.

Segments are rewritten for two reasons, each of which bounds a cost:

* Neighbours of one generation are merged into one of the next, if there are enough of them, or if they fill the time
  span of one segment.  So a probe visits O(log batches) segments.
* A segment is thinned if most of its rows have patterns that have ended.  So the stored rows are within a constant
  factor of the needed rows.

In:  the segments of a log, and the claims on them.  Out: the runs of segments, each to be rewritten as one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock import limits
from penstock.plan.cost import THIN_SHARE
from penstock.state.claims import ended_share, left_share

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from penstock.state.claims import Claim
    from penstock.state.segment import Segment


def choose_rewrites(
    segments: Sequence[Segment],
    claims: Sequence[Claim],
    passed: int,
    by_layout: Mapping[int, Sequence[Claim]] | None = None,
    *,
    tight: bool = False,
) -> list[tuple[Segment, ...]]:
    """Choose runs of neighbours to merge, and single segments to thin.

    Only segments whose batches every slice has `passed` are rewritten, so no cursor points into one.  A segment whose
    rows all end by promises is left alone: it is removed soon.  `by_layout` has the claims by layout, where segments of
    several layouts are merged.  If memory is `tight`, segments are thinned sooner.
    """
    own = by_layout or {}
    if tight:
        thinned = [
            segment
            for segment in segments
            if _is_loose(segment, own.get(segment.layout, claims)) and segment.last < passed
        ]
        rest = [segment for segment in segments if segment not in thinned]
        return [*((segment,) for segment in thinned), *choose_rewrites(rest, claims, passed, by_layout)]
    settled = sorted(
        (segment for segment in segments if segment.last < passed and not segment.ends),
        key=lambda segment: (segment.first, segment.name),
    )
    widest = _kept_time(settled, claims) // limits.RETENTION_TIME_PARTS
    chosen: list[tuple[Segment, ...]] = []
    run: list[Segment] = []
    for segment in settled:
        if run and not _may_join(run, segment, widest):
            chosen += [tuple(run)] if _is_full(run, segment, widest) else _thin(run, claims, own)
            run = []
        run.append(segment)
        if len(run) == limits.MERGE_FAN_IN:
            chosen.append(tuple(run))
            run = []
    return chosen + _thin(run, claims, own)


def _is_loose(segment: Segment, claims: Sequence[Claim]) -> bool:
    """Return whether enough rows of a segment have left all buffers to thin it."""
    return not segment.ends and left_share(segment, claims) >= limits.MIN_LOOSE_SHARE


def _kept_time(segments: Sequence[Segment], claims: Iterable[Claim]) -> int:
    """Return the time between the newest row and the oldest that may be needed.

    For streams in order and in step that is the longest window; more if the partner is behind or allows late rows::

        oldest of use        watermark of the partner        newest
        |------ reach -------|------ lateness, lag ----------|
    """
    if not segments:
        return 0
    newest, oldest = max(segment.max_t for segment in segments), min(segment.min_t for segment in segments)
    ends = [claim.oldest_of_use(oldest) for claim in claims]
    return max(0, newest - min(ends, default=newest))


def _may_join(run: Sequence[Segment], segment: Segment, widest: int) -> bool:
    """Return whether a segment can be merged with those before it: of one generation, with similar maximum times.

    Minimum times do not matter: late rows end before their segment.
    """
    all_of_them = (*run, segment)
    ends = [other.max_t for other in all_of_them]
    small = sum(other.bytes for other in all_of_them) <= limits.MAX_MERGED_SEGMENT_BYTES
    return small and segment.generation == run[0].generation and max(ends) - min(ends) <= widest


def _is_full(run: Sequence[Segment], segment: Segment, widest: int) -> bool:
    """Return whether neighbours fill the time span of one segment, and the next one is beyond it.

    If a window is only some dozens of batches long, few batches fit in a span; they are merged all the same.
    """
    beyond = segment.max_t - min(other.max_t for other in run) > widest
    return len(run) >= limits.MIN_SEGMENTS_PER_MERGE and beyond and segment.generation == run[0].generation


def _thin(
    segments: Sequence[Segment], claims: Sequence[Claim], by_layout: Mapping[int, Sequence[Claim]]
) -> list[tuple[Segment, ...]]:
    """Choose the segments of which most rows have ended."""
    return [
        (segment,)
        for segment in segments
        if ended_share(segment, by_layout.get(segment.layout, claims)) >= THIN_SHARE
    ]
