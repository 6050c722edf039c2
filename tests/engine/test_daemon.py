"""The daemon that Spark forks its Python workers from."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import penstock
from penstock.engine.daemon import ignore_closed_pipe

LOOK = """
from penstock.engine.daemon import load
import gc, os, sys
load()
loaded = "penstock.engine.tasks.join" in sys.modules
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


WHERE = """
from penstock.engine.daemon import use_installed_pyspark
import sys
use_installed_pyspark()
import pyspark.sql
zipped = [each for each in (*sys.path, *sys.path_importer_cache) if "pyspark.zip" in each or each.endswith(".jar")]
print(".zip" in pyspark.__file__, len(zipped))
"""


def where_pyspark_is(library):
    """Import pyspark as a daemon does to which Spark gives `library`/pyspark.zip and a jar as its path."""
    path = [
        library / "pyspark.zip",
        *library.glob("py4j-*.zip"),
        library / "some.jar",
        Path(penstock.__path__[0]).parent,
    ]
    told = subprocess.run(
        [sys.executable, "-c", WHERE],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))},
        capture_output=True,
        text=True,
        check=True,
    )
    return told.stdout.split()


def test_pyspark_is_imported_from_where_it_is_installed():
    library = Path(find_spec("pyspark").origin).parent / "python" / "lib"
    assert (library / "pyspark.zip").exists()
    assert where_pyspark_is(library) == ["False", "0"]


def test_the_pyspark_of_a_spark_that_is_elsewhere_is_its_own(tmp_path):
    library = Path(find_spec("pyspark").origin).parent / "python" / "lib"
    for file in library.glob("*.zip"):
        shutil.copy(file, tmp_path)
    zipped, entries = where_pyspark_is(tmp_path)
    assert zipped == "True"
    assert int(entries) > 0
