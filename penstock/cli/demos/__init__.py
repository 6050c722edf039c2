"""The demos of ``penstock demo NAME``: each makes its streams, runs queries on them, and ends in about a minute.

To add one, write a module with a subclass of `penstock.cli.demos.frame.Demo` and add a line to `DEMOS`.  Modules of
demos import the engine, so they are imported only when their demo runs, while Spark starts.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

import typer

from penstock.cli.spark_talk import quiet_spark
from penstock.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from pathlib import Path

DEFAULT_DEMO = "sharing"

DEMOS = {
    "sharing": ("penstock.cli.demos.sharing:SharingDemo", "A dozen queries on sensor streams, run as one."),
    "sensors": (
        "penstock.cli.demos.sensors:SensorDemo",
        "Four sensors, joined without a window, and a congestion.",
    ),
    "auction": (
        "penstock.cli.demos.auction:AuctionDemo",
        "An online auction whose rows promise that no more bids will come.",
    ),
}
"""The class of each demo, and its first line."""


def run_named(name: str, keep: Path | None, *, debug: bool = False) -> None:
    """Run one demo; keep its files in `keep`, or delete them at the end."""
    if name not in DEMOS:
        raise InputError(f"there is no demo {name}: {did_you_mean(name, DEMOS)}")
    if keep and keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise InputError(f"{keep} exists and is not empty: give a new directory (--keep DIR)")
    place, first_line = DEMOS[name]
    typer.echo(f"{first_line} Starting Spark, making the streams ...\n")
    from penstock.engine.spark.early_start import start_early  # noqa: PLC0415 - imports pyspark
    from penstock.engine.spark.session import QUICK_START  # noqa: PLC0415 - see above

    with quiet_spark(debug=debug):
        start_early(QUICK_START)
        module, made = place.split(":")
        getattr(import_module(module), made)().run(keep)
