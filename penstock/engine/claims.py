"""Who still needs a log's rows: the plan's windows against the partners' watermarks.

In:  the plan and the ledger.  Out: the claims (`penstock.log.keep.Horizon`) by which rows are kept or let go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.log.keep import Horizon

if TYPE_CHECKING:
    from penstock.log.ledger import Ledger
    from penstock.plan.build import Plan
    from penstock.plan.group import Group
    from penstock.sql.query import Side


def claim(group: Group, side: Side, ledger: Ledger) -> Horizon:
    """Give one group's claim on one of its logs: it waits for partners from the other stream.

    A partner still to be joined may be ingested already, so what counts is the partner's watermark at the group's
    cursor, not the one its stream has reached meanwhile.
    """
    left, right = ledger.groups[group.id].watermarks
    return Horizon(tuple(group.masks(side)), tuple(group.reaches(side)), right if side == "l" else left)


def claims_on(plan: Plan, log: str, ledger: Ledger) -> list[Horizon]:
    """List every group's claim on a log."""
    return [claim(group, side, ledger) for group, side in plan.uses(log)]


def passed(plan: Plan, log: str, ledger: Ledger) -> int:
    """Say up to which batch of its stream every slice of every group has joined a log."""
    place = {"l": 0, "r": 1}
    return min(
        cursor[place[side]] for group, side in plan.uses(log) for cursor in ledger.groups[group.id].cursors
    )
