"""A script as tokens, each of which knows where it stands.

The text is cut into tokens once.  Statements are runs of these tokens, and sqlglot's parser is fed
runs of them too (less the window clauses, which it does not know), so every offset in every tree is
an offset in the script, and every error can point at it.

In:  the text.
Out: `Source.statements`, and a `Reader` to walk one.
True: tokens of a statement never include its semicolon; offsets are those of the whole text.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import cached_property
from typing import TYPE_CHECKING

from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from penstock.errors import Place, SqlError
from penstock.sql.dialect import PlainSpark
from penstock.sql.source_options import hidden

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlglot import exp

Span = tuple[int, int]
"""Where something stands in the text: first offset and the offset after the last."""

_OPENING = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE}
_CLOSING = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE}


class Source:
    """A text, its tokens, and how to point into it."""

    def __init__(self, text: str) -> None:
        """Keep the text; tokens are made when first asked for."""
        self.text = text

    @cached_property
    def tokens(self) -> list[Token]:
        """All tokens of the text; comments and hints are left out."""
        try:
            found = PlainSpark().tokenize(self.text)
        except TokenError as error:
            raise self._unclosed(error) from None
        # A hint says how Spark should run one query, and nothing about a shared plan.
        return [token for token in found if token.token_type != TokenType.HINT]

    @cached_property
    def statements(self) -> list[list[Token]]:
        """The tokens between semicolons; empty statements are left out."""
        found: list[list[Token]] = [[]]
        for token in self.tokens:
            if token.token_type == TokenType.SEMICOLON:
                found.append([])
            else:
                found[-1].append(token)
        return [each for each in found if each]

    @cached_property
    def _line_starts(self) -> list[int]:
        """Offset of the first character of each line."""
        starts = [0]
        for line in self.text.splitlines(keepends=True):
            starts.append(starts[-1] + len(line))
        return starts

    def place(self, span: Span) -> Place:
        r"""Turn offsets into a line, a column and a length.

        >>> Source("SELECT *\nFROM S").place((14, 15))
        Place(line=2, column=6, length=1)
        """
        start, end = span
        line = min(bisect_right(self._line_starts, start), max(1, len(self.text.splitlines())))
        return Place(line, start - self._line_starts[line - 1] + 1, max(1, end - start))

    def error(self, message: str, span: Span) -> SqlError:
        """Make an error that points at `span`, and shows no secret."""
        text, said = hidden(self.text, message)
        return SqlError(said, text, self.place(span))

    def slice(self, tokens: Sequence[Token]) -> str:
        """Give the text from the first token to the last, as written."""
        start, end = span_of_tokens(tokens)
        return self.text[start:end]

    def words(self, tokens: Sequence[Token]) -> str:
        """Give the raw text of each token, one space apart: no comments, and ``10s`` stays whole."""
        spans = dict.fromkeys((token.start, token.end + 1) for token in tokens)
        return " ".join(self.text[start:end] for start, end in spans)

    def parse(self, tokens: Sequence[Token]) -> exp.Expr:
        """Let sqlglot read these tokens as one statement."""
        try:
            trees = PlainSpark().parser().parse(list(tokens), self.text)
        except ParseError as error:
            raise self._unreadable(error, tokens) from None
        if len(trees) != 1 or trees[0] is None:
            raise self.error("this is not a query: a query begins with SELECT", span_of_tokens(tokens))
        return trees[0]

    def span_of(self, node: exp.Expr, default: Span) -> Span:
        """Find the stretch of text a tree was read from, or `default` where sqlglot did not say."""
        marks = [each.meta for each in node.walk() if "start" in each.meta]
        if not marks:
            return default
        return min(mark["start"] for mark in marks), max(mark["end"] for mark in marks) + 1

    def _unclosed(self, error: TokenError) -> SqlError:
        """Say which quote or comment was never closed."""
        where = re.search(r"Missing (.+) from \d+:(\d+)", str(error.__cause__))
        if where:
            start = int(where[2])
            return self.error(f"this {where[1]} is never closed", (start, start + 1))
        start = self.text.rfind("/*")
        if start >= 0:
            return self.error("this comment is never closed: end it with */", (start, start + 2))
        end = max(1, len(self.text))
        return self.error("this text cannot be read as SQL", (0, end))

    def _unreadable(self, error: ParseError, tokens: Sequence[Token]) -> SqlError:
        """Say in one sentence what sqlglot could not read, and point at the token."""
        first = error.errors[0] if error.errors else {}
        at = next((t for t in tokens if (t.line, t.col) == (first.get("line"), first.get("col"))), tokens[-1])
        span = (at.start, at.end + 1)
        return self.error(f"cannot read the query at {self.text[span[0] : span[1]]}{_reason(first)}", span)


def _reason(first: object) -> str:
    """Keep what is helpful of sqlglot's own words."""
    words = str(first.get("description", "")) if isinstance(first, dict) else ""
    if words.startswith("Expecting "):
        return f": {words.removeprefix('Expecting ')} is missing"
    if words.startswith(("Required keyword", "Expected table name")):
        return ": something is missing beside it"
    return ": it does not belong here"


def span_of_tokens(tokens: Sequence[Token]) -> Span:
    """Give the stretch from the first token to the last."""
    return tokens[0].start, tokens[-1].end + 1


def depths(tokens: Sequence[Token]) -> list[int]:
    """Say how many brackets are open around each token; a bracket counts as outside itself."""
    depth, found = 0, []
    for token in tokens:
        if token.token_type in _CLOSING:
            depth -= 1
        found.append(depth)
        if token.token_type in _OPENING:
            depth += 1
    return found


class Reader:
    """A cursor over the tokens of one statement, for the parts sqlglot does not know."""

    def __init__(self, source: Source, tokens: Sequence[Token]) -> None:
        """Start before the first token."""
        self.source = source
        self.tokens = tokens
        self.at = 0

    @property
    def done(self) -> bool:
        """Whether every token has been read."""
        return self.at >= len(self.tokens)

    @property
    def rest(self) -> Sequence[Token]:
        """The tokens not read yet."""
        return self.tokens[self.at :]

    @property
    def span(self) -> Span:
        """Where the next token stands, or the last one when none is left."""
        token = self.tokens[min(self.at, len(self.tokens) - 1)]
        return token.start, token.end + 1

    def error(self, message: str, span: Span | None = None) -> SqlError:
        """Make an error that points at the next token."""
        return self.source.error(message, span or self.span)

    def word(self) -> str:
        """Look at the next token's raw text, in upper case; empty at the end."""
        return "" if self.done else self.source.words([self.tokens[self.at]]).upper()

    def accept(self, *words: str) -> bool:
        """Read these words if they come next."""
        ahead = [self.source.words([token]).upper() for token in self.rest[: len(words)]]
        if ahead == list(words):
            self.at += len(words)
            return True
        return False

    def expect(self, word: str, why: str) -> None:
        """Read this word, or say why it is needed."""
        if not self.accept(word):
            raise self.error(f"{self.found()}: {why}")

    def found(self) -> str:
        """Name what comes next, for a message."""
        return (
            "the statement ends here" if self.done else f"found {self.source.words([self.tokens[self.at]])}"
        )

    def take(self) -> Token:
        """Read one token."""
        token = self.tokens[self.at]
        self.at += 1
        return token

    def name(self, what: str) -> str:
        """Read a name, plain or backquoted."""
        if not self.done:
            token = self.tokens[self.at]
            plain = token.token_type != TokenType.STRING and re.fullmatch(r"\w+", token.text)
            if plain or token.token_type == TokenType.IDENTIFIER:
                self.at += 1
                return token.text
        raise self.error(f"{self.found()}: {what} needs a name")

    def end(self) -> None:
        """Check that the statement ends here."""
        if not self.done:
            raise self.error(f"{self.found()}: the statement should have ended, with a semicolon")

    def until(self, *stops: TokenType) -> list[Token]:
        """Read up to one of these tokens outside brackets, which is left unread.

        Angle brackets of types such as ``MAP<STRING, INT>`` count as brackets here.
        """
        start, depth = self.at, 0
        while not self.done:
            kind = self.tokens[self.at].token_type
            if depth == 0 and kind in stops:
                break
            depth += (kind in _OPENING or kind == TokenType.LT) - (kind in _CLOSING or kind == TokenType.GT)
            self.at += 1
        return list(self.tokens[start : self.at])
