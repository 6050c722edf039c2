"""``penstock lab``: the figures of the papers, with the claims they check.

To add a paper: write its module, and name its `PAPER` in `PAPERS`.

In:  arguments.  Out: tables on the terminal; pictures in files.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from benchmarks.printing import table
from papers import paper1, paper2, paper3, paper4, paper5
from papers.figure import CHECK, Figure, Paper
from penstock.cli.spark_talk import quiet_spark
from penstock.errors import InputError, did_you_mean


class Where(StrEnum):
    """Where an experiment is run."""

    virtual = "virtual"
    spark = "spark"


PAPERS: tuple[Paper, ...] = (paper1.PAPER, paper2.PAPER, paper3.PAPER, paper4.PAPER, paper5.PAPER)

lab = typer.Typer(help="Reproduce the papers' figures.", add_completion=False)


def main(arguments: list[str]) -> int:
    """Reproduce figures."""
    return lab(args=arguments, prog_name="penstock lab", standalone_mode=False) or 0


@lab.command(no_args_is_help=True)
def figures(
    names: Annotated[
        list[str],
        typer.Argument(metavar="NAME...", help="figures, `all` of them, or `list`", show_default=False),
    ],
    *,
    out: Annotated[Path, typer.Option(metavar="DIR", help="where pictures are put")] = Path("lab-out"),
    seed: Annotated[int, typer.Option(help="of the random streams")] = 1,
    on: Annotated[
        Where, typer.Option("--on", help="in virtual time, or measured on the Spark engine")
    ] = Where.virtual,
    strict: Annotated[bool, typer.Option("--strict", help="exit with 1 if a claim does not hold")] = False,
    streams: Annotated[
        str,
        typer.Option(
            metavar="A,B", help="for paper 3: join these, such as punct-asc-100-40,cluster-random-30"
        ),
    ] = "",
) -> int:
    """Reproduce figures of the papers: a table, a picture, and each claim, held or not."""
    console = Console()
    by_name = {each.name: (paper, each) for paper in PAPERS for each in paper.figures}
    if names == ["list"]:
        rows = [
            (name, paper.number, f"{each.seconds} s", each.title) for name, (paper, each) in by_name.items()
        ]
        console.print(table("", ("name", "paper", "takes about", "what it shows"), rows))
        return 0
    for name in names if names != ["all"] else ():
        if name not in by_name:
            raise InputError(f"the lab has no figure {name}: {did_you_mean(name, by_name)}")
    chosen = list(by_name) if names == ["all"] else names
    sweeps = {name: _sweep(*by_name[name], seed, streams, on) for name in chosen}
    held = [
        _reproduce(by_name[name][1], sweeps[name], out=out, seed=seed, on=on, console=console)
        for name in chosen
    ]
    return int(strict and not all(held))


def _sweep(paper: Paper, figure: Figure, seed: int, streams: str, on: Where) -> Any:
    """Make the sweep of a figure's paper, with the streams that are asked for."""
    if not streams:
        return paper.sweep(seed)
    if paper is not paper3.PAPER or on is not Where.virtual:
        raise InputError(
            f"--streams is for p3-fig8 to p3-fig12 in virtual time, not for {figure.name} on {on}"
        )
    return paper3.with_streams(seed, streams)


def _reproduce(figure: Figure, sweep: Any, *, out: Path, seed: int, on: Where, console: Console) -> bool:
    """Print a figure's tables and claims, save its picture, and say whether every claim held."""
    console.rule(f"{figure.name}: {figure.title}")
    if on is Where.virtual:
        outcome = figure.reproduce(sweep)
    elif figure.on_spark is None:
        able = ", ".join(each.name for other in PAPERS for each in other.figures if each.on_spark)
        raise InputError(f"{figure.name} cannot be measured on the Spark engine: these can: {able}")
    else:
        with quiet_spark(debug=False):
            outcome = figure.on_spark(seed, console.log)
    for shown in outcome.tables:
        console.print(shown)
    for claim in outcome.claims:
        mark = "[red]✗[/]" if not claim.held else "[dim]=[/]" if claim.kind == CHECK else "[green]✓[/]"
        console.print(f"{mark} {escape(str(claim))}", highlight=False)
    for note in outcome.notes:
        console.print(escape(note), style="dim", highlight=False)
    for picture in outcome.pictures:
        out.mkdir(parents=True, exist_ok=True)
        path = out / f"{figure.name}{'-spark' if on is Where.spark else ''}.png"
        picture.savefig(path)
        console.print(f"picture: {path}", highlight=False)
    return all(claim.held for claim in outcome.claims)
