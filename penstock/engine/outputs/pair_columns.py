"""The columns of a group's pairs, and their schema; without Spark.

In:  a group and its streams.  Out: column names and Spark DDL.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.engine.sinks.pair_batch import time_name
from penstock.engine.tasks.route_pairs import set_names
from penstock.sql.text.tree import always_quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.plan.group import Group, Member
    from penstock.sql.query import Side, Stream


@dataclass(frozen=True, slots=True)
class Computed:
    """What Spark SQL computes of the pairs for one query: whether a pair is a result, and the output.

    `outputs` are names and expressions over ``l.column`` and ``r.column``; None where only the pair is needed.
    """

    number: int
    levels: tuple[int, int]
    selective: bool
    residual: tuple[str, ...]
    outputs: tuple[tuple[str, str], ...] | None
    others: tuple[tuple[int, tuple[int, int]], ...] = ()
    """Further queries with the same expressions, by number and slices."""


@dataclass(frozen=True, slots=True)
class PairExpressions:
    """The expressions that Spark SQL computes of a unit's pairs.

    `fleeting` expressions need a Spark plan for each unit, because clocks and random seeds do not change in a plan.
    """

    group: Group
    streams: tuple[Stream, ...]
    computed: tuple[Computed, ...]
    fleeting: bool = False


def computed_for(group: Group, number: int, member: Member, *, in_table: bool) -> Computed:
    """Return the expressions of a query; no outputs where results are read from the table."""
    outputs = tuple((output.name, output.expression) for output in member.query.outputs)
    is_pair = in_table or not outputs  # COUNT(*) alone reads no column
    return Computed(
        number, member.levels, group.selective, member.query.residual, None if is_pair else outputs
    )


def computed_together(group: Group, numbers: Sequence[int]) -> Computed:
    """Return the expressions of queries that share a pane set, which are computed once."""
    first, *others = numbers
    computed = computed_for(group, first, group.members[first], in_table=False)
    return replace(computed, others=tuple((number, group.members[number].levels) for number in others))


def pair_columns(group: Group, side: Side, *, gathered: bool = False) -> tuple[str, ...]:
    """List the columns of one side that some query's output or residual reads.

    With `gathered`, without the columns of aggregates, whose folds read their values from the segments.
    """
    wanted: set[str] = set()
    for member in group.members:
        if not gathered or member.query.aggregation is None:
            wanted |= member.query.columns(side)
    return tuple(name for name in group.log(side).columns if name in wanted)


def pair_schema(group: Group, streams: tuple[Stream, ...]) -> str:
    """Write the schema of a group's pairs as Spark DDL."""
    return table_schema(group, streams, with_sets=group.selective)


def table_schema(group: Group, streams: tuple[Stream, ...], *, with_sets: bool) -> str:
    """Write the schema of the pairs that a group keeps, with or without the sets of their readers."""
    sets = "".join(f", {name} bigint" for name in set_names(len(group.members))) if with_sets else ""
    rows = (
        f"{side} {_struct(stream, pair_columns(group, side))}"
        for side, stream in zip(group.sides, streams, strict=True)
    )
    return f"{', '.join(rows)}, level smallint{sets}"


def unit_schema(group: Group, streams: tuple[Stream, ...]) -> str:
    """Write the schema of a unit's pairs, with the times of rows where some query needs them."""
    times = "".join(f", {time_name(side)} bigint" for side in group.sides) if carries_times(group) else ""
    return pair_schema(group, streams) + times


def carries_times(group: Group) -> bool:
    """Return whether some query of a group needs the times of pairs: for its order, or for panes."""
    return any(member.query.ordered or member.query.aggregation for member in group.members)


def _struct(stream: Stream, names: tuple[str, ...]) -> str:
    """Write some columns of a stream as a struct type."""
    fields = (column for column in stream.columns if column.name in names)
    inside = ", ".join(f"{always_quoted(column.name)}: {column.type}" for column in fields)
    return f"struct<{inside or 'nothing: tinyint'}>"
