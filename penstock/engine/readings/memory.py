"""Which strategy a join without a window goes by: the one that was asked for, or the one that its memory asks for.

In:  what settings and queries say, and the ledger.  Out: the strategy in force.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.plan.buffers import PLAIN, STRATEGIES
from penstock.sql.options import budget_of, buffers_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.log.ledger import Ledger
    from penstock.plan.group import Group


@dataclass(frozen=True, slots=True)
class MemoryPolicy:
    """What settings say: bytes that a unit of a join without a window may map, and how it is to save them."""

    budget: int | None = None
    strategy: str = ""

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> MemoryPolicy:
        """Read it from settings."""
        budget = budget_of(settings)
        return cls(None if budget is None else int(budget), buffers_of(settings))

    def asked(self, group: Group) -> str:
        """Give the strategy that somebody has asked for, the thriftiest if several have; empty: nobody."""
        asked = {dict(member.query.options).get("buffers", "") for member in group.members} - {""}
        return max(asked, key=STRATEGIES.index, default=self.strategy)


def strategy_in_force(group: Group, ledger: Ledger, policy: MemoryPolicy) -> str:
    """Say by which strategy a join without a window advances."""
    if asked := policy.asked(group):
        return asked
    known = ledger.buffers.get(group.id)
    return known.strategy if known and policy.budget is not None else PLAIN
