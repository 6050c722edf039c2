"""A query that cannot be evaluated is stopped with its reason; the others go on and are exact."""

from __future__ import annotations

import pytest

from penstock.engine.api import Engine
from penstock.engine.sinks.callback import callback
from penstock.engine.spark.failed_queries import QueriesFailedError
from penstock.errors import InputError
from tests.oracle import Feed, Spec, Window, answer, same_bag
from tests.spark.runner import Run
from tests.spark.world import at

pytestmark = pytest.mark.spark

SECOND = 1_000_000
COLUMNS = {"k": "bigint", "v": "int", "s": "string", "ts": "timestamp"}


def feeds(root):
    return [
        Feed(name, root / name, COLUMNS, 60 * SECOND, options={"maxFilesPerTrigger": "1"}) for name in "ab"
    ]


def rows(*values, start=0):
    """Make rows a second apart, all of one key; a text that is no number where the value is negative."""
    return [
        {"k": 1, "v": value, "s": "x" if value < 0 else str(value), "ts": at((start + place) * SECOND)}
        for place, value in enumerate(values)
    ]


def spec(a, b, name, *, where=(), select=(("a.v", "x"),), seconds=3, **more):
    return Spec(
        name, a, b, ("a.k = b.k",), Window("both", seconds * SECOND), tuple(where), tuple(select), **more
    )


BAD = {
    "a predicate": {"where": ["10 / a.v > 1"]},
    "a condition on pairs": {"where": ["10 / (a.v - b.v) > 1"]},
    "an output": {"select": [("10 / (a.v - b.v)", "x")]},
    "a cast": {"where": ["cast(a.s AS INT) > 0"]},
}


@pytest.mark.parametrize(
    ("bad", "sink"),
    [
        *((each, "parquet") for each in ("a condition on pairs", "a cast")),
        ("a predicate", "table"),
        ("an output", "table"),
    ],
)
def test_one_querys_failure_leaves_the_others_exact(spark, tmp_path, bad, sink):
    """The second batch has the row that the bad query fails on; a later one comes after a restart."""
    a, b = feeds(tmp_path)
    good = [
        spec(a, b, "good", select=[("a.v", "x"), ("b.v", "y")], sink="parquet"),
        spec(a, b, "wide", where=["a.v + b.v > 3"], seconds=9, sink="table"),
        spec(a, b, "sorted", where=["a.v >= -9"], seconds=5, sink="table", order="filter-order"),
    ]
    run = Run(spark, tmp_path, [good[0], spec(a, b, "bad", sink=sink, **BAD[bad]), *good[1:]])
    for feed in (a, b):
        feed.append(rows(1 if feed is a else 3, 2 if feed is a else 5))
    run.once()
    with run.engine() as engine:
        assert engine.failures == {}
        before = engine.results("bad").count()
    for feed in (a, b):
        feed.append(rows(-1 if feed is a else 7, 0, 4, start=2))
    run.once()
    for feed in (a, b):
        feed.append(rows(6, 5, start=5))
    run.once()
    with run.engine() as engine:
        assert list(engine.failures) == ["bad"]
        counts = {each.name: (each.results, bool(each.failed)) for each in engine.status().queries}
        for each in good:
            right = answer(each)
            assert counts[each.name] == (right.total(), False), each.name
            same_bag(run.result(engine, each), right, each.name)
        assert counts["bad"] == (engine.results("bad").count(), True)
        assert counts["bad"][0] >= before  # also what was joined before the row came that it fails on


def test_a_failed_query_goes_on_when_it_is_defined_anew(spark, tmp_path):
    a, b = feeds(tmp_path)
    for feed in (a, b):
        feed.append(rows(1, 0, 2))
    with Engine(tmp_path / "state", spark) as engine:
        engine.script(a.declare() + b.declare())
        good = engine.query("good", "SELECT a.v FROM a, b WHERE a.k = b.k WINDOW 3 s")
        bad = engine.query("bad", "SELECT a.v AS x FROM a, b WHERE a.k = b.k AND 10 / a.v > b.v WINDOW 3 s")
        engine.start()
        engine.process_available()
        assert "ivision" in (bad.failure or "")
        assert good.failure is None
        engine.alter("bad", "SELECT a.v AS x FROM a, b WHERE a.k = b.k AND b.v < 9 WINDOW 3 s")
        assert bad.failure is None
        for feed in (a, b):
            feed.append(rows(0, 5, start=60))
        engine.process_available()
        assert sorted(row.x for row in bad.results().collect()) == [0, 0, 5, 5]
        assert bad.complete_from is not None
        assert good.results().count() == 9 + 4


def test_results_held_of_a_failed_query_reach_its_callback(spark, tmp_path):
    """They are released as the query is stopped, when it is no longer in the plan."""
    a, b = feeds(tmp_path)
    got = []
    with Engine(tmp_path / "state", spark) as engine:
        engine.script(a.declare() + b.declare())
        engine.query("good", "SELECT a.v FROM a, b WHERE a.k = b.k WINDOW 3 s")
        bad = engine.query(
            "bad",
            "SELECT a.v AS x FROM a, b WHERE a.k = b.k AND 10 / a.v > b.v WINDOW 3 s",
            sink=callback(lambda results, _unit: got.extend(row.x for row in results.collect())),
            order="filter-order",
        )
        for feed in (a, b):
            feed.append(rows(1, 2, 3))
        engine.start()
        engine.process_available()
        assert got == [], "later rows may still come before these results"
        for feed in (a, b):
            feed.append(rows(0, start=30))
        engine.process_available()
        assert "ivision" in (bad.failure or "")
        engine.stop()
    assert sorted(got) == [1, 1, 1, 2, 2, 2, 3, 3, 3]


def test_a_failed_query_can_be_dropped(spark, tmp_path):
    a, b = feeds(tmp_path)
    for feed in (a, b):
        feed.append(rows(1, 0, 2))
    with Engine(tmp_path / "state", spark) as engine:
        engine.script(a.declare() + b.declare())
        engine.query("good", "SELECT a.v FROM a, b WHERE a.k = b.k WINDOW 3 s")
        engine.query("bad", "SELECT a.v AS x FROM a, b WHERE a.k = b.k AND 10 / a.v > b.v WINDOW 3 s")
        engine.start()
        engine.process_available()
        assert list(engine.failures) == ["bad"]
        engine.drop("bad")
        assert engine.failures == {}
        with pytest.raises(InputError, match="does not exist"):
            engine.results("bad")


def test_when_every_query_has_failed_the_run_fails(spark, tmp_path):
    a, b = feeds(tmp_path)
    for feed in (a, b):
        feed.append(rows(1, 0, 2))
    run = Run(
        spark,
        tmp_path,
        [spec(a, b, "one", **BAD["a predicate"]), spec(a, b, "two", **BAD["a condition on pairs"])],
    )
    with pytest.raises(QueriesFailedError, match="query"):
        run.once()
    with run.engine() as engine, pytest.raises(InputError, match="every query of this state has failed"):
        engine.start()


def test_slices_that_are_apart_catch_up_without_the_query_that_failed(spark, tmp_path):
    a, b = feeds(tmp_path)
    good = [spec(a, b, f"w{seconds}", seconds=seconds, sink="noop") for seconds in (1, 4, 20)]
    bad = spec(a, b, "bad", where=["10 / (a.v - b.v) > 1"], seconds=8)
    for feed in (a, b):
        for start in range(0, 12, 3):
            feed.append(rows(*(start + place + (feed is b) * 50 for place in range(3)), start=start))
        feed.append(rows(99, 98, start=12))
    run = Run(spark, tmp_path, [*good, bad])
    with run.engine() as engine:
        engine.script("SET scheduler = 'swf';")
        engine.start(once=True)
        engine.wait()
        assert list(engine.failures) == ["bad"]
    right = {each.name: answer(each).total() for each in good}
    with run.engine() as engine:
        assert {each.name: each.results for each in engine.status().queries if not each.failed} == right


@pytest.mark.parametrize("where", ["10 / (a.v - 1) > 1", "cast(a.s AS INT) = 7"])
def test_a_query_that_fails_on_rows_that_are_held_is_refused_or_stopped_when_it_comes(spark, tmp_path, where):
    a, b = feeds(tmp_path)
    good = spec(
        a, b, "good", where=["a.v >= -9"], select=[("a.v", "x"), ("a.s", "s"), ("b.v", "y")], sink="table"
    )
    run = Run(spark, tmp_path, [good])
    for feed in (a, b):
        feed.append(rows(1, 2, -5))
    with run.engine() as engine:
        engine.start()
        engine.process_available()
        with pytest.raises(InputError, match="Guard the expression"):
            engine.query("bad", f"SELECT a.v FROM a, b WHERE a.k = b.k AND {where} WINDOW 3 s")
        for feed in (a, b):
            feed.append(rows(3, 4, start=3))
        engine.process_available()
        same_bag(run.result(engine, good), answer(good), "good")


def test_an_answer_that_fails_leaves_the_other_readers_of_its_panes(spark, tmp_path):
    """Three queries read one pane set; of two of them the first or the last is a half by itself when one is sought."""
    a, b = feeds(tmp_path)
    lists = {"first": "COUNT(*) + 1", "bad": "10 DIV (COUNT(*) - 4)", "last": "COUNT(*) - 1"}
    for feed in (a, b):
        feed.append(rows(1, 2, 3))
    declared = "".join(feed.declare() for feed in (a, b))
    queries = "".join(
        f"CREATE QUERY {name} AS SELECT a.k, {answered} AS n FROM a, b WHERE a.k = b.k "
        "GROUP BY a.k WINDOW 9 seconds EVERY 1 second;\n"
        for name, answered in lists.items()
    )
    with Engine(tmp_path / "state", spark=spark) as engine:
        engine.script(declared + queries)
        engine.start(once=True)
        engine.wait()
        assert list(engine.failures) == ["bad"]
        assert sorted(row.n for row in engine.results("first").collect()) == [2, 5, 10]
        assert sorted(row.n for row in engine.results("last").collect()) == [0, 3, 8]
