"""What becomes of a pane set's files when it has been answered: some go, some are merged, of some the rest counts.

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
    """Give the files of entries that were not folded and are done with up to here, and what counts of them further."""
    done = [each for each in task.files if not each.folded and each.first <= task.folds_until]
    left = []
    for file in done:
        rest = rows_between(map_panes(files, file), task.folds_until + 1, file.last + 1)
        if rest.num_rows:
            left.append(replace(file, rows=rest.num_rows, first=int(ints(rest, ORDER)[0])))
    return done, left


def as_list(file: PaneFile | None) -> list[PaneFile]:
    """Give a file as a list, of none if there was nothing to write."""
    return [file] if file else []


def merged(
    files: Files, task: AnswerTask, gone: list[PaneFile], made: list[PaneFile], oldest: int = LONG_AGO
) -> PaneReport:
    """Merge files of a generation that has enough of them, and say which files there are from here on."""
    names = {each.name for each in gone}
    for run in choose_merges(each for each in task.files if each.name not in names):
        gone += run
        made += as_list(_merge(files, task, run, oldest))
    return PaneReport(tuple(each.name for each in gone), tuple(made))


def _merge(files: Files, task: AnswerTask, run: Sequence[PaneFile], oldest: int) -> PaneFile | None:
    """Make one file of several."""
    number, folded = run[0].table, run[0].folded
    functions = task.spec.functions(number)
    tables = [rows_between(read_panes(files, each), each.first, each.last + 1) for each in run]
    whole = together(tables)
    if folded and task.spec.panes.emit == "sliding":  # the nodes above are made anew
        whole = whole.filter(pa.array(ints(whole, ORDER) < FIRST_NODE))
    alive = ((ints(whole, CLASS) & task.bits) != 0) & (ints(whole, PANE) >= oldest)
    whole = whole.filter(pa.array(alive))
    if folded and task.spec.panes.emit == "sliding":
        levels = levels_for(task.spec.panes.width // task.spec.panes.pane)
        whole = with_nodes(whole, levels, functions) if whole.num_rows else whole
    else:
        whole = reduce_table(whole, [ORDER, PANE, CLASS, *keys_in(whole)], functions)
    arrived = max(each.arrived for each in run)
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
