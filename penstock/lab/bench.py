"""Side by side: the same input and the same queries on Penstock and on Spark's own join, in one go, alternating.

The machine may be busy with other things, so a figure is the ratio of two runs made one after the other, and there are
several of each.  A time is shown only if every engine's counts equal DuckDB's.

In:  a workload and query sets.  Out: a table, and one line of JSON per run for later.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import duckdb

from penstock.errors import RunError
from penstock.lab.contestants import Outcome
from penstock.lab.workloads import QUERY_SETS, Workload

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Run:
    """One engine on one query set."""

    engine: str
    queries: str

    @property
    def name(self) -> str:
        """Name the run for tables."""
        return f"{self.engine} {self.queries}"


def oracle_counts(data: Path, windows: Sequence[float]) -> tuple[int, ...]:
    """Let DuckDB join everything as one batch and count each query's results."""
    widest = int(max(windows) * 1_000_000)
    counts = ", ".join(
        f"count(*) FILTER (WHERE abs(d) < {int(window * 1_000_000)}) AS q{number}"
        for number, window in enumerate(windows)
    )
    a, b = (
        f"(SELECT k, epoch_us(ts) AS t FROM read_parquet('{data / name}/*.parquet'))" for name in ("a", "b")
    )
    query = (
        f"SELECT {counts} FROM (SELECT b.t - a.t AS d FROM {a} a JOIN {b} b "
        f"ON a.k = b.k AND b.t > a.t - {widest} AND b.t < a.t + {widest})"
    )
    found = duckdb.connect().execute(query).fetchone()
    return tuple(found or ())


def run(contestant: Run, data: Path, expected: tuple[int, ...]) -> Outcome:
    """Run one engine in a process of its own and check its counts."""
    windows = [str(each) for each in QUERY_SETS[contestant.queries]]
    command = [sys.executable, "-m", "penstock.lab.contestants", contestant.engine, str(data), *windows]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RunError(f"{contestant.name} failed: {done.stderr.strip().splitlines()[-1]}")
    outcome = Outcome(**json.loads(done.stdout.strip().splitlines()[-1]))
    if tuple(outcome.results) != expected:
        raise RunError(f"{contestant.name} counted {outcome.results}, DuckDB {expected}")
    return outcome


def compare(
    workload: Workload, runs: Sequence[Run], rounds: int, directory: Path, tell: Callable[[str], None]
) -> dict[Run, list[Outcome]]:
    """Run every contestant in turn, several times over."""
    data = directory / "w1"
    workload.write(data)
    expected = {
        queries: oracle_counts(data, QUERY_SETS[queries]) for queries in {each.queries for each in runs}
    }
    outcomes: dict[Run, list[Outcome]] = {each: [] for each in runs}
    for turn in range(rounds):
        for each in runs:
            tell(f"round {turn + 1} of {rounds}: {each.name}")
            outcomes[each].append(run(each, data, expected[each.queries]))
    return outcomes


def ratios(outcomes: dict[Run, list[Outcome]], better: Run, worse: Run) -> list[float]:
    """Give, round by round, how many times the steady throughput of one run is that of another."""
    return [
        one.steady_rate / other.steady_rate
        for one, other in zip(outcomes[better], outcomes[worse], strict=True)
    ]


def middle(values: Sequence[float]) -> str:
    """Print a median and the spread around it.

    >>> middle([1.0, 3.0, 2.0])
    '2.00 (1.00 to 3.00)'
    """
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"
