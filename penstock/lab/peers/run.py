"""One run of one peer, watched from outside: what it says, what it uses, and its end if it takes too long.

In:  a peer, a job, and how long the run may take.  Out: a `Report`.
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
from typing import TYPE_CHECKING, Any

from penstock.lab.family import MemoryWatch, family_cpu_seconds, family_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import IO

    from penstock.lab.peers.peer import Job, Launch, Peer

Mark = tuple[float, float]
"""Seconds since the start of a run, and input rows joined by then."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a run said and used.  `done` is None if it was stopped or failed; then `failure` is why it failed."""

    about: dict[str, Any]
    marks: tuple[Mark, ...]
    done: dict[str, Any] | None
    failure: str | None
    cpu_seconds: float
    peak_bytes: int


def run_peer(peer: Peer, job: Job, limit: float) -> Report:
    """Run a peer in processes of its own, for `limit` seconds at most, and leave none of them behind."""
    return watched(peer.launch(job), limit)


def watched(launch: Launch, limit: float) -> Report:
    """Start a run, listen to it, and end it."""
    marks: list[Mark] = []
    about: dict[str, Any] = {}
    done, stopped = None, False
    with tempfile.TemporaryFile("w+") as complaints:
        process = subprocess.Popen(
            launch.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
            text=True,
            env={**os.environ, **launch.environment},
        )
        listener = Listener(process)
        try:
            with MemoryWatch(process.pid) as memory:
                for said in listener.until(time.monotonic() + limit):
                    if "about" in said:
                        about = said["about"]
                    elif "mark" in said:
                        marks.append((said["mark"][0], said["mark"][1]))
                    else:
                        done = said["done"]
                        break
                cpu = family_cpu_seconds(process.pid)
                stopped = done is None and not listener.closed
        finally:
            end_run(process, patience=20 if done is not None else 0)
            listener.join()
        complaints.seek(0)
        failure = None if done is not None or stopped else _last_words(complaints)
    return Report(about, tuple(marks), done, failure, cpu, memory.peak)


class Listener(threading.Thread):
    """Reads what a process prints, so that the wait for the next line can have an end."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        """Begin to listen."""
        super().__init__(name="listener", daemon=True)
        assert process.stdout is not None  # noqa: S101 - it was asked for
        self._output = process.stdout
        self._lines: queue.Queue[str | None] = queue.Queue()
        self.closed = False
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
                if line is not None and (said := _parsed(line)):
                    yield said


def _parsed(line: str) -> dict[str, Any]:
    """Read a line of the run; of somebody's log, nothing."""
    if not line.startswith(('{"about"', '{"mark"', '{"done"')):
        return {}
    found: dict[str, Any] = json.loads(line)
    return found


def end_run(process: subprocess.Popen[str], patience: float) -> None:
    """Let a run go that has said it is done, for so many seconds; then end whatever of its family is still there."""
    family = set(family_of(process.pid))
    assert process.stdin is not None  # noqa: S101 - it was asked for
    with contextlib.suppress(OSError):
        process.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(patience)
    for each in family | set(family_of(process.pid)):
        with contextlib.suppress(OSError):
            os.kill(each, signal.SIGKILL)
    process.wait()


def _last_words(complaints: IO[str]) -> str:
    """Find the line that says what went wrong: the last that names an error, or the last of all."""
    said = [line.strip() for line in complaints if line.strip()]
    errors = [line for line in said if "Error" in line.split(" ")[0] or "Exception" in line.split(" ")[0]]
    return (errors or said or ["without a word"])[-1]
