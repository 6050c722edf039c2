"""An engine to which nothing comes: it writes nothing, and whatever comes, or is asked for, is seen to."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from dataclasses import replace
from random import Random

import pytest

from penstock.engine.sources import ingester as ingesting
from penstock.errors import RunError
from tests.oracle import Feed, Spec, Window
from tests.spark.runner import Run
from tests.spark.world import COLUMNS, GRID, SPAN, random_rows

pytestmark = pytest.mark.spark

LONG = 120.0


@pytest.fixture
def feeds(tmp_path):
    """Make two streams, each a file for a start."""
    made = [Feed(name, tmp_path / name, COLUMNS, SPAN) for name in ("Alpha", "beta")]
    for feed in made:
        feed.append(random_rows(Random(feed.name), 20))
    return made


@pytest.fixture
def run(spark, tmp_path, feeds):
    """Make a query over them."""
    return Run(spark, tmp_path, [Spec("q", *feeds, ("a.k = b.k",), Window("both", 8 * GRID))])


def until(happened) -> None:
    """Wait for something to happen."""
    end = time.monotonic() + LONG
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.01)


def batches(engine) -> list[int]:
    """Give the last batch of each stream."""
    return [each.store.ledger.stream(each.stream.name).source_batch for each in engine._running.ingesters]


def test_what_comes_to_an_idle_engine_is_joined_soon(run, feeds):
    """Nobody asks for it; and whoever asks when all is joined makes no batch."""
    random = Random(1)
    with run.engine() as engine:
        engine.start()
        engine.process_available()
        for turn in range(4):
            assert batches(engine) == [turn, turn]
            until(lambda: not engine._running.streams_with_input())
            for feed in feeds:
                feed.append(random_rows(random, 10))
            until(lambda: batches(engine) == [turn + 1, turn + 1])  # noqa: B023 - called at once
        engine.process_available()
        engine.process_available()
        assert batches(engine) == [4, 4]
    run.check("fed while idle")


def test_an_idle_engine_writes_nothing(run, tmp_path):
    with run.engine() as engine:
        engine.start()
        engine.process_available()

        def written() -> dict[str, int]:
            return {str(each): each.stat().st_mtime_ns for each in tmp_path.rglob("*")}

        until(lambda: not engine._running.streams_with_input())
        before = written()
        time.sleep(2)
        assert written() == before


def test_one_stream_may_be_idle_while_another_is_read(run, feeds):
    with run.engine() as engine:
        engine.start()
        engine.process_available()
        for turn in range(3):
            feeds[0].append(random_rows(Random(turn), 10))
            engine.process_available()
            assert batches(engine) == [turn + 1, 0]
    run.check("one idle")


def test_a_file_that_comes_while_a_batch_is_taken_is_not_overlooked(run, feeds, monkeypatch):
    """Spark has listed the directory long before."""
    take = ingesting.Ingester._try

    def and_another(ingester, *batch):
        done = take(ingester, *batch)
        if ingester.stream.name == "Alpha" and batches_of(ingester) < 3:
            feeds[0].append(random_rows(Random(batches_of(ingester)), 5))
        return done

    def batches_of(ingester) -> int:
        return ingester.store.ledger.stream(ingester.stream.name).source_batch

    monkeypatch.setattr(ingesting.Ingester, "_try", and_another)
    with run.engine() as engine:
        engine.start()
        until(lambda: batches(engine) == [3, 0])
        engine.process_available()
    run.check("in between")


@pytest.mark.parametrize("once", [False, True])
def test_an_engine_that_starts_again_with_nothing_new_adds_nothing(run, feeds, once):
    if once:
        run.once()
    for _ in range(3):
        with run.engine() as engine:
            engine.start()
            engine.process_available()
            assert batches(engine) == [0, 0]
    for feed in feeds:
        feed.append(random_rows(Random(3), 10))
    run.once()
    run.check("started again")


def test_all_files_that_are_left_for_the_next_batches_are_processed(spark, tmp_path):
    options = {"maxFilesPerTrigger": "1"}
    feeds = [Feed(name, tmp_path / name, COLUMNS, SPAN, options=options) for name in ("Alpha", "beta")]
    for turn in range(5):
        for feed in feeds:
            feed.append(random_rows(Random(turn), 10))
    run = Run(spark, tmp_path, [Spec("q", *feeds, ("a.k = b.k",), Window("both", 8 * GRID))])
    with run.engine() as engine:
        engine.start()
        engine.process_available()
        assert batches(engine) == [4, 4]
    run.check("one file at a time")


def test_a_plan_is_changed_while_its_streams_are_idle(run, feeds, tmp_path):
    """A stream that nobody reads any more is left."""
    gamma = Feed("gamma", tmp_path / "gamma", COLUMNS, SPAN)
    gamma.append(random_rows(Random(5), 10))
    with run.engine() as engine:
        engine.start()
        engine.process_available()
        engine.script(
            gamma.declare()
            + "CREATE QUERY more AS SELECT a.id FROM Alpha a, gamma c WHERE a.k = c.k WINDOW 1 s;"
        )
        assert len(engine._running.ingesters) == 3
        for feed in (*feeds, gamma):
            feed.append(random_rows(Random(7), 10))
        engine.process_available()
        engine.drop("more")
        assert len(engine._running.ingesters) == 2
    run.check("changed while idle")


def test_a_query_that_somebody_stops_by_sparks_own_means_stops(run):
    with run.engine() as engine:
        engine.start()
        engine.process_available()
        query = engine._running.ingesters[0].query
        stopping = threading.Thread(target=query.stop, daemon=True)
        stopping.start()
        stopping.join(LONG)
        assert not stopping.is_alive()
        assert not query.isActive


def test_a_file_that_cannot_be_read_is_told_to_whoever_waits(run, tmp_path):
    with run.engine() as engine:
        engine.start()
        engine.process_available()
        (tmp_path / "Alpha" / "broken.parquet").write_bytes(b"no such thing")
        with pytest.raises(RunError, match=r"broken\.parquet"):
            engine.process_available()


def test_a_source_is_asked_at_every_trigger_and_another_trigger_is_no_other_stream(spark, tmp_path, feeds):
    """The first one is at once; a run that ends does not wait for any."""
    with_trigger = {
        trigger: [replace(feed, options={"trigger": trigger}) for feed in feeds]
        for trigger in ("1 day", "0 s")
    }
    runs = {
        trigger: Run(spark, tmp_path, [Spec("q", *made, ("a.k = b.k",), Window("both", 8 * GRID))])
        for trigger, made in with_trigger.items()
    }
    with runs["1 day"].engine() as engine:
        engine.start()
        until(lambda: batches(engine) == [0, 0])
        for feed in feeds:
            feed.append(random_rows(Random(1), 10))
        time.sleep(1)
        assert batches(engine) == [0, 0]
    runs["1 day"].once()
    for feed in feeds:
        feed.append(random_rows(Random(2), 10))
    with runs["0 s"].engine() as engine:
        assert batches_in(engine) == 1
        engine.start()
        engine.process_available()
        assert batches(engine) == [2, 2]
    runs["0 s"].check("three triggers")


def batches_in(engine) -> int:
    """Give the last batch of the first stream, by the journal."""
    return engine._store.ledger.stream("Alpha").source_batch


LEAVING = """
import sys
from penstock.engine.api import Engine
engine = Engine(sys.argv[1])
engine.script(sys.argv[2])
engine.start()
engine.process_available()
"""


def test_a_program_that_ends_while_its_streams_are_idle_says_nothing_of_a_failure(feeds, run, tmp_path):
    """It never stopped its engine; the journal has all."""
    script = "".join(each.declare() for each in feeds) + f"CREATE QUERY q AS {run.specs[0].penstock()};"
    command = [sys.executable, "-c", LEAVING, str(tmp_path / "state"), script]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=LONG)
    assert "Exception" not in ended.stderr
    with run.engine() as engine:
        engine.start()
        engine.process_available()
        assert batches(engine) == [0, 0]
