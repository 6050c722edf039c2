"""How long a result takes: from a row's arrival in the source directory to the result's appearance in the sink.

A feeder puts a file of each stream into place four times a second, its rows stamped with that moment as event time; so
the later stamp of a result is when its second row arrived::

    arrival of a ....... arrival of b ............................. committed, visible in the sink's directory
                         |<----------------- latency ------------->|

A result is visible when a reader of the sink may read it: in Penstock's directory when the file is moved into place, in
Flink's when a checkpoint does that, in Spark's when its log of committed files names it.  The load is a share of what
Spark at its best sustains, its steady throughput on `w1` with N1, and the same for all.  The first third of a run warms
up and does not count; the number of results is held against DuckDB's, as everywhere.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
import time
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import typer
from rich.console import Console

from benchmarks.contest import Contest, append_line, run_and_keep
from benchmarks.options import HOME, ROWS, Home, RowCount, made, workload
from benchmarks.oracle import true_counts
from benchmarks.peers.flink import flink_server
from benchmarks.peers.peer import Launch, NotHereError, contestant
from benchmarks.peers.run import close_input, conversation, family_cpu_seconds
from benchmarks.printing import table
from benchmarks.workloads import STREAMS, WindowQuery, query_sets
from penstock.errors import InputError, RunError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

SHARES = (0.01, 0.5, 0.9)  # the loads, as shares of the sustainable rate
REFERENCE = "spark-best"  # whose rate that is
EVERY = 0.25  # seconds between two files of a stream
WINDOW = WindowQuery(10.0)
READY_SECONDS, DRAIN_SECONDS = 300.0, 600.0
UTC_MICROS = pa.timestamp("us", tz="UTC")
SERVERS = {
    "penstock": "Penstock",
    "spark-best": "Spark at its best",
    "spark-real-time": "Spark, real-time mode",
    "flink": "Flink SQL, checkpoints every 100 ms",
}
"""The engines that serve, and how they are called."""


def latency(
    *,
    seconds: Annotated[float, typer.Option(help="how long each engine is fed at each rate")] = 90.0,
    rows: RowCount = ROWS,
    rate: Annotated[
        float,
        typer.Option(help="what Spark at its best sustains, input rows a second; if 0, measured first"),
    ] = 0.0,
    engines: Annotated[str, typer.Option(help=f"some of {', '.join(SERVERS)}")] = ",".join(SERVERS),
    directory: Home = HOME,
) -> None:
    """Time from a row's arrival in the source to its result in the sink, at three loads, beside other engines."""
    console, lines, reasons = Console(), [], dict[str, str]()
    made(directory)
    sustainable = rate or _sustainable(rows, directory, console)
    for share, engine in product(SHARES, chosen(engines)):
        if engine in reasons:
            continue
        console.log(f"{SERVERS[engine]} at {share:.0%} of {sustainable:,.0f} rows/s")
        try:
            delays = measure(engine, share, sustainable, seconds, directory)
        except NotHereError as refusal:
            reasons[engine] = f"{SERVERS[engine]}: {refusal}"
            continue
        append_line(directory / "latency.jsonl", **delays._asdict())
        lines.append(_line(delays))
    headings = ("engine", "load", "input rows/s", "results", "median s", "99 % within s", "cores used")
    console.print(table("", headings, lines))
    for reason in reasons.values():
        console.print(reason, soft_wrap=True)


def chosen(engines: str) -> list[str]:
    """Read which engines are to serve."""
    names = [each.strip() for each in engines.split(",")]
    for each in names:
        if each not in SERVERS:
            raise InputError(f"engine {each!r} does not serve: choose some of {', '.join(SERVERS)}")
    return names


def _line(delays: Delays) -> tuple[str, ...]:
    took = [f"{each:.2f}" for each in (delays.median, delays.p99, delays.cores)]
    load = f"{delays.share:.0%}", f"{delays.rate:,.0f}", f"{delays.results:,}"
    return SERVERS[delays.engine], *load, *took


def _sustainable(rows: int, directory: Path, console: Console) -> float:
    """Measure the steady throughput that the loads are shares of."""
    contest = Contest(workload("w1", rows), (REFERENCE,), query_sets(["N1"]), 1, directory)
    (one,) = run_and_keep([contest], console.log)
    (run,) = one.runs[REFERENCE]
    if not run.has_figures:
        raise RunError(f"the rate that {REFERENCE} sustains is not known: {run.verdict}")
    return run.steady_rate


class Delays(NamedTuple):
    """What one engine did at one rate: results, the median and the 99th percentile of their latency in seconds.

    `cores` is the CPU time of all its processes after the warm-up, by the time that passed.
    """

    engine: str
    share: float
    rate: float
    results: int
    median: float
    p99: float
    cores: float


def measure(engine: str, share: float, sustainable: float, seconds: float, directory: Path) -> Delays:
    """Feed an engine at a share of the rate for so many seconds, and look at when its results appeared."""
    rate = share * sustainable
    with tempfile.TemporaryDirectory(prefix="penstock-latency-", ignore_cleanup_errors=True) as temporary:
        home = Path(temporary)
        for name in STREAMS:
            (home / "data" / name).mkdir(parents=True)
        served = _serve(engine, home, rate, seconds, directory)
        later, visible = appearances(engine, home / "out")
        wanted = true_counts(home / "data", (WINDOW,)).results[0]
    if len(later) != wanted:
        raise RunError(f"{engine} gave {len(later)} results at {rate:,.0f} rows/s, DuckDB {wanted}")
    delays = (visible - later)[later >= served.warm_until] / 1_000_000
    if not len(delays):
        raise RunError(f"{engine} at {rate:,.0f} rows/s: no results after the warm-up; feed for longer")
    median, p99 = np.percentile(delays, [50, 99])
    return Delays(engine, share, rate, len(delays), float(median), float(p99), served.cores)


class Served(NamedTuple):
    """When the warm-up was over, microseconds since the epoch, and how many cores were busy from then on."""

    warm_until: int
    cores: float


def _serve(engine: str, home: Path, rate: float, seconds: float, directory: Path) -> Served:
    """Start an engine, feed it, and let it finish."""
    with conversation(_launch(engine, home, directory), subprocess.DEVNULL) as run:
        run.patience = 20.0
        end = time.monotonic() + READY_SECONDS + seconds + DRAIN_SECONDS
        said = (each for each in run.until(end) if "about" not in each)
        first = next(said, {})
        if refused := first.get("done", {}).get("refused"):
            raise NotHereError(refused)
        if "mark" not in first:
            raise RunError(f"{engine} ended, or took too long, before it was ready")
        meter = CpuMeter(run.process.pid, seconds / 3)
        warm_until = (time.time_ns() // 1_000) + round(seconds / 3 * 1_000_000)
        feed(home / "data", rate, seconds)
        cores = meter.cores()
        close_input(run.process)
        if "done" not in next(said, {}):
            raise RunError(f"{engine} ended, or took too long, before it was done")
    return Served(warm_until, cores)


class CpuMeter:
    """Says how many cores a family of processes keeps busy, from some seconds after it is made."""

    def __init__(self, root: int, after: float) -> None:
        """Begin to count later."""
        self._root = root
        self._start = (0.0, 0.0)
        self._timer = threading.Timer(after, self._begin)
        self._timer.start()

    def _begin(self) -> None:
        self._start = time.monotonic(), family_cpu_seconds(self._root)

    def cores(self) -> float:
        """Give the average since then."""
        self._timer.join()
        since, used = self._start
        return (family_cpu_seconds(self._root) - used) / (time.monotonic() - since)


def _launch(engine: str, home: Path, directory: Path) -> Launch:
    """Say how an engine is started that serves."""
    if engine == "flink":
        return flink_server(home, (WINDOW,), directory)
    return contestant(engine, str(home), module="serving")


def feed(
    data: Path, rate: float, seconds: float, *, every: float = EVERY, seed: int = 7, hot: float = 0.0
) -> int:
    """Put files of both streams into place at a steady rate; return the number of rows.

    There are as many keys as rows in a window of both streams, so that a row has one partner on average; but a share of
    all rows, `hot`, has one key.  A file is written beside its directory, and moved there as a whole.  The time is also
    there as a number, for Flink.
    """
    random = np.random.default_rng(seed)
    rows, files = max(1, round(rate * every / 2)), max(1, round(seconds / every))
    keys = max(1, round(rate * WINDOW.window))
    started = time.monotonic()
    for number in range(files):
        time.sleep(max(0.0, started + number * every - time.monotonic()))
        for name in STREAMS:
            key, value = random.integers(0, keys, rows), random.random(rows) * 100
            key[: round(rows * hot)] = 0
            micros = pa.array(np.full(rows, time.time_ns() // 1_000))
            staged = data / f"{name}.{number}"
            columns = {"k": key, "v": value, "ts": micros.cast(UTC_MICROS), "us": micros}
            pq.write_table(pa.table(columns), staged)
            staged.rename(data / name / f"{number:06d}.parquet")
    return files * rows * len(STREAMS)


def appearances(engine: str, out: Path) -> tuple[Ints, Ints]:
    """Give, for each result, when its second row arrived and when it became visible, in microseconds."""
    seen = _named_by_log(out) if engine.startswith("spark") else _moved_into_place(out, _PATTERNS[engine])
    later, visible = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for path, nanoseconds in seen.items():
        rows = pq.ParquetFile(path).read(["ats", "bts"])
        sides = [rows[name].cast(UTC_MICROS).cast(pa.int64()).to_numpy() for name in ("ats", "bts")]
        later.append(np.maximum(*sides))
        visible.append(np.full(rows.num_rows, nanoseconds // 1_000))
    return np.concatenate(later), np.concatenate(visible)


_PATTERNS = {"penstock": "*.parquet", "flink": "part-*"}
"""What files are called that a reader may read."""


def _moved_into_place(out: Path, pattern: str) -> dict[Path, int]:
    """Find when each file of a directory was moved there: the time of its last change of name."""
    files = (path for path in out.rglob(pattern) if "_staging" not in path.parts)
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
