"""The sharing strategies side by side on the real engine, on a script of one's own: ``penstock bench --strategies``.

    python -m penstock.lab.bench.strategies SCRIPT STRATEGY

runs one script under one strategy in a fresh process, all input that is there, results counted and discarded, and
says what it gave as any peer does.  `contest` does that for every strategy in turn, several times over, and shows a
time only if all of them counted the same results for every query; on the lab's own workload they are held against
DuckDB too.
"""

from __future__ import annotations

import sys
from itertools import product
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer
from matplotlib.figure import Figure as Picture
from rich.console import Console

from penstock.engine.sinks import noop
from penstock.errors import RunError
from penstock.lab.bench.contest import middle, steady_part
from penstock.lab.bench.options import HOME, Home, Rounds, made
from penstock.lab.bench.peers.peer import Launch, run_to_end, tell_done, tell_mark
from penstock.lab.bench.peers.run import watched
from penstock.lab.oracle import true_counts
from penstock.lab.printing import table
from penstock.lab.workloads import NOOP, QUERY_SETS, Workload, as_script
from penstock.sql.script import parse_script

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.engine.engine import Engine

SHOWN = ("mem-opt", "cpu-opt", "pull-up", "push-down", "isolated")  # the one to beat first
WEEK = 7 * 86_400.0  # seconds: scripts of one's own may take as long as they like
HEADINGS = ("strategy", "steady rows/s", "against mem-opt", "CPU s", "state rows", "pairs joined")


def strategies(
    script: Annotated[
        Path | None,
        typer.Argument(metavar="[SCRIPT]", help="queries of your own; else w1 with N12f", show_default=False),
    ] = None,
    rounds: Rounds = 3,
    directory: Home = HOME,
) -> None:
    """Run the strategies side by side on the same input: mem-opt, cpu-opt, pull-up, push-down, isolated."""
    console, expected = Console(), None
    made(directory)
    if script is None:
        data, queries = Workload().write(directory), QUERY_SETS["N12f"]
        expected = {f"q{number}": count for number, count in enumerate(true_counts(data, queries).results)}
        script = directory / "n12f.sql"
        script.write_text(as_script(data, queries, NOOP), encoding="utf-8")
    found = contest(script, rounds, console.log, expected)
    console.print(table("", HEADINGS, (_row(name, found) for name in found)))
    results, whose = sum(found[SHOWN[0]][0].results.values()), "DuckDB" if expected else "each other"
    console.print(f"every strategy's counts equal {whose}'s: {results:,} results")
    picture(found).savefig(directory / "strategies.png")
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
    found: dict[str, list[Trial]] = {each: [] for each in SHOWN}
    for turn, strategy in product(range(rounds), SHOWN):
        tell(f"round {turn + 1} of {rounds}: {strategy}")
        command = (sys.executable, "-m", "penstock.lab.bench.strategies", str(script), strategy)
        report = watched(Launch(command), WEEK)
        if report.done is None:
            raise RunError(f"strategy {strategy} failed: {report.failure}")
        seconds, joined = steady_part(report.marks, report.done.pop("rows"))
        rate = joined / seconds if seconds else 0.0
        one = Trial(steady_rate=rate, cpu_seconds=report.cpu_seconds, **report.done)
        expected = expected or one.results
        if one.results != expected:
            raise RunError(f"{strategy} counted {one.results}, expected were {expected}")
        found[strategy].append(one)
    return found


def _row(strategy: str, found: Mapping[str, Sequence[Trial]]) -> tuple[str, ...]:
    """Write a strategy's line, its rounds against the first strategy's."""
    trials, rounds = found[strategy], zip(found[strategy], found[SHOWN[0]], strict=True)
    return (
        strategy,
        middle([each.steady_rate for each in trials]),
        middle([one.steady_rate / other.steady_rate for one, other in rounds]),
        middle([each.cpu_seconds for each in trials]),
        f"{trials[0].state_rows:,}",
        f"{trials[0].pairs:,}",
    )


def picture(found: Mapping[str, Sequence[Trial]]) -> Picture:
    """Draw throughput and state of each strategy as bars, the middle of its rounds."""
    drawing = Picture(figsize=(9, 3.2), layout="constrained", dpi=90)
    rates = [median(each.steady_rate for each in trials) for trials in found.values()]
    rows: list[float] = [trials[0].state_rows for trials in found.values()]
    panels = {"input rows a second, steady": rates, "rows of state held at the end": rows}
    for number, (title, heights) in enumerate(panels.items(), 1):
        axes = drawing.add_subplot(1, 2, number)
        bars = axes.bar(list(found), heights, color=["tab:blue", *["tab:gray"] * (len(found) - 1)])
        axes.bar_label(bars, [f"{each:,.0f}" for each in heights], fontsize=7)
        axes.set_title(title, fontsize=9)
        axes.tick_params(labelsize=8)
    return drawing


def main() -> None:
    """Run one script under one strategy, its results counted only, and say what it gave."""
    script, strategy = sys.argv[1:]
    text = Path(script).read_text(encoding="utf-8")

    def count_only(engine: Engine) -> None:
        for query in parse_script(text).queries:
            engine.drop(query.name)
            engine.query(query.name, query.text, sink=noop())

    done = run_to_end(f"{text}\n;SET strategy = '{strategy}';", tell_mark, prepare=count_only)
    rows = sum(stream.rows for stream in done.status.streams)
    pairs = sum(group.pairs for group in done.status.groups)
    tell_done(rows=rows, results=done.results, state_rows=done.state_rows, pairs=pairs)


if __name__ == "__main__":
    main()
