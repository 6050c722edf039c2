"""Segments under a new layout: a new query's predicates are answered for the rows held, so that it can have their past.

A predicate on a column that nobody stored has no answer, and its query begins with the rows to come.

In:  the logs that a new plan stores differently, and the answers to the new predicates.
Out: the same segments under the new layout.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.kernels.width import bounded
from penstock.plan.links import is_link_column
from penstock.sql.query import RESERVED
from penstock.state.relayout import Meaning, relayout_segment
from penstock.state.segment import read_segment

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.plan.stored import LogPlan
    from penstock.sql.query import Stream
    from penstock.state.files import Files
    from penstock.state.segment import Segment
    from penstock.state.values import Layout

ROW = f"{RESERVED}n"
"""A column beside those that are stored, which no row lacks: predicates are guarded by it."""


@dataclass(frozen=True, slots=True)
class Upgrade:
    """Some segments of an old layout of a log, to be written under its new layout and its number."""

    stream: Stream
    log: LogPlan
    old: Layout
    segments: Sequence[Segment]
    layout: int

    def tasks(self) -> list[UpgradeTask]:
        """Return one task for each segment."""
        return [UpgradeTask(self.log, self.old, self.layout, each.bare()) for each in self.segments]


@dataclass(frozen=True, slots=True)
class UpgradeTask:
    """Writes one segment under a new layout, with the answers to the new predicates."""

    log: LogPlan
    old: Layout
    layout: int
    segment: Segment

    def rows(self, files: Files) -> Iterator[pa.RecordBatch]:
        """Read the columns that predicates are evaluated on."""
        columns = [each for each in self.old.columns if not is_link_column(each)]
        stored = read_segment(files, self.segment)
        rows = pa.array(np.zeros(stored.rows.t.size, np.int32))
        arrays = [rows, *(stored.column(name) for name in columns)]
        return bounded([pa.RecordBatch.from_arrays(arrays, [ROW, *columns])])

    def finish(self, files: Files, rows: Iterator[pa.RecordBatch]) -> Segment:
        """Write the segment; the answers are in columns ``p0 p1 …``."""
        table = pa.Table.from_batches(list(rows))
        answers = {
            predicate: pc.fill_null(table.column(f"p{number}"), fill_value=False).to_numpy()
            for number, predicate in enumerate(new_predicates(self.log, self.old))
        }
        meaning = Meaning(self.old.predicates, self.log.predicates, self.layout)
        return relayout_segment(files, self.log.id, self.segment, meaning, answers)


def new_predicates(log: LogPlan, old: Layout) -> list[str]:
    """List the predicates that an old layout has no answers to."""
    return [each for each in log.predicates if each not in old.predicates]
