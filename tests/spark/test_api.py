"""The Python surface: streams that are DataFrames, a context manager, results as DataFrames."""

from __future__ import annotations

import time

import pytest
from pyspark.sql import functions as F  # noqa: N812

import penstock
from penstock.errors import InputError
from tests.oracle import Feed, Spec, Window, answer, bag, same_bag
from tests.spark.world import START, at

pytestmark = pytest.mark.spark

SECOND = 1_000_000
COLUMNS = {"k": "bigint", "v": "int", "ts": "timestamp"}


def test_streaming_dataframes_are_joined_as_they_are(spark, tmp_path):
    """A file source with Spark code on top; input that comes while the engine runs; two streams from one source."""
    a, b = (Feed(name, tmp_path / name, COLUMNS, 10 * SECOND) for name in "ab")
    source = spark.readStream.schema("k bigint, v int, ts timestamp").parquet
    q1 = Spec("q1", a, b, ("a.k = b.k",), Window("both", 5 * SECOND), ("b.v > 3",))
    with penstock.Engine(tmp_path / "state", spark=spark) as engine:
        engine.stream("a", source(str(a.folder)).where("v % 2 = 0"), time="TS", lateness="10 seconds")
        engine.stream(
            "b", source(str(b.folder)).withColumn("v", F.col("v") + 1), time="ts", lateness="10 seconds"
        )
        handle = engine.query("q1", q1.penstock())
        files = engine.query("q2", q1.penstock(), sink=penstock.parquet(tmp_path / "out"))
        assert "q1" in repr(handle)
        engine.start()
        engine.process_available()
        assert (handle.results().count(), files.results().count()) == (0, 0)
        for go in range(2):
            for feed in (a, b):
                feed.append({"k": n % 3, "v": n, "ts": at(START + (8 * go + n) * SECOND)} for n in range(8))
            engine.process_available()
            with_changes = {
                "a": f"(SELECT * FROM {a.relation()} WHERE v % 2 = 0)",
                "b": f"(SELECT * REPLACE (v + 1 AS v) FROM {b.relation()})",
            }
            right = answer(q1, with_changes)
            assert right.total() > 0
            for each in (handle, files):
                same_bag(bag(each.results().toArrow()), right, f"{each} after {go}")
        assert "q1" in engine.explain()
    with pytest.raises(InputError, match="not started"):
        penstock.Engine(tmp_path / "other", spark=spark).process_available()


def test_a_source_that_never_ends_is_joined_until_it_is_stopped(spark, tmp_path):
    rate = spark.readStream.format("rate").option("rowsPerSecond", 20).load()
    with penstock.Engine(tmp_path / "state", spark=spark) as engine:
        engine.stream("x", rate, time="timestamp", lateness="1 minute")
        engine.stream("y", rate.withColumnRenamed("value", "n"), time="timestamp", lateness="1 minute")
        query = engine.query("q", "SELECT x.value, y.n FROM x JOIN y ON x.value = y.n WINDOW 1 hour")
        engine.start()
        deadline = time.monotonic() + 60
        while not engine.status().queries[0].results and time.monotonic() < deadline:
            engine.check_running()
            time.sleep(0.2)
        engine.stop()
        found = bag(query.results().toArrow())
    assert found
    assert all(x == y and count == 1 for (x, y), count in found.items())


def test_a_data_frame_may_be_retained_for_queries_to_come(spark, tmp_path):
    feeds = [Feed(name, tmp_path / name, COLUMNS, 0) for name in "ab"]
    wide = Spec("wide", *feeds, ("a.k = b.k",), Window("both", 60 * SECOND))
    with penstock.Engine(tmp_path / "state", spark=spark) as engine:
        for feed in feeds:
            feed.append({"k": 1, "v": n, "ts": at(START + 2 * n * SECOND)} for n in range(20))
            source = spark.readStream.schema("k bigint, v int, ts timestamp").parquet(str(feed.folder))
            engine.stream(feed.name, source, time="ts", retain="1 hour")
        engine.query("narrow", "SELECT a.k FROM a, b WHERE a.k = b.k WINDOW 1 s")
        engine.start()
        engine.process_available()
        handle = engine.query("wide", wide.penstock())
        engine.process_available()
        same_bag(bag(handle.results().toArrow()), answer(wide), "all of the past is held")
        assert isinstance(handle, penstock.QueryHandle)
        assert isinstance(engine.status(), penstock.Status)


def test_what_is_no_stream_is_refused(spark, tmp_path):
    stream = spark.readStream.format("rate").load()
    with penstock.Engine(tmp_path / "state", spark=spark) as engine:
        with pytest.raises(InputError, match="readStream"):
            engine.stream("x", spark.range(3), time="id")
        with pytest.raises(InputError, match="retain 'long' is not a length of time"):
            engine.stream("x", stream, time="timestamp", retain="long")
        with pytest.raises(InputError, match="which lateness, retain and promises need"):
            engine.stream("x", stream, retain="1 hour")
        with pytest.raises(InputError, match="did you mean timestamp"):
            engine.stream("x", stream, time="timestmp")
        engine.stream("x", stream, time="timestamp")
        with pytest.raises(InputError, match="twice"):
            engine.stream("X", stream, time="timestamp")
        with pytest.raises(InputError, match="lateness 'soon' is not a length of time"):
            engine.stream("y", stream, time="timestamp", lateness="soon")
        with pytest.raises(InputError, match="no queries"):
            engine.start()
        with pytest.raises(InputError, match="value of stream z is bigint"):
            engine.stream("z", stream, time="value")
