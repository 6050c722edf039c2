"""The directory of a source of files: does it have a file that Spark has not read?

Spark's source lists the whole directory whenever it is asked, and that is dear.  Here the same question is answered
from what Spark has written down of the files it has found::

    Spark's log of files ──learn──▶ known names          the directory's date     every look: some microseconds
                                        │                its names                when the date has changed, and now
                                        ▼                                         and then, since dates are coarse
                       a name that is not known: news

It is Spark's own rule (`FileStreamSource`): a file is new if its name is not among those read in the last seven days,
counted back from the newest file, and if it is not older than that itself.  Hidden files are passed over.  Whatever
cannot be told from names (`unclear`) counts as news, and Spark looks for itself: a directory in the directory, one that
is gone, one whose files count when Spark's own sink has noted them.  But a file that Spark would read is never passed
over: so sources with options that change the rule have no folder here.

In:  a stream, the origin of its last batch, and the source's log.  Out: whether there is news, or which files.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from penstock.engine.ingest.sources import source_path
from penstock.log.locations import is_local, is_pattern
from penstock.log.origin import file_sources
from penstock.sql.streams import FILE_FORMATS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.log.checkpoint import Checkpoint, FileEntry
    from penstock.sql.query import Stream

_OTHER_RULES = frozenset(
    {
        "latestfirst",
        "filenameonly",
        "maxfileage",
        "cleansource",
        "sourcearchivedir",
        "pathglobfilter",
        "recursivefilelookup",
        "modifiedbefore",
        "modifiedafter",
        "basepath",
    }
)
"""Options of a source that change which files are new, or that let Spark tidy up after a batch."""

_MAX_AGE = 7 * 24 * 3600 * 1000
"""Milliseconds that a file may be older than the newest one, if it is to be read: Spark's `maxFileAge`."""

_SLACK = 2000
"""Milliseconds by which the date of a file may be told differently here and by Spark."""

SHORTEST_GAP, LONGEST_GAP = 0.02, 4.0
"""Seconds between two lists of names while the directory's date stays the same: each gap is twice the one before."""

_LISTS_SHARE = 50
"""A gap is at least so many times what a list takes."""


class SourceFolder:
    """Knows which files of a directory Spark has read."""

    def __init__(self, path: str) -> None:
        """Begin with a directory of which nothing is read."""
        self.path = path
        self._folder = Path(path)
        self.unclear = False
        """Whether the last list of names did not tell what is new."""
        self.listing_seconds = 0.0
        """What that list took."""
        self._known: dict[str, int] = {}
        self._through = -1
        self._newest = 0
        self._date: tuple[int, int, int] | None = None
        self._gap, self._list_again = SHORTEST_GAP, 0.0

    @classmethod
    def of(cls, stream: Stream) -> SourceFolder | None:
        """Give the directory of a stream, if its source reads a single one on this machine by Spark's usual rule."""
        if stream.format.lower() not in FILE_FORMATS:
            return None
        path = source_path(stream)
        usual = not any(name.lower() in _OTHER_RULES for name, _ in stream.options)
        return cls(path) if usual and is_local(path) and not is_pattern(path) else None

    def learn(self, origin: dict[str, Any] | None, checkpoint: Checkpoint) -> bool:
        """Take note of all files up to a batch; say whether they are known."""
        if origin is None:
            return self._through < 0
        sources = list(file_sources(origin))
        if len(sources) != 1 or origin["begun"]:
            return False
        ((name, last),) = sources
        if last == self._through:
            return True
        entries = origin["entries"][name]
        if entries is None or origin["after"][name] != self._through:
            found = checkpoint.source(name).files_up_to(last)
        else:
            found = [(str(url), int(changed)) for files in entries.values() for url, changed in files]
        if found is None:
            return False
        self._add(found)
        self._through = last
        return True

    def _add(self, files: Iterable[FileEntry]) -> None:
        """Know some more files, and forget those that Spark has forgotten."""
        for url, changed in files:
            folder, name = folder_and_name(url)
            self._newest = max(self._newest, changed)
            if folder == self.path.rstrip("/"):
                self._known[name] = changed
        if self._known and min(self._known.values()) < self._oldest:
            self._known = {name: each for name, each in self._known.items() if each >= self._oldest}
        self._date = None

    @property
    def _oldest(self) -> int:
        """The date from which on files count."""
        return self._newest - _MAX_AGE

    def has_news(self, *, now: bool = False) -> bool:
        """Say whether there is a file that Spark has not read; look at the names `now`, or only if it seems so."""
        began = time.monotonic()
        date = _date_of(self._folder)
        if date is not None and date == self._date and began < self._list_again and not now:
            return False
        news = self._has_unknown()
        self.listing_seconds = time.monotonic() - began
        self._gap = min(2 * self._gap, LONGEST_GAP) if date == self._date else SHORTEST_GAP
        self._list_again = began + max(self._gap, _LISTS_SHARE * self.listing_seconds)
        self._date = None if news else date
        return news

    def unread(self) -> set[str] | None:
        """List the files there now that Spark has not read; None if names do not tell."""
        try:
            shown = self._unknown()
            return None if shown is None else {each.name for each in shown if self._counts(each)}
        except OSError:
            return None

    def _has_unknown(self) -> bool:
        """Say whether some file is unread, as far as names tell, and whether they do."""
        try:
            shown = self._unknown()
            self.unclear = shown is None
            return shown is None or any(map(self._counts, shown))
        except OSError:
            self.unclear = True
            return True

    def _unknown(self) -> list[os.DirEntry[str]] | None:
        """List the entries whose names are not known; None if they are not what counts."""
        with os.scandir(self.path) as entries:
            unknown = [each for each in entries if each.name not in self._known]
        shown = [each for each in unknown if not _is_hidden(each.name)]
        noted = bool(shown) and (self._folder / _SINK_LOG).exists()
        return None if noted or any(each.is_dir() for each in shown) else shown

    def _counts(self, file: os.DirEntry[str]) -> bool:
        """Say whether a file that is not known is young enough to be read."""
        return file.stat().st_mtime_ns // 1_000_000 >= self._oldest - _SLACK


_SINK_LOG = "_spark_metadata"
"""Where Spark's own sink of files notes which of them count."""


def folder_and_name(url: str) -> tuple[str, str]:
    """Divide the address that Spark's log has of a file.

    >>> folder_and_name("file:///in/a%20b.parquet")
    ('/in', 'a b.parquet')
    """
    folder, _, name = unquote(urlsplit(url).path).rpartition("/")
    return folder, name


def _date_of(folder: Path) -> tuple[int, int, int] | None:
    """Give what changes when a directory gets a file; None if it is not there."""
    try:
        stat = folder.stat()
    except OSError:
        return None
    return stat.st_dev, stat.st_ino, stat.st_mtime_ns


def _is_hidden(name: str) -> bool:
    """Say whether Spark passes over a file by its name.

    >>> [name for name in ("a", ".a", "_a", "_a=1", "_metadata", "a._COPYING_") if _is_hidden(name)]
    ['.a', '_a', 'a._COPYING_']
    """
    if name.startswith(("_metadata", "_common_metadata")):
        return False
    return (name.startswith("_") and "=" not in name) or name.startswith(".") or name.endswith("._COPYING_")
