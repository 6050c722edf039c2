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
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from penstock.engine.complaints import named_file, short_message
from penstock.engine.ingester import Ingester
from penstock.engine.joiner import Joiner
from penstock.engine.pairs import check_outputs, view
from penstock.engine.session import embedded_session
from penstock.engine.sinks import Callback, check_empty, check_sinks, clear_staging, settled, sink_root
from penstock.engine.sources import empty_rows, open_source, with_ingest_columns
from penstock.engine.status import take_status
from penstock.engine.store import Store
from penstock.errors import InputError, PenstockError, RunError, did_you_mean
from penstock.plan.build import Plan, build_plan
from penstock.plan.codec import workload_from_json, workload_to_json
from penstock.plan.show import plan_text
from penstock.sql.bind import bind_query
from penstock.sql.interval import parse_duration
from penstock.sql.query import Column, Query, Sink, Stream
from penstock.sql.script import parse_script

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Self

    from pyspark.sql import DataFrame, SparkSession

    from penstock.engine.joiner import UnitDone
    from penstock.engine.sinks import Handler
    from penstock.engine.status import Status
    from penstock.log.files import Files
    from penstock.log.ledger import Ledger, Publication
    from penstock.sql.script import Script


class QueryHandle:
    """A registered query, as the user refers to it."""

    def __init__(self, engine: Engine, name: str) -> None:
        """Point at a query of an engine."""
        self._engine, self.name = engine, name

    def results(self) -> DataFrame:
        """Give the committed results as a Spark DataFrame."""
        return self._engine.results(self.name)

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
        self._store = Store(os.fspath(state))
        self._spark = spark
        self._settings = dict(settings or {})
        self._streams: dict[str, Stream] = {}
        self._sources: dict[str, DataFrame] = {}
        self._queries: dict[str, Query] = {}
        self._handlers: dict[str, Handler] = {}
        self._plan: Plan | None = None
        self._ingesters: list[Ingester] = []
        self._joiner: Joiner | None = None
        self._closed = False
        self._watchers: list[Callable[[UnitDone], None]] = []

    # ------------------------------------------------------------------ what to run

    @property
    def spark(self) -> SparkSession:
        """Give the Spark session, starting the embedded one if there is none."""
        if self._spark is None:
            ours = {name: value for name, value in self._settings.items() if name.startswith("spark.")}
            self._spark = embedded_session(ours)
        return self._spark

    def stream(self, name: str, source: DataFrame, *, time: str, lateness: str = "0 seconds") -> None:
        """Declare a stream that is a streaming DataFrame."""
        self._check_not_started("stream")
        if not source.isStreaming:
            raise InputError(f"stream {name} is not a streaming DataFrame: make it with spark.readStream")
        if name.lower() in {each.lower() for each in self._streams}:
            raise InputError(f"stream {name} is declared twice: choose another name")
        columns = tuple(Column(field.name, field.dataType.simpleString()) for field in source.schema.fields)
        self._streams[name] = Stream(name, columns, _declared(name, columns, time), parse_duration(lateness))
        self._sources[name] = source

    def query(self, name: str, sql: str, *, sink: Sink | Callback | None = None, **options: str) -> QueryHandle:
        """Register a query; its results go to `sink`, by default the state's own table."""
        self._check_not_started("query")
        handler = sink.function if isinstance(sink, Callback) else None
        where = Sink("callback") if isinstance(sink, Callback) else sink
        self._add(bind_query(name, sql, self._streams, where, options))
        if handler:
            self._handlers[name] = handler
        return QueryHandle(self, name)

    def script(self, text: str) -> Script:
        """Register the streams, queries and settings of a script."""
        self._check_not_started("script")
        script = parse_script(text, self._streams)
        self._streams |= script.streams
        for query in script.queries:
            self._add(query)
        self._settings |= script.settings
        return script

    def _add(self, query: Query) -> None:
        """Register a bound query under a name that is free."""
        if query.name.lower() in {each.lower() for each in self._queries}:
            raise InputError(f"query {query.name} exists already: choose another name, or drop it first")
        self._queries[query.name] = _with_sink(query, settled(query.sink))

    def drop(self, name: str) -> None:
        """Forget a query that was registered and not started yet."""
        self._check_not_started("drop")
        mine = next((each for each in self._queries if each.lower() == name.lower()), None)
        if mine is None:
            raise InputError(f"query {name} does not exist: {did_you_mean(name, self._queries)}")
        del self._queries[mine]

    def _check_not_started(self, call: str) -> None:
        """Refuse to change the workload of a running engine."""
        if self._joiner is not None:
            raise InputError(f"{call}: the engine is running; stop it, change the queries, and start a new state")

    # ------------------------------------------------------------------ running

    @property
    def plan(self) -> Plan:
        """Give the shared plan of the registered queries, or of the state when none are registered."""
        if self._plan is None:
            if self._queries:
                return build_plan(self._streams, self._queries.values())
            if self._store.ledger.plan:
                return build_plan(*workload_from_json(self._store.ledger.plan))
            raise InputError("there are no queries: register one with Engine.query or a CREATE QUERY in a script")
        return self._plan

    def start(self, *, once: bool = False) -> None:
        """Check everything, then ingest and join in the background until `stop`.

        With `once`, ingest ends by itself when all input that is there now has been read; see `wait`.
        """
        self._check_not_started("start")
        plan = self.plan
        sources = self._check(plan)
        self._remember(plan)
        self._plan = plan
        self._joiner = Joiner(self.spark, self._store, plan, self._hand_over)
        self._joiner.watchers = self._watchers
        self._joiner.publish_pending()
        clear_staging(self._roots(plan))
        self._write_empty_results(plan)
        self._joiner.start()
        self._ingesters = [
            Ingester(self._store, plan, stream, sources[stream.name], self._joiner.notify)
            for stream in plan.streams
        ]
        for ingester in self._ingesters:
            ingester.start(once=once)

    def _check(self, plan: Plan) -> dict[str, DataFrame]:
        """Let Spark check every expression, and open every source, before anything is started or written."""
        check_sinks(plan.queries)
        if not self._store.ledger.plan:
            check_empty(plan.queries)
        for stream in plan.streams:
            with_ingest_columns(empty_rows(self.spark, stream), stream, plan.logs_of(stream.name))
        self._empty = {}
        for group in plan.groups:
            left, right = (plan.stream(group.log(side).stream) for side in ("l", "r"))
            self._empty |= check_outputs(self.spark, group, left, right)
        return {
            stream.name: self._sources.get(stream.name) or open_source(self.spark, stream)
            for stream in plan.streams
        }

    def _remember(self, plan: Plan) -> None:
        """Note in the journal what this state serves, or refuse if it serves something else."""
        mine = workload_to_json(plan.streams, plan.queries)
        known = self._store.ledger.plan
        if not known:
            groups = {group.id: len(group.chain.readers) for group in plan.groups}
            self._store.journal.commit({"kind": "plan", "plan": mine, "groups": groups})
        elif (difference := _difference(known, mine)) is not None:
            raise InputError(
                f"state {self._store.files.root} was made by another script: {difference}. "
                "Run the script it was made by, or give a new directory (--state)"
            )

    def _roots(self, plan: Plan) -> list[str]:
        """List the directories that tasks write output to."""
        own = [root for query in plan.queries if (root := sink_root(query, self._store.files))]
        return own + [self._store.files.path(f"table/{group.id}") for group in plan.groups]

    def _write_empty_results(self, plan: Plan) -> None:
        """Put a file without rows in every parquet sink, so that it can be read from the first moment."""
        import pyarrow.parquet as pq  # noqa: PLC0415 - only here, once

        from penstock.log.files import open_files  # noqa: PLC0415

        for query in plan.queries:
            if query.sink.kind != "parquet":
                continue
            files = open_files(query.sink.option("path"), sync=False)
            if not files.exists(_EMPTY):
                with files.writer(_EMPTY) as out:
                    pq.write_table(self._empty[query.name].toArrow(), out)

    def _hand_over(self, publication: Publication) -> None:
        """Give a unit's results to a console or callback, then let go of the files."""
        files = [f"{move.root}/{move.final}" for move in publication.moves]
        rows = self.spark.read.parquet(*files)
        _, _, member = self.plan.find(publication.query)
        if member.query.sink.kind == "console":
            print(f"-- {publication.query}, unit {publication.unit}")  # noqa: T201 - the sink is the console
            rows.show(truncate=False)
        else:
            self._handler(publication.query)(rows, publication.unit)
        for move in publication.moves:
            name = move.root.removeprefix(self._store.files.path("")).strip("/")
            self._store.files.delete(f"{name}/{move.final}")

    def _handler(self, query: str) -> Handler:
        """Find the function that takes a query's results."""
        if query not in self._handlers:
            raise InputError(f"query {query} delivers to a callback: register it again with its function")
        return self._handlers[query]

    def wait(self) -> None:
        """Wait until ingest ends by itself (`start(once=True)`) and every result is delivered."""
        for ingester in self._ingesters:
            self._await(ingester)
        self._drain()

    def _await(self, ingester: Ingester) -> None:
        """Wait for one stream's ingest to end, looking out for trouble elsewhere."""
        query = ingester.query
        while query is not None and query.isActive:
            try:
                query.awaitTermination(0.2)  # type: ignore[arg-type]
            except Exception as error:
                raise self._explained(ingester, error) from error
            self._raise_failure()
        if query is not None and (error := query.exception()):
            raise self._explained(ingester, error)

    def process_available(self) -> None:
        """Join and deliver all input that is there."""
        if self._joiner is None:
            raise InputError("process_available: the engine is not started; call start() first")
        for ingester in self._ingesters:
            try:
                if ingester.query is not None:
                    ingester.query.processAllAvailable()
            except Exception as error:
                raise self._explained(ingester, error) from error
        self._drain()

    def _drain(self) -> None:
        """Wait until all that was ingested is joined and published."""
        if self._joiner is not None:
            self._joiner.drain()
        self._raise_failure()

    def _raise_failure(self) -> None:
        """Raise what stopped the joiner or an ingest, if anything did."""
        if self._joiner is not None and self._joiner.failure is not None:
            failure = self._joiner.failure
            if isinstance(failure, PenstockError):
                raise failure
            raise RunError(f"the join failed: {short_message(failure)}") from failure
        for ingester in self._ingesters:
            if ingester.query is not None and (error := ingester.query.exception()):
                raise self._explained(ingester, error)

    def _explained(self, ingester: Ingester, error: Exception) -> PenstockError:
        """Say which stream and which file stopped the run."""
        cause = ingester.failure or error
        if isinstance(cause, PenstockError):
            return cause
        name, file = ingester.stream.name, named_file(cause) or named_file(error)
        if file:
            return RunError(
                f"source file {file} of stream {name} cannot be read: {short_message(cause)} "
                "Mend or remove the file and run again: committed results are kept, and the run goes on from there"
            )
        return RunError(f"stream {name}: {short_message(cause)}")

    def check_running(self) -> None:
        """Raise if the run has failed."""
        self._raise_failure()

    def stop(self) -> None:
        """Stop ingest, finish the unit at hand, and give up the state."""
        if self._closed:
            return
        for ingester in self._ingesters:
            if ingester.query is not None:
                ingester.query.stop()
        if self._joiner is not None:
            self._joiner.finish()
            if self._joiner.failure is None and self._plan is not None:
                clear_staging(self._roots(self._plan))
        self._closed = True
        self._store.close()

    def __enter__(self) -> Self:
        """Use the engine in a ``with`` block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop at the end of the block."""
        self.stop()

    # ------------------------------------------------------------------ looking

    def results(self, name: str) -> DataFrame:
        """Give a query's committed results as a Spark DataFrame."""
        return read_results(self.spark, self._store.files.path, self.plan, name)

    def late(self, stream: str) -> DataFrame:
        """Give the rows of a stream that came too late, or had no event time."""
        declared = self.plan.stream(_known(stream, (each.name for each in self.plan.streams)))
        place = f"late/{declared.name.lower()}"
        if not self._store.files.list(place):
            return empty_rows(self.spark, declared)
        names = [f"`{column.name}`" for column in declared.columns]
        return self.spark.read.parquet(self._store.files.path(place)).select(*names)

    def status(self) -> Status:
        """Say how far every stream, slice and query is."""
        return look_at(self.plan, lambda: self._store.ledger, self._store.files)

    def watch(self, watcher: Callable[[UnitDone], None]) -> None:
        """Call a function after every unit, from the joiner's thread."""
        self._watchers.append(watcher)

    def explain(self) -> str:
        """Print the shared plan."""
        return plan_text(self.plan)


_EMPTY = "part-00000000-schema.parquet"


def look_at(plan: Plan, ledger: Callable[[], Ledger], files: Files) -> Status:
    """Say how far everything is; look again, by a newer ledger, if a segment was merged away while it was counted."""
    for _ in range(_LOOKS):
        with suppress(FileNotFoundError):
            return take_status(plan, ledger(), files)
    return take_status(plan, ledger(), files)


_LOOKS = 9


def read_results(spark: SparkSession, path: Any, plan: Plan, name: str) -> DataFrame:
    """Read a query's committed results from its sink; `path` locates names in the state."""
    group, number, member = plan.find(name)
    query = member.query
    if query.sink.kind == "parquet":
        return spark.read.parquet(query.sink.option("path"))
    if query.sink.kind != "table":
        raise InputError(f"query {query.name} has a {query.sink.kind} sink, which keeps no results to read")
    from penstock.engine.pairs import pair_schema  # noqa: PLC0415

    left, right = (plan.stream(group.log(side).stream) for side in ("l", "r"))
    pairs = spark.read.schema(pair_schema(group, left, right)).parquet(path(f"table/{group.id}"))
    return view(pairs, group, number, member)


def _declared(stream: str, columns: tuple[Column, ...], time: str) -> str:
    """Find the time column by name, whatever its case, with a hint if it is not there."""
    found = next((each.name for each in columns if each.name.lower() == time.lower()), None)
    if found is None:
        known = (each.name for each in columns)
        raise InputError(f"time column {time} of stream {stream} does not exist: {did_you_mean(time, known)}")
    return found


def _known(name: str, names: Any) -> str:
    """Find a name whatever its case."""
    have = list(names)
    found = next((each for each in have if each.lower() == name.lower()), None)
    if found is None:
        raise InputError(f"stream {name} does not exist: {did_you_mean(name, have)}")
    return str(found)


def _with_sink(query: Query, sink: Sink) -> Query:
    """Give the same query with another sink."""
    from dataclasses import replace  # noqa: PLC0415

    return replace(query, sink=sink)


def _difference(known: Mapping[str, Any], mine: Mapping[str, Any]) -> str | None:
    """Say how two workloads differ, in the user's words; None if they do not."""
    for kind, word in (("streams", "stream"), ("queries", "query")):
        before = {each["name"]: each for each in known[kind]}
        after = {each["name"]: each for each in _plain(mine[kind])}
        for name in before.keys() - after.keys():
            return f"it has {word} {name}, this run has not"
        for name in after.keys() - before.keys():
            return f"this run has {word} {name}, it has not"
        for name, each in before.items():
            if {**each, "text": ""} != {**after[name], "text": ""}:
                return f"{word} {name} is not the same"
    return None


def _plain(value: Any) -> Any:
    """Turn tuples into lists, as JSON has it, so that what was read can be compared with what is."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return value
