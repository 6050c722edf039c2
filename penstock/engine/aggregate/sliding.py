"""Sliding answers: what every reader of a pane set sees at successive instants.

All windows of a few instants are answered in one go (`penstock.engine.aggregate.window_requests`), from pairs or from
the rows of either side.  Afterwards the entries that all readers have seen are folded by pane alone.

In:  an `AnswerTask`.  Out: answers, by reader and instant, and at the end what becomes of the files.
"""

from __future__ import annotations

import heapq
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np

from penstock.engine.aggregate.answer_task import LONG_AGO, PaneReport
from penstock.engine.aggregate.pane_entries import PaneTables, ints
from penstock.engine.aggregate.pane_files import as_list, left_over, merged
from penstock.engine.aggregate.sliding_pairs import PairView
from penstock.engine.aggregate.sliding_rows import RowView
from penstock.engine.aggregate.window_requests import WindowRequests, readers_alike
from penstock.kernels.fold import number_runs
from penstock.state.pane_columns import some_of, together
from penstock.state.panes import ORDER, PANE, PaneFile, in_nodes, with_nodes, write_panes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow as pa

    from penstock.engine.aggregate.answer_task import AnswerTask, Due
    from penstock.engine.aggregate.window_requests import Answers
    from penstock.kernels.key_hash import Ints
    from penstock.state.files import Files

INSTANTS_AT_ONCE, MOST_CUTS = 128, 256
"""The most instants that are answered in one go, and the most cuts of their windows, unless it is one instant.

For each go, all entries that windows see are read and laid out."""


def sliding(files: Files, task: AnswerTask) -> Iterator[Answers | PaneReport]:
    """Answer every instant that is due, a few at a time, then fold the entries that all readers have seen."""
    until = max(reader.until for reader in task.due)
    until = until if task.only_answers else max(until, task.folds_until)
    tables = PaneTables(files, task, until)
    if tables.fresh_files[0] or tables.base[0]:
        for instants in in_chunks(instants_due(tables, task), task.spec.panes.pane):
            yield from _answer_instants(tables, task, instants)
    yield PaneReport() if task.only_answers else slid(files, task, tables)


def _answer_instants(
    tables: PaneTables, task: AnswerTask, instants: Mapping[int, list[Due]]
) -> Iterator[Answers]:
    """Answer some instants in one go."""
    pane = task.spec.panes.pane
    cuts = sorted({(at - reader.width) // pane for at, readers in instants.items() for reader in readers})
    view = (RowView if task.spec.panes.by_rows else PairView).of(tables, task, cuts, max(instants))
    if view is None:
        return
    asking = {reader.number: reader for readers in instants.values() for reader in readers}
    for readers in readers_alike(view.reader_sets, asking.values()):
        yield from view.answers(WindowRequests.of(readers, instants, np.array(cuts, np.int64), pane))


# --- which instants -------------------------------------------------------------------------------------------------


def instants_due(tables: PaneTables, task: AnswerTask) -> Iterator[tuple[int, list[Due]]]:
    """Yield the instants at which some reader may see an entry, in order, with the readers that ask then."""
    pane, answered_before = task.spec.panes.pane, {reader.since > LONG_AGO for reader in task.due}
    alive = {folded: _alive(tables, with_folded=folded) for folded in answered_before}
    requests = (
        _instants_of(_spans_of(alive[reader.since > LONG_AGO], reader, pane), reader) for reader in task.due
    )
    for instant, some in groupby(heapq.merge(*requests, key=itemgetter(0)), itemgetter(0)):
        yield instant, [reader for _, reader in some]


def _instants_of(spans: Iterable[tuple[int, int]], reader: Due) -> Iterator[tuple[int, Due]]:
    """Yield the instants that one reader asks for within some spans of time."""
    done = LONG_AGO
    for first, last in spans:
        since, until = max(first, reader.since + 1, done + 1), min(last, reader.until)
        for instant in range(-(-since // reader.every) * reader.every, until + 1, reader.every):
            yield instant, reader
            done = instant


def _alive(tables: PaneTables, *, with_folded: bool) -> tuple[Ints, Ints]:
    """Return the births and panes of entries; of folded ones only the newest pane counts.

    Folded entries are for readers that have been answered before.
    """
    born, panes = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for fresh in tables.fresh_files[0]:
        columns = ints(fresh, ORDER), ints(fresh, PANE)
        _, both = number_runs(columns)  # files are in order of birth, so these are few
        born.append(columns[0][both])
        panes.append(columns[1][both])
    for file, _ in tables.base[0] if with_folded else ():
        born.append(np.array([LONG_AGO]))
        panes.append(np.array([file.newest]))
    return np.concatenate(born), np.concatenate(panes)


def _spans_of(alive: tuple[Ints, Ints], reader: Due, pane: int) -> list[tuple[int, int]]:
    """Return the spans of time in which a reader may see an entry: from its birth until its pane is too old."""
    born, panes = alive
    if not born.size:
        return []
    ends = (panes + 1) * pane + reader.width - 1  # E - width < (pane + 1) * pane's width
    starts = np.maximum(born, reader.since)
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], np.maximum.accumulate(ends[order])
    breaks = np.flatnonzero(starts[1:] > ends[:-1] + reader.every)
    first, last = np.concatenate([[0], breaks + 1]), np.concatenate([breaks, [starts.size - 1]])
    return [(int(starts[i]), int(ends[j])) for i, j in zip(first, last, strict=True) if starts[i] <= ends[j]]


def in_chunks(instants: Iterator[tuple[int, list[Due]]], pane: int) -> Iterator[dict[int, list[Due]]]:
    """Divide instants into chunks of a few, whose windows begin at few cuts."""
    chunk: dict[int, list[Due]] = {}
    cuts = set[int]()
    for instant, readers in instants:
        own = {(instant - reader.width) // pane for reader in readers}
        if chunk and (len(chunk) == INSTANTS_AT_ONCE or len(cuts | own) > MOST_CUTS):
            yield chunk
            chunk, cuts = {}, set()
        chunk[instant] = readers
        cuts |= own
    if chunk:
        yield chunk


# --- what becomes of entries ------------------------------------------------------------------------------------------


def _alive_until(fresh: pa.Table, born: int, oldest: int) -> pa.Table:
    """Return the entries that are born by some time, of panes that are not too old."""
    return some_of(fresh, (ints(fresh, ORDER) <= born) & (ints(fresh, PANE) >= oldest))


def slid(files: Files, task: AnswerTask, tables: PaneTables) -> PaneReport:
    """Fold the entries that every reader has seen at their birth, and drop those that no window reaches any more.

    Entries of rows are folded already, since their pane follows from their birth.  Entries of many panes together come
    with merging.
    """
    panes = task.spec.panes
    oldest = (task.folds_until + 1 - panes.width) // panes.pane
    made: list[PaneFile] = []
    gone = [file for file in task.files if file.folded and file.newest < oldest]
    for number in range(tables.count):
        runs = [_alive_until(table, task.folds_until, oldest) for table in tables.fresh_files[number]]
        if some := [run for run in runs if run.num_rows]:
            alive = together(some)
            folded = in_nodes(alive) if panes.by_rows else with_nodes(alive, 0, tables.functions(number))
            made += as_list(write_panes(files, panes.id, folded, number, folded=True, part=task.part))
    seen_files, left = left_over(files, task)
    return merged(files, task, gone + seen_files, made + left, oldest)
