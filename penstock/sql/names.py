"""Which stream a column belongs to.

A `Scope` knows the two streams of a query by the names it calls them.  `Scope.resolve` rewrites every column
of a tree to ``l.Column`` or ``r.Column`` in its declared spelling; after it nothing depends on aliases, on
the order of FROM, or on upper and lower case.

In:  trees as sqlglot reads them.
Out: trees over ``l.`` and ``r.`` columns that still know their place in the text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from penstock.errors import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.errors import SqlError
    from penstock.sql.query import Column, Side, Stream
    from penstock.sql.tokens import Source, Span

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED_WORDS = """
    all and anti any as asc at authorization between both by case cast check collate column
    constraint create cross current_date current_time current_timestamp current_user desc distinct
    div else end escape except exists false fetch filter for foreign from full grant group having
    ilike in inner intersect interval into is join lateral leading left like limit minus natural not
    null on only or order outer overlaps primary references right rlike select semi session_user set
    some table then to trailing true union unique user using values when where with within
"""
_RESERVED = frozenset(_RESERVED_WORDS.split())
"""Names written in backquotes: where Spark would read a column anyway, quotes do no harm."""

_UNIT_FUNCTIONS = {"DATEADD", "DATE_ADD", "DATEDIFF", "DATE_DIFF", "TIMESTAMPADD", "TIMESTAMPDIFF"}
_UNITS = {
    "MICROSECOND", "MILLISECOND", "SECOND", "MINUTE", "HOUR", "DAY", "DAYOFYEAR",
    "WEEK", "MONTH", "QUARTER", "YEAR",
}  # fmt: skip


def identifier(name: str) -> exp.Identifier:
    """Write a name as it must stand in Spark SQL, in backquotes only where needed."""
    return exp.to_identifier(name, quoted=not _PLAIN.fullmatch(name) or name.lower() in _RESERVED)


@dataclass(frozen=True, slots=True)
class Input:
    """One stream of a query: what the query calls it, and which side of the pair it is."""

    alias: str
    stream: Stream
    side: Side

    def column(self, column: Column) -> exp.Column:
        """Write one of its columns as ``l.Name`` or ``r.Name``."""
        return exp.Column(this=identifier(column.name), table=exp.to_identifier(self.side))


@dataclass(frozen=True, slots=True)
class Scope:
    """The two streams of one query, in the order of FROM.

    `using` are the columns, in lower case, of a ``USING (…)``: they mean the same in both streams.
    """

    source: Source
    span: Span
    inputs: tuple[Input, Input]
    using: tuple[str, ...] = ()

    def side(self, side: Side) -> Input:
        """Find the stream on one side of the pair."""
        return next(each for each in self.inputs if each.side == side)

    def error(self, message: str, node: exp.Expr) -> SqlError:
        """Make an error that points at a tree."""
        return self.source.error(message, self.source.span_of(node, self.span))

    def resolve(self, tree: exp.Expr) -> exp.Expr:
        """Rewrite every column of a tree, in a copy."""
        holder = exp.Alias(this=tree.copy())
        for call in holder.find_all(exp.Anonymous):
            _keep_unit(call)
        for column in list(holder.find_all(exp.Column)):
            column.replace(self._resolve_column(column))
        found: exp.Expr = holder.this
        return found.pop()

    def input_called(self, name: exp.Expr) -> Input:
        """Find a stream by what the query calls it."""
        found = next((each for each in self.inputs if each.alias.lower() == name.name.lower()), None)
        if found:
            return found
        renamed = next((each for each in self.inputs if each.stream.name.lower() == name.name.lower()), None)
        if renamed:
            raise self.error(
                f"{name.name} is called {renamed.alias} in this query: write {renamed.alias}", name
            )
        hint = did_you_mean(name.name, [each.alias for each in self.inputs])
        raise self.error(f"unknown stream or alias {name.name}: {hint}", name)

    def _resolve_column(self, column: exp.Column) -> exp.Expr:
        """Find the column, and put the fields of a struct behind it again."""
        parts = column.parts
        aliases = [each.alias.lower() for each in self.inputs]
        if len(parts) > 1 and (parts[0].name.lower() in aliases or not self._owners(parts[0].name)):
            where, fields = self.input_called(parts[0]), parts[2:]
            found = self._column_of(where, parts[1])
        else:
            where, fields = self._only_owner(parts[0]), parts[1:]
            found = self._column_of(where, parts[0])
        tree: exp.Expr = where.column(found)
        _mark(tree, parts)
        for each in fields:
            tree = exp.Dot(this=tree, expression=identifier(each.name))
        return tree

    def _owners(self, name: str) -> list[Input]:
        """List the streams that have a column of this name."""
        return [each for each in self.inputs if each.stream.column(name)]

    def _only_owner(self, name: exp.Expr) -> Input:
        """Find the one stream that has this column."""
        owners = self._owners(name.name)
        if not owners:
            known = dict.fromkeys(each.name for one in self.inputs for each in one.stream.columns)
            raise self.error(f"unknown column {name.name}: {did_you_mean(name.name, known)}", name)
        if len(owners) > 1 and name.name.lower() not in self.using:
            first, second = (f"{each.alias}.{name.name}" for each in owners)
            message = f"column {name.name} is in both streams: write {first} or {second}"
            raise self.error(message, name)
        return owners[0]

    def _column_of(self, where: Input, name: exp.Expr) -> Column:
        """Find a column of one stream."""
        found = where.stream.column(name.name)
        if not found:
            hint = did_you_mean(name.name, [each.name for each in where.stream.columns])
            raise self.error(f"stream {where.stream.name} has no column {name.name}: {hint}", name)
        return found


def _mark(tree: exp.Expr, parts: Sequence[exp.Expr]) -> None:
    """Let a rewritten column remember the whole stretch it was read from."""
    marks = [part.meta for part in parts if "start" in part.meta]
    if marks:
        tree.this.meta.update(start=marks[0]["start"], end=marks[-1]["end"])


def _keep_unit(call: exp.Anonymous) -> None:
    """Let DAY in ``DATEDIFF(DAY, a, b)`` be a unit and not a column."""
    arguments = call.expressions
    if call.name.upper() in _UNIT_FUNCTIONS and len(arguments) == len(("unit", "from", "to")):
        unit = arguments[0]
        if isinstance(unit, exp.Column) and not unit.table and unit.name.upper() in _UNITS:
            unit.replace(exp.var(unit.name.upper()))
