"""The class archive: a file of the classes that Spark loads, which a JVM maps instead of reading them from jars.

A JVM spends most of its start-up on reading and verifying some 20,000 classes.  An archive fits one Java and one set of
jars.  It is made on request only (``penstock doctor --class-archive make``); sessions that are started here use it.  A
JVM that finds that the file does not fit ignores it.  ``PENSTOCK_CLASS_ARCHIVE=off`` does the same for one that fits.

In:  the Java that Spark will start, Spark's jars, the user's cache directory.  Out: an option for the JVM.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

_log = logging.getLogger(__name__)

SWITCH = "PENSTOCK_CLASS_ARCHIVE"
"""Environment variable: ``off`` to start Spark without the archive."""

AOT_JAVA = 25
"""The first Java that writes an ahead-of-time cache in one step; it also holds linked classes and profiles."""


@dataclass(frozen=True, slots=True)
class Archive:
    """The archive for one Java and one set of jars, made or not."""

    file: Path
    java: int
    """The major version of the Java that it is for."""

    @property
    def is_usable(self) -> bool:
        """Check that the archive exists, and that nobody but the user can have written it."""
        return is_private(self.file.parent) and is_private(self.file)

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
    def options(self) -> str:
        """Return the options with which a JVM uses the archive, and ignores it silently if it does not fit."""
        if self.java >= AOT_JAVA:
            return f"-XX:AOTCache={self.file} -Xlog:aot*=off,cds*=off,class+path=off"
        return f"-XX:SharedArchiveFile={self.file} -Xlog:cds*=off,class+path=off"

    def making_options(self, file: Path) -> str:
        """Return the options with which a JVM writes an archive when it ends, and prints what went wrong."""
        if self.java >= AOT_JAVA:
            return f"-XX:AOTCacheOutput={file} -Xlog:aot*=error,cds*=error"
        return f"-XX:ArchiveClassesAtExit={file} -Xlog:cds*=error"


def archive_options() -> dict[str, str]:
    """Return the Spark setting that makes the driver's JVM use the archive; empty if there is none."""
    archive = None if os.environ.get(SWITCH, "").lower() == "off" else find_archive()
    if archive is None or not archive.is_usable:
        if archive is not None and archive.complaint:
            _log.warning("%s", archive.complaint)
        return {}
    return {"spark.driver.defaultJavaOptions": archive.options}


def archive_folder() -> Path:
    """Return the directory of archives.  Not the one of segment copies: unused files are removed there."""
    cache = os.environ.get("XDG_CACHE_HOME") or ""
    return (Path(cache) if Path(cache).is_absolute() else Path.home() / ".cache") / "penstock-classes"


def is_private(path: Path) -> bool:
    """Check that a file or directory exists, is the user's own and no link, and that only the user can write it."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return status.st_uid == os.geteuid() and not status.st_mode & 0o022


def find_archive() -> Archive | None:
    """Return the archive for the Java that Spark will start, None if this system or this Java can have none."""
    if os.name != "posix":
        return None
    try:
        home = _java_home()
        release = (home / "release").read_text(encoding="utf-8")
        version = re.search(r'^JAVA_VERSION="(\d+)', release, re.MULTILINE)
        folder = archive_folder()
        parts = [release, str(home), *_jars()]
    except (OSError, RuntimeError):  # no Java, no Spark, no home directory
        return None
    if version is None or re.search(r"\s", str(folder)):  # options of a JVM are separated by spaces
        return None
    name = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    return Archive(folder / f"spark-{name}-java-{version[1]}.jsa", int(version[1]))


def _java_home() -> Path:
    """Return the home of the Java that Spark's launcher will start."""
    home = os.environ.get("JAVA_HOME")
    java = home or shutil.which("java")
    if java is None:
        raise FileNotFoundError("there is no Java")
    return Path(home) if home else Path(java).resolve().parents[1]


def spark_home() -> Path:
    """Return the directory of Spark, without importing it."""
    home = os.environ.get("SPARK_HOME")
    if home:
        return Path(home)
    package = find_spec("pyspark")
    if package is None or package.origin is None:
        raise FileNotFoundError("pyspark is not installed")
    return Path(package.origin).parent


def _jars() -> list[str]:
    """List what a JVM compares before it uses an archive: the jars, their sizes and dates."""
    with os.scandir(spark_home() / "jars") as entries:
        return sorted(f"{jar.path} {jar.stat().st_size} {jar.stat().st_mtime_ns}" for jar in entries)
