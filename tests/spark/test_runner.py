"""What only Spark decides about tasks: retries, descriptions, counters; and that the driver touches no row."""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from penstock.engine.runners.runner import Job
from penstock.engine.runners.spark import SparkRunner
from penstock.engine.tasks.rewrite import RewriteTask
from penstock.state.files import open_files
from tests.oracle import Feed, Spec, Window
from tests.spark.driver_guard import DriverTouchedRowsError
from tests.spark.runner import Run
from tests.spark.world import START, at

pytestmark = pytest.mark.spark

COLUMNS = {"id": "bigint", "k": "bigint", "ts": "timestamp"}
SECOND = 1_000_000
JOB = Job("test", "try something")


@dataclass(frozen=True)
class Dying:
    """Kills its worker, the first time."""

    mark: str

    def run(self, _files):
        if not Path(self.mark).exists():
            Path(self.mark).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return os.getpid()


@dataclass(frozen=True)
class Looking:
    """Says where it runs, and under which description."""

    def run(self, _files):
        from pyspark import TaskContext

        context = TaskContext.get()
        return os.getpid(), context.getLocalProperty("spark.job.description"), context.attemptNumber()


def spec_of(folder, files=12):
    """Make two streams of some files, and a query over them."""
    a, b = (Feed(name, folder / name, COLUMNS, options={"maxFilesPerTrigger": "1"}) for name in "ab")
    for number in range(files):
        rows = [
            {"id": each, "k": each % 3, "ts": at(START + (10 * number + each) * SECOND)} for each in range(9)
        ]
        for feed in (a, b):
            feed.append(rows)
    return Spec("q", a, b, ("a.k = b.k",), Window("both", 30 * SECOND), sink="parquet")


def test_a_task_runs_in_another_process_under_a_description(spark):
    reports = SparkRunner(spark, None).map([Looking(), Looking()], JOB)
    assert all(pid != os.getpid() for pid, _, _ in reports)
    assert {(described, attempt) for _, described, attempt in reports} == {("try something", 0)}


def test_a_worker_that_dies_costs_a_retry(spark, tmp_path):
    (pid,) = SparkRunner(spark, None).map([Dying(str(tmp_path / "died"))], JOB)
    assert (tmp_path / "died").exists()
    assert pid != os.getpid()


def workers() -> list[int]:
    """Find the Python workers: processes that Spark's Python daemon has forked."""
    daemons = {}
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            try:
                command = (each / "cmdline").read_bytes()
                parent = int((each / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, ValueError):
                continue
            if b"-m\0penstock.engine.daemon" in command:
                daemons[int(each.name)] = parent
    return [pid for pid, parent in daemons.items() if parent in daemons and _is_ours(daemons[parent])]


def _is_ours(pid: int) -> bool:
    """Tell whether a process descends from this one."""
    while pid > 1 and pid != os.getpid():
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid == os.getpid()


def test_workers_killed_while_a_query_runs_change_nothing(spark, tmp_path):
    """Kill -9 of some worker, five times during a run: the run ends, and every result is there once."""
    run, killed, done = Run(spark, tmp_path, [spec_of(tmp_path)]), [], threading.Event()

    def kill() -> None:
        while not done.wait(0.4) and len(killed) < 5:
            if some := workers():
                os.kill(some[0], signal.SIGKILL)
                killed.append(some[0])

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        run.once()
    finally:
        done.set()
        killer.join()
    assert killed, "the run was over before a worker was killed"
    run.check(f"after {len(killed)} kills")


def test_what_tasks_count_is_what_the_state_counts(spark, tmp_path):
    run = Run(spark, tmp_path, [spec_of(tmp_path)])
    with run.engine() as engine:
        engine.start(once=True)
        engine.wait()
        status, counts = engine.status(), engine.task_counts
    assert counts["rows ingested"] == sum(each.rows for each in status.streams) > 0
    assert counts["pairs joined"] == sum(each.pairs for each in status.groups) > 0
    assert counts["results"] == sum(each.results for each in status.queries) > 0


def test_the_guard_refuses_that_the_driver_touches_rows(spark, tmp_path):
    """The guard of all tests here can fail: a task that is run in the driver opens a segment, and is refused."""
    run = Run(spark, tmp_path, [spec_of(tmp_path, files=2)])
    with run.engine() as engine:
        engine.start()
        engine.process_available()
        store = engine._store
        log = engine.plan.logs[0].id
        segments = tuple(store.ledger.segments(log))
        with pytest.raises(DriverTouchedRowsError, match="driver"):
            RewriteTask(log, segments, ()).run(store.files)
    files = open_files(str(tmp_path / "out" / "q"), sync=False)
    # one of the files has no rows: it is there for its schema
    name = max((tmp_path / "out" / "q").glob("part-*.parquet"), key=lambda file: file.stat().st_size).name
    assert pq.read_table(files.memory_map(name)).num_rows, "a test may read what it judges"
    result = tmp_path / "out" / "q" / name
    for read in (pq.ParquetFile(result).read, lambda: pq.read_table(result), lambda: ds.dataset(result)):
        read()
    with pytest.raises(DriverTouchedRowsError, match="Parquet"):
        _as_the_package(pq.ParquetFile(result).read)
    with pytest.raises(DriverTouchedRowsError, match="Parquet"):
        _as_the_package(partial(pq.read_table, result))
    with pytest.raises(DriverTouchedRowsError, match="DataFrame"):
        _as_the_package(spark.range(3).collect)


def _as_the_package(function):
    """Call a function from a frame of the package."""
    from penstock.engine import store

    code = compile("called()", store.__file__, "exec")
    exec(code, {"called": function})  # noqa: S102 - so that the frame is one of the package
