"""What real sinks cost: the same queries with `parquet` and `table`, beside `noop`, which only counts.

All results are put together, encoded and written, ten million of them with one query of `w1` and seventy with twelve;
the table stores a pair once for all queries.  Runs take turns; the figure is the ratio of the times of their steady
parts, round by round, and of the CPU that the whole run took.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from penstock.lab.bench.contest import Contest, middle, paired, run_and_keep
from penstock.lab.bench.options import HOME, LIMIT, ROWS, Home, Limit, Rounds, RowCount, made, workload
from penstock.lab.bench.peers.peer import Peer
from penstock.lab.printing import table
from penstock.lab.workloads import NOOP, WindowQuery, as_script, query_sets

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from penstock.lab.bench.contest import Outcome, Series

_PATH = "PATH"
SINKS = {
    "noop": NOOP,
    "parquet": f"sink = 'parquet', path = '{_PATH}'",
    "table": "sink = 'table'",
}
"""By name: the clause of a query."""

WAYS = {f"sink-{name}": Peer(f"sink-{name}", f"Penstock, {name}", "") for name in SINKS}
MOST_TIMES_SLOWER = 1.3
HEADINGS = ("run", "steady rows/s", "times noop's time", "wanted", "CPU s", "times noop's CPU", "counts")


class _Sinks(Contest):
    """Penstock against itself, with other sinks."""

    known = WAYS


def sinks(
    *,
    queries: Annotated[str, typer.Option(help="query sets, by commas")] = "N1,N12",
    rows: RowCount = ROWS,
    rounds: Rounds = 3,
    limit_seconds: Limit = LIMIT,
    directory: Home = HOME,
) -> None:
    """Time the `parquet` and `table` sinks beside `noop`, with one and twelve queries."""
    console, sets = Console(), query_sets(queries.split(","))
    contest = _Sinks(workload("w1", rows), tuple(WAYS), sets, rounds, made(directory), limit_seconds)
    for series in run_and_keep([contest], console.log):
        console.print(table(f"{series.workload}, {series.queries}", HEADINGS, rows_of(series)))


def sink_script(data: Path, queries: Sequence[WindowQuery], sink: str, out: Path) -> str:
    """Write queries over a workload's files with a sink each."""
    text = as_script(data, queries, SINKS[sink])
    for number in range(len(queries)):
        text = text.replace(_PATH, str(out / f"q{number}"), 1)
    return text


def rows_of(series: Series) -> list[tuple[str, ...]]:
    """Write one line for each sink."""
    return [_row(WAYS[name].title, runs, series.runs["sink-noop"]) for name, runs in series.runs.items()]


def _row(title: str, runs: Sequence[Outcome], noop: Sequence[Outcome]) -> tuple[str, ...]:
    shown, both = [each for each in runs if each.has_figures], paired(runs, noop)
    if not shown or not both:
        return (title, *["-"] * (len(HEADINGS) - 2), runs[0].verdict)
    times = [other.steady_rate / one.steady_rate for one, other in both]
    work = [one.cpu_seconds / other.cpu_seconds for one, other in both if other.cpu_seconds]
    return (
        title,
        middle([each.steady_rate for each in shown], 0),
        middle(times),
        "" if runs is noop else f"at most {MOST_TIMES_SLOWER}",
        middle([each.cpu_seconds for each in shown], 0),
        middle(work) if work else "-",
        f"{shown[0].verdict}, {shown[0].results:,}",
    )
