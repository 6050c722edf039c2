"""A stream's rows as a streaming DataFrame, ready for ingest.

In:  a `Stream` (declared in SQL, or given as a DataFrame) and the logs that will hold it.
Out: one streaming DataFrame with, for each log, the key; the event time in microseconds; the predicate bits; and
every column of the source untouched, so that a late row can be kept whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from penstock.engine.sources.malformed import CORRUPT, OPTION, keeps_text
from penstock.engine.spark.schemas import empty_rows, schema_ddl
from penstock.engine.spark.spark_errors import short_message
from penstock.engine.tasks.ingest_columns import ingest_columns, named, time_expression
from penstock.engine.tasks.promise_columns import exploding, with_elements
from penstock.errors import InputError
from penstock.sql.bind.promises import promises_of
from penstock.sql.query import RESERVED
from penstock.sql.source_options import redacted, scrubbed
from penstock.sql.streams import FILE_FORMATS, KEPT_OPTIONS
from penstock.sql.text.tree import always_quoted
from penstock.state.locations import absolute, irregular, local_files, source_pattern

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import Column, DataFrame, SparkSession

    from penstock.plan.stored import LogPlan
    from penstock.sql.query import Stream


FILE_ORDER = {
    f"{RESERVED}file_time": "_metadata.file_modification_time",
    f"{RESERVED}file_name": "_metadata.file_path",
    f"{RESERVED}file_place": "_metadata.file_block_start",
}
"""Columns that say in which order files, and parts of them, have arrived."""

ROW_ORDER = f"{RESERVED}row"
"""A number that grows with the rows of each part of a batch."""


def in_arrival_order(batch: DataFrame) -> tuple[DataFrame, list[str]]:
    """Give a batch with columns that order its rows as they arrived, and their names.

    In a file rows are in order, and files are by their date, then by their name.  Of other sources, rows are in the
    order in which Spark hands over the parts of a batch.
    """
    files = [name for name in FILE_ORDER if name in batch.columns]
    return batch.withColumn(ROW_ORDER, F.monotonically_increasing_id()), [*files, ROW_ORDER]


def open_source(spark: SparkSession, stream: Stream, *, in_order: bool = False) -> DataFrame:
    """Open a declared stream's Spark source; a wrong option is the user's to mend.

    If it is to be read `in_order`, rows of files say which file they are from.
    """
    _refuse_incomplete(stream)
    path = source_path(stream)
    if file := irregular(files_to_read(stream)):
        raise InputError(irregular_message(file, stream))
    reader = spark.readStream.format(stream.format)
    for name, value in stream.options:
        if name.lower() not in {"path", *KEPT_OPTIONS}:
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
    more = [F.col(always_quoted(CORRUPT))] if corrupt else []
    if in_order and stream.format.lower() in FILE_FORMATS:
        more += [F.col(place).alias(name) for name, place in FILE_ORDER.items()]
    return _with_declared_columns(source, stream, more)


def files_to_read(stream: Stream) -> Iterable[str]:
    """List the files of this machine that a stream reads; none where an option of Spark chooses among them."""
    names = {name.lower() for name, _ in stream.options}
    if stream.format.lower() not in FILE_FORMATS or "pathglobfilter" in names:
        return ()
    return local_files(source_path(stream))


def irregular_message(file: str, stream: Stream) -> str:
    """Say that a source has a file that nothing should read."""
    return (
        f"source file {file} of stream {stream.name} is not a regular file, and to read it may never end: "
        "remove it and run again"
    )


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


def _with_declared_columns(source: DataFrame, stream: Stream, more: Iterable[Column]) -> DataFrame:
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
        *more,
    )


def with_ingest_columns(source: DataFrame, stream: Stream, logs: tuple[LogPlan, ...]) -> DataFrame:
    """Add to a stream's rows what its logs need: event time, keys and predicate bits."""
    added = ingest_columns(stream, logs)
    return _selected(source, stream, ["*", *(named(name, value) for name, value in added.items())])


def ingest_columns_of(
    source: DataFrame, stream: Stream, logs: tuple[LogPlan, ...], names: Iterable[str]
) -> DataFrame:
    """Take of a stream's rows, and of what its logs need, only the columns named."""
    stream = with_elements(stream)
    added = ingest_columns(stream, logs)
    columns = [named(name, added[name]) if name in added else always_quoted(name) for name in names]
    return _selected(exploded(source, stream), stream, columns)


def check_conditions(spark: SparkSession, stream: Stream) -> None:
    """Let Spark check the condition by which a stream's promises are told from its data."""
    for each in promises_of(stream):
        if not each.condition:
            continue
        try:
            kind = empty_rows(spark, stream).select(F.expr(each.condition)).schema[0].dataType.simpleString()
        except AnalysisException as error:
            raise InputError(f"punctuation of stream {stream.name}: {short_message(error)}") from error
        if kind != "boolean":
            raise InputError(
                f"punctuation of stream {stream.name} is {each.condition}, which is {kind}: write a condition, such as "
                "kind = 'closed'"
            )


def exploded(source: DataFrame, stream: Stream) -> DataFrame:
    """Give a row for each element of the lists that make promises; all other rows, and empty lists, stay one row."""
    for name, element in exploding(stream).items():
        (condition,) = {each.condition for each in promises_of(stream) if not each.is_data}
        timed = f"{time_expression(stream)} IS NOT NULL"
        promises = f"{timed} AND ({condition})" if condition else timed
        some = f"CASE WHEN {promises} THEN {always_quoted(name)} END"
        source = source.select("*", F.explode_outer(F.expr(some)).alias(element))
    return source


def _selected(source: DataFrame, stream: Stream, columns: list[str]) -> DataFrame:
    """Select some expressions of a stream's rows."""
    try:
        return source.selectExpr(*columns)
    except AnalysisException as error:
        raise InputError(f"stream {stream.name}: {short_message(error)}") from error
