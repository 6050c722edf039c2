"""`penstock plan`: the changes that a run of a script would make, before it makes them.

The plan's commit is folded in memory only, with the code of a run; nothing is written.

In:  a script and the state it would run on.
Out: queries and cuts that are added, changed and removed, rows of state that are kept, the time from which on each new
query is complete, and the expected state and work; an error if results would be lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cli.explain import planned
from penstock.cli.show import show_time
from penstock.engine.change.backfill import goes_on
from penstock.engine.change.transition import Transition, refuse_other_streams
from penstock.engine.report.buffer_costs import buffer_costs, show_sum
from penstock.engine.report.costs import costs
from penstock.engine.report.status import take_status
from penstock.engine.sinks.sink_kind import sink_of
from penstock.engine.store import peek
from penstock.engine.views.memory import MemoryPolicy
from penstock.plan.plan_text import show_cut, show_window
from penstock.sql.options import budget_of
from penstock.sql.units import show_size
from penstock.state.files import open_files
from penstock.state.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.cli.load import Loaded
    from penstock.engine.change.diff import Change
    from penstock.plan.build import Plan
    from penstock.plan.strategy_comparison import Offer
    from penstock.sql.query import Query


def change_lines(loaded: Loaded, state: str, *, accept_loss: bool = False) -> Iterator[str]:
    """List the changes that a run of a script on a state would make; at the end, refuse a loss of results."""
    ledger = peek(state) if open_files(state).list("journal") else Ledger()
    transition = Transition.to(planned(loaded, ledger), ledger)
    before, after, change = transition.before, transition.after, transition.change
    refuse_other_streams(after, ledger, state)
    if before is None:
        yield f"state {state} is new"
    if not change:
        yield "nothing would change"
        return
    then = transition.expected(ledger)
    if before is not None and change.strategy:
        yield f"strategy: {before.strategy} -> {after.strategy}"
    yield from _query_lines(change, before, after, then)
    yield from _cut_lines(before, after)
    if before is not None:
        now, later = take_status(before, ledger), take_status(after, then)
        held, kept = (sum(group.state_rows for group in status.groups) for status in (now, later))
        yield f"state: {held:,} rows are held, {min(held, kept):,} of them would be kept"
    yield from _cost_lines(before, after, ledger, loaded.script.settings)
    if not accept_loss:
        transition.refuse_losses(state)
    for loss in transition.losses:
        yield f"lost: {loss}"
    yield "nothing was changed: penstock run makes these changes"


def _option_changes(old: Query, new: Query) -> Iterator[str]:
    """List the options of a query that would change, and the consequence for its sequence of results."""
    before, after = dict(old.options), dict(new.options)
    for name in sorted({*before, *after}):
        if before.get(name) != after.get(name):
            yield f"{name} {before.get(name, 'not given')} -> {after.get(name, 'not given')}"
    if old.ordered:
        yield "its waiting results are delivered first, then a new sequence begins"


def _cost_lines(
    before: Plan | None, after: Plan, ledger: Ledger, settings: Mapping[str, str]
) -> Iterator[str]:
    """Write the expected state and work, once the streams have filled windows and buffers."""
    budget, policy = budget_of(settings), MemoryPolicy.of(settings)
    expected, buffers = costs(after, ledger, budget), buffer_costs(after, ledger, policy)
    if expected or not buffers:
        how = "measured" if all(cost.estimate.seen for cost in expected) else "assumed"
        yield f"expected by {how} rates: {_sum([cost.own for cost in expected])}"
        if before is not None:
            yield f"now by the same:        {_sum([cost.own for cost in costs(before, ledger, budget)])}"
    if buffers:
        yield f"without a window: {show_sum(buffers)}"


def _sum(offers: list[Offer]) -> str:
    """Write the total cost of some joins."""
    rows, size, work = (
        sum(getattr(offer, name) for offer in offers) for name in ("rows", "bytes", "seconds")
    )
    return f"{rows:,.0f} rows held, {show_size(size)} of state, {100 * work:.1f} % of one core"


def _query_lines(change: Change, before: Plan | None, after: Plan, then: Ledger) -> Iterator[str]:
    """List the queries that are added, changed and dropped."""
    for name in change.added:
        group, _, _ = after.find(name)
        yield f"  + {name:<12} {show_window(group, name):<28} complete from {_since(then, name)}"
    for name in change.altered if before else ():
        old, new = (plan.find(name) for plan in (before, after) if plan)
        windows = dict.fromkeys((show_window(old[0], name), show_window(new[0], name)))
        changed = [" -> ".join(windows), *_option_changes(old[2].query, new[2].query)]
        if new[2].query.aggregation is not None and not goes_on(new[2].query, old[2].query):
            since = _since(then, name)
            changed.append(f"its aggregates are computed again from the rows held, complete from {since}")
        yield f"  ~ {name:<12} {', '.join(changed)}, from here on"
    for name in change.dropped:
        kept = before is None or not sink_of(before.query(name)).in_state
        fate = "stay where they are" if kept else "are in a table of the state, and cannot be read any more"
        yield f"  - {name:<12} its results {fate}"


def _since(then: Ledger, name: str) -> str:
    """Write from when on a query would be complete."""
    state = then.query(name)
    since, why = state.complete_from, f", because {state.lacking}" if state.lacking else ""
    if since is None:
        return "the beginning"
    queries = then.plan.queries if then.plan else ()
    by_row = any(query.name == name and query.oblivious for query in queries)
    return f"row {since:,}{why}" if by_row else f"{show_time(since)} UTC{why}"


def _cut_lines(before: Plan | None, after: Plan) -> Iterator[str]:
    """List the ages at which each chain would be split and merged."""
    old = {group.id: set(group.chain.cuts) for group in (before.groups if before else ())}
    for group in after.groups:
        cuts, old_cuts = set(group.chain.cuts), old.pop(group.id, set())
        before_that = f" (were {len(old_cuts) - 1})" if old_cuts else ""
        yield f"chain {group.title}: {len(group.chain.readers)} slices{before_that}"
        for cut in sorted(cuts - old_cuts) if old_cuts else ():
            yield f"    split at {show_cut(group, cut)}"
        for cut in sorted(old_cuts - cuts):
            yield f"    merged at {show_cut(group, cut)}"
    for gone in old:
        yield f"chain {gone}: gone, with its state"
