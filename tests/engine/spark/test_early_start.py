"""Workers that are started early, and what is heard of those that cannot be."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from penstock.engine.runners import spark as runners
from penstock.engine.spark import early_start
from penstock.engine.spark.early_start import PythonWorkers


@pytest.fixture
def session(monkeypatch):
    """Give a session of which only the name is known."""
    monkeypatch.setattr(early_start, "_applications", {})
    return SimpleNamespace(sparkContext=SimpleNamespace(applicationId="app-1", defaultParallelism=2))


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
