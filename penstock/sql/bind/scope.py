"""Resolution of names: the stream that each column belongs to.

A `Scope` knows the streams of a query by their aliases.  `Scope.resolve` rewrites every column of a tree to
``l.Column`` or ``r.Column`` (of more than two streams ``i0.Column i1.Column …``) in its declared spelling.  A resolved
tree does not depend on aliases, on the order of FROM, or on upper and lower case.

The variable of a lambda hides a column of its name.  A variable that would hide a column of the lambda is renamed::

    exists(A.tags, n -> n > A.n)        EXISTS(l.tags, n_1 -> n_1 > l.n)

In:  trees as they were read.
Out: trees over the columns of sides, with their positions in the text.
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
from penstock.sql.spark_types import known_type
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
"""The lambda variables in scope, in lower case, and the name of each in Spark SQL."""

_OF_GROUPS = re.compile("[ga][0-9]+", re.IGNORECASE)
"""Names of group keys and measures in an answer, which no variable of a lambda may hide."""


@dataclass(frozen=True, slots=True)
class Input:
    """One stream of a query: its alias, and its side of a result."""

    alias: str
    stream: Stream
    side: Side

    @property
    def number(self) -> int:
        return side_number(self.side)

    def column(self, column: query.Column, span: Span = (0, 0)) -> ColumnRef:
        return ColumnRef(self.side, column.name, span)


@dataclass(frozen=True, slots=True)
class Shared:
    """A column of USING, in lower case; the column of `side` is equal to that of an earlier stream."""

    name: str
    side: Side


def listed(inputs: Iterable[Input], using: Sequence[Shared]) -> list[tuple[Input, query.Column]]:
    """List the columns of ``*``: join by join, those of its USING first and once, as in Spark."""
    columns: list[tuple[Input, query.Column]] = []
    for where in inputs:
        shared = [column.name for column in using if column.side == where.side]
        first = [column for name in shared for column in columns if column[1].name.lower() == name]
        others = [column for column in columns if column[1].name.lower() not in shared]
        own = [(where, column) for column in where.stream.columns if column.name.lower() not in shared]
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
    """Streams of the query that are joined after the expression, which does not see them."""
    zone: str = "UTC"
    """The time zone of the Spark session."""
    aliases: Mapping[str, Tree] = field(default_factory=dict)
    """Resolved expressions that the query itself names, by their names in lower case; columns hide them."""
    preferred: Mapping[str, Tree] = field(default_factory=dict)
    """The same for names that hide columns, outside aggregates."""

    def side(self, side: Side) -> Input:
        return next(input_ for input_ in self.inputs if input_.side == side)

    @property
    def in_order(self) -> list[Input]:
        """The streams in the order of their sides."""
        return sorted(self.inputs, key=lambda input_: input_.number)

    def upto(self, count: int) -> Scope:
        """Return the scope of an ON: the streams up to its own."""
        return replace(self, inputs=self.inputs[:count], later=self.inputs[count:])

    def error(self, message: str, at: Tree | Span) -> SqlError:
        return self.source.error(message, at if isinstance(at, tuple) else at.span)

    def type_of(self, column: ColumnRef) -> str:
        return self.side(column.side).stream.type_of(column.name)

    def resolve(self, tree: Tree) -> Tree:
        return run(self.resolving(tree, {}))

    def resolving(self, tree: Tree, variables: Variables) -> Generator[Any, Any, Tree]:
        """Rewrite every column of a tree inside lambdas with these variables; for `penstock.sql.text.tree.run`."""
        if isinstance(tree, Name):
            return self._named(tree, variables)
        if not isinstance(tree, Form):
            return tree
        if tree.head == "STAR":
            raise self.error(
                "* stands for columns: write it as an item of the SELECT list, or as an argument", tree
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
        """Resolve the body of a lambda, which sees outer variables and its own."""
        *variables, body = tree.trees
        names = [variable.parts[0] for variable in variables if isinstance(variable, Name)]
        renamed = [self._variable(name, {*outer, *_variables(tree)}) for name in names]
        inside = {**outer, **dict(zip(map(str.lower, names), renamed, strict=True))}
        resolved = yield self.resolving(body, inside)
        return tree.with_trees((*(Constant(quoted(name), "variable") for name in renamed), resolved))

    def _variable(self, name: str, variables: set[str]) -> str:
        """Choose a name for a variable that hides no column and no other variable."""
        sides = {*SIDES, *(input_.side for input_ in self.inputs)}
        columns = {*sides, *(column.name.lower() for where in self.inputs for column in where.stream.columns)}
        if name.lower() not in columns and not _OF_GROUPS.fullmatch(name):
            return name
        choices = (f"{name}_{number}" for number in count(1))
        return next(choice for choice in choices if choice.lower() not in columns | variables)

    def _named(self, name: Name, variables: Variables) -> Tree:
        """Resolve a name: a variable, a column with fields, or a function without brackets."""
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
        """Return the expression that the query itself gives this name, unless a column has it."""
        first = name.parts[0].lower()
        if len(name.parts) == 1 and first in self.preferred:
            return self.preferred[first]
        taken = self.owners(first) or first in {input_.alias.lower() for input_ in self.inputs}
        return None if taken else self.aliases.get(first)

    def _column(self, name: Name) -> Tree:
        """Find the column of a name, and add the fields of a struct."""
        first, *others = name.parts
        aliases = [input_.alias.lower() for input_ in self.inputs]
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
        for name in fields:
            tree = Form(".", (tree, f".{quoted(name)}"), span=tree.span)
        return tree

    def input_called(self, name: str, span: Span) -> Input:
        """Find a stream by its name in the query."""
        named = next((input_ for input_ in self.inputs if input_.alias.lower() == name.lower()), None)
        if named:
            return named
        renamed = next((input_ for input_ in self.inputs if input_.stream.name.lower() == name.lower()), None)
        if renamed:
            raise self.error(f"{name} is called {renamed.alias} in this query: write {renamed.alias}", span)
        if name.lower() in {input_.alias.lower() for input_ in self.later}:
            raise self.error(
                f"{name} is joined only after this ON: put the condition into the ON of {name}, or into WHERE",
                span,
            )
        hint = did_you_mean(name, [input_.alias for input_ in self.inputs])
        raise self.error(f"unknown stream or alias {name}: {hint}", span)

    def star(self, tree: Form) -> list[tuple[Input, query.Column]]:
        """List the columns of ``*`` or ``A.*``; those of USING come first and once, as in Spark."""
        if not tree.trees:
            for input_ in self.inputs:
                self._refuse_untyped(input_, tree.span)
            return listed(self.inputs, self.using)
        (qualifier,) = tree.trees
        if not isinstance(qualifier, Name) or len(qualifier.parts) > 1:
            raise self.error("the fields of a struct cannot be listed by *: name them", qualifier)
        where = self.input_called(qualifier.parts[0], qualifier.span)
        self._refuse_untyped(where, qualifier.span)
        return [(where, column) for column in where.stream.columns]

    def _refuse_untyped(self, where: Input, span: Span, name: str = "") -> None:
        """Refuse computed columns without a CAST of another query's results; without `name`, check all."""
        untyped = where.stream.results.untyped if where.stream.results else ()
        for column in untyped:
            if not name or name.lower() == column.lower():
                raise self.error(
                    f"column {column} of query {where.stream.name} is computed, and its type is unknown: write "
                    f"CAST(... AS <type>) AS {quoted(column)} there",
                    span,
                )

    def _listed(self, tree: Form) -> list[str | Tree]:
        """List the columns for a star among the arguments of a function."""
        columns: list[str | Tree] = []
        for where, column in self.star(tree):
            columns += [", ", where.column(column, tree.span)]
        return columns[1:]

    def owners(self, name: str) -> list[Input]:
        """List the streams that have a column of this name; a column joined by USING counts once."""
        hidden = {shared.side for shared in self.using if shared.name == name.lower()}
        return [input_ for input_ in self.inputs if input_.stream.column(name) and input_.side not in hidden]

    def is_ambiguous(self, name: str) -> bool:
        return len(self.owners(name)) > 1

    def _only_owner(self, name: str, span: Span) -> Input:
        """Find the one stream that has this column."""
        owners = self.owners(name)
        for input_ in () if owners else self.inputs:
            self._refuse_untyped(input_, span, name)
        if not owners:
            columns = dict.fromkeys(column.name for where in self.inputs for column in where.stream.columns)
            raise self.error(f"unknown column {name}: {did_you_mean(name, columns)}", span)
        if self.is_ambiguous(name):
            streams = written_list(input_.alias for input_ in owners)
            where = "both streams" if len(self.inputs) == len(SIDES) else streams
            choices = written_list((f"{input_.alias}.{name}" for input_ in owners), "or")
            raise self.error(f"column {name} is in {where}: write {choices}", span)
        return owners[0]

    def _no_column(self, where: Input, column: str, name: Name) -> SqlError:
        """Build the error about a stream that lacks the column in the second part of a name."""
        inside = [token for token in self.source.tokens if name.span[0] <= token.start < name.span[1]]
        second = inside[min(2, len(inside) - 1)]
        self._refuse_untyped(where, (second.start, second.end), column)
        hint = did_you_mean(column, [other.name for other in where.stream.columns])
        kind = "query" if where.stream.results else "stream"
        message = f"{kind} {where.stream.name} has no column {column}: {hint}"
        return self.error(message, (second.start, second.end))


def written_list(names: Iterable[str], word: str = "and") -> str:
    """Write names as a sentence does.

    >>> written_list(["A", "B", "C"]), written_list(["A"], "or")
    ('A, B and C', 'A')
    """
    *others, last = names
    return f"{', '.join(others)} {word} {last}" if others else last


def _variables(tree: Tree) -> Iterator[str]:
    """List the variables of all lambdas in a tree, in lower case."""
    for node in nodes(tree):
        if isinstance(node, Form) and node.head == "->":
            yield from (part.parts[0].lower() for part in node.trees[:-1] if isinstance(part, Name))


def make_scope(source: Source, joined: From, streams: Mapping[str, Stream], span: Span, zone: str) -> Scope:
    """Look up the streams and give each its side, in the order of their names."""
    found = [_find_stream(source, table, streams) for table in joined.tables]
    _refuse_one_alias(source, joined.tables)
    positions = sorted(range(len(found)), key=lambda position: found[position].name.lower())
    sides = dict(zip(positions, sides_for(len(found)), strict=True))
    inputs = tuple(
        Input(table.alias, stream, sides[position])
        for position, (table, stream) in enumerate(zip(joined.tables, found, strict=True))
    )
    using = tuple(Shared(shared.column.lower(), sides[shared.position]) for shared in joined.using)
    return Scope(source, span, inputs, using, zone=zone)


def _refuse_one_alias(source: Source, tables: Sequence[Table]) -> None:
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
    folded = {stream.name.lower(): stream for stream in streams.values()}
    stream = folded.get(table.name.lower())
    if not stream:
        readable = [known.name for known in streams.values() if not (known.results and known.results.refusal)]
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
    """Return the resolved conditions of USING, of ON and of WHERE."""
    conditions = [_using(scope, shared) for shared in joined.using]
    conditions += [scope.upto(condition.seen).resolve(condition.tree) for condition in joined.conditions]
    return [*conditions, *([] if where is None else [scope.resolve(where)])]


def _using(scope: Scope, using: Using) -> Tree:
    """Write ``USING (k)`` as ``A.k = B.k``."""
    before, alias = scope.upto(using.position), scope.inputs[using.position].alias
    if before.is_ambiguous(using.column):  # Spark would silently take the first
        owners = [f"{input_.alias}.{using.column}" for input_ in before.owners(using.column)]
        raise scope.error(
            f"{using.column} may be {' or '.join(owners)}, and USING takes one: write ON {owners[0]} = "
            f"{alias}.{using.column}",
            using.span,
        )
    first = Name(
        (scope.inputs[0].alias, using.column) if using.position == 1 else (using.column,), using.span
    )
    second = Name((alias, using.column), using.span)
    return binary("=", COMPARISON, before.resolve(first), scope.resolve(second))


def refuse_two_clocks(scope: Scope, joined: From) -> None:
    """Refuse to compare a TIMESTAMP with a wall-clock time, unless the session's zone is UTC."""
    first = scope.inputs[0].stream
    kinds = [input_.stream.time_type == "timestamp" for input_ in scope.inputs]
    position = next((position for position, kind in enumerate(kinds) if kind != kinds[0]), None)
    if position is not None and not is_utc(scope.zone):
        second = scope.inputs[position].stream
        raise scope.error(
            f"the time of {first.name} is {first.time_type} and that of {second.name} is {second.time_type}, which "
            f"Spark compares by the session's zone, {scope.zone}: SET {ZONE} = 'UTC', or give all streams times of one "
            "type",
            joined.tables[position].span,
        )


def exact_type(scope: Scope, side: Tree) -> str:
    """Return the type of a column, of a field, or of a cast; empty for any other tree."""
    fields: list[str] = []
    while isinstance(side, Form) and side.head == ".":
        fields.append(str(side.parts[-1])[1:])
        (side,) = side.trees
    written = scope.type_of(side) if isinstance(side, ColumnRef) else cast_type(side)
    exact = known_type(written, *reversed(fields))
    return "" if exact is None else "string" if exact.name in {"char", "varchar"} else str(exact)
