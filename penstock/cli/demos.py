"""The demos by name, for ``penstock demo NAME``.

A demo makes its streams, runs on them, shows what it is about, and ends by itself in about a minute.  To add one, write
a module with a function ``run_demo(keep)`` and add its line below.  Demos import the engine, so a module is imported
when it is asked for, after its first word and while Spark starts.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

import typer

from penstock.cli.spark_talk import quiet_spark
from penstock.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from pathlib import Path

USUAL = "sharing"
"""The demo that runs when none is named."""

DEMOS = {
    USUAL: ("penstock.cli.demo", "A dozen queries on sensor streams, run as one."),
    "sensors": ("penstock.cli.sensor_demo", "Four sensors, joined without a window, and a congestion."),
    "auction": ("penstock.cli.auction_demo", "An online auction whose rows promise what will not come."),
}
"""By name: the module, and its first word."""


def run_named(name: str, keep: Path | None, *, debug: bool = False) -> None:
    """Run one demo; its files go to `keep`, or away at the end."""
    if name not in DEMOS:
        raise InputError(f"there is no demo {name}: {did_you_mean(name, DEMOS)}")
    if keep and keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise InputError(f"{keep} is there already and not empty: give a new directory (--keep DIR)")
    module, first_word = DEMOS[name]
    typer.echo(f"{first_word} Starting Spark, making the streams ...\n")
    from penstock.engine.spark.early_start import start_early  # noqa: PLC0415 - imports pyspark
    from penstock.engine.spark.session import QUICK_START  # noqa: PLC0415 - see above

    with quiet_spark(debug=debug):
        start_early(QUICK_START)
        import_module(module).run_demo(keep)
