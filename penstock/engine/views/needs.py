"""Which rows of a log are still needed: the plan's windows against the partners' watermarks.

In:  the plan and the ledger.  Out: the claims (`penstock.state.claims.Claim`) by which rows are kept, for the segments
of one layout: a query has no claim on rows that lack what it reads.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.engine.views.buffers import buffer_of
from penstock.plan.group import reach
from penstock.plan.links import POSITION
from penstock.plan.order_policy import trigger
from penstock.plan.promises import index_for
from penstock.plan.stored import retention
from penstock.sql.query import FOREVER, Range
from penstock.state.claims import BufferClaim, PromisedClaim, WindowClaim, retain_claim
from penstock.state.relayout import CommonLayout
from penstock.state.values import Layout

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.plan.build import Plan
    from penstock.plan.group import Group, GroupInput
    from penstock.plan.links import Link
    from penstock.plan.stored import LogPlan
    from penstock.sql.query import Side
    from penstock.state.claims import Claim
    from penstock.state.files import Files
    from penstock.state.ledger import Ledger
    from penstock.state.segment import Segment


def claim(
    group: Group, side: Side, ledger: Ledger, layout: Layout, partner: Partner | None = None
) -> WindowClaim:
    """Return one group's claim on one of its logs, for the rows of one partner or of all partners.

    A partner's rows may be ingested and not joined yet, so its watermark at the group's cursor counts, not the
    watermark that its stream has reached meanwhile.
    """
    masks = group.masks_under(side, layout.columns, layout.predicates)
    reaches = in_time(group, side, ledger, group.reaches(side, partner.number if partner else None))
    watermark = (
        ledger.groups[group.id].watermarks[partner.number]
        if partner
        else partner_watermark(group, side, ledger)
    )
    if group.oblivious and POSITION not in group.log(side).columns:
        # times are positions: rows that have left the buffer are as if a watermark had passed them
        reaches, watermark = [0] * len(masks), buffer_of(group, ledger).gone[group.index(side)] - 1
    mine = [
        (0 if group.filter_last else mask, far)
        for mask, far in zip(masks, reaches, strict=True)
        if mask is not None
    ]
    return WindowClaim(
        tuple(mask for mask, _ in mine),
        tuple(far for _, far in mine),
        watermark,
        group.excluded_under(side, layout.predicates),
    )


def buffer_claim(group: Group, side: Side, ledger: Ledger, layout: Layout) -> BufferClaim:
    """Return the claim of a join without a window on one of its logs: the rows that arrived last."""
    accepted = replace(claim(group, side, ledger, layout), watermark=None)
    gone = buffer_of(group, ledger).gone[group.index(side)]
    return BufferClaim(accepted, gone, POSITION in group.log(side).columns)


def partner_watermark(group: Group, side: Side, ledger: Ledger) -> int | None:
    """Return the event time that no partner row still to be joined is older than; None if not known."""
    watermarks = ledger.groups[group.id].watermarks
    return trigger([mark for number, mark in enumerate(watermarks) if number != group.index(side)])


def in_time(group: Group, side: Side, ledger: Ledger, reaches: Sequence[int]) -> list[int]:
    """Return how far back some ages of one side reach, in microseconds.

    Ages that count rows reach as far as the last unit found; an age that it did not look up reaches back for ever.
    """
    if not group.counts(side):
        return list(reaches)
    spans = ledger.groups[group.id].spans[group.index(side)]
    return [spans.get(reach, FOREVER) for reach in reaches]


def roll_claims(plan: Plan, stream: str, ledger: Ledger) -> list[Claim]:
    """List every claim on a stream's roll: it is kept as far back as rows may have to be counted."""
    claims: list[Claim] = [
        WindowClaim(
            (0,),
            (max(in_time(group, side, ledger, group.reaches(side))),),
            ledger.groups[group.id].watermarks[0],
        )
        for group in plan.groups
        for side in group.sides
        if group.log(side).stream == stream and group.signature.counted
    ]
    return claims + _retained(plan, stream, ledger)


def _retained(plan: Plan, stream: str, ledger: Ledger) -> list[Claim]:
    """Return a stream's own claim on its rows, if it retains them for later queries."""
    retained = retention(plan.stream(stream))
    return [] if retained is None else [retain_claim(retained, ledger.stream(stream).watermark)]


def claims_on(plan: Plan, log: str, ledger: Ledger, layout: int, files: Files | None = None) -> list[Claim]:
    """List every claim on a log's segments of one layout: of each group, and of the stream if it retains.

    With `files`, the promises of partners are taken into account.
    """
    shape = ledger.layouts[log][layout]
    claims: list[Claim] = [
        buffer_claim(group, side, ledger, shape)
        if group.oblivious
        else _promised(plan, partner, ledger, claim(group, side, ledger, shape, partner), files)
        for group, side in plan.uses(log)
        for partner in _partners(group, side, log)
    ]
    return claims + _retained(plan, plan.stream_of(log), ledger)


def _promised(
    plan: Plan, partner: Partner, ledger: Ledger, window: WindowClaim, files: Files | None
) -> Claim:
    """Return a claim that ends with the promises of the partner, if it makes any by the log's key."""
    index = index_for(plan, partner.log) if partner.log is not None and files is not None else None
    known = ledger.promises.get(index.id) if index else None
    if files is None or partner.log is None or known is None or not known.files():
        return window
    return PromisedClaim(window, partner.log.stream, known.bare(), files)


@dataclass(frozen=True, slots=True)
class Partner:
    """An input that the rows of a log wait for: its number, and its log by the same key, if there is one.

    A row is kept as long as it may meet a new row of any partner, so there is a claim for each.
    """

    number: int
    log: LogPlan | None


def _partners(group: Group, side: Side, log: str) -> list[Partner]:
    """List the inputs that the rows of one of a side's logs wait for."""
    own = group.index(side)
    others = [(number, part) for number, part in enumerate(group.inputs) if number != own]
    if group.is_pair:
        return [Partner(number, part.log) for number, part in others]
    link = next(
        link
        for link in group.links
        if own in link.inputs
        for own_log in group.inputs[own].logs
        if own_log.id == log and own_log.key == link.key(own)
    )
    return [Partner(number, _log_by(part, link, number)) for number, part in others]


def _log_by(part: GroupInput, link: Link, number: int) -> LogPlan | None:
    """Return the log of an input by the key of a link; None if the input is not in it."""
    if number not in link.inputs:
        return None
    return next(log for log in part.logs if log.key == link.key(number))


@dataclass(frozen=True, slots=True)
class PromisingPartner:
    """A partner whose promises decide about rows that enter a log: the index of its promises, and its reach."""

    partner: str
    index: str
    beyond: int | None
    """Maximum time by which a partner can precede a row, in microseconds; None if that is not known."""


def promising_partners(plan: Plan, log: LogPlan) -> tuple[PromisingPartner, ...]:
    """List the partners of a log's rows, if all make promises by its key and the stream does not retain rows."""
    partners = []
    for group, side in plan.uses(log.id):
        (partner, *others) = _partners(group, side, log.id)
        index = index_for(plan, partner.log) if partner.log is not None else None
        # promises of several partners end rows at a later check, not at ingest
        if others or partner.log is None or index is None or retention(plan.stream(log.stream)) is not None:
            return ()
        partners.append(PromisingPartner(partner.log.stream, index.id, _farthest(group, side)))
    return tuple(partners)


def _farthest(group: Group, side: Side) -> int | None:
    """Return how long the partners of one side's rows are needed."""
    (other,) = (other for other in group.sides if other != side)
    far = reach(Range(group.chain.cuts[0], group.chain.cuts[-1]), other)
    return None if group.signature.counted or far >= FOREVER else far


def promises_before(plan: Plan, log: str, ledger: Ledger) -> float:
    """Estimate how many promises of its partners have taken effect for the rows of a log."""
    total = 0.0
    for group, side in plan.uses(log):
        for partner in _partners(group, side, log):
            watermark = ledger.groups[group.id].watermarks[partner.number]
            index = index_for(plan, partner.log) if partner.log is not None else None
            if index is not None and watermark is not None and index.id in ledger.promises:
                total += ledger.promises[index.id].before(watermark)
    return total


def settled_alike(plan: Plan, log: str, ledger: Ledger) -> dict[Layout, list[Segment]]:
    """Group the segments that may be rewritten by what they have in common with the log's present layout.

    A query reads a segment if that has all it reads, and the present layout has all that any query reads.  So whatever
    else a segment stores is not needed, and segments that are equal without it can be merged.
    """
    layouts = ledger.layouts[log]
    now = layouts[ledger.layout(log)]
    shared = {
        number: Layout(
            tuple(column for column in now.columns if column in layout.columns),
            tuple(predicate for predicate in now.predicates if predicate in layout.predicates),
        )
        for number, layout in layouts.items()
    }
    found: dict[Layout, list[Segment]] = {}
    for segment in settled_segments(plan, log, ledger):
        found.setdefault(shared[segment.layout], []).append(segment)
    return found


def common_layout(
    plan: Plan,
    log: str,
    ledger: Ledger,
    segments: Iterable[Segment],
    shared: Layout,
    *,
    files: Files | None = None,
) -> CommonLayout:
    """Return the common layout of segments that are alike: one there is, or a new one.

    New layouts are numbered downwards, because the highest number is the present layout's.
    """
    layouts = ledger.layouts[log]
    number = next((known for known, layout in layouts.items() if layout == shared), min(layouts) - 1)
    used = {segment.layout for segment in segments}
    return CommonLayout(
        number,
        shared.columns,
        {
            layout: tuple(layouts[layout].predicates.index(name) for name in shared.predicates)
            for layout in used
        },
        {layout: tuple(claims_on(plan, log, ledger, layout, files)) for layout in used},
    )


def ingest_masks(plan: Plan, log: LogPlan) -> tuple[int, ...]:
    """List the predicate bits of every query that may need a new row of a log; 0 if all rows are needed.

    A stream that retains needs all rows.  So does a join whose selections come last, unless the key must not be
    evaluated for rows that fail them.
    """
    masks = {
        0 if group.filter_last and not log.wanted else log.mask(member.predicates(side))
        for group, side in plan.uses(log.id)
        for member in group.members
    }
    return tuple(sorted(masks | ({0} if retention(plan.stream(log.stream)) is not None else set())))


def passed(plan: Plan, log: str, ledger: Ledger) -> int:
    """Return the batch before which every slice of every group has joined a log."""
    return min(
        cursor.batches[group.index(side)]
        for group, side in plan.uses(log)
        for cursor in ledger.groups[group.id].cursors
    )


def settled_segments(plan: Plan, log: str, ledger: Ledger) -> list[Segment]:
    """List a log's segments that every group has joined completely: they may be rewritten.

    A group that counts rows has joined a segment when its horizon has passed all of it.
    """
    until = passed(plan, log, ledger)
    horizons = [
        ledger.groups[group.id].watermarks[0] for group, _ in plan.uses(log) if group.signature.counted
    ]
    return [
        segment
        for segment in ledger.segments(log)
        if segment.last < until
        and all(horizon is not None and segment.max_t < horizon for horizon in horizons)
    ]
