"""The stage that brings committed output to its sinks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engine.sinks.sinks import delete_spooled, publish_files
from penstock.state.commits import Published

if TYPE_CHECKING:
    from penstock.engine.stages.turn_context import TurnContext


def publish(context: TurnContext) -> None:
    """Bring committed output to its sinks, then forget it."""
    pending = context.ledger.pending
    for publication in pending:
        publish_files(publication, context.store.files)
        if publication.query:
            context.hand_over(publication)
    if pending:
        context.store.commit(Published(tuple((each.unit, each.query) for each in pending)))
    for publication in pending:
        if publication.query:
            delete_spooled(publication)
