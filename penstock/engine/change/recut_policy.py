"""Where a running engine cuts its chains, and when it reconsiders that (paper 1, 5.2, 5.3 and 6.2).

Only `cpu-opt` and `auto` choose; other strategies have fixed cuts, and so have chains that count rows.  A chain is
chosen when its windows change, if its streams are known by then, and again when measurements say that another chain
does markedly less work.  So that a plan does not oscillate, the same chain has to save `MIN_RECUT_GAIN` of the work at
`RECUT_LOOKS` looks in a row (`penstock.limits`).  A chain that exceeds a memory budget is changed whatever the gain.

In:  the plan, the ledger, and settings.  Out: cuts by group, and the reason, for the journal.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from penstock import limits
from penstock.engine.views.estimates import longest_finite, measure
from penstock.engine.views.plans import next_plan, standing_plan
from penstock.errors import InputError
from penstock.plan.optimize import Cuts, mem_opt, priced
from penstock.plan.prices import Flow, seconds
from penstock.plan.share import CHOSEN
from penstock.plan.strategy_comparison import chosen_cuts
from penstock.sql.options import budget_of, strategy_of
from penstock.sql.query import SIDES
from penstock.sql.units import show_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from penstock.engine.views.estimates import Estimate
    from penstock.plan.build import Plan, Stopped
    from penstock.plan.group import Group
    from penstock.plan.optimize import PricedChain
    from penstock.sql.query import Query, Stream
    from penstock.state.ledger import Ledger


def plan_over(
    streams: Mapping[str, Stream],
    queries: Iterable[Query],
    ledger: Ledger,
    settings: Mapping[str, str],
    stopped: Iterable[Stopped] = (),
) -> Plan:
    """Plan queries over what a state stores, shared and cut as the settings and measurements say."""
    asked, strategy = tuple(queries), strategy_of(settings)
    again = partial(next_plan, streams, asked, ledger, strategy=strategy, stopped=tuple(stopped))
    everywhere = again()
    cuts = starting_cuts(everywhere, ledger, budget_of(settings))
    return again(cuts=cuts) if cuts else everywhere


def starting_cuts(plan: Plan, ledger: Ledger, budget: float | None) -> dict[str, tuple[int, ...]]:
    """Return the cuts of a new plan: unchanged where no window has changed, else as measurements say.

    A chain without an entry is cut at every window: that holds the fewest rows.
    """
    if plan.strategy not in CHOSEN:
        return {}
    before = standing_plan(ledger)
    kept = {
        group.id: group.chain
        for group in (before.groups if before and before.strategy == plan.strategy else ())
    }
    cuts = {}
    for group in plan.groups:
        if group.id in kept and kept[group.id].bounds == group.chain.bounds:
            cuts[group.id] = kept[group.id].cuts
            continue
        if len(group.members) > limits.MAX_QUERIES_CHOSEN_AT_ONCE or not group.is_pair:
            continue  # choosing takes long: a registration does not wait for it
        estimate = measure(plan, ledger, group.signature)
        if estimate.seen and not group.signature.counted:
            cuts[group.id] = _best(plan.strategy, estimate, budget)[0].cuts.axis
    return cuts


@dataclass(slots=True)
class RecutPolicy:
    """Reconsiders the cuts of chains, now and then, by what was measured."""

    budget: float | None = None
    _turns: int = 0
    _wishes: dict[str, tuple[tuple[int, ...], int]] = field(default_factory=dict)
    """For each group the cuts it was last better to have, and at how many looks in a row."""

    def look(self, plan: Plan, ledger: Ledger) -> tuple[dict[str, tuple[int, ...]], str] | None:
        """Return the cuts that chains should have from now on, and why; None if they stay."""
        self._turns += 1
        if plan.strategy not in CHOSEN or self._turns % (
            limits.TURNS_PER_RECUT_LOOK * (1 + len(plan.queries) // 8)
        ):
            return None
        reasons = []
        cuts = dict(plan.cuts)
        for group in plan.groups:
            better = self._consider(plan, ledger, group)
            if better is not None:
                cuts[group.id], reason = better
                reasons.append(reason)
        return (cuts, "; ".join(reasons)) if reasons else None

    def _consider(self, plan: Plan, ledger: Ledger, group: Group) -> tuple[tuple[int, ...], str] | None:
        """Return the new cuts of one chain, once they have been better for long enough."""
        if group.signature.counted or not group.is_pair or len(group.members) > limits.MAX_QUERIES_TO_CHOOSE:
            return None
        estimate = measure(plan, ledger, group.signature)
        if not estimate.seen:
            return None
        best, note = _best(plan.strategy, estimate, self.budget)
        far = longest_finite(member.query for member in group.members)
        now = priced(
            _ages(group, far),
            estimate.readers,
            estimate.statistics,
            estimate.prices.weigh(estimate.statistics),
        )
        wished = tuple(cut for cut in group.chain.bounds if cut in {*best.cuts.axis, *group.ends})
        reason = self._reason(estimate, now, best)
        if wished == group.chain.cuts or not reason:
            self._wishes.pop(group.id, None)
            return None
        before, looks = self._wishes.get(group.id, (wished, 0))
        looks = looks + 1 if before == wished else 1
        self._wishes[group.id] = wished, looks
        if looks < limits.RECUT_LOOKS:
            return None
        del self._wishes[group.id]
        slices = f"{len(wished) - 1} slices in place of {len(group.chain.readers)}"
        return wished, f"cut {group.title} anew, {slices}: {reason}{note}"

    def _reason(self, estimate: Estimate, now: PricedChain, best: PricedChain) -> str:
        """Return why a chain is better than the present one; empty if the gain is too small."""
        if self.budget is not None and now.cost.bytes > max(self.budget, best.cost.bytes):
            return f"{show_size(now.cost.bytes)} of state expected, and {show_size(self.budget)} allowed"
        flow = Flow(1, estimate.pace.rows, estimate.pace.rows)
        work = seconds(now.cost, estimate.statistics, estimate.prices, estimate.pace, flow)
        gain = (now.cpu - best.cpu) / work if work else 0.0
        rates = f"{estimate.statistics.left_rate:,.0f} and {estimate.statistics.right_rate:,.0f} rows/s"
        return f"{gain:.0%} less work expected at {rates}" if gain >= limits.MIN_RECUT_GAIN else ""


def _best(strategy: str, estimate: Estimate, budget: float | None) -> tuple[PricedChain, str]:
    """Choose a chain; where none fits the budget, the one that holds least, with a note."""
    try:
        return chosen_cuts(strategy, estimate.readers, estimate.statistics, estimate.prices, budget), ""
    except InputError as refusal:
        weigh = estimate.prices.weigh(estimate.statistics)
        return priced(
            mem_opt(estimate.readers), estimate.readers, estimate.statistics, weigh
        ), f" ({refusal})"


def _ages(group: Group, far: int) -> Cuts:
    """Return the ages at which a group's chain is cut now; a side that is held at all includes age 0."""
    left, right = (
        tuple(
            sorted({0, *(min(age, far) for _, piece in group.chain.side(side) for age in _span(piece.ages))})
        )
        if group.chain.side(side)
        else ()
        for side in SIDES
    )
    return Cuts(left, right)


def _span(ages: tuple[int, int]) -> tuple[int, int]:
    """Count ages from 0: the right side begins a microsecond later, which costs nothing."""
    start, end = ages
    return (0 if start == 1 else start), end
