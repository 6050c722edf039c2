"""A stream's rows as a streaming DataFrame, ready for ingest.

In:  a `Stream` (declared in SQL, or given as a DataFrame) and the logs that will hold it.
Out: one streaming DataFrame with, for each log, the key; the event time in microseconds; the predicate bits; and
every column of the source untouched, so that a late row can be kept whole.

All of it is Spark SQL, evaluated once per row however many queries ask.

Spark computes a subexpression that several columns have in common first and once, also one that stands behind the test
that guards it; but it does not look into the branches of a CASE.  So whatever may fail stands in one (`answer`)::

    x <> 0                      as it is: it cannot fail
    f(s) > 5                    as it is: f(s) is evaluated for every row anyway, and once for all who compare it
    x = 0 OR 10 / x > 1         CASE WHEN <the row has a time and a key> THEN x = 0 OR 10 / x > 1 END
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from penstock.engine.complaints import short_message
from penstock.engine.key_values import as_bigint, as_bytes
from penstock.engine.malformed import CORRUPT, OPTION, keeps_text
from penstock.errors import InputError
from penstock.join.sets import words_for
from penstock.log.locations import absolute, source_pattern
from penstock.sql.guards import always_succeeds, guards_nothing
from penstock.sql.query import DAY, RESERVED
from penstock.sql.source_options import redacted, scrubbed
from penstock.sql.streams import FILE_FORMATS
from penstock.sql.tree import always_quoted
from penstock.sql.zones import ZONE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from pyspark.sql import DataFrame, SparkSession

    from penstock.plan.stored import KeyPart, LogPlan
    from penstock.sql.query import Stream

ROW_TIME = f"{RESERVED}t"


def schema_ddl(stream: Stream, names: Collection[str] | None = None) -> str:
    """Write a stream's columns, or some of them, as Spark DDL."""
    columns = [each for each in stream.columns if names is None or each.name in names]
    return ", ".join(f"{always_quoted(each.name)} {each.type}" for each in columns)


def empty_rows(spark: SparkSession, stream: Stream) -> DataFrame:
    """Make a DataFrame with a stream's columns and no rows, to check expressions against."""
    return spark.createDataFrame([], schema_ddl(stream))


def open_source(spark: SparkSession, stream: Stream) -> DataFrame:
    """Open a declared stream's Spark source; a wrong option is the user's to mend."""
    _refuse_incomplete(stream)
    path = source_path(stream)
    reader = spark.readStream.format(stream.format)
    for name, value in stream.options:
        if name.lower() not in {"path", "retain"}:
            reader = reader.option(name, value)
    corrupt = keeps_text(spark, stream)
    if corrupt:
        reader = reader.option(OPTION, CORRUPT)
    try:
        if stream.format.lower() in FILE_FORMATS:
            reader = reader.schema(schema_ddl(stream) + f", {always_quoted(CORRUPT)} string" * corrupt)
        source = reader.load(path) if path else reader.load()
    except Exception as error:
        said = scrubbed(short_message(error), stream.options)
        raise InputError(f"stream {stream.name}: {said}") from error
    return _with_declared_columns(source, stream, [CORRUPT] if corrupt else [])


def _refuse_incomplete(stream: Stream) -> None:
    """Refuse a stream that is known by its state alone, where the state does not keep all that it takes to read it."""
    if not stream.format:
        raise InputError(
            f"stream {stream.name} was given as a DataFrame, which a state does not keep: register it again"
        )
    if missing := redacted(stream.options):
        raise InputError(
            f"option {missing[0]} of stream {stream.name} is secret, and a state keeps no secrets: declare the stream "
            f"again with its options ({', '.join(missing)})"
        )


def source_path(stream: Stream) -> str:
    """Give where a source reads from; files are a pattern, and a relative path is meant from here."""
    path = dict(stream.options).get("path", "")
    if stream.format.lower() in FILE_FORMATS:
        return source_pattern(path, stream.name)
    return absolute(path) if path else ""


def _with_declared_columns(source: DataFrame, stream: Stream, more: Iterable[str]) -> DataFrame:
    """Take the declared columns from a source that has a schema of its own, cast to the declared types; and more."""
    have = {name.lower() for name in source.columns}
    missing = [column.name for column in stream.columns if column.name.lower() not in have]
    if missing:
        raise InputError(
            f"stream {stream.name} declares column {missing[0]}, which its {stream.format} source does not have; "
            f"it has {', '.join(source.columns)}"
        )
    return source.select(
        *(F.col(always_quoted(each.name)).cast(each.type).alias(each.name) for each in stream.columns),
        *map(always_quoted, more),
    )


def with_ingest_columns(source: DataFrame, stream: Stream, logs: tuple[LogPlan, ...]) -> DataFrame:
    """Add to a stream's rows what its logs need: event time, keys and predicate bits."""
    added = _ingest_columns(stream, logs)
    return _selected(source, stream, ["*", *(_named(name, value) for name, value in added.items())])


def ingest_columns_of(
    source: DataFrame, stream: Stream, logs: tuple[LogPlan, ...], names: Iterable[str]
) -> DataFrame:
    """Take of a stream's rows, and of what its logs need, only the columns named."""
    added = _ingest_columns(stream, logs)
    columns = [_named(name, added[name]) if name in added else always_quoted(name) for name in names]
    return _selected(source, stream, columns)


def _named(name: str, value: str) -> str:
    """Write a column of a SELECT list."""
    return f"{value} AS {always_quoted(name)}"


def _selected(source: DataFrame, stream: Stream, columns: list[str]) -> DataFrame:
    """Select some expressions of a stream's rows."""
    try:
        return source.selectExpr(*columns)
    except AnalysisException as error:
        raise InputError(f"stream {stream.name}: {short_message(error)}") from error


FARTHEST = 1 << 59
"""Microseconds from 1970 to the first and last event times that can be joined, 18,000 years: so sums and differences of
times and windows always fit in 64 bits."""


def _ingest_columns(stream: Stream, logs: tuple[LogPlan, ...]) -> dict[str, str]:
    """Give the expression of each column that is made for ingest."""
    added = {ROW_TIME: time_expression(stream)}
    for number, log in enumerate(logs):
        added |= _key_columns(number, stream, log)
        added |= _bit_columns(number, stream, log)
    return added


def ingest_names(stream: Stream, logs: tuple[LogPlan, ...]) -> list[str]:
    """Name the columns that are made for ingest."""
    return list(_ingest_columns(stream, logs))


def time_expression(stream: Stream) -> str:
    """Turn the time column into microseconds since the epoch; null if it is too far from it.

    A timestamp without a time zone counts from the epoch's wall-clock reading, so that daylight saving never
    stretches a window.
    """
    name = always_quoted(stream.time)
    if stream.time_type == "date":
        days, farthest = f"unix_date({name})", FARTHEST // DAY
        return f"CASE WHEN {days} BETWEEN -{farthest} AND {farthest} THEN {days} * {DAY}L END"
    micros = as_bigint(name, stream.time_type)
    return f"CASE WHEN {micros} BETWEEN -{FARTHEST}L AND {FARTHEST}L THEN {micros} END"


def arrow_time_type(stream: Stream, spark: SparkSession) -> pa.DataType | None:
    """Give the Arrow type Spark uses for a timestamp column; None for a date, which is not in microseconds."""
    if stream.time_type == "date":
        return None
    return pa.timestamp("us", None if stream.time_type == "timestamp_ntz" else spark.conf.get(ZONE))


@cache
def arrow_types(spark: SparkSession, stream: Stream) -> dict[str, pa.DataType]:
    """Give the Arrow type of each column of a stream, as Spark has it."""
    schema = empty_rows(spark, stream).toArrow().schema
    return dict(zip(schema.names, schema.types, strict=True))


def key_names(number: int, log: LogPlan) -> tuple[str, list[str]]:
    """Name the columns that carry a log's key through ingest: the 64-bit one, and the key itself if needed.

    A plain bigint column is its own 64-bit key.
    """
    parts = [] if log.whole_key else [f"{RESERVED}k{number}.{part}" for part in range(len(log.key))]
    return log.plain_key or f"{RESERVED}h{number}", parts


def bit_names(number: int, log: LogPlan) -> list[str]:
    """Name the columns that carry a log's predicate bits through ingest."""
    if not log.predicates:
        return []
    return [f"{RESERVED}b{number}.{word}" for word in range(words_for(len(log.predicates)))]


def answer(predicate: str, stream: Stream, usable: str) -> str:
    """Write a predicate so that it may stand beside others, with which it may have subexpressions in common."""
    apart = always_succeeds(predicate, stream) or guards_nothing(predicate, stream)
    return predicate if apart else f"CASE WHEN {usable} THEN {predicate} END"


def _usable(stream: Stream, log: LogPlan) -> str:
    """Say whether a row can meet others: one without a time, or a key that is a plain column, cannot.

    The time is compared because a test for null is left out by Spark where there are none.
    """
    columns = dict.fromkeys(part.column for part in log.key if part.column)
    tests = [
        f"{time_expression(stream)} > {_NO_TIME}",
        *(f"{always_quoted(each)} IS NOT NULL" for each in columns),
    ]
    return " AND ".join(tests)


_NO_TIME = "-9223372036854775808L"


def _key_columns(number: int, stream: Stream, log: LogPlan) -> dict[str, str]:
    """Evaluate a log's key, of rows that some query wants if it may fail; null means that the row can never match."""
    columns = _keys(number, log)
    if not log.wanted:
        return columns
    wanted = " OR ".join(_all_hold(condition, stream, log) for condition in log.wanted)
    return {name: f"CASE WHEN {wanted} THEN {value} END" for name, value in columns.items()}


def _all_hold(condition: tuple[str, ...], stream: Stream, log: LogPlan) -> str:
    """Say whether a row satisfies all predicates of a condition, and is usable."""
    usable = _usable(stream, log)
    return " AND ".join(
        f"({each})" for each in (usable, *(answer(each, stream, usable) for each in condition))
    )


def _keys(number: int, log: LogPlan) -> dict[str, str]:
    """Write a log's key: a 64-bit number, and the key itself if that is not all of it."""
    name, parts = key_names(number, log)
    if log.plain_key:
        return {}
    if not log.key:  # all rows have the same one, and none is without it
        return {name: "0L"}
    if log.whole_key:
        return {name: as_bigint(_typed(log.key[0]), log.key[0].type)}
    values = [as_bytes(_typed(part), part.type) for part in log.key]
    keyed = " AND ".join(f"({value}) IS NOT NULL" for value in values)
    digest = f"CASE WHEN {keyed} THEN xxhash64({', '.join(values)}) END"
    return {name: digest, **dict(zip(parts, values, strict=True))}


def _typed(part: KeyPart) -> str:
    """Cast a key column to the type both sides are compared as."""
    return f"cast({part.expression} AS {part.type})" if part.cast else f"({part.expression})"


def _bit_columns(number: int, stream: Stream, log: LogPlan) -> dict[str, str]:
    """Evaluate every predicate once and pack the answers into 64-bit words; null counts as false."""
    columns = {}
    usable = _usable(stream, log)
    for word, name in enumerate(bit_names(number, log)):
        mine = log.predicates[64 * word : 64 * word + 64]
        bits = (
            f"(CASE WHEN {answer(predicate, stream, usable)} THEN shiftleft(1L, {bit}) ELSE 0L END)"
            for bit, predicate in enumerate(mine)
        )
        columns[name] = " | ".join(bits)
    return columns
