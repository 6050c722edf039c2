"""The stages that adapt the plan to measurements: the order policies of adaptive queries, and the cuts of chains."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engine.views.waiting import switch_commit
from penstock.reporting import Logger

if TYPE_CHECKING:
    from penstock.engine.stages.turn_context import TurnContext

_log = Logger(__name__)


def choose_order_policies(context: TurnContext) -> None:
    """Switch the groups of adaptive queries to the cheaper policy: the input waits, or the results."""
    for group in context.plan.groups:
        if commit := switch_commit(context.plan, context.ledger, group):
            context.store.commit(commit)
            _log.info("%s: %s from here on: %s", ", ".join(commit.groups), commit.mode, commit.reason)


def recut_chains(context: TurnContext) -> None:
    """Go on with this plan, or with one whose chains are cut elsewhere."""
    context.plan = context.recut(context.plan)
