"""All that the engine knows, as a fold over the journal.

The ledger is a value: a commit (`penstock.state.commits`) gives a new one, so a reader may keep what it has.

In:  commits, in order.  Out: segments, cursors, watermarks, counts, and output still to be published.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import singledispatch
from typing import Any

from penstock import limits
from penstock.plan.order_policy import trigger
from penstock.plan.prices import Prices
from penstock.sql.query import Stream
from penstock.state.commits import (
    Answered,
    Backfilled,
    BatchIngested,
    Commit,
    Compacted,
    Declared,
    FilesReplaced,
    Opened,
    OrderSwitched,
    Output,
    PlanServed,
    Priced,
    PromisesMerged,
    Propagated,
    Published,
    Released,
    Rewritten,
    Sealed,
    UnitJoined,
    Watched,
)
from penstock.state.hold import Held, Hold
from penstock.state.panes import PaneFile, PaneState
from penstock.state.promises import PromiseFiles
from penstock.state.recent import Departures, Effort, Fanout, Fit, Traffic
from penstock.state.row_times import Roll
from penstock.state.segment import Segment
from penstock.state.tables import Fed, StoredFile, StoredTable, readable, without_ends
from penstock.state.values import (
    GroupState,
    Layout,
    PlanChange,
    Publication,
    QueryState,
    ServedPlan,
    StreamState,
    Watermarks,
)
from penstock.state.watch import GroupWatch, LogWatch


@dataclass(frozen=True, slots=True)
class Ledger:
    """The folded journal."""

    plan: ServedPlan | None = None
    """None before the first plan."""
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
    panes: Mapping[str, PaneState] = field(default_factory=dict)
    """The pane sets that aggregate queries share, and what is in them."""
    answers: int = 0
    """How often aggregate queries were answered; the number is in the names of their files."""
    promises: Mapping[str, PromiseFiles] = field(default_factory=dict)
    """The promises that are remembered, by index."""
    promises_seen: Mapping[str, float] = field(default_factory=dict)
    """For each log whose partners make promises, how many of them its rows were held against."""
    propagated: Mapping[str, float] = field(default_factory=dict)
    """For each query whose sink asks for punctuations, by the index of what it was told: how many promises had taken
    effect."""
    tellings: int = 0
    """How often values were told that are finished; the number is in the names of their files."""
    gone: Mapping[str, Departures] = field(default_factory=dict)
    """For each log, the rows that promises have let go before their window ended."""
    traffic: Mapping[str, Traffic] = field(default_factory=dict)
    """For each log, what its input was like lately."""
    unit_fit: Fit = field(default_factory=Fit)
    """What units take, fitted to one, their input rows and their pairs."""
    rewrite_fit: Fit = field(default_factory=Fit)
    """What rewrites take, fitted to one and their rows."""
    changes: tuple[PlanChange, ...] = ()
    """The last changes of plan."""
    switches: tuple[OrderSwitched, ...] = ()
    """The last times that adaptive queries changed what waits."""
    undelivered: Mapping[str, int] = field(default_factory=dict)
    """For each query, the results of commits whose output is still pending."""
    prices: Prices | None = None
    """What was measured by `penstock calibrate`; None before."""
    declared: Mapping[str, Stream] = field(default_factory=dict)
    """How each stream that was ever read is declared, without secrets; also those that no query reads any more."""
    watches: Mapping[str, LogWatch] = field(default_factory=dict)
    """For each log that joins without a window read, what its order was like."""
    buffers: Mapping[str, GroupWatch] = field(default_factory=dict)
    """For each join without a window, what it has let go of, and what that has cost."""
    fed: Mapping[str, tuple[Fed, ...]] = field(default_factory=dict)
    """For each query that others read, its results that are not in their logs yet, unit by unit."""
    origins: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    """Where the last batch of each stream came from (`penstock.state.origin`)."""

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

    def summed(self) -> Iterator[Segment | Held | PaneFile | StoredFile]:
        """List the files that are kept with a checksum: of rows, times, held results, partial aggregates, results."""
        for segments in self.logs.values():
            yield from segments
        for roll in self.rolls.values():
            yield from (*roll.pieces, *roll.waiting)
        for hold in self.holds.values():
            yield from hold.files
        for panes in self.panes.values():
            yield from panes.files
        for promises in self.promises.values():
            yield from promises.files()
        for waiting in self.fed.values():
            for each in waiting:
                yield from each.files
        yield from self.result_files()

    def result_files(self) -> Iterator[StoredFile]:
        """List the files of pairs and results that the state keeps."""
        for tables in self.tables.values():
            for table in tables:
                yield from table.files
        for files in self.kept.values():
            yield from files

    def table(self, group: str) -> StoredTable | None:
        """Say how the pairs are stored that a group finds now; None if nobody reads them from there."""
        tables = self.tables.get(group, ())
        return next((each for each in tables if each.id == self.writes.get(group)), None)

    def layout(self, log: str) -> int:
        """Give the number of a log's current layout, -1 before its first."""
        return max(self.layouts.get(log, ()), default=-1)

    def segments(self, log: str) -> tuple[Segment, ...]:
        """List a log's segments."""
        return self.logs.get(log, ())


@singledispatch
def _fold(commit: object, ledger: Ledger) -> Ledger:
    """Apply a commit of one kind."""
    raise TypeError(commit, ledger)


def fold(ledger: Ledger, commit: Commit) -> Ledger:
    """Apply one commit."""
    return _fold(commit, ledger)


@_fold.register
def _opened(_commit: Opened, ledger: Ledger) -> Ledger:
    """Change nothing: the commit's number is what matters, it fences the engine before."""
    return ledger


@_fold.register
def _plan(commit: PlanServed, ledger: Ledger) -> Ledger:
    """Apply a new plan: its chains at the given cursors, its logs' layouts, and what each query starts with.

    What is held of a query that is defined anew is released by the same commit.
    """
    ledger = _release(commit.release, ledger) if commit.release else ledger
    layouts = dict(ledger.layouts)
    for log, layout in commit.layouts.items():
        layouts[log] = {**layouts.get(log, {}), ledger.layout(log) + 1: layout}
    queries = {name: commit.queries.get(name, ledger.query(name)) for name in _served(commit.plan)}
    tables = _readable(ledger, commit, queries)
    logs = _replaced_segments(ledger, commit)
    return replace(
        ledger,
        logs=logs,
        plan=commit.plan,
        declared={**ledger.declared, **_by_name(commit.plan.streams)},
        version=ledger.version + 1,
        changes=(*ledger.changes, PlanChange(ledger.version + 1, commit.reason, commit.at))[
            -limits.MAX_REMEMBERED_CHANGES :
        ],
        layouts={
            log: _in_use(each, logs.get(log, ()), ledger.traffic.get(log))
            for log, each in layouts.items()
            if log in commit.logs
        },
        births={log: each for log, each in {**ledger.births, **commit.births}.items() if log in commit.logs},
        traffic={log: each for log, each in ledger.traffic.items() if log in commit.logs},
        groups={name: _going_on(each, ledger.groups.get(name)) for name, each in commit.groups.items()},
        tables=tables,
        writes=_written(commit),
        rolls={stream: ledger.rolls.get(stream, Roll(since)) for stream, since in commit.rolls.items()},
        queries=queries,
        kept={name: files for name, files in ledger.kept.items() if name in queries},
        holds={name: _begun(ledger.hold(name), era) for name, era in commit.ordered.items()},
        panes=_pane_sets(ledger, commit),
        promises={index: ledger.promises.get(index, PromiseFiles()) for index in commit.promises},
        promises_seen={log: each for log, each in ledger.promises_seen.items() if log in commit.logs},
        gone={log: each for log, each in ledger.gone.items() if log in commit.logs},
        propagated={index: each for index, each in ledger.propagated.items() if index in commit.promises},
        watches=_watched_on(ledger, commit),
        buffers={group: each for group, each in ledger.buffers.items() if group in commit.groups},
        streams={**ledger.streams, **commit.streams},
        fed={name: each for name, each in ledger.fed.items() if name in _by_name(commit.plan.streams)},
    )


def _watched_on(ledger: Ledger, commit: PlanServed) -> dict[str, LogWatch]:
    """Keep what is known of the logs that are watched; a query defined anew may find smaller values than before."""
    return {log: replace(each, above=None) for log, each in ledger.watches.items() if log in commit.watched}


def _pane_sets(ledger: Ledger, commit: PlanServed) -> dict[str, PaneState]:
    """Keep the pane sets that go on, with their files, and begin new ones."""
    return {
        name: replace(ledger.panes.get(name, PaneState(panes)), panes=panes)
        for name, panes in commit.panes.items()
    }


def _served(plan: ServedPlan) -> list[str]:
    """Name the queries of a plan, also those that were stopped."""
    return [*(each.name for each in plan.queries), *(each.query.name for each in plan.stopped)]


def _going_on(state: GroupState, before: GroupState | None) -> GroupState:
    """Keep the effort measured of a group that goes on."""
    return replace(state, effort=before.effort) if before else state


def _replaced_segments(ledger: Ledger, commit: PlanServed) -> dict[str, tuple[Segment, ...]]:
    """Give the segments of the logs that a plan reads, with those that were written anew for it."""
    logs = {log: segments for log, segments in ledger.logs.items() if log in commit.logs}
    for log, each in commit.upgrades.items():
        rest = tuple(segment for segment in logs[log] if segment.name not in set(each.removed))
        logs[log] = each.added + rest
    return logs


def _by_name(streams: Iterable[Stream]) -> dict[str, Stream]:
    return {each.name: each for each in streams}


@_fold.register
def _declared(commit: Declared, ledger: Ledger) -> Ledger:
    """Take note of the options that some streams are read with now."""
    return replace(ledger, declared={**ledger.declared, **_by_name(commit.streams)})


def _begun(hold: Hold, era: int) -> Hold:
    """Keep what is held of a query; a new definition begins a new sequence."""
    return hold if hold.era == era else replace(hold, era=era, until=None)


def _in_use(
    layouts: Mapping[int, Layout], segments: Iterable[Segment], traffic: Traffic | None
) -> dict[int, Layout]:
    """Forget the layouts that no segment and no count of rows goes by any more; the last one is the current one."""
    used = {each.layout for each in segments} | {max(layouts)} | ({traffic.layout} if traffic else set())
    return {number: layout for number, layout in layouts.items() if number in used}


def _readable(
    ledger: Ledger, commit: PlanServed, queries: Mapping[str, QueryState]
) -> dict[str, tuple[StoredTable, ...]]:
    """Add the tables that begin, and forget what no query can read any more: it was dropped, or defined anew.

    A table without pairs that nobody will write to is forgotten too.
    """
    born = {name: state.born for name, state in queries.items()}
    version = ledger.version + 1
    tables: dict[str, tuple[StoredTable, ...]] = {}
    for group in {**ledger.tables, **commit.tables}:
        all_tables = (*ledger.tables.get(group, ()), *commit.tables.get(group, ()))
        read = tuple(readable(each, born) for each in all_tables)
        written = _written(commit).get(group)
        used = (each for each in read if each.files != () or written == each.id or each.version == version)
        names = {each.id for each in used}
        if kept := without_ends(
            each for each in read if each.members and (each.id in names or each.generation)
        ):
            tables[group] = kept
    return tables


def _written(commit: PlanServed) -> dict[str, str]:
    """Return the table that the units of each group write to, of groups that have one."""
    return {group: table for group, table in commit.writes.items() if table}


@_fold.register
def _backfill(commit: Backfilled, ledger: Ledger) -> Ledger:
    """Note that some queries have got the pairs of rows that were there before them."""
    done = {name: replace(ledger.query(name), backfill=None) for name in commit.queries}
    return _delivered(replace(ledger, queries={**ledger.queries, **done}), commit.output)


def _delivered(ledger: Ledger, output: Output) -> Ledger:
    """Count results, and take note of the output to publish and of what is held."""
    queries, holds = dict(ledger.queries), dict(ledger.holds)
    for name, count in output.results.items():
        queries[name] = replace(ledger.query(name), results=ledger.query(name).results + count)
    for name, delays in output.delays.items():
        queries[name] = replace(queries[name], delays=queries[name].delays.then(delays))
    for name, added in output.held.items():
        holds[name] = replace(ledger.hold(name), files=ledger.hold(name).files + added)
    ledger = _kept(ledger, output)
    panes = dict(ledger.panes)
    for name, files in output.panes.items():
        panes[name] = replace(panes[name], files=panes[name].files + files)
    fed = dict(ledger.fed)
    for name, results in output.fed.items():
        fed[name] = (*fed.get(name, ()), results)
    pending = ledger.pending + output.publish
    undelivered = Counter(ledger.undelivered)
    undelivered.update(output.results if pending else {})
    return replace(
        ledger,
        queries=queries,
        pending=pending,
        holds=holds,
        panes=panes,
        undelivered=dict(undelivered),
        fed=fed,
    )


def _kept(ledger: Ledger, output: Output) -> Ledger:
    """Name the files of results that the state keeps from here on."""
    tables, kept = dict(ledger.tables), dict(ledger.kept)
    for group, stored in output.stored.items():
        tables[group] = tuple(
            replace(each, files=each.files + stored[each.id]) if each.id in stored else each
            for each in tables[group]
        )
    for query, files in output.kept.items():
        kept[query] = kept.get(query, ()) + files
    return replace(ledger, tables=tables, kept=kept)


@_fold.register
def _compact(commit: Compacted, ledger: Ledger) -> Ledger:
    """Replace files by others that hold the same, and begin to merge tables into one."""
    tables, kept = dict(ledger.tables), dict(ledger.kept)
    for group, begun in commit.tables.items():
        into = begun.table.id
        merging = (replace(each, into=into) if each.id in begun.of else each for each in tables[group])
        tables[group] = (begun.table, *merging)
    for group, change in commit.pairs.items():
        tables[group] = without_ends(_with_files(each, change) for each in tables[group])
    for query, changes in commit.kept.items():
        for each in changes:
            kept[query] = _replaced(kept[query], each.remove, each.add)
    return replace(ledger, tables=tables, kept=kept)


def _with_files(table: StoredTable, change: FilesReplaced) -> StoredTable:
    """Take some files from a table, and add others to it."""
    gone = set(change.remove)
    rest = tuple(each for each in table.files if each.name not in gone)
    return replace(table, files=change.add.get(table.id, ()) + rest)


def _replaced(
    files: Sequence[StoredFile], gone: Sequence[str], added: Iterable[StoredFile]
) -> tuple[StoredFile, ...]:
    """Replace neighbouring files by others."""
    first = next(index for index, each in enumerate(files) if each.name == gone[0])
    return (*files[:first], *added, *(each for each in files[first:] if each.name not in set(gone)))


@_fold.register
def _release(commit: Released, ledger: Ledger) -> Ledger:
    """Drop hold files whose results are all released or elsewhere now, and count what was released."""
    holds = dict(ledger.holds)
    for name, gone in commit.gone.items():
        hold = ledger.hold(name)
        holds[name] = replace(
            hold,
            files=tuple(each for each in hold.files if each.name not in set(gone)),
            until=_later(hold.until, commit.until[name]) if name in commit.until else hold.until,
            disordered=hold.disordered + commit.disordered.get(name, 0),
        )
    return _delivered(replace(ledger, holds=holds, releases=ledger.releases + 1), commit.output)


def _later(released: int | None, until: int | None) -> int | None:
    """Give the time up to which a sequence has come; None where it has ended, and another may begin anywhere."""
    return until if released is None or until is None else max(released, until)


@_fold.register
def _batch(commit: BatchIngested, ledger: Ledger) -> Ledger:
    """Add a batch's segments to the logs and move its stream's watermark."""
    stream, before = commit.stream, ledger.stream(commit.stream)
    state = replace(commit.state, purged=before.purged)  # rows may have been let go since the batch was begun
    if state.rows + state.punctuations > before.rows + before.punctuations:
        state = replace(state, heard=commit.at)
    logs = dict(ledger.logs)
    for log, added in commit.segments.items():
        logs[log] = (*logs.get(log, ()), *(replace(each, arrived=commit.arrived) for each in added))
    traffic = dict(ledger.traffic)
    for log, batch in commit.traffic.items():
        traffic[log] = traffic.get(log, Traffic(batch.layout)).then(batch)
    rolls = dict(ledger.rolls)
    if stream in rolls:
        rolls[stream] = replace(rolls[stream], waiting=rolls[stream].waiting + commit.times)
    origins = {name: each for name, each in ledger.origins.items() if name != stream}
    if commit.origin:
        origins[stream] = commit.origin
    streams = {**ledger.streams, stream: state}
    gone = dict(ledger.gone)
    for log, departed in commit.gone.items():
        gone[log] = gone.get(log, Departures()).then(*departed)
    promises = dict(ledger.promises)
    for index, made in commit.promises.items():
        promises[index] = promises.get(index, PromiseFiles()).plus(made)
    watches = dict(ledger.watches)
    for log, seen in commit.watched.items():
        watches[log] = watches.get(log, LogWatch()).then(seen)
    return replace(
        ledger,
        fed=_without_fed(ledger.fed, commit),
        watches=watches,
        streams=streams,
        logs=logs,
        traffic=traffic,
        rolls=rolls,
        origins=origins,
        gone=gone,
        promises=promises,
    )


def _without_fed(fed: Mapping[str, tuple[Fed, ...]], commit: BatchIngested) -> dict[str, tuple[Fed, ...]]:
    """Leave out the results that are in the logs of those who read them now."""
    gone = set(commit.fed)
    rest = tuple(each for each in fed.get(commit.stream, ()) if gone.isdisjoint(f.name for f in each.files))
    others = {name: each for name, each in fed.items() if name != commit.stream}
    return {**others, commit.stream: rest} if rest else others


@_fold.register
def _watched(commit: Watched, ledger: Ledger) -> Ledger:
    """Take note of what joins without a window have let go of, and put together what they have all looked at."""
    watches = dict(ledger.watches)
    for log, until in commit.settled.items():
        watches[log] = watches[log].settled(until)
    return replace(ledger, watches=watches, buffers={**ledger.buffers, **commit.groups})


@_fold.register
def _promises(commit: PromisesMerged, ledger: Ledger) -> Ledger:
    """Replace files of promises by others."""
    promises = dict(ledger.promises)
    for index, removed in commit.remove.items():
        promises[index] = promises[index].without(removed).plus(commit.add.get(index, PromiseFiles()))
    return replace(ledger, promises=promises)


@_fold.register
def _seal(commit: Sealed, ledger: Ledger) -> Ledger:
    """Move the horizons of some streams, and replace what waited below them by sorted pieces."""
    gone = set(commit.remove)
    rolls = dict(ledger.rolls)
    for stream, sealed in commit.rolls.items():
        roll = ledger.roll(stream)
        rolls[stream] = Roll(
            sealed.horizon,
            tuple(each for each in (*roll.pieces, *sealed.pieces) if each.name not in gone),
            tuple(each for each in roll.waiting if each.name not in gone),
        )
    return replace(ledger, rolls=rolls)


@_fold.register
def _unit(commit: UnitJoined, ledger: Ledger) -> Ledger:
    """Advance a group's cursors, count results, and take note of the output to publish."""
    group = ledger.groups[commit.group]
    micros = _advance(group.watermarks, commit.watermarks)
    advanced = replace(
        group,
        cursors=commit.cursors,
        watermarks=commit.watermarks,
        spans=commit.spans,
        units=group.units + 1,
        pairs=group.pairs + commit.pairs,
        stations=commit.stations,
        effort=_exerted(group.effort, commit, micros),
        fanouts=_looked_at(group.fanouts, commit.fanouts),
        mapped=commit.mapped,
        most_mapped=max(group.most_mapped, commit.mapped),
    )
    fit = ledger.unit_fit
    if commit.rows:
        fit = fit.then((1, commit.rows, commit.pairs), commit.seconds)
    moved = replace(ledger, groups={**ledger.groups, commit.group: advanced}, unit_fit=fit)
    return _delivered(moved, commit.output)


def _looked_at(before: Mapping[str, Fanout], seen: Mapping[str, Fanout]) -> Mapping[str, Fanout]:
    """Add what a unit saw of the partners that rows find."""
    return {**before, **{step: before.get(step, Fanout()).then(each) for step, each in seen.items()}}


def _exerted(effort: Effort, commit: UnitJoined, micros: int | None) -> Effort:
    """Count a unit's work; one that does not move the slower stream adds to that of the unit which does.

    So does one of a few slices only: its rows are counted with the unit that brings the last slice along.
    """
    if micros:
        return effort.then(micros, commit.rows, commit.pairs, commit.seconds)
    if commit.stations:
        return effort.plus(0, 0, commit.pairs, commit.seconds)
    return effort if micros is None else effort.plus(1, commit.rows, commit.pairs, commit.seconds)


def _advance(before: Watermarks, after: Watermarks) -> int | None:
    """Give the event time (µs) by which a unit advanced a group's slower stream; None if a watermark is missing."""
    old, new = trigger(before), trigger(after)
    return None if old is None or new is None else new - old


@_fold.register
def _answered(commit: Answered, ledger: Ledger) -> Ledger:
    """Take note of what readers of pane sets have got, and of the files that are left."""
    panes, queries = dict(ledger.panes), dict(ledger.queries)
    for name, gone in commit.gone.items():
        kept = tuple(each for each in panes[name].files if each.name not in set(gone))
        panes[name] = replace(panes[name], files=kept + commit.files.get(name, ()))
    for name, seen in commit.promises_seen.items():
        panes[name] = replace(panes[name], promises_seen=seen)
    for name, until in commit.answered.items():
        queries[name] = replace(ledger.query(name), answered=until)
    done = replace(ledger, panes=panes, queries=queries, answers=ledger.answers + 1)
    return _delivered(done, commit.output)


@_fold.register
def _propagate(commit: Propagated, ledger: Ledger) -> Ledger:
    """Take note of what queries were told."""
    promises = dict(ledger.promises)
    for index, files in commit.told.items():
        promises[index] = promises.get(index, PromiseFiles()).plus(files)
    noted = replace(
        ledger,
        propagated={**ledger.propagated, **commit.seen},
        promises=promises,
        tellings=ledger.tellings + 1,
    )
    return _delivered(noted, commit.output)


@_fold.register
def _rewrite(commit: Rewritten, ledger: Ledger) -> Ledger:
    """Replace segments of a log by others that hold what is still of use of the same batches."""
    log, gone = commit.log, set(commit.remove)
    rest = tuple(each for each in ledger.segments(log) if each.name not in gone)
    if commit.finished:
        rest = tuple(replace(each, finished=commit.finished.get(each.name, each.finished)) for each in rest)
    segments = commit.add + rest
    layouts = {**ledger.layouts[log], **{each.number: each.layout for each in commit.layouts}}
    fit = ledger.rewrite_fit.then((1, commit.rows), commit.seconds) if commit.rows else ledger.rewrite_fit
    rewritten = replace(
        ledger,
        logs={**ledger.logs, log: segments},
        layouts={**ledger.layouts, log: _in_use(layouts, segments, ledger.traffic.get(log))},
        rewrite_fit=fit,
    )
    return _delivered(_departed(commit, rewritten), commit.output)


def _departed(commit: Rewritten, ledger: Ledger) -> Ledger:
    """Count the rows that went because of promises."""
    seen, gone, streams = dict(ledger.promises_seen), dict(ledger.gone), dict(ledger.streams)
    if commit.promises_seen is not None:
        seen[commit.log] = commit.promises_seen
    if commit.gone is not None:
        gone[commit.log] = gone.get(commit.log, Departures()).then(*commit.gone)
    if commit.purged:
        state = ledger.stream(commit.stream)
        streams[commit.stream] = replace(state, purged=state.purged + commit.purged)
    return replace(ledger, promises_seen=seen, gone=gone, streams=streams)


@_fold.register
def _prices(commit: Priced, ledger: Ledger) -> Ledger:
    """Take the prices that were measured, and forget what was fitted before."""
    return replace(ledger, prices=commit.prices, unit_fit=Fit(), rewrite_fit=Fit())


@_fold.register
def _published(commit: Published, ledger: Ledger) -> Ledger:
    """Forget output that has reached its sinks."""
    done = set(commit.units)
    pending = tuple(each for each in ledger.pending if (each.unit, each.query) not in done)
    return replace(ledger, pending=pending, undelivered=ledger.undelivered if pending else {})


@_fold.register
def _order(commit: OrderSwitched, ledger: Ledger) -> Ledger:
    """Let something else wait in some groups from here on."""
    changed = {name: replace(ledger.groups[name], mode=commit.mode) for name in commit.groups}
    switches = (*ledger.switches, commit)[-limits.MAX_REMEMBERED_CHANGES :]
    return replace(ledger, groups={**ledger.groups, **changed}, switches=switches)
