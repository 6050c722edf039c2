"""``penstock bench peers``: the same input and the same queries on every engine, alternating.

In:  arguments.  Out: tables on the terminal, a picture, JSON lines, and a block of Markdown in a document if asked for.
"""

from __future__ import annotations

import re
from statistics import median
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from benchmarks import contest as contests
from benchmarks.contest import Contest, Outcome, Series, middle, ratios, run_and_keep
from benchmarks.options import HOME, LIMIT, ROWS, Document, Home, Limit, Rounds, RowCount, made
from benchmarks.options import workload as workload_of
from benchmarks.peers import PEERS
from benchmarks.printing import bars, table
from benchmarks.scale import Judgement, judge
from benchmarks.workloads import MAKERS, QUERY_SETS, query_sets
from penstock.errors import InputError, RunError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.figure import Figure as Picture
    from rich.table import Table


RATES = ["steady rows/s", "whole run rows/s", "Penstock is faster"]
HEADINGS = ["engine", *RATES, "from the command s", "CPU s", "peak GiB", "state held", "counts"]


def peers(
    *,
    workload: Annotated[str, typer.Option(help=f"one of {', '.join(MAKERS)}")] = "w1",
    queries: Annotated[
        str, typer.Option(help=f"query sets, by commas, of {', '.join(QUERY_SETS)}")
    ] = "N1,N12",
    engines: Annotated[str, typer.Option(help=f"by commas, of {', '.join(PEERS)}; or all")] = "all",
    rounds: Rounds = 3,
    limit_seconds: Limit = LIMIT,
    rows: RowCount = ROWS,
    directory: Home = HOME,
    document: Document = None,
    targets: Annotated[
        bool, typer.Option("--targets", help="run nothing: hold what was measured last against the targets")
    ] = False,
) -> int:
    """Run the same queries on Penstock, Spark, Flink and DuckDB, alternating, every count checked against DuckDB."""
    console = Console()
    load = workload_of(workload, rows)
    if targets:
        console.print(targets_table(judge(contests.read(directory / contests.KEPT), load)))
        return 0
    chosen = tuple(PEERS) if engines == "all" else tuple(engines.split(","))
    sets = query_sets(queries.split(","))
    contest = Contest(load, chosen, sets, rounds, made(directory), limit_seconds)
    measured = run_and_keep([contest], console.log)
    _print(console, measured)
    for line in versions_of(measured):
        console.print(escape(line), style="dim", highlight=False)
    path = directory / f"peers-{workload}.png"
    picture_of(measured).savefig(path)
    console.print(f"picture: {path}; every run: {directory / contests.KEPT}", highlight=False)
    if document is not None:
        about = contests.machine()
        told = f"{about['cores']} cores of {about['processor']}, {about['memory_gib']} GiB"
        fill_in(document, "peers", markdown_of(measured, told))
    return int(any(not run.has_figures for each in measured for run in each.runs.get("penstock", ())))


def first(*, rounds: Rounds = 3, rows: RowCount = ROWS, directory: Home = HOME) -> None:
    """Run one 30 s window on Penstock and on Spark's own join, and twelve windows on Penstock."""
    console, load = Console(), workload_of("w1", rows)
    engines = {"N1": ("penstock", "spark"), "N12": ("penstock",)}
    contests = [Contest(load, who, query_sets([name]), 1, made(directory)) for name, who in engines.items()]
    one, twelve = run_and_keep(contests, console.log, rounds)
    _print(console, (one, twelve))
    faster = ratios(one.runs["penstock"], one.runs["spark"])
    longer = ratios(one.runs["penstock"], twelve.runs["penstock"])
    if not faster or not longer:
        raise RunError("an engine gave no figures that can be compared: see the table")
    console.print(f"Penstock against Spark's join, one window: {middle(faster)} times")
    console.print(f"twelve windows against one, time taken:    {middle(longer)} times")


def _print(console: Console, measured: Sequence[Series]) -> None:
    for each in measured:
        console.print(table(f"{each.workload}, {each.queries}", HEADINGS, rows_of(each)))


def rows_of(series: Series) -> list[list[str]]:
    """Write one line for each engine: the middle of its rounds, and their spread."""
    return [_row(engine, runs, series.runs.get("penstock", ())) for engine, runs in series.runs.items()]


def _row(engine: str, runs: Sequence[Outcome], ours: Sequence[Outcome]) -> list[str]:
    shown = [each for each in runs if each.has_figures]
    title = PEERS[engine].title
    if not shown:
        return [title, *["-"] * 7, runs[0].verdict]
    faster = ratios(ours, runs) if ours else []
    state = (shown[0].state_rows, 1, "rows"), (shown[0].state_bytes, 2**20, "MiB")
    told = [f"{each / unit:,.0f} {name}" for each, unit, name in state if each is not None]
    stopped = any(each.verdict == contests.STOPPED for each in shown)
    return [
        title,
        middle([each.steady_rate for each in shown], 0),
        middle([each.total_rate for each in shown], 0),
        middle(faster) if faster else "-",
        "-" if stopped else middle([each.command_seconds for each in shown], 1),
        middle([each.cpu_seconds for each in shown], 0),
        middle([each.peak_bytes / 2**30 for each in shown], 1),
        ", ".join(told) or "not told",
        "stopped: the rate it had reached" if stopped else f"exact, {shown[0].results:,}",
    ]


def versions_of(every: Sequence[Series]) -> list[str]:
    """List, for each engine that ran, its versions and settings."""
    lines: dict[str, str] = {}
    for run in (each for series in every for runs in series.runs.values() for each in runs):
        told = {**run.versions, **run.settings}
        if told:
            listed = ", ".join(f"{name.rpartition('.')[2]} {value}" for name, value in told.items())
            lines[run.engine] = f"{PEERS[run.engine].title}: {PEERS[run.engine].settings}; {listed}"
    return list(lines.values())


def targets_table(judgements: Sequence[Judgement]) -> Table:
    """Lay the targets out for a terminal."""
    colours = {"met": "green", "goal met": "green", "not met": "red", "not measured": "dim"}
    measured = ["-" if each.measured is None else f"{each.measured:.2f}" for each in judgements]
    verdicts = [f"[{colours[each.verdict]}]{each.verdict}[/]" for each in judgements]
    rows = [(e.name, e.wanted, m, v, e.note) for e, m, v in zip(judgements, measured, verdicts, strict=True)]
    return table("", ("target", "wanted", "measured", "verdict", ""), rows)


def picture_of(every: Sequence[Series]) -> Picture:
    """Draw the steady throughput of each engine as bars on a logarithmic scale, a panel for each query set."""
    panels: dict[str, dict[str, float]] = {}
    for series in every:
        rates = panels[f"{series.queries}: input rows a second, steady"] = {}
        for engine, runs in series.runs.items():
            if shown := [each for each in runs if each.has_figures]:
                mark = "*" if any(each.verdict == contests.STOPPED for each in shown) else ""
                rates[f"{PEERS[engine].title}{mark}"] = median(each.steady_rate for each in shown)
    return bars(panels, PEERS["penstock"].title, log=True, caption="* stopped: the rate it had reached")


def markdown_of(every: Sequence[Series], machine: str) -> str:
    """Write the tables as Markdown."""
    parts = [f"On {machine}; median of the rounds, and their spread.\n"]
    for series in every:
        lines = [HEADINGS, ["---"] * len(HEADINGS), *rows_of(series)]
        cells = [" | ".join(each.replace("|", "\\|") for each in line) for line in lines]
        text = "\n".join(f"| {each} |" for each in cells)
        parts.append(f"**{series.workload}, {series.queries}**\n\n{text}\n")
    parts.append("\n".join(f"- {each}" for each in versions_of(every)) + "\n")
    return "\n".join(parts)


def fill_in(document: Path, marker: str, text: str) -> None:
    """Put text between a document's markers, in place of what was there."""
    before = document.read_text(encoding="utf-8")
    between = re.compile(rf"(<!-- {marker} -->\n).*?(<!-- /{marker} -->)", re.DOTALL)
    if not between.search(before):
        raise InputError(f"{document} has no lines <!-- {marker} --> and <!-- /{marker} --> to write between")
    document.write_text(
        between.sub(lambda markers: f"{markers[1]}{text}{markers[2]}", before), encoding="utf-8"
    )
