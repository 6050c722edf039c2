"""Rows of a test as the Arrow table that a source would deliver.

    {"Room": 1, "Value": 81.5, "ts": "2026-01-01 10:00:00"}     a dict; a column that is left out is null
    datetime, date, Decimal                                     or text in their place
    a table of Arrow's, or a DataFrame of pandas'               cast to the declared types

In:  rows, and the stream they are of.  Out: an Arrow table with the declared columns and types.
"""

from __future__ import annotations

import datetime as dt
import operator
from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.errors import InputError, did_you_mean
from penstock.sql.units import parse_duration
from penstock.testing.ingest_rows import row_times
from penstock.testing.row_types import arrow_types

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from penstock.plan.spark_settings import SparkSettings
    from penstock.sql.query import Stream


def as_table(rows: Any, stream: Stream, settings: SparkSettings) -> pa.Table:
    """Return a stream's rows as a table."""
    types = arrow_types(stream, settings)
    if isinstance(rows, pa.Table | pa.RecordBatch):
        return _cast(pa.table(rows.to_pydict(), schema=rows.schema), stream, types)
    if hasattr(rows, "to_records"):
        return _cast(pa.Table.from_pandas(rows, preserve_index=False), stream, types)
    if isinstance(rows, str | bytes | Mapping) or not hasattr(rows, "__iter__"):
        raise InputError(f"the rows of stream {stream.name} are {rows!r}: give a list of dicts, or a table")
    given = [_by_declared_name(row, stream) for row in rows]
    return pa.table({name: _column(given, name, kind, stream) for name, kind in types.items()})


def _column(rows: Sequence[Mapping[str, Any]], name: str, kind: pa.DataType, stream: Stream) -> pa.Array:
    """Return a column of some rows; refuse a value that is not of its type."""
    values = []
    for number, row in enumerate(rows):
        given = row.get(name)
        try:
            values.append(pa.scalar(_value(given, kind), kind))
        except (pa.ArrowException, ValueError, TypeError, ArithmeticError) as error:
            column = next(column for column in stream.columns if column.name == name)
            raise InputError(
                f"row {number + 1} of stream {stream.name} has {given!r} in column {name}, which is {column.type}: "
                f"{error}"
            ) from None
    return pa.array([value if value.is_valid else None for value in values], kind)


def _by_declared_name(row: Mapping[str, Any], stream: Stream) -> dict[str, Any]:
    """Return a row by the declared names of its columns."""
    if not isinstance(row, Mapping):
        raise InputError(f"a row of stream {stream.name} is {row!r}: write it as a dict, column by column")
    values = {}
    for name, value in row.items():
        column = stream.column(name)
        if column is None:
            names = [column.name for column in stream.columns]
            raise InputError(f"stream {stream.name} has no column {name}: {did_you_mean(name, names)}")
        values[column.name] = value
    return values


def _value(value: Any, kind: pa.DataType) -> Any:
    """Convert text to a time or number."""
    if pa.types.is_timestamp(kind):
        moment = dt.datetime.fromisoformat(value) if isinstance(value, str) else value
        if kind.tz is not None and isinstance(moment, dt.datetime) and moment.tzinfo is None:
            return moment.replace(tzinfo=dt.UTC)
        return moment
    if pa.types.is_integer(kind) and isinstance(value, float) and not value.is_integer():
        raise ValueError("it is no whole number")
    if pa.types.is_date(kind) and isinstance(value, str):
        return dt.date.fromisoformat(value)
    if pa.types.is_decimal(kind) and isinstance(value, str | int | float):
        return Decimal(str(value))
    return value


def _cast(table: pa.Table, stream: Stream, types: Mapping[str, pa.DataType]) -> pa.Table:
    """Return the declared columns of a table in the declared types."""
    names = {name.lower(): name for name in table.column_names}
    missing = next((name for name in types if name.lower() not in names), None)
    if missing is not None:
        raise InputError(f"the table for stream {stream.name} has no column {missing}")
    return pa.table({name: table.column(names[name.lower()]).cast(kind) for name, kind in types.items()})


def in_batches(rows: Any, stream: Stream, settings: SparkSettings, batch: int | str | None) -> list[pa.Table]:
    """Cut a stream's rows into batches: as they are, by a number of rows, or by a length of event time."""
    length = _checked_length(batch)
    if _is_batches(rows):
        return [as_table(batch, stream, settings) for batch in rows]
    table = as_table(rows, stream, settings)
    if batch is None:
        return [table]
    if isinstance(batch, int):
        return [table.slice(first, length) for first in range(0, max(table.num_rows, 1), length)]
    return list(_by_time(table, stream, length))


def _checked_length(batch: int | str | None) -> int:
    """Return the length of a batch, in rows or in microseconds of event time."""
    if batch is None:
        return 0
    try:
        length = parse_duration(batch) if isinstance(batch, str) else operator.index(batch)
    except (ValueError, TypeError):
        length = 0
    if length <= 0:
        raise InputError(
            f"batch is {batch!r}: give a number of rows, or a length of time such as '10 seconds'"
        )
    return length


def _is_batches(rows: Any) -> bool:
    """Check whether rows are a list of batches."""
    return isinstance(rows, list | tuple) and bool(rows) and not isinstance(rows[0], Mapping)


def _by_time(table: pa.Table, stream: Stream, length: int) -> Iterator[pa.Table]:
    """Cut where event time passes a multiple of a length; rows without a time and late rows do not cut."""
    times: Sequence[int | None] = row_times(table, stream).to_pylist()
    last, first = None, 0
    for number, time in enumerate(times):
        here = last if time is None else time // length
        if last is not None and here is not None and here > last:
            yield table.slice(first, number - first)
            first = number
        last = here if last is None or here is None else max(last, here)
    yield table.slice(first)


def timely(batches: Iterable[pa.Table], stream: Stream) -> pa.Table:
    """Return the rows of batches that are not late and have a time, in order of arrival."""
    kept: list[pa.Table] = []
    newest: int | None = None
    for batch in batches:
        times = row_times(batch, stream).to_pylist()
        bound = None if newest is None else newest - stream.lateness
        keep = [time is not None and (bound is None or time >= bound) for time in times]
        kept.append(batch.filter(pa.array(keep, pa.bool_())))
        seen = [time for time, is_kept in zip(times, keep, strict=True) if is_kept and time is not None]
        newest = max([*seen, *([] if newest is None else [newest])], default=None)
    return pa.concat_tables(kept)
