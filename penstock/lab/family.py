"""What a process and all that came from it take: CPU seconds, and memory at its peak.

An engine is a Python process, a JVM and Python workers; only together are they comparable.  Memory is the proportional
set size, so that pages which several processes share, a memory-mapped segment for one, are counted once.

In:  a process id.  Out: `family_cpu_seconds` now, or a `MemoryWatch` that samples in the background.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Self

PROC = Path("/proc")


def stat_fields(place: Path) -> list[str]:
    """Read what the kernel says of a process or thread after its name: parent at 1, clock ticks from 11 to 14."""
    return (place / "stat").read_text().rpartition(")")[2].split()


def family_of(root: int) -> dict[int, int]:
    """Give the clock ticks that `root` and each of its living descendants have used, by process id.

    A process' ticks include those of children that ended and were waited for.
    """
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for entry in PROC.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = stat_fields(entry)
        except OSError:
            continue  # it has ended meanwhile
        parents[int(entry.name)] = int(fields[1])
        ticks[int(entry.name)] = sum(int(each) for each in fields[11:15])
    family = {root} & ticks.keys()
    while more := {child for child, parent in parents.items() if parent in family} - family:
        family |= more
    return {each: ticks[each] for each in family}


def family_cpu_seconds(root: int) -> float:
    """Add up the CPU time of a process and all that came from it: the JVM, and Spark's Python workers."""
    return sum(family_of(root).values()) / os.sysconf("SC_CLK_TCK")


def family_bytes(root: int) -> int:
    """Add up the memory of a process and all that came from it."""
    return sum(_bytes_of(each) for each in family_of(root))


def _bytes_of(process: int) -> int:
    """Read a process' proportional set size; 0 if it has ended meanwhile."""
    try:
        rollup = (PROC / str(process) / "smaps_rollup").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in rollup.splitlines() if line.startswith("Pss:")), 0)


class MemoryWatch:
    """Samples a family's memory in the background; `peak` is the most that was seen, in bytes.

    To look at a large process takes a while, so the watch sleeps at least 20 times as long as it looks.
    """

    def __init__(self, root: int, every: float = 0.1) -> None:
        """Watch the family of `root`, a sample each `every` seconds if that is cheap."""
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
        """Begin to watch."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End."""
        self._ended.set()
        self._thread.join()
