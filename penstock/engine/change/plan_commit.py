"""The commit of a plan: where its groups continue, what its queries start with, how its pairs are stored.

In:  the ledger, the plan before and the plan to come.  Out: the ``plan`` commit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from penstock.engine.change.backfill import after_all, goes_on, group_start, start_of
from penstock.engine.change.diff import find_change
from penstock.engine.outputs.pair_columns import table_schema
from penstock.engine.sinks.table import is_view
from penstock.engine.views.plans import stored_shapes
from penstock.engine.views.waiting import is_waiting
from penstock.errors import InputError
from penstock.plan.group import Group, subgroup
from penstock.plan.panes import queries_by_rows, share_panes
from penstock.plan.promises import remembered
from penstock.sql.source_options import without_stream_secrets
from penstock.state.commits import PlanServed
from penstock.state.ledger_fold import fold
from penstock.state.tables import Definition, StoredTable
from penstock.state.values import Cursor, Layout, ServedPlan, StreamState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.engine.change.diff import Change
    from penstock.plan.build import Plan
    from penstock.plan.panes import PaneSet
    from penstock.plan.stored import LogPlan
    from penstock.state.commits import Released
    from penstock.state.ledger import Ledger
    from penstock.state.values import Replacement


Upgrades = Mapping[str, "Replacement"]
"""By log: the segments that are replaced, and the same rows under the log's new layout."""


def upgraded(ledger: Ledger, plan: Plan, upgrades: Upgrades) -> Ledger:
    """Return the ledger with new layouts of the logs and the upgraded segments."""
    layouts, logs = dict(ledger.layouts), dict(ledger.logs)
    for log in new_layouts(plan, ledger):
        fresh = {ledger.layout(log.id) + 1: Layout(log.columns, log.predicates)}
        layouts[log.id] = {**layouts.get(log.id, {}), **fresh}
    for name, new in upgrades.items():
        rest = (segment for segment in ledger.segments(name) if segment.name not in set(new.removed))
        logs[name] = (*new.added, *rest)
    return replace(ledger, layouts=layouts, logs=logs)


def plan_commit(
    plan: Plan,
    before: Plan | None,
    change: Change,
    ledger: Ledger,
    upgrades: Upgrades | None = None,
    *,
    release: Released | None = None,
    parts: int = 1,
) -> PlanServed:
    """Return the commit of a plan.

    `release` ends the sequences of altered queries.  It is part of the same commit: after a crash, a query that keeps
    its old definition must not have delivered anything early.
    """
    if before is not None:
        _refuse_repeats(plan, before, change, ledger)
    ledger = ledger if release is None else fold(ledger, release)
    begun = _begun_streams(plan, before, ledger)
    ledger = replace(ledger, streams={**ledger.streams, **begun})
    then = upgraded(ledger, plan, upgrades or {})
    starts = {
        name: start_of(group, member, before, change, then)
        for name in change.added + change.altered + change.moved + change.resumed
        for group, _, member in [plan.find(name)]
    }
    lacking = [name for name, state in starts.items() if state.backfill]
    lacking += [query.name for query in plan.queries if ledger.query(query.name).backfill]
    return PlanServed(
        plan=served(plan),
        reason=str(change) if before else "start",
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        logs=tuple(log.id for log in plan.logs),
        rolls={stream: after_all(stream, ledger) for stream in plan.counted},
        births={log.id: after_all(log.stream, ledger) for log in plan.logs if log.id not in ledger.layouts},
        layouts={log.id: Layout(log.columns, log.predicates) for log in new_layouts(plan, ledger)},
        upgrades=dict(upgrades or {}),
        groups={group.id: group_start(group, ledger, before) for group in plan.groups},
        queries=starts,
        release=release,
        ordered={
            query.name: ledger.version + 1 if query.name in starts else ledger.hold(query.name).plan_version
            for query in plan.queries
            if query.ordered
        },
        panes=_pane_sets(plan, before, change, ledger, parts),
        tables={group.id: _tables(group, plan, ledger, lacking) for group in plan.groups},
        writes={group.id: _written(group, plan, ledger) for group in plan.groups},
        promises=tuple(remembered(plan)),
        watched=plan.watched,
        streams=begun,
    )


def _begun_streams(plan: Plan, before: Plan | None, ledger: Ledger) -> dict[str, StreamState]:
    """Return the start of result streams that are read from now on: earlier results are not read.

    The position of a result is its number among the query's results, unless an earlier query of its name had more.
    """
    standing = {stream.name for stream in before.results} if before else set()
    begun = {}
    for stream in plan.results:
        state, found = ledger.stream(stream.name), ledger.query(stream.name).results
        if stream.name not in standing and found > state.arrivals:
            begun[stream.name] = replace(state, arrivals=found, newest=found - 1, watermark=found - 1)
    return begun


def _pane_sets(
    plan: Plan, before: Plan | None, change: Change, ledger: Ledger, parts: int
) -> dict[str, PaneSet]:
    """Return the pane sets of aggregate queries; a query that answers something else begins anew."""
    standing = {name: state.panes for name, state in ledger.panes.items()}
    anew = [
        name
        for name in change.added + change.altered + change.resumed
        if not (before and name in change.altered and goes_on(plan.query(name), before.query(name)))
    ]
    by_rows = queries_by_rows(plan)
    return share_panes(plan.queries, standing, anew, version=ledger.version + 1, parts=parts, by_rows=by_rows)


def served(plan: Plan) -> ServedPlan:
    """Return what a state serves by a plan, without the secrets of its sources."""
    return ServedPlan(
        streams=tuple(map(without_stream_secrets, plan.streams)),
        queries=plan.queries,
        strategy=plan.strategy,
        cuts=plan.cuts,
        stopped=plan.stopped,
        spark_settings=plan.spark_settings,
    )


def _tables(group: Group, plan: Plan, ledger: Ledger, lacking: Iterable[str]) -> tuple[StoredTable, ...]:
    """Return the tables of pairs that a group begins: none if it continues its present one.

    Pairs of a backfill are stored apart, and numbered by the backfilled queries alone.
    """
    now = _table(group, plan, ledger.version + 1)
    tables = [now] if _written(group, plan, ledger) == now.id else []
    if set(lacking) & {member.query.name for member in group.members}:
        tables.append(_table(subgroup(group, lacking), plan, ledger.version + 1, "-past"))
    return tuple(table for table in tables if table.members)


def _written(group: Group, plan: Plan, ledger: Ledger) -> str:
    """Return the table that a group's units write to: the present one if it fits; none without a reader."""
    now, current = _table(group, plan, ledger.version + 1), ledger.table(group.id)
    if current is not None and current.same_reading(now):
        return current.id
    return now.id if now.members else ""


def is_stored_anew(plan: Plan, ledger: Ledger) -> bool:
    """Return whether a group would begin another table of pairs."""
    return any(_written(group, plan, ledger) != ledger.writes.get(group.id, "") for group in plan.groups)


def _refuse_repeats(plan: Plan, before: Plan, change: Change, ledger: Ledger) -> None:
    """Refuse to change a query from time to rows where rows that it has joined wait to be counted for others."""
    for name in change.altered:
        group = plan.find(name)[0]
        state = ledger.groups.get(group.id)
        if before.find(name)[0].signature.counted or not group.signature.counted or state is None:
            continue
        horizon = state.watermarks[0]
        segments = [segment for log in group.logs for segment in ledger.segments(log.id)]
        if any(horizon is None or segment.max_t >= horizon for segment in segments):
            raise InputError(
                f"query {name} cannot change to counting rows now: rows that it has joined by time are not counted "
                "yet, and it would get their pairs twice. Drop it and create it again"
            )


def new_layouts(plan: Plan, ledger: Ledger) -> list[LogPlan]:
    """List the logs that store something else from now on."""
    stored = stored_shapes(ledger)
    return [log for log in plan.logs if stored.get(log.id) != (log.columns, log.predicates)]


def is_in_step(plan: Plan, before: Plan | None, ledger: Ledger) -> bool:
    """Return whether the plan can change here; if not, the present groups must catch up first.

    All slices of a chain must be at one cursor, because the next chain may be cut elsewhere.  Joins that divide the
    rows of one log must be equally far, because a change may move a row from one to another.  A query that gets other
    state must have joined all ingested rows.  So must an altered query whose input waits: rows ingested so far count by
    its old definition.
    """
    if before is None:
        return True
    progress: dict[tuple[object, ...], set[object]] = {}
    changed = bool(find_change(before, plan)) or plan.cuts != before.cuts
    if changed and any(ledger.groups[group.id].slices_apart for group in before.groups):
        return False
    for group in before.groups:
        divided = progress.setdefault((group.signature, *(log.id for log in group.logs)), set())
        divided.add(_progress(group, ledger))
    return all(len(places) <= 1 for places in progress.values()) and not must_join_all(plan, before, ledger)


def must_join_all(plan: Plan, before: Plan, ledger: Ledger) -> bool:
    """Return whether all ingested rows must be joined before the plan changes, however many there are."""
    change = find_change(before, plan)
    waiting = any(is_waiting(before, ledger, before.find(name)[0]) for name in change.altered)
    return bool(change.moved) or waiting


def _progress(group: Group, ledger: Ledger) -> tuple[Cursor, int | None]:
    """Return where a group is: its cursor, and its horizon if it counts rows.

    If all ingested rows are joined, the time up to which waiting input was joined does not matter.
    """
    state = ledger.groups[group.id]
    cursor, ends = state.cursors[0], tuple(ledger.stream(log.stream).batches for log in group.logs)
    reached = Cursor(ends) if cursor.batches == ends else cursor
    return reached, state.watermarks[0] if group.signature.counted else None


def _table(group: Group, plan: Plan, version: int, suffix: str = "") -> StoredTable:
    """Describe how to read the pairs that a group stores under this plan.

    Where Spark SQL decides about pairs, they are stored with the set of their readers, since the decision is not
    repeated.
    """
    streams = tuple(plan.stream(name) for name in group.streams)
    views = {
        member.query.name: Definition(
            number,
            member.levels,
            tuple((output.name, output.expression) for output in member.query.outputs),
            version,
        )
        for number, member in enumerate(group.members)
        if is_view(member.query, streams)
    }
    decided = any(member.query.residual for member in group.members if member.query.name in views)
    with_sets = group.selective or decided
    return StoredTable(
        f"v{version}{suffix}",
        version,
        table_schema(group, streams, with_sets=with_sets),
        with_sets,
        {name: (definition,) for name, definition in views.items()},
    )
