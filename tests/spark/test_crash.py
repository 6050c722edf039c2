"""Exactly once: whatever fails, wherever, the committed output is what an undisturbed run gives.

batch ──▶ segments ──▶ commit          unit ──▶ files in _staging ──▶ commit ──▶ move ──▶ hand over ──▶ commit
      ^             ^        ^              ^                      ^         ^        ^             ^         ^
      every arrow is a place to fail; then a new engine opens the same state
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random

import pyarrow.parquet as pq
import pytest

from penstock import limits
from penstock.engine.runners.spark import SparkRunner
from penstock.engine.sources.ingester import SourceIngest
from penstock.engine.stages import publish
from penstock.errors import PenstockError
from penstock.state.journal import Journal
from tests.oracle import answer, bag, parquet_rows
from tests.spark.runner import Run
from tests.spark.world import crash_feeds, crash_specs, write_files

pytestmark = pytest.mark.spark

CHILD = Path(__file__).with_name("child.py")


class InjectedError(Exception):
    """What the tests break things with."""


def fail_once(function, *, after: bool, when=lambda *_args, **_options: True):
    """Wrap a function so that the first call that matters fails, before or after its work."""
    state = {"armed": True}

    def failing(*args, **options):
        mine = state["armed"] and when(*args, **options)
        if mine:
            state["armed"] = False
        if mine and not after:
            raise InjectedError("injected before")
        result = function(*args, **options)
        if mine:
            raise InjectedError("injected after")
        return result

    return failing


def runs(stage: str):
    """Recognise the jobs of a stage."""
    return lambda _runner, _plan, _tasks, job, *_: job.stage == stage


def _commits(kind: str):
    return lambda _journal, commit: commit["kind"] == kind


def _commits_results_of(query: str):
    """Recognise the commit of a unit that has results for a query; the first units often have none."""
    return lambda _journal, commit: any(
        each["query"] == query for each in commit.get("output", {}).get("publish", ())
    )


POINTS = [
    *(
        (Journal, "commit", _commits(kind), kind)
        for kind in ("plan", "batch", "unit", "published", "rewrite", "compact")
    ),
    (SourceIngest, "read", None, ""),
    *((SparkRunner, "_run", runs(stage), stage) for stage in ("join", "expire", "compact")),
    *((publish, "publish_files", None, ""),),
    (Run, "take", None, ""),
]


class Reader(threading.Thread):
    """Looks into the parquet sinks all the time, and keeps whatever was ever to be seen there."""

    def __init__(self, folders) -> None:
        super().__init__(daemon=True)
        self.folders, self.done = folders, threading.Event()
        self.seen: dict[str, Counter] = {folder.name: Counter() for folder in folders}
        self.files: dict[Path, tuple[int, int]] = {}
        self.trouble: list[str] = []
        self.looks = 0

    def run(self) -> None:
        while not self.done.wait(0.03):
            self.looks += 1
            for folder in self.folders:
                for file in folder.glob("*.parquet"):
                    self._look(folder.name, file)

    def _look(self, query: str, file: Path) -> None:
        try:
            found = file.stat()
            stamp = found.st_size, found.st_mtime_ns
            if file not in self.files:
                self.seen[query] += bag(pq.read_table(file))
            elif self.files[file] != stamp:
                self.trouble.append(f"{file} changed after it was seen")
            self.files[file] = stamp
        except Exception as error:  # noqa: BLE001 - whatever a reader could meet
            self.trouble.append(f"{file}: {error}")


class Supply:
    """Input that is held back, and revealed a little at a time: so that no failure finds nothing left to do."""

    def __init__(self, feeds, aside: Path) -> None:
        self.waiting = []
        for feed in feeds:
            for file in feed.files():
                away = aside / feed.name / file.name
                away.parent.mkdir(parents=True, exist_ok=True)
                self.waiting.append((file.name, file.rename(away), file))
        self.waiting.sort()

    def reveal(self, files: int) -> None:
        """Put the next files of both feeds where the engine looks."""
        assert self.waiting, "the supply is used up: later failures would strike nothing"
        for _, away, place in self.waiting[: 2 * files]:
            away.rename(place)
        del self.waiting[: 2 * files]


@pytest.mark.timeout(600)  # twenty starts
def test_a_failure_at_any_step_loses_and_repeats_nothing(spark, tmp_path, monkeypatch):
    """One state goes through every failure in turn; a reader meanwhile sees only rows of the final result."""
    # two segments or two files of results are enough to be merged, so every start merges some
    for name in ("MERGE_FAN_IN", "TABLE_MERGE_FAN_IN"):
        monkeypatch.setattr(limits, name, 2)
    monkeypatch.setattr(limits, "WAITING_FILES_PER_TASK", 0)
    monkeypatch.setattr(limits, "REPLACED_FILE_SECONDS", 0.0)
    feeds = crash_feeds(tmp_path)
    write_files(feeds, files=4 * len(POINTS), rows=200, seed=4)
    specs = crash_specs(tmp_path, callback=True)
    right = {spec.name: answer(spec) for spec in specs}
    supply = Supply(feeds, tmp_path / "aside")
    run = Run(spark, tmp_path, specs)
    reader = Reader([run.out / spec.name for spec in specs if spec.sink == "parquet"])
    reader.start()
    for owner, name, when, label in POINTS:
        for after in (False, True):
            supply.reveal(2)
            trap = fail_once(getattr(owner, name), after=after, **({"when": when} if when else {}))
            with monkeypatch.context() as patch:
                patch.setattr(owner, name, trap)
                with pytest.raises((InjectedError, PenstockError), match="injected"):
                    run.once()
            for folder in (each for each in reader.folders if each.exists()):
                extra = bag(parquet_rows(folder)) - right[folder.name]
                assert not extra, f"{name} {label} {after}: {folder.name} shows {extra}"
    assert not supply.waiting
    run.once()
    time.sleep(0.2)
    reader.done.set()
    reader.join()

    run.check("after all failures")
    assert not reader.trouble
    assert reader.looks > 20
    assert reader.seen == {query: right[query] for query in reader.seen}, (
        "a reader saw something else in the end"
    )
    assert not list(tmp_path.rglob("_staging"))
    with run.engine() as engine:
        there = {
            f"{kind}/{each.parent.name}/{each.name}"
            for kind in ("pairs", "results")
            for each in (run.state / kind).rglob("*.parquet")
        }
        assert there == {each.name for each in engine._store.ledger.result_files()}


def test_committed_output_survives_a_start_that_fails_to_publish_it(spark, tmp_path, monkeypatch):
    """The stop after such a start must leave what is staged: it is the only copy of committed results.

    unit ──▶ commit | fails      start ──▶ publish | fails ──▶ stop      start ──▶ publish ──▶ exact
    """
    write_files(crash_feeds(tmp_path), files=2, rows=40, seed=6)
    run = Run(spark, tmp_path, crash_specs(tmp_path, callback=True))
    for owner, name, when, after in (
        (Journal, "commit", _commits_results_of("called"), True),  # committed, and nothing of it published
        (publish, "publish_files", lambda *_: True, False),
        (Run, "take", lambda *_: True, False),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, fail_once(getattr(owner, name), after=after, when=when))
            with pytest.raises((InjectedError, PenstockError), match="injected"):
                run.once()
        with run.engine() as engine:
            assert engine._store.ledger.pending, f"{name}: nothing was left to publish, so nothing was tried"
    run.once()
    run.check("published at last")


@pytest.mark.timeout(600)  # five JVMs, on a machine that may be busy
def test_kill_9_at_random_moments_loses_and_repeats_nothing(spark, tmp_path):
    """A child is killed with its JVM and workers, four times; the fifth reaches the end."""
    seed = int.from_bytes(os.urandom(3))
    random = Random(seed)
    write_files(crash_feeds(tmp_path), files=16, rows=120, seed=seed)
    specs = crash_specs(tmp_path)
    right = {spec.name: answer(spec) for spec in specs}
    run = Run(spark, tmp_path, specs)
    for kill in range(5):
        child = subprocess.Popen(
            [sys.executable, str(CHILD), str(tmp_path)], start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
        try:
            if kill < 4:
                _wait_for_commits(child, run.state, random.randint(2, 6))
                time.sleep(random.random() * 0.3)
            else:
                assert child.wait(200) == 0, child.stderr.read().decode()[-2000:]
        finally:
            _kill_session(child)
        for spec in specs:
            folder = run.out / spec.name
            if spec.sink == "parquet" and folder.exists():
                extra = bag(parquet_rows(folder)) - right[spec.name]
                assert not extra, f"seed {seed}, after kill {kill}: {spec.name} shows {extra}"
    run.check(f"seed {seed}")
    assert not list(tmp_path.rglob("_staging"))


def _wait_for_commits(child: subprocess.Popen, state: Path, more: int) -> None:
    """Wait until the journal has grown by so many commits."""

    def last() -> int:
        return max((int(each.stem.split("-")[-1]) for each in (state / "journal").glob("*.json")), default=0)

    goal, deadline = last() + more, time.monotonic() + 120
    while last() < goal and child.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert time.monotonic() < deadline, "the child makes no progress"


def _kill_session(child: subprocess.Popen) -> None:
    """Kill the child and all that it started: its JVM, and the workers, which have process groups of their own."""
    for entry in Path("/proc").iterdir():
        with suppress(ValueError, ProcessLookupError, PermissionError):
            if os.getsid(int(entry.name)) == child.pid:
                os.kill(int(entry.name), signal.SIGKILL)
    child.wait(30)
    child.stderr.close()
