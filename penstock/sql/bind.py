"""One SELECT to a `Query`: the path from text to meaning, on one screen.

    tokens ─┬─ window clauses ────────────────┬───────────────────┐
            └─ shape ─ scope ─┬─ conditions ──┴─ window, keys, …  │
                              └─ outputs, or groups and measures ─┴─ aggregation

The result is the same whatever the order of streams in FROM, of conditions, or of the sides of a comparison:
the stream whose name comes first is the left one.  A self-join keeps its order.

In:  the text of a SELECT, and the streams there are.
Out: a `Query`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.errors import SqlError, did_you_mean
from penstock.sql.comparisons import read_comparison
from penstock.sql.conditions import Conditions, classify
from penstock.sql.emission import make_aggregation, refuse_emission
from penstock.sql.names import Input, Scope
from penstock.sql.options import check_query_options
from penstock.sql.outputs import make_outputs
from penstock.sql.promises import carried
from penstock.sql.query import FOREVER, Comparison, Query, Range, Sink
from penstock.sql.shape import Select, Table, read_select
from penstock.sql.tokens import Source, span_of_tokens
from penstock.sql.tree import COMPARISON, Name, binary, columns_of, show
from penstock.sql.windows import WindowSpec, take_windows, window_clauses, window_range
from penstock.sql.zones import ZONE, is_utc

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.sql.lexer import Token
    from penstock.sql.query import Side, Stream
    from penstock.sql.tokens import Span
    from penstock.sql.tree import Tree
    from penstock.sql.windows import Clause, Clauses

_WINDOW_FORMS = (
    "WINDOW 1 min at its end, [RANGE 1 min] after each stream, "
    "or a condition such as B.ts BETWEEN A.ts AND A.ts + INTERVAL 1 MINUTE"
)


def bind_query(
    name: str,
    text: str,
    streams: Mapping[str, Stream],
    sink: Sink | None = None,
    options: Mapping[str, str] | None = None,
    *,
    zone: str = "UTC",
) -> Query:
    """Bind one SELECT, as given from Python, for a session in some time zone.

    >>> from penstock.sql.query import Column, Stream
    >>> columns = (Column("k", "bigint"), Column("ts", "timestamp"))
    >>> streams = {each: Stream(each, columns, "ts") for each in ("A", "B")}
    >>> query = bind_query("q", "SELECT B.* FROM B, A WHERE B.K = A.K WINDOW 1 min", streams)
    >>> query.left, query.keys, query.window
    ('A', (Key(left='k', right='k', type=''),), Range(lo=-59999999, hi=60000000))
    """
    source = Source(text)
    if not source.statements:
        raise source.error(f"query {name} is empty: it needs a SELECT", (0, 1))
    if len(source.statements) > 1:
        raise source.error("one query at a time: this is a second", span_of_tokens(source.statements[1]))
    checked = check_query_options(options or {})
    return bind_tokens(
        name, source, source.statements[0], streams, sink=sink or Sink(), options=checked, zone=zone
    )


def bind_tokens(
    name: str,
    source: Source,
    tokens: Sequence[Token],
    streams: Mapping[str, Stream],
    *,
    sink: Sink,
    options: tuple[tuple[str, str], ...],
    zone: str,
) -> Query:
    """Bind a SELECT that stands somewhere in a script."""
    clauses, rest = take_windows(source, tokens, name)
    if not rest:
        raise source.error(f"query {name} is empty: it needs a SELECT", span_of_tokens(tokens))
    select = read_select(source, rest, name)
    scope = replace(_make_scope(source, select, streams, span_of_tokens(rest)), zone=zone)
    _refuse_two_clocks(scope, select)
    conditions = classify(scope, _conditions(scope, select))
    stated = _windows(scope, clauses)
    aggregation = None
    if select.aggregates:
        outputs, trees, aggregation = make_aggregation(
            scope, select, every=clauses.every, stated=stated, options=dict(options), query=name
        )
    else:
        refuse_emission(scope, clauses.every, dict(options), name)
        outputs, trees = make_outputs(scope, select.items)
    window, rows = _window(scope, stated, conditions, name)
    if any(rows):  # a difference in rows says nothing of time: bounds on time are asked of each pair
        exact = [each for bound, each in conditions.bounds if bound.exact]
        conditions.residual = exact + conditions.residual  # before what they may be there to guard
    left, right = scope.side("l"), scope.side("r")
    _refuse_idle_rows(source, tokens, name, counted=any(rows), options=dict(options))
    return Query(
        name=name,
        left=left.stream.name,
        right=right.stream.name,
        keys=conditions.sorted_keys(),
        window=window,
        rows=rows,
        outputs=outputs,
        left_predicates=conditions.sorted_predicates("l"),
        right_predicates=conditions.sorted_predicates("r"),
        residual=conditions.sorted_residual(),
        comparisons=_comparisons(scope, conditions),
        left_columns=_columns_read([*trees, *conditions.residual], "l"),
        right_columns=_columns_read([*trees, *conditions.residual], "r"),
        sink=sink,
        options=options,
        text=source.slice(tokens),
        aggregation=aggregation,
    )


def _refuse_idle_rows(
    source: Source, tokens: Sequence[Token], name: str, *, counted: bool, options: Mapping[str, str]
) -> None:
    """Refuse `idle_after` where windows count rows: a row that came after all would shift what was counted."""
    if counted and "idle_after" in options:
        raise source.error(
            f"windows of {name} count rows, and a stream that may still send rows cannot be left out of the count: "
            "leave idle_after out, or give the window a length of time",
            (tokens[0].start, tokens[0].end),
        )


def _refuse_two_clocks(scope: Scope, select: Select) -> None:
    """Refuse to compare a TIMESTAMP with a wall-clock time unless the session's zone is UTC."""
    first, second = (each.stream for each in scope.inputs)
    points = [each.time_type == "timestamp" for each in (first, second)]
    if points[0] != points[1] and not is_utc(scope.zone):
        raise scope.error(
            f"the time of {first.name} is {first.time_type} and that of {second.name} is {second.time_type}, which the "
            f"zone of this session, {scope.zone}, would have to translate: SET {ZONE} = 'UTC', or give both streams "
            "times of one type",
            select.tables[1].span,
        )


def with_window(
    query: Query, window: WindowSpec, streams: Mapping[str, Stream], *, zone: str = "UTC"
) -> Query:
    """Bind a query again with another WINDOW.

    The new window takes the place of the query's WINDOW and of windows after its streams; a condition between
    the two event times is part of the query and stays, and so does its EVERY unless the new window has one.
    """
    source = Source(query.text)
    clauses, rest = take_windows(source, source.statements[0], query.name)
    every = window.every or clauses.every
    kept = {(token.start, token.end) for token in rest}
    gone = [token for token in source.statements[0] if (token.start, token.end) not in kept]
    text = list(query.text)
    for token in gone:
        text[token.start : token.end] = " " * (token.end - token.start)
    written = f"WINDOW {window.text} EVERY {every.text}" if every else f"WINDOW {window.text}"
    changed = Source(f"{''.join(text).rstrip()}\n{written}")
    tokens = changed.statements[0]
    return bind_tokens(
        query.name, changed, tokens, streams, sink=query.sink, options=query.options, zone=zone
    )


def _make_scope(source: Source, select: Select, streams: Mapping[str, Stream], span: Span) -> Scope:
    """Look up the two streams and decide which is left."""
    first, second = (_find_stream(source, each, streams) for each in select.tables)
    aliases = [each.alias for each in select.tables]
    if aliases[0].lower() == aliases[1].lower():
        message = (
            f"both streams are called {aliases[1]}: give each an alias, FROM {first.name} x, {second.name} y"
        )
        raise source.error(message, select.tables[1].span)
    swapped = second.name.lower() < first.name.lower()
    sides: tuple[Side, Side] = ("r", "l") if swapped else ("l", "r")
    inputs = (Input(aliases[0], first, sides[0]), Input(aliases[1], second, sides[1]))
    return Scope(source, span, inputs, tuple(name.lower() for name, _ in select.using))


def _find_stream(source: Source, table: Table, streams: Mapping[str, Stream]) -> Stream:
    """Find a declared stream that has rows, ignoring case."""
    folded = {each.name.lower(): each for each in streams.values()}
    stream = folded.get(table.name.lower())
    if not stream:
        hint = did_you_mean(table.name, [each.name for each in streams.values()])
        raise source.error(f"stream {table.name} is not declared: {hint}", table.span)
    if about := carried(stream):
        raise source.error(
            f"stream {stream.name} carries the promises of {about} and has no rows to join: join {about}",
            table.span,
        )
    return stream


def _conditions(scope: Scope, select: Select) -> list[Tree]:
    """Give all conditions, resolved: those of USING, of ON and of WHERE."""
    using = [_using(scope, name, span) for name, span in select.using]
    return [*using, *(scope.resolve(each) for each in select.conditions)]


def _using(scope: Scope, column: str, span: Span) -> Tree:
    """Write ``USING (k)`` as ``A.k = B.k``."""
    first, second = (Name((each.alias, column), span) for each in scope.inputs)
    return scope.resolve(binary("=", COMPARISON, first, second))


def _windows(scope: Scope, clauses: Clauses) -> tuple[Clause, Clause] | None:
    """Give the clauses that state the windows of the left and the right stream."""
    stated = window_clauses(scope.source, clauses, [each.alias for each in scope.inputs])
    return stated if stated is None or scope.inputs[0].side == "l" else (stated[1], stated[0])


def _window(
    scope: Scope, stated: tuple[Clause, Clause] | None, conditions: Conditions, query: str
) -> tuple[Range, tuple[bool, bool]]:
    """Intersect the window clauses with the bounds stated as conditions; say which side counts rows."""
    if stated is None and not conditions.bounds:
        raise scope.source.error(f"{query} needs a window: {_WINDOW_FORMS}", scope.span)
    left, right = (each.spec for each in stated) if stated else (_UNBOUNDED, _UNBOUNDED)
    rows = left.kind == "rows", right.kind == "rows"
    window, unlimited = window_range(left, right), Range.window(FOREVER, FOREVER)
    on_time = unlimited if any(rows) else window
    lo = max([on_time.lo, *(bound.lo for bound, _ in conditions.bounds)])
    hi = min([on_time.hi, *(bound.hi for bound, _ in conditions.bounds)])
    if lo >= hi:
        raise _empty(scope, conditions, query)
    return (window if any(rows) else Range(lo, hi)), rows


_UNBOUNDED = WindowSpec("range", FOREVER, "UNBOUNDED")


def _empty(scope: Scope, conditions: Conditions, query: str) -> SqlError:
    message = f"window of {query} is empty: its conditions on time leave no pair of rows"
    return scope.error(message, conditions.bounds[-1][1])


def _comparisons(scope: Scope, conditions: Conditions) -> tuple[Comparison, ...]:
    """Find the residual conditions that bound a difference of two columns."""
    comparisons = (read_comparison(scope, each) for each in sorted(conditions.residual, key=show))
    return tuple(dict.fromkeys(each for each in comparisons if each))


def _columns_read(trees: Sequence[Tree], side: Side) -> frozenset[str]:
    return frozenset(each.name for tree in trees for each in columns_of(tree) if each.side == side)
