"""Run specs on the real engine, and hold what it delivered against the judge."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from penstock.engine.api import Engine
from penstock.engine.sinks.callback import callback
from penstock.engine.sinks.console import console
from penstock.engine.sinks.noop import noop
from penstock.engine.sinks.parquet import parquet
from penstock.engine.sinks.table import table
from penstock.state.files import safe_name
from tests.oracle import answer, bag, parquet_rows, same_bag

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from tests.oracle import Bag, Spec


class Run:
    """Queries on one state directory, through as many engines as a test starts on it."""

    def __init__(self, spark: SparkSession, root: Path, specs: Iterable[Spec]) -> None:
        self.spark, self.root, self.specs = spark, root, tuple(specs)
        self.state, self.out = root / "state", root / "out"
        self.called: dict[str, dict[str, pa.Table]] = {spec.name: {} for spec in self.specs}
        """What the callbacks got, by query and unit: a unit that comes twice counts once, by its id."""

    def engine(self) -> Engine:
        """Open the state and register everything."""
        engine = Engine(self.state, self.spark)
        try:
            feeds = {feed.name: feed for spec in self.specs for feed in (spec.a, spec.b)}
            engine.script("\n".join(feed.declare() for feed in feeds.values()))
            for spec in self.specs:
                engine.query(spec.name, spec.penstock(), sink=self._sink(spec), order=spec.order)
        except BaseException:
            engine.stop()
            raise
        return engine

    def _sink(self, spec: Spec) -> object:
        if spec.sink == "parquet":
            return parquet(self.out / safe_name(spec.name))
        if spec.sink == "callback":
            return callback(partial(self.take, spec.name))
        return {"table": table, "console": console, "noop": noop}[spec.sink]()

    def take(self, query: str, rows: DataFrame, unit: str) -> None:
        """Be a query's callback."""
        self.called[query][unit] = rows.toArrow()

    def once(self) -> None:
        """Process all that is there, and stop."""
        with self.engine() as engine:
            engine.start(once=True)
            engine.wait()

    def result(self, engine: Engine, spec: Spec) -> Bag:
        """Give what a query has delivered so far."""
        if spec.sink == "parquet":
            return bag(parquet_rows(self.out / safe_name(spec.name)))
        if spec.sink == "callback":
            return sum((bag(rows) for rows in self.called[spec.name].values()), Counter())
        return bag(engine.results(spec.name).toArrow())

    def check(self, note: str, relations: Mapping[str, str] | None = None) -> None:
        """Assert that every query's result is the judge's, also when counted."""
        with self.engine() as engine:
            counts = {each.name: each.results for each in engine.status().queries}
            for spec in self.specs:
                right = answer(spec, relations)
                what = f"{note} {spec.name} ({spec.sink}): {spec.penstock()}"
                assert counts[spec.name] == right.total(), (
                    f"{what}: counted {counts[spec.name]}, not {right.total()}"
                )
                if spec.sink != "noop":
                    same_bag(self.result(engine, spec), right, what)
