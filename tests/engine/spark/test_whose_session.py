"""Whose session it is: in one that was not started here, or that has a cluster, this process does no work of tasks.

No JVM: of a session only its settings and its master are asked.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import penstock.engine.engine as engine_module
from penstock.engine.engine import Engine
from penstock.engine.spark.session import works_here
from penstock.errors import RunError


def session(master="local[2]", *, ours=True):
    """Give a session of which little is known."""
    settings = {"spark.penstock.embedded": "true"} if ours else {}
    launched = SimpleNamespace(contains=lambda _: False)
    context = SimpleNamespace(
        master=master, applicationId=f"{master}-{ours}", defaultParallelism=2, getConf=lambda: launched
    )
    return SimpleNamespace(
        conf=SimpleNamespace(get=settings.get, set=settings.__setitem__), sparkContext=context
    )


@pytest.mark.parametrize(
    ("master", "ours", "here"),
    [
        ("local[2]", True, True),
        ("local", True, True),
        ("local[*, 4]", True, True),
        ("local[2]", False, False),
        ("local-cluster[2, 1, 1024]", True, False),
        ("spark://host:7077", True, False),
        ("yarn", True, False),
    ],
)
def test_tasks_run_here_where_the_session_was_started_here_on_this_machine(master, ours, here):
    assert works_here(session(master, ours=ours)) is here


@pytest.mark.parametrize(("ours", "here"), [(True, True), (False, False)])
def test_a_running_session_that_was_not_given_is_left_its_work(tmp_path, monkeypatch, ours, here):
    monkeypatch.setattr(engine_module, "embedded_session", lambda _: session(ours=ours))
    with Engine(tmp_path / "state") as engine:
        assert engine._jobs._own.is_wanted() is here


def test_a_join_that_found_no_workers_says_why_there_are_none(tmp_path):
    with Engine(tmp_path / "state") as engine:
        engine._joiner = SimpleNamespace(
            failure=Exception("java.lang.NullPointerException"), finish=lambda: None
        )
        engine._workers = SimpleNamespace(failure=Exception("No module named 'penstock'"))
        with pytest.raises(RunError, match="workers cannot import penstock"):
            engine.check_running()
