"""Publish: committed output becomes visible in its sinks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engine.sinks.publication import delete_handed_over, publish_files
from penstock.state.commits import Published

if TYPE_CHECKING:
    from penstock.engine.stages.turn_context import TurnContext


def publish(context: TurnContext) -> None:
    """Move committed files into their sinks, and hand results over to consoles and callbacks."""
    pending = context.ledger.pending
    for publication in pending:
        publish_files(publication, context.store.files)
        if publication.query:
            context.hand_over(publication)
    if pending:
        context.store.commit(
            Published(tuple((publication.unit, publication.query) for publication in pending))
        )
    for publication in pending:
        if publication.query:
            delete_handed_over(publication)
