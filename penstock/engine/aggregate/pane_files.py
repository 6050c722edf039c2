"""Update the files of a pane set after its answers: drop files, merge files, and keep the rest of others.

In:  an `AnswerTask`.  Out: a `PaneReport`, which the commit is made of.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.engine.aggregate.answer_task import LONG_AGO, PaneReport
from penstock.engine.aggregate.pane_entries import ints
from penstock.state.pane_columns import together
from penstock.state.panes import (
    CLASS,
    FIRST_NODE,
    ORDER,
    PANE,
    choose_merges,
    keys_in,
    levels_for,
    map_panes,
    read_panes,
    reduce_table,
    rows_between,
    with_nodes,
    write_panes,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.engine.aggregate.answer_task import AnswerTask
    from penstock.state.files import Files
    from penstock.state.panes import PaneFile


def left_over(files: Files, task: AnswerTask) -> tuple[list[PaneFile], list[PaneFile]]:
    """Return the files with answered entries, and what is left of those that also have later entries."""
    done = [file for file in task.files if not file.folded and file.first <= task.folds_until]
    left = []
    for file in done:
        rest = rows_between(map_panes(files, file), task.folds_until + 1, file.last + 1)
        if rest.num_rows:
            left.append(replace(file, rows=rest.num_rows, first=int(ints(rest, ORDER)[0])))
    return done, left


def as_list(file: PaneFile | None) -> list[PaneFile]:
    """Return a list of the file; an empty list if nothing was written."""
    return [file] if file else []


def merged(
    files: Files, task: AnswerTask, gone: list[PaneFile], made: list[PaneFile], oldest: int = LONG_AGO
) -> PaneReport:
    """Merge files of a generation that has enough of them, and return which files go and which take their place."""
    names = {file.name for file in gone}
    for run in choose_merges(file for file in task.files if file.name not in names):
        gone += run
        made += as_list(_merge(files, task, run, oldest))
    return PaneReport(tuple(file.name for file in gone), tuple(made))


def _merge(files: Files, task: AnswerTask, run: Sequence[PaneFile], oldest: int) -> PaneFile | None:
    """Write one file with the entries of several that a window or a reader can still see."""
    number, folded = run[0].table, run[0].folded
    functions = task.spec.functions(number)
    tables = [rows_between(read_panes(files, file), file.first, file.last + 1) for file in run]
    whole = together(tables)
    if folded and task.spec.panes.emit == "sliding":  # entries of many panes together are computed again
        whole = whole.filter(pa.array(ints(whole, ORDER) < FIRST_NODE))
    alive = ((ints(whole, CLASS) & task.bits) != 0) & (ints(whole, PANE) >= oldest)
    whole = whole.filter(pa.array(alive))
    if folded and task.spec.panes.emit == "sliding":
        levels = levels_for(task.spec.panes.width // task.spec.panes.pane)
        whole = with_nodes(whole, levels, functions) if whole.num_rows else whole
    else:
        whole = reduce_table(whole, [ORDER, PANE, CLASS, *keys_in(whole)], functions)
    arrived = max(file.arrived for file in run)
    generation = run[0].generation + 1
    return write_panes(
        files,
        task.spec.panes.id,
        whole,
        number,
        folded=folded,
        generation=generation,
        arrived=arrived,
        part=task.part,
    )
