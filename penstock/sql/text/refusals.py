"""Constructs of other SQL dialects that are not supported, and the advice for each.

In:  the word that begins a construct.  Out: an error that points at this word.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.sql.text.keywords import GENERATORS
from penstock.sql.text.lexer import Token
from penstock.sql.text.tokens import Source, TokenReader, depths

_IN_SPARK = "leave it out, and apply it in Spark to the results"
ANOTHER_QUERY = (
    "name the stream itself and put the conditions into WHERE, or make the inner SELECT a query of its own"
)
_TWO_QUERIES = "write a query for each SELECT, and combine their results in Spark"
EXPLODE = "explode the column before, and give the DataFrame to engine.stream"
OVER = "group by the PARTITION BY columns and write WINDOW 1 hour EVERY 1 min, or apply it in Spark to the results"

REFUSED_CLAUSES = {
    "ORDER": (
        "ORDER BY",
        "leave it out; for results in the order of time, write CREATE QUERY name WITH (order = 'filter-order') AS ...",
    ),
    "SORT": ("SORT BY", _IN_SPARK),
    "CLUSTER": ("CLUSTER BY", _IN_SPARK),
    "DISTRIBUTE": ("DISTRIBUTE BY", _IN_SPARK),
    "LIMIT": ("LIMIT", _IN_SPARK),
    "OFFSET": ("OFFSET", _IN_SPARK),
    "FETCH": ("FETCH", _IN_SPARK),
    "QUALIFY": ("QUALIFY", OVER),
    "LATERAL": ("LATERAL VIEW", EXPLODE),
    "UNION": ("UNION", _TWO_QUERIES),
    "INTERSECT": ("INTERSECT", _TWO_QUERIES),
    "EXCEPT": ("EXCEPT", _TWO_QUERIES),
    "MINUS": ("MINUS", _TWO_QUERIES),
    "WITH": ("WITH", ANOTHER_QUERY),
    "DISTINCT": ("DISTINCT", "write GROUP BY and the same columns instead"),
    "WINDOW": ("a named window", OVER),
}
"""The first words of clauses that are not supported, each with its clause and the advice."""

_NO_PARTNER = (
    "rows without a partner are not produced. Write JOIN ... ON ..., and find them in Spark by joining the data of "
    "the stream with the results"
)
_JOINS = {
    **dict.fromkeys(("LEFT", "RIGHT", "FULL", "OUTER", "ANTI"), _NO_PARTNER),
    "SEMI": "a row is in the result once for each partner. Write JOIN ... ON ..., and GROUP BY the columns you select",
    "NATURAL": "columns are not paired by their names. Name those that are equal, as in A JOIN B USING (k)",
    "ASOF": "a row meets all partners in its window. Write JOIN ... ON ... and GROUP BY the row, with MAX of B's time",
}

_TIME_TRAVEL = "name the stream alone: its rows are taken as they arrive"

_ROWS = "make a stream of its rows, with engine.stream of a DataFrame or from files"

_TABLES = {
    ("TABLESAMPLE", "("): ("TABLESAMPLE", "leave it out, or write a condition such as A.k % 10 = 0"),
    ("PIVOT", "("): ("PIVOT", _IN_SPARK),
    ("UNPIVOT", "("): ("UNPIVOT", _IN_SPARK),
    ("MATCH_RECOGNIZE", "("): (
        "MATCH_RECOGNIZE",
        "join the stream with itself, with conditions on the event times",
    ),
    ("LATERAL", "("): ("LATERAL", "write A JOIN B ON ..."),
    ("LATERAL", "TABLE"): ("LATERAL", EXPLODE),
    ("UNNEST", "("): ("UNNEST", EXPLODE),
    ("FOR", "SYSTEM_TIME"): (
        "FOR SYSTEM_TIME AS OF",
        "join both streams, with a condition such as B.ts BETWEEN A.ts - INTERVAL 1 HOUR AND A.ts",
    ),
    ("FOR", "TIMESTAMP"): ("FOR TIMESTAMP AS OF", _TIME_TRAVEL),
    ("FOR", "VERSION"): ("FOR VERSION AS OF", _TIME_TRAVEL),
    ("TIMESTAMP", "AS"): ("TIMESTAMP AS OF", _TIME_TRAVEL),
    ("VERSION", "AS"): ("VERSION AS OF", _TIME_TRAVEL),
    ("(", "SELECT"): ("a subquery in FROM", ANOTHER_QUERY),
    ("(", "WITH"): ("a subquery in FROM", ANOTHER_QUERY),
    ("(", "VALUES"): ("a table of VALUES", _ROWS),
    ("VALUES", "("): ("a table of VALUES", _ROWS),
}
"""Pairs of words in FROM that are no stream and no alias, each with its construct and the advice."""

_SLIDES = "write WINDOW 1 hour EVERY 1 min at the end of the query instead"
_GROUP_WINDOWS = {
    "TUMBLE": (
        "group by window(A.ts, '1 minute') and select window.start and window.end; or, to join on it, write "
        "window(A.ts, '1 minute') = window(B.ts, '1 minute')"
    ),
    "HOP": _SLIDES,
    "CUMULATE": _SLIDES,
    "SESSION": "group by window(A.ts, '10 minutes') or date_trunc('hour', A.ts)",
}
"""Flink's functions that assign rows to windows."""
_WINDOW_PARTS = ("", "_START", "_END", "_ROWTIME", "_PROCTIME")

_ADDED = "leave it out, as streams are not checked"
_CONSTRAINTS = {
    "PRIMARY": ("PRIMARY KEY", _ADDED),
    "UNIQUE": ("UNIQUE", "leave it out; if each value comes only once, write WITH (unique = '<columns>')"),
    "FOREIGN": ("FOREIGN KEY", _ADDED),
    "REFERENCES": ("REFERENCES", _ADDED),
    "CONSTRAINT": ("CONSTRAINT", _ADDED),
    "CHECK": ("CHECK", "write its condition into the WHERE of the queries"),
    "DEFAULT": ("DEFAULT", "write COALESCE(column, value) into the queries"),
    "GENERATED": ("a computed column", "write its expression into the SELECT lists"),
}
"""The first words of column constraints, each with its constraint and the advice."""

_BEFORE_WINDOW = {
    **{word: word for word in ("FROM", "JOIN", "WHERE", "HAVING")},
    "GROUP": "GROUP BY",
    **dict.fromkeys(("AND", "OR"), "this condition"),
}
_SET_OPERATORS = {"UNION", "INTERSECT", "EXCEPT", "MINUS"}
_OPERANDS = {"SELECT", "ALL", "DISTINCT", "(", "FROM", "TABLE", "VALUES", "WITH"}
"""Words that may follow a set operator."""


def refuse_clause(source: Source, token: Token) -> None:
    """Refuse the clause that a word begins, if it is not supported."""
    if token.upper in REFUSED_CLAUSES:
        clause, instead = REFUSED_CLAUSES[token.upper]
        raise source.error(f"{clause} is not supported: {instead}", (token.start, token.end))


def refuse_table(reader: TokenReader) -> None:
    """Refuse the next words in FROM, unless they may be a stream or its alias."""
    word, after = reader.word(), reader.word(1)
    if (word, after) in _TABLES:
        construct, instead = _TABLES[word, after]
        raise reader.error(f"{construct} is not supported: {instead}")
    name = reader.word(2) if word == "TABLE" else word
    if after == "(" and (word == "TABLE" or name in _GROUP_WINDOWS):
        instead = f", and {_GROUP_WINDOWS[name]}" if name in _GROUP_WINDOWS else ""
        raise reader.error(f"the table function {name} is not supported: name the stream itself{instead}")


def refuse_rows(reader: TokenReader) -> None:
    """Refuse the first words of an entry of FROM, unless they may be a stream."""
    refuse_table(reader)
    word, after = reader.word(), reader.word(1)
    if word == "(":
        raise reader.error("brackets around a join are not supported: write A JOIN B ON ... without them")
    if word == "LATERAL" and reader.word(2) == "(":
        raise reader.error(f"LATERAL is not supported: {EXPLODE}")
    if after == "(" and word:
        source = EXPLODE if word.lower() in GENERATORS else _ROWS
        raise reader.error(f"the table function {word} is not supported: {source}")


def refused_join(words: Sequence[str]) -> str:
    """Return the message for a join that is not supported."""
    why = next((_JOINS[word] for word in reversed(words) if word in _JOINS), "write A JOIN B ON ...")
    return f"{' '.join(words)} is not supported: {why}"


def refused_function(name: str) -> str:
    """Return the message for a function that assigns rows to windows; empty for all others."""
    kind = name.partition("_")[0]
    if kind in _GROUP_WINDOWS and name.removeprefix(kind) in _WINDOW_PARTS:
        return f"{name} is not supported: {_GROUP_WINDOWS[kind]}"
    return ""


def refuse_column(reader: TokenReader) -> None:
    """Refuse the next words in the columns of a stream, unless they may be a column."""
    words, third = (reader.word(), reader.word(1)), reader.ahead(2)
    if words == ("WATERMARK", "FOR"):
        time = third.name if third else "ts"
        raise reader.error(
            f"WATERMARK FOR is not supported: write WITH (time = '{time}', lateness = '5 seconds')"
        )
    opens = {("PRIMARY", "KEY"), ("FOREIGN", "KEY"), ("UNIQUE", "("), ("CHECK", "(")}
    if words in opens or (words[0] == "CONSTRAINT" and third and third.upper in _CONSTRAINTS):
        raise reader.error(refused_constraint(words[0]))
    if words[1] == "AS":
        raise reader.error(refused_constraint("GENERATED"))


def refused_constraint(word: str) -> str:
    """Return the message for a constraint of columns; empty if the word begins none."""
    if word not in _CONSTRAINTS:
        return ""
    construct, instead = _CONSTRAINTS[word]
    return f"{construct} is not supported: {instead}"


def refuse_set_operators(source: Source, tokens: Sequence[Token]) -> None:
    """Refuse a query of several SELECTs; this check comes first, as each SELECT may have a WINDOW."""
    around = depths(tokens)
    for at in range(1, len(tokens) - 1):
        is_operator = tokens[at].upper in _SET_OPERATORS and tokens[at + 1].upper in _OPERANDS
        if is_operator and around[at] == 0 and tokens[at - 1].text not in {".", "*"}:
            refuse_clause(source, tokens[at])


def refuse_behind_window(source: Source, tokens: Sequence[Token]) -> None:
    """Refuse clauses behind WINDOW or EVERY, which end a query."""
    for token in tokens[1:]:
        if token.upper in _BEFORE_WINDOW:
            clause = _BEFORE_WINDOW[token.upper]
            message = (
                f"{clause} stands behind {tokens[0].upper}, which ends a query: write {clause} before it"
            )
            raise source.error(message, (token.start, token.end))
        refuse_clause(source, token)
