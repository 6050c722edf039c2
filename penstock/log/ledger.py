"""All that the engine knows, as a fold over the journal.

Thirteen kinds of commit, each making one thing true::

    opened     another engine took over this state
    plan       from here on this state serves these streams and queries (the first commit, and every change)
    declared   these streams have other options from here on, but their rows mean the same  (start)
    batch      a stream's batch, of this origin, is in the logs; its watermark rose  (ingest)
    seal       rows below a horizon have their final positions         (join, where windows count rows)
    unit       slices advanced; this output is committed               (join)
    backfill   a query has got the pairs that were there before it      (join)
    release    these results were held, and it is their turn           (join, where order was asked for)
    order      from here on this waits in a group: its input, or its results  (join, where order is adaptive)
    rewrite    these segments are replaced by that one, or gone        (merge, retention)
    published  output of these units has reached its sinks             (deliver)
    compact    these files of results are replaced by those            (compact)
    adopt      these are the files of results of an earlier version    (start)
    prices     this is what the engine's work costs here               (calibrate)

A unit, a backfill and a release name the files of results that the state keeps: ``stored``, pairs by group and table,
and ``kept``, results of one query by its name.  A reader reads the files that are named here and no others, so a
commit replaces them at once (`penstock.log.tables`).

The ledger is a value: a commit gives a new one, so a reader may keep what it has.

In:  commits, in order.  Out: segments, cursors, watermarks, counts, and output still to be published.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.errors import RunError
from penstock.log.hold import Held, Hold
from penstock.log.roll import LONG_AGO, Roll
from penstock.log.segment import Segment
from penstock.log.tables import StoredFile, StoredTable, last_begun, readable, without_ends
from penstock.log.tally import Delays, Effort, Fit, Traffic
from penstock.plan.codec import redact_stream
from penstock.plan.order import trigger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

MOST_CHANGES = 32
"""Changes of plan, and of what waits, that are remembered outside the journal."""

Json = dict[str, Any]


class Cursor(NamedTuple):
    """What a slice has joined: the batches before `left` and `right`, and of both streams all rows older than `below`.

    A row older than `below` that is not there yet would be late, so the third part names no rows still to come.  It
    moves where input waits for its turn (`penstock.engine.ordering`); elsewhere it stays at the beginning of time.
    """

    left: int
    right: int
    below: int = LONG_AGO


Station = tuple[Cursor, tuple[int | None, int | None]]
"""A cursor, and the watermarks of both streams when the batches up to it were all there were."""


@dataclass(frozen=True, slots=True)
class StreamState:
    """How far a stream is: the last source batch, its newest event time and watermark, and its counts."""

    source_batch: int = -1
    batches: int = 0
    newest: int | None = None
    watermark: int | None = None
    rows: int = 0
    late: int = 0
    no_time: int = 0
    no_key: int = 0
    unwanted: int = 0
    heard: float = 0.0
    """When the last batch that had rows was committed, in seconds since the epoch; 0: nobody knows."""
    overtaken: int = 0
    """Rows in time for the stream, but not for windows that count rows: those had been joined beyond them."""

    @property
    def timely(self) -> int:
        """Count the rows that came in time."""
        return self.rows - self.late - self.no_time


@dataclass(frozen=True, slots=True)
class GroupState:
    """How far each slice of a group has joined the two logs, and how many units that took.

    `watermarks` are those of the left and right stream when the batches up to the cursors were all there were: no row
    still to be joined is older.  (The streams' own watermarks may be ahead, by batches not joined yet.)  Where windows
    count rows, both are the horizon below which all is joined, and `spans` say for each side how far back of it so many
    rows reach in time.

    Slices may be at different cursors, the inner ones ahead.  `stations` are the cursors from the slowest slices to the
    newest, with the watermarks that go with them; `watermarks` are the slowest ones'.  Together, slices have none.
    """

    cursors: tuple[Cursor, ...]
    watermarks: tuple[int | None, int | None] = (None, None)
    units: int = 0
    pairs: int = 0
    mixed: bool = False
    effort: Effort = field(default_factory=Effort)
    spans: tuple[Mapping[int, int], Mapping[int, int]] = field(default_factory=lambda: ({}, {}))
    stations: tuple[Station, ...] = ()
    mode: str = ""
    """What waits now, where adaptive queries have chosen: the input (sync-filter), or the results (filter-order)."""

    @property
    def stops(self) -> tuple[Station, ...]:
        """Give the cursors from the slowest slices to the newest, with their watermarks."""
        return self.stations or ((self.cursors[0], self.watermarks),)

    @property
    def apart(self) -> bool:
        """Say whether some slices are behind others."""
        return len(set(self.cursors)) > 1

    def marks(self, places: Iterable[int]) -> tuple[int | None, int | None]:
        """Give the watermarks of the slowest of some slices."""
        behind = {self.cursors[place] for place in places}
        return next(marks for cursor, marks in self.stops if cursor in behind)


@dataclass(frozen=True, slots=True)
class Layout:
    """What a log's segments hold from some point on: the columns stored, and what each predicate bit means."""

    columns: tuple[str, ...]
    predicates: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class QueryState:
    """One query's past: results so far, what it still lacks, and from when on it is complete.

    `backfill` is the cursor up to which it still lacks the pairs of rows that were there before it.  `floors` are, for
    the left and right stream, the event times from which on all rows it accepts are known to be held; None: all.
    `complete_from` is the event time such that every pair of rows not older is delivered; None if all are.  `born` is
    the version of the plan that brought it: a query dropped and added again is another one.
    """

    results: int = 0
    backfill: Cursor | None = None
    floors: tuple[int | None, int | None] = (None, None)
    complete_from: int | None = None
    born: int = 0
    delays: Delays = field(default_factory=Delays)


@dataclass(frozen=True, slots=True)
class Move:
    """A file of committed output: written at `staged`, to be seen at `final`, both under `root`."""

    root: str
    staged: str
    final: str


@dataclass(frozen=True, slots=True)
class Publication:
    """Output that is committed and must still reach its sink: moved into place, or handed to a callback.

    `query` is set where the files are for one query's console or callback rather than a directory.
    """

    unit: str
    moves: tuple[Move, ...]
    query: str = ""


@dataclass(frozen=True, slots=True)
class Ledger:
    """The folded journal."""

    plan: Json = field(default_factory=dict)
    version: int = 0
    """How often the plan was changed; output in the groups' tables is kept by version."""
    layouts: Mapping[str, Mapping[int, Layout]] = field(default_factory=dict)
    """For each log, the layouts that are in use, by number: the last one is the current one."""
    births: Mapping[str, int | None] = field(default_factory=dict)
    """For each log, the event time of its stream when it began; None: with the stream."""
    tables: Mapping[str, tuple[StoredTable, ...]] = field(default_factory=dict)
    """For each group, the pairs that are stored for queries to read, and how each of them reads them."""
    writes: Mapping[str, str] = field(default_factory=dict)
    """For each group whose units find pairs for a table, the one they go to."""
    kept: Mapping[str, tuple[StoredFile, ...]] = field(default_factory=dict)
    """For each query, the files of results that the state keeps for it alone, in order."""
    adopted: bool = False
    """Whether all files of results are named here; not in a state of an earlier version, before `adopt`."""
    streams: Mapping[str, StreamState] = field(default_factory=dict)
    logs: Mapping[str, tuple[Segment, ...]] = field(default_factory=dict)
    groups: Mapping[str, GroupState] = field(default_factory=dict)
    queries: Mapping[str, QueryState] = field(default_factory=dict)
    rolls: Mapping[str, Roll] = field(default_factory=dict)
    """The streams whose rows are counted."""
    pending: tuple[Publication, ...] = ()
    holds: Mapping[str, Hold] = field(default_factory=dict)
    """For each query that wants its results in order, what is held of them."""
    releases: int = 0
    """How often results were released; the number is in the names of their files."""
    traffic: Mapping[str, Traffic] = field(default_factory=dict)
    """For each log, what its input was like lately."""
    unit_fit: Fit = field(default_factory=Fit)
    """What units take, fitted to one, their input rows and their pairs."""
    rewrite_fit: Fit = field(default_factory=Fit)
    """What rewrites take, fitted to one and their rows."""
    changes: tuple[Json, ...] = ()
    """The last changes of plan: version, reason, and when it was made."""
    switches: tuple[Json, ...] = ()
    """The last times that adaptive queries changed what waits: groups, mode, reason, and when."""
    undelivered: Mapping[str, int] = field(default_factory=dict)
    """For each query, the results of commits whose output is still pending."""
    prices: Json = field(default_factory=dict)
    """What was measured by `penstock calibrate`; empty before."""
    declared: Mapping[str, Json] = field(default_factory=dict)
    """How each stream that was ever read is declared, without secrets; also those that no query reads any more."""
    origins: Mapping[str, Json] = field(default_factory=dict)
    """Where the last batch of each stream came from (`penstock.log.origin`); not known of earlier versions' batches."""

    def stream(self, name: str) -> StreamState:
        """Give a stream's state, the empty one before its first batch."""
        return self.streams.get(name, StreamState())

    def query(self, name: str) -> QueryState:
        """Give a query's state, the empty one before its first result."""
        return self.queries.get(name, QueryState())

    def hold(self, name: str) -> Hold:
        """Give what is held of a query's results."""
        return self.holds.get(name, Hold())

    def roll(self, stream: str) -> Roll:
        """Give how far a stream is counted."""
        return self.rolls.get(stream, Roll())

    def files(self) -> set[str]:
        """Name every file of rows, times or results that is in use."""
        return {each.name for each in self.summed()}

    def summed(self) -> Iterator[Segment | Held | StoredFile]:
        """List the files that are kept with a checksum: of rows, times, held results, and results."""
        for segments in self.logs.values():
            yield from segments
        for roll in self.rolls.values():
            yield from (*roll.pieces, *roll.waiting)
        for hold in self.holds.values():
            yield from hold.files
        yield from self.result_files()

    def result_files(self) -> Iterator[StoredFile]:
        """List the files of pairs and results that the state keeps."""
        for tables in self.tables.values():
            for table in tables:
                yield from table.files or ()
        for files in self.kept.values():
            yield from files

    def table(self, group: str) -> StoredTable | None:
        """Say how the pairs are stored that a group finds now; None if nobody reads them from there."""
        known = self.tables.get(group, ())
        return next((each for each in known if each.id == self.writes.get(group)), None)

    def layout(self, log: str) -> int:
        """Give the number of a log's current layout, -1 before its first."""
        return max(self.layouts.get(log, ()), default=-1)

    def segments(self, log: str) -> tuple[Segment, ...]:
        """List a log's segments."""
        return self.logs.get(log, ())


def fold(ledger: Ledger, commit: Json) -> Ledger:
    """Apply one commit."""
    step = _STEPS.get(str(commit.get("kind")))
    if step is None:
        raise RunError(f"the journal has a commit of kind {commit.get('kind')!r}: it is from a newer version")
    return step(ledger, commit)


def _opened(ledger: Ledger, _commit: Json) -> Ledger:
    """Change nothing: the commit's number is what matters, it fences the engine before."""
    return ledger


def _plan(ledger: Ledger, commit: Json) -> Ledger:
    """Take up a new plan: its chains at the given cursors, its logs' layouts, and what each query starts with.

    What is held of a query that is defined anew is released by the same commit.
    """
    ledger = _release(ledger, commit["release"]) if "release" in commit else ledger
    layouts = dict(ledger.layouts)
    for log, (columns, predicates) in commit["layouts"].items():
        fresh = {ledger.layout(log) + 1: Layout(tuple(columns), tuple(predicates))}
        layouts[log] = {**layouts.get(log, {}), **fresh}
    groups = {
        name: replace(_group_state(each), effort=known.effort)
        if (known := ledger.groups.get(name))
        else _group_state(each)
        for name, each in commit["groups"].items()
    }
    started = {name: _query_state(each) for name, each in commit["queries"].items()}
    stopped = [each["query"]["name"] for each in commit["plan"].get("stopped", ())]
    queries = {
        name: started.get(name, ledger.query(name))
        for name in (*(each["name"] for each in commit["plan"]["queries"]), *stopped)
    }
    tables = _readable(ledger, commit, queries)
    kept = set(commit["logs"])
    logs = {log: segments for log, segments in ledger.logs.items() if log in kept}
    for log, (removed, added) in commit["upgrades"].items():
        rest = tuple(each for each in logs[log] if each.name not in set(removed))
        logs[log] = tuple(Segment.from_json(each) for each in added) + rest
    plan = _redacted(commit["plan"])
    return replace(
        ledger,
        logs=logs,
        plan=plan,
        declared={**ledger.declared, **_by_name(plan["streams"])},
        version=ledger.version + 1,
        changes=(*ledger.changes, _changed(ledger, commit))[-MOST_CHANGES:],
        layouts={
            log: _in_use(each, logs.get(log, ()), ledger.traffic.get(log))
            for log, each in layouts.items()
            if log in kept
        },
        births={log: each for log, each in {**ledger.births, **commit["births"]}.items() if log in kept},
        traffic={log: each for log, each in ledger.traffic.items() if log in kept},
        groups=groups,
        tables=tables,
        writes=_writes(commit, tables),
        rolls={
            stream: ledger.rolls.get(stream, Roll(since)) for stream, since in commit.get("rolls", {}).items()
        },
        queries=queries,
        kept={name: files for name, files in ledger.kept.items() if name in queries},
        adopted=ledger.adopted or commit.get("adopted", False),
        holds={name: _begun(ledger.hold(name), era) for name, era in commit.get("ordered", {}).items()},
    )


def _redacted(plan: Json) -> Json:
    """Take out the secrets that earlier versions wrote with a plan's streams."""
    return {**plan, "streams": [redact_stream(each) for each in plan.get("streams", ())]} if plan else plan


def _by_name(streams: Iterable[Json]) -> dict[str, Json]:
    """Give declarations by the streams' names."""
    return {each["name"]: each for each in streams}


def _declared(ledger: Ledger, commit: Json) -> Ledger:
    """Take note of the options that some streams are read with now."""
    return replace(ledger, declared={**ledger.declared, **_by_name(commit["streams"])})


def _begun(hold: Hold, era: int) -> Hold:
    """Go on with what is held of a query; a definition of its own begins a sequence of its own."""
    return hold if hold.era == era else replace(hold, era=era, until=None)


def _in_use(
    layouts: Mapping[int, Layout], segments: Iterable[Segment], traffic: Traffic | None
) -> dict[int, Layout]:
    """Forget the layouts that no segment and no count of rows goes by any more; the last one is the current one."""
    used = {each.layout for each in segments} | {max(layouts)} | ({traffic.layout} if traffic else set())
    return {number: layout for number, layout in layouts.items() if number in used}


def _readable(
    ledger: Ledger, commit: Json, queries: Mapping[str, QueryState]
) -> dict[str, tuple[StoredTable, ...]]:
    """Add how pairs are stored from now on, and forget what no query can read any more: it has gone, or is another.

    So is a table without pairs that nobody will write to.
    """
    born = {name: state.born for name, state in queries.items()}
    version = ledger.version + 1
    tables: dict[str, tuple[StoredTable, ...]] = {}
    for group in {**ledger.tables, **commit["tables"]}:
        fresh = tuple(StoredTable.from_json(each) for each in commit["tables"].get(group, ()))
        known = tuple(readable(each, born) for each in ledger.tables.get(group, ()) + fresh)
        written = _writes(commit, {group: known}).get(group)
        used = (each for each in known if each.files != () or written == each.id or each.version == version)
        names = {each.id for each in used}
        if kept := without_ends(
            each for each in known if each.members and (each.id in names or each.generation)
        ):
            tables[group] = kept
    return tables


def _writes(commit: Json, tables: Mapping[str, Sequence[StoredTable]]) -> dict[str, str]:
    """Say to which table the units of each group write; earlier versions left it to be found out."""
    known: dict[str, str] = commit.get("writes", {group: last_begun(each) for group, each in tables.items()})
    return {group: table for group, table in known.items() if table}


def _changed(ledger: Ledger, commit: Json) -> Json:
    """Say what a change of plan was."""
    return {"version": ledger.version + 1, "reason": commit["reason"], "at": commit.get("at", "")}


def _group_state(data: Json) -> GroupState:
    """Read one group's state."""
    cursors = tuple(Cursor(*each) for each in data["cursors"])
    return GroupState(
        cursors,
        tuple(data["watermarks"]),
        data["units"],
        data["pairs"],
        data["mixed"],
        Effort(**data.get("effort", {})),
        _spans(data.get("spans", ((), ()))),
        _stations(data.get("stations", ())),
        data.get("mode", ""),
    )


def _stations(data: Iterable[Any]) -> tuple[Station, ...]:
    """Read the cursors that slices are at."""
    return tuple((Cursor(*cursor), (left, right)) for cursor, (left, right) in data)


def _spans(data: Iterable[Iterable[tuple[int, int]]]) -> tuple[Mapping[int, int], Mapping[int, int]]:
    """Read the spans of both sides."""
    left, right = (dict(side) for side in data)
    return left, right


def spans_to_json(spans: Iterable[Mapping[int, int]]) -> list[list[list[int]]]:
    """Write the spans of both sides: the keys of a JSON object would become text."""
    return [[[rows, span] for rows, span in sorted(side.items())] for side in spans]


def _query_state(data: Json) -> QueryState:
    """Read one query's state."""
    backfill = Cursor(*data["backfill"]) if data["backfill"] else None
    delays = data.get("delays", {})
    return QueryState(
        data["results"],
        backfill,
        tuple(data["floors"]),
        data["complete_from"],
        data["born"],
        Delays(
            {int(bucket): count for bucket, count in delays.get("counts", {}).items()},
            delays.get("seconds", 0.0),
            delays.get("longest", 0.0),
        ),
    )


def _backfill(ledger: Ledger, commit: Json) -> Ledger:
    """Note that a query has got the pairs of rows that were there before it."""
    queries = dict(ledger.queries)
    for name in commit["queries"]:
        queries[name] = replace(ledger.query(name), backfill=None)
    return _delivered(replace(ledger, queries=queries), commit)


def _delivered(ledger: Ledger, commit: Json) -> Ledger:
    """Count results, and take note of the output to publish and of what is held."""
    queries, holds = dict(ledger.queries), dict(ledger.holds)
    for name, count in commit["results"].items():
        queries[name] = replace(ledger.query(name), results=ledger.query(name).results + count)
    for name, delays in commit.get("delays", {}).items():
        queries[name] = replace(queries[name], delays=queries[name].delays.then(delays))
    for name, added in commit.get("held", {}).items():
        holds[name] = replace(ledger.hold(name), files=ledger.hold(name).files + _held(added))
    ledger = _kept(ledger, commit)
    pending = ledger.pending + tuple(publication_from_json(each) for each in commit["publish"])
    undelivered = Counter(ledger.undelivered)
    undelivered.update(commit["results"] if pending else {})
    return replace(ledger, queries=queries, pending=pending, holds=holds, undelivered=dict(undelivered))


def _kept(ledger: Ledger, commit: Json) -> Ledger:
    """Name the files of results that the state keeps from here on."""
    tables, kept = dict(ledger.tables), dict(ledger.kept)
    for group, stored in commit.get("stored", {}).items():
        tables[group] = tuple(
            replace(each, files=(each.files or ()) + _stored(stored[each.id])) if each.id in stored else each
            for each in tables[group]
        )
    for query, files in commit.get("kept", {}).items():
        kept[query] = kept.get(query, ()) + _stored(files)
    return replace(ledger, tables=tables, kept=kept)


def _stored(files: Iterable[Json]) -> tuple[StoredFile, ...]:
    """Read files of results."""
    return tuple(StoredFile(**each) for each in files)


def _adopt(ledger: Ledger, commit: Json) -> Ledger:
    """Name the files of results that an earlier version has left in directories."""
    tables = {
        group: tuple(each if each.files is not None else replace(each, files=()) for each in known)
        for group, known in ledger.tables.items()
    }
    return replace(_kept(replace(ledger, tables=tables), commit), adopted=True)


def _compact(ledger: Ledger, commit: Json) -> Ledger:
    """Put files in the place of others that held the same, and begin to merge tables into one."""
    tables, kept = dict(ledger.tables), dict(ledger.kept)
    for group, begun in commit["tables"].items():
        into = StoredTable.from_json(begun["table"])
        merging = (replace(each, into=into.id) if each.id in begun["of"] else each for each in tables[group])
        tables[group] = (into, *merging)
    for group, change in commit["pairs"].items():
        tables[group] = without_ends(_with_files(each, change) for each in tables[group])
    for query, changes in commit["kept"].items():
        for gone, added in changes:
            kept[query] = _replaced(kept[query], gone, _stored(added))
    return replace(ledger, tables=tables, kept=kept)


def _with_files(table: StoredTable, change: Json) -> StoredTable:
    """Take some files from a table, and add others to it."""
    gone = set(change["remove"])
    rest = tuple(each for each in table.files or () if each.name not in gone)
    return replace(table, files=_stored(change["add"].get(table.id, ())) + rest)


def _replaced(
    files: Sequence[StoredFile], gone: Sequence[str], added: Iterable[StoredFile]
) -> tuple[StoredFile, ...]:
    """Put files in the place of neighbours."""
    first = next(place for place, each in enumerate(files) if each.name == gone[0])
    return (*files[:first], *added, *(each for each in files[first:] if each.name not in set(gone)))


def _release(ledger: Ledger, commit: Json) -> Ledger:
    """Let go of hold files whose results are all released or elsewhere now, and count what was released."""
    holds = dict(ledger.holds)
    reached = (
        commit["until"] if "disordered" in commit else {}
    )  # earlier versions did not say where sequences end
    for name, gone in commit["gone"].items():
        hold = ledger.hold(name)
        holds[name] = replace(
            hold,
            files=tuple(each for each in hold.files if each.name not in set(gone)),
            until=_later(hold.until, reached[name]) if name in reached else hold.until,
            disordered=hold.disordered + commit.get("disordered", {}).get(name, 0),
        )
    return _delivered(replace(ledger, holds=holds, releases=ledger.releases + 1), commit)


def _later(released: int | None, until: int | None) -> int | None:
    """Give the time up to which a sequence has come; None where it has ended, and another may begin anywhere."""
    return until if released is None or until is None else max(released, until)


def _held(data: Iterable[Json]) -> tuple[Held, ...]:
    """Read hold files."""
    return tuple(Held(**each) for each in data)


def _batch(ledger: Ledger, commit: Json) -> Ledger:
    """Add a batch's segments to the logs and move its stream's watermark."""
    stream, state = commit["stream"], StreamState(**commit["state"])
    if state.rows > ledger.stream(stream).rows:
        state = replace(state, heard=commit.get("at", 0.0))
    logs = dict(ledger.logs)
    for log, added in commit["segments"].items():
        arrived = (replace(Segment.from_json(each), arrived=commit.get("arrived", 0.0)) for each in added)
        logs[log] = (*logs.get(log, ()), *arrived)
    traffic = dict(ledger.traffic)
    for log, batch in commit.get("traffic", {}).items():
        traffic[log] = traffic.get(log, Traffic(batch["layout"])).then(batch)
    waiting = tuple(Segment.from_json(each) for each in commit.get("times", ()))
    rolls = dict(ledger.rolls)
    if stream in rolls:
        rolls[stream] = replace(rolls[stream], waiting=rolls[stream].waiting + waiting)
    origins = {name: each for name, each in ledger.origins.items() if name != stream}
    if commit.get("origin"):
        origins[stream] = commit["origin"]
    streams = {**ledger.streams, stream: state}
    return replace(ledger, streams=streams, logs=logs, traffic=traffic, rolls=rolls, origins=origins)


def _seal(ledger: Ledger, commit: Json) -> Ledger:
    """Move the horizons of some streams, and replace what waited below them by sorted pieces."""
    gone = set(commit["remove"])
    rolls = dict(ledger.rolls)
    for stream, (horizon, added) in commit["rolls"].items():
        roll = ledger.roll(stream)
        pieces = (*roll.pieces, *(Segment.from_json(each) for each in added))
        rolls[stream] = Roll(
            horizon,
            tuple(each for each in pieces if each.name not in gone),
            tuple(each for each in roll.waiting if each.name not in gone),
        )
    return replace(ledger, rolls=rolls)


def _unit(ledger: Ledger, commit: Json) -> Ledger:
    """Advance a group's cursors, count results, and take note of the output to publish."""
    group = ledger.groups[commit["group"]]
    rows, pairs, seconds = commit.get("rows", 0), commit["pairs"], commit.get("seconds", 0.0)
    micros = _advance(group.watermarks, commit["watermarks"])
    advanced = replace(
        group,
        cursors=tuple(Cursor(*each) for each in commit["cursors"]),
        watermarks=tuple(commit["watermarks"]),
        spans=_spans(commit.get("spans", ((), ()))),
        units=group.units + 1,
        pairs=group.pairs + pairs,
        stations=_stations(commit.get("stations", ())),
        effort=_exerted(group.effort, commit, micros),
    )
    fit = ledger.unit_fit.then((1, rows, pairs), seconds) if rows else ledger.unit_fit
    moved = replace(ledger, groups={**ledger.groups, commit["group"]: advanced}, unit_fit=fit)
    return _delivered(moved, commit)


def _exerted(effort: Effort, commit: Json, micros: int | None) -> Effort:
    """Count a unit's work; one that does not move the slower stream adds to that of the unit which does.

    So does one of a few slices only: its rows are counted with the unit that brings the last slice along.
    """
    rows, pairs, seconds = commit.get("rows", 0), commit["pairs"], commit.get("seconds", 0.0)
    if micros:
        return effort.then(micros, rows, pairs, seconds)
    if "stations" in commit:
        return effort.plus(0, 0, pairs, seconds)
    return effort if micros is None else effort.plus(1, rows, pairs, seconds)


def _advance(before: Iterable[int | None], after: Iterable[int | None]) -> int | None:
    """Give the event time (µs) by which a unit brought a group's slower stream forward, None if that cannot be told."""
    old, new = trigger(before), trigger(after)
    return None if old is None or new is None else new - old


def _rewrite(ledger: Ledger, commit: Json) -> Ledger:
    """Replace segments of a log by others that hold what is still of use of the same batches."""
    gone = set(commit["remove"])
    kept = tuple(each for each in ledger.segments(commit["log"]) if each.name not in gone)
    added = tuple(Segment.from_json(each) for each in commit["add"])
    fit = ledger.rewrite_fit
    if rows := commit.get("rows", 0):
        fit = fit.then((1, rows), commit["seconds"])
    log = commit["log"]
    layouts = {
        **ledger.layouts[log],
        **{
            number: Layout(tuple(columns), tuple(predicates))
            for number, columns, predicates in commit.get("layouts", ())
        },
    }
    return replace(
        ledger,
        logs={**ledger.logs, log: added + kept},
        layouts={**ledger.layouts, log: _in_use(layouts, added + kept, ledger.traffic.get(log))},
        rewrite_fit=fit,
    )


def _prices(ledger: Ledger, commit: Json) -> Ledger:
    """Take note of what the engine's work was measured to cost; what was fitted before gives way to it."""
    return replace(ledger, prices=commit["prices"], unit_fit=Fit(), rewrite_fit=Fit())


def _published(ledger: Ledger, commit: Json) -> Ledger:
    """Forget output that has reached its sinks."""
    done = {tuple(each) for each in commit["units"]}
    pending = tuple(p for p in ledger.pending if (p.unit, p.query) not in done)
    return replace(ledger, pending=pending, undelivered=ledger.undelivered if pending else {})


def _order(ledger: Ledger, commit: Json) -> Ledger:
    """Let something else wait in a group from here on."""
    changed = {name: replace(ledger.groups[name], mode=commit["mode"]) for name in commit["groups"]}
    switch = {name: commit[name] for name in ("groups", "mode", "reason", "at")}
    switches = (*ledger.switches, switch)[-MOST_CHANGES:]
    return replace(ledger, groups={**ledger.groups, **changed}, switches=switches)


_STEPS: dict[str, Callable[[Ledger, Json], Ledger]] = {
    "opened": _opened,
    "plan": _plan,
    "declared": _declared,
    "batch": _batch,
    "seal": _seal,
    "unit": _unit,
    "backfill": _backfill,
    "release": _release,
    "order": _order,
    "rewrite": _rewrite,
    "published": _published,
    "compact": _compact,
    "adopt": _adopt,
    "prices": _prices,
}


def publication_from_json(data: Json) -> Publication:
    """Read one publication."""
    return Publication(data["unit"], tuple(Move(*each) for each in data["moves"]), data["query"])


def publication_to_json(publication: Publication) -> Json:
    """Write one publication."""
    moves = [[move.root, move.staged, move.final] for move in publication.moves]
    return {"unit": publication.unit, "moves": moves, "query": publication.query}


def _hold(data: Json) -> Hold:
    """Read what is held of a query."""
    return Hold(data["era"], _held(data["files"]), data.get("until"), data.get("disordered", 0))


def _roll(data: Json) -> Roll:
    """Read how far a stream is counted."""
    pieces, waiting = (tuple(map(Segment.from_json, data[name])) for name in ("pieces", "waiting"))
    return Roll(data["horizon"], pieces, waiting)


def dump(ledger: Ledger) -> Json:
    """Write the ledger as a snapshot."""
    return {
        "plan": ledger.plan,
        "version": ledger.version,
        "layouts": {
            log: {str(number): asdict(each) for number, each in layouts.items()}
            for log, layouts in ledger.layouts.items()
        },
        "births": dict(ledger.births),
        "tables": {group: [each.to_json() for each in tables] for group, tables in ledger.tables.items()},
        "writes": dict(ledger.writes),
        "kept": {query: [asdict(each) for each in files] for query, files in ledger.kept.items()},
        "adopted": ledger.adopted,
        "streams": {name: asdict(state) for name, state in ledger.streams.items()},
        "logs": {log: [each.to_json() for each in segments] for log, segments in ledger.logs.items()},
        "groups": {
            name: {**asdict(state), "spans": spans_to_json(state.spans)}
            for name, state in ledger.groups.items()
        },
        "queries": {name: asdict(state) for name, state in ledger.queries.items()},
        "rolls": {stream: asdict(roll) for stream, roll in ledger.rolls.items()},
        "pending": [publication_to_json(each) for each in ledger.pending],
        "holds": {name: asdict(hold) for name, hold in ledger.holds.items()},
        "releases": ledger.releases,
        "traffic": {log: asdict(each) for log, each in ledger.traffic.items()},
        "unit_fit": asdict(ledger.unit_fit),
        "rewrite_fit": asdict(ledger.rewrite_fit),
        "changes": list(ledger.changes),
        "switches": list(ledger.switches),
        "undelivered": dict(ledger.undelivered),
        "prices": ledger.prices,
        "declared": dict(ledger.declared),
        "origins": dict(ledger.origins),
    }


def load(data: Json) -> Ledger:
    """Read a snapshot."""
    plan = _redacted(data["plan"])
    tables = {group: tuple(map(StoredTable.from_json, each)) for group, each in data["tables"].items()}
    return Ledger(
        plan=plan,
        version=data["version"],
        layouts={log: _layouts(each) for log, each in data["layouts"].items()},
        births=data["births"],
        tables=tables,
        writes=_writes(data, tables),
        kept={query: _stored(files) for query, files in data.get("kept", {}).items()},
        adopted=data.get("adopted", False),
        streams={name: StreamState(**state) for name, state in data["streams"].items()},
        logs={log: tuple(map(Segment.from_json, each)) for log, each in data["logs"].items()},
        groups={name: _group_state(each) for name, each in data["groups"].items()},
        queries={name: _query_state(each) for name, each in data["queries"].items()},
        rolls={stream: _roll(each) for stream, each in data.get("rolls", {}).items()},
        pending=tuple(publication_from_json(each) for each in data["pending"]),
        holds={name: _hold(each) for name, each in data.get("holds", {}).items()},
        releases=data.get("releases", 0),
        traffic={log: _traffic(each) for log, each in data.get("traffic", {}).items()},
        unit_fit=_fit(data.get("unit_fit", {})),
        rewrite_fit=_fit(data.get("rewrite_fit", {})),
        changes=tuple(data.get("changes", ())),
        switches=tuple(data.get("switches", ())),
        undelivered=data.get("undelivered", {}),
        prices=data.get("prices", {}),
        declared=data.get("declared", _by_name(plan.get("streams", ()))),
        origins=data.get("origins", {}),
    )


def _layouts(data: Any) -> dict[int, Layout]:
    """Read a log's layouts; earlier versions kept all of them, in a list."""
    known = data.items() if isinstance(data, dict) else enumerate(data)
    return {int(number): Layout(tuple(each["columns"]), tuple(each["predicates"])) for number, each in known}


def _traffic(data: Json) -> Traffic:
    """Read one log's traffic."""
    patterns = tuple((bits, rows) for bits, rows in data["patterns"])
    return Traffic(**{**data, "patterns": patterns, "holds": tuple(data["holds"])})


def _fit(data: Json) -> Fit:
    """Read the sums of a fit."""
    return Fit(tuple(data["squares"]), tuple(data["products"]), data["seen"]) if data else Fit()
