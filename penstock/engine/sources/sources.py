"""A stream's rows as a streaming DataFrame, ready for ingest.

Sources of text (JSON, CSV, XML) read a malformed line as a row with nulls (Spark's mode PERMISSIVE).  Such a row is
joined as in Spark's own batch read.  If it is set aside, without an event time or late, the text of its line is kept
with it::

    {"k": 1, "ts": "10:00"        ──▶   k null, ts null, penstock.corrupt '{"k": 1, "ts": "10:00"'   ──▶   late/

In:  a `Stream` (declared in SQL, or given as a DataFrame) and the logs that will hold it.
Out: a streaming DataFrame; its rows with the event time in microseconds, and for each log the key and predicate bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from penstock.engine.spark.schemas import empty_rows, schema_ddl
from penstock.engine.spark.spark_errors import short_message
from penstock.engine.tasks.ingest_columns import ingest_columns, time_expression
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
"""Columns that order files, and the blocks of a file, as they arrived."""

ROW_ORDER = f"{RESERVED}row"
"""A number that grows with the rows of each partition of a batch."""

CORRUPT = f"{RESERVED}corrupt"
"""The column for the text of a malformed line: a name that no user's column has."""

CORRUPT_AMONG_LATE = "_corrupt_record"
"""The name of this column in the dead letters, as Spark's users know it."""

_CORRUPT_OPTION = "columnNameOfCorruptRecord"
_TEXT_FORMATS = frozenset({"csv", "json", "xml"})
_MODES_WITHOUT_TEXT = frozenset({"dropmalformed", "failfast"})


# --- the source -------------------------------------------------------------------------------------------------


def open_source(spark: SparkSession, stream: Stream, *, in_order: bool = False) -> DataFrame:
    """Open a declared stream's Spark source; an error in its options is an `InputError`.

    With `in_order`, rows of files have the columns of `FILE_ORDER`.
    """
    _refuse_incomplete(stream)
    path, is_of_files = source_path(stream), stream.format.lower() in FILE_FORMATS
    if file := irregular(files_to_read(stream)):
        raise InputError(irregular_message(file, stream))
    reader = spark.readStream.format(stream.format)
    for name, value in stream.options:
        if name.lower() not in {"path", *KEPT_OPTIONS}:
            reader = reader.option(name, value)
    more = []
    schema = schema_ddl(stream)
    if keeps_text(spark, stream):
        reader = reader.option(_CORRUPT_OPTION, CORRUPT)
        schema += f", {always_quoted(CORRUPT)} string"
        more.append(F.col(always_quoted(CORRUPT)))
    try:
        if is_of_files:
            reader = reader.schema(schema)
        source = reader.load(path) if path else reader.load()
    except Exception as error:
        said = scrubbed(short_message(error), stream.options)
        raise InputError(f"stream {stream.name}: {said}") from error
    if in_order and is_of_files:
        more += [F.col(field).alias(name) for name, field in FILE_ORDER.items()]
    return _with_declared_columns(source, stream, more)


def keeps_text(spark: SparkSession, stream: Stream) -> bool:
    """Check whether the text of malformed lines is kept: not if a declared column has it, as in Spark."""
    options = {name.lower(): value for name, value in stream.options}
    if stream.format.lower() not in _TEXT_FORMATS or options.get("mode", "").lower() in _MODES_WITHOUT_TEXT:
        return False
    theirs = options.get(_CORRUPT_OPTION.lower()) or str(spark.conf.get(f"spark.sql.{_CORRUPT_OPTION}"))
    return not {theirs.lower(), CORRUPT_AMONG_LATE} & {column.name.lower() for column in stream.columns}


def files_to_read(stream: Stream) -> Iterable[str]:
    """List the local files that a stream reads; none where a Spark option chooses among them."""
    names = {name.lower() for name, _ in stream.options}
    if stream.format.lower() not in FILE_FORMATS or "pathglobfilter" in names:
        return ()
    return local_files(source_path(stream))


def irregular_message(file: str, stream: Stream) -> str:
    """Return the error for a source file that is not regular, such as a pipe."""
    return (
        f"source file {file} of stream {stream.name} is not a regular file, so reading it may never end. "
        "Remove it and run again"
    )


def _refuse_incomplete(stream: Stream) -> None:
    """Refuse a stream of a state that does not keep all that it takes to read it."""
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
    """Return the path of a source, made absolute; for files it is a pattern."""
    path = dict(stream.options).get("path", "")
    if stream.format.lower() in FILE_FORMATS:
        return source_pattern(path, stream.name)
    return absolute(path) if path else ""


def _with_declared_columns(source: DataFrame, stream: Stream, more: Iterable[Column]) -> DataFrame:
    """Select the declared columns of a source, cast to the declared types, and more."""
    have = {name.lower() for name in source.columns}
    missing = [column.name for column in stream.columns if column.name.lower() not in have]
    if missing:
        raise InputError(
            f"stream {stream.name} declares column {missing[0]}, which its {stream.format} source does not have; "
            f"it has {', '.join(source.columns)}"
        )
    return source.select(
        *(
            F.col(always_quoted(column.name)).cast(column.type).alias(column.name)
            for column in stream.columns
        ),
        *more,
    )


# --- its rows ---------------------------------------------------------------------------------------------------


def in_arrival_order(batch: DataFrame) -> tuple[DataFrame, list[str]]:
    """Add columns that order the rows of a batch as they arrived; return the batch and the names of these columns.

    Files are ordered by their date, then by their name.  Other sources are ordered as Spark hands over the partitions.
    """
    files = [name for name in FILE_ORDER if name in batch.columns]
    return batch.withColumn(ROW_ORDER, F.monotonically_increasing_id()), [*files, ROW_ORDER]


def ingest_columns_of(
    source: DataFrame, stream: Stream, logs: tuple[LogPlan, ...], names: Iterable[str] | None = None
) -> DataFrame:
    """Select columns of a stream's rows, and of those that ingest computes for its logs; by default the latter."""
    stream = with_elements(stream)
    added = ingest_columns(stream, logs)
    expressions = [
        f"{added.get(name, always_quoted(name))} AS {always_quoted(name)}" for name in names or added
    ]
    try:
        return exploded(source, stream).selectExpr(*expressions)
    except AnalysisException as error:
        raise InputError(f"stream {stream.name}: {short_message(error)}") from error


def check_conditions(spark: SparkSession, stream: Stream) -> None:
    """Check the conditions that mark the promises of a stream: Spark must know their columns, and they are boolean."""
    for promise in promises_of(stream):
        if not promise.condition:
            continue
        try:
            condition = empty_rows(spark, stream).select(F.expr(promise.condition))
            kind = condition.schema[0].dataType.simpleString()
        except AnalysisException as error:
            raise InputError(f"punctuation of stream {stream.name}: {short_message(error)}") from error
        if kind != "boolean":
            raise InputError(
                f"punctuation of stream {stream.name} is {promise.condition}, which is {kind}: write a condition, such "
                "as kind = 'closed'"
            )


def exploded(source: DataFrame, stream: Stream) -> DataFrame:
    """Return a row for each element of the lists that make promises; other rows and empty lists stay one row."""
    for name, element in exploding(stream).items():
        (condition,) = {promise.condition for promise in promises_of(stream) if not promise.is_data}
        timed = f"{time_expression(stream)} IS NOT NULL"
        promises = f"{timed} AND ({condition})" if condition else timed
        elements = f"CASE WHEN {promises} THEN {always_quoted(name)} END"
        source = source.select("*", F.explode_outer(F.expr(elements)).alias(element))
    return source
