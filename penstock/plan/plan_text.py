"""The plan for people: the text of EXPLAIN, and how windows and ages are written.

In:  a `Plan`.  Out: text; the golden files of the tests hold it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.plan.links import is_link_column
from penstock.plan.panes import aggregation_of, queries_by_rows, share_panes
from penstock.plan.promises import all_indexes, ended_rows, finishing_of, promised_sides, promises_about
from penstock.sql.bind.arrival import known_multiplicity, known_scrambling
from penstock.sql.query import FOREVER, SIDES
from penstock.sql.units import show_duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.plan.build import Plan
    from penstock.plan.chain import Slice
    from penstock.plan.group import Group
    from penstock.plan.panes import PaneSet
    from penstock.plan.promises import PromiseIndex
    from penstock.plan.stored import LogPlan
    from penstock.sql.bind.promises import PromisePattern
    from penstock.sql.query import JoinGraph, Query, Side, Stream


def serving(plan: Plan, query: str) -> Plan:
    """Return the part of a plan that serves one query: its chains with all their readers, and the logs they read.

    The chains of queries whose results it reads are included.
    """
    plan.find(query)  # refuses an unknown query
    wanted = {group.id for name in _with_sources(plan, query) for group, _, _ in plan.groups_of(name)}
    groups = tuple(group for group in plan.groups if group.id in wanted)
    logs = {log.id for group in groups for log in group.all_logs}
    names = {member.query.name for group in groups for member in group.members}
    return replace(
        plan,
        logs=tuple(log for log in plan.logs if log.id in logs),
        groups=groups,
        queries=tuple(query for query in plan.queries if query.name in names),
    )


def _with_sources(plan: Plan, query: str) -> list[str]:
    """Name a query, and the queries whose results it reads, directly or through others."""
    results = {stream.name for stream in plan.results}
    sources = [name for name in plan.query(query).streams if name in results]
    return [query, *(name for source in sources for name in _with_sources(plan, source))]


# --- EXPLAIN ----------------------------------------------------------------------------------------


def plan_text(plan: Plan) -> str:
    """Print the whole plan."""
    return "\n".join(_lines(plan)) + "\n"


def _lines(plan: Plan) -> Iterator[str]:
    counts = (
        (len(plan.queries), "query", "queries"),
        (len(plan.groups), "chain", "chains"),
        (len(plan.logs), "log", "logs"),
    )
    yield ", ".join(f"{count} {one if count == 1 else many}" for count, one, many in counts)
    for log in plan.logs:
        yield from _log_lines(log, is_result=plan.stream(log.stream).results is not None)
    for group in plan.groups:
        yield from _group_lines(group, plan)
    for panes in pane_sets(plan):
        yield from _pane_lines(panes, plan)
    for index in all_indexes(plan):
        yield from _promise_lines(index, plan)


def _log_lines(log: LogPlan, *, is_result: bool) -> Iterator[str]:
    """Print the columns and bits that are stored of a stream, or of the results of a query."""
    kind = "64-bit key" if log.whole_key else "hashed key, compared"
    owner = f", of query {log.owner}" if log.owner else ""
    counted = ", for windows that count rows" if log.counted else ""
    fed = f", results of query {log.stream}" if is_result else ""
    columns = [column for column in log.columns if not is_link_column(column)]
    yield ""
    yield f"Log {log.stream} by {log.order} ({kind if log.key else 'no key'}{counted}){owner}{fed}"
    yield f"  columns     {', '.join(columns) or '(none)'}"
    for bit, predicate in enumerate(log.predicates):
        yield f"  bit {bit:<7} {predicate}"


def _group_lines(group: Group, plan: Plan) -> Iterator[str]:
    """Print a chain: its slices on either side, or its buffers, and the readers of each."""
    named = " ⋈ ".join(f"{part.log.stream} {part.side}" for part in group.inputs)
    yield ""
    yield f"Chain {named} on {' and '.join(equalities(group)) or 'the window alone'}"
    yield from _part_lines(group)
    yield from _buffer_lines(plan, group) if group.oblivious else _slice_lines(group)
    yield "  queries"
    for member in group.members:
        query = member.query
        conditions = [f"{side}: {predicate}" for side in query.sides for predicate in query.predicates(side)]
        conditions += list(query.residual)
        suffix = f"  where {' and '.join(conditions)}" if conditions else ""
        order = f", in order ({query.order})" if query.ordered else ""
        yield f"    {query.name:<12} {show_window(group, query.name):<28} -> {query.sink.kind}{order}{suffix}"


def _part_lines(group: Group) -> Iterator[str]:
    """Print the rows that a join takes if it does not take all, and whether selections come last."""
    for side in group.sides:
        part = group.part(side)
        conditions = [*part.all_of, *(f"not ({' and '.join(condition)})" for condition in part.none_of)]
        if conditions:
            yield f"  rows of {side}   {' and '.join(conditions)}"
    if group.filter_last:
        yield "  every row is held for the longest window, selections come after the join"


def _buffer_lines(plan: Plan, group: Group) -> Iterator[str]:
    yield "  no window: a row is kept until no later row can match it"
    readers = ", ".join(member.query.name for member in group.members)
    for side, name in zip(group.sides, group.streams, strict=True):
        yield f"    buffer of {name} ({side}), {_show_arrival(plan.stream(name))} -> {readers}"


def _show_arrival(stream: Stream) -> str:
    """Write the declared disorder of a stream.

    >>> from penstock.sql.query import Stream
    >>> _show_arrival(Stream("S1", (), "", options=(("scrambling", "500"),)))
    'scrambling 500, multiplicity measured'
    """
    if stream.results is not None:
        return f"results of query {stream.name}"
    known = {"scrambling": known_scrambling(stream), "multiplicity": known_multiplicity(stream)}
    return ", ".join(
        f"{name} {'measured' if count is None else f'{count:,}'}" for name, count in known.items()
    )


def _slice_lines(group: Group) -> Iterator[str]:
    for side, log in zip(group.sides, group.logs, strict=True):
        slices = group.slices(side)
        if slices:
            yield f"  state of {log.stream} ({side})"
        for number, piece in slices:
            readers = ", ".join(_reader(group, name, piece) for name in group.chain.readers[number])
            yield f"    {show_ages(group, piece):<22} -> {readers or '(no query)'}"


def _reader(group: Group, name: str, piece: Slice) -> str:
    """Name a reader of a slice; if its window ends inside the slice, with the age up to which it reads."""
    query = next(member.query for member in group.members if member.query.name == name)
    if query.graph is not None:
        return f"{name} (to {_age(query.window.hi)})" if query.window.hi < piece.range.hi else name
    window, length = query.window, window_lengths(query)[SIDES.index(piece.side)]
    inside = window.hi < piece.range.hi if piece.side == "l" else window.lo > piece.range.lo
    upto = show_age(length, rows=True) if group.counts(piece.side) else _age(length)
    return f"{name} (to {upto})" if inside else name


def pane_sets(plan: Plan) -> Iterable[PaneSet]:
    """List the pane sets that a plan would begin with."""
    return share_panes(plan.queries, by_rows=queries_by_rows(plan)).values()


def _pane_lines(panes: PaneSet, plan: Plan) -> Iterator[str]:
    """Print the partial aggregates that queries share, and their readers."""
    readers = [query for query in plan.queries if query.name in panes.readers]
    first, aggregation = readers[0], aggregation_of(readers[0])
    keys = [output.expression for output in first.outputs[: aggregation.groups]]
    measures = []
    for measure in aggregation.measures:
        arguments = ", ".join(first.outputs[number].expression for number in measure.arguments) or "*"
        measures.append(f"{measure.function}({'DISTINCT ' if measure.distinct else ''}{arguments})")
    cut = f"of {_age(panes.pane)}" if panes.emit == "sliding" else f"by group, answered by {panes.emit}"
    of_rows = ", of the rows of either side" if panes.by_rows else ""
    by_key = ", folded by the join's key first" if panes.group_side else ""
    yield ""
    yield f"Panes {cut}, {'by ' + ', '.join(keys) if keys else 'one group'}{of_rows}{by_key}"
    yield f"  measures    {', '.join(measures) or '(none)'}"
    for query in readers:
        yield f"    {query.name:<12} {_answer_times(query):<28} -> {query.sink.kind}"


def _answer_times(query: Query) -> str:
    """Write when an aggregate query is answered, and over how long a window."""
    aggregation = aggregation_of(query)
    if aggregation.emit != "sliding":
        return {"final": "once per group", "changes": "after each change"}[aggregation.emit]
    lengths = zip(query.sides, aggregation.reach, strict=True)
    window = _age(aggregation.reach[0])
    if len(set(aggregation.reach)) > 1:
        window = ", ".join(f"{side} {_age(length)}" for side, length in lengths)
    return f"the last {window} EVERY {_age(aggregation.every)}"


def _promise_lines(index: PromiseIndex, plan: Plan) -> Iterator[str]:
    """Print which rows make promises about a stream, and which rows and groups end with them."""
    yield ""
    yield f"Promises about {index.stream} by {index.log.order}"
    for stream, promise in promises_about(plan.streams, index.stream):
        if promise.is_data:
            yield f"  made by     every row of {stream.name}, the last of its value"
        else:
            where = f" where {promise.condition}" if promise.condition else ""
            yield f"  made by     {stream.name}{where}: {', '.join(map(show_pattern, promise.patterns))}"
    if ended := ended_rows(plan, index):
        yield f"  end rows of {', '.join(ended)}"
    finished = [
        query.name
        for query in plan.queries
        if finishing_of(plan, query) and index in (promised_sides(plan, query) or ())
    ]
    if finished:
        yield f"  complete groups of {', '.join(finished)}"


def show_pattern(pattern: PromisePattern) -> str:
    """Write the values that a promise covers.

    >>> from penstock.sql.bind.promises import PromisePattern
    >>> show_pattern(PromisePattern("item", "range", "lo", "hi")), show_pattern(PromisePattern("item", "value", "item"))
    ('item BETWEEN lo AND hi', 'item')
    """
    if pattern.kind == "range":
        return f"{pattern.column} BETWEEN {pattern.low} AND {pattern.high}"
    if pattern.kind == "list":
        return f"{pattern.column} IN {pattern.low}"
    return pattern.column if pattern.low == pattern.column else f"{pattern.column} = {pattern.low}"


def equalities(group: Group) -> Iterator[str]:
    """Write the equalities between the rows of a result."""
    yield from (f"l.{key.left} = r.{key.right}" for key in group.signature.keys)
    for edge in group.signature.edges:
        yield f"{group.sides[edge.first]}.{edge.key.left} = {group.sides[edge.second]}.{edge.key.right}"


# --- windows and ages -------------------------------------------------------------------------------


def show_window(group: Group, name: str) -> str:
    """Write a query's window."""
    query = next(member.query for member in group.members if member.query.name == name)
    if query.oblivious:
        return "no window"
    if query.graph is not None:
        return _show_limits(query.graph, query.rows)
    lo, hi = query.window.lo, query.window.hi
    if query.signature.counted:
        return _show_counts(query)
    if hi == 1 - lo:
        return f"WINDOW {_age(hi)}"
    since = f"{show_difference(lo - 1)} <" if _just_above(lo) else f"{show_difference(lo)} <="
    until = f"<= {show_difference(hi - 1)}" if _just_above(hi) else f"< {show_difference(hi)}"
    return f"{since} r - l" if hi >= FOREVER else f"{since} r - l {until}"


def _show_limits(graph: JoinGraph, rows: tuple[bool, ...]) -> str:
    """Write the window of a join of many streams: as one if all limits are equal, else by input or pair of inputs."""
    if graph.even and len(set(rows)) == 1:
        return f"WINDOW {graph.spread} ROWS" if rows[0] else f"WINDOW {_age(graph.spread)}"
    sides = [part.side for part in graph.inputs]
    own = [{limit for j, limit in enumerate(row) if i != j} for i, row in enumerate(graph.limits)]
    if all(len(limits) == 1 for limits in own):
        return ", ".join(
            _show_range(side, limit, rows=counts)
            for side, (limit,), counts in zip(sides, own, rows, strict=True)
        )
    return ", ".join(
        f"{sides[j]} - {sides[i]} < {_age(limit)}"
        for i, row in enumerate(graph.limits)
        for j, limit in enumerate(row)
        if i != j and limit < FOREVER
    )


def _show_counts(query: Query) -> str:
    """Write a window that counts rows on some side: as one if both sides are alike."""
    left, right = window_lengths(query)
    if query.rows == (True, True) and left == right:
        return f"WINDOW {left} ROWS"
    sides = zip(SIDES, (left, right), query.rows, strict=True)
    return ", ".join(_show_range(side, length, rows=rows) for side, length, rows in sides)


def _show_range(side: Side, length: int, *, rows: bool) -> str:
    if rows:
        return f"{side} [ROWS {length}]"
    return f"{side} [RANGE {_age(length)}]" if length < FOREVER else f"{side} [UNBOUNDED]"


def window_lengths(query: Query) -> tuple[int, int]:
    """Return the length of either side's window, in microseconds or rows."""
    return query.window.hi, (0 if query.rows[1] else 1) - query.window.lo


def show_cut(group: Group, cut: int) -> str:
    """Write where a chain is cut."""
    side: Side = "l" if cut > 0 else "r"
    if cut and group.counts(side):
        return f"{show_age(abs(cut), rows=True)} of {group.log(side).stream}"
    return f"r - l = {show_difference(cut)}"


def show_difference(difference: int) -> str:
    """Write a difference with its sign."""
    return f"-{_age(-difference)}" if difference < 0 else _age(difference)


def _just_above(difference: int) -> bool:
    """Check for the microsecond by which a bound is strict: ``> 5 s`` is from 5 s and 1 µs on."""
    return difference % 1000 == 1


def show_ages(group: Group, piece: Slice) -> str:
    """Write the ages of a slice, in rows or in time; a square bracket includes the bound."""
    start, end = group.ages(piece)
    if group.counts(piece.side):
        return f"[{start:,}, {show_age(end, rows=True)})"
    since = f"({_age(start - 1)}" if _just_above(start) else f"[{_age(start)}"
    until = f"{_age(end - 1)}]" if _just_above(end) else f"{_age(end)})"
    return f"{since}, {until}"


def show_age(age: int, *, rows: bool = False) -> str:
    """Write an age: a time, or a number of rows.

    >>> show_age(10_000_000), show_age(1000, rows=True), show_age(1, rows=True)
    ('10 s', '1,000 rows', '1 row')
    """
    return f"{age:,} {'row' if age == 1 else 'rows'}" if rows else show_duration(age)


def _age(age: int) -> str:
    return "unbounded" if age >= FOREVER else show_age(age)
