"""Random trees of joins without a window: queries over streams and over other queries, at most three deep.

    S0 ─┬─ q0 ─┬─ q2 ─── q3         an input may be read by several, and twice by one
    S1 ─┘  S2 ─┘   S0 ───┘

A query's text is Spark SQL and DuckDB's alike, so that a view of DuckDB is what each query has to give.  All columns
but the one that is joined on are numbers of rows, from which it can be seen which rows a result is made of.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import duckdb

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from random import Random

    import pyarrow as pa

    from penstock.testing import Session

DEEPEST = 3


@dataclass(frozen=True, slots=True)
class Node:
    """A stream or a query that others may read: its columns beside ``k``, and how many joins its rows have passed."""

    name: str
    columns: tuple[str, ...] = ("n",)
    depth: int = 0


@dataclass(frozen=True, slots=True)
class TreeQuery:
    """A query of a tree: its SELECT, what it reads, and what it gives."""

    text: str
    inputs: tuple[Node, ...]
    node: Node

    @property
    def statement(self) -> str:
        """Write its CREATE QUERY."""
        return f"CREATE QUERY {self.node.name} AS {self.text};"


def tree(rng: Random, streams: Sequence[str], queries: int) -> list[TreeQuery]:
    """Draw queries, of which each may read those before it; the first reads streams."""
    nodes = [Node(name) for name in streams]
    made: list[TreeQuery] = []
    for number in range(queries):
        shallow = [each for each in nodes if each.depth < DEEPEST]
        inputs = [rng.choice(shallow) for _ in range(rng.choice([2, 2, 3]))]
        if made and not any(each.depth for each in inputs):
            inputs[0] = rng.choice([each for each in shallow if each.depth] or shallow)
        made.append(query_over(rng, f"q{number}", inputs))
        nodes.append(made[-1].node)
    return made


def query_over(rng: Random, name: str, inputs: Sequence[Node]) -> TreeQuery:
    """Write a query over some inputs: which of them gives ``k``, which columns it keeps, and which rows it wants."""
    aliases = [f"x{number}" for number in range(len(inputs))]
    columns = [
        f"{alias}.{column}" for alias, node in zip(aliases, inputs, strict=True) for column in node.columns
    ]
    if rng.random() < 0.3:
        first = rng.choice(columns)
        columns[columns.index(first)] = f"CAST({first} + 1 AS BIGINT)"
    joined = [f"{rng.choice(aliases[:number])}.k = {aliases[number]}.k" for number in range(1, len(inputs))]
    if rng.random() < 0.4:
        which = rng.randrange(len(inputs))
        joined.append(f"{aliases[which]}.{rng.choice(inputs[which].columns)} % 3 <> 0")
    if rng.random() < 0.2:
        one, other = (
            f"{alias}.{node.columns[0]}" for alias, node in list(zip(aliases, inputs, strict=True))[:2]
        )
        joined.append(f"{one} <> {other} + 1")
    named = [f"{each} AS c{number}" for number, each in enumerate(columns)]
    read = ", ".join(f"{node.name} {alias}" for alias, node in zip(aliases, inputs, strict=True))
    text = f"SELECT {rng.choice(aliases)}.k AS k, {', '.join(named)} FROM {read} WHERE {' AND '.join(joined)}"
    kept = tuple(f"c{number}" for number in range(len(columns)))
    return TreeQuery(text, tuple(inputs), Node(name, kept, 1 + max(each.depth for each in inputs)))


def whole(
    tables: Mapping[str, pa.Table], queries: Sequence[TreeQuery]
) -> dict[str, Counter[tuple[int, ...]]]:
    """Ask DuckDB for the results of every query, each a view over tables and other views."""
    with duckdb.connect() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        found = {}
        for each in queries:
            connection.execute(f"CREATE VIEW {each.node.name} AS {each.text}")
            numbers = ", ".join(each.node.columns)
            found[each.node.name] = Counter(
                connection.sql(f"SELECT {numbers} FROM {each.node.name}").fetchall()
            )
        return found


def found(session: Session, query: TreeQuery) -> Counter[tuple[int, ...]]:
    """Give the results of a query, as the numbers of the rows that they are made of."""
    return Counter(
        tuple(row[name] for name in query.node.columns) for row in session.results(query.node.name)
    )
