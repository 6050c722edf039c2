"""One Spark session for all tests of this directory, and a guard: the driver touches no row."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.spark.driver_guard import guard


@pytest.fixture(scope="session")
def spark():
    """Start the embedded session, with what makes many tiny jobs quick."""
    from penstock.engine.spark.session import QUICK_START, embedded_session

    if not os.environ.get("JAVA_HOME"):
        found = subprocess.run(
            [Path(__file__).parents[2] / "scripts" / "find-java"], capture_output=True, text=True, check=True
        )
        os.environ["JAVA_HOME"] = found.stdout.strip()
    return embedded_session(
        {**QUICK_START, "spark.sql.shuffle.partitions": "2", "spark.master": "local[2, 4]"}
    )


@pytest.fixture(autouse=True)
def driver_touches_no_row(request, monkeypatch):
    """Refuse that the package opens a file with rows in this process, unless the test itself runs a task's code."""
    if request.node.get_closest_marker("runs_task_here") is None:
        guard(monkeypatch)
