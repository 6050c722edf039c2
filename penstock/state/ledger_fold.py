"""Fold commits into the ledger: each kind of commit has one function here.

In:  a ledger and a commit (`penstock.state.commits`).  Out: the next ledger; the old one is unchanged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import singledispatch
from typing import TypeVar

from penstock import limits
from penstock.plan.order_policy import trigger
from penstock.state.checksum import JournaledFile
from penstock.state.commits import (
    Answered,
    Backfilled,
    BatchIngested,
    Commit,
    CommitOutput,
    Compacted,
    Declared,
    EngineOpened,
    FilesReplaced,
    OrderSwitched,
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
from penstock.state.hold import Hold
from penstock.state.ledger import Ledger
from penstock.state.panes import PaneState
from penstock.state.promises import PromiseFiles
from penstock.state.recent import EarlyRemovals, Effort, Fanout, Fit, Traffic
from penstock.state.row_times import Roll
from penstock.state.segment import Segment
from penstock.state.tables import Fed, StoredFile, StoredTable, readable, without_ends
from penstock.state.values import (
    GroupState,
    Layout,
    PlanChange,
    QueryState,
    Watermarks,
)
from penstock.state.watch import LogWatch

# --- mappings and files ---------------------------------------------------------------------------------------------


A = TypeVar("A")
F = TypeVar("F", bound=JournaledFile)
V = TypeVar("V")


def _joined(
    before: Mapping[str, V], added: Mapping[str, A], join: Callable[[V, A], V], empty: V
) -> dict[str, V]:
    """Return a mapping in which the added values are joined to those before."""
    return {**before, **{key: join(before.get(key, empty), value) for key, value in added.items()}}


def _extended(
    before: Mapping[str, tuple[V, ...]], added: Mapping[str, Iterable[V]]
) -> dict[str, tuple[V, ...]]:
    return _joined(before, added, lambda old, new: (*old, *new), ())


def _only(before: Mapping[str, V], keys: Container[str]) -> dict[str, V]:
    return {key: value for key, value in before.items() if key in keys}


def _without(files: Iterable[F], names: Iterable[str]) -> tuple[F, ...]:
    removed = set(names)
    return tuple(file for file in files if file.name not in removed)


# --- commits --------------------------------------------------------------------------------------------------------


@singledispatch
def _fold(commit: object, ledger: Ledger) -> Ledger:
    raise TypeError(commit, ledger)


def fold(ledger: Ledger, commit: Commit) -> Ledger:
    """Apply one commit."""
    return _fold(commit, ledger)


@_fold.register
def _opened(_commit: EngineOpened, ledger: Ledger) -> Ledger:
    """Change nothing: the number of the commit fences the engine before."""
    return ledger


@_fold.register
def _plan(commit: PlanServed, ledger: Ledger) -> Ledger:
    """Apply a new plan: its chains at the given cursors, its logs' layouts, and the first state of each query."""
    ledger = _release(commit.release, ledger) if commit.release else ledger
    layouts = dict(ledger.layouts)
    for log, layout in commit.layouts.items():
        layouts[log] = {**layouts.get(log, {}), ledger.layout(log) + 1: layout}
    stopped = [query.query for query in commit.plan.stopped]
    queries = {
        query.name: commit.queries.get(query.name, ledger.query(query.name))
        for query in (*commit.plan.queries, *stopped)
    }
    logs = _only(ledger.logs, commit.logs)
    for log, upgrade in commit.upgrades.items():
        logs[log] = upgrade.added + _without(logs[log], upgrade.removed)
    declared = {stream.name: stream for stream in commit.plan.streams}
    change = PlanChange(ledger.version + 1, commit.reason, commit.at)
    return replace(
        ledger,
        logs=logs,
        plan=commit.plan,
        declared={**ledger.declared, **declared},
        version=ledger.version + 1,
        changes=(*ledger.changes, change)[-limits.MAX_REMEMBERED_CHANGES :],
        layouts={
            log: _in_use(known, logs.get(log, ()), ledger.traffic.get(log))
            for log, known in layouts.items()
            if log in commit.logs
        },
        births=_only({**ledger.births, **commit.births}, commit.logs),
        traffic=_only(ledger.traffic, commit.logs),
        groups={
            name: _with_effort_of(ledger.groups.get(name), state) for name, state in commit.groups.items()
        },
        tables=_readable_tables(ledger, commit, queries),
        writes=_written(commit),
        rolls={stream: ledger.rolls.get(stream, Roll(since)) for stream, since in commit.rolls.items()},
        queries=queries,
        kept=_only(ledger.kept, queries),
        holds={name: _begun(ledger.hold(name), version) for name, version in commit.ordered.items()},
        panes={
            name: replace(ledger.panes.get(name, PaneState(panes)), panes=panes)
            for name, panes in commit.panes.items()
        },
        promises={index: ledger.promises.get(index, PromiseFiles()) for index in commit.promises},
        promises_seen=_only(ledger.promises_seen, commit.logs),
        early_removals=_only(ledger.early_removals, commit.logs),
        propagated=_only(ledger.propagated, commit.promises),
        watches={  # a query with a new definition may send smaller values than before
            log: replace(watch, above=None) for log, watch in _only(ledger.watches, commit.watched).items()
        },
        buffers=_only(ledger.buffers, commit.groups),
        streams={**ledger.streams, **commit.streams},
        fed=_only(ledger.fed, declared),
    )


def _with_effort_of(before: GroupState | None, state: GroupState) -> GroupState:
    return replace(state, effort=before.effort) if before else state


@_fold.register
def _declared(commit: Declared, ledger: Ledger) -> Ledger:
    return replace(ledger, declared={**ledger.declared, **{stream.name: stream for stream in commit.streams}})


def _begun(hold: Hold, version: int) -> Hold:
    """Keep a query's held results; a new definition begins a new sequence."""
    return hold if hold.plan_version == version else replace(hold, plan_version=version, until=None)


def _in_use(
    layouts: Mapping[int, Layout], segments: Iterable[Segment], traffic: Traffic | None
) -> dict[int, Layout]:
    """Keep the layouts of segments and of the statistics, and the current one."""
    used = (
        {segment.layout for segment in segments} | {max(layouts)} | ({traffic.layout} if traffic else set())
    )
    return {number: layout for number, layout in layouts.items() if number in used}


def _readable_tables(
    ledger: Ledger, commit: PlanServed, queries: Mapping[str, QueryState]
) -> dict[str, tuple[StoredTable, ...]]:
    """Add the new tables, and forget those that no query reads, or that stay empty."""
    born = {name: state.born for name, state in queries.items()}
    version = ledger.version + 1
    tables: dict[str, tuple[StoredTable, ...]] = {}
    for group in {**ledger.tables, **commit.tables}:
        all_tables = (*ledger.tables.get(group, ()), *commit.tables.get(group, ()))
        read = tuple(readable(table, born) for table in all_tables)
        written = _written(commit).get(group)
        used = (table for table in read if table.files or written == table.id or table.version == version)
        names = {table.id for table in used}
        kept = (table for table in read if table.members and (table.id in names or table.generation))
        if remaining := without_ends(kept):
            tables[group] = remaining
    return tables


def _written(commit: PlanServed) -> dict[str, str]:
    return {group: table for group, table in commit.writes.items() if table}


@_fold.register
def _backfill(commit: Backfilled, ledger: Ledger) -> Ledger:
    done = {name: replace(ledger.query(name), backfill=None) for name in commit.queries}
    return _delivered(replace(ledger, queries={**ledger.queries, **done}), commit.output)


def _delivered(ledger: Ledger, output: CommitOutput) -> Ledger:
    """Count results, and add the output to publish, to hold and to keep."""
    queries, tables = dict(ledger.queries), dict(ledger.tables)
    for name, count in output.results.items():
        queries[name] = replace(ledger.query(name), results=ledger.query(name).results + count)
    for name, delays in output.delays.items():
        queries[name] = replace(queries[name], delays=queries[name].delays.then(delays))
    for group, stored in output.stored.items():
        tables[group] = tuple(
            replace(table, files=table.files + stored.get(table.id, ())) for table in tables[group]
        )
    panes = dict(ledger.panes)
    for name, files in output.panes.items():
        panes[name] = replace(panes[name], files=panes[name].files + files)
    pending = ledger.pending + output.publish
    unpublished = Counter(ledger.unpublished)
    unpublished.update(output.results if pending else {})
    return replace(
        ledger,
        queries=queries,
        pending=pending,
        holds=_joined(
            ledger.holds, output.held, lambda hold, files: replace(hold, files=hold.files + files), Hold()
        ),
        tables=tables,
        kept=_extended(ledger.kept, output.kept),
        panes=panes,
        unpublished=dict(unpublished),
        fed=_extended(ledger.fed, {name: (results,) for name, results in output.fed.items()}),
    )


@_fold.register
def _compact(commit: Compacted, ledger: Ledger) -> Ledger:
    """Replace files by others with the same results, and begin tables that others are merged into."""
    tables, kept = dict(ledger.tables), dict(ledger.kept)
    for group, begun in commit.tables.items():
        into = begun.table.id
        merging = (replace(table, into=into) if table.id in begun.of else table for table in tables[group])
        tables[group] = (begun.table, *merging)
    for group, change in commit.pairs.items():
        tables[group] = without_ends(_with_files(table, change) for table in tables[group])
    for query, changes in commit.kept.items():
        for merged in changes:
            kept[query] = _replaced(kept[query], merged.remove, merged.add)
    return replace(ledger, tables=tables, kept=kept)


def _with_files(table: StoredTable, change: FilesReplaced) -> StoredTable:
    return replace(table, files=change.add.get(table.id, ()) + _without(table.files, change.remove))


def _replaced(
    files: Sequence[StoredFile], removed: Sequence[str], added: Iterable[StoredFile]
) -> tuple[StoredFile, ...]:
    """Put files in the place of successive ones."""
    first = next(index for index, file in enumerate(files) if file.name == removed[0])
    return (*files[:first], *added, *_without(files[first:], removed))


@_fold.register
def _release(commit: Released, ledger: Ledger) -> Ledger:
    """Forget hold files that are no longer needed, and count the released results."""
    holds = dict(ledger.holds)
    for name, removed in commit.released_files.items():
        hold = ledger.hold(name)
        holds[name] = replace(
            hold,
            files=_without(hold.files, removed),
            until=_later(hold.until, commit.until[name]) if name in commit.until else hold.until,
            disordered=hold.disordered + commit.disordered.get(name, 0),
        )
    return _delivered(replace(ledger, holds=holds, releases=ledger.releases + 1), commit.output)


def _later(released: int | None, until: int | None) -> int | None:
    """Return the time of the last result of a sequence; None if the sequence has ended."""
    return until if released is None or until is None else max(released, until)


@_fold.register
def _batch(commit: BatchIngested, ledger: Ledger) -> Ledger:
    """Add a batch's segments to the logs, and raise its stream's watermark."""
    stream, before = commit.stream, ledger.stream(commit.stream)
    state = replace(commit.state, purged=before.purged)  # rows may have been purged since the batch began
    if state.rows + state.punctuations > before.rows + before.punctuations:
        state = replace(state, last_rows_at=commit.at)
    segments = {
        log: [replace(segment, arrived=commit.arrived) for segment in added]
        for log, added in commit.segments.items()
    }
    traffic = dict(ledger.traffic)
    for log, batch in commit.traffic.items():
        traffic[log] = traffic.get(log, Traffic(batch.layout)).then(batch)
    rolls = dict(ledger.rolls)
    if stream in rolls:
        rolls[stream] = replace(rolls[stream], waiting=rolls[stream].waiting + commit.times)
    origins = {name: origin for name, origin in ledger.origins.items() if name != stream}
    if commit.origin:
        origins[stream] = commit.origin
    return replace(
        ledger,
        fed=_without_fed(ledger.fed, commit),
        watches=_joined(ledger.watches, commit.watched, LogWatch.then, LogWatch()),
        streams={**ledger.streams, stream: state},
        logs=_extended(ledger.logs, segments),
        traffic=traffic,
        rolls=rolls,
        origins=origins,
        early_removals=_joined(
            ledger.early_removals,
            commit.early_removals,
            lambda known, rows: known.then(*rows),
            EarlyRemovals(),
        ),
        promises=_joined(ledger.promises, commit.promises, PromiseFiles.plus, PromiseFiles()),
    )


def _without_fed(fed: Mapping[str, tuple[Fed, ...]], commit: BatchIngested) -> dict[str, tuple[Fed, ...]]:
    """Leave out results that are now in the logs of their readers."""
    names = set(commit.fed)
    rest = tuple(
        results
        for results in fed.get(commit.stream, ())
        if names.isdisjoint(file.name for file in results.files)
    )
    others = {name: results for name, results in fed.items() if name != commit.stream}
    return {**others, commit.stream: rest} if rest else others


@_fold.register
def _watched(commit: Watched, ledger: Ledger) -> Ledger:
    watches = dict(ledger.watches)
    for log, until in commit.settled.items():
        watches[log] = watches[log].settled(until)
    return replace(ledger, watches=watches, buffers={**ledger.buffers, **commit.groups})


@_fold.register
def _promises(commit: PromisesMerged, ledger: Ledger) -> Ledger:
    promises = dict(ledger.promises)
    for index, removed in commit.remove.items():
        promises[index] = promises[index].without(removed).plus(commit.add.get(index, PromiseFiles()))
    return replace(ledger, promises=promises)


@_fold.register
def _seal(commit: Sealed, ledger: Ledger) -> Ledger:
    """Raise the horizons of some streams, and replace the times below them by sorted pieces."""
    rolls = dict(ledger.rolls)
    for stream, sealed in commit.rolls.items():
        roll = ledger.roll(stream)
        pieces = _without((*roll.pieces, *sealed.pieces), commit.remove)
        rolls[stream] = Roll(sealed.horizon, pieces, _without(roll.waiting, commit.remove))
    return replace(ledger, rolls=rolls)


@_fold.register
def _unit(commit: UnitJoined, ledger: Ledger) -> Ledger:
    """Advance a group's cursors, and count results."""
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
        effort=_added_effort(group.effort, commit, micros),
        fanouts=_joined(group.fanouts, commit.fanouts, Fanout.then, Fanout()),
        mapped_bytes=commit.mapped_bytes,
        peak_mapped_bytes=max(group.peak_mapped_bytes, commit.mapped_bytes),
    )
    fit = ledger.unit_fit
    if commit.rows:
        fit = fit.then((1, commit.rows, commit.pairs), commit.seconds)
    moved = replace(ledger, groups={**ledger.groups, commit.group: advanced}, unit_fit=fit)
    return _delivered(moved, commit.output)


def _added_effort(effort: Effort, commit: UnitJoined, micros: int | None) -> Effort:
    """Count a unit's work; a unit that does not advance the slower stream adds to the last one that did.

    The rows of a unit of a few slices are counted with the unit that advances the last slice.
    """
    if micros:
        return effort.then(micros, commit.rows, commit.pairs, commit.seconds)
    if commit.stations:
        return effort.plus(0, 0, commit.pairs, commit.seconds)
    return effort if micros is None else effort.plus(1, commit.rows, commit.pairs, commit.seconds)


def _advance(before: Watermarks, after: Watermarks) -> int | None:
    """Return how far a group's slower stream advanced (µs); None without watermarks."""
    old, new = trigger(before), trigger(after)
    return None if old is None or new is None else new - old


@_fold.register
def _answered(commit: Answered, ledger: Ledger) -> Ledger:
    panes, queries = dict(ledger.panes), dict(ledger.queries)
    for name, removed in commit.removed_files.items():
        files = _without(panes[name].files, removed) + commit.files.get(name, ())
        panes[name] = replace(panes[name], files=files)
    for name, count in commit.promises_seen.items():
        panes[name] = replace(panes[name], promises_seen=count)
    for name, until in commit.answered.items():
        queries[name] = replace(ledger.query(name), answered=until)
    done = replace(ledger, panes=panes, queries=queries, answers=ledger.answers + 1)
    return _delivered(done, commit.output)


@_fold.register
def _propagate(commit: Propagated, ledger: Ledger) -> Ledger:
    noted = replace(
        ledger,
        propagated={**ledger.propagated, **commit.promises_seen},
        promises=_joined(ledger.promises, commit.finished_values, PromiseFiles.plus, PromiseFiles()),
        propagations=ledger.propagations + 1,
    )
    return _delivered(noted, commit.output)


@_fold.register
def _rewrite(commit: Rewritten, ledger: Ledger) -> Ledger:
    """Replace segments of a log by others with the rows still needed."""
    log, finished = commit.log, commit.finished
    rest = _without(ledger.segments(log), commit.remove)
    segments = commit.add + tuple(
        replace(segment, finished=finished.get(segment.name, segment.finished)) for segment in rest
    )
    layouts = {**ledger.layouts[log], **{numbered.number: numbered.layout for numbered in commit.layouts}}
    fit = ledger.rewrite_fit.then((1, commit.rows), commit.seconds) if commit.rows else ledger.rewrite_fit
    seen, removals, streams = dict(ledger.promises_seen), dict(ledger.early_removals), dict(ledger.streams)
    if commit.promises_seen is not None:
        seen[log] = commit.promises_seen
    if commit.early_removals is not None:
        removals[log] = removals.get(log, EarlyRemovals()).then(*commit.early_removals)
    if commit.purged:
        state = ledger.stream(commit.stream)
        streams[commit.stream] = replace(state, purged=state.purged + commit.purged)
    rewritten = replace(
        ledger,
        logs={**ledger.logs, log: segments},
        layouts={**ledger.layouts, log: _in_use(layouts, segments, ledger.traffic.get(log))},
        rewrite_fit=fit,
        promises_seen=seen,
        early_removals=removals,
        streams=streams,
    )
    return _delivered(rewritten, commit.output)


@_fold.register
def _prices(commit: Priced, ledger: Ledger) -> Ledger:
    """Take the measured prices, and forget the costs that were fitted before."""
    return replace(ledger, prices=commit.prices, unit_fit=Fit(), rewrite_fit=Fit())


@_fold.register
def _published(commit: Published, ledger: Ledger) -> Ledger:
    done = set(commit.units)
    pending = tuple(output for output in ledger.pending if (output.unit, output.query) not in done)
    return replace(ledger, pending=pending, unpublished=ledger.unpublished if pending else {})


@_fold.register
def _order(commit: OrderSwitched, ledger: Ledger) -> Ledger:
    changed = {name: replace(ledger.groups[name], mode=commit.mode) for name in commit.groups}
    switches = (*ledger.switches, commit)[-limits.MAX_REMEMBERED_CHANGES :]
    return replace(ledger, groups={**ledger.groups, **changed}, switches=switches)
