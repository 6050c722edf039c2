"""The lab's part of the command line: ``penstock bench``.

In:  arguments.  Out: tables on the terminal, JSON lines in a file.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from penstock.errors import InputError
from penstock.lab.bench import Run, compare, middle, ratios
from penstock.lab.workloads import Workload

bench = typer.Typer(help="Measure, side by side with other engines.", no_args_is_help=True)

ONE, TWELVE, SPARK = Run("penstock", "N1"), Run("penstock", "N12"), Run("spark", "N1")


def main(command: str, arguments: list[str]) -> int:
    """Run one of the lab's commands; `penstock.app` hands them over by name."""
    if command != "bench":
        raise InputError(f"the lab has no command {command}: it has bench")
    bench(args=arguments, prog_name="penstock bench", standalone_mode=False)
    return 0


@bench.callback()
def _benches() -> None:
    """Measure, side by side with other engines."""


@bench.command("first")
def first(
    rounds: Annotated[int, typer.Option(help="how often each engine runs")] = 3,
    directory: Annotated[Path, typer.Option(help="where data and results are kept")] = Path(".bench"),
) -> None:
    """One 30 s window on Penstock and on Spark's own join; the same with twelve windows on Penstock."""
    console = Console()
    outcomes = compare(Workload(), (ONE, SPARK, TWELVE), rounds, directory, console.log)
    table = Table("run", "steady rows/s", "CPU s", "results")
    for each, mine in outcomes.items():
        rates = [outcome.steady_rate for outcome in mine]
        table.add_row(
            each.name,
            middle(rates),
            middle([outcome.cpu_seconds for outcome in mine]),
            f"{sum(mine[0].results):,}",
        )
    console.print(table)
    console.print(f"Penstock against Spark's join, one window: {middle(ratios(outcomes, ONE, SPARK))} times")
    console.print(f"twelve windows against one, time taken:    {middle(ratios(outcomes, ONE, TWELVE))} times")
    with (directory / "results.jsonl").open("a") as lines:
        for each, mine in outcomes.items():
            lines.writelines(json.dumps({"run": each.name, **asdict(outcome)}) + "\n" for outcome in mine)
