"""Which stream a column belongs to.

A `Scope` knows the streams of a query by the names it calls them.  `Scope.resolve` rewrites every column of a tree to
``l.Column`` or ``r.Column`` (of more than two streams ``i0.Column i1.Column …``) in its declared spelling; after it
nothing depends on aliases, on the order of FROM, or on upper and lower case.

The variable of a lambda hides a column of its name.  Where it would hide one that the lambda means, it is renamed::

    exists(A.tags, n -> n > A.n)        EXISTS(l.tags, n_1 -> n_1 > l.n)

In:  trees as they were read.
Out: trees over the columns of sides that still know where they stand in the text.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from penstock.errors import SqlError, did_you_mean
from penstock.sql import query
from penstock.sql.query import LEAST_INPUTS, SIDES, Side, Stream, side_number, sides_for
from penstock.sql.spark_types import TypeTextError, parse_type
from penstock.sql.text.keywords import CONSTANTS
from penstock.sql.text.select import From, Table, Using
from penstock.sql.text.tokens import Source, Span
from penstock.sql.text.tree import (
    COMPARISON,
    ColumnRef,
    Constant,
    Form,
    Name,
    Tree,
    binary,
    cast_type,
    is_aggregate,
    nodes,
    quoted,
    run,
)
from penstock.sql.zones import ZONE, is_utc

Variables = Mapping[str, str]
"""The lambda variables in scope, in lower case, and what each is called in Spark SQL."""

_OF_GROUPS = re.compile("[ga][0-9]+", re.IGNORECASE)
"""What group keys and measures are called in an answer: no variable of a lambda may hide them."""


@dataclass(frozen=True, slots=True)
class Input:
    """One stream of a query: what the query calls it, and which side of a result it is."""

    alias: str
    stream: Stream
    side: Side

    @property
    def number(self) -> int:
        """Give the number of its side."""
        return side_number(self.side)

    def column(self, column: query.Column, span: Span = (0, 0)) -> ColumnRef:
        """Write one of its columns as ``l.Name``."""
        return ColumnRef(self.side, column.name, span)


@dataclass(frozen=True, slots=True)
class Shared:
    """A column of a USING, in lower case: that of one side is equal to the one of that name before it."""

    name: str
    side: Side


def listed(inputs: Iterable[Input], using: Sequence[Shared]) -> list[tuple[Input, query.Column]]:
    """List the columns of ``*``: join by join, those of its USING first and once, as in Spark."""
    columns: list[tuple[Input, query.Column]] = []
    for where in inputs:
        shared = [each.name for each in using if each.side == where.side]
        first = [each for name in shared for each in columns if each[1].name.lower() == name]
        others = [each for each in columns if each[1].name.lower() not in shared]
        own = [(where, each) for each in where.stream.columns if each.name.lower() not in shared]
        columns = [*first, *others, *own]
    return columns


@dataclass(frozen=True, slots=True)
class Scope:
    """The streams of one query that an expression sees, in the order of FROM."""

    source: Source
    span: Span
    inputs: tuple[Input, ...]
    using: tuple[Shared, ...] = ()
    """The columns of each ``USING (…)``, in the order of the text."""
    later: tuple[Input, ...] = ()
    """Streams of the query that the expression does not see, because they are joined after it."""
    zone: str = "UTC"
    """The time zone of the Spark session."""
    aliases: Mapping[str, Tree] = field(default_factory=dict)
    """What the query itself gives a name to, by that name in lower case, where no column is called so: resolved."""
    preferred: Mapping[str, Tree] = field(default_factory=dict)
    """The same for names that go before those of columns, outside aggregates."""

    def side(self, side: Side) -> Input:
        """Find the stream on one side of a result."""
        return next(each for each in self.inputs if each.side == side)

    def upto(self, count: int) -> Scope:
        """Give what the condition of an ON sees: the streams up to its own."""
        return replace(self, inputs=self.inputs[:count], later=self.inputs[count:])

    def error(self, message: str, at: Tree | Span) -> SqlError:
        """Make an error that points at a tree."""
        return self.source.error(message, at if isinstance(at, tuple) else at.span)

    def type_of(self, column: ColumnRef) -> str:
        """Look up the declared type of a resolved column."""
        declared = self.side(column.side).stream.column(column.name)
        return declared.type if declared else ""

    def resolve(self, tree: Tree) -> Tree:
        """Rewrite every column of a tree."""
        return run(self.resolving(tree, {}))

    def resolving(self, tree: Tree, variables: Variables) -> Generator[Any, Any, Tree]:
        """Rewrite every column of a tree inside lambdas with these variables; for `penstock.sql.text.tree.run`."""
        if isinstance(tree, Name):
            return self._named(tree, variables)
        if not isinstance(tree, Form):
            return tree
        if tree.head == "STAR":
            raise self.error(
                "* stands for columns: it must be an item of the SELECT list, or an argument", tree
            )
        if tree.head == "->":
            resolved: Tree = yield self._lambda(tree, variables)
            return resolved
        if self.preferred and is_aggregate(tree):
            inner: Tree = yield replace(self, preferred={}).resolving(tree, variables)
            return inner
        parts: list[str | Tree] = []
        for part in tree.parts:
            if isinstance(part, Form) and part.head == "STAR" and tree.head.endswith("("):
                parts += self._listed(part)
            else:
                parts.append(part if isinstance(part, str) else (yield self.resolving(part, variables)))
        needs = tree.needs if len(parts) == len(tree.parts) else ()
        return Form(tree.head, tuple(parts), tree.rank, needs, tree.span)

    def _lambda(self, tree: Form, outer: Variables) -> Generator[Any, Any, Tree]:
        """Resolve the body of a lambda, which sees the variables around it and its own."""
        *variables, body = tree.trees
        names = [each.parts[0] for each in variables if isinstance(each, Name)]
        renamed = [self._variable(name, {*outer, *_variables(tree)}) for name in names]
        inside = {**outer, **dict(zip(map(str.lower, names), renamed, strict=True))}
        resolved = yield self.resolving(body, inside)
        return tree.with_trees((*(Constant(quoted(name), "variable") for name in renamed), resolved))

    def _variable(self, name: str, variables: set[str]) -> str:
        """Name a variable so that it hides no column, and no other variable."""
        sides = {*SIDES, *(each.side for each in self.inputs)}
        columns = {*sides, *(each.name.lower() for one in self.inputs for each in one.stream.columns)}
        if name.lower() not in columns and not _OF_GROUPS.fullmatch(name):
            return name
        choices = (f"{name}_{number}" for number in count(1))
        return next(each for each in choices if each.lower() not in columns | variables)

    def _named(self, name: Name, variables: Variables) -> Tree:
        """Say what a name is: a variable, a column and fields of it, or a function that needs no brackets."""
        first = name.parts[0]
        if first.lower() in variables:
            return self._fields(
                Constant(quoted(variables[first.lower()]), "variable", name.span), name.parts[1:]
            )
        alias = self._alias(name)
        if alias:
            return self._fields(alias, name.parts[1:])
        if len(name.parts) == 1 and first.upper() in CONSTANTS and not self.owners(first):
            return Constant(first.upper(), "call", name.span)
        return self._column(name)

    def _alias(self, name: Name) -> Tree | None:
        """Give what the query itself calls so, if it means that and no column."""
        first = name.parts[0].lower()
        if len(name.parts) == 1 and first in self.preferred:
            return self.preferred[first]
        taken = self.owners(first) or first in {each.alias.lower() for each in self.inputs}
        return None if taken else self.aliases.get(first)

    def _column(self, name: Name) -> Tree:
        """Find the column, and put the fields of a struct behind it again."""
        first, *others = name.parts
        aliases = [each.alias.lower() for each in self.inputs]
        if others and (first.lower() in aliases or not self.owners(first)):
            where = self.input_called(first, name.span)
            column, fields = where.stream.column(others[0]), others[1:]
        else:
            where = self._only_owner(first, name.span)
            column, fields = where.stream.column(first), others
        if column is None:
            raise self._no_column(where, others[0], name)
        return self._fields(where.column(column, name.span), fields)

    @staticmethod
    def _fields(tree: Tree, fields: list[str] | tuple[str, ...]) -> Tree:
        for each in fields:
            tree = Form(".", (tree, f".{quoted(each)}"), span=tree.span)
        return tree

    def input_called(self, name: str, span: Span) -> Input:
        """Find a stream by what the query calls it."""
        named = next((each for each in self.inputs if each.alias.lower() == name.lower()), None)
        if named:
            return named
        renamed = next((each for each in self.inputs if each.stream.name.lower() == name.lower()), None)
        if renamed:
            raise self.error(f"{name} is called {renamed.alias} in this query: write {renamed.alias}", span)
        if name.lower() in {each.alias.lower() for each in self.later}:
            raise self.error(
                f"{name} is joined only after this ON: put the condition into the ON of {name}, or into WHERE",
                span,
            )
        hint = did_you_mean(name, [each.alias for each in self.inputs])
        raise self.error(f"unknown stream or alias {name}: {hint}", span)

    def star(self, tree: Form) -> Iterator[tuple[Input, query.Column]]:
        """List the columns of ``*`` or ``A.*``; those of USING come first and once, as in Spark."""
        for qualifier in tree.trees:
            yield from self._star_of(qualifier)
            return
        for each in self.inputs:
            self._refuse_untyped(each, tree.span)
        yield from listed(self.inputs, self.using)

    def _refuse_untyped(self, where: Input, span: Span, name: str = "") -> None:
        """Refuse to read a computed column of another query's results, or all of them, if nobody has said its type."""
        untyped = where.stream.results.untyped if where.stream.results else ()
        for each in untyped:
            if not name or name.lower() == each.lower():
                raise self.error(
                    f"column {each} of query {where.stream.name} is computed, and its type is not said: write "
                    f"CAST(... AS <type>) AS {quoted(each)} there",
                    span,
                )

    def _star_of(self, qualifier: Tree) -> Iterator[tuple[Input, query.Column]]:
        """List the columns of one stream."""
        if not isinstance(qualifier, Name) or len(qualifier.parts) > 1:
            raise self.error("the fields of a struct cannot be listed by *: name them", qualifier)
        where = self.input_called(qualifier.parts[0], qualifier.span)
        self._refuse_untyped(where, qualifier.span)
        yield from ((where, each) for each in where.stream.columns)

    def _listed(self, tree: Form) -> list[str | Tree]:
        """Write the columns that a star among the arguments of a function stands for."""
        columns: list[str | Tree] = []
        for where, column in self.star(tree):
            columns += [", ", where.column(column, tree.span)]
        return columns[1:]

    def owners(self, name: str) -> list[Input]:
        """List the streams that have a column of this name; one that USING has made equal to another is that one."""
        hidden = {each.side for each in self.using if each.name == name.lower()}
        return [each for each in self.inputs if each.stream.column(name) and each.side not in hidden]

    def is_ambiguous(self, name: str) -> bool:
        """Say whether a column of this name may be that of several streams."""
        return len(self.owners(name)) > 1

    def _only_owner(self, name: str, span: Span) -> Input:
        """Find the one stream that has this column."""
        owners = self.owners(name)
        for each in () if owners else self.inputs:
            self._refuse_untyped(each, span, name)
        if not owners:
            columns = dict.fromkeys(each.name for one in self.inputs for each in one.stream.columns)
            raise self.error(f"unknown column {name}: {did_you_mean(name, columns)}", span)
        if self.is_ambiguous(name):
            where = "both streams" if len(self.inputs) == len(SIDES) else _and(each.alias for each in owners)
            choices = _and((f"{each.alias}.{name}" for each in owners), "or")
            raise self.error(f"column {name} is in {where}: write {choices}", span)
        return owners[0]

    def _no_column(self, where: Input, column: str, name: Name) -> SqlError:
        """Say that a stream does not have the column that the second part of a name names."""
        inside = [each for each in self.source.tokens if name.span[0] <= each.start < name.span[1]]
        second = inside[min(2, len(inside) - 1)]
        self._refuse_untyped(where, (second.start, second.end), column)
        hint = did_you_mean(column, [each.name for each in where.stream.columns])
        kind = "query" if where.stream.results else "stream"
        message = f"{kind} {where.stream.name} has no column {column}: {hint}"
        return self.error(message, (second.start, second.end))


def _and(names: Iterable[str], word: str = "and") -> str:
    """Write a list as one says it: ``A, B and C``."""
    *others, last = names
    return f"{', '.join(others)} {word} {last}" if others else last


def _variables(tree: Tree) -> Iterator[str]:
    """List the variables of all lambdas in a tree, in lower case."""
    for node in nodes(tree):
        if isinstance(node, Form) and node.head == "->":
            yield from (each.parts[0].lower() for each in node.trees[:-1] if isinstance(each, Name))


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
    if about := stream.punctuation_of:
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


def exact_type(scope: Scope, side: Tree) -> str:
    """Give the type of a column, of its fields, or of a cast; empty for anything else."""
    fields: list[str] = []
    while isinstance(side, Form) and side.head == ".":
        fields.append(str(side.parts[-1])[1:])
        (side,) = side.trees
    kind = scope.type_of(side) if isinstance(side, ColumnRef) else cast_type(side)
    try:
        exact = parse_type(kind)
        for each in reversed(fields):
            exact = exact.field(each)
    except TypeTextError:
        return ""
    return "string" if exact.name in {"char", "varchar"} else str(exact)
