"""Join: backfill new queries, then advance slices by one unit per group.

In:  the context of turns.  Out: ``backfill`` and ``unit`` commits.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.engine.runners.runner import Job, counted
from penstock.engine.sinks.routes import CountRoute, TableRoute
from penstock.engine.spark.failed_queries import QueriesFailedError, find_failed_queries
from penstock.engine.stages.many_plan import exploding
from penstock.engine.stages.next_unit import Advance, next_advance
from penstock.engine.stages.seal import row_spans, sealed_until
from penstock.engine.stages.turn_context import UnitDone
from penstock.engine.stages.unit_commit import merge_outputs, unit_output
from penstock.engine.tasks.join import FoldTask, JoinTask
from penstock.engine.tasks.route_pairs import UnitReport
from penstock.engine.views.memory import refuse_large_batch
from penstock.engine.views.step_size import furthest
from penstock.engine.views.waiting import waiting_rows
from penstock.plan.group import subgroup
from penstock.reporting import Logger
from penstock.schedulers import LargestWindowOnly
from penstock.state.commits import Backfilled, CommitOutput, UnitJoined
from penstock.state.values import Cursor

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from penstock.engine.sinks.pair_batch import Delivery
    from penstock.engine.stages.turn_context import TurnContext
    from penstock.engine.stages.unit_planner import UnitPlanner
    from penstock.engine.tasks.join import UnitSpec
    from penstock.plan.group import Group
    from penstock.state.ledger import Ledger

_log = Logger(__name__)


def join(context: TurnContext) -> None:
    """Backfill new queries, and advance every group by one unit; stop queries that cannot be evaluated."""
    try:
        catch_up(context)
        for group in context.plan.groups:
            if context.is_behind(group):
                advance(context, group)
                if context.is_wanted():
                    return
    except QueriesFailedError as error:
        context.go_on_without(error.failures, error.__cause__)


def align_cursors(context: TurnContext, without: Iterable[str] = ()) -> None:
    """Advance all slices to the newest cursor, and groups that divide a log's rows to the newest group."""
    ledger, families = context.ledger, context.plan.families
    context.targets = {
        group.id: furthest(group, ledger, families[group.id].groups)
        for group in context.plan.groups
        if not group.signature.counted
    }
    bring_up(context, context.plan.groups, without)


def bring_up(context: TurnContext, groups: Iterable[Group], without: Iterable[str] = ()) -> None:
    """Advance groups to the end of their streams, new queries first.

    Nothing is evaluated or delivered for queries in `without`: they have failed.
    """
    context.without = frozenset(without)
    catch_up(context)
    context.joins_all = True
    try:
        for group in groups:
            while context.is_behind(group):
                advance(context, group)
    finally:
        context.joins_all = False


def catch_up(context: TurnContext) -> None:
    """Join, for new queries, the rows that were there before them: a unit in each group, one commit."""
    lacking = [(group, names) for group in context.plan.groups if (names := context.lacking(group))]
    if not lacking:
        return
    outputs = [_past(context, group, names) for group, names in lacking]
    lack = {name for _, names in lacking for name in names}
    queries = tuple(query.name for query in context.plan.queries if query.name in lack)
    context.store.commit(Backfilled(queries, merge_outputs(outputs)))


def _past(context: TurnContext, group: Group, names: list[str]) -> CommitOutput:
    """Join all earlier rows for some queries of a group."""
    ledger = context.ledger
    # a backfill runs before the group advances, so this is the cursor at which the queries came
    until, horizon = ledger.groups[group.id].cursors[0], ledger.groups[group.id].watermarks[0]
    small = subgroup(group, names)
    unit = f"{group.id[-8:]}-{ledger.version:06d}-past"
    # nothing of the first input is joined, and all of the others
    since = (Cursor((0,) * len(group.inputs)), *((until,) * (len(group.inputs) - 1)))
    planner = context.planner(ledger)
    task = planner.task(small, since, until, (None, horizon)).without_arrivals()
    past = f"v{ledger.version}-past"
    table = next((table for table in ledger.tables.get(group.id, ()) if table.id == past), None)
    delivery = planner.delivery(small, unit, table)
    label = f"backfill of {', '.join(names)}"
    reports = _run(planner, small, task, delivery, label) if task.inputs[0].new else []
    if delivery.of_rows().targets:
        nothing = (Cursor((0,) * len(group.inputs)),) * len(group.inputs)
        everything = planner.task(small, nothing, until, (None, horizon)).without_arrivals()
        reports += _fold(planner, everything, delivery, label)
    return unit_output(small, unit, reports, table, context.without)


def advance(context: TurnContext, group: Group) -> None:
    """Run one unit of the slices that are due, and commit it."""
    started, ledger = time.monotonic(), context.ledger
    step = _next_step(context, group, ledger)
    unit = f"{group.id[-8:]}-{ledger.version:06d}-{ledger.groups[group.id].units:08d}"
    before, horizon = ledger.groups[group.id].watermarks[0], sealed_until(group, ledger)
    since = (step.since,) * len(group.inputs)
    planner = context.planner(ledger)
    task = planner.task(group, since, step.until, (before, horizon))
    parts = context.parts_for(group, task.new_rows)
    task = replace(task, levels=step.runs(group.chain), parts=parts)
    if group.oblivious:
        refuse_large_batch(group, task.new_segments, ledger, context.memory.budget)
    table = ledger.table(group.id)
    delivery, reports = planner.delivery(group, unit, table, task), list[UnitReport]()
    if any(part.new for part in task.inputs):
        label = _label(group, step)
        reports = _run(planner, group, task, delivery, label)
        if task.has_innermost:
            reports += _fold(planner, task, delivery, label)
    counted = group.signature.counted
    joined = UnitJoined(
        group=group.id,
        cursors=step.cursors,
        watermarks=(horizon,) * len(group.inputs) if counted else step.watermarks,
        pairs=sum(report.pairs for report in reports),
        output=unit_output(group, unit, reports, table, context.without, arrived=task.arrived),
        spans=row_spans(group, ledger, context.runner, horizon),
        rows=task.new_rows,
        seconds=time.monotonic() - started,
        stations=step.stations if len(set(step.cursors)) > 1 else (),
        fanouts={step: seen for report in reports for step, seen in report.fanouts.items()},
        mapped_bytes=task.mapped_bytes,
    )
    context.store.commit(joined)
    context.note_pairs(group, task.new_rows, joined.pairs)
    _warn_of_keys(context, group, joined)
    context.unit_seconds = time.monotonic() - started
    rows = sum(ledger.stream(name).rows for name in set(group.streams))
    rows -= waiting_rows(group, ledger, step.cursors)
    for watcher in context.watchers:
        watcher(UnitDone(group.id, unit, rows, joined.pairs, context.unit_seconds))


def _warn_of_keys(context: TurnContext, group: Group, joined: UnitJoined) -> None:
    """Log, once per key, keys whose rows multiply the results."""
    for key, sentence in exploding(group, joined.fanouts):
        if key not in context.warned:
            context.warned.add(key)
            _log.warning("%s: %s", group.title, sentence)


def _next_step(context: TurnContext, group: Group, ledger: Ledger) -> Advance:
    """Choose the slices that advance; all at once where windows count rows."""
    policy = LargestWindowOnly.name if group.signature.counted else context.scheduler
    goal = context.goal(group, ledger)
    step = next_advance(group, ledger, policy, goal)
    if step is None:  # only the horizon of windows that count rows has moved
        until, state = goal[0], ledger.groups[group.id]
        return Advance(tuple(range(len(state.cursors))), until, until, state.cursors, state.all_stations)
    if step.overdue and step.overdue != context.overdue.get(group.id, ""):
        _log.warning(
            "query %s is behind by more than its max_lag, and is served first: more arrives than can be joined",
            step.overdue,
        )
    context.overdue[group.id] = step.overdue
    return step


def _label(group: Group, step: Advance) -> str:
    """Describe a unit: its batches, its streams, and its number of queries."""
    first, last = min(step.since.batches), max(step.until.batches) - 1
    batches = f"batch {last}" if first >= last else f"batches {first}–{last}"
    return f"{' with '.join(group.streams)}, {batches}, {counted(len(group.members), 'query', 'queries')}"


def _run(
    planner: UnitPlanner, group: Group, task: UnitSpec, delivery: Delivery, label: str
) -> list[UnitReport]:
    """Run a unit's job; if it fails, find the queries that cannot be evaluated."""
    if delivery.of_rows().targets:  # queries that fold rows may have wider windows
        task = task.within(*delivery.of_pairs().levels)
        if not task.levels:
            return []
    delivery = replace(delivery.of_pairs(), arrived=task.arrived)

    def run(delivery: Delivery) -> list[UnitReport]:
        tasks = [JoinTask(task, delivery, part) for part in range(task.parts)]
        backend, job = planner.backend, Job("join", f"join {label}")
        pairs = planner.expressions(group, delivery)
        if pairs is None:
            return backend.runner.map(tasks, job)
        return backend.runner.map_sql(tasks, backend.pair_sql(pairs), job)

    try:
        return run(delivery)
    except Exception as error:
        computed = [target.query for target in delivery.targets if target.computed]
        if failures := find_failed_queries(computed, lambda names: run(_without_output(delivery, names))):
            raise QueriesFailedError(failures) from error
        raise


def _without_output(delivery: Delivery, names: Collection[str]) -> Delivery:
    """Return a delivery that evaluates the expressions of some queries and only counts their results."""
    targets = tuple(
        target if isinstance(target.route, TableRoute) else replace(target, route=CountRoute())
        for target in delivery.targets
        if target.query in names
    )
    return replace(delivery, targets=targets, table="")


def _fold(planner: UnitPlanner, task: UnitSpec, delivery: Delivery, label: str) -> list[UnitReport]:
    """Fold the new rows of a unit for queries that need no pairs, if there are any."""
    rows = delivery.of_rows()
    if not rows.targets:
        return []
    tasks = [FoldTask(task, rows, part) for part in range(task.parts)]
    return planner.backend.runner.map(tasks, Job("join", f"fold {label}"))
