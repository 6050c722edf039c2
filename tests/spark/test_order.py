"""Results in order on the real engine, in every sink, against DuckDB's ORDER BY (S10)."""

from __future__ import annotations

import duckdb
import pyarrow.parquet as pq
import pytest

from penstock.cli.look import State
from penstock.engine.api import Engine
from penstock.engine.runners.spark import SparkRunner
from penstock.engine.sinks.callback import callback
from penstock.engine.sinks.console import console
from penstock.engine.sinks.noop import noop
from penstock.engine.sinks.parquet import parquet
from penstock.engine.sinks.table import table
from penstock.engine.stages import publish
from penstock.errors import InputError, PenstockError
from penstock.state.journal import Journal
from tests.oracle import _plain as plain
from tests.spark.test_crash import InjectedError, _commits, fail_once, runs
from tests.spark.test_online import Streams

pytestmark = pytest.mark.spark

LATENESS = "INTERVAL 10 SECOND"
DIFFERENCE = (("a.id", "a"), ("b.id", "b"), ("a.v - b.v", "d"), ("upper(CAST(b.v AS STRING))", "s"))


def in_order(spec, *, everything=False):
    """Let DuckDB sort a query's result, up to where no pair is still to come: both newest rows less the lateness."""
    with duckdb.connect() as connection:
        for alias, feed in (("a", spec.a), ("b", spec.b)):
            connection.execute(f"CREATE TABLE {alias} AS SELECT * FROM {feed.relation()}")
        horizon = f"(SELECT least((SELECT max(ts) FROM a), (SELECT max(ts) FROM b)) - {LATENESS})"
        final = "" if everything else f" AND greatest(a.ts, b.ts) < {horizon}"
        names = ", ".join(name for _, name in spec.select)
        sorted_by = f" ORDER BY greatest(a.ts, b.ts), a.ts, b.ts, {names}"
        return rows(connection.sql(spec.duckdb() + final + sorted_by).to_arrow_table())


def rows(found):
    """List rows as they come, values made plain."""
    return [tuple(plain(value) for value in row.values()) for row in found.to_pylist()]


def files_in_order(folder):
    """Read the files of a sink in the order of their names."""
    return [row for file in sorted(folder.glob("*.parquet")) for row in rows(pq.read_table(file))]


def go(engine):
    """Start, which may publish what was left to publish, and handle all there is."""
    engine.start()
    engine.process_available()


class Ordered:
    """One query in every sink, on one state, through as many engines as a test starts on it."""

    def __init__(self, spark, folder):
        self.spark, self.folder, self.streams = spark, folder, Streams(folder)
        self.calls: dict[str, list] = {}
        self.plain = self.streams.spec("plain", 12)
        self.computed = self.streams.spec("computed", 12, "a.v > b.v", select=DIFFERENCE)
        self.choosy = self.streams.spec("choosy", 5, "a.v > 30")

    def engine(self):
        engine = Engine(self.folder / "state", self.spark)
        engine.script(self.streams.script())
        sinks = (
            (self.plain, "table", table()),
            (self.computed, "files", parquet(self.folder / "out")),
            (
                self.computed,
                "called",
                callback(lambda df, unit: self.calls.update({unit: rows(df.toArrow())})),
            ),
            (self.choosy, "view", table()),
            (self.plain, "count", noop()),
        )
        for spec, name, sink in sinks:
            engine.query(name, spec.penstock(), sink=sink, order="filter-order")
        engine.query("neighbour", self.plain.penstock())
        return engine

    def called(self):
        return [row for rows in self.calls.values() for row in rows]

    def check(self, engine, *, everything=False):
        """Hold every sink against the sorted result."""
        plain, computed = (in_order(each, everything=everything) for each in (self.plain, self.computed))
        assert rows(engine.results("table").toArrow()) == plain
        assert rows(engine.results("files").toArrow()) == computed
        assert files_in_order(self.folder / "out") == computed
        assert self.called() == computed
        assert rows(engine.results("view").toArrow()) == in_order(self.choosy, everything=everything)
        status = {each.name: each for each in engine.status().queries}
        assert status["count"].results == len(plain)
        total = len(in_order(self.plain, everything=True))
        assert [status[each].results + status[each].held for each in ("table", "count")] == [total, total]
        assert (status["neighbour"].results, status["neighbour"].held) == (total, 0)
        return plain


def test_every_sink_gets_the_sorted_result_as_far_as_nothing_is_to_come_and_all_of_it_at_the_end(
    spark, tmp_path
):
    here = Ordered(spark, tmp_path)
    with here.engine() as engine:
        engine.start()
        for _ in range(3):
            here.streams.grow()
            engine.process_available()
            delivered = here.check(engine)
        assert delivered
        assert engine.status().to_json()["queries"][0]["held"] > 0
    here.streams.grow()
    with here.engine() as engine:  # what is held is still there after a restart, and the sequence goes on
        engine.start()
        engine.process_available()
        assert here.check(engine)[: len(delivered)] == delivered
    with here.engine() as engine:
        engine.start(once=True)
        engine.wait()
        here.check(engine, everything=True)
        assert not [each for each in engine.status().queries if each.held]
    state = State.open(str(tmp_path / "state"))
    for name, spec in (("table", here.plain), ("files", here.computed)):
        assert rows(state.results(name, 7).rows) == in_order(spec, everything=True)[:7]
    assert not list((tmp_path / "state" / "hold").rglob("*.arrow"))
    assert not list(tmp_path.rglob("_staging"))


@pytest.mark.timeout(600)  # nine starts
def test_a_failure_at_any_step_loses_doubles_and_disorders_nothing(spark, tmp_path, monkeypatch):
    here = Ordered(spark, tmp_path)
    here.streams.grow()
    here.streams.grow()
    for owner, name, when in (
        (Journal, "commit", _commits("release")),
        (SparkRunner, "_run", runs("release")),
        (Journal, "commit", _commits("unit")),
        (publish, "publish_files", None),
    ):
        for after in (False, True):
            here.streams.grow()  # which also makes something due: the horizon moves on by a batch
            trap = fail_once(getattr(owner, name), after=after, **({"when": when} if when else {}))
            with monkeypatch.context() as patch, here.engine() as engine:
                patch.setattr(owner, name, trap)
                with pytest.raises((InjectedError, PenstockError), match="injected"):
                    go(engine)
    with here.engine() as engine:
        engine.start()
        engine.process_available()
        assert len(here.check(engine)) > 100
        known = {each.name for hold in engine._store.ledger.holds.values() for each in hold.files}
    stored = (tmp_path / "state" / "hold").rglob("*.arrow")
    assert {each.relative_to(tmp_path / "state").as_posix() for each in stored} == known, (
        "nothing is left over"
    )


def test_an_altered_query_gets_all_of_its_first_definition_first_and_a_dropped_one_no_more(
    spark, tmp_path, capsys
):
    streams = Streams(tmp_path)
    first = streams.spec("changes", 12)
    second = streams.spec("changes", 12, select=(("a.id", "a"), ("b.id + 0", "sum")))
    with Engine(tmp_path / "state", spark) as engine:
        engine.script(streams.script())
        engine.query("changes", first.penstock(), order="adaptive")
        engine.query("goes", first.penstock(), sink=console(), order="sync-filter")
        engine.start()
        streams.grow()
        streams.grow()
        engine.process_available()
        before = in_order(first, everything=True)
        assert capsys.readouterr().out.count("-- goes, unit release-") == 1
        engine.drop("goes")
        engine.alter("changes", second.penstock())
        for _ in range(2):
            streams.grow()
            engine.process_available()
        got = engine.results("changes")
        assert got.columns == ["a", "sum", "b", "av", "bv"], "the present columns, then those it had"
        found = got.toArrow()
        old = found.select(["a", "b", "av", "bv"]).slice(0, len(before))
        assert rows(old) == before, "all of its first definition, before anything of the second"
        new = rows(found.select(["a", "sum"]).slice(len(before)))
        assert new == [row for row in in_order(second) if max(row) >= 2000], (
            "rows of the batches after the change"
        )
        assert new
    assert not list((tmp_path / "state" / "hold" / "goes").glob("*")), "what was held of it has gone"


def test_a_start_without_a_query_that_has_results_held_is_refused(spark, tmp_path):
    streams = Streams(tmp_path)
    one, two = streams.spec("one", 4), streams.spec("two", 4)
    streams.grow()

    def start(*names, **options):
        with Engine(tmp_path / "state", spark) as engine:
            engine.script(streams.script())
            for name in names:
                engine.query(
                    name, {"one": one, "two": two}[name].penstock(), sink=noop(), order="filter-order"
                )
            engine.start(**options)
            engine.process_available()
            return {each.name: each.held for each in engine.status().queries}

    held = start("one", "two")
    assert held["one"] == held["two"] > 0
    with pytest.raises(InputError, match=r"query two is not among the queries any more, and [\d,]+ results"):
        start("one")
    assert start("one", accept_loss=True) == {"one": held["one"]}
