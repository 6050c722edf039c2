"""Spark's ``window(ts, '10 minutes')``, written as an expression of one row.

Spark plans a time window as an operator of its own, which cannot stand where pairs are evaluated.  A window that does
not overlap the next one is also a plain expression: the struct of its start and its end, counted from the first
microsecond of 1970 in UTC (for a TIMESTAMP_NTZ, of the wall clock), plus a start time::

    window(ts, '10 minutes', '10 minutes', '3 minutes')        ... 23:53  00:03  00:13 ...

In:  resolved trees.
Out: trees without time windows, and `TimeWindow`s for whoever asks when one ends.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.sql.units import DurationError, parse_duration, show_duration
from penstock.sql.keys import exact_type
from penstock.sql.text.lexer import string_value, tokenize
from penstock.sql.text.tree import SUM, Constant, Form, binary, rebuilt, unwrapped

if TYPE_CHECKING:
    from penstock.sql.bind.scope import Scope
    from penstock.sql.text.tree import Tree

EPOCH = "TIMESTAMP_NTZ '1970-01-01 00:00:00'"
_FORM = "write window(A.ts, '10 minutes'), or window(A.ts, '10 minutes', '10 minutes', '1 minute') with a start time"
_MOST_ARGUMENTS = len(("time", "length", "slide", "start"))
_MICROS = re.compile("[0-9]{1,18}L?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """The windows of `length` microseconds, one of which begins at `start`, of the time that is the value of a tree."""

    value: Tree
    kind: str
    """The type of the value, if it is known."""
    length: int
    start: int

    @property
    def begin(self) -> Form:
        """Give the microsecond at which the window of a row begins."""
        micros = self._micros()
        inside = ("PMOD(", micros, f" - {self.start}L, {self.length}L)")
        return Form("-", (micros, " - ", Form("PMOD(", inside)), SUM, span=self.value.span)

    @property
    def end(self) -> Form:
        """Give the first microsecond that is no longer in it."""
        return Form("+", (self.begin, f" + {self.length}L"), SUM, span=self.value.span)

    @property
    def struct(self) -> Form:
        """Give its start and end as Spark's function does."""
        parts = ("NAMED_STRUCT('start', ", self._time(self.begin), ", 'end', ", self._time(self.end), ")")
        return Form("NAMED_STRUCT(", parts, span=self.value.span)

    def _micros(self) -> Form:
        if self.kind == "timestamp_ntz":
            return Form("TIMESTAMPDIFF(", (f"TIMESTAMPDIFF(MICROSECOND, {EPOCH}, ", self.value, ")"))
        if self.kind == "date":
            return Form("UNIX_MICROS(", ("UNIX_MICROS(CAST(", self.value, " AS TIMESTAMP))"))
        return Form("UNIX_MICROS(", ("UNIX_MICROS(", self.value, ")"))

    def _time(self, micros: Form) -> Form:
        if self.kind == "timestamp_ntz":
            return Form("TIMESTAMPADD(", ("TIMESTAMPADD(MICROSECOND, ", micros, f", {EPOCH})"))
        return Form("TIMESTAMP_MICROS(", ("TIMESTAMP_MICROS(", micros, ")"))


def without_time_windows(scope: Scope, tree: Tree) -> Tree:
    """Rewrite the time windows in a tree."""
    return rebuilt(tree, lambda node: _rewritten(scope, node))


def is_time_window(tree: Tree) -> bool:
    """Say whether a tree is the call of Spark's function ``window``."""
    return isinstance(tree, Form) and tree.parts[0] == "WINDOW("


def read_time_window(scope: Scope, call: Form) -> TimeWindow:
    """Read ``window(time, length [, slide [, start]])``."""
    value, *literals = call.trees if 1 < len(call.trees) <= _MOST_ARGUMENTS else (call,)
    lengths = [_length(scope, each) for each in literals]
    if not lengths:
        raise scope.error(f"cannot read this window: {_FORM}", call)
    length, slide, start = (*lengths, *(lengths[:1], [])[len(lengths) > 1], 0)[:3]
    if length <= 0:
        raise scope.error(
            f"the length of this window is {show_duration(length)}: it must be positive", literals[0]
        )
    if slide != length:
        long, short = show_duration(length), show_duration(slide)
        raise scope.error(
            f"this window is {long} long and begins every {short}, and a row can be in one only: leave the slide out, "
            f"or, for windows that overlap, leave window(...) out and write WINDOW {long} EVERY {short} at the end",
            call,
        )
    return TimeWindow(value, exact_type(scope, unwrapped(value)), length, start % length)


def equal_windows(scope: Scope, tree: Tree) -> tuple[TimeWindow, TimeWindow] | None:
    """Read ``window(a, '1 minute') = window(b, '1 minute')``, of the windows or of their starts; None of all else."""
    if not isinstance(tree, Form) or tree.head != "=":
        return None
    sides = [unwrapped(each) for each in tree.trees]
    fields = {each.parts[-1] for each in sides if isinstance(each, Form) and each.head == "."}
    if len(fields) == 1 and all(isinstance(each, Form) and each.head == "." for each in sides):
        sides = [unwrapped(each.trees[0]) for each in sides if isinstance(each, Form)]
    elif fields:
        return None
    calls = [each for each in sides if isinstance(each, Form) and is_time_window(each)]
    if len(calls) < len(sides):
        return None
    left, right = (read_time_window(scope, each) for each in calls)
    if (left.length, left.start) == (right.length, right.start):
        return left, right
    if fields:
        return None
    one, other = (
        f"{show_duration(each.length)} long and begin at {show_duration(each.start)}"
        for each in (left, right)
    )
    raise scope.error(
        f"the windows of one side are {one}, those of the other {other}, so that none equals another. Give both one "
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
    """Read a length of time that Spark takes here: a text, or a number of microseconds."""
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
    """Give what a string literal says."""
    return "".join(map(string_value, tokenize(constant.text)))
