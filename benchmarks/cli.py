"""``penstock bench``: Penstock side by side with other engines, and with itself.

To add a benchmark: write a module with a function that has the options as arguments, and name it in `BENCHMARKS`.

In:  arguments.  Out: tables on the terminal.
"""

from __future__ import annotations

from typing import Annotated

import typer

from benchmarks.against_peers import first, peers
from benchmarks.aggregates import aggregates
from benchmarks.breakdown import breakdown
from benchmarks.idle import idle
from benchmarks.latency import latency
from benchmarks.multiway import multiway
from benchmarks.overload import overload
from benchmarks.punctuations import punctuations
from benchmarks.scale import scale
from benchmarks.sinks import sinks
from benchmarks.start import start
from benchmarks.strategies import strategies
from penstock.errors import InputError

BENCHMARKS = {
    each.__name__: each
    for each in (
        peers,
        aggregates,
        punctuations,
        multiway,
        scale,
        latency,
        overload,
        idle,
        sinks,
        start,
        breakdown,
        strategies,
        first,
    )
}


bench = typer.Typer(help="Measure, side by side with other engines.", no_args_is_help=True)
for name, benchmark in BENCHMARKS.items():
    bench.command(name)(benchmark)


def main(arguments: list[str]) -> int:
    """Run a benchmark."""
    return bench(args=arguments, prog_name="penstock bench", standalone_mode=False) or 0


@bench.callback(invoke_without_command=True)
def _benches(
    context: typer.Context,
    *,
    side_by_side: Annotated[
        bool, typer.Option("--strategies", help="the same as the command `strategies`, with its defaults")
    ] = False,
) -> None:
    """Measure, side by side with other engines."""
    if side_by_side and context.invoked_subcommand is None:
        strategies()
    elif context.invoked_subcommand is None:
        names = ", ".join(sorted(BENCHMARKS))
        raise InputError(f"penstock bench needs a command, one of {names}; --help says more")
