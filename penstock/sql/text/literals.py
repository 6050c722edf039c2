"""Literals and types, kept as written; Spark evaluates them.

Equal literals become equal texts: strings in double quotes that need no escape get single quotes, and keywords are
written in upper case.

In:  a `TokenReader` before a literal.  Out: a `Constant`, or the text of a type; the reader stands after it.
"""

from __future__ import annotations

from penstock.sql.text.keywords import UNITS
from penstock.sql.text.tokens import TokenReader, closed_angles, joined
from penstock.sql.text.tree import Constant

TYPE_WORDS = {"DATE", "TIME", "TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ", "X"}
"""Words that give the string behind them a type."""

_SIGNS = {"-", "+"}


def number(reader: TokenReader, sign: str = "") -> Constant:
    """Read a number; a sign that is part of it was read already."""
    token = reader.take()
    return Constant(f"{sign}{token.text}", "number", (token.start, token.end))


def strings(reader: TokenReader) -> Constant:
    """Read strings in a row, which are one value."""
    start, texts = reader.span[0], []
    while (token := reader.ahead()) and token.kind == "string":
        texts.append(_string(reader.take().text))
    return Constant(" ".join(texts), "string", (start, reader.behind))


def _string(text: str) -> str:
    """Write a string in single quotes, unless it has quotes or escapes."""
    plain = text[0] == '"' and not set(text[1:-1]) & set("\"'\\")
    return f"'{text[1:-1]}'" if plain else text


def typed(reader: TokenReader) -> Constant:
    """Read a string with its type before it."""
    start, kind = reader.span[0], reader.take().upper
    return Constant(f"{kind} {_string(reader.take().text)}", "typed", (start, reader.behind))


def begins_interval(reader: TokenReader) -> bool:
    """Check that the next word, INTERVAL, begins a literal and is not the name of a column."""
    after = reader.ahead(1)
    return after is not None and (after.kind in {"string", "number"} or after.text in _SIGNS)


def interval(reader: TokenReader) -> Constant:
    """Read ``INTERVAL 1 HOUR 30 MINUTES``, ``INTERVAL '1 hour'`` or ``INTERVAL '01:30' MINUTE TO SECOND``."""
    start, words = reader.span[0], [reader.take().upper]
    while True:
        sign = reader.take().text if reader.word() in _SIGNS else ""
        value = reader.ahead()
        if value is None or value.kind not in {"string", "number"}:
            raise reader.misfit()
        words.append(f"{sign}{_string(reader.take().text)}")
        words += _units(reader)
        if not _has_more(reader):
            return Constant(" ".join(words), "interval", (start, reader.behind))


def _units(reader: TokenReader) -> list[str]:
    """Read the unit behind a value, or two units as in ``DAY TO SECOND``."""
    words = [reader.take().upper] if reader.word() in UNITS else []
    if words and reader.word() == "TO" and reader.word(1) in UNITS:
        words += [reader.take().upper, reader.take().upper]
    return words


def _has_more(reader: TokenReader) -> bool:
    """Check whether another value with its unit comes next."""
    at = 1 if reader.word() in _SIGNS else 0
    value = reader.ahead(at)
    return value is not None and value.kind in {"string", "number"} and reader.word(at + 1) in UNITS


def type_text(reader: TokenReader) -> str:
    """Read a type; the names of fields keep their case."""
    first = reader.at
    word = reader.word()
    if not word or not word[0].isalpha():
        raise reader.misfit()
    reader.take()
    if word in {"ARRAY", "MAP", "STRUCT"} and reader.word() in {"<", "<>"}:
        _skip_angles(reader)
    elif reader.word() == "(":
        _skip_numbers(reader)
    if word == "INTERVAL":
        _units(reader)
    elif reader.word() in {"WITH", "WITHOUT"} and word in {"TIME", "TIMESTAMP"}:
        while reader.word() in {"WITH", "WITHOUT", "LOCAL", "TIME", "ZONE"}:
            reader.take()
    elif reader.word() == "COLLATE" and word in {"STRING", "CHAR", "VARCHAR"}:
        reader.at += len(("COLLATE", "name"))
    tokens = reader.tokens[first : reader.at]
    text = joined(tokens)
    return text if any(token.upper == "STRUCT" for token in tokens) else text.upper()


def _skip_angles(reader: TokenReader) -> None:
    depth = 0
    while True:
        token = reader.ahead()
        if token is None:
            raise reader.misfit()
        depth += token.text == "<"
        depth -= closed_angles(token.text)
        reader.take()
        if depth <= 0:
            return


def _skip_numbers(reader: TokenReader) -> None:
    while reader.word() != ")":
        if reader.done:
            raise reader.misfit()
        reader.take()
    reader.take()


def path_text(reader: TokenReader) -> str:
    """Read the path behind a VARIANT: ``:a.b[0]['c']``."""
    first = reader.at
    reader.take()
    _step(reader)
    while reader.word() in {".", "["}:
        if reader.word() == ".":
            reader.take()
        _step(reader)
    return joined(reader.tokens[first : reader.at])


def _step(reader: TokenReader) -> None:
    """Read one step of a path: a name, or a name or number in brackets."""
    steps = len(("[", "0", "]")) if reader.word() == "[" else 1
    last = reader.ahead(steps - 1)
    if (
        last is None
        or (steps > 1 and last.text != "]")
        or (steps == 1 and last.kind not in {"word", "quoted"})
    ):
        raise reader.misfit()
    reader.at += steps
