"""The judge of aggregate queries: DuckDB, given the definition itself.

An `Asked` describes a query once.  `Asked.penstock` writes it the way a user would.  For DuckDB a sliding answer is a
join with all instants, and nothing is shared, cut or kept::

    sliding    FROM instants, a, b WHERE a.ts > e - wa AND a.ts <= e AND b.ts > e - wb AND b.ts <= e GROUP BY e, …
    final      FROM a, b WHERE a.ts <= b.ts < a.ts + wa OR b.ts <= a.ts < b.ts + wb GROUP BY …
    changes    the same, at any moment over the rows that are there

Streams are called A and B in every expression.  All lengths are in microseconds.
"""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    Bag = Counter[tuple[Any, ...]]

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
SECOND = 1_000_000


def chosen(function: str, x: str, y: str) -> tuple[str, str]:
    """Write MIN_BY or MAX_BY, and how DuckDB says it: among equal y, x decides, and a null x comes last."""
    order = "DESC" if function == "MAX_BY" else "ASC"
    ordered = f"first({x} ORDER BY {y} {order}, {x} {order} NULLS LAST) FILTER (WHERE {y} IS NOT NULL)"
    return f"{function}({x}, {y})", ordered


@dataclass(frozen=True, slots=True)
class Asked:
    """An aggregate query.  Keys and measures are ``(expression, name)``, and how DuckDB says it, if otherwise."""

    name: str
    keys: tuple[tuple[str, str], ...] = ()
    measures: tuple[tuple[str, str] | tuple[str, str, str], ...] = (("COUNT(*)", "n"),)
    windows: tuple[int, int] = (10 * SECOND, 10 * SECOND)
    every: int = SECOND
    where: tuple[str, ...] = ()
    having: str = ""
    emit: str = "sliding"
    join: tuple[str, ...] = ("A.k = B.k",)
    options: tuple[tuple[str, str], ...] = ()

    def select(self) -> str:
        """Write the SELECT as a user of Penstock would."""
        chosen = ", ".join(f"{each[0]} AS {each[1]}" for each in (*self.keys, *self.measures))
        one = self.windows[0] == self.windows[1]
        a, b = (
            ("A", "B")
            if one
            else (f"{s} [RANGE {w} microseconds]" for s, w in zip("AB", self.windows, strict=True))
        )
        group = f" GROUP BY {', '.join(each[0] for each in self.keys)}" if self.keys else ""
        having = f" HAVING {self.having}" if self.having else ""
        window = f" WINDOW {self.windows[0]} microseconds" if one else ""
        every = f" EVERY {self.every} microseconds" if self.emit == "sliding" else ""
        conditions = " AND ".join([*self.join, *(f"({each})" for each in self.where)])
        return f"SELECT {chosen} FROM {a}, {b} WHERE {conditions}{group}{having}{window}{every}"

    def penstock(self) -> str:
        """Write the CREATE QUERY."""
        options = dict(self.options) | ({"emit": self.emit} if self.emit != "sliding" else {})
        given = ", ".join(f"{name} = '{value}'" for name, value in options.items())
        return f"CREATE QUERY {self.name}{f' WITH ({given})' if given else ''} AS {self.select()};"

    def duckdb(self, since: int, until: int) -> str:
        """Write the query as DuckDB is asked, for instants ``since <= e <= until``."""
        wa, wb = self.windows
        chosen = [
            f"{each[-1] if len(each) > 2 else each[0]} AS {each[1]}" for each in (*self.keys, *self.measures)
        ]
        conditions = [*self.join, *(f"({each})" for each in self.where)]
        grouped = [each[0] for each in self.keys]
        source = "A, B"
        if self.emit == "sliding":
            first, last = -(-since // self.every), until // self.every
            series = f"SELECT make_timestamp(i * {self.every}) AS window_end FROM generate_series({first}, {last}) t(i)"
            source = f"({series}) instants, A, B"
            chosen, grouped = ["window_end", *chosen], ["window_end", *grouped]
            conditions += [
                f"{side}.ts <= window_end AND {side}.ts > window_end - to_microseconds({length})"
                for side, length in zip("AB", self.windows, strict=True)
            ]
        else:
            younger_b = f"B.ts >= A.ts AND B.ts < A.ts + to_microseconds({wa})"
            younger_a = f"A.ts >= B.ts AND A.ts < B.ts + to_microseconds({wb})"
            conditions += [f"(({younger_b}) OR ({younger_a}))"]
        having = f" HAVING {self.having}" if self.having else ""
        group = f" GROUP BY {', '.join(grouped)}" if grouped else ""
        if not grouped:  # there is no row where there is no pair
            having = f" HAVING COUNT(*) > 0{f' AND ({self.having})' if self.having else ''}"
        return f"SELECT {', '.join(chosen)} FROM {source} WHERE {' AND '.join(conditions)}{group}{having}"


def judged(
    asked: Asked, tables: Mapping[str, pa.Table], since: int | None = None, until: int | None = None
) -> Bag:
    """Give the right answers over some rows; sliding ones for instants up to the newest row, or `until`."""
    times = [each for table in tables.values() for each in table.column("ts").to_pylist() if each is not None]
    if not times:
        return Counter()
    oldest, newest = micros(min(times)), micros(max(times))
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for name, table in tables.items():
            plain = table.set_column(
                table.column_names.index("ts"), "ts", table.column("ts").cast(pa.timestamp("us"))
            )
            connection.register(f"{name}_given", plain)
            connection.execute(f"CREATE TABLE {name} AS SELECT * FROM {name}_given")
        first = oldest if since is None else max(since, oldest)
        sql = asked.duckdb(first, newest if until is None else min(until, newest + 2 * max(asked.windows)))
        return bag(connection.sql(sql).to_arrow_table().to_pylist())


def bag(rows: Iterable[Mapping[str, Any]]) -> Bag:
    """Count rows, values made plain."""
    return Counter(tuple(plain(value) for value in row.values()) for row in rows)


def plain(value: Any) -> Any:
    """Write a value the same whichever engine made it; doubles to the digits that rounding leaves alone."""
    if isinstance(value, float):
        if math.isnan(value):
            return "NaN"
        # nudged, so that what is half way between two such numbers in binary is not rounded to either
        return float(f"{value * (1 + 3e-12):.9g}") + 0.0
    if isinstance(value, dt.datetime):
        return micros(value)
    if isinstance(value, dt.date):
        return (value - dt.date(1970, 1, 1)).days
    if isinstance(value, dict):
        return tuple(plain(each) for each in value.values())
    return value


def micros(time: dt.datetime) -> int:
    """Give a time in microseconds."""
    aware = time if time.tzinfo else time.replace(tzinfo=dt.UTC)
    return (aware - EPOCH) // dt.timedelta(microseconds=1)


def same(got: Bag, right: Bag, what: str) -> None:
    """Assert that two bags are equal; else say in a few lines how they differ."""
    if got == right:
        return
    missing, extra = right - got, got - right
    lines = [f"{what}: {got.total()} answers, the judge has {right.total()}"]
    for word, some in (("missing", missing), ("too many", extra)):
        ordered = sorted(some.items(), key=repr)
        lines += [f"  {word} {count} x {row}" for row, count in ordered[:6]]
        lines += [f"  ... {len(some) - 6} more {word}"] if len(some) > 6 else []
    raise AssertionError("\n".join(lines))


def applied(changes: Iterable[Mapping[str, Any]], keys: int) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """Apply upserts in their order: an insert makes a group, an update finds one, a delete ends one."""
    state: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for row in sorted(changes, key=lambda each: each["_seq"]):
        values = tuple(plain(value) for name, value in row.items() if name not in {"_op", "_seq"})
        key = values[:keys]
        assert (row["_op"] == "insert") == (key not in state), f"{row['_op']} of {key} at {row['_seq']}"
        if row["_op"] == "delete":
            del state[key]
        else:
            assert row["_op"] in {"insert", "update"}
            state[key] = values
    return state
