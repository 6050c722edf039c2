"""``penstock bench peers``: the same input and the same queries on every engine, alternating.

In:  arguments.  Out: tables on the terminal, a picture, JSON lines, and tables in a document if asked for.
"""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from penstock.lab.bench.contest import KEPT, Contest, machine, read, run_and_keep
from penstock.lab.bench.options import HOME, LIMIT, ROWS, Document, Home, Limit, Rounds, Rows, made
from penstock.lab.bench.options import workload as workload_of
from penstock.lab.bench.peers import PEERS
from penstock.lab.bench.tables import fill_in, markdown_of, picture_of, table_of, targets_table, versions_of
from penstock.lab.bench.targets import judge
from penstock.lab.workloads import MAKERS, QUERY_SETS, query_sets


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
    limit_seconds: Limit = LIMIT,
    rows: Rows = ROWS,
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
        console.print(targets_table(judge(read(directory / KEPT), load)))
        return 0
    chosen = tuple(PEERS) if engines == "all" else tuple(engines.split(","))
    sets = query_sets(queries.split(","))
    contest = Contest(load, chosen, sets, rounds, made(directory), limit_seconds)
    measured = run_and_keep(contest, console.log)
    for each in measured:
        console.print(table_of(each))
    for line in versions_of(measured):
        console.print(escape(line), style="dim", highlight=False)
    path = directory / f"peers-{workload}.png"
    picture_of(measured).savefig(path)
    console.print(f"picture: {path}; every run: {directory / KEPT}", highlight=False)
    if document is not None:
        about = machine()
        told = f"{about['cores']} cores of {about['processor']}, {about['memory_gib']} GiB"
        fill_in(document, "peers", markdown_of(measured, told))
    return int(any(not run.has_figures for each in measured for run in each.runs.get("penstock", ())))
