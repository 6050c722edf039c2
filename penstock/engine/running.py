"""The threads of a running engine: one ingest per stream, and the joiner.

    one thread of Spark per stream    Ingester ──commit──▶ notify ─┐
    any thread                        change_plan ─────────────────┴──▶ Joiner: turns

A plan changes between two units and between two batches of every stream, or inside a turn where it concerns no batch.

In:  a plan that is in force.  Out: batches ingested, turns taken; the error that stopped one of the threads.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack, contextmanager, nullcontext
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from penstock.engine.aggregate.answers import check_final_completes
from penstock.engine.change.recut_policy import RecutPolicy
from penstock.engine.change.transition import Transition
from penstock.engine.failures import ingest_failure, join_failure
from penstock.engine.sources.ingester import Ingester
from penstock.engine.spark.failed_queries import QueriesFailedError
from penstock.engine.stages.propagate import check_propagation
from penstock.engine.supervisor import Joiner
from penstock.engine.views.horizon import IdleClock
from penstock.engine.views.plans import current_plan, stopped_with_readers
from penstock.reporting import Logger
from penstock.sql.options import scheduler_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import DataFrame

    from penstock.engine.deployment import Deployment
    from penstock.engine.spark.early_start import PythonWorkers
    from penstock.engine.stages.turn_context import UnitDone
    from penstock.errors import PenstockError
    from penstock.plan.build import Plan
    from penstock.sql.query import Stream

_log = Logger(__name__)

_AWAIT_SECONDS = 0.2
"""Time between two looks at the other threads, while one is awaited."""


class RunningEngine:
    """The joiner and the ingests that serve the plan in force."""

    def __init__(
        self,
        deployment: Deployment,
        plan: Plan,
        *,
        once: bool,
        workers: PythonWorkers,
        watchers: list[Callable[[UnitDone], None]],
    ) -> None:
        """Make the joiner; no thread is started yet."""
        self._deployment, self._once, self._workers = deployment, once, workers
        self._recut_policy = RecutPolicy(deployment.workload.budget)
        self.ingesters: list[Ingester] = []
        context = deployment.context(plan)
        context.watchers = watchers
        context.recut = self._recut
        context.stop_queries = self._stop_queries
        context.idle = IdleClock(has_input=self.streams_with_input)
        context.defers_answers = once
        self.joiner = Joiner(context)
        self.joiner.on_failure = self._close_ingests
        self.joiner.mid_batch = self._streams_mid_batch
        self._follow_settings()

    def _follow_settings(self) -> None:
        """Take the scheduler and the budgets from what is registered now."""
        workload = self._deployment.workload
        self.joiner.context.scheduler = scheduler_of(workload.settings)
        self.joiner.context.memory = workload.memory
        self._recut_policy.budget = workload.budget

    def start(self, plan: Plan, sources: Mapping[str, DataFrame]) -> None:
        """Start the joiner and an ingest for each source."""
        self.joiner.start()
        for stream in plan.sources:
            self._start_ingest(plan, stream, sources[stream.name])

    def _start_ingest(self, plan: Plan, stream: Stream, source: DataFrame) -> None:
        store, backend = self._deployment.store, self._deployment.backend
        ingester = Ingester(store, backend, plan, stream, source, committed=self.joiner.notify)
        ingester.stop_queries = self._stop_queries
        self.ingesters.append(ingester)
        ingester.start(once=self._once)

    def _close_ingests(self) -> None:
        """Refuse further batches: without a joiner they would only fill the disk."""
        for ingester in self.ingesters:
            ingester.closed = True

    def _streams_mid_batch(self) -> set[str]:
        """List the streams that have a batch between source and commit."""
        return {ingester.stream.name for ingester in self.ingesters if ingester.batch.locked()}

    def streams_with_input(self) -> set[str]:
        """List the streams whose source has input."""
        return {ingester.stream.name for ingester in self.ingesters if ingester.has_input()}

    # --- changes of plan ------------------------------------------------------------------------------------------

    def change_plan(self) -> None:
        """Go over to the plan of what is registered now.

        All that may be refused is refused before the commit.  After it the new plan is in force.
        """
        workload = self._deployment.workload
        with self.joiner.between_units(), self._between_batches():
            ledger = self._deployment.ledger
            transition = Transition.to(workload.plan(ledger), ledger)
            transition.refuse_moves()
            check_final_completes(transition.after)
            check_propagation(transition.after)
            reading = {ingester.stream.name for ingester in self.ingesters}
            checked = self._deployment.check(transition, reading)
            self._deployment.refuse_other_types(transition, checked)
            plan = self._go_over(transition)
            self._follow_settings()
        self._deployment.prepare_sinks(plan, checked)
        self._follow_streams(plan, checked.sources)

    @contextmanager
    def _between_batches(self) -> Iterator[None]:
        """Hold the batch lock of every ingest."""
        with ExitStack() as batches:
            for ingester in self.ingesters:
                batches.enter_context(ingester.batch)
            yield

    def _go_over(self, transition: Transition) -> Plan:
        """Apply a transition; the joiner and all ingests follow."""
        plan = self._deployment.apply(transition)
        self.joiner.context.plan = plan
        for ingester in self.ingesters:
            ingester.follow(plan)
        return plan

    def _follow_streams(self, plan: Plan, sources: Mapping[str, DataFrame]) -> None:
        """Stop reading streams that no query reads any more, and start reading new ones."""
        wanted = {stream.name for stream in plan.streams}
        for ingester in list(self.ingesters):
            name = ingester.stream.name
            if name not in wanted or ingester.lacks_order(sources[name]):
                ingester.stop()
                self.ingesters.remove(ingester)
        reading = {ingester.stream.name for ingester in self.ingesters}
        for stream in plan.sources:
            if stream.name not in reading:
                self._start_ingest(plan, stream, sources[stream.name])

    def _stop_queries(self, failures: Mapping[str, str]) -> Plan:
        """Go on without queries that cannot be evaluated; the calling thread holds no batch lock."""
        deployment = self._deployment
        by_joiner = threading.current_thread() is self.joiner
        with nullcontext() if by_joiner else self.joiner.between_units(), self._between_batches():
            before = current_plan(deployment.ledger)
            at = datetime.now(UTC).isoformat(timespec="seconds")
            stopped = stopped_with_readers(before, failures, at)
            names = {stop.query.name for stop in stopped}
            rest = [query for query in before.queries if query.name not in names]
            after = deployment.plan_like(before, rest, before.cuts, (*before.stopped, *stopped))
            plan = self._go_over(Transition.to(after, deployment.ledger))
            for stop in stopped:
                _log.warning("%s; the other queries go on", stop)
            self._leave_streams(plan)
        if not rest:
            raise QueriesFailedError({stop.query.name: stop.reason for stop in plan.stopped})
        return plan

    def _leave_streams(self, plan: Plan) -> None:
        """Stop reading streams without queries, from a thread of its own: this one may be reading one of them."""
        wanted = {stream.name for stream in plan.streams}
        for ingester in [ingester for ingester in self.ingesters if ingester.stream.name not in wanted]:
            ingester.closed = True
            self.ingesters.remove(ingester)
            threading.Thread(target=ingester.stop, name="penstock-leave", daemon=True).start()

    def _recut(self, plan: Plan) -> Plan:
        """Cut chains elsewhere if measurements say so; called by the joiner between two units.

        Slices that are apart would have to be aligned first, so the plan stays as long as there are any.
        """
        deployment, ledger = self._deployment, self._deployment.ledger
        if any(ledger.groups[group.id].slices_apart for group in plan.groups):
            return plan
        better = self._recut_policy.look(plan, ledger)
        if better is None:
            return plan
        cuts, why = better
        again = deployment.plan_like(plan, plan.queries, cuts, plan.stopped)
        # sinks and ingest do not depend on where a chain is cut
        return deployment.commit(Transition.to(again, deployment.ledger, why))

    # --- waiting and stopping -------------------------------------------------------------------------------------

    def wait(self) -> None:
        """Wait until ingest has ended by itself and every result is delivered."""
        for ingester in self.ingesters:
            self._await(ingester)
        if self._once:
            self.joiner.finish_input()
        self._drain()

    def _await(self, ingester: Ingester) -> None:
        """Wait until one ingest has ended; raise what stops another thread meanwhile."""
        query = ingester.query
        while query is not None and query.isActive:
            try:
                query.awaitTermination(_AWAIT_SECONDS)  # type: ignore[arg-type]
            except Exception as error:
                raise self._explained(ingester, error) from error
            self.check()
        self.check()

    def process_available(self) -> None:
        """Ingest and join all input that is there, and deliver its results."""
        self.joiner.context.defers_answers = False  # the caller waits for answers
        self.joiner.notify()
        for ingester in self.ingesters:
            try:
                ingester.read_available()
            except Exception as error:
                raise self._explained(ingester, error) from error
        self._drain()

    def _drain(self) -> None:
        """Wait until all that was ingested is joined and published."""
        self.joiner.drain()
        self.check()

    def check(self) -> None:
        """Raise the error that stopped the joiner or an ingest, if any."""
        if failure := self._join_failure():
            raise failure
        for ingester in self.ingesters:
            stopped = ingester.query.exception() if ingester.query is not None else None
            if stopped is not None:
                raise self._explained(ingester, stopped)

    def _join_failure(self) -> PenstockError | None:
        error = self.joiner.failure
        return None if error is None else join_failure(error, self._deployment.plan, self._workers_failure())

    def _explained(self, ingester: Ingester, error: Exception) -> PenstockError:
        """Explain why an ingest has stopped: by itself, or because the joiner had."""
        workers = self._workers_failure()
        return self._join_failure() or ingest_failure(error, ingester.failure, ingester.stream, workers)

    def _workers_failure(self) -> Exception | None:
        """Return why no Python worker could be started; None once a job has run, which needs workers."""
        return None if self._deployment.has_run_jobs else self._workers.failure

    def finish(self) -> None:
        """Finish the unit at hand, and remove what was staged and never committed."""
        self.joiner.finish()
        plan = self._deployment.plan
        if plan is not None and not self._deployment.ledger.pending:  # else the next start needs staged files
            self._deployment.clear_staging(plan)
