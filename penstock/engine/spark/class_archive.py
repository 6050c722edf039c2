"""The class archive: a file of the classes that Spark loads, which a JVM maps instead of reading them from jars.

A JVM spends most of its start-up on reading and verifying some 20,000 classes.  An archive fits one Java and one set of
jars.  ``penstock doctor --class-archive make`` runs the demo in a JVM that writes one when it ends; nothing else does.
Sessions that Penstock starts use it by one JVM option.  A JVM ignores an archive that does not fit.

In:  the Java that Spark will start, Spark's jars, the user's cache directory.  Out: an option for the JVM.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from penstock.engine.spark.launch import spark_home
from penstock.errors import InputError, RunError

_log = logging.getLogger(__name__)

SWITCH = "PENSTOCK_CLASS_ARCHIVE"
"""Environment variable: ``off`` to start Spark without the archive."""

_SETTING = "spark.driver.defaultJavaOptions"


@dataclass(frozen=True, slots=True)
class Archive:
    """The archive for one Java and one set of jars, whether it exists or not."""

    file: Path

    @property
    def is_usable(self) -> bool:
        """Check that the archive exists, and that only the user can have written it."""
        return _is_private(self.file.parent) and _is_private(self.file)

    @property
    def complaint(self) -> str:
        """Return why an archive that exists is not used, and the fix; empty if none exists, or if it is usable."""
        if self.is_usable or not os.path.lexists(self.file):
            return ""
        return (
            f"class archive {self.file} is not used: another user owns it or can write it or its directory. "
            f"Remove {self.file.parent}, then run `penstock doctor --class-archive make`"
        )

    @property
    def option(self) -> str:
        """Return the option with which a JVM uses the archive."""
        return f"-XX:SharedArchiveFile={self.file}"


def archive_options() -> dict[str, str]:
    """Return the Spark setting that makes the driver's JVM use the archive; empty if there is none."""
    archive = None if os.environ.get(SWITCH, "").lower() == "off" else find_archive()
    if archive is None or not archive.is_usable:
        if archive is not None and archive.complaint:
            _log.warning("%s", archive.complaint)
        return {}
    return {_SETTING: f"{archive.option} -Xlog:cds*=off,class+path=off"}


def archive_folder() -> Path:
    """Return the directory of archives.  Not the one of segment copies: unused files are removed there."""
    cache = os.environ.get("XDG_CACHE_HOME") or ""
    return (Path(cache) if Path(cache).is_absolute() else Path.home() / ".cache") / "penstock-classes"


def find_archive() -> Archive | None:
    """Return the archive for the Java that Spark will start, None if this system can have none."""
    if os.name != "posix":
        return None
    try:
        home = _java_home()
        parts = [(home / "release").read_text(encoding="utf-8"), str(home), *_jars()]
        folder = archive_folder()
    except (OSError, RuntimeError):  # no Java, no Spark, no home directory
        return None
    if re.search(r"\s", str(folder)):  # options of a JVM are separated by spaces
        return None
    return Archive(folder / f"spark-{hashlib.sha256('|'.join(parts).encode()).hexdigest()[:16]}.jsa")


def make_archive() -> str:
    """Make the archive, replacing one that is there, and return a line about it."""
    archive, began = find_archive(), time.monotonic()
    if archive is None:
        raise InputError(
            f"no archive can be made: there is no Java, or the path {archive_folder()} has a space"
        )
    folder = archive.file.parent
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not _is_private(folder):
        raise InputError(
            f"other users can write {folder}, and a JVM runs the code of an archive: remove it, or chmod 700"
        )
    with tempfile.TemporaryDirectory(dir=folder, prefix="making-") as parts:
        made = Path(parts, "classes.jsa")
        output = _run_demo(f"-XX:ArchiveClassesAtExit={made} -Xlog:cds*=error")
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
    arguments = ["--master", "local[2]", "--conf", f"{_SETTING}={options}", "pyspark-shell"]
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


def _is_private(path: Path) -> bool:
    """Check that a file or directory exists, is the user's own and no link, and that only the user can write it."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return status.st_uid == os.geteuid() and not status.st_mode & 0o022


def _java_home() -> Path:
    """Return the home of the Java that Spark's launcher will start."""
    home = os.environ.get("JAVA_HOME")
    java = home or shutil.which("java")
    if java is None:
        raise FileNotFoundError("there is no Java")
    return Path(home) if home else Path(java).resolve().parents[1]


def _jars() -> list[str]:
    """List the jars with their sizes and dates, which a JVM compares before it uses an archive."""
    with os.scandir(spark_home() / "jars") as entries:
        return sorted(f"{jar.path} {jar.stat().st_size} {jar.stat().st_mtime_ns}" for jar in entries)
