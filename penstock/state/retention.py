"""Retention: which segments go, and which are rewritten, as the claims on their rows end (`penstock.state.claims`).

Rows whose use has ended are left out when their segment is rewritten, and a segment goes as a whole when its last
row's use has ended: by time alone, so also when its key is never seen again.

Segments are rewritten for two reasons only, each bounding a cost:

* neighbours of one generation become one of the next if there are enough of them, or if they fill the time that
  one segment may span: a probe visits O(log batches) segments;
* a segment most of whose rows are of patterns that have ended is thinned: the rows stored stay within a factor of
  the rows of use.

In:  the segments of a log, and the claims on them.  Out: the runs of segments to rewrite into one each.
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
    """Choose which segments to rewrite into one: runs of neighbours to merge, single ones to thin.

    Only segments whose batches every slice has `passed` are touched, so no cursor points into one.  One whose rows have
    all been promised an end goes as a whole, and soon.  Where segments of
    several layouts are merged, their bits mean different things, and so do the claims on them: `by_layout`.  Where
    memory is `tight`, segments are thinned sooner, and as rows leave buffers one by one.
    """
    own = by_layout or {}
    if tight:
        thinned = [
            each for each in segments if _is_loose(each, own.get(each.layout, claims)) and each.last < passed
        ]
        rest = [each for each in segments if each not in thinned]
        return [*((each,) for each in thinned), *choose_rewrites(rest, claims, passed, by_layout)]
    settled = sorted(
        (each for each in segments if each.last < passed and not each.ends),
        key=lambda each: (each.first, each.name),
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
    """Say whether a segment has so many rows that have left all buffers that memory calls for doing without them."""
    return not segment.ends and left_share(segment, claims) >= limits.MIN_LOOSE_SHARE


def _kept_time(segments: Sequence[Segment], claims: Iterable[Claim]) -> int:
    """Say how much time lies between the newest row and the oldest that may be of use.

    In order and in step that is the longest window.  It is more while the partner is behind or lets rows be late::

        oldest of use        watermark of the partner        newest
        |------ reach -------|------ lateness, lag ----------|
    """
    if not segments:
        return 0
    newest, oldest = max(each.max_t for each in segments), min(each.min_t for each in segments)
    ends = [claim.oldest_of_use(oldest) for claim in claims]
    return max(0, newest - min(ends, default=newest))


def _may_join(run: Sequence[Segment], segment: Segment, widest: int) -> bool:
    """Say whether a segment can be merged with those before it: same generation, and ending at about the same time.

    How far back each reaches does not matter: rows that came late end before the segment they are in.
    """
    all_of_them = (*run, segment)
    ends = [each.max_t for each in all_of_them]
    small = sum(each.bytes for each in all_of_them) <= limits.MAX_MERGED_SEGMENT_BYTES
    return small and segment.generation == run[0].generation and max(ends) - min(ends) <= widest


def _is_full(run: Sequence[Segment], segment: Segment, widest: int) -> bool:
    """Say whether some neighbours fill the time that one segment may span, the next one being beyond it.

    Few batches fit where a window is some dozens of them long; still a probe should not visit each by itself.
    """
    beyond = segment.max_t - min(each.max_t for each in run) > widest
    return len(run) >= limits.MIN_SEGMENTS_PER_MERGE and beyond and segment.generation == run[0].generation


def _thin(
    segments: Sequence[Segment], claims: Sequence[Claim], by_layout: Mapping[int, Sequence[Claim]]
) -> list[tuple[Segment, ...]]:
    """Choose the segments of which most rows have ended."""
    return [
        (each,) for each in segments if ended_share(each, by_layout.get(each.layout, claims)) >= THIN_SHARE
    ]
