"""Entries of a pane set that are answered together: their groups, and what readers see of them.

In:  the files of an `AnswerTask`.  Out: groups with numbers, measures by group, and answers laid out as rows
``(q, e, g0 …, a0 …)``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.engine.aggregate.answer_task import INSTANT, NOTE, READER
from penstock.kernels.fold import codes_of, number_groups
from penstock.kernels.measures import Folded
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


class Opened:
    """The files of a task, mapped, by table; `until` bounds the births that are looked at."""

    def __init__(self, files: Files, task: AnswerTask, until: int) -> None:
        self.task = task
        self.tables = task.spec.tables
        self.base: list[list[tuple[PaneFile, pa.Table]]] = [[] for _ in range(self.tables)]
        self.fresh_files: list[list[pa.Table]] = [[] for _ in range(self.tables)]
        for file in task.files:
            table = (map_panes if task.spec.panes.by_rows else read_panes)(files, file)
            if file.folded:
                self.base[file.table].append((file, table))
            else:
                self.fresh_files[file.table].append(rows_between(table, file.first, until + 1))

    @cached_property
    def fresh(self) -> list[pa.Table | None]:
        """Lay what is not folded yet end to end, table by table."""
        return [_together(each) for each in self.fresh_files]

    def functions(self, number: int) -> list[str]:
        """Name the functions of a table's measures."""
        return self.task.spec.functions(number)


def _together(tables: Sequence[pa.Table]) -> pa.Table | None:
    """Lay tables end to end; None if there is none."""
    some = [each for each in tables if each.num_rows]
    if not some:
        return tables[0] if tables else None
    return together(some).combine_chunks()


def ints(table: pa.Table, name: str) -> Ints:
    """Read a column of whole numbers."""
    return column_ints(table, name)


class Entries:
    """Entries of all tables of a pane set that are answered together, their groups numbered alike."""

    def __init__(self, task: AnswerTask, tables: Sequence[pa.Table | None]) -> None:
        self.task = task
        main = tables[0]
        assert main is not None  # noqa: S101 - there is no answer without entries
        self.main = main
        names = keys_in(main, "k")
        some = [each for each in tables if each is not None]
        self.groups, self._gids, self._firsts = numbered_alike(some, names)
        self._names = names
        self.born, self.pane, self.classes = (ints(main, each) for each in (ORDER, PANE, CLASS))
        self.count = Folded("count", {"n": ints(main, ROWS)})
        self.measures = [
            sharing(each, self.count) for each in measures_in(main, functions_of(task.spec.measures))
        ]
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
        # a group of which only values of DISTINCT are left has no answer, and is not asked for
        rows = pa.array(np.where(self._firsts < self.main.num_rows, self._firsts, 0))
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

    def answered(self, born_until: int, due: Sequence[Due]) -> Iterator[Seen]:
        """Give what each reader sees of all that is born by some time, whatever its pane."""
        for since in {each.since for each in due}:
            rows = np.flatnonzero((self.born <= born_until) & ((self.born > since) | (since == 0)))
            yield from self.answered_of(rows, [each for each in due if each.since == since])

    def answered_of(self, rows: Ints, due: Sequence[Due]) -> Iterator[Seen]:
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

    def columns(self, seen: Seen, distinct: Sequence[pa.Array]) -> list[pa.Array]:
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

    def distinct_columns(self, seen: Seen, born_until: int, threshold: int) -> list[pa.Array]:
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

    def all_columns(self, seen: Seen, born_until: int) -> list[pa.Array]:
        """Give all finished measures of what a reader sees, whatever the pane."""
        return self.columns(seen, self.distinct_columns(seen, born_until, 0))


@dataclass(frozen=True, slots=True)
class Seen:
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
        self.born, self.pane, self.classes = (ints(table, each) for each in (ORDER, PANE, CLASS))

    def finished(
        self, seen: Seen, groups: int, born_until: int, threshold: int, kind: pa.DataType
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


def sharing(measure: Folded, counted: Folded) -> Folded:
    """Let a measure that takes every pair have the very same counts as the group, so that they are added up once."""
    n, every = measure.parts.get("n"), counted.parts["n"]
    if n is None or not _is_same(n, every):
        return measure
    return replace(measure, parts={**measure.parts, "n": every})


def _is_same(one: Ints, other: Ints) -> bool:
    """Say whether two columns are equal; those that were left out are one number each."""
    if one.size and one.strides == other.strides == (0,):
        return bool(one[0] == other[0])
    return np.array_equal(one, other)


def numbered_alike(tables: Sequence[pa.Table], names: Sequence[str]) -> tuple[int, list[Ints], Ints]:
    """Give groups the same numbers in several tables: how many, those of each table's entries, an entry of each."""
    sizes = [each.num_rows for each in tables]
    if not names:
        return 1, [np.zeros(size, np.int64) for size in sizes], np.zeros(1, np.int64)
    keys = pa.concat_tables([each.select(names) for each in tables])
    ids, firsts = number_groups([codes_of(whole_column(keys, name)) for name in names])
    ends = np.cumsum([0, *sizes])
    # each group of another table is one of the first: its pairs were folded into both
    return firsts.size, [ids[ends[n] : ends[n + 1]] for n in range(len(sizes))], firsts


def _seen(reader: Due, parts: Sequence[list[Folded]]) -> Seen:
    """Put together what a reader sees of several sets of readers, and leave out groups without a pair."""
    folded = parts[0]
    for others in parts[1:]:
        folded = [one.plus(other) for one, other in zip(folded, others, strict=True)]
    present = np.flatnonzero(folded[0].parts["n"])
    if present.size == folded[0].parts["n"].size:
        return Seen(reader, present, folded)
    return Seen(reader, present, [each.at(present) for each in folded])


def answer_batch(
    task: AnswerTask, reader: Due, instants: Ints | int, keys: Sequence[pa.Array], columns: Sequence[pa.Array]
) -> pa.RecordBatch:
    """Lay out what a reader is answered; only the measures if nobody looks at more."""
    size = len(columns[0]) if columns else len(keys[0])
    number = pa.array(np.full(size, reader.number, np.int32))
    names = task.schema.names
    measures = names[len(names) - len(columns) :]
    if reader.counted:
        return pa.RecordBatch.from_arrays([number, *columns], [READER, *measures])
    instant = pa.array(np.broadcast_to(np.asarray(instants, np.int64), size))
    fixed = [number, pa.nulls(size, pa.string()), instant]
    return pa.RecordBatch.from_arrays([*fixed, *keys, *columns], [READER, NOTE, INSTANT, *names])
