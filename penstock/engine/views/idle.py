"""Streams that send nothing: for how long, and whether a query still waits for them.

A stream that sends nothing would hold up what waits for it for ever.  Where a query has an `idle_after`, a stream that
has been silent for so long is left out: rows that wait for it are joined, results held for it released.  If it comes
back with older rows, their results are delivered late in the sequence rather than not at all, and counted.

In:  the plan, the ledger, and the clock.  Out: whether a stream is idle, and when the next one may be.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from penstock.sql.query import SECOND
from penstock.sql.units import parse_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from penstock.plan.build import Plan
    from penstock.plan.group import Group
    from penstock.sql.query import Query
    from penstock.state.ledger import Ledger


@dataclass(frozen=True)
class IdleClock:
    """For how long each stream has sent nothing: since its last rows were committed, or since the engine started."""

    started: float = field(default_factory=time.time)
    has_input: Callable[[], Container[str]] = tuple
    """Asked for the streams whose source has input: those are not silent."""

    def seconds(self, ledger: Ledger, stream: str) -> float:
        """Give the seconds since a stream's last rows."""
        return time.time() - max(self.started, ledger.stream(stream).heard)

    def is_idle(self, ledger: Ledger, query: Query, stream: str) -> bool:
        """Say whether a query need not wait for a stream any more."""
        return self._lasts(ledger, stream, idle_after(query))

    def lets_join(self, plan: Plan, ledger: Ledger, group: Group) -> bool:
        """Say whether input of a group has waited long enough for a stream that is idle: the least patient counts."""
        patience = [
            after for each in plan.families[group.id].impatient if (after := idle_after(each)) is not None
        ]
        least = min(patience, default=None)
        return any(self._lasts(ledger, stream, least) for stream in {log.stream for log in group.logs})

    def _lasts(self, ledger: Ledger, stream: str, after: float | None) -> bool:
        """Say whether a stream has been silent for so many seconds; Spark is asked only if it seems so."""
        return after is not None and self.seconds(ledger, stream) >= after and stream not in self.has_input()

    def until_idle(self, plan: Plan, ledger: Ledger) -> float | None:
        """Give the seconds until some query may leave out the next stream; None if that will not be."""
        awaited = {
            (stream, idle_after(query))
            for family in plan.families.values()
            for query in family.impatient
            for stream in query.streams
        }
        left = [after - self.seconds(ledger, stream) for stream, after in awaited if after is not None]
        busy = any(each <= 0 for each in left) and any(stream in self.has_input() for stream, _ in awaited)
        coming = [each for each in left if each > 0] + ([LOOK_AGAIN] if busy else [])
        return min(LONGEST_SLEEP, *coming) if coming else None


LOOK_AGAIN = 0.5
"""Seconds after which a stream that is silent but for rows on their way is looked at again."""


LONGEST_SLEEP = 3600.0


def idle_after(query: Query) -> float | None:
    """Give the seconds of silence after which a query leaves a stream out; None: it waits for ever."""
    given = dict(query.options).get("idle_after")
    return None if given is None else _seconds(given)


@cache
def _seconds(text: str) -> float:
    """Read a length of time."""
    return parse_duration(text) / SECOND
