"""Compact: merge small files of results, and tables of old plans, a little in every turn.

A unit writes a file per task, and every change of plan may begin a table.  Without merging, their number and the cost
of every read would grow for ever.  The joiner merges what `penstock.state.tables` chooses: one Spark job whose tasks
write a file each, and one commit that replaces the old files::

    files 1 1 1 1 1 1 1 1   ──job──▶   8 beside them   ──commit──▶   8   ──a while later──▶   the ones are deleted

A reader that has begun continues with the old files, so they are deleted later.  A crash leaves files that no commit
names; the next start deletes them.

In:  the ledger.  Out: ``compact`` commits.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from penstock import limits
from penstock.engine.runners.runner import Job, counted
from penstock.engine.sinks.table import pairs_folder, results_folder
from penstock.engine.tasks.merge import CONFLICT, MergeTask
from penstock.state.commits import Compacted, FilesReplaced, NeighboursMerged, TableBegun
from penstock.state.tables import FileMerge, bits_between, merged_table, runs_to_merge, words_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from penstock.engine.stages.turn_context import TurnContext
    from penstock.state.ledger import Ledger
    from penstock.state.tables import StoredFile, StoredTable


@dataclass(frozen=True, slots=True)
class MergeStep:
    """One file to be made of others: for a table of a group, or for a query that has files of its own."""

    merge: FileMerge
    group: str = ""
    table: str = ""
    query: str = ""

    @property
    def names(self) -> list[str]:
        """List the files that it replaces."""
        return [part.name for part in self.merge.inputs]


@dataclass(frozen=True, slots=True)
class MergePlan:
    """What to merge next: tables to begin, each with the tables that go over into it, and files to make."""

    begun: Mapping[str, tuple[StoredTable, tuple[str, ...]]]
    steps: tuple[MergeStep, ...]


def choose_steps(
    ledger: Ledger, tasks: int, *, busy: bool, excluded: Iterable[frozenset[str]] = ()
) -> MergePlan:
    """Choose what to merge, at most one file per task; while there is input to join, only what is urgent.

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
    return MergePlan(
        begun, tuple(step for step in chosen if frozenset(step.names) not in unmergeable)[:tasks]
    )


def _with(
    ledger: Ledger, begun: Mapping[str, tuple[StoredTable, tuple[str, ...]]]
) -> dict[str, tuple[StoredTable, ...]]:
    """Return the tables as they will be when others have been begun."""
    return {
        group: tables
        if group not in begun
        else (
            begun[group][0],
            *(
                replace(table, into=begun[group][0].id) if table.id in begun[group][1] else table
                for table in tables
            ),
        )
        for group, tables in ledger.tables.items()
    }


def _begin(
    tables: Sequence[StoredTable], written: str, many: int
) -> tuple[StoredTable, tuple[str, ...]] | None:
    """Begin to merge the tables of the lowest generation that has many of them, unless some of it are being merged."""
    busy = {written, *(table.into for table in tables)}
    settled = [table for table in tables if table.files and not table.into and table.id not in busy]
    for generation in sorted({table.generation for table in settled}):
        alike = [table for table in settled if table.generation == generation]
        if len(alike) >= many and not any(table.into for table in tables if table.generation == generation):
            return merged_table(alike, f"m{uuid.uuid4().hex[:12]}"), tuple(table.id for table in alike)
    return None


def _table_steps(
    group: str, tables: Sequence[StoredTable], fan: int, *, pressing: bool
) -> Iterator[MergeStep]:
    """List the merges in the tables of a group: files that go over into another table, then small files."""
    for target in tables:
        sources = [table for table in tables if table.into == target.id]
        if sources:
            yield from _moves(group, sources, target)
    for table in tables:
        if not table.into:
            by_age = sorted(table.files, key=lambda file: -file.generation)
            for run in runs_to_merge([replace(file, shape="") for file in by_age], fan, pressing=pressing):
                merge = FileMerge(run, f"{pairs_folder(group)}/", run[0].generation + 1)
                yield MergeStep(merge, group, table.id)


def _moves(group: str, sources: Sequence[StoredTable], target: StoredTable) -> Iterator[MergeStep]:
    """Move the files of some tables into another, about as many at a time as make a full file."""
    bits = {file.name: bits_between(table, target) for table in sources for file in table.files}
    for run in _bins([file for table in sources for file in table.files]):
        generation = max(file.generation for file in run) + (len(run) > 1)
        bits_of = {file.name: bits[file.name] for file in run}
        merge = FileMerge(run, f"{pairs_folder(group)}/", generation, bits_of, words_of(target.members))
        yield MergeStep(merge, group, target.id)


def _bins(files: Iterable[StoredFile]) -> Iterator[tuple[StoredFile, ...]]:
    """Divide files into runs of up to the size of a full file."""
    run: list[StoredFile] = []
    for file in files:
        if run and sum(file.bytes for file in run) + file.bytes > limits.MAX_MERGED_FILE_BYTES:
            yield tuple(run)
            run = []
        run.append(file)
    if run:
        yield tuple(run)


def _own_steps(query: str, files: Sequence[StoredFile], fan: int, patience: int) -> Iterator[MergeStep]:
    """List the merges of neighbours among a query's own files.

    A release writes one file, whatever the number of tasks.  If columns change often, unlike files are merged too.
    """
    released = [file for file in files if _order(file) != "part"]
    others = [file for file in files if _order(file) == "part"]
    for some, many in ((released, patience * limits.MERGE_FAN_IN), (others, fan)):
        runs = runs_to_merge(some, many, pressing=patience > 1)
        if not runs and len(some) > 4 * many:
            runs = runs_to_merge([replace(file, shape="") for file in some], many)
        for run in runs:
            prefix = f"{results_folder(query)}/{_order(run[0])}-"
            yield MergeStep(FileMerge(run, prefix, run[0].generation + 1), query=query)


def _order(file: StoredFile) -> str:
    """Return the sort key in a file's name: the number of its first release, or "part" for an unordered file.

    >>> from penstock.state.tables import StoredFile
    >>> [_order(StoredFile(name, 9)) for name in ("r/q/released-000000000007-ab.parquet", "r/q/part-1-2.parquet")]
    ['released-000000000007', 'part']
    """
    name = file.name.rpartition("/")[2].removesuffix(".parquet")
    return name[: len("released-000000000000")] if name.startswith("released-") else "part"


def compact_commit(chosen: MergePlan, made: Sequence[StoredFile | str | None]) -> Compacted:
    """Return the commit of merged files; files that could not be merged stay."""
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
class ReplacedFiles:
    """Files that were replaced, until no reader needs them any more."""

    files: list[tuple[float, str]] = field(default_factory=list)

    def keep(self, names: Iterable[str]) -> None:
        """Keep replaced files for a while longer."""
        until = time.monotonic() + limits.REPLACED_FILE_SECONDS
        self.files += [(until, name) for name in names]

    def delete_expired(self, delete: Callable[[str], None]) -> None:
        """Delete the files whose time is over."""
        now = time.monotonic()
        for until, name in self.files:
            if until <= now:
                delete(name)
        self.files = [(until, name) for until, name in self.files if until > now]


def compact(context: TurnContext) -> None:
    """Merge files of results, a few at a time; set `untidy` if more can be merged."""
    ledger, store = context.ledger, context.store
    context.replaced_files.delete_expired(store.let_go)
    tasks = context.runner.parallelism
    busy = context.any_behind() or context.input_ended  # at the end of the input, results come first
    chosen = choose_steps(ledger, tasks, busy=busy, excluded=context.unmergeable)
    context.untidy = bool(chosen.steps)
    if not chosen.steps and not chosen.begun:
        return
    job = Job(
        "compact",
        f"merge {counted(sum(len(step.names) for step in chosen.steps), 'file', 'files')} of results",
    )
    made = context.runner.map([MergeTask(step.merge) for step in chosen.steps], job)
    context.unmergeable |= {
        frozenset(step.names) for step, file in zip(chosen.steps, made, strict=True) if file == CONFLICT
    }
    store.commit(compact_commit(chosen, made))
    context.replaced_files.keep(ledger.files() - context.ledger.files())
    context.replaced_files.delete_expired(store.let_go)
