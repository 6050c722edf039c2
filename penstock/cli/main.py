"""The command line: each command parses its arguments and calls one function of this package.

Exit status: 0 done, 1 the run failed, 2 the input is wrong.  What is wrong is said on standard error, in one
piece and without a trace; ``--debug`` shows the trace, and everything Spark says.

Modules that import pyspark or Numba are imported inside the commands, so that the others answer at once.
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
"""Modules of the commands that a checkout of the source has, and an installed package has not."""


class PlanFormat(StrEnum):
    """How a plan is written."""

    text = "text"
    json = "json"
    mermaid = "mermaid"


class StatusFormat(StrEnum):
    """How a status is written."""

    text = "text"
    json = "json"


class ArchiveAction(StrEnum):
    """What to do with the class archive."""

    make = "make"
    remove = "remove"


class RowFormat(StrEnum):
    """How rows are written."""

    table = "table"
    csv = "csv"
    json = "json"


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
    bool, typer.Option("--accept-loss", help="Go on even if results of the state's queries are lost.")
]


def main(arguments: list[str] | None = None) -> int:
    """Run one command and give its exit status."""
    try:
        app(args=arguments, prog_name="penstock")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except InputError as error:
        return _say(error, 2)
    except PenstockError as error:
        return _say(error, 1)
    except Exception as error:  # noqa: BLE001 - the last place to say it in a sentence
        return _usage(error) or _say(error, 1)
    return 0


def _usage(error: Exception) -> int:
    """Show what a command of the lab was given wrongly; 0 if this is another kind of error."""
    show, status = getattr(error, "show", None), getattr(error, "exit_code", 0)
    if show is not None:
        show()
    return int(status)


def _say(error: Exception, status: int) -> int:
    """Say what is wrong, in one piece."""
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
    """Say whether traces and Spark's own log are wanted."""
    return bool(os.environ.get(_DEBUG_VARIABLE))


@app.callback(invoke_without_command=True)
def _options(
    context: typer.Context,
    *,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show traces, and all that Spark says.")] = False,
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
    """See it work, on streams made on the spot; about a minute.

    sharing: a dozen queries on sensor streams, run as one.  auction: answers that come early, because rows promise what
    will not come.
    """
    run_named(name, keep, debug=is_debug())


@app.command()
def run(
    script: Script,
    *,
    state: OwnState = None,
    once: Annotated[bool, typer.Option("--once", help="Handle all input that is there, then end.")] = False,
    accept_loss: AcceptLoss = False,
) -> None:
    """Run a script's queries until stopped (Ctrl-C or SIGTERM); started again on its state, it goes on."""
    from penstock.cli.load import default_state, load  # noqa: PLC0415 - pyarrow

    load(script)  # what is wrong in a script is said before pyspark is imported
    from penstock.cli.run import run_script  # noqa: PLC0415 - imports pyspark

    where = state or str(default_state(script))
    run_script(script, where, once=once, accept_loss=accept_loss, debug=is_debug())


@app.command()
def explain(
    script: Script,
    *,
    state: OwnState = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="Also show each rival's chain and what it would save.")
    ] = False,
    form: Annotated[PlanFormat, typer.Option("--format", help="How to write it.")] = PlanFormat.text,
) -> None:
    """Print the shared plan of a script and what it costs, by what its state has measured; starts nothing."""
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
    """Measure what the engine's work costs on this machine, for cpu-opt and auto; about half a minute."""
    from penstock.cli.explain import calibrate as measure  # noqa: PLC0415 - pyarrow

    measure(state, debug=is_debug())


@app.command()
def plan(
    script: Script,
    *,
    state: OwnState = None,
    accept_loss: AcceptLoss = False,
) -> None:
    """Say what running a script would change: queries, slices, state, cost; changes nothing.

    Refuses, with exit status 2, what would lose results.
    """
    from penstock.cli.load import default_state, load  # noqa: PLC0415 - pyarrow
    from penstock.cli.plan import change_lines  # noqa: PLC0415

    for line in change_lines(load(script), state or str(default_state(script)), accept_loss=accept_loss):
        typer.echo(line)


@app.command()
def add(script: Script, state: State) -> None:
    """Add the queries of a script to a running engine; says from when on each is complete."""
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
    """Let a query of a running engine go; says what becomes of its results."""
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
    """Say how far a run is, from outside; also after it has ended."""
    from penstock.cli.look import State as StateView  # noqa: PLC0415 - pyarrow
    from penstock.cli.show import (  # noqa: PLC0415
        answer_table,
        console,
        promise_table,
        response_table,
        status_view,
    )

    view = StateView.open(state)
    now = view.status()
    if form is StatusFormat.json:
        typer.echo(json.dumps(now.to_json(), indent=2))
        return
    out = console()
    out.print(status_view(view.plan, now))
    if promises := promise_table(now):
        out.print(promises)
    if answers := answer_table(now):
        out.print(answers)
    if responses := response_table(now):
        out.print(responses)


@app.command()
def results(
    name: Annotated[
        str,
        typer.Argument(
            metavar="QUERY", help="The query's name; with --late that of a stream.", show_default=False
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
    count: Annotated[bool, typer.Option("--count", help="Only say how many there are.")] = False,
) -> None:
    """Print a query's committed results, in order if it asks for that; also while it runs.

    With --late, print the rows of a stream that were set aside: too late, without an event time, or breaking a promise.
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
        bool, typer.Option("--yes", help="Do it; without it, only say what would be done.")
    ] = False,
) -> None:
    """Mend a state that a run cannot go on from: damaged or lost files, a checkpoint that does not agree.

    Writes again what is known twice, else goes back to the last point from which all is whole: what came after it comes
    again.  No engine may run on the state.  Exit status 1 if it cannot be repaired; then nothing is changed.
    """
    from penstock.cli.repair import repair_state  # noqa: PLC0415 - pyarrow

    for line in repair_state(state, yes=yes):
        typer.echo(line)


@app.command()
def doctor(
    *,
    state: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where the state would be kept.", show_default=False),
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
    """Check Python, Java, Spark, memory and disk, and say what to do."""
    from penstock.cli.class_archive import make_archive, remove_archives  # noqa: PLC0415 - only here
    from penstock.cli.doctor import checks, print_checks  # noqa: PLC0415
    from penstock.cli.show import console  # noqa: PLC0415
    from penstock.cli.spark_talk import use_packaged_java  # noqa: PLC0415

    use_packaged_java()
    if class_archive is not None:
        typer.echo(make_archive() if class_archive is ArchiveAction.make else remove_archives())
    outcomes = checks(state)
    print_checks(outcomes, console())
    raise typer.Exit(0 if all(check.ok for check in outcomes) else 1)


_PASSED_ON_SETTINGS = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


@app.command(context_settings=_PASSED_ON_SETTINGS, add_help_option=False)
def lab(context: typer.Context) -> None:
    """Reproduce a figure of a paper: table, picture, and the claims it checks (in a checkout of the source)."""
    raise typer.Exit(_in_checkout("lab", context.args))


@app.command(context_settings=_PASSED_ON_SETTINGS, add_help_option=False)
def bench(context: typer.Context) -> None:
    """Measure side by side with other engines (in a checkout of the source)."""
    raise typer.Exit(_in_checkout("bench", context.args))


def _in_checkout(command: str, arguments: list[str]) -> int:
    """Hand a command to a package that is not installed with this one: it is looked up by name."""
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
