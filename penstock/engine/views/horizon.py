"""The horizon of a query: the event time below which all its input has arrived and is joined.

It is the lowest watermark of the query's inputs at its slowest slice.  A stream that sends nothing would stop it for
ever.  A query with `idle_after` ignores streams that have been silent for that long: rows that wait for them are
joined, and held results are released.  Older rows that come later are still joined; their results come late in the
sequence, and are counted.

In:  the plan, the ledger, and the clock.  Out: horizons, and which streams are idle.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from penstock import limits
from penstock.plan.order_policy import trigger
from penstock.sql.query import SECOND
from penstock.sql.units import parse_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator

    from penstock.plan.build import Plan
    from penstock.plan.group import Group
    from penstock.sql.query import Query, Side
    from penstock.state.ledger import Ledger

_END_OF_TIME = 1 << 62
"""The horizon if every stream is idle."""


def horizon(plan: Plan, ledger: Ledger, query: str, idle: IdleClock | None = None) -> int | None:
    """Return the time below which a query has all its pairs, from all groups; None if there is none.

    With a clock, streams that the query treats as idle are ignored.
    """
    marks = [mark for _, mark in _marks(plan, ledger, query, idle)]
    return trigger(marks) if marks else _END_OF_TIME


def side_marks(
    plan: Plan, ledger: Ledger, query: Query, idle: IdleClock | None = None
) -> dict[Side, int | None]:
    """Return, by input of a query, the time below which all its rows are joined; None if not known."""
    marks: dict[Side, list[int | None]] = {side: [] for side in query.sides}
    for side, mark in _marks(plan, ledger, query.name, idle):
        marks[side].append(mark)
    return {side: trigger(known) if known else _END_OF_TIME for side, known in marks.items()}


def _marks(
    plan: Plan, ledger: Ledger, query: str, idle: IdleClock | None
) -> Iterator[tuple[Side, int | None]]:
    """List the watermarks of the slowest slice that a query reads in each group, without idle streams."""
    for group, _, member in plan.groups_of(query):
        state = ledger.groups.get(group.id)
        if state is None:
            yield from ((side, None) for side in group.sides)
            continue
        slices = group.chain.read_by(query)
        joined = min(state.cursors[number] for number in slices).batches
        watermarks = state.watermarks_of(slices)
        for side, stream, mark, batches in zip(group.sides, group.streams, watermarks, joined, strict=True):
            has_new_rows = batches < ledger.stream(stream).batches
            if idle is None or has_new_rows or not idle.is_idle(ledger, member.query, stream):
                yield side, mark


@dataclass(frozen=True)
class IdleClock:
    """Measures how long each stream has sent nothing: since its last commit, or since the engine started."""

    started: float = field(default_factory=time.time)
    has_input: Callable[[], Container[str]] = tuple
    """Returns the streams whose source has input: these are not idle."""

    def seconds(self, ledger: Ledger, stream: str) -> float:
        """Return the seconds since a stream's last rows."""
        return time.time() - max(self.started, ledger.stream(stream).last_rows_at)

    def is_idle(self, ledger: Ledger, query: Query, stream: str) -> bool:
        """Return whether a query may ignore a stream."""
        return self._is_silent(ledger, stream, idle_after(query))

    def lets_join(self, plan: Plan, ledger: Ledger, group: Group) -> bool:
        """Return whether a stream of a group is idle for one of its queries, so that waiting input is joined."""
        thresholds = [
            after for query in plan.families[group.id].impatient if (after := idle_after(query)) is not None
        ]
        least = min(thresholds, default=None)
        return any(self._is_silent(ledger, stream, least) for stream in {log.stream for log in group.logs})

    def _is_silent(self, ledger: Ledger, stream: str, after: float | None) -> bool:
        """Return whether a stream has been silent for so long; Spark is asked only if its last commit is that old."""
        return after is not None and self.seconds(ledger, stream) >= after and stream not in self.has_input()

    def until_idle(self, plan: Plan, ledger: Ledger) -> float | None:
        """Return the seconds until the next stream may become idle for some query; None if none can."""
        awaited = {
            (stream, idle_after(query))
            for family in plan.families.values()
            for query in family.impatient
            for stream in query.streams
        }
        left = [after - self.seconds(ledger, stream) for stream, after in awaited if after is not None]
        busy = any(seconds <= 0 for seconds in left) and any(
            stream in self.has_input() for stream, _ in awaited
        )
        coming = [seconds for seconds in left if seconds > 0]
        coming += [limits.BUSY_STREAM_POLL_SECONDS] if busy else []
        return min(limits.MAX_IDLE_WAIT_SECONDS, *coming) if coming else None


def idle_after(query: Query) -> float | None:
    """Return the seconds of silence after which a query ignores a stream; None: never."""
    given = dict(query.options).get("idle_after")
    return None if given is None else _seconds(given)


@cache
def _seconds(text: str) -> float:
    return parse_duration(text) / SECOND
