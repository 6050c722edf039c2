"""What real sinks cost: the same queries with `parquet` and `table`, beside `noop`, which only counts.

All results are put together, encoded and written, ten million of them with one query of `w1` and seventy with twelve;
the table stores a pair once for all queries.  Runs take turns; the figure is the ratio of the times of their steady
parts, round by round, and of the time and the CPU that the whole run took.  Beside them Spark: one join at the widest
window, whose micro-batches are written into the files of every query from ``foreachBatch``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from benchmarks.contest import Contest, middle, paired, ratios, run_and_keep
from benchmarks.options import HOME, LIMIT, ROWS, Home, Limit, Rounds, RowCount, made, workload
from benchmarks.peers.peer import Peer
from benchmarks.printing import table
from benchmarks.workloads import NOOP, WindowQuery, as_script, query_sets

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.contest import Series

_PATH = "PATH"
SINKS = {
    "noop": NOOP,
    "parquet": f"sink = 'parquet', path = '{_PATH}'",
    "table": "sink = 'table'",
}
"""By name: the clause of a query."""

SPARK = Peer("spark-files", "one Spark join, files from foreachBatch", "")
WAYS = {f"sink-{name}": Peer(f"sink-{name}", f"Penstock, {name}", "") for name in SINKS} | {SPARK.name: SPARK}
MOST_TIMES_SLOWER = 1.4
LEAST_TIMES_FASTER = 3
HEADINGS = (
    "run",
    "steady rows/s",
    "times noop's time",
    "of the whole run",
    "parquet is faster",
    "wanted",
    "CPU s",
    "times noop's CPU",
    "counts",
)


class _Sinks(Contest):
    """Penstock against itself with other sinks, and against Spark with files."""

    known = WAYS


def sinks(
    *,
    queries: Annotated[str, typer.Option(help="query sets, by commas")] = "N1,N12",
    rows: RowCount = ROWS,
    rounds: Rounds = 3,
    engines: Annotated[str, typer.Option(help=f"of {', '.join(WAYS)}, by commas")] = ",".join(WAYS),
    limit_seconds: Limit = LIMIT,
    directory: Home = HOME,
) -> None:
    """Time the `parquet` and `table` sinks beside `noop` and Spark, with one and twelve queries."""
    console, sets, ways = Console(), query_sets(queries.split(",")), tuple(engines.split(","))
    contest = _Sinks(workload("w1", rows), ways, sets, rounds, made(directory), limit_seconds)
    for series in run_and_keep([contest], console.log):
        console.print(table(f"{series.workload}, {series.queries}", HEADINGS, rows_of(series)))


def sink_script(data: Path, queries: Sequence[WindowQuery], sink: str, out: Path) -> str:
    """Write queries over a workload's files with a sink each."""
    text = as_script(data, queries, SINKS[sink])
    for number in range(len(queries)):
        text = text.replace(_PATH, str(out / f"q{number}"), 1)
    return text


def rows_of(series: Series) -> list[tuple[str, ...]]:
    """Write one line for each sink, and one for Spark."""
    return [_row(name, series) for name in series.runs]


def _row(name: str, series: Series) -> tuple[str, ...]:
    runs, noop = series.runs[name], series.runs.get("sink-noop", ())
    shown = [each for each in runs if each.has_figures]
    if not shown:
        return (WAYS[name].title, *["-"] * (len(HEADINGS) - 2), runs[0].verdict)
    work = [one.cpu_seconds / other.cpu_seconds for one, other in paired(runs, noop) if other.cpu_seconds]
    against_spark = ratios(series.runs.get("sink-parquet", ()), runs) if name == SPARK.name else []
    return (
        WAYS[name].title,
        middle([each.steady_rate for each in shown], 0),
        _told(ratios(noop, runs)),
        _told([one.total_seconds / other.total_seconds for one, other in paired(runs, noop)]),
        _told(against_spark),
        _wanted(name),
        middle([each.cpu_seconds for each in shown], 0),
        _told(work),
        f"{shown[0].verdict}, {shown[0].results:,}",
    )


def _wanted(name: str) -> str:
    if name == SPARK.name:
        return f"at least {LEAST_TIMES_FASTER}"
    return "" if name == "sink-noop" else f"at most {MOST_TIMES_SLOWER}"


def _told(values: Sequence[float]) -> str:
    """Print a median and its spread; a dash where there is nothing to compare with."""
    return middle(values) if values else "-"
