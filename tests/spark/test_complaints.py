"""Whatever fails on Spark, the user gets the reason in one sentence, and no trace of Java."""

from __future__ import annotations

import os

import pytest

from penstock.engine.api import Engine
from penstock.engine.sinks.parquet import parquet
from penstock.errors import RunError
from tests.oracle import Feed, Spec, Window
from tests.spark.world import START, at

pytestmark = pytest.mark.spark

SECOND = 1_000_000
COLUMNS = {"k": "bigint", "v": "int", "ts": "timestamp"}


def _raises(_value):
    raise ValueError("no half of that")


def _exits(_value):
    os._exit(3)


@pytest.fixture
def feeds(tmp_path):
    made = [Feed(name, tmp_path / name, COLUMNS) for name in ("a", "b")]
    for feed in made:
        grow(feed, 0)
    return made


def grow(feed, first):
    feed.append({"k": 1, "v": n, "ts": at(START + n * SECOND)} for n in range(first, first + 3))


def run(spark, tmp_path, feeds, expression):
    spec = Spec("q", *feeds, ("a.k = b.k",), Window("both", 60 * SECOND), select=((expression, "x"),))
    with Engine(tmp_path / "state", spark) as engine:
        engine.script(" ".join(feed.declare() for feed in feeds))
        engine.query("q", spec.penstock(), sink=parquet(tmp_path / "out"))
        engine.start(once=True)
        engine.wait()


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("raises_for_test(a.v)", "ValueError: no half of that"),
        ("exits_for_test(a.v)", "a Python worker died"),
        ("1 div (a.v - a.v)", "Division by zero"),
        ("CAST(concat('x', a.v) AS int)", "'x[0-9]' of the type \"STRING\" cannot be cast"),
    ],
)
def test_what_an_expression_does_wrong_is_said_in_one_sentence(spark, tmp_path, feeds, expression, reason):
    spark.udf.register("raises_for_test", _raises, "int")
    spark.udf.register("exits_for_test", _exits, "int")
    with pytest.raises(RunError, match=reason) as error:
        run(spark, tmp_path, feeds, expression)
    assert "Traceback" not in str(error.value)
    assert "\n" not in str(error.value)


def test_a_segment_that_is_gone_is_named(spark, tmp_path, feeds):
    run(spark, tmp_path, feeds, "a.v")
    gone = sorted((tmp_path / "state" / "log").rglob("*.arrow"))
    for file in gone:
        file.unlink()
    for feed in feeds:
        grow(feed, 3)
    with pytest.raises(RunError, match="is missing; restore it") as error:
        run(spark, tmp_path, feeds, "a.v")
    assert any(str(file) in str(error.value) for file in gone)
