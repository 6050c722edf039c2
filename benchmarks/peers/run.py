"""One run of one peer, watched from outside: what it says, what it uses, and its end if it takes too long.

An engine is a Python process, a JVM and Python workers; only together, as a *family*, are they comparable.  Memory is
the proportional set size, so that pages which several processes share, a memory-mapped segment for one, are counted
once.

In:  how a run is started, and how long it may take.  Out: a `Report`.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.peers.peer import Job, Launch, Peer

PROC = Path("/proc")
Mark = tuple[float, float]  # seconds since the start of a run, and input rows joined by then


@dataclass(frozen=True, slots=True)
class Report:
    """What a run said and used.  `done` is None if it was stopped or failed; then `failure` is why it failed."""

    about: dict[str, Any]
    marks: tuple[Mark, ...]
    done: dict[str, Any] | None
    failure: str | None
    cpu_seconds: float
    peak_bytes: int
    command_seconds: float = 0.0
    """From the command that starts it to its last result, start-up included; 0 if it did not get there."""


def run_peer(peer: Peer, job: Job, limit: float) -> Report:
    """Run a peer in processes of its own, for `limit` seconds at most, and leave none of them behind."""
    return watched(peer.launch(job), limit)


def watched(launch: Launch, limit: float) -> Report:
    """Start a run, listen to it, and end it."""
    marks: list[Mark] = []
    about: dict[str, Any] = {}
    done, began, whole = None, time.monotonic(), 0.0
    with tempfile.TemporaryFile("w+") as complaints:
        with conversation(launch, complaints) as run, MemoryWatch(run.process.pid) as memory:
            for said in run.until(time.monotonic() + limit):
                if "about" in said:
                    about = said["about"]
                elif "mark" in said:
                    marks.append((said["mark"][0], said["mark"][1]))
                else:
                    done, run.patience, whole = said["done"], 20.0, time.monotonic() - began
                    break
            cpu = family_cpu_seconds(run.process.pid)
        failed = done is None and run.closed
        failure = _last_words(complaints) if failed else None
    return Report(about, tuple(marks), done, failure, cpu, memory.peak, whole)


@contextlib.contextmanager
def conversation(launch: Launch, complaints: IO[str] | int) -> Iterator[Listener]:
    """Start a run and listen to it; at the end, end whatever of it is still there."""
    environment, pipe = {**os.environ, **launch.environment}, subprocess.PIPE
    process = subprocess.Popen(
        launch.command, stdin=pipe, stdout=pipe, stderr=complaints, text=True, env=environment
    )
    listener = Listener(process)
    try:
        yield listener
    finally:
        _end(process, listener.patience)
        listener.join()


class Listener(threading.Thread):
    """Reads what a process prints, so that the wait for the next line can have an end.

    `patience` is how many seconds the process has to end by itself, once nobody listens any more.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        super().__init__(name="listener", daemon=True)
        assert process.stdout is not None  # noqa: S101 - it was asked for
        self.process, self._output = process, process.stdout
        self._lines: queue.Queue[str | None] = queue.Queue()
        self.closed, self.patience = False, 0.0
        self.start()

    def run(self) -> None:
        """Read to the end of the output."""
        with self._output:
            for line in self._output:
                self._lines.put(line)
        self._lines.put(None)

    def until(self, end: float) -> Iterator[dict[str, Any]]:
        """Give what the process says, until it closes its output (`closed`) or time is up."""
        while (left := end - time.monotonic()) > 0 and not self.closed:
            with contextlib.suppress(queue.Empty):
                line = self._lines.get(timeout=left)
                self.closed = line is None
                # Other lines are somebody's log.
                if line is not None and line.startswith(('{"about"', '{"mark"', '{"done"')):
                    yield json.loads(line)


def close_input(process: subprocess.Popen[str]) -> None:
    """Tell a run that nothing more will come."""
    assert process.stdin is not None  # noqa: S101 - it was asked for
    with contextlib.suppress(OSError):
        process.stdin.close()


def _end(process: subprocess.Popen[str], patience: float) -> None:
    family = set(family_of(process.pid))
    close_input(process)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(patience)
    for each in family | set(family_of(process.pid)):
        with contextlib.suppress(OSError):
            os.kill(each, signal.SIGKILL)
    process.wait()


def _last_words(complaints: IO[str]) -> str:
    """Find the line that says what went wrong: the last that names an error, or the last of all."""
    complaints.seek(0)
    said = [line.strip() for line in complaints if line.strip()]
    errors = [line for line in said if "Error" in line.split(" ")[0] or "Exception" in line.split(" ")[0]]
    return (errors or said or ["without a word"])[-1]


def stat_fields(path: Path) -> list[str]:
    """Read what the kernel says of a process or thread after its name: parent at 1, clock ticks from 11 to 14."""
    return (path / "stat").read_text().rpartition(")")[2].split()


def family_of(root: int) -> dict[int, int]:
    """Give the clock ticks that `root` and each of its living descendants have used, by process id.

    A process' ticks include those of children that ended and were waited for.
    """
    stats: dict[int, list[str]] = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):  # it has ended meanwhile
                stats[int(entry.name)] = stat_fields(entry)
    family = {root} & stats.keys()
    while more := {child for child, fields in stats.items() if int(fields[1]) in family} - family:
        family |= more
    return {each: sum(map(int, stats[each][11:15])) for each in family}


def family_cpu_seconds(root: int) -> float:
    """Add up the CPU time of a process and all that came from it: the JVM, and Spark's Python workers."""
    return sum(family_of(root).values()) / os.sysconf("SC_CLK_TCK")


def family_bytes(root: int) -> int:
    """Add up the memory of a process and all that came from it."""
    total = 0
    for process in family_of(root):
        with contextlib.suppress(OSError):  # it has ended meanwhile
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
