"""The journal: what is true, as a sequence of small commits.

All that the engine knows is a fold over the commits, and recovery is reading them again::

    journal/000000000001.json ... 000000000130.json     one commit each, put only if absent
    journal/snapshot-000000000064.json                  the fold of commits 1..64
    journal/snapshot-000000000128.json

        1 ......... 64 ........ 128 . 130
        (removed)   S           S     commits after the newest snapshot are folded onto it
                    '-- kept, with commits 65..128: should the newest snapshot be unreadable

Always true:

* A commit is made at the instant its file appears, and memory follows: `Journal.state` is never
  ahead of the files.  What `Journal.commit` returned from is in every later recovery.
* Each number has one file.  An engine that finds its number taken has lost the state to another
  and is *fenced*: its journal makes no further commit.
* A commit that cannot be folded is never written, because it is folded first.

The last is why `fold` must not change its argument: it returns the next state.

In:  commits (`Journal.commit`, or `Journal.commit_with` to decide on the state under the mutex).
Out: the folded state, for the owner (`Journal.state`) and for anyone who looks (`read_only`).
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
"""How often files that vanish while they are read are tried again before that is called a gap."""

_log = Logger(__name__)


class Journal(Generic[S]):
    """The owner's view of the journal: recovers it, appends to it, holds the fold of it.

    `state` and `number` (of the last commit) may be read by any thread at any time.
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
        """Start at the empty state; call `recover` unless the directory is known to be new."""
        if snapshot_every < 1:
            message = f"snapshot_every is {snapshot_every}: a snapshot needs at least 1 commit"
            raise ValueError(message)
        self.state = empty
        self.number = 0
        self._files = files
        self._fold = fold
        self._empty = empty
        self._dump = dump
        self._load = load
        self._snapshot_every = snapshot_every
        self._snapshot = 0  # the newest snapshot known to be good
        self._before: Envelope | None = None  # the last commit, which the next carries along
        self._writer = uuid.uuid4().hex
        self._mutex = threading.Lock()
        self._fenced: str | None = None
        self._in_doubt: str | None = None

    @property
    def fenced(self) -> bool:
        """Whether another engine was found writing to this journal: then this object is dead."""
        return self._fenced is not None

    def recover(self) -> S:
        """Read the newest readable snapshot, fold the later commits onto it, and continue from there."""
        with self._mutex:
            if self._fenced:
                raise StateBusyError(self._fenced)
            folded = _read(self._files, self._fold, self._empty, self._load)
            self.state, self.number, self._snapshot = folded.state, folded.number, folded.snapshot
            self._before = folded.last
            self._in_doubt = None
            return self.state

    def commit(self, commit: Commit) -> int:
        """Make `commit` true, and return its number."""
        number = self.commit_with(lambda _: commit)
        assert number is not None  # noqa: S101  (the builder above never declines)
        return number

    def commit_with(self, build: Callable[[S], Commit | None]) -> int | None:
        """Let `build` see the state nobody else can change now, and make true what it returns.

        Returns the commit's number, or None when `build` found nothing to do.  Raises
        `StateBusyError` once another engine has written.  After any other error the commit may or
        may not have been made: `recover` finds out, and commits are refused until then.
        """
        with self._mutex:
            self._check_usable()
            commit = build(self.state)
            if commit is None:
                return None
            number = self.number + 1
            data = wrap(number, self._writer, commit, self._before)
            # folded from its bytes, so that memory holds what a recovery would read
            written = unwrap(data, number)
            state = self._fold(self.state, as_commit(written.body))
            self._append(number, data)
            self.state, self.number, self._before = state, number, written._replace(before=None)
            self._snapshot_if_due()
            return number

    def _check_usable(self) -> None:
        """Refuse to go on when another engine wrote, or when a commit may or may not have been made."""
        if self._fenced:
            raise StateBusyError(self._fenced)
        if self._in_doubt:
            raise RunError(self._in_doubt)

    def _append(self, number: int, data: bytes) -> None:
        """Put the commit's file, and make sure that it was ours to put."""
        try:
            ours = self._put(commit_name(number), data) and not self._overtaken(number)
        except BaseException:
            self._in_doubt = (
                f"commit {number} of {self._files.root} failed and may or may not have been made: "
                "recover the journal to find out"
            )
            raise
        if not ours:
            self._fenced = (
                f"commit {number} of {self._files.root} was written by another engine: this one no longer "
                "owns the state and stops (all it had committed stands); run one engine for each state"
            )
            raise StateBusyError(self._fenced)

    def _put(self, name: str, data: bytes) -> bool:
        """Put the file, and tell whether it now holds `data`.

        A driver that tried twice, because the first answer was lost, meets its own file: `data`
        names its writer, so equal bytes are ours.
        """
        try:
            self._files.put_if_absent(name, data)
        except FileExistsError:
            try:
                return self._files.read(name) == data
            except FileNotFoundError:  # a rival is even further, and has removed it
                return False
        return True

    def _overtaken(self, number: int) -> bool:
        """Tell whether the number was free only because a rival's snapshot has replaced its commit."""
        return any(each >= number for each in numbers(self._files).snapshots)

    def _snapshot_if_due(self) -> None:
        """Write the state down, and remove what only the snapshot before the previous one needed.

        The commit is made by now, so a full disk here is not its failure: the next commit tries again.
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
    """Return the state as of some commit made by now, without owning it, while its owner goes on."""
    return _read(files, fold, empty, load).state


class _Folded(NamedTuple, Generic[S]):
    """A state, the number of the last commit in it, and of the snapshot it was read from; and the last commit."""

    state: S
    number: int
    snapshot: int
    last: Envelope | None


class _MissingError(Exception):
    """A file that should be there is not: removed by the owner a moment ago, or lost."""


def _read(files: Files, fold: Callable[[S, Commit], S], empty: S, load: Callable[[JSON], S]) -> _Folded[S]:
    """Read again while files vanish under it; the owner never removes the newest snapshot."""
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

    Commits are read by number, up to the largest listed: a listing taken while files come and go
    may leave out one that is there.
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
            message = (
                f"commit {number} is damaged: {files.path(commit_name(number))}: {error}; {_ways_out(files)}"
            )
            raise RunError(message) from error
    return _Folded(state, max(start, end), start, last)


def _last_before(files: Files, number: int) -> Envelope | None:
    """Read the last commit of a snapshot, for the next to carry along; nobody needs it to go on."""
    try:
        return unwrap(files.read(commit_name(number)), number)._replace(before=None)
    except (FileNotFoundError, TornError):
        return None


def _fetch(files: Files, name: str, torn: list[str]) -> bytes:
    """Read a file that must be there."""
    try:
        return files.read(name)
    except FileNotFoundError as error:
        beside = f" (unreadable: {', '.join(torn)})" if torn else ""
        message = f"the journal has a gap: {files.path(name)} is missing{beside}; {_ways_out(files)}"
        raise _MissingError(message) from error


def _ways_out(files: Files) -> str:
    """Say what to do about a journal that cannot be read."""
    return (
        f"restore it from a copy, or run `penstock repair --state {files.root}`: it writes it again where it can, or "
        "goes back to before it"
    )
