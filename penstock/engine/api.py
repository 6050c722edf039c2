"""The engine, as a user holds it.

    engine = Engine(state="state")                  own the state, and read its journal
    engine.stream(...); engine.query(...)           or engine.script(text)
    engine.start()                                  check everything, then ingest and join until stop()
    engine.process_available()                      join all input that is there, and deliver its results
    engine.stop()

Before anything starts, everything is checked: SQL, types (by Spark itself), paths, sinks, and that the state was made
by these queries.  A committed result stays committed.  A start on the same state goes on from there.
"""

from __future__ import annotations

import os
import threading
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from penstock.engine.aggregate.answers import check_final_completes
from penstock.engine.change.transition import Transition
from penstock.engine.control import Listener
from penstock.engine.deployment import Deployment
from penstock.engine.outputs.results import (
    read_finished,
    read_late,
    read_results,
)
from penstock.engine.outputs.unknown_results import refuse_unknown_results
from penstock.engine.report.buffer_costs import buffer_cost_lines, buffer_costs
from penstock.engine.report.costs import cost_lines, costs
from penstock.engine.report.status import look_at
from penstock.engine.running import RunningEngine
from penstock.engine.sinks.sink_paths import file_sinks
from penstock.engine.spark.early_start import PythonWorkers
from penstock.engine.spark.schemas import arrow_types
from penstock.engine.spark.session import (
    embedded_session,
    refuse_other_dialects,
    refuse_unpinned_threads,
    settings_of,
    spark_options,
    use_plain_files,
)
from penstock.engine.stages.propagate import check_propagation, finished_now
from penstock.engine.stages.publish import publish
from penstock.engine.store import Store
from penstock.engine.views.plans import current_plan, made_under
from penstock.engine.workload import Workload, find_name
from penstock.errors import InputError
from penstock.plan.plan_text import plan_text, serving
from penstock.plan.spark_settings import refuse_other
from penstock.reporting import Logger, Tolerant
from penstock.sql.script import AlterQuery, CreateQuery, DropQuery, Explain, ShowQueries
from penstock.state.files import LocalFiles
from penstock.state.locations import absolute, refuse_one_process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Self

    from pyspark.sql import DataFrame, SparkSession

    from penstock.engine.report.status import Status
    from penstock.engine.sinks.callback import Callback
    from penstock.engine.stages.turn_context import UnitDone
    from penstock.plan.build import Plan
    from penstock.sql.query import Sink
    from penstock.sql.script import Script

_log = Logger(__name__)


class QueryHandle:
    """A registered query."""

    def __init__(self, engine: Engine, name: str) -> None:
        """Refer to a query of an engine."""
        self._engine, self.name = engine, name

    def results(self) -> DataFrame:
        """Return the committed results as a Spark DataFrame."""
        return self._engine.results(self.name)

    def punctuations(self) -> DataFrame:
        """Return the values of the join's key that no more results will have, as a Spark DataFrame."""
        return self._engine.punctuations(self.name)

    @property
    def complete_from(self) -> datetime | None:
        """Return the event time from which every result is delivered; None: from the beginning."""
        return self._engine.complete_from(self.name)

    @property
    def failure(self) -> str | None:
        """Return why the query was stopped, if it could not be evaluated; None if it runs."""
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
        self._workload = Workload(
            settings=dict(settings or {}),
            spark=lambda: self.spark,
            session=lambda: settings_of(self._spark) if self._spark is not None else None,
        )
        self._deployment = Deployment(self._store, self._workload, lambda: self.spark)
        self._running: RunningEngine | None = None
        self._listener: Listener | None = None
        self._watchers: list[Callable[[UnitDone], None]] = []
        self._registering = threading.RLock()
        self._once = False
        self._closed = False

    # --- what to run ----------------------------------------------------------------------------------------------

    @property
    def spark(self) -> SparkSession:
        """Return the Spark session; start the embedded one if there is none."""
        if self._spark is None:
            self._spark = embedded_session(spark_options(self._workload.settings))
            if isinstance(self._store.files, LocalFiles):
                use_plain_files(self._spark)
        return self._spark

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
        """Declare a stream that is a streaming DataFrame; it is read as soon as a query reads it.

        `lateness` is how far behind the newest row of its stream a row may come; later ones are set aside (`late`).
        `retain` keeps rows at least this long, for queries still to come; by default as long as a query needs them.
        `trigger` is how often Spark asks the source for new rows, by default every 100 ms.

        It needs no `time` where all queries that read it have no window.  Such queries need `ordered`, the column whose
        order the rows roughly follow as they arrive, or `scrambling`, the maximum number of positions by which a row
        may be out of order.  `multiplicity` is the maximum number of rows with one value of what they are joined on.
        `scrambling` and `multiplicity` are measured where they are not given.

        Rows may be promises, not data: those for which `punctuation` holds (Spark SQL over the columns) say that no row
        comes after them with their values of the columns that `punctuates` names, as in ``"item_id"``, ``"item_id IN
        items"`` or ``"item_id BETWEEN lo AND hi"``.  With `unique` every row is the last with its value of these
        columns.  With `punctuation_of` the rows are promises of another stream, declared before.  `promises` is the
        maximum number of them that is remembered.
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

        In a running engine it starts with the rows that are still stored; `QueryHandle.complete_from` says from when
        its results are complete.
        """
        with self._registration():
            self._workload.add_query(name, sql, sink, options)
        return QueryHandle(self, name)

    def script(self, text: str) -> Script:
        """Register the streams, queries and settings of a script."""
        with self._registration():
            return self._workload.add_script(text)

    def drop(self, name: str) -> None:
        """Drop a query, also while running.

        Delivered results stay where they are; those in the state's table cannot be read any more.
        """
        with self._registration():
            self._workload.drop_query(name)

    def alter(self, name: str, sql: str) -> None:
        """Change the definition of a query, also while running: it holds from now on."""
        with self._registration():
            self._workload.alter_query(name, sql)

    @contextmanager
    def _registration(self) -> Iterator[None]:
        """Register one thing at a time, and change the plan of a running engine; all of it or nothing."""
        if self._closed:
            raise InputError("the engine has stopped: make a new one on the same state")
        if self._is_joiner():
            raise InputError(
                "a callback cannot change the queries it is called for: do it from another thread"
            )
        with self._registering:
            before, version = self._workload.copy(), self._store.ledger.version
            try:
                yield
                if self._running is not None:
                    self._running.change_plan()
            except BaseException:
                if self._store.ledger.version == version:  # what is committed stays registered
                    self._workload.go_back(before)
                raise

    def _is_joiner(self) -> bool:
        """Return whether this is the joiner's thread, which calls callbacks."""
        return self._running is not None and threading.current_thread() is self._running.joiner

    def complete_from(self, name: str) -> datetime | None:
        """Return the event time from which a query's results are complete; None: from the beginning.

        A time outside Python's calendar becomes the first or last one in it.  A query without a window has no event
        times: it is complete from a row on, which `status` shows.
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
        """Return the shared plan of the registered queries, or of the state when none are registered."""
        if self._deployment.plan is not None:
            return self._deployment.plan
        ledger = self._store.ledger
        if not self._workload.queries and ledger.plan:
            return self._workload.as_declared(current_plan(ledger))
        return self._workload.plan(ledger)

    @property
    def failures(self) -> dict[str, str]:
        """Return the queries that could not be evaluated and were stopped, each with the reason."""
        return {stop.query.name: stop.reason for stop in self.plan.stopped}

    # --- running --------------------------------------------------------------------------------------------------

    def start(self, *, once: bool = False, accept_loss: bool = False) -> None:
        """Check everything, then ingest and join in the background until `stop`.

        With `once`, ingest ends by itself when all input that is there now has been read, and answers of aggregates
        may be computed together at the end; see `wait`.  A start that would lose results is refused unless accepted,
        for example if a query of the state is not registered any more.
        """
        if self._running is not None:
            raise InputError("start: the engine is running already")
        self._once = once
        transition = Transition.to(self.plan, self._store.ledger)
        if not accept_loss:
            transition.refuse_losses(self._store.files.root)
        if not once:
            check_final_completes(transition.after)
        check_propagation(transition.after)
        self._check_settings()
        workers = PythonWorkers(self.spark)
        workers.begin()
        arrow_types.cache_clear()
        deployment = self._deployment
        checked = deployment.check(transition)
        workers.await_executor()
        sinks = file_sinks(transition.after.queries).values()
        refuse_unknown_results(sinks, self._store.files, self._store.ledger)
        deployment.refuse_other_types(transition, checked)
        plan = deployment.apply(transition)
        running = RunningEngine(deployment, plan, once=once, workers=workers, watchers=self._watchers)
        publish(running.joiner.context)
        deployment.clear_staging(plan)
        self._store.clear("spool")  # all of it was handed over
        deployment.prepare_sinks(plan, checked)
        self._running = running
        running.start(plan, checked.sources)
        self._listener = Listener(self._store.files, self._handle)
        self._listener.start()

    def _check_settings(self) -> None:
        """Refuse a session whose settings change the meaning of queries or of stored rows."""
        refuse_unpinned_threads()
        refuse_other_dialects(self.spark)
        settings = settings_of(self.spark)
        self._workload.refuse_other_settings(settings)
        made = made_under(self._store.ledger)
        if made is not None:
            refuse_other(made, settings, self._store.files.root)

    def wait(self) -> None:
        """Wait until ingest ends by itself (`start(once=True)`) and every result is delivered.

        Then the input counts as complete: windows that count rows take all that is there, and results that are held
        for their order are released.
        """
        if self._running is not None:
            self._running.wait()

    def process_available(self) -> None:
        """Join all input that is there and deliver its results.

        Windows that count rows, and results in order, are delivered as far as the watermarks allow.
        """
        if self._running is None:
            raise InputError("process_available: the engine is not started; call start() first")
        if self._is_joiner():
            raise InputError("a callback cannot wait for itself: call process_available from another thread")
        self._running.process_available()

    def check_running(self) -> None:
        """Raise the error that stopped the join or an ingest, if any."""
        if self._running is not None:
            self._running.check()

    def stop(self) -> None:
        """Stop ingest, finish the unit at hand, and release the state."""
        if self._closed:
            return
        if self._is_joiner():
            raise InputError("a callback cannot stop the engine it is called by: do it from another thread")
        self._closed = True
        with ExitStack() as last:
            last.callback(self._store.close)
            if self._running is not None:
                last.callback(self._running.finish)
                for ingester in self._running.ingesters:
                    last.callback(ingester.stop)
            if self._listener is not None:
                last.callback(self._listener.finish)

    def __enter__(self) -> Self:
        """Use the engine in a ``with`` block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop at the end of the block."""
        self.stop()

    # --- questions and requests -----------------------------------------------------------------------------------

    def _handle(self, request: dict[str, str]) -> str:
        """Execute a request of `penstock add` or `penstock drop`, and return the answer."""
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
        """Answer the questions of a script (EXPLAIN, SHOW QUERIES); with `changes`, also list what it changed."""
        for statement in script.statements:
            match statement:
                case Explain(name):
                    yield self.explain(name)
                case ShowQueries():
                    yield "\n".join(
                        f"{query.name}: {self._completeness(query.name)}" for query in self.plan.queries
                    )
                case CreateQuery(query) if changes and find_name(query.name, self._workload.queries):
                    yield f"added {query.name}: {self._completeness(query.name)}"
                case DropQuery(name) if changes:
                    yield self._dropped(name)
                case AlterQuery(name) if changes:
                    yield f"altered {name}: {self._completeness(name)}"

    def _dropped(self, name: str) -> str:
        """Describe what became of the results of a query that was dropped while running."""
        return f"dropped {name}; {self._deployment.drop_messages.get(name.lower(), 'it had no results')}"

    def _completeness(self, name: str) -> str:
        """Describe from when on a query is complete."""
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

    # --- looking --------------------------------------------------------------------------------------------------

    def results(self, name: str) -> DataFrame:
        """Return a query's committed results as a Spark DataFrame."""
        return read_results(self.spark, self._store.files, self.plan, lambda: self._store.ledger, name)

    def punctuations(self, name: str) -> DataFrame:
        """Return the values of a query's join key that are finished: no more of its results will have them."""
        query = self.plan.query(name)
        task = finished_now(self.plan, self._store.ledger, query, self._deployment.backend)
        return read_finished(self.spark, self._store.files, self.plan, query, task)

    def late(self, stream: str) -> DataFrame:
        """Return the rows of a stream that were set aside, each with the reason in `_reason`.

        They came too late, had no event time, or broke a promise of their stream.
        """
        declared = self.plan.stream(stream)
        committed = self._store.ledger.stream(declared.name).batches
        return read_late(self.spark, self._store.files, declared, committed)

    def status(self) -> Status:
        """Return how far every stream, slice and query is."""
        return look_at(self._store.ledger)

    @property
    def task_counts(self) -> dict[str, int]:
        """Return what Spark tasks have counted for this engine: rows, pairs, results, answers."""
        return self._deployment.backend.runner.counts

    def watch(self, watcher: Callable[[UnitDone], None]) -> None:
        """Call a function after every unit, in the joiner's thread; only its first error is logged."""
        tolerant = Tolerant(_log, "a watcher of units")

        def watching(done: UnitDone) -> None:
            with tolerant:
                watcher(done)

        self._watchers.append(watching)

    def explain(self, query: str | None = None, *, compare: bool = False) -> str:
        """Return the shared plan as text, with its costs as measured so far; with `compare`, also its rivals' costs.

        With the name of a query, only what serves it.
        """
        plan, ledger = self.plan if query is None else serving(self.plan, query), self._store.ledger
        runs, workload = ledger.plan is not None, self._workload
        all_costs = cost_lines(costs(plan, ledger, workload.budget, runs=runs), compare=compare)
        buffers = buffer_cost_lines(buffer_costs(plan, ledger, workload.memory, runs=runs))
        return plan_text(plan) + "\n".join([*all_costs, *buffers]) + "\n"
