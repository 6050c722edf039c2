"""Order policies on the real engine (O1, O2): what waits, when adaptive changes its mind, and idle streams."""

from __future__ import annotations

import json
import time

import pyarrow.parquet as pq
import pytest

from penstock.engine.api import Engine
from penstock.engine.sinks.parquet import parquet
from penstock.errors import InputError
from tests.oracle import Feed, Spec, Window
from tests.spark.test_online import COLUMNS, IDS, SECOND, Streams
from tests.spark.test_order import files_in_order, in_order, rows
from tests.spark.world import START, at

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("scheduler", ["lwo", "mqt"])
def test_where_all_queries_let_input_wait_it_waits_and_the_results_are_the_sorted_ones(
    spark, tmp_path, scheduler
):
    """Two windows, two policies, a restart; both streams are ten seconds of lateness behind their newest rows."""
    streams = Streams(tmp_path)
    near, far = streams.spec("near", 3), streams.spec("far", 12, "a.v > 30")

    def engine():
        made = Engine(tmp_path / "state", spark)
        made.script(f"{streams.script()} SET scheduler = '{scheduler}';")
        made.query("near", near.penstock(), sink=parquet(tmp_path / "near"), order="sync-filter")
        made.query("far", far.penstock(), order="adaptive", alpha="0.999")
        return made

    for _ in range(2):
        with engine() as running:
            running.start()
            for _ in range(2):
                streams.grow()
                running.process_available()
                assert files_in_order(tmp_path / "near") == in_order(near)
                assert rows(running.results("far").toArrow()) == in_order(far)
                status = {each.name: each for each in running.status().queries}
                assert status["near"].lag_rows > 0, "the rows of the last ten seconds wait"
                if not running.status().switches:
                    assert (status["near"].held, status["far"].held) == (0, 0), "and no results do"
                    assert status["far"].order == "adaptive: sync-filter"
    with engine() as running:
        running.start(once=True)
        running.wait()
        assert files_in_order(tmp_path / "near") == in_order(near, everything=True)
        assert rows(running.results("far").toArrow()) == in_order(far, everything=True)
        assert all(each.lag_rows == 0 for each in running.status().queries)


def send(feed, first, start, seconds, count=40):
    """Write a file of rows, evenly over some seconds of event time."""
    step = seconds * SECOND / count
    feed.append(
        [
            {"k": n % 4, "id": first + n, "v": n, "ts": at(int(START + start * SECOND + n * step))}
            for n in range(count)
        ]
    )


def test_adaptive_joins_at_once_while_joining_takes_much_of_the_time_and_goes_back_after(spark, tmp_path):
    """First 40 rows in 4 ms of event time, of which a unit takes many; then in 100 s."""
    a, b = (Feed(name, tmp_path / name, COLUMNS) for name in "ab")
    spec = Spec("q", a, b, ("a.k = b.k",), Window("both", SECOND // 100), select=IDS)
    seen = []
    with Engine(tmp_path / "state", spark) as engine:
        engine.script(f"{a.declare()} {b.declare()}")
        engine.query("q", spec.penstock(), order="adaptive", alpha="0.5")
        engine.start()

        def step(count, seconds):
            """Let both streams send so many files, one after the other, until adaptive changes its mind."""
            nonlocal clock, number
            for _ in range(count):
                for feed in (a, b):
                    send(feed, number, clock, seconds)
                clock, number = clock + seconds, number + 40
                engine.process_available()
                seen.extend(fresh := [each for each in engine.status().switches if each not in seen])
                if fresh:
                    break
            return engine.status().queries[0]

        clock, number = 0.0, 0
        step(12, 0.004)
        assert [each.mode for each in seen] == ["filter-order"]
        assert "at least alpha = 0.5" in seen[0].reason
        assert step(1, 0.004).order == "adaptive: filter-order"
        step(12, 100)
        assert seen[1].mode == "sync-filter"
        assert "less than 0.9 of alpha = 0.5" in seen[1].reason
        assert step(1, 100).order == "adaptive: sync-filter"
        assert engine.status().queries[0].held == 0, "what was held has left"
    with Engine(tmp_path / "state", spark) as engine:
        engine.script(f"{a.declare()} {b.declare()}")
        engine.query("q", spec.penstock(), order="adaptive", alpha="0.5")
        assert [each.mode for each in engine.status().switches] == ["filter-order", "sync-filter"], (
            "in the journal"
        )
        engine.start(once=True)
        engine.wait()
        got = rows(engine.results("q").toArrow())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.spark.test_order.LATENESS", "INTERVAL 0 SECOND")
        assert got == in_order(spec, everything=True)


def test_a_stream_that_goes_silent_is_left_out_without_anything_else_happening(spark, tmp_path):
    """b stops at 20 s, a goes on to 60 s: after two seconds of silence what waited for b comes by itself."""
    a, b = (Feed(name, tmp_path / name, COLUMNS) for name in "ab")
    spec = Spec("q", a, b, ("a.k = b.k",), Window("both", 100 * SECOND), select=IDS)
    with Engine(tmp_path / "state", spark) as engine:
        engine.script(f"{a.declare()} {b.declare()}")
        engine.query("q", spec.penstock(), order="sync-filter", idle_after="2 seconds")
        engine.start()
        send(b, 0, 0, 20)
        send(a, 0, 0, 60)
        engine.process_available()
        deadline = time.monotonic() + 120
        while engine.status().queries[0].results < 400 and time.monotonic() < deadline:
            time.sleep(0.1)
        status = engine.status().queries[0]
        assert status.results == 400, "each row of a meets ten of b"
        send(b, 50, 50, 5)
        send(a, 70, 70, 5)
        engine.process_available()
    with Engine(tmp_path / "state", spark) as engine:
        engine.script(f"{a.declare()} {b.declare()}")
        engine.query("q", spec.penstock(), order="sync-filter", idle_after="2 seconds")
        engine.start(once=True)
        engine.wait()
        assert sorted(rows(engine.results("q").toArrow())) == sorted(in_order(spec, everything=True)), (
            "nothing is lost"
        )


def test_a_file_of_results_says_how_they_came_about(spark, tmp_path):
    """Response times and what waited, in the metadata of each file, in order or not."""
    streams = Streams(tmp_path)
    spec = streams.spec("q", 12)
    with Engine(tmp_path / "state", spark) as engine:
        engine.script(streams.script())
        engine.query("plain", spec.penstock(), sink=parquet(tmp_path / "plain"))
        engine.query("sorted", spec.penstock(), sink=parquet(tmp_path / "sorted"), order="filter-order")
        engine.start()
        for _ in range(3):
            streams.grow()
            engine.process_available()
    for name in ("plain", "sorted"):
        files = [pq.ParquetFile(file) for file in (tmp_path / name).glob("*.parquet")]
        notes = [
            (json.loads(each.metadata.metadata[b"penstock"]), each)
            for each in files
            if each.metadata.num_rows
        ]
        assert notes
        for note, file in notes:
            assert (note["query"], note["results"]) == (name, file.metadata.num_rows)
            response = note["response"]
            assert 0 < response["p50"] <= response["p99"] <= response["longest"] < 1000
            assert {"waiting", "held", "output"} <= set(note)
    assert any(note["held"] for note, _ in notes), "of the sorted ones some were held"


def test_idle_after_is_refused_where_windows_count_rows(tmp_path):
    streams = Streams(tmp_path)
    with Engine(tmp_path / "state") as engine:
        engine.script(streams.script())
        with pytest.raises(InputError, match="windows of q count rows, so a stream that may still send rows"):
            engine.query(
                "q", "SELECT * FROM a, b WHERE a.k = b.k WINDOW 5 ROWS", order="sync-filter", idle_after="1 s"
            )
