"""Random streams without a window: values more or less in order, several alike, some null, and how they arrive.

Values are drawn in order and then moved, each by a few positions at most; some streams are far behind others::

    S1   0 1 2 2 4 3 5 | 6 8 7 9 .......|                       rounds of batches, cut anywhere
    S2                 0 1 | 3 2 4 5 6 7 8 9 | ......
    S3   0 | 1 2 3 4 5 6 ...

The scrambling of drawn values is counted by comparing each row with each, as Definition 2.2 of paper 5 says.

Random trees of joins read them: queries over streams and over other queries, at most three deep::

    S0 ─┬─ q0 ─┬─ q2 ─── q3         an input may be read by several, and twice by one
    S1 ─┘  S2 ─┘   S0 ───┘

A query's text is Spark SQL and DuckDB's alike, so a view of DuckDB has the results of each query.  All columns but the
one that is joined on are numbers of rows, which tell the rows of a result.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from random import Random

    from penstock.testing import Session

Values = list[int | None]

DAY_0 = date(2020, 1, 1)
TIME_0 = datetime(2020, 1, 1)  # noqa: DTZ001 - wall-clock times are what is asked about

TYPES: dict[str, tuple[Callable[[int], Any], pa.DataType]] = {
    "BIGINT": (lambda n: n - 20, pa.int64()),
    "SMALLINT": (lambda n: n - 20, pa.int16()),
    "DOUBLE": (lambda n: (n - 20) / 7, pa.float64()),
    "FLOAT": (lambda n: float(n - 20) / 4, pa.float32()),
    "DECIMAL(20, 2)": (lambda n: Decimal(n - 20) / 100 + 10**17, pa.decimal128(20, 2)),
    "DECIMAL(9, 2)": (lambda n: Decimal(n - 20) / 100, pa.decimal128(9, 2)),
    "DATE": (lambda n: DAY_0 + timedelta(days=n - 20), pa.date32()),
    "TIMESTAMP_NTZ": (lambda n: TIME_0 + timedelta(microseconds=n - 20), pa.timestamp("us")),
}
"""For each type, how a whole number becomes one of its values; decimals are closer together than doubles can tell."""


@dataclass(frozen=True, slots=True)
class Sensor:
    """One stream: its values in the order of arrival, cut into batches, and the round in which its first one comes."""

    name: str
    values: Values
    cuts: tuple[int, ...]
    begins: int

    def batches(self) -> list[tuple[int, Values]]:
        """Give its batches, each with the position of its first row."""
        ends = [*self.cuts, len(self.values)]
        return [(start, self.values[start:end]) for start, end in zip([0, *self.cuts], ends, strict=True)]


def scrambled(rng: Random, rows: int, apart: int, alike: int) -> Values:
    """Draw values that are out of order by about so many rows, with about so many alike, and a few null."""
    start, values = 0, []
    while len(values) < rows:
        start += rng.choice([1, 1, 1, 2])
        values += [start] * rng.randint(1, alike)
    moved = sorted(range(rows), key=lambda place: place + rng.randint(0, apart))
    return [None if rng.random() < 0.05 else values[place] for place in moved]


def sensor(rng: Random, name: str, rows: int) -> Sensor:
    """Draw a stream."""
    values = scrambled(rng, rows, rng.choice([0, 1, 5, 20]), rng.choice([1, 1, 2, 4]))
    cuts = tuple(sorted(rng.sample(range(1, rows), rng.randint(0, min(6, rows - 1)))))
    return Sensor(name, values, cuts, rng.choice([0, 0, 1, 4]))


def true_scrambling(values: Sequence[int | None]) -> int:
    """Count how far a row comes after one that is not smaller, at the most: each against each."""
    return max(
        (
            later - earlier
            for later, low in enumerate(values)
            for earlier, high in enumerate(values[:later])
            if low is not None and high is not None and low <= high
        ),
        default=0,
    )


def true_multiplicity(values: Sequence[int | None]) -> int:
    """Count the rows of the most frequent value."""
    known = [each for each in values if each is not None]
    return max((known.count(each) for each in set(known)), default=1)


def rows_needed(own: Values, other: Values, apart: int) -> int:
    """Count the rows of a stream from the first on that one still to come of another may meet."""
    safe = [each for each in other[: max(0, len(other) - apart)] if each is not None]
    if not safe:
        return len(own)
    above = (place for place, each in enumerate(own) if each is not None and each > max(safe))
    return len(own) - next(above, len(own))


def full_join(sensors: Sequence[Sensor]) -> list[tuple[int, ...]]:
    """Ask DuckDB for the whole join: the numbers of the rows of each result."""
    with duckdb.connect() as connection:
        for each in sensors:
            connection.register(
                each.name, pa.table({"k": pa.array(each.values, pa.int64()), "n": range(len(each.values))})
            )
        first, *others = (each.name for each in sensors)
        joined = " ".join(f"JOIN {name} ON {first}.k = {name}.k" for name in others)
        columns = ", ".join(f"{each.name}.n" for each in sensors)
        return sorted(connection.sql(f"SELECT {columns} FROM {first} {joined}").fetchall())


# --- trees of queries -------------------------------------------------------------------------------------------------

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
