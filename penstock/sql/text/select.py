"""The clauses of a SELECT that joins, filters and perhaps groups streams.

    SELECT items FROM ... [WHERE condition]
    [GROUP BY expression, ... | GROUP BY ALL] [HAVING condition]

Every other clause, such as a subquery or ORDER BY, is refused with its own message and caret.

In:  the tokens of one SELECT, its window clauses taken out.
Out: a `Select` of 2 to 16 streams.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.sql.query import MOST_INPUTS
from penstock.sql.text.keywords import CLAUSES, JOINS, SUPPORTED
from penstock.sql.text.lexer import Token
from penstock.sql.text.parser import Parser, parse_expression
from penstock.sql.text.refusals import (
    REFUSED_CLAUSES,
    refuse_clause,
    refuse_rows,
    refuse_table,
    refused_join,
)
from penstock.sql.text.tokens import Source, Span, TokenReader, span_of_tokens
from penstock.sql.text.tree import (
    Form,
    Tree,
    has_aggregate,
    is_aggregate,
    nodes,
)


@dataclass(frozen=True, slots=True)
class Item:
    """One item of the SELECT list: its tree, its alias (None: it has none), its text."""

    tree: Tree
    alias: str | None
    text: str
    span: Span


@dataclass(frozen=True, slots=True)
class Select:
    """A SELECT: its list, FROM, WHERE, GROUP BY and HAVING."""

    items: tuple[Item, ...]
    joined: From
    where: Tree | None = None
    grouping: tuple[Tree, ...] | None = None
    """The expressions of GROUP BY, which may be ordinals and aliases; empty for ``GROUP BY ALL``."""
    having: Tree | None = None

    @property
    def aggregates(self) -> bool:
        """Whether it returns groups and not pairs."""
        grouped = self.grouping is not None or self.having is not None
        return grouped or any(has_aggregate(item.tree) for item in self.items)


_STAR_CLAUSES = {"EXCLUDE", "REPLACE", "RENAME"}
"""Words that other dialects of SQL allow behind a star."""


def read_select(source: Source, tokens: Sequence[Token], query: str) -> Select:
    """Read a SELECT, or refuse it."""
    reader = TokenReader(source, tokens)
    refuse_clause(source, tokens[0])
    if not reader.accept("SELECT"):
        raise reader.error(f"this is not a query: {SUPPORTED}", span_of_tokens(tokens))
    items = _read_items(reader)
    if not reader.accept("FROM"):
        _refuse_rest(reader)
        raise reader.error(f"query {query} reads no stream: {SUPPORTED}", span_of_tokens(tokens))
    joined = read_from(reader)
    where = read_condition(reader, "WHERE") if reader.accept("WHERE") else None
    grouping = _read_grouping(reader) if reader.word() == "GROUP" else None
    having = parse_expression(reader) if reader.accept("HAVING") else None
    _refuse_rest(reader)
    refuse_number(reader, joined.tables, query)
    return Select(items, joined, where, grouping, having)


def _read_grouping(reader: TokenReader) -> tuple[Tree, ...]:
    if not reader.accept("GROUP", "BY"):
        raise reader.misfit()
    trees: list[Tree] = []
    if reader.word() == "ALL" and reader.word(1) in {"", "HAVING"}:
        reader.take()
        return ()
    while not trees or reader.accept(","):
        _refuse_grouping_sets(reader)
        trees.append(parse_expression(reader))
    _refuse_grouping_sets(reader)
    return tuple(trees)


def _refuse_grouping_sets(reader: TokenReader) -> None:
    """Refuse several groupings at once: ``ROLLUP (...)``, ``GROUPING SETS (...)``, ``WITH CUBE``."""
    words = reader.word(), reader.word(1)
    if words in {("ROLLUP", "("), ("CUBE", "("), ("GROUPING", "SETS"), ("WITH", "ROLLUP"), ("WITH", "CUBE")}:
        name = words[0] if words[1] == "(" else " ".join(words)
        raise reader.error(
            f"{name} is not supported: write a query for each set of columns, with a GROUP BY of its own"
        )


def _read_items(reader: TokenReader) -> tuple[Item, ...]:
    select = reader.tokens[0].start, reader.tokens[0].end
    if reader.word() == "DISTINCT" and reader.word(1) not in {"", ",", ".", "FROM"}:
        _refuse_rest(reader)
    if reader.word() == "ALL" and reader.word(1) not in {",", ".", "FROM"}:
        reader.take()
    items = []
    while True:
        if reader.done or reader.word() in {",", "FROM"}:
            message = "cannot read the SELECT list: write columns and expressions separated by commas"
            raise reader.error(message, select)
        items.append(_read_item(reader))
        if not reader.accept(","):
            return tuple(items)


def _read_item(reader: TokenReader) -> Item:
    first = reader.at
    tree = parse_expression(reader)
    tokens = reader.tokens[first : reader.at]
    word, after = reader.word(), reader.word(1)
    if tokens[-1].text == "*" and (
        word == "EXCEPT" or (word in _STAR_CLAUSES and after not in {"", ",", "FROM"})
    ):
        raise reader.error(
            f"* is every column and takes no {word}: list the columns you want", span_of_tokens(tokens)
        )
    alias = Parser(reader).alias()
    if alias is not None and isinstance(tree, Form) and tree.head == "STAR":
        raise reader.error(f"* is every column and cannot be called {alias}: leave the name out", tree.span)
    return Item(tree, alias, reader.source.slice(tokens), span_of_tokens(reader.tokens[first : reader.at]))


def _refuse_rest(reader: TokenReader) -> None:
    """Refuse words behind the end of the query."""
    if reader.done:
        return
    if reader.word() == "WINDOW" and reader.word(2) != "AS":
        raise reader.error("this query has two WINDOW clauses: keep one, at its end")
    refuse_clause(reader.source, reader.tokens[reader.at])
    raise reader.misfit()


@dataclass(frozen=True, slots=True)
class Table:
    """A stream in FROM: its name as written, and its alias."""

    name: str
    alias: str
    span: Span


@dataclass(frozen=True, slots=True)
class On:
    """The condition of an ON, and the number of streams, from the first, that it sees."""

    tree: Tree
    seen: int


@dataclass(frozen=True, slots=True)
class Using:
    """A column of USING: that of the stream at `position` equals that of the streams before it."""

    column: str
    position: int
    span: Span


@dataclass(slots=True)
class From:
    """The streams in the order of the text, their conditions, and the numbers of those behind CROSS JOIN."""

    tables: list[Table]
    conditions: list[On] = field(default_factory=list)
    using: list[Using] = field(default_factory=list)
    crossed: set[int] = field(default_factory=set)


def read_from(reader: TokenReader) -> From:
    """Read the streams of FROM, and how they are joined."""
    joined = From([_read_table(reader)])
    while True:
        if reader.accept(","):
            joined.tables.append(_read_table(reader))
        elif reader.word() in JOINS or _is_outer(reader):
            _read_join(reader, joined)
        else:
            return joined


def read_condition(reader: TokenReader, clause: str) -> Tree:
    """Read the condition of ON or WHERE."""
    condition = parse_expression(reader)
    refuse_aggregates(reader, condition, clause)
    return condition


def _read_join(reader: TokenReader, joined: From) -> None:
    """Read ``JOIN stream [ON condition | USING (columns)]``."""
    words = _read_words(reader)
    position = len(joined.tables)
    joined.tables.append(_read_table(reader))
    if words[0] == "CROSS":
        joined.crossed.add(position)
    if reader.accept("ON"):
        joined.conditions.append(On(read_condition(reader, "ON"), position + 1))
    elif reader.accept("USING"):
        joined.using += _read_using(reader, position)


def _read_words(reader: TokenReader) -> list[str]:
    """Read ``[INNER | CROSS] JOIN``; every other join is refused."""
    first, words = reader.at, []
    while reader.word() in {*JOINS, "OUTER"} and "JOIN" not in words:
        words.append(reader.take().upper)
    if words not in (["JOIN"], ["INNER", "JOIN"], ["CROSS", "JOIN"]):
        if "JOIN" not in words:
            raise reader.misfit()
        raise reader.error(refused_join(words), span_of_tokens(reader.tokens[first : reader.at]))
    return words


def _read_table(reader: TokenReader) -> Table:
    start = reader.span[0]
    refuse_rows(reader)
    name = reader.part(CLAUSES)
    while reader.accept("."):
        name += f".{reader.part(CLAUSES)}"
    token = reader.ahead()
    refuse_table(reader)
    span = (start, reader.behind)
    alias = name.rpartition(".")[2]
    named = reader.accept("AS")
    if named or (token and (token.kind == "quoted" or _is_alias(token)) and not _is_outer(reader)):
        alias = reader.part(CLAUSES)
        refuse_table(reader)
    return Table(name, alias, span)


def _is_outer(reader: TokenReader) -> bool:
    """Check whether ``OUTER JOIN`` comes next, where OUTER is no alias."""
    return (reader.word(), reader.word(1)) == ("OUTER", "JOIN")


def _is_alias(token: Token) -> bool:
    return token.kind == "word" and token.upper not in {*CLAUSES, *JOINS, *REFUSED_CLAUSES}


def _read_using(reader: TokenReader, position: int) -> list[Using]:
    columns: list[Using] = []
    reader.require("(")
    while not columns or reader.accept(","):
        span = reader.span
        columns.append(Using(reader.part(CLAUSES), position, span))
    reader.require(")")
    return columns


def refuse_number(reader: TokenReader, tables: list[Table], query: str) -> None:
    """Refuse a query of one stream, or of too many."""
    if len(tables) == 1:
        raise reader.error(f"{query} is a query with no join: name a second stream in FROM", tables[0].span)
    if len(tables) > MOST_INPUTS:
        raise reader.error(
            f"{query} joins {len(tables)} streams: {MOST_INPUTS} are the maximum. Join some of them in a query of "
            "their own, and declare its result as a stream",
            tables[MOST_INPUTS].span,
        )


def refuse_aggregates(reader: TokenReader, tree: Tree, clause: str) -> None:
    """Refuse aggregates in a clause that does not see groups."""
    wrong = next(filter(is_aggregate, nodes(tree)), None)
    if wrong:
        raise reader.error(f"an aggregate cannot stand in {clause}: put it in HAVING", wrong.span)
