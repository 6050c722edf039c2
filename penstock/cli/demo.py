"""The demo: sensor streams made on the spot, a dozen queries run as one, and what each alone would have cost.

    make readings ──▶ draw the chain ──▶ run, live ──▶ results and samples ──▶ what sharing saved

In:  nothing, or a directory to keep everything in.  Out: the terminal.  Ends by itself.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table

from penstock.cli.demo_data import QUERIES, Readings, make_readings, script_text
from penstock.cli.draw import chain_drawing
from penstock.cli.look import State
from penstock.cli.progress import Display
from penstock.cli.run import Signals, watch
from penstock.cli.show import console, held_rows, slice_table, stream_table, times
from penstock.engine.api import Engine
from penstock.engine.spark.session import QUICK_START

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from rich.console import Console

    from penstock.cli.demo_data import Asked
    from penstock.engine.report.status import Status

SAMPLE_ROWS = 2
"""Rows of each query that are shown."""


def run_demo(keep: Path | None = None, *, wanted: Readings | None = None) -> None:
    """Run the whole demo; its files go to `keep`, or away at the end."""
    started, out = time.monotonic(), console()
    wanted = wanted or Readings()
    with demo_folder(keep) as folder, Signals() as signals:
        make_readings(folder, wanted)
        out.print(
            f"Made the readings of {wanted.sensors} sensors: two streams of {wanted.rows:,} rows, "
            f"{wanted.minutes} minutes in {wanted.files} files each."
        )
        text = script_text(folder)
        (folder / "demo.sql").write_text(text, encoding="utf-8")
        with Engine(folder / "state", settings=QUICK_START) as engine:
            engine.script(text)
            _introduce(engine, out)
            engine.start(once=True)
            signals.arm()
            ready = time.monotonic()
            watch(engine, signals, Display(), once=True)
            took = time.monotonic() - ready
            status = engine.status()
            if signals.asked.is_set():
                out.print("stopped")
                return
            _report(engine, State.open(str(folder / "state")), status, out)
    out.print(closing(status, took, time.monotonic() - started))
    if keep is not None and not signals.asked.is_set():
        out.print(f"\nKept in {keep}: data, demo.sql, state and out. Look around, for example with\n")
        out.print(
            f"  penstock explain {keep}/demo.sql\n  penstock results frost --state {keep}/state", markup=False
        )


@contextmanager
def demo_folder(keep: Path | None) -> Iterator[Path]:
    """Give a directory to work in: a new or empty one to keep, or one that is removed at the end."""
    if keep is None:
        folder = Path(tempfile.mkdtemp(prefix="penstock-demo-"))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return
    keep.mkdir(parents=True, exist_ok=True)
    yield keep.resolve()


def _introduce(engine: Engine, out: Console) -> None:
    """Say what is about to run."""
    out.print(
        f"\n{len(QUERIES)} queries join temperature with humidity of the same sensor. They differ in how far "
        "apart the two readings may be and in which readings they want, so they share one chain of slices. "
        "A query reads the slices above its bar:\n"
    )
    out.print(indent(chain_drawing(engine.plan.groups[0]), "  "), soft_wrap=True, markup=False)
    out.print("\nEach row is stored once, each pair is joined once.\n")


def _report(engine: Engine, state: State, status: Status, out: Console) -> None:
    """Show what was read, what is held, and what each query got; what Spark has to read, which takes longest, last."""
    out.print(stream_table(status))
    out.print("State held at the end, slice by slice:", slice_table(status.groups[0]), sep="\n")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in ("query", "window", "wants", "results", "for example"):
        table.add_column(title, justify="right" if title == "results" else "left", no_wrap=title != "wants")
    counts = {each.name: each.results for each in status.queries}
    for asked in QUERIES:
        wants = asked.condition.replace("T.Value", "T").replace("H.Value", "H").replace(" AND ", " and ")
        table.add_row(
            asked.name,
            asked.window,
            wants or "all",
            f"{counts[asked.name]:,}",
            _samples(state, asked),
        )
    out.print(table)
    for asked in QUERIES:
        if asked.sink == "table":
            out.print(
                f'{asked.name} is in the state\'s table, which Spark reads: engine.results("{asked.name}")'
            )
            out.print(indent(_lines(engine.results(asked.name).limit(SAMPLE_ROWS).toArrow()), "  "))


def _samples(state: State, asked: Asked) -> str:
    """Give a couple of a query's results, a line each, if they can be had without Spark."""
    if asked.sink == "noop":
        return "(counted only)"
    return "(see below)" if asked.sink == "table" else _lines(state.results(asked.name, SAMPLE_ROWS).rows)


def _lines(rows: pa.Table) -> str:
    """Write results, a line each."""
    return "\n".join(
        f"#{row['Sensor']:<2} {row['temperature']:>4} °C {row['t_ts']:%H:%M:%S}  "
        f"{row['humidity']:>5} % {row['h_ts']:%H:%M:%S}"
        for row in rows.to_pylist()
    )


def closing(status: Status, took: float, total: float) -> str:
    """Say in one paragraph what sharing saved."""
    held, alone = held_rows(status)
    pairs = sum(each.pairs for each in status.groups)
    results = sum(each.results for each in status.queries)
    rows, queries = sum(each.rows for each in status.streams), len(status.queries)
    return (
        f"{queries} queries ran as one. The state holds {held:,} rows; the same queries one by one would hold "
        f"{alone:,}{times(alone, held)}. {pairs:,} pairs were joined once and served {results:,} results"
        f"{times(results, pairs)}. The {rows:,} rows were read and stored once, not {queries} times. "
        f"{took:.0f} seconds of joining, {total:.0f} in all."
    )
