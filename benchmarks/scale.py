"""Penstock against itself, many queries against one and much state against little; and what it is to reach in all.

By its invariant the work of a unit grows with the batch and its results, not with the state or the number of queries.
Ten times the state means ten times the window and ten times the keys: ten times the rows are held, and as many pairs as
before are found::

    window 30 s,   50,000 keys:    2 x 300,000 rows held,  12 pairs for each row
    window 300 s, 500,000 keys:  2 x 3,000,000 rows held,  12 pairs for each row

Both runs go on until the larger window has been full for a quarter of the input, and only that quarter counts.

Targets against peers are for the steady throughput of input rows, of runs made alternating in one go on the same cores.

In:  the size of the input, or what was measured.  Out: the rounds of the lesser and the larger run, or `Judgement`s.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from rich.console import Console

from benchmarks.contest import STOPPED, Contest, Outcome, Series, middle, paired, ratios, run_and_keep
from benchmarks.options import HOME, LIMIT, ROWS, Home, Limit, Rounds, RowCount, made
from benchmarks.options import workload as workload_of
from benchmarks.peers import PEERS
from benchmarks.workloads import WindowQuery, Workload, query_sets
from penstock.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


STATE_OF_ONE, STATE_OF_TEN = "state", "state x 10"
"""What the two runs are called that differ in the size of their state only."""

MORE_QUERIES = 2.0  # the queries of N200 may take at most so many times the time of N1
MORE_STATE = 1.3
"""Ten times the state may take at most so many times the time of a batch, with results held constant."""

TIMES = 10

FULL = 0.75  # the share of the input after which the larger window is full


def scale(
    *, rounds: Rounds = 3, limit_seconds: Limit = LIMIT, rows: RowCount = ROWS, directory: Home = HOME
) -> None:
    """Hold 200 queries against one, and ten times the state against one, on Penstock."""
    console, home = Console(), made(directory)
    load, sets = workload_of("w1", rows), [query_sets([name]) for name in ("N1", "N200")]
    queries = [Contest(load, ("penstock",), each, 1, home, limit_seconds) for each in sets]
    for title, bound, contests in (
        ("200 queries against one, time taken", MORE_QUERIES, queries),
        ("ten times the state, time of a batch", MORE_STATE, more_state(rows, home, limit_seconds)),
    ):
        less, more = (each.runs["penstock"] for each in run_and_keep(contests, console.log, rounds))
        times = ratios(less, more)
        if not times:
            raise RunError(f"{title}: nothing to show: {less[0].verdict}; {more[0].verdict}")
        console.print(f"{title}: {middle(times)} times, at most {bound:g} wanted", highlight=False)


def more_state(rows: int, home: Path = HOME, limit: float = LIMIT) -> list[Contest]:
    """Set ten times the state against one; the streams of both have four times `rows`, of `w1`'s rate."""
    seconds = 3 * rows / Workload().rate  # until the larger window is full
    contests = []
    for name, times in ((STATE_OF_ONE, 1), (STATE_OF_TEN, TIMES)):
        keys = round(50_000 * times * seconds / 300)
        workload = Workload(rows=4 * rows, keys=keys, rows_per_file=rows // 10)
        queries = {name: (WindowQuery(round(seconds * times / TIMES, 3)),)}
        contests.append(Contest(workload, ("penstock",), queries, 1, home, limit, FULL))
    return contests


SPEED: dict[str, dict[str, tuple[float, float]]] = {
    "spark": {"N1": (5, 10), "N12": (50, 80), "N36": (150, 250)},
    "spark-best": {"N1": (4, 6), "N12": (40, 60), "N36": (120, 180)},
    "spark-widest": {"N1": (5, 8), "N12": (5, 8), "N36": (5, 8)},
    "flink": {"N1": (4, 6), "N12": (40, 60), "N36": (100, 180)},
}
"""How many times the throughput of each peer, by query set: at the least, and where it should end up."""

OF_THE_LIMIT = 6.0  # DuckDB's batch join of the whole input may be at most so many times faster


@dataclass(frozen=True, slots=True)
class Judgement:
    """One target: what was measured, the bound, and which side of it is good; `measured` is None if nothing was."""

    name: str
    bound: float
    measured: float | None
    goal: float | None = None
    at_most: bool = False
    note: str = ""

    @property
    def verdict(self) -> str:
        """Say `met`, `not met` or `not measured`; `goal met` if it is where it should end up."""
        if self.measured is None:
            return "not measured"
        if self.goal is not None and self.measured >= self.goal:
            return "goal met"
        good = self.measured <= self.bound if self.at_most else self.measured >= self.bound
        return "met" if good else "not met"

    @property
    def wanted(self) -> str:
        """Write the bound."""
        goal = f" ({self.goal:g})" if self.goal is not None else ""
        return f"at {'most' if self.at_most else 'least'} {self.bound:g}{goal}"


def judge(series: Sequence[Series], workload: Workload) -> list[Judgement]:
    """Hold the latest measurements on a workload, and on streams of its size, against every target."""
    ours = [each for each in series if each.workload == workload.label]
    sizes = {each.workload.label for each in more_state(workload.rows)}
    state = _between([each for each in series if each.workload in sizes], STATE_OF_ONE, STATE_OF_TEN)
    limit = _median([theirs.steady_rate / own.steady_rate for own, theirs in _latest(ours, "duckdb", "N1")])
    speeds, memories = [], []
    for peer, queries in ((peer, queries) for peer, sets in SPEED.items() for queries in sets):
        (bound, goal), pairs = SPEED[peer][queries], _latest(ours, peer, queries)
        faster = _median([own.steady_rate / theirs.steady_rate for own, theirs in pairs])
        share = _median([own.peak_bytes / theirs.peak_bytes for own, theirs in pairs])
        stopped = any(theirs.verdict == STOPPED for _, theirs in pairs)
        note = "the peer was stopped: against the rate it had reached" if stopped else ""
        against = f"against {PEERS[peer].title}, {queries}"
        speeds.append(Judgement(f"throughput {against}", bound, faster, goal, note=note))
        memories.append(Judgement(f"peak memory {against}", 1, share, at_most=True))
    return [
        *speeds,
        *memories,
        Judgement("DuckDB's batch join against us, N1", OF_THE_LIMIT, limit, at_most=True),
        Judgement("time of N200 against N1", MORE_QUERIES, _between(ours, "N1", "N200"), at_most=True),
        Judgement("time of a batch with ten times the state", MORE_STATE, state, at_most=True),
    ]


def _latest(series: Sequence[Series], peer: str, queries: str) -> list[tuple[Outcome, Outcome]]:
    """Find Penstock's and a peer's runs, round by round, in the latest series that has both; else nothing."""
    wanted = [each.runs for each in reversed(series) if each.queries == queries]
    pairs = (paired(runs.get("penstock", ()), runs.get(peer, ())) for runs in wanted)
    return next(filter(None, pairs), [])


def _between(series: Sequence[Series], less: str, more: str) -> float | None:
    """Give how many times longer Penstock takes for one query set than for another, in the latest series with both."""
    runs = {(each.name, each.queries): each.runs["penstock"] for each in series if "penstock" in each.runs}
    for name in sorted({name for name, _ in runs}, reverse=True):
        if (name, less) in runs and (name, more) in runs:
            return _median(ratios(runs[name, less], runs[name, more]))
    return None


def _median(values: Sequence[float]) -> float | None:
    return median(values) if values else None
