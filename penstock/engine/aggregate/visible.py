"""The entries of a pane set that windows of some instants see.

Entries that are not folded yet are read from the first cut on.  Entries that all readers have seen are folded by pane
alone, and also by 2, 4, 8 … panes together (`penstock.state.panes`).  Between two cuts few of those are read, so the
cost of an answer does not depend on the length of its window.

In:  the tables of an `AnswerTask`.  Out: tables of entries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.engine.aggregate.answer_task import LONG_AGO
from penstock.engine.aggregate.pane_entries import ints
from penstock.state.pane_columns import some_of, together
from penstock.state.panes import ORDER, PANE, levels_for, node_of, nodes_between, rows_between

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.engine.aggregate.answer_task import AnswerTask
    from penstock.engine.aggregate.pane_entries import PaneTables
    from penstock.state.panes import PaneFile


def visible_table(
    tables: PaneTables, task: AnswerTask, number: int, cuts: Sequence[int], until: int
) -> pa.Table | None:
    """Return the entries of one table that windows of some instants see, and perhaps more."""
    runs = visible_runs(tables, task, number, cuts, until)
    return together(runs).combine_chunks() if runs else None


def visible_runs(
    tables: PaneTables, task: AnswerTask, number: int, cuts: Sequence[int], until: int
) -> list[pa.Table]:
    """Return the same, file by file; folded entries have the birth `LONG_AGO`."""
    parts = []
    for file, table in tables.base[number]:
        for some in _between_cuts(file, table, cuts, task):
            long_ago = pa.array(np.full(some.num_rows, LONG_AGO))
            parts.append(some.set_column(some.column_names.index(ORDER), ORDER, long_ago))
    for fresh in tables.fresh_files[number]:
        wanted = (ints(fresh, ORDER) <= until) & (ints(fresh, PANE) >= cuts[0])
        parts.append(fresh if 2 * wanted.sum() > wanted.size else some_of(fresh, wanted))
    return parts


def _between_cuts(file: PaneFile, table: pa.Table, cuts: Sequence[int], task: AnswerTask) -> list[pa.Table]:
    """Read a folded file from the first cut on; where cuts are far apart, entries of many panes together."""
    if file.newest < cuts[0]:
        return []
    levels = levels_for(task.spec.panes.width // task.spec.panes.pane) if file.generation else 0
    if file.newest + 1 - cuts[0] <= len(cuts) << 3 or not levels:
        return [rows_between(table, int(node_of(0, cuts[0])), int(node_of(0, file.newest)) + 1)]
    parts = []
    for since, until in zip(cuts, [*cuts[1:], file.newest + 1], strict=True):
        for level, first, last in nodes_between(since, min(until, file.newest + 1), levels):
            nodes = int(node_of(level, first)), int(node_of(level, last - 1)) + 1
            if (some_rows := rows_between(table, *nodes)).num_rows:
                parts.append(some_rows)
    return parts
