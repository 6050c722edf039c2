"""What was measured, kept as lines of JSON: one for each run, with the machine, the versions and the settings.

Runs that were made alternating in one go share a `series`; only those are compared with each other.

In:  `Outcome`s.  Out: lines in a file, and `Measured` read back from them.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
from collections import defaultdict
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.lab.contest import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Measured:
    """The runs of one series on one query set: for each engine its rounds."""

    series: str
    workload: str
    queries: str
    runs: Mapping[str, Sequence[Outcome]]


def new_series() -> str:
    """Name a series by the moment it begins."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def append(path: Path, series: str, workload: str, outcome: Outcome) -> None:
    """Add one run of a contest."""
    append_line(path, {"series": series, "workload": workload, **asdict(outcome)})


def append_line(path: Path, what: Mapping[str, Any]) -> None:
    """Add one line, with the machine it was measured on."""
    with path.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps({**what, "machine": machine()}) + "\n")


def read(path: Path) -> list[Measured]:
    """Read every series, the oldest first."""
    known = {each.name for each in fields(Outcome)}
    found: dict[tuple[str, str, str], dict[str, list[Outcome]]] = defaultdict(lambda: defaultdict(list))
    for text in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        line = json.loads(text)
        outcome = Outcome(**{name: value for name, value in line.items() if name in known})
        found[line["series"], line["workload"], outcome.queries][outcome.engine].append(outcome)
    return [Measured(*where, runs) for where, runs in found.items()]


def grouped(series: str, workload: str, outcomes: Iterable[Outcome]) -> list[Measured]:
    """Group the runs of one series by query set."""
    found: dict[str, dict[str, list[Outcome]]] = defaultdict(lambda: defaultdict(list))
    for each in outcomes:
        found[each.queries][each.engine].append(each)
    return [Measured(series, workload, queries, runs) for queries, runs in found.items()]


def machine() -> dict[str, Any]:
    """Say what all this ran on: processor, cores, memory, and which code."""
    names = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        if line.startswith("model name")
    ]
    return {
        "processor": names[0] if names else platform.machine(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "python": platform.python_version(),
        "commit": _commit(),
    }


def _commit() -> str:
    """Name the commit that is measured; nothing outside a checkout."""
    if shutil.which("git") is None:
        return ""
    command = ("git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD")
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
