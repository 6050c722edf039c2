"""The lab's part of the command line: ``penstock lab``, and the door to ``penstock bench`` (`penstock.lab.bench_cli`).

In:  arguments.  Out: tables on the terminal; pictures in files.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from penstock.app.spark_talk import quiet_spark
from penstock.errors import InputError, did_you_mean
from penstock.lab.bench_cli import bench
from penstock.lab.figures import FIGURES, Figure


class Where(StrEnum):
    """Where an experiment is run."""

    virtual = "virtual"
    spark = "spark"


lab = typer.Typer(help="Reproduce the papers' figures.", add_completion=False)


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
