"""An engine to which nothing comes rests: Spark is not asked, and whatever comes, or is asked for, is seen to."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from random import Random

import pytest

from penstock.engine.ingest import ingester as ingesting
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


def rest(engine) -> None:
    """Wait until all streams rest."""
    until(lambda: all(each.rest.at_rest for each in engine._ingesters))


def batches(engine) -> list[int]:
    """Give the last batch of each stream."""
    return [each.store.ledger.stream(each.stream.name).source_batch for each in engine._ingesters]


def test_what_comes_to_an_engine_at_rest_is_joined_and_it_rests_again(run, feeds):
    random = Random(1)
    with run.engine() as engine:
        engine.start()
        for turn in range(4):
            rest(engine)
            assert batches(engine) == [turn, turn]
            assert not engine._streams_with_input()
            for feed in feeds:
                feed.append(random_rows(random, 10))
            until(lambda: batches(engine) == [turn + 1, turn + 1])  # noqa: B023 - called at once
        rest(engine)
        engine.process_available()
        assert all(each.rest.at_rest for each in engine._ingesters), "to look took no batch"
    run.check("fed at rest")


def test_one_stream_may_rest_while_another_is_read(run, feeds):
    with run.engine() as engine:
        engine.start()
        rest(engine)
        for turn in range(3):
            feeds[0].append(random_rows(Random(turn), 10))
            engine.process_available()
        assert batches(engine) == [3, 0]
        assert engine._ingesters[1].rest.at_rest
    run.check("one at rest")


def test_a_file_that_comes_while_its_stream_is_about_to_rest_is_not_overlooked(run, feeds, monkeypatch):
    """Spark has listed the directory long before; what came since is not among the names of the batch."""
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
        rest(engine)
        engine.process_available()
    run.check("in between")


@pytest.mark.parametrize("crash", [False, True])
def test_an_engine_that_starts_again_with_nothing_new_rests_at_once(run, feeds, crash):
    """Its last batch is handed over once more, and passed over; whether Spark has noted that it was done, or not."""
    run.once() if crash else resting_once(run)
    for _ in range(2):
        with run.engine() as engine:
            engine.start()
            rest(engine)
            assert batches(engine) == [0, 0]
            engine.process_available()
    for feed in feeds:
        feed.append(random_rows(Random(3), 10))
    run.once()
    run.check("started again")


def resting_once(run) -> None:
    """Run until all is read, then stop while all streams rest."""
    with run.engine() as engine:
        engine.start()
        rest(engine)


def test_files_that_are_left_for_the_next_batches_keep_a_stream_from_resting(spark, tmp_path):
    options = {"maxFilesPerTrigger": "1"}
    feeds = [Feed(name, tmp_path / name, COLUMNS, SPAN, options=options) for name in ("Alpha", "beta")]
    for turn in range(5):
        for feed in feeds:
            feed.append(random_rows(Random(turn), 10))
    run = Run(spark, tmp_path, [Spec("q", *feeds, ("a.k = b.k",), Window("both", 8 * GRID))])
    with run.engine() as engine:
        engine.start()
        rest(engine)
        assert batches(engine) == [4, 4]
        engine.process_available()
    run.check("one file at a time")


def test_a_plan_is_changed_while_its_streams_rest(run, feeds, tmp_path):
    """A stream that nobody reads any more is left, also while it rests."""
    gamma = Feed("gamma", tmp_path / "gamma", COLUMNS, SPAN)
    gamma.append(random_rows(Random(5), 10))
    with run.engine() as engine:
        engine.start()
        rest(engine)
        engine.script(
            gamma.declare()
            + "CREATE QUERY more AS SELECT a.id FROM Alpha a, gamma c WHERE a.k = c.k WINDOW 1 s;"
        )
        assert len(engine._ingesters) == 3
        rest(engine)
        for feed in (*feeds, gamma):
            feed.append(random_rows(Random(7), 10))
        engine.process_available()
        rest(engine)
        engine.drop("more")
        assert len(engine._ingesters) == 2
    run.check("changed at rest")


def test_a_source_of_directories_is_asked_by_spark(spark, tmp_path, feeds):
    """What is new there cannot be told from names; and nobody waits for that to change."""
    feed = feeds[0]
    inner = tmp_path / "Alpha" / "part=1"
    inner.mkdir()
    for file in list((tmp_path / "Alpha").glob("*.parquet")):
        file.rename(inner / file.name)
    run = Run(spark, tmp_path, [Spec("q", feed, feeds[1], ("a.k = b.k",), Window("both", 8 * GRID))])
    with run.engine() as engine:
        engine.start()
        engine.process_available()
        assert batches(engine) == [0, 0]
        alpha, beta = (each.rest for each in engine._ingesters)
        until(lambda: beta.at_rest)
        assert not alpha.at_rest
        assert alpha.folder.unclear


def test_a_query_that_somebody_stops_by_sparks_own_means_stops(run):
    """Spark waits for the batch at hand, which is the one that rests."""
    with run.engine() as engine:
        engine.start()
        rest(engine)
        query = engine._ingesters[0].query
        stopping = threading.Thread(target=query.stop, daemon=True)
        stopping.start()
        stopping.join(LONG)
        assert not stopping.is_alive()
        assert not query.isActive


def test_a_file_that_cannot_be_read_is_told_to_whoever_waits(run, tmp_path):
    with run.engine() as engine:
        engine.start()
        rest(engine)
        (tmp_path / "Alpha" / "broken.parquet").write_bytes(b"no such thing")
        with pytest.raises(RunError, match=r"broken\.parquet"):
            engine.process_available()


LEAVING = """
import sys, time
from penstock.engine.engine import Engine
engine = Engine(sys.argv[1])
engine.script(sys.argv[2])
engine.start()
engine.process_available()
while not all(each.rest.at_rest for each in engine._ingesters):
    time.sleep(0.01)
"""


def test_a_program_that_ends_while_its_streams_rest_says_nothing_of_a_failure(feeds, run, tmp_path):
    """It never stopped its engine; the journal has all, and Spark has its batches back."""
    script = "".join(each.declare() for each in feeds) + f"CREATE QUERY q AS {run.specs[0].penstock()};"
    command = [sys.executable, "-c", LEAVING, str(tmp_path / "state"), script]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=LONG)
    assert "Exception" not in ended.stderr
    with run.engine() as engine:
        engine.start()
        rest(engine)
        assert batches(engine) == [0, 0]
