"""The journal: the state as a sequence of small commits.

The engine's knowledge is a fold over the commits, and recovery reads them again::

    journal/000000000001.json ... 000000000130.json     one commit each, put only if absent
    journal/snapshot-000000000064.json                  the fold of commits 1..64
    journal/snapshot-000000000128.json

        1 ......... 64 ........ 128 . 130
        (removed)   S           S     commits after the newest snapshot are folded onto it
                    '-- kept, with commits 65..128: should the newest snapshot be unreadable

Always true:

* A commit is durable once its file exists; then memory is updated.  `Journal.state` is never ahead of the files, and
  every later recovery has the commits that `Journal.commit` returned.
* Each number has one file.  An engine that finds its number taken has lost the state to another engine.  It is
  *fenced*: its journal makes no further commit.
* A commit is folded before it is written, so a commit that cannot be folded is never written.  Therefore `fold` must
  not change its argument: it returns the next state.

In:  commits: `Journal.commit`, or `Journal.commit_with` for a commit that depends on the current state.
Out: the folded state, for the owner (`Journal.state`) and for readers (`read_only`).
"""

from __future__ import annotations

import threading
import time
import uuid
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from penstock.errors import RunError, StateBusyError
from penstock.reporting import Logger
from penstock.state.envelope import (
    JSON,
    Commit,
    Envelope,
    TornError,
    as_commit,
    commit_name,
    numbers,
    snapshot_name,
    unwrap,
    wrap,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.state.files import Files

S = TypeVar("S")

_READ_ATTEMPTS = 10
"""Attempts to read files that the owner removes meanwhile, before a missing file counts as a gap."""

_log = Logger(__name__)


class Journal(Generic[S]):
    """The owner's view of the journal: recovers, appends, and keeps the folded state.

    Any thread may read `state` and `number` (of the last commit) at any time.
    """

    def __init__(
        self,
        files: Files,
        fold: Callable[[S, Commit], S],
        empty: S,
        *,
        dump: Callable[[S], JSON],
        load: Callable[[JSON], S],
        snapshot_every: int = 64,
    ) -> None:
        """Begin with the empty state; call `recover` unless the directory is new."""
        if snapshot_every < 1:
            raise ValueError(f"snapshot_every is {snapshot_every}: a snapshot needs at least 1 commit")
        self.state = empty
        self.number = 0
        self._files = files
        self._fold = fold
        self._empty = empty
        self._dump = dump
        self._load = load
        self._snapshot_every = snapshot_every
        self._snapshot = 0  # the newest snapshot known to be good
        self._before: Envelope | None = None  # the last commit, copied into the next one
        self._writer = uuid.uuid4().hex
        self._mutex = threading.Lock()
        self._fenced: str | None = None
        self._in_doubt: str | None = None

    @property
    def fenced(self) -> bool:
        """Whether another engine has written to this journal; then this one makes no further commit."""
        return self._fenced is not None

    def recover(self) -> S:
        """Read the newest readable snapshot, fold the later commits onto it, and continue there."""
        with self._mutex:
            if self._fenced:
                raise StateBusyError(self._fenced)
            folded = _read(self._files, self._fold, self._empty, self._load)
            self.state, self.number, self._snapshot = folded.state, folded.number, folded.snapshot
            self._before = folded.last
            self._in_doubt = None
            return self.state

    def commit(self, commit: Commit) -> int:
        """Write a commit, and return its number."""
        number = self.commit_with(lambda _: commit)
        assert number is not None  # noqa: S101  (the builder above never declines)
        return number

    def commit_with(self, build: Callable[[S], Commit | None]) -> int | None:
        """Build a commit from the current state under the mutex, and write it.

        Returns the commit's number, or None if `build` returned None.  Raises `StateBusyError` if another engine has
        written.  After any other error the file may or may not exist: call `recover` before the next commit.
        """
        with self._mutex:
            self._check_usable()
            commit = build(self.state)
            if commit is None:
                return None
            number = self.number + 1
            data = wrap(number, self._writer, commit, self._before)
            # folded from its bytes, so that memory has the values that a recovery would read
            written = unwrap(data, number)
            state = self._fold(self.state, as_commit(written.body))
            self._append(number, data)
            self.state, self.number, self._before = state, number, written._replace(before=None)
            self._snapshot_if_due()
            return number

    def _check_usable(self) -> None:
        if self._fenced:
            raise StateBusyError(self._fenced)
        if self._in_doubt:
            raise RunError(self._in_doubt)

    def _append(self, number: int, data: bytes) -> None:
        """Write the commit's file, and check that no other engine owns the journal."""
        try:
            ours = self._put(commit_name(number), data) and not self._overtaken(number)
        except BaseException:
            self._in_doubt = (
                f"commit {number} of {self._files.root} failed, and its file may or may not exist. "
                "Recover the journal to find out"
            )
            raise
        if not ours:
            self._fenced = (
                f"commit {number} of {self._files.root} was written by another engine, so this one stops; "
                "its earlier commits are kept. Run one engine for each state"
            )
            raise StateBusyError(self._fenced)

    def _put(self, name: str, data: bytes) -> bool:
        """Write the file, and return whether it now holds `data`.

        A filesystem driver that retries after a lost response finds its own file.  `data` names its writer, so equal
        bytes are ours.
        """
        try:
            self._files.put_if_absent(name, data)
        except FileExistsError:
            try:
                return self._files.read(name) == data
            except FileNotFoundError:  # the other engine is further, and has removed it
                return False
        return True

    def _overtaken(self, number: int) -> bool:
        """Return whether the number was free only because a snapshot of another engine replaced its commit."""
        return any(snapshot >= number for snapshot in numbers(self._files).snapshots)

    def _snapshot_if_due(self) -> None:
        """Write a snapshot of the state, and remove files that only the snapshot before the previous one needs.

        The commit exists already, so an error here (a full disk) is logged, and the next commit tries again.
        """
        if self.number - self._snapshot < self._snapshot_every:
            return
        previous = self._snapshot
        try:
            data = wrap(self.number, self._writer, self._dump(self.state))
            self._files.put(snapshot_name(self.number), data)
            self._snapshot = self.number
            present = numbers(self._files)
            for number in present.snapshots:
                if number < previous:
                    self._files.delete(snapshot_name(number))
            for number in present.commits:
                if number <= previous:
                    self._files.delete(commit_name(number))
        except OSError as error:
            _log.warning("snapshot %d of %s failed: %s", self.number, self._files.root, error)


def read_only(files: Files, fold: Callable[[S, Commit], S], empty: S, *, load: Callable[[JSON], S]) -> S:
    """Return the state as of a recent commit, without owning it; its owner may commit meanwhile."""
    return _read(files, fold, empty, load).state


class _Folded(NamedTuple, Generic[S]):
    """A state, the number of its last commit, the snapshot it was read from, and the last commit itself."""

    state: S
    number: int
    snapshot: int
    last: Envelope | None


class _MissingError(Exception):
    """A missing file: removed by the owner a moment ago, or lost."""


def _read(files: Files, fold: Callable[[S, Commit], S], empty: S, load: Callable[[JSON], S]) -> _Folded[S]:
    """Read, and try again if the owner removed a file meanwhile; it never removes the newest snapshot."""
    for attempt in range(_READ_ATTEMPTS):
        try:
            return _read_once(files, fold, empty, load)
        except _MissingError as error:
            missing = error
            time.sleep(0.001 * attempt)
    raise RunError(str(missing))


def _read_once(
    files: Files, fold: Callable[[S, Commit], S], empty: S, load: Callable[[JSON], S]
) -> _Folded[S]:
    """Fold the commits after the newest readable snapshot onto it.

    Commits are read by number up to the largest listed, because a listing may lack a file if others change meanwhile.
    """
    present = numbers(files)
    state, start, torn = empty, 0, list[str]()
    for number in reversed(present.snapshots):
        try:
            state, start = load(unwrap(_fetch(files, snapshot_name(number), torn), number).body), number
            break
        except TornError as error:
            torn.append(snapshot_name(number))
            _log.warning("snapshot %s is skipped: %s", files.path(torn[-1]), error)
    end = max(present.commits, default=start)
    last = _last_before(files, start)
    for number in range(start + 1, end + 1):
        data = _fetch(files, commit_name(number), torn)
        try:
            last = unwrap(data, number)._replace(before=None)
            state = fold(state, as_commit(last.body))
        except TornError as error:
            raise RunError(
                f"commit {number} is damaged: {files.path(commit_name(number))}: {error}; {_ways_out(files)}"
            ) from error
    return _Folded(state, max(start, end), start, last)


def _last_before(files: Files, number: int) -> Envelope | None:
    """Read the last commit in a snapshot, to be copied into the next one; None if it is lost, which does no harm."""
    try:
        return unwrap(files.read(commit_name(number)), number)._replace(before=None)
    except (FileNotFoundError, TornError):
        return None


def _fetch(files: Files, name: str, torn: list[str]) -> bytes:
    try:
        return files.read(name)
    except FileNotFoundError as error:
        beside = f" (unreadable: {', '.join(torn)})" if torn else ""
        raise _MissingError(
            f"the journal has a gap: {files.path(name)} is missing{beside}; {_ways_out(files)}"
        ) from error


def _ways_out(files: Files) -> str:
    return (
        f"restore it from a copy, or run `penstock repair --state {files.root}`, which writes it again if it can, or "
        "goes back to an earlier commit"
    )
