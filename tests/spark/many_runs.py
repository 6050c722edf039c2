"""Joins of more than two streams on the real engine: feeds, queries, and what DuckDB has on the very same files.

The same for the process that is killed (`tests/spark/child.py`) and for the one that kills it.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import duckdb

from penstock.engine.api import Engine
from penstock.engine.sinks.callback import callback
from penstock.engine.sinks.parquet import parquet
from penstock.engine.sinks.table import table
from tests.answers import SECOND, bag
from tests.oracle import Feed, parquet_rows
from tests.testing.many_world import GRID, LATENESS, Many, Windows, random_rows

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from tests.answers import Bag

COLUMNS = {
    "id": "bigint", "k": "bigint", "j": "bigint", "g": "string", "m": "decimal(10,2)", "v": "bigint", "ts": "timestamp",
}  # fmt: skip
IDS = tuple((f"a{n}.id", f"i{n}") for n in range(3))
TIMES = tuple((f"a{n}.ts", f"t{n}") for n in range(3))
ONE_KEY, CHAIN = ("a0.k = a1.k", "a1.k = a2.k"), ("a0.k = a1.k", "a1.g = a2.g")
SPARKS = (("a0.g || '-' || a1.g || a2.g", "c"), ("a0.v + a1.v * a2.v", "s"), ("a0.m + a2.m", "m"))
QUERIES = (
    (Many("wide", tuple("PQR"), ONE_KEY, Windows(10 * GRID), outputs=IDS), "parquet"),
    (Many("near", tuple("PQR"), ONE_KEY, Windows(3 * GRID), ("a1.v > 0",), IDS), "parquet"),
    (Many("viewed", tuple("PQR"), CHAIN, Windows(6 * GRID), ("a0.v <= a2.v",), (*IDS, *SPARKS)), "table"),
    (Many("ranges", tuple("PQR"), CHAIN, Windows(each=(8 * GRID, 0, None)), (), (*IDS, *SPARKS)), "parquet"),
    (
        Many("steady", tuple("PQR"), ONE_KEY, Windows(6 * GRID), (), (*IDS, *TIMES), order="sync-filter"),
        "parquet",
    ),
    (Many("itself", tuple("PPQ"), ("a0.j = a1.j", "a1.m = a2.m"), Windows(2 * GRID), (), IDS), "callback"),
)
ANSWERS = (
    Many("sliding", tuple("PQR"), ONE_KEY, Windows(6 * GRID), (),
         (("a0.g", "g"), ("COUNT(*)", "n"), ("SUM(a2.v)", "s")), keys=1, emit="sliding", every=SECOND),
    Many("finals", tuple("PQR"), CHAIN, Windows(4 * GRID), (),
         (("date_trunc('second', a0.ts)", "b"), ("MAX(a1.v)", "x"), ("COUNT(*)", "n")), keys=1, emit="final"),
)  # fmt: skip


class ManyRun:
    """Three feeds and the queries over them, through as many engines as a test starts on one state."""

    def __init__(self, root: Path, queries: tuple[tuple[Many, str], ...] = QUERIES) -> None:
        one = {"maxFilesPerTrigger": "1"}
        self.root, self.queries, self.state = root, queries, root / "state"
        self.feeds = {name: Feed(name, root / name, COLUMNS, LATENESS, options=one) for name in "PQR"}
        self.called: dict[str, dict[str, pa.Table]] = {}

    def grow(self, seed: int, files: int, rows: int = 30) -> None:
        """Add files to each feed; none of their rows is late, and each feed's are later than those before."""
        random = Random(seed)
        for feed in self.feeds.values():
            mine = [row for row in random_rows(random, rows, 3) if row["ts"] is not None]
            mine.sort(key=lambda row: row["ts"])
            feed.append_cut(mine, [len(mine) * n // files for n in range(1, files)])

    def engine(self, spark: SparkSession) -> Engine:
        """Open the state and register everything."""
        engine = Engine(self.state, spark)
        try:
            engine.script("\n".join(feed.declare() for feed in self.feeds.values()))
            for query, sink in self.queries:
                select, emit = query.penstock().split(" AS SELECT ", 1)[1].rstrip(";\n"), query.emit
                more: dict[str, Any] = {"emit": emit} if emit in {"final", "changes"} else {}
                engine.query(
                    query.name,
                    f"SELECT {select}",
                    sink=self._sink(query.name, sink),
                    order=query.order,
                    **more,
                )
        except BaseException:
            engine.stop()
            raise
        return engine

    def _sink(self, query: str, sink: str) -> Any:
        if sink == "parquet":
            return parquet(self.root / "out" / query)
        return callback(lambda rows, unit: self._take(query, rows, unit)) if sink == "callback" else table()

    def _take(self, query: str, rows: DataFrame, unit: str) -> None:
        self.called.setdefault(query, {})[unit] = rows.toArrow()

    def once(self, spark: SparkSession) -> None:
        """Process all that is there, and stop."""
        with self.engine(spark) as engine:
            engine.start(once=True)
            engine.wait()

    def results(self, engine: Engine, query: str, sink: str) -> Bag:
        """Give what a query has delivered."""
        if sink == "parquet":
            return bag(parquet_rows(self.root / "out" / query).to_pylist())
        if sink == "callback":
            return sum((bag(rows.to_pylist()) for rows in self.called.get(query, {}).values()), bag([]))
        return bag(engine.results(query).toArrow().to_pylist())

    def answer(self, query: Many) -> Bag:
        """Give the right results over all files."""
        with duckdb.connect() as connection:
            for name, feed in self.feeds.items():
                connection.execute(
                    f"CREATE TABLE {name} AS SELECT *, epoch_us(ts) AS t FROM {feed.relation()} WHERE ts IS NOT NULL"
                )
            every = " UNION ALL ".join(f"SELECT t FROM {name}" for name in self.feeds)
            newest = connection.execute(f"SELECT max(t) FROM ({every})").fetchall()[0][0]
            return bag(connection.sql(query.duckdb(None, newest)).to_arrow_table().to_pylist())
