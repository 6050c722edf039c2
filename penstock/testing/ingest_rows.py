"""The columns of a stream's rows that ingest needs: event times, keys and predicate bits.

Keys and bits are the Spark SQL of `penstock.engine.tasks.ingest_columns`, evaluated by DuckDB.

In:  the rows of a batch as an Arrow table, and the logs that will hold them.  Out: the same with the columns of ingest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.tasks.ingest_columns import FARTHEST, ROW_TIME, ingest_columns
from penstock.engine.tasks.promise_columns import exploding
from penstock.sql.bind.promises import promises_of
from penstock.sql.query import DAY
from penstock.testing.expression.evaluate import evaluate, evaluate_all
from penstock.testing.row_types import column_types

if TYPE_CHECKING:
    from penstock.plan.spark_settings import SparkSettings
    from penstock.plan.stored import LogPlan
    from penstock.sql.query import Stream


def row_times(batch: pa.Table, stream: Stream) -> pa.Array:
    """Return the event time of each row in microseconds; null if it has none, or one too far from 1970."""
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
    """Return a row for each element of the lists that make promises; other rows and empty lists stay one row."""
    lists = exploding(stream)
    if not lists:
        return batch
    (condition,) = {promise.condition for promise in promises_of(stream) if not promise.is_data}
    marked = row_times(batch, stream).is_valid()
    if condition:
        holds = evaluate(condition, batch, column_types(stream), zone=settings.zone, ansi=settings.ansi)
        marked = pc.and_(marked, pc.fill_null(holds, fill_value=False))
    for name, element in lists.items():
        kind = batch.column(name).type
        values = pc.if_else(marked, batch.column(name).combine_chunks(), pa.scalar(None, kind)).to_pylist()
        rows = pa.array(np.repeat(np.arange(batch.num_rows), [max(1, len(value or ())) for value in values]))
        flat = [element_value for value in values for element_value in (value or [None])]
        batch, marked = batch.take(rows), marked.take(rows)
        batch = batch.append_column(element, pa.array(flat, kind.value_type))
    return batch


def with_ingest_columns(
    batch: pa.Table, stream: Stream, logs: tuple[LogPlan, ...], settings: SparkSettings
) -> pa.Table:
    """Add event times, keys and predicate bits to the rows of a batch."""
    columns = ingest_columns(stream, logs)
    del columns[ROW_TIME]
    batch = batch.append_column(ROW_TIME, row_times(batch, stream))
    made = evaluate_all(list(columns.values()), batch, column_types(stream), zone=settings.zone)
    for name, values in zip(columns, made, strict=True):
        batch = batch.append_column(name, values)
    return batch
