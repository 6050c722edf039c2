"""Compute the answers of a pane set, group by group, and update its files.

*Sliding* answers are computed at each instant, from the entries in the window (`penstock.engine.aggregate.sliding`).

*Final* answers come once for each group: when its bucket of event time is complete, or promises say that no more pairs
will come to it.  Its entries are then deleted.

*Changes* are answers for the groups to which the last units have added pairs, also with the measures before.

In:  an `AnswerTask`: the files of a pane set, and the readers that are due.
Out: rows ``(q, e, g0 …, a0 …)``, and at the end a report on the files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.engine.aggregate.answer_task import WAS, PaneReport
from penstock.engine.aggregate.pane_entries import Entries, PaneTables, SeenGroups, answer_batch, ints
from penstock.engine.aggregate.pane_files import as_list, left_over, merged
from penstock.engine.aggregate.sliding import sliding
from penstock.kernels.sorting import lay_ranges
from penstock.sql.query import FOREVER
from penstock.state.panes import (
    CLASS,
    ORDER,
    PANE,
    PaneFile,
    group_hashes,
    keys_in,
    reduce_table,
    write_panes,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.engine.aggregate.answer_task import AnswerTask
    from penstock.engine.aggregate.window_requests import Answers
    from penstock.engine.views.finished import FinishedKeys, Mask
    from penstock.kernels.key_hash import Ints
    from penstock.state.files import Files


def answer_rows(files: Files, task: AnswerTask) -> Iterator[Answers | PaneReport]:
    """Yield the answers, and at the end the report on the files."""
    if task.spec.panes.emit == "sliding":
        yield from sliding(files, task)
    elif task.spec.panes.emit == "final":
        yield from _final(files, task)
    else:
        yield from _changes(files, task)


# --- final ----------------------------------------------------------------------------------------------------------


def _final(files: Files, task: AnswerTask) -> Iterator[pa.RecordBatch | PaneReport]:
    if task.finishing is not None:
        yield from _final_by_promise(files, task, task.finishing)
        return
    tables = PaneTables(files, task, task.folds_until)
    main = tables.fresh[0]
    if main is not None and main.num_rows:
        entries = Entries(task, tables.fresh)
        for seen in entries.answered(task.folds_until, task.due):
            if seen.groups.size:
                columns = entries.all_columns(seen, task.folds_until)
                yield answer_batch(task, seen.reader, 0, entries.keys(seen.groups), columns)
    yield merged(files, task, *left_over(files, task))


def _final_by_promise(
    files: Files, task: AnswerTask, finishing: FinishedKeys
) -> Iterator[pa.RecordBatch | PaneReport]:
    """Answer the groups whose keys are finished or whose bucket is complete, and keep the others."""
    tables = PaneTables(files, task, FOREVER)
    main = tables.fresh[0]
    if main is None or not main.num_rows:
        yield merged(files, task, [], [])
        return
    entries = Entries(task, tables.fresh)
    finished = finishing.is_finished(files, entries.keys(np.arange(entries.groups)))
    is_done = finished[entries.gid] | (entries.born <= task.folds_until)
    if not is_done.any():
        yield merged(files, task, [], [])
        return
    for since in {reader.since for reader in task.due}:
        rows = np.flatnonzero(is_done & ((entries.born > since) | (since == 0)))
        for seen in entries.answered_of(rows, [reader for reader in task.due if reader.since == since]):
            if seen.groups.size:
                columns = entries.all_columns(seen, FOREVER)
                yield answer_batch(task, seen.reader, 0, entries.keys(seen.groups), columns)
    done_groups = np.zeros(entries.groups, np.bool_)
    done_groups[entries.gid[is_done]] = True
    left = _open_groups(files, task, tables, entries, done_groups)
    yield PaneReport(tuple(file.name for file in task.files), tuple(left))


def _open_groups(
    files: Files, task: AnswerTask, tables: PaneTables, entries: Entries, done: Mask
) -> list[PaneFile]:
    """Write the entries of groups that are still open, table by table."""
    left: list[PaneFile] = []
    arrived = max((file.arrived for file in task.files), default=0.0)
    for number, (table, gids) in enumerate(zip(tables.fresh, entries.numbers(tables.fresh), strict=True)):
        if table is not None and table.num_rows:
            rest = table.filter(pa.array(~done[gids]))
            folded = reduce_table(rest, [ORDER, PANE, CLASS, *keys_in(rest)], tables.functions(number))
            left += as_list(
                write_panes(
                    files, task.spec.panes.id, folded, number, folded=False, arrived=arrived, part=task.part
                )
            )
    return left


# --- changes --------------------------------------------------------------------------------------------------------


def _changes(files: Files, task: AnswerTask) -> Iterator[pa.RecordBatch | PaneReport]:
    tables = PaneTables(files, task, 1 << 62)
    fresh = [None if table is None else _hashed(table) for table in tables.fresh]
    main = fresh[0]
    made: list[PaneFile] = []
    again = any(reader.again for reader in task.due)
    if again or (main is not None and main.num_rows):
        changed = np.unique(ints(main, ORDER)) if main is not None else np.zeros(0, np.int64)
        before = [
            [table for _, table in base] if again else _of_groups(base, changed) for base in tables.base
        ]
        if main is not None or before[0]:
            yield from _changed_groups(task, before, fresh)
        for number, table in enumerate(fresh):
            if table is not None and table.num_rows:
                functions = tables.functions(number)
                folded = reduce_table(table, [ORDER, PANE, CLASS, *keys_in(table)], functions)
                made += as_list(
                    write_panes(files, task.spec.panes.id, folded, number, folded=True, part=task.part)
                )
    yield merged(files, task, [file for file in task.files if not file.folded], made)


def _hashed(table: pa.Table) -> pa.Table:
    """Set the order of entries to a hash of their group, by which later answers find them."""
    return table.set_column(table.column_names.index(ORDER), ORDER, pa.array(group_hashes(table)))


def _of_groups(base: Sequence[tuple[PaneFile, pa.Table]], hashes: Ints) -> list[pa.Table]:
    """Find the entries of some groups in folded files, by hash; a few entries of other groups may be among them."""
    found = []
    for _, table in base:
        order = ints(table, ORDER)
        first, last = np.searchsorted(order, hashes, "left"), np.searchsorted(order, hashes, "right")
        rows, _ = lay_ranges(first, last)
        if rows.size:
            found.append(table.take(pa.array(rows)))
    return found


def _changed_groups(
    task: AnswerTask, before: Sequence[list[pa.Table]], fresh: Sequence[pa.Table | None]
) -> Iterator[pa.RecordBatch]:
    """Answer the groups that have new entries: their measures now, and before."""
    tables: list[pa.Table | None] = []
    for old, new in zip(before, fresh, strict=True):
        parts = [_in_pane(table, 0) for table in old]
        parts += [] if new is None else [_in_pane(new, 1)]
        names = parts[-1].column_names if parts else []
        tables.append(
            pa.concat_tables([table.select(names) for table in parts]).combine_chunks() if parts else None
        )
    entries = Entries(task, tables)
    entries.born = entries.pane
    for values in entries.distinct:
        if values.table is not None:
            values.born = values.pane
    everything = np.arange(entries.groups)
    changed = {
        reader.number: everything
        if reader.again
        else np.unique(entries.gid[(entries.pane == 1) & (entries.classes >> reader.bit & 1 == 1)])
        for reader in task.due
    }
    were = {seen.reader.number: seen for seen in entries.answered(0, task.due)}
    for seen in entries.answered(1, task.due):
        mine = np.isin(seen.groups, changed[seen.reader.number])
        now = SeenGroups(seen.reader, seen.groups[mine], [measure.at(mine) for measure in seen.folded])
        if now.groups.size:
            yield _change_batch(task, entries, now, were.get(seen.reader.number))


def _in_pane(table: pa.Table, pane: int) -> pa.Table:
    """Set the pane of entries to 0 for old ones, or to 1 for new ones."""
    return table.set_column(
        table.column_names.index(PANE), PANE, pa.array(np.full(table.num_rows, pane, np.int64))
    )


def _change_batch(
    task: AnswerTask, entries: Entries, now: SeenGroups, old: SeenGroups | None
) -> pa.RecordBatch:
    """Lay out changed groups: the measures now, whether the group was answered before, and the measures then."""
    columns = entries.all_columns(now, 1)
    batch = answer_batch(task, now.reader, now.reader.until, entries.keys(now.groups), columns)
    was = np.isin(now.groups, old.groups) if old is not None else np.zeros(now.groups.size, np.bool_)
    told = was | now.reader.again  # a new definition may delete any group
    batch = batch.append_column(WAS, pa.array(told))
    if not task.with_before:
        return batch
    before = entries.all_columns(old, 0) if old is not None else [column.slice(0, 0) for column in columns]
    groups = old.groups if old is not None else np.zeros(0, np.int64)
    order = np.argsort(groups)
    at = np.searchsorted(groups[order], now.groups).clip(0, max(0, groups.size - 1))
    rows = pa.array(order[at] if groups.size else np.zeros(now.groups.size, np.int64), mask=~was)
    for number, column in enumerate(before):
        batch = batch.append_column(f"b{number}", column.take(rows))
    return batch
