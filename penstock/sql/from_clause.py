"""FROM: the streams that a query joins, and how.

    FROM A, B b, C                                  streams, and what the query calls them
    FROM A JOIN B ON A.k = B.k JOIN C USING (j)     with conditions; as in Spark, each sees the streams to its left
    FROM A CROSS JOIN B                             every row with every row, said in so many words

Commas and joins are read from the left.  Outer joins and subqueries are refused, each with its own sentence and caret.

In:  the tokens behind FROM.
Out: a `From`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.sql.bind.aggregates import refuse_aggregates
from penstock.sql.graph import MOST_INPUTS
from penstock.sql.text.keywords import CLAUSES, JOINS
from penstock.sql.text.parser import parse_expression
from penstock.sql.text.refusals import REFUSED_CLAUSES, refused_join, refused_rows, refused_table
from penstock.sql.text.tokens import span_of_tokens

if TYPE_CHECKING:
    from penstock.sql.text.lexer import Token
    from penstock.sql.text.tokens import Reader, Span
    from penstock.sql.text.tree import Tree


@dataclass(frozen=True, slots=True)
class Table:
    """A stream in FROM: its name as written, and what the query calls it."""

    name: str
    alias: str
    span: Span


@dataclass(frozen=True, slots=True)
class On:
    """The condition of an ON, and how many streams, from the first, it sees."""

    tree: Tree
    seen: int


@dataclass(frozen=True, slots=True)
class Using:
    """A column of a USING: that of the stream with number `place` is equal to the one of the streams before it."""

    column: str
    place: int
    span: Span


@dataclass(slots=True)
class From:
    """The streams in the order of the text, the conditions between them, and the numbers of those behind CROSS JOIN."""

    tables: list[Table]
    conditions: list[On] = field(default_factory=list)
    using: list[Using] = field(default_factory=list)
    crossed: set[int] = field(default_factory=set)


def read_from(reader: Reader) -> From:
    """Read the streams of FROM, and how they are joined."""
    joined = From([_read_table(reader)])
    while True:
        if reader.accept(","):
            joined.tables.append(_read_table(reader))
        elif reader.word() in JOINS or _is_outer(reader):
            _read_join(reader, joined)
        else:
            return joined


def read_condition(reader: Reader, clause: str) -> Tree:
    """Read the condition of ON or WHERE, which is about the rows of one result."""
    condition = parse_expression(reader)
    refuse_aggregates(reader, condition, clause)
    return condition


def _read_join(reader: Reader, joined: From) -> None:
    """Read ``JOIN stream [ON condition | USING (columns)]``."""
    words = _read_words(reader)
    place = len(joined.tables)
    joined.tables.append(_read_table(reader))
    if words[0] == "CROSS":
        joined.crossed.add(place)
    if reader.accept("ON"):
        joined.conditions.append(On(read_condition(reader, "ON"), place + 1))
    elif reader.accept("USING"):
        joined.using += _read_using(reader, place)


def _read_words(reader: Reader) -> list[str]:
    """Read ``[INNER | CROSS] JOIN``; every other join is refused."""
    first, words = reader.at, []
    while reader.word() in {*JOINS, "OUTER"} and "JOIN" not in words:
        words.append(reader.take().upper)
    if words not in (["JOIN"], ["INNER", "JOIN"], ["CROSS", "JOIN"]):
        if "JOIN" not in words:
            raise reader.misfit()
        raise reader.error(refused_join(words), span_of_tokens(reader.tokens[first : reader.at]))
    return words


def _read_table(reader: Reader) -> Table:
    """Read a stream and its alias."""
    start = reader.span[0]
    if error := refused_rows(reader):
        raise error
    name = _part(reader)
    while reader.accept("."):
        name += f".{_part(reader)}"
    token = reader.ahead()
    if error := refused_table(reader):
        raise error
    span = (start, reader.behind)
    alias = name.rpartition(".")[2]
    named = reader.accept("AS")
    if named or (token and (token.kind == "quoted" or _is_alias(token)) and not _is_outer(reader)):
        alias = _part(reader)
        if error := refused_table(reader):
            raise error
    return Table(name, alias, span)


def _is_outer(reader: Reader) -> bool:
    """Say whether ``OUTER JOIN`` comes next, which is no alias and a join."""
    return (reader.word(), reader.word(1)) == ("OUTER", "JOIN")


def _is_alias(token: Token) -> bool:
    return token.kind == "word" and token.upper not in {*CLAUSES, *JOINS, *REFUSED_CLAUSES}


def _part(reader: Reader) -> str:
    """Read one part of a stream's name."""
    token = reader.ahead()
    if token is None or token.kind not in {"word", "quoted"} or token.upper in CLAUSES:
        raise reader.misfit()
    return reader.take().name


def _read_using(reader: Reader, place: int) -> list[Using]:
    """Read the columns of ``USING (...)``."""
    columns = []
    if not reader.accept("("):
        raise reader.misfit()
    while True:
        span = reader.span
        columns.append(Using(_part(reader), place, span))
        if reader.accept(")"):
            return columns
        if not reader.accept(","):
            raise reader.misfit()


def refuse_number(reader: Reader, tables: list[Table], query: str) -> None:
    """Refuse a query of one stream, or of too many."""
    if len(tables) == 1:
        raise reader.error(f"{query} is a query with no join: name a second stream in FROM", tables[0].span)
    if len(tables) > MOST_INPUTS:
        raise reader.error(
            f"{query} joins {len(tables)} streams: {MOST_INPUTS} are the most. Join some of them in a query of its "
            "own, and declare its result as a stream",
            tables[MOST_INPUTS].span,
        )
