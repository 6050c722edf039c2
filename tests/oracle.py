"""The judge: DuckDB over the very Parquet files the engine read.

A `Spec` describes a query once.  `Spec.penstock` writes it the way a user would, `Spec.duckdb` as plain SQL.  The two
share the text of keys, predicates and projections, but not the arithmetic of windows: the engine reads ``WINDOW``,
brackets or intervals and works with differences in microseconds; DuckDB is given the definition itself::

    WINDOW w           (b.ts >= a.ts AND b.ts < a.ts + w) OR (a.ts >= b.ts AND a.ts < b.ts + w)
    A [NOW]            b.ts = a.ts takes the place of the first half
    A [UNBOUNDED]      b.ts >= a.ts takes the place of the first half
    interval predicate the comparison itself, on epoch_us(b.ts) - epoch_us(a.ts)
    A [ROWS n]         fewer than n rows of a lie after a.ts and up to b.ts: a subquery that counts them

Results are compared as bags: a `Counter` of tuples, values made plain so that both engines write them alike.
"""

from __future__ import annotations

import datetime as dt
import math
import os
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

Bag = Counter[tuple[Any, ...]]

ARROW = {
    "bigint": pa.int64(),
    "int": pa.int32(),
    "double": pa.float64(),
    "string": pa.string(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "decimal(10,2)": pa.decimal128(10, 2),
    "decimal(12,4)": pa.decimal128(12, 4),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
"""How each Spark type is written to a Parquet file."""

_FIRST_FILE = 1_700_000_000
"""Modification time of a feed's first file; each next one is a second younger, because Spark reads by age."""


# ------------------------------------------------------------------ input


@dataclass(frozen=True, slots=True)
class Feed:
    """A stream and its directory of Parquet files.  `lateness` is in microseconds."""

    name: str
    folder: Path
    columns: Mapping[str, str]
    lateness: int = 0
    time: str = "ts"
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)

    def declare(self) -> str:
        """Write the CREATE STREAM."""
        columns = ", ".join(f"{name} {kind.upper()}" for name, kind in self.columns.items())
        own = {"format": "parquet", "path": str(self.folder), "time": self.time}
        options = {**own, "lateness": f"{self.lateness} microseconds", **self.options}
        given = ", ".join(f"{name} = '{value}'" for name, value in options.items())
        return f"CREATE STREAM {_quoted(self.name)} ({columns}) WITH ({given});"

    def table(self, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
        """Lay out rows as a file holds them."""
        rows = list(rows)
        arrays = {
            name: pa.array([row[name] for row in rows], ARROW[kind]) for name, kind in self.columns.items()
        }
        return pa.table(arrays)

    def files(self) -> list[Path]:
        """List the files, oldest first."""
        return sorted(self.folder.glob("*.parquet"))

    def append(self, rows: Iterable[Mapping[str, Any]]) -> Path:
        """Add a file that Spark will read after all those before; it appears at once and whole."""
        number = len(self.files())
        path = self.folder / f"{number:05d}.parquet"
        put_file(self.table(rows), path, number)
        return path

    def append_cut(self, rows: Sequence[Mapping[str, Any]], cuts: Iterable[int]) -> None:
        """Add rows as several files, cut at these places."""
        ends = [0, *sorted(cuts), len(rows)]
        for start, end in pairwise(ends):
            self.append(rows[start:end])

    def relation(self) -> str:
        """Give this stream to DuckDB: times as plain timestamps, so that no time zone is involved."""
        columns = ", ".join(
            f"make_timestamp(epoch_us({name})) AS {name}" if kind == "timestamp" else name
            for name, kind in self.columns.items()
        )
        return f"(SELECT {columns} FROM read_parquet('{self.folder}/*.parquet'))"


def _quoted(name: str) -> str:
    """Write a name as SQL takes it."""
    return name if name.isidentifier() else f"`{name}`"


def put_file(table: pa.Table, path: Path, number: int) -> None:
    """Write a file beside its place and rename it, so that a reader never sees half of it."""
    hidden = path.with_name(f".{path.name}.tmp")
    pq.write_table(table, hidden)
    os.utime(hidden, (_FIRST_FILE + number,) * 2)
    hidden.rename(path)


# ------------------------------------------------------------------ queries


@dataclass(frozen=True, slots=True)
class Window:
    """A window, in one of the ways a user may state it; lengths and bounds in microseconds.

    ``both``: `a` is the length.  ``sides``: `a` and `b`, None for ``[UNBOUNDED]``, 0 for ``[NOW]``.
    ``rows``: `a` and `b` are numbers of rows, without `b` the same for both.  ``mixed``: `a` rows, and `b` a length.
    ``bounds``: `a` and `b` are the least and greatest ``b.ts - a.ts``, `strict` says of each whether it is left out;
    `style` chooses among the ways to write that.
    """

    kind: str
    a: int | None
    b: int | None = None
    strict: tuple[bool, bool] = (False, False)
    style: int = 0

    def brackets(self) -> tuple[str, str]:
        """Write what follows each stream."""
        if self.kind == "sides":
            return f" {_bracket(self.a)}", f" {_bracket(self.b)}"
        if self.kind == "mixed" or (self.kind == "rows" and self.b is not None):
            return f" [ROWS {self.a}]", f" [ROWS {self.b}]" if self.kind == "rows" else f" {_bracket(self.b)}"
        return "", ""

    def clause(self) -> str:
        """Write what ends the query."""
        if self.kind == "rows":
            return "" if self.b is not None else f"WINDOW {self.a} ROWS"
        return f"WINDOW {_length(self.a or 0)}" if self.kind == "both" else ""

    def conditions(self) -> list[str]:
        """Write the window as Spark and Flink users do."""
        if self.kind != "bounds":
            return []
        low, high = (_shifted("a.ts", micros or 0) for micros in (self.a, self.b))
        above, below = (">" if self.strict[0] else ">="), ("<" if self.strict[1] else "<=")
        if self.style == 0 and self.strict == (False, False):
            return [f"b.ts BETWEEN {low} AND {high}"]
        if self.style == 1:  # the other stream alone on the left
            first, second = (_shifted("b.ts", -(micros or 0)) for micros in (self.a, self.b))
            return [f"a.ts {_turned(above)} {first}", f"a.ts {_turned(below)} {second}"]
        if self.style == 2:  # the sides of each comparison exchanged
            return [f"{low} {_turned(above)} b.ts", f"{high} {_turned(below)} b.ts"]
        return [f"b.ts {above} {low}", f"b.ts {below} {high}"]

    def duckdb(self) -> str:
        """Say the same for the judge."""
        if self.kind == "bounds":
            above, below = (">" if self.strict[0] else ">="), ("<" if self.strict[1] else "<=")
            difference = "(epoch_us(b.ts) - epoch_us(a.ts))"
            return f"({difference} {above} {self.a} AND {difference} {below} {self.b})"
        if self.kind in {"rows", "mixed"}:
            theirs = self.a if self.b is None else self.b
            second = _among("b", "a", theirs) if self.kind == "rows" else _reaches("b", "a", theirs)
            return f"(({_among('a', 'b', self.a)} AND a.ts <= b.ts) OR ({second} AND b.ts < a.ts))"
        other = self.a if self.kind == "both" else self.b
        return f"({_reaches('a', 'b', self.a)} OR {_reaches('b', 'a', other)})"

    def still_waits(self, side: str, mark: str) -> str:
        """Say that a partner may still come for a row of `side`, when none will be older than `mark`.

        The youngest partner a row admits is where its window ends; it can still come if that is not behind the mark.
        """
        if self.kind == "bounds":
            end = self.b if side == "a" else -(self.a or 0)
            closed = not self.strict[1 if side == "a" else 0]
            return f"{mark} {'<=' if closed else '<'} {side}.ts + to_microseconds({end})"
        length = self.a if self.kind == "both" or side == "a" else self.b
        if length is None:
            return "TRUE"
        return f"{mark} <= {side}.ts" if length == 0 else f"{mark} < {side}.ts + to_microseconds({length})"


def _among(old: str, young: str, rows: int | None) -> str:
    """Say that the older row is among the last so many of its stream at the time of the younger."""
    later = f"SELECT count(*) FROM {old} AS later WHERE later.ts > {old}.ts AND later.ts <= {young}.ts"
    return f"({later}) < {rows}"


def _reaches(old: str, young: str, length: int | None) -> str:
    """Say that the older row is still in its stream's window when the younger one comes."""
    if length == 0:
        return f"{young}.ts = {old}.ts"
    far = "" if length is None else f" AND {young}.ts < {old}.ts + to_microseconds({length})"
    return f"({young}.ts >= {old}.ts{far})"


def _bracket(length: int | None) -> str:
    if length is None:
        return "[UNBOUNDED]"
    return "[NOW]" if length == 0 else f"[RANGE {_length(length)}]"


def _length(micros: int) -> str:
    for unit, size in (("minutes", 60_000_000), ("seconds", 1_000_000), ("milliseconds", 1_000)):
        if micros % size == 0:
            return f"{micros // size} {unit}"
    return f"{micros} microseconds"


def _shifted(column: str, micros: int) -> str:
    if not micros:
        return column
    number, unit = _length(abs(micros)).split()
    return f"{column} {'+' if micros > 0 else '-'} INTERVAL '{number}' {unit.upper().rstrip('S')}"


def _turned(sign: str) -> str:
    return sign.replace("<", "#").replace(">", "<").replace("#", ">")


@dataclass(frozen=True, slots=True)
class Spec:
    """A query, described once.  Its streams are called ``a`` and ``b`` in every expression.

    `select` lists ``(expression, name)``; none means ``*``.  `flipped` writes the streams the other way round.
    """

    name: str
    a: Feed
    b: Feed
    keys: tuple[str, ...]
    window: Window
    where: tuple[str, ...] = ()
    select: tuple[tuple[str, str], ...] = ()
    flipped: bool = False
    sink: str = "table"
    order: str = "none"

    def penstock(self) -> str:
        """Write the SELECT as a user of Penstock would."""
        brackets = self.window.brackets()
        streams = [f"{_quoted(self.a.name)} a{brackets[0]}", f"{_quoted(self.b.name)} b{brackets[1]}"]
        conditions = " AND ".join(
            [*self.keys, *self.window.conditions(), *(f"({each})" for each in self.where)]
        )
        chosen = ", ".join(f"{expression} AS {name}" for expression, name in self.select) or "*"
        source = ", ".join(reversed(streams) if self.flipped else streams)
        return f"SELECT {chosen} FROM {source} WHERE {conditions or 'TRUE'} {self.window.clause()}"

    def create(self, out: Path) -> str:
        """Write the CREATE QUERY; a parquet sink is a directory of the query's name under `out`."""
        options = f"sink = '{self.sink}'" + (
            f", path = '{out / self.name}'" if self.sink == "parquet" else ""
        )
        return f"CREATE QUERY {self.name} WITH ({options}) AS {self.penstock()};"

    def duckdb(self) -> str:
        """Write the batch join over the tables ``a`` and ``b``."""
        conditions = " AND ".join([*self.keys, self.window.duckdb(), *(f"({each})" for each in self.where)])
        star = "b.*, a.*" if self.flipped else "a.*, b.*"
        chosen = ", ".join(f"{expression} AS {name}" for expression, name in self.select) or star
        return f"SELECT {chosen} FROM a, b WHERE {conditions}"


def timely(feed: Feed) -> str:
    """Give DuckDB the rows of a stream that were in time, where every file was a batch of its own.

    A row is late when it is older than the newest row of the files before, less the lateness.
    """
    return f"(SELECT * EXCLUDE (penstock_mark) FROM {_marked(feed)} WHERE {_in_time(feed)})"


def late(feed: Feed) -> str:
    """Give DuckDB the rows that were not in time, or have no time."""
    return (
        f"(SELECT * EXCLUDE (penstock_mark) FROM {_marked(feed)} WHERE NOT coalesce({_in_time(feed)}, false))"
    )


def _in_time(feed: Feed) -> str:
    return f"{feed.time} IS NOT NULL AND {feed.time} >= coalesce(penstock_mark, {feed.time})"


def _marked(feed: Feed) -> str:
    """Put beside each row the newest time of the files before its own, less the lateness."""
    files = f"read_parquet('{feed.folder}/*.parquet', filename = true)"
    plain = ", ".join(
        f"make_timestamp(epoch_us({name})) AS {name}" if kind == "timestamp" else name
        for name, kind in feed.columns.items()
    )
    before = "max(max(t)) OVER (ORDER BY file ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
    marks = (
        f"SELECT file, {before} - to_microseconds({feed.lateness}) AS penstock_mark "
        f"FROM (SELECT filename AS file, make_timestamp(epoch_us({feed.time})) AS t FROM {files}) GROUP BY file"
    )
    rows = f"SELECT {plain}, filename AS file FROM {files}"
    return f"(SELECT * EXCLUDE (file) FROM ({rows}) JOIN ({marks}) USING (file))"


# ------------------------------------------------------------------ verdict


def ask(sql: str) -> pa.Table:
    """Ask DuckDB."""
    with duckdb.connect() as connection:
        return connection.sql(sql).to_arrow_table()


def number(sql: str) -> int:
    """Ask DuckDB for one number."""
    return int(ask(sql).column(0)[0].as_py() or 0)


def answer(spec: Spec, relations: Mapping[str, str] | None = None) -> Bag:
    """Give the right result of a query over its files, or over other `relations` by stream name.

    The files are loaded first, because DuckDB prunes by Parquet statistics, which leave NaN out, before it compares.
    """
    given = relations or {}
    with duckdb.connect() as connection:
        for alias, feed in (("a", spec.a), ("b", spec.b)):
            connection.execute(
                f"CREATE TABLE {alias} AS SELECT * FROM {given.get(feed.name, feed.relation())}"
            )
        return bag(connection.sql(spec.duckdb()).to_arrow_table())


def bag(table: pa.Table) -> Bag:
    """Count the rows of a table, values made plain."""
    columns = [[_plain(value) for value in column.to_pylist()] for column in table.columns]
    return Counter(zip(*columns, strict=True))


def _plain(value: Any) -> Any:
    """Write a value the same whichever engine made it."""
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    if isinstance(value, dt.datetime):
        utc = value if value.tzinfo else value.replace(tzinfo=dt.UTC)
        return (utc - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
    if isinstance(value, dict):
        return tuple((name, _plain(each)) for name, each in value.items())
    if isinstance(value, list):
        return tuple(_plain(each) for each in value)
    return value


def parquet_rows(folder: Path) -> pa.Table:
    """Read a sink's directory as any Parquet reader does: names that begin with ``_`` or ``.`` are not data."""
    return pq.read_table(folder)


def same_bag(got: Bag, right: Bag, what: str) -> None:
    """Assert that two bags are equal; else say in a few lines how they differ."""
    if got == right:
        return
    missing, extra = right - got, got - right
    lines = [f"{what}: {got.total()} rows, the judge has {right.total()}"]
    for word, some in (("missing", missing), ("too many", extra)):
        lines += [f"  {word} {count} x {row}" for row, count in list(some.items())[:5]]
        lines += [f"  ... {len(some) - 5} more {word}"] if len(some) > 5 else []
    raise AssertionError("\n".join(lines))
