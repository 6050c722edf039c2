"""The sensors: four streams joined without a window, one of them stuck in a congestion.  Query 1 of paper 5, live.

    make streams ──▶ a step of each stream comes and is joined ──▶ the next … ──▶ what a fixed window would have found
                     (Sensor2 is congested for some steps, and then comes at once)

Every sensor sends an epoch once, a little out of order.  Buffers grow while partners of the congested sensor wait for
it, and shrink when it has come.  A fixed window of the same memory has let go of them by then.

In:  nothing, or a directory to keep everything in.  Out: the terminal.  Ends by itself.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from textwrap import indent
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich import box
from rich.table import Table

from penstock.cli.demo import demo_folder
from penstock.cli.progress import Display
from penstock.cli.run import Signals
from penstock.cli.show import console, show_accuracy
from penstock.engine.api import Engine
from penstock.engine.spark.session import QUICK_START

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rich.console import Console

    from penstock.engine.report.status import Status
    from penstock.kernels.key_hash import Ints

SENSORS = ("Sensor1", "Sensor2", "Sensor3", "Sensor4")
SCRAMBLING = 60
"""Rows by which epochs are out of order, at the most."""

QUERY = """\
SELECT S1.epoch, S1.v AS v1, S2.v AS v2, S3.v AS v3, S4.v AS v4
FROM Sensor1 S1, Sensor2 S2, Sensor3 S3, Sensor4 S4
WHERE S1.epoch = S2.epoch AND S2.epoch = S3.epoch AND S3.epoch = S4.epoch;
"""


@dataclass(frozen=True, slots=True)
class Steps:
    """How the streams come: so many steps of so many epochs, and from when to when the second sensor is congested."""

    steps: int = 8
    epochs: int = 2000
    congested: tuple[int, int] = (2, 5)

    def of(self, number: int) -> list[Ints]:
        """Give the epochs that a sensor sends in each step, in the order of arrival."""
        total = self.steps * self.epochs
        moved = np.arange(total) + np.random.default_rng(number).integers(0, SCRAMBLING // 2, total)
        parts = np.array_split(np.argsort(moved, kind="stable"), self.steps)
        first, last = self.congested
        if number != 1 or last >= self.steps:
            return parts
        none = np.zeros(0, np.int64)
        late = np.concatenate(parts[first : last + 1])
        return [*parts[:first], *([none] * (last - first)), late, *parts[last + 1 :]]


@dataclass(frozen=True, slots=True)
class Moment:
    """How things stood when all rows of a step were joined."""

    step: int
    status: Status

    @property
    def kept(self) -> list[int]:
        """Give the rows that are kept of each sensor."""
        return [each.rows for each in self.status.queries[0].buffers]


def run_demo(keep: Path | None = None, *, wanted: Steps | None = None) -> None:
    """Run the whole demo; its files go to `keep`, or away at the end."""
    started, out, wanted = time.monotonic(), console(), wanted or Steps()
    with demo_folder(keep) as folder, Signals() as signals:
        text = script_text(folder)
        (folder / "demo.sql").write_text(text, encoding="utf-8")
        _introduce(wanted, out)
        with Engine(folder / "state", settings=QUICK_START) as engine:
            engine.script(text)
            moments = _play(engine, signals, folder, wanted)
        if signals.asked.is_set():
            out.print("stopped")
            return
        out.print(moment_table(moments), closing(moments, wanted, time.monotonic() - started), sep="\n")
    if keep is not None:
        out.print(f"\nKept in {keep}: data, demo.sql, state and out. Look around, for example with\n")
        out.print(f"  penstock status --state {keep}/state", markup=False)


def script_text(folder: Path) -> str:
    """Write the demo's script: four sensors without a time, and the query without a window."""
    declared = "".join(
        f"CREATE STREAM {name} (epoch BIGINT, v DOUBLE)\n"
        f"  WITH (format = 'parquet', path = '{folder / 'data' / name}', scrambling = '{SCRAMBLING}');\n"
        for name in SENSORS
    )
    located = f"CREATE QUERY located WITH (sink = 'parquet', path = '{folder / 'out' / 'located'}') AS"
    return f"{declared}\n{located}\n{QUERY}"


def _introduce(wanted: Steps, out: Console) -> None:
    """Say what is about to run."""
    out.print("Four sensors hear the same sounds. Where was each? Rows with one epoch belong together:\n")
    out.print(indent(QUERY, "  "), markup=False)
    first, last = wanted.congested
    out.print(
        f"There is no window. Each stream is out of order by at most {SCRAMBLING} rows, nothing else is known. They "
        f"come in {wanted.steps} steps of {wanted.epochs:,} epochs; from step {first + 1} to {last} Sensor2 is "
        f"congested, and in step {last + 1} all of that comes at once.\n"
    )


def _play(engine: Engine, signals: Signals, folder: Path, wanted: Steps) -> list[Moment]:
    """Let the files come, step by step, and look after each at what is kept."""
    parts = {name: wanted.of(number) for number, name in enumerate(SENSORS)}
    for name in SENSORS:
        (folder / "data" / name).mkdir(parents=True)
    engine.start()
    signals.arm()
    moments = list[Moment]()
    with Display() as display:
        for step in range(wanted.steps):
            if not signals.asked.is_set():
                for number, (name, epochs) in enumerate(parts.items()):
                    _arrive(folder / "data" / name, step, epochs[step], number)
                engine.process_available()
                moments.append(Moment(step, engine.status()))
                display.show(engine, moments[-1].status)
    return moments


def _arrive(folder: Path, step: int, epochs: Ints, number: int) -> None:
    """Write the next file of a sensor, whole before its stream can see it."""
    if not epochs.size:
        return
    hidden = folder / f".{step:03d}"
    pq.write_table(pa.table({"epoch": epochs, "v": np.sin(epochs / 50 + number)}), hidden)
    os.replace(hidden, folder / f"{step:03d}.parquet")  # noqa: PTH105 - what a source sees appears at once


def window_finds(wanted: Steps, rows: float) -> int:
    """Count the epochs that a join finds which remembers the last so many rows of each sensor, row by row.

    In a step, the sensors' rows come in turn.  An epoch is found if, when the last of its four rows comes, the others
    are still among the last of their sensors.
    """
    arrived, place = [], []
    for number in range(len(SENSORS)):
        parts = wanted.of(number)
        epochs = np.concatenate(parts)
        moments = np.concatenate(
            [step + np.linspace(0, 1, each.size, endpoint=False) for step, each in enumerate(parts)]
        )
        order = np.argsort(epochs)
        arrived.append(moments)
        place.append(order)
    last = np.max([moments[order] for moments, order in zip(arrived, place, strict=True)], axis=0)
    there = np.ones(last.size, np.bool_)
    for moments, order in zip(arrived, place, strict=True):
        there &= np.searchsorted(moments, last, "right") - order <= rows
    return int(there.sum())


def mean_rows(moments: Sequence[Moment]) -> float:
    """Give the rows that were kept of a sensor, on average."""
    return float(np.mean([each.kept for each in moments]))


def moment_table(moments: Sequence[Moment]) -> Table:
    """Show step by step what came, what was found, and what is kept of each sensor."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in ("step", "results", "accuracy", *(f"{name} keeps" for name in SENSORS)):
        table.add_column(title, justify="right")
    for each in moments:
        query = each.status.queries[0]
        counts = (f"{rows:,}" for rows in each.kept)
        table.add_row(str(each.step + 1), f"{query.results:,}", show_accuracy(query.accuracy), *counts)
    return table


def closing(moments: Sequence[Moment], wanted: Steps, seconds: float) -> str:
    """Say in one paragraph what buffers were good for."""
    query, total = moments[-1].status.queries[0], wanted.steps * wanted.epochs
    rows = mean_rows(moments)
    fixed = window_finds(wanted, rows)
    return (
        f"{query.results:,} of {total:,} epochs are located, accuracy {show_accuracy(query.accuracy)}. On average "
        f"{rows:,.0f} rows of each sensor were kept, {max(max(each.kept) for each in moments):,} at the most. A window "
        f"of the last {rows:,.0f} rows of each, the same memory all along, would have found {fixed:,}, "
        f"{show_accuracy(fixed / total)}. {seconds:.0f} seconds in all."
    )
