"""What is folded for a pane set, and what folds of pairs and of rows have in common.

A *pane set* is the partial results that some queries share (`penstock.plan.panes`).  Its files hold entries::

    born      pane      readers   k0 …    n       m0.n m0.s …
    10:00:20  09:59:50  q0, q1    'x'     17      17   3.5           17 pairs of group 'x'

`born` is the first instant whose answer has the pairs.  `pane` is the interval of their older row: a window that begins
after it does not reach them.  `readers` are the queries that accept them, as a set of bits.  Where rows are folded
instead of pairs, either side has a table of its own.

In:  queries of a pane set, and columns.  Out: a `FoldSpec`, the routes of its queries, and tables of entries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa

from penstock.engine.sinks.routes import Route
from penstock.kernels.aggregates.count import count_rows
from penstock.kernels.aggregates.folded import as_one_column, fold_values, folded_class
from penstock.kernels.fold import remainders
from penstock.plan.panes import PaneSet, aggregation_of, key_places
from penstock.sql.query import SIDES
from penstock.state.panes import ROWS, Shape, functions_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from penstock.engine.sinks.pair_batch import PairBatch, Target
    from penstock.engine.tasks.route_pairs import TaskOutput
    from penstock.kernels.key_hash import Ints
    from penstock.plan.group import Group
    from penstock.sql.query import Measure, OutputColumn, Query, Remainder, Side


@dataclass(frozen=True, slots=True)
class FoldColumn:
    """A column of one row of a pair, and its type; or its remainder."""

    side: str
    name: str
    kind: pa.DataType
    remainder: Remainder | None = None

    @classmethod
    def of(cls, output: OutputColumn, types: Mapping[Side, Mapping[str, pa.DataType]]) -> FoldColumn | None:
        """Return the column of an output; None if Spark SQL computes the output."""
        if output.column:
            side, name = output.column
        elif output.remainder:
            side, name = output.remainder.side, output.remainder.column
        else:
            return None
        return cls(side, name, types[side][name], output.remainder)

    def of_rows(self, values: pa.Array) -> pa.Array:
        """Return the values of the output, by the values of the column."""
        by = self.remainder
        return values if by is None else remainders(values, by.divisor, wide=by.wide, floored=by.floored)


@dataclass(frozen=True, slots=True)
class FoldSpec:
    """How pairs or rows are folded for a pane set."""

    panes: PaneSet
    groups: int
    """The number of group keys: the first outputs of a pair."""
    measures: tuple[Measure, ...]
    columns: tuple[FoldColumn | None, ...]
    """The column of each output; None where Spark SQL computes it."""
    bucket: int | None = None
    """The output with the end of a group's bucket of event time."""
    key_places: tuple[int, ...] = ()
    """Where rows are folded by the join's key: the part of it that each group key is."""
    key_parts: int = 0
    """The number of parts of the join's key."""

    @classmethod
    def of(
        cls, panes: PaneSet, query: Query, types: Mapping[Side, Mapping[str, pa.DataType]], group: Group
    ) -> FoldSpec:
        """Describe the fold of a pane set by one of its queries; `types` are the types of each side's columns."""
        aggregation = aggregation_of(query)
        columns = tuple(FoldColumn.of(output, types) for output in query.outputs)
        bucket = aggregation.bucket.end if aggregation.bucket else None
        places = key_places(query, group) if panes.by_rows and not panes.group_side else ()
        parts = len(group.inputs[0].log.key)
        return cls(panes, aggregation.groups, aggregation.measures, columns, bucket, places, parts)

    @property
    def group_table(self) -> int | None:
        """Return the side whose columns are the groups, where rows are folded and groups are not the join's keys."""
        return SIDES.index(self.panes.group_side) if self.panes.group_side else None

    @property
    def distinct(self) -> list[Measure]:
        """List the measures with DISTINCT, which have tables of their own."""
        return [measure for measure in self.measures if measure.distinct]

    @property
    def tables(self) -> int:
        """Return the number of tables: one of groups and one for each DISTINCT, or one for each side's rows."""
        return len(SIDES) if self.panes.by_rows else 1 + len(self.distinct)

    def of_side(self, table: int) -> list[Measure]:
        """List the measures that take columns of one side's rows, where rows are folded."""
        takes = ((one, self.columns[one.arguments[0]]) for one in self.measures if one.arguments)
        return [measure for measure, column in takes if column is not None and column.side == SIDES[table]]

    def functions(self, table: int) -> list[str]:
        """List the functions of the measures in a table."""
        if self.panes.by_rows:
            return [measure.function for measure in self.of_side(table)]
        return functions_of(self.measures) if table == 0 else []


@dataclass(frozen=True, slots=True)
class FoldRoute(Route):
    """Pairs are folded, or the rows of either side; the answers are made of the folded entries later."""

    spec: FoldSpec
    bits: int
    """The bit of the query, and those of queries of the set that accept the same pairs."""
    sides: tuple[bool, ...] = ()
    """The sides whose rows this group folds: where several groups join the same rows of a side, one of them does."""
    at_once: ClassVar[bool] = False

    @property
    def folds_pairs(self) -> bool:
        """Return whether pairs are folded."""
        return not self.spec.panes.by_rows

    @property
    def folds_rows(self) -> bool:
        """Return whether rows are folded, and no pair is found."""
        return self.spec.panes.by_rows

    def take(self, _task: TaskOutput, _target: Target, _pairs: PairBatch, _wanted: NDArray[np.bool_]) -> None:
        """Do nothing: one fold takes the pairs of all queries of a pane set (`penstock.engine.aggregate.pane_fold`)."""


def fold_route(target: Target) -> FoldRoute:
    """Return the route of a query with aggregates."""
    assert isinstance(target.route, FoldRoute)  # noqa: S101 - asked of such queries only
    return target.route


def targets_by_set(targets: Iterable[Target]) -> list[tuple[FoldSpec, list[Target]]]:
    """Divide the queries of a unit that have aggregates by their pane set."""
    found: dict[str, tuple[FoldSpec, list[Target]]] = {}
    for target in targets:
        if isinstance(target.route, FoldRoute):
            spec = target.route.spec
            found.setdefault(spec.panes.id, (spec, []))[1].append(target)
    return list(found.values())


def entry_table(
    columns: Mapping[str, pa.Array],
    key_types: Sequence[pa.DataType],
    measures: Sequence[Measure],
    output: Callable[[int], pa.Array],
    grouped: tuple[Ints, Ints] | None,
) -> pa.Table:
    """Fold rows into entries: `columns` say when they are born, in which pane, for which readers, in which group.

    `output` returns an output of each row.  `grouped` has the entry of each row, and a row of each entry; without it
    every row is an entry, and has no column for the count of rows.
    """
    entries, kinds = dict(columns), list[pa.DataType | None]()
    if grouped is not None:
        ids, firsts = grouped
        entries = {name: column.take(pa.array(firsts)) for name, column in columns.items()}
        entries[ROWS] = pa.array(count_rows(ids, firsts.size).parts["n"])
    for number, measure in enumerate(measures):
        values = as_one_column([output(argument) for argument in measure.arguments])
        if grouped is None:
            stored, kind = folded_class(measure.function).stored_rows(measure.function, values)
        else:
            folded = fold_values(measure.function, values, ids, firsts.size)
            stored, kind = folded.stored(), folded.kind
        kinds.append(kind)
        entries |= {f"m{number}.{name}": column for name, column in stored.items()}
    shape = Shape(tuple(key_types), 0, tuple(measure.function for measure in measures), tuple(kinds))
    return pa.table(entries).replace_schema_metadata(shape.metadata())
