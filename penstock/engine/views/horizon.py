"""Until when a query has all its results: the time that the watermarks of its inputs have passed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.plan.order_policy import trigger

if TYPE_CHECKING:
    from penstock.engine.views.idle import IdleClock
    from penstock.plan.build import Plan
    from penstock.plan.group import Group
    from penstock.sql.query import Query, Side
    from penstock.state.ledger import Ledger


def horizon(plan: Plan, ledger: Ledger, query: str, silence: IdleClock | None = None) -> int | None:
    """Give the time below which a query has all its pairs, whichever groups they come from; None if there is none.

    Streams that are idle by now are not waited for, if the query says so; if all are, there is nothing to wait for.
    """
    marks = [
        mark
        for group, _, member in plan.groups_of(query)
        for mark in _marks(group, member.query, ledger, silence)
    ]
    return trigger(marks) if marks else _NOTHING_TO_WAIT_FOR


def side_marks(
    plan: Plan, ledger: Ledger, query: Query, silence: IdleClock | None = None
) -> dict[Side, int | None]:
    """Give, by input of a query, the time below which all its rows are joined; None if not known."""
    marks: dict[Side, list[int | None]] = {side: [] for side in query.sides}
    for group, _, member in plan.groups_of(query.name):
        state = ledger.groups.get(group.id)
        slices, none = group.chain.read_by(query.name), len(group.inputs)
        known = state.watermarks_of(slices) if state else (None,) * none
        joined = min(state.cursors[each] for each in slices).batches if state else (0,) * none
        for side, mark, stream, batches in zip(group.sides, known, group.streams, joined, strict=True):
            has_sent = batches < ledger.stream(stream).batches
            if silence is None or has_sent or not silence.is_idle(ledger, member.query, stream):
                marks[side].append(mark)
    return {side: trigger(each) if each else _NOTHING_TO_WAIT_FOR for side, each in marks.items()}


def _marks(group: Group, query: Query, ledger: Ledger, silence: IdleClock | None) -> list[int | None]:
    """Give the watermarks of the slowest slice that a query reads: those farther out do not concern it."""
    state = ledger.groups.get(group.id)
    if state is None:
        return [None]
    slices = group.chain.read_by(query.name)
    joined = min(state.cursors[each] for each in slices).batches
    return [
        mark
        for mark, stream, batches in zip(state.watermarks_of(slices), group.streams, joined, strict=True)
        if silence is None
        or batches < ledger.stream(stream).batches  # it has sent something after all
        or not silence.is_idle(ledger, query, stream)
    ]


_NOTHING_TO_WAIT_FOR = 1 << 62
