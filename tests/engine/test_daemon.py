"""The daemon that Spark forks its Python workers from."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.engine.daemon import ignore_closed_pipe

LOOK = """
from penstock.engine.daemon import load
import gc, os, sys
load()
loaded = "penstock.engine.units.unit_task" in sys.modules
print(len(os.listdir("/proc/self/task")), gc.get_freeze_count() > 100_000, gc.isenabled(), loaded)
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted by the kernel's files")
def test_what_tasks_need_is_loaded_and_frozen_and_no_thread_is_left_that_a_fork_would_lose():
    told = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["1", "True", "True", "True"]


def test_a_worker_that_spark_has_let_go_leaves_quietly():
    def broken(_socket, _known):
        raise BrokenPipeError

    assert ignore_closed_pipe(broken)("socket", True) == 1
    assert ignore_closed_pipe(lambda _socket, _known: 0)("socket", True) == 0
