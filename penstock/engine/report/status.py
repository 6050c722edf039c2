"""What the engine is doing, as one value: streams, slices, queries.

In:  the plan and the ledger.  Out: a `Status`, printed by the command line, read by programs, tested as a value.
``docs/status.md`` is made from the classes here and those that they hold (`scripts/status-docs`).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.engine.report.iso_times import iso_time
from penstock.engine.report.late_rows import late_share, late_warning
from penstock.engine.sinks.sink_kind import sink_of
from penstock.engine.stages.many_plan import probe_orders
from penstock.engine.views.buffers import BufferFigures, accuracy_of, buffer_of, disorder, figures
from penstock.engine.views.memory import MemoryFigures, memory_figures
from penstock.engine.views.needs import claim, in_time
from penstock.engine.views.plans import current_plan
from penstock.engine.views.waiting import lag_rows, mode_of
from penstock.errors import InputError
from penstock.plan.links import POSITION
from penstock.plan.order_policy import SYNC
from penstock.plan.promises import indexes_about
from penstock.state.census import rows_per_slice

if TYPE_CHECKING:
    from penstock.plan.build import Plan, Stopped
    from penstock.plan.group import Group
    from penstock.plan.probe_order import LinkStep
    from penstock.sql.query import Query, Side
    from penstock.state.commits import OrderSwitched
    from penstock.state.ledger import Ledger
    from penstock.state.recent import Delays, Fanout
    from penstock.state.segment import Segment
    from penstock.state.values import Layout, PlanChange
    from penstock.state.watch import Miss


@dataclass(frozen=True, slots=True)
class StreamStatus:
    """How far a stream is."""

    name: str
    """Its name, as it is declared."""
    rows: int
    """Rows read so far, with those set aside; punctuations are not among them."""
    batches: int
    """Micro-batches committed so far."""
    watermark: int | None
    """Its newest event time less its lateness, in microseconds; null before its first row."""
    watermark_iso: str | None = field(default=None, kw_only=True)
    """The watermark in ISO 8601; null where it has no event time."""
    late: int
    """Rows set aside because they were behind the watermark."""
    no_time: int
    """Rows set aside because they had no event time."""
    no_key: int
    """Rows with a null in their join key: they match nothing and are not stored."""
    unwanted: int
    """Rows that satisfy the predicates of no query: they are not stored."""
    overtaken: int = 0
    """Rows in time for the stream, but too late for windows that count rows."""
    punctuations: int = 0
    """Punctuations read so far."""
    broken: int = 0
    """Rows set aside because they broke a promise of their stream."""
    purged: int = 0
    """Rows that were stored and let go early, because of promises of their partners."""
    discarded: int = 0
    """Rows that were joined on arrival and not stored, because their partners had promised no more rows for them."""
    dropped: int = 0
    """Rows that were neither joined nor stored, because promises had left them no partner."""
    promises: int = 0
    """Promises about it that are remembered now."""
    forgotten: int = 0
    """Promises about it that were forgotten, because there were too many."""
    timeless: bool = False
    """Whether it has no event time: then `watermark` is the position of its newest row."""
    lateness: int = 0
    """Its declared lateness, in microseconds."""
    late_share: float = 0.0
    """The share of `late` in `rows`, from 0 to 1."""
    behind: int = 0
    """How far the latest of its late rows was behind its newest row, in microseconds; 0 if none was late."""
    warning: str | None = None
    """What to change, in words: set where `late_share` is 0.1 or more."""


@dataclass(frozen=True, slots=True)
class SliceStatus:
    """One slice: the older rows of one stream whose age is in a range, and the queries that read them."""

    stream: str
    """The stream of its rows."""
    side: Side
    """The input of the group that they are of: `l`, `r`, or `i0` and so on of more than two."""
    slice: int
    """Its number in the chain, by difference of event times."""
    youngest: int
    """The age at which rows enter it, in microseconds; in rows where `counted`."""
    oldest: int
    """The age at which rows leave it, in microseconds; in rows where `counted`."""
    readers: tuple[str, ...]
    """The queries that read it."""
    state_rows: int
    """Rows that it holds now."""
    counted: bool = False
    """Whether the stream's windows count rows: then ages are numbers of rows."""


@dataclass(frozen=True, slots=True)
class Response:
    """Response time: from the arrival of a result's second row, in a batch from Spark, to the result's release.

    It is of about the last fifty units.
    """

    average: float
    """The mean, in seconds."""
    p50: float
    """Half of the results took at most so many seconds."""
    p99: float
    """99 % of the results took at most so many seconds."""
    longest: float
    """The longest since the state began, in seconds."""


@dataclass(frozen=True, slots=True)
class QueryStatus:
    """One query: its results so far, and the rows and results that are not delivered yet."""

    name: str
    """Its name, as it was written."""
    group: str
    """The id of its group, the first where it has several; empty if it was stopped."""
    sink: str
    """Where its results go: `table`, `parquet`, `callback`, `console` or `noop`."""
    results: int
    """Results committed so far; with `emit = 'changes'`, changes."""
    lag_rows: int
    """Rows that are ingested and not joined yet."""
    complete_from: int | None = None
    """Every result of rows from this event time on is delivered, in microseconds; null: from the beginning.

    Without a window it is the position of a row in each stream."""
    complete_from_iso: str | None = field(default=None, kw_only=True)
    """`complete_from` in ISO 8601; null from the beginning, and without a window."""
    held: int = 0
    """Results that wait for their turn, because it wants them in order."""
    response: Response | None = None
    """How long its results took lately; null before the first."""
    output: int = 0
    """Results that are committed and have not reached their sink."""
    order: str = "none"
    """Its order policy; after a colon the policy in force now, if that is another one."""
    disordered: int = 0
    """Results that came out of order, of rows of a stream that had been left out as idle."""
    lacking: str = ""
    """Why it is not complete for the rows that were held when it came; empty if it is."""
    failed: str | None = None
    """Why and when it was stopped, if it could not be evaluated; null if it runs."""
    emit: str = ""
    """When it answers, if it is an aggregate: `sliding`, `final` or `changes`; else empty."""
    groups_held: int = 0
    """Entries of groups and panes that are kept for its answers, and for those of queries that share them."""
    answers_waiting: int = 0
    """Of those, entries that are in no answer yet."""
    accuracy: float | None = None
    """Without a window: the estimated share of results found, of those that exist over all rows that have arrived.

    It is 1 only if no result was missed.
    """
    missed: float = 0.0
    """Without a window: about how many results were missed; the number may be off by `missed_error`."""
    missed_error: float = 0.0
    """By how many results `missed` may be off."""
    misses: tuple[Miss, ...] = ()
    """Without a window: when results were missed, and whose rows came later than was known or were set aside."""
    buffers: tuple[BufferFigures, ...] = ()
    """Where it has no window: what its streams are like, and how many rows of each are kept."""
    disorder: tuple[str, ...] = ()
    """Without a window: which streams do not follow the order that they declare, and what to do about it."""
    memory: MemoryFigures | None = None
    """Where it has no window: its memory strategy, what it takes, and what waits for that; else null."""


@dataclass(frozen=True, slots=True)
class ProbeStep:
    """One step of a probe order: from rows joined so far to the rows of a stream, by a key."""

    stream: str
    """The stream whose rows are looked up."""
    side: Side
    """Its input of the group: `i0`, `i1` and so on."""
    key: str
    """The key by which they are looked up; empty if by time alone."""
    fanout: float | None
    """How many rows were found for each row lately, on average; null before any was counted."""
    most: int = 0
    """The most rows that one row found, at the last look."""
    most_key: str = ""
    """The key of that row."""


@dataclass(frozen=True, slots=True)
class ProbeOrder:
    """In which order the new rows of a stream look for their partners."""

    stream: str
    """The stream of the new rows."""
    side: Side
    """Its input of the group: `i0`, `i1` and so on."""
    steps: tuple[ProbeStep, ...]
    """The other inputs, in the order in which they are probed."""


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """One group of queries over the same streams and join condition, with their shared state."""

    id: str
    """Its id, by which queries name it."""
    slices: tuple[SliceStatus, ...]
    """The slices of its chain."""
    units: int
    """Units of work committed since the group began."""
    pairs: int
    """Pairs of rows joined since the group began."""
    state_rows: int
    """Rows that its join holds for partners to come."""
    stored_rows: int
    """Rows in the files of its streams' logs, with those that wait to be removed."""
    segments: int
    """Files of its streams' logs."""
    unshared_rows: int
    """Rows that its queries would hold if each ran alone."""
    window_rows: int = 0
    """Rows that its windows alone would hold, about: `state_rows` and the rows that promises have let go early."""
    orders: tuple[ProbeOrder, ...] = ()
    """Where it joins more than two streams: how the new rows of each look for partners."""


@dataclass(frozen=True, slots=True)
class Status:
    """Everything at one moment."""

    streams: tuple[StreamStatus, ...]
    """The streams that are read, and the results of queries that other queries read."""
    groups: tuple[GroupStatus, ...]
    """The groups of queries."""
    queries: tuple[QueryStatus, ...]
    """The queries, also those that were stopped."""
    strategy: str = "mem-opt"
    """How queries share: the value of `SET strategy`."""
    changes: tuple[PlanChange, ...] = ()
    """The last changes of plan, the latest at the end; at most 32."""
    switches: tuple[OrderSwitched, ...] = ()
    """The last times that adaptive queries changed what waits, the latest at the end; at most 32."""
    state_rows: int = 0
    """Rows that all joins hold."""
    window_rows: int = 0
    """Rows that they would hold if no stream made promises."""

    def to_json(self) -> dict[str, Any]:
        """Write as a JSON object."""
        return asdict(self)


def take_status(plan: Plan, ledger: Ledger) -> Status:
    """Return the status at one moment; no file is opened."""
    groups = tuple(_group(group, ledger) for group in plan.groups)
    return Status(
        streams=tuple(_stream(plan, stream.name, ledger) for stream in plan.streams),
        groups=groups,
        queries=(
            *(_query(plan, ledger, query) for query in plan.queries),
            *(_stopped(plan, ledger, stopped) for stopped in plan.stopped),
        ),
        strategy=plan.strategy,
        changes=ledger.changes,
        switches=ledger.switches,
        state_rows=sum(group.state_rows for group in groups),
        window_rows=sum(group.window_rows for group in groups),
    )


def _query(plan: Plan, ledger: Ledger, query: Query) -> QueryStatus:
    """Return the status of one query."""
    state, hold = ledger.query(query.name), ledger.hold(query.name)
    return QueryStatus(
        name=query.name,
        group=plan.find(query.name)[0].id,
        sink=query.sink.kind,
        results=state.results,
        lag_rows=max(lag_rows(group, ledger, query.name) for group, _, _ in plan.groups_of(query.name)),
        complete_from=state.complete_from,
        lacking=state.lacking,
        held=hold.rows,
        response=_response(state.delays),
        output=ledger.unpublished.get(query.name, 0) if sink_of(query).stores_rows else 0,
        order=_order(plan, ledger, query),
        disordered=hold.disordered,
        complete_from_iso=_complete_from_iso(plan, query, state.complete_from),
        **_panes(ledger, query),
        **_accuracy(plan, ledger, query),
    )


def _accuracy(plan: Plan, ledger: Ledger, query: Query) -> dict[str, Any]:
    """Return the results that a query without a window has found and missed, and the order of its streams."""
    if not query.oblivious:
        return {}
    groups = [group for group, _, _ in plan.groups_of(query.name)]
    buffers, accuracy = [buffer_of(group, ledger) for group in groups], accuracy_of(plan, query.name, ledger)
    return {
        "accuracy": accuracy.share,
        "missed": accuracy.missed,
        "missed_error": accuracy.error,
        "misses": tuple(miss for buffer in buffers for miss in buffer.misses),
        "disorder": disorder(plan, query, ledger),
        "buffers": figures(plan, groups[0], ledger),
        "memory": memory_figures(plan, groups[0], ledger, buffers[0]),
    }


def _panes(ledger: Ledger, query: Query) -> dict[str, Any]:
    """Return the entries that are kept for an aggregate query."""
    if query.aggregation is None:
        return {}
    state = next((state for state in ledger.panes.values() if query.name in state.panes.readers), None)
    files = [file for file in state.files if file.table == 0] if state else []
    return {
        "emit": query.aggregation.emit,
        "groups_held": sum(file.rows for file in files),
        "answers_waiting": sum(file.rows for file in files if not file.folded),
    }


def _complete_from_iso(plan: Plan, query: Query, micros: int | None) -> str | None:
    """Return the time from which a query is complete; None without a window, where it is a position."""
    types = {stream.time_type for stream in plan.streams if stream.name in query.streams}
    return None if query.oblivious else iso_time(micros, zoned=not types & {"timestamp_ntz", "date"})


def _stopped(plan: Plan, ledger: Ledger, stopped: Stopped) -> QueryStatus:
    """Return the status of a query that was stopped."""
    query, state = stopped.query, ledger.query(stopped.query.name)
    return QueryStatus(
        name=query.name,
        group="",
        sink=query.sink.kind,
        results=state.results,
        lag_rows=0,
        complete_from=state.complete_from,
        complete_from_iso=_complete_from_iso(plan, query, state.complete_from),
        response=_response(state.delays),
        order=query.order,
        failed=f"{stopped.reason} ({stopped.at})",
    )


def _order(plan: Plan, ledger: Ledger, query: Query) -> str:
    """Return a query's order policy, and the policy in force if it is another one."""
    if not query.ordered:
        return query.order
    mode = mode_of(plan, ledger, plan.find(query.name)[0])
    draining = ", draining" if mode == SYNC and ledger.hold(query.name).rows else ""
    return f"{query.order}{'' if mode == query.order else f': {mode}'}{draining}"


def _response(delays: Delays) -> Response | None:
    """Return the response times of a query; None before its first result."""
    return Response(**delays.figures()) if delays.seen else None


def look_at(ledger: Ledger) -> Status:
    """Return the status by a ledger and its plan."""
    if not ledger.plan:
        raise InputError("the engine has not started yet: there is nothing to see")
    return take_status(current_plan(ledger), ledger)


def _stream(plan: Plan, name: str, ledger: Ledger) -> StreamStatus:
    """Return the status of one stream."""
    state, stream = ledger.stream(name), plan.stream(name)
    zoned = stream.time_type == "timestamp"
    indexes = indexes_about(plan, name)
    kept = [ledger.promises[index.id] for index in indexes if index.id in ledger.promises]
    return StreamStatus(
        name=name,
        rows=state.rows,
        batches=state.batches,
        watermark=state.watermark,
        late=state.late,
        no_time=state.no_time,
        no_key=state.no_key,
        unwanted=state.unwanted,
        overtaken=state.overtaken,
        punctuations=state.punctuations,
        broken=state.broken,
        purged=state.purged,
        discarded=state.discarded,
        dropped=state.dropped,
        promises=max((files.rows for files in kept), default=0),
        forgotten=max((files.forgotten for files in kept), default=0),
        timeless=stream.timeless,
        watermark_iso=None if stream.timeless else iso_time(state.watermark, zoned=zoned),
        lateness=stream.lateness,
        late_share=late_share(state),
        behind=state.behind,
        warning=late_warning(stream, state),
    )


def _group(group: Group, ledger: Ledger) -> GroupStatus:
    """Return the status of one group."""
    slices = tuple(one for side in group.sides for one in _slices(group, side, ledger))
    segments = [segment for log in dict.fromkeys(group.all_logs) for segment in ledger.segments(log.id)]
    state = ledger.groups[group.id]
    return GroupStatus(
        id=group.id,
        slices=slices,
        units=state.units,
        pairs=state.pairs,
        state_rows=held_rows(group, ledger),
        stored_rows=sum(segment.rows for segment in segments),
        segments=len(segments),
        unshared_rows=sum(_alone(group, side, ledger) for side in group.sides),
        window_rows=sum(_held_by_windows(group, side, ledger) for side in group.sides),
        orders=() if group.is_pair else _orders(group, ledger),
    )


def _orders(group: Group, ledger: Ledger) -> tuple[ProbeOrder, ...]:
    """Return the probe order of each stream's new rows, with the measured fan-out."""
    seen = ledger.groups[group.id].fanouts
    return tuple(
        ProbeOrder(
            group.streams[number],
            group.sides[number],
            tuple(_probe_step(group, step, seen.get(str(step))) for step in order),
        )
        for number, order in enumerate(probe_orders(group, ledger))
    )


def _probe_step(group: Group, step: LinkStep, seen: Fanout | None) -> ProbeStep:
    key = ", ".join(part.expression for part in group.links[step.link].key(step.to))
    known = (seen.average, seen.most, seen.key) if seen else (None,)
    return ProbeStep(group.streams[step.to], group.sides[step.to], key, *known)


def _slices(group: Group, side: Side, ledger: Ledger) -> list[SliceStatus]:
    """Return the slices of one side, with their rows."""
    chain = group.slices(side)
    if not chain:
        return []
    log = group.log(side)
    ends = in_time(group, side, ledger, [piece.ages[1] for _, piece in chain])
    counts = np.zeros(len(ends), np.int64)
    for layout, segments in by_layout(ledger, log.id):
        counts += rows_per_slice(
            segments, claim(group, side, ledger, layout), ends, ledger.traffic.get(log.id)
        )
    return [
        SliceStatus(
            log.stream,
            side,
            number,
            *group.ages(piece),
            group.chain.readers[number],
            int(count),
            group.counts(side),
        )
        for (number, piece), count in zip(chain, counts, strict=True)
    ]


def held_rows(group: Group, ledger: Ledger) -> int:
    """Return the number of rows that a group's join holds, of all sides."""
    return sum(_held(group, side, ledger) for side in group.sides)


def _held(group: Group, side: Side, ledger: Ledger) -> int:
    """Return the number of live rows of one side, also if it has no slice and its rows only wait for late partners."""
    log = group.log(side).id
    if group.oblivious and POSITION in group.log(side).columns:
        return _held_by_position(group, side, ledger)
    traffic = ledger.traffic.get(log)
    return sum(
        int(rows_per_slice(segments, claim(group, side, ledger, layout), [_FAR], traffic).sum())
        for layout, segments in by_layout(ledger, log)
    )


def _held_by_position(group: Group, side: Side, ledger: Ledger) -> int:
    """Return the most rows that a join without a window keeps of a stream whose times are not positions."""
    gone, log = buffer_of(group, ledger).gone[group.index(side)], group.log(side)
    newest = [(one.rows, one.newest) for one in ledger.segments(log.id) if one.newest is not None]
    return sum(min(rows, position - gone + 1) for rows, position in newest if position >= gone)


def _held_by_windows(group: Group, side: Side, ledger: Ledger) -> int:
    """Return about how many rows of one side would be held without promises."""
    log, rows = group.log(side).id, 0
    for layout, segments in by_layout(ledger, log):
        whole = [replace(segment, finished=0) for segment in segments]
        window = claim(group, side, ledger, layout)
        rows += int(rows_per_slice(whole, window, [_FAR], ledger.traffic.get(log)).sum())
    departed = ledger.early_removals.get(log)
    if departed is None:
        return rows
    window = claim(group, side, ledger, ledger.layouts[log][ledger.layout(log)])
    return rows + departed.since(window.oldest_of_use(-_FAR))


def _alone(group: Group, side: Side, ledger: Ledger) -> int:
    """Return the number of rows that the group's queries would hold on one side if each ran alone."""
    total = 0
    merged = group.reaches(side)
    own = merged if group.counts(side) else [member.reach(side) for member in group.members]
    reaches = in_time(group, side, ledger, own)
    traffic = ledger.traffic.get(group.log(side).id)
    for layout, segments in by_layout(ledger, group.log(side).id):
        masks = group.masks_under(side, layout.columns, layout.predicates)
        whole = claim(group, side, ledger, layout)
        for mask, reach in zip(masks, reaches, strict=True):
            if mask is not None:
                alone = replace(whole, masks=(mask,), reaches=(reach,))
                total += int(rows_per_slice(segments, alone, [_FAR], traffic).sum())
    return total


def by_layout(ledger: Ledger, log: str) -> list[tuple[Layout, list[Segment]]]:
    """Return a log's segments by layout; there is always at least the current layout."""
    return [
        (layout, [segment for segment in ledger.segments(log) if segment.layout == number])
        for number, layout in ledger.layouts[log].items()
    ]


_FAR = 1 << 62
