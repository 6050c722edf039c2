"""Answers from partial aggregates: what each reader of a pane set sees, group by group.

*Sliding.*  At instant E a reader with window w sees the entries born by E whose pane is younger than E - w.  All
windows are read in one go: entries are folded by group and by the cuts at which some window begins, and a window is
what all that is younger than its cut comes to::

    from cut     E - 10 s   E - 20 s   E - 40 s
    group a         3          1          7          10 s: 3     20 s: 4     40 s: 11

Entries that every reader has seen at their birth are folded by pane alone, panes taken together where they are many
(`penstock.log.panes`), so what an answer costs does not depend on the window.

*Final.*  A group is answered once, when its bucket is complete, or promises say that no more pairs will come to it;
then it is forgotten.

*Changes.*  The groups that came with the last units are answered again, with what they were before.

In:  an `AnswerTask`: the files of a pane set, and who is to be answered for what.
Out: rows ``(q, e, g0 …, a0 …)``, and at the end a note on which files take the place of which.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby, islice
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.engine.out.finished import FinishedKeys
from penstock.join.fold import codes_of, number_groups
from penstock.join.measures import Folded
from penstock.log.panes import (
    CLASS,
    FIRST_NODE,
    ORDER,
    PANE,
    ROWS,
    PaneFile,
    choose_merges,
    functions_of,
    group_hashes,
    key_types,
    keys_in,
    levels_for,
    measures_in,
    node_of,
    nodes_between,
    put_together,
    read_panes,
    reduce_table,
    rows_between,
    whole_column,
    with_nodes,
    write_panes,
)
from penstock.sql.query import FOREVER

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from penstock.engine.out.pane_fold import FoldSpec
    from penstock.join.key_hash import Ints
    from penstock.log.files import Files

    Mask = NDArray[np.bool_]

READER, NOTE, INSTANT, WAS = "q", "note", "e", "was"
"""Columns of answers: which reader, the note at the end, the instant (or the number of the change), and whether the
group had been answered before."""

MOST_WAITING = 1 << 20
"""Answers that wait to be finished together."""

MOST_CELLS = 1 << 21
"""Groups times cuts that a few instants are answered from in one go."""

INSTANTS_AT_ONCE = 32
LONG_AGO = -(1 << 62)
"""Before all births and instants: who has not been answered yet was answered then."""


@dataclass(frozen=True, slots=True)
class Due:
    """What one reader is to be answered: by its bit, for the instants or ends ``since < e <= until``."""

    number: int
    """Which of the task's readers it is."""
    bit: int
    since: int
    until: int
    width: int = 0
    every: int = 0
    again: bool = False
    """Whether all groups are told, and not only those that have changed."""


@dataclass(frozen=True, slots=True)
class AnswerTask:
    """What one task is told about a pane set."""

    spec: FoldSpec
    files: tuple[PaneFile, ...]
    due: tuple[Due, ...]
    folds_until: int
    """Births up to here have been seen by every reader when this is done; before the first of all: none."""
    schema: pa.Schema
    """Of the group keys and measures, as Spark has them."""
    with_before: bool = False
    """Whether changes carry what a group was before (``b0 b1 …``), for a HAVING to be asked of it."""
    bits: int = -1
    """The bits of all readers there are: entries of nobody are left behind."""
    part: int = 0
    """Which part of the set's groups."""
    finishing: FinishedKeys | None = None
    """Final: the promises that end groups."""


@dataclass(frozen=True, slots=True)
class PaneReport:
    """Which files of a pane set go, and which take their place."""

    gone: tuple[str, ...] = ()
    files: tuple[PaneFile, ...] = ()


def answer_rows(files: Files, task: AnswerTask) -> Iterator[pa.RecordBatch | PaneReport]:
    """Yield what readers are answered, and at the end what becomes of the files."""
    if task.spec.panes.emit == "sliding":
        yield from _sliding(files, task)
    elif task.spec.panes.emit == "final":
        yield from _final(files, task)
    else:
        yield from _changes(files, task)


# --- tables of one kind ---------------------------------------------------------------------------------------------


class _Opened:
    """The files of a task, mapped, by table; `until` bounds the births that are looked at."""

    def __init__(self, files: Files, task: AnswerTask, until: int) -> None:
        self.task = task
        self.tables = 1 + len(task.spec.distinct)
        self.base: list[list[tuple[PaneFile, pa.Table]]] = [[] for _ in range(self.tables)]
        fresh: list[list[pa.Table]] = [[] for _ in range(self.tables)]
        for file in task.files:
            table = read_panes(files, file)
            if file.folded:
                self.base[file.table].append((file, table))
            else:
                fresh[file.table].append(rows_between(table, file.first, until + 1))
        self.fresh = [_in_order(each) for each in fresh]

    def functions(self, number: int) -> list[str]:
        """Name the functions of a table's measures."""
        return functions_of(self.task.spec.measures) if number == 0 else []


def _in_order(tables: Sequence[pa.Table]) -> pa.Table | None:
    """Lay tables end to end and sort them by birth; None if there is none."""
    some = [each for each in tables if each.num_rows]
    if not some:
        return tables[0] if tables else None
    whole = pa.concat_tables(some).combine_chunks()
    return whole.take(pa.array(np.argsort(_ints(whole, ORDER), kind="stable")))


def _ints(table: pa.Table, name: str) -> Ints:
    numbers: Ints = whole_column(table, name).to_numpy(zero_copy_only=False)
    return numbers


class _Entries:
    """Entries of all tables of a pane set that are answered together, their groups numbered alike."""

    def __init__(self, task: AnswerTask, tables: Sequence[pa.Table | None]) -> None:
        self.task = task
        main = tables[0]
        assert main is not None  # noqa: S101 - there is no answer without entries
        self.main = main
        names = keys_in(main, "k")
        some = [each for each in tables if each is not None]
        self.groups, self._gids, self._firsts = _numbered(some, names)
        self._names = names
        self.born, self.pane, self.classes = (_ints(main, each) for each in (ORDER, PANE, CLASS))
        self.count = Folded("count", {"n": _ints(main, ROWS)})
        self.measures = measures_in(main, functions_of(task.spec.measures))
        self.distinct = [
            _Values(each, gids, some_measure) for each, gids, some_measure in self._pairs(tables)
        ]

    def _pairs(self, tables: Sequence[pa.Table | None]) -> Iterator[tuple[pa.Table | None, Ints, str]]:
        given = iter(self._gids[1:])
        for table, measure in zip(tables[1:], self.task.spec.distinct, strict=True):
            yield table, (next(given) if table is not None else np.zeros(0, np.int64)), measure.function

    def numbers(self, tables: Sequence[pa.Table | None]) -> list[Ints]:
        """Give the number of each entry's group, table by table; a table that is not there has none."""
        given = iter(self._gids)
        return [np.zeros(0, np.int64) if each is None else next(given) for each in tables]

    @property
    def gid(self) -> Ints:
        """Number the group of each entry of the table of groups."""
        return self._gids[0]

    @cached_property
    def _all_keys(self) -> list[pa.Array]:
        """Give the keys of all groups, in the types that answers have."""
        rows = pa.array(self._firsts)
        columns = {name: whole_column(self.main, name).take(rows) for name in self._names}
        keys = [put_together(kind, columns, f"k{n}") for n, kind in enumerate(key_types(self.main))]
        kinds = [self.task.schema.field(f"g{number}").type for number in range(len(keys))]
        return [key if key.type == kind else key.cast(kind) for key, kind in zip(keys, kinds, strict=True)]

    def keys(self, groups: Ints) -> list[pa.Array]:
        """Give the keys of some groups."""
        if groups.size == self.groups and bool((groups[:-1] < groups[1:]).all()):
            return self._all_keys  # all of them, in their order
        rows = pa.array(groups)
        return [each.take(rows) for each in self._all_keys]

    def answered(self, born_until: int, due: Sequence[Due]) -> Iterator[_Seen]:
        """Give what each reader sees of all that is born by some time, whatever its pane."""
        for since in {each.since for each in due}:
            rows = np.flatnonzero((self.born <= born_until) & ((self.born > since) | (since == 0)))
            yield from self.answered_of(rows, [each for each in due if each.since == since])

    def answered_of(self, rows: Ints, due: Sequence[Due]) -> Iterator[_Seen]:
        """Give what some readers see of some entries."""
        folded = {}
        for each, chosen in self.by_class(rows, due):
            every = (self.count, *self.measures)
            folded[each] = [one.at(chosen).by(self.gid[chosen], self.groups) for one in every]
        for reader in due:
            if parts := [each for classes, each in folded.items() if classes >> reader.bit & 1]:
                yield _seen(reader, parts)

    def by_class(self, rows: Ints, due: Iterable[Due]) -> Iterator[tuple[int, Ints]]:
        """Divide entries by which of some readers they are for."""
        bits = [1 << each.bit for each in due]
        classes = self.classes[rows] & sum(bits)
        distinct = np.unique(classes).tolist()
        if len(distinct) > len(bits) + 1:  # more sets than readers: each gets its own
            yield from ((bit, mine) for bit in bits if (mine := rows[classes & bit != 0]).size)
            return
        for each in distinct:
            if each:
                yield each, rows[classes == each]

    def columns(self, seen: _Seen, distinct: Sequence[pa.Array]) -> list[pa.Array]:
        """Give the finished measures of what a reader sees, in their order; those that are DISTINCT are given."""
        plain, given = iter(seen.folded[1:]), iter(distinct)
        columns = []
        for number, measure in enumerate(self.task.spec.measures):
            kind = self.task.schema.field(f"a{number}").type
            if not measure.arguments:
                columns.append(seen.folded[0].finished(kind))
            else:
                columns.append(next(given) if measure.distinct else next(plain).finished(kind))
        return columns

    def distinct_columns(self, seen: _Seen, born_until: int, threshold: int) -> list[pa.Array]:
        """Give the finished DISTINCT measures of what a reader sees."""
        kinds = [
            self.task.schema.field(f"a{number}").type
            for number, each in enumerate(self.task.spec.measures)
            if each.distinct
        ]
        return [
            each.finished(seen, self.groups, born_until, threshold, kind)
            for each, kind in zip(self.distinct, kinds, strict=True)
        ]

    def all_columns(self, seen: _Seen, born_until: int) -> list[pa.Array]:
        """Give all finished measures of what a reader sees, whatever the pane."""
        return self.columns(seen, self.distinct_columns(seen, born_until, 0))


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a reader sees: some groups, and what their pairs come to: the count first, then the measures."""

    reader: Due
    groups: Ints
    folded: list[Folded]


class _Values:
    """The values of a DISTINCT aggregate: which group has which, in which pane, for whom."""

    def __init__(self, table: pa.Table | None, gids: Ints, function: str) -> None:
        self.function, self.gid = function, gids
        self.table = table
        if table is None:
            return
        values = [codes_of(whole_column(table, name)) for name in keys_in(table, "v")]
        self.ids, self.firsts = number_groups([gids, *values])
        self.born, self.pane, self.classes = (_ints(table, each) for each in (ORDER, PANE, CLASS))

    def finished(
        self, seen: _Seen, groups: int, born_until: int, threshold: int, kind: pa.DataType
    ) -> pa.Array:
        """Count, or sum, each value that a reader sees in a group once."""
        if self.table is None:
            size = seen.groups.size
            return pa.array(np.zeros(size, np.int64)) if self.function == "count" else pa.nulls(size, kind)
        visible = (self.born <= born_until) & (self.pane >= threshold)
        visible &= (self.classes >> seen.reader.bit & 1).astype(np.bool_)
        ids = np.unique(self.ids[visible])
        firsts = self.firsts[ids]
        if self.function == "count":
            folded = Folded.rows(self.gid[firsts], groups)
        else:
            values = whole_column(self.table, "v0").take(pa.array(firsts))
            folded = Folded.values(self.function, values, self.gid[firsts], groups)
        return folded.at(seen.groups).finished(kind)


def _numbered(tables: Sequence[pa.Table], names: Sequence[str]) -> tuple[int, list[Ints], Ints]:
    """Give groups the same numbers in several tables: how many, those of each table's entries, an entry of each."""
    sizes = [each.num_rows for each in tables]
    if not names:
        return 1, [np.zeros(size, np.int64) for size in sizes], np.zeros(1, np.int64)
    keys = pa.concat_tables([each.select(names) for each in tables])
    ids, firsts = number_groups([codes_of(whole_column(keys, name)) for name in names])
    ends = np.cumsum([0, *sizes])
    # each group of another table is one of the first: its pairs were folded into both
    return firsts.size, [ids[ends[n] : ends[n + 1]] for n in range(len(sizes))], firsts


def _seen(reader: Due, parts: Sequence[list[Folded]]) -> _Seen:
    """Put together what a reader sees of several sets of readers, and leave out groups without a pair."""
    folded = parts[0]
    for others in parts[1:]:
        folded = [one.plus(other) for one, other in zip(folded, others, strict=True)]
    present = np.flatnonzero(folded[0].parts["n"])
    if present.size == folded[0].parts["n"].size:
        return _Seen(reader, present, folded)
    return _Seen(reader, present, [each.at(present) for each in folded])


class _Grid:
    """What the entries of one set of readers come to, cut by cut and group by group.

    A row of the grid is what is between two cuts; a window is the rows from its cut on, taken together.
    """

    def __init__(self, entries: _Entries, cuts: int) -> None:
        self.entries, self.cuts = entries, cuts
        self.cells = [each.nothing(cuts * entries.groups) for each in (entries.count, *entries.measures)]

    def add(self, rows: Ints, cut: Ints) -> None:
        """Take in some entries."""
        ids = cut * self.entries.groups + self.entries.gid[rows]
        every = (self.entries.count, *self.entries.measures)
        self.cells = [cells.add(ids, each.at(rows)) for cells, each in zip(self.cells, every, strict=True)]

    def windows(self, cuts: Iterable[int]) -> dict[int, list[Folded]]:
        """Give what is seen from each of some cuts on: rows are added up from the newest to the oldest."""
        seen: dict[int, list[Folded]] = {}
        groups, upto = self.entries.groups, self.cuts
        total = [each.nothing(groups) for each in self.cells]
        for cut in sorted(cuts, reverse=True):
            total = [
                one.with_runs(each, cut, upto, groups) for one, each in zip(total, self.cells, strict=True)
            ]
            upto = cut
            seen[cut] = total
        return seen


def _batch(
    task: AnswerTask, entries: _Entries, seen: _Seen, instants: Ints | int, columns: list[pa.Array]
) -> pa.RecordBatch:
    """Lay out what a reader is answered."""
    size = seen.groups.size
    fixed = [
        pa.array(np.full(size, seen.reader.number, np.int32)),
        pa.nulls(size, pa.string()),
        pa.array(np.broadcast_to(np.asarray(instants, np.int64), size)),
    ]
    keys = entries.keys(seen.groups)
    names = [READER, NOTE, INSTANT, *task.schema.names]
    return pa.RecordBatch.from_arrays([*fixed, *keys, *columns], names[: 3 + len(keys) + len(columns)])


# --- sliding --------------------------------------------------------------------------------------------------------


def _sliding(files: Files, task: AnswerTask) -> Iterator[pa.RecordBatch | PaneReport]:
    until = max((*(each.until for each in task.due), task.folds_until))
    opened = _Opened(files, task, until)
    if opened.fresh[0] is not None or opened.base[0]:
        for instants in _chunks(_instants(opened, task), _at_once(opened, task)):
            yield from _answer_instants(opened, task, instants)
    yield _slid(files, task, opened)


def _instants(opened: _Opened, task: AnswerTask) -> Iterator[tuple[int, list[Due]]]:
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


def _alive(opened: _Opened, *, with_folded: bool) -> tuple[Ints, Ints]:
    """Give births and panes of what there is: of what is folded, only the newest pane counts.

    Who has not been answered yet has nothing among what is folded.
    """
    born, panes = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    if (fresh := opened.fresh[0]) is not None:
        both = (
            number_groups([_ints(fresh, ORDER), _ints(fresh, PANE)])[1]
            if fresh.num_rows
            else np.zeros(0, np.int64)
        )
        born.append(_ints(fresh, ORDER)[both])
        panes.append(_ints(fresh, PANE)[both])
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


def _at_once(opened: _Opened, task: AnswerTask) -> int:
    """Say how many instants are answered in one go: what they share is read once, and the grid is of bounded size."""
    fresh, groups = opened.fresh[0], 1
    if fresh is not None and fresh.num_rows and (names := keys_in(fresh, "k")):
        groups = number_groups([codes_of(whole_column(fresh, name)) for name in names])[1].size
    panes = task.spec.panes.width // task.spec.panes.pane
    held = max((file.rows for file, _ in opened.base[0]), default=0)
    groups = max(groups, held // max(1, panes))
    return max(1, min(INSTANTS_AT_ONCE, MOST_CELLS // groups - panes))


def _chunks(instants: Iterator[tuple[int, list[Due]]], size: int) -> Iterator[dict[int, list[Due]]]:
    """Take a few instants at a time."""
    while some := dict(islice(instants, size)):
        yield some


def _answer_instants(
    opened: _Opened, task: AnswerTask, instants: Mapping[int, list[Due]]
) -> Iterator[pa.RecordBatch]:
    """Answer some instants, from the first on: each takes in what is born by it."""
    pane = task.spec.panes.pane
    cuts = sorted({(at - each.width) // pane for at, readers in instants.items() for each in readers})
    tables = [_visible(opened, task, number, cuts, max(instants)) for number in range(opened.tables)]
    if tables[0] is None or not tables[0].num_rows:
        return
    entries = _Entries(task, tables)
    cut_of = np.searchsorted(cuts, entries.pane, "right") - 1
    grids, answers = dict[int, _Grid](), _Answers(task, entries)
    order = np.argsort(entries.born, kind="stable")
    births, taken = entries.born[order], 0
    everybody = {each.bit: each for readers in instants.values() for each in readers}
    for instant, readers in instants.items():
        born = int(np.searchsorted(births, instant, "right"))
        for classes, rows in entries.by_class(order[taken:born], everybody.values()):
            if classes not in grids:
                grids[classes] = _Grid(entries, len(cuts))
            grids[classes].add(rows, cut_of[rows])
        taken = born
        asked = {each: bisect_left(cuts, (instant - each.width) // pane) for each in readers}
        seen = {
            classes: grid.windows({cut for each, cut in asked.items() if classes >> each.bit & 1})
            for classes, grid in grids.items()
        }
        for reader, cut in asked.items():
            parts = [windows[cut] for classes, windows in seen.items() if classes >> reader.bit & 1]
            if parts and (answer := _seen(reader, parts)).groups.size:
                yield from answers.add(answer, instant, (instant - reader.width) // pane)
    yield from answers.rest()


class _Answers:
    """What readers see at successive instants, finished some at a time."""

    def __init__(self, task: AnswerTask, entries: _Entries) -> None:
        self.task, self.entries = task, entries
        self._waiting: dict[int, list[tuple[int, _Seen, list[pa.Array]]]] = {}
        self._rows = 0

    def add(self, seen: _Seen, instant: int, threshold: int) -> Iterator[pa.RecordBatch]:
        """Take what a reader sees at an instant; give what waits if it is much."""
        distinct = self.entries.distinct_columns(seen, instant, threshold)
        self._waiting.setdefault(seen.reader.number, []).append((instant, seen, distinct))
        self._rows += seen.groups.size
        if self._rows > MOST_WAITING:
            yield from self.rest()

    def rest(self) -> Iterator[pa.RecordBatch]:
        """Finish what waits, reader by reader."""
        for waiting in self._waiting.values():
            yield self._finished(waiting)
        self._waiting, self._rows = {}, 0

    def _finished(self, waiting: Sequence[tuple[int, _Seen, list[pa.Array]]]) -> pa.RecordBatch:
        instants = np.repeat([each for each, _, _ in waiting], [seen.groups.size for _, seen, _ in waiting])
        seen = waiting[0][1]
        groups = np.concatenate([each.groups for _, each, _ in waiting]) if len(waiting) > 1 else seen.groups
        folded = [Folded.together(each) for each in zip(*(one.folded for _, one, _ in waiting), strict=True)]
        distinct = [pa.concat_arrays(each) for each in zip(*(one for _, _, one in waiting), strict=True)]
        whole = _Seen(seen.reader, groups, folded)
        return _batch(self.task, self.entries, whole, instants, self.entries.columns(whole, distinct))


def _visible(
    opened: _Opened, task: AnswerTask, number: int, cuts: Sequence[int], until: int
) -> pa.Table | None:
    """Give the entries that some window of some instants sees; of folded ones, those between two cuts are one."""
    parts = []
    for file, table in opened.base[number]:
        parts += _between_cuts(file, table, cuts, task)
    functions = opened.functions(number)
    if parts:
        whole = pa.concat_tables(parts)
        by = [PANE, CLASS, *keys_in(whole)]
        reduced = reduce_table(whole, by, functions)
        if ORDER in reduced.column_names:
            reduced = reduced.drop_columns([ORDER])
        parts = [reduced.append_column(ORDER, pa.array(np.full(reduced.num_rows, LONG_AGO)))]
    fresh = opened.fresh[number]
    if fresh is not None:
        wanted = (_ints(fresh, ORDER) <= until) & (_ints(fresh, PANE) >= cuts[0])
        parts.append(fresh if wanted.all() else fresh.filter(pa.array(wanted)))
    if not parts:
        return None
    names = parts[-1].column_names
    return pa.concat_tables([each.select(names) for each in parts]).combine_chunks()


def _between_cuts(file: PaneFile, table: pa.Table, cuts: Sequence[int], task: AnswerTask) -> list[pa.Table]:
    """Read what a folded file has from the first cut on, each entry with the last cut before it for a pane."""
    if file.newest < cuts[0]:
        return []
    levels = levels_for(task.spec.panes.width // task.spec.panes.pane)
    if file.newest + 1 - cuts[0] <= len(cuts) << 3 or not levels:
        some = rows_between(table, int(node_of(0, cuts[0])), int(node_of(0, file.newest)) + 1)
        return [_at_cuts(some, cuts)]
    parts = []
    for since, until in zip(cuts, [*cuts[1:], file.newest + 1], strict=True):
        for level, first, last in nodes_between(since, min(until, file.newest + 1), levels):
            nodes = int(node_of(level, first)), int(node_of(level, last - 1)) + 1
            if (some := rows_between(table, *nodes)).num_rows:
                parts.append(_at_cuts(some, cuts))
    return parts


def _at_cuts(table: pa.Table, cuts: Sequence[int]) -> pa.Table:
    """Put each entry in the pane of the last cut that is not after it."""
    panes = np.array(cuts, np.int64)[np.searchsorted(cuts, _ints(table, PANE), "right") - 1]
    return table.set_column(table.column_names.index(PANE), PANE, pa.array(panes))


def _slid(files: Files, task: AnswerTask, opened: _Opened) -> PaneReport:
    """Fold what every reader has seen at its birth, and leave behind what nobody will see again."""
    panes = task.spec.panes
    oldest = (task.folds_until + 1 - panes.width) // panes.pane
    levels = levels_for(panes.width // panes.pane)
    made: list[PaneFile] = []
    gone = [each for each in task.files if each.folded and each.newest < oldest]
    for number in range(opened.tables):
        fresh, functions = opened.fresh[number], opened.functions(number)
        if fresh is None or not fresh.num_rows:
            continue
        seen = rows_between(fresh, LONG_AGO, task.folds_until + 1)
        alive = seen.filter(pa.array(_ints(seen, PANE) >= oldest))
        if alive.num_rows:
            folded = with_nodes(alive, levels, functions)
            made += _some(write_panes(files, panes.id, folded, number, folded=True, part=task.part))
    seen_files, left = _left_over(files, task)
    return _merged(files, task, gone + seen_files, made + left, oldest)


def _left_over(files: Files, task: AnswerTask) -> tuple[list[PaneFile], list[PaneFile]]:
    """Give the files of entries that were not folded and are done with up to here, and what counts of them further."""
    done = [each for each in task.files if not each.folded and each.first <= task.folds_until]
    left = []
    for file in done:
        rest = rows_between(read_panes(files, file), task.folds_until + 1, file.last + 1)
        if rest.num_rows:
            left.append(replace(file, rows=rest.num_rows, first=int(_ints(rest, ORDER)[0])))
    return done, left


def _some(file: PaneFile | None) -> list[PaneFile]:
    return [file] if file else []


def _merged(
    files: Files, task: AnswerTask, gone: list[PaneFile], made: list[PaneFile], oldest: int = LONG_AGO
) -> PaneReport:
    """Merge files of a generation that has enough of them, and say which files there are from here on."""
    names = {each.name for each in gone}
    for run in choose_merges(each for each in task.files if each.name not in names):
        gone += run
        made += _some(_merge(files, task, run, oldest))
    return PaneReport(tuple(each.name for each in gone), tuple(made))


def _merge(files: Files, task: AnswerTask, run: Sequence[PaneFile], oldest: int) -> PaneFile | None:
    """Make one file of several."""
    number, folded = run[0].table, run[0].folded
    functions = functions_of(task.spec.measures) if number == 0 else []
    tables = [rows_between(read_panes(files, each), each.first, each.last + 1) for each in run]
    whole = pa.concat_tables(tables)
    if folded and task.spec.panes.emit == "sliding":  # the nodes above are made anew
        whole = whole.filter(pa.array(_ints(whole, ORDER) < FIRST_NODE))
    alive = ((_ints(whole, CLASS) & task.bits) != 0) & (_ints(whole, PANE) >= oldest)
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


# --- final ----------------------------------------------------------------------------------------------------------


def _final(files: Files, task: AnswerTask) -> Iterator[pa.RecordBatch | PaneReport]:
    if task.finishing is not None:
        yield from _final_by_promise(files, task, task.finishing)
        return
    opened = _Opened(files, task, task.folds_until)
    main = opened.fresh[0]
    if main is not None and main.num_rows:
        entries = _Entries(task, opened.fresh)
        for seen in entries.answered(task.folds_until, task.due):
            if seen.groups.size:
                yield _batch(task, entries, seen, 0, entries.all_columns(seen, task.folds_until))
    yield _merged(files, task, *_left_over(files, task))


def _final_by_promise(
    files: Files, task: AnswerTask, finishing: FinishedKeys
) -> Iterator[pa.RecordBatch | PaneReport]:
    """Answer the groups whose key is finished, as well as those whose bucket is complete, and keep the others."""
    opened = _Opened(files, task, FOREVER)
    main = opened.fresh[0]
    if main is None or not main.num_rows:
        yield _merged(files, task, [], [])
        return
    entries = _Entries(task, opened.fresh)
    finished = finishing.is_finished(files, entries.keys(np.arange(entries.groups)))
    is_done = finished[entries.gid] | (entries.born <= task.folds_until)
    if not is_done.any():
        yield _merged(files, task, [], [])
        return
    for since in {each.since for each in task.due}:
        rows = np.flatnonzero(is_done & ((entries.born > since) | (since == 0)))
        for seen in entries.answered_of(rows, [each for each in task.due if each.since == since]):
            if seen.groups.size:
                yield _batch(task, entries, seen, 0, entries.all_columns(seen, FOREVER))
    done_groups = np.zeros(entries.groups, np.bool_)
    done_groups[entries.gid[is_done]] = True
    left = _open_groups(files, task, opened, entries, done_groups)
    yield PaneReport(tuple(each.name for each in task.files), tuple(left))


def _open_groups(
    files: Files, task: AnswerTask, opened: _Opened, entries: _Entries, done: Mask
) -> list[PaneFile]:
    """Write the entries of groups that are still open, table by table."""
    left: list[PaneFile] = []
    arrived = max((each.arrived for each in task.files), default=0.0)
    for number, (table, gids) in enumerate(zip(opened.fresh, entries.numbers(opened.fresh), strict=True)):
        if table is not None and table.num_rows:
            rest = table.filter(pa.array(~done[gids]))
            folded = reduce_table(rest, [ORDER, PANE, CLASS, *keys_in(rest)], opened.functions(number))
            left += _some(
                write_panes(
                    files, task.spec.panes.id, folded, number, folded=False, arrived=arrived, part=task.part
                )
            )
    return left


# --- changes --------------------------------------------------------------------------------------------------------


def _changes(files: Files, task: AnswerTask) -> Iterator[pa.RecordBatch | PaneReport]:
    opened = _Opened(files, task, 1 << 62)
    fresh = [None if each is None else _hashed(each) for each in opened.fresh]
    main = fresh[0]
    made: list[PaneFile] = []
    again = any(each.again for each in task.due)
    if again or (main is not None and main.num_rows):
        changed = np.unique(_ints(main, ORDER)) if main is not None else np.zeros(0, np.int64)
        before = [
            [table for _, table in each] if again else _of_groups(each, changed) for each in opened.base
        ]
        if main is not None or before[0]:
            yield from _changed_groups(task, before, fresh)
        for number, table in enumerate(fresh):
            if table is not None and table.num_rows:
                functions = opened.functions(number)
                folded = reduce_table(table, [ORDER, PANE, CLASS, *keys_in(table)], functions)
                made += _some(
                    write_panes(files, task.spec.panes.id, folded, number, folded=True, part=task.part)
                )
    yield _merged(files, task, [each for each in task.files if not each.folded], made)


def _hashed(table: pa.Table) -> pa.Table:
    """Put entries in the order of a hash of their group, by which they are found again."""
    return table.set_column(table.column_names.index(ORDER), ORDER, pa.array(group_hashes(table)))


def _of_groups(base: Sequence[tuple[PaneFile, pa.Table]], hashes: Ints) -> list[pa.Table]:
    """Find the entries of some groups in folded files; a few others may have the same hash."""
    found = []
    for _, table in base:
        order = _ints(table, ORDER)
        first, last = np.searchsorted(order, hashes, "left"), np.searchsorted(order, hashes, "right")
        counts = last - first
        rows = np.repeat(first - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
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
    entries = _Entries(task, tables)
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
        now = _Seen(seen.reader, seen.groups[mine], [each.at(mine) for each in seen.folded])
        if now.groups.size:
            yield _change_batch(task, entries, now, were.get(seen.reader.number))


def _in_pane(table: pa.Table, pane: int) -> pa.Table:
    """Say of entries whether they are old (0) or new (1)."""
    return table.set_column(
        table.column_names.index(PANE), PANE, pa.array(np.full(table.num_rows, pane, np.int64))
    )


def _change_batch(task: AnswerTask, entries: _Entries, now: _Seen, old: _Seen | None) -> pa.RecordBatch:
    """Lay out changed groups: what they are, whether they were answered before, and what they were if that is asked."""
    columns = entries.all_columns(now, 1)
    batch = _batch(task, entries, now, now.reader.until, columns)
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
