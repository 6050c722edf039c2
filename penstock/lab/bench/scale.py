"""Penstock against itself: many queries against one, and much state against little.

By its invariant the work of a unit grows with the batch and its results, not with the state or the number of queries.
Ten times the state means ten times the window and ten times the keys: ten times the rows are held, and as many pairs as
before are found::

    window 30 s,   50,000 keys:    2 x 300,000 rows held,  12 pairs for each row
    window 300 s, 500,000 keys:  2 x 3,000,000 rows held,  12 pairs for each row

Both runs go on until the larger window has been full for a quarter of the input, and only that quarter counts.

In:  the size of the input.  Out: the rounds of the lesser and of the larger run.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Console

from penstock.errors import RunError
from penstock.lab.bench.contest import KEPT, WARM, Contest, append, middle, new_series, ratios
from penstock.lab.bench.options import HOME, LIMIT, ROWS, Home, Limit, Rounds, Rows, made
from penstock.lab.bench.options import workload as workload_of
from penstock.lab.workloads import QUERY_SETS, WindowQuery, Workload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock.lab.bench.contest import Outcome

STATE_OF_ONE, STATE_OF_TEN = "state", "state x 10"
"""What the two runs are called that differ in the size of their state only."""

MORE_QUERIES = 2.0  # the queries of N200 may take at most so many times the time of N1
MORE_STATE = 1.3
"""Ten times the state may take at most so many times the time of a batch, with results held constant."""

TIMES = 10

FULL = 0.75  # the share of the input after which the larger window is full


def scale(
    *, rounds: Rounds = 3, limit_seconds: Limit = LIMIT, rows: Rows = ROWS, directory: Home = HOME
) -> None:
    """Hold 200 queries against one, and ten times the state against one, on Penstock."""
    console = Console()
    series = new_series()
    for title, bound, comparison in (
        ("200 queries against one, time taken", MORE_QUERIES, more_queries(workload_of("w1", rows))),
        ("ten times the state, time of a batch", MORE_STATE, more_state(rows)),
    ):
        found: dict[str, list[Outcome]] = {comparison.less.name: [], comparison.more.name: []}
        for load, outcome in comparison.run(rounds, limit_seconds, made(directory), console.log):
            append(directory / KEPT, series, load.workload.label, outcome)
            found[load.name].append(outcome)
        less, more = found.values()
        times = ratios(less, more)
        if not times:
            raise RunError(f"{title}: nothing to show: {less[0].verdict}; {more[0].verdict}")
        console.print(f"{title}: {middle(times)} times, at most {bound:g} wanted", highlight=False)


class Load(NamedTuple):
    """One of two runs: what it is called, its input and its queries."""

    name: str
    workload: Workload
    queries: tuple[WindowQuery, ...]


class Comparison(NamedTuple):
    """Two runs of Penstock that are to take nearly the same time; `warm` is the share of the input not counted."""

    less: Load
    more: Load
    warm: float = WARM

    @property
    def labels(self) -> set[str]:
        """Name the input of both runs."""
        return {self.less.workload.label, self.more.workload.label}

    def run(
        self, rounds: int, limit: float, home: Path, tell: Callable[[str], None]
    ) -> Iterator[tuple[Load, Outcome]]:
        """Run both in turn, several times over."""
        for turn in range(rounds):
            tell(f"round {turn + 1} of {rounds}")
            for load in (self.less, self.more):
                sets = {load.name: load.queries}
                contest = Contest(load.workload, ("penstock",), sets, 1, home, limit, self.warm)
                for outcome in contest.run(tell):
                    yield load, replace(outcome, turn=turn)


def more_queries(load: Workload) -> Comparison:
    """Set 200 queries against one."""
    return Comparison(Load("N1", load, QUERY_SETS["N1"]), Load("N200", load, QUERY_SETS["N200"]))


def more_state(rows: int) -> Comparison:
    """Set ten times the state against one; the streams of both have four times `rows`, of `w1`'s rate."""
    seconds = 3 * rows / Workload().rate  # until the larger window is full
    loads = []
    for name, times in ((STATE_OF_ONE, 1), (STATE_OF_TEN, TIMES)):
        keys = round(50_000 * times * seconds / 300)
        workload = Workload(rows=4 * rows, keys=keys, rows_per_file=rows // 10)
        loads.append(Load(name, workload, (WindowQuery(round(seconds * times / TIMES, 3)),)))
    return Comparison(loads[0], loads[1], FULL)
