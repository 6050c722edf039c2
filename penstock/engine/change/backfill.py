"""What a query starts with under a new plan: its backfill, and from when on it is complete.

Nothing is moved.  A chain is cut anew where the windows end now.  Its cursor stays, and so do segments, with the
*layout* that each was written by.  A new query is backfilled from the rows that are held::

                       held in the log                 cursor
    ---(removed)--|=====================================|---------- rows to come ------->
                  floor                                 |
    new query      <------ backfill: one unit ---------> <------ the chain, like all --->

`floor` is the event time from which every row that the new query accepts is held for certain: another query that
accepts at least these rows has needed them.  A query is complete from the latest of its floors.

In:  the plan before, the change, and the ledger.  Out: a `QueryState`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.engine.change.diff import meaning
from penstock.engine.views.buffers import buffer_of
from penstock.engine.views.needs import in_time
from penstock.plan.links import POSITION
from penstock.plan.stored import retention
from penstock.sql.query import FOREVER, Sink
from penstock.state.values import Cursor, GroupState, QueryState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.engine.change.diff import Change
    from penstock.plan.build import Plan
    from penstock.plan.group import Group, Member
    from penstock.plan.stored import LogPlan
    from penstock.sql.query import Query, Side
    from penstock.state.ledger import Ledger
    from penstock.state.values import Watermarks


def start_of(group: Group, member: Member, before: Plan | None, change: Change, ledger: Ledger) -> QueryState:
    """Return what a query starts with: its backfill, and from when on it is complete."""
    floors = tuple(_floor(group, member, side, before, ledger) if before else None for side in group.sides)
    if member.query.name in change.altered + change.moved + change.resumed:
        state = ledger.query(member.query.name)
        if before and member.query.name in change.altered and _has_missed_nothing(group, member, before):
            again = _go_on(group, state.held_from, state, ledger)
            since = _counted_from(member.query, before.query(member.query.name), state)
            return replace(
                again, complete_from=state.complete_from, counted_from=since, lacking=state.lacking
            )
        if not _is_counted_anew(member.query, before, change):
            return _go_on(group, floors, state, ledger)
    held = before is not None and any(ledger.segments(log.id) for log in group.all_logs)
    known = ledger.query(member.query.name)
    return QueryState(
        results=known.results,
        backfill=group_start(group, ledger, before).cursors[0] if held else None,
        held_from=floors,
        complete_from=_complete_from(group, floors, ledger),
        born=known.born or ledger.version + 1,
        answered=(answered := _still_answered(member.query, before, known)),
        counted_from=answered or 0,
        lacking=_lacking(group, member, before, ledger),
    )


def _counted_from(query: Query, old: Query, state: QueryState) -> int:
    """Return from which answer an altered `changes` query counts: the next one, if it answers something else."""
    answers_alike = query.aggregation == old.aggregation or state.answered is None
    is_changes = query.aggregation is not None and query.aggregation.emit == "changes"
    return state.counted_from if answers_alike or not is_changes else state.answered or 0


def _still_answered(query: Query, before: Plan | None, state: QueryState) -> int | None:
    """Return how far an aggregate that is computed anew has been answered; None if its answers differ in kind."""
    if before is None or state.answered is None or query.aggregation is None:
        return None
    old = before.query(query.name)
    alike = old.aggregation is not None and old.aggregation.emit == query.aggregation.emit
    return state.answered if alike and old.streams == query.streams else None


def _is_counted_anew(query: Query, before: Plan | None, change: Change) -> bool:
    """Return whether an aggregate is computed anew from the rows held, because its definition has changed."""
    if query.aggregation is None or before is None or query.name in change.moved:
        return False
    if query.name in change.resumed:
        return True  # its panes were removed when it was stopped
    return not goes_on(query, before.query(query.name))


def goes_on(query: Query, old: Query) -> bool:
    """Return whether an altered aggregate query keeps its panes: only its SELECT list and HAVING differ."""
    if query.aggregation is None or old.aggregation is None:
        return query.aggregation is None and old.aggregation is None
    plain = [
        replace(
            meaning(definition),
            options=(),
            sink=Sink(),
            aggregation=replace(definition.aggregation, answers=(), having=""),
        )
        for definition in (query, old)
        if definition.aggregation is not None
    ]
    return plain[0] == plain[1]


def _has_missed_nothing(group: Group, member: Member, before: Plan) -> bool:
    """Return whether an altered query has the same pairs: only its options or its answers differ."""
    if member.query.aggregation is not None:
        return goes_on(member.query, before.query(member.query.name))
    return _is_as_before(group, member, before)


def _is_as_before(group: Group, member: Member, before: Plan) -> bool:
    """Return whether only the options of an altered query differ."""
    then, _, old = before.find(member.query.name)
    same = meaning(replace(old.query, options=())) == meaning(replace(member.query, options=()))
    return same and [log.id for log in then.all_logs] == [log.id for log in group.all_logs]


def _go_on(group: Group, floors: Watermarks, state: QueryState, ledger: Ledger) -> QueryState:
    """Return the state of an altered query: its new definition holds for rows to come, and for a pending backfill."""
    coming = [after_all(log.stream, ledger) for log in group.logs]
    return QueryState(
        results=state.results,
        backfill=state.backfill,
        held_from=floors,
        complete_from=_complete_from(group, floors if state.backfill else coming, ledger),
        born=state.born,
        answered=state.answered,
        counted_from=state.counted_from,
    )


def _complete_from(group: Group, floors: Iterable[int | None], ledger: Ledger) -> int | None:
    """Return the event time from which a query is complete; without a window, the row."""
    if not group.oblivious:
        return _later(floors)
    return _later(
        ledger.stream(log.stream).arrivals if floor is not None and POSITION in log.columns else floor
        for log, floor in zip(group.logs, floors, strict=True)
    )


def _later(moments: Iterable[int | None]) -> int | None:
    """Return the latest of some moments; None if none is given."""
    return max((moment for moment in moments if moment is not None), default=None)


def after_all(stream: str, ledger: Ledger) -> int | None:
    """Return the event time after all that a stream has sent; None if it has sent nothing."""
    newest = ledger.stream(stream).newest
    return None if newest is None else newest + 1


def _floor(group: Group, member: Member, side: Side, before: Plan | None, ledger: Ledger) -> int | None:
    """Return the event time from which every row of one side that a query accepts is held, in each of its logs."""
    logs = group.inputs[group.index(side)].logs
    return _later(_floor_of(log, member, side, before, ledger) for log in logs)


def _floor_of(log: LogPlan, member: Member, side: Side, before: Plan | None, ledger: Ledger) -> int | None:
    """Return the event time from which a log holds every row that a query accepts on one side."""
    coming = after_all(log.stream, ledger)
    if coming is None:
        return None  # the stream has sent nothing yet
    floors = _kept_since(log, member, side, before, ledger)
    if why_no_past(log, member, side, ledger, kept=bool(floors)):
        return coming
    held = None if None in floors else min(floor for floor in floors if floor is not None)
    return _later([held, after_departures(log.id, ledger)])


def _lacking(group: Group, member: Member, before: Plan | None, ledger: Ledger) -> str:
    """Return why rows that are held are not among the results of a new query; empty if they are."""
    logs = [(side, log) for side in group.sides for log in group.inputs[group.index(side)].logs]
    reasons = [
        why_no_past(log, member, side, ledger, kept=bool(_kept_since(log, member, side, before, ledger)))
        for side, log in logs
        if before and after_all(log.stream, ledger) is not None
    ]
    return "; ".join(dict.fromkeys(filter(None, reasons)))


def _kept_since(
    log: LogPlan, member: Member, side: Side, before: Plan | None, ledger: Ledger
) -> list[int | None]:
    """List event times from which a log has kept every row that a query accepts, one for each reason."""
    stream = ledger.stream(log.stream)
    uses = list(before.uses(log.id)) if before else []
    floors = [
        _held_since(other, their, witness, ledger)
        for other, their in uses
        for witness in other.members
        if set(witness.predicates(their)) <= set(member.predicates(side))
    ]
    if before and uses and stream.watermark is not None:
        retained = retention(before.stream(log.stream))
        since = [ledger.births.get(log.id), stream.watermark - (retained or 0) + 1]
        floors += [] if retained is None else [_later(since)]
    return floors


def after_departures(log: str, ledger: Ledger) -> int | None:
    """Return the event time after all rows of a log that promises removed before their window ended."""
    newest = ledger.early_removals[log].newest if log in ledger.early_removals else None
    return None if newest is None else newest + 1


def _held_since(group: Group, side: Side, witness: Member, ledger: Ledger) -> int | None:
    """Return the event time from which a running query has kept all rows it accepts."""
    own = ledger.query(witness.query.name).held_from[group.index(side)]
    if group.oblivious:
        return _later([own, _buffered_since(group, side, ledger)])
    return _later([own, _removed_since(group, side, witness, ledger)])


def _removed_since(group: Group, side: Side, witness: Member, ledger: Ledger) -> int | None:
    """Return the event time from which a window has removed no row; None: it has never removed any.

    A row waits for each of its partners, and is removed with the last that it could meet.
    """
    number, marks = group.members.index(witness), ledger.groups[group.id].watermarks
    own, since = group.index(side), list[int]()
    for partner, mark in enumerate(marks):
        if partner == own:
            continue
        reaches = (
            [witness.reach(side)] if group.is_pair else group.reaches(side, partner)[number : number + 1]
        )
        (far,) = in_time(group, side, ledger, reaches)
        if mark is None or far >= FOREVER:
            return None
        since.append(mark - far + 1)
    return min(since)


def _buffered_since(group: Group, side: Side, ledger: Ledger) -> int | None:
    """Return the event time from which a join without a window has kept all rows; only positions are known."""
    gone = buffer_of(group, ledger).gone[group.index(side)]
    log = group.log(side)
    if not gone:
        return None
    return after_all(log.stream, ledger) if POSITION in log.columns else gone


def predecessors(group: Group, before: Plan | None) -> list[Group]:
    """List the groups of the plan before whose pairs a group continues: itself, or those that joined its logs.

    Where rows are divided among joins in another way than before, groups may be merged or divided.
    """
    groups = before.groups if before else ()
    same = [other for other in groups if other.id == group.id]
    return same or [
        other
        for other in groups
        if other.signature == group.signature
        and [log.id for log in other.all_logs] == [log.id for log in group.all_logs]
    ]


def group_start(group: Group, ledger: Ledger, before: Plan | None) -> GroupState:
    """Return the start of a group: at the cursor of its predecessors, or at the end of its streams, with a backfill."""
    states = [ledger.groups[predecessor.id] for predecessor in predecessors(group, before)]
    streams = [ledger.stream(name) for name in group.streams]
    cursor = states[0].cursors[0] if states else Cursor(tuple(stream.batches for stream in streams))
    watermarks = tuple(stream.watermark for stream in streams)
    starts = _horizons(group, ledger) if group.signature.counted else watermarks
    own = ledger.groups.get(group.id)
    return GroupState(
        cursors=(cursor,) * len(group.chain.readers),
        watermarks=states[0].watermarks if states else starts,
        units=own.units if own else 0,
        pairs=own.pairs if own else 0,
        mixed_layouts=group.mixed_layouts,
        spans=states[0].spans if states else ({},) * len(group.inputs),
        mode=states[0].mode if states else "",
        fanouts=own.fanouts if own else {},
    )


def _horizons(group: Group, ledger: Ledger) -> Watermarks:
    """Return the horizon of a new group that counts rows: both streams are sealed, or begin, there."""
    horizons = [
        ledger.rolls[log.stream].horizon if log.stream in ledger.rolls else after_all(log.stream, ledger)
        for log in group.logs
    ]
    horizon = None if None in horizons else min(horizon for horizon in horizons if horizon is not None)
    return (horizon,) * len(group.inputs)


def why_no_past(log: LogPlan, member: Member, side: Side, ledger: Ledger, *, kept: bool) -> str:
    """Return why the held rows of a log are no past for a query; empty if they are.

    `kept` says whether the log has kept all rows that the query accepts, back to some event time.
    """
    used = {segment.layout for segment in ledger.segments(log.id)}
    layouts = [layout for number, layout in ledger.layouts.get(log.id, {}).items() if number in used]
    for layout in layouts:
        if columns := sorted(member.reads(side) - set(layout.columns)):
            names = f"column {columns[0]}" if len(columns) == 1 else f"columns {', '.join(columns)}"
            were = "was" if len(columns) == 1 else "were"
            return f"{names} of {log.stream} {were} not stored before"
        if predicates := [
            predicate for predicate in member.predicates(side) if predicate not in layout.predicates
        ]:
            return f"{' and '.join(predicates)} was not evaluated before on rows of {log.stream}"
    return "" if kept else f"rows of {log.stream} that it accepts were not all kept before"
