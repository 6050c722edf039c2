"""The demos by name, for ``penstock demo NAME``.

A demo makes its streams, runs on them, shows what it is about, and ends by itself in about a minute.  To add one, write
a module with a function ``run_demo(keep, debug=…)`` and add its line below.  Demos import pyspark, so a module is
imported when it is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from penstock.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from pathlib import Path

USUAL = "sharing"
"""The demo that runs when none is named."""

DEMOS = {
    USUAL: "penstock.app.demo",
    "auction": "penstock.app.auction_demo",
}
"""By name: the module."""


def run_named(name: str, keep: Path | None, *, debug: bool = False) -> None:
    """Run one demo; its files go to `keep`, or away at the end."""
    if name not in DEMOS:
        raise InputError(f"there is no demo {name}: {did_you_mean(name, DEMOS)}")
    import_module(DEMOS[name]).run_demo(keep, debug=debug)
