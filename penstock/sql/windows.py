"""The two window clauses that are not SQL: ``WINDOW 1 min`` and ``A [RANGE 12 HOURS]``.

Both are found among the tokens and taken out before the rest is read.  What they say is a `WindowSpec`
per stream; `window_range` turns the two into the one range of differences a query admits::

    A [RANGE 5 s], B [RANGE 2 s]      d = T_B - T_A

         B older                 B younger
    ------|-----------0--------------------------|------>  d
        -2 s + 1 µs                             5 s
          [======================================)         Range.window(5 s, 2 s)

A row of A is held for A's window: it meets the younger rows of B, hence A's window is the right end.  A window may
count rows instead of time, each stream by itself.

In:  the tokens of one SELECT.
Out: `Clauses` and the tokens without them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from penstock.sql.interval import DurationError, parse_duration, show_duration
from penstock.sql.query import FOREVER, Range
from penstock.sql.tokens import Source, Span, depths, joined, span_of_tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.errors import SqlError
    from penstock.sql.lexer import Token

_NOT_A_CLAUSE_AFTER = {
    ".", ",", "AS", "SELECT", "WHERE", "ON", "AND", "OR", "NOT", "=", "==", "<>", "!=", "<=>", "<", "<=", ">", ">=",
    "+", "-", "*", "/", "%", "||", "|", "&", "^", "LIKE", "IN", "BETWEEN", "CASE", "WHEN", "THEN", "ELSE", "DIV",
}  # fmt: skip
"""After one of these, WINDOW is the name of a column (unless a number follows)."""

_NOT_A_CLAUSE_BEFORE = {
    *_NOT_A_CLAUSE_AFTER, "(", "[", "IS", "FROM", "RLIKE", "REGEXP", "ILIKE",
} - {"-", "CASE"}  # fmt: skip
"""Before one of these too; but a dash begins a negative length, which gets an error of its own."""

_WHOLE_NUMBER = re.compile("-?[0-9]+")
_DIGIT = frozenset("0123456789")
_MOST_ROWS_DIGITS = 18
"""A number of rows with more digits counts as unbounded."""

_FORMS = "write WINDOW 10 seconds, or any number and unit"
_BRACKET_FORMS = "a window after a stream is [RANGE 10 seconds], [ROWS 500], [NOW] or [UNBOUNDED]"


@dataclass(frozen=True, slots=True)
class WindowSpec:
    """A window as stated: a length of time in microseconds, or a number of rows.

    `text` is what the user wrote, ``5 min`` say.
    """

    kind: Literal["range", "rows"]
    length: int
    text: str


@dataclass(frozen=True, slots=True)
class Clause:
    """A window clause and where it stands."""

    spec: WindowSpec
    span: Span


@dataclass(frozen=True, slots=True)
class Clauses:
    """The window clauses of one query: at its end, and after its streams (by position in FROM)."""

    whole: Clause | None = None
    per_stream: dict[int, Clause] = field(default_factory=dict)

    def given(self) -> list[Clause]:
        """List every clause there is."""
        return [*([self.whole] if self.whole else []), *self.per_stream.values()]


def take_windows(source: Source, tokens: Sequence[Token], query: str) -> tuple[Clauses, list[Token]]:
    """Read the window clauses of a SELECT, and give the tokens without them."""
    body, tail = _split_tail(tokens)
    whole = Clause(read_spec(source, tail, query), span_of_tokens(tail)) if tail else None
    brackets = _find_brackets(source, body)
    per_stream: dict[int, Clause] = {}
    for stream, start, end in brackets:
        span = span_of_tokens(body[start:end])
        if stream in per_stream:
            raise source.error("this stream has two windows: keep one", span)
        per_stream[stream] = Clause(_read_bracket(source, body[start:end], query), span)
    dropped = {i for _, start, end in brackets for i in range(start, end)}
    return Clauses(whole, per_stream), [token for i, token in enumerate(body) if i not in dropped]


def read_spec(source: Source, tokens: Sequence[Token], query: str) -> WindowSpec:
    """Read ``WINDOW <n> <unit>`` or ``WINDOW <n> ROWS``, from WINDOW on."""
    span = span_of_tokens(tokens)
    text = joined(tokens[1:])
    if any(token.upper == "AS" for token in tokens[1:3]):
        raise source.error("named windows are for window functions, which are not supported", span)
    if not text:
        raise source.error(f"window of {query} has no length: {_FORMS}", span)
    return _read_length(source, text, query, span, "WINDOW")


def _read_bracket(source: Source, tokens: Sequence[Token], query: str) -> WindowSpec:
    """Read ``[RANGE …]``, ``[ROWS n]``, ``[NOW]`` or ``[UNBOUNDED]``, brackets included."""
    span = span_of_tokens(tokens)
    head, _, length = joined(tokens[1:-1]).partition(" ")
    if head.upper() == "NOW" and not length:
        return WindowSpec("range", 1, "NOW")
    if (head.upper(), length.upper()) in {("UNBOUNDED", ""), ("RANGE", "UNBOUNDED")}:
        return WindowSpec("range", FOREVER, "UNBOUNDED")
    if head.upper() not in {"RANGE", "ROWS"} or not length:
        raise source.error(_BRACKET_FORMS, span)
    return _read_length(source, f"{length} ROWS" if head.upper() == "ROWS" else length, query, span, "window")


def _read_length(source: Source, text: str, query: str, span: Span, what: str) -> WindowSpec:
    """Read a positive length of time or number of rows."""
    number, _, unit = text.replace("- ", "-").partition(" ")
    if unit.upper() in {"ROW", "ROWS"}:
        if not _WHOLE_NUMBER.fullmatch(number):
            raise source.error(f"window of {query} is {text}: a number of rows is a whole number", span)
        spec = WindowSpec("rows", FOREVER if len(number) > _MOST_ROWS_DIGITS else int(number), text)
    else:
        spec = WindowSpec("range", _micros(source, text, query, span), text)
    if spec.length <= 0:
        shown = show_duration(spec.length) if spec.kind == "range" else text
        raise source.error(f"window of {query} is {shown}: a {what} must be positive", span)
    return spec


def _micros(source: Source, text: str, query: str, span: Span) -> int:
    """Read a length of time; an error points at it."""
    try:
        return parse_duration(text)
    except DurationError as error:
        raise source.error(f"window of {query} is {text}, which {error}", span) from None


def _split_tail(tokens: Sequence[Token]) -> tuple[Sequence[Token], Sequence[Token]]:
    """Cut the tokens at the WINDOW that ends the query, if there is one."""
    for i, depth in reversed(list(enumerate(depths(tokens)))):
        if depth == 0 and tokens[i].upper == "WINDOW" and i and _begins_clause(tokens, i):
            return tokens[:i], tokens[i:]
    return tokens, []


def _begins_clause(tokens: Sequence[Token], i: int) -> bool:
    """Tell the clause WINDOW from a column or function called window."""
    before, after = tokens[i - 1], tokens[i + 1] if i + 1 < len(tokens) else None
    if after and after.text[0] in _DIGIT:
        return before.text != "."
    return before.upper not in _NOT_A_CLAUSE_AFTER and (
        after is None or after.upper not in _NOT_A_CLAUSE_BEFORE
    )


def _find_brackets(source: Source, tokens: Sequence[Token]) -> list[tuple[int, int, int]]:
    """Find ``[…]`` after streams: the stream's position in FROM, and the tokens from ``[`` past ``]``."""
    brackets: list[tuple[int, int, int]] = []
    stream, where = 0, "before"
    for i, (token, depth) in enumerate(zip(tokens, depths(tokens), strict=True)):
        word = token.upper
        if depth or (i and tokens[i - 1].text == "."):
            continue
        if word == "FROM" and where == "before" and tokens[i - 1].upper != "DISTINCT":
            where = "from"
        elif word == "WHERE" and where != "before":
            break
        elif word in {",", "JOIN"} and where != "before":
            stream, where = stream + 1, "from"
        elif word in {"ON", "USING"} and where == "from":
            where = "on"
        elif word == "[" and where == "from":
            brackets.append((stream, i, _closing(source, tokens, i) + 1))
    return brackets


def _closing(source: Source, tokens: Sequence[Token], start: int) -> int:
    """Find the bracket that closes the one at `start`."""
    for i in range(start, len(tokens)):
        if tokens[i].text == "]":
            return i
    raise source.error("this [ is never closed", (tokens[start].start, tokens[start].end))


def window_specs(
    source: Source, clauses: Clauses, aliases: Sequence[str]
) -> tuple[WindowSpec, WindowSpec] | None:
    """Give the windows of the first and second stream in FROM, if there are any.

    A window after a stream takes precedence over the query's WINDOW, which then holds for the other stream.
    """
    if not clauses.given():
        return None
    first, second = (clauses.per_stream.get(position, clauses.whole) for position in range(2))
    if first is None or second is None:
        raise _half_given(source, clauses, aliases)
    return first.spec, second.spec


def window_range(left: WindowSpec, right: WindowSpec) -> Range:
    """Give the differences that the windows of the left and the right stream admit.

    Time is strict at the far end; of rows, the last of so many still counts.

    >>> window_range(WindowSpec("range", 10, "10 us"), WindowSpec("rows", 10, "10 ROWS"))
    Range(lo=-10, hi=10)
    """
    return Range(-right.length + (0 if right.kind == "rows" else 1), left.length)


def _half_given(source: Source, clauses: Clauses, aliases: Sequence[str]) -> SqlError:
    """Ask for the window of the other stream."""
    ((given, clause),) = clauses.per_stream.items()
    one, other = aliases[given], aliases[1 - given]
    message = f"{one} has a window and {other} has none: write one after {other} too, such as [UNBOUNDED]"
    return source.error(message, clause.span)
