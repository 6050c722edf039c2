"""One Spark session for all tests of this directory.

Tests have few rows, and little work is done without Spark's tasks; so that these are tested too, every other test, by
its name, is told to have none of that; of the others, half use threads, as an engine does that has no workers yet.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from zlib import crc32

import pytest


@pytest.fixture(scope="session")
def spark():
    """Start the embedded session, with what makes many tiny jobs quick."""
    from penstock.engine.spark.session import QUICK_START, embedded_session

    if not os.environ.get("JAVA_HOME"):
        found = subprocess.run(
            [Path(__file__).parents[2] / "scripts" / "find-java"], capture_output=True, text=True, check=True
        )
        os.environ["JAVA_HOME"] = found.stdout.strip()
    return embedded_session({**QUICK_START, "spark.sql.shuffle.partitions": "2", "spark.master": "local[2]"})


@pytest.fixture(autouse=True)
def where_little_work_is_done(request, monkeypatch):
    """Let half of the tests do little work in tasks, and the others here or in threads; always the same ones."""
    chance = crc32(request.node.nodeid.encode())
    who = "tasks" if chance % 2 else ("here", "threads")[chance // 6 % 2]
    if who != "here":
        from penstock.engine.units import little_work, own_work

        monkeypatch.setattr(little_work, "MOST_ROWS", -1)
        monkeypatch.setattr(little_work, "MOST_BYTES", -1)
        if who == "threads":
            monkeypatch.setattr(own_work.OwnWork, "is_wanted", lambda _: True)
