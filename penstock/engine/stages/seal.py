"""Seal: give rows their final positions as the watermarks pass them, for windows that count rows.

A stream is sealed up to its own watermark.  A group joins what is sealed in both of its streams.  When the input has
ended (`Engine.wait`), everything is sealed.  A row below that horizon that comes in a later run is too late to count.

In:  the plan and the ledger.  Out: what to seal (`penstock.state.row_times.Sealing`), and the ``seal`` commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engine.runners.runner import Job
from penstock.engine.tasks.row_windows import SpanTask
from penstock.engine.views.needs import roll_claims
from penstock.state.claims import is_ended
from penstock.state.commits import Sealed, SealedRoll
from penstock.state.row_times import Sealing, plan_sealing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.engine.runners.runner import Runner
    from penstock.engine.stages.turn_context import TurnContext
    from penstock.plan.build import Plan
    from penstock.plan.group import Group
    from penstock.sql.query import Side
    from penstock.state.ledger import Ledger
    from penstock.state.segment import Segment


def choose_sealings(plan: Plan, ledger: Ledger, *, everything: bool) -> list[Sealing]:
    """List what can be sealed now: up to each stream's watermark, or everything."""
    sealings = []
    for stream in plan.counted:
        until, roll = _goal(plan, ledger, stream, everything=everything), ledger.roll(stream)
        if until is not None and (roll.horizon is None or until > roll.horizon):
            claims = roll_claims(plan, stream, ledger)
            ended = [piece for piece in roll.pieces if is_ended(piece, claims)]
            sealings.append(plan_sealing(stream, roll, until, ended))
    return sealings


def _goal(plan: Plan, ledger: Ledger, stream: str, *, everything: bool) -> int | None:
    """Return the event time up to which a stream can be sealed; None while it has sent nothing."""
    if not everything:
        return ledger.stream(stream).watermark
    newest = [ledger.stream(stream).newest for stream in plan.counted]
    return max((time + 1 for time in newest if time is not None), default=None)


def seal_commit(sealings: Sequence[Sealing], made: Sequence[Segment | None]) -> Sealed:
    """Return the commit of new horizons of some streams."""
    gone: list[str] = []
    for sealing, piece in zip(sealings, made, strict=True):
        gone += [segment.name for segment in sealing.ended]
        gone += [absorbed.name for absorbed in sealing.absorbed if piece]
        gone += [batch.name for batch in sealing.waiting if batch.max_t < sealing.until]
    rolls = {
        sealing.stream: SealedRoll(sealing.until, (piece,) if piece else ())
        for sealing, piece in zip(sealings, made, strict=True)
    }
    return Sealed(rolls, tuple(gone))


def seal(context: TurnContext) -> None:
    """Assign final positions to rows behind the watermarks, where windows count rows."""
    sealings = choose_sealings(context.plan, context.ledger, everything=context.input_ended)
    if not sealings:
        return
    any_rows = any(sealing.waiting for sealing in sealings)
    job = Job("seal", f"count rows of {', '.join(sealing.stream for sealing in sealings)}")
    made = context.runner.map(sealings, job) if any_rows else [None] * len(sealings)
    commit = seal_commit(sealings, made)
    context.store.commit(commit)
    for name in commit.remove:
        context.store.let_go(name)


def sealed_until(group: Group, ledger: Ledger) -> int | None:
    """Return the event time below which the rows of all streams of a group are sealed; None if there is none yet."""
    horizons = [ledger.roll(log.stream).horizon for log in group.logs]
    known = [horizon for horizon in horizons if horizon is not None]
    return min(known) if len(known) == len(horizons) else None


def row_spans(
    group: Group, ledger: Ledger, runner: Runner, horizon: int | None
) -> tuple[dict[int, int], ...]:
    """Measure for each side of a group how far back in time its windows reach at a horizon."""
    tasks = {side: _span_task(group, side, ledger, horizon) for side in group.sides if group.counts(side)}
    if horizon is None or not tasks:
        return tuple({} for _ in group.sides)
    job = Job("seal", f"measure windows that count rows of {' and '.join(group.streams)}")
    spans = dict(zip(tasks, runner.map(list(tasks.values()), job), strict=True))
    return tuple(spans.get(side, {}) for side in group.sides)


def _span_task(group: Group, side: Side, ledger: Ledger, horizon: int | None) -> SpanTask:
    reaches = {*group.reaches(side), *(member.reach(side) for member in group.members)}
    reaches |= {piece.ages[1] for _, piece in group.slices(side)}
    roll = ledger.roll(group.log(side).stream).sealed()
    return SpanTask(roll, horizon or 0, tuple(sorted(reaches)), 1 if side == "r" else 0)
