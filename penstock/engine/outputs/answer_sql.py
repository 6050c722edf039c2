"""Answers in Spark SQL: the types of group keys and measures, and SELECT lists and HAVING over them.

Spark analyses the aggregates over a DataFrame of pairs without rows.  So a result has the types that it would have in a
batch query of Spark.

In:  aggregate queries of a group.  Out: DataFrames without rows, and Spark SQL over the rows of answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from penstock.engine.aggregate.answer_job import OPERATION, SEQUENCE, WINDOW_END
from penstock.engine.aggregate.answer_task import INSTANT, NOTE, READER, WAS
from penstock.engine.outputs.pair_columns import pair_schema
from penstock.engine.spark.schemas import arrow_schema, type_text
from penstock.errors import InputError
from penstock.plan.panes import aggregation_of
from penstock.sql.aggregates import aggregate_class
from penstock.sql.text.lexer import tokenize

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

    from penstock.engine.aggregate.answer_job import Reader
    from penstock.plan.group import Group
    from penstock.sql.query import Measure, OutputColumn, Query, Stream

    Folding: TypeAlias = tuple[str, tuple[OutputColumn, ...], int, tuple[Measure, ...]]
    """The schema of the pairs, what is taken of each, how many of these are keys, and the measures."""


def folded(pairs: DataFrame, query: Query) -> DataFrame:
    """Aggregate pairs as a query does: return its keys ``g0 …`` and its measures ``a0 …``."""
    aggregation = aggregation_of(query)
    inputs = pairs.select(*(F.expr(output.expression).alias(output.name) for output in query.outputs))
    names = [output.name for output in query.outputs]
    keys = [F.col(name).alias(f"g{n}") for n, name in enumerate(names[: aggregation.groups])]
    measures = [
        F.expr(_call(measure, names)).alias(f"a{number}")
        for number, measure in enumerate(aggregation.measures)
    ]
    # Spark needs at least one aggregate
    rows = inputs.groupBy(*keys).agg(*measures, F.count(F.lit(1)).alias("n"))
    return rows.drop("n")


def refuse_without_equality(pairs: DataFrame, query: Query) -> None:
    """Refuse keys and arguments that cannot be compared as Spark compares them: arrays, maps, collated texts."""
    aggregation = aggregation_of(query)
    inputs = pairs.select(*(F.expr(output.expression).alias(output.name) for output in query.outputs))
    compared = {*range(aggregation.groups)}
    compared |= {
        number for measure in aggregation.measures if measure.distinct for number in measure.arguments
    }
    classes = [(measure, aggregate_class(measure.function)) for measure in aggregation.measures]
    ordered = {measure.arguments[-1] for measure, kind in classes if kind.compares}
    summed = {number for measure, kind in classes if kind.adds for number in measure.arguments}
    for number in sorted(compared | ordered | summed):
        kind, expression = type_text(inputs.schema.fields[number].dataType), query.outputs[number].expression
        doing = "compared" if number in compared else "put in order"
        if number in summed and kind.startswith("string"):
            raise InputError(
                f"query {query.name}: {expression} is {kind}, and is summed up: CAST({expression} AS DOUBLE)"
            )
        nested = ["array<", "map<", "variant", *(["struct<"] if number in ordered else [])]
        if number in compared | ordered and any(word in kind for word in nested):
            raise InputError(
                f"query {query.name}: {expression} is {kind}, which cannot be {doing}: "
                f"use one of its parts, or to_json({expression})"
            )
        if number in compared | ordered and "collate" in kind.lower():
            raise InputError(
                f"query {query.name}: {expression} is {kind}, which cannot be {doing} by its collation: "
                f"use lower({expression}), or CAST it to STRING"
            )


def _call(measure: Measure, names: list[str]) -> str:
    arguments = ", ".join(f"`{names[number]}`" for number in measure.arguments) or "*"
    return f"{measure.function}({'DISTINCT ' if measure.distinct else ''}{arguments})"


def empty_answers(rows: DataFrame, query: Query, streams: tuple[Stream, ...]) -> DataFrame:
    """Return the empty result of an aggregate query, from the empty DataFrame of its keys and measures."""
    aggregation = aggregation_of(query)
    if aggregation.having:
        rows = rows.where(aggregation.having)
    chosen = [F.expr(answer.expression).alias(answer.name) for answer in aggregation.answers]
    # Spark has one row for no pairs without keys; here a group without a pair has no answer
    return rows.select(*_own_columns(aggregation.emit, streams), *chosen).where(F.lit(False))


def _own_columns(emit: str, streams: tuple[Stream, ...]) -> list[Column]:
    """Return the columns that come before the SELECT list."""
    if emit == "sliding":
        return [F.lit(None).cast(instant_type(streams)).alias(WINDOW_END)]
    if emit == "changes":
        return [F.lit("").alias(OPERATION), F.lit(0).cast("bigint").alias(SEQUENCE)]
    return []


def instant_type(streams: tuple[Stream, ...]) -> str:
    """Return the type of window_end: without a time zone only if the times of all streams are."""
    kinds = {stream.time_type for stream in streams}
    return "timestamp_ntz" if kinds == {"timestamp_ntz"} else "timestamp"


def answers_schema(rows: DataFrame, *, changes: bool, with_before: bool) -> str:
    """Write the schema of the rows of answers as Spark DDL."""
    fields = [f"{field.name} {field.dataType.simpleString()}" for field in rows.schema.fields]
    columns = [f"{READER} int", f"{NOTE} string", f"{INSTANT} bigint", *fields]
    columns += [f"{WAS} boolean"] if changes else []
    before = [field for field in fields if field.startswith("a")] if with_before else []
    return ", ".join([*columns, *(f"b{field[1:]}" for field in before)])


def answer_columns(readers: Iterable[Reader]) -> tuple[str, ...]:
    """Write the answers of each reader (``o0 …``), and whether HAVING holds (``h0 …``) or held before (``w0 …``)."""
    columns = ["*"]
    for reader in readers:
        if not reader.computed:
            continue
        mine = f"{READER} = {reader.number}"
        fields = ", ".join(f"{text_literal(one.name)}, ({one.expression})" for one in reader.answers)
        wanted = f"{mine} AND ({reader.having})" if reader.having and reader.emit != "changes" else mine
        columns.append(f"CASE WHEN {wanted} THEN named_struct({fields}) END AS o{reader.number}")
        if reader.having:
            columns.append(f"CASE WHEN {mine} THEN ({reader.having}) END AS h{reader.number}")
        if reader.having and reader.emit == "changes":
            before = of_before(reader.having)
            columns.append(f"CASE WHEN {mine} AND {WAS} THEN ({before}) END AS w{reader.number}")
    return tuple(columns)


def of_before(having: str) -> str:
    """Write a HAVING over the measures before a change: ``b0 …`` instead of ``a0 …``.

    >>> of_before("a0 > 3 AND g0 <> 'a0'")
    "b0 > 3 AND g0 <> 'a0'"
    """
    text = having
    for token in reversed(list(tokenize(having))):
        if token.kind == "word" and token.text[0] == "a" and token.text[1:].isdigit():
            text = f"{text[: token.start]}b{token.text[1:]}{text[token.end :]}"
    return text


def text_literal(text: str) -> str:
    r"""Write a text as Spark SQL does.

    >>> print(text_literal("it's"))
    'it\'s'
    """
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


@dataclass(frozen=True, slots=True)
class AnswerRows:
    """An aggregate query's keys and measures, without rows."""

    rows: DataFrame
    schema: pa.Schema


class AnswerTypes:
    """The types of keys and measures; Spark analyses once what several queries have in common.

    An analysis takes some 50 milliseconds.  Queries with the same keys and measures share it, whatever their windows,
    sinks, and expressions over keys and measures.
    """

    def __init__(self, spark: SparkSession) -> None:
        """Analyse nothing yet."""
        self._spark = spark
        self._known: dict[Folding, AnswerRows] = {}

    def of(self, group: Group, number: int, streams: tuple[Stream, ...]) -> AnswerRows:
        """Return the keys and measures of one query."""
        query, pairs = group.members[number].query, pair_schema(group, streams)
        aggregation = aggregation_of(query)
        alike = (pairs, query.outputs, aggregation.groups, aggregation.measures)
        if alike not in self._known:
            rows = folded(self._spark.createDataFrame([], pairs), query)
            self._known[alike] = AnswerRows(rows, arrow_schema(rows))
        return self._known[alike]

    def rows_of(self, schema: pa.Schema) -> DataFrame:
        """Return the empty DataFrame of a schema: the same object, which readers of a pane set share."""
        return next(known.rows for known in self._known.values() if known.schema is schema)
