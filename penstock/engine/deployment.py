"""The plan in force on a Spark session: checked, made true, and delivering to consoles and callbacks.

All that can be refused is refused by `check`, before anything is started or written.

In:  the plan of what is registered now.  Out: its sources, and a ``plan`` commit.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from penstock.engine.change.transition import Transition, refuse_other_streams
from penstock.engine.outputs.pair_sql import check_outputs
from penstock.engine.outputs.result_types import refuse_other_types
from penstock.engine.outputs.results import read_output, read_results
from penstock.engine.runners.runner import Job
from penstock.engine.runners.spark import described
from penstock.engine.sinks.publication import clear_staging
from penstock.engine.sinks.sink_kind import sink_of
from penstock.engine.sinks.sink_paths import check_directories, check_paths, claim_sinks, undo_claims
from penstock.engine.sources.checkpoints import check_checkpoint
from penstock.engine.sources.sources import check_conditions, ingest_columns_of, open_source
from penstock.engine.spark.schemas import empty_rows
from penstock.engine.spark.session import settings_of
from penstock.engine.spark_backend import SparkBackend
from penstock.engine.stages.turn_context import TurnContext
from penstock.engine.views.plans import next_plan, standing_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from penstock.engine.store import Store
    from penstock.engine.workload import Workload
    from penstock.plan.build import Plan, Stopped
    from penstock.sql.query import Query
    from penstock.state.ledger import Ledger
    from penstock.state.values import Publication


@dataclass(frozen=True, slots=True)
class CheckedPlan:
    """What Spark has opened and typed for a plan."""

    sources: Mapping[str, DataFrame]
    """By stream."""
    empty: Mapping[str, DataFrame]
    """By query: its results, without rows."""


@dataclass
class Deployment:
    """Checks plans and makes them true, for one state."""

    store: Store
    workload: Workload
    session: Callable[[], SparkSession]
    """Returns the session, and starts it when it is first needed."""
    plan: Plan | None = None
    """The plan in force, with its streams as they are declared now."""
    drop_messages: dict[str, str] = field(default_factory=dict)
    """By dropped query, in lower case: what became of its results."""
    _backend: SparkBackend | None = None

    @property
    def spark(self) -> SparkSession:
        """Return the Spark session."""
        return self.session()

    @property
    def backend(self) -> SparkBackend:
        """Return the session as the backend of this state."""
        if self._backend is None:
            self._backend = SparkBackend(self.spark, self.store.files)
        return self._backend

    @property
    def ledger(self) -> Ledger:
        """Return what is true now."""
        return self.store.ledger

    @property
    def has_run_jobs(self) -> bool:
        """Return whether a Spark job of this engine has succeeded."""
        return self._backend is not None and self._backend.runner.has_run

    def check(self, transition: Transition, reading: Container[str] = ()) -> CheckedPlan:
        """Open every source and check every expression; `reading` are streams whose checkpoints are in use."""
        plan = transition.after
        refuse_other_streams(plan, self.ledger, self.store.files.root)
        for stream in plan.sources:
            if stream.name not in reading:
                check_checkpoint(self.store, stream.name)
        check_paths(plan, self.store.files)
        check_directories(plan.queries, standing_plan(self.ledger))
        for stream in plan.streams:
            check_conditions(self.spark, stream)
            ingest_columns_of(empty_rows(self.spark, stream), stream, plan.logs_of(stream.name))
        empty: dict[str, DataFrame] = {}
        for group in plan.groups:
            streams = tuple(plan.stream(name) for name in group.streams)
            results = check_outputs(self.spark, group, streams, self.backend.answers)
            self.backend.results.check(group, results, streams)
            empty |= results
        sources = {
            stream.name: self.workload.sources.get(stream.name)
            or open_source(self.spark, stream, in_order=plan.is_read_in_order(stream.name))
            for stream in plan.sources
        }
        return CheckedPlan(sources, empty)

    def refuse_other_types(self, transition: Transition, checked: CheckedPlan) -> None:
        """Refuse an altered query whose columns would have other types than its stored results."""
        before = transition.before
        for name in transition.change.altered if before else ():
            if before and sink_of(before.query(name)).keeps_results:
                stored = read_results(self.spark, self.store.files, before, lambda: self.ledger, name)
                refuse_other_types(name, stored.schema, checked.empty[name].schema)

    def apply(self, transition: Transition) -> Plan:
        """Mark the sinks of a plan as this state's, and make the plan true; or do neither."""
        version = self.ledger.version
        marked = claim_sinks(transition.after.queries, self.store.files, self.store.identity)
        try:
            transition.align_cursors(self.ledger, self.context)
            messages = transition.drop_messages(self.ledger)
            plan = self.commit(transition)
        except BaseException:
            if self.ledger.version == version:
                undo_claims(marked)
            raise
        self.drop_messages |= messages
        return plan

    def commit(self, transition: Transition) -> Plan:
        """Make a plan true under the settings of the session."""
        after = replace(transition.after, spark_settings=settings_of(self.spark))
        plan = replace(transition, after=after).apply(self.store, self.backend)
        self.plan = self.workload.as_declared(plan)
        return self.plan

    def plan_like(
        self,
        plan: Plan,
        queries: Iterable[Query],
        cuts: Mapping[str, Iterable[int]],
        stopped: Iterable[Stopped],
    ) -> Plan:
        """Plan some queries over the streams, and by the strategy, of a plan."""
        streams = {stream.name: stream for stream in plan.streams}
        return next_plan(streams, queries, self.ledger, strategy=plan.strategy, cuts=cuts, stopped=stopped)

    def context(self, plan: Plan) -> TurnContext:
        """Return the context of turns by a plan, with the default scheduler and no memory budget."""
        return TurnContext(self.store, self.backend, plan, self.hand_over)

    def hand_over(self, publication: Publication) -> None:
        """Hand the results of a unit or a release over to the sink of their query.

        If the query was dropped or stopped meanwhile, or has another sink now, its function still gets them.
        """
        name, queries = publication.query, self.plan.queries if self.plan else ()
        sink = next((sink_of(query) for query in queries if query.name == name), None)
        handler = self.workload.handlers.get(name)
        rows = read_output(self.spark, publication)
        with described(self.spark.sparkContext, Job("publish", f"show results of {name}")):
            if sink is not None and sink.hands_over:
                sink.hand_over(rows, publication.unit, handler)
            elif handler is not None:
                handler(rows, publication.unit)

    def prepare_sinks(self, plan: Plan, checked: CheckedPlan) -> None:
        """Create what the sinks of a plan need before their first result."""
        for query in plan.queries:
            sink_of(query).prepare(checked.empty[query.name])

    def clear_staging(self, plan: Plan) -> None:
        """Remove files that were staged for the sinks of a plan and never committed."""
        found = (sink_of(query).destination(self.store.files) for query in plan.queries)
        clear_staging({destination.root for destination in found if destination and not destination.folder})
