"""The class archive: the classes that every run of Spark loads, read and checked once, then mapped from one file.

A JVM takes most of its start-up to read 20,000 classes out of jars and to check them.  Java can keep them as it needs
them in memory; such a file fits one Java and one set of jars, and is made once for these, in the user's cache::

    first run     no archive ──▶ runs as ever ──▶ ends ──▶ a process of low priority makes one (`archive_maker`)
    later runs    archive ──▶ JVM maps it

It is a convenience and nothing else: a JVM that finds that the file does not fit goes on without it, silently; where it
cannot be made, that is noted beside it and not tried again that day.  The file gets its name when it is whole, so two
that make it at once do no harm.  ``PENSTOCK_CLASS_ARCHIVE=off`` does without.

In:  the Java that Spark will start, Spark's jars, the user's cache directory.  Out: options for the JVM.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

SWITCH = "PENSTOCK_CLASS_ARCHIVE"
"""Environment variable: ``off`` to neither use nor make an archive."""

OLDEST_JAVA = 13
"""The first Java that can archive the classes which a run has loaded."""

AOT_JAVA = 25
"""The first that does so in one step as a cache of ahead-of-time work, which also has what is linked and profiled."""

LONGEST_MAKING = 900.0
"""Seconds after which whoever has begun to make an archive is taken for gone."""

NEXT_TRY = 86_400.0
"""Seconds after which an archive that could not be made is tried again."""

ROOM_BYTES = 1 << 30
"""Free space below which no archive is made."""

MAKER = "penstock.engine.archive_maker"


@dataclass(frozen=True, slots=True)
class Archive:
    """Where the archive for one Java and one set of jars is, or will be."""

    file: Path
    java: int
    """The major version of the Java that it is for."""

    @property
    def lock(self) -> Path:
        """Give the file that is there while the archive is made."""
        return self.file.with_suffix(".making")

    @property
    def failure(self) -> Path:
        """Give the file that says why the archive could not be made."""
        return self.file.with_suffix(".failed")

    @property
    def exists(self) -> bool:
        """Say whether it is there."""
        return self.file.is_file()

    @property
    def is_wanted(self) -> bool:
        """Say whether it is missing, nobody makes it, and nobody has failed to."""
        return not (self.exists or _is_younger(self.failure, NEXT_TRY) or self.is_being_made)

    @property
    def is_being_made(self) -> bool:
        """Say whether somebody has begun to make it, and not too long ago."""
        return _is_younger(self.lock, LONGEST_MAKING)

    @property
    def options(self) -> str:
        """Give the options by which a JVM uses it; without a word if it does not fit."""
        if self.java >= AOT_JAVA:
            return f"-XX:AOTCache={self.file} -Xlog:aot*=off,cds*=off,class+path=off"
        return f"-XX:SharedArchiveFile={self.file} -Xlog:cds*=off,class+path=off"

    def making_options(self, file: Path) -> str:
        """Give the options by which a JVM writes an archive when it ends."""
        if self.java >= AOT_JAVA:
            return f"-XX:AOTCacheOutput={file} -Xlog:aot*=off,cds*=off,class+path=off"
        return f"-XX:ArchiveClassesAtExit={file} -Xlog:cds*=off,class+path=off"


def _is_younger(file: Path, seconds: float) -> bool:
    """Say whether there is a file that was written no longer ago."""
    try:
        return time.time() - file.stat().st_mtime < seconds
    except OSError:
        return False


def archive_folder() -> Path:
    """Give the directory of archives: ours in the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or ""
    return (Path(cache) if Path(cache).is_absolute() else Path.home() / ".cache") / "penstock"


def find_archive() -> Archive | None:
    """Name the archive for the Java that Spark will start; None if there can be none, or it is switched off."""
    if os.environ.get(SWITCH, "").lower() == "off" or os.name != "posix":
        return None
    try:
        home = java_home()
        release = (home / "release").read_text(encoding="utf-8") if home else ""
        version = java_major(release)
        folder = archive_folder()
        if home is None or version is None or version < OLDEST_JAVA or re.search(r"\s", str(folder)):
            return None
        name = f"spark-{_digest(release, str(home), *_jars())}-java-{version}.jsa"
    except (OSError, RuntimeError):  # no such Java, no home directory: then without
        return None
    return Archive(folder / name, version)


def java_home() -> Path | None:
    """Find the home of the Java that Spark's own launcher would start."""
    said = os.environ.get("JAVA_HOME")
    if said:
        return Path(said)
    java = shutil.which("java")
    return Path(java).resolve().parents[1] if java else None


def java_major(release: str) -> int | None:
    """Read the major version from the file ``release`` of a Java.

    >>> java_major('IMPLEMENTOR="Debian"' + chr(10) + 'JAVA_VERSION="17.0.15"')
    17
    """
    found = re.search(r'^JAVA_VERSION="(\d+)', release, re.MULTILINE)
    return int(found[1]) if found else None


def spark_home() -> Path:
    """Find where Spark is, without importing it."""
    said = os.environ.get("SPARK_HOME")
    if said:
        return Path(said)
    package = find_spec("pyspark")
    if package is None or package.origin is None:
        raise FileNotFoundError("pyspark is not installed")
    return Path(package.origin).parent


def _jars() -> list[str]:
    """List what a JVM compares before it uses an archive: the jars, their sizes and dates."""
    with os.scandir(spark_home() / "jars") as entries:
        stats = [(each.name, each.stat()) for each in entries]
    return sorted(f"{spark_home()}/{name} {stat.st_size} {stat.st_mtime_ns}" for name, stat in stats)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def with_archive(options: str) -> str:
    """Add to a JVM's options those of the archive, if it is there and they name no other."""
    archive = find_archive()
    if archive is None or not archive.exists or re.search("SharedArchive|ArchiveClasses|AOT", options):
        return options
    with suppress(OSError):
        os.utime(archive.file)  # those used last are kept
    return f"{options} {archive.options}"


def make_archive_later() -> None:
    """See to it that an archive is made once this process has ended, if there is none."""
    archive = find_archive()
    if archive is not None and archive.is_wanted:
        atexit.register(make_in_background)


def make_in_background() -> None:
    """Start a process that makes the archive, and leave it to itself."""
    archive = find_archive()
    if archive is None or not archive.is_wanted:
        return
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("LOG4J_", "PYSPARK_"))
    }
    try:
        maker = subprocess.Popen(  # noqa: S603 - ourselves
            [sys.executable, "-m", MAKER],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env=environment,
        )
    except OSError:
        return
    maker.returncode = 0  # nobody waits for it, and nobody has to be told
