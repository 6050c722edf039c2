"""Streams of w1's kind for joins of three and more, as files, as scripts, and as DuckDB counts them.

A `Graph` says which columns of which streams are equal, and how many partners a row finds in each equality's other
stream within the window: its *fan-out*.  Keys are drawn from so many that this holds, whatever the rate::

    common   a.k = b.k = c.k …           1.2 everywhere: two results to an input row, of three streams or of five
    chain    a ──600── b ──0.005── c     b is the newest: its rows meet many of a, and seldom one of c
    star     a ─0.01─ s ─30─ c, s ─30─ d whoever asks a first has next to nothing to ask the others for

Rates and files are such that all streams cover 100 s of event time, ten files each, however few rows there are.

In:  a graph and a number of rows.  Out: a directory of Parquet files, Penstock's script, and the counts to expect.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import permutations
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import pyarrow as pa

from benchmarks.oracle import Truth
from benchmarks.workloads import NOOP, stamps, write_files
from penstock.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from benchmarks.workloads import WindowQuery

SPAN_SECONDS, FILES = 100, 10
WINDOW_SECONDS = 30
MICROS = 1_000_000
FAN_OUT = (
    1.2  # of each equality of `common`: so many rows of another stream have a row's key within the window
)


@dataclass(frozen=True, slots=True)
class Link:
    """An equality of two streams' columns of one name, and how many partners a row has on the other side."""

    one: str
    other: str
    column: str
    fan_out: float

    def condition(self) -> str:
        """Write the equality."""
        return f"{self.one}.{self.column} = {self.other}.{self.column}"


@dataclass(frozen=True, slots=True)
class Graph:
    """Streams and equalities.  `newest`, if there is one, is the stream whose row completes every result.

    `orders` names in which order streams may be asked, where that makes a difference: a forced run for each.
    """

    name: str
    links: tuple[Link, ...]
    newest: str = ""
    orders: tuple[str, ...] = field(default=())

    @property
    def streams(self) -> tuple[str, ...]:
        """List the streams by name."""
        return tuple(sorted({name for each in self.links for name in (each.one, each.other)}))

    def columns(self, stream: str) -> dict[str, float]:
        """Give a stream's key columns, and the fan-out of each."""
        return {each.column: each.fan_out for each in self.links if stream in {each.one, each.other}}


def common_key(streams: int) -> Graph:
    """Join so many streams on one key: b, c and so on each equal to a."""
    names = "abcdefghijklmnop"[:streams]
    return Graph(f"common-{streams}", tuple(Link("a", other, "k", FAN_OUT) for other in names[1:]))


CHAIN = Graph("chain", (Link("a", "b", "k", 600), Link("b", "c", "j", 0.005)), "b", ("ac", "ca"))
STAR = Graph(
    "star",
    (Link("a", "s", "x", 0.01), Link("c", "s", "y", 30), Link("d", "s", "z", 30)),
    orders=tuple("".join(each) for each in permutations("acd")),
)
SKEWED = {each.name: each for each in (CHAIN, STAR)}
"""Graphs on which the order of asking makes a difference."""


def skewed_graph(name: str) -> Graph:
    """Find a graph by its name."""
    if name not in SKEWED:
        raise InputError(f"there is no skewed graph {name}: {did_you_mean(name, SKEWED)}")
    return SKEWED[name]


@dataclass(frozen=True, slots=True)
class ManyStreams:
    """The input of a join: a graph's streams, `rows` of each."""

    graph: Graph
    rows: int
    seed: int = 7

    @property
    def label(self) -> str:
        """Name the directory of the data: everything they depend on."""
        return f"{self.graph.name}-{self.rows}-{self.seed}"

    @property
    def rows_in_window(self) -> int:
        """Count the rows of all streams that lie within one window."""
        return len(self.graph.streams) * self.rows * WINDOW_SECONDS // SPAN_SECONDS

    def keys(self, fan_out: float) -> int:
        """Say of how many keys to draw, so that rows have so many partners."""
        return max(1, round(self.rows * WINDOW_SECONDS / SPAN_SECONDS / fan_out))

    def streams(self) -> dict[str, pa.Table]:
        """Make the streams, in order of event time."""
        random = np.random.default_rng(self.seed)
        return {name: self._stream(name, random) for name in self.graph.streams}

    def _stream(self, name: str, random: np.random.Generator) -> pa.Table:
        times = np.sort(random.integers(0, SPAN_SECONDS * MICROS, self.rows))
        keys = {
            column: random.integers(0, self.keys(fan_out), self.rows)
            for column, fan_out in self.graph.columns(name).items()
        }
        return pa.table({**keys, "v": random.random(self.rows) * 100, "ts": stamps(times)})

    def write(self, parent: Path) -> Path:
        """Write the streams as files in order of event time, unless they are there already; give their directory."""
        directory = (parent / self.label).resolve()
        if (directory / "done").exists():
            return directory
        for name, rows in self.streams().items():
            write_files(directory / name, rows, np.linspace(0, rows.num_rows, FILES + 1).astype(np.int64))
        (directory / "done").touch()
        return directory


def outputs(graph: Graph) -> list[tuple[str, str]]:
    """List what a query gives: the keys once, and every stream's value and time."""
    keys = [(f"{each.one}.{each.column}", each.column) for each in graph.links]
    rows = [(f"{name}.{column}", f"{name}_{column}") for name in graph.streams for column in ("v", "ts")]
    return list(dict.fromkeys([*keys, *rows]))


def joining_script(graph: Graph, data: Path, queries: Sequence[WindowQuery]) -> str:
    """Write queries over a graph's files as a Penstock script; they are named q0, q1 and so on."""
    return "".join(_declared(graph, name, data) for name in graph.streams) + "".join(
        f"CREATE QUERY q{number} WITH ({NOOP}) AS {_select(graph, each.window)};\n"
        for number, each in enumerate(queries)
    )


def _declared(graph: Graph, name: str, data: Path) -> str:
    keys = "".join(f"{column} BIGINT, " for column in graph.columns(name))
    return (
        f"CREATE STREAM {name} ({keys}v DOUBLE, ts TIMESTAMP) WITH (format = 'parquet', path = '{data / name}', "
        "time = 'ts', maxFilesPerTrigger = '1');\n"
    )


def _select(graph: Graph, window: float) -> str:
    chosen = ", ".join(f"{expression} AS {name}" for expression, name in outputs(graph))
    where = " AND ".join(each.condition() for each in graph.links)
    if not graph.newest:
        return f"SELECT {chosen} FROM {', '.join(graph.streams)} WHERE {where} WINDOW {window} seconds"
    ranged = [f"{name} [{_range(graph, name, window)}]" for name in graph.streams]
    return f"SELECT {chosen} FROM {', '.join(ranged)} WHERE {where}"


def _range(graph: Graph, name: str, window: float) -> str:
    return "NOW" if name == graph.newest else f"RANGE {window} seconds"


def true_results(graph: Graph, data: Path, queries: Sequence[WindowQuery]) -> Truth:
    """Count by DuckDB what the queries should give: results whose rows are less than the window apart."""
    spread = f"{_of_all('greatest', graph)} - {_of_all('least', graph)}"
    counts = ", ".join(f"count(*) FILTER (WHERE {spread} < {each.micros})" for each in queries)
    widest = max(each.micros for each in queries)
    tables = {
        name: f"(SELECT *, epoch_us(ts) AS t FROM read_parquet('{data / name}/*.parquet')) {name}"
        for name in graph.streams
    }
    with duckdb.connect() as connection:
        sql = f"SELECT count(*), {counts} FROM {_joined(graph, tables, widest)}"
        everything, *results = connection.execute(sql).fetchall()[0]
        rows = connection.execute(
            f"SELECT {' + '.join(f'(SELECT count(*) FROM {each})' for each in tables.values())}"
        )
        return Truth(int(rows.fetchall()[0][0]), tuple(results), everything)


def _of_all(function: str, graph: Graph) -> str:
    return f"{function}({', '.join(f'{name}.t' for name in graph.streams)})"


def _joined(graph: Graph, tables: Mapping[str, str], micros: int) -> str:
    """Join the streams in an order in which each is linked to one before, each near enough to all before."""
    seen, text = [graph.streams[0]], tables[graph.streams[0]]
    left = list(graph.links)
    while left:
        link = next(each for each in left if {each.one, each.other} & set(seen))
        left.remove(link)
        name = link.one if link.other in seen else link.other
        near = [f"abs({name}.t - {other}.t) < {micros}" for other in seen]
        near += [f"{graph.newest}.t >= {other}.t" for other in seen if name == graph.newest]
        near += [f"{graph.newest}.t >= {name}.t"] if graph.newest in seen else []
        text += f" JOIN {tables[name]} ON {' AND '.join([link.condition(), *near])}"
        seen.append(name)
    return text
