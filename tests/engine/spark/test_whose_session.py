"""What an engine says when its session has no Python workers."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from penstock.engine.api import Engine
from penstock.errors import RunError


def test_a_join_that_found_no_workers_says_why_there_are_none(tmp_path):
    with Engine(tmp_path / "state") as engine:
        engine._joiner = SimpleNamespace(
            failure=Exception("java.lang.NullPointerException"), finish=lambda: None
        )
        engine._workers = SimpleNamespace(failure=Exception("No module named 'penstock'"))
        with pytest.raises(RunError, match="workers cannot import penstock"):
            engine.check_running()
