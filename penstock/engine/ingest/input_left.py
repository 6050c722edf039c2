"""How much of its input a run that ends has still to read: an estimate, in event time.

Such a run reads the files that are there when it begins, so they can be counted; and so far, each brought some time::

    files        ▪ ▪ ▪ ▪ ▪ ▪ ▪  ▫ ▫         7 read, 2 left
    event time   ├──── 60 s ───┤            10 s a file: some 20 s are left

Who answers many questions together asks for it: shortly before the end it pays to wait for the rest.  Nothing that is
true depends on it.

In:  a stream's directory, and what the journal says of its last batch.  Out: microseconds, or None where nobody knows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.engine.ingest.source_folder import SourceFolder
    from penstock.log.checkpoint import Checkpoint


class InputLeft:
    """Knows the files of one stream that a run has still to read."""

    def __init__(self, folder: SourceFolder, checkpoint: Checkpoint) -> None:
        """Begin with a directory; `begin` looks at it."""
        self._folder, self._checkpoint = folder, checkpoint
        self._names: frozenset[str] | None = None
        self._since: tuple[int, int] | None = None
        self._left: int | None = None

    def begin(self, origin: dict[str, Any] | None) -> None:
        """List the files that the run will read, after the batches that the journal has."""
        if self._folder.learn(origin, self._checkpoint):
            self._names = self._folder.unread()

    def took(self, origin: dict[str, Any] | None, newest: int | None) -> None:
        """Take note of a batch, after which the stream's newest row has this time."""
        if self._names is None or newest is None:
            return
        if not self._folder.learn(origin, self._checkpoint):
            self._names = self._left = None
            return
        left = len(self._folder.unread_of(self._names))
        read = len(self._names) - left
        if self._since is None:
            self._since = read, newest
        files, time = read - self._since[0], newest - self._since[1]
        if files or not left:
            self._left = left * time // max(files, 1)

    @property
    def micros(self) -> int | None:
        """Give the event time that is left, in microseconds; None if it cannot be told."""
        return self._left
