"""The shape of a group's pairs: which columns of either side they carry, and their schema.

In:  a group and its two streams.  Out: column names and Spark DDL; no Spark is needed to say it.
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
    """What is computed of the pairs for one query: whether a pair is one of its results, and what that result is.

    `outputs` are (name, expression) each, over ``l.column`` and ``r.column``; None where only the pair is wanted.
    """

    number: int
    levels: tuple[int, int]
    selective: bool
    residual: tuple[str, ...]
    outputs: tuple[tuple[str, str], ...] | None
    others: tuple[tuple[int, tuple[int, int]], ...] = ()
    """Further queries that want the same of their pairs, by number and slices: it is computed once for all."""


@dataclass(frozen=True, slots=True)
class PairExpressions:
    """What is computed of a unit's pairs, and what they are made of.

    What is `fleeting` must be computed by a plan of the unit's own: clocks and seeds stand still in one used again.
    """

    group: Group
    streams: tuple[Stream, ...]
    computed: tuple[Computed, ...]
    fleeting: bool = False


def computed_for(group: Group, number: int, member: Member, *, in_table: bool) -> Computed:
    """Say what is computed for a query: only whether a pair is its result, where that is read from the table."""
    outputs = tuple((each.name, each.expression) for each in member.query.outputs)
    is_pair = in_table or not outputs  # COUNT(*) alone takes nothing of a pair
    return Computed(
        number, member.levels, group.selective, member.query.residual, None if is_pair else outputs
    )


def computed_together(group: Group, numbers: Sequence[int]) -> Computed:
    """Say what is computed, once, for queries that share a pane set."""
    first, *others = numbers
    computed = computed_for(group, first, group.members[first], in_table=False)
    return replace(computed, others=tuple((each, group.members[each].levels) for each in others))


def pair_columns(group: Group, side: Side, *, gathered: bool = False) -> tuple[str, ...]:
    """List the columns of one side that some query's output or residual reads.

    What is `gathered` by a probe that is not followed by Spark SQL is less: aggregates take their values themselves.
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
    """Write the schema of the pairs that a group keeps, with the sets of queries that read them or without."""
    sets = "".join(f", {name} bigint" for name in set_names(len(group.members))) if with_sets else ""
    rows = (
        f"{side} {_struct(stream, pair_columns(group, side))}"
        for side, stream in zip(group.sides, streams, strict=True)
    )
    return f"{', '.join(rows)}, level smallint{sets}"


def unit_schema(group: Group, streams: tuple[Stream, ...]) -> str:
    """Write the schema of the pairs that a unit hands on, with the rows' times where some query orders by them."""
    times = "".join(f", {time_name(side)} bigint" for side in group.sides) if carries_times(group) else ""
    return pair_schema(group, streams) + times


def carries_times(group: Group) -> bool:
    """Say whether some query of a group has to know its pairs' times: for order, or for panes."""
    return any(member.query.ordered or member.query.aggregation for member in group.members)


def _struct(stream: Stream, names: tuple[str, ...]) -> str:
    """Write some columns of a stream as a struct type."""
    fields = (column for column in stream.columns if column.name in names)
    inside = ", ".join(f"{always_quoted(column.name)}: {column.type}" for column in fields)
    return f"struct<{inside or 'nothing: tinyint'}>"
