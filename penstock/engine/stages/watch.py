"""Watch: after units of joins without a window, find rows that no partner needs, and estimate missed results.

    unit joined up to here ──▶ orders as they are there ──▶ rows that may be removed    ══ commit `watch`
                           └─▶ its sampled rows, against rows removed before ──▶ accuracy

Results are missed if a row comes later than its stream's known order allows, or was set aside.  A warning is logged.

In:  the context of turns.  Out: ``watch`` commits, which decide about expiry (`penstock.engine.views.needs`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np

from penstock import limits
from penstock.engine.views.advance_limit import views
from penstock.engine.views.buffers import (
    buffer_of,
    group_disorder,
    is_known,
    lowest_of,
    orders_now,
    reached,
    rows_let_go,
    scramblings,
    watch_at,
)
from penstock.engine.views.memory import (
    Room,
    choose_strategy,
    rows_without_room,
    strategy_in_force,
)
from penstock.kernels.ordered_values import HIGHEST
from penstock.kernels.value_sample import SampledRows
from penstock.reporting import Logger
from penstock.sql.units import show_size
from penstock.state.commits import Watched
from penstock.state.watch import GroupWatch, LogWatch, MemoryWatch, Miss

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from penstock.engine.stages.turn_context import TurnContext
    from penstock.engine.views.memory import MemoryPolicy
    from penstock.plan.build import Plan
    from penstock.plan.group import Group
    from penstock.state.ledger import Ledger

_log = Logger(__name__)


def watch(context: TurnContext) -> None:
    """Process what units of joins without a window have read since the last time."""
    ledger, plan = context.ledger, context.plan
    oblivious = [group for group in plan.groups if group.oblivious]
    moved = _changed_groups(plan, oblivious, ledger, context.memory)
    if not moved:
        return
    context.store.commit(Watched(moved, _settled(oblivious, moved, ledger)))
    for group in oblivious:
        if group.id in moved:
            before, after = ledger.buffers.get(group.id), moved[group.id]
            _warn_of_misses(context, group, before, after)
            known = is_known(plan, group, after.scrambling, ledger)
            _warn_of_disorder(context, group)
            _log_memory(group, before.memory if before else MemoryWatch(), after.memory, known=known)


def _has_changed(group: Group, ledger: Ledger, policy: MemoryPolicy) -> bool:
    """Return whether a join has read something since the last time, or its memory settings have changed."""
    known, cursor = ledger.buffers.get(group.id), ledger.groups[group.id].cursors[0]
    if known is None or (reached(group, ledger), cursor.sorters) != (known.until, known.sorters):
        return True
    in_force = strategy_in_force(group, ledger, policy), policy.budget
    return in_force != (known.memory.strategy, known.memory.budget)


def _changed_groups(
    plan: Plan, oblivious: Sequence[Group], ledger: Ledger, policy: MemoryPolicy
) -> dict[str, GroupWatch]:
    """Return the new state of groups that have read something; readers of results come after their sources."""
    moved: dict[str, GroupWatch] = {}
    for group in sorted(oblivious, key=lambda group: max(map(plan.depth, group.streams))):
        has_read = _has_changed(group, ledger, policy)
        if not has_read and not any(plan.stream(stream).results for stream in group.streams):
            continue
        looked = _watch_group(plan, group, ledger, policy)
        if (
            has_read
            or looked.gone != ledger.buffers[group.id].gone
            or looked.above != ledger.buffers[group.id].above
        ):
            moved[group.id] = looked
            ledger = replace(ledger, buffers={**ledger.buffers, group.id: looked})
    return moved


def _watch_group(plan: Plan, group: Group, ledger: Ledger, policy: MemoryPolicy) -> GroupWatch:
    """Return the new state of a group: which rows it needs no more, and which results it has missed."""
    before, until = buffer_of(group, ledger), reached(group, ledger)
    apart = scramblings(plan, group, orders_now(group, ledger))
    assumed = replace(before, scrambling=apart)
    watches = [watch_at(log.id, batch, ledger) for log, batch in zip(group.logs, until, strict=True)]
    passed = [view.passed for view in views(plan, group, ledger, assumed)]
    gone = rows_let_go(watches, passed)
    known = is_known(plan, group, apart, ledger)
    choice = choose_strategy(plan, group, ledger, policy, watches)
    memory = MemoryWatch(choice.strategy, policy.budget, choice.needed, choice.fits, before.memory.dropped)
    after = replace(
        assumed,
        until=until,
        gone=tuple(map(max, before.gone, gone)),
        sorters=ledger.groups[group.id].cursors[0].sorters,
        memory=memory,
        above=lowest_of(passed),
    )
    if policy.budget is not None and not known:
        after = _with_room(after, watches, Room.of(plan, group, ledger))
    rows, halvings = _sampled(group, before, after, ledger)
    news = list(_joined_batches(group, before, after, ledger))
    # rows removed for memory may still meet partners: their values stay open
    sketch = before.sketch.then_sampled(
        rows, halvings, before.gone, gone, doubt=_is_in_doubt(news, before, watches)
    )
    missed = sketch.lost - before.sketch.lost
    after = replace(after, sketch=sketch)
    if missed <= 0:
        return after
    aside = sum(batch.aside for batch in news)
    return replace(after, misses=_misses(plan, group, before, after, (missed, aside)))


@dataclass(frozen=True, slots=True)
class _JoinedBatch:
    """A batch that was joined, maybe in part: a lower bound of its new rows, and its rows that were set aside."""

    input: int
    lowest: int
    aside: int


def _joined_batches(
    group: Group, before: GroupWatch, after: GroupWatch, ledger: Ledger
) -> Iterator[_JoinedBatch]:
    """List the batches of which rows were joined since the last time."""
    for number, log in enumerate(group.logs):
        for piece in ledger.watches.get(log.id, LogWatch()).pieces:
            ends = piece.order.ends or (HIGHEST, HIGHEST)
            was, now = (watch.has_joined(number, piece.batch, np.array(ends)) for watch in (before, after))
            if was[0] and now[0] and not was[1]:
                yield _JoinedBatch(number, before.sorters[number].value + 1, 0)
            elif now[0] and not was[0]:
                yield _JoinedBatch(number, ends[0], piece.aside)


def _is_in_doubt(news: Iterable[_JoinedBatch], before: GroupWatch, watches: Sequence[LogWatch]) -> bool:
    """Return whether a new row was set aside, or may be equal to one that a partner had removed."""
    gone = [
        watch.order.highest_of(rows - watch.first) for watch, rows in zip(watches, before.gone, strict=True)
    ]
    return any(
        batch.aside
        or any(
            value is not None and batch.lowest <= value for i, value in enumerate(gone) if i != batch.input
        )
        for batch in news
    )


def _with_room(watch: GroupWatch, watches: Sequence[LogWatch], room: Room) -> GroupWatch:
    """Remove the oldest rows, if they exceed the memory budget."""
    ends = [watch.first + watch.order.rows for watch in watches]
    kept = [max(0, end - gone) for end, gone in zip(ends, watch.gone, strict=True)]
    dropped = rows_without_room(room, watch.memory, kept)
    if not any(dropped):
        return watch
    gone = tuple(
        map(max, watch.gone, (end - rows + more for end, rows, more in zip(ends, kept, dropped, strict=True)))
    )
    memory = replace(watch.memory, dropped=watch.memory.dropped + sum(dropped))
    return replace(watch, gone=gone, memory=memory)


def _sampled(group: Group, before: GroupWatch, after: GroupWatch, ledger: Ledger) -> tuple[SampledRows, int]:
    """Collect the rows of sampled values that were joined since the last time."""
    values: list[int] = []
    streams: list[int] = []
    positions: list[int] = []
    halvings = 0
    for number, log in enumerate(group.logs):
        for piece in ledger.watches.get(log.id, LogWatch()).pieces:
            sampled = np.array(piece.sample.values, np.int64)
            new = after.has_joined(number, piece.batch, sampled)
            new &= ~before.has_joined(number, piece.batch, sampled)
            if new.any():
                halvings = max(halvings, piece.sample.halvings)
            values += sampled[new].tolist()
            positions += (np.array(piece.sample.positions, np.int64)[new] + 1).tolist()
            streams += [number] * int(new.sum())
    return SampledRows(tuple(values), tuple(streams), tuple(positions)), halvings


def _misses(
    plan: Plan, group: Group, before: GroupWatch, after: GroupWatch, missed: tuple[float, int]
) -> tuple[Miss, ...]:
    """Add an occasion of missed results, with the streams whose rows came late.

    Results of a query have no order of their own, so they are never named.
    """
    wrong = {
        name: now
        for name, was, now in zip(group.streams, before.scrambling, after.scrambling, strict=True)
        if now > was and plan.stream(name).results is None
    }
    at = datetime.now(UTC).isoformat(timespec="seconds")
    miss = Miss(at, missed[0], tuple(wrong), tuple(wrong.values()), after.memory.dropped, missed[1])
    return (*before.misses, miss)[-limits.MAX_REMEMBERED_MISSES :]


def _settled(oblivious: Sequence[Group], moved: dict[str, GroupWatch], ledger: Ledger) -> dict[str, int]:
    """Return by log the batch up to which every join without a window has processed it."""
    settled: dict[str, int] = {}
    for group in oblivious:
        buffer = moved.get(group.id) or ledger.buffers[group.id]
        for log, until in zip(group.logs, buffer.until, strict=True):
            settled[log.id] = min(until, settled.get(log.id, until))
    return {log: until for log, until in settled.items() if log in ledger.watches}


def _warn_of_misses(context: TurnContext, group: Group, before: GroupWatch | None, after: GroupWatch) -> None:
    """Warn of missed results; again when as many have been missed since as were warned of."""
    if not after.misses or (before is not None and after.misses == before.misses):
        return
    last = after.misses[-1]
    warned, missed = context.missed.get(group.id, (0.0, 0.0))
    missed += last.results
    if missed < warned:
        context.missed[group.id] = warned, missed
        return
    context.missed[group.id] = warned + missed, 0.0
    more = "; from here on more is kept" if last.streams else ""
    results = f"{missed:,.0f}"
    _log.warning("%s: about %s results were missed, because %s%s", group.title, results, last.reason, more)


def _warn_of_disorder(context: TurnContext, group: Group) -> None:
    """Warn once of each stream that does not follow its declared order."""
    for sentence in group_disorder(context.plan, group, context.ledger):
        stream = sentence.partition(":")[0]
        if stream not in context.warned:
            context.warned.add(stream)
            _log.warning("%s", sentence)


def _log_memory(group: Group, before: MemoryWatch, after: MemoryWatch, *, known: bool) -> None:
    """Log a new strategy, and warn if none fits the budget."""
    if after.budget is None:
        return
    memory, takes = show_size(after.budget), show_size(after.needed)
    if after.strategy != before.strategy:
        _log.info("%s: buffers = '%s' from here on, %s of %s", group.title, after.strategy, takes, memory)
    if after.fits or not before.fits:
        return
    cost = (
        "more is taken, since the scrambling of every stream is declared"
        if known
        else "the oldest rows are let go"
    )
    _log.warning(
        "%s: memory = '%s' is too small, buffers = '%s' takes %s by what its streams are like: %s",
        group.title,
        memory,
        after.strategy,
        takes,
        cost,
    )
