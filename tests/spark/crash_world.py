"""The queries and files of the crash tests: the same for the process that is killed and for the one that kills it."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from tests.oracle import Feed, Spec, Window
from tests.spark.world import COLUMNS, GRID, LATENESS, OTHER_COLUMNS, random_rows

if TYPE_CHECKING:
    from pathlib import Path


def crash_feeds(root: Path) -> tuple[Feed, Feed]:
    """Make two feeds that are read one file at a time."""
    one = {"maxFilesPerTrigger": "1"}
    return (
        Feed("Alpha", root / "alpha", COLUMNS, LATENESS, options=one),
        Feed("beta", root / "beta", OTHER_COLUMNS, LATENESS, options=one),
    )


def crash_specs(root: Path, *, callback: bool = False) -> list[Spec]:
    """Make queries with plain and computed outputs, with and without predicates, in three groups; one waits."""
    a, b = crash_feeds(root)
    ids = (("a.id", "i"), ("b.id", "j"), ("a.ts", "t"))
    both = ("a.k = b.k", "a.name = b.name")
    short, long = Window("both", 4 * GRID), Window("both", 20 * GRID)
    specs = [
        Spec("plain", a, b, ("a.k = b.k",), short, select=ids, sink="parquet"),
        Spec("picky", a, b, ("a.k = b.k",), long, ("a.v > 20", "b.v < 90"), ids, sink="parquet"),
        Spec("viewed", a, b, ("a.k = b.k",), long, ("a.v > 40",), ids),
        Spec(
            "computed",
            a,
            b,
            ("a.name = b.name",),
            long,
            ("a.v < b.v",),
            (*ids, ("a.v + b.v", "s")),
            sink="parquet",
        ),
        Spec("everything", a, b, ("a.name = b.name",), short),
        Spec("steady", a, b, both, long, select=ids, sink="parquet", order="sync-filter"),
        Spec("minded", a, b, both, short, ("a.v > 10",), ids, order="adaptive"),
    ]
    if callback:
        specs.append(Spec("called", a, b, ("a.k = b.k",), long, ("b.v > 50",), ids, sink="callback"))
    return specs


def write_files(feeds: tuple[Feed, Feed], files: int, rows: int, seed: int) -> None:
    """Write each feed's rows as so many files."""
    random = Random(seed)
    for feed in feeds:
        mine = random_rows(random, rows)
        feed.append_cut(mine, [len(mine) * n // files for n in range(1, files)])
