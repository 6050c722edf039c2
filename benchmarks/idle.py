"""What an engine costs while nothing arrives, and how soon it answers then, by how many files its sources have read.

Each source is a directory of so many small files.  When all are read, the engine is left alone for a while; then its
CPU time is taken, and after that one row of each stream arrives.  The same once more after a restart, which finds
nothing new::

    files, engine ▸ all read ▸ a row of each ▸ result ▸ settle ▸ idle: cores ▸ a row of each ▸ result: seconds ▸ stop
                                         the same state ▸ settle ▸ idle: cores ▸ a row of each ▸ result: seconds ▸ stop
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import typer
from rich.console import Console

from benchmarks.contest import append_line
from benchmarks.latency import UTC_MICROS, appearances
from benchmarks.options import HOME, Home, made
from benchmarks.peers.peer import contestant
from benchmarks.peers.run import close_input, conversation, family_cpu_seconds
from benchmarks.printing import table
from benchmarks.workloads import STREAMS
from penstock.errors import InputError, RunError

if TYPE_CHECKING:
    from benchmarks.peers.run import Listener

READY_SECONDS = 300.0
WANTED = 0.1
"""Cores of an idle engine, at most."""


class Idle(NamedTuple):
    """An engine with so many files in each source: cores while nothing arrives, seconds from rows to their result."""

    files: int
    restarted: bool
    cores: float
    answer: float


def idle(
    *,
    files: Annotated[str, typer.Option(help="how many files each source has, for each run")] = "60,5000",
    settle: Annotated[float, typer.Option(help="seconds that the engine is left alone before")] = 30.0,
    seconds: Annotated[float, typer.Option(help="for how long its CPU time is taken")] = 20.0,
    directory: Home = HOME,
) -> int:
    """CPU of an engine to which nothing comes, and how soon it answers when something does."""
    console, found = Console(), list[Idle]()
    made(directory)
    for count in read_counts(files):
        console.log(f"{count:,} files in each source")
        for each in measure_idle(count, settle, seconds):
            append_line(directory / "idle.jsonl", **each._asdict())
            found.append(each)
    console.print(
        table("", ("files", "engine", "cores", "seconds to the answer"), [_line(each) for each in found])
    )
    met = all(each.cores <= WANTED for each in found)
    console.print(f"wanted: at most {WANTED} of a core; {'met' if met else 'not met'}")
    return int(not met)


def read_counts(text: str) -> list[int]:
    """Read how many files there are to be.

    >>> read_counts("0, 60")
    [0, 60]
    """
    counts = [each.strip() for each in text.split(",")]
    for each in counts:
        if not each.isdecimal():
            raise InputError(f"--files has {each!r}: write numbers with commas between, such as 60,5000")
    return [int(each) for each in counts]


def _line(each: Idle) -> tuple[str, ...]:
    engine = "restarted" if each.restarted else "started"
    return f"{each.files:,}", engine, f"{each.cores:.3f}", f"{each.answer:.2f}"


def measure_idle(files: int, settle: float, seconds: float) -> list[Idle]:
    """Let an engine read so many files and idle, twice on the same state."""
    with tempfile.TemporaryDirectory(prefix="penstock-idle-", ignore_cleanup_errors=True) as temporary:
        home = Path(temporary)
        _fill(home, files)
        found = []
        for restarted in (False, True):
            with conversation(contestant("penstock", str(home), module="serving"), subprocess.DEVNULL) as run:
                _await_ready(run)
                if not restarted:
                    _answer(home, 0)
                found.append(Idle(files, restarted, *_look(home, run, settle, seconds)))
                run.patience = 60.0
                close_input(run.process)
    return found


def _await_ready(run: Listener) -> None:
    """Wait until the engine has started."""
    if not any("mark" in said for said in run.until(time.monotonic() + READY_SECONDS)):
        raise RunError("the engine ended, or took too long, before it was ready")


def _look(home: Path, run: Listener, settle: float, seconds: float) -> tuple[float, float]:
    """Take the cores of an engine that is left alone, then how long it takes to answer."""
    time.sleep(settle)
    began, used = time.monotonic(), family_cpu_seconds(run.process.pid)
    time.sleep(seconds)
    cores = (family_cpu_seconds(run.process.pid) - used) / (time.monotonic() - began)
    return cores, _answer(home, len(list((home / "data" / STREAMS[0]).iterdir())))


def _fill(home: Path, files: int) -> None:
    """Put files into both sources whose rows meet nobody: one file under many names."""
    for key, name in enumerate(STREAMS):
        folder = home / "data" / name
        folder.mkdir(parents=True)
        _write_row(home / f"{name}.first", -1 - key)
        for number in range(files):
            (folder / f"first-{number:06d}.parquet").hardlink_to(home / f"{name}.first")


def _write_row(path: Path, key: int) -> None:
    """Write a file of one row that happens now."""
    micros = pa.array([time.time_ns() // 1_000])
    columns = {"k": pa.array([key]), "v": pa.array([1.0]), "ts": micros.cast(UTC_MICROS), "us": micros}
    pq.write_table(pa.table(columns), path)


def _answer(home: Path, key: int) -> float:
    """Let two rows arrive that meet, and give the seconds until their result is visible."""
    before = len(appearances("penstock", home / "out")[0])
    for name in STREAMS:
        staged = home / f"{name}.{key}"
        _write_row(staged, key)
        staged.rename(home / "data" / name / f"{key:06d}.parquet")
    end = time.monotonic() + READY_SECONDS
    while time.monotonic() < end:
        later, visible = appearances("penstock", home / "out")
        if len(later) > before:
            newest = later.argmax()
            return float(visible[newest] - later[newest]) / 1_000_000
        time.sleep(0.1)
    raise RunError(f"two rows that meet had no result within {READY_SECONDS:.0f} s")
