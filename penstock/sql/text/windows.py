"""The window clauses that are not SQL: ``WINDOW 1 min``, ``A [RANGE 12 HOURS]`` and ``EVERY 10 seconds``.

`take_windows` takes them out of the tokens before the rest is read.  Each stream gets a `WindowSpec`.  From those of
two streams `window_range` builds the range of differences that a query admits (for more streams, see
`penstock.sql.bind.time_bounds`)::

    A [RANGE 5 s], B [RANGE 2 s]      d = T_B - T_A

         B older                 B younger
    ------|-----------0--------------------------|------>  d
        -2 s + 1 µs                             5 s
          [======================================)         Range.window(5 s, 2 s)

A row of A is kept for A's window and meets the younger rows of B, so A's window is the right end.  The window of a
stream may count rows instead of time.  EVERY sets how often an aggregate answers.  It stands behind WINDOW, or alone at
the end where each stream has a window of its own.

In:  the tokens of one SELECT.
Out: `Clauses` and the tokens without them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from string import digits
from typing import Literal

from penstock.sql.query import FOREVER, Range
from penstock.sql.text.lexer import Token
from penstock.sql.text.refusals import OVER, refuse_behind_window
from penstock.sql.text.tokens import Source, Span, depths, joined, span_of_tokens
from penstock.sql.units import DurationError, parse_duration, show_duration

_NOT_A_CLAUSE_AFTER = {
    ".", ",", "AS", "BY", "HAVING", "SELECT", "WHERE", "ON", "AND", "OR", "NOT",
    "=", "==", "<>", "!=", "<=>", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "||", "|", "&", "^",
    "LIKE", "IN", "BETWEEN", "CASE", "WHEN", "THEN", "ELSE", "DIV",
}  # fmt: skip
"""After one of these, WINDOW is the name of a column (unless a number follows)."""

_NOT_A_CLAUSE_BEFORE = {
    *_NOT_A_CLAUSE_AFTER, "(", "[", "IS", "FROM", "RLIKE", "REGEXP", "ILIKE",
} - {"-", "CASE"}  # fmt: skip
"""The same before one of these; a dash begins a negative length, which has its own error."""

_WHOLE_NUMBER = re.compile("-?[0-9]+")
_MAX_ROWS_DIGITS = 18
"""A number of rows with more digits counts as unbounded."""

_FORMS = "write WINDOW 10 seconds, or any number and unit"
_BRACKET_FORMS = "a window after a stream is [RANGE 10 seconds], [ROWS 500], [NOW] or [UNBOUNDED]"


@dataclass(frozen=True, slots=True)
class Every:
    """The interval between answers of an aggregate: in microseconds, and as written."""

    length: int
    text: str
    span: Span = field(default=(0, 0), compare=False)


@dataclass(frozen=True, slots=True)
class WindowSpec:
    """A window as stated: a length of time in microseconds, or a number of rows; `text` is as written."""

    kind: Literal["range", "rows"]
    length: int
    text: str
    every: Every | None = None
    span: Span = field(default=(0, 0), compare=False)

    @property
    def slides(self) -> bool:
        """Whether it is a finite length of time."""
        return self.kind == "range" and self.length < FOREVER


@dataclass(frozen=True, slots=True)
class Clauses:
    """The window clauses of one query: at its end, and after its streams (by position in FROM)."""

    whole: WindowSpec | None = None
    per_stream: dict[int, WindowSpec] = field(default_factory=dict)
    every: Every | None = None


def take_windows(source: Source, tokens: Sequence[Token], query: str) -> tuple[Clauses, list[Token]]:
    """Read the window clauses of a SELECT, and return them with the other tokens."""
    body, tail = _split(tokens, "WINDOW", _begins_window)
    whole = read_spec(source, tail, query) if tail else None
    every = whole.every if whole else None
    if every is None:
        body, last = _split(body, "EVERY", _begins_every)
        every = _read_every(source, last, query) if last else None
    brackets = _find_brackets(source, body)
    per_stream: dict[int, WindowSpec] = {}
    for stream, start, end in brackets:
        if stream in per_stream:
            raise source.error("this stream has two windows: keep one", span_of_tokens(body[start:end]))
        per_stream[stream] = _read_bracket(source, body[start:end], query)
    dropped = {i for _, start, end in brackets for i in range(start, end)}
    return Clauses(whole, per_stream, every), [token for i, token in enumerate(body) if i not in dropped]


def read_spec(source: Source, tokens: Sequence[Token], query: str) -> WindowSpec:
    """Read ``WINDOW <n> <unit> [EVERY <n> <unit>]`` or ``WINDOW <n> ROWS``."""
    at = next((i for i, token in enumerate(tokens) if token.upper == "EVERY"), len(tokens))
    tokens, last = tokens[:at], tokens[at:]
    span = span_of_tokens(tokens)
    text = joined(tokens[1:])
    if any(token.upper == "AS" for token in tokens[1:3]):
        raise source.error(f"named windows are for window functions, which are not supported: {OVER}", span)
    refuse_behind_window(source, tokens)
    if not text:
        raise source.error(f"window of {query} has no length: {_FORMS}", span)
    spec = _read_length(source, text, query, span, "WINDOW")
    if not last:
        return spec
    return replace(spec, every=_read_every(source, last, query), span=(span[0], last[-1].end))


def _read_every(source: Source, tokens: Sequence[Token], query: str) -> Every:
    refuse_behind_window(source, tokens)
    span, text = span_of_tokens(tokens), joined(tokens[1:])
    if not text:
        raise source.error(
            f"EVERY of {query} has no length: write EVERY 10 seconds, or any number and unit", span
        )
    length = _micros(source, text, f"EVERY of {query}", span)
    if length <= 0:
        raise source.error(
            f"EVERY of {query} is {show_duration(length)}: it must be positive, such as EVERY 10 seconds",
            span,
        )
    return Every(length, text, span)


def _read_bracket(source: Source, tokens: Sequence[Token], query: str) -> WindowSpec:
    """Read ``[RANGE …]``, ``[ROWS n]``, ``[NOW]`` or ``[UNBOUNDED]``, brackets included."""
    span = span_of_tokens(tokens)
    head, _, length = joined(tokens[1:-1]).partition(" ")
    if head.upper() == "NOW" and not length:
        return WindowSpec("range", 1, "NOW", span=span)
    if (head.upper(), length.upper()) in {("UNBOUNDED", ""), ("RANGE", "UNBOUNDED")}:
        return WindowSpec("range", FOREVER, "UNBOUNDED", span=span)
    if head.upper() not in {"RANGE", "ROWS"} or not length:
        raise source.error(_BRACKET_FORMS, span)
    return _read_length(source, f"{length} ROWS" if head.upper() == "ROWS" else length, query, span, "window")


def _read_length(source: Source, text: str, query: str, span: Span, what: str) -> WindowSpec:
    """Read a positive length of time or number of rows."""
    number, _, unit = text.replace("- ", "-").partition(" ")
    if unit.upper() in {"ROW", "ROWS"}:
        if not _WHOLE_NUMBER.fullmatch(number):
            raise source.error(f"window of {query} is {text}: a number of rows is a whole number", span)
        rows = FOREVER if len(number) > _MAX_ROWS_DIGITS else int(number)
        spec = WindowSpec("rows", rows, text, span=span)
    else:
        spec = WindowSpec("range", _micros(source, text, f"window of {query}", span), text, span=span)
    if spec.length <= 0:
        shown = show_duration(spec.length) if spec.kind == "range" else text
        raise source.error(f"window of {query} is {shown}: a {what} must be positive", span)
    return spec


def _micros(source: Source, text: str, what: str, span: Span) -> int:
    try:
        return parse_duration(text)
    except DurationError as error:
        raise source.error(f"{what} is {text}, which {error}", span) from None


def _split(
    tokens: Sequence[Token], word: str, begins: Callable[[Sequence[Token], int], bool]
) -> tuple[Sequence[Token], Sequence[Token]]:
    """Cut the tokens at the last clause that begins with a word, if there is one."""
    for i, depth in reversed(list(enumerate(depths(tokens)))):
        if depth == 0 and i and tokens[i].upper == word and begins(tokens, i):
            return tokens[:i], tokens[i:]
    return tokens, []


def _begins_window(tokens: Sequence[Token], i: int) -> bool:
    """Distinguish the clause WINDOW from a column or function called window."""
    before, after = tokens[i - 1], tokens[i + 1] if i + 1 < len(tokens) else None
    if after and after.text[0] in digits:
        return before.text != "."
    return before.upper not in _NOT_A_CLAUSE_AFTER and (
        after is None or after.upper not in _NOT_A_CLAUSE_BEFORE
    )


def _begins_every(tokens: Sequence[Token], i: int) -> bool:
    """Distinguish the clause EVERY from a column or function called every."""
    after = tokens[i + 1].text if i + 1 < len(tokens) else "0"
    is_number = after[0] in digits or after in {"-", "+", "."}
    return is_number and tokens[i - 1].upper not in _NOT_A_CLAUSE_AFTER


def _find_brackets(source: Source, tokens: Sequence[Token]) -> list[tuple[int, int, int]]:
    """Find ``[…]`` after streams: the stream's position in FROM, and the first token and the one after the last."""
    brackets: list[tuple[int, int, int]] = []
    stream, where = 0, "before"
    for i, (token, depth) in enumerate(zip(tokens, depths(tokens), strict=True)):
        word = token.upper
        if depth or (i and tokens[i - 1].text == "."):
            continue
        if word == "FROM" and where == "before" and tokens[i - 1].upper != "DISTINCT":
            where = "from"
        elif word in {"WHERE", "GROUP", "HAVING"} and where != "before":
            break
        elif word in {",", "JOIN"} and where != "before":
            stream, where = stream + 1, "from"
        elif word in {"ON", "USING"} and where == "from":
            where = "on"
        elif word == "[" and where == "from":
            end = next((at for at in range(i, len(tokens)) if tokens[at].text == "]"), None)
            if end is None:
                raise source.error(
                    "this [ is never closed: write ] after the window", (token.start, token.end)
                )
            brackets.append((stream, i, end + 1))
    return brackets


def window_clauses(source: Source, clauses: Clauses, aliases: Sequence[str]) -> tuple[WindowSpec, ...] | None:
    """Return the window of each stream in FROM; None if there are none.

    A window after a stream takes precedence over the query's WINDOW, which then holds for the other streams.
    """
    if not clauses.whole and not clauses.per_stream:
        return None
    stated = [clauses.per_stream.get(position, clauses.whole) for position in range(len(aliases))]
    given = [window for window in stated if window]
    if len(given) < len(stated):
        with_window, without = aliases[stated.index(given[0])], aliases[stated.index(None)]
        raise source.error(
            f"{with_window} has a window and {without} has none: write one after {without} too, such as [UNBOUNDED]",
            given[0].span,
        )
    return tuple(given)


def window_range(left: WindowSpec, right: WindowSpec) -> Range:
    """Return the differences that the windows of the left and the right stream admit.

    A time window excludes its far end; a row window includes its last row.

    >>> window_range(WindowSpec("range", 10, "10 us"), WindowSpec("rows", 10, "10 ROWS"))
    Range(lo=-10, hi=10)
    """
    return Range(-right.length + (0 if right.kind == "rows" else 1), left.length)
