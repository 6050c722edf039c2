"""Routes: the ways that a query's results go out of a unit's tasks, each a class.

    CountRoute   counted, and none is kept                          sink noop
    FileRoute    a row of a file in the query's own directory       sink parquet
    SpoolRoute   a row of a file that is handed over and deleted    sinks console and callback
    KeptRoute    a row of a file of its own that the state keeps    sink table, where results are settled
    TableRoute   read from its pair, which the group's table keeps  sink table, else
    HoldRoute    held until it is its turn, then released           any sink, where order was asked for
    FeedRoute    any of these, and a row for the queries that read  any sink, where other queries read the results

A route is described on the driver and travels to the tasks.  There it takes the query's pairs, batch by batch, and
writes through the task's output (`penstock.engine.tasks.route_pairs.TaskOutput`).  Another way out is another class
here, and a line in `route_of`.

In:  a batch of pairs, and which of them a query gets.  Out: rows in files, counts.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa

from penstock.engine.sinks.sinks import results_folder, sink_root
from penstock.state.hold import ARRIVED, hold_folder, hold_times
from penstock.state.output_file import OutputFile
from penstock.state.spark_schema import SPARK_SCHEMA

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.engine.sinks.pair_batch import PairBatch, Target
    from penstock.engine.tasks.route_pairs import TaskOutput
    from penstock.sql.query import Query
    from penstock.state.files import Files

    Mask = NDArray[np.bool_]


class Route(ABC):
    """One way out."""

    __slots__ = ()
    makes_rows: ClassVar[bool] = False
    """Whether it makes rows of the query's own; if not, pairs that Spark SQL need not decide about are only counted."""
    at_once: ClassVar[bool] = True
    """Whether a result goes out with the unit that finds it, and counts then."""
    in_table: ClassVar[bool] = False
    """Whether results are read from the group's table."""
    folds_pairs: ClassVar[bool] = False
    """Whether pairs are folded into partial aggregates."""
    folds_rows: ClassVar[bool] = False
    """Whether rows are folded, and no pair is found."""

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
    """Results go into files of a directory of the query's own."""

    root: str
    compression: str = "snappy"
    makes_rows: ClassVar[bool] = True
    shares_files: ClassVar[bool] = True
    """Whether a file may be other queries' too."""

    def take(self, task: TaskOutput, target: Target, pairs: PairBatch, wanted: Mask) -> None:
        """Write the query's own rows."""
        task.count_computed(target, wanted)
        if wanted.any():
            task.put(task.file(target.query, self), own_rows(pairs, target, wanted))

    def file(self, task: TaskOutput) -> OutputFile:
        """Name the file of one task."""
        return OutputFile(self.root, f"{task.part_name}.parquet", self.compression)


@dataclass(frozen=True, slots=True)
class SpoolRoute(FileRoute):
    """Results go into files that are handed over to a console or callback, and then deleted."""

    shares_files: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class KeptRoute(FileRoute):
    """Results go into files of the query's own that the state keeps: `root` is a directory of the state."""

    shares_files: ClassVar[bool] = False

    def file(self, task: TaskOutput) -> OutputFile:
        """Name the file of one task, so that a task that is run twice writes two."""
        name = f"{self.root}/{task.part_name}-{uuid.uuid4().hex}.parquet"
        return OutputFile(task.delivery.state, name, kept=True)


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
    """Results go another way, and also into files that become rows for the queries that read them.

    These files are in a `folder` of the state until their rows are in the logs (`penstock.engine.stages.feed`).
    """

    way: Route
    folder: str
    makes_rows: ClassVar[bool] = True

    def take(self, task: TaskOutput, target: Target, pairs: PairBatch, wanted: Mask) -> None:
        """Let them go their way, and write the query's own rows."""
        if self.way.makes_rows or target.computed:
            self.way.take(task, target, pairs, wanted)
        if wanted.any():
            task.put(task.feed(target.query, self), own_rows(pairs, target, wanted))

    def file(self, task: TaskOutput) -> OutputFile:
        """Name the file of one task, so that files of later units come later, and a task run twice writes two."""
        name = f"{self.folder}/{task.part_name}-{uuid.uuid4().hex}.parquet"
        return OutputFile(task.delivery.state, name, kept=True)


def unwrap_route(route: Route) -> Route:
    """Give the way that results take to their sink, whoever else reads them."""
    return route.way if isinstance(route, FeedRoute) else route


def own_rows(
    pairs: PairBatch,
    target: Target,
    wanted: Mask | None,
    before: dict[str, pa.Array] | None = None,
    after: dict[str, pa.Array] | None = None,
) -> pa.RecordBatch:
    """Make a query's own rows: the columns of its SELECT, between others if there are.

    Of all pairs, where it is not said which are wanted.
    """
    names, arrays = _outputs(pairs.batch, target)
    names = [*(before or {}), *names, *(after or {})]
    arrays = [*(before or {}).values(), *arrays, *(after or {}).values()]
    if wanted is not None and not wanted.all():
        keep = pa.array(wanted)
        arrays = [array.filter(keep) for array in arrays]
    return _typed_rows(names, arrays, target)


def _typed_rows(names: list[str], arrays: list[pa.Array], target: Target) -> pa.RecordBatch:
    """Put columns together, with what Spark has to know of them."""
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
    """Choose the way out for a query's results; `in_table` says that they are read from the group's table."""
    if query.ordered:
        return HoldRoute(hold_folder(query.name))
    if in_table:
        return TableRoute()
    if query.sink.kind == "table":
        return KeptRoute(results_folder(query.name))
    root = sink_root(query, files)
    if not root:
        return CountRoute()
    if query.sink.kind == "parquet":
        return FileRoute(root, query.sink.option("compression", "snappy"))
    return SpoolRoute(root)
