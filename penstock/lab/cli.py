"""The lab's part of the command line: ``penstock lab`` and ``penstock bench``.

In:  arguments.  Out: tables on the terminal; pictures, or JSON lines, in files.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from penstock.app.spark_talk import quiet_spark
from penstock.errors import InputError, did_you_mean
from penstock.lab.bench import Run, compare, middle, ratios
from penstock.lab.figures import FIGURES, Figure
from penstock.lab.strategies import SHOWN, contest, n12f_counts, n12f_script, picture
from penstock.lab.workloads import Workload


class Where(StrEnum):
    """Where an experiment is run."""

    virtual = "virtual"
    spark = "spark"


lab = typer.Typer(help="Reproduce the papers' figures.", add_completion=False)

bench = typer.Typer(help="Measure, side by side with other engines.", no_args_is_help=True)

ONE, TWELVE, SPARK = Run("penstock", "N1"), Run("penstock", "N12"), Run("spark", "N1")


def main(command: str, arguments: list[str]) -> int:
    """Run one of the lab's commands; `penstock.app` hands them over by name."""
    commands = {"lab": lab, "bench": bench}
    if command not in commands:
        raise InputError(f"the lab has no command {command}: {did_you_mean(command, commands)}")
    return commands[command](args=arguments, prog_name=f"penstock {command}", standalone_mode=False) or 0


@lab.command(no_args_is_help=True)
def figures(
    names: Annotated[
        list[str],
        typer.Argument(metavar="NAME...", help="figures, `all` of them, or `list`", show_default=False),
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="where pictures are put")] = Path("lab-out"),
    seed: Annotated[int, typer.Option(help="of the random streams")] = 1,
    on: Annotated[
        Where, typer.Option("--on", help="in virtual time, or measured on the Spark engine")
    ] = Where.virtual,
    strict: Annotated[bool, typer.Option("--strict", help="exit with 1 if a claim does not hold")] = False,
) -> int:
    """Reproduce figures of the papers: a table, a picture, and each claim, held or not."""
    console = Console()
    if names == ["list"]:
        table = Table("name", "paper", "what it shows")
        for each in FIGURES:
            table.add_row(each.name, str(each.paper), each.title)
        console.print(table)
        return 0
    held = [_reproduce(each, out, seed, on, console) for each in _chosen(names)]
    return int(strict and not all(held))


def _chosen(names: list[str]) -> list[Figure]:
    """Find the figures by name, in the order asked for."""
    known = {each.name: each for each in FIGURES}
    if names == ["all"]:
        return list(FIGURES)
    for name in names:
        if name not in known:
            raise InputError(f"the lab has no figure {name}: {did_you_mean(name, known)}")
    return [known[name] for name in names]


def _reproduce(figure: Figure, out: Path, seed: int, on: Where, console: Console) -> bool:
    """Print a figure's tables and claims, save its picture, and say whether every claim held."""
    console.rule(f"{figure.name}: {figure.title}")
    if on is Where.spark and figure.on_spark is None:
        can = ", ".join(each.name for each in FIGURES if each.on_spark)
        raise InputError(f"{figure.name} cannot be measured on the Spark engine: these can: {can}")
    if on is Where.spark and figure.on_spark:
        with quiet_spark(debug=False):
            outcome = figure.on_spark(seed, console.log)
    else:
        outcome = figure.reproduce(seed)
    for table in outcome.tables:
        console.print(table)
    for claim in outcome.claims:
        console.print(f"{'[green]✓[/]' if claim.held else '[red]✗[/]'} {escape(str(claim))}", highlight=False)
    for note in outcome.notes:
        console.print(escape(note), style="dim", highlight=False)
    if outcome.picture is not None:
        out.mkdir(parents=True, exist_ok=True)
        path = out / f"{figure.name}{'-spark' if on is Where.spark else ''}.png"
        outcome.picture.savefig(path)
        console.print(f"picture: {path}", highlight=False)
    return all(claim.held for claim in outcome.claims)


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
        raise InputError("penstock bench needs a command: first or strategies; --help says more")


@bench.command("strategies")
def side_by_side(
    script: Annotated[
        Path | None,
        typer.Argument(metavar="[SCRIPT]", help="queries of your own; else w1 with N12f", show_default=False),
    ] = None,
    rounds: Annotated[int, typer.Option(help="how often each strategy runs")] = 3,
    directory: Annotated[Path, typer.Option(help="where data and the picture are kept")] = Path(".bench"),
) -> None:
    """Run the strategies side by side on the same input: mem-opt, cpu-opt, pull-up, push-down, isolated."""
    console = Console()
    directory.mkdir(parents=True, exist_ok=True)
    expected = None
    if script is None:
        data = directory / "w1"
        Workload().write(data)
        script, expected = directory / "n12f.sql", n12f_counts(data.resolve())
        script.write_text(n12f_script(data.resolve()), encoding="utf-8")
    found = contest(script, rounds, console.log, expected)
    table = Table("strategy", "steady rows/s", "against mem-opt", "CPU s", "state rows", "pairs joined")
    best = found[SHOWN[0]]
    for strategy, mine in found.items():
        shares = [one.steady_rate / other.steady_rate for one, other in zip(mine, best, strict=True)]
        table.add_row(
            strategy,
            middle([each.steady_rate for each in mine]),
            middle(shares),
            middle([each.cpu_seconds for each in mine]),
            f"{mine[0].state_rows:,}",
            f"{mine[0].pairs:,}",
        )
    console.print(table)
    judge = "DuckDB's" if expected else "each other's"
    console.print(f"every strategy's counts equal {judge}: {sum(best[0].results.values()):,} results")
    picture(found).savefig(directory / "strategies.png")
    console.print(f"picture: {directory / 'strategies.png'}", highlight=False)


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
