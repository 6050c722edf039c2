"""The command ``penstock bench``, put together from the benchmarks.

To add one: write a module with a function that has the options as arguments, and name it here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.errors import InputError
from penstock.lab.bench.against_peers import peers
from penstock.lab.bench.breakdown import breakdown
from penstock.lab.bench.latency import latency
from penstock.lab.bench.scale import scale
from penstock.lab.bench.strategies import strategies

if TYPE_CHECKING:
    from collections.abc import Callable

BENCHMARKS: tuple[Callable[..., Any], ...] = (peers, scale, latency, breakdown, strategies)

bench = typer.Typer(help="Measure, side by side with other engines.", no_args_is_help=True)
for benchmark in BENCHMARKS:
    bench.command(benchmark.__name__)(benchmark)


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
        names = ", ".join(sorted(each.__name__ for each in BENCHMARKS))
        raise InputError(f"penstock bench needs a command, one of {names}; --help says more")
