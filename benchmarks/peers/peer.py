"""What a peer is, and how a run of it talks.

A run is a process that gets a `Job` as JSON, prints a line when it begins, some as it goes on and one at the end, and
then waits until its standard input is closed, so that whoever started it can see what it has used::

    {"about": {"versions": {…}, "settings": {…}}}
    {"mark": [seconds since the start, input rows joined so far]}
    {"done": {"seconds": …, "results": [… per query], "state_rows": …}}

Other lines are somebody's log and mean nothing.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from benchmarks.workloads import STREAMS, WindowQuery
from penstock.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.engine.api import Engine


class NotHereError(RunError):
    """A peer cannot be had on this machine; the message says why."""


@dataclass(frozen=True, slots=True)
class Job:
    """What a run has to do: files, queries, input rows in all, and where the peer may keep what it installs.

    With `checking` the time does not count, and a peer whose timed run cannot tell the counts of each query takes the
    slower way that can.
    """

    data: Path
    queries: tuple[WindowQuery, ...]
    rows: int
    home: Path
    checking: bool = False
    cores: int = os.cpu_count() or 1
    streams: tuple[str, ...] = STREAMS
    """The directories of the files, one for each stream."""

    def heap(self, joins: int) -> int:
        """Give the heap of a peer's JVM in MiB: 4 GiB, and one more for each further join up to 70 % of the memory."""
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
        return min(total * 7 // 10, 4096 + 1024 * (joins - 1))

    @property
    def widest(self) -> WindowQuery:
        """Give the query that looks back furthest, without its predicate."""
        return WindowQuery(max(each.window for each in self.queries))

    def to_json(self) -> str:
        """Write as JSON, also for programs that cannot import this one."""
        return json.dumps(asdict(self), default=str)

    @classmethod
    def from_json(cls, text: str) -> Job:
        """Read what `to_json` wrote."""
        fields = json.loads(text)
        paths = {name: Path(fields[name]) for name in ("data", "home")}
        queries = tuple(WindowQuery(**each) for each in fields["queries"])
        return cls(**{**fields, **paths, "queries": queries, "streams": tuple(fields["streams"])})


@dataclass(frozen=True, slots=True)
class Launch:
    """How a run is started."""

    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Peer:
    """An engine, or a way to use one.

    `counts` says what its timed run can count: the results of each query, or only the pairs of the one join that it
    makes; then a run with `Job.checking` tells the rest, if the peer has one.
    """

    name: str
    title: str
    settings: str
    counts: Literal["results", "pairs"] = "results"
    has_checking_run: bool = False
    command: Callable[[Job], Launch] | None = None
    """How it is started if it is no contestant of this interpreter's environment."""

    def launch(self, job: Job) -> Launch:
        """Say how it is started."""
        return self.command(job) if self.command else contestant(self.name, job.to_json())


def contestant(*arguments: str, module: str = "contestant") -> Launch:
    """Launch a program of `benchmarks.peers` in a fresh process of this very interpreter."""
    return Launch((sys.executable, "-m", f"benchmarks.peers.{module}", *arguments))


def started_early(job: Job) -> Launch:
    """Launch Penstock as its command line starts it."""
    return contestant("penstock", job.to_json(), module="started_early")


def tell(kind: str, *values: float, **what: Any) -> None:
    """Print one line of a run: `about` what runs, or a `mark` of how far it is."""
    print(json.dumps({kind: what or values}), flush=True)


def tell_done(**what: Any) -> None:
    """Say what the run gave, and wait until it has been looked at."""
    tell("done", **what)
    sys.stdin.read()


class OwnRun(NamedTuple):
    """Seconds from start to end, the status at the end, results by query, and the rows that are still held."""

    seconds: float
    status: Any
    results: dict[str, int]
    state_rows: int


def run_to_end(
    script: str,
    watch: Callable[[float, int], None] = lambda seconds, rows: tell("mark", seconds, rows),
    settings: Mapping[str, str] | None = None,
    prepare: Callable[[Engine], None] = lambda _: None,
) -> OwnRun:
    """Run a script over all input there is, from an empty state that is thrown away.

    `watch` hears after each unit how many seconds have passed and how many rows are joined.
    """
    from penstock.engine.api import Engine  # noqa: PLC0415 - other contestants do without Spark

    with (
        tempfile.TemporaryDirectory(prefix="penstock-bench-") as state,
        Engine(state, settings=settings) as engine,
    ):
        engine.script(script)
        prepare(engine)
        started = time.monotonic()
        engine.watch(lambda unit: watch(time.monotonic() - started, unit.rows))
        engine.start(once=True)
        engine.wait()
        seconds, status = time.monotonic() - started, engine.status()
        results = {each.name: each.results for each in status.queries}
        return OwnRun(seconds, status, results, sum(group.state_rows for group in status.groups))
