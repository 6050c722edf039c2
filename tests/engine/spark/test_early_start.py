"""Workers that are started early, and what is heard of those that cannot be."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from penstock.engine.spark import dispatch, early_start


@pytest.fixture
def session(monkeypatch):
    """Give a session of which only the name is known."""
    monkeypatch.setattr(early_start, "_workers", {})
    monkeypatch.setattr(dispatch, "numbered", lambda *_: None)
    return SimpleNamespace(sparkContext=SimpleNamespace(applicationId="app-1", defaultParallelism=2))


def ended():
    for thread in threading.enumerate():
        if thread.name == "penstock-workers":
            thread.join()


def test_workers_are_begun_once_for_a_session(session, monkeypatch):
    jobs = []
    monkeypatch.setattr(dispatch, "run_work", lambda *_: jobs.append("job"))
    for _ in range(3):
        early_start.begin_workers(session)
    ended()
    assert jobs == ["job"]
    assert early_start.workers_failure(session) is None


def test_why_workers_could_not_be_started_is_kept_for_whoever_needs_them(session, monkeypatch):
    def fail(*_):
        raise RuntimeError("No module named 'penstock'")

    monkeypatch.setattr(dispatch, "run_work", fail)
    early_start.begin_workers(session)
    ended()
    assert "No module named 'penstock'" in str(early_start.workers_failure(session))
