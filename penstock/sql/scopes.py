"""From FROM to a `Scope`: which streams a query joins, which side each is, and its conditions, resolved.

Sides go by the names of streams, not by the order of the text, so that queries that mean the same are the same::

    FROM Bid B, Auction A                 l = A    r = B
    FROM Bid B, Auction A, Bid C          i0 = A   i1 = B   i2 = C      a stream that comes twice keeps its order

In:  a `From`, and the streams there are.
Out: the scope, and the conditions of USING, ON and WHERE as trees over sides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import did_you_mean
from penstock.sql.graph import LEAST_INPUTS, sides_for
from penstock.sql.bind.scope import Input, Scope, Shared
from penstock.sql.bind.promises import carried
from penstock.sql.text.tree import COMPARISON, Name, binary
from penstock.sql.zones import ZONE, is_utc

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.sql.from_clause import From, Table, Using
    from penstock.sql.query import Stream
    from penstock.sql.text.tokens import Source, Span
    from penstock.sql.text.tree import Tree


def make_scope(source: Source, joined: From, streams: Mapping[str, Stream], span: Span, zone: str) -> Scope:
    """Look up the streams and decide which side each is: they are in the order of their names."""
    found = [_find_stream(source, each, streams) for each in joined.tables]
    _refuse_one_alias(source, joined.tables)
    places = sorted(range(len(found)), key=lambda place: found[place].name.lower())
    sides = dict(zip(places, sides_for(len(found)), strict=True))
    inputs = tuple(
        Input(table.alias, stream, sides[place])
        for place, (table, stream) in enumerate(zip(joined.tables, found, strict=True))
    )
    using = tuple(Shared(each.column.lower(), sides[each.place]) for each in joined.using)
    return Scope(source, span, inputs, using, zone=zone)


def _refuse_one_alias(source: Source, tables: Sequence[Table]) -> None:
    """Refuse two streams that the query calls the same."""
    seen: dict[str, Table] = {}
    for table in tables:
        other = seen.setdefault(table.alias.lower(), table)
        if other is not table:
            which = "both" if len(tables) < LEAST_INPUTS else "two"
            raise source.error(
                f"{which} streams are called {table.alias}: give each an alias, FROM {other.name} x, {table.name} y",
                table.span,
            )


def _find_stream(source: Source, table: Table, streams: Mapping[str, Stream]) -> Stream:
    """Find a declared stream that has rows, ignoring case."""
    folded = {each.name.lower(): each for each in streams.values()}
    stream = folded.get(table.name.lower())
    if not stream:
        readable = [each.name for each in streams.values() if not (each.results and each.results.refusal)]
        hint = did_you_mean(table.name, readable)
        raise source.error(f"stream {table.name} is not declared: {hint}", table.span)
    if stream.results and stream.results.refusal:
        raise source.error(stream.results.refusal, table.span)
    if about := carried(stream):
        raise source.error(
            f"stream {stream.name} carries the promises of {about} and has no rows to join: join {about}",
            table.span,
        )
    return stream


def resolved_conditions(scope: Scope, joined: From, where: Tree | None) -> list[Tree]:
    """Give all conditions, resolved: those of USING, of ON and of WHERE."""
    conditions = [_using(scope, each) for each in joined.using]
    conditions += [scope.upto(each.seen).resolve(each.tree) for each in joined.conditions]
    return [*conditions, *([] if where is None else [scope.resolve(where)])]


def _using(scope: Scope, using: Using) -> Tree:
    """Write ``USING (k)`` as ``A.k = B.k``: the column of its stream, and the one before it."""
    before, place = scope.upto(using.place), using.place
    _refuse_ambiguous(scope, before, using)
    first = (scope.inputs[0].alias, using.column) if place == 1 else (using.column,)
    second = (scope.inputs[place].alias, using.column)
    return binary(
        "=", COMPARISON, before.resolve(Name(first, using.span)), scope.resolve(Name(second, using.span))
    )


def _refuse_ambiguous(scope: Scope, before: Scope, using: Using) -> None:
    """Refuse a column of USING that several streams before it have; Spark takes the first, without a word."""
    if before.is_ambiguous(using.column):
        owners = [f"{each.alias}.{using.column}" for each in before.owners(using.column)]
        raise scope.error(
            f"{using.column} may be {' or '.join(owners)}, and USING takes one: write ON {owners[0]} = "
            f"{scope.inputs[using.place].alias}.{using.column}",
            using.span,
        )


def refuse_two_clocks(scope: Scope, joined: From) -> None:
    """Refuse to compare a TIMESTAMP with a wall-clock time unless the session's zone is UTC."""
    first = scope.inputs[0].stream
    kinds = [each.stream.time_type == "timestamp" for each in scope.inputs]
    place = next((place for place, each in enumerate(kinds) if each != kinds[0]), None)
    if place is not None and not is_utc(scope.zone):
        second = scope.inputs[place].stream
        raise scope.error(
            f"the time of {first.name} is {first.time_type} and that of {second.name} is {second.time_type}, which the "
            f"zone of this session, {scope.zone}, would have to translate: SET {ZONE} = 'UTC', or give all streams "
            "times of one type",
            joined.tables[place].span,
        )
