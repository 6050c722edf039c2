"""Workers that are started early, and what is heard of those that cannot be."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from penstock.engine.spark import dispatch, early_start
from penstock.engine.spark.early_start import PythonWorkers


@pytest.fixture
def session(monkeypatch):
    """Give a session of which only the name is known."""
    monkeypatch.setattr(early_start, "_applications", {})
    monkeypatch.setattr(dispatch, "numbered", lambda *_: None)
    return SimpleNamespace(sparkContext=SimpleNamespace(applicationId="app-1", defaultParallelism=2))


def ended():
    for thread in threading.enumerate():
        if thread.name == "penstock-workers":
            thread.join()


def test_workers_are_begun_once_for_a_session(session, monkeypatch):
    jobs = []
    monkeypatch.setattr(dispatch, "run_work", lambda *_: jobs.append("job"))
    some = [PythonWorkers(session) for _ in range(3)]
    assert not any(each.are_there for each in some)
    for each in some:
        each.begin()
    ended()
    assert jobs == ["job"]
    assert all(each.are_there for each in some)
    assert some[0].failure is None


def test_workers_are_not_there_while_they_start(session, monkeypatch):
    go = threading.Event()
    monkeypatch.setattr(dispatch, "run_work", lambda *_: go.wait(60))
    workers = PythonWorkers(session)
    workers.begin()
    assert not workers.are_there
    go.set()
    ended()
    assert workers.are_there


def test_why_workers_could_not_be_started_is_kept_for_whoever_needs_them(session, monkeypatch):
    def fail(*_):
        raise RuntimeError("No module named 'penstock'")

    monkeypatch.setattr(dispatch, "run_work", fail)
    workers = PythonWorkers(session)
    workers.begin()
    ended()
    assert workers.are_there, "a job has to be run for the reason to be told"
    assert "No module named 'penstock'" in str(workers.failure)
