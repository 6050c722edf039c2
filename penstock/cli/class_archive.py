"""Make the class archive: run the demo in a JVM that writes the classes it has loaded to a file.

In:  nothing.  Out: the archive in the user's cache (`penstock.engine.spark.class_archive`).
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from penstock.engine.spark.class_archive import SWITCH, archive_folder, find_archive, is_private
from penstock.errors import InputError, RunError


def make_archive() -> str:
    """Make the archive, replacing one that is there, and return a line about it."""
    archive, began = find_archive(), time.monotonic()
    if archive is None:
        raise InputError(
            f"no archive can be made: there is no Java, or the path {archive_folder()} has a space"
        )
    folder = archive.file.parent
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not is_private(folder):
        raise InputError(
            f"other users can write {folder}, and a JVM runs the code of an archive: remove it, or chmod 700"
        )
    with tempfile.TemporaryDirectory(dir=folder, prefix="making-") as parts:
        made = Path(parts, "classes.jsa")
        output = _run_demo(archive.making_options(made))
        if not made.is_file():
            raise RunError(f"Java wrote no archive: {output[-500:]}")
        made.chmod(0o444)
        made.replace(archive.file)
    size = archive.file.stat().st_size >> 20
    return f"made {archive.file}: {size} MiB in {time.monotonic() - began:.0f} seconds"


def remove_archives() -> str:
    """Remove all archives of this user, and return a line about it."""
    folder = archive_folder()
    if not folder.is_dir():
        return "there is no class archive"
    shutil.rmtree(folder)
    return f"removed {folder}"


def _run_demo(options: str) -> str:
    """Run the demo in a process whose JVM gets more options; return the output once the JVM has ended."""
    arguments = [
        "--master",
        "local[2]",
        "--conf",
        f"spark.driver.defaultJavaOptions={options}",
        "pyspark-shell",
    ]
    run = subprocess.run(
        [sys.executable, "-m", "penstock.cli.main", "--debug", "demo"],  # the JVM prints to this process
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, SWITCH: "off", "PYSPARK_SUBMIT_ARGS": shlex.join(arguments)},
        check=False,
    )
    output = run.stdout.decode("utf-8", "replace").strip()
    if run.returncode:
        raise RunError(f"the demo failed, which loads the classes to archive: {output[-500:]}")
    return output
