"""The accuracy of queries without a window: results found of those that exist, over all rows that have arrived.

A join's sketch has what the join itself has missed, rows that were set aside included.  What a query below has missed
is missing in its readers too, in proportion: results of each input are taken to be in as many results as its others::

    q1   90 of 100 results found        accuracy 0.9
    q2   joins q1: found 180, missed 0  accuracy 1.0 x 0.9, about 20 missed

In:  the plan and the ledger.  Out: `Accuracy` of a query.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from penstock.engine.views.buffers import buffer_of

if TYPE_CHECKING:
    from penstock.plan.build import Plan
    from penstock.state.ledger import Ledger


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The share of results found, about how many were missed, and two standard errors of that."""

    share: float
    missed: float
    error: float


def accuracy_of(plan: Plan, query: str, ledger: Ledger) -> Accuracy:
    """Estimate what a query without a window has found and missed."""
    groups = [group for group, _, _ in plan.groups_of(query)]
    sketches = [buffer_of(each, ledger).sketch for each in groups]
    found, lost = (
        sum(each) for each in zip(*((one.results_found, one.lost) for one in sketches), strict=True)
    )
    inputs = [each for each in groups[0].streams if plan.stream(each).results is not None]
    below = prod(accuracy_of(plan, each, ledger).share for each in inputs)
    own = found / (found + lost) if lost else 1.0
    exist = (found + lost) / below if below else found + lost
    return Accuracy(own * below, exist - found, sum(each.error for each in sketches) + exist - found - lost)
