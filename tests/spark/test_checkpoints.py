"""Spark goes on rightly from a checkpoint that was repaired, and from none that could lose or repeat a row.

Real checkpoints lose their last entries in every combination, gone or empty, while new files arrive (the same is asked
of a model of Spark, thousands of times over, in tests/state/test_origin.py).  What a killed process leaves needs no
repair, and a start writes nothing.
"""

from __future__ import annotations

import shutil
from random import Random
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from penstock.cli.repair import repair_state
from penstock.engine.api import Engine
from penstock.engine.sinks.noop import noop
from penstock.errors import RunError
from tests.oracle import Feed, Spec, Window
from tests.spark.runner import Run
from tests.spark.world import COLUMNS, GRID, LATENESS, SPAN, random_rows

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

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
        outcomes.append(attempt(run, tmp_path / "copy"))
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
        shutil.copytree(run.state / "checkpoint", tmp_path / "copy")
        for feed in feeds:
            lose(random, run.state / "checkpoint" / feed.name.lower())
    outcomes.append(attempt(run, tmp_path / "copy"))
    run.check(f"limit {limit}, {outcomes}")
    assert "repaired" in outcomes


def attempt(run: Run, copy: Path) -> str:
    """Run to the end of the input; if it is stopped, which must be by us and not by Spark, repair or restore first."""
    before = checkpoints(run)
    said = stopped_by(run.once)
    if not said:
        return "fine"
    assert "does not agree with the journal" in said
    assert f"penstock repair --state {run.state.as_uri()}" in said
    assert checkpoints(run) == before, "only a repair writes"
    refused = stopped_by(lambda: list(repair_state(str(run.state), yes=True)))
    if refused:
        assert "cannot be repaired, and was not changed" in refused
        assert checkpoints(run) == before
        shutil.rmtree(run.state / "checkpoint")
        shutil.copytree(copy, run.state / "checkpoint")
    run.once()
    return "restored" if refused else "repaired"


def stopped_by(work: Callable[[], object]) -> str:
    """Give what stopped some work; empty if nothing did."""
    try:
        work()
    except RunError as stopped:
        return str(stopped)
    return ""


def checkpoints(run: Run) -> dict[Path, bytes]:
    return {each: each.read_bytes() for each in (run.state / "checkpoint").rglob("*") if each.is_file()}


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
        said = list(repair_state(str(tmp_path / "state"), yes=True))
        assert said[0].startswith("wrong: Spark's checkpoint of stream r does not agree with the journal")


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


LEFT = {
    "batch 0 was about to be planned": ("offsets/0", "commits/0"),
    "batch 0 was planned": ("commits/0",),
    "the last batch was done, and Spark was not told": ("commits/{last}",),
    "the last batch was about to be planned": ("offsets/{last}", "commits/{last}"),
}
"""What Spark has not written yet when a process is killed: each file is still under its temporary name."""


@pytest.mark.parametrize("when", LEFT)
@pytest.mark.parametrize("once", [False, True])
def test_what_a_killed_process_leaves_stops_no_start(spark, tmp_path, when, once):
    """The journal has the last batch or not, as it was at that moment; a start repairs nothing, and removes nothing."""
    feeds = [Feed(name, tmp_path / name, COLUMNS, SPAN) for name in ("Alpha", "beta")]
    run = Run(spark, tmp_path, [Spec("q", *feeds, ("a.k = b.k",), Window("both", 8 * GRID))])
    last = 0 if "batch 0" in when else 2
    for turn in range(last + 1):
        for feed in feeds:
            feed.append(random_rows(Random(turn), 10))
        if turn == last and "not told" not in when:
            break  # the journal has no more than the batches before
        run.once()
    if "not told" not in when:
        journal = tmp_path / "journal"
        if last:
            shutil.copytree(run.state, journal)
        run.once()
        checkpoint = tmp_path / "checkpoint"
        shutil.copytree(run.state / "checkpoint", checkpoint)
        shutil.rmtree(run.state)
        if last:
            shutil.copytree(journal, run.state)
            shutil.rmtree(run.state / "checkpoint")
        shutil.copytree(checkpoint, run.state / "checkpoint")
    left = []
    for feed in feeds:
        for name in LEFT[when]:
            file = run.state / "checkpoint" / feed.name.lower() / name.format(last=last)
            left.append(file.rename(file.with_name(f".{file.name}.{uuid4()}.tmp")))
            checksum = file.with_name(f".{file.name}.crc")
            if checksum.exists():  # Hadoop renames it after its file
                left.append(checksum.rename(file.with_name(f".{left[-1].name}.crc")))
    if once:
        run.once()
    else:
        with run.engine() as engine:
            engine.start()
            engine.process_available()
    run.check(when)
    assert all(each.exists() for each in left)
