"""Warn of streams many of whose rows are late: their lateness is too short, and results are missed.

In:  a stream, and how far it is.  Out: a sentence, or None.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.sql.query import SECOND
from penstock.sql.units import show_duration

if TYPE_CHECKING:
    from penstock.sql.query import Stream
    from penstock.state.values import StreamState

LATE_SHARE = 0.1
"""The share of late rows of a stream from which on a status warns."""

_MILLISECOND = 1_000


def late_share(state: StreamState) -> float:
    """Return the share of a stream's rows that came too late; 0 before its first row."""
    return state.late / state.rows if state.rows else 0.0


def late_warning(stream: Stream, state: StreamState) -> str | None:
    """Warn if many rows of a stream are late, and name the lateness that would have been enough; else return None.

    >>> from penstock.state.values import StreamState
    >>> from penstock.sql.query import Column, Stream
    >>> late_warning(
    ...     Stream("Payments", (Column("ts", "timestamp"),), "ts", lateness=5 * SECOND),
    ...     StreamState(rows=100, late=79, behind=40_100_000),
    ... )
    '79 % of Payments late: raise `lateness`, now 5 s; the latest row was 41 s behind'
    """
    share = late_share(state)
    if share < LATE_SHARE:
        return None
    behind = f"; the latest row was {_rounded_up(state.behind)} behind" if state.behind else ""
    return (
        f"{100 * share:.0f} % of {stream.name} late: "
        f"raise `lateness`, now {show_duration(stream.lateness)}{behind}"
    )


def _rounded_up(micros: int) -> str:
    """Write a length of time to the next second, or millisecond: a lateness of so much would have been enough."""
    unit = SECOND if micros >= SECOND else _MILLISECOND
    return show_duration(-(-micros // unit) * unit)
