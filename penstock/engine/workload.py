"""What a user has registered: streams, queries and settings.

In:  calls and scripts.  Out: the shared plan.  Names are unique without regard to case.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from penstock.engine.change.diff import meaning
from penstock.engine.change.recut_policy import plan_over
from penstock.engine.sinks.callback import Callback
from penstock.engine.sinks.sink_kind import settled
from penstock.engine.spark.schemas import type_text, with_key_types
from penstock.engine.spark.session import embedded_session
from penstock.engine.views.memory import MemoryPolicy
from penstock.engine.views.plans import stopped_queries
from penstock.errors import InputError, did_you_mean
from penstock.plan.spark_settings import SparkSettings
from penstock.sql.bind.arrival import refusal, settled_arrival, why_other_kind
from penstock.sql.bind.binder import bind_query
from penstock.sql.bind.promises import carriers_of, settled_promises
from penstock.sql.bind.result_streams import readers_of, why_not_changed, with_results
from penstock.sql.options import budget_of, check_duration
from penstock.sql.query import RESERVED_NAMES, Column, Query, Sink, Stream, is_reserved
from penstock.sql.script import (
    AlterQuery,
    CreateQuery,
    CreateStream,
    DropQuery,
    DropStream,
    Script,
    altered,
    parse_script,
)
from penstock.sql.sinks import make_sink
from penstock.sql.spark_types import TIME_TYPES, refusal_to_store
from penstock.sql.streams import TIMED_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from penstock.engine.sinks.sink_kind import Handler
    from penstock.plan.build import Plan
    from penstock.sql.script import Statement
    from penstock.state.ledger import Ledger


@dataclass(slots=True)
class Workload:
    """Streams and queries by name, the DataFrames and functions given with them, and settings."""

    streams: dict[str, Stream] = field(default_factory=dict)
    sources: dict[str, DataFrame] = field(default_factory=dict)
    queries: dict[str, Query] = field(default_factory=dict)
    handlers: dict[str, Handler] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict, repr=False)  # may hold secrets
    spark: Callable[[], SparkSession] = embedded_session
    """Returns the session, which knows the types of computed keys."""
    session: Callable[[], SparkSettings | None] = lambda: None
    """Returns the settings of the session, if there is one yet."""
    read_under: SparkSettings = field(default_factory=SparkSettings)
    """The Spark settings under which queries are read: the session's, or those that it will have."""

    def add_stream(
        self,
        name: str,
        source: DataFrame,
        time: str | None,
        lateness: str,
        options: Mapping[str, str] | None = None,
    ) -> None:
        """Declare a stream that is a streaming DataFrame; `options` are Penstock's own."""
        if not source.isStreaming:
            raise InputError(f"stream {name} is not a streaming DataFrame: make it with spark.readStream")
        if find_name(name, self.streams):
            raise InputError(f"stream {name} is declared twice: choose another name")
        if readers := readers_of(name, self.queries.values()):
            raise InputError(
                f"{', '.join(readers)} reads the results of query {name}: give the stream another name"
            )
        columns = tuple(Column(field.name, type_text(field.dataType)) for field in source.schema.fields)
        names = [column.name for column in columns]
        for reserved in filter(is_reserved, names):
            raise InputError(f"column {reserved} of stream {name}: {RESERVED_NAMES}")
        for column in columns:
            if refusal := refusal_to_store(column.type):
                raise InputError(
                    f"column {column.name} of stream {name} is {column.type}, which cannot be stored. {refusal} where "
                    "the rows are made, or leave the column out"
                )
        given, late = options or {}, check_duration("lateness", lateness)
        for option in {"retain", "trigger"} & set(given):
            check_duration(option, given[option])
        if time is None and (late or TIMED_OPTIONS & set(given)):
            raise InputError(
                f"stream {name} has no event time, which lateness, retain and promises need. Name its time column"
            )
        time_column = "" if time is None else _time_column(name, time, columns)
        stream = Stream(name, columns, time_column, late, options=tuple(given.items()))
        self.streams[name] = settled_promises(settled_arrival(stream), self.streams)
        self.sources[name] = source

    def add_query(
        self, name: str, sql: str, sink: Sink | Callback | None, options: Mapping[str, str]
    ) -> None:
        """Register one SELECT."""
        where = Sink("callback") if isinstance(sink, Callback) else sink
        if where is not None:
            where = make_sink(where.kind, dict(where.options))
        zone = self._read_for(self.session()).zone
        self._add(bind_query(name, sql, self.readable(name), where, options, zone=zone))
        if isinstance(sink, Callback):
            self.handlers[name] = sink.function

    def add_script(self, text: str) -> Script:
        """Execute a script; it may drop and alter what was registered before it."""
        session = self.session()
        script = parse_script(
            text,
            self.streams,
            self.queries.values(),
            zone=session.zone if session else None,
            default_zone=SparkSettings.of(self.settings).zone,
        )
        self.settings |= script.settings  # first: a query may need Spark, and Spark its settings
        self._read_for(session)
        for statement in script.statements:
            self._do(statement)
        return script

    def _do(self, statement: Statement) -> None:
        match statement:
            case CreateStream(stream):
                self.streams[stream.name] = stream
            case CreateQuery(query):
                self._add(query)
            case DropQuery(name):
                self.drop_query(name)
            case AlterQuery(name):
                registered = self._registered(name)
                inputs, before = self.readable(registered), self.queries[registered]
                self._change(before, altered(before, statement, inputs, self.read_under.zone))
            case DropStream(name):
                self.drop_stream(name)

    def _add(self, query: Query) -> None:
        """Register a bound query under a name that is free."""
        if find_name(query.name, self.queries):
            raise InputError(f"query {query.name} exists already: choose another name, or drop it first")
        typed = self._checked(query)
        self.queries[query.name] = replace(typed, sink=settled(query.sink))

    def _change(self, before: Query, after: Query) -> None:
        """Replace the definition of a query, unless another query reads its results and could not any more."""
        if why := why_not_changed(before, after, self.streams, self.queries.values()):
            raise InputError(why)
        self.queries[before.name] = self._checked(after)

    def _checked(self, query: Query) -> Query:
        """Return a query with the key types that only Spark knows, and check what follows from them."""
        typed = self.typed(query)
        if typed.oblivious and (refused := refusal(typed.name, self.inputs_of(typed), typed.edges)):
            raise InputError(f"query {refused}")
        every_query = {**self.queries, typed.name: typed}.values()
        if why := why_other_kind(every_query, with_results(self.streams, every_query)):
            raise InputError(why)
        return typed

    def _registered(self, name: str) -> str:
        """Return the name of a registered query, in the case it was registered with."""
        registered = find_name(name, self.queries)
        if registered is None:
            raise InputError(f"query {name} does not exist: {did_you_mean(name, self.queries)}")
        return registered

    def drop_query(self, name: str) -> None:
        """Remove a query whose results no other query reads."""
        query = self.queries[self._registered(name)]
        if why := why_not_changed(query, None, self.streams, self.queries.values()):
            raise InputError(why)
        del self.queries[query.name]

    def drop_stream(self, name: str) -> None:
        """Remove a stream that no query reads."""
        declared = find_name(name, self.streams)
        if declared is None:
            raise InputError(f"stream {name} does not exist: {did_you_mean(name, self.streams)}")
        readers = [query.name for query in self.queries.values() if declared in query.streams]
        if readers:
            raise InputError(f"stream {declared} is read by {', '.join(readers)}: drop that first")
        if carriers := carriers_of(declared, self.streams):
            raise InputError(f"{', '.join(carriers)} carries the promises of {declared}: drop that first")
        del self.streams[declared]
        self.sources.pop(declared, None)

    def copy(self) -> Workload:
        """Return a copy for `go_back`."""
        return replace(
            self,
            streams=dict(self.streams),
            sources=dict(self.sources),
            queries=dict(self.queries),
            handlers=dict(self.handlers),
            settings=dict(self.settings),
        )

    def go_back(self, before: Workload) -> None:
        """Restore what was registered before."""
        self.streams, self.sources = before.streams, before.sources
        self.queries, self.handlers, self.settings = before.queries, before.handlers, before.settings

    def alter_query(self, name: str, sql: str) -> None:
        """Define a query anew under its name; its sink and options stay."""
        registered = self._registered(name)
        before = self.queries[registered]
        again = bind_query(
            registered,
            sql,
            self.readable(registered),
            before.sink,
            dict(before.options),
            zone=self._read_for(self.session()).zone,
        )
        self._change(before, again)

    def _read_for(self, session: SparkSettings | None) -> SparkSettings:
        """Return the Spark settings under which queries are read: the session's, or those that it will have."""
        settings = session or SparkSettings.of(self.settings)
        self.refuse_other_settings(settings)
        self.read_under = settings
        return settings

    def refuse_other_settings(self, now: SparkSettings) -> None:
        """Refuse settings under which the registered queries would have another meaning."""
        if self.queries and not self.read_under.means(now):
            raise InputError(
                f"{', '.join(self.queries)} were read under {self.read_under}, and the session has {now} now. "
                "Set it before the first query"
            )

    @property
    def budget(self) -> float | None:
        """Return the bytes of state that `auto` may plan for; None: unlimited."""
        return budget_of(self.settings)

    @property
    def memory(self) -> MemoryPolicy:
        """Return how joins without a window save memory."""
        return MemoryPolicy.of(self.settings)

    def as_declared(self, plan: Plan) -> Plan:
        """Return a plan with its streams as they are declared now: with secrets, which the state does not keep."""
        return replace(plan, streams=tuple(self.streams.get(stream.name, stream) for stream in plan.streams))

    def readable(self, reader: str) -> dict[str, Stream]:
        """Return all that a query may read: streams, and the results of other queries."""
        return with_results(self.streams, self.queries.values(), reader)

    @property
    def inputs(self) -> dict[str, Stream]:
        """Return all streams, and the results of queries that others read."""
        return with_results(self.streams, self.queries.values())

    def inputs_of(self, query: Query) -> list[Stream]:
        """Return the inputs of a query, in order."""
        inputs = self.inputs
        return [inputs[name] for name in query.streams]

    def typed(self, query: Query) -> Query:
        """Return a query with the key types that only Spark knows."""
        return with_key_types(query, self.inputs_of(query), self.spark, ansi=self.read_under.ansi)

    def plan(self, ledger: Ledger) -> Plan:
        """Return the shared plan of all queries over what the state stores; failed queries stay stopped."""
        if not self.queries:
            raise InputError(
                "there are no queries: register one with Engine.query or a CREATE QUERY in a script"
            )
        stopped = [stop for stop in stopped_queries(ledger) if self._is_still(stop.query)]
        failed = {stop.query.name for stop in stopped if not stop.because_of}
        stopped = [stop for stop in stopped if not stop.because_of or stop.because_of in failed]
        names = {stop.query.name for stop in stopped}
        running = [query for name, query in self.queries.items() if name not in names]
        if not running:
            raise InputError(
                f"every query of this state has failed: {'; '.join(map(str, stopped))}. Alter one, or drop it"
            )
        return plan_over(self.inputs, running, ledger, self.settings, stopped)

    def _is_still(self, query: Query) -> bool:
        """Return whether a query is registered as it was."""
        now = self.queries.get(query.name)
        return now is not None and meaning(now) == meaning(query)


def _time_column(stream: str, name: str, columns: Sequence[Column]) -> str:
    """Return the time column of a stream, and check its type."""
    names = [column.name for column in columns]
    found = find_name(name, names)
    if found is None:
        raise InputError(f"time column {name} of stream {stream} does not exist: {did_you_mean(name, names)}")
    kind = columns[names.index(found)].type
    if kind not in TIME_TYPES:
        raise InputError(
            f"time column {found} of stream {stream} is {kind}: it must be TIMESTAMP, TIMESTAMP_NTZ or DATE"
        )
    return found


def find_name(name: str, names: Iterable[str]) -> str | None:
    """Return the declared name that is equal without regard to case."""
    return next((known for known in names if known.lower() == name.lower()), None)
