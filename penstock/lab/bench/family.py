"""What a process and all that came from it take: CPU seconds, and memory at its peak.

An engine is a Python process, a JVM and Python workers; only together are they comparable.  Memory is the proportional
set size, so that pages which several processes share, a memory-mapped segment for one, are counted once.

In:  a process id.  Out: `family_cpu_seconds` now, or a `MemoryWatch` that samples in the background.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Self

PROC = Path("/proc")


def stat_fields(path: Path) -> list[str]:
    """Read what the kernel says of a process or thread after its name: parent at 1, clock ticks from 11 to 14."""
    return (path / "stat").read_text().rpartition(")")[2].split()


def family_of(root: int) -> dict[int, int]:
    """Give the clock ticks that `root` and each of its living descendants have used, by process id.

    A process' ticks include those of children that ended and were waited for.
    """
    found: dict[int, list[str]] = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            with suppress(OSError):  # it has ended meanwhile
                found[int(entry.name)] = stat_fields(entry)
    family = {root} & found.keys()
    while more := {child for child, fields in found.items() if int(fields[1]) in family} - family:
        family |= more
    return {each: sum(map(int, found[each][11:15])) for each in family}


def family_cpu_seconds(root: int) -> float:
    """Add up the CPU time of a process and all that came from it: the JVM, and Spark's Python workers."""
    return sum(family_of(root).values()) / os.sysconf("SC_CLK_TCK")


def family_bytes(root: int) -> int:
    """Add up the memory of a process and all that came from it."""
    total = 0
    for process in family_of(root):
        with suppress(OSError):  # it has ended meanwhile
            lines = (PROC / str(process) / "smaps_rollup").read_text().splitlines()
            total += sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))
    return total


class MemoryWatch:
    """Samples a family's memory in the background; `peak` is the most that was seen, in bytes.

    A sample each `every` seconds if that is cheap: to look at a large process takes a while, so the watch sleeps at
    least 20 times as long as it looks.
    """

    def __init__(self, root: int, every: float = 0.1) -> None:
        self.peak = 0
        self._root, self._every = root, every
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memory-watch", daemon=True)

    def _watch(self) -> None:
        pause = 0.0
        while not self._ended.wait(pause):
            began = time.monotonic()
            self.peak = max(self.peak, family_bytes(self._root))
            pause = max(self._every, 20 * (time.monotonic() - began))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
