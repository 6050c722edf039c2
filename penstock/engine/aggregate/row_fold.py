"""Fold the rows of either side into the partial results of a pane set; no pair is found.

Where groups are the join's keys, or columns of one side, the pairs of a group follow from what either side's rows come
to (`penstock.plan.panes` shows why).  Each pane set of such queries has one fold in each task.  It takes a new row
once for all queries that accept it::

    rows of a side ──▶ born, pane, readers, key ──▶ number of the entry ──▶ count, sum, least … ──▶ a pane file

Table 0 has left rows, table 1 right rows.  Where groups are columns of one side, its rows are folded by the join's key
and those columns; the columns come after the key.

In:  new rows (`penstock.engine.tasks.join`).  Out: `PaneFile`s, which the unit's commit names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.engine.aggregate.fold_spec import entry_table, fold_route, targets_by_set
from penstock.kernels.fold import codes_of, from_whole_numbers, number_runs
from penstock.kernels.key_hash import unmixed
from penstock.kernels.sets import members
from penstock.state.files import open_files
from penstock.state.pane_columns import same_in, saying, together
from penstock.state.panes import CLASS, ORDER, PANE, ROWS, keys_in, write_panes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from penstock.engine.aggregate.fold_spec import FoldColumn, FoldSpec
    from penstock.engine.sinks.pair_batch import Delivery, Target
    from penstock.kernels.key_hash import Hashes, Ints
    from penstock.state.files import Files
    from penstock.state.panes import PaneFile
    from penstock.state.segment import SegmentRows

MOST_ROWS = 1 << 16
"""Rows of a side that wait before they are folded: few, so that the same memory serves all of them."""

_HASH = "h"


@dataclass(frozen=True, slots=True)
class NewRows:
    """New rows of one side, all of one segment."""

    side: int
    segment: SegmentRows
    rows: slice | Ints
    sets: NDArray[np.uint64] | None
    """For each pattern of predicate bits the queries that accept it; None where all do."""
    arrived: float

    def column(self, name: str) -> pa.Array:
        """Return a column of the rows."""
        return self._chosen(self.segment.column(name))

    def output(self, column: FoldColumn) -> pa.Array:
        """Return an output of the rows; nulls where its column is not stored, because no query reads it."""
        if self.segment.has(column.name):
            return column.of_rows(self.column(column.name))
        return column.of_rows(pa.nulls(self.segment.rows.t[self.rows].size, column.kind))

    def whole_key(self) -> list[pa.Array]:
        """Return the join's key of the rows, as the log stores it."""
        stored = self.segment.keys()
        if stored:
            return [self._chosen(part) for part in stored]
        return [pa.array(unmixed(self.segment.rows.h[self.rows]))]

    def keys(self, places: Sequence[int], kinds: Sequence[pa.DataType]) -> list[pa.Array]:
        """Return parts of the join's key, in the types that they have in the stream."""
        stored = self.segment.keys()
        if not stored:
            numbers = unmixed(self.segment.rows.h[self.rows])
            return [from_whole_numbers(numbers, kind) for kind in kinds]
        parts = (self._chosen(stored[place]) for place in places)
        return [
            part if part.type == kind else part.cast(kind) for part, kind in zip(parts, kinds, strict=True)
        ]

    def _chosen(self, column: pa.Array) -> pa.Array:
        if isinstance(self.rows, slice):
            return column.slice(self.rows.start, self.rows.stop - self.rows.start)
        return column.take(pa.array(self.rows))


class RowFold:
    """The fold of one pane set in one task."""

    def __init__(self, spec: FoldSpec, targets: Sequence[Target]) -> None:
        """Begin with nothing; the targets are the queries of the unit that read the set."""
        self.spec, self.targets = spec, targets
        self.arrived = 0.0
        self._rows: list[list[pa.Table]] = [[] for _ in range(spec.tables)]
        """For each side, rows that wait to be folded."""
        self._entries: list[dict[int, list[pa.Table]]] = [{} for _ in range(spec.tables)]
        """For each side, entries by the part of the pane set."""

    def take(self, found: NewRows) -> None:
        """Take some rows of one side."""
        readers = self._readers(found)
        panes, times = self.spec.panes, found.segment.rows.t[found.rows]
        born = -(-times // panes.step) * panes.step
        pane = (times + (panes.skew if found.side == 0 else 0) - 1) // panes.pane
        wanted = (pane >= (born - panes.width) // panes.pane) & (readers != 0)
        if not wanted.any():
            return
        columns, same = {ORDER: born, PANE: pane, _HASH: found.segment.rows.h[found.rows]}, dict[str, int]()
        if isinstance(readers, int):
            same[CLASS] = readers  # all rows have the same readers: the number is kept once
        else:
            columns[CLASS] = readers
        arrays = {name: pa.array(column) for name, column in columns.items()}
        table = saying(pa.table(arrays | self._values(found)), same)
        self._rows[found.side].append(table if wanted.all() else table.filter(pa.array(wanted)))
        self.arrived = max(self.arrived, found.arrived)
        if sum(rows.num_rows for rows in self._rows[found.side]) > MOST_ROWS:
            self._fold(found.side)

    def _readers(self, found: NewRows) -> Ints | int:
        """Return the set of queries that accept each row, as bits; one number if it is the same for all."""
        routes = [(target.number, fold_route(target)) for target in self.targets]
        mine = [(number, route.bits) for number, route in routes if route.sides[found.side]]
        if found.sets is None:
            everyone = 0
            for _, bits in mine:
                everyone |= bits
            return everyone
        of_pattern = np.zeros(len(found.sets), np.int64)
        for number, bits in mine:
            of_pattern |= np.where(members(found.sets, number), np.int64(bits), np.int64(0))
        pattern = found.segment.rows.pattern
        if pattern is None:
            return int(of_pattern[0])
        return of_pattern[pattern[found.rows]]

    def _values(self, found: NewRows) -> dict[str, pa.Array]:
        """Return the keys by which rows are folded, and the arguments of the measures of their side."""
        columns = {f"k{number}": key for number, key in enumerate(self._keys(found))}
        arguments = {number for measure in self.spec.of_side(found.side) for number in measure.arguments}
        for number in sorted(arguments):
            columns[f"a{number}"] = found.output(_known(self.spec.columns[number]))
        return columns

    def _keys(self, found: NewRows) -> list[pa.Array]:
        """Return the groups of rows, or the join's key and the groups that their side has."""
        groups = [_known(column) for column in self.spec.columns[: self.spec.groups]]
        if self.spec.group_table is None:
            return found.keys(self.spec.key_places, [column.kind for column in groups])
        own = groups if found.side == self.spec.group_table else []
        return [*found.whole_key(), *(found.output(column) for column in own)]

    def _fold(self, side: int) -> None:
        """Fold the rows of a side that wait, part by part."""
        if not self._rows[side]:
            return
        rows = together(self._rows[side]).combine_chunks()
        self._rows[side] = []
        parts = _parts_of(rows.column(_HASH).to_numpy(), self.spec.panes.parts)
        for part in range(self.spec.panes.parts):
            mine = parts == part
            if mine.any():
                some = rows if mine.all() else rows.filter(pa.array(mine)).combine_chunks()
                self._entries[side].setdefault(part, []).append(self._folded(side, some))

    def _folded(self, side: int, rows: pa.Table) -> pa.Table:
        """Fold rows that have the same birth, pane, readers and key; in a segment these are neighbours."""
        same = same_in(rows)
        names = [ORDER, PANE, *(() if CLASS in same else (CLASS,)), *keys_in(rows, "k")]
        columns = {name: rows.column(name).chunk(0) for name in names}
        ids, firsts = number_runs([codes_of(column) for column in columns.values()])
        is_worth_it = 4 * firsts.size <= 3 * rows.num_rows
        if not is_worth_it:
            same[ROWS] = 1
        kinds = [rows.schema.field(name).type for name in keys_in(rows, "k")]
        table = entry_table(
            columns,
            kinds,
            self.spec.of_side(side),
            lambda argument: rows.column(f"a{argument}").chunk(0),
            (ids, firsts) if is_worth_it else None,
        )
        return saying(table, same)

    def write(self, files: Files) -> Iterator[PaneFile]:
        """Write the entries."""
        panes = self.spec.panes
        for side in range(self.spec.tables):
            self._fold(side)
            for part, tables in sorted(self._entries[side].items()):
                made = write_panes(
                    files, panes.id, together(tables), side, arrived=self.arrived, part=part, step=panes.step
                )
                if made:
                    yield made


def _parts_of(hashes: Hashes, parts: int) -> Ints:
    """Divide keys among parts by the hash that tasks divide rows by: as many tasks have a part each.

    >>> _parts_of(np.array([0, 1 << 63], np.uint64), 2).tolist()
    [0, 1]
    """
    return ((hashes >> np.uint64(32)) * np.uint64(parts) >> np.uint64(32)).astype(np.int64)


def _known(column: FoldColumn | None) -> FoldColumn:
    assert column is not None  # noqa: S101 - Spark SQL computes no output of such a query
    return column


def fold_rows(delivery: Delivery, found: Iterable[NewRows]) -> Mapping[str, tuple[PaneFile, ...]]:
    """Fold all new rows of one task, and write the entries, by pane set."""
    folds = [RowFold(spec, targets) for spec, targets in targets_by_set(delivery.targets)]
    for rows in found:
        for fold in folds:
            fold.take(rows)
    files = open_files(delivery.state, sync=False)
    made = {fold.spec.panes.id: tuple(fold.write(files)) for fold in folds}
    return {panes: written for panes, written in made.items() if written}
