"""Routes: how a query's results leave the tasks of a unit.

    CountRoute   counted                                              a sink that stores no rows
    FileRoute    a row of a file at the sink's destination            every other sink
    TableRoute   read from its pair, which the group's table keeps    the table sink, where the query is a view
    HoldRoute    held until its turn comes, then released             any sink, where the query has an order
    FeedRoute    one of these, and a row for the queries that read    any sink, where queries read the results

The fold of a query with aggregates has routes of its own (`penstock.engine.aggregate`).  A route is made on the driver
and pickled to the tasks.  There it takes the query's pairs, batch by batch, and writes through the task's output
(`penstock.engine.tasks.route_pairs.TaskOutput`), which bounds the bytes that wait.

In:  a batch of pairs, and which of them a query gets.  Out: rows in files, counts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa

from penstock.engine.sinks.sink_kind import sink_of
from penstock.state.files import safe_name
from penstock.state.hold import ARRIVED, hold_folder, hold_times
from penstock.state.spark_schema import SPARK_SCHEMA

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.engine.sinks.destination import Destination
    from penstock.engine.sinks.pair_batch import PairBatch, Target
    from penstock.engine.tasks.route_pairs import TaskOutput
    from penstock.sql.query import Query
    from penstock.state.files import Files

    Mask = NDArray[np.bool_]


class Route(ABC):
    """How the results of a query leave a task."""

    __slots__ = ()
    makes_rows: ClassVar[bool] = False
    """Whether it makes rows of the query's own; if not, pairs without a condition for Spark SQL are only counted."""
    at_once: ClassVar[bool] = True
    """Whether a result goes out with the unit that finds it, and counts then."""
    in_table: ClassVar[bool] = False
    """Whether results are read from the group's table."""

    @property
    def folds_pairs(self) -> bool:
        """Return whether pairs are folded into partial results."""
        return False

    @property
    def folds_rows(self) -> bool:
        """Return whether rows are folded, and no pair is found."""
        return False

    @abstractmethod
    def take(self, task: TaskOutput, target: Target, pairs: PairBatch, wanted: Mask) -> None:
        """Take the pairs of a batch that a query gets."""


@dataclass(frozen=True, slots=True)
class CountRoute(Route):
    """Results are counted, and none is kept."""

    def take(self, task: TaskOutput, target: Target, _pairs: PairBatch, wanted: Mask) -> None:
        """Count the pairs that Spark SQL has decided about; the others are counted together."""
        task.count_computed(target, wanted)


@dataclass(frozen=True, slots=True)
class TableRoute(Route):
    """Results are read from their pairs, which the group's table keeps once for all its readers."""

    in_table: ClassVar[bool] = True

    def take(self, task: TaskOutput, target: Target, pairs: PairBatch, wanted: Mask) -> None:
        """Note on each pair that the query reads it."""
        task.count_computed(target, wanted)
        pairs.note_reader(target.number, wanted)


@dataclass(frozen=True, slots=True)
class FileRoute(Route):
    """Results are rows of files of the query's own."""

    destination: Destination
    makes_rows: ClassVar[bool] = True

    def take(self, task: TaskOutput, target: Target, pairs: PairBatch, wanted: Mask) -> None:
        """Write the query's own rows."""
        task.count_computed(target, wanted)
        if wanted.any():
            task.put(task.file(target.query, self.destination), own_rows(pairs, target, wanted))


@dataclass(frozen=True, slots=True)
class HoldRoute(Route):
    """Results are held in a directory of the state until it is their turn (`penstock.engine.stages.release`)."""

    folder: str
    makes_rows: ClassVar[bool] = True
    at_once: ClassVar[bool] = False

    def take(self, task: TaskOutput, target: Target, pairs: PairBatch, wanted: Mask) -> None:
        """Write the query's own rows with their times; they count when they are released."""
        if not wanted.any():
            return
        times = hold_times(pairs.times())
        arrived = {ARRIVED: pa.array(np.full(pairs.batch.num_rows, pairs.arrived))}
        task.put(task.hold(target.query, self.folder), own_rows(pairs, target, wanted, times, arrived))


@dataclass(frozen=True, slots=True)
class FeedRoute(Route):
    """Results take another route, and are also rows for the queries that read them.

    Those rows are in files of the state until they are in the logs (`penstock.engine.stages.feed`).
    """

    way: Route
    destination: Destination
    makes_rows: ClassVar[bool] = True

    def take(self, task: TaskOutput, target: Target, pairs: PairBatch, wanted: Mask) -> None:
        """Send the pairs on their route, and write the query's own rows."""
        if self.way.makes_rows or target.computed:
            self.way.take(task, target, pairs, wanted)
        if wanted.any():
            task.put(task.feed(target.query, self.destination), own_rows(pairs, target, wanted))


def unwrap_route(route: Route) -> Route:
    """Return the route that results take to their sink, whether other queries read them or not."""
    return route.way if isinstance(route, FeedRoute) else route


def own_rows(
    pairs: PairBatch,
    target: Target,
    wanted: Mask | None,
    before: dict[str, pa.Array] | None = None,
    after: dict[str, pa.Array] | None = None,
) -> pa.RecordBatch:
    """Return a query's own rows: the columns of its SELECT, between others if there are any.

    Without `wanted`, all pairs are rows.
    """
    names, arrays = _outputs(pairs.batch, target)
    names = [*(before or {}), *names, *(after or {})]
    arrays = [*(before or {}).values(), *arrays, *(after or {}).values()]
    if wanted is not None and not wanted.all():
        keep = pa.array(wanted)
        arrays = [array.filter(keep) for array in arrays]
    return _typed_rows(names, arrays, target)


def _typed_rows(names: list[str], arrays: list[pa.Array], target: Target) -> pa.RecordBatch:
    """Return a batch of columns, with Spark's description of them."""
    metadata = {SPARK_SCHEMA: target.types} if target.types else None
    return pa.RecordBatch.from_arrays(arrays, names).replace_schema_metadata(metadata)


def _outputs(batch: pa.RecordBatch, target: Target) -> tuple[list[str], list[pa.Array]]:
    if target.computed:
        column = batch.column(f"o{target.number}")
        names = [column.type.field(number).name for number in range(column.type.num_fields)]
        return names, column.flatten()
    names = [name for name, _, _ in target.columns]
    return names, [batch.column(side).field(column) for _, side, column in target.columns]


def route_of(query: Query, files: Files, *, in_table: bool) -> Route:
    """Choose the route of a query's results; `in_table` says that they are read from the group's table."""
    if query.ordered:
        return HoldRoute(hold_folder(query.name))
    if in_table:
        return TableRoute()
    destination = sink_of(query).destination(files)
    return FileRoute(destination) if destination else CountRoute()


def feed_folder(query: str) -> str:
    """Return the directory of the state for results that other queries read, until they are in the logs."""
    return f"feed/{safe_name(query)}"
