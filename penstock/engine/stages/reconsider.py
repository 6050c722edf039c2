"""The stage that cuts chains elsewhere if measurements say so."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.engine.stages.turn_context import TurnContext


def reconsider(context: TurnContext) -> None:
    """Go on with this plan, or with one whose chains are cut elsewhere."""
    context.plan = context.reconsider(context.plan)
