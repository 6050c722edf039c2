"""Answers from partial aggregates: what each reader of a pane set sees, group by group.

*Sliding.*  At each instant a reader sees what its window reaches: of pairs (`penstock.engine.aggregate.pane_sliding`),
or of the rows of either side (`penstock.engine.aggregate.row_sliding`).

*Final.*  A group is answered once, when its bucket is complete, or promises say that no more pairs will come to it;
then it is forgotten.

*Changes.*  The groups that came with the last units are answered again, with what they were before.

In:  an `AnswerTask`: the files of a pane set, and who is to be answered for what.
Out: rows ``(q, e, g0 …, a0 …)``, and at the end a note on which files take the place of which.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.engine.aggregate.answer_task import WAS, PaneReport
from penstock.engine.aggregate.pane_entries import Entries, Opened, Seen, answer_batch, ints
from penstock.engine.aggregate.pane_files import as_list, left_over, merged
from penstock.engine.aggregate.pane_sliding import sliding
from penstock.engine.aggregate.row_sliding import sliding_by_rows
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
    from penstock.engine.aggregate.pane_sliding import Answers
    from penstock.engine.views.finished import FinishedKeys, Mask
    from penstock.kernels.key_hash import Ints
    from penstock.state.files import Files


def answer_rows(files: Files, task: AnswerTask) -> Iterator[Answers | PaneReport]:
    """Yield what readers are answered, and at the end what becomes of the files."""
    if task.spec.panes.by_rows:
        yield from sliding_by_rows(files, task)
    elif task.spec.panes.emit == "sliding":
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
    opened = Opened(files, task, task.folds_until)
    main = opened.fresh[0]
    if main is not None and main.num_rows:
        entries = Entries(task, opened.fresh)
        for seen in entries.answered(task.folds_until, task.due):
            if seen.groups.size:
                columns = entries.all_columns(seen, task.folds_until)
                yield answer_batch(task, seen.reader, 0, entries.keys(seen.groups), columns)
    yield merged(files, task, *left_over(files, task))


def _final_by_promise(
    files: Files, task: AnswerTask, finishing: FinishedKeys
) -> Iterator[pa.RecordBatch | PaneReport]:
    """Answer the groups whose key is finished, as well as those whose bucket is complete, and keep the others."""
    opened = Opened(files, task, FOREVER)
    main = opened.fresh[0]
    if main is None or not main.num_rows:
        yield merged(files, task, [], [])
        return
    entries = Entries(task, opened.fresh)
    finished = finishing.is_finished(files, entries.keys(np.arange(entries.groups)))
    is_done = finished[entries.gid] | (entries.born <= task.folds_until)
    if not is_done.any():
        yield merged(files, task, [], [])
        return
    for since in {each.since for each in task.due}:
        rows = np.flatnonzero(is_done & ((entries.born > since) | (since == 0)))
        for seen in entries.answered_of(rows, [each for each in task.due if each.since == since]):
            if seen.groups.size:
                columns = entries.all_columns(seen, FOREVER)
                yield answer_batch(task, seen.reader, 0, entries.keys(seen.groups), columns)
    done_groups = np.zeros(entries.groups, np.bool_)
    done_groups[entries.gid[is_done]] = True
    left = _open_groups(files, task, opened, entries, done_groups)
    yield PaneReport(tuple(each.name for each in task.files), tuple(left))


def _open_groups(
    files: Files, task: AnswerTask, opened: Opened, entries: Entries, done: Mask
) -> list[PaneFile]:
    """Write the entries of groups that are still open, table by table."""
    left: list[PaneFile] = []
    arrived = max((each.arrived for each in task.files), default=0.0)
    for number, (table, gids) in enumerate(zip(opened.fresh, entries.numbers(opened.fresh), strict=True)):
        if table is not None and table.num_rows:
            rest = table.filter(pa.array(~done[gids]))
            folded = reduce_table(rest, [ORDER, PANE, CLASS, *keys_in(rest)], opened.functions(number))
            left += as_list(
                write_panes(
                    files, task.spec.panes.id, folded, number, folded=False, arrived=arrived, part=task.part
                )
            )
    return left


# --- changes --------------------------------------------------------------------------------------------------------


def _changes(files: Files, task: AnswerTask) -> Iterator[pa.RecordBatch | PaneReport]:
    opened = Opened(files, task, 1 << 62)
    fresh = [None if each is None else _hashed(each) for each in opened.fresh]
    main = fresh[0]
    made: list[PaneFile] = []
    again = any(each.again for each in task.due)
    if again or (main is not None and main.num_rows):
        changed = np.unique(ints(main, ORDER)) if main is not None else np.zeros(0, np.int64)
        before = [
            [table for _, table in each] if again else _of_groups(each, changed) for each in opened.base
        ]
        if main is not None or before[0]:
            yield from _changed_groups(task, before, fresh)
        for number, table in enumerate(fresh):
            if table is not None and table.num_rows:
                functions = opened.functions(number)
                folded = reduce_table(table, [ORDER, PANE, CLASS, *keys_in(table)], functions)
                made += as_list(
                    write_panes(files, task.spec.panes.id, folded, number, folded=True, part=task.part)
                )
    yield merged(files, task, [each for each in task.files if not each.folded], made)


def _hashed(table: pa.Table) -> pa.Table:
    """Put entries in the order of a hash of their group, by which they are found again."""
    return table.set_column(table.column_names.index(ORDER), ORDER, pa.array(group_hashes(table)))


def _of_groups(base: Sequence[tuple[PaneFile, pa.Table]], hashes: Ints) -> list[pa.Table]:
    """Find the entries of some groups in folded files; a few others may have the same hash."""
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
    """Answer the groups that some entries came to: what they are now, and what they were."""
    tables: list[pa.Table | None] = []
    for old, new in zip(before, fresh, strict=True):
        parts = [_in_pane(each, 0) for each in old]
        parts += [] if new is None else [_in_pane(new, 1)]
        names = parts[-1].column_names if parts else []
        tables.append(
            pa.concat_tables([each.select(names) for each in parts]).combine_chunks() if parts else None
        )
    entries = Entries(task, tables)
    entries.born = entries.pane
    for each in entries.distinct:
        if each.table is not None:
            each.born = each.pane
    everything = np.arange(entries.groups)
    changed = {
        reader.number: everything
        if reader.again
        else np.unique(entries.gid[(entries.pane == 1) & (entries.classes >> reader.bit & 1 == 1)])
        for reader in task.due
    }
    were = {each.reader.number: each for each in entries.answered(0, task.due)}
    for seen in entries.answered(1, task.due):
        mine = np.isin(seen.groups, changed[seen.reader.number])
        now = Seen(seen.reader, seen.groups[mine], [each.at(mine) for each in seen.folded])
        if now.groups.size:
            yield _change_batch(task, entries, now, were.get(seen.reader.number))


def _in_pane(table: pa.Table, pane: int) -> pa.Table:
    """Say of entries whether they are old (0) or new (1)."""
    return table.set_column(
        table.column_names.index(PANE), PANE, pa.array(np.full(table.num_rows, pane, np.int64))
    )


def _change_batch(task: AnswerTask, entries: Entries, now: Seen, old: Seen | None) -> pa.RecordBatch:
    """Lay out changed groups: what they are, whether they were answered before, and what they were if that is asked."""
    columns = entries.all_columns(now, 1)
    batch = answer_batch(task, now.reader, now.reader.until, entries.keys(now.groups), columns)
    was = np.isin(now.groups, old.groups) if old is not None else np.zeros(now.groups.size, np.bool_)
    told = was | now.reader.again  # a new definition may take back what it told of any group
    batch = batch.append_column(WAS, pa.array(told))
    if not task.with_before:
        return batch
    before = entries.all_columns(old, 0) if old is not None else [each.slice(0, 0) for each in columns]
    groups = old.groups if old is not None else np.zeros(0, np.int64)
    order = np.argsort(groups)
    at = np.searchsorted(groups[order], now.groups).clip(0, max(0, groups.size - 1))
    rows = pa.array(order[at] if groups.size else np.zeros(now.groups.size, np.int64), mask=~was)
    for number, column in enumerate(before):
        batch = batch.append_column(f"b{number}", column.take(rows))
    return batch
