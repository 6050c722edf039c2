"""The stage that lets adaptive queries change their order policy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engine.views.waiting import switch_commit
from penstock.reporting import Logger

if TYPE_CHECKING:
    from penstock.engine.stages.turn_context import TurnContext

_log = Logger(__name__)


def choose_what_waits(context: TurnContext) -> None:
    """Let adaptive queries go by what was measured: the input waits, or the results."""
    for group in context.plan.groups:
        if commit := switch_commit(context.plan, context.ledger, group):
            context.store.commit(commit)
            _log.info("%s: %s from here on: %s", ", ".join(commit.groups), commit.mode, commit.reason)
