"""Results of a query become rows of the stream that other queries read: a batch of what its units have found.

The unit's commit names the files of results; the batch's commit puts their rows into the logs and does without the
files.  So a result is a row once, wherever a process dies::

    unit of q1   ══ commit: cursor moved, results in files ──▶ batch of q1's stream   ══ commit: rows in, files gone
                                                           └─▶ (again, if it was cut off before)

In:  the files, and what is known of the results still to come.  Out: a ``batch`` commit.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.engine.sources.batch_ingest import Batch, BatchIngest

if TYPE_CHECKING:
    from penstock.engine.backend import Backend
    from penstock.engine.store import Store
    from penstock.plan.build import Plan
    from penstock.sql.query import Stream
    from penstock.state.commits import BatchIngested


class ResultIngest(BatchIngest[Batch]):
    """Feeds the results of a query into the logs of those that read it."""

    def __init__(self, store: Store, backend: Backend[Batch], plan: Plan, stream: Stream) -> None:
        """Get ready for one batch of all that waits."""
        super().__init__(store, backend, plan, stream)
        waiting = store.ledger.fed[stream.name]
        self.files = tuple(file for each in waiting for file in each.files)
        self._arrived = max(each.arrived for each in waiting)
        self._above: int | None = None

    def take(self, above: int | None) -> None:
        """Put the results into the logs, and let their files go; all that come later are `above` a value, if known."""
        self._above = above
        number = self.store.ledger.stream(self.stream.name).source_batch + 1
        self.ingest(self.rows(), number, None, self._arrived)
        for each in self.files:
            self.store.let_go(each.name)

    def rows(self) -> Any:
        """Give the results as a batch."""
        return self.backend.fed_rows(self.files, self.stream)

    def completed(self, commit: BatchIngested) -> BatchIngested:
        """Say that the files are done with, and what is still to come."""
        watched = {log: replace(each, above=self._above) for log, each in commit.watched.items()}
        return replace(commit, watched=watched, fed=tuple(each.name for each in self.files))
