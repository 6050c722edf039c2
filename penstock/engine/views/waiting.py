"""Order policies: what waits in a group of ordered queries, and how far the group may advance (paper 4).

A pair is joined once for all queries over the same two logs, as soon as one query needs it.  So input waits only if
all of them allow it::

    queries over two logs                 what waits                joined up to
    sync-filter only                      the input                 the trigger, the lower of both watermarks
    sync-filter, adaptive                 as adaptive has chosen
    any other beside these                the results (held)        all that was ingested

A query gets the same sequence in both cases.  Waiting input is in the log: the group's cursor names, besides its
batches, the time below which all rows are joined, and both advance::

    batches       |  a3  |  a4  |  a5  |           cursor (4, 7, H)   batches before 4 and 7 are joined, and of
    times joined  |######|###   |#     |           those after them the rows older than H
                             H

Where windows count rows, nothing is joined before both watermarks have passed it, under every policy.

In:  the plan and the ledger.  Out: the station that a group may advance to, and switches of adaptive queries.
"""

from __future__ import annotations

from datetime import UTC, datetime
from math import prod
from typing import TYPE_CHECKING

from penstock.engine.views.advance_limit import results_wait, views
from penstock.engine.views.estimates import MIN_KNOWN_UNITS, stream_rates
from penstock.plan.order_policy import DEFAULT_ALPHA, HOLD, SYNC, Adaptive, Load, trigger
from penstock.sql.query import SECOND
from penstock.state.commits import OrderSwitched
from penstock.state.values import Cursor

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.plan.build import Plan
    from penstock.plan.group import Group
    from penstock.sql.query import Query
    from penstock.state.ledger import Ledger
    from penstock.state.values import Station, StreamState


WAITING = frozenset({SYNC, "adaptive"})
"""The policies that let input wait."""


def mode_of(plan: Plan, ledger: Ledger, group: Group) -> str:
    """Return what waits in a group: the input (sync-filter), or the ordered results (filter-order)."""
    orders = plan.families[group.id].orders
    if group.signature.counted or not orders <= WAITING:
        return HOLD
    state = ledger.groups.get(group.id)
    return (state.mode if state and "adaptive" in orders else "") or SYNC


def goal_of(plan: Plan, ledger: Ledger, group: Group, *, everything: bool = False) -> Station:
    """Return how far a group may advance: as far as input need not wait, or to everything that was ingested."""
    streams = [ledger.stream(log.stream) for log in group.logs]
    marks = [stream.watermark for stream in streams]
    state = ledger.groups.get(group.id)
    none = (0,) * len(group.inputs)
    reached, passed = state.all_stations[-1] if state else (Cursor(none), (None,) * len(group.inputs))
    if everything or mode_of(plan, ledger, group) == HOLD:
        return Cursor(tuple(stream.batches for stream in streams), reached.below), tuple(marks)
    until = trigger(marks)
    if until is None or until <= reached.below:
        return reached, passed
    batches = tuple(
        _first_waiting(ledger, log.id, since, stream.batches, until)
        for log, since, stream in zip(group.logs, reached.batches, streams, strict=True)
    )
    below = (
        _waits_above(until, mark, stream if batch == stream.batches else None)
        for batch, mark, stream in zip(batches, passed, streams, strict=True)
    )
    return Cursor(batches, until), tuple(below)


def is_waiting(plan: Plan, ledger: Ledger, group: Group) -> bool:
    """Return whether ingested input of a group waits for its order."""
    here = ledger.groups[group.id].all_stations[-1][0]
    if group.oblivious:
        return bool(here.sorters) and results_wait(views(plan, group, ledger))
    return mode_of(plan, ledger, group) == SYNC and here != goal_of(plan, ledger, group, everything=True)[0]


def _waits_above(until: int, known: int | None, ended: StreamState | None) -> int:
    """Return the lowest time of rows that wait or are still to come; `ended`: the stream, if no row waits."""
    marks = [known, ended.watermark if ended else None]
    return max([until, *(mark for mark in marks if mark is not None)])


def _first_waiting(ledger: Ledger, log: str, since: int, until: int, below: int) -> int:
    """Return the first batch, from `since` on, with a row at or above a time; `until` if there is none."""
    waiting = (
        segment.first for segment in ledger.segments(log) if segment.last >= since and segment.max_t >= below
    )
    return min(waiting, default=until)


def lag_rows(group: Group, ledger: Ledger, query: str) -> int:
    """Count the rows that are in the logs and not joined yet in the slices that a query reads."""
    cursors = ledger.groups[group.id].cursors
    return waiting_rows(group, ledger, {cursors[index] for index in group.chain.read_by(query)})


def waiting_rows(group: Group, ledger: Ledger, cursors: Iterable[Cursor]) -> int:
    """Count the rows that are in a group's logs and not joined yet at some of its cursors.

    A segment that is joined in part counts by the share of its times that are not joined.  Where windows count rows,
    all rows above the horizon count.
    """
    if group.signature.counted:
        horizon = ledger.groups[group.id].watermarks[0]
        segments = [segment for log in group.logs for segment in ledger.segments(log.id)]
        return sum(segment.rows for segment in segments if horizon is None or segment.max_t >= horizon)
    known = set(cursors)
    return sum(
        max(
            segment.rows_between(cursor.below, segment.max_t) if segment.last >= cursor.batches[index] else 0
            for cursor in known
        )
        for index, log in enumerate(group.logs)
        for segment in ledger.segments(log.id)
    )


# --- adaptive --------------------------------------------------------------------------------------------------


def load_of(plan: Plan, ledger: Ledger, group: Group) -> Load | None:
    """Return the load of a group and its family, by their units so far; None before enough is known.

    Rates are rows in a second of event time, and the load is the time of all units in it; the overhead of a job counts
    as the steps that it did.  A window of w reaches w to both sides, half of the span of a chain of two streams.  A
    second of both streams is 2·w·λ1·λ2 join steps; of n streams it is n·w^(n-1)·λ1·…·λn.
    """
    family = plan.families[group.id].groups
    efforts = [ledger.groups[group.id].effort for group in family]
    rates = stream_rates(plan, ledger, group)
    spans = max(group.chain.bounds[-1] - group.chain.bounds[0] for group in family) / SECOND
    window = spans / 2 if group.is_pair else spans
    if min(effort.units for effort in efforts) < MIN_KNOWN_UNITS or not all(rates) or not window:
        return None
    if not all(effort.micros for effort in efforts):
        return None
    busy = sum(effort.seconds / effort.micros for effort in efforts) * SECOND
    steps = len(rates) * window ** (len(rates) - 1) * prod(rates)
    return Load(busy / steps, window, rates)


def switch_commit(plan: Plan, ledger: Ledger, group: Group) -> OrderSwitched | None:
    """Return the commit by which adaptive queries change their policy, if they do; the smallest alpha counts.

    Groups that divide rows among themselves change together, when their cursors are equal.
    """
    family = plan.families[group.id]
    if "adaptive" not in family.orders or not family.orders <= WAITING or group.signature.counted:
        return None
    cursors = {cursor for group in family.groups for cursor in ledger.groups[group.id].cursors}
    if group.id != family.groups[0].id or (len(family.groups) > 1 and len(cursors) > 1):
        return None
    load = load_of(plan, ledger, group)
    if load is None:
        return None
    alpha = min(alpha_of(query) for query in family.queries if query.order == "adaptive")
    switch = Adaptive(alpha).choose(mode_of(plan, ledger, group), load)
    if switch is None:
        return None
    held = sum(ledger.hold(name).rows for name in {query.name for query in family.queries})
    first = f"; {held:,} results that are held leave first" if held and switch.mode == SYNC else ""
    return OrderSwitched(
        groups=tuple(group.id for group in family.groups),
        mode=switch.mode,
        reason=f"{switch.reason}{first}",
        at=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def alpha_of(query: Query) -> float:
    """Return the share of time from which an adaptive query is joined at once."""
    return float(dict(query.options).get("alpha", DEFAULT_ALPHA))
