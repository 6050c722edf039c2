"""The options that benchmarks have in common, so that they are called and explained alike."""

from __future__ import annotations

import compileall
from pathlib import Path
from typing import Annotated

import typer

import penstock
from benchmarks.workloads import Workload

Rounds = Annotated[int, typer.Option(help="how often each run is made")]
Home = Annotated[Path, typer.Option(metavar="DIR", help="where data, peers, results and pictures are kept")]
RowCount = Annotated[int, typer.Option(help="rows of each stream; fewer are for trying out")]
Document = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="put the tables between the markers <!-- peers --> of this file"),
]
Script = Annotated[
    Path | None,
    typer.Argument(metavar="[SCRIPT]", help="queries of your own; else w1 with N12f", show_default=False),
]
Limit = Annotated[float, typer.Option(help="seconds that a run may take before it is stopped")]

HOME = Path(".bench")
ROWS = 1_000_000
LIMIT = 900.0


def made(directory: Path) -> Path:
    """Make the directory in which a benchmark keeps things.

    Penstock's own modules are compiled once, as pip compiled those of its rivals: else a run from a checkout pays for
    it, every time where Python is told not to write bytecode.
    """
    directory.mkdir(parents=True, exist_ok=True)
    compileall.compile_dir(Path(penstock.__file__).parent, quiet=2)
    return directory


def workload(name: str, rows: int) -> Workload:
    """Make a workload; with fewer rows than it has by itself, fewer keys and smaller files in proportion."""
    usual = Workload(name=name)
    keys, per_file = (
        max(1, round(each * min(1.0, rows / usual.rows))) for each in (usual.keys, usual.rows_per_file)
    )
    return Workload(rows=rows, name=name, keys=keys, rows_per_file=per_file)
