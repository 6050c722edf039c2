"""Pairs as Spark sees them: the schema of a group's pairs, and a query's output as Spark SQL over it.

A pair has the columns ``l`` and ``r`` (structs of what is stored of either row), so that an expression such as
``l.Value - r.Value`` means the same everywhere: when outputs are checked before a start, inside a unit, and in a view
over the group's table.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from penstock.engine.outputs.answer_sql import empty_answers, refuse_without_equality, text_literal
from penstock.engine.outputs.answer_types import AnswerTypes
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
    """Say whether a query's output needs Spark SQL: an expression, or a condition on both rows."""
    taken = (output.column or output.remainder for output in query.outputs)
    return bool(query.residual) or not all(taken)


def wants(group: Group, number: int, member: Member) -> str:
    """Say, in Spark SQL, whether a pair is one of a query's results."""
    return wanted_pairs(member.query.residual, number, member.levels, selective=group.selective)


def wanted_pairs(residual: Iterable[str], number: int, levels: tuple[int, int], *, selective: bool) -> str:
    """Choose a query's pairs by its number in the query set, or by its slices where there are no sets.

    >>> wanted_pairs(["l.v < r.v"], 65, (0, 3), selective=True)
    '(getbit(s1, 1) = 1) AND (l.v < r.v)'
    """
    return _all_of((met_pairs(number, levels, selective=selective), *residual))


def met_pairs(number: int, levels: tuple[int, int], *, selective: bool) -> str:
    """Choose the pairs that a query's predicates, key and window leave, before its conditions on both rows."""
    of_slices = f"level >= {levels[0]} AND level < {levels[1]}"
    return f"getbit(s{number // 64}, {number % 64}) = 1" if selective else of_slices


def _all_of(conditions: Iterable[str]) -> str:
    """Hold conditions together, in their order."""
    return " AND ".join(f"({each})" for each in conditions)


def output_columns(outputs: Iterable[tuple[str, str]]) -> list[Column]:
    """Give a SELECT list, (name, expression) each, over the columns of a pair."""
    return [F.expr(expression).alias(name) for name, expression in outputs]


def _outputs(query: Query) -> list[tuple[str, str]]:
    """List a query's output columns."""
    return [(output.name, output.expression) for output in query.outputs]


def computed_column(asked: Computed) -> str:
    """Compute, in Spark SQL, a query's output as one struct, or TRUE, and null where a pair is not one of its results.

    What may fail stands in a branch of a CASE, so that it is evaluated for the query's own pairs only: of what several
    queries compute, Spark would compute the common parts first, for all pairs.
    """
    output = "TRUE"
    if asked.outputs is not None:
        fields = ", ".join(f"{text_literal(name)}, ({expression})" for name, expression in asked.outputs)
        output = f"named_struct({fields})"
    if asked.residual:
        output = f"CASE WHEN {_all_of(asked.residual)} THEN {output} END"
    each_met = (
        met_pairs(number, levels, selective=asked.selective)
        for number, levels in ((asked.number, asked.levels), *asked.others)
    )
    met = " OR ".join(f"({each})" for each in each_met) if asked.others else next(each_met)
    return f"CASE WHEN {met} THEN {output} END AS o{asked.number}"


def view(pairs: DataFrame, group: Group, number: int, member: Member) -> DataFrame:
    """Select a query's results from its group's pairs."""
    return pairs.where(wants(group, number, member)).select(*output_columns(_outputs(member.query)))


def empty_result(spark: SparkSession, group: Group, number: int, streams: tuple[Stream, ...]) -> DataFrame:
    """Give the result of a query before its first row."""
    none = spark.createDataFrame([], pair_schema(group, streams))
    return _result(none, group, number, streams, AnswerTypes(spark))


def _result(
    pairs: DataFrame, group: Group, number: int, streams: tuple[Stream, ...], types: AnswerTypes
) -> DataFrame:
    """Give a query's result over pairs without rows."""
    member = group.members[number]
    if member.query.aggregation is None:
        return view(pairs, group, number, member)
    refuse_without_equality(pairs.where(wants(group, number, member)), member.query)
    return empty_answers(types.of(group, number, streams).rows, member.query, streams)


def check_outputs(
    spark: SparkSession, group: Group, streams: tuple[Stream, ...], types: AnswerTypes
) -> dict[str, DataFrame]:
    """Let Spark check every output and residual of a group; give each query's empty result.

    Queries that make the same of their pairs have one result, since each analysis takes Spark some 50 milliseconds.
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
    return {each.query.name: known[_made_of_pairs(each.query)] for each in group.members}


def _made_of_pairs(query: Query) -> Hashable:
    """Give what a query makes of its pairs, whichever they are: all that the columns of its result depend on."""
    groups = query.aggregation
    answers = groups and replace(groups, every=0, reach=(), bucket=None)
    return query.outputs, query.residual, answers
