"""Rewrite segments into one that holds only the rows still of use.

In:  neighbouring segments of one log, each sorted by ``(h, t)``.  Out: one segment of the next generation, or None
when nothing is left.  No row of use is lost and none is written twice: the batches covered stay the same.  Segments of
several layouts become one of the layout that holds what they have in common (`penstock.log.relayout.Common`).
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import numpy as np

from penstock.join.sorting import merge_runs
from penstock.log.claims import live_rows
from penstock.log.segment import concat_segments, read_segment, write_ordered

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.log.claims import Claim
    from penstock.log.files import Files
    from penstock.log.relayout import Common
    from penstock.log.segment import Segment


def rewrite_segments(
    files: Files,
    log: str,
    segments: Sequence[Segment],
    claims: Sequence[Claim],
    common: Common | None = None,
) -> Segment | None:
    """Merge segments, leaving out the rows that no group needs any more, and what only some layouts have."""
    parts = [read_segment(files, each) for each in segments]
    own = [common.claims[each.layout] if common else claims for each in segments]
    live = np.concatenate(
        [live_rows(part, claims_on_part) for part, claims_on_part in zip(parts, own, strict=True)]
    )
    if common:
        parts = [common.of(part, each.layout) for part, each in zip(parts, segments, strict=True)]
    content = concat_segments(parts)
    starts = np.concatenate(([0], np.cumsum([part.rows.t.size for part in parts])))
    order = merge_runs(content.h, content.t, starts)
    order = order[live[order]]
    if not order.size:
        return None
    first = min(each.first for each in segments)
    last = max(each.last for each in segments)
    generation = segments[0].generation + (1 if len(segments) > 1 else 0)
    name = f"log/{log}/{first:010d}-{uuid.uuid4().hex}.arrow"
    layout = common.layout if common else segments[0].layout
    return write_ordered(
        files, name, content, order, first=first, last=last, generation=generation, layout=layout
    )
