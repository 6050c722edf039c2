"""How long it takes from the command to the answer: ``penstock run`` on a few rows, beside Spark and nothing else.

The rival is what nobody who uses Spark with Python can do without: a session, and one micro-batch through a Python
function.  Both are commands of their own, in turn, several times; the figure is the ratio of their times, from the
command to the end of its process.  Penstock joins two streams and writes the results, which are counted::

    bare        python ▸ session ▸ one micro-batch, one Python function ▸ end
    penstock    python ▸ script ▸ session ▸ checks ▸ two streams ▸ join ▸ parquet sink ▸ end

The third, Penstock without the class archive, says what the archive is worth.  CPU is that of all processes of a run,
as far as they were seen before the end.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow.dataset as ds
from rich.console import Console

from benchmarks.contest import append_line, middle
from benchmarks.options import HOME, Home, Rounds, RowCount, made
from benchmarks.oracle import true_counts
from benchmarks.peers.run import family_cpu_seconds
from benchmarks.printing import table
from benchmarks.workloads import WindowQuery, Workload, as_script
from penstock.engine.spark.class_archive import SWITCH, find_archive
from penstock.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

WINDOW = WindowQuery(30.0)
WANTED = 0.7
"""At most this much of the bare session's time."""

TITLES = {
    "bare": "bare Spark, one micro-batch",
    "penstock": "Penstock",
    "without": "Penstock, no class archive",
}
LOOK_SECONDS = 0.1


class Start(NamedTuple):
    """What one run took: seconds from the command to its end, CPU seconds, and when each step ended."""

    engine: str
    seconds: float
    cpu: float
    steps: tuple[tuple[str, float], ...]


def start(
    *,
    rows: RowCount = 1_000,
    rounds: Rounds = 3,
    directory: Home = HOME,
) -> int:
    """Time `penstock run` on a few rows, from the command to the end, beside a bare Spark session and micro-batch."""
    console = Console()
    data = Workload(rows=rows, keys=max(1, rows // 20), rows_per_file=rows).write(made(directory))
    wanted = true_counts(data, (WINDOW,)).results[0]
    archive = find_archive()
    if archive is None or not archive.is_usable:
        raise RunError(
            "this measures runs with a class archive, and there is none: `penstock doctor --class-archive make`"
        )
    runs: dict[str, list[Start]] = defaultdict(list)
    for turn in range(rounds):
        for engine, title in TITLES.items():
            console.log(f"round {turn + 1} of {rounds}: {title}")
            runs[engine].append(measure_start(engine, data, wanted))
            append_line(directory / "start.jsonl", rows=rows, **runs[engine][-1]._asdict())
    console.print(table("", ("run", "seconds", "times the bare one", "CPU s"), _lines(runs)))
    for engine, title in TITLES.items():
        console.print(table(title, ("step", "ends at s", "takes s"), step_lines(runs[engine])))
    ratio = statistics.median(ratios(runs["penstock"], runs["bare"]))
    met = ratio <= WANTED
    console.print(f"wanted: at most {WANTED} times the bare one; {'met' if met else 'not met'}: {ratio:.2f}")
    return int(not met)


def measure_start(engine: str, data: Path, wanted: int) -> Start:
    """Give the command once, and see it through to its end."""
    with tempfile.TemporaryDirectory(prefix="penstock-start-", ignore_cleanup_errors=True) as directory:
        home = Path(directory)
        script = home / "start.sql"
        script.write_text(as_script(data, (WINDOW,), f"sink = 'parquet', path = '{home / 'out'}'"))
        command = ["bare", str(data / "a")]
        if engine != "bare":
            command = ["penstock", "run", str(script), "--once", "--state", str(home / "state")]
        took = _timed(engine, command)
        if engine != "bare":
            count = ds.dataset(home / "out", exclude_invalid_files=True).count_rows()
            if count != wanted:
                raise RunError(f"penstock gave {count} results, DuckDB {wanted}")
    return took


def _timed(engine: str, command: Sequence[str]) -> Start:
    """Run a command to its end, looking at what it uses meanwhile."""
    environment = {**os.environ, **({SWITCH: "off"} if engine == "without" else {})}
    began, cpu = time.time(), 0.0
    module = "benchmarks.peers.startup"
    with tempfile.TemporaryFile("w+") as said, tempfile.TemporaryFile("w+") as complaints:
        process = subprocess.Popen(
            [sys.executable, "-m", module, str(began), *command],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=complaints,
        )
        while process.poll() is None:
            cpu = max(cpu, family_cpu_seconds(process.pid))
            time.sleep(LOOK_SECONDS)
        seconds = time.time() - began
        said.seek(0)
        complaints.seek(0)
        if process.returncode:
            raise RunError(f"{TITLES[engine]} failed: {complaints.read().strip()[-500:]}")
        return Start(engine, seconds, cpu, tuple(read_steps(said)))


def read_steps(lines: Iterable[str]) -> list[tuple[str, float]]:
    """Read the steps that a run told, in the order in which they ended."""
    told = (json.loads(line)["step"] for line in lines if line.startswith('{"step"'))
    return [(str(name), float(seconds)) for name, seconds in told]


def ratios(ours: Sequence[Start], other: Sequence[Start]) -> list[float]:
    """Give, round by round, how many times the time of another run one takes."""
    return [one.seconds / two.seconds for one, two in zip(ours, other, strict=True)]


def step_lines(runs: Sequence[Start]) -> list[tuple[str, str, str]]:
    """Give for each step when it ended and how long it took since the one before, medians of the rounds."""
    ends = {name: statistics.median(dict(each.steps)[name] for each in runs) for name, _ in runs[0].steps}
    lines, before = [], 0.0
    for name, end in sorted(ends.items(), key=lambda each: each[1]):
        lines.append((name, f"{end:.2f}", f"{end - before:.2f}"))
        before = end
    return lines


def _lines(runs: Mapping[str, Sequence[Start]]) -> list[tuple[str, str, str, str]]:
    return [
        (
            TITLES[engine],
            middle([each.seconds for each in some], 1),
            middle(ratios(some, runs["bare"])),
            middle([each.cpu for each in some], 1),
        )
        for engine, some in runs.items()
    ]
