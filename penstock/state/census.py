"""Count the needed rows by slice, from the statistics of segments: the state in the sense of the papers.

A left row is in the slice of age ``a`` if the right stream's watermark is ``a`` beyond it, and some query of this slice
or a later one accepts it.  So each row is in one slice or in none::

    watermark of the partner                              W
    row at T                     T ------ age = W - T ----|
    slices                       ...  [10, 60)  |  [0, 10)

Rows younger than the watermark (the partner stream is behind) are in the youngest slice.

No file is opened.  The statistics have event times at even ranks of each pattern's rows (`PatternCount.times`), so the
count is exact for small segments, and else an estimate.  The patterns of a segment with too many of them are estimated
from the recent input of its log.

In:  the segments of a log and one group's claim on it.  Out: how many rows each slice of that side holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.state.segment import PatternCount

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.kernels.key_hash import Ints
    from penstock.state.claims import WindowClaim
    from penstock.state.recent import Traffic
    from penstock.state.segment import Segment


def rows_per_slice(
    segments: Iterable[Segment], claim: WindowClaim, ends: Sequence[int], traffic: Traffic | None = None
) -> Ints:
    """Count a side's needed rows by slice; `ends` are the far ends of the slices' ages.

    An end that is not known yet (of a new number of rows) is at most the next known one; rows that are kept to be safe
    are in the last slice.
    """
    counts = np.zeros(len(ends))
    bounds = np.minimum.accumulate(np.asarray(ends)[::-1])[::-1]
    for segment in segments:
        of_use = 1 - segment.finished / segment.rows
        for pattern, reach in _kept(segment, claim, traffic):
            counts += _pattern_rows(pattern, claim.watermark, reach, bounds) * of_use
    return np.diff(np.rint(np.cumsum(counts)), prepend=0).astype(np.int64)


def _kept(segment: Segment, claim: WindowClaim, traffic: Traffic | None) -> list[tuple[PatternCount, int]]:
    """List the patterns of a segment that a query accepts, and how long each is needed."""
    patterns = segment.patterns or _likely(segment, traffic)
    if not patterns:
        everything = PatternCount(0, segment.rows, segment.min_t, segment.max_t)
        return [(everything, max(claim.reaches))] if claim.reaches else []
    reaches = ((pattern, claim.reach(pattern.bits)) for pattern in patterns)
    return [(pair, reach) for pair, reach in reaches if reach is not None]


def _likely(segment: Segment, traffic: Traffic | None) -> tuple[PatternCount, ...]:
    """Divide a segment's rows among the recent patterns of its log's input, if the layout is the same."""
    if traffic is None or traffic.layout != segment.layout:
        return ()
    total = sum(rows for _, rows in traffic.patterns)
    return tuple(
        PatternCount(bits, round(segment.rows * rows / total), segment.min_t, segment.max_t)
        for bits, rows in traffic.patterns
        if total
    )


def _pattern_rows(
    pattern: PatternCount, watermark: int | None, reach: int, bounds: Ints
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    counts = np.zeros(len(bounds))
    if watermark is None:
        counts[0] = pattern.rows
        return counts
    # a row of age a is in the first slice that ends beyond a: rows younger than each bound, less those counted before
    live = pattern.rows_after(watermark - reach)
    younger = [min(live, pattern.rows_after(watermark - int(bound))) for bound in bounds[:-1]]
    counts[:] = np.diff([0.0, *younger, live])
    return counts
