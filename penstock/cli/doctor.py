"""`penstock doctor`: check what Penstock needs on this machine.

Each check is one line: its subject, the finding, and the fix.  Only ``java -version`` is started.  Versions of packages
are read from their metadata, not by importing.

In:  the environment, and the directory of a state.
Out: a list of `Finding`, printed as a table by `print_checks`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from penstock.engine.spark.class_archive import SWITCH, archive_options, find_archive

if TYPE_CHECKING:
    from collections.abc import Iterable

Version = tuple[int, ...]

PYTHON_RANGE: tuple[Version, Version] = (3, 11), (3, 14)
"""The oldest supported Python, and the first that is too new."""

OLDEST_JAVA = 17
"""The oldest Java that Spark 4 starts on."""

PACKAGE_RANGES: dict[str, tuple[Version, Version | None]] = {
    "pyspark": ((4, 1), (4, 4)),
    "pandas": ((2, 2), (3,)),
    "pyarrow": ((18,), None),
    "numba": ((0, 61), None),
}
"""The ranges of pyproject.toml, for the packages whose version matters most."""

GIB = 1 << 30
MEMORY_NEEDED_BYTES = 2 * GIB
DISK_NEEDED_BYTES = 2 * GIB


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding.  Advice beside an `ok` is a hint; beside a failure it is the fix."""

    name: str
    ok: bool
    found: str
    advice: str = ""


def checks(state: Path | None = None) -> list[Finding]:
    """Run every check; `state` is the directory of a state, by default the temporary directory."""
    temporary = Path(tempfile.gettempdir())
    return [
        check_python(),
        check_java(),
        *(check_package(name) for name in PACKAGE_RANGES),
        check_memory(),
        check_cores(),
        check_disk(state or temporary),
        check_writable(temporary),
        check_archive(),
    ]


def print_checks(outcomes: Iterable[Finding], console: Console | None = None) -> None:
    """Print the checks as a table."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("", "check", "found", "what to do"):
        table.add_column(heading, overflow="fold")
    for check in outcomes:
        mark = Text("ok", "green") if check.ok else Text("no", "bold red")
        table.add_row(mark, Text(check.name), Text(check.found), Text(check.advice))
    (console or Console()).print(table)


def check_python(version: Version = sys.version_info[:3]) -> Finding:
    """Check for a Python that every dependency supports.

    >>> check_python((3, 12, 1))
    Finding(name='Python', ok=True, found='3.12.1', advice='')
    >>> check_python((3, 9, 0)).advice
    'Penstock needs Python 3.11 or newer, before 3.14'
    """
    oldest, beyond = PYTHON_RANGE
    ok = oldest <= version < beyond
    advice = f"Penstock needs Python {_dotted(oldest)} or newer, before {_dotted(beyond)}"
    return Finding("Python", ok, _dotted(version), "" if ok else advice)


def check_java() -> Finding:
    """Check for a Java that Spark can start: that of ``JAVA_HOME``, or else the one on the PATH."""
    advice = (
        f"install Java {OLDEST_JAVA} or newer (Debian, Ubuntu: apt-get install openjdk-17-jre-headless; "
        "Fedora: dnf install java-17-openjdk-headless; macOS: brew install openjdk@17), "
        "or set JAVA_HOME to one"
    )
    java = java_command()
    if java is None:
        return Finding("Java", ok=False, found="none", advice=advice)
    try:
        answer = subprocess.run(  # noqa: S603 - the user's own java
            [java, "-version"], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        return Finding("Java", ok=False, found=f"{java} does not run: {error}", advice=advice)
    version = java_version(answer.stderr + answer.stdout)
    if version is None:
        return Finding("Java", ok=False, found=f"{java} prints no version", advice=advice)
    ok = version[0] >= OLDEST_JAVA
    return Finding("Java", ok, f"{_dotted(version)} ({java})", "" if ok else advice)


def java_command() -> str | None:
    """Return the program that Spark's launcher would start."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home, "bin", "java")) if home else shutil.which("java")


def java_version(text: str) -> Version | None:
    """Read the output of ``java -version``; before Java 9 the version is the second number.

    >>> java_version('openjdk version "17.0.15" 2025-04-15')
    (17, 0, 15)
    >>> java_version('java version "1.8.0_292"')
    (8, 0)
    >>> java_version('openjdk version "25" 2025-09-16')
    (25,)
    """
    quoted = re.search(r'version "([\d.]+)', text)
    if quoted is None:
        return None
    version = _numbers(quoted[1])
    return version[1:] if version[0] == 1 else version


def check_package(name: str) -> Finding:
    """Check for a supported version of a package."""
    oldest, beyond = PACKAGE_RANGES[name]
    wanted = f"{name}>={_dotted(oldest)}" + (f",<{_dotted(beyond)}" if beyond else "")
    advice = f"pip install '{wanted}'"
    try:
        installed = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Finding(name, ok=False, found="not installed", advice=advice)
    version = _numbers(installed)
    ok = oldest <= version and (beyond is None or version < beyond)
    return Finding(name, ok, installed, "" if ok else advice)


def check_memory() -> Finding:
    """Check for enough memory for a JVM and its Python workers."""
    free = available_memory()
    if free is None:
        return Finding("memory", ok=True, found="unknown", advice="have 2 GiB free")
    ok = free >= MEMORY_NEEDED_BYTES
    advice = "" if ok else f"have {_gib(MEMORY_NEEDED_BYTES)} free: a JVM and a Python worker for each core"
    return Finding("memory", ok, f"{_gib(free)} free", advice)


def available_memory(
    meminfo: Path = Path("/proc/meminfo"), limit: Path = Path("/sys/fs/cgroup/memory.max")
) -> int | None:
    """Return the free bytes of the system, or of its container; elsewhere than on Linux all its memory, or None."""
    try:
        match = re.search(r"MemAvailable:\s+(\d+) kB", meminfo.read_text(encoding="ascii"))
        free = int(match[1]) * 1024 if match else None
    except OSError:
        free = None
    if free is None:
        try:
            free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        except (ValueError, OSError):
            return None
    try:
        return min(free, int(limit.read_text(encoding="ascii")))
    except (OSError, ValueError):  # no container, or its limit is the word "max"
        return free


def check_cores() -> Finding:
    """Count the tasks that can run at once.  One is enough, but slow."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    advice = "works; with two or more, ingest and joins run side by side" if cores == 1 else ""
    return Finding("cores", ok=True, found=str(cores), advice=advice)


def check_disk(state: Path) -> Finding:
    """Check for enough disk in `state`, or in the nearest directory above it that exists."""
    present = next(folder for folder in (state.absolute(), *state.absolute().parents) if folder.exists())
    free = shutil.disk_usage(present).free
    ok = free >= DISK_NEEDED_BYTES
    advice = (
        "" if ok else f"have {_gib(DISK_NEEDED_BYTES)} free there, or keep the state elsewhere (--state DIR)"
    )
    return Finding("disk", ok, f"{_gib(free)} free in {present}", advice)


def check_writable(folder: Path) -> Finding:
    """Check whether Spark and Numba can write temporary files."""
    try:
        with tempfile.NamedTemporaryFile(dir=folder) as file:
            file.write(b"penstock")
    except OSError as error:
        advice = "make it writable, or set TMPDIR to a directory that is"
        return Finding("temporary files", ok=False, found=f"{folder}: {error.strerror}", advice=advice)
    return Finding("temporary files", ok=True, found=f"{folder} is writable")


def check_archive() -> Finding:
    """Check for a class archive.  It is made on request, so its absence is no fault."""
    archive = find_archive()
    if archive is None:
        found, advice = "none, and none can be made", "Spark starts without one, only slower"
    elif archive.complaint:
        found, advice = "not used", archive.complaint
    elif not archive.is_usable:
        found = "none"
        advice = (
            "Spark starts faster with one, of 200 MiB in your cache: penstock doctor --class-archive make"
        )
    elif archive_options():
        found = f"{archive.file.stat().st_size >> 20} MiB, JVM option {archive.option}"
        advice = f"to start without it: {SWITCH}=off; to remove it: penstock doctor --class-archive remove"
    else:
        found, advice = "not used", f"{SWITCH} is off; unset it to use {archive.file}"
    return Finding("class archive", ok=True, found=found, advice=advice)


def _numbers(version: str) -> Version:
    """Take the leading numbers of a version.

    >>> _numbers("4.3.0.dev1"), _numbers("17.0.15")
    ((4, 3, 0), (17, 0, 15))
    """
    leading = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in leading[0].split(".")) if leading else ()


def _dotted(version: Version) -> str:
    return ".".join(map(str, version))


def _gib(size: int) -> str:
    """Write a number of bytes for people.

    >>> _gib(5 * GIB // 2)
    '2.5 GiB'
    """
    return f"{size / GIB:.1f} GiB"
