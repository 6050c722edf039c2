"""How long a result takes: from a row's arrival in the source directory to the result's appearance in the sink.

A feeder puts a file of each stream into place four times a second, its rows stamped with that moment as event time; so
the later stamp of a result is when its second row arrived::

    arrival of a ....... arrival of b ............................. committed, visible in the sink's directory
                         |<----------------- latency ------------->|

A result is visible when a reader of the sink may read it: in Penstock's directory when the file is moved into place, in
Spark's when its log of committed files names it.  Rates are shares of what each engine sustains, which is the steady
throughput it has on `w1` with N1.  The first third of a run warms up and does not count; the number of results is held
against DuckDB's, as everywhere.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import typer
from rich.console import Console

from penstock.errors import RunError
from penstock.lab.bench.contest import Contest, append_line, run_and_keep
from penstock.lab.bench.options import HOME, ROWS, Home, RowCount, made, workload
from penstock.lab.bench.peers import PEERS
from penstock.lab.bench.peers.peer import contestant
from penstock.lab.bench.peers.run import close_input, conversation
from penstock.lab.oracle import true_counts
from penstock.lab.printing import table
from penstock.lab.workloads import STREAMS, WindowQuery, query_sets

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

SHARES = (0.01, 0.5, 0.9)  # the loads, as shares of the sustainable rate
ENGINES = ("penstock", "spark-best")
EVERY = 0.25  # seconds between two files of a stream
WINDOW = WindowQuery(10.0)
READY_SECONDS, DRAIN_SECONDS = 300.0, 600.0
UTC_MICROS = pa.timestamp("us", tz="UTC")


def latency(
    *,
    seconds: Annotated[float, typer.Option(help="how long each engine is fed at each rate")] = 90.0,
    rows: RowCount = ROWS,
    rate: Annotated[
        float, typer.Option(help="the sustainable rate, input rows a second; if 0, measured first")
    ] = 0.0,
    directory: Home = HOME,
) -> None:
    """Time from a row's arrival in the source to its result in the sink, at three loads, against Spark at its best."""
    console, lines = Console(), []
    made(directory)
    rates = dict.fromkeys(ENGINES, rate) if rate else _sustainable(rows, directory, console)
    for share in SHARES:
        for engine, sustainable in rates.items():
            title = PEERS[engine].title
            console.log(f"{title} at {share:.0%} of {sustainable:,.0f} rows/s")
            delays = measure(engine, share, sustainable, seconds)
            append_line(directory / "latency.jsonl", **delays._asdict())
            took = [f"{each:.2f}" for each in (delays.median, delays.p99)]
            lines.append((title, f"{share:.0%}", f"{delays.rate:,.0f}", f"{delays.results:,}", *took))
    headings = ("engine", "load", "input rows/s", "results", "median s", "99 % within s")
    console.print(table("", headings, lines))


def _sustainable(rows: int, directory: Path, console: Console) -> dict[str, float]:
    """Measure the steady throughput of the engines whose latency is compared."""
    contest = Contest(workload("w1", rows), ENGINES, query_sets(["N1"]), 1, directory)
    (one,) = run_and_keep([contest], console.log)
    for engine, runs in one.runs.items():
        if not runs[0].has_figures:
            raise RunError(f"the rate that {engine} sustains is not known: {runs[0].verdict}")
    return {engine: runs[0].steady_rate for engine, runs in one.runs.items()}


class Delays(NamedTuple):
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
    with conversation(contestant(f"serve-{engine}", str(home)), subprocess.DEVNULL) as run:
        run.patience = 20.0
        said = run.until(time.monotonic() + READY_SECONDS + seconds + DRAIN_SECONDS)
        if "mark" not in next(said, {}):
            raise RunError(f"{engine} ended, or took too long, before it was ready")
        warm_until = (time.time_ns() // 1_000) + round(seconds / 3 * 1_000_000)
        feed(home / "data", rate, seconds)
        close_input(run.process)
        if "done" not in next(said, {}):
            raise RunError(f"{engine} ended, or took too long, before it was done")
    return warm_until


def feed(data: Path, rate: float, seconds: float, every: float = EVERY, seed: int = 7) -> int:
    """Put files of both streams into place at a steady rate; give the number of rows.

    There are as many keys as rows in a window of both streams, so that a row has one partner on average.  A file is
    written beside its directory, and moved there as a whole.
    """
    random = np.random.default_rng(seed)
    rows, files = max(1, round(rate * every / 2)), max(1, round(seconds / every))
    keys = max(1, round(rate * WINDOW.window))
    started = time.monotonic()
    for number in range(files):
        time.sleep(max(0.0, started + number * every - time.monotonic()))
        for name in STREAMS:
            key, value = random.integers(0, keys, rows), random.random(rows) * 100
            stamp = pa.array(np.full(rows, time.time_ns() // 1_000)).cast(UTC_MICROS)
            staged = data / f"{name}.{number}"
            pq.write_table(pa.table({"k": key, "v": value, "ts": stamp}), staged)
            staged.rename(data / name / f"{number:06d}.parquet")
    return files * rows * len(STREAMS)


def appearances(engine: str, out: Path) -> tuple[Ints, Ints]:
    """Give, for each result, when its second row arrived and when it became visible, in microseconds."""
    seen = _named_by_log(out) if engine.startswith("spark") else _moved_into_place(out)
    later, visible = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for path, nanoseconds in seen.items():
        rows = pq.ParquetFile(path).read(["ats", "bts"])
        sides = [rows[name].cast(UTC_MICROS).cast(pa.int64()).to_numpy() for name in ("ats", "bts")]
        later.append(np.maximum(*sides))
        visible.append(np.full(rows.num_rows, nanoseconds // 1_000))
    return np.concatenate(later), np.concatenate(visible)


def _moved_into_place(out: Path) -> dict[Path, int]:
    """Find when each file of a directory was moved there: the time of its last change of name."""
    files = (path for path in out.rglob("*.parquet") if "_staging" not in path.parts)
    return {path: path.stat().st_ctime_ns for path in files}


def _named_by_log(out: Path) -> dict[Path, int]:
    """Find when Spark's log of committed files first named each file."""
    first_named: dict[Path, int] = {}
    logs = {path.name.removesuffix(".compact"): path for path in (out / "_spark_metadata").iterdir()}
    for _, log in sorted((int(number), log) for number, log in logs.items() if number.isdigit()):
        for line in log.read_text(encoding="utf-8").splitlines()[1:]:
            path = Path(json.loads(line)["path"].removeprefix("file://"))
            first_named.setdefault(path, log.stat().st_mtime_ns)
    return first_named
