"""How much event time a run that ends has still to read: an estimate.

Such a run reads the files that are there when it begins, so they can be counted; those read so far tell how much event
time a file brings::

    files        ▪ ▪ ▪ ▪ ▪ ▪ ▪  ▫ ▫         7 read, 2 unread
    event time     ├─ 60 s ──┤              6 files since the first batch brought 10 s each: some 20 s are unread

The answers ask for it: shortly before the end it pays to wait for the rest.  It is a hint: no result depends on it.

In:  a stream's directory, and what the journal says of each batch.  Out: microseconds, or None where nobody knows.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from penstock.engine.ingest.source_folder import folder_and_name

if TYPE_CHECKING:
    from penstock.engine.ingest.source_folder import SourceFolder
    from penstock.log.checkpoint import Checkpoint


class UnreadTime:
    """Estimates how much event time of one stream is still unread."""

    def __init__(self) -> None:
        """Begin with nothing known."""
        self.micros: int | None = None
        """The event time that is unread, in microseconds: 0 if all is read, None if it cannot be told."""
        self._unread: set[str] | None = None
        self._first: tuple[int, int] | None = None
        """After the first batch: files that were unread, and the time of the newest row."""

    def begin(self, folder: SourceFolder, origin: dict[str, Any] | None, checkpoint: Checkpoint) -> None:
        """List the files that the run will read, after the batches that the journal has."""
        with suppress(OSError, KeyError):  # a hint is not worth a failure
            self._unread = folder.unread() if folder.learn(origin, checkpoint) else None
        self.micros = 0 if self._unread == set() else None

    def note_batch(self, origin: dict[str, Any] | None, newest: int | None) -> None:
        """Take note of a batch, after which the stream's newest row has this time."""
        if self._unread is None:
            return  # nothing is estimated, as in all runs without an end
        names = _names_in(origin)
        if names is None or newest is None:
            self._unread = self.micros = None
            return
        self._unread -= names
        unread = len(self._unread)
        if self._first is None:
            self._first = unread, newest
        read, passed = self._first[0] - unread, newest - self._first[1]
        if not unread:
            self.micros = 0
        elif read:
            self.micros = max(1, unread * passed // read)


def _names_in(origin: dict[str, Any] | None) -> set[str] | None:
    """Name the files of a batch; None where its origin does not, since they are too many.

    >>> _names_in({"entries": {"0": {"7": [["file:/in/a%20b.parquet", 0]]}}}), _names_in({"entries": {"0": None}})
    ({'a b.parquet'}, None)
    """
    entries = [] if origin is None else list(origin.get("entries", {}).values())
    if not entries or None in entries:
        return None
    urls = (str(url) for files in entries for each in files.values() for url, _ in each)
    return {folder_and_name(url)[1] for url in urls}
