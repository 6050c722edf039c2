"""What running a script would change, before it does.

The plan's commit is made and folded in memory only, so what is shown is what a run would make true; nothing is written.

In:  a script and the state it would run on.
Out: queries that come, go and change, cuts that come and go, rows of state kept and let go, from when each new query
would be complete, and the state and work to expect; an error if results would be lost.
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
    """Say what running a script on a state would change; refuse, at the end, what would lose results."""
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
        held, kept = (sum(group.state_rows for group in each.groups) for each in (now, later))
        yield f"state: {held:,} rows are held, {min(held, kept):,} of them would be kept"
    yield from _cost_lines(before, after, ledger, loaded.script.settings)
    if not accept_loss:
        transition.refuse_losses(state)
    for loss in transition.losses:
        yield f"lost: {loss}"
    yield "nothing was changed: `penstock run` does it"


def _option_changes(old: Query, new: Query) -> Iterator[str]:
    """Say which options of a query would be others, and what that means for its sequence."""
    before, after = dict(old.options), dict(new.options)
    for name in sorted({*before, *after}):
        if before.get(name) != after.get(name):
            yield f"{name} {before.get(name, 'not given')} -> {after.get(name, 'not given')}"
    if old.ordered:
        yield "what waits of it is delivered first, and a new sequence begins"


def _cost_lines(
    before: Plan | None, after: Plan, ledger: Ledger, settings: Mapping[str, str]
) -> Iterator[str]:
    """Say what the state and the work should come to once the streams have filled windows and buffers."""
    budget, policy = budget_of(settings), MemoryPolicy.of(settings)
    expected, buffers = costs(after, ledger, budget), buffer_costs(after, ledger, policy)
    if expected or not buffers:
        how = "measured" if all(each.estimate.seen for each in expected) else "assumed"
        yield f"expected by {how} rates: {_sum([each.own for each in expected])}"
        if before is not None:
            yield f"now by the same:        {_sum([each.own for each in costs(before, ledger, budget)])}"
    if buffers:
        yield f"without a window: {show_sum(buffers)}"


def _sum(offers: list[Offer]) -> str:
    """Add up what some joins cost."""
    rows, size, work = (sum(getattr(each, name) for each in offers) for name in ("rows", "bytes", "seconds"))
    return f"{rows:,.0f} rows held, {show_size(size)} of state, {work:.1%} of a second's work a second"


def _query_lines(change: Change, before: Plan | None, after: Plan, then: Ledger) -> Iterator[str]:
    """Say what becomes of each query."""
    for name in change.added:
        group, _, _ = after.find(name)
        yield f"  + {name:<12} {show_window(group, name):<28} complete from {_since(then, name)}"
    for name in change.altered if before else ():
        old, new = (plan.find(name) for plan in (before, after) if plan)
        windows = dict.fromkeys((show_window(old[0], name), show_window(new[0], name)))
        changed = [" -> ".join(windows), *_option_changes(old[2].query, new[2].query)]
        if new[2].query.aggregation is not None and not goes_on(new[2].query, old[2].query):
            since = _since(then, name)
            changed.append(f"its aggregates are computed anew from the rows held, complete from {since}")
        yield f"  ~ {name:<12} {', '.join(changed)}, from here on"
    for name in change.dropped:
        kept = before is None or before.query(name).sink.kind != "table"
        fate = (
            "stay where they are"
            if kept
            else "are in the state's table, where nobody could read them any more"
        )
        yield f"  - {name:<12} its results {fate}"


def _since(then: Ledger, name: str) -> str:
    """Say from when on a query would be complete."""
    state = then.query(name)
    since, why = state.complete_from, f", because {state.lacking}" if state.lacking else ""
    if since is None:
        return "the beginning"
    queries = then.plan.queries if then.plan else ()
    by_row = any(each.name == name and each.oblivious for each in queries)
    return f"row {since:,}{why}" if by_row else f"{show_time(since)} UTC{why}"


def _cut_lines(before: Plan | None, after: Plan) -> Iterator[str]:
    """Say where each chain would be split and merged."""
    old = {group.id: set(group.chain.cuts) for group in (before.groups if before else ())}
    for group in after.groups:
        cuts, old_cuts = set(group.chain.cuts), old.pop(group.id, set())
        yield f"chain {group.title}: {len(group.chain.readers)} slices (were {max(0, len(old_cuts) - 1)})"
        for cut in sorted(cuts - old_cuts) if old_cuts else ():
            yield f"    split at {show_cut(group, cut)}"
        for cut in sorted(old_cuts - cuts):
            yield f"    merged at {show_cut(group, cut)}"
    for gone in old:
        yield f"chain {gone}: gone, with its state"
