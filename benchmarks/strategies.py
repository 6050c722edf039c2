"""The sharing strategies side by side on the real engine, on a script of one's own: ``penstock bench --strategies``.

Every strategy runs in turn, several times over, each time in a fresh process: all input that is there, results counted
and discarded.  A time is shown only if all of them counted the same results for every query; on the lab's own workload
they are held against DuckDB too.
"""

from __future__ import annotations

from itertools import product
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Console

from benchmarks.contest import middle, steady_part
from benchmarks.options import HOME, Home, Rounds, Script, made
from benchmarks.oracle import true_counts
from benchmarks.peers.peer import contestant
from benchmarks.peers.run import watched
from benchmarks.printing import bars, table
from benchmarks.workloads import NOOP, QUERY_SETS, Workload, as_script
from penstock.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

SHOWN = ("mem-opt", "cpu-opt", "pull-up", "push-down", "isolated")  # the one to beat first
WEEK = 7 * 86_400.0  # seconds: scripts of one's own may take as long as they like
HEADINGS = ("strategy", "steady rows/s", "against mem-opt", "CPU s", "state rows", "pairs joined")


def strategies(script: Script = None, rounds: Rounds = 3, directory: Home = HOME) -> None:
    """Run the strategies side by side on the same input: mem-opt, cpu-opt, pull-up, push-down, isolated."""
    console, expected = Console(), None
    made(directory)
    if script is None:
        data, queries = Workload().write(directory), QUERY_SETS["N12f"]
        expected = {f"q{number}": count for number, count in enumerate(true_counts(data, queries).results)}
        script = directory / "n12f.sql"
        script.write_text(as_script(data, queries, NOOP), encoding="utf-8")
    every = contest(script, rounds, console.log, expected)
    console.print(table("", HEADINGS, (_row(name, every) for name in every)))
    results, whose = sum(every[SHOWN[0]][0].results.values()), "DuckDB" if expected else "each other"
    console.print(f"every strategy's counts equal {whose}'s: {results:,} results")
    rates = {name: median(each.steady_rate for each in trials) for name, trials in every.items()}
    state = {name: float(trials[0].state_rows) for name, trials in every.items()}
    panels = {"input rows a second, steady": rates, "rows of state held at the end": state}
    bars(panels, SHOWN[0]).savefig(directory / "strategies.png")
    console.print(f"picture: {directory / 'strategies.png'}", highlight=False)


class Trial(NamedTuple):
    """What one run under one strategy gave."""

    results: dict[str, int]
    steady_rate: float
    cpu_seconds: float
    state_rows: int
    pairs: int


def contest(
    script: Path, rounds: int, tell: Callable[[str], None], expected: Mapping[str, int] | None = None
) -> dict[str, list[Trial]]:
    """Run every strategy in turn, several times over; refuse to compare what does not agree."""
    trials: dict[str, list[Trial]] = {each: [] for each in SHOWN}
    for turn, strategy in product(range(rounds), SHOWN):
        tell(f"round {turn + 1} of {rounds}: {strategy}")
        report = watched(contestant(strategy, str(script)), WEEK)
        if report.done is None:
            raise RunError(f"strategy {strategy} failed: {report.failure}")
        seconds, joined = steady_part(report.marks, report.done.pop("rows"))
        rate = joined / seconds if seconds else 0.0
        one = Trial(steady_rate=rate, cpu_seconds=report.cpu_seconds, **report.done)
        expected = expected or one.results
        if one.results != expected:
            raise RunError(f"{strategy} counted {one.results}, expected were {expected}")
        trials[strategy].append(one)
    return trials


def _row(strategy: str, every: Mapping[str, Sequence[Trial]]) -> tuple[str, ...]:
    """Write a strategy's line, its rounds against the first strategy's."""
    trials, rounds = every[strategy], zip(every[strategy], every[SHOWN[0]], strict=True)
    return (
        strategy,
        middle([each.steady_rate for each in trials]),
        middle([one.steady_rate / other.steady_rate for one, other in rounds]),
        middle([each.cpu_seconds for each in trials]),
        f"{trials[0].state_rows:,}",
        f"{trials[0].pairs:,}",
    )
