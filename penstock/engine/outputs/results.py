"""Committed results, read back: a query's rows, a stream's late rows, and sinks that can be read from the start.

In:  the plan, the ledger and the state's files.  Out: Spark DataFrames.  Nothing here sees output that is not
committed: of what the state keeps, the files that the ledger names are read and no others.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial, reduce
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from penstock.engine.aggregate.answer_job import OPERATION, SEQUENCE
from penstock.engine.outputs.key_columns import key_ddl
from penstock.engine.outputs.pair_sql import empty_result, output_columns, wanted_pairs
from penstock.engine.runners.runner import Job
from penstock.engine.runners.spark import described
from penstock.engine.sinks.sink_kind import sink_of
from penstock.engine.sources.sources import CORRUPT_AMONG_LATE, keeps_text
from penstock.engine.spark.schemas import schema_ddl, type_text
from penstock.engine.tasks.ingest import reason_name
from penstock.engine.tasks.propagate import finished_values
from penstock.engine.tasks.release import RELEASE
from penstock.errors import MissingError
from penstock.sql.spark_types import parse_type
from penstock.sql.text.tree import always_quoted
from penstock.state.checksum import damage_message
from penstock.state.files import folder_of
from penstock.state.locations import literal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

    from penstock.engine.tasks.propagate import PropagationTask
    from penstock.plan.build import Plan
    from penstock.sql.query import Query, Stream
    from penstock.state.files import Files
    from penstock.state.ledger import Ledger
    from penstock.state.values import Publication


def read_results(
    spark: SparkSession, files: Files, plan: Plan, look: Callable[[], Ledger], name: str
) -> DataFrame:
    """Read a query's committed results from its sink, in order if the query has one.

    `look` returns the ledger.  It is called again if files that it names have been merged meanwhile.
    """
    query = plan.query(name)
    sink = sink_of(query)
    if not sink.in_state:
        rows = sink.read(_reader(spark))
        return in_order(positioned(rows)) if query.ordered else latest(rows, query, look())
    for _ in range(_LOOKS):
        with suppress(MissingError):
            ledger = look()
            return latest(_read_kept(spark, files, plan, ledger, query), query, ledger)
    ledger = look()
    return latest(_read_kept(spark, files, plan, ledger, query), query, ledger)


def latest(rows: DataFrame, query: Query, ledger: Ledger) -> DataFrame:
    """Return the latest state of each group, where a query answers with changes; else the rows as they are.

    Changes from before an ALTER of the query do not count.
    """
    if query.aggregation is None or query.aggregation.emit != "changes":
        return rows
    keys = [answer.name for answer in query.aggregation.answers if answer.plain.startswith("g")]
    columns = [F.col(always_quoted(answer.name)) for answer in query.aggregation.answers]
    newest = F.max_by(F.struct(F.col(OPERATION), *columns), F.col(SEQUENCE)).alias("newest")
    rows = rows.where(F.col(SEQUENCE) > ledger.query(query.name).counted_from)
    grouped = rows.groupBy(*(F.col(always_quoted(key)) for key in keys)).agg(newest)
    kept = grouped.where(f"newest.{OPERATION} <> 'delete'")
    return kept.select(*(F.col(f"newest.{always_quoted(one.name)}") for one in query.aggregation.answers))


_LOOKS = 9


def _read_kept(spark: SparkSession, files: Files, plan: Plan, ledger: Ledger, query: Query) -> DataFrame:
    """Read the results that the state keeps: among the group's pairs, and in the query's own files."""
    views = [
        pairs.where(wanted).select(*output_columns(outputs))
        for (schema, wanted, outputs), names in _readings(ledger, query.name).items()
        for pairs in [_read_files(_reader(spark).schema(schema), files, names)]
    ]
    shapes: dict[str, list[str]] = {}
    for file in ledger.kept.get(query.name, ()):
        shapes.setdefault(file.shape, []).append(file.name)
    own = [_read_files(_reader(spark), files, names) for names in shapes.values()]
    nothing = (
        [_empty(spark, plan, query.name)] if any(plan.groups_of(query.name)) or not (views or own) else []
    )
    if not query.ordered:
        return _together([*nothing, *views, *own])
    found_without_order = [unpositioned(rows) for rows in (*nothing, *views)]
    return in_order(_together([*found_without_order, *map(positioned, own)]))


Reading = tuple[str, str, tuple[tuple[str, str], ...]]
"""How pairs are read: their schema, the condition for a query's pairs, and the SELECT list."""


def _readings(ledger: Ledger, query: str) -> dict[Reading, list[str]]:
    """Return the files with pairs of a query, by how they are read; tables that are read alike are read together."""
    readings: dict[Reading, list[str]] = {}
    for tables in ledger.tables.values():
        for table in tables:
            for member in table.members.get(query, ()) if table.files else ():
                wanted = wanted_pairs(
                    member.residual, member.number, member.levels, selective=table.selective
                )
                names = readings.setdefault((table.schema, wanted, member.outputs), [])
                names += [file.name for file in table.files or ()]
    return readings


def _read_files(reader: DataFrameReader, files: Files, names: Iterable[str]) -> DataFrame:
    """Read some files of the state; raise `MissingError` if one is missing."""
    named = list(names)
    try:
        return reader.parquet(*(files.to_read(name) for name in named))
    except AnalysisException as error:
        gone = next((name for name in named if not files.exists(name)), "")
        if "PATH_NOT_FOUND" not in str(error) or not gone:
            raise
        raise MissingError(damage_message(files, gone, "is missing")) from error


def _together(parts: Iterable[DataFrame]) -> DataFrame:
    """Return the union of results; a column that an older definition did not have is null."""
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), parts)


def _empty(spark: SparkSession, plan: Plan, name: str) -> DataFrame:
    """Return the result of a query before its first row."""
    group, number, _ = plan.find(name)
    streams = tuple(plan.stream(name) for name in group.streams)
    return empty_result(spark, group, number, streams)


def to_show(rows: DataFrame, limit: int | None = None) -> DataFrame:
    """Return at most `limit` rows, with VARIANT columns as JSON, since Spark cannot return their nulls as Arrow."""
    rows = rows if limit is None else rows.limit(limit)
    kinds = {field.name: parse_type(type_text(field.dataType)) for field in rows.schema.fields}
    if not any(kind.holds("variant") for kind in kinds.values()):
        return rows
    named = ((F.col(always_quoted(name)), name, kind) for name, kind in kinds.items())
    return rows.select(
        *(
            (F.to_json(column) if kind.holds("variant") else column).alias(name)
            for column, name, kind in named
        )
    )


def read_output(spark: SparkSession, publication: Publication) -> DataFrame:
    """Read the results of a unit or a release that are to be handed over; those of a release in order."""
    rows = _reader(spark).parquet(*(literal(f"{move.root}/{move.final}") for move in publication.moves))
    return in_order(positioned(rows)) if publication.unit.startswith(RELEASE) else rows


def read_finished(
    spark: SparkSession, files: Files, plan: Plan, query: Query, task: PropagationTask | None
) -> DataFrame:
    """Read the values that are finished for a query, by the promises that are still remembered."""
    schema = key_ddl(plan, query)
    if task is None:
        return spark.createDataFrame([], schema)
    found = spark.range(1).coalesce(1).mapInArrow(partial(_finished_values, files, task), schema)
    with described(spark.sparkContext, Job("propagate", f"look up finished values of {query.name}")):
        return found.localCheckpoint(eager=True)  # the files of promises may be merged into others later


def _finished_values(
    files: Files, task: PropagationTask, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        yield from finished_values(files, task)[0].to_batches()


def read_late(spark: SparkSession, files: Files, stream: Stream, committed: int) -> DataFrame:
    """Read the dead letters of committed batches: rows with the reason, and the text of unreadable lines."""
    folder = folder_of("late", stream.name)
    batches = [files.to_read(f"{folder}/{batch}") for batch in files.list(folder) if int(batch) < committed]
    schema = schema_ddl(stream) + f", {CORRUPT_AMONG_LATE} string" * keeps_text(spark, stream)
    schema += f", {reason_name(column.name for column in stream.columns)} string"
    if not batches:
        return spark.createDataFrame([], schema)
    # batch by batch: below a directory they share, Spark would make a column of names such as batch=1
    return _reader(spark).schema(schema).parquet(*batches)


def read_files(spark: SparkSession, files: Files, names: Iterable[str]) -> DataFrame:
    """Read some files of results of the state, which have the same columns."""
    return _read_files(_reader(spark), files, names)


def _reader(spark: SparkSession) -> DataFrameReader:
    """Read Parquet and verify checksums of pages, so that a damaged page is an error and not a wrong result."""
    return spark.read.option("parquet.page.verify-checksum.enabled", "true")


# --- the order of rows ----------------------------------------------------------------------------------------------

# Spark reads files, and parts of files, in an order of its own.  So rows are sorted by their position.
_FILE, _ROW = "penstock.file", "penstock.row"


def positioned(rows: DataFrame) -> DataFrame:
    """Add the positions of rows: the name of the file, since names ascend, and the number in the file."""
    metadata = rows.metadataColumn("_metadata")
    return rows.select("*", metadata["file_name"].alias(_FILE), metadata["row_index"].alias(_ROW))


def unpositioned(rows: DataFrame) -> DataFrame:
    """Add a position before all others, for rows without an order."""
    return rows.select("*", F.lit("").alias(_FILE), F.lit(0).cast("bigint").alias(_ROW))


def in_order(rows: DataFrame) -> DataFrame:
    """Sort rows by their positions, and drop the positions."""
    return rows.orderBy(*(f"`{name}`" for name in (_FILE, _ROW))).drop(_FILE, _ROW)
