"""Compaction: files of results become fewer and larger, and tables of old plans one, a little in every turn.

A unit writes a file for each task, and every change of plan may begin a table, so that both would grow for ever, and so
would every read.  After its other work the joiner merges what `penstock.state.tables` chooses: one Spark job whose
tasks write a file each, one commit that puts them in the place of others::

    files 1 1 1 1 1 1 1 1   ──job──▶   8 beside them   ──commit──▶   8   ──a while later──▶   the ones are deleted

A reader that has begun goes on with the files it has been told of, so these stay for a while.  A crash leaves files
that no commit names, which the next start removes.

In:  the ledger.  Out: ``compact`` commits.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from penstock import limits
from penstock.engine.runners.runner import Job, counted
from penstock.engine.sinks.sinks import pairs_folder, results_folder
from penstock.engine.tasks.merge import CONFLICT, MergeTask
from penstock.state.commits import Compacted, FilesReplaced, NeighboursMerged, TableBegun
from penstock.state.tables import (
    Merge,
    bits_between,
    merged_table,
    runs_to_merge,
    words_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from penstock.engine.stages.turn_context import TurnContext
    from penstock.state.ledger import Ledger
    from penstock.state.tables import StoredFile, StoredTable

GRACE = 600.0
"""Seconds that files stay after others took their place: whoever reads them may finish."""


@dataclass(frozen=True, slots=True)
class Step:
    """One file to be made of others: for a table of a group, or for a query that has files of its own."""

    merge: Merge
    group: str = ""
    table: str = ""
    query: str = ""

    @property
    def names(self) -> list[str]:
        """Name the files that it replaces."""
        return [each.name for each in self.merge.inputs]


@dataclass(frozen=True, slots=True)
class Steps:
    """What to do next: tables to begin, each with those that go over into it, and files to make."""

    begun: Mapping[str, tuple[StoredTable, tuple[str, ...]]]
    steps: tuple[Step, ...]


def choose_steps(ledger: Ledger, tasks: int, *, busy: bool, excluded: Iterable[frozenset[str]] = ()) -> Steps:
    """Choose what to merge, at most a file for each task; while there is something to join, only what presses.

    `excluded` are files that cannot be merged with each other.
    """
    patience = 2 if busy else 1
    fan = patience * max(limits.MERGE_FAN_IN, limits.WAITING_FILES_PER_TASK * tasks)
    begun = {
        group: begin
        for group, tables in ledger.tables.items()
        if (begin := _begin(tables, ledger.writes.get(group, ""), patience * limits.TABLE_MERGE_FAN_IN))
        is not None
    }
    unmergeable = set(excluded)
    chosen = [
        *(
            step
            for group, tables in _with(ledger, begun).items()
            for step in _table_steps(group, tables, fan, pressing=busy)
        ),
        *(step for query, files in ledger.kept.items() for step in _own_steps(query, files, fan, patience)),
    ]
    return Steps(begun, tuple(each for each in chosen if frozenset(each.names) not in unmergeable)[:tasks])


def _with(
    ledger: Ledger, begun: Mapping[str, tuple[StoredTable, tuple[str, ...]]]
) -> dict[str, tuple[StoredTable, ...]]:
    """Give the tables as they will be when others have been begun."""
    return {
        group: tables
        if group not in begun
        else (
            begun[group][0],
            *(
                replace(each, into=begun[group][0].id) if each.id in begun[group][1] else each
                for each in tables
            ),
        )
        for group, tables in ledger.tables.items()
    }


def _begin(
    tables: Sequence[StoredTable], written: str, many: int
) -> tuple[StoredTable, tuple[str, ...]] | None:
    """Begin to merge the tables of the lowest generation that has many of them, if no others of it are being merged."""
    busy = {written, *(each.into for each in tables)}
    settled = [each for each in tables if each.files and not each.into and each.id not in busy]
    for generation in sorted({each.generation for each in settled}):
        alike = [each for each in settled if each.generation == generation]
        if len(alike) >= many and not any(each.into for each in tables if each.generation == generation):
            return merged_table(alike, f"m{uuid.uuid4().hex[:12]}"), tuple(each.id for each in alike)
    return None


def _table_steps(group: str, tables: Sequence[StoredTable], fan: int, *, pressing: bool) -> Iterator[Step]:
    """List what there is to merge in the tables of a group: those that go over into another, then small files."""
    for target in tables:
        sources = [each for each in tables if each.into == target.id]
        if sources:
            yield from _moves(group, sources, target)
    for table in tables:
        if not table.into:
            by_age = sorted(table.files, key=lambda each: -each.generation)
            for run in runs_to_merge([replace(each, shape="") for each in by_age], fan, pressing=pressing):
                merge = Merge(run, f"{pairs_folder(group)}/", run[0].generation + 1)
                yield Step(merge, group, table.id)


def _moves(group: str, sources: Sequence[StoredTable], target: StoredTable) -> Iterator[Step]:
    """Take the files of some tables over into another, about as many at a time as make a full one."""
    bits = {each.name: bits_between(table, target) for table in sources for each in table.files}
    for run in _bins([each for table in sources for each in table.files]):
        generation = max(each.generation for each in run) + (len(run) > 1)
        bits_of = {each.name: bits[each.name] for each in run}
        merge = Merge(run, f"{pairs_folder(group)}/", generation, bits_of, words_of(target.members))
        yield Step(merge, group, target.id)


def _bins(files: Iterable[StoredFile]) -> Iterator[tuple[StoredFile, ...]]:
    """Put files together, up to the size of a full one."""
    run: list[StoredFile] = []
    for file in files:
        if run and sum(each.bytes for each in run) + file.bytes > limits.MAX_MERGED_FILE_BYTES:
            yield tuple(run)
            run = []
        run.append(file)
    if run:
        yield tuple(run)


def _own_steps(query: str, files: Sequence[StoredFile], fan: int, patience: int) -> Iterator[Step]:
    """List the neighbours among a query's own files that become one.

    A release writes one file, whatever the number of tasks.  If its columns change often, unlike files are merged too.
    """
    released = [each for each in files if _order(each) != "part"]
    others = [each for each in files if _order(each) == "part"]
    for some, many in ((released, patience * limits.MERGE_FAN_IN), (others, fan)):
        runs = runs_to_merge(some, many, pressing=patience > 1)
        if not runs and len(some) > 4 * many:
            runs = runs_to_merge([replace(each, shape="") for each in some], many)
        for run in runs:
            prefix = f"{results_folder(query)}/{_order(run[0])}-"
            yield Step(Merge(run, prefix, run[0].generation + 1), query=query)


def _order(file: StoredFile) -> str:
    """Give the part of a file's name by which files are in order: that of the first release in it, if it has an order.

    >>> from penstock.state.tables import StoredFile
    >>> [_order(StoredFile(name, 9)) for name in ("r/q/released-000000000007-ab.parquet", "r/q/part-1-2.parquet")]
    ['released-000000000007', 'part']
    """
    name = file.name.rpartition("/")[2].removesuffix(".parquet")
    return name[: len("released-000000000000")] if name.startswith("released-") else "part"


def compact_commit(chosen: Steps, made: Sequence[StoredFile | str | None]) -> Compacted:
    """Say what takes the place of what; what could not be brought together stays."""
    done = [(step, file) for step, file in zip(chosen.steps, made, strict=True) if not isinstance(file, str)]
    pairs: dict[str, FilesReplaced] = {}
    kept: dict[str, tuple[NeighboursMerged, ...]] = {}
    for step, file in done:
        added = (file,) if file is not None else ()
        if step.query:
            merged = NeighboursMerged(tuple(step.names), added)
            kept[step.query] = (*kept.get(step.query, ()), merged)
        else:
            before = pairs.get(step.group, FilesReplaced())
            add = {**before.add, step.table: (*before.add.get(step.table, ()), *added)}
            pairs[step.group] = FilesReplaced((*before.remove, *step.names), add)
    begun = {group: TableBegun(table, tuple(sources)) for group, (table, sources) in chosen.begun.items()}
    return Compacted(begun, pairs, kept)


@dataclass
class Attic:
    """Files that others have taken the place of, until they are deleted."""

    files: list[tuple[float, str]] = field(default_factory=list)

    def take(self, names: Iterable[str]) -> None:
        """Keep some files for a while longer."""
        until = time.monotonic() + GRACE
        self.files += [(until, name) for name in names]

    def clear(self, let_go: Callable[[str], None]) -> None:
        """Let go of those whose time is over."""
        now = time.monotonic()
        for _, name in (each for each in self.files if each[0] <= now):
            let_go(name)
        self.files = [each for each in self.files if each[0] > now]


def compact(context: TurnContext) -> None:
    """Merge files of results, a few at a time; `untidy` says whether there is more to merge."""
    ledger, store = context.ledger, context.store
    context.attic.clear(store.let_go)
    tasks = context.runner.parallelism
    busy = context.any_behind() or context.input_ended  # who waits for the end need not wait for this
    chosen = choose_steps(ledger, tasks, busy=busy, excluded=context.unmergeable)
    context.untidy = bool(chosen.steps)
    if not chosen.steps and not chosen.begun:
        return
    job = Job(
        "compact",
        f"merge {counted(sum(len(each.names) for each in chosen.steps), 'file', 'files')} of results",
    )
    made = context.runner.map([MergeTask(each.merge) for each in chosen.steps], job)
    context.unmergeable |= {
        frozenset(step.names) for step, file in zip(chosen.steps, made, strict=True) if file == CONFLICT
    }
    store.commit(compact_commit(chosen, made))
    context.attic.take(ledger.files() - context.ledger.files())
    context.attic.clear(store.let_go)
