"""What Spark SQL would compute of a row when it arrives: its event time, its keys and its predicate bits.

Keys and predicates are evaluated of rows that can meet others, as `penstock.engine.tasks.ingest_columns` has it.

In:  the rows of a batch as an Arrow table, and the logs that will hold them.  Out: the same with the columns of ingest.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.tasks.ingest_columns import FARTHEST, ROW_TIME, bit_names, key_names, promise_conditions
from penstock.engine.tasks.promise_columns import exploding
from penstock.sql.bind.promises import promises_of
from penstock.sql.query import DAY
from penstock.sql.spark_types import parse_type
from penstock.state.promises import as_int64
from penstock.testing.expression.evaluate import NeedsSparkError, evaluate, type_of
from penstock.testing.expression.values import FLOATING, arrow_type, is_supported

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from penstock.plan.spark_settings import SparkSettings
    from penstock.plan.stored import KeyPart, LogPlan
    from penstock.sql.query import Stream


def arrow_types(stream: Stream, settings: SparkSettings) -> dict[str, pa.DataType]:
    """Give the Arrow type of each column of a stream, as Spark has it."""
    kinds = {each.name: parse_type(each.type) for each in stream.columns}
    lists, types = exploding(stream), {}
    for name, kind in kinds.items():
        value = kind.parts[0] if name in lists else kind
        if not is_supported(value):
            raise NeedsSparkError(f"{stream.name}.{name}", f"{stream.name}.{name}", f"it is {kind}")
        types[name] = arrow_type(value, settings.zone)
    return {name: pa.list_(kind) if name in lists else kind for name, kind in types.items()}


def row_times(batch: pa.Table, stream: Stream) -> pa.Array:
    """Give the event time of each row in microseconds; null if it has none, or one too far from 1970."""
    if stream.timeless:
        return pa.array(np.zeros(batch.num_rows, np.int64))
    column = batch.column(stream.time).combine_chunks()
    if stream.time_type == "date":
        micros = pc.multiply(column.cast(pa.int32()).cast(pa.int64()), DAY)
    else:
        micros = column.cast(pa.int64())
    near = pc.and_(pc.less_equal(micros, FARTHEST), pc.greater_equal(micros, -FARTHEST))
    return pc.if_else(near, micros, pa.scalar(None, pa.int64()))


def exploded(batch: pa.Table, stream: Stream, settings: SparkSettings) -> pa.Table:
    """Give a row for each element of the lists that make promises; all other rows, and empty lists, stay one row."""
    lists = exploding(stream)
    if not lists:
        return batch
    (condition,) = {each.condition for each in promises_of(stream) if not each.is_data}
    rows = _Rows(batch, stream, settings)
    timed = _mask(rows.times.is_valid())
    mark = pa.array(rows.holds(condition, timed) if condition else timed)
    for name, element in lists.items():
        kind = batch.column(name).type
        values = pc.if_else(mark, batch.column(name).combine_chunks(), pa.scalar(None, kind)).to_pylist()
        sizes = [max(1, len(each or ())) for each in values]
        rows_of = pa.array(np.repeat(np.arange(batch.num_rows), sizes))
        flat = [value for each in values for value in (each or [None])]
        batch, mark = batch.take(rows_of), mark.take(rows_of)
        batch = batch.append_column(element, pa.array(flat, kind.value_type))
    return batch


def row_columns(
    batch: pa.Table, stream: Stream, logs: Iterable[LogPlan], settings: SparkSettings
) -> pa.Table:
    """Add event times, keys and predicate bits to the rows of a batch."""
    evaluator = _Rows(batch, stream, settings)
    table = batch.append_column(ROW_TIME, evaluator.times)
    for number, log in enumerate(logs):
        for name, column in (evaluator.keys(number, log) | evaluator.bits(number, log)).items():
            table = table.append_column(name, column)
    return table


class _Rows:
    """The rows of one batch, of which expressions are evaluated."""

    def __init__(self, batch: pa.Table, stream: Stream, settings: SparkSettings) -> None:
        self.batch, self.stream, self.settings = batch, stream, settings
        self.types = {each.name: each.type for each in stream.columns}
        self.times = row_times(batch, stream)

    def evaluated(self, expression: str, rows: NDArray[np.bool_]) -> pa.Array:
        """Evaluate an expression of some rows; it is null of the others."""
        some = self.batch.filter(pa.array(rows))
        settings = self.settings
        values = evaluate(expression, some, self.types, zone=settings.zone, ansi=settings.ansi)
        numbers = np.cumsum(rows) - 1
        return values.take(pa.array(numbers, mask=~rows))

    def usable(self, log: LogPlan) -> NDArray[np.bool_]:
        """Say which rows can meet others: one without a time, or a key that is a plain column, cannot."""
        usable = self.times.is_valid()
        for name in {part.column for part in log.key if part.column}:
            usable = pc.and_(usable, self.batch.column(name).combine_chunks().is_valid())
        rows = _mask(usable)
        for condition in promise_conditions(self.stream, log):
            rows = rows & ~self.holds(condition, _mask(self.times.is_valid()))
        return rows

    def holds(self, predicate: str, rows: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Say which rows satisfy a predicate; null counts as false."""
        return _mask(pc.fill_null(self.evaluated(predicate, rows), fill_value=False))

    def bits(self, number: int, log: LogPlan) -> dict[str, pa.Array]:
        """Pack the answers to a log's predicates into 64-bit words."""
        rows, columns = self.usable(log), {}
        for word, name in enumerate(bit_names(number, log)):
            bits = np.zeros(self.batch.num_rows, np.uint64)
            for bit, predicate in enumerate(log.predicates[64 * word : 64 * word + 64]):
                bits |= self.holds(predicate, rows).astype(np.uint64) << np.uint64(bit)
            columns[name] = pa.array(bits.view(np.int64))
        return columns

    def keys(self, number: int, log: LogPlan) -> dict[str, pa.Array]:
        """Evaluate a log's key, of rows that some query wants if it may fail; null means that it can never match."""
        name, parts = key_names(number, log)
        if log.plain_key:
            return {}
        if not log.key:  # all rows have the same one, and none is without it
            return {name: pa.array(np.zeros(self.batch.num_rows, np.int64))}
        rows = self._wanted(log)
        values = [self._key(part, rows) for part in log.key]
        if log.whole_key:
            return {name: as_int64(values[0])}
        return {name: _digests(values), **dict(zip(parts, values, strict=True))}

    def _wanted(self, log: LogPlan) -> NDArray[np.bool_]:
        usable = self.usable(log)
        if not log.wanted:
            return np.ones(self.batch.num_rows, np.bool_)
        wanted = np.zeros(self.batch.num_rows, np.bool_)
        for condition in log.wanted:
            rows = usable
            for predicate in condition:
                rows = rows & self.holds(predicate, rows)
            wanted |= rows
        return wanted

    def _key(self, part: KeyPart, rows: NDArray[np.bool_]) -> pa.Array:
        """Evaluate one column of a key, written in one way: equal values have equal bytes."""
        expression = f"cast({part.expression} AS {part.type})" if part.cast else part.expression
        kind = parse_type(type_of(expression, self.types, ansi=self.settings.ansi))
        values = self.evaluated(expression, rows)
        if kind.name in FLOATING:  # one zero, and one NaN
            zero, nan = pa.scalar(0, values.type), pa.scalar(float("nan"), values.type)
            values = pc.if_else(pc.is_nan(values), nan, pc.add(values, zero))
        return values


def _digests(values: Sequence[pa.Array]) -> pa.Array:
    """Give a 64-bit digest of each row's key; null where a part of it is."""
    rows = zip(*(each.to_pylist() for each in values), strict=True)
    return pa.array([_digest(row) for row in rows], pa.int64())


def _digest(row: Sequence[Any]) -> int | None:
    if any(each is None for each in row):
        return None
    text = repr(row).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little", signed=True)


def _mask(values: pa.Array) -> NDArray[np.bool_]:
    return np.asarray(values.to_numpy(zero_copy_only=False), np.bool_)
