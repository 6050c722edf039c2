"""The columns that ingest needs of every row, made without Spark: where copying, casting and comparing is all it takes.

What the columns are is said in `penstock.engine.ingest.ingest_columns`, as Spark SQL.  Here are those of them that
Arrow can make, each exactly as Spark would::

    event time      a timestamp or a date in microseconds; null if it is too far from 1970
    key             one whole number, boolean, date or timestamp: the number itself
                    text, binary, several columns: Spark's hash of them, and each as it stands
    predicate bits  columns of numbers compared with numbers (`penstock.engine.ingest.plain_tests`)
    the others      as they stand

In:  a stream, and what the tasks of its batches are told.  Out: `PlainColumns`, or None where some column needs Spark.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.ingest.ingest_columns import FARTHEST, ROW_TIME, bit_names
from penstock.engine.ingest.plain_keys import Number, key_parts, plain_key
from penstock.engine.ingest.plain_tests import plain_test
from penstock.log.spark_schema import PLAIN
from penstock.plan.links import is_link_column
from penstock.sql.query import DAY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from penstock.engine.ingest.batch_task import BatchTask
    from penstock.engine.ingest.plain_keys import Maker
    from penstock.engine.ingest.plain_tests import RowTest
    from penstock.plan.stored import LogPlan
    from penstock.sql.query import Stream

FILE_TYPES = {**PLAIN, "timestamp": pa.timestamp("us", "UTC")}
"""Types of columns that Arrow reads as Spark does, and what they are in a file."""


@dataclass(frozen=True, slots=True)
class Copied:
    """A column as it stands, under the type that Spark gives it."""

    column: str
    kind: pa.DataType

    def make(self, rows: pa.RecordBatch) -> pa.Array:
        """Copy it; only the time zone of its type may change."""
        return rows.column(self.column).cast(self.kind)

    def columns(self) -> set[str]:
        """Name the column."""
        return {self.column}


@dataclass(frozen=True, slots=True)
class EventTime:
    """Microseconds since the epoch; null if that is too far."""

    column: str
    unit: int
    """Microseconds of one step of the column."""

    def make(self, rows: pa.RecordBatch) -> pa.Array:
        """Take the time."""
        steps = Number(self.column).make(rows)
        farthest = FARTHEST // self.unit
        near = pc.and_(pc.less_equal(steps, farthest), pc.greater_equal(steps, -farthest))
        times = steps if pc.all(near).as_py() is not False else pc.if_else(near, steps, None)
        return times if self.unit == 1 else pc.multiply(times, self.unit)

    def columns(self) -> set[str]:
        """Name the column."""
        return {self.column}


@dataclass(frozen=True, slots=True)
class Bits:
    """The answers to up to 64 predicates, a bit each; null counts as false."""

    tests: tuple[RowTest, ...]

    def make(self, rows: pa.RecordBatch) -> pa.Array:
        """Ask all of every row."""
        word = np.zeros(rows.num_rows, np.uint64)
        for bit, test in enumerate(self.tests):
            holds = pc.fill_null(test.ask(rows), fill_value=False).to_numpy(zero_copy_only=False)
            word |= holds.astype(np.uint64) << np.uint64(bit)
        return pa.array(word.view(np.int64))

    def columns(self) -> set[str]:
        """Name the columns of all tests."""
        return {name for each in self.tests for name in each.columns()}


@dataclass(frozen=True, slots=True)
class PlainColumns:
    """How each column that a task reads is made of the columns of a file."""

    makers: tuple[tuple[str, Maker], ...]
    types: Mapping[str, pa.DataType]
    """The columns of a file that are read, and the types that they must have there."""

    def of(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Make what a task reads of the rows of a file."""
        return pa.RecordBatch.from_arrays(
            [maker.make(rows) for _, maker in self.makers], [name for name, _ in self.makers]
        )


def plain_columns(
    stream: Stream, task: BatchTask, spark_types: Callable[[], Mapping[str, pa.DataType]]
) -> PlainColumns | None:
    """Say how the columns of a batch are made; None if some of them need Spark.

    Promises are read, and rows are put in the order of arrival, by Spark only.
    """
    if task.promises or task.arrival or stream.time_type not in _TIME_UNITS:
        return None
    made, parts = _made(stream, [each.log for each in task.logs]), key_parts(task)
    copied = [name for name in task.columns() if made is None or name not in made | parts]
    read = _read(made, copied) if made is not None else set()
    if made is None or not _are_plain(stream, read):
        return None
    kinds, declared = spark_types(), {each.name: each.type for each in stream.columns}
    makers: dict[str, Maker] = made | {name: Copied(name, kinds[name]) for name in copied}
    for name, part in parts.items():
        makers[name] = Copied(part.column, PLAIN[part.type] if part.cast else kinds[part.column])
    ordered = tuple((name, makers[name]) for name in task.columns())
    return PlainColumns(ordered, {name: FILE_TYPES[declared[name]] for name in sorted(read)})


def has_plain_columns(stream: Stream, logs: Sequence[LogPlan]) -> bool:
    """Say whether what some logs need of a stream can be made without Spark, as far as its declaration tells."""
    made = _made(stream, logs) if stream.time_type in _TIME_UNITS else None
    stored = {name for log in logs for name in log.columns if not is_link_column(name)}
    return made is not None and _are_plain(stream, _read(made, stored))


def _made(stream: Stream, logs: Sequence[LogPlan]) -> dict[str, Maker] | None:
    """Say how times, keys and bits are made; None if some of them need Spark."""
    made: dict[str, Maker | None] = {ROW_TIME: EventTime(stream.time, _TIME_UNITS[stream.time_type])}
    for number, log in enumerate(logs):
        made |= plain_key(number, stream, log) | _bits(number, stream, log)
    known = {name: maker for name, maker in made.items() if maker is not None}
    return known if len(known) == len(made) else None


def _read(made: Mapping[str, Maker], copied: Iterable[str]) -> set[str]:
    """Name the columns of a file that are read."""
    return {*copied, *(name for maker in made.values() for name in maker.columns())}


_TIME_UNITS = {"timestamp": 1, "timestamp_ntz": 1, "date": DAY}


def _are_plain(stream: Stream, names: Iterable[str]) -> bool:
    """Say whether Arrow reads columns as Spark does; a dot in a name would be read as a path."""
    declared = {each.name: each.type for each in stream.columns}
    return all(declared.get(name) in FILE_TYPES and "." not in name for name in names)


def _bits(number: int, stream: Stream, log: LogPlan) -> dict[str, Maker | None]:
    """Say how a log's predicates are asked."""
    tests = [plain_test(each, stream) for each in log.predicates]
    known = [each for each in tests if each is not None]
    return {
        name: Bits(tuple(known[64 * word : 64 * word + 64])) if len(known) == len(tests) else None
        for word, name in enumerate(bit_names(number, log))
    }
