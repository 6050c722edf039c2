"""The engine without Spark: the same tasks, commits and joiner, with a loop where Spark would run a job.

Rows go through ingest tasks into segments, batches and units become commits that are folded, and the engine's own
`Joiner` decides what to join, drop and rewrite.  Beside it stand the rows as the reference sees them, so that at any
moment the world can be asked: is every result right, and is what is kept exactly what is needed?

What Spark SQL would compute (event time, key, predicate bits) is computed here from the row itself.
"""

from __future__ import annotations

import json
import pickle
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from zlib import crc32

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.engine.change.transition import Transition
from penstock.engine.runners.inline import InlineRunner
from penstock.engine.sources.batch_ingest import BatchIngest
from penstock.engine.stages.expire import expire
from penstock.engine.stages.join import bring_up
from penstock.engine.stages.turn import take_turn
from penstock.engine.stages.turn_context import TurnContext
from penstock.engine.tasks.ingest import IngestTask
from penstock.engine.tasks.ingest_columns import ROW_TIME, bit_names, key_names
from penstock.engine.tasks.rewrite import RewriteTask
from penstock.engine.views.horizon import horizon
from penstock.engine.views.needs import claim, in_time
from penstock.engine.views.plans import next_plan
from penstock.kernels.reference import Event, nested_loop_join
from penstock.plan.share import Part
from penstock.sql.query import Column, Key, OutputColumn, Query, Range, Sink, Stream
from penstock.state import ledger as books
from penstock.state.census import rows_per_slice
from penstock.state.claims import live_rows
from penstock.state.codec import decode, decode_ledger, encode, encode_ledger
from penstock.state.files import open_files
from penstock.state.hold import read_hold
from penstock.state.ledger_fold import fold
from penstock.state.row_times import LONG_AGO
from penstock.state.segment import read_segment
from penstock.testing.backend import InlineBackend

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from random import Random

    from penstock.engine.runners.runner import Job
    from penstock.engine.tasks.ingest import BatchPart, BatchSpec
    from penstock.plan.build import Plan
    from penstock.plan.group import Group
    from penstock.state.commits import Commit
    from penstock.state.values import Cursor

COLUMNS = (Column("id", "bigint"), Column("k", "bigint"), Column("name", "string"), Column("ts", "timestamp"))
WHOLE, DIGEST, NONE = (Key("k", "k"),), (Key("name", "name"),), ()
TIMESTAMP = pa.timestamp("us", "UTC")
TYPES = {"id": pa.int64(), "k": pa.int64(), "name": pa.string(), "ts": TIMESTAMP}


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a source: its number, its key and event time (either may be null), the predicates it satisfies."""

    id: int
    key: int | None
    time: int | None
    holds: frozenset[str] = frozenset()


def query(
    name: str,
    window: Range,
    streams: str = "AB",
    *,
    keys: tuple[Key, ...] = WHOLE,
    left: Iterable[str] = (),
    right: Iterable[str] = (),
    sink: Sink | None = None,
    order: str = "none",
) -> Query:
    """Make a query that selects the numbers of both rows and the time of the left one."""
    outputs = (
        OutputColumn("a", "l.id", ("l", "id")),
        OutputColumn("b", "r.id", ("r", "id")),
        OutputColumn("at", "l.ts", ("l", "ts")),
    )
    return Query(
        name, *streams, keys, window, outputs,
        left_predicates=tuple(sorted(left)), right_predicates=tuple(sorted(right)),
        left_columns=frozenset({"id", "ts"}), right_columns=frozenset({"id"}), sink=sink or Sink("table"),
        options=(("order", order),),
    )  # fmt: skip


@dataclass
class Source:
    """A stream as the reference sees it: the rows that count, and how far its watermark is after each batch."""

    lateness: int
    rows: list[list[Row]] = field(default_factory=list)
    watermarks: list[int | None] = field(default_factory=lambda: [None])
    late: int = 0
    counted: list[Row] = field(default_factory=list)
    """Rows that windows which count rows may count, also those without a key."""
    overtaken: int = 0

    def take(self, batch: Sequence[Row], horizon: int | None = None) -> None:
        """Add a batch: a row behind the watermark of the batches before is late, one without a time is nothing.

        Below the horizon everything has been counted: a row that comes there is overtaken.
        """
        before = self.watermarks[-1]
        timed = [row for row in batch if row.time is not None]
        timely = [row for row in timed if before is None or row.time >= before]
        self.late += len(timed) - len(timely)
        self.rows.append(timely)
        counted = [row for row in timely if horizon is None or row.time >= horizon]
        self.counted += counted
        self.overtaken += len(timely) - len(counted)
        newest = max((row.time - self.lateness for row in timely), default=None)
        self.watermarks.append(max((each for each in (before, newest) if each is not None), default=None))


@dataclass
class Life:
    """A definition of a query, from one cursor of its group (None: from the past that was held) to another."""

    query: Query
    start: Cursor | None
    floors: tuple[int | None, int | None]
    end: Cursor | None = None


class World:
    """One run of the engine, and the truth about it."""

    def __init__(
        self,
        folder: Path,
        queries: Sequence[Query],
        *,
        lateness: int = 0,
        parts: int = 2,
        key_bits: int = 64,
        retain: str = "",
        strategy: str = "mem-opt",
    ) -> None:
        """Plan the queries and open an empty state in a folder."""
        self.strategy = strategy
        self.cuts: dict[str, Sequence[int]] = {}
        options = (("retain", retain),) if retain else ()
        self.streams = {name: Stream(name, COLUMNS, "ts", lateness, "", options) for name in "ABC"}
        self.sources = {name: Source(lateness) for name in self.streams}
        self.lives: dict[str, list[Life]] = {}
        self.key_bits = key_bits
        self.files = open_files(str(folder), sync=False)
        self.ledger = books.Ledger()
        self.rewritten = Counter[str]()
        self.handed: dict[str, dict[str, list[dict[str, Any]]]] = {}
        """What callbacks got, by query and unit: one that comes again after a crash counts once."""
        self.breaks: dict[str, list[int]] = {}
        """After how many results a query's sequence began anew."""
        self.row_times: dict[int, int] = {}
        self.now = 0.0
        """When batches arrive, in seconds since the epoch; 0: nobody knows."""
        self.store = self._store()
        self.backend = WorldBackend(self, tasks=parts)
        self.plan: Plan | None = None
        self.plan = self._planned(queries)
        self.context = self._context(self.plan)

    def _context(self, plan: Plan) -> TurnContext:
        """Make what turns work on."""
        return TurnContext(self.store, self.backend, plan, self._hand_over)

    def share(self, strategy: str, source: Random) -> None:
        """Go over to another strategy, or cut the chains elsewhere, at random where the strategy may choose."""
        self.strategy = strategy
        self.cuts = {
            group.id: [bound for bound in group.chain.bounds if source.random() < 0.5]
            for group in next_plan(self.streams, self.plan.queries, self.ledger, strategy=strategy).groups
        }
        self.change(self.plan.queries)

    def change(self, queries: Sequence[Query]) -> None:
        """Go over to other queries, as the engine does between two units and two batches.

        A query that comes, or comes back, gets a directory without results, as the engine demands.
        """
        known = {each.name: each.sink for each in self.plan.queries}
        settled = [replace(each, sink=known.get(each.name) or self._fresh(each.sink)) for each in queries]
        self.plan = self.context.plan = self._planned(settled)

    def _fresh(self, sink: Sink) -> Sink:
        """Give a parquet sink a directory of its own."""
        if sink.kind != "parquet":
            return sink
        return Sink("parquet", (("path", f"{sink.option('path')}-{self.ledger.version}"),))

    def _planned(self, queries: Sequence[Query]) -> Plan:
        """Commit a plan, and write down what it means for each query's life."""
        after = next_plan(self.streams, queries, self.ledger, strategy=self.strategy, cuts=self.cuts)
        transition = Transition.to(after, self.ledger, "at random")
        transition.align_cursors(self.ledger, self._context)
        change = transition.change
        for name in change.dropped + change.altered + change.moved:
            self.lives[name][-1].end = self._cursor(self.lives[name][-1].query, self.plan)
        for name in change.dropped:
            self._check_query(name, self.lives.pop(name))
            self.handed.pop(name, None)
            self.breaks.pop(name, None)
        waiting = {name for name in change.altered + change.moved if self.ledger.query(name).backfill}
        for name in waiting:  # it has got nothing yet, and will get its past by its new definition
            del self.lives[name]
        plan = transition.apply(self.store, self.backend)
        self.batches = {each.name: BatchIngest(self.store, self.backend, plan, each) for each in plan.streams}
        for name in change.altered:
            self.breaks.setdefault(name, []).append(self.ledger.query(name).results)
        for one in plan.queries:
            if one.name in change.added + change.altered + change.moved:
                start = None if one.name in change.added or one.name in waiting else self._cursor(one, plan)
                floors = self.ledger.query(one.name).held_from
                self.lives.setdefault(one.name, []).append(Life(one, start, floors))
        return plan

    def _cursor(self, one: Query, plan: Plan | None) -> Cursor:
        """Say how far a query's group is."""
        groups = [group for group, _, _ in plan.groups_of(one.name)]  # type: ignore[union-attr]
        (cursor,) = {cursor for group in groups for cursor in self.ledger.groups[group.id].cursors}
        return cursor

    def _store(self) -> Any:
        """Stand in for the state directory: the same fold, without a journal on disk."""
        world = self

        class Store:
            files = world.files
            commit = staticmethod(world._commit)
            let_go = staticmethod(world.files.delete)

            @property
            def ledger(self) -> books.Ledger:
                return world.ledger

        return Store()

    def _commit(self, commit: Commit) -> None:
        """Fold a commit as the journal would: after it was text."""
        self.ledger = fold(self.ledger, decode(json.loads(json.dumps(encode(commit)))))

    # --- what happens ---------------------------------------------------------------------------------

    def ingest(self, stream: str, rows: Sequence[Row], tasks: int = 1) -> None:
        """Take a batch of a stream, dealt out to some tasks."""
        if stream not in {each.name for each in self.plan.streams}:
            return  # nobody reads it
        horizon = self.ledger.roll(stream).horizon if stream in self.plan.counted else None
        batches = self.batches[stream]
        batches.key_bits, self.backend.dealt_to = self.key_bits, tasks
        batches.ingest(rows, self.ledger.stream(stream).source_batch + 1, None, self.now)
        self.sources[stream].take(rows, horizon)
        self.row_times |= {row.id: row.time for row in rows}

    def columns(self, stream: str, rows: Sequence[Row]) -> pa.RecordBatch:
        """Compute what Spark SQL would: time, keys and bits, beside the source's own columns."""
        keys = [row.key for row in rows]
        names = [None if row.key is None else self.name(row) for row in rows]
        times = [row.time for row in rows]
        columns = {
            ROW_TIME: pa.array(times, pa.int64()),
            "id": pa.array([row.id for row in rows], pa.int64()),
            "k": pa.array(keys, pa.int64()),
            "name": pa.array(names, pa.string()),
            "ts": pa.array(times, pa.int64()).cast(TIMESTAMP),
        }
        for number, log in enumerate(self.plan.logs_of(stream)):
            whole, digested = key_names(number, log)
            digests = [None if name is None else crc32(name.encode()) << 31 for name in names]
            columns[whole] = pa.array(keys if log.whole_key else digests, pa.int64())
            if not log.key:
                columns[whole] = pa.array([0] * len(rows), pa.int64())
            columns |= {each: pa.array(names, pa.string()) for each in digested}
            for word, bits in enumerate(bit_names(number, log)):
                mine = log.predicates[64 * word : 64 * word + 64]
                packed = [sum(1 << b for b, each in enumerate(mine) if each in row.holds) for row in rows]
                columns[bits] = pa.array([_signed(each) for each in packed], pa.int64())
        return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))

    @staticmethod
    def name(row: Row) -> str:
        """Give the text that a row has for its key."""
        return f"n{row.key}"

    def turn(self) -> None:
        """Let the joiner join, publish and tidy all there is."""
        self.step()
        while self.context.any_behind():
            self.step()

    def bring_up(self) -> None:
        """Let every group join all there is, also what waits for its turn."""
        bring_up(self.context, self.plan.groups)

    def step(self) -> None:
        """Take one turn: the slices whose turn it is advance, the others stay behind."""
        take_turn(self.context)

    def advance(self, group: Group) -> None:
        """Let one group join what there is, leaving the others behind; then tidy."""
        bring_up(self.context, [group])
        expire(self.context)

    def end(self) -> None:
        """Take what is there for all there is, as a run to the end of the input does."""
        self.context.input_ended = True
        self.turn()
        self.context.input_ended = False
        for one in self.plan.queries:
            self.breaks.setdefault(one.name, []).append(self.ledger.query(one.name).results)

    def _hand_over(self, publication: books.Publication) -> None:
        """Be every query's callback."""
        files = [Path(f"{move.root}/{move.final}".removeprefix("file://")) for move in publication.moves]
        mine = self.handed.setdefault(publication.query, {})
        mine[publication.unit] = [row for file in files for row in _rows(file)]

    def restart(self) -> None:
        """Forget everything but a snapshot, and register the same queries in another order."""
        self.ledger = decode_ledger(json.loads(json.dumps(encode_ledger(self.ledger))))
        self.change(list(reversed(self.plan.queries)))

    # --- what is true ---------------------------------------------------------------------------------

    def events(
        self, stream: str, keyed: bool, batches: int | None = None, below: int = LONG_AGO
    ) -> list[Event]:
        """List the rows of a stream's first batches, and all older than a time, as the reference sees them.

        Without a key all have the same.
        """
        return [
            Event(row.key if keyed else 0, row.time or 0, row)
            for number, batch in enumerate(self.sources[stream].rows)
            for row in batch
            if (row.key is not None or not keyed)
            and (batches is None or number < batches or row.time < below)
        ]

    def expected(
        self, one: Query, cursor: Cursor, floors: tuple[int | None, int | None] = (None, None)
    ) -> Counter[tuple[int, int]]:
        """Join in nested loops what a cursor names of both streams, leaving out rows below the floors."""
        left, right = (
            self.events(stream, bool(one.keys), batches, cursor.below)
            for stream, batches in zip((one.left, one.right), cursor.batches, strict=True)
        )
        lows = [-(1 << 62) if floor is None else floor for floor in floors]
        pairs = nested_loop_join(
            [event for event in left if event.time >= lows[0]],
            [event for event in right if event.time >= lows[1]],
            one.window,
            lambda row: set(one.left_predicates) <= row.name.holds,  # type: ignore[union-attr]
            lambda row: set(one.right_predicates) <= row.name.holds,  # type: ignore[union-attr]
        )
        return Counter({(a.name.id, b.name.id): count for (a, b), count in pairs.items()})  # type: ignore[union-attr]

    def sequence(self, one: Query) -> list[tuple[int, int]]:
        """Read what a query has got in files of its own, or by calls, in their order."""
        rows = [row for rows in self.handed.get(one.name, {}).values() for row in rows]
        if one.sink.kind == "parquet":
            rows = _parquet(one.sink.option("path"))
        elif one.sink.kind == "table":
            names = [each.name for each in self.ledger.kept.get(one.name, ())]
            assert names == sorted(names, key=lambda name: name.rpartition("/")[2]), "names ascend"
            rows = [row for name in names for row in self._stored_rows(name)]
        return [(row["a"], row["b"]) for row in rows]

    def held(self, one: Query) -> list[tuple[int, int]]:
        """Read what waits for its turn."""
        return [
            (row["a"], row["b"])
            for each in self.ledger.hold(one.name).files
            for batch in read_hold(self.files, each, each.min_t, each.max_t + 1)
            for row in batch.to_pylist()
        ]

    def place(self, pair: tuple[int, int]) -> tuple[int, ...]:
        """Say where a pair of row numbers belongs in the order of results."""
        left, right = (self.row_times[each] for each in pair)
        return max(left, right), left, right, *pair

    def check_order(self) -> None:
        """Every sequence ascends, up to the horizon; what is held lies beyond it.  To be asked after a turn."""
        for one in self.plan.queries:
            if one.ordered and one.sink.kind != "noop":
                self._check_order(one)

    def _check_order(self, one: Query) -> None:
        """Look at one query's sequence, piece by piece."""
        got, breaks = self.sequence(one), self.breaks.get(one.name, [])
        for start, end in pairwise((0, *breaks, len(got))):
            piece = got[start:end]
            assert piece == sorted(piece, key=self.place), f"{one.name} is out of order"
        until, held = horizon(self.plan, self.ledger, one.name), self.held(one)
        assert len(held) == self.ledger.hold(one.name).rows
        last = got[breaks[-1] if breaks else 0 :]
        if until is None:
            assert not last
        else:
            assert all(self.place(pair)[0] < until for pair in last)
            assert all(self.place(pair)[0] >= until for pair in held)

    def results(self, one: Query) -> Counter[tuple[int, int]]:
        """Read what a query has got: from its own files, or from the groups' tables as its views would."""
        got = Counter(self.sequence(one))
        if one.sink.kind != "table":
            return got
        for table in (table for tables in self.ledger.tables.values() for table in tables):
            for each in table.members.get(one.name, ()):
                assert each.version >= self.ledger.query(one.name).born
                for row in (row for file in table.files for row in self._stored_rows(file.name)):
                    mine = (
                        row[f"s{each.number // 64}"] >> each.number % 64 & 1
                        if table.selective
                        else each.levels[0] <= row["level"] < each.levels[1]
                    )
                    got[row["l"]["id"], row["r"]["id"]] += mine
        return +got

    def _stored_rows(self, name: str) -> list[dict[str, Any]]:
        """Read a file that the state keeps."""
        return _rows(Path(self.files.path(name).removeprefix("file://")))

    def check_results(self) -> None:
        """Every query has what nested loops give over its life, and was counted so.

        A query that came later, or changed, has all pairs of rows above its floors, and no pair that is not one.
        """
        for name, lives in self.lives.items():
            self._check_query(name, lives)

    def _check_query(self, name: str, lives: list[Life]) -> None:
        """Hold one query's results against its lives so far."""
        if self.ledger.query(name).backfill:
            return
        least, most = Counter[tuple[int, int]](), Counter[tuple[int, int]]()
        for life in lives:
            end = life.end or self._cursor(life.query, self.plan)
            before = self.expected(life.query, life.start) if life.start else Counter()
            least += self.expected(life.query, end, life.floors) - before
            most += self.expected(life.query, end) - before
        held = self.ledger.hold(name).rows
        assert least.total() <= self.ledger.query(name).results + held <= most.total(), f"count of {name}"
        if lives[-1].query.sink.kind == "noop" or self.ledger.pending:
            return
        got = self.results(lives[-1].query)
        assert got.total() == self.ledger.query(name).results, f"count of {name}"
        got.update(self.held(lives[-1].query))
        assert least <= got <= most, name
        last = lives[-1]
        promised = self.expected(
            last.query,
            last.end or self._cursor(last.query, self.plan),
            (self.ledger.query(name).complete_from,) * 2,
        )
        assert promised <= got, f"{name} is not complete from {self.ledger.query(name).complete_from}"

    def check_state(self) -> None:
        """What is live is what a partner still to come can reach: no row fewer, no row more, none twice."""
        for log in self.plan.logs:
            stored = [
                row
                for segment in self.ledger.segments(log.id)
                for row in read_segment(self.files, segment).column("id").to_pylist()
            ]
            assert len(stored) == len(set(stored)), f"a row of {log.id} is stored twice"
        for group in self.plan.groups:
            for side in ("l", "r"):
                self._check_side(group, side)

    def _check_side(self, group: Group, side: str) -> None:
        """Hold one side's live rows against the definition."""
        segments = self.ledger.segments(group.log(side).id)
        layouts = self.ledger.layouts[group.log(side).id]
        live = Counter[int]()
        counted = 0
        ends = in_time(group, side, self.ledger, [piece.ages[1] for _, piece in group.chain.side(side)])
        for segment in segments:
            mine = claim(group, side, self.ledger, layouts[segment.layout])
            rows = read_segment(self.files, segment)
            kept = live_rows(rows, [mine])
            counted += int(rows_per_slice([segment], mine, ends).sum()) if ends else 0
            live.update(
                each for each, is_live in zip(rows.column("id").to_pylist(), kept, strict=True) if is_live
            )
        needed = Counter(row.id for row in self._needed(group, side))
        if self.ledger.version == 1:
            assert live == needed
        else:  # a query that came later cannot have what was let go before it
            assert live <= needed
        if ends:
            assert counted == live.total()

    def _needed(self, group: Group, side: str) -> list[Row]:
        """List a side's rows that some query accepts and whose last possible partner may still come."""
        partner = group.log("r" if side == "l" else "l").stream
        (cursor,) = set(self.ledger.groups[group.id].cursors)
        place = 1 if side == "l" else 0
        horizon = self.sources[partner].watermarks[cursor.batches[place]]
        if (
            cursor.below > LONG_AGO
        ):  # of rows that wait, all are known to be younger than this, and perhaps more
            most, horizon = horizon, self.ledger.groups[group.id].watermarks[place]
            assert cursor.below <= horizon <= max(cursor.below, most if most is not None else LONG_AGO)
        needed = []
        for event in self.events(group.log(side).stream, bool(group.signature.keys)):
            row = event.name
            for member in group.members:
                window = group.chain.held(member.query.window)
                wanted = group.filter_last or set(member.predicates(side)) <= row.holds  # type: ignore[union-attr]
                # the last instant at which a partner may lie: T + hi - 1 for a left row, T - lo for a right one
                last = event.time + (window.hi - 1 if side == "l" else -window.lo)
                # a row stored before a condition came is taken not to satisfy it
                part = group.part(side) if self.ledger.version == 1 else Part(group.part(side).all_of)
                mine = part.takes(row.holds)  # type: ignore[union-attr]
                if mine and wanted and (horizon is None or last >= horizon):
                    needed.append(row)
                    break
        return needed  # type: ignore[return-value]


class WorldBackend(InlineBackend):
    """A backend over rows that say themselves which predicates they satisfy."""

    def __init__(self, world: World, *, tasks: int) -> None:
        super().__init__(world.files, tasks=tasks)
        self.world, self.dealt_to = world, 1
        self.runner = WorldRunner(world, tasks)

    def arrow_types(self, _stream: Stream) -> dict[str, pa.DataType]:
        return TYPES

    def ingest(self, batch: Sequence[Row], stream: Stream, task: BatchSpec) -> list[BatchPart]:
        """Deal a batch out to some tasks."""
        dealt = [batch[number :: self.dealt_to] for number in range(self.dealt_to)]
        parts = (self.world.columns(stream.name, rows).select(task.columns()) for rows in dealt)
        sent = sent_over(IngestTask(task))
        return [part for each in parts for part in sent_over(sent.finish(self.files, iter([each])))]

    def keep_late(self, *_: object) -> None:
        """Late rows are counted here, not kept."""

    def can_upgrade(self, *_: object) -> bool:
        """Rows say what they satisfy when they arrive, and not later."""
        return False


class WorldRunner(InlineRunner):
    """Sends tasks and reports as Spark does, and counts the rows that are rewritten."""

    def __init__(self, world: World, tasks: int) -> None:
        super().__init__(world.files, lambda *_: pytest.fail("an expression needs Spark"), tasks)
        self.world = world

    def map(self, tasks: Sequence[Any], job: Job) -> list[Any]:
        for task in tasks:
            if isinstance(task, RewriteTask):
                self.world.rewritten[task.log] += sum(each.rows for each in task.segments)
        return [sent_over(report) for report in super().map([sent_over(task) for task in tasks], job)]


def sent_over(value: R) -> R:
    """Return a task or a report as it arrives on the other side: pickled and read again."""
    return pickle.loads(pickle.dumps(value))  # noqa: S301 - our own


R = TypeVar("R")


def _parquet(folder: str) -> list[dict[str, Any]]:
    """Read the published files of a directory."""
    return [row for file in sorted(Path(folder).glob("*.parquet")) for row in _rows(file)]


@cache
def _rows(file: Path) -> list[dict[str, Any]]:
    """Read a published file, once: it never changes."""
    return pq.ParquetFile(file).read().to_pylist()


def _signed(word: int) -> int:
    """Write 64 bits as Spark's signed bigint."""
    return word - (1 << 64) if word >> 63 else word
