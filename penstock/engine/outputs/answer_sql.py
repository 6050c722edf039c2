"""Answers as Spark sees them: the types of group keys and measures, and a query's SELECT list and HAVING over them.

Spark analyses the aggregates themselves, over pairs without rows, so the types of a result are the ones that a batch
query of Spark's would have; nobody guesses.

In:  aggregate queries of a group.  Out: DataFrames without rows, and Spark SQL over the rows of answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from penstock.engine.aggregate.answer_task import INSTANT, NOTE, READER, WAS
from penstock.engine.aggregate.answers import OPERATION, SEQUENCE, WINDOW_END
from penstock.engine.sources.key_types import type_text
from penstock.errors import InputError
from penstock.plan.panes import aggregation_of
from penstock.sql.query import ENDS
from penstock.sql.text.lexer import tokenize

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import Column, DataFrame

    from penstock.engine.aggregate.answers import Reader
    from penstock.sql.query import Measure, Query, Stream


def folded(pairs: DataFrame, query: Query) -> DataFrame:
    """Aggregate pairs as a query does: its keys ``g0 …`` and its measures ``a0 …``."""
    aggregation = aggregation_of(query)
    inputs = pairs.select(*(F.expr(each.expression).alias(each.name) for each in query.outputs))
    names = [each.name for each in query.outputs]
    keys = [F.col(name).alias(f"g{n}") for n, name in enumerate(names[: aggregation.groups])]
    measures = [
        F.expr(_call(each, names)).alias(f"a{number}") for number, each in enumerate(aggregation.measures)
    ]
    # a count more, so that there is always something to aggregate
    rows = inputs.groupBy(*keys).agg(*measures, F.count(F.lit(1)).alias("n"))
    return rows.drop("n")


def refuse_without_equality(pairs: DataFrame, query: Query) -> None:
    """Refuse keys and DISTINCT arguments that cannot be told apart as Spark does: arrays, maps, and collated texts."""
    aggregation = aggregation_of(query)
    inputs = pairs.select(*(F.expr(each.expression).alias(each.name) for each in query.outputs))
    compared = {*range(aggregation.groups)}
    compared |= {each for one in aggregation.measures if one.distinct for each in one.arguments}
    ordered = {one.arguments[-1] for one in aggregation.measures if one.function in ENDS}
    summed = {
        each for one in aggregation.measures if one.function not in ENDS | {"count"} for each in one.arguments
    }
    for number in sorted(compared | ordered | summed):
        kind, expression = type_text(inputs.schema.fields[number].dataType), query.outputs[number].expression
        what = "grouped by or told apart" if number in compared else "put in order"
        if number in summed and kind.startswith("string"):
            raise InputError(
                f"query {query.name}: {expression} is {kind}, and is summed up: CAST({expression} AS DOUBLE)"
            )
        nested = ["array<", "map<", "variant", *(["struct<"] if number in ordered else [])]
        if number in compared | ordered and any(word in kind for word in nested):
            raise InputError(
                f"query {query.name}: {expression} is {kind}, which cannot be {what}: "
                f"use one of its parts, or to_json({expression})"
            )
        if number in compared | ordered and "collate" in kind.lower():
            raise InputError(
                f"query {query.name}: {expression} is {kind}, which cannot be {what} by its collation: "
                f"use lower({expression}), or CAST it to STRING"
            )


def _call(measure: Measure, names: list[str]) -> str:
    arguments = ", ".join(f"`{names[each]}`" for each in measure.arguments) or "*"
    return f"{measure.function}({'DISTINCT ' if measure.distinct else ''}{arguments})"


def empty_answers(rows: DataFrame, query: Query, streams: tuple[Stream, ...]) -> DataFrame:
    """Give the empty result of an aggregate query, from the empty DataFrame of its keys and measures."""
    aggregation = aggregation_of(query)
    if aggregation.having:
        rows = rows.where(aggregation.having)
    chosen = [F.expr(each.expression).alias(each.name) for each in aggregation.answers]
    # without keys even no pairs are a group: not here, where a group without a pair has no answer
    return rows.select(*_own_columns(aggregation.emit, streams), *chosen).where(F.lit(False))


def _own_columns(emit: str, streams: tuple[Stream, ...]) -> list[Column]:
    """Give the columns that come before the SELECT list."""
    if emit == "sliding":
        return [F.lit(None).cast(instant_type(streams)).alias(WINDOW_END)]
    if emit == "changes":
        return [F.lit("").alias(OPERATION), F.lit(0).cast("bigint").alias(SEQUENCE)]
    return []


def instant_type(streams: tuple[Stream, ...]) -> str:
    """Give the type of window_end: that of the streams' times, a point in time unless all are clock times."""
    kinds = {each.time_type for each in streams}
    return "timestamp_ntz" if kinds == {"timestamp_ntz"} else "timestamp"


def answers_schema(rows: DataFrame, *, changes: bool, with_before: bool) -> str:
    """Write the schema of the rows of answers as Spark DDL."""
    fields = [f"{each.name} {each.dataType.simpleString()}" for each in rows.schema.fields]
    columns = [f"{READER} int", f"{NOTE} string", f"{INSTANT} bigint", *fields]
    columns += [f"{WAS} boolean"] if changes else []
    before = [each for each in fields if each.startswith("a")] if with_before else []
    return ", ".join([*columns, *(f"b{each[1:]}" for each in before)])


def answer_columns(readers: Iterable[Reader]) -> tuple[str, ...]:
    """Compute, in Spark SQL, each reader's answers (``o0 …``), whether HAVING holds (``h0 …``), and did (``w0 …``)."""
    columns = ["*"]
    for reader in readers:
        if not reader.computed:
            continue
        mine = f"{READER} = {reader.number}"
        fields = ", ".join(f"{text_literal(each.name)}, ({each.expression})" for each in reader.answers)
        wanted = f"{mine} AND ({reader.having})" if reader.having and reader.emit != "changes" else mine
        columns.append(f"CASE WHEN {wanted} THEN named_struct({fields}) END AS o{reader.number}")
        if reader.having:
            columns.append(f"CASE WHEN {mine} THEN ({reader.having}) END AS h{reader.number}")
        if reader.having and reader.emit == "changes":
            before = of_before(reader.having)
            columns.append(f"CASE WHEN {mine} AND {WAS} THEN ({before}) END AS w{reader.number}")
    return tuple(columns)


def of_before(having: str) -> str:
    """Ask of what a group was before: ``b0 …`` in place of ``a0 …``.

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
