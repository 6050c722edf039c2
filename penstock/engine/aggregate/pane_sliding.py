"""Answers that slide: what every reader of a pane set sees at successive instants.

At instant E a reader with window w sees the entries born by E whose pane is younger than E - w.  All windows and a few
instants are answered in one go: entries lie in cells between the cuts at which some window begins, and a window is what
all that is younger than its cut comes to (`penstock.kernels.slide`)::

    from cut     E - 10 s   E - 20 s   E - 40 s
    group a         3          1          7          10 s: 3     20 s: 4     40 s: 11

Readers that see the same entries are answered together; a set of groups at a time, so that their cells are few.
Entries that every reader has seen at their birth are folded by pane alone, panes taken together where they are many
(`penstock.state.panes`), so what an answer costs does not depend on the window.

In:  an `AnswerTask`.  Out: answers, by reader and instant, and at the end what becomes of the files.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from penstock.engine.aggregate.answer_task import LONG_AGO, Counted, PaneReport
from penstock.engine.aggregate.pane_entries import Entries, Opened, Seen, answer_batch, ints
from penstock.engine.aggregate.pane_files import as_list, left_over, merged
from penstock.kernels.fold import number_groups, number_runs
from penstock.kernels.measures import Folded
from penstock.kernels.slide import NOT_ASKED, Sliding, lay_out
from penstock.kernels.slide_measures import Run, laid_in
from penstock.kernels.slide_pass import slide_parts
from penstock.state.pane_columns import some_of, together
from penstock.state.panes import (
    ORDER,
    PANE,
    PaneFile,
    in_nodes,
    levels_for,
    node_of,
    nodes_between,
    rows_between,
    with_nodes,
    write_panes,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from penstock.engine.aggregate.answer_task import AnswerTask, Due
    from penstock.kernels import slide
    from penstock.kernels.key_hash import Ints
    from penstock.state.files import Files

    Answers: TypeAlias = pa.RecordBatch | Counted
    """Answers of one reader, as rows or only counted."""

    AnswerInstants: TypeAlias = Callable[[Opened, AnswerTask, Mapping[int, list[Due]]], Iterator[Answers]]
    """Answers some instants, each for those who ask then."""

MOST_CELLS = 1 << 16
"""The most cells, groups times cuts, that are answered in one go: so few that their answers stay in the cache too."""

INSTANTS_AT_ONCE, MOST_CUTS = 128, 256
"""How many instants are answered in one go, and the cuts that their windows have at the most, unless it is one instant.

Each time all entries that are seen are read and laid out."""


def sliding(files: Files, task: AnswerTask) -> Iterator[Answers | PaneReport]:
    """Answer every instant that is due from pairs, then fold what everybody has seen."""
    return instant_by_instant(files, task, _answer_instants)


def instant_by_instant(
    files: Files, task: AnswerTask, answer: AnswerInstants
) -> Iterator[Answers | PaneReport]:
    """Answer every instant that is due, a few at a time, then fold what everybody has seen."""
    until = max(each.until for each in task.due)
    until = until if task.only_answers else max(until, task.folds_until)
    opened = Opened(files, task, until)
    if opened.fresh_files[0] or opened.base[0]:
        for instants in in_chunks(instants_due(opened, task), task.spec.panes.pane):
            yield from answer(opened, task, instants)
    yield PaneReport() if task.only_answers else slid(files, task, opened)


# --- which instants -------------------------------------------------------------------------------------------------


def instants_due(opened: Opened, task: AnswerTask) -> Iterator[tuple[int, list[Due]]]:
    """Give the instants at which somebody may see something, with those who ask then, in order."""
    alive = {each: _alive(opened, with_folded=each) for each in {each.since > LONG_AGO for each in task.due}}
    asked = (
        _instants_of(_spans_of(alive[each.since > LONG_AGO], each, task.spec.panes.pane), each)
        for each in task.due
    )
    for instant, some in groupby(heapq.merge(*asked, key=itemgetter(0)), itemgetter(0)):
        yield instant, [reader for _, reader in some]


def _instants_of(spans: Iterable[tuple[int, int]], reader: Due) -> Iterator[tuple[int, Due]]:
    """Give the instants that one reader asks for within some spans of time."""
    done = LONG_AGO
    for first, last in spans:
        since, until = max(first, reader.since + 1, done + 1), min(last, reader.until)
        for instant in range(-(-since // reader.every) * reader.every, until + 1, reader.every):
            yield instant, reader
            done = instant


def _alive(opened: Opened, *, with_folded: bool) -> tuple[Ints, Ints]:
    """Give births and panes of what there is: of what is folded, only the newest pane counts.

    Who has not been answered yet has nothing among what is folded.
    """
    born, panes = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for fresh in opened.fresh_files[0]:
        columns = ints(fresh, ORDER), ints(fresh, PANE)
        _, both = number_runs(columns)  # files are in order of birth, so these are few
        born.append(columns[0][both])
        panes.append(columns[1][both])
    for file, _ in opened.base[0] if with_folded else ():
        born.append(np.array([LONG_AGO]))
        panes.append(np.array([file.newest]))
    return np.concatenate(born), np.concatenate(panes)


def _spans_of(alive: tuple[Ints, Ints], reader: Due, pane: int) -> list[tuple[int, int]]:
    """Give the spans of time in which a reader may see something: from a birth until its pane is too old."""
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
    """Take a few instants at a time, and few enough that their windows begin at few cuts."""
    chunk: dict[int, list[Due]] = {}
    cuts = set[int]()
    for instant, readers in instants:
        own = {(instant - each.width) // pane for each in readers}
        if chunk and (len(chunk) == INSTANTS_AT_ONCE or len(cuts | own) > MOST_CUTS):
            yield chunk
            chunk, cuts = {}, set()
        chunk[instant] = readers
        cuts |= own
    if chunk:
        yield chunk


# --- what is seen ---------------------------------------------------------------------------------------------------


def _answer_instants(
    opened: Opened, task: AnswerTask, instants: Mapping[int, list[Due]]
) -> Iterator[Answers]:
    """Answer some instants, from the first on: each takes in what is born by it."""
    pane = task.spec.panes.pane
    cuts = sorted({(at - each.width) // pane for at, readers in instants.items() for each in readers})
    tables = [visible(opened, task, number, cuts, max(instants)) for number in range(opened.tables)]
    if tables[0] is None or not tables[0].num_rows:
        return
    entries = Entries(task, tables)
    everybody = {each.number: each for readers in instants.values() for each in readers}
    for readers, rows in _seeing_alike(entries, everybody.values()):
        asked = Asked.of(readers, instants, np.array(cuts, np.int64), pane)
        for block in _blocks(entries, rows, asked):
            yield from _answers(task, entries, asked, block)


def _seeing_alike(entries: Entries, readers: Iterable[Due]) -> Iterator[tuple[list[Due], Ints]]:
    """Put readers together that see the same entries, and give these."""
    classes = entries.classes
    distinct = distinct_in(classes)
    alike: dict[tuple[bool, ...], list[Due]] = {}
    for each in readers:
        alike.setdefault(tuple((distinct >> each.bit & 1).tolist()), []).append(each)
    for sees, some_readers in alike.items():
        if all(sees):
            yield some_readers, np.arange(classes.size)
        elif any(sees):
            yield some_readers, np.flatnonzero(classes >> some_readers[0].bit & 1)


def distinct_in(classes: Ints) -> Ints:
    """Give the sets of readers that there are, of which there are hardly ever several."""
    is_one = classes.strides == (0,) or (classes == classes[0]).all()
    return classes[:1] if is_one else classes[number_groups([classes])[1]]


@dataclass(frozen=True, slots=True)
class Asked:
    """What some readers ask: from which cut on each sees at each instant."""

    readers: list[Due]
    """By the length of their windows."""
    instants: Ints
    cuts: Ints
    thresholds: Ints
    """By instant and reader: the first pane that is seen."""
    windows: Ints
    """By instant and reader: the number of its cut; `NOT_ASKED` where the reader does not ask."""

    @classmethod
    def of(cls, readers: Iterable[Due], instants: Mapping[int, list[Due]], cuts: Ints, pane: int) -> Asked:
        """Look up who asks when."""
        by_width = sorted(readers, key=lambda each: each.width)
        those_asking = [{each.number for each in those} for those in instants.values()]
        asking = [[each.number in those for each in by_width] for those in those_asking]
        at = np.array(list(instants), np.int64)
        thresholds = (at[:, None] - np.array([each.width for each in by_width], np.int64)) // pane
        windows = np.where(np.array(asking), np.searchsorted(cuts, thresholds), NOT_ASKED)
        return cls(by_width, at, cuts, thresholds, windows)

    @property
    def is_counted(self) -> bool:
        """Say whether answers are only counted, whoever gets them."""
        return all(each.counted for each in self.readers)

    @property
    def groups_at_once(self) -> int:
        """Say how many groups are answered in one go."""
        return max(1, MOST_CELLS // self.cuts.size)


@dataclass(frozen=True, slots=True)
class _Block:
    """Some groups from `first` on, and their entries."""

    first: int
    rows: Ints
    """Entries in order of birth."""
    sliding: Sliding


def _blocks(entries: Entries, rows: Ints, asked: Asked) -> Iterator[_Block]:
    """Divide entries by group, a few groups at a time, each in order of birth."""
    cuts, instants, width = asked.cuts.size, asked.instants.size, asked.groups_at_once
    places = entries.gid, entries.born, entries.pane
    order, cells, ends = lay_out(places, rows, asked.instants, asked.cuts, width, entries.groups)
    first = 0
    for block in range(-(-entries.groups // width)):
        upto = ends[block * instants : (block + 1) * instants]
        last = int(upto[-1])
        if first < last:
            size = min(width, entries.groups - block * width)
            sliding_cells = Sliding(cells[first:last], upto - first, asked.windows, size, cuts)
            yield _Block(block * width, order[first:last], sliding_cells)
        first = last


def _answers(task: AnswerTask, entries: Entries, asked: Asked, block: _Block) -> Iterator[Answers]:
    """Answer some groups, reader by reader."""
    counts = entries.count.parts["n"]
    parts, places = laid_in([Run(entries.measures, block.rows, counts)], often=1)
    is_kept = bool(entries.distinct) or not asked.is_counted or not all(each.is_final for each in places)
    slid_over = slide_parts([[block.sliding]], [parts], keep=is_kept)
    found = slid_over.seen
    if not found.sizes.any():
        return
    groups = found.groups + block.first
    folded = [
        each.measure.slid(block.sliding, found, block.rows, counts)
        if each.is_apart
        else each.read(slid_over.sides[0], found)
        for each in places
    ]
    distinct = _distinct_columns(entries, asked, found, groups)
    whole = Seen(asked.readers[0], groups, [Folded("count", {"n": found.counts}), *folded])
    columns = entries.columns(whole, distinct) if is_kept else []
    yield from by_reader(task, asked, found, lambda: entries.keys(groups), columns)


def by_reader(
    task: AnswerTask,
    asked: Asked,
    found: slide.Seen,
    keys_of: Callable[[], list[pa.Array]],
    columns: Sequence[pa.Array],
) -> Iterator[Answers]:
    """Lay out answers, reader by reader; those of a reader that only counts them are counted."""
    sizes = found.sizes.sum(axis=0).tolist()
    keys, instants = list[pa.Array](), np.zeros(0, np.int64)
    if not asked.is_counted:
        keys = keys_of()
        instants = np.repeat(np.tile(asked.instants, len(asked.readers)), found.sizes.T.ravel())
    for reader, first, size in zip(asked.readers, found.starts[0].tolist(), sizes, strict=True):
        if size and reader.counted:
            yield Counted(reader.number, size)
        elif size:
            mine = [[one.slice(first, size) for one in each] for each in (keys, columns)]
            yield answer_batch(task, reader, instants[first : first + size], *mine)


def _distinct_columns(entries: Entries, asked: Asked, found: slide.Seen, groups: Ints) -> list[pa.Array]:
    """Give the finished DISTINCT measures of all answers."""
    if not entries.distinct:
        return []
    parts = []
    for window, reader in enumerate(asked.readers):
        for at, instant in enumerate(asked.instants.tolist()):
            first, size = found.starts[at, window], found.sizes[at, window]
            if size:
                seen = Seen(reader, groups[first : first + size], [])
                parts.append(entries.distinct_columns(seen, instant, int(asked.thresholds[at, window])))
    return [pa.concat_arrays(each) for each in zip(*parts, strict=True)]


# --- which entries --------------------------------------------------------------------------------------------------


def visible(
    opened: Opened, task: AnswerTask, number: int, cuts: Sequence[int], until: int
) -> pa.Table | None:
    """Give the entries that windows of some instants see, and perhaps more."""
    runs = visible_runs(opened, task, number, cuts, until)
    return together(runs).combine_chunks() if runs else None


def visible_runs(
    opened: Opened, task: AnswerTask, number: int, cuts: Sequence[int], until: int
) -> list[pa.Table]:
    """Give the same as it is in files; folded entries were born long ago."""
    parts = []
    for file, table in opened.base[number]:
        for each in _between_cuts(file, table, cuts, task):
            long_ago = pa.array(np.full(each.num_rows, LONG_AGO))
            parts.append(each.set_column(each.column_names.index(ORDER), ORDER, long_ago))
    for fresh in opened.fresh_files[number]:
        wanted = (ints(fresh, ORDER) <= until) & (ints(fresh, PANE) >= cuts[0])
        parts.append(fresh if 2 * wanted.sum() > wanted.size else some_of(fresh, wanted))
    return parts


def _between_cuts(file: PaneFile, table: pa.Table, cuts: Sequence[int], task: AnswerTask) -> list[pa.Table]:
    """Read what a folded file has from the first cut on, as few nodes where cuts are far apart."""
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


def _alive_until(fresh: pa.Table, born: int, oldest: int) -> pa.Table:
    """Take the entries that are born by some time, of panes that are not too old."""
    return some_of(fresh, (ints(fresh, ORDER) <= born) & (ints(fresh, PANE) >= oldest))


def slid(files: Files, task: AnswerTask, opened: Opened) -> PaneReport:
    """Fold what every reader has seen at its birth, and leave behind what nobody will see again.

    Rows have hardly anything to fold: their pane says when they were born.  Nodes above the panes come with merging.
    """
    panes = task.spec.panes
    oldest = (task.folds_until + 1 - panes.width) // panes.pane
    made: list[PaneFile] = []
    gone = [each for each in task.files if each.folded and each.newest < oldest]
    for number in range(opened.tables):
        runs = [_alive_until(each, task.folds_until, oldest) for each in opened.fresh_files[number]]
        if some := [each for each in runs if each.num_rows]:
            alive = together(some)
            folded = in_nodes(alive) if panes.by_rows else with_nodes(alive, 0, opened.functions(number))
            made += as_list(write_panes(files, panes.id, folded, number, folded=True, part=task.part))
    seen_files, left = left_over(files, task)
    return merged(files, task, gone + seen_files, made + left, oldest)
