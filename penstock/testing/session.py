"""A session: a script, rows sent by hand, and the results, step by step and without Spark.

    session = Session(script)
    session.send("Temperature", rows)        a batch arrives; nothing is joined yet
    session.turn()                           join, publish and compact all rows that are there
    session.restart()                        stop, and start again on the state directory
    session.script("CREATE QUERY …")         add, alter or drop queries
    session.end()                            the input ends: results that wait for a watermark come
    session.results("damp")

The plan, the journal, the tasks and the files are the engine's own; the runner and the SQL engine are others.

In:  SQL, and rows.  Out: results as lists of dicts, the status, rows that came too late.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.engine.change.transition import Transition
from penstock.engine.outputs.pair_sql import wanted_pairs
from penstock.engine.report.status import take_status
from penstock.engine.sources.batch_ingest import BatchIngest
from penstock.engine.spark.failed_queries import QueriesFailedError
from penstock.engine.stages.propagate import finished_now
from penstock.engine.stages.turn import take_turn
from penstock.engine.stages.turn_context import TurnContext
from penstock.engine.store import Store
from penstock.engine.tasks.propagate import finished_values
from penstock.engine.views.memory import MemoryPolicy
from penstock.engine.workload import Workload, find_name
from penstock.errors import InputError, did_you_mean
from penstock.plan.spark_settings import SparkSettings
from penstock.sql.options import scheduler_of
from penstock.sql.query import Sink
from penstock.sql.zones import is_utc
from penstock.state.checksum import map_whole
from penstock.state.files import folder_of
from penstock.testing.backend import InlineBackend
from penstock.testing.expression.evaluate import evaluate, evaluate_all
from penstock.testing.expression.node import EvaluationSettings
from penstock.testing.expression.translate import NeedsSparkError, translate, type_of
from penstock.testing.input_rows import as_table, in_batches
from penstock.testing.row_types import answer_types, column_types, pair_types, row_types

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from typing import Self

    from penstock.engine.report.status import Status
    from penstock.plan.build import Plan
    from penstock.sql.query import Key, Query, Stream
    from penstock.state.tables import StoredTable

    Row = dict[str, Any]


class _InlineWorkload(Workload):
    """The streams and queries of a script, with types of computed keys from the translator instead of Spark."""

    def typed(self, query: Query) -> Query:
        """Return a query with the types of its computed keys."""
        streams = self.inputs_of(query)
        return query.with_keys(lambda key, left, right: self._key(key, streams[left], streams[right]))

    def _key(self, key: Key, *streams: Stream) -> Key:
        left, right = (
            type_of(
                text,
                {column.name: column.type for column in stream.columns},
                ansi=self.read_under.ansi,
            )
            for text, stream in zip((key.left, key.right), streams, strict=True)
        )
        if key.type or left == right:
            return key if key.type or _is_plain(key, *streams) else replace(key, type=left)
        equality = f"{key.left} = {key.right}"
        raise NeedsSparkError(equality, equality, f"only it knows how {left} and {right} are compared")


def _is_plain(key: Key, left: Stream, right: Stream) -> bool:
    return bool(left.column(key.left.strip("`")) and right.column(key.right.strip("`")))


class Session:
    """A script that runs on a state in a temporary directory."""

    def __init__(self, script: str, *, tasks: int = 2) -> None:
        """Check a script and start it, with the parallelism of so many tasks."""
        if tasks < 1:
            raise InputError(f"tasks is {tasks}: it must be 1 or more")
        self._folder = tempfile.mkdtemp(prefix="penstock-testing-")
        self._tasks, self._closed = tasks, False
        self.sent: dict[str, list[pa.Table]] = {}
        """All batches so far, by stream."""
        self._unread: dict[str, list[pa.Table]] = {}
        """Batches that no query has read yet."""
        self._late: dict[str, list[Row]] = {}
        """Late rows, by stream, of a session whose state is gone."""
        self.altered: set[str] = set()
        """Queries whose results are by more than one definition."""
        self._store = Store(self._folder)
        self._workload = _InlineWorkload()
        try:
            self._register(script)
            self._open()
        except BaseException:
            self.close()
            raise

    def _register(self, script: str) -> None:
        self._workload.add_script(script)
        queries = self._workload.queries
        self.asked = dict(queries)
        for name, query in queries.items():
            queries[name] = replace(query, sink=Sink("table"))
            self._refuse_unknown(query)
        self._settings = SparkSettings.of(self._workload.settings)

    def _refuse_unknown(self, query: Query) -> None:
        """Refuse expressions that only Spark can evaluate, before any row is read."""
        streams = tuple(self._workload.inputs_of(query))
        ansi = self._workload.read_under.ansi
        settings = EvaluationSettings(utc=is_utc(self._workload.read_under.zone), ansi=ansi)
        for side, stream in zip(query.sides, streams, strict=True):
            for predicate in query.predicates(side):
                if translate(predicate, column_types(stream), settings).kind.name != "boolean":
                    raise InputError(f"query {query.name}: {predicate} is no condition: it is not BOOLEAN")
        types = pair_types(streams)
        for expression in (*(output.expression for output in query.outputs), *query.residual):
            translate(expression, types, settings)
        if query.aggregation is not None:
            types = answer_types(query, streams, self._workload.read_under)
            answers = [answer.expression for answer in query.aggregation.answers]
            for expression in filter(None, (*answers, query.aggregation.having)):
                translate(expression, types, settings)

    def _open(self) -> None:
        """Change to the plan of the queries that are registered now."""
        ledger = self._store.ledger
        backend = self._backend = InlineBackend(self._store.files, tasks=self._tasks, settings=self._settings)
        transition = Transition.to(self._workload.plan(ledger), ledger)
        transition.refuse_moves()
        transition.align_cursors(ledger, self._context_of)
        self.altered |= set(transition.change.altered)
        self.plan: Plan = transition.apply(self._store, backend)
        self._context = self._context_of(self.plan)
        self._batches = {
            stream.name: BatchIngest(self._store, backend, self.plan, stream) for stream in self.plan.sources
        }
        for name in list(self._unread):
            self._read(name)

    def _context_of(self, plan: Plan) -> TurnContext:
        context = TurnContext(self._store, self._backend, plan, lambda _: None)
        context.scheduler = scheduler_of(self._workload.settings)
        context.memory = MemoryPolicy.of(self._workload.settings)
        return context

    # --- what happens ---------------------------------------------------------------------------------------------

    def script(self, text: str) -> None:
        """Add, alter or drop queries between two units, as a running engine does."""
        self._register(text)
        self._open()

    def send(self, stream: str, rows: Any) -> None:
        """Send a batch of rows; the next turn joins them."""
        self._refuse_closed()
        declared = self.stream(stream)
        table = as_table(rows, declared, self._settings)
        self.sent.setdefault(declared.name, []).append(table)
        self._unread.setdefault(declared.name, []).append(table)
        self._read(declared.name)

    def _read(self, stream: str) -> None:
        """Ingest the batches of a stream if some query reads it."""
        if stream in self._batches:
            for table in self._unread.pop(stream, []):
                number = self._store.ledger.stream(stream).source_batch + 1
                self._batches[stream].ingest(table, number, None, 0.0)

    def turn(self) -> None:
        """Join, release and publish all rows that are there, as far as watermarks allow."""
        self._refuse_closed()
        try:
            take_turn(self._context)
            while self._context.has_work():
                take_turn(self._context)
        except QueriesFailedError as failed:  # a running engine would go on without the query
            raise failed.__cause__ or failed from None

    def restart(self) -> None:
        """Stop, and start again on the state directory."""
        self._store.close()
        self._store = Store(self._folder)
        self._open()

    def end(self) -> None:
        """End the input: results that wait for a watermark come."""
        self._context.input_ended = True
        self.turn()
        self._context.input_ended = False

    def close(self) -> None:
        """Close the session and remove its state."""
        self._closed = True
        self._store.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _refuse_closed(self) -> None:
        if self._closed:
            raise InputError("the session is closed and its state is removed: use it inside its `with` block")

    def __enter__(self) -> Self:
        """Use the session in a ``with`` block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the state at the end of the block."""
        self.close()

    # --- what there is --------------------------------------------------------------------------------------------

    @property
    def queries(self) -> tuple[Query, ...]:
        """Return the queries that run."""
        return self.plan.queries

    @property
    def settings(self) -> SparkSettings:
        """Return the Spark settings that give expressions their meaning."""
        return self._settings

    def stream(self, name: str) -> Stream:
        """Find a declared stream, whatever the case of its name."""
        streams = self._workload.streams
        declared = find_name(name, streams)
        if declared is None:
            raise InputError(f"stream {name} does not exist: {did_you_mean(name, streams)}")
        return streams[declared]

    def results(self, query: str) -> list[Row]:
        """Return a query's committed results, in order if the query has an `order`."""
        self._refuse_closed()
        name = self.plan.query(query).name
        ledger, files = self._store.ledger, self._store.files
        rows = [
            row for tables in ledger.tables.values() for table in tables for row in self._view(name, table)
        ]
        for file in ledger.kept.get(name, ()):
            rows += pq.read_table(map_whole(files, file)).to_pylist()
        return rows

    def _view(self, query: str, table: StoredTable) -> Iterator[Row]:
        """Read a query's results from the pairs that its group keeps."""
        types, zone = row_types(table.schema), self._settings.zone
        for definition in table.members.get(query, ()):
            for file in table.files:
                pairs = pq.read_table(map_whole(self._store.files, file))
                met = wanted_pairs(
                    definition.residual, definition.number, definition.levels, selective=table.selective
                )
                rows = pairs.filter(evaluate(met, pairs, types, zone=zone))
                names, outputs = zip(*definition.outputs, strict=True)
                yield from pa.table(evaluate_all(outputs, rows, types, zone=zone), list(names)).to_pylist()

    @property
    def since(self) -> dict[str, int | None]:
        """Return for each query the event time (µs) from which on its results are complete; None is the beginning."""
        return {query.name: self._store.ledger.query(query.name).complete_from for query in self.queries}

    def arrow_types(self, stream: Stream) -> dict[str, pa.DataType]:
        """Return the Arrow type of each column of a stream."""
        return self._backend.arrow_types(stream)

    def late(self, stream: str) -> list[Row]:
        """Return the rows of a stream that were late, had no event time, or broke a promise of their stream."""
        name, files = self.stream(stream).name, self._store.files
        if name in self._late:
            return self._late[name]
        self._refuse_closed()
        folder = folder_of("late", name)
        return [
            row
            for file in files.find(folder)
            if file.endswith(".parquet")
            for row in pq.read_table(files.memory_map(file), page_checksum_verification=True).to_pylist()
        ]

    def punctuations(self, query: str) -> list[Row]:
        """Return the values of a query's join key that no further result will have."""
        self._refuse_closed()
        asked = self.plan.query(query)
        task = finished_now(self.plan, self._store.ledger, asked, self._backend)
        return finished_values(self._store.files, task)[0].to_pylist() if task else []

    def status(self) -> Status:
        """Return the progress of every stream, slice and query, and the number of rows held."""
        return take_status(self.plan, self._store.ledger)


@dataclass(frozen=True)
class Run:
    """The results of each query, the late rows, and the status at the end of a run."""

    results: Mapping[str, list[Row]]
    late: Mapping[str, list[Row]]
    """By stream: the rows that were late or had no event time."""
    status: Status
    session: Session

    def __getitem__(self, query: str) -> list[Row]:
        """Return a query's results."""
        name = find_name(query, self.results)
        if name is None:
            raise InputError(f"query {query} does not exist: {did_you_mean(query, self.results)}")
        return self.results[name]

    @property
    def state_rows(self) -> int:
        """Count the rows that are still held for partners to come."""
        return sum(group.state_rows for group in self.status.groups)


def run(
    script: str,
    streams: Mapping[str, Any],
    *,
    batch: int | str | None = None,
    restart_after: int | Collection[int] = (),
    tasks: int = 2,
    ends: bool = True,
) -> Run:
    """Run a script over rows, or over lists of batches, of each stream.

    In every round a batch of each stream arrives and is joined.  `batch` cuts rows that are not in batches: after so
    many rows, or at multiples of a length of event time (``"10 seconds"``).  After the rounds in `restart_after` (the
    first is 1) the engine starts again on its state.  With `ends`, the input ends after the last round.

    >>> script = '''
    ...     CREATE STREAM A (k INT, ts TIMESTAMP) WITH (format = 'parquet', path = 'a', time = 'ts');
    ...     CREATE STREAM B (k INT, ts TIMESTAMP) WITH (format = 'parquet', path = 'b', time = 'ts');
    ...     CREATE QUERY q AS SELECT A.k FROM A, B WHERE A.k = B.k WINDOW 1 min;'''
    >>> row = {"k": 7, "ts": "2026-01-01 10:00:00"}
    >>> run(script, {"A": [row], "B": [row]})["q"]
    [{'k': 7}]
    """
    with Session(script, tasks=tasks) as session:
        cut = {
            name: in_batches(rows, session.stream(name), session.settings, batch)
            for name, rows in streams.items()
        }
        rounds = max(map(len, cut.values()), default=0)
        restarts = {restart_after} if isinstance(restart_after, int) else set(restart_after)
        if beyond := sorted(restarts - set(range(1, rounds + 1))):
            raise InputError(f"restart_after has {beyond[0]}, and there are {rounds} rounds of batches")
        for number in range(rounds):
            for name, batches in cut.items():
                if number < len(batches):
                    session.send(name, batches[number])
            session.turn()
            if number + 1 in restarts:
                session.restart()
        if ends:
            session.end()
        results = {query.name: session.results(query.name) for query in session.queries}
        late = {stream.name: session.late(stream.name) for stream in session.plan.sources}
        session._late = late  # noqa: SLF001 - its state is about to go
        return Run(results, late, session.status(), session)
