"""How the engine keeps its pace: jobs planned once, one unit for batches that come together, streams in step."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa
import pytest

from penstock import limits
from penstock.engine.api import Engine
from penstock.engine.runners import spark as runners
from penstock.engine.runners.runner import Job
from penstock.engine.stages import next_unit
from penstock.plan.prices import Prices
from tests.oracle import Feed, Spec, Window
from tests.spark.runner import Run
from tests.spark.world import START, at

pytestmark = pytest.mark.spark

COLUMNS = {"id": "bigint", "k": "bigint", "ts": "timestamp"}
SECOND = 1_000_000
FILES = 8


def spec_of(folder, **options):
    """Make two streams of a file every ten seconds of event time, and a query over them."""
    a, b = (Feed(name, folder / name, COLUMNS, options=options) for name in "ab")
    for number in range(FILES):
        rows = [
            {"id": each, "k": each % 3, "ts": at(START + (10 * number + each) * SECOND)} for each in range(9)
        ]
        for feed in (a, b):
            feed.append(rows)
    return Spec("q", a, b, ("a.k = b.k",), Window("both", 30 * SECOND), sink="noop")


@dataclass(frozen=True)
class Saying:
    word: str

    def run(self, _files):
        return self.word * 2


@dataclass(frozen=True)
class Failing:
    def run(self, _files):
        raise ValueError("asked to fail")


def test_a_plan_is_made_once_and_carries_other_tasks_each_time(spark):
    runner, job, context = runners.SparkRunner(spark, None), Job("test", "say some words"), spark.sparkContext
    for count in (1, 2, 5):  # fewer than cores, as many, and more
        words = [f"{count}.{number}" for number in range(count)]
        assert runner.map([Saying(each) for each in words], job) == [each * 2 for each in words]
    assert runner.map([], job) == []
    assert set(runner._plans) == {1, 2}, "a plan for each number of Spark tasks"
    with pytest.raises(Exception, match="asked to fail"):
        runner.map([Saying("one"), Failing()], job)
    names = (runners.PROPERTY, "spark.job.description", "spark.scheduler.pool", "spark.jobGroup.id")
    assert not any(context.getLocalProperty(name) for name in names), "nothing is left for the next job"


def test_a_session_of_our_own_writes_checkpoints_as_plain_files(spark, tmp_path):
    """One that the user made keeps Hadoop's own local file system, which other stores count on."""
    names = ("fs.file.impl", "fs.file.impl.disable.cache", "spark.sql.streaming.checkpointFileManagerClass")
    before = [spark.conf.get(name, None) for name in names]
    Run(spark, tmp_path / "given", [spec_of(tmp_path)]).once()
    assert [spark.conf.get(name, None) for name in names] == before
    try:
        Run(None, tmp_path / "own", [spec_of(tmp_path)]).once()
        own = [path.name for path in (tmp_path / "own" / "state" / "checkpoint").rglob("*") if path.is_file()]
        assert "0" in own, "Spark wrote its checkpoint there"
        assert not [name for name in own if name.endswith(".crc")]
    finally:
        for name in names:
            spark.conf.unset(name)


def test_an_output_may_be_called_anything(spark, tmp_path):
    """Computed outputs travel as a struct in Spark SQL text: names are quoted there."""
    spec = spec_of(tmp_path)
    with Engine(tmp_path / "state", spark) as engine:
        engine.script(f"{spec.a.declare()} {spec.b.declare()}")
        odd = "it's a \\ name"
        engine.query("q", f"SELECT a.id + b.id AS `{odd}` FROM a JOIN b ON a.k = b.k WINDOW 1 second")
        engine.start(once=True)
        engine.wait()
        found = engine.results("q").toArrow()
    assert found.column_names == [odd]
    assert found.num_rows > 0
    assert pa.types.is_int64(found.schema.types[0])


@pytest.mark.parametrize("scheduler", ["swf", "mqt"])
def test_slices_that_advance_one_by_one_give_every_query_its_results(spark, tmp_path, monkeypatch, scheduler):
    """Units cost nothing here, so that every ring of slices is worth one; results come with their response times."""
    monkeypatch.setattr(next_unit, "prices_of", lambda _: Prices(unit=0.0, row=1.0, pair=1.0))
    monkeypatch.setattr(limits, "OUTER_UNIT_SECONDS", 0.0)
    base = spec_of(tmp_path, maxFilesPerTrigger="1")
    windows = {"alert": 1, "minute": 15, "report": 60}
    specs = [
        replace(base, name=name, window=Window("both", span * SECOND), sink=sink)
        for (name, span), sink in zip(windows.items(), ("table", "parquet", "noop"), strict=True)
    ]
    run = Run(spark, tmp_path, specs)
    with run.engine() as engine:
        engine.script(f"SET scheduler = '{scheduler}';")
        engine.start(once=True)
        engine.wait()
        status = engine.status()
    assert status.groups[0].units > FILES, "slices went on their own"
    assert {each.lag_rows for each in status.queries} == {0}
    responses = {each.name: each.response for each in status.queries}
    assert all(0 < each.p50 <= each.p99 <= each.longest for each in responses.values())
    run.check(scheduler)
