"""What happens when more arrives than can be joined: silence, the answer to a change, memory, and what is lost.

Half of the rows have one key, so that pairs are most of the work.  The engine runs as `penstock run` runs it; queries
are added and dropped all the time, and the gaps between files of results are taken as silence::

    rows arrive    ================================================    more than can be joined
    results           |  |   |  |     |  |  |   |                      longest silence: the widest gap
    add, drop            ^──answer        ^──answer                    control latency

At the end the engine is stopped, and what it has delivered is held against DuckDB: every pair of rows that are not
newer than the newest row delivered of each stream.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import duckdb
import typer
from rich.console import Console

from benchmarks.contest import append_line
from benchmarks.latency import feed
from benchmarks.options import HOME, Home, made
from benchmarks.oracle import pairs_of
from benchmarks.peers.peer import Launch
from benchmarks.peers.run import conversation, family_bytes
from benchmarks.printing import table
from benchmarks.workloads import NOOP, STREAMS, WindowQuery, queries_in, streams_in
from penstock.engine.control import ask
from penstock.errors import RunError

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

HOT = 0.5
WINDOW = WindowQuery(2.0)
KEPT = "a.v > 99.5"
"""Which results are written to files; all others are only counted."""

ASK_EVERY = 10.0
READY_SECONDS, STOP_SECONDS = 120.0, 300.0


class Overload(NamedTuple):
    """What a run did: how many times more arrived than was joined, and the longest times in seconds."""

    rate: float
    factor: float
    silence: float
    asked: int
    control: float
    half_bytes: int
    end_bytes: int
    results: int
    expected: int


def overload(
    *,
    seconds: Annotated[float, typer.Option(help="how long the engine is fed")] = 600.0,
    rate: Annotated[float, typer.Option(help="input rows a second of both streams")] = 24_000.0,
    directory: Home = HOME,
) -> int:
    """Feed an engine more than it can join: the longest silence, control latency, memory, and whether it is exact."""
    console = Console()
    found = measure(rate, seconds, made(directory))
    append_line(directory / "overload.jsonl", **found._asdict())
    headings = (
        "input rows/s",
        "of what it joins",
        "longest silence s",
        "longest answer s",
        "GiB half-way, at the end",
    )
    sizes = f"{found.half_bytes / 2**30:.1f}, {found.end_bytes / 2**30:.1f}"
    times = f"{found.factor:.1f} times", f"{found.silence:.1f}", f"{found.control:.1f} ({found.asked} asked)"
    console.print(table("", headings, [(f"{found.rate:,.0f}", *times, sizes)]))
    exact = found.results == found.expected
    console.print(
        f"results {found.results:,}, by DuckDB {found.expected:,}: {'exact' if exact else 'NOT exact'}"
    )
    return int(not exact)


def measure(rate: float, seconds: float, directory: Path) -> Overload:
    """Feed an engine for so many seconds, and look at what it did meanwhile."""
    with tempfile.TemporaryDirectory(prefix="overload-", dir=directory) as temporary:
        home = Path(temporary).resolve()
        for name in STREAMS:
            (home / "data" / name).mkdir(parents=True)
        (home / "script.sql").write_text(_script(home), encoding="utf-8")
        with running(home) as process:
            feeder = threading.Thread(target=feed, args=(home / "data", rate, seconds), kwargs={"hot": HOT})
            began = time.time()
            feeder.start()
            asked = _ask_until(feeder, home, process.pid)
            process.terminate()
            process.wait(STOP_SECONDS)
        return _judged(home, rate, (began, began + seconds), asked)


def _script(home: Path) -> str:
    sink = f"sink = 'parquet', path = '{home / 'out'}'"
    kept = queries_in((WINDOW,), sink, KEPT)
    counted = queries_in((WINDOW,), NOOP).replace("QUERY q0", "QUERY counted")
    return streams_in(home / "data", None) + kept + counted


@contextmanager
def running(home: Path) -> Iterator[subprocess.Popen[str]]:
    """Start `penstock run`, and wait until it answers."""
    command = "from penstock.cli.main import main; main()"
    arguments = ("run", str(home / "script.sql"), "--state", str(home / "state"))
    launch, said = Launch((sys.executable, "-c", command, *arguments)), home / "run.log"
    with said.open("w") as log, conversation(launch, log) as run:
        end = time.monotonic() + READY_SECONDS
        while not (home / "state" / "journal").exists() or not _answers(home):
            if run.process.poll() is not None or time.monotonic() > end:
                raise RunError(f"the engine did not start: {said.read_text()[-500:]}")
            time.sleep(1.0)
        yield run.process


def _answers(home: Path) -> bool:
    try:
        _change(home, 0)
        _change(home, 1)
    except RunError:
        return False
    return True


def _change(home: Path, number: int) -> float:
    """Add a query, or drop it again; return how long the answer took."""
    query = queries_in((WindowQuery(1.0),), NOOP, "a.k % 7 = 3").replace("QUERY q0", "QUERY extra")
    asked = time.monotonic()
    request = {"do": "drop", "query": "extra"} if number % 2 else {"do": "add", "script": query}
    ask(str(home / "state"), request)
    return time.monotonic() - asked


class Asked(NamedTuple):
    """How long an answer took, and the memory of all processes before it."""

    seconds: float
    size: int


def _ask_until(feeder: threading.Thread, home: Path, root: int) -> list[Asked]:
    """Add and drop a query while rows arrive."""
    asked = list[Asked]()
    while feeder.is_alive():
        size = family_bytes(root)
        asked.append(Asked(_change(home, len(asked)), size))
        feeder.join(ASK_EVERY)
    return asked


def _judged(home: Path, rate: float, fed: tuple[float, float], asked: list[Asked]) -> Overload:
    """Hold what was delivered against DuckDB, and find the widest gap between two files of results."""
    moved = sorted(path.stat().st_ctime for path in (home / "out").glob("*.parquet"))
    moments = [fed[0], *(each for each in moved if each < fed[1]), fed[1]]
    delivered = f"(SELECT ats, bts FROM read_parquet('{home / 'out'}/*.parquet'))"
    expected = f"({pairs_of(home / 'data', WINDOW.micros)} WHERE {KEPT})"
    connection = duckdb.connect()

    def count(what: str) -> int:
        (found,) = connection.execute(f"SELECT count(*) FROM {what}").fetchone() or (0,)
        return int(found)

    last = f"(SELECT least(max(ats), max(bts)) FROM {delivered})"
    rows = f"read_parquet('{home / 'data'}/[ab]/*.parquet')"
    return Overload(
        rate,
        factor=count(rows) / max(1, count(f"{rows} WHERE ts <= {last}")),
        silence=max(later - earlier for earlier, later in pairwise(moments)),
        asked=len(asked),
        control=max(each.seconds for each in asked),
        half_bytes=asked[len(asked) // 2].size,
        end_bytes=asked[-1].size,
        results=count(f"{delivered} WHERE ats <= {last} AND bts <= {last}"),
        expected=count(f"{expected} WHERE ats <= {last} AND bts <= {last}"),
    )
