"""Pairs as Spark sees them: the schema of a group's pairs, and a query's output as Spark SQL over it.

A pair has the columns ``l`` and ``r`` (structs of what is stored of either row), so that an expression such as
``l.Value - r.Value`` means the same everywhere: when outputs are checked before a start, inside a unit, and in a view
over the group's table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from penstock.engine.complaints import short_message
from penstock.engine.deliver import set_names
from penstock.errors import InputError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from penstock.plan.group import Group, Member
    from penstock.sql.query import Query, Side, Stream


def pair_columns(group: Group, side: Side) -> tuple[str, ...]:
    """List the columns of one side that some query's output or residual reads."""
    wanted: set[str] = set()
    for member in group.members:
        wanted |= member.query.left_columns if side == "l" else member.query.right_columns
    return tuple(name for name in group.log(side).columns if name in wanted)


def pair_schema(group: Group, left: Stream, right: Stream) -> str:
    """Write the schema of a group's pairs as Spark DDL."""
    sets = "".join(f", {name} bigint" for name in set_names(len(group.members))) if group.selective else ""
    return (
        f"l {_struct(left, pair_columns(group, 'l'))}, r {_struct(right, pair_columns(group, 'r'))}, "
        f"level smallint{sets}"
    )


def _struct(stream: Stream, names: tuple[str, ...]) -> str:
    """Write some columns of a stream as a struct type."""
    fields = (column for column in stream.columns if column.name in names)
    inside = ", ".join(f"`{column.name}`: {column.type}" for column in fields)
    return f"struct<{inside or 'nothing: tinyint'}>"


def is_computed(query: Query) -> bool:
    """Say whether a query's output needs Spark SQL: an expression, or a condition on both rows."""
    return bool(query.residual) or any(output.column is None for output in query.outputs)


def wants(group: Group, number: int, member: Member) -> Column:
    """Say, in Spark SQL, whether a pair is one of a query's results."""
    if group.selective:
        mine = F.expr(f"getbit(s{number // 64}, {number % 64}) = 1")
    else:
        first, last = member.levels
        mine = F.expr(f"level >= {first} AND level < {last}")
    for condition in member.query.residual:
        mine &= F.expr(f"({condition})")
    return mine


def output_columns(query: Query) -> list[Column]:
    """Give a query's SELECT list over the columns of a pair."""
    return [F.expr(output.expression).alias(output.name) for output in query.outputs]


def computed_column(group: Group, number: int, member: Member) -> Column:
    """Compute a query's output as one struct, null where the pair is not one of its results."""
    return F.when(wants(group, number, member), F.struct(*output_columns(member.query))).alias(f"o{number}")


def view(pairs: DataFrame, group: Group, number: int, member: Member) -> DataFrame:
    """Select a query's results from its group's pairs."""
    return pairs.where(wants(group, number, member)).select(*output_columns(member.query))


def check_outputs(spark: SparkSession, group: Group, left: Stream, right: Stream) -> dict[str, DataFrame]:
    """Let Spark check every output and residual of a group; give each query's empty result."""
    none = spark.createDataFrame([], pair_schema(group, left, right))
    empty = {}
    for number, member in enumerate(group.members):
        try:
            empty[member.query.name] = view(none, group, number, member)
        except Exception as error:
            raise InputError(f"query {member.query.name}: {short_message(error)}") from error
    return empty
