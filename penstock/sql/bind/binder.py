"""One SELECT to a `Query`: the path from text to meaning, on one screen.

    tokens ─┬─ window clauses ────────────────┬───────────────────┐
            └─ shape ─ scope ─┬─ conditions ──┴─ window, keys, …  │
                              └─ outputs, or groups and measures ─┴─ aggregation

The result is the same whatever the order of streams in FROM, of conditions, or of the sides of a comparison:
the stream whose name comes first is the left one.  A self-join keeps its order.  Of more than two streams a `JoinGraph`
is made, whose inputs are in the same order.

In:  the text of a SELECT, and the streams there are.
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
    Comparison,
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
    WindowClause,
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
        _refuse_time_asked(scope, name, dict(options), aggregates=select.aggregates)
    else:
        _refuse_timeless(scope, name)
        _refuse_buffers(scope, name, dict(options))
        refuse_two_clocks(scope, select.joined)
    aggregation = None
    if select.aggregates:
        outputs, trees, aggregation = make_aggregation(
            scope, select, every=clauses.every, stated=stated, options=dict(options), query=name
        )
    else:
        refuse_emission(scope, clauses.every, dict(options), name)
        outputs, trees = make_outputs(scope, select.items)
    specs = [each.spec for each in stated] if stated else [_UNBOUNDED] * len(scope.inputs)
    rows = tuple(each.kind == "rows" for each in specs)
    if any(rows):  # a difference in rows says nothing of time: bounds on time are asked of each result
        exact = [each for bound, each in conditions.bounds if bound.exact]
        conditions.residual = exact + conditions.residual  # before what they may be there to guard
    _refuse_idle_rows(source, tokens, name, counted=any(rows), options=dict(options))
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
    if len(inputs) < LEAST_INPUTS:
        return _of_two(scope, query, inputs, specs, conditions)
    if stated is None and not oblivious:
        _refuse_unbounded(scope, conditions, name)
    return _of_many(query, inputs, specs, conditions)


def _refuse_unbounded(scope: Scope, conditions: Conditions, query: str) -> None:
    """Refuse intervals that leave a stream out: its rows would be kept for ever, and nobody has said so."""
    bounded = {number for bound, _ in conditions.bounds for number in bound.between}
    for each in scope.inputs:
        if each.number not in bounded:
            _refuse_unknown_bound(scope, conditions, f"{query} needs a window for {each.alias}", each.side)
            raise scope.source.error(
                f"{query} needs a window for {each.alias}: no condition bounds its time. Add one, or {WINDOW_FORMS}; "
                f"or [UNBOUNDED] after each stream to keep all rows",
                scope.span,
            )


def _of_two(
    scope: Scope,
    query: Query,
    inputs: Sequence[JoinInput],
    specs: Sequence[WindowSpec],
    conditions: Conditions,
) -> Query:
    """Complete a query of two streams."""
    left, right = inputs
    window, possible = _window(specs, conditions)
    return replace(
        query,
        keys=conditions.sorted_keys(),
        window=window,
        residual=query.residual if possible else (NEVER, *query.residual),
        left_predicates=left.predicates,
        right_predicates=right.predicates,
        comparisons=_comparisons(scope, conditions),
        left_columns=left.columns,
        right_columns=right.columns,
    )


def _of_many(
    query: Query,
    inputs: Sequence[JoinInput],
    specs: Sequence[WindowSpec],
    conditions: Conditions,
) -> Query:
    """Complete a query of more than two streams."""
    limits, possible = limits_of(specs, [bound for bound, _ in conditions.bounds])
    graph = JoinGraph(tuple(inputs), conditions.sorted_edges(), limits)
    residual = query.residual if possible else (NEVER, *query.residual)
    return replace(query, window=Range(0, graph.spread), graph=graph, residual=residual)


def _inputs(scope: Scope, conditions: Conditions, trees: Sequence[Tree]) -> tuple[JoinInput, ...]:
    """Say what is read of each stream, in the order of the sides."""
    return tuple(
        JoinInput(
            each.side,
            each.stream.name,
            conditions.sorted_predicates(each.side),
            _columns_read(trees, each.side),
        )
        for each in sorted(scope.inputs, key=lambda each: each.number)
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


def _windows(scope: Scope, clauses: Clauses) -> tuple[WindowClause, ...] | None:
    """Give the clauses that state the windows of the streams, in the order of the sides."""
    stated = window_clauses(scope.source, clauses, [each.alias for each in scope.inputs])
    if stated is None:
        return None
    by_number = sorted(zip(scope.inputs, stated, strict=True), key=lambda pair: pair[0].number)
    return tuple(clause for _, clause in by_number)


def _refuse_no_window(scope: Scope, conditions: Conditions, query: str) -> None:
    """Refuse a query without a window where no declared order says how long to remember."""
    streams = [each.stream for each in sorted(scope.inputs, key=lambda each: each.number)]
    if wrong := why_not_joined(streams, conditions.sorted_edges()):
        raise scope.source.error(f"{query} {wrong}", scope.span)
    refused = refusal(query, streams, conditions.sorted_edges())
    if refused:
        _refuse_unknown_bound(scope, conditions, f"{query} has no window")
        raise scope.source.error(refused, scope.span)


def _refuse_unknown_bound(scope: Scope, conditions: Conditions, lack: str, of: str = "") -> None:
    """Point at a condition on nothing but two event times, by which a window was meant; `of` is one of the sides."""
    on_times = (each for each in conditions.residual if on_two_times(scope, each))
    meant = next((each for each in on_times if not of or of in sides_of(each)), None)
    if meant is None:
        return
    sides = sorted(map(scope.side, sides_of(meant)), key=lambda each: each.number)
    first, second = (f"{quoted(each.alias)}.{quoted(each.stream.time)}" for each in sides)
    raise scope.error(
        f"{lack}, and this condition is not recognised as a bound of time. Write it as {second} BETWEEN {first} - "
        f"INTERVAL 10 SECONDS AND {first} + INTERVAL 10 SECONDS, with any lengths, or write WINDOW 10 seconds at the "
        "end as well",
        meant,
    )


def _refuse_time_asked(scope: Scope, query: str, options: Mapping[str, str], *, aggregates: bool) -> None:
    """Refuse what goes by event time in a query whose rows are known by their order of arrival."""
    asked = [f"{name} = '{options[name]}'" for name in ("order", "idle_after") if name in options]
    if asked and asked != ["order = 'none'"]:
        what = f"{asked[0]} goes by event time: leave it out"
    elif aggregates:
        what = "aggregates answer when time has passed: select the rows themselves"
    else:
        return
    raise scope.source.error(f"{query} has no window, and {what}, or give it one: {WINDOW_FORMS}", scope.span)


def _refuse_buffers(scope: Scope, query: str, options: Mapping[str, str]) -> None:
    """Refuse a way to save buffers in a query whose window says how long rows are kept."""
    if "buffers" in options:
        raise scope.source.error(
            f"buffers is for queries without a window, and {query} has one: leave out the option, or the window",
            scope.span,
        )


def _refuse_timeless(scope: Scope, query: str) -> None:
    """Refuse a window over a stream that has no event time."""
    for each in scope.inputs:
        if each.stream.results:
            raise scope.source.error(
                f"{query} has a window, and the results of query {each.stream.name} have no event time: leave windows "
                f"and conditions on time out; or, if {each.stream.name} selects a time, {ANOTHER_WAY}",
                scope.span,
            )
        if each.stream.timeless:
            raise scope.source.error(
                f"{query} has a window, and stream {each.stream.name} has no event time: declare it WITH "
                "(time = '<column>'); or leave windows and conditions on time out, and declare it WITH "
                "(ordered = '<column>') if its rows arrive roughly in the order of what they are joined on",
                scope.span,
            )


def _window(specs: Sequence[WindowSpec], conditions: Conditions) -> tuple[Range, bool]:
    """Intersect the windows of two streams with the bounds stated as conditions; also return if any pair is in it.

    If none is, the window is the shortest there is.
    """
    left, right = specs
    window, counted = window_range(left, right), "rows" in {left.kind, right.kind}
    on_time = _NO_LIMITS if counted else window
    lo = max([on_time.lo, *(bound.lo for bound, _ in conditions.bounds)])
    hi = min([on_time.hi, *(bound.hi for bound, _ in conditions.bounds)])
    if counted:
        return window, lo < hi
    return (Range(lo, hi), True) if lo < hi else (Range.window(1, 1), False)


_UNBOUNDED = WindowSpec("range", FOREVER, "UNBOUNDED")
_NO_LIMITS = Range.window(FOREVER, FOREVER)


def _comparisons(scope: Scope, conditions: Conditions) -> tuple[Comparison, ...]:
    """Find the residual conditions that bound a difference of two columns."""
    comparisons = (read_comparison(scope, each) for each in sorted(conditions.residual, key=show))
    return tuple(dict.fromkeys(each for each in comparisons if each))


def _columns_read(trees: Sequence[Tree], side: Side) -> frozenset[str]:
    return frozenset(each.name for tree in trees for each in columns_of(tree) if each.side == side)
