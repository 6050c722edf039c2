"""A stream at rest: its last batch is in, and Spark hears of that only when its source has more.

Spark asks an idle source many times a second, and each time it lists the whole directory.  It does not while a batch is
on its way; so the last batch stays here, committed and done with, until the directory has news
(`penstock.engine.ingest.source_folder`).  Spark then notes that the batch is done, and looks at once::

    Spark      batch 7 ─▶┌ call ────────────────────────────────┐─▶ note: 7 is done ─▶ list ─▶ batch 8 ─▶ …
    here                 └ ingest ▸ commit ▸ rest …… news! ──────┘
    journal                        7 is true

For the journal nothing is open: a plan may change, partners do not wait, and a process that ends here is handed batch 7
once more, which is passed over.  Whoever needs Spark to go on says so: `end`, and `kept_awake`.

In:  the stream's directory, and whether Spark still runs its query.  Out: nothing but time.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.engine.ingest.source_folder import SourceFolder
    from penstock.log.checkpoint import Checkpoint

LOOK_SECONDS, LONGEST_LOOK_SECONDS = 0.01, 0.025
"""Seconds between two looks at the directory: at first, and when nothing has come for long."""

_RESTED_SHARE = 100
"""They grow with the time that nothing has come: a hundredth of it."""

_LOOKS_SHARE = 4
"""Looks are apart at least so many times what the last one took."""

ASK_SECONDS = 1.0
"""Seconds between two questions whether Spark still runs the query: somebody may have stopped it by Spark's own means,
which waits for this batch."""


class Rest:
    """Lets a stream rest."""

    def __init__(self, folder: SourceFolder, is_active: Callable[[], bool]) -> None:
        """Get ready; `is_active` says whether Spark still runs the query."""
        self.folder = folder
        self.at_rest = False
        self._is_active = is_active
        self._changed = threading.Condition()
        self._awake = 0
        self._ended = False

    def rest(self) -> None:
        """Return when there is news, or somebody needs Spark to go on."""
        with self._changed:
            began = asked = time.monotonic()
            while not (self._ended or self._awake or self.folder.has_news()):
                self.at_rest = True
                self._changed.wait(self._pause(time.monotonic() - began))
                if time.monotonic() - asked > ASK_SECONDS:
                    if not self._is_active():
                        break
                    asked = time.monotonic()
            self.at_rest = False

    def _pause(self, rested: float) -> float:
        """Give the seconds until the next look, after so many of rest."""
        usual = min(LONGEST_LOOK_SECONDS, max(LOOK_SECONDS, rested / _RESTED_SHARE))
        return max(usual, _LOOKS_SHARE * self.folder.listing_seconds)

    def knows(self, origin: dict[str, Any] | None, checkpoint: Checkpoint) -> bool:
        """Take note of all files up to a batch; say whether they are known."""
        with self._changed:
            return self.folder.learn(origin, checkpoint)

    def has_news(self) -> bool:
        """Look at the directory now; a stream at rest with news goes on at once."""
        with self._changed:
            news = self.folder.has_news(now=True)
            if news:
                self._changed.notify_all()
            return news

    def end(self) -> None:
        """Rest no more."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    @contextmanager
    def kept_awake(self) -> Iterator[None]:
        """Let Spark go on meanwhile."""
        with self._changed:
            self._awake += 1
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._awake -= 1
