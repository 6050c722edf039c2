"""The state directory: who owns it, what is in it, and what a crash may have left behind.

    journal/      commits and snapshots: all that is true
    log/          segments, one directory per log, and per roll of a stream whose rows are counted
    checkpoint/   how far Spark has read each source
    late/         rows that came too late, by stream and batch
    pairs/        pairs, stored once per group, read through views
    results/      results of queries with the table sink that have files of their own
    hold/         results that wait for their turn, where order was asked for
    spool/        results on their way to a console or a callback
    identity      what its sinks know this state by
    lock          held by the one engine that may write

In:  a path or url.  Out: the open journal, and a ledger that is the fold of it.
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, cast

from penstock.log import ledger as books
from penstock.log.files import open_files
from penstock.log.journal import Journal, read_only

if TYPE_CHECKING:
    from penstock.log.files import Files
    from penstock.log.journal import JSON
    from penstock.log.ledger import Json, Ledger


class Store:
    """A state directory, owned."""

    def __init__(self, url: str) -> None:
        """Take ownership and read the journal; refuse if another engine has it."""
        self.files: Files = open_files(url)
        self._lock = self.files.lock("lock")
        try:
            self.journal: Journal[Ledger] = Journal(
                self.files, books.fold, books.Ledger(), dump=books.dump, load=_load
            )
            self.journal.recover()
            self._remove_leftovers()
        except BaseException:
            self._lock.release()
            raise

    @cached_property
    def identity(self) -> str:
        """Give what this state is known by, wherever it is moved; made when first asked for."""
        with suppress(FileExistsError):
            self.files.put_if_absent("identity", uuid.uuid4().hex.encode())
        return self.files.read("identity").decode()

    @property
    def ledger(self) -> Ledger:
        """Give what is true now."""
        return self.journal.state

    def commit(self, commit: Json) -> None:
        """Make something true."""
        self.journal.commit(commit)

    def close(self) -> None:
        """Give up ownership."""
        self._lock.release()

    def _remove_leftovers(self) -> None:
        """Delete segments and hold files that no commit names: written by tasks whose commit never came."""
        known = self.ledger.files()
        stray = [
            name
            for kind in ("log", "hold", "pairs", "results")
            for folder in self.files.list(kind)
            for file in self.files.list(f"{kind}/{folder}")
            if (name := f"{kind}/{folder}/{file}") not in known
        ]
        if stray:
            # Where there is no lock (object stores), this commit fences an engine that is still running, so that it
            # cannot commit one of the files deleted next.
            self.commit({"kind": "opened"})
        for name in stray:
            self.files.delete(name)


def _load(snapshot: JSON) -> Ledger:
    """Read a snapshot of the journal."""
    return books.load(cast("Json", snapshot))


def peek(url: str) -> Ledger:
    """Read a state's ledger without owning it, also while an engine runs on it."""
    return read_only(open_files(url), books.fold, books.Ledger(), load=_load)
