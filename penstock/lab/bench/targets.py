"""What Penstock is to reach against its peers, and whether what was measured reaches it.

Throughput is that of input rows, steady, of runs made alternating in one go on the same cores.

In:  what was measured.  Out: `Judgement`s, one per target.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from penstock.lab.bench.contest import STOPPED, ratios
from penstock.lab.bench.peers import PEERS
from penstock.lab.bench.scale import MORE_QUERIES, MORE_STATE, STATE_OF_ONE, STATE_OF_TEN, more_state

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.lab.bench.contest import Outcome, Series
    from penstock.lab.workloads import Workload

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
    """One target: what was measured, the bound, and which side of it is good; `measured` is None if nothing was.

    >>> print(Judgement("speed", 5, 7.25, goal=10))
    met: speed 7.25, at least 5 (10)
    >>> print(Judgement("time", 2, 2.5, at_most=True))
    not met: time 2.50, at most 2
    """

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

    def __str__(self) -> str:
        measured = "" if self.measured is None else f" {self.measured:.2f}"
        return f"{self.verdict}: {self.name}{measured}, {self.wanted}"


def judge(series: Sequence[Series], workload: Workload) -> list[Judgement]:
    """Hold the latest measurements on a workload, and on streams of its size, against every target."""
    ours = [each for each in series if each.workload == workload.label]
    sized = [each for each in series if each.workload in more_state(workload.rows).labels]
    limit = [1 / each for each in ratios(*_latest(ours, "duckdb", "N1"))]
    state = _between(sized, STATE_OF_ONE, STATE_OF_TEN)
    return [
        *_speeds(ours),
        *_memories(ours),
        Judgement("DuckDB's batch join against us, N1", OF_THE_LIMIT, _median(limit), at_most=True),
        Judgement("time of N200 against N1", MORE_QUERIES, _between(ours, "N1", "N200"), at_most=True),
        Judgement("time of a batch with ten times the state", MORE_STATE, state, at_most=True),
    ]


def _speeds(series: Sequence[Series]) -> Iterator[Judgement]:
    for peer, sets in SPEED.items():
        for queries, (bound, goal) in sets.items():
            both = _latest(series, peer, queries)
            stopped = any(each.verdict == STOPPED for each in both[1])
            note = "the peer was stopped: against the rate it had reached" if stopped else ""
            name = f"throughput against {PEERS[peer].title}, {queries}"
            yield Judgement(name, bound, _median(ratios(*both)), goal, note=note)


def _memories(series: Sequence[Series]) -> Iterator[Judgement]:
    for peer, sets in SPEED.items():
        for queries in sets:
            pairs = zip(*_latest(series, peer, queries), strict=True)
            share = _median([one.peak_bytes / other.peak_bytes for one, other in pairs])
            yield Judgement(f"peak memory against {PEERS[peer].title}, {queries}", 1, share, at_most=True)


def _latest(series: Sequence[Series], peer: str, queries: str) -> tuple[list[Outcome], list[Outcome]]:
    """Find Penstock's and a peer's runs, round by round, in the latest series that has both; else nothing."""
    for each in reversed(series):
        if each.queries == queries and {"penstock", peer} <= each.runs.keys():
            rounds = zip(each.runs["penstock"], each.runs[peer], strict=True)
            both = [(one, other) for one, other in rounds if one.has_figures and other.has_figures]
            if both:
                return [one for one, _ in both], [other for _, other in both]
    return [], []


def _between(series: Sequence[Series], less: str, more: str) -> float | None:
    """Give how many times longer Penstock takes for one query set than for another, in the latest series with both."""
    runs = {(each.name, each.queries): each.runs["penstock"] for each in series if "penstock" in each.runs}
    for name in sorted({name for name, _ in runs}, reverse=True):
        if (name, less) in runs and (name, more) in runs:
            return _median(ratios(runs[name, less], runs[name, more]))
    return None


def _median(values: Sequence[float]) -> float | None:
    return median(values) if values else None
