"""The plan for tools: as JSON, and as a Mermaid flow chart.

In:  a `Plan`.  Out: text.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from penstock.plan.plan_text import equalities, pane_sets, show_age, show_ages, window_lengths
from penstock.plan.promises import all_indexes, ended_rows, promises_about
from penstock.sql.bind.arrival import known_multiplicity, known_scrambling

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.plan.build import Plan
    from penstock.plan.group import Group
    from penstock.plan.stored import LogPlan
    from penstock.sql.query import Query


def plan_json(plan: Plan) -> str:
    """Write the plan as JSON."""
    return json.dumps(
        {
            "logs": [_log_json(log, plan) for log in plan.logs],
            "chains": [_group_json(group, plan) for group in plan.groups],
            "panes": [
                {
                    "id": panes.id,
                    "emit": panes.emit,
                    "pane_us": panes.pane,
                    "of": "rows" if panes.by_rows else "pairs",
                    "readers": list(panes.readers),
                }
                for panes in pane_sets(plan)
            ],
            "promises": [
                {
                    "stream": index.stream,
                    "key": [part.expression for part in index.key],
                    "made_by": [stream.name for stream, _ in promises_about(plan.streams, index.stream)],
                    "end_rows_of": ended_rows(plan, index),
                }
                for index in all_indexes(plan)
            ],
        },
        indent=2,
    )


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
    state = {"buffers": _buffers_json(plan, group)} if group.oblivious else {"slices": _slices_json(group)}
    return {
        "id": group.id,
        **_inputs_json(group),
        **state,
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


def _buffers_json(plan: Plan, group: Group) -> list[dict[str, Any]]:
    """Describe the buffer of each input; a number that is not declared is null."""
    return [
        {
            "side": side,
            "stream": name,
            "scrambling": known_scrambling(plan.stream(name)),
            "multiplicity": known_multiplicity(plan.stream(name)),
            "readers": [member.query.name for member in group.members],
        }
        for side, name in zip(group.sides, group.streams, strict=True)
    ]


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
    inputs = [{"side": part.side, "logs": [log.id for log in part.logs]} for part in group.inputs]
    return {"inputs": inputs, "on": list(equalities(group))}


def _predicates_json(query: Query) -> dict[str, Any]:
    if query.graph is None:
        return {
            "left_predicates": list(query.left_predicates),
            "right_predicates": list(query.right_predicates),
        }
    return {"predicates": {side: list(query.predicates(side)) for side in query.sides}}


def _window_json(query: Query) -> dict[str, Any]:
    """Describe a window: the range of differences, the length of either side if one counts rows, or none."""
    if query.oblivious:
        return {"window": None}
    if query.graph is not None:
        return {"limits_us": [list(row) for row in query.graph.limits]}
    if not query.signature.counted:
        return {"window_us": [query.window.lo, query.window.hi]}
    units = ("rows" if rows else "us" for rows in query.rows)
    lengths = zip(("left", "right"), units, window_lengths(query), strict=True)
    return {"windows": {name: {unit: length} for name, unit, length in lengths}}


def plan_mermaid(plan: Plan) -> str:
    """Draw the plan as a Mermaid flow chart: logs, slices, queries."""
    logs = {log.id: number for number, log in enumerate(plan.logs)}
    queries = {query.name: number for number, query in enumerate(plan.queries)}
    lines = ["flowchart LR"]
    lines += [f"  L{logs[log.id]}[({_label(f'{log.stream} by {log.order}')})]" for log in plan.logs]
    for number, group in enumerate(plan.groups):
        lines += _group_mermaid(group, number, logs, queries)
    for log in plan.logs:
        if plan.stream(log.stream).results is not None:
            lines.append(f"  Q{queries[log.stream]} ==> L{logs[log.id]}")
    for number, panes in enumerate(pane_sets(plan)):
        title = f"panes of {show_age(panes.pane)}" if panes.pane else "groups"
        lines.append(f"  P{number}[/{_label(title)}/]")
        lines += [f"  P{number} ==> Q{queries[name]}" for name in panes.readers]
    return "\n".join(lines) + "\n"


def _label(text: str) -> str:
    """Quote a text for Mermaid, to which a bare word such as ``end`` can be syntax."""
    return f'"{text.replace(chr(34), "#quot;")}"'


def _group_mermaid(group: Group, place: int, logs: dict[str, int], queries: dict[str, int]) -> Iterator[str]:
    """Draw one chain: each side's slices in a row, and an arrow to each reader."""
    for side, log in zip(group.sides, group.logs, strict=True):
        before = f"L{logs[log.id]}"
        for number, piece in group.slices(side):
            node = f"S{place}_{number}" if group.is_pair else f"S{place}_{side}_{number}"
            state = "buffer, no window" if group.oblivious else show_ages(group, piece)
            yield f"  {before} --> {node}[{_label(f'{log.stream} {state}')}]"
            for reader in group.chain.readers[number]:
                yield f"  {node} -.-> Q{queries[reader]}(({_label(reader)}))"
            before = node
