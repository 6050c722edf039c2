"""A script as tokens, each of which knows its position.

The text is cut into tokens once (`penstock.sql.text.lexer`).  Statements are runs of these tokens, so every offset is
an offset in the script, and every error can point at it.

In:  the text.
Out: `Source.statements`, and a `TokenReader` to walk one.
True: tokens of a statement never include its semicolon; offsets are those of the whole text.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import pairwise

from penstock.errors import InputError, Place, SqlError
from penstock.sql.source_options import hidden
from penstock.sql.text.lexer import LexError, Token, tokenize

Span = tuple[int, int]
"""A position in the text: the first offset, and the offset after the last."""

_OPENING = {"(", "[", "{"}
_CLOSING = {")", "]", "}"}
_HALF_CHARACTER = re.compile("[\ud800-\udfff]")


class Source:
    """A text, its tokens, and errors that point into it."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def tokens(self) -> list[Token]:
        """All tokens of the text; comments are left out."""
        half = _HALF_CHARACTER.search(self.text)
        if half:
            raise self.error("this is half a character: save the text as Unicode", half.span())
        try:
            return list(tokenize(self.text))
        except LexError as error:
            raise self.error(str(error), error.span) from None

    @cached_property
    def statements(self) -> list[list[Token]]:
        """The tokens between semicolons; empty statements are left out."""
        statements: list[list[Token]] = [[]]
        for token in self.tokens:
            if token.text == ";":
                statements.append([])
            else:
                statements[-1].append(token)
        return [tokens for tokens in statements if tokens]

    @cached_property
    def _line_starts(self) -> list[int]:
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
        """Build an error that points at `span`, and shows no secret."""
        text, shown = hidden(self.text, message)
        return SqlError(
            _HALF_CHARACTER.sub("\ufffd", shown), _HALF_CHARACTER.sub("\ufffd", text), self.place(span)
        )

    @contextmanager
    def errors_at(self, span: Span) -> Iterator[None]:
        """Let all errors of the user's input within a block point at `span`."""
        try:
            yield
        except SqlError as error:
            raise self.error(error.message, span) from None
        except InputError as error:
            raise self.error(str(error), span) from None

    def slice(self, tokens: Sequence[Token]) -> str:
        """Return the text from the first token to the last, as written."""
        start, end = span_of_tokens(tokens)
        return self.text[start:end]


def joined(tokens: Sequence[Token]) -> str:
    """Return the text of tokens without comments: ``2.5h`` stays whole, and any other gap becomes one space."""
    gaps = ["" if before.end == token.start else " " for before, token in pairwise(tokens)]
    return "".join(gap + token.text for gap, token in zip(["", *gaps], tokens, strict=False))


def span_of_tokens(tokens: Sequence[Token]) -> Span:
    """Return the span from the first token to the last."""
    return tokens[0].start, tokens[-1].end


def depths(tokens: Sequence[Token]) -> list[int]:
    """Count the brackets that are open around each token; a bracket counts as outside itself."""
    depth, around = 0, []
    for token in tokens:
        if token.text in _CLOSING:
            depth -= 1
        around.append(depth)
        if token.text in _OPENING:
            depth += 1
    return around


class TokenReader:
    """A cursor over the tokens of one statement."""

    def __init__(self, source: Source, tokens: Sequence[Token]) -> None:
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
        """The position of the next token, or of the last one when none is left."""
        token = self.tokens[min(self.at, len(self.tokens) - 1)]
        return token.start, token.end

    @property
    def behind(self) -> int:
        """The offset after the last token that was read."""
        return self.tokens[self.at - 1].end if self.at else self.tokens[0].start

    def error(self, message: str, span: Span | None = None) -> SqlError:
        """Build an error that points at the next token."""
        return self.source.error(message, span or self.span)

    def misfit(self) -> SqlError:
        """Build an error about a next token that cannot stand there, or about the end if none is left."""
        token = self.ahead()
        if token:
            return self.error(f"cannot read the query at {token.text}: it does not belong here")
        return self.error(f"cannot read the query at {self.tokens[-1].text}: something is missing beside it")

    def ahead(self, steps: int = 0) -> Token | None:
        """Return a token that is still to be read; None beyond the end."""
        at = self.at + steps
        return self.tokens[at] if at < len(self.tokens) else None

    def word(self, steps: int = 0) -> str:
        """Return the word or symbol of a token still to be read, in upper case; empty if it is neither."""
        token = self.ahead(steps)
        return token.upper if token else ""

    def accept(self, *words: str) -> bool:
        """Read these words if they come next."""
        if all(self.word(steps) == word for steps, word in enumerate(words)):
            self.at += len(words)
            return True
        return False

    def expect(self, word: str, why: str) -> None:
        """Read this word, or refuse the statement with the reason why it is needed."""
        if not self.accept(word):
            raise self.error(f"{self.next_text()}: {why}")

    def require(self, word: str) -> None:
        """Read this word, or refuse the next token."""
        if not self.accept(word):
            raise self.misfit()

    def part(self, reserved: Collection[str] = ()) -> str:
        """Read one part of a name, or refuse the next token."""
        token = self.ahead()
        if token is None or token.kind not in {"word", "quoted"} or token.upper in reserved:
            raise self.misfit()
        return self.take().name

    def next_text(self) -> str:
        """Describe the next token for a message."""
        token = self.ahead()
        return f"found {token.text}" if token else "the statement ends here"

    def take(self) -> Token:
        """Read one token."""
        token = self.tokens[self.at]
        self.at += 1
        return token

    def name(self, what: str) -> str:
        """Read a name, plain or in backquotes."""
        token = self.ahead()
        if token and (token.kind == "quoted" or re.fullmatch(r"\w+", token.text)):
            self.at += 1
            return token.name
        raise self.error(f"{self.next_text()}: {what} needs a name")

    def end(self) -> None:
        """Check that the statement ends here."""
        if not self.done:
            raise self.error(f"{self.next_text()}: the statement should end here, with a semicolon")

    def until(self, *stops: str) -> list[Token]:
        """Read up to one of these symbols outside brackets; the symbol itself is left unread.

        Angle brackets of types such as ``MAP<STRING, INT>`` count as brackets here.
        """
        start, depth = self.at, 0
        while not self.done:
            text = self.tokens[self.at].text
            if depth == 0 and text in stops:
                break
            depth += (text in _OPENING or text == "<") - (text in _CLOSING) - closed_angles(text)
            self.at += 1
        return list(self.tokens[start : self.at])


def closed_angles(text: str) -> int:
    """Count the angle brackets of types that a symbol closes."""
    return len(text) if text in {">", ">>", ">>>"} else 0
