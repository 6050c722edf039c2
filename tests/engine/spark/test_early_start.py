"""Workers that are started early, and what is heard of those that cannot be."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from penstock.engine.runners import spark as runners
from penstock.engine.spark import early_start
from penstock.engine.spark.early_start import PythonWorkers
from penstock.errors import InputError, RunError

TIMEOUT = "spark.penstock.startTimeout"


@pytest.fixture
def session(monkeypatch):
    """Give a session of which only the name is known."""
    monkeypatch.setattr(early_start, "_applications", {})
    context = SimpleNamespace(applicationId="app-1", defaultParallelism=2, master="spark://host:7077")
    return SimpleNamespace(sparkContext=context, conf={TIMEOUT: "50 ms"})


def ended():
    for thread in threading.enumerate():
        if thread.name == "penstock-workers":
            thread.join()


def test_workers_are_begun_once_for_a_session(session, monkeypatch):
    jobs = []
    monkeypatch.setattr(runners, "start_workers", lambda *_: jobs.append("job"))
    some = [PythonWorkers(session) for _ in range(3)]
    for each in some:
        each.begin()
    ended()
    assert jobs == ["job"]
    assert some[0].failure is None


def test_why_workers_could_not_be_started_is_kept_for_whoever_needs_them(session, monkeypatch):
    def fail(*_):
        raise RuntimeError("No module named 'penstock'")

    monkeypatch.setattr(runners, "start_workers", fail)
    workers = PythonWorkers(session)
    workers.begin()
    ended()
    assert "No module named 'penstock'" in str(workers.failure)


@pytest.fixture
def started(session, monkeypatch):
    """Give workers whose job does not end before the test does, and what Spark says of its stages."""
    goes_on, stages = threading.Event(), []
    monkeypatch.setattr(runners, "start_workers", lambda *_: goes_on.wait())
    session.sparkContext.statusTracker = lambda: SimpleNamespace(
        getActiveStageIds=lambda: range(len(stages)), getStageInfo=lambda number: stages[number]
    )
    workers = PythonWorkers(session)
    workers.begin()
    yield workers, stages, goes_on
    goes_on.set()
    ended()


def stage(active):
    return SimpleNamespace(numActiveTasks=active, numCompletedTasks=0)


def test_a_cluster_without_an_executor_is_named_in_time(started):
    workers, stages, _ = started
    stages.append(stage(0))
    with pytest.raises(RunError) as error:
        workers.await_executor()
    said = str(error.value)
    assert "Spark's master spark://host:7077 gave no executor in 0.05 s. Check that it has workers" in said
    assert "SET spark.penstock.startTimeout = " in said


def test_a_job_that_is_still_planned_or_runs_does_not_lack_executors(started):
    workers, stages, goes_on = started
    threading.Timer(0.3, lambda: stages.append(stage(1))).start()
    workers.await_executor()
    stages.clear()
    threading.Timer(0.3, goes_on.set).start()
    workers.await_executor()


def test_a_local_master_is_not_asked(started):
    workers, stages, _ = started
    stages.append(stage(0))
    workers._spark.sparkContext.master = "local[*, 4]"
    workers.await_executor()


def test_a_time_that_is_none_is_refused(session):
    session.conf[TIMEOUT] = "soon"
    with pytest.raises(InputError, match=r"spark\.penstock\.startTimeout 'soon' is not a length of time"):
        PythonWorkers(session).await_executor()
