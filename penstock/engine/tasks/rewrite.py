"""Write segments anew: merged, without the rows that no group needs, or under a new layout.

Segments of several layouts become one of their common layout (`penstock.state.relayout.CommonLayout`).  A new layout
has the predicate bits of a new query, so that its backfill can use the segment.  A predicate on a column that is not
stored cannot be evaluated; its query begins with the rows to come.

In:  neighbouring segments of one log, each sorted by ``(h, t)``, or one segment and the values of new predicates.
Out: one segment for the same batches; none if no row is left.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.kernels.sorting import merge_runs
from penstock.kernels.width import bounded
from penstock.plan.links import is_link_column
from penstock.sql.query import RESERVED
from penstock.state.claims import PromisedClaim, by_window, live_rows
from penstock.state.relayout import BitMeaning, relayout_segment
from penstock.state.segment import Segment, concat_segments, read_segment, write_ordered

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.plan.stored import LogPlan
    from penstock.sql.query import Stream
    from penstock.state.claims import Claim
    from penstock.state.files import Files
    from penstock.state.relayout import CommonLayout
    from penstock.state.segment import SegmentRows
    from penstock.state.values import Layout

ROW = f"{RESERVED}n"
"""A column that is never null: it guards the predicates."""


# --- merged -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RewrittenRun:
    """The segment that replaces some others, None if no row was left.

    `finished` counts the rows that were removed by promises before their window; `newest` is the newest of them.
    """

    segment: Segment | None
    finished: int = 0
    newest: int | None = None


@dataclass(frozen=True, slots=True)
class RewriteTask:
    """Merges neighbouring segments, without rows that no group needs and columns that some layouts lack."""

    log: str
    segments: tuple[Segment, ...]
    claims: tuple[Claim, ...]
    common: CommonLayout | None = None

    def run(self, files: Files) -> RewrittenRun:
        """Write the segment."""
        parts = [read_segment(files, segment) for segment in self.segments]
        layouts = [segment.layout for segment in self.segments]
        claims = [self.common.claims[layout] if self.common else self.claims for layout in layouts]
        live = np.concatenate([live_rows(part, own) for part, own in zip(parts, claims, strict=True)])
        finished = [finished_rows(part, own) for part, own in zip(parts, claims, strict=True)]
        count = sum(rows for rows, _ in finished)
        newest = max((time for _, time in finished if time is not None), default=None)
        if self.common:
            parts = [self.common.of(part, layout) for part, layout in zip(parts, layouts, strict=True)]
        content = concat_segments(parts)
        starts = np.concatenate(([0], np.cumsum([part.rows.t.size for part in parts])))
        order = merge_runs(content.h, content.t, starts)
        order = order[live[order]]
        if not order.size:
            return RewrittenRun(None, count, newest)
        first = min(segment.first for segment in self.segments)
        segment = write_ordered(
            files,
            f"log/{self.log}/{first:010d}-{uuid.uuid4().hex}.arrow",
            content,
            order,
            first=first,
            last=max(segment.last for segment in self.segments),
            generation=self.segments[0].generation + (1 if len(self.segments) > 1 else 0),
            layout=self.common.layout if self.common else layouts[0],
        )
        return RewrittenRun(segment, count, newest)


@dataclass(frozen=True, slots=True)
class FinishedTask:
    """Counts the rows of a segment that are not needed any more because of promises."""

    segment: Segment
    claims: tuple[Claim, ...]

    def run(self, files: Files) -> RewrittenRun:
        """Count the rows; the segment stays as it is."""
        return RewrittenRun(self.segment, *finished_rows(read_segment(files, self.segment), self.claims))


def finished_rows(rows: SegmentRows, claims: Sequence[Claim]) -> tuple[int, int | None]:
    """Count the rows that windows need and promises do not, and return the time of the newest."""
    if not any(isinstance(claim, PromisedClaim) for claim in claims):
        return 0, None
    finished = live_rows(rows, map(by_window, claims)) & ~live_rows(rows, claims)
    return int(finished.sum()), int(rows.rows.t[finished].max()) if finished.any() else None


# --- under a new layout -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Upgrade:
    """Segments of an old layout of a log, and the layout to write them under."""

    stream: Stream
    log: LogPlan
    old: Layout
    segments: Sequence[Segment]
    layout: int

    def tasks(self) -> list[UpgradeTask]:
        """Return one task for each segment."""
        return [UpgradeTask(self.log, self.old, self.layout, segment.bare()) for segment in self.segments]


@dataclass(frozen=True, slots=True)
class UpgradeTask:
    """Writes one segment under a new layout, with the bits of the new predicates."""

    log: LogPlan
    old: Layout
    layout: int
    segment: Segment

    def rows(self, files: Files) -> Iterator[pa.RecordBatch]:
        """Read the columns that predicates are evaluated on."""
        columns = [name for name in self.old.columns if not is_link_column(name)]
        stored = read_segment(files, self.segment)
        rows = pa.array(np.zeros(stored.rows.t.size, np.int32))
        arrays = [rows, *(stored.column(name) for name in columns)]
        return bounded([pa.RecordBatch.from_arrays(arrays, [ROW, *columns])])

    def finish(self, files: Files, rows: Iterator[pa.RecordBatch]) -> Segment:
        """Write the segment; the values of the predicates are in columns ``p0 p1 …``."""
        table = pa.Table.from_batches(list(rows))
        answers = {
            predicate: pc.fill_null(table.column(f"p{number}"), fill_value=False).to_numpy()
            for number, predicate in enumerate(new_predicates(self.log, self.old))
        }
        meaning = BitMeaning(self.old.predicates, self.log.predicates, self.layout)
        return relayout_segment(files, self.log.id, self.segment, meaning, answers)


def new_predicates(log: LogPlan, old: Layout) -> list[str]:
    """List the predicates that an old layout has no bits for."""
    return [predicate for predicate in log.predicates if predicate not in old.predicates]
