r"""Text to tokens, cut where Spark cuts them.

Expressions go to Spark as the user wrote them, so strings, comments and names must be those that Spark sees.
This is the lexical grammar of Spark SQL (its ``SqlBaseLexer.g4``)::

    word      v  10s  SELECT            letters, digits and _, unless it is a number
    quoted    `a ``b`` c`               a name in backquotes, which are doubled inside
    string    'it''s'  "a\n"  r'\d'     doubled quotes and escapes, or neither after r
    number    1  1.5  .5  1e-3  1L  1.5BD
    symbol    <=>  ::  ->  (            the longest that fits

White space and comments are left out.  Hints are refused: a hint is about one query, and the plan is shared.

In:  a text.
Out: `Token`s, in the order of the text and without overlap.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Kind = Literal["word", "quoted", "string", "number", "symbol"]

_BLANK = re.compile(r"[\s\ufeff]+")
_LINE_COMMENT = re.compile(r"--(?:[^\r\n\\]++|\\\n?+)*+")
_STRING = re.compile(
    r"""'(?:[^'\\]++|\\.|'')*+'|[rR]'[^']*'|[rR]"[^"]*"|"(?:[^"\\]++|\\.|"")*+\"""", re.DOTALL
)
_QUOTED = re.compile(r"`(?:[^`]++|``)*+`")
"""Repeats are possessive (``++``, ``*+``): otherwise a long literal takes 150 bytes of memory a character."""
_WORD = re.compile(r"\w+")
_NUMBER = re.compile(
    r"(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?(?:bd|d|f)?(?![a-z0-9_])"
    r"|[0-9]+(?:e[+-]?[0-9]+)(?:bd|d|f)?|[0-9]+(?:bd|[dflsy])?",
    re.IGNORECASE,
)
_HINT = re.compile(r"/\*\+\s*(\w*)")
_SYMBOL = re.compile(r"<=>|>>>|<<|>>|<>|!=|!<|!>|<=|>=|==|\|\||::|->|=>|[][(){}.,;:+\-*/%~&|^!=<>?]")


class LexError(Exception):
    """A text that cannot be cut into tokens: the reason, and the offsets to point at."""

    def __init__(self, message: str, start: int, end: int) -> None:
        super().__init__(message)
        self.span = (start, end)


@dataclass(frozen=True, slots=True)
class Token:
    """A word, name, string, number or symbol as written; `end` is the offset after it."""

    kind: Kind
    text: str
    start: int
    end: int

    @property
    def upper(self) -> str:
        """The text of a word or symbol in upper case, to compare with keywords; empty for other kinds."""
        return self.text.upper() if self.kind in {"word", "symbol"} else ""

    @property
    def name(self) -> str:
        """The name that a word or a quoted name stands for.

        >>> Token("quoted", "`a``b`", 0, 6).name
        'a`b'
        """
        return self.text[1:-1].replace("``", "`") if self.kind == "quoted" else self.text


def tokenize(text: str) -> Iterator[Token]:
    """Cut a text into tokens.

    >>> [token.text for token in tokenize("A.v>=1.5BD /* why */ AND 10s <> 'it''s'")]
    ['A', '.', 'v', '>=', '1.5BD', 'AND', '10s', '<>', "'it''s'"]
    """
    at = 0
    while True:
        at = _after_blanks(text, at)
        if at == len(text):
            return
        token = _token(text, at)
        yield token
        at = token.end


def _after_blanks(text: str, at: int) -> int:
    while at < len(text):
        if blank := _BLANK.match(text, at) or _LINE_COMMENT.match(text, at):
            at = blank.end()
        elif hint := _HINT.match(text, at):
            message = (
                f"the hint {hint[1] or '...'} is not supported: leave it out, as one plan serves all queries"
            )
            raise LexError(message, *hint.span())
        elif text.startswith("/*", at):
            at = _after_comment(text, at)
        else:
            break
    return at


def _after_comment(text: str, start: int) -> int:
    """Skip a comment between ``/*`` and ``*/``; such comments may be nested."""
    depth = 0
    for mark in re.compile(r"/\*|\*/").finditer(text, start):
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return mark.end()
    raise LexError("this comment is never closed: end it with */", start, start + 2)


def _token(text: str, at: int) -> Token:
    """Read the token that begins here; where a number and a word both fit, the longer one."""
    if match := _STRING.match(text, at):
        return Token("string", match[0], at, match.end())
    if match := _QUOTED.match(text, at):
        return Token("quoted", match[0], at, match.end())
    number, word = _NUMBER.match(text, at), _WORD.match(text, at)
    if number and (not word or number.end() >= word.end()):
        return Token("number", number[0], at, number.end())
    if word:
        return Token("word", word[0], at, word.end())
    if match := _SYMBOL.match(text, at):
        return Token("symbol", match[0], at, match.end())
    if text[at] in "'\"`":
        raise LexError(f"this {text[at]} is never closed: write another at the end", at, at + 1)
    raise LexError(
        f"the character {text[at]!r} means nothing here: put a name with it in backquotes", at, at + 1
    )


_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})|\\U([0-9a-fA-F]{8})|\\([0-3][0-7][0-7])|\\(.)", re.DOTALL)
_ESCAPE_MEANINGS = {
    "0": "\0",
    "b": "\b",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "Z": "\x1a",
    "%": "\\%",
    "_": "\\_",
}


def string_value(token: Token) -> str:
    r"""Return the value of a string, as Spark reads it.

    >>> string_value(Token("string", r"'it''s\n\u0041\_'", 0, 0)), string_value(Token("string", r"r'\n'", 0, 0))
    ("it's\nA\\_", '\\n')
    """
    if token.text[0] in "rR":
        return token.text[2:-1]
    quote, inside = token.text[0], token.text[1:-1]
    plain = [piece.replace(quote * 2, quote) for piece in _ESCAPE.sub("\ud800", inside).split("\ud800")]
    meanings = [_meaning(escape) for escape in _ESCAPE.finditer(inside)]
    text = plain[0] + "".join(meaning + piece for meaning, piece in zip(meanings, plain[1:], strict=True))
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # two halves make one character


def _meaning(escape: re.Match[str]) -> str:
    short, long, octal, other = escape.groups()
    if octal:
        return chr(int(octal, 8))
    if other:
        return _ESCAPE_MEANINGS.get(other, other)
    code = int(short or long, 16)
    return chr(code) if code <= sys.maxunicode else "\ufffd"
