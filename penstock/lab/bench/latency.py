"""How long a result takes: from a row's arrival in the source directory to the result's appearance in the sink.

A feeder puts a file of each stream into place four times a second, its rows stamped with that moment as event time; so
the later stamp of a result is when its second row arrived::

    arrival of a ....... arrival of b ............................. committed, visible in the sink's directory
                         |<----------------- latency ------------->|

A result is visible when a reader of the sink may read it: in Penstock's directory when the file is moved into place, in
Spark's when its log of committed files names it.  Rates are shares of what each engine sustains, which is the steady
throughput it has on `w1` with N1.  The first third of a run warms up and does not count; the number of results is held
against DuckDB's, as everywhere.

In:  engines, and how long.  Out: `Delays`, one for each engine and share.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import typer
from rich.console import Console

from penstock.errors import RunError
from penstock.lab.bench.contest import Contest, append_line, run_and_keep
from penstock.lab.bench.options import HOME, ROWS, Home, Rows, made, workload
from penstock.lab.bench.peers import PEERS
from penstock.lab.bench.peers.peer import Launch
from penstock.lab.bench.peers.run import close_input, conversation
from penstock.lab.oracle import true_counts
from penstock.lab.printing import table
from penstock.lab.workloads import STREAMS, WindowQuery, query_sets

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

SHARES = (0.01, 0.5, 0.9)  # the loads, as shares of the sustainable rate
ENGINES = ("penstock", "spark-best")

EVERY = 0.25  # seconds between two files of a stream
WINDOW = WindowQuery(10.0)

READY_SECONDS, DRAIN_SECONDS = 300.0, 600.0


def latency(
    *,
    seconds: Annotated[float, typer.Option(help="how long each engine is fed at each rate")] = 90.0,
    rows: Rows = ROWS,
    rate: Annotated[
        float | None,
        typer.Option(
            help="the sustainable rate, input rows a second; else measured first", show_default=False
        ),
    ] = None,
    directory: Home = HOME,
) -> None:
    """Time from a row's arrival in the source to its result in the sink, at three loads, against Spark at its best."""
    console = Console()
    rates = dict.fromkeys(ENGINES, rate) if rate else _sustainable(rows, made(directory), console)
    lines = []
    for share in SHARES:
        for engine, sustainable in rates.items():
            console.log(f"{PEERS[engine].title} at {share:.0%} of {sustainable:,.0f} rows/s")
            found = measure(engine, share, sustainable, seconds)
            append_line(made(directory) / "latency.jsonl", asdict(found))
            figures = (f"{found.rate:,.0f}", f"{found.results:,}", f"{found.median:.2f}", f"{found.p99:.2f}")
            lines.append((PEERS[engine].title, f"{share:.0%}", *figures))
    headings = ("engine", "load", "input rows/s", "results", "median s", "99 % within s")
    console.print(table("", headings, lines))


def _sustainable(rows: int, directory: Path, console: Console) -> dict[str, float]:
    """Measure the steady throughput of the engines whose latency is compared."""
    contest = Contest(workload("w1", rows), ENGINES, query_sets(["N1"]), 1, directory)
    (one,) = run_and_keep(contest, console.log)
    for engine, runs in one.runs.items():
        if not runs[0].has_figures:
            raise RunError(f"the rate that {engine} sustains is not known: {runs[0].verdict}")
    return {engine: runs[0].steady_rate for engine, runs in one.runs.items()}


@dataclass(frozen=True, slots=True)
class Delays:
    """What one engine did at one rate: results, and the median and the 99th percentile of their latency in seconds."""

    engine: str
    share: float
    rate: float
    results: int
    median: float
    p99: float


def measure(engine: str, share: float, sustainable: float, seconds: float) -> Delays:
    """Feed an engine at a share of its rate for so many seconds, and look at when its results appeared."""
    rate = share * sustainable
    with tempfile.TemporaryDirectory(prefix="penstock-latency-", ignore_cleanup_errors=True) as directory:
        home = Path(directory)
        for name in STREAMS:
            (home / "data" / name).mkdir(parents=True)
        warm_until = _serve(engine, home, rate, seconds)
        later, visible = appearances(engine, home / "out")
        wanted = true_counts(home / "data", (WINDOW,)).results[0]
        if len(later) != wanted:
            raise RunError(f"{engine} gave {len(later)} results at {rate:,.0f} rows/s, DuckDB {wanted}")
        delays = (visible - later)[later >= warm_until] / 1_000_000
        if not len(delays):
            raise RunError(f"{engine} at {rate:,.0f} rows/s: no results after the warm-up; feed for longer")
        median, p99 = np.percentile(delays, [50, 99])
        return Delays(engine, share, rate, len(delays), float(median), float(p99))


def _serve(engine: str, home: Path, rate: float, seconds: float) -> int:
    """Start an engine, feed it, and let it finish; give when the warm-up was over, microseconds since the epoch."""
    launch = Launch(
        (sys.executable, "-m", "penstock.lab.bench.peers.contestant", f"serve-{engine}", str(home))
    )
    with conversation(launch, subprocess.DEVNULL) as run:
        run.patience = 20.0
        said = run.until(time.monotonic() + READY_SECONDS + seconds + DRAIN_SECONDS)
        _expect(said, "mark", engine)
        warm_until = (time.time_ns() // 1_000) + round(seconds / 3 * 1_000_000)
        feed(home / "data", rate, seconds)
        close_input(run.process)
        _expect(said, "done", engine)
    return warm_until


def _expect(said: Iterator[dict[str, object]], word: str, engine: str) -> None:
    if word not in next(said, {}):
        raise RunError(
            f"{engine} ended, or took too long, before it was {'ready' if word == 'mark' else 'done'}"
        )


def feed(data: Path, rate: float, seconds: float, every: float = EVERY, seed: int = 7) -> int:
    """Put files of both streams into place at a steady rate; give the number of rows.

    There are as many keys as rows in a window of both streams, so that a row has one partner on average.
    """
    random = np.random.default_rng(seed)
    rows, fed = max(1, round(rate * every / 2)), 0
    keys = max(1, round(rate * WINDOW.window))
    started = time.monotonic()
    for number in range(max(1, round(seconds / every))):
        time.sleep(max(0.0, started + number * every - time.monotonic()))
        for name in STREAMS:
            key, value = random.integers(0, keys, rows), random.random(rows) * 100
            _put(data / name, number, key, value)
            fed += rows
    return fed


def _put(directory: Path, number: int, key: NDArray[np.int64], value: NDArray[np.float64]) -> None:
    """Write a file beside the directory, and move it into place as a whole."""
    staged = directory.parent / f"{directory.name}.{number}"
    now = np.full(len(key), time.time_ns() // 1_000)
    stamp = pa.array(now).cast(pa.timestamp("us", tz="UTC"))
    pq.write_table(pa.table({"k": key, "v": value, "ts": stamp}), staged)
    staged.rename(directory / f"{number:06d}.parquet")


def appearances(engine: str, out: Path) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Give, for each result, when its second row arrived and when it became visible, in microseconds."""
    seen = _named_by_log(out) if engine.startswith("spark") else _moved_into_place(out)
    later, visible = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for path, moment in seen.items():
        rows = pq.ParquetFile(path).read(["ats", "bts"])
        sides = [
            rows[name].cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_numpy()
            for name in ("ats", "bts")
        ]
        later.append(np.maximum(*sides))
        visible.append(np.full(rows.num_rows, moment))
    return np.concatenate(later), np.concatenate(visible)


def _moved_into_place(out: Path) -> dict[Path, int]:
    """Find when each file of a directory was moved there: the time of its last change of name."""
    files = (path for path in out.rglob("*.parquet") if "_staging" not in path.parts)
    return {path: path.stat().st_ctime_ns // 1_000 for path in files}


def _named_by_log(out: Path) -> dict[Path, int]:
    """Find when Spark's log of committed files first named each file."""
    found: dict[Path, int] = {}
    logs = [
        path for path in (out / "_spark_metadata").iterdir() if path.name.removesuffix(".compact").isdigit()
    ]
    for log in sorted(logs, key=lambda path: int(path.name.removesuffix(".compact"))):
        for line in log.read_text(encoding="utf-8").splitlines()[1:]:
            path = Path(json.loads(line)["path"].removeprefix("file://"))
            found.setdefault(path, log.stat().st_mtime_ns // 1_000)
    return found
