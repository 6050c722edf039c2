"""Rows to partial aggregates: either side is folded by itself, by the join's key, and no pair is found.

Each pane set of such queries has one fold in each task.  It takes every new row of the unit that some reader wants,
once, and keeps what the rows of a pane and key come to (`penstock.plan.panes` says why that is enough)::

    rows of a side ──▶ born, pane, readers, key ──▶ number of the entry ──▶ count, sum, least … ──▶ a pane file

The table with number 0 has left rows, number 1 right ones.  Where groups are not the join's keys, the rows of the side
that has their columns are folded by key and group: the group's columns come after the key's.

In:  new rows (`penstock.engine.tasks.join`).  Out: `PaneFile`s, which the unit's commit names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa

from penstock.engine.sinks.routes import Route
from penstock.kernels.chosen_by import taken_together
from penstock.kernels.fold import codes_of, from_whole_numbers, number_runs
from penstock.kernels.key_hash import unmixed
from penstock.kernels.measures import Folded
from penstock.kernels.sets import members
from penstock.sql.query import ENDS
from penstock.state.files import open_files
from penstock.state.pane_columns import same_in, saying, together
from penstock.state.panes import CLASS, ORDER, PANE, ROWS, Shape, keys_in, write_panes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from penstock.engine.aggregate.pane_fold import FoldColumn, FoldSpec
    from penstock.engine.sinks.pair_batch import Delivery, PairBatch, Target
    from penstock.engine.tasks.route_pairs import TaskOutput
    from penstock.kernels.key_hash import Hashes, Ints
    from penstock.state.files import Files
    from penstock.state.panes import PaneFile
    from penstock.state.segment import SegmentRows

MOST_ROWS = 1 << 16
"""Rows of a side that wait before they are folded: few, so that the same memory serves all of them."""

_HASH = "h"


@dataclass(frozen=True, slots=True)
class RowRoute(Route):
    """Rows are folded, not pairs; answers come later."""

    spec: FoldSpec
    bits: int
    """The query's own bit, and those of readers that want the same rows."""
    sides: tuple[bool, ...]
    """Whose rows this group folds: where several groups join the same rows of a side, one of them does."""
    at_once: ClassVar[bool] = False
    folds_rows: ClassVar[bool] = True

    def take(self, _task: TaskOutput, _target: Target, _pairs: PairBatch, _wanted: NDArray[np.bool_]) -> None:
        """Do nothing: no pair is found for its sake."""


@dataclass(frozen=True, slots=True)
class NewRows:
    """New rows of one side: neighbours in a segment, or some."""

    side: int
    segment: SegmentRows
    rows: slice | Ints
    sets: NDArray[np.uint64] | None
    """For each pattern of predicate bits the queries that accept it; None where all do."""
    arrived: float

    def column(self, name: str) -> pa.Array:
        """Give a column of the rows."""
        return self._chosen(self.segment.column(name))

    def whole_key(self) -> list[pa.Array]:
        """Give their key as the log has it."""
        stored = self.segment.keys()
        if stored:
            return [self._chosen(each) for each in stored]
        return [pa.array(unmixed(self.segment.rows.h[self.rows]))]

    def keys(self, places: Sequence[int], kinds: Sequence[pa.DataType]) -> list[pa.Array]:
        """Give parts of their key, in the types that they have in the stream."""
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
    """One task's fold of one pane set."""

    def __init__(self, spec: FoldSpec, targets: Sequence[Target]) -> None:
        """Begin with nothing; the targets are those queries of the unit that read the set."""
        self.spec, self.targets = spec, targets
        self.arrived = 0.0
        self._rows: list[list[pa.Table]] = [[] for _ in range(spec.tables)]
        self._folded: list[list[tuple[int, pa.Table]]] = [[] for _ in range(spec.tables)]

    def take(self, found: NewRows) -> None:
        """Take some rows of one side."""
        classes = self._classes(found)
        panes, times = self.spec.panes, found.segment.rows.t[found.rows]
        born = -(-times // panes.step) * panes.step
        pane = (times + (panes.skew if found.side == 0 else 0) - 1) // panes.pane
        wanted = pane >= (born - panes.width) // panes.pane
        place, same = {ORDER: born, PANE: pane, _HASH: found.segment.rows.h[found.rows]}, dict[str, int]()
        if isinstance(classes, int):
            same[CLASS] = classes
        else:
            place[CLASS] = classes
        wanted &= classes != 0
        if not wanted.any():
            return
        columns = {name: pa.array(each) for name, each in place.items()} | self._values(found)
        table = saying(pa.table(columns), same)
        self._rows[found.side].append(table if wanted.all() else table.filter(pa.array(wanted)))
        self.arrived = max(self.arrived, found.arrived)
        if sum(each.num_rows for each in self._rows[found.side]) > MOST_ROWS:
            self._fold(found.side)

    def _classes(self, found: NewRows) -> Ints | int:
        """Give the set of readers of each row, or of all of them."""
        mine = [(each, _route(each)) for each in self.targets]
        mine = [(each, route) for each, route in mine if route.sides[found.side]]
        if found.sets is None:
            everybody = 0
            for _, route in mine:
                everybody |= route.bits
            return everybody
        of_pattern = np.zeros(len(found.sets), np.int64)
        for each, route in mine:
            of_pattern |= np.where(members(found.sets, each.number), np.int64(route.bits), np.int64(0))
        pattern = found.segment.rows.pattern
        if pattern is None:
            return int(of_pattern[0])
        return of_pattern[pattern[found.rows]]

    def _values(self, found: NewRows) -> dict[str, pa.Array]:
        """Give the group keys of rows, and what the measures of their side take."""
        columns = {f"k{number}": each for number, each in enumerate(self._keys(found))}
        for number in self._arguments(found.side):
            columns[f"a{number}"] = _value(found, _known(self.spec.columns[number]))
        return columns

    def _keys(self, found: NewRows) -> list[pa.Array]:
        """Give what rows are folded by: their groups, or the join's key and any groups that their side has."""
        groups = [_known(each) for each in self.spec.columns[: self.spec.groups]]
        if self.spec.group_table is None:
            return found.keys(self.spec.key_places, [each.kind for each in groups])
        own = groups if found.side == self.spec.group_table else []
        return [*found.whole_key(), *(_value(found, each) for each in own)]

    def _arguments(self, side: int) -> list[int]:
        """List the outputs that measures of one side take, each once."""
        return sorted({number for each in self.spec.of_side(side) for number in each.arguments})

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
                some = rows if mine.all() else rows.filter(pa.array(mine))
                self._folded[side].append((part, self._entries(side, some.combine_chunks())))

    def _entries(self, side: int, rows: pa.Table) -> pa.Table:
        """Fold rows by birth, pane, readers and key; segments have those of a key together, in order of time."""
        same = same_in(rows)
        places = [ORDER, PANE, *(() if CLASS in same else (CLASS,)), *keys_in(rows, "k")]
        ids, firsts = number_runs([codes_of(rows.column(name).chunk(0)) for name in places])
        columns = {name: rows.column(name).chunk(0) for name in places}
        alone = 4 * firsts.size > 3 * rows.num_rows  # to fold the others takes longer than it saves
        if alone:
            same[ROWS] = 1
        else:
            columns = {name: each.take(pa.array(firsts)) for name, each in columns.items()}
            columns[ROWS] = pa.array(Folded.rows(ids, firsts.size).parts["n"])
        measures, kinds = self.spec.of_side(side), list[pa.DataType | None]()
        for number, measure in enumerate(measures):
            values = taken_together([rows.column(f"a{each}").chunk(0) for each in measure.arguments])
            stored, kind = _stored(measure.function, values, None if alone else ids, firsts.size)
            kinds.append(kind)
            columns |= {f"m{number}.{name}": each for name, each in stored.items()}
        keys = tuple(rows.schema.field(name).type for name in keys_in(rows, "k"))
        shape = Shape(keys, 0, tuple(each.function for each in measures), tuple(kinds))
        return saying(pa.table(columns).replace_schema_metadata(shape.metadata()), same)

    def write(self, files: Files) -> Iterator[PaneFile]:
        """Write what was folded."""
        for side in range(self.spec.tables):
            self._fold(side)
            folded, self._folded[side] = self._folded[side], []
            for part in sorted({number for number, _ in folded}):
                table, panes = together([each for number, each in folded if number == part]), self.spec.panes
                made = write_panes(
                    files, panes.id, table, side, arrived=self.arrived, part=part, step=panes.step
                )
                if made:
                    yield made


def _stored(
    function: str, values: pa.Array, ids: Ints | None, size: int
) -> tuple[dict[str, pa.Array], pa.DataType | None]:
    """Give what is kept of values, and the type of what was folded; no two of them share an entry if there are no ids.

    A least or greatest value is then the value itself.
    """
    if ids is not None:
        folded = Folded.values(function, values, ids, size)
        return folded.stored(), folded.kind
    if function in ENDS:
        return {"v": values}, values.type
    each = Folded.each(function, values)
    assert each is not None  # noqa: S101 - only the least and greatest may have none
    return each.stored(), each.kind


def _parts_of(hashes: Hashes, parts: int) -> Ints:
    """Divide keys among parts by the hash that tasks divide rows by: as many tasks have a part each.

    >>> _parts_of(np.array([0, 1 << 63], np.uint64), 2).tolist()
    [0, 1]
    """
    return ((hashes >> np.uint64(32)) * np.uint64(parts) >> np.uint64(32)).astype(np.int64)


def _known(column: FoldColumn | None) -> FoldColumn:
    assert column is not None  # noqa: S101 - no output of such a query is computed
    return column


def _value(found: NewRows, column: FoldColumn) -> pa.Array:
    if not found.segment.has(column.name):  # nobody reads it
        size = found.segment.rows.t[found.rows].size
        return column.of_rows(pa.nulls(size, column.kind))
    return column.of_rows(found.column(column.name))


def _route(target: Target) -> RowRoute:
    assert isinstance(target.route, RowRoute)  # noqa: S101 - asked of such queries only
    return target.route


def fold_rows(delivery: Delivery, found: Iterable[NewRows]) -> Mapping[str, tuple[PaneFile, ...]]:
    """Fold all new rows of one task, and write what there is, by pane set."""
    readers: dict[str, list[Target]] = {}
    for each in delivery.targets:
        readers.setdefault(_route(each).spec.panes.id, []).append(each)
    folds = [RowFold(_route(each[0]).spec, each) for each in readers.values()]
    for rows in found:
        for fold in folds:
            fold.take(rows)
    files = open_files(delivery.state, sync=False)
    made = {each.spec.panes.id: tuple(each.write(files)) for each in folds}
    return {panes: written for panes, written in made.items() if written}
