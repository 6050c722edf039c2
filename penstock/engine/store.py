"""The state directory: who owns it, what is in it, and what a crash may have left behind.

    journal/      commits and snapshots: all that is true
    log/          segments, one directory per log, and per roll of a stream whose rows are counted
    checkpoint/   the progress of Spark's sources
    late/         rows that were set aside, by stream and batch
    pairs/        pairs, stored once per group, read through views
    results/      results of queries with the table sink that have files of their own
    feed/         results that other queries read, until they are ingested there
    hold/         ordered results that wait for release
    panes/        partial aggregates, by pane set
    spool/        results for a console or a callback, until they are handed over
    identity      an id by which sinks know this state
    lock          held by the one engine that may write

In:  a path or URL.  Out: the open journal, and the ledger, its fold.
"""

from __future__ import annotations

import threading
import uuid
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any

from penstock.engine.control import refuse_waiting
from penstock.errors import RunError
from penstock.state.codec import decode, decode_ledger, encode, encode_ledger
from penstock.state.commits import EngineOpened
from penstock.state.files import open_files
from penstock.state.journal import Journal, read_only
from penstock.state.ledger import Ledger
from penstock.state.ledger_fold import fold

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.state.commits import Commit
    from penstock.state.files import Files


REPAIR_NOTE = "journal/repair.json"
"""The plan of a repair that has begun (`penstock.engine.repair`); removed when it is done."""

KINDS = (
    "journal",
    "log",
    "checkpoint",
    "late",
    "pairs",
    "results",
    "feed",
    "hold",
    "panes",
    "spool",
    "requests",
    "answers",
)
"""The directories of a state.  They are made here before Spark makes them, so that only their owner can read them."""


class Store:
    """A state directory, owned."""

    def __init__(self, url: str) -> None:
        """Take ownership and read the journal; refuse if another engine has it."""
        self.files: Files = open_files(url, private=True)
        self._lock = self.files.lock("lock")
        self._letting_go = threading.Lock()
        self._unneeded: list[str] = []
        try:
            self._refuse_half_repaired()
            self.journal = open_journal(self.files)
            self.journal.recover()
            self._claim()
            for kind in KINDS:
                self.files.make_private(kind)
            refuse_waiting(self.files)
            self._remove_leftovers()
        except BaseException:
            self._lock.release()
            raise

    @cached_property
    def identity(self) -> str:
        """Return the identity by which sinks know this state, wherever it is moved; created at first use."""
        with suppress(FileExistsError):
            self.files.put_if_absent("identity", uuid.uuid4().hex.encode())
        return self.files.read("identity").decode()

    @property
    def ledger(self) -> Ledger:
        """Return what is true now."""
        return self.journal.state

    def commit(self, commit: Commit) -> None:
        """Commit; then delete the files that the commit before had made unnecessary."""
        with self._letting_go:
            unneeded, self._unneeded = self._unneeded, []
        self.journal.commit(encode(commit))
        for name in unneeded:
            self.files.delete(name)

    def let_go(self, name: str) -> None:
        """Delete a file that the last commit made unnecessary, after the next commit.

        If the last commit is damaged, the state can go back to the one before it; the next commit carries a copy of it.
        """
        with self._letting_go:
            self._unneeded.append(name)

    def clear(self, kind: str) -> None:
        """Empty one of the directories."""
        for name in self.files.list(kind):
            self.files.delete_tree(f"{kind}/{name}")

    def close(self) -> None:
        """Release the state."""
        self._lock.release()

    def _refuse_half_repaired(self) -> None:
        """Refuse a state whose repair was interrupted: a part of it is older than the rest."""
        if self.files.exists(REPAIR_NOTE):
            raise RunError(
                f"a repair of {self.files.root} is not finished. "
                f"Run `penstock repair --state {self.files.root} --yes` again"
            )

    def _claim(self) -> None:
        """Where there is no lock (object stores), exclude an engine that still runs, before any file is removed.

        Its next commit finds the number taken, so it cannot commit a file that is removed from here on.
        """
        if not self._lock.excludes:
            self.commit(EngineOpened())

    def _remove_leftovers(self) -> None:
        """Delete files that no commit names, left by tasks without a commit or made unnecessary by the last commit.

        The latter may be needed to go back to the commit before, so another commit is made first.
        """
        named = self.ledger.files()
        kinds = ("log", "hold", "panes", "pairs", "results", "feed")
        stray = [name for kind in kinds for name in self.files.find(kind) if name not in named]
        if stray and self._lock.excludes:
            self.commit(EngineOpened())
        for name in stray:
            self.files.delete(name)


def open_journal(files: Files) -> Journal[Ledger]:
    """Return the journal of a state, not read yet."""
    return Journal(files, fold_json, Ledger(), dump=encode_ledger, load=decode_ledger)


def fold_json(ledger: Ledger, commit: Mapping[str, Any]) -> Ledger:
    """Apply a commit as the journal has it."""
    return fold(ledger, decode(commit))


def peek(url: str) -> Ledger:
    """Read a state's ledger without owning it, also while an engine runs on it."""
    return read_only(open_files(url), fold_json, Ledger(), load=decode_ledger)
