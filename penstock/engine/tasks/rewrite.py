"""Rewrite segments into one that holds only the rows still of use.

In:  neighbouring segments of one log, each sorted by ``(h, t)``.  Out: one segment of the next generation, or none
when nothing is left.  No row of use is lost and none is written twice: the batches covered stay the same.  Segments of
several layouts become one of the layout that holds what they have in common (`penstock.state.relayout.Common`).
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from penstock.kernels.sorting import merge_runs
from penstock.state.claims import PromisedClaim, by_window, live_rows
from penstock.state.segment import Segment, concat_segments, read_segment, write_ordered

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.state.claims import Claim
    from penstock.state.files import Files
    from penstock.state.relayout import Common
    from penstock.state.segment import SegmentRows


@dataclass(frozen=True, slots=True)
class RewrittenRun:
    """What became of some segments: the one that takes their place, None if no row was left.

    `finished` counts the rows that went because of promises and not by their window; `newest` is the newest of them.
    """

    segment: Segment | None
    finished: int = 0
    newest: int | None = None


@dataclass(frozen=True, slots=True)
class RewriteTask:
    """Makes one segment of a run of segments, of the rows that are still of use."""

    log: str
    segments: tuple[Segment, ...]
    claims: tuple[Claim, ...]
    common: Common | None = None

    def run(self, files: Files) -> RewrittenRun:
        """Write the segment."""
        return rewrite_segments(files, self.log, self.segments, self.claims, self.common)


@dataclass(frozen=True, slots=True)
class FinishedTask:
    """Counts the rows of a segment that promises have made useless."""

    segment: Segment
    claims: tuple[Claim, ...]

    def run(self, files: Files) -> RewrittenRun:
        """Count the rows; the segment stays as it is."""
        return RewrittenRun(self.segment, *finished_rows(read_segment(files, self.segment), self.claims))


def rewrite_segments(
    files: Files,
    log: str,
    segments: Sequence[Segment],
    claims: Sequence[Claim],
    common: Common | None = None,
) -> RewrittenRun:
    """Merge segments, leaving out the rows that no group needs any more, and what only some layouts have."""
    parts = [read_segment(files, each) for each in segments]
    own = [common.claims[each.layout] if common else claims for each in segments]
    live = np.concatenate(
        [live_rows(part, claims_on_part) for part, claims_on_part in zip(parts, own, strict=True)]
    )
    finished = [finished_rows(part, each) for part, each in zip(parts, own, strict=True)]
    gone = (
        sum(count for count, _ in finished),
        max((each for _, each in finished if each is not None), default=None),
    )
    if common:
        parts = [common.of(part, each.layout) for part, each in zip(parts, segments, strict=True)]
    content = concat_segments(parts)
    starts = np.concatenate(([0], np.cumsum([part.rows.t.size for part in parts])))
    order = merge_runs(content.h, content.t, starts)
    order = order[live[order]]
    if not order.size:
        return RewrittenRun(None, *gone)
    first = min(each.first for each in segments)
    last = max(each.last for each in segments)
    generation = segments[0].generation + (1 if len(segments) > 1 else 0)
    name = f"log/{log}/{first:010d}-{uuid.uuid4().hex}.arrow"
    layout = common.layout if common else segments[0].layout
    made = write_ordered(
        files, name, content, order, first=first, last=last, generation=generation, layout=layout
    )
    return RewrittenRun(made, *gone)


def finished_rows(rows: SegmentRows, claims: Sequence[Claim]) -> tuple[int, int | None]:
    """Count the rows that are of use by their windows and by no promise any more, and give the newest's time."""
    if not any(isinstance(each, PromisedClaim) for each in claims):
        return 0, None
    finished = live_rows(rows, map(by_window, claims)) & ~live_rows(rows, claims)
    return int(finished.sum()), int(rows.rows.t[finished].max()) if finished.any() else None
