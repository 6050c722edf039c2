"""Read the entries of a pane set, number their groups, and finish the measures of what a reader sees.

In:  the files of an `AnswerTask`.  Out: groups by number, measures by group, and answers laid out as rows
``(q, e, g0 …, a0 …)``: the reader, the instant, group keys and measures.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.engine.aggregate.answer_task import INSTANT, NOTE, READER
from penstock.kernels.aggregates.count import count_rows, counted
from penstock.kernels.aggregates.folded import Folded, fold_values
from penstock.kernels.fold import codes_of, number_groups
from penstock.state.pane_columns import column_ints, together, whole_column
from penstock.state.panes import (
    CLASS,
    ORDER,
    PANE,
    ROWS,
    PaneFile,
    functions_of,
    key_types,
    keys_in,
    map_panes,
    measures_in,
    put_together,
    read_panes,
    rows_between,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from penstock.engine.aggregate.answer_task import AnswerTask, Due
    from penstock.kernels.key_hash import Ints
    from penstock.state.files import Files


class PaneTables:
    """The files of a task as tables, by the number of the table in the pane set.

    `base` has the files of folded entries.  `fresh_files` has the entries that are not folded yet, born by `until`.
    """

    def __init__(self, files: Files, task: AnswerTask, until: int) -> None:
        """Map the files."""
        self.task, self.count = task, task.spec.tables
        self.base: list[list[tuple[PaneFile, pa.Table]]] = [[] for _ in range(self.count)]
        self.fresh_files: list[list[pa.Table]] = [[] for _ in range(self.count)]
        for file in task.files:
            table = (map_panes if task.spec.panes.by_rows else read_panes)(files, file)
            if file.folded:
                self.base[file.table].append((file, table))
            else:
                self.fresh_files[file.table].append(rows_between(table, file.first, until + 1))

    @cached_property
    def fresh(self) -> list[pa.Table | None]:
        """The entries that are not folded yet, in one table for each number."""
        return [_together(tables) for tables in self.fresh_files]

    def functions(self, number: int) -> list[str]:
        """List the functions of a table's measures."""
        return self.task.spec.functions(number)


def _together(tables: Sequence[pa.Table]) -> pa.Table | None:
    """Lay tables end to end; None if there is none."""
    some = [table for table in tables if table.num_rows]
    if not some:
        return tables[0] if tables else None
    return together(some).combine_chunks()


def ints(table: pa.Table, name: str) -> Ints:
    """Read a column of whole numbers."""
    return column_ints(table, name)


class Entries:
    """The entries of all tables of a pane set; a group has the same number in every table."""

    def __init__(self, task: AnswerTask, tables: Sequence[pa.Table | None]) -> None:
        self.task = task
        main = tables[0]
        assert main is not None  # noqa: S101 - there is no answer without entries
        self.main = main
        names = keys_in(main, "k")
        some = [table for table in tables if table is not None]
        self.groups, self._gids, self._firsts = numbered_alike(some, names)
        self._names = names
        self.born, self.pane, self.classes = (ints(main, name) for name in (ORDER, PANE, CLASS))
        self.count = counted(ints(main, ROWS))
        self.measures = [
            sharing(measure, self.count) for measure in measures_in(main, functions_of(task.spec.measures))
        ]
        self.distinct = [
            DistinctValues(table, gids, measure.function)
            for table, gids, measure in zip(
                tables[1:], self.numbers(tables)[1:], task.spec.distinct, strict=True
            )
        ]

    def numbers(self, tables: Sequence[pa.Table | None]) -> list[Ints]:
        """Return the group of each entry, table by table; nothing for a missing table."""
        numbered = iter(self._gids)
        return [np.zeros(0, np.int64) if table is None else next(numbered) for table in tables]

    @property
    def gid(self) -> Ints:
        """Return the group of each entry of the table of groups."""
        return self._gids[0]

    @cached_property
    def _all_keys(self) -> list[pa.Array]:
        """The keys of all groups, in the types of answers."""
        # a group that has only values of DISTINCT left gets no answer, so any keys do
        rows = pa.array(np.where(self._firsts < self.main.num_rows, self._firsts, 0))
        columns = {name: whole_column(self.main, name).take(rows) for name in self._names}
        keys = [put_together(kind, columns, f"k{n}") for n, kind in enumerate(key_types(self.main))]
        kinds = [self.task.schema.field(f"g{number}").type for number in range(len(keys))]
        return [key if key.type == kind else key.cast(kind) for key, kind in zip(keys, kinds, strict=True)]

    def keys(self, groups: Ints) -> list[pa.Array]:
        """Return the keys of some groups."""
        if groups.size == self.groups and bool((groups[:-1] < groups[1:]).all()):
            return self._all_keys  # all groups, in their order
        rows = pa.array(groups)
        return [column.take(rows) for column in self._all_keys]

    def answered(self, born_until: int, due: Sequence[Due]) -> Iterator[SeenGroups]:
        """Yield what each reader sees of the entries born by some time, in any pane."""
        for since in {reader.since for reader in due}:
            rows = np.flatnonzero((self.born <= born_until) & ((self.born > since) | (since == 0)))
            yield from self.answered_of(rows, [reader for reader in due if reader.since == since])

    def answered_of(self, rows: Ints, due: Sequence[Due]) -> Iterator[SeenGroups]:
        """Yield what some readers see of some entries: entries with the same set of readers are folded once."""
        folded = {}
        for readers, chosen in self.by_class(rows, due):
            measures = (self.count, *self.measures)
            folded[readers] = [one.at(chosen).by(self.gid[chosen], self.groups) for one in measures]
        for reader in due:
            if parts := [some for readers, some in folded.items() if readers >> reader.bit & 1]:
                yield _seen(reader, parts)

    def by_class(self, rows: Ints, due: Iterable[Due]) -> Iterator[tuple[int, Ints]]:
        """Divide entries by their set of readers, of those that are due."""
        bits = [1 << reader.bit for reader in due]
        classes = self.classes[rows] & sum(bits)
        distinct = np.unique(classes).tolist()
        if len(distinct) > len(bits) + 1:  # more sets than readers: divide by reader
            yield from ((bit, mine) for bit in bits if (mine := rows[classes & bit != 0]).size)
            return
        for readers in distinct:
            if readers:
                yield readers, rows[classes == readers]

    def columns(self, seen: SeenGroups, distinct: Sequence[pa.Array]) -> list[pa.Array]:
        """Return the finished measures of what a reader sees, in their order; `distinct` has those with DISTINCT."""
        plain, given = iter(seen.folded[1:]), iter(distinct)
        columns = []
        for number, measure in enumerate(self.task.spec.measures):
            kind = self.task.schema.field(f"a{number}").type
            if not measure.arguments:
                columns.append(seen.folded[0].finished(kind))
            else:
                columns.append(next(given) if measure.distinct else next(plain).finished(kind))
        return columns

    def distinct_columns(self, seen: SeenGroups, born_until: int, threshold: int) -> list[pa.Array]:
        """Return the finished measures with DISTINCT, from the pane `threshold` on."""
        kinds = [
            self.task.schema.field(f"a{number}").type
            for number, measure in enumerate(self.task.spec.measures)
            if measure.distinct
        ]
        return [
            values.finished(seen, self.groups, born_until, threshold, kind)
            for values, kind in zip(self.distinct, kinds, strict=True)
        ]

    def all_columns(self, seen: SeenGroups, born_until: int) -> list[pa.Array]:
        """Return all finished measures of what a reader sees, in any pane."""
        return self.columns(seen, self.distinct_columns(seen, born_until, 0))


@dataclass(frozen=True, slots=True)
class SeenGroups:
    """What a reader sees: some groups with their measures, the count of pairs first."""

    reader: Due
    groups: Ints
    folded: list[Folded]


class DistinctValues:
    """The entries of a measure with DISTINCT: a value of a group, its birth, pane and readers."""

    def __init__(self, table: pa.Table | None, gids: Ints, function: str) -> None:
        """Assign numbers to the combinations of group and value."""
        self.function, self.gid = function, gids
        self.table = table
        if table is None:
            return
        values = [codes_of(whole_column(table, name)) for name in keys_in(table, "v")]
        self.ids, self.firsts = number_groups([gids, *values])
        self.born, self.pane, self.classes = (ints(table, name) for name in (ORDER, PANE, CLASS))

    def finished(
        self, seen: SeenGroups, groups: int, born_until: int, threshold: int, kind: pa.DataType
    ) -> pa.Array:
        """Fold each value that a reader sees in a group once."""
        if self.table is None:
            size = seen.groups.size
            return pa.array(np.zeros(size, np.int64)) if self.function == "count" else pa.nulls(size, kind)
        visible = (self.born <= born_until) & (self.pane >= threshold)
        visible &= (self.classes >> seen.reader.bit & 1).astype(np.bool_)
        ids = np.unique(self.ids[visible])
        firsts = self.firsts[ids]
        if self.function == "count":
            folded: Folded = count_rows(self.gid[firsts], groups)
        else:
            values = whole_column(self.table, "v0").take(pa.array(firsts))
            folded = fold_values(self.function, values, self.gid[firsts], groups)
        return folded.at(seen.groups).finished(kind)


def sharing(measure: Folded, count: Folded) -> Folded:
    """Replace the counts of a measure of all pairs by the counts of the group, so that they are added up once."""
    n, every = measure.parts.get("n"), count.parts["n"]
    if n is None or not _is_same(n, every):
        return measure
    return replace(measure, parts={**measure.parts, "n": every})


def _is_same(one: Ints, other: Ints) -> bool:
    """Return whether two columns are equal; a column with a stride of 0 has one value."""
    if one.size and one.strides == other.strides == (0,):
        return bool(one[0] == other[0])
    return np.array_equal(one, other)


def numbered_alike(tables: Sequence[pa.Table], names: Sequence[str]) -> tuple[int, list[Ints], Ints]:
    """Assign numbers to the groups of several tables: how many, the group of each entry, and an entry of each group."""
    sizes = [table.num_rows for table in tables]
    if not names:
        return 1, [np.zeros(size, np.int64) for size in sizes], np.zeros(1, np.int64)
    keys = pa.concat_tables([table.select(names) for table in tables])
    ids, firsts = number_groups([codes_of(whole_column(keys, name)) for name in names])
    ends = np.cumsum([0, *sizes])
    # each group of another table is in the first, since its pairs were folded into both
    return firsts.size, [ids[ends[n] : ends[n + 1]] for n in range(len(sizes))], firsts


def _seen(reader: Due, parts: Sequence[list[Folded]]) -> SeenGroups:
    """Add up what a reader sees of entries with several sets of readers; groups without a pair are left out."""
    folded = parts[0]
    for others in parts[1:]:
        folded = [one.plus(other) for one, other in zip(folded, others, strict=True)]
    present = np.flatnonzero(folded[0].parts["n"])
    if present.size == folded[0].parts["n"].size:
        return SeenGroups(reader, present, folded)
    return SeenGroups(reader, present, [measure.at(present) for measure in folded])


def answer_batch(
    task: AnswerTask, reader: Due, instants: Ints | int, keys: Sequence[pa.Array], columns: Sequence[pa.Array]
) -> pa.RecordBatch:
    """Lay out the answers of a reader; only the measures where answers are only counted."""
    size = len(columns[0]) if columns else len(keys[0])
    number = pa.array(np.full(size, reader.number, np.int32))
    names = task.schema.names
    measures = names[len(names) - len(columns) :]
    if reader.counted:
        return pa.RecordBatch.from_arrays([number, *columns], [READER, *measures])
    instant = pa.array(np.broadcast_to(np.asarray(instants, np.int64), size))
    fixed = [number, pa.nulls(size, pa.string()), instant]
    return pa.RecordBatch.from_arrays([*fixed, *keys, *columns], [READER, NOTE, INSTANT, *names])
