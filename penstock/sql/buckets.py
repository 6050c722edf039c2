"""Group keys that are buckets of an event time: when each bucket ends.

A group by ``date_trunc('hour', A.ts)`` is complete once no row of A can be of that hour any more.  So that the engine
can tell, the end of the bucket is computed beside the key, in microseconds on the scale of event times: since 1970 in
UTC for a TIMESTAMP; for a TIMESTAMP_NTZ or a DATE since 1970 of the wall clock::

    A.ts                                              ends a microsecond later
    date_trunc('hour', A.ts)                          an hour after it begins
    date_trunc('month', A.ts)  trunc(A.ts, 'month')   when the next month begins, in the session's zone
    CAST(A.ts AS DATE)  to_date(A.ts)  A.ts::date     when the next day begins
    window(A.ts, '10 minutes')  and its start, end    at its end

Where a clock is put back, an hour of it may last longer than an hour (01:00 to 02:00 at Lord Howe Island, one and a
half); where no more is known, the later end is taken.

In:  resolved group keys.
Out: the side, and the tree of the end: a BIGINT, never before the real end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.sql.query import DAY, SECOND
from penstock.sql.bind.time_windows import EPOCH, is_time_window, literal_text, read_time_window
from penstock.sql.text.tree import SUM, Column, Constant, Form, cast_type, unwrapped
from penstock.sql.zones import has_fixed_offset

if TYPE_CHECKING:
    from penstock.sql.bind.scope import Scope
    from penstock.sql.query import Side
    from penstock.sql.text.tree import Tree

    Parts = tuple[str | Tree, ...]

_SHORT_UNITS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": SECOND,
    "minute": 60 * SECOND,
    "hour": 3600 * SECOND,
}
"""Units of ``date_trunc`` that are lengths of time, in microseconds."""

_LONG_UNITS = {
    **dict.fromkeys(("day", "dd"), "DATE_ADD({}, 1)"),
    "week": "DATE_ADD({}, 7)",
    **dict.fromkeys(("month", "mon", "mm"), "ADD_MONTHS({}, 1)"),
    "quarter": "ADD_MONTHS({}, 3)",
    **dict.fromkeys(("year", "yyyy", "yy"), "ADD_MONTHS({}, 12)"),
}
"""Units of whole days, and the day on which the next one begins."""

_STEPS_OF_DAYS = ("microsecond", "millisecond", "second", "minute", "hour", "day", "dd")
"""Units that ``trunc`` does not have."""


def bucket_end(scope: Scope, key: Tree) -> tuple[Side, Tree] | None:
    """Give the side and the end of the bucket that a group key is; None if it is none."""
    bare = unwrapped(key)
    if isinstance(bare, Form) and bare.head == "." and is_time_window(unwrapped(bare.trees[0])):
        bare = unwrapped(bare.trees[0])
    for read in (_itself, _truncated, _day, _windowed):
        end = read(scope, bare)
        if end:
            return end
    return None


def _itself(scope: Scope, key: Tree) -> tuple[Side, Tree] | None:
    """Read an event time."""
    time = _event_time(scope, key)
    return (time.side, _plus(_micros(scope.type_of(time), time), 1)) if time else None


def _truncated(scope: Scope, key: Tree) -> tuple[Side, Tree] | None:
    """Read ``date_trunc('unit', time)`` and ``trunc(time, 'unit')``."""
    if not isinstance(key, Form) or key.parts[0] not in {"DATE_TRUNC(", "TRUNC("} or len(key.trees) != 2:  # noqa: PLR2004
        return None
    is_day = key.parts[0] == "TRUNC("
    unit, time = _unit(key.trees[is_day]), _event_time(scope, key.trees[not is_day])
    if time is None or (is_day and unit in _STEPS_OF_DAYS):
        return None
    if unit in _SHORT_UNITS:
        return time.side, _short_end(scope, time, key, unit)
    if unit not in _LONG_UNITS:
        return None
    day: Tree = key if is_day else Form("CAST(", ("CAST(", key, " AS DATE)"))
    return time.side, _midnight(scope.type_of(time), _next(day, unit))


def _day(scope: Scope, key: Tree) -> tuple[Side, Tree] | None:
    """Read a cast of an event time to a date."""
    if not isinstance(key, Form) or len(key.trees) != 1:
        return None
    time = _event_time(scope, key.trees[0])
    if time is None or not (cast_type(key) == "DATE" or key.parts[0] in {"TO_DATE(", "DATE("}):
        return None
    return time.side, _midnight(scope.type_of(time), _next(key, "day"))


def _windowed(scope: Scope, key: Tree) -> tuple[Side, Tree] | None:
    """Read ``window(time, '10 minutes')``."""
    if not isinstance(key, Form) or not is_time_window(key):
        return None
    window = read_time_window(scope, key)
    time = _event_time(scope, window.value)
    if time is None:
        return None
    if scope.type_of(time) != "date":
        return time.side, window.end
    parts = ("UNIX_DATE(CAST(TIMESTAMP_MICROS(", window.end, f" - 1L) AS DATE)) * {DAY}L + {DAY}L")
    return time.side, Form("+", parts, SUM)


def _event_time(scope: Scope, tree: Tree) -> Column | None:
    """Give the column that is the event time of its stream."""
    bare = unwrapped(tree)
    return bare if isinstance(bare, Column) and scope.side(bare.side).stream.time == bare.name else None


def _unit(tree: Tree) -> str:
    """Read a unit of time, in lower case; empty if it is no literal."""
    bare = unwrapped(tree)
    return literal_text(bare).lower() if isinstance(bare, Constant) and bare.kind == "string" else ""


def _short_end(scope: Scope, time: Column, begin: Form, unit: str) -> Tree:
    """Give the end of a bucket of an hour or less; `begin` is a TIMESTAMP, whatever the type of the time."""
    kind, length = scope.type_of(time), _SHORT_UNITS[unit]
    if kind == "date":
        return _plus(_micros(kind, time), DAY)
    if kind == "timestamp_ntz":
        return _plus(_micros(kind, Form("CAST(", ("CAST(", begin, " AS TIMESTAMP_NTZ)"))), length)
    elapsed = _plus(_micros(kind, begin), length)
    if has_fixed_offset(scope.zone) or unit not in {"minute", "hour"}:
        return elapsed
    clock = (
        "UNIX_MICROS(CAST(CAST(",
        begin,
        f" AS TIMESTAMP_NTZ) + INTERVAL 1 {unit.upper()} AS TIMESTAMP))",
    )
    return Form("GREATEST(", ("GREATEST(", elapsed, ", ", Form("UNIX_MICROS(", clock), ")"))


def _next(day: Tree, unit: str) -> Form:
    """Give the first day of the next unit."""
    before, after = _LONG_UNITS[unit].split("{}")
    return Form(before, (before, day, after))


def _midnight(kind: str, day: Form) -> Tree:
    """Give the event time at which a day begins."""
    if kind == "date":
        return _micros(kind, day)
    return _micros(kind, Form("CAST(", ("CAST(", day, f" AS {kind.upper()})")))


def _micros(kind: str, time: Tree) -> Form:
    """Give a time of some type in microseconds, as event times are when rows are read."""
    if kind == "date":
        return Form("*", ("UNIX_DATE(", time, f") * {DAY}L"), SUM)
    if kind == "timestamp_ntz":
        return Form("TIMESTAMPDIFF(", (f"TIMESTAMPDIFF(MICROSECOND, {EPOCH}, ", time, ")"))
    return Form("UNIX_MICROS(", ("UNIX_MICROS(", time, ")"))


def _plus(micros: Form, length: int) -> Form:
    return Form("+", (micros, f" + {length}L"), SUM)
