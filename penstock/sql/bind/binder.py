"""One SELECT to a `Query`: the path from text to meaning.

    tokens ─┬─ window clauses ────────────────┬───────────────────┐
            └─ shape ─ scope ─┬─ conditions ──┴─ window, keys, …  │
                              └─ outputs, or groups and measures ─┴─ aggregation

The result does not depend on the order of streams in FROM, of conditions, or of the sides of a comparison.  The stream
whose name comes first is the left one; a self-join keeps its order.  A `JoinGraph` of more than two streams has its
inputs in the same order.

In:  the text of a SELECT, and the known streams.
Out: a `Query`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from penstock.sql.bind.arrival import WINDOW_FORMS, refusal
from penstock.sql.bind.comparisons import read_comparison
from penstock.sql.bind.conditions import Conditions, classify, refuse_unconnected
from penstock.sql.bind.grouping import make_aggregation, refuse_emission
from penstock.sql.bind.outputs import make_outputs
from penstock.sql.bind.result_streams import ANOTHER_WAY, why_not_joined
from penstock.sql.bind.scope import Scope, make_scope, refuse_two_clocks, resolved_conditions
from penstock.sql.bind.time_bounds import limits_of, on_two_times
from penstock.sql.options import check_query_options
from penstock.sql.query import (
    FOREVER,
    LEAST_INPUTS,
    NEVER,
    JoinGraph,
    JoinInput,
    Query,
    Range,
    Side,
    Sink,
    Stream,
)
from penstock.sql.text.lexer import Token
from penstock.sql.text.refusals import refuse_set_operators
from penstock.sql.text.select import read_select
from penstock.sql.text.tokens import Source, span_of_tokens
from penstock.sql.text.tree import Tree, columns_of, quoted, show, sides_of
from penstock.sql.text.windows import (
    Clauses,
    WindowSpec,
    take_windows,
    window_clauses,
    window_range,
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
    >>> streams = {name: Stream(name, columns, "ts") for name in ("A", "B")}
    >>> query = bind_query("q", "SELECT B.* FROM B, A WHERE B.K = A.K WINDOW 1 min", streams)
    >>> query.left, query.keys, query.window
    ('A', (Key(left='k', right='k', type=''),), Range(lo=-59999999, hi=60000000))
    """
    source = Source(text)
    if not source.statements:
        raise source.error(f"query {name} is empty: it needs a SELECT", (0, 1))
    if len(source.statements) > 1:
        raise source.error("this is a second query: give one at a time", span_of_tokens(source.statements[1]))
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
    """Bind a SELECT within a script."""
    refuse_set_operators(source, tokens)
    clauses, rest = take_windows(source, tokens, name)
    if not rest:
        raise source.error(f"query {name} is empty: it needs a SELECT", span_of_tokens(tokens))
    select = read_select(source, rest, name)
    scope = make_scope(source, select.joined, streams, span_of_tokens(rest), zone)
    conditions = classify(scope, resolved_conditions(scope, select.joined, select.where))
    refuse_unconnected(scope, select.joined, conditions)
    stated = _windows(scope, clauses)
    oblivious = stated is None and not conditions.bounds
    if oblivious:
        _refuse_no_window(scope, conditions, name)
        _refuse_time_options(scope, name, dict(options), aggregates=select.aggregates)
    else:
        _refuse_timeless(scope, name)
        if "buffers" in dict(options):
            raise scope.source.error(
                f"buffers is for queries without a window, and {name} has one: leave out the option, or the window",
                scope.span,
            )
        refuse_two_clocks(scope, select.joined)
    aggregation = None
    if select.aggregates:
        outputs, trees, aggregation = make_aggregation(
            scope, select, every=clauses.every, stated=stated, options=dict(options), query=name
        )
    else:
        refuse_emission(scope, clauses.every, dict(options), name)
        outputs, trees = make_outputs(scope, select.items)
    specs = stated or (_UNBOUNDED,) * len(scope.inputs)
    rows = tuple(spec.kind == "rows" for spec in specs)
    if any(rows):
        _refuse_idle_rows(source, tokens, name, dict(options))
        # a difference in rows does not bound time: Spark tests bounds on time before the conditions they may guard
        exact = [condition for bound, condition in conditions.bounds if bound.exact]
        conditions.residual = exact + conditions.residual
    if len(scope.inputs) >= LEAST_INPUTS and stated is None and not oblivious:
        _refuse_unbounded(scope, conditions, name)
    inputs = _inputs(scope, conditions, [*trees, *conditions.residual])
    query = Query(
        name=name,
        left=inputs[0].stream,
        right=inputs[1].stream,
        keys=(),
        window=_NO_LIMITS,
        rows=rows,
        outputs=outputs,
        residual=conditions.sorted_residual(),
        sink=sink,
        options=options,
        text=source.slice(tokens),
        aggregation=aggregation,
        oblivious=oblivious,
    )
    query, possible = (
        _of_two(scope, query, inputs, specs, conditions)
        if len(inputs) < LEAST_INPUTS
        else _of_many(query, inputs, specs, conditions)
    )
    return query if possible else replace(query, residual=(NEVER, *query.residual))


def with_window(
    query: Query, window: WindowSpec, streams: Mapping[str, Stream], *, zone: str = "UTC"
) -> Query:
    """Bind a query again with another WINDOW.

    The new window replaces the query's WINDOW and the windows after its streams.  A condition between the event times
    is part of the query and stays.  Its EVERY stays too, unless the new window has one.
    """
    source = Source(query.text)
    clauses, rest = take_windows(source, source.statements[0], query.name)
    every = window.every or clauses.every
    kept = {(token.start, token.end) for token in rest}
    text = list(query.text)
    for token in source.statements[0]:
        if (token.start, token.end) not in kept:
            text[token.start : token.end] = " " * (token.end - token.start)
    written = f"WINDOW {window.text} EVERY {every.text}" if every else f"WINDOW {window.text}"
    changed = Source(f"{''.join(text).rstrip()}\n{written}")
    tokens = changed.statements[0]
    return bind_tokens(
        query.name, changed, tokens, streams, sink=query.sink, options=query.options, zone=zone
    )


# --- windows and inputs -----------------------------------------------------------------------------------------

_UNBOUNDED = WindowSpec("range", FOREVER, "UNBOUNDED")
_NO_LIMITS = Range.window(FOREVER, FOREVER)


def _windows(scope: Scope, clauses: Clauses) -> tuple[WindowSpec, ...] | None:
    """Return the window of each stream, in the order of the sides."""
    stated = window_clauses(scope.source, clauses, [input_.alias for input_ in scope.inputs])
    if stated is None:
        return None
    by_number = sorted(zip(scope.inputs, stated, strict=True), key=lambda pair: pair[0].number)
    return tuple(window for _, window in by_number)


def _inputs(scope: Scope, conditions: Conditions, trees: Sequence[Tree]) -> tuple[JoinInput, ...]:
    """Build the inputs in the order of the sides."""
    read = {column for tree in trees for column in columns_of(tree)}
    return tuple(
        JoinInput(
            input_.side,
            input_.stream.name,
            conditions.sorted_predicates(input_.side),
            frozenset(column.name for column in read if column.side == input_.side),
        )
        for input_ in scope.in_order
    )


def _of_two(
    scope: Scope,
    query: Query,
    inputs: Sequence[JoinInput],
    specs: Sequence[WindowSpec],
    conditions: Conditions,
) -> tuple[Query, bool]:
    """Complete a query of two streams, and return whether any pair can be in its window."""
    left, right = inputs
    window, possible = _window(specs, conditions)
    comparisons = (read_comparison(scope, condition) for condition in sorted(conditions.residual, key=show))
    changed = replace(
        query,
        keys=tuple(edge.key for edge in conditions.sorted_edges()),
        window=window,
        left_predicates=left.predicates,
        right_predicates=right.predicates,
        comparisons=tuple(dict.fromkeys(comparison for comparison in comparisons if comparison)),
        left_columns=left.columns,
        right_columns=right.columns,
    )
    return changed, possible


def _window(specs: Sequence[WindowSpec], conditions: Conditions) -> tuple[Range, bool]:
    """Intersect the windows of two streams with the bounds on time, and return whether any pair is in it.

    If none is, the window is the shortest possible.
    """
    left, right = specs
    window, counted = window_range(left, right), "rows" in {left.kind, right.kind}
    on_time = _NO_LIMITS if counted else window
    lo = max([on_time.lo, *(bound.lo for bound, _ in conditions.bounds)])
    hi = min([on_time.hi, *(bound.hi for bound, _ in conditions.bounds)])
    if counted:
        return window, lo < hi
    return (Range(lo, hi), True) if lo < hi else (Range.window(1, 1), False)


def _of_many(
    query: Query,
    inputs: Sequence[JoinInput],
    specs: Sequence[WindowSpec],
    conditions: Conditions,
) -> tuple[Query, bool]:
    """Complete a query of more than two streams, and return whether any result can be within its limits."""
    limits, possible = limits_of(specs, [bound for bound, _ in conditions.bounds])
    graph = JoinGraph(tuple(inputs), conditions.sorted_edges(), limits)
    return replace(query, window=Range(0, graph.spread), graph=graph), possible


# --- refusals ---------------------------------------------------------------------------------------------------


def _refuse_idle_rows(
    source: Source, tokens: Sequence[Token], query: str, options: Mapping[str, str]
) -> None:
    """Refuse `idle_after` where windows count rows: a late row would shift the count."""
    if "idle_after" in options:
        raise source.error(
            f"windows of {query} count rows, so a stream that may still send rows must be counted: "
            "leave idle_after out, or give the window a length of time",
            (tokens[0].start, tokens[0].end),
        )


def _refuse_unbounded(scope: Scope, conditions: Conditions, query: str) -> None:
    """Refuse intervals that leave a stream unbounded: its rows would be kept for ever."""
    bounded = {number for bound, _ in conditions.bounds for number in bound.between}
    for input_ in scope.inputs:
        if input_.number not in bounded:
            _refuse_unknown_bound(
                scope, conditions, f"{query} needs a window for {input_.alias}", input_.side
            )
            raise scope.source.error(
                f"{query} needs a window for {input_.alias}: no condition bounds its time. Add one, or {WINDOW_FORMS}; "
                "or [UNBOUNDED] after each stream to keep all rows",
                scope.span,
            )


def _refuse_no_window(scope: Scope, conditions: Conditions, query: str) -> None:
    """Refuse a query that has no window and whose streams have no declared order."""
    streams = [input_.stream for input_ in scope.in_order]
    if wrong := why_not_joined(streams, conditions.sorted_edges()):
        raise scope.source.error(f"{query} {wrong}", scope.span)
    refused = refusal(query, streams, conditions.sorted_edges())
    if refused:
        _refuse_unknown_bound(scope, conditions, f"{query} has no window")
        raise scope.source.error(refused, scope.span)


def _refuse_unknown_bound(scope: Scope, conditions: Conditions, lack: str, of: Side = "") -> None:
    """Point at a condition that reads only two event times, because it was probably meant as the window."""
    on_times = (condition for condition in conditions.residual if on_two_times(scope, condition))
    meant = next((condition for condition in on_times if not of or of in sides_of(condition)), None)
    if meant is None:
        return
    first, second = (
        f"{quoted(input_.alias)}.{quoted(input_.stream.time)}"
        for input_ in scope.in_order
        if input_.side in sides_of(meant)
    )
    raise scope.error(
        f"{lack}, and this condition is not recognised as a bound of time. Write it as {second} BETWEEN {first} - "
        f"INTERVAL 10 SECONDS AND {first} + INTERVAL 10 SECONDS, with any lengths, or write WINDOW 10 seconds at the "
        "end as well",
        meant,
    )


def _refuse_time_options(scope: Scope, query: str, options: Mapping[str, str], *, aggregates: bool) -> None:
    """Refuse options and aggregates that need event time in a query without a window."""
    asked = [f"{name} = '{options[name]}'" for name in ("order", "idle_after") if name in options]
    if asked and asked != ["order = 'none'"]:
        reason = f"{asked[0]} needs event time: leave it out"
    elif aggregates:
        reason = "aggregates answer when time has passed: select the rows themselves"
    else:
        return
    raise scope.source.error(
        f"{query} has no window, and {reason}, or give it one: {WINDOW_FORMS}", scope.span
    )


def _refuse_timeless(scope: Scope, query: str) -> None:
    """Refuse a window over a stream that has no event time."""
    for input_ in scope.inputs:
        stream = input_.stream
        if stream.results:
            raise scope.source.error(
                f"{query} has a window, and the results of query {stream.name} have no event time: leave windows and "
                f"conditions on time out; or, if {stream.name} selects a time, {ANOTHER_WAY}",
                scope.span,
            )
        if stream.timeless:
            raise scope.source.error(
                f"{query} has a window, and stream {stream.name} has no event time: declare it WITH "
                "(time = '<column>'). Or leave windows and conditions on time out, and declare it WITH "
                "(ordered = '<column>') if its rows arrive roughly in the order of their join column",
                scope.span,
            )
