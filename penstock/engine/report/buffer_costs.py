"""EXPLAIN for joins without a window: the rows that buffers take by the model of paper 5, and the rows held.

Once rows of every stream have come, scrambling, multiplicity, rates and lags are as measured.  Before, as declared,
and streams are taken to come side by side at equal rates.  Where neither is known there is no estimate.

In:  a plan, and the ledger it runs on (an empty one before the first run).  Out: `BufferCosts` for each join; as text.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from penstock.engine.report.status import held_rows
from penstock.engine.views.buffers import characteristics, lags_at_most, watch_at
from penstock.engine.views.memory import strategy_in_force
from penstock.plan.buffers import STRATEGIES, Characteristics, joined, need
from penstock.sql.bind.arrival import known_multiplicity, known_scrambling

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from penstock.engine.views.memory import MemoryPolicy
    from penstock.plan.buffers import Need
    from penstock.plan.build import Plan
    from penstock.plan.group import Group
    from penstock.state.ledger import Ledger

_ALL = 1 << 62


@dataclass(frozen=True, slots=True)
class BufferCosts:
    """One join without a window: the rows that each memory strategy needs, and the rows held."""

    title: str
    queries: tuple[str, ...]
    strategy: str
    measured: bool
    """Whether rows of all streams have come; else the estimate is by their declarations."""
    needs: tuple[Need, ...]
    """For each strategy; empty where a stream has no rows yet and declares no scrambling."""
    unknown: tuple[str, ...]
    """The streams without rows and without a declared scrambling."""
    held: int | None

    @property
    def own(self) -> Need | None:
        """Return the needs of the strategy in force."""
        return next((need for need in self.needs if need.strategy == self.strategy), None)

    def to_json(self) -> dict[str, Any]:
        """Write as a JSON object; delays are known once rates were measured."""
        needs = [asdict(need) | ({} if self.measured else {"delay": None}) for need in self.needs]
        return asdict(self) | {"needs": needs}


def buffer_costs(
    plan: Plan, ledger: Ledger, policy: MemoryPolicy, *, runs: bool = False
) -> list[BufferCosts]:
    """Estimate the buffers of each join without a window; if the plan runs, also count what they hold."""
    return [_costs(plan, group, ledger, policy, runs=runs) for group in plan.groups if group.oblivious]


def _costs(plan: Plan, group: Group, ledger: Ledger, policy: MemoryPolicy, *, runs: bool) -> BufferCosts:
    """Estimate the buffers of one join."""
    seen = is_seen(plan, group, ledger)
    claims = [declared(plan, stream) for stream in group.streams]
    inputs, lags = _measured(plan, group, ledger) if seen else ([claim for claim in claims if claim], None)
    known = len(inputs) == len(claims)
    return BufferCosts(
        group.title,
        tuple(member.query.name for member in group.members),
        strategy_in_force(group, ledger, policy),
        seen,
        tuple(need(strategy, inputs, lags) for strategy in STRATEGIES) if known else (),
        ()
        if known
        else tuple(name for name, claim in zip(group.streams, claims, strict=True) if claim is None),
        held_rows(group, ledger) if runs and group.id in ledger.groups else None,
    )


def is_seen(plan: Plan, group: Group, ledger: Ledger) -> bool:
    """Return whether rows of every stream below a join have come."""
    below = (
        lower for name in group.streams if plan.stream(name).results for lower, _, _ in plan.groups_of(name)
    )
    watches = (ledger.watches.get(log.id) for log in group.logs)
    return (
        group.id in ledger.groups
        and all(watch is not None and (watch.order.rows or watch.pieces) for watch in watches)
        and all(is_seen(plan, lower, ledger) for lower in below)
    )


def _measured(plan: Plan, group: Group, ledger: Ledger) -> tuple[list[Characteristics], list[list[int]]]:
    """Return what the streams are like by all that was ingested, and how far they are ahead of each other."""
    watches = [watch_at(log.id, _ALL, ledger) for log in group.logs]
    inputs = characteristics(plan, group, watches, ledger)
    return inputs, lags_at_most([watch.order for watch in watches], inputs)


def declared(plan: Plan, name: str) -> Characteristics | None:
    """Return what a stream declares to be like, or the streams that results are made of; None: no scrambling."""
    stream = plan.stream(name)
    if stream.results is not None:
        inputs = [declared(plan, source) for source in plan.find(name)[0].streams]
        known = [source for source in inputs if source]
        return joined(known) if len(known) == len(inputs) else None
    scrambling = known_scrambling(stream)
    return None if scrambling is None else Characteristics(scrambling, known_multiplicity(stream) or 1)


# --- as text -------------------------------------------------------------------------------------------


def buffer_cost_lines(all_costs: Iterable[BufferCosts]) -> Iterator[str]:
    """Write the costs: a line for each strategy, the one in force marked, and what was measured of it."""
    for costs in all_costs:
        yield ""
        yield f"Buffers of {costs.title} ({', '.join(costs.queries)}), no window"
        yield f"  rows kept, {show_source(costs)}"
        for one in costs.needs:
            shown = one if costs.measured else replace(one, delay=0.0)  # no delay is known without rates
            yield f"  {'*' if one is costs.own else ' '} {shown}"
        if costs.held is not None:
            yield f"  measured: {costs.held:,} rows held"


def show_source(costs: BufferCosts) -> str:
    """Write what an estimate goes by, or why there is none."""
    if costs.unknown:
        names = ", ".join(dict.fromkeys(costs.unknown))
        return f"unknown until measured: no scrambling is declared for {names}"
    return "by what was measured" if costs.measured else "by what is declared, if streams come side by side"


def show_sum(all_costs: Sequence[BufferCosts]) -> str:
    """Write the rows that some joins keep together.

    >>> show_sum([])
    'buffers keep 0 rows'
    """
    unknown = [costs for costs in all_costs if costs.own is None]
    if unknown:
        return f"buffers of {', '.join(costs.title for costs in unknown)} {show_source(unknown[0])}"
    return f"buffers keep {sum(costs.own.rows for costs in all_costs if costs.own):,} rows"
