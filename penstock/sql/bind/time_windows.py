"""Spark's ``window(ts, '10 minutes')``, written as an expression of one row.

Spark plans a time window as an operator of its own, which cannot evaluate pairs.  A window that does not overlap the
next one is also a plain expression: the struct of its start and its end.  Both are counted from the first microsecond
of 1970 in UTC (for a TIMESTAMP_NTZ, of the wall clock), plus a start time::

    window(ts, '10 minutes', '10 minutes', '3 minutes')        ... 23:53  00:03  00:13 ...

In:  resolved trees.
Out: trees without time windows, and the ends of buckets that queries group by (`bucket_end`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from penstock.sql.bind.scope import Scope, exact_type
from penstock.sql.query import DAY, Side
from penstock.sql.text.lexer import string_value, tokenize
from penstock.sql.text.tokens import Span
from penstock.sql.text.tree import SUM, ColumnRef, Constant, Form, Tree, binary, cast_type, rebuilt, unwrapped
from penstock.sql.units import UNITS, DurationError, parse_duration, show_duration
from penstock.sql.zones import has_fixed_offset

EPOCH = "TIMESTAMP_NTZ '1970-01-01 00:00:00'"
_FORM = "write window(A.ts, '10 minutes'), or window(A.ts, '10 minutes', '10 minutes', '1 minute') with a start time"
_MAX_ARGUMENTS = len(("time", "length", "slide", "start"))
_MICROS = re.compile("[0-9]{1,18}L?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """Windows of `length` microseconds over the time that a tree computes; one of them begins at `start`."""

    value: Tree
    kind: str
    """The type of the value, if it is known."""
    length: int
    start: int

    @property
    def begin(self) -> Form:
        """The microsecond at which the window of a row begins."""
        micros = self._micros()
        passed = _call("PMOD", micros, f" - {self.start}L, {self.length}L")
        return Form("-", (micros, " - ", passed), SUM, span=self.value.span)

    @property
    def end(self) -> Form:
        """The first microsecond after it."""
        return Form("+", (self.begin, f" + {self.length}L"), SUM, span=self.value.span)

    @property
    def struct(self) -> Form:
        """Its start and end, as Spark's function returns them."""
        parts = ("'start', ", self._time(self.begin), ", 'end', ", self._time(self.end))
        return _call("NAMED_STRUCT", *parts, span=self.value.span)

    def _micros(self) -> Form:
        if self.kind == "date":
            return _call("UNIX_MICROS", _call("CAST", self.value, " AS TIMESTAMP"))
        return _micros(self.kind, self.value)

    def _time(self, micros: Form) -> Form:
        if self.kind == "timestamp_ntz":
            return _call("TIMESTAMPADD", "MICROSECOND, ", micros, f", {EPOCH}")
        return _call("TIMESTAMP_MICROS", micros)


def without_time_windows(scope: Scope, tree: Tree) -> Tree:
    """Replace the time windows in a tree by plain expressions."""
    return rebuilt(tree, lambda node: _rewritten(scope, node))


def is_time_window(tree: Tree) -> bool:
    """Check whether a tree calls Spark's function ``window``."""
    return isinstance(tree, Form) and tree.parts[0] == "WINDOW("


def read_time_window(scope: Scope, call: Form) -> TimeWindow:
    """Read ``window(time, length [, slide [, start]])``."""
    value, *literals = call.trees if 1 < len(call.trees) <= _MAX_ARGUMENTS else (call,)
    lengths = [_length(scope, literal) for literal in literals]
    if not lengths:
        raise scope.error(f"cannot read this window: {_FORM}", call)
    length, *more = lengths
    slide, start = (*more, *(length, 0)[len(more) :])
    if length <= 0:
        raise scope.error(
            f"the length of this window is {show_duration(length)}: it must be positive", literals[0]
        )
    if slide != length:
        long, short = show_duration(length), show_duration(slide)
        raise scope.error(
            f"this window is {long} long and begins every {short}, and a row can be in one only: leave the slide out, "
            f"or, for windows that overlap, write WINDOW {long} EVERY {short} at the end in place of window(...)",
            call,
        )
    return TimeWindow(value, exact_type(scope, unwrapped(value)), length, start % length)


def equal_windows(scope: Scope, tree: Tree) -> tuple[TimeWindow, TimeWindow] | None:
    """Read ``window(a, '1 minute') = window(b, '1 minute')``, or an equality of their starts or ends."""
    if not isinstance(tree, Form) or tree.head != "=":
        return None
    sides = [unwrapped(part) for part in tree.trees]
    fields = {side.parts[-1] for side in sides if isinstance(side, Form) and side.head == "."}
    if len(fields) == 1 and all(isinstance(side, Form) and side.head == "." for side in sides):
        sides = [unwrapped(side.trees[0]) for side in sides if isinstance(side, Form)]
    elif fields:
        return None
    calls = [side for side in sides if isinstance(side, Form) and is_time_window(side)]
    if len(calls) < len(sides):
        return None
    left, right = (read_time_window(scope, call) for call in calls)
    if (left.length, left.start) == (right.length, right.start):
        return left, right
    if fields:
        return None
    one, other = (
        f"{show_duration(window.length)} long and begin at {show_duration(window.start)}"
        for window in (left, right)
    )
    raise scope.error(
        f"the windows of one side are {one}, those of the other {other}, so that no two are equal. Give both one "
        "length and one start time",
        tree,
    )


def _rewritten(scope: Scope, node: Tree) -> Tree:
    if not isinstance(node, Form):
        return node
    if node.parts[0] == "SESSION_WINDOW(":
        raise scope.error("session_window is not supported: group by window(...) or date_trunc(...)", node)
    if node.parts[0] == "WINDOW_TIME(" and len(node.trees) == 1:
        end = Form(".", (node.trees[0], ".`end`"), span=node.span)
        return binary("-", SUM, end, Constant("INTERVAL 1 MICROSECOND", "interval"))
    return read_time_window(scope, node).struct if is_time_window(node) else node


def _length(scope: Scope, tree: Tree) -> int:
    """Read a length of time as Spark does: a text, or a number of microseconds."""
    bare = unwrapped(tree)
    if isinstance(bare, Constant) and bare.kind == "number" and _MICROS.fullmatch(bare.text):
        return int(bare.text.rstrip("Ll"))
    if not isinstance(bare, Constant) or bare.kind != "string":
        raise scope.error(f"this is not a length of time: {_FORM}", tree)
    text = literal_text(bare)
    try:
        return parse_duration(re.sub(r"^\s*interval\b", "", text, flags=re.IGNORECASE))
    except DurationError as error:
        raise scope.error(f"the length {text!r} {error}", tree) from None


def literal_text(constant: Constant) -> str:
    """Return the value of a string literal."""
    return "".join(map(string_value, tokenize(constant.text)))


_SHORT_UNITS = {name: UNITS[name] for name in ("microsecond", "millisecond", "second", "minute", "hour")}
"""Units of ``date_trunc`` with a fixed length, in microseconds."""

_LONG_UNITS = {
    **dict.fromkeys(("day", "dd"), "DATE_ADD({}, 1)"),
    "week": "DATE_ADD({}, 7)",
    **dict.fromkeys(("month", "mon", "mm"), "ADD_MONTHS({}, 1)"),
    "quarter": "ADD_MONTHS({}, 3)",
    **dict.fromkeys(("year", "yyyy", "yy"), "ADD_MONTHS({}, 12)"),
}
"""Units of whole days, and the first day of the next unit."""

_STEPS_OF_DAYS = ("microsecond", "millisecond", "second", "minute", "hour", "day", "dd")
"""Units that ``trunc`` does not support."""


def bucket_end(scope: Scope, key: Tree) -> tuple[Side, Tree] | None:
    """Return the side and the end of the bucket if a group key is one, else None."""
    bare = unwrapped(key)
    if isinstance(bare, Form) and bare.head == "." and is_time_window(unwrapped(bare.trees[0])):
        bare = unwrapped(bare.trees[0])
    for read in (_itself, _truncated, _day, _windowed):
        end = read(scope, bare)
        if end:
            return end
    return None


def _itself(scope: Scope, key: Tree) -> tuple[Side, Tree] | None:
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
    day: Tree = key if is_day else _call("CAST", key, " AS DATE")
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


def _event_time(scope: Scope, tree: Tree) -> ColumnRef | None:
    """Return the column if a tree is the event time of its stream."""
    bare = unwrapped(tree)
    return bare if isinstance(bare, ColumnRef) and scope.side(bare.side).stream.time == bare.name else None


def _unit(tree: Tree) -> str:
    """Read a unit of time in lower case; empty if it is no literal."""
    bare = unwrapped(tree)
    return literal_text(bare).lower() if isinstance(bare, Constant) and bare.kind == "string" else ""


def _short_end(scope: Scope, time: ColumnRef, begin: Form, unit: str) -> Tree:
    """Return the end of a bucket of an hour or less; `begin` is a TIMESTAMP, whatever the type of the time."""
    kind, length = scope.type_of(time), _SHORT_UNITS[unit]
    if kind == "date":
        return _plus(_micros(kind, time), DAY)
    if kind == "timestamp_ntz":
        return _plus(_micros(kind, _call("CAST", begin, " AS TIMESTAMP_NTZ")), length)
    elapsed = _plus(_micros(kind, begin), length)
    if has_fixed_offset(scope.zone) or unit not in {"minute", "hour"}:
        return elapsed
    clock = Form("+", (_call("CAST", begin, " AS TIMESTAMP_NTZ"), f" + INTERVAL 1 {unit.upper()}"), SUM)
    return _call("GREATEST", elapsed, ", ", _call("UNIX_MICROS", _call("CAST", clock, " AS TIMESTAMP")))


def _next(day: Tree, unit: str) -> Form:
    """Return the first day of the next unit."""
    before, after = _LONG_UNITS[unit].split("{}")
    return Form(before, (before, day, after))


def _midnight(kind: str, day: Form) -> Tree:
    """Return the event time at which a day begins."""
    if kind == "date":
        return _micros(kind, day)
    return _micros(kind, _call("CAST", day, f" AS {kind.upper()}"))


def _micros(kind: str, time: Tree) -> Form:
    """Convert a time to microseconds, as ingest does."""
    if kind == "date":
        return Form("*", ("UNIX_DATE(", time, f") * {DAY}L"), SUM)
    if kind == "timestamp_ntz":
        return _call("TIMESTAMPDIFF", f"MICROSECOND, {EPOCH}, ", time)
    return _call("UNIX_MICROS", time)


def _call(function: str, *parts: str | Tree, span: Span = (0, 0)) -> Form:
    return Form(f"{function}(", (f"{function}(", *parts, ")"), span=span)


def _plus(micros: Form, length: int) -> Form:
    return Form("+", (micros, f" + {length}L"), SUM)
