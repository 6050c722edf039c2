"""A transition from the plan in force to another: made as a value, shown, refused or applied.

    Transition.to(plan, ledger) ──┬── losses, str(change)       shown by `penstock plan`
                                  ├── refuse_losses, …moves     refused at a start or while running
                                  └── align_cursors, apply      committed, with nothing left behind

A start, a change of queries, a chain that is cut elsewhere and a stopped query are all transitions.

In:  the plan of what is registered now, and the ledger.  Out: the same plan over what is stored then; a ``plan`` commit
if it changed.  No unit and no batch is under way meanwhile, so the ledger does not change.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from penstock.engine.change.diff import find_change, losses, stream_difference
from penstock.engine.change.plan_commit import (
    is_in_step,
    is_stored_anew,
    must_join_all,
    new_layouts,
    plan_commit,
    upgraded,
)
from penstock.engine.runners.runner import Job
from penstock.engine.sinks.sink_kind import sink_of
from penstock.engine.spark.spark_errors import short_message
from penstock.engine.stages.join import align_cursors, bring_up
from penstock.engine.stages.release import last_releases, release_commit, release_job
from penstock.engine.tasks.rewrite import Upgrade
from penstock.engine.views.plans import next_plan, standing_plan
from penstock.errors import InputError, PenstockError
from penstock.sql.source_options import without_stream_secrets
from penstock.state.commits import Declared
from penstock.state.ledger_fold import fold
from penstock.state.values import Replacement

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.engine.backend import Backend
    from penstock.engine.change.diff import Change
    from penstock.engine.runners.runner import Runner
    from penstock.engine.stages.turn_context import TurnContext
    from penstock.engine.store import Store
    from penstock.plan.build import Plan
    from penstock.sql.query import Query
    from penstock.state.commits import Released
    from penstock.state.ledger import Ledger
    from penstock.state.segment import Segment


@dataclass(frozen=True, slots=True)
class Transition:
    """From one plan to the next: what changes, and what would be lost without an explicit request."""

    before: Plan | None
    after: Plan
    change: Change
    losses: tuple[str, ...] = ()

    @classmethod
    def to(cls, after: Plan, ledger: Ledger, why: str = "") -> Transition:
        """Return the transition from the plan in force to another; `why` its chains are cut elsewhere."""
        before = standing_plan(ledger)
        change = find_change(before, after, why)
        return cls(before, after, change, tuple(losses(change, before, after, ledger)))

    # --- shown and refused ----------------------------------------------------------------------------------------

    def refuse_losses(self, state: str) -> None:
        """Refuse a change that loses results without an explicit request."""
        if self.losses:
            raise InputError(
                f"state {state} would lose results: {'; '.join(self.losses)}. Restore the script, use another "
                "state, or accept the loss (--accept-loss, start(accept_loss=True))"
            )

    def refuse_moves(self) -> None:
        """Refuse to give running queries other state: they would miss pairs."""
        if moved := self.change.moved:
            raise InputError(
                f"strategy cannot become {self.after.strategy} while the engine runs: {', '.join(moved)} would change "
                "state and miss pairs. Stop the engine, set the strategy in the script, and start with --accept-loss"
            )

    def expected(self, ledger: Ledger) -> Ledger:
        """Return the ledger as it would be afterwards, as far as that is known without writing anything."""
        return fold(ledger, plan_commit(self.after, self.before, self.change, ledger))

    def drop_messages(self, ledger: Ledger) -> dict[str, str]:
        """Describe what becomes of the results of each dropped query, by its name in lower case."""
        if self.before is None:
            return {}
        return {name.lower(): _drop_message(self.before.query(name), ledger) for name in self.change.dropped}

    # --- applied --------------------------------------------------------------------------------------------------

    def align_cursors(self, ledger: Ledger, context: Callable[[Plan], TurnContext]) -> None:
        """Advance the groups of the plan before to one cursor, where the next plan needs that."""
        if self.before is not None and not is_in_step(self.after, self.before, ledger):
            if must_join_all(self.after, self.before, ledger):
                bring_up(context(self.before), self.before.groups, without=self.change.failed)
            else:
                align_cursors(context(self.before), without=self.change.failed)

    def apply(self, store: Store, backend: Backend[Any]) -> Plan:
        """Commit the plan, unless it is in force already; the groups before are aligned."""
        ledger = store.ledger
        if self.before is not None and not self.change and not is_stored_anew(self.before, ledger):
            _declare(store, self.after)
            # keep the numbers of queries in its tables, whatever the order of registration
            return self.before
        upgrades = _upgrades(store, backend, self.after)
        plan = _planned_again(self.after, upgraded(ledger, self.after, upgrades))
        release = self._last_release(store, backend.runner)
        parts = backend.runner.parallelism
        store.commit(
            plan_commit(plan, self.before, self.change, ledger, upgrades, release=release, parts=parts)
        )
        for name in ledger.files() - store.ledger.files():
            store.let_go(name)
        return plan

    def _last_release(self, store: Store, runner: Runner) -> Released | None:
        """Release all held results of altered and stopped queries: their sequences end here."""
        ended = (*self.change.altered, *self.change.failed)
        last = last_releases(self.before, store.ledger, store.files, only=ended) if self.before else []
        return release_commit(last, runner.map(last, release_job(last))) if last else None


def _planned_again(plan: Plan, ledger: Ledger) -> Plan:
    """Plan the same over what is stored by now."""
    again = next_plan(
        {stream.name: stream for stream in plan.streams},
        plan.queries,
        ledger,
        strategy=plan.strategy,
        cuts=plan.cuts,
        stopped=plan.stopped,
    )
    return replace(again, spark_settings=plan.spark_settings)


def _drop_message(query: Query, ledger: Ledger) -> str:
    """Describe what becomes of a query's results when it is dropped."""
    count, held = ledger.query(query.name).results, ledger.hold(query.name).rows
    message = sink_of(query).dropped(count)
    return f"{message}; {held:,} results that waited for their order are not delivered" if held else message


def refuse_other_streams(plan: Plan, ledger: Ledger, state: str) -> None:
    """Refuse a plan with a stream that is declared in another way than before, even if no query read it lately.

    Results of a query that no query reads now may change.
    """
    read = {stream.name for stream in ledger.plan.streams} if ledger.plan else set()
    free = {stream.name for stream in plan.results if stream.name not in read}
    known = [stream for stream in ledger.declared.values() if not (stream.results and stream.name in free)]
    if (difference := stream_difference(known, plan.streams)) is not None:
        raise InputError(
            f"state {state} was made by another script: {difference}. "
            "Declare the stream as it was, give it another name, or give a new directory (--state)"
        )


def _declare(store: Store, plan: Plan) -> None:
    """Commit the options that streams are read with, if they have changed."""
    declared = store.ledger.declared
    fresh = tuple(
        stream for stream in map(without_stream_secrets, plan.streams) if declared.get(stream.name) != stream
    )
    if fresh:
        store.commit(Declared(fresh))


def _upgrades(store: Store, backend: Backend[Any], plan: Plan) -> dict[str, Replacement]:
    """Evaluate new predicates on the rows held, wherever the stored columns allow it."""
    ledger = store.ledger
    upgrades: dict[str, Replacement] = {}
    for log in new_layouts(plan, ledger):
        stream, layout = plan.stream(log.stream), ledger.layout(log.id) + 1
        for number, old in ledger.layouts.get(log.id, {}).items():
            segments = [segment for segment in ledger.segments(log.id) if segment.layout == number]
            if segments and backend.can_upgrade(stream, log, old):
                made = _upgraded(backend, Upgrade(stream, log, old, segments, layout))
                before = upgrades.get(log.id, Replacement((), ()))
                removed = (*before.removed, *(segment.name for segment in segments))
                upgrades[log.id] = Replacement(removed, (*before.added, *made))
    return upgrades


def _upgraded(backend: Backend[Any], upgrade: Upgrade) -> list[Segment]:
    """Write segments again for a new plan; refuse the plan if a new predicate fails on rows that are held."""
    try:
        job = Job("change", f"evaluate new predicates on stored rows of {upgrade.stream.name}")
        return backend.runner.map_sql(upgrade.tasks(), backend.upgrade_sql(upgrade), job)
    except PenstockError:
        raise
    except Exception as error:
        asked = [predicate for predicate in upgrade.log.predicates if predicate not in upgrade.old.predicates]
        raise InputError(
            f"the change cannot be made: {' or '.join(asked)} cannot be evaluated on rows of stream "
            f"{upgrade.stream.name} that are stored: {short_message(error)}. Guard the expression, or correct the query"
        ) from error
