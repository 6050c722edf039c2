"""Results as Spark SQL over pairs.

A pair has the columns ``l`` and ``r``, structs with the stored columns of either row.  So an expression such as
``l.Value - r.Value`` means the same when outputs are checked before a start, in a unit, and in a view over the group's
table.

In:  queries of a group.  Out: conditions and expressions, and empty results with their types.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from penstock.engine.outputs.answer_sql import (
    AnswerTypes,
    empty_answers,
    refuse_without_equality,
    text_literal,
)
from penstock.engine.outputs.pair_columns import pair_schema
from penstock.engine.spark.spark_errors import short_message
from penstock.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from pyspark.sql import Column, DataFrame, SparkSession

    from penstock.engine.outputs.pair_columns import Computed
    from penstock.plan.group import Group, Member
    from penstock.sql.query import Query, Stream


def is_computed(query: Query) -> bool:
    """Return whether a query needs Spark SQL: for an expression, or for a condition on both rows."""
    taken = (output.column or output.remainder for output in query.outputs)
    return bool(query.residual) or not all(taken)


def wants(group: Group, number: int, member: Member) -> str:
    """Write the condition that a pair is a result of a query."""
    return wanted_pairs(member.query.residual, number, member.levels, selective=group.selective)


def wanted_pairs(residual: Iterable[str], number: int, levels: tuple[int, int], *, selective: bool) -> str:
    """Write the condition for a query's pairs, by its number in query sets, or by its slices where there are no sets.

    >>> wanted_pairs(["l.v < r.v"], 65, (0, 3), selective=True)
    '(getbit(s1, 1) = 1) AND (l.v < r.v)'
    """
    return _all_of((met_pairs(number, levels, selective=selective), *residual))


def met_pairs(number: int, levels: tuple[int, int], *, selective: bool) -> str:
    """Write the condition for predicates, key and window, without conditions on both rows."""
    of_slices = f"level >= {levels[0]} AND level < {levels[1]}"
    return f"getbit(s{number // 64}, {number % 64}) = 1" if selective else of_slices


def _all_of(conditions: Iterable[str]) -> str:
    """Join conditions by AND, in their order."""
    return " AND ".join(f"({condition})" for condition in conditions)


def output_columns(outputs: Iterable[tuple[str, str]]) -> list[Column]:
    """Return a SELECT list over the columns of a pair; `outputs` are names and expressions."""
    return [F.expr(expression).alias(name) for name, expression in outputs]


def _outputs(query: Query) -> list[tuple[str, str]]:
    """List a query's output columns."""
    return [(output.name, output.expression) for output in query.outputs]


def computed_column(asked: Computed) -> str:
    """Write a query's output as one struct, or TRUE; null where a pair is not a result of the query.

    Expressions are in a branch of a CASE, so that one that fails is evaluated for the query's own pairs only.  Outside
    of CASE, Spark would evaluate common parts of several queries first, for all pairs.
    """
    output = "TRUE"
    if asked.outputs is not None:
        fields = ", ".join(f"{text_literal(name)}, ({expression})" for name, expression in asked.outputs)
        output = f"named_struct({fields})"
    if asked.residual:
        output = f"CASE WHEN {_all_of(asked.residual)} THEN {output} END"
    conditions = (
        met_pairs(number, levels, selective=asked.selective)
        for number, levels in ((asked.number, asked.levels), *asked.others)
    )
    met = " OR ".join(f"({condition})" for condition in conditions) if asked.others else next(conditions)
    return f"CASE WHEN {met} THEN {output} END AS o{asked.number}"


def view(pairs: DataFrame, group: Group, number: int, member: Member) -> DataFrame:
    """Select a query's results from its group's pairs."""
    return pairs.where(wants(group, number, member)).select(*output_columns(_outputs(member.query)))


def empty_result(spark: SparkSession, group: Group, number: int, streams: tuple[Stream, ...]) -> DataFrame:
    """Return the result of a query before its first row."""
    none = spark.createDataFrame([], pair_schema(group, streams))
    return _result(none, group, number, streams, AnswerTypes(spark))


def _result(
    pairs: DataFrame, group: Group, number: int, streams: tuple[Stream, ...], types: AnswerTypes
) -> DataFrame:
    """Return a query's result over pairs without rows."""
    member = group.members[number]
    if member.query.aggregation is None:
        return view(pairs, group, number, member)
    refuse_without_equality(pairs.where(wants(group, number, member)), member.query)
    return empty_answers(types.of(group, number, streams).rows, member.query, streams)


def check_outputs(
    spark: SparkSession, group: Group, streams: tuple[Stream, ...], types: AnswerTypes
) -> dict[str, DataFrame]:
    """Let Spark check every output and residual of a group; return each query's empty result.

    Queries with the same expressions share one result, since an analysis takes Spark some 50 milliseconds.
    """
    none = spark.createDataFrame([], pair_schema(group, streams))
    known: dict[Hashable, DataFrame] = {}
    for number, member in enumerate(group.members):
        try:
            made = _made_of_pairs(member.query)
            if made not in known:
                known[made] = _result(none, group, number, streams, types)
        except InputError:
            raise
        except Exception as error:
            raise InputError(f"query {member.query.name}: {short_message(error)}") from error
    return {member.query.name: known[_made_of_pairs(member.query)] for member in group.members}


def _made_of_pairs(query: Query) -> Hashable:
    """Return all that the columns of a query's result depend on."""
    groups = query.aggregation
    answers = groups and replace(groups, every=0, reach=(), bucket=None)
    return query.outputs, query.residual, answers
