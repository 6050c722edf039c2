"""``penstock bench``: Penstock side by side with other engines, and with itself.

In:  arguments.  Out: tables on the terminal; pictures and JSON lines in a directory.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from penstock.errors import InputError, RunError
from penstock.lab.breakdown import measure_breakdown
from penstock.lab.contest import Contest, middle, ratios
from penstock.lab.latency import ENGINES, SHARES, measure
from penstock.lab.oracle import true_counts
from penstock.lab.peers import PEERS
from penstock.lab.report import fill_in, markdown_of, picture_of, table_of, targets_table, versions_of
from penstock.lab.results import append, append_line, grouped, machine, new_series, read
from penstock.lab.scale import more_queries, more_state
from penstock.lab.strategies import SHOWN, contest, picture, strategies_table
from penstock.lab.targets import MORE_QUERIES, MORE_STATE, judge
from penstock.lab.workloads import MAKERS, NOOP, QUERY_SETS, Workload, as_script, query_sets

if TYPE_CHECKING:
    from penstock.lab.contest import Outcome
    from penstock.lab.results import Measured

bench = typer.Typer(help="Measure, side by side with other engines.", no_args_is_help=True)

Rounds = Annotated[int, typer.Option(help="how often each run is made")]
Home = Annotated[Path, typer.Option(metavar="DIR", help="where data, peers, results and pictures are kept")]
Rows = Annotated[int, typer.Option(help="rows of each stream; fewer are for trying out")]
Limit = Annotated[float, typer.Option(help="seconds that a run may take before it is stopped")]

KEPT = "peers.jsonl"


@bench.callback(invoke_without_command=True)
def _benches(
    context: typer.Context,
    *,
    strategies: Annotated[
        bool, typer.Option("--strategies", help="the same as the command `strategies`, with its defaults")
    ] = False,
) -> None:
    """Measure, side by side with other engines."""
    if strategies and context.invoked_subcommand is None:
        side_by_side()
    elif context.invoked_subcommand is None:
        names = ", ".join(sorted(str(each.name) for each in bench.registered_commands))
        raise InputError(f"penstock bench needs a command, one of {names}; --help says more")


@bench.command("peers")
def peers(
    *,
    workload: Annotated[str, typer.Option(help=f"one of {', '.join(MAKERS)}")] = "w1",
    queries: Annotated[
        str, typer.Option(help=f"query sets, separated by commas, of {', '.join(QUERY_SETS)}")
    ] = "N1,N12",
    engines: Annotated[
        str, typer.Option(help=f"engines, separated by commas, of {', '.join(PEERS)}; or all")
    ] = "all",
    rounds: Rounds = 3,
    limit_seconds: Limit = 900.0,
    rows: Rows = 1_000_000,
    directory: Home = Path(".bench"),
    document: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="put the tables between the markers <!-- peers --> of this file"),
    ] = None,
    targets: Annotated[
        bool, typer.Option("--targets", help="run nothing: hold what was measured last against the targets")
    ] = False,
) -> int:
    """Run the same queries on Penstock, Spark, Flink and DuckDB, alternating, every count checked against DuckDB."""
    console = Console()
    load = _workload(workload, rows)
    directory.mkdir(parents=True, exist_ok=True)
    if targets:
        console.print(targets_table(judge(read(directory / KEPT), load)))
        return 0
    chosen = tuple(PEERS) if engines == "all" else tuple(engines.split(","))
    sets = query_sets(queries.split(","))
    measured = _measure(Contest(load, chosen, sets, rounds, directory, limit_seconds), console=console)
    for each in measured:
        console.print(table_of(each))
    for line in versions_of(measured):
        console.print(escape(line), style="dim", highlight=False)
    place = directory / f"peers-{workload}.png"
    picture_of(measured).savefig(place)
    console.print(f"picture: {place}; every run: {directory / KEPT}", highlight=False)
    if document is not None:
        about = machine()
        told = f"{about['cores']} cores of {about['processor']}, {about['memory_gib']} GiB"
        fill_in(document, "peers", markdown_of(measured, told))
    return int(any(not run.has_figures for each in measured for run in each.runs.get("penstock", ())))


def _workload(name: str, rows: int) -> Workload:
    """Make a workload; with fewer rows than it has by itself, fewer keys and smaller files in proportion."""
    usual = Workload(name=name)
    if rows >= usual.rows:
        return Workload(name=name, rows=rows)
    share = rows / usual.rows
    return Workload(
        rows=rows,
        name=name,
        keys=max(1, round(usual.keys * share)),
        rows_per_file=max(1, round(usual.rows_per_file * share)),
    )


def _measure(*contests: Contest, console: Console, turns: int = 1) -> list[Measured]:
    """Run contests in turn, as often as asked on top of their own rounds, and keep every run as it comes."""
    series = new_series()
    outcomes = []
    for turn in range(turns):
        for one in contests:
            for each in one.run(console.log):
                outcome = replace(each, turn=each.turn + turn)
                append(one.home / KEPT, series, one.workload.label, outcome)
                outcomes.append(outcome)
    return grouped(series, contests[0].workload.label, outcomes)


@bench.command("scale")
def scale(
    *,
    rounds: Rounds = 3,
    limit_seconds: Limit = 900.0,
    rows: Rows = 1_000_000,
    directory: Home = Path(".bench"),
) -> None:
    """Hold 200 queries against one, and ten times the state against one, on Penstock."""
    console = Console()
    directory.mkdir(parents=True, exist_ok=True)
    series = new_series()
    for title, bound, comparison in (
        ("200 queries against one, time taken", MORE_QUERIES, more_queries(_workload("w1", rows))),
        ("ten times the state, time of a batch", MORE_STATE, more_state(rows)),
    ):
        found: dict[str, list[Outcome]] = {comparison.less.name: [], comparison.more.name: []}
        for load, outcome in comparison.run(rounds, limit_seconds, directory, console.log):
            append(directory / KEPT, series, load.workload.label, outcome)
            found[load.name].append(outcome)
        less, more = found.values()
        times = ratios(less, more)
        if not times:
            raise RunError(f"{title}: nothing to show: {less[0].verdict}; {more[0].verdict}")
        console.print(f"{title}: {middle(times)} times, at most {bound:g} wanted", highlight=False)


@bench.command("latency")
def latency(
    *,
    seconds: Annotated[float, typer.Option(help="how long each engine is fed at each rate")] = 90.0,
    rows: Rows = 1_000_000,
    rate: Annotated[
        float | None,
        typer.Option(
            help="the sustainable rate, input rows a second; else measured first", show_default=False
        ),
    ] = None,
    directory: Home = Path(".bench"),
) -> None:
    """Time from a row's arrival in the source to its result in the sink, at three loads, against Spark at its best."""
    console = Console()
    directory.mkdir(parents=True, exist_ok=True)
    rates = dict.fromkeys(ENGINES, rate) if rate else _sustainable(rows, directory, console)
    table = Table("engine", "load", "input rows/s", "results", "median s", "99 % within s")
    for share in SHARES:
        for engine, sustainable in rates.items():
            console.log(f"{PEERS[engine].title} at {share:.0%} of {sustainable:,.0f} rows/s")
            found = measure(engine, share, sustainable, seconds)
            append_line(directory / "latency.jsonl", asdict(found))
            figures = (f"{found.rate:,.0f}", f"{found.results:,}", f"{found.median:.2f}", f"{found.p99:.2f}")
            table.add_row(PEERS[engine].title, f"{share:.0%}", *figures)
    console.print(table)


def _sustainable(rows: int, directory: Path, console: Console) -> dict[str, float]:
    """Measure the steady throughput of the engines whose latency is compared."""
    load = _workload("w1", rows)
    one = _measure(Contest(load, ENGINES, query_sets(["N1"]), 1, directory), console=console)[0]
    for engine, runs in one.runs.items():
        if not runs[0].has_figures:
            raise RunError(f"the rate that {engine} sustains is not known: {runs[0].verdict}")
    return {engine: runs[0].steady_rate for engine, runs in one.runs.items()}


@bench.command("breakdown")
def breakdown(
    *,
    queries: Annotated[str, typer.Option(help=f"a query set, one of {', '.join(QUERY_SETS)}")] = "N1",
    rows: Rows = 4_000_000,
    directory: Home = Path(".bench"),
) -> None:
    """Divide the CPU time of a run of Penstock among Python workers, JVM tasks, compilers and the rest."""
    console = Console()
    directory.mkdir(parents=True, exist_ok=True)
    (chosen,) = query_sets([queries]).values()
    data = Workload(rows=rows).write(directory)
    console.log(f"{queries} over {2 * rows:,} rows")
    found = measure_breakdown(data, chosen, 2 * rows)
    table = Table("what", "CPU ms for 200,000 rows")
    per = found.per(200_000)
    for kind, spent in per.items():
        table.add_row(kind, f"{spent:,.0f}")
    table.add_row("all", f"{sum(per.values()):,.0f}", style="bold")
    console.print(table)
    console.print(f"{found.rows / found.seconds:,.0f} input rows/s in the second half", highlight=False)


@bench.command("strategies")
def side_by_side(
    script: Annotated[
        Path | None,
        typer.Argument(metavar="[SCRIPT]", help="queries of your own; else w1 with N12f", show_default=False),
    ] = None,
    rounds: Rounds = 3,
    directory: Home = Path(".bench"),
) -> None:
    """Run the strategies side by side on the same input: mem-opt, cpu-opt, pull-up, push-down, isolated."""
    console = Console()
    directory.mkdir(parents=True, exist_ok=True)
    expected = None
    if script is None:
        data, queries = Workload().write(directory), QUERY_SETS["N12f"]
        expected = {f"q{number}": count for number, count in enumerate(true_counts(data, queries).results)}
        script = directory / "n12f.sql"
        script.write_text(as_script(data, queries, NOOP), encoding="utf-8")
    found = contest(script, rounds, console.log, expected)
    console.print(strategies_table(found))
    judge_of_all = "DuckDB's" if expected else "each other's"
    results = sum(found[SHOWN[0]][0].results.values())
    console.print(f"every strategy's counts equal {judge_of_all}: {results:,} results")
    picture(found).savefig(directory / "strategies.png")
    console.print(f"picture: {directory / 'strategies.png'}", highlight=False)


@bench.command("first")
def first(rounds: Rounds = 3, rows: Rows = 1_000_000, directory: Home = Path(".bench")) -> None:
    """One 30 s window on Penstock and on Spark's own join; the same with twelve windows on Penstock."""
    console = Console()
    directory.mkdir(parents=True, exist_ok=True)
    load = _workload("w1", rows)
    both = Contest(load, ("penstock", "spark"), query_sets(["N1"]), 1, directory)
    ours = Contest(load, ("penstock",), query_sets(["N12"]), 1, directory)
    one, twelve = _measure(both, ours, console=console, turns=rounds)
    for each in (one, twelve):
        console.print(table_of(each))
    faster = ratios(one.runs["penstock"], one.runs["spark"])
    longer = ratios(one.runs["penstock"], twelve.runs["penstock"])
    if not faster or not longer:
        raise RunError("an engine gave no figures that can be compared: see the table")
    console.print(f"Penstock against Spark's join, one window: {middle(faster)} times")
    console.print(f"twelve windows against one, time taken:    {middle(longer)} times")
