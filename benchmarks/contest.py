"""Side by side: the same input and the same queries on every peer, in one go, alternating.

The machine may be busy with other things, so a figure is the ratio of two runs made one after the other, and there are
several of each.  A time is shown only if the run's counts equal DuckDB's; a run that does not end in time is stopped,
and shown with the rate it had reached, marked as such.  Every run is kept as a line of JSON, with the machine, the
versions and the settings; runs made in one go share a `series`, and only those are compared with each other.

In:  a workload, query sets, peers.  Out: `Outcome`s, one for each run; and `Series` of them, read back from the lines.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import statistics
import subprocess
from collections import defaultdict
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from functools import cache
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from benchmarks.oracle import Truth, true_counts
from benchmarks.peers import PEERS, Job, Peer
from benchmarks.peers.peer import NotHereError
from benchmarks.peers.run import Mark, Report, run_peer
from penstock.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from benchmarks.workloads import WindowQuery

WARM = 0.3  # the share of the input that only warms up: a JVM compiles, Python workers start, windows fill
EXACT, STOPPED = "exact", "stopped"
KEPT = "peers.jsonl"  # the file in a benchmark's directory


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run gave.  `verdict` is `EXACT`, `STOPPED`, or says in words why there is no figure."""

    engine: str
    verdict: str
    queries: str = ""
    turn: int = 0
    rows: float = 0
    results: int = 0
    total_seconds: float = 0.0
    command_seconds: float = 0.0
    steady_rows: float = 0.0
    steady_seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_bytes: int = 0
    state_rows: int | None = None
    state_bytes: int | None = None
    counts: dict[str, float] = field(default_factory=dict)
    """What else the run counted, by name."""
    versions: dict[str, str] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def has_figures(self) -> bool:
        """Tell whether there is a time to show."""
        return self.verdict in {EXACT, STOPPED} and self.rows > 0

    @property
    def total_rate(self) -> float:
        """Give the input rows per second of the whole run."""
        return self.rows / self.total_seconds

    @property
    def steady_rate(self) -> float:
        """Give the input rows per second after the warm-up; of the whole run if it did not get that far."""
        return self.steady_rows / self.steady_seconds if self.steady_seconds else self.total_rate


def steady_part(marks: Sequence[Mark], rows: int, warm: float = WARM) -> Mark:
    """Give seconds and rows of a run after its warm-up; nothing if there is no such part.

    Nor is there one where a single unit took most of the input: what comes after it says nothing of the rate.
    """
    begin = next((each for each in marks if each[1] >= max(1, warm * rows)), None)
    if begin is None or marks[-1][0] <= begin[0] or begin[1] > (1 + warm) / 2 * rows:
        return 0.0, 0
    return marks[-1][0] - begin[0], marks[-1][1] - begin[1]


class Input(Protocol):
    """Files that all engines read: a workload's, or those of more than two streams."""

    @property
    def label(self) -> str:
        """Name the files: everything they depend on."""

    def write(self, parent: Path) -> Path:
        """Write the files, unless they are there already; give their directory."""


@dataclass(frozen=True, slots=True)
class Contest:
    """What is compared: peers, query sets, how often, how many seconds a run may take, and where things are kept."""

    known: ClassVar[Mapping[str, Peer]] = PEERS

    workload: Input
    peers: tuple[str, ...]
    queries: Mapping[str, tuple[WindowQuery, ...]]
    rounds: int
    home: Path
    limit: float = 900.0
    warm: float = WARM

    def __post_init__(self) -> None:
        """Refuse what there is none of, before anything runs."""
        for name in self.peers:
            if name not in self.known:
                raise InputError(f"there is no engine {name}: {did_you_mean(name, self.known)}")
        if self.rounds < 1:
            raise InputError(f"{self.rounds} rounds: at least one is needed")

    def run(self, tell: Callable[[str], None]) -> Iterator[Outcome]:
        """Run every peer on every query set in turn, several times over."""
        data, truths = self.write(), {}
        for name, queries in self.queries.items():
            tell(f"DuckDB counts what {name} should give")
            truths[name] = self.truths(data, queries)
        given_up: dict[tuple[str, str], Outcome] = {}
        for turn, (name, truth), engine in product(range(self.rounds), truths.items(), self.peers):
            outcome = given_up.get((engine, name))
            if outcome is None:
                tell(f"round {turn + 1} of {self.rounds}: {name} on {self.known[engine].title}")
                job = self.job(data, name, truth[engine].rows)
                outcome = self._checked(self.known[engine], job, truth[engine], turn)
            if not outcome.has_figures:
                given_up[engine, name] = outcome
            yield replace(outcome, queries=name, turn=turn)

    def write(self) -> Path:
        """Write the input; give its directory."""
        return self.workload.write(self.home)

    def job(self, data: Path, name: str, rows: int) -> Job:
        """Say what a run of a query set has to do."""
        return Job(data, self.queries[name], rows, self.home.resolve())

    def truths(self, data: Path, queries: tuple[WindowQuery, ...]) -> Mapping[str, Truth]:
        """Say what each engine must count."""
        return dict.fromkeys(self.peers, true_counts(data, queries))

    def _checked(self, peer: Peer, job: Job, truth: Truth, turn: int) -> Outcome:
        """Run a peer; the first time, if its timed run tells too little, after an untimed one that tells all."""
        if turn == 0 and peer.has_checking_run:
            checking = self._once(replace(peer, counts="results"), replace(job, checking=True), truth)
            if not checking.has_figures:
                return checking
        return self._once(peer, job, truth)

    def _once(self, peer: Peer, job: Job, truth: Truth) -> Outcome:
        try:
            report = run_peer(peer, job, self.limit)
        except NotHereError as error:
            return Outcome(peer.name, f"not here: {error}")
        if report.failure:
            return Outcome(peer.name, f"failed: {report.failure}")
        return judged(peer, report, truth, self.warm)


def judged(peer: Peer, report: Report, truth: Truth, warm: float = WARM) -> Outcome:
    """Hold what a run counted against the truth, and give its figures only if they are equal."""
    done = report.done or {}
    wanted = list(truth.results) if peer.counts == "results" else truth.pairs
    if report.done is not None and done[peer.counts] != wanted:
        return Outcome(peer.name, f"wrong counts: {done[peer.counts]}, DuckDB's are {wanted}")
    if report.done is None and not report.marks:
        return Outcome(peer.name, "nothing joined in the time it had")
    seconds, rows = steady_part(report.marks, truth.rows, warm)
    return Outcome(
        engine=peer.name,
        verdict=STOPPED if report.done is None else EXACT,
        rows=report.marks[-1][1] if report.done is None else truth.rows,
        results=0 if report.done is None else sum(truth.results),
        total_seconds=done.get("seconds", report.marks[-1][0]),
        command_seconds=report.command_seconds,
        steady_rows=rows,
        steady_seconds=seconds,
        cpu_seconds=report.cpu_seconds,
        peak_bytes=report.peak_bytes,
        state_rows=done.get("state_rows"),
        state_bytes=done.get("state_bytes"),
        counts=done.get("counts", {}),
        versions=report.about.get("versions", {}),
        settings=report.about.get("settings", {}),
    )


def paired(one: Iterable[Outcome], other: Iterable[Outcome]) -> list[tuple[Outcome, Outcome]]:
    """Pair the runs of two engines round by round, where both have figures; a series may have ended in mid-round."""
    rounds = zip(one, other, strict=False)
    return [both for both in rounds if both[0].has_figures and both[1].has_figures]


def ratios(better: Iterable[Outcome], worse: Iterable[Outcome]) -> list[float]:
    """Give, round by round, how many times the steady throughput of one run is that of another.

    Of whole runs, where one of the two has no steady part.
    """
    return [
        one.steady_rate / other.steady_rate
        if one.steady_seconds and other.steady_seconds
        else one.total_rate / other.total_rate
        for one, other in paired(better, worse)
    ]


def middle(values: Sequence[float], digits: int = 2) -> str:
    """Print a median and the spread around it."""
    low, mid, high = (f"{pick(values):,.{digits}f}" for pick in (min, statistics.median, max))
    return mid if len(values) == 1 else f"{mid} ({low} to {high})"


@dataclass(frozen=True, slots=True)
class Series:
    """The runs made in one go on one query set: for each engine its rounds."""

    name: str
    workload: str
    queries: str
    runs: Mapping[str, Sequence[Outcome]]


def append_line(path: Path, **what: object) -> None:
    """Add one line, with the machine it was measured on."""
    with path.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps({**what, "machine": machine()}) + "\n")


def run_and_keep(contests: Iterable[Contest], tell: Callable[[str], None], turns: int = 1) -> list[Series]:
    """Run contests in turn, several times over, and keep every run as it comes: one series."""
    series, outcomes = datetime.now(UTC).isoformat(timespec="seconds"), []
    for turn, contest in product(range(turns), list(contests)):
        for each in contest.run(tell):
            outcomes.append((series, contest.workload.label, replace(each, turn=each.turn + turn)))
            kept = {"series": series, "workload": contest.workload.label, **asdict(outcomes[-1][-1])}
            append_line(contest.home / KEPT, **kept)
    return grouped(outcomes)


def read(path: Path) -> list[Series]:
    """Read every series, the oldest first."""
    names, runs = {each.name for each in fields(Outcome)}, []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        kept = json.loads(line)
        outcome = Outcome(**{name: value for name, value in kept.items() if name in names})
        runs.append((kept["series"], kept["workload"], outcome))
    return grouped(runs)


def grouped(outcomes: Iterable[tuple[str, str, Outcome]]) -> list[Series]:
    """Group runs by series, workload, query set and engine."""
    groups: dict[tuple[str, str, str], dict[str, list[Outcome]]] = defaultdict(lambda: defaultdict(list))
    for series, workload, each in outcomes:
        groups[series, workload, each.queries][each.engine].append(each)
    return [Series(*key, runs) for key, runs in groups.items()]


@cache
def machine() -> dict[str, Any]:
    """Say what all this ran on: processor, cores, memory, and which code (nothing outside a checkout)."""
    about = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    names = [line.partition(":")[2].strip() for line in about if line.startswith("model name")]
    command = ("git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD")
    asked = shutil.which("git") and subprocess.run(command, capture_output=True, text=True, check=False)
    return {
        "processor": names[0] if names else platform.machine(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "python": platform.python_version(),
        "commit": asked.stdout.strip() if asked else "",
    }
