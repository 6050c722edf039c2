"""Random joins of three to six streams, as a user writes them and as DuckDB is asked: nothing shared, cut or kept.

A `Many` describes a query once.  The two texts share equalities, predicates and outputs, but not the arithmetic of
windows: DuckDB is given the definition itself, over the newest row of a result::

    WINDOW w          greatest(t0, t1, …) - least(t0, t1, …) < w
    a0 [RANGE w]      greatest(t0, t1, …) - t0 < w
    a0 [NOW]          greatest(t0, t1, …) = t0
    an interval       the comparison itself
    EVERY s           at each instant e: every row in (e - w, e]

Rows lie on a grid of which windows are multiples, so that ties and rows exactly a window apart are common.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa

from penstock.testing.input_rows import timely
from tests.answers import SECOND, bag, chosen, micros
from tests.testing.answer_world import START, at_time

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

    from penstock.testing import Session
    from tests.answers import Bag

GRID = SECOND // 2
LATENESS = SECOND
NAMES = "PQRTUV"
COLUMNS = "id BIGINT, k {kind}, j BIGINT, g STRING, m DECIMAL(10,2), v BIGINT, ts TIMESTAMP"


def declared(names: str = NAMES) -> str:
    """Write the streams; keys of the first are narrower than those of the others."""
    return "".join(
        f"CREATE STREAM {name} ({COLUMNS.format(kind='INT' if name == 'P' else 'BIGINT')}) WITH (format = 'parquet', "
        f"path = '{name}', time = 'ts', lateness = '1 second');\n"
        for name in names
    )


@dataclass(frozen=True, slots=True)
class Windows:
    """How far apart rows may be: one length for all, or one for each input (None: no end, 0: NOW), and intervals.

    An interval ``(i, j, low, high)`` says ``low <= t_j - t_i <= high``; lengths are in microseconds.
    """

    length: int | None = None
    each: tuple[int | None, ...] = ()
    intervals: tuple[tuple[int, int, int, int], ...] = ()

    def bracket(self, number: int) -> str:
        """Write what follows an input."""
        if not self.each:
            return ""
        length = self.each[number]
        return f" [{'UNBOUNDED' if length is None else f'RANGE {length} microseconds' if length else 'NOW'}]"

    def conditions(self) -> list[str]:
        """Write the intervals as users of Spark and Flink do."""
        return [
            f"a{j}.ts BETWEEN a{i}.ts {_shift(low)} AND a{i}.ts {_shift(high)}"
            for i, j, low, high in self.intervals
        ]

    def duckdb(self, count: int) -> list[str]:
        """Say the same for the judge."""
        times = [f"a{number}.t" for number in range(count)]
        newest, oldest = (f"{word}({', '.join(times)})" for word in ("greatest", "least"))
        said = [] if self.length is None else [f"{newest} - {oldest} < {self.length}"]
        for number, length in enumerate(self.each):
            if length is not None:
                said.append(f"{newest} - {times[number]} {f'< {length}' if length else '= 0'}")
        said += [f"{times[j]} - {times[i]} BETWEEN {low} AND {high}" for i, j, low, high in self.intervals]
        return said


def _shift(length: int) -> str:
    return f"{'-' if length < 0 else '+'} INTERVAL {abs(length)} MICROSECONDS"


@dataclass(frozen=True, slots=True)
class Many:
    """A query over inputs ``a0 a1 …``, each a stream by its name.  An aggregate has keys and measures for outputs.

    An output is ``(expression, name)``, and how DuckDB says it, if otherwise.
    """

    name: str
    streams: tuple[str, ...]
    equal: tuple[str, ...]
    windows: Windows
    where: tuple[str, ...] = ()
    outputs: tuple[tuple[str, str] | tuple[str, str, str], ...] = ()
    keys: int = 0
    emit: str = ""
    every: int = 0
    order: str = "none"
    joined: bool = False

    def penstock(self) -> str:
        """Write the CREATE QUERY."""
        options = [f"emit = '{self.emit}'"] if self.emit in {"final", "changes"} else []
        options += [f"order = '{self.order}'"] if self.order != "none" else []
        given = f" WITH ({', '.join(options)})" if options else ""
        chosen = ", ".join(f"{each[0]} AS {each[1]}" for each in self.outputs)
        inputs = [f"{stream} a{n}{self.windows.bracket(n)}" for n, stream in enumerate(self.streams)]
        conditions = " AND ".join(
            [*self.equal, *self.windows.conditions(), *(f"({each})" for each in self.where)]
        )
        group = f" GROUP BY {', '.join(each[0] for each in self.outputs[: self.keys])}" if self.keys else ""
        window = "" if self.windows.length is None else f" WINDOW {self.windows.length} microseconds"
        every = f" EVERY {self.every} microseconds" if self.every else ""
        source = " CROSS JOIN ".join(inputs) if self.joined else ", ".join(inputs)
        select = f"SELECT {chosen} FROM {source} WHERE {conditions}{group}{window}{every}"
        return f"CREATE QUERY {self.name}{given} AS {select};\n"

    def duckdb(self, since: int | None, until: int) -> str:
        """Write the query for the judge; rows from `since` on, and sliding answers for instants `until` then."""
        inputs = [f"{stream} a{n}" for n, stream in enumerate(self.streams)]
        conditions = [*self.equal, *(f"({each})" for each in self.where)]
        conditions += [] if since is None else [f"a{n}.t >= {since}" for n in range(len(inputs))]
        chosen = [f"{each[2] if len(each) > 2 else each[0]} AS {each[1]}" for each in self.outputs]
        grouped = [each[0] for each in self.outputs[: self.keys]]
        if self.every:
            first, last = START // self.every - 20 * SECOND // self.every, until // self.every
            inputs = [f"(SELECT i * {self.every} AS e FROM generate_series({first}, {last}) s(i)) s", *inputs]
            conditions += [
                f"a{n}.t <= e AND a{n}.t > e - {self.windows.each[n] if self.windows.each else self.windows.length}"
                for n in range(len(self.streams))
            ]
            chosen, grouped = ["make_timestamp(e) AS window_end", *chosen], ["e", *grouped]
        else:
            conditions += self.windows.duckdb(len(self.streams))
        group = f" GROUP BY {', '.join(grouped)}" if grouped else " HAVING COUNT(*) > 0" if self.emit else ""
        return f"SELECT {', '.join(chosen)} FROM {', '.join(inputs)} WHERE {' AND '.join(conditions)}{group}"


def judged(asked: Many, session: Session, since: int | None = None, until: int | None = None) -> Bag:
    """Give the right results of a query over the rows that a session has got in time."""
    tables = {name: in_time(session, name) for name in set(asked.streams)}
    times = [micros(each) for table in tables.values() for each in table.column("ts").to_pylist()]
    if not times:
        return Counter()
    with duckdb.connect() as connection:
        for name, table in tables.items():
            connection.register(f"{name}_given", table)
            plain = "make_timestamp(epoch_us(ts)) AS ts, epoch_us(ts) AS t"
            connection.execute(f"CREATE TABLE {name} AS SELECT * EXCLUDE ts, {plain} FROM {name}_given")
        sql = asked.duckdb(since, max(times) if until is None else until)
        return bag(connection.sql(sql).to_arrow_table().to_pylist())


def in_time(session: Session, name: str) -> pa.Table:
    """Give the rows of a stream that count."""
    stream = session.stream(name)
    types = session.arrow_types(stream)
    none = pa.table({column: pa.array([], kind) for column, kind in types.items()})
    return timely(session.sent.get(name) or [none], stream)


# --- drawing ----------------------------------------------------------------------------------------------------------


def random_rows(random: Random, count: int, keys: int) -> list[dict[str, Any]]:
    """Make rows in an order of arrival: ties, disorder within the lateness, and a few that come too late."""
    rows, at = [], START
    for number in range(count):
        at += random.choice((0, 0, GRID, GRID, GRID, 2 * GRID, 1))
        early = random.choice((0, 0, 0, GRID, LATENESS, LATENESS if random.random() < 0.7 else 5 * LATENESS))
        key = random.choice((None, *range(keys), *range(keys), *range(keys)))
        rows.append(
            {
                "id": number,
                "k": key,
                "j": random.choice((None, *range(keys), *range(keys))),
                "g": random.choice((None, *"xyzXé", "x" * 40)[: keys + 2]),
                "m": random.choice((None, *(Decimal(each) / 4 for each in range(keys)))),
                "v": random.choice((None, 0, 1, 2, 3, 5, -7)),
                "ts": None if random.random() < 0.02 else at_time(at - early),
            }
        )
    return rows


def random_streams(random: Random, count: int) -> tuple[str, ...]:
    """Choose the streams of so many inputs; sometimes one of them more than once."""
    if random.random() < 0.35:
        return tuple(random.choice(NAMES[: max(1, count - 1)]) for _ in range(count))
    return tuple(random.sample(NAMES, count))


SHAPES = ("chain", "star", "cycle", "clique", "class", "composite", "tree")


def random_equalities(random: Random, shape: str, count: int) -> tuple[str, ...]:
    """Draw the equalities of a graph."""
    inputs = range(count)
    edges = {
        "chain": list(pairwise(inputs)),
        "composite": list(pairwise(inputs)),
        "star": [(0, each) for each in inputs[1:]],
        "cycle": [*pairwise(inputs), (0, count - 1)],
        "clique": list(combinations(inputs, 2)),
        "class": list(pairwise(inputs)),
        "tree": [(random.randrange(each), each) for each in inputs[1:]],
    }[shape]
    if shape in {"class", "clique"} and random.random() < 0.7:
        column = random.choice("kjgm")
        return tuple(f"a{i}.{column} = a{j}.{column}" for i, j in edges)
    return tuple(
        text for i, j in edges for text in _equalities(random, i, j, 2 if shape == "composite" else 1)
    )


def _equalities(random: Random, i: int, j: int, count: int) -> list[str]:
    kinds = ("a{}.k = a{}.k", "a{}.j = a{}.j", "a{}.g = a{}.g", "a{}.m = a{}.m", "a{}.k = a{}.j", "a{}.j = a{}.k + 1",
             "lower(a{}.g) = lower(a{}.g)")  # fmt: skip
    return [text.format(i, j) for text in random.sample(kinds, count)]


LENGTHS = (GRID, 2 * GRID, 3 * GRID, 5 * GRID, 8 * GRID, 16 * GRID, 5 * GRID + 1)


def random_windows(random: Random, count: int) -> Windows:
    """Draw windows in one of the ways to state them."""
    way = random.choice(("window", "window", "each", "each", "intervals", "both"))
    if way == "window":
        return Windows(random.choice(LENGTHS))
    if way == "each":
        return Windows(each=tuple(random.choice((*LENGTHS, 0, None)) for _ in range(count)))
    intervals = [_interval(random, random.randrange(each), each) for each in range(1, count)]
    if way == "both":
        return Windows(random.choice(LENGTHS[2:]), intervals=tuple(random.sample(intervals, 1)))
    return Windows(intervals=tuple(intervals))


def _interval(random: Random, i: int, j: int) -> tuple[int, int, int, int]:
    low = GRID * random.randint(-4, 2)
    return i, j, low, low + GRID * random.randint(0, 6)


def random_where(random: Random, count: int) -> tuple[str, ...]:
    """Draw predicates on one input each, and now and then a condition between two or three."""
    ones = (
        "a{}.v > 0",
        "a{}.v <= 3",
        "a{}.g <> 'y'",
        "a{}.v IS NOT NULL",
        "a{}.v % 2 = 1",
        "a{}.m < 1.0",
        "a{}.k > 0",
    )
    where = [random.choice(ones).format(random.randrange(count)) for _ in range(random.choice((0, 0, 1, 2)))]
    if random.random() < 0.3:
        i, j, h = random.sample(range(count), 3)
        more = (
            "a{0}.v <= a{1}.v",
            "a{0}.v + a{1}.v > a{2}.v",
            "a{0}.g <> a{1}.g",
            "a{0}.ts <> a{1}.ts",
            "a{0}.id > a{2}.id",
        )
        where.append(random.choice(more).format(i, j, h))
    return tuple(where)


def random_outputs(random: Random, count: int) -> tuple[tuple[str, str], ...]:
    """List what a query gives: the ids, and now and then what is computed of several rows."""
    ids = tuple((f"a{number}.id", f"i{number}") for number in range(count))
    times = tuple((f"a{number}.ts", f"t{number}") for number in range(count))
    computed = (("a0.v + a1.v + a2.v", "s"), ("coalesce(a1.g, a0.g)", "c"), ("a2.m", "m"))
    return (*ids, *times, *random.sample(computed, random.choice((0, 0, 1, 2))))


def random_many(random: Random, name: str, like: Many | None = None, most: int = 6) -> Many:
    """Draw a query; `like` another, it joins the same streams on the same equalities, with windows of its own."""
    count = len(like.streams) if like else min(most, random.choice((3, 3, 3, 4, 4, 5, 6)))
    streams = like.streams if like else random_streams(random, count)
    equal = like.equal if like else random_equalities(random, random.choice(SHAPES), count)
    return Many(
        name,
        streams,
        equal,
        random_windows(random, count),
        random_where(random, count),
        random_outputs(random, count),
    )


CHOSEN = {"l": chosen("MAX_BY", "a1.g", "a2.v"), "f": chosen("MIN_BY", "a0.v", "a0.m")}
MEASURES = (
    ("COUNT(*)", "n"), ("SUM(a1.v)", "s"), ("MAX(a0.v)", "x"), ("MIN(a2.g)", "y"), ("COUNT(DISTINCT a1.id)", "d"),
    ("SUM(a0.v + a2.v)", "b"), ("AVG(a2.v)", "a"), ("MAX(a1.m)", "z"),
    *((text, name, sql) for name, (text, sql) in CHOSEN.items()),
)  # fmt: skip


def random_aggregate(random: Random, name: str, emit: str) -> Many:
    """Draw an aggregate of three or four streams; final groups have a bucket of time."""
    asked = random_many(random, name, most=random.choice((3, 3, 4)))
    count = len(asked.streams)
    keys = random.sample((("a0.g", "h"), ("a1.v % 2", "p"), ("a2.k", "q")), random.choice((0, 1, 2)))
    every, windows = 0, Windows(random.choice(LENGTHS))
    if emit == "sliding":
        every = random.choice((GRID, SECOND, 2 * SECOND))
        lengths = [each for each in LENGTHS if each >= every]
        windows = Windows(random.choice(lengths))
        if random.random() < 0.3:
            windows = Windows(each=tuple(random.choice(lengths) for _ in range(count)))
    if emit == "final":
        keys = [(f"date_trunc('second', a{random.randrange(count)}.ts)", "bucket"), *keys]
    outputs = (*keys, *random.sample(MEASURES, random.randint(1, 4)))
    return replace(asked, windows=windows, outputs=outputs, keys=len(keys), emit=emit, every=every)


def streams_of(random: Random, asked: list[Many], count: int) -> dict[str, list[dict[str, Any]]]:
    """Make rows for every stream that is read."""
    most = max(len(each.streams) for each in asked)
    return {
        name: random_rows(random, count, 2 if most == 3 else 3)
        for name in sorted({name for each in asked for name in each.streams})
    }


def rounds_of(random: Random, streams: Mapping[str, list[Any]], most: int = 5) -> list[dict[str, list[Any]]]:
    """Cut the rows of each stream anywhere: what comes of each in every round."""
    cuts = {}
    for name, rows in streams.items():
        ends = sorted(random.randint(0, len(rows)) for _ in range(random.randint(0, most)))
        cuts[name] = [rows[a:b] for a, b in pairwise((0, *ends, len(rows)))]
    return [
        {name: mine[turn] for name, mine in cuts.items() if turn < len(mine)}
        for turn in range(max(map(len, cuts.values())))
    ]
