"""Spark goes on rightly from a checkpoint that was mended, and from none that could lose or repeat a row.

Real checkpoints lose their last entries in every combination, gone or empty, while new files arrive (the same is asked
of a model of Spark, thousands of times over, in tests/log/test_agreement.py).
"""

from __future__ import annotations

import shutil
from random import Random

import pytest

from penstock.engine.engine import Engine
from penstock.engine.out.sinks import noop
from penstock.errors import RunError
from tests.oracle import Feed, Spec, Window
from tests.spark.runner import Run
from tests.spark.world import COLUMNS, GRID, LATENESS, random_rows

pytestmark = pytest.mark.spark

COMPACT = "spark.sql.streaming.fileSource.log.compactInterval"


@pytest.fixture
def soon_together(spark):
    """Let sources put their lists of files together at every third entry, and not at every tenth."""
    spark.conf.set(COMPACT, "3")
    yield
    spark.conf.unset(COMPACT)


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("soon_together")
@pytest.mark.parametrize("limit", ["1", "2", "1000"])
def test_whatever_of_the_last_entries_is_lost_each_row_counts_once_or_the_run_says_why(
    spark, tmp_path, limit
):
    random = Random(f"checkpoints {limit}")
    options = {"maxFilesPerTrigger": limit}
    feeds = [Feed(name, tmp_path / name, COLUMNS, LATENESS, options=options) for name in ("Alpha", "beta")]
    chosen = (("a.id", "i"), ("b.id", "j"))
    run = Run(spark, tmp_path, [Spec("q", *feeds, ("a.k = b.k",), Window("both", 8 * GRID), (), chosen)])
    rows = [random_rows(random, 160) for _ in feeds]
    outcomes = []
    for turn in range(8):
        for feed, mine in zip(feeds, rows, strict=True):
            feed.append_cut(
                mine[20 * turn : 20 * turn + 20], [random.randint(0, 20) for _ in range(random.randint(0, 2))]
            )
        outcomes.append(attempt(run))
        if outcomes[-1]:
            shutil.rmtree(run.state / "checkpoint")
            shutil.copytree(tmp_path / "copy", run.state / "checkpoint")
            assert not attempt(run), "what is restored goes on"
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
        shutil.copytree(run.state / "checkpoint", tmp_path / "copy")
        for feed in feeds:
            lose(random, run.state / "checkpoint" / feed.name.lower())
    if attempt(run):
        shutil.rmtree(run.state / "checkpoint")
        shutil.copytree(tmp_path / "copy", run.state / "checkpoint")
        run.once()
    run.check(f"limit {limit}, {outcomes}")
    assert not all(outcomes[1:]), "nothing was mended"


def attempt(run: Run) -> str:
    """Run to the end of the input; give what stopped it, which must be us and not Spark."""
    try:
        run.once()
    except RunError as stopped:
        said = str(stopped)
    else:
        said = ""
    assert not said or "does not agree with the journal" in said, said
    return said


def lose(random, folder) -> None:
    """Take away the newest entries of each of Spark's logs, or empty them."""
    for kind, most in (("offsets", 2), ("commits", 2), ("sources/0", 1)):
        entries = [each for each in (folder / kind).iterdir() if each.name.partition(".")[0].isdigit()]
        entries.sort(key=lambda each: int(each.name.partition(".")[0]))
        for entry in entries[len(entries) - random.randint(0, most) :]:
            if random.random() < 0.5:
                entry.unlink()
            else:
                entry.write_bytes(b"")


def test_a_source_whose_offsets_are_complete_goes_on_from_nothing(spark, tmp_path):
    """Each run reads one batch of numbers, counted up from the last; all of the checkpoint is lost in between."""
    options = {"rowsPerBatch": "10", "startTimestamp": "1700000000000", "advanceMillisPerBatch": "1000"}
    for turn in range(3):
        source = spark.readStream.format("rate-micro-batch").options(**options).load()
        with Engine(tmp_path / "state", spark) as engine:
            engine.stream("r", source, time="timestamp")
            engine.query("all", "SELECT a.value FROM r a, r b WHERE a.value = b.value WINDOW 1 s")
            engine.query(
                "counted", "SELECT a.value FROM r a, r b WHERE a.value = b.value WINDOW 2 s", sink=noop()
            )
            engine.start(once=True)
            engine.wait()
            values = sorted(row.value for row in engine.results("all").collect())
            assert values == list(range(len(values))), turn
            assert len(values) >= 10 * (turn + 1)
        shutil.rmtree(tmp_path / "state" / "checkpoint" / "r")


def test_a_lost_file_list_stops_the_run_with_both_sides_and_the_way_out(spark, tmp_path):
    feeds = [Feed(name, tmp_path / name, COLUMNS, LATENESS) for name in ("Alpha", "beta")]
    for feed in feeds:
        feed.append(random_rows(Random(1), 10))
    run = Run(spark, tmp_path, [Spec("q", *feeds, ("a.k = b.k",), Window("both", 8 * GRID))])
    run.once()
    for feed in feeds:
        feed.append([])
    run.once()
    shutil.rmtree(run.state / "checkpoint" / "alpha")
    with pytest.raises(RunError) as stopped:
        run.once()
    said = str(stopped.value)
    assert "stream Alpha: Spark's checkpoint" in said
    assert "it ends before batch 1, which the journal has" in said
    assert "penstock repair --state" in said
