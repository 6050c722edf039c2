"""The demo of joins without a window: four streams, one of them congested for a while (Query 1 of paper 5).

Every sensor sends each epoch once, a little out of order.  Buffers grow while rows wait for the congested sensor, and
shrink after its rows have come.  A fixed window of the same memory has lost these rows by then.
"""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import indent
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.cli.demos.files import write_file
from penstock.cli.demos.frame import SteppedDemo
from penstock.cli.show import new_table, show_accuracy

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rich.console import Console
    from rich.table import Table

    from penstock.engine.api import Engine
    from penstock.engine.report.status import Status
    from penstock.kernels.key_hash import Ints

SENSORS = ("Sensor1", "Sensor2", "Sensor3", "Sensor4")
SCRAMBLING = 60
"""Rows by which epochs are out of order at most."""

QUERY = """\
SELECT S1.epoch, S1.v AS v1, S2.v AS v2, S3.v AS v3, S4.v AS v4
FROM Sensor1 S1, Sensor2 S2, Sensor3 S3, Sensor4 S4
WHERE S1.epoch = S2.epoch AND S2.epoch = S3.epoch AND S3.epoch = S4.epoch;
"""


@dataclass(frozen=True, slots=True)
class SensorArrivals:
    """How the streams arrive: `steps` of `epochs` each, and the steps in which the second sensor is congested."""

    steps: int = 8
    epochs: int = 2000
    congested: tuple[int, int] = (2, 5)

    def of(self, number: int) -> list[Ints]:
        """Return the epochs that a sensor sends in each step, in the order of arrival."""
        total = self.steps * self.epochs
        moved = np.arange(total) + np.random.default_rng(number).integers(0, SCRAMBLING // 2, total)
        parts = np.array_split(np.argsort(moved, kind="stable"), self.steps)
        first, last = self.congested
        if number != 1 or last >= self.steps:
            return parts
        none = np.zeros(0, np.int64)
        late = np.concatenate(parts[first : last + 1])
        return [*parts[:first], *([none] * (last - first)), late, *parts[last + 1 :]]


class SensorDemo(SteppedDemo):
    """A step of each stream comes and is joined, then the next."""

    to_try = ("penstock status --state {keep}/state",)

    def __init__(self, wanted: SensorArrivals | None = None) -> None:
        """Prepare a demo of those arrivals."""
        self.wanted = wanted or SensorArrivals()
        self.steps = self.wanted.steps
        self.parts = {name: self.wanted.of(number) for number, name in enumerate(SENSORS)}
        self.done: list[Status] = []

    def script(self, folder: Path) -> str:
        """Make the source directories, and return the script."""
        for name in SENSORS:
            (folder / "data" / name).mkdir(parents=True)
        return script_text(folder)

    def introduce(self, engine: Engine, out: Console) -> None:  # noqa: ARG002
        """Print the query and the congestion."""
        out.print("Four sensors hear the same sounds. Where was each? Rows with one epoch belong together:\n")
        out.print(indent(QUERY, "  "), markup=False)
        first, last = self.wanted.congested
        out.print(
            f"There is no window. Each stream is out of order by at most {SCRAMBLING} rows; no more is known. They "
            f"come in {self.steps} steps of {self.wanted.epochs:,} epochs. From step {first + 1} to {last} Sensor2 is "
            f"congested. In step {last + 1} all its rows come at once.\n"
        )

    def arrive(self, folder: Path, step: int) -> None:
        """Write the next file of each sensor."""
        for number, (name, epochs) in enumerate(self.parts.items()):
            if epochs[step].size:
                rows = pa.table({"epoch": epochs[step], "v": np.sin(epochs[step] / 50 + number)})
                write_file(folder / "data" / name, step, rows)

    def look(self, folder: Path, status: Status) -> None:  # noqa: ARG002
        """Keep the status."""
        self.done.append(status)

    def report(self, engine: Engine, folder: Path, out: Console) -> None:  # noqa: ARG002
        """Print the results and the rows kept at each step."""
        out.print(step_table(self.done))

    def closing(self, seconds: float) -> str:
        """Compare the buffers with a fixed window."""
        return closing(self.done, self.wanted, seconds)


def script_text(folder: Path) -> str:
    """Return the script: four sensors without a time, and the query without a window."""
    declared = "".join(
        f"CREATE STREAM {name} (epoch BIGINT, v DOUBLE)\n"
        f"  WITH (format = 'parquet', path = '{folder / 'data' / name}', scrambling = '{SCRAMBLING}');\n"
        for name in SENSORS
    )
    located = f"CREATE QUERY located WITH (sink = 'parquet', path = '{folder / 'out' / 'located'}') AS"
    return f"{declared}\n{located}\n{QUERY}"


def window_finds(wanted: SensorArrivals, rows: float) -> int:
    """Count the epochs that a join finds if it remembers the last `rows` rows of each sensor.

    In a step, the sensors' rows come in turn.  An epoch is found if, when the last of its four rows comes, the others
    are still among the last of their sensors.
    """
    moments, orders = [], []
    for number in range(len(SENSORS)):
        parts = wanted.of(number)
        moments.append(
            np.concatenate(
                [step + np.linspace(0, 1, part.size, endpoint=False) for step, part in enumerate(parts)]
            )
        )
        orders.append(np.argsort(np.concatenate(parts)))
    arrivals = list(zip(moments, orders, strict=True))
    last = np.max([moment[order] for moment, order in arrivals], axis=0)
    back = [np.searchsorted(moment, last, "right") - order for moment, order in arrivals]
    return int((np.max(back, axis=0) <= rows).sum())


def rows_kept(status: Status) -> list[int]:
    """Return the number of rows kept of each sensor."""
    return [buffer.rows for buffer in status.queries[0].buffers]


def mean_rows(steps: Sequence[Status]) -> float:
    """Return the mean number of rows kept of a sensor."""
    return float(np.mean([rows_kept(status) for status in steps]))


def step_table(steps: Sequence[Status]) -> Table:
    """Show for each step the results, and the rows kept of each sensor."""
    table = new_table("step", "results", "accuracy", *(f"{name} keeps" for name in SENSORS))
    for number, status in enumerate(steps, 1):
        query = status.queries[0]
        counts = (f"{rows:,}" for rows in rows_kept(status))
        table.add_row(str(number), f"{query.results:,}", show_accuracy(query.accuracy), *counts)
    return table


def closing(steps: Sequence[Status], wanted: SensorArrivals, seconds: float) -> str:
    """Return in one paragraph what the buffers found, and what a fixed window would have found."""
    query, total = steps[-1].queries[0], wanted.steps * wanted.epochs
    rows, most = mean_rows(steps), max(max(rows_kept(status)) for status in steps)
    fixed = window_finds(wanted, rows)
    return (
        f"{query.results:,} of {total:,} epochs are located, accuracy {show_accuracy(query.accuracy)}. On average "
        f"{rows:,.0f} rows of each sensor were kept, at most {most:,}. A fixed window of {rows:,.0f} rows of each "
        f"sensor takes the same memory, and would have found {fixed:,}, {show_accuracy(fixed / total)}. "
        f"{seconds:.0f} seconds in all."
    )
