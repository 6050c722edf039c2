"""Repair a state: restore a commit from its copy, else go back to the last commit from which the state is intact.

A run needs a readable journal, undamaged files and checkpoints that agree with the journal.  If one of these is
missing, the repair goes back to the last commit after which all were there.  Everything later is computed again::

    commits   ... 53  54  55  56  57x 58  59          57 is damaged, and 58 has no copy of it
                           └ the last commit of which every file exists and is undamaged

    journal        57, 58 and 59 are moved aside
    results        files of units and releases after 56 are removed: they come again
    checkpoints    each ends with the last batch that the journal has at 56: Spark continues from there
    late rows      those of batches that come again are removed

Nothing is changed before all steps are known to be possible.  The goal is noted first, and a state with such a note is
not opened (`penstock.engine.store`): the next repair finishes one that was interrupted.

In:  the url of a state that no engine runs on.  Out: a `Repair`: the damage, the steps, and a method that does them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, cast
from urllib.parse import unquote

from fsspec.core import url_to_fs

from penstock.engine.outputs.unknown_results import unknown_results
from penstock.engine.repair.checkpoint import obstacle, read_again, set_back
from penstock.engine.sinks.sink_paths import file_sinks
from penstock.engine.sources.checkpoints import checkpoint_of
from penstock.engine.store import REPAIR_NOTE, fold_json, open_journal
from penstock.errors import DamagedError, InputError, MissingError
from penstock.state.checksum import map_whole
from penstock.state.codec import decode, decode_ledger, encode
from penstock.state.commits import Backfilled, CommitOutput, PlanServed, Published, Released, UnitJoined
from penstock.state.envelope import DIRECTORY, commit_name, numbers, snapshot_name, wrap
from penstock.state.files import folder_of, open_files
from penstock.state.journal_scan import survey
from penstock.state.ledger import Ledger
from penstock.state.origin import disagreement

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.state.files import Files
    from penstock.state.journal_scan import Survey
    from penstock.state.values import Move, Publication, ServedPlan


@dataclass(frozen=True)
class Repair:
    """The damage of a state, and the commit to go back to; made by `examine`."""

    files: Files
    survey: Survey[Ledger]
    wrong: tuple[str, ...]
    goal: int | None
    """The commit to go back to; None if the state cannot be repaired."""
    why: str = ""
    """The reason why the state cannot be repaired; empty if it can."""

    @property
    def ledger(self) -> Ledger:
        """Return the ledger after the repair."""
        assert self.goal is not None  # noqa: S101 - asked only of what can be repaired
        return self.survey.states[self.goal]

    @cached_property
    def results(self) -> list[tuple[Files, str]]:
        """List the files of results that come again."""
        return list(unknown_results(_sinks(self.survey), self.ledger))

    @cached_property
    def streams(self) -> list[str]:
        """List the streams whose checkpoints do not agree with the ledger after the repair."""
        return [name for name in _streams(self.survey) if _disagreement(self.files, self.ledger, name)]

    def steps(self) -> Iterator[str]:
        """Describe the steps of the repair."""
        if self.goal is None:
            return
        for number in sorted(self.survey.copies):
            if number <= self.goal:
                yield f"write commit {number} again: the next one has a copy of it"
        if self.goal < self.survey.last:
            yield f"go back to commit {self.goal}: move the later ones aside ({self.files.path(DIRECTORY)}/removed-…)"
        if torn := [number for number in self.survey.torn_snapshots if number <= self.goal]:
            yield f"move damaged snapshots aside: {', '.join(map(str, torn))}"
        if self.results:
            yield f"remove {len(self.results)} files of results that come again, such as {_path(self.results[0])}"
        for stream in self.streams:
            last = self.ledger.stream(stream).source_batch
            where = "its beginning" if last < 0 else f"the end of batch {last}"
            yield f"set Spark's checkpoint of stream {stream} to {where}: later rows are read again"
        for publication in _handed_over(self.ledger):
            yield f"note that {publication.unit} was handed over to {publication.query}"

    def carry_out(self) -> None:
        """Do the steps, except those that an interrupted repair has done."""
        files, ledger, goal = self.files, self.ledger, self.goal
        files.put(REPAIR_NOTE, json.dumps({"goal": goal}).encode())
        for where, name in self.results:
            where.delete(name)
        _remove_late_rows(files, ledger, _streams(self.survey))
        for stream in self.streams:
            last, origin = ledger.stream(stream).source_batch, ledger.origins.get(stream)
            set_back(checkpoint_of(files, stream), last, origin)
        self._mend_journal()
        files.delete(REPAIR_NOTE)

    def _mend_journal(self) -> None:
        """Remove the commits after the goal, the last one first, so that there is never a gap."""
        goal = cast("int", self.goal)
        aside = f"{DIRECTORY}/removed-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
        present = numbers(self.files)
        for number in reversed(present.snapshots):
            if number > goal or number in self.survey.torn_snapshots:
                _move_aside(self.files, snapshot_name(number), aside)
        for number in reversed(present.commits):
            if number > goal:
                _move_aside(self.files, commit_name(number), aside)
        for number, copy in sorted(self.survey.copies.items()):
            if number <= goal:
                _move_aside(self.files, commit_name(number), aside)
                self.files.put(commit_name(number), wrap(number, copy.writer, copy.body))
        done = tuple((publication.unit, publication.query) for publication in _handed_over(self.ledger))
        if done:
            journal = open_journal(self.files)
            journal.recover()
            journal.commit(encode(Published(done)))


def examine(url: str) -> Repair:
    """Examine a state from end to end; the caller holds its lock."""
    files = open_files(url, private=True)
    if not files.list(DIRECTORY):
        raise InputError(
            f"{url} is not a state directory: name the one of a run (penstock run SCRIPT --state DIR)"
        )
    surveyed = survey(files, fold_json, Ledger(), decode_ledger)
    begun = json.loads(files.read(REPAIR_NOTE))["goal"] if files.exists(REPAIR_NOTE) else None
    now = surveyed.states.get(surveyed.end)
    wrong = (*surveyed.wrong, *(_troubles(files, surveyed, now) if now is not None else ()))
    wrong += (f"a repair that goes back to commit {begun} was interrupted",) if begun is not None else ()
    if not wrong:
        return Repair(files, surveyed, (), surveyed.end)
    goals = sorted(surveyed.states, reverse=True) if begun is None else [begun]
    reasons: list[str] = []
    for goal in goals:
        reason = _impossible(files, surveyed, surveyed.states[goal])
        if not reason:
            return Repair(files, surveyed, wrong, goal)
        reasons.append(f"not to commit {goal}: {reason}")
    return Repair(files, surveyed, wrong, None, _in_short(reasons))


def _in_short(reasons: list[str]) -> str:
    """Return why no commit can be the goal: the first reason, and the last if there are several."""
    return (
        "; ".join(dict.fromkeys((reasons[0], reasons[-1]))) if reasons else "none of its commits can be read"
    )


# --- what is wrong ----------------------------------------------------------------------------------------------


def _troubles(files: Files, surveyed: Survey[Ledger], ledger: Ledger) -> Iterator[str]:
    """List the files, results and checkpoints that do not fit the last readable commit."""
    yield from (f"{why} (named by the journal)" for why in _file_troubles(files, ledger))
    for where, name in unknown_results(_sinks(surveyed), ledger):
        yield f"{where.path(name)} is of a unit that the journal does not have"
        break
    for publication in _handed_over(ledger):
        yield f"results of unit {publication.unit} for {publication.query} are gone, as if they had been handed over"
    for stream in _streams(surveyed):
        if why := _disagreement(files, ledger, stream):
            yield f"Spark's checkpoint of stream {stream} does not agree with the journal: {why}"


def _disagreement(files: Files, ledger: Ledger, stream: str) -> str:
    """Return why a stream's checkpoint does not agree with a ledger; empty if it does."""
    last, origin = ledger.stream(stream).source_batch, ledger.origins.get(stream)
    return disagreement(checkpoint_of(files, stream), last, origin)


def _file_troubles(files: Files, ledger: Ledger) -> Iterator[str]:
    """List the files of a ledger that are missing, which is a quick check, then those that are damaged."""
    present = {
        name for kind in {name.partition("/")[0] for name in ledger.files()} for name in files.find(kind)
    }
    for name in sorted(ledger.files() - present):
        yield f"{files.path(name)} is missing"
    for kept in ledger.summed():
        if kept.name in present:
            try:
                map_whole(files, kept)
            except (DamagedError, MissingError):
                yield f"{files.path(kept.name)} is damaged"
    for publication in ledger.pending:
        yield from (
            f"{open_files(move.root).path(move.final)} is missing" for move in _lost(publication, files)
        )


def _lost(publication: Publication, state: Files) -> Iterator[Move]:
    """List the files of committed output inside the state that are missing and were not handed over."""
    for move in publication.moves:
        where = open_files(move.root)
        inside = where.path(move.final).startswith(f"{state.root}/")
        if inside and not publication.query and not _is_somewhere(move):
            yield move


def _handed_over(ledger: Ledger) -> list[Publication]:
    """List the results for a console or callback that are missing because they were handed over already."""
    return [
        publication
        for publication in ledger.pending
        if publication.query and not all(map(_is_somewhere, publication.moves))
    ]


def _is_somewhere(move: Move) -> bool:
    """Check whether a file of committed output is staged or in place."""
    files = open_files(move.root)
    return files.exists(move.final) or files.exists(move.staged)


def _impossible(files: Files, surveyed: Survey[Ledger], ledger: Ledger) -> str:
    """Return why a ledger cannot be restored; empty if it can."""
    for why in _file_troubles(files, ledger):
        return why
    for stream in _streams(surveyed):
        if not _disagreement(files, ledger, stream):
            continue
        last, origin = ledger.stream(stream).source_batch, ledger.origins.get(stream)
        checkpoint = checkpoint_of(files, stream)
        if why := obstacle(checkpoint, last, origin, surveyed.states[surveyed.end].origins.get(stream)):
            return f"the checkpoint of stream {stream} cannot be set back: {why}"
        gone = next((path for path in read_again(checkpoint, origin) if not _exists(path)), "")
        if gone:
            return f"{unquote(gone)}, which stream {stream} would have to read again, is gone"
    return ""


def _exists(url: str) -> bool:
    """Check whether a file of a source still exists; Spark escapes urls."""
    system, path = url_to_fs(unquote(url))
    return bool(system.exists(path))


# --- streams and directories -----------------------------------------------------------------------------------


def _streams(surveyed: Survey[Ledger]) -> list[str]:
    """List all streams that the commits and ledgers name, without results of queries."""
    names = {name for ledger in surveyed.states.values() for name in (*ledger.declared, *ledger.streams)}
    names |= {str(commit["stream"]) for commit in surveyed.commits.values() if commit.get("kind") == "batch"}
    return sorted(names - _results(surveyed))


def _results(surveyed: Survey[Ledger]) -> set[str]:
    """List the streams that are results of queries: they have no source."""
    plans = [ledger.plan for ledger in surveyed.states.values() if ledger.plan]
    commits = (decode(commit) for commit in surveyed.commits.values() if commit.get("kind") == "plan")
    plans += [commit.plan for commit in commits if isinstance(commit, PlanServed)]
    return {stream.name for plan in plans for stream in plan.streams if stream.results}


def _sinks(surveyed: Survey[Ledger]) -> set[str]:
    """List the directories of results outside the state: those of all plans and of all committed output."""
    roots: set[str] = set()
    for ledger in surveyed.states.values():
        roots |= set(_plan_sinks(ledger.plan)) | _roots(ledger.pending)
    for commit in map(decode, surveyed.commits.values()):
        roots |= set(_plan_sinks(commit.plan)) if isinstance(commit, PlanServed) else set()
        output = commit.output if isinstance(commit, UnitJoined | Backfilled | Released) else CommitOutput()
        roots |= _roots(publication for publication in output.publish if not publication.query)
    return roots


def _roots(publications: Iterable[Publication]) -> set[str]:
    return {move.root for publication in publications for move in publication.moves}


def _plan_sinks(plan: ServedPlan | None) -> Iterable[str]:
    """List the directories that a plan's queries write to."""
    if plan is None:
        return ()
    return file_sinks([*plan.queries, *(stopped.query for stopped in plan.stopped)]).values()


def _path(file: tuple[Files, str]) -> str:
    files, name = file
    return files.path(name)


def _remove_late_rows(files: Files, ledger: Ledger, streams: Iterable[str]) -> None:
    """Remove the dead letters of batches that come again."""
    for stream in streams:
        folder = folder_of("late", stream)
        for name in files.list(folder):
            if name.isdecimal() and int(name) >= ledger.stream(stream).batches:
                files.delete_tree(f"{folder}/{name}")


def _move_aside(files: Files, name: str, aside: str) -> None:
    """Move a file of the journal to another directory, if it exists."""
    if files.exists(name):
        files.move(name, f"{aside}/{name.rpartition('/')[2]}")
