"""A SELECT by its clauses, if it is one that Penstock can run: it joins, filters and perhaps groups two streams.

    SELECT items FROM stream [alias], stream [alias] [ON condition | USING (columns)] [WHERE condition]
    [GROUP BY expression, ... | GROUP BY ALL] [HAVING condition]

What a window join is not (outer joins, subqueries, ORDER BY and so on) is refused, each with its own sentence and
caret.

In:  the tokens of one SELECT, its window clauses taken out.
Out: a `Select`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.sql.aggregates import has_aggregate, refuse_aggregates
from penstock.sql.parse import Parser, parse_expression
from penstock.sql.tokens import Reader, span_of_tokens
from penstock.sql.words import CLAUSES, JOINS, SUPPORTED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.errors import SqlError
    from penstock.sql.lexer import Token
    from penstock.sql.tokens import Source, Span
    from penstock.sql.tree import Tree

_REFUSED_WORDS = (
    "WITH",
    "DISTINCT",
    "LIMIT",
    "OFFSET",
    "QUALIFY",
    "UNION",
    "EXCEPT",
    "INTERSECT",
    "MINUS",
)
_REFUSED_CLAUSES = {
    "ORDER": "ORDER BY",
    "SORT": "SORT BY",
    "CLUSTER": "CLUSTER BY",
    "DISTRIBUTE": "DISTRIBUTE BY",
    "LATERAL": "LATERAL VIEW",
    "WINDOW": "WINDOW ... AS",
    **dict(zip(_REFUSED_WORDS, _REFUSED_WORDS, strict=True)),
}
"""Words that begin a clause which is not supported, and the clause."""
_NOT_A_STREAM = {"TABLESAMPLE", "PIVOT", "UNPIVOT", "TIMESTAMP", "VERSION", "FOR", "("}


@dataclass(frozen=True, slots=True)
class Item:
    """One entry of the SELECT list: its tree, the name it is given (None if none is), its text."""

    tree: Tree
    alias: str | None
    text: str
    span: Span


@dataclass(frozen=True, slots=True)
class Table:
    """A stream in FROM: its name as written, and what the query calls it."""

    name: str
    alias: str
    span: Span


@dataclass(frozen=True, slots=True)
class Grouping:
    """GROUP BY: its expressions as written, which may be ordinals and aliases; none of them for ``GROUP BY ALL``."""

    trees: tuple[Tree, ...]
    all: bool
    span: Span


@dataclass(frozen=True, slots=True)
class Select:
    """A SELECT; `conditions` are those of ON and WHERE, `using` the columns of USING and where each stands."""

    items: tuple[Item, ...]
    tables: tuple[Table, Table]
    conditions: tuple[Tree, ...]
    using: tuple[tuple[str, Span], ...]
    grouping: Grouping | None = None
    having: Tree | None = None

    @property
    def aggregates(self) -> bool:
        """Say whether it answers with groups, not with pairs."""
        grouped = self.grouping is not None or self.having is not None
        return grouped or any(has_aggregate(item.tree) for item in self.items)


def read_select(source: Source, tokens: Sequence[Token], query: str) -> Select:
    """Read a SELECT, or say why it is none that can be run."""
    reader = Reader(source, tokens)
    if reader.word() in _REFUSED_CLAUSES:
        raise _refusal(reader)
    if not reader.accept("SELECT"):
        raise reader.error(f"this is not a query: {SUPPORTED}", span_of_tokens(tokens))
    items = _read_items(reader)
    if not reader.accept("FROM"):
        if not reader.done:
            raise _refusal(reader)
        raise reader.error(f"query {query} reads no stream: {SUPPORTED}", span_of_tokens(tokens))
    tables, conditions, using = _read_tables(reader)
    if reader.accept("WHERE"):
        conditions.append(_condition(reader, "WHERE"))
    grouping = _read_grouping(reader) if reader.word() == "GROUP" else None
    having = parse_expression(reader) if reader.accept("HAVING") else None
    if not reader.done:
        raise _refusal(reader)
    return Select(items, _two(reader, tables, query), tuple(conditions), tuple(using), grouping, having)


def _condition(reader: Reader, clause: str) -> Tree:
    """Read the condition of ON or WHERE, which is about pairs."""
    condition = parse_expression(reader)
    refuse_aggregates(reader, condition, clause)
    return condition


def _read_grouping(reader: Reader) -> Grouping:
    """Read ``GROUP BY ...``."""
    start = reader.span[0]
    if not reader.accept("GROUP", "BY"):
        raise reader.misfit()
    trees: list[Tree] = []
    if reader.word() == "ALL" and reader.word(1) in {"", "HAVING"}:
        reader.take()
        return Grouping((), all=True, span=(start, reader.behind))
    while True:
        _refuse_grouping_sets(reader)
        trees.append(parse_expression(reader))
        if not reader.accept(","):
            _refuse_grouping_sets(reader)
            return Grouping(tuple(trees), all=False, span=(start, reader.behind))


def _refuse_grouping_sets(reader: Reader) -> None:
    """Refuse several ways to group at once: ``ROLLUP (...)``, ``GROUPING SETS (...)``, ``WITH CUBE``."""
    words = reader.word(), reader.word(1)
    if words in {("ROLLUP", "("), ("CUBE", "("), ("GROUPING", "SETS"), ("WITH", "ROLLUP"), ("WITH", "CUBE")}:
        name = words[0] if words[1] == "(" else " ".join(words)
        raise reader.error(
            f"{name} is not supported: write a query for each set of columns, with a GROUP BY of its own"
        )


def _read_items(reader: Reader) -> tuple[Item, ...]:
    """Read the SELECT list."""
    select = reader.tokens[0].start, reader.tokens[0].end
    if reader.word() == "DISTINCT" and reader.word(1) not in {"", ",", ".", "FROM"}:
        raise reader.error("DISTINCT is not supported: write GROUP BY and the same columns instead")
    if reader.word() == "ALL" and reader.word(1) not in {",", ".", "FROM"}:
        reader.take()
    items = []
    while True:
        if reader.done or reader.word() in {",", "FROM"}:
            message = "cannot read the SELECT list: it is columns and expressions separated by commas"
            raise reader.error(message, select)
        items.append(_read_item(reader))
        if not reader.accept(","):
            return tuple(items)


def _read_item(reader: Reader) -> Item:
    """Read one entry of the SELECT list."""
    first = reader.at
    tree = parse_expression(reader)
    tokens = reader.tokens[first : reader.at]
    if tokens[-1].text == "*" and reader.word() == "EXCEPT":
        raise reader.error(
            "* is every column and takes no EXCEPT: list the columns you want", span_of_tokens(tokens)
        )
    alias = Parser(reader).alias()
    return Item(tree, alias, reader.source.slice(tokens), span_of_tokens(reader.tokens[first : reader.at]))


def _read_tables(reader: Reader) -> tuple[list[Table], list[Tree], list[tuple[str, Span]]]:
    """Read the streams of FROM, and how they are joined."""
    tables, using = [_read_table(reader)], list[tuple[str, "Span"]]()
    conditions: list[Tree] = []
    while True:
        if reader.accept(","):
            tables.append(_read_table(reader))
            continue
        if reader.word() not in JOINS:
            return tables, conditions, using
        _refuse_join(reader)
        tables.append(_read_table(reader))
        if reader.accept("ON"):
            conditions.append(_condition(reader, "ON"))
        elif reader.accept("USING"):
            using += _read_using(reader)


def _refuse_join(reader: Reader) -> None:
    """Read ``[INNER | CROSS] JOIN``; every other join is refused."""
    first, words = reader.at, []
    while reader.word() in {*JOINS, "OUTER"} and "JOIN" not in words:
        words.append(reader.take().upper)
    if words not in (["JOIN"], ["INNER", "JOIN"], ["CROSS", "JOIN"]):
        if "JOIN" not in words:
            raise reader.misfit()
        message = f"{' '.join(words)} is not supported: joins are inner, written FROM A, B WHERE ... or A JOIN B ON ..."
        raise reader.error(message, span_of_tokens(reader.tokens[first : reader.at]))


def _read_table(reader: Reader) -> Table:
    """Read a stream and its alias."""
    first, start = reader.at, reader.span[0]
    if reader.word() == "(":
        reader.take()
        raise reader.error(f"a subquery in FROM is not supported: {SUPPORTED}")
    name = _part(reader)
    while reader.accept("."):
        name += f".{_part(reader)}"
    token = reader.ahead()
    if token and token.upper in _NOT_A_STREAM:
        raise reader.error(
            f"this is not a stream and an alias: {SUPPORTED}",
            span_of_tokens(reader.tokens[first : reader.at]),
        )
    span = (start, reader.behind)
    named = reader.accept("AS")
    if named or (token and (token.kind == "quoted" or _is_alias(token))):
        return Table(name, _part(reader), span)
    return Table(name, name.rpartition(".")[2], span)


def _is_alias(token: Token) -> bool:
    return token.kind == "word" and token.upper not in {*CLAUSES, *JOINS, *_REFUSED_CLAUSES}


def _part(reader: Reader) -> str:
    """Read one part of a stream's name."""
    token = reader.ahead()
    if token is None or token.kind not in {"word", "quoted"} or token.upper in CLAUSES:
        raise reader.misfit()
    return reader.take().name


def _read_using(reader: Reader) -> list[tuple[str, Span]]:
    """Read the columns of ``USING (...)``."""
    columns = []
    if not reader.accept("("):
        raise reader.misfit()
    while True:
        span = reader.span
        columns.append((_part(reader), span))
        if reader.accept(")"):
            return columns
        if not reader.accept(","):
            raise reader.misfit()


def _two(reader: Reader, tables: Sequence[Table], query: str) -> tuple[Table, Table]:
    """Check that there are two streams."""
    if len(tables) == 1:
        raise reader.error(f"{query} is a query with no join: name a second stream in FROM", tables[0].span)
    if len(tables) > len(("left", "right")):
        raise reader.error(f"{query} joins {len(tables)} streams: two are supported", tables[2].span)
    return tables[0], tables[1]


def _refusal(reader: Reader) -> SqlError:
    """Say what comes next where the query should have ended."""
    clause = _REFUSED_CLAUSES.get(reader.word())
    return reader.error(f"{clause} is not supported: {SUPPORTED}") if clause else reader.misfit()
