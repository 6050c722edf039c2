"""The command line: each command parses its arguments and calls one function of this package.

Exit status: 0 done, 1 the run failed, 2 the input is wrong.  Errors go to standard error as one message without a
traceback; ``--debug`` shows the traceback and Spark's log.

Modules that import pyspark or Numba are imported inside the commands, so that the others start at once.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from penstock import __version__
from penstock.cli.demos import DEFAULT_DEMO, DEMOS, run_named
from penstock.engine.spark.spark_errors import short_message
from penstock.errors import InputError, PenstockError

app = typer.Typer(
    name="penstock",
    help="Many continuous window-join queries over the same streams, run as one shared plan on Spark.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

_DEBUG_VARIABLE = "PENSTOCK_DEBUG"
_IN_CHECKOUT = {"lab": "papers.cli", "bench": "benchmarks.cli"}
"""Modules of the commands that only a checkout of the source has."""

PlanFormat = StrEnum("PlanFormat", ["text", "json", "mermaid"])
StatusFormat = StrEnum("StatusFormat", ["text", "json"])
ArchiveAction = StrEnum("ArchiveAction", ["make", "remove"])
RowFormat = StrEnum("RowFormat", ["table", "csv", "json"])

Script = Annotated[
    Path, typer.Argument(metavar="SCRIPT", help="A file of SQL: see docs/sql.md.", show_default=False)
]
State = Annotated[
    str, typer.Option("--state", metavar="DIR", help="The state directory of a run.", show_default=False)
]
OwnState = Annotated[
    str | None,
    typer.Option(
        "--state",
        metavar="DIR",
        help="Where the script's state is kept.  [default: .penstock/<script's name>]",
        show_default=False,
    ),
]
AcceptLoss = Annotated[
    bool, typer.Option("--accept-loss", help="Run even if results of the state's queries are lost.")
]


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit status."""
    try:
        app(args=arguments, prog_name="penstock")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except InputError as error:
        return _print_error(error, 2)
    except PenstockError as error:
        return _print_error(error, 1)
    except Exception as error:  # noqa: BLE001 - the last place to print it as one message
        return _print_usage(error) or _print_error(error, 1)
    return 0


def _print_usage(error: Exception) -> int:
    """Print an error of a lab command's arguments, and return its exit status; 0 for other errors."""
    show, status = getattr(error, "show", None), getattr(error, "exit_code", 0)
    if show is not None:
        show()
    return int(status)


def _print_error(error: Exception, status: int) -> int:
    """Print an error as one message, and return the exit status."""
    if is_debug():
        traceback.print_exception(error, file=sys.stderr)
        return status
    lines = [f"penstock: {error}"]
    if not isinstance(error, PenstockError):
        lines = [
            f"penstock: {type(error).__name__}: {short_message(error)}",
            "penstock --debug COMMAND shows where it happened",
        ]
    sys.stderr.write("\n".join([*lines, *getattr(error, "__notes__", [])]) + "\n")
    return status


def is_debug() -> bool:
    """Check whether tracebacks and Spark's log are wanted."""
    return bool(os.environ.get(_DEBUG_VARIABLE))


@app.callback(invoke_without_command=True)
def _options(
    context: typer.Context,
    *,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks and Spark's log.")] = False,
) -> None:
    """Many continuous window-join queries over the same streams, run as one shared plan on Spark."""
    if debug:
        os.environ[_DEBUG_VARIABLE] = "1"
    if version:
        typer.echo(f"penstock {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(2)


@app.command()
def demo(
    name: Annotated[str, typer.Argument(metavar="NAME", help=f"One of: {', '.join(DEMOS)}.")] = DEFAULT_DEMO,
    *,
    keep: Annotated[
        Path | None,
        typer.Option("--keep", metavar="DIR", help="Keep data, state and results here.", show_default=False),
    ] = None,
) -> None:
    """See Penstock work on generated streams.

    A demo takes about a minute.  sharing: a dozen queries on sensor streams, run as one.  auction: answers that come
    early, because rows promise that no more rows of an item will come.  sensors: four streams joined without a window.
    """
    run_named(name, keep, debug=is_debug())


@app.command()
def run(
    script: Script,
    *,
    state: OwnState = None,
    once: Annotated[bool, typer.Option("--once", help="Process all available input, then end.")] = False,
    accept_loss: AcceptLoss = False,
) -> None:
    """Run a script's queries until stopped.

    Ctrl-C or SIGTERM stops it; the next run on the same state continues.
    """
    from penstock.cli.load import default_state, load  # noqa: PLC0415 - pyarrow

    load(script)  # errors in a script are reported before pyspark is imported
    from penstock.cli.run import run_script  # noqa: PLC0415 - imports pyspark

    where = state or str(default_state(script))
    run_script(script, where, once=once, accept_loss=accept_loss, debug=is_debug())


@app.command()
def explain(
    script: Script,
    *,
    state: OwnState = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="Also show the chain of each other strategy, and its savings.")
    ] = False,
    form: Annotated[PlanFormat, typer.Option("--format", help="How to write it.")] = PlanFormat.text,
) -> None:
    """Print a script's shared plan and its cost.

    Costs use the measurements in the script's state.  Nothing is started.
    """
    from penstock.cli.load import default_state, load  # noqa: PLC0415 - pyarrow

    loaded = load(script)
    if form is PlanFormat.mermaid:
        from penstock.plan.plan_export import plan_mermaid  # noqa: PLC0415

        typer.echo(plan_mermaid(loaded.plan).rstrip("\n"))
        return
    from penstock.cli.explain import explained  # noqa: PLC0415

    where = state or str(default_state(script))
    typer.echo(explained(loaded, where, form=form.value, compare=compare).rstrip("\n"))


@app.command()
def calibrate(
    *,
    state: Annotated[
        str | None,
        typer.Option("--state", metavar="DIR", help="Keep the prices with this state.", show_default=False),
    ] = None,
) -> None:
    """Measure the cost of work on this machine.

    The strategies cpu-opt and auto use these prices.  This takes about half a minute.
    """
    from penstock.cli.explain import calibrate as measure  # noqa: PLC0415 - pyarrow

    measure(state, debug=is_debug())


@app.command()
def plan(
    script: Script,
    *,
    state: OwnState = None,
    accept_loss: AcceptLoss = False,
) -> None:
    """Show what a run of a script would change.

    It lists queries, slices, state and cost, and changes nothing.  A change that would lose results is refused with
    exit status 2.
    """
    from penstock.cli.load import default_state, load  # noqa: PLC0415 - pyarrow
    from penstock.cli.plan import change_lines  # noqa: PLC0415

    for line in change_lines(load(script), state or str(default_state(script)), accept_loss=accept_loss):
        typer.echo(line)


@app.command()
def add(script: Script, state: State) -> None:
    """Add a script's queries to a running engine.

    It prints from when on each query is complete.
    """
    from penstock.cli.load import read_script  # noqa: PLC0415 - pyarrow
    from penstock.cli.look import State as StateView  # noqa: PLC0415
    from penstock.engine.control import ask  # noqa: PLC0415

    StateView.open(state).check_running()
    typer.echo(ask(state, {"do": "add", "script": read_script(script)}))


@app.command()
def drop(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="The query's name.", show_default=False)],
    state: State,
) -> None:
    """Drop a query of a running engine.

    It prints where the results of the query stay.
    """
    from penstock.cli.look import State as StateView  # noqa: PLC0415 - pyarrow
    from penstock.engine.control import ask  # noqa: PLC0415

    StateView.open(state).check_running()
    typer.echo(ask(state, {"do": "drop", "query": query}))


@app.command()
def status(
    state: State,
    *,
    form: Annotated[StatusFormat, typer.Option("--format", help="How to write it.")] = StatusFormat.text,
) -> None:
    """Show the progress of a run.

    It works from another process, and also after the end of the run.
    """
    from penstock.cli.look import State as StateView  # noqa: PLC0415 - pyarrow
    from penstock.cli.show import console, detail_tables, status_view  # noqa: PLC0415

    view = StateView.open(state)
    now = view.status()
    if form is StatusFormat.json:
        typer.echo(json.dumps(now.to_json(), indent=2))
        return
    out = console()
    out.print(status_view(view.plan, now), *detail_tables(now), sep="\n")


@app.command()
def results(
    name: Annotated[
        str,
        typer.Argument(
            metavar="QUERY", help="The query's name; with --late a stream's name.", show_default=False
        ),
    ],
    state: State,
    *,
    late: Annotated[
        bool, typer.Option("--late", help="Print a stream's rows that were set aside, with the reasons.")
    ] = False,
    limit: Annotated[
        int | None,
        typer.Option(
            min=0, help="The most rows to print.  [default: 20 in a table, else all]", show_default=False
        ),
    ] = None,
    form: Annotated[RowFormat, typer.Option("--format", help="How to write rows.")] = RowFormat.table,
    count: Annotated[bool, typer.Option("--count", help="Print only their number.")] = False,
) -> None:
    """Print a query's committed results.

    They are in order if the query has an order.  It also works during a run.  With --late, print the rows of a stream
    that were set aside: too late, without an event time, or breaking a promise.
    """
    from penstock.cli.look import State as StateView  # noqa: PLC0415 - pyarrow
    from penstock.cli.rows import write_rows  # noqa: PLC0415

    view = StateView.open(state)
    if count:
        typer.echo(view.count_late(name) if late else view.count(name, debug=is_debug()))
        return
    most = 20 if limit is None and form is RowFormat.table else limit
    found = (view.late if late else view.results)(name, most, debug=is_debug())
    write_rows(found.rows, form, found.total, "late rows" if late else "results")


@app.command()
def repair(
    state: State,
    *,
    yes: Annotated[
        bool, typer.Option("--yes", help="Repair it; without this option, only print the steps.")
    ] = False,
) -> None:
    """Repair a state that a run cannot continue.

    Files are damaged or lost, or a checkpoint does not agree with the journal.  Files with a second copy are written
    again.  Otherwise the state goes back to the last point at which it is whole, and later input is read again.  No
    engine may run on the state.  If it cannot be repaired, nothing is changed and the exit status is 1.
    """
    from penstock.cli.repair import repair_state  # noqa: PLC0415 - pyarrow

    for line in repair_state(state, yes=yes):
        typer.echo(line)


@app.command()
def doctor(
    *,
    state: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="The directory of a state: its disk is checked.", show_default=False
        ),
    ] = None,
    class_archive: Annotated[
        ArchiveAction | None,
        typer.Option(
            help="Make an archive of Spark's classes, with which Spark starts faster (about 200 MiB in your cache, "
            "a minute), or remove it.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Check Python, Java, Spark, memory and disk.

    Each finding is printed with what to do.
    """
    from penstock.cli.doctor import checks, print_checks  # noqa: PLC0415
    from penstock.cli.show import console  # noqa: PLC0415
    from penstock.cli.spark_talk import use_packaged_java  # noqa: PLC0415
    from penstock.engine.spark.class_archive import make_archive, remove_archives  # noqa: PLC0415

    use_packaged_java()
    if class_archive is not None:
        typer.echo(make_archive() if class_archive is ArchiveAction.make else remove_archives())
    outcomes = checks(state)
    print_checks(outcomes, console())
    raise typer.Exit(0 if all(check.ok for check in outcomes) else 1)


_PASSED_ON_SETTINGS = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


@app.command(context_settings=_PASSED_ON_SETTINGS, add_help_option=False)
def lab(context: typer.Context) -> None:
    """Reproduce a figure of a paper.

    It prints a table, draws the picture, and checks the claims.  It needs a checkout of the source.
    """
    raise typer.Exit(_in_checkout("lab", context.args))


@app.command(context_settings=_PASSED_ON_SETTINGS, add_help_option=False)
def bench(context: typer.Context) -> None:
    """Measure side by side with other engines.

    It needs a checkout of the source.
    """
    raise typer.Exit(_in_checkout("bench", context.args))


def _in_checkout(command: str, arguments: list[str]) -> int:
    """Run a command of a package that is not installed with this one, found by its name."""
    try:
        module = import_module(_IN_CHECKOUT[command])
    except ModuleNotFoundError as error:
        raise InputError(
            f"penstock {command} needs a checkout of Penstock's source, and {error.name} is not installed here: "
            f"run make setup in the checkout, then .venv/bin/penstock {command}"
        ) from error
    return int(module.main(arguments) or 0)


if __name__ == "__main__":
    sys.exit(main())
