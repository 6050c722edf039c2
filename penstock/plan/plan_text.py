"""The plan, for people and for tools: text, JSON, Mermaid.

In:  a `Plan`.  Out: text.  The text form is EXPLAIN, and the golden files of the tests.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.plan.buffer_text import buffer_lines, buffers_json
from penstock.plan.links import is_link_column
from penstock.plan.panes import aggregation_of, share_panes
from penstock.plan.promises import all_indexes, ended_rows, finishing_of, promised_sides, promises_about
from penstock.plan.row_panes import queries_by_rows
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
    from penstock.sql.query import JoinGraph, Measure, Query, Side


def serving(plan: Plan, query: str) -> Plan:
    """Give the part of a plan that serves one query: its chains with all their readers, and the logs they read.

    Chains of queries whose results it reads serve it too.
    """
    plan.find(query)  # or say that there is none
    tree = _tree(plan, query)
    groups = tuple(
        each for each in plan.groups if any(each.id == g.id for q in tree for g, _, _ in plan.groups_of(q))
    )
    logs = {log.id for group in groups for log in group.all_logs}
    names = {member.query.name for group in groups for member in group.members}
    return replace(
        plan,
        logs=tuple(log for log in plan.logs if log.id in logs),
        groups=groups,
        queries=tuple(each for each in plan.queries if each.name in names),
    )


def _tree(plan: Plan, query: str) -> list[str]:
    """Name a query, and the queries whose results it reads, directly or over others."""
    results = {each.name for each in plan.results}
    below = [name for name in plan.query(query).streams if name in results]
    return [query, *(each for name in below for each in _tree(plan, name))]


def plan_text(plan: Plan) -> str:
    """Print the whole plan."""
    return "\n".join(_lines(plan)) + "\n"


def _lines(plan: Plan) -> Iterator[str]:
    """Print logs, then chains."""
    counts = (
        (plan.queries, "query", "queries"),
        (plan.groups, "chain", "chains"),
        (plan.logs, "log", "logs"),
    )
    yield ", ".join(f"{len(each)} {one if len(each) == 1 else many}" for each, one, many in counts)
    for log in plan.logs:
        yield from _log_lines(log, is_result=plan.stream(log.stream).results is not None)
    for group in plan.groups:
        yield from _group_lines(group, plan)
    for panes in _pane_sets(plan):
        yield from _pane_lines(panes, plan)
    for index in all_indexes(plan):
        yield from _promise_lines(index, plan)


def _promise_lines(index: PromiseIndex, plan: Plan) -> Iterator[str]:
    """Print who makes promises about a stream, and whose rows and groups end with them."""
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
    if finished := [
        each.name for each in plan.queries if finishing_of(plan, each) and _reads(plan, each, index)
    ]:
        yield f"  complete groups of {', '.join(finished)}"


def _reads(plan: Plan, query: Query, index: PromiseIndex) -> bool:
    """Say whether a query joins the stream of an index by its key."""
    return index in (promised_sides(plan, query) or ())


def show_pattern(pattern: PromisePattern) -> str:
    """Write what a promise is about.

    >>> from penstock.sql.bind.promises import PromisePattern
    >>> show_pattern(PromisePattern("item", "range", "lo", "hi")), show_pattern(PromisePattern("item", "value", "item"))
    ('item BETWEEN lo AND hi', 'item')
    """
    if pattern.kind == "range":
        return f"{pattern.column} BETWEEN {pattern.low} AND {pattern.high}"
    if pattern.kind == "list":
        return f"{pattern.column} IN {pattern.low}"
    return pattern.column if pattern.low == pattern.column else f"{pattern.column} = {pattern.low}"


def _pane_sets(plan: Plan) -> Iterable[PaneSet]:
    """List the pane sets that a plan would begin with."""
    return share_panes(plan.queries, by_rows=queries_by_rows(plan)).values()


def _pane_lines(panes: PaneSet, plan: Plan) -> Iterator[str]:
    """Print what is kept of the pairs of aggregate queries, and who reads it."""
    readers = [each for each in plan.queries if each.name in panes.readers]
    aggregation = aggregation_of(readers[0])
    keys = [each.expression for each in readers[0].outputs[: aggregation.groups]]
    yield ""
    cut = f"of {_age(panes.pane)}" if panes.emit == "sliding" else f"by group, answered by {panes.emit}"
    what = ", of the rows of either side" if panes.by_rows else ""
    what += ", folded by the join's key first" if panes.group_side else ""
    yield f"Panes {cut}, {'by ' + ', '.join(keys) if keys else 'one group'}{what}"
    yield f"  measures    {', '.join(_measure(each, readers[0]) for each in aggregation.measures) or '(none)'}"
    for query in readers:
        yield f"    {query.name:<12} {_asked(query):<28} -> {query.sink.kind}"


def _measure(measure: Measure, query: Query) -> str:
    arguments = ", ".join(query.outputs[each].expression for each in measure.arguments) or "*"
    return f"{measure.function}({'DISTINCT ' if measure.distinct else ''}{arguments})"


def _asked(query: Query) -> str:
    """Print when and over what an aggregate query is answered."""
    aggregation = aggregation_of(query)
    if aggregation.emit != "sliding":
        return {"final": "once per group", "changes": "after each change"}[aggregation.emit]
    lengths = zip(query.sides, aggregation.reach, strict=True)
    each_side = ", ".join(f"{side} {_age(length)}" for side, length in lengths)
    window = _age(aggregation.reach[0]) if len(set(aggregation.reach)) == 1 else each_side
    return f"the last {window} EVERY {_age(aggregation.every)}"


def _log_lines(log: LogPlan, *, is_result: bool) -> Iterator[str]:
    """Print what is stored of a stream, or of the results of a query."""
    kind = "64-bit key" if log.whole_key else "hashed key, compared"
    owner = f", of query {log.owner}" if log.owner else ""
    yield ""
    counted = ", for windows that count rows" if log.counted else ""
    fed = f", results of query {log.stream}" if is_result else ""
    yield f"Log {log.stream} by {log.order} ({kind if log.key else 'no key'}{counted}){owner}{fed}"
    own = [each for each in log.columns if not is_link_column(each)]
    yield f"  columns     {', '.join(own) or '(none)'}"
    for bit, predicate in enumerate(log.predicates):
        yield f"  bit {bit:<7} {predicate}"


def _group_lines(group: Group, plan: Plan) -> Iterator[str]:
    """Print a chain: its slices on either side, or its buffers, and who reads each."""
    keys = " and ".join(_equalities(group))
    yield ""
    named = " ⋈ ".join(f"{each.log.stream} {each.side}" for each in group.inputs)
    yield f"Chain {named} on {keys or 'the window alone'}"
    yield from _part_lines(group)
    yield from buffer_lines(plan, group) if group.oblivious else _slice_lines(group)
    yield "  queries"
    for member in group.members:
        query = member.query
        conditions = [f"{side}: {each}" for side in query.sides for each in query.predicates(side)]
        conditions += list(query.residual)
        suffix = f"  where {' and '.join(conditions)}" if conditions else ""
        order = f", in order ({query.order})" if query.ordered else ""
        yield f"    {query.name:<12} {show_window(group, query.name):<28} -> {query.sink.kind}{order}{suffix}"


def _slice_lines(group: Group) -> Iterator[str]:
    """Print the slices on either side, and who reads each."""
    for side, log in zip(group.sides, group.logs, strict=True):
        slices = group.slices(side)
        if slices:
            yield f"  state of {log.stream} ({side})"
        for number, piece in slices:
            readers = ", ".join(_reader(group, name, piece) for name in group.chain.readers[number])
            yield f"    {show_ages(group, piece):<22} -> {readers or '(nobody)'}"


def _part_lines(group: Group) -> Iterator[str]:
    """Say which rows a join takes, where it does not take all, and where selections come last."""
    for side in group.sides:
        part = group.part(side)
        words = [*part.all_of, *(f"not ({' and '.join(each)})" for each in part.none_of)]
        if words:
            yield f"  rows of {side}   {' and '.join(words)}"
    if group.filter_last:
        yield "  every row is held for the longest window, selections come after the join"


def _reader(group: Group, name: str, piece: Slice) -> str:
    """Name a reader of a slice; one whose window ends inside it, with the age up to which it reads."""
    query = next(member.query for member in group.members if member.query.name == name)
    if query.graph is not None:
        return f"{name} (to {_age(query.window.hi)})" if query.window.hi < piece.range.hi else name
    window, length = query.window, _lengths(query)[SIDES.index(piece.side)]
    inside = window.hi < piece.range.hi if piece.side == "l" else window.lo > piece.range.lo
    upto = show_age(length, rows=True) if group.counts(piece.side) else _age(length)
    return f"{name} (to {upto})" if inside else name


def show_window(group: Group, name: str) -> str:
    """Print a query's window per side."""
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
    return f"{since} r - l {until}"


def _equalities(group: Group) -> Iterator[str]:
    """Write what must be equal in the rows of a result."""
    yield from (f"l.{key.left} = r.{key.right}" for key in group.signature.keys)
    for edge in group.signature.edges:
        yield f"{group.sides[edge.first]}.{edge.key.left} = {group.sides[edge.second]}.{edge.key.right}"


def _show_limits(graph: JoinGraph, rows: tuple[bool, ...]) -> str:
    """Print the window of a join of many streams: as one where all limits are, else by input where they are its own."""
    if graph.even and len(set(rows)) == 1:
        return f"WINDOW {graph.spread} ROWS" if rows[0] else f"WINDOW {_age(graph.spread)}"
    own = [{limit for j, limit in enumerate(row) if i != j} for i, row in enumerate(graph.limits)]
    if all(len(each) == 1 for each in own):
        return ", ".join(
            f"{part.side} [{f'ROWS {limit}' if counts else _range(limit)}]"
            for part, (limit,), counts in zip(graph.inputs, own, rows, strict=True)
        )
    return ", ".join(
        f"{graph.inputs[j].side} - {graph.inputs[i].side} < {_age(limit)}"
        for i, row in enumerate(graph.limits)
        for j, limit in enumerate(row)
        if i != j and limit < FOREVER
    )


def _range(length: int) -> str:
    return f"RANGE {_age(length)}" if length < FOREVER else "UNBOUNDED"


def _show_counts(query: Query) -> str:
    """Print a window that counts rows on some side: as one where both sides are alike."""
    left, right = _lengths(query)
    if query.rows == (True, True) and left == right:
        return f"WINDOW {left} ROWS"
    words = ("ROWS" if rows else "RANGE" for rows in query.rows)
    lengths = (
        str(each) if rows else _age(each) for rows, each in zip(query.rows, (left, right), strict=True)
    )
    return ", ".join(
        f"{side} [UNBOUNDED]" if length == "for ever" else f"{side} [{word} {length}]"
        for side, word, length in zip(SIDES, words, lengths, strict=True)
    )


def _lengths(query: Query) -> tuple[int, int]:
    """Give the length of either side's window, in microseconds or rows."""
    return query.window.hi, (0 if query.rows[1] else 1) - query.window.lo


def show_cut(group: Group, cut: int) -> str:
    """Print where a chain is cut."""
    side: Side = "l" if cut > 0 else "r"
    if cut and group.counts(side):
        return f"{show_age(abs(cut), rows=True)} of {group.log(side).stream}"
    return f"r - l = {show_difference(cut)}"


def show_difference(difference: int) -> str:
    """Print a difference with its sign."""
    return f"-{_age(-difference)}" if difference < 0 else _age(difference)


def _just_above(difference: int) -> bool:
    """Recognise the microsecond by which a bound is strict: ``> 5 s`` is from 5 s and 1 µs on."""
    return difference % 1000 == 1


def show_ages(group: Group, piece: Slice) -> str:
    """Print the ages of a slice: of time with a square bracket where the end belongs to it, or in rows."""
    start, end = group.ages(piece)
    if group.counts(piece.side):
        return f"[{start:,}, {show_age(end, rows=True)})"
    since = f"({_age(start - 1)}" if _just_above(start) else f"[{_age(start)}"
    until = f"{_age(end - 1)}]" if _just_above(end) else f"{_age(end)})"
    return f"{since}, {until}"


def show_age(age: int, *, rows: bool = False) -> str:
    """Print an age: of time, or a number of rows.

    >>> show_age(10_000_000), show_age(1000, rows=True), show_age(1, rows=True)
    ('10 s', '1,000 rows', '1 row')
    """
    return f"{age:,} {'row' if age == 1 else 'rows'}" if rows else show_duration(age)


def _age(age: int) -> str:
    """Print an age, or say that there is no end to it."""
    return "for ever" if age >= FOREVER else show_age(age)


def plan_json(plan: Plan) -> str:
    """Write the plan as JSON, for tools."""
    return json.dumps(
        {
            "logs": [_log_json(log, plan) for log in plan.logs],
            "chains": [_group_json(g, plan) for g in plan.groups],
            "panes": [_pane_json(each) for each in _pane_sets(plan)],
            "promises": [_promise_json(each, plan) for each in all_indexes(plan)],
        },
        indent=2,
    )


def _promise_json(index: PromiseIndex, plan: Plan) -> dict[str, Any]:
    return {
        "stream": index.stream,
        "key": [part.expression for part in index.key],
        "made_by": [stream.name for stream, _ in promises_about(plan.streams, index.stream)],
        "end_rows_of": ended_rows(plan, index),
    }


def _log_json(log: LogPlan, plan: Plan) -> dict[str, Any]:
    is_result = plan.stream(log.stream).results is not None
    return {
        "id": log.id,
        "stream": log.stream,
        **({"results_of": log.stream} if is_result else {}),
        "key": [part.expression for part in log.key],
        "columns": list(log.columns),
        "predicates": list(log.predicates),
    }


def _group_json(group: Group, plan: Plan) -> dict[str, Any]:
    return {
        "id": group.id,
        **_inputs_json(group),
        **({"buffers": buffers_json(plan, group)} if group.oblivious else {"slices": _slices_json(group)}),
        "queries": [
            {
                "name": member.query.name,
                **_window_json(member.query),
                "levels": list(member.levels),
                **_predicates_json(member.query),
                "residual": list(member.query.residual),
                "sink": member.query.sink.kind,
            }
            for member in group.members
        ],
    }


def _slices_json(group: Group) -> list[dict[str, Any]]:
    return [
        {
            "side": piece.side,
            "ages_rows" if group.counts(piece.side) else "ages_us": list(group.ages(piece)),
            "readers": list(group.chain.readers[number]),
        }
        for number, piece in enumerate(group.chain.slices)
    ]


def _inputs_json(group: Group) -> dict[str, Any]:
    """Name the logs of a group: of two streams the left and the right, of more the logs of each input."""
    if group.is_pair:
        return {"left": group.logs[0].id, "right": group.logs[1].id}
    return {
        "inputs": [{"side": each.side, "logs": [log.id for log in each.logs]} for each in group.inputs],
        "on": list(_equalities(group)),
    }


def _predicates_json(query: Query) -> dict[str, Any]:
    if query.graph is None:
        sides = (("left", query.left_predicates), ("right", query.right_predicates))
        return {f"{name}_predicates": list(each) for name, each in sides}
    return {"predicates": {side: list(query.predicates(side)) for side in query.sides}}


def _pane_json(panes: PaneSet) -> dict[str, Any]:
    return {
        "id": panes.id,
        "emit": panes.emit,
        "pane_us": panes.pane,
        "of": "rows" if panes.by_rows else "pairs",
        "readers": list(panes.readers),
    }


def _window_json(query: Query) -> dict[str, Any]:
    """Describe a window: the range of differences, or the length of either side where one counts rows, or none."""
    if query.oblivious:
        return {"window": None}
    if query.graph is not None:
        return {"limits_us": [list(row) for row in query.graph.limits]}
    if not query.signature.counted:
        return {"window_us": [query.window.lo, query.window.hi]}
    words = ("rows" if rows else "us" for rows in query.rows)
    lengths = zip(("left", "right"), words, _lengths(query), strict=True)
    return {"windows": {name: {word: length} for name, word, length in lengths}}


def plan_mermaid(plan: Plan) -> str:
    """Draw the plan as a Mermaid flow chart: logs, slices, queries."""
    lines = ["flowchart LR"]
    for number, log in enumerate(plan.logs):
        lines.append(f"  L{number}[({_label(f'{log.stream} by {log.order}')})]")
    logs = {log.id: number for number, log in enumerate(plan.logs)}
    queries = {query.name: number for number, query in enumerate(plan.queries)}
    for g, group in enumerate(plan.groups):
        lines += _group_mermaid(group, g, logs, queries)
    for number, log in enumerate(plan.logs):
        if plan.stream(log.stream).results is not None:
            lines.append(f"  Q{queries[log.stream]} ==> L{number}")
    for number, panes in enumerate(_pane_sets(plan)):
        lines.append(f"  P{number}[/{_label(f'panes of {_age(panes.pane)}' if panes.pane else 'groups')}/]")
        lines += [f"  P{number} ==> Q{queries[name]}" for name in panes.readers]
    return "\n".join(lines) + "\n"


def _label(text: str) -> str:
    """Quote a text for Mermaid, to which a bare word such as ``end`` can be syntax."""
    return f'"{text.replace(chr(34), "#quot;")}"'


def _group_mermaid(group: Group, g: int, logs: dict[str, int], queries: dict[str, int]) -> Iterator[str]:
    """Draw one chain: each side's slices in a row, and an arrow to each reader."""
    for side, log in zip(group.sides, group.logs, strict=True):
        before = f"L{logs[log.id]}"
        for number, piece in group.slices(side):
            node = f"S{g}_{number}" if group.is_pair else f"S{g}_{side}_{number}"
            state = "buffer, no window" if group.oblivious else show_ages(group, piece)
            yield f"  {before} --> {node}[{_label(f'{log.stream} {state}')}]"
            for reader in group.chain.readers[number]:
                yield f"  {node} -.-> Q{queries[reader]}(({_label(reader)}))"
            before = node
