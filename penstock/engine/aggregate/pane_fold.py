"""Pairs to partial aggregates: in a unit's own tasks, straight from the probe.

Each pane set of the unit's queries has one fold in each task.  It takes every pair that some reader wants, once, with
the set of readers, and keeps what the pairs of a pane and group come to::

    pairs ──▶ born, pane, readers, key ──▶ number of the entry ──▶ count, sum, least … ──▶ a pane file

Where no output of the unit is an expression, values are taken from the segments by the pairs' row numbers, and no row
of a pair is ever put together.

In:  batches of pairs (`penstock.engine.tasks.route_pairs`).  Out: `PaneFile`s, which the unit's commit names.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa

from penstock.engine.aggregate.running_fold import RunningFold
from penstock.engine.sinks.routes import Route
from penstock.kernels.chosen_by import taken_together
from penstock.kernels.fold import codes_of, number_groups, remainders
from penstock.kernels.measures import Folded
from penstock.kernels.sets import members
from penstock.plan.panes import PaneSet, aggregation_of, key_places
from penstock.sql.query import CHOSEN_BY, FOREVER, SIDES
from penstock.state.pane_columns import whole_column
from penstock.state.panes import (
    CLASS,
    ORDER,
    PANE,
    ROWS,
    Shape,
    functions_of,
    group_hashes,
    keys_in,
    laid_out,
    reduce_table,
    sorted_rows,
    write_panes,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from penstock.engine.sinks.pair_batch import PairBatch, Target
    from penstock.engine.tasks.route_pairs import TaskOutput
    from penstock.kernels.key_hash import Ints
    from penstock.plan.group import Group
    from penstock.sql.query import Measure, Output, Query, Remainder, Side
    from penstock.state.files import Files
    from penstock.state.panes import PaneFile

MOST_ENTRIES = 1 << 18
"""Entries that wait before they are folded with each other."""


@dataclass(frozen=True, slots=True)
class FoldColumn:
    """A column of one row of the pair, and its type; or what is left of it when it is divided."""

    side: str
    name: str
    kind: pa.DataType
    remainder: Remainder | None = None

    @classmethod
    def of(cls, output: Output, types: Mapping[Side, Mapping[str, pa.DataType]]) -> FoldColumn | None:
        """Find the column that an output of the pair is or is taken from; None if Spark SQL computes it."""
        if output.column:
            side, name = output.column
        elif output.remainder:
            side, name = output.remainder.side, output.remainder.column
        else:
            return None
        return cls(side, name, types[side][name], output.remainder)

    def of_rows(self, values: pa.Array) -> pa.Array:
        """Give what is taken of the values that rows have in the column."""
        by = self.remainder
        return values if by is None else remainders(values, by.divisor, wide=by.wide, floored=by.floored)


@dataclass(frozen=True, slots=True)
class FoldSpec:
    """What is folded for a pane set: which of the pair's outputs are the key, and which the measures take."""

    panes: PaneSet
    groups: int
    measures: tuple[Measure, ...]
    columns: tuple[FoldColumn | None, ...]
    """Of each pair output, where it is a plain column or a remainder."""
    bucket: int | None = None
    """The pair output that says when a group's bucket ends."""
    key_places: tuple[int, ...] = ()
    """Where rows are folded by the join's key: which part of it each group key is."""
    key_parts: int = 0
    """How many parts the join's key has."""

    @classmethod
    def of(
        cls, panes: PaneSet, query: Query, types: Mapping[Side, Mapping[str, pa.DataType]], group: Group
    ) -> FoldSpec:
        """Describe the fold of a pane set by one of its readers; `types` are those of each side's columns."""
        aggregation = aggregation_of(query)
        columns = tuple(FoldColumn.of(each, types) for each in query.outputs)
        bucket = aggregation.bucket.end if aggregation.bucket else None
        places = key_places(query, group) if panes.by_rows and not panes.group_side else ()
        parts = len(group.inputs[0].log.key)
        return cls(panes, aggregation.groups, aggregation.measures, columns, bucket, places, parts)

    @property
    def group_table(self) -> int | None:
        """Give the table of the side that has the groups, where rows are folded and groups are not the join's keys."""
        return SIDES.index(self.panes.group_side) if self.panes.group_side else None

    @property
    def distinct(self) -> list[Measure]:
        """List the measures that have tables of their own."""
        return [each for each in self.measures if each.distinct]

    @property
    def tables(self) -> int:
        """Say how many tables the set has: of groups and of DISTINCT values, or one of either side's rows."""
        return len(SIDES) if self.panes.by_rows else 1 + len(self.distinct)

    def of_side(self, table: int) -> list[Measure]:
        """List the measures that take columns of one side's rows, where rows are folded."""
        takes = ((each, self.columns[each.arguments[0]]) for each in self.measures if each.arguments)
        return [each for each, column in takes if column is not None and column.side == SIDES[table]]

    def functions(self, table: int) -> list[str]:
        """Name the functions of the measures that are kept in a table."""
        if self.panes.by_rows:
            return [each.function for each in self.of_side(table)]
        return functions_of(self.measures) if table == 0 else []


@dataclass(frozen=True, slots=True)
class FoldRoute(Route):
    """Pairs are folded; answers come later."""

    spec: FoldSpec
    bits: int
    """The query's own bit, and those of readers that see the pair too if their windows reach it."""
    at_once: ClassVar[bool] = False
    folds_pairs: ClassVar[bool] = True

    def take(self, _task: TaskOutput, _target: Target, _pairs: PairBatch, _wanted: NDArray[np.bool_]) -> None:
        """Do nothing: all readers of a pane set are served by one fold (`PairFold`)."""


class PairFold:
    """One task's fold of one pane set."""

    def __init__(self, spec: FoldSpec, targets: Sequence[Target]) -> None:
        """Begin with nothing; the targets are those queries of the unit that read the set."""
        self.spec, self.targets = spec, targets
        self.computed = targets[0].computed
        self.source = f"o{min(each.number for each in targets)}"
        self.arrived = 0.0
        self._waiting: dict[int, list[pa.Table]] = {}
        self._entries, self._most_entries = 0, MOST_ENTRIES
        self._apart = False
        """Whether pairs have hardly an entry in common, so that entries are not looked at again."""
        adds_in_place = not any(each.distinct or each.function in CHOSEN_BY for each in spec.measures)
        is_plain = spec.panes.emit == "sliding" and adds_in_place
        self._running: RunningFold | None = RunningFold(spec) if is_plain else None

    def take(self, pairs: PairBatch) -> None:
        """Fold some pairs."""
        classes = self._classes(pairs)
        wanted = classes != 0
        if self.computed:
            wanted &= pairs.batch.column(self.source).is_valid().to_numpy(zero_copy_only=False)
        if self._running is not None:
            values = lambda rows: _Values(self, pairs, rows)  # noqa: E731 - a name for what is asked of it
            if self._running.take(pairs, np.where(wanted, classes, 0), values):
                self.arrived = max(self.arrived, pairs.arrived)
                if self._running.is_full:
                    self._stop_running()
                    self._running = RunningFold(self.spec)
                return
            self._stop_running()
        order, pane = self._place(pairs, wanted)
        if not wanted.any():
            return
        rows = None if wanted.all() else np.flatnonzero(wanted)
        place = {ORDER: order, PANE: pane, CLASS: classes}
        if rows is not None:
            place = {name: each[rows] for name, each in place.items()}
        self.arrived = max(self.arrived, pairs.arrived)
        self._fold({name: pa.array(each) for name, each in place.items()}, _Values(self, pairs, rows))

    def _classes(self, pairs: PairBatch) -> Ints:
        """Give the set of readers of each pair."""
        if pairs.sets is not None:
            classes = np.zeros(len(pairs.level), np.int64)
            for each in self.targets:
                classes |= np.where(
                    members(pairs.sets, each.number), np.int64(_route(each).bits), np.int64(0)
                )
            return classes
        last = max(each.levels[1] for each in self.targets)
        of_level = np.zeros(last + 1, np.int64)
        for each in self.targets:
            of_level[slice(*each.levels)] |= _route(each).bits
        return of_level[np.minimum(pairs.level, last)]

    def _place(self, pairs: PairBatch, wanted: NDArray[np.bool_]) -> tuple[Ints, Ints]:
        """Say when pairs are born and in which pane they are, or when their bucket ends; drop those nobody sees."""
        panes, none = self.spec.panes, np.zeros(len(pairs.level), np.int64)
        if panes.emit != "sliding":
            if panes.emit == "changes":
                return none, none
            if self.spec.bucket is None:
                return none + FOREVER, none
            ends = _Values(self, pairs, None)[self.spec.bucket]
            return ends.fill_null(FOREVER).to_numpy(zero_copy_only=False).astype(np.int64), none
        left, right = pairs.ends(panes.skews)
        newer, older = np.maximum(left, right), np.minimum(left + panes.skew, right)
        born = -(-newer // panes.step) * panes.step
        pane = (older - 1) // panes.pane
        wanted &= pane >= (born - panes.width) // panes.pane
        return born, pane

    def _fold(self, place: dict[str, pa.Array], values: _Values) -> None:
        """Fold pairs into the table of groups, and the values of DISTINCT aggregates into theirs."""
        spec = self.spec
        keys: dict[str, pa.Array] = {}
        for number in range(spec.groups):
            keys |= laid_out(values[number], f"k{number}")
        types = tuple(values[number].type for number in range(spec.groups))
        entries = place | keys
        ids, firsts = number_groups([codes_of(each) for each in entries.values()])
        columns = {name: each.take(pa.array(firsts)) for name, each in entries.items()}
        columns[ROWS] = pa.array(Folded.rows(ids, firsts.size).parts["n"])
        kinds: list[pa.DataType | None] = []
        plain = [each for each in spec.measures if each.arguments and not each.distinct]
        for number, measure in enumerate(plain):
            folded_values = taken_together([values[each] for each in measure.arguments])
            folded = Folded.values(measure.function, folded_values, ids, firsts.size)
            kinds.append(folded.kind)
            columns |= {f"m{number}.{name}": each for name, each in folded.stored().items()}
        functions = tuple(each.function for each in plain)
        self._keep(0, columns, Shape(types, 0, functions, tuple(kinds)))
        for number, measure in enumerate(spec.distinct, 1):
            arguments = {f"v{n}": values[each] for n, each in enumerate(measure.arguments)}
            columns = _distinct(entries, arguments)
            self._keep(number, columns, Shape(types, len(arguments), (), ()))

    def _stop_running(self) -> None:
        """Go on table by table: something came that running entries cannot take."""
        running, self._running = self._running, None
        if running is not None and (table := running.table()) is not None:
            self._apart = running.apart
            self._wait(0, table)

    def _keep(self, number: int, columns: dict[str, pa.Array], shape: Shape) -> None:
        self._wait(number, pa.table(columns).replace_schema_metadata(shape.metadata()))

    def _wait(self, number: int, table: pa.Table) -> None:
        """Let entries wait to be written; fold them with each other if they are many."""
        self._waiting.setdefault(number, []).append(table)
        self._entries += table.num_rows
        if self._entries > self._most_entries and not self._apart and len(self._waiting[number]) > 1:
            self._waiting = {each: [self._reduced(each)] for each in self._waiting}
            self._entries = sum(each[0].num_rows for each in self._waiting.values())
            self._most_entries = max(MOST_ENTRIES, 2 * self._entries)

    def _reduced(self, number: int) -> pa.Table:
        """Fold the entries of one table with each other; what is one piece was folded as far as it is worth it."""
        if len(self._waiting[number]) == 1:
            return self._waiting[number][0]
        table = pa.concat_tables(self._waiting[number])
        if self._apart:
            return table
        return reduce_table(table, [ORDER, PANE, CLASS, *keys_in(table)], self.spec.functions(number))

    def write(self, files: Files) -> list[PaneFile]:
        """Write what was folded."""
        self._stop_running()
        made = (
            write_panes(files, self.spec.panes.id, table, number, arrived=self.arrived, part=part)
            for number in sorted(self._waiting)
            for part, table in self._parts(self._reduced(number))
        )
        return [each for each in made if each]

    def _parts(self, table: pa.Table) -> Iterator[tuple[int, pa.Table]]:
        """Divide entries among the parts of their pane set, each in its order."""
        parts = self.spec.panes.parts
        if parts == 1 or not table.num_rows:
            yield 0, table
            return
        of_part = group_hashes(table) % parts
        rows, ends = sorted_rows(whole_column(table, ORDER).to_numpy(), of_part, parts)
        for part, (first, last) in enumerate(pairwise([0, *ends.tolist()])):
            yield part, table.take(pa.array(rows[first:last]))


def _route(target: Target) -> FoldRoute:
    assert isinstance(target.route, FoldRoute)  # noqa: S101 - asked of aggregate queries only
    return target.route


def _distinct(entries: Mapping[str, pa.Array], arguments: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
    """Keep each value that a group has in a pane once; a null is no value."""
    valid = np.ones(len(next(iter(arguments.values()))), np.bool_)
    for each in arguments.values():
        valid &= each.is_valid().to_numpy(zero_copy_only=False)
    columns = {
        **entries,
        **{k: v for name, each in arguments.items() for k, v in laid_out(each, name).items()},
    }
    if not valid.all():
        columns = {name: each.filter(pa.array(valid)) for name, each in columns.items()}
    _, firsts = number_groups([codes_of(each) for each in columns.values()])
    return {name: each.take(pa.array(firsts)) for name, each in columns.items()}


class _Values:
    """The outputs of some pairs, each read when it is asked for, once."""

    def __init__(self, fold: PairFold, pairs: PairBatch, rows: Ints | None) -> None:
        self._fold, self._pairs, self._rows = fold, pairs, rows
        self._read: dict[int, pa.Array] = {}

    def __getitem__(self, number: int) -> pa.Array:
        if number not in self._read:
            self._read[number] = self._column(number)
        return self._read[number]

    def _column(self, number: int) -> pa.Array:
        if self._fold.computed:
            column = self._pairs.batch.column(self._fold.source).field(number)
            return column if self._rows is None else column.take(pa.array(self._rows))
        column = self._fold.spec.columns[number]
        assert column is not None  # noqa: S101 - else it is computed
        return column.of_rows(self._pairs.column(column.side, column.name, column.kind, self._rows))


def folds_of(targets: Iterable[Target]) -> list[PairFold]:
    """Make one fold for each pane set that some queries of a unit read."""
    readers: dict[str, list[Target]] = {}
    for each in targets:
        if isinstance(each.route, FoldRoute):
            readers.setdefault(each.route.spec.panes.id, []).append(each)
    return [PairFold(_route(each[0]).spec, each) for each in readers.values()]
