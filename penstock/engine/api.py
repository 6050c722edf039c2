"""The engine: what a user holds in their hands.

    engine = Engine(state="state")                  owns the state, reads the journal
    engine.stream(...); engine.query(...)           or engine.script(text)
    engine.start()                                  checks everything, then ingests and joins until stop()
    engine.process_available()                      all input that is there is joined and delivered
    engine.stop()

Nothing starts before everything is checked: SQL, types (by Spark itself), paths, sinks, and that the state was made by
these queries.  What is committed is true whatever happens next; starting again on the same state goes on from there.
"""

from __future__ import annotations

import os
import threading
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from penstock.engine.aggregate.answers import check_final_completes
from penstock.engine.change.recut_policy import RecutPolicy
from penstock.engine.change.transition import Transition, refuse_other_streams
from penstock.engine.control import Listener
from penstock.engine.damage import with_owner
from penstock.engine.outputs.pair_sql import check_outputs
from penstock.engine.outputs.result_types import refuse_other_types
from penstock.engine.outputs.results import (
    read_finished,
    read_late,
    read_output,
    read_results,
    write_empty_results,
)
from penstock.engine.outputs.unknown_results import refuse_unknown_results
from penstock.engine.report.buffer_costs import buffer_cost_lines, buffer_costs
from penstock.engine.report.costs import cost_lines, costs
from penstock.engine.report.status import look_at
from penstock.engine.runners.runner import Job
from penstock.engine.runners.spark import described
from penstock.engine.sinks.sink_paths import (
    check_directories,
    check_paths,
    claim_sinks,
    file_sinks,
    undo_claims,
)
from penstock.engine.sinks.sinks import clear_staging, sink_root
from penstock.engine.sources.checkpoints import check_checkpoint
from penstock.engine.sources.ingester import Ingester
from penstock.engine.sources.sources import check_conditions, open_source, with_ingest_columns
from penstock.engine.spark.early_start import PythonWorkers
from penstock.engine.spark.failed_queries import QueriesFailedError
from penstock.engine.spark.schemas import arrow_types, empty_rows
from penstock.engine.spark.session import (
    embedded_session,
    refuse_other_dialects,
    refuse_unpinned_threads,
    settings_of,
    spark_options,
    use_plain_files,
)
from penstock.engine.spark.spark_errors import named_file, short_message
from penstock.engine.spark_backend import SparkBackend
from penstock.engine.stages.propagate import check_propagation, finished_now
from penstock.engine.stages.publish import publish
from penstock.engine.stages.turn_context import TurnContext
from penstock.engine.store import Store
from penstock.engine.supervisor import Joiner
from penstock.engine.views.idle import IdleClock
from penstock.engine.views.memory import MemoryPolicy
from penstock.engine.views.plans import (
    current_plan,
    made_under,
    next_plan,
    standing_plan,
    stopped_with_readers,
)
from penstock.engine.workload import Workload, find_name
from penstock.errors import DamagedError, InputError, MissingError, PenstockError, RunError
from penstock.plan.plan_text import plan_text, serving
from penstock.plan.spark_settings import refuse_other
from penstock.reporting import Logger, Tolerant
from penstock.sql.options import scheduler_of
from penstock.sql.script import AlterQuery, CreateQuery, DropQuery, Explain, ShowQueries
from penstock.sql.source_options import scrubbed
from penstock.state.files import LocalFiles
from penstock.state.locations import absolute, refuse_one_process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Self

    from pyspark.sql import DataFrame, SparkSession

    from penstock.engine.report.status import Status
    from penstock.engine.sinks.sinks import Callback
    from penstock.engine.stages.turn_context import UnitDone
    from penstock.plan.build import Plan, Stopped
    from penstock.sql.query import Query, Sink, Stream
    from penstock.sql.script import Script
    from penstock.state.values import Publication


_log = Logger(__name__)


class QueryHandle:
    """A registered query, as the user refers to it."""

    def __init__(self, engine: Engine, name: str) -> None:
        """Point at a query of an engine."""
        self._engine, self.name = engine, name

    def results(self) -> DataFrame:
        """Give the committed results as a Spark DataFrame."""
        return self._engine.results(self.name)

    def punctuations(self) -> DataFrame:
        """Give the values of the join's key that no more results will have, as a Spark DataFrame."""
        return self._engine.punctuations(self.name)

    @property
    def complete_from(self) -> datetime | None:
        """Give the event time from which on every result is delivered; None: from the beginning."""
        return self._engine.complete_from(self.name)

    @property
    def failure(self) -> str | None:
        """Say why the query was stopped, if it could not be evaluated; None if it runs."""
        return self._engine.failures.get(self.name)

    def __repr__(self) -> str:
        """Name the query."""
        return f"<query {self.name}>"


class Engine:
    """Runs many window joins over the same streams as one shared plan."""

    def __init__(
        self,
        state: str | os.PathLike[str],
        spark: SparkSession | None = None,
        *,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """Own a state directory; Spark is the given session, or an embedded one when first needed."""
        refuse_one_process(absolute(os.fspath(state)), "a state")
        self._store = Store(os.fspath(state))
        self._spark = spark
        self._workers: PythonWorkers | None = None
        self._workload = Workload(
            settings=dict(settings or {}),
            spark=lambda: self.spark,
            session=lambda: settings_of(self._spark) if self._spark is not None else None,
        )
        self._plan: Plan | None = None
        self._ingesters: list[Ingester] = []
        self._joiner: Joiner | None = None
        self._watchers: list[Callable[[UnitDone], None]] = []
        self._listener: Listener | None = None
        self._recut_policy = RecutPolicy()
        self._spark_backend: SparkBackend | None = None
        self._drop_messages: dict[str, str] = {}
        """What has become of the results of queries that were dropped."""
        self._registering = threading.RLock()
        self._once = False
        self._closed = False

    # ------------------------------------------------------------------ what to run

    @property
    def spark(self) -> SparkSession:
        """Give the Spark session, starting the embedded one if there is none."""
        if self._spark is None:
            self._spark = embedded_session(spark_options(self._workload.settings))
            if isinstance(self._store.files, LocalFiles):
                use_plain_files(self._spark)
        return self._spark

    @property
    def _backend(self) -> SparkBackend:
        """Return the session as the backend of this state."""
        if self._spark_backend is None:
            self._spark_backend = SparkBackend(self.spark, self._store.files)
        return self._spark_backend

    def stream(
        self,
        name: str,
        source: DataFrame,
        *,
        time: str | None = None,
        lateness: str = "0 seconds",
        retain: str | None = None,
        trigger: str | None = None,
        ordered: str | None = None,
        scrambling: int | None = None,
        multiplicity: int | None = None,
        punctuation: str | None = None,
        punctuates: str | None = None,
        unique: str | None = None,
        punctuation_of: str | None = None,
        promises: int | None = None,
    ) -> None:
        """Declare a stream that is a streaming DataFrame; it is read as soon as a query asks for it.

        `lateness` is how far behind the newest row of its stream a row may come; later ones are set aside (`late`).
        `retain` keeps rows at least this long, for queries still to come; by default as long as a query needs them.
        `trigger` is how often Spark asks the source for new rows, by default every 100 ms.

        It needs no `time` where all queries that read it have no window.  Such queries need `ordered`, the column whose
        order the rows roughly follow as they arrive, or `scrambling`, the maximum number of positions by which a row
        may be out of order.  `multiplicity` is the maximum number of rows with one value of what they are joined on.
        `scrambling` and `multiplicity` are measured where they are not given.

        Rows may be promises, not data: those for which `punctuation` holds (Spark SQL over the columns) say that no
        row comes after them with their values of the columns that `punctuates` names, as in ``"item_id"``,
        ``"item_id IN items"`` or ``"item_id BETWEEN lo AND hi"``.  With `unique` every row is the last with its value
        of these columns.  With `punctuation_of` the rows are promises of another stream, declared before.  At the most
        `promises` of them are remembered.
        """
        given = {
            "retain": retain,
            "trigger": trigger,
            "ordered": ordered,
            "scrambling": scrambling,
            "multiplicity": multiplicity,
            "punctuation": punctuation,
            "punctuates": punctuates,
            "unique": unique,
            "punctuation_of": punctuation_of,
            "promises": promises,
        }
        options = {key: str(value) for key, value in given.items() if value is not None}
        with self._registration():
            self._workload.add_stream(name, source, time, lateness, options)

    def query(
        self, name: str, sql: str, *, sink: Sink | Callback | None = None, **options: str
    ) -> QueryHandle:
        """Register a query, also while running; its results go to `sink`, by default the state's own table.

        While running it starts with what is held of the past; `QueryHandle.complete_from` says from when it is exact.
        """
        with self._registration():
            self._workload.add_query(name, sql, sink, options)
        return QueryHandle(self, name)

    def script(self, text: str) -> Script:
        """Register the streams, queries and settings of a script."""
        with self._registration():
            return self._workload.add_script(text)

    def drop(self, name: str) -> None:
        """Let a query go, also while running.

        Results that were delivered stay where they are; those in the state's table cannot be read any more.
        """
        with self._registration():
            self._workload.drop_query(name)

    def alter(self, name: str, sql: str) -> None:
        """Define a query anew, also while running: its window, predicates or columns change from here on."""
        with self._registration():
            self._workload.alter_query(name, sql)

    @contextmanager
    def _registration(self) -> Iterator[None]:
        """Register something, one at a time, and let a running engine follow; all of it or nothing."""
        if self._closed:
            raise InputError("the engine has stopped: make a new one on the same state")
        if self._joiner is not None and threading.current_thread() is self._joiner:
            raise InputError(
                "a callback cannot change the queries it is called for: do it from another thread"
            )
        with self._registering:
            before, version = self._workload.copy(), self._store.ledger.version
            try:
                yield
                if self._joiner is not None:
                    self._change_plan(self._joiner)
            except BaseException:
                if self._store.ledger.version == version:  # what is committed stays registered
                    self._workload.go_back(before)
                raise

    def complete_from(self, name: str) -> datetime | None:
        """Give the event time from which on a query's results are complete; None: from the beginning.

        One that Python's calendar does not reach is the first or last that it has.  A query without a window knows no
        event times: it is complete from a row on, which `status` has.
        """
        query = self.plan.query(name)
        micros = self._store.ledger.query(query.name).complete_from
        if micros is None or query.oblivious:
            return None
        try:
            return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=micros)
        except OverflowError:
            return datetime.max.replace(tzinfo=UTC) if micros > 0 else datetime.min.replace(tzinfo=UTC)

    @property
    def plan(self) -> Plan:
        """Give the shared plan of the registered queries, or of the state when none are registered."""
        if self._plan is not None:
            return self._plan
        ledger = self._store.ledger
        if not self._workload.queries and ledger.plan:
            return self._as_registered(current_plan(ledger))
        return self._workload.plan(ledger)

    def _as_registered(self, plan: Plan) -> Plan:
        """Give a plan its streams as they are declared now: with secrets, which the state does not keep."""
        declared = self._workload.streams
        return replace(plan, streams=tuple(declared.get(each.name, each) for each in plan.streams))

    # ------------------------------------------------------------------ running

    def start(self, *, once: bool = False, accept_loss: bool = False) -> None:
        """Check everything, then ingest and join in the background until `stop`.

        With `once`, ingest ends by itself when all input that is there now has been read, and answers of aggregates
        may wait for each other until then; see `wait`.  A start that would lose results, say because a query of the
        state is not registered any more, is refused unless accepted.
        """
        if self._joiner is not None:
            raise InputError("start: the engine is running already")
        self._once = once
        transition = Transition.to(self.plan, self._store.ledger)
        if not accept_loss:
            transition.refuse_losses(self._store.files.root)
        if not once:
            check_final_completes(transition.after)
        check_propagation(transition.after)
        self._check_settings()
        self._workers = PythonWorkers(self.spark)
        self._workers.begin()
        arrow_types.cache_clear()
        sources, empty = self._check(transition.after)
        self._workers.await_executor()
        sinks = file_sinks(transition.after.queries).values()
        refuse_unknown_results(sinks, self._store.files, self._store.ledger)
        self._refuse_other_types(transition, empty)
        plan = self._go_over(transition)
        self._recut_policy = RecutPolicy(self._workload.budget)
        joiner = self._new_joiner(plan)
        publish(joiner.context)
        clear_staging(self._roots(plan))
        self._store.clear("spool")  # all of it was handed over
        write_empty_results(plan, empty)
        joiner.start()
        self._joiner = joiner
        for stream in plan.sources:
            self._start_ingest(plan, stream, sources[stream.name])
        self._listener = Listener(self._store.files, self._handle)
        self._listener.start()

    def _check_settings(self) -> None:
        """Refuse a session whose settings give the queries, or what the state holds, another meaning."""
        refuse_unpinned_threads()
        refuse_other_dialects(self.spark)
        settings = settings_of(self.spark)
        self._workload.refuse_other_settings(settings)
        made = made_under(self._store.ledger)
        if made is not None:
            refuse_other(made, settings, self._store.files.root)

    def _new_joiner(self, plan: Plan) -> Joiner:
        """Make the thread that joins by a plan."""
        context = self._new_context(plan)
        context.watchers = self._watchers
        context.reconsider = self._reconsider
        context.stop_queries = self._stop_queries
        context.idle = IdleClock(has_input=self._streams_with_input)
        context.scheduler = scheduler_of(self._workload.settings)
        context.memory = MemoryPolicy.of(self._workload.settings)
        context.in_no_hurry = self._once
        joiner = Joiner(context)
        joiner.on_failure = self._stop_reading
        joiner.mid_batch = self._streams_mid_batch
        return joiner

    def _handle(self, request: dict[str, str]) -> str:
        """Do what somebody asks of the running engine (`penstock add`, `penstock drop`)."""
        if self._once:
            raise InputError(
                "this engine reads what is there and ends (--once): edit its script and run it again"
            )
        if request.get("do") == "add":
            script = self.script(request["script"])
            return "\n".join(self.answers(script, changes=True)) or "nothing to add"
        if request.get("do") == "drop":
            self.drop(request["query"])
            return self._dropped(request["query"])
        raise InputError(f"the engine cannot {request.get('do')!r}: it can add and drop")

    def answers(self, script: Script, *, changes: bool = False) -> Iterator[str]:
        """Answer the questions of a script (EXPLAIN, SHOW QUERIES), and say what it changed if that is wanted."""
        for statement in script.statements:
            match statement:
                case Explain(name):
                    yield self.explain(name)
                case ShowQueries():
                    yield "\n".join(
                        f"{each.name}: {self._completeness(each.name)}" for each in self.plan.queries
                    )
                case CreateQuery(query) if changes and find_name(query.name, self._workload.queries):
                    yield f"added {query.name}: {self._completeness(query.name)}"
                case DropQuery(name) if changes:
                    yield self._dropped(name)
                case AlterQuery(name) if changes:
                    yield f"altered {name}: {self._completeness(name)}"

    def _dropped(self, name: str) -> str:
        """Say what has become of the results of a query that was dropped while running."""
        return f"dropped {name}; {self._drop_messages.get(name.lower(), 'it had no results')}"

    def _completeness(self, name: str) -> str:
        """Say in words from when on a query is complete."""
        query = self.plan.query(name)
        if query.is_empty:
            return "no results, as its conditions exclude every pair of rows"
        state = self._store.ledger.query(query.name)
        why = f", because {state.lacking}" if state.lacking else ""
        if query.oblivious and state.complete_from is not None:
            return f"complete from row {state.complete_from:,} of each stream{why}"
        since = self.complete_from(name)
        return (
            "complete from the beginning"
            if since is None
            else f"complete from {since:%Y-%m-%d %H:%M:%S.%f} UTC{why}"
        )

    def _start_ingest(self, plan: Plan, stream: Stream, source: DataFrame) -> None:
        """Start reading one stream."""
        if self._joiner is None:
            return
        ingester = Ingester(self._store, self._backend, plan, stream, source, committed=self._joiner.notify)
        ingester.stop_queries = self._stop_queries
        self._ingesters.append(ingester)
        ingester.start(once=self._once)

    def _stop_reading(self) -> None:
        """Let no more batches in: what nobody joins would only fill the disk."""
        for ingester in self._ingesters:
            ingester.closed = True

    def _streams_mid_batch(self) -> set[str]:
        """Name the streams that have a batch between source and commit."""
        return {each.stream.name for each in self._ingesters if each.batch.locked()}

    def _streams_with_input(self) -> set[str]:
        """Name the streams whose source has input."""
        return {each.stream.name for each in self._ingesters if each.has_input()}

    def _change_plan(self, joiner: Joiner) -> None:
        """Go over to the plan of what is registered now: between two units, and between two batches of each stream.

        All that may be refused is done before the commit; after it the new plan is the plan.
        """
        with joiner.between_units(), self._between_batches():
            transition = Transition.to(self._workload.plan(self._store.ledger), self._store.ledger)
            transition.refuse_moves()
            check_final_completes(transition.after)
            check_propagation(transition.after)
            sources, empty = self._check(transition.after)
            self._refuse_other_types(transition, empty)
            plan = self._go_over(transition)
            joiner.context.scheduler = scheduler_of(self._workload.settings)
            joiner.context.memory = MemoryPolicy.of(self._workload.settings)
            self._recut_policy.budget = self._workload.budget
        write_empty_results(plan, empty)
        self._follow_streams(plan, sources)

    @contextmanager
    def _between_batches(self) -> Iterator[None]:
        """Do something while no batch is on its way."""
        with ExitStack() as batches:
            for ingester in self._ingesters:
                batches.enter_context(ingester.batch)
            yield

    def _go_over(self, transition: Transition) -> Plan:
        """Apply a transition, and let everybody who runs follow."""
        plan = self._plan = self._apply(transition)
        if self._joiner is not None:
            self._joiner.context.plan = plan
        for ingester in self._ingesters:
            ingester.follow(plan)
        return plan

    def _refuse_other_types(self, transition: Transition, empty: Mapping[str, DataFrame]) -> None:
        """Refuse a query that is defined anew with other types than its results have."""
        before = transition.before
        for name in transition.change.altered if before else ():
            if before and before.query(name).sink.kind in {"table", "parquet"}:
                was = read_results(self.spark, self._store.files, before, lambda: self._store.ledger, name)
                refuse_other_types(name, was.schema, empty[name].schema)

    def _apply(self, transition: Transition) -> Plan:
        """Make the sinks of a plan this state's own, and the plan true; or neither."""
        version = self._store.ledger.version
        marked = claim_sinks(transition.after.queries, self._store.files, self._store.identity)
        try:
            transition.align_cursors(self._store.ledger, self._new_context)
            gone = transition.drop_messages(self._store.ledger)
            plan = self._made_true(transition)
        except BaseException:
            if self._store.ledger.version == version:
                undo_claims(marked)
            raise
        self._drop_messages |= gone
        return self._as_registered(plan)

    def _made_true(self, transition: Transition) -> Plan:
        """Make a plan true under the settings of the session."""
        after = replace(transition.after, spark_settings=settings_of(self.spark))
        return replace(transition, after=after).apply(self._store, self._backend)

    def _stop_queries(self, failures: Mapping[str, str]) -> Plan:
        """Go on without queries that cannot be evaluated; called by whoever found out, holding no lock of a batch."""
        joiner = self._joiner
        assert joiner is not None  # noqa: S101 - nothing is evaluated before it is there
        by_joiner = threading.current_thread() is joiner
        with nullcontext() if by_joiner else joiner.between_units(), self._between_batches():
            before = current_plan(self._store.ledger)
            at = datetime.now(UTC).isoformat(timespec="seconds")
            stopped = stopped_with_readers(before, failures, at)
            names = {each.query.name for each in stopped}
            rest = [each for each in before.queries if each.name not in names]
            after = self._planned_like(before, rest, before.cuts, (*before.stopped, *stopped))
            plan = self._go_over(Transition.to(after, self._store.ledger))
            for each in stopped:
                _log.warning("%s; the other queries go on", each)
            self._leave_streams(plan)
        if not rest:
            raise QueriesFailedError({each.query.name: each.reason for each in plan.stopped})
        return plan

    def _planned_like(
        self,
        plan: Plan,
        queries: Iterable[Query],
        cuts: Mapping[str, Iterable[int]],
        stopped: Iterable[Stopped],
    ) -> Plan:
        """Plan some queries over the streams, and by the strategy, of a plan."""
        streams = {each.name: each for each in plan.streams}
        return next_plan(
            streams, queries, self._store.ledger, strategy=plan.strategy, cuts=cuts, stopped=stopped
        )

    def _leave_streams(self, plan: Plan) -> None:
        """Stop reading streams that no query reads any more, also if this is the thread that reads one of them."""
        wanted = {stream.name for stream in plan.streams}
        for ingester in [each for each in self._ingesters if each.stream.name not in wanted]:
            ingester.closed = True
            self._ingesters.remove(ingester)
            threading.Thread(target=ingester.stop, name="penstock-leave", daemon=True).start()

    @property
    def failures(self) -> dict[str, str]:
        """Give the queries that could not be evaluated and were stopped, each with the reason."""
        return {each.query.name: each.reason for each in self.plan.stopped}

    def _reconsider(self, plan: Plan) -> Plan:
        """Cut chains elsewhere if what was measured says so; called by the joiner, between two units.

        Not while outer slices are behind: they would have to catch up first.
        """
        if any(self._store.ledger.groups[group.id].slices_apart for group in plan.groups):
            return plan
        better = self._recut_policy.look(plan, self._store.ledger)
        if better is None:
            return plan
        cuts, why = better
        again = self._planned_like(plan, plan.queries, cuts, plan.stopped)
        # sinks and ingest go on as they are: where a chain is cut makes no difference to them
        self._plan = self._as_registered(self._made_true(Transition.to(again, self._store.ledger, why)))
        return self._plan

    def _new_context(self, plan: Plan) -> TurnContext:
        """Make what turns by a plan work on."""
        return TurnContext(self._store, self._backend, plan, self._hand_over)

    def _follow_streams(self, plan: Plan, sources: Mapping[str, DataFrame]) -> None:
        """Stop reading streams that nobody asks for any more, start reading those somebody does."""
        wanted = {stream.name for stream in plan.streams}
        for ingester in list(self._ingesters):
            name = ingester.stream.name
            if name not in wanted or ingester.lacks_order(sources[name]):
                ingester.stop()
                self._ingesters.remove(ingester)
        reading = {each.stream.name for each in self._ingesters}
        for stream in plan.sources:
            if stream.name not in reading:
                self._start_ingest(plan, stream, sources[stream.name])

    def _check(self, plan: Plan) -> tuple[dict[str, DataFrame], dict[str, DataFrame]]:
        """Let Spark check every expression, and open every source, before anything is started or written.

        Give the sources by stream, and the empty result of every query.
        """
        refuse_other_streams(plan, self._store.ledger, self._store.files.root)
        reading = {each.stream.name for each in self._ingesters}
        for stream in plan.sources:
            if stream.name not in reading:
                check_checkpoint(self._store, stream.name)
        check_paths(plan, self._store.files)
        check_directories(plan.queries, standing_plan(self._store.ledger))
        for stream in plan.streams:
            with_ingest_columns(empty_rows(self.spark, stream), stream, plan.logs_of(stream.name))
            check_conditions(self.spark, stream)
        empty: dict[str, DataFrame] = {}
        for group in plan.groups:
            streams = tuple(plan.stream(name) for name in group.streams)
            results = check_outputs(self.spark, group, streams, self._backend.answers)
            self._backend.results.check(group, results, streams)
            empty |= results
        sources = {
            stream.name: self._workload.sources.get(stream.name)
            or open_source(self.spark, stream, in_order=plan.is_read_in_order(stream.name))
            for stream in plan.sources
        }
        return sources, empty

    def _roots(self, plan: Plan) -> list[str]:
        """List the directories that tasks write output to."""
        files = self._store.files
        return list({root for query in plan.queries if (root := sink_root(query, files))})

    def _hand_over(self, publication: Publication) -> None:
        """Give a unit's or a release's results to a console or callback."""
        rows = read_output(self.spark, publication)
        query = next((each for each in self.plan.queries if each.name == publication.query), None)
        handler = self._workload.handlers.get(publication.query)
        with described(self.spark.sparkContext, Job("publish", f"show results of {publication.query}")):
            if query is not None and query.sink.kind == "console":
                print(f"-- {publication.query}, unit {publication.unit}")  # noqa: T201 - the sink is the console
                rows.show(truncate=False)
            elif handler is not None:
                handler(rows, publication.unit)
            elif query is not None and query.sink.kind == "callback":
                raise InputError(
                    f"query {publication.query} delivers to a callback: register it again with its function"
                )
        # else it, or its sink, was dropped before the last results were handed over, and nobody is there to take them

    def wait(self) -> None:
        """Wait until ingest ends by itself (`start(once=True)`) and every result is delivered.

        Then nothing is waited for any more: windows that count rows take all that is there as complete, and results
        that are held until it is their turn are released.
        """
        for ingester in self._ingesters:
            self._await(ingester)
        if self._joiner is not None and self._once:
            self._joiner.finish_input()
        self._drain()

    def _await(self, ingester: Ingester) -> None:
        """Wait for one stream's ingest to end, looking out for trouble elsewhere."""
        query = ingester.query
        while query is not None and query.isActive:
            try:
                query.awaitTermination(0.2)  # type: ignore[arg-type]
            except Exception as error:
                raise self._explained(ingester, error) from error
            self.check_running()
        self.check_running()

    def process_available(self) -> None:
        """Join all input that is there and deliver its results.

        Windows that count rows, and results in order, come as far as the watermarks have passed.
        """
        if self._joiner is None:
            raise InputError("process_available: the engine is not started; call start() first")
        if threading.current_thread() is self._joiner:
            raise InputError("a callback cannot wait for itself: call process_available from another thread")
        self._joiner.context.in_no_hurry = False  # here somebody waits
        self._joiner.notify()
        for ingester in self._ingesters:
            try:
                ingester.read_available()
            except Exception as error:
                raise self._explained(ingester, error) from error
        self._drain()

    def _drain(self) -> None:
        """Wait until all that was ingested is joined and published."""
        if self._joiner is not None:
            self._joiner.drain()
        self.check_running()

    def check_running(self) -> None:
        """Raise what stopped the join or an ingest, if anything did."""
        failure = self._join_failure()
        if failure is not None:
            raise failure
        for ingester in self._ingesters:
            stopped = ingester.query.exception() if ingester.query is not None else None
            if stopped is not None:
                raise self._explained(ingester, stopped)

    def _join_failure(self) -> PenstockError | None:
        """Say what stopped the join, if anything did."""
        failure = self._joiner.failure if self._joiner is not None else None
        if isinstance(failure, DamagedError | MissingError):
            return RunError(with_owner(str(failure), self._plan))
        if failure is None or isinstance(failure, PenstockError):
            return failure
        cause = self._workers_failure() or failure
        explained = RunError(with_owner(f"the join failed: {short_message(cause)}", self._plan))
        explained.__cause__ = failure
        return explained

    def _workers_failure(self) -> Exception | None:
        """Return why Python workers could not be started, as long as no job has run: no job after it says as much."""
        backend = self._spark_backend
        has_run = backend is not None and backend.runner.has_run
        return self._workers.failure if self._workers is not None and not has_run else None

    def _explained(self, ingester: Ingester, error: Exception) -> PenstockError:
        """Say which stream and which file stopped the run, or that ingest stopped because the join had."""
        failed = self._join_failure()
        if failed is not None:
            return failed
        cause = ingester.failure or error
        if isinstance(cause, PenstockError):
            return cause
        cause = self._workers_failure() or cause
        name, file = ingester.stream.name, named_file(cause) or named_file(error)
        if file:
            return RunError(
                f"source file {file} of stream {name} cannot be read: {short_message(cause).rstrip('.')}. "
                "Mend or remove the file and run again: committed results are kept, and the run goes on from there"
            )
        return RunError(f"stream {name}: {scrubbed(short_message(cause), ingester.stream.options)}")

    def stop(self) -> None:
        """Stop ingest, finish the unit at hand, and give up the state."""
        if self._closed:
            return
        if self._joiner is not None and threading.current_thread() is self._joiner:
            raise InputError("a callback cannot stop the engine it is called by: do it from another thread")
        self._closed = True
        with ExitStack() as last:
            last.callback(self._store.close)
            last.callback(self._finish_joining)
            for ingester in self._ingesters:
                last.callback(ingester.stop)
            if self._listener is not None:
                last.callback(self._listener.finish)

    def _finish_joining(self) -> None:
        """Finish the unit at hand, and remove what was staged and never committed."""
        if self._joiner is None:
            return
        self._joiner.finish()
        if (
            self._plan is not None and not self._store.ledger.pending
        ):  # else the next start needs what is staged
            clear_staging(self._roots(self._plan))

    def __enter__(self) -> Self:
        """Use the engine in a ``with`` block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop at the end of the block."""
        self.stop()

    # ------------------------------------------------------------------ looking

    def results(self, name: str) -> DataFrame:
        """Give a query's committed results as a Spark DataFrame."""
        return read_results(self.spark, self._store.files, self.plan, lambda: self._store.ledger, name)

    def punctuations(self, name: str) -> DataFrame:
        """Give the values of a query's join key that are finished: no more of its results will have them."""
        query = self.plan.query(name)
        task = finished_now(self.plan, self._store.ledger, query, self._backend)
        return read_finished(self.spark, self._store.files, self.plan, query, task)

    def late(self, stream: str) -> DataFrame:
        """Return the rows of a stream that were set aside, each with the reason in `_reason`.

        They came too late, had no event time, or broke a promise of their stream.
        """
        declared = self.plan.stream(stream)
        committed = self._store.ledger.stream(declared.name).batches
        return read_late(self.spark, self._store.files, declared, committed)

    def status(self) -> Status:
        """Say how far every stream, slice and query is."""
        return look_at(self._store.ledger)

    @property
    def task_counts(self) -> dict[str, int]:
        """Return what Spark tasks have counted for this engine: rows, pairs, results, answers."""
        return self._backend.runner.counts

    def watch(self, watcher: Callable[[UnitDone], None]) -> None:
        """Call a function after every unit, from the joiner's thread; its first error is logged and ends nothing."""
        tolerant = Tolerant(_log, "a watcher of units")

        def watching(done: UnitDone) -> None:
            with tolerant:
                watcher(done)

        self._watchers.append(watching)

    def explain(self, query: str | None = None, *, compare: bool = False) -> str:
        """Print the shared plan, and what it and its rivals cost by what was measured so far.

        With the name of a query, only what serves it.
        """
        plan, ledger = self.plan if query is None else serving(self.plan, query), self._store.ledger
        runs, policy = ledger.plan is not None, MemoryPolicy.of(self._workload.settings)
        all_costs = cost_lines(costs(plan, ledger, self._workload.budget, runs=runs), compare=compare)
        buffers = buffer_cost_lines(buffer_costs(plan, ledger, policy, runs=runs))
        return plan_text(plan) + "\n".join([*all_costs, *buffers]) + "\n"
