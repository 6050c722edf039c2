"""The demo of sharing: sensor streams, a dozen queries run as one, and the cost of running each alone.

Each sensor measures temperature and humidity every few seconds.  The readings are made from a seed and written as
Parquet files of a few minutes each.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from textwrap import indent
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.cli.demos.drawing import chain_drawing
from penstock.cli.demos.files import timestamps, write_file
from penstock.cli.demos.frame import Demo
from penstock.cli.look import State
from penstock.cli.progress import Display
from penstock.cli.run import watch
from penstock.cli.show import held_rows, new_table, slice_table, stream_table, times

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray
    from rich.console import Console

    from penstock.cli.run import Signals
    from penstock.engine.api import Engine
    from penstock.engine.report.status import Status

SAMPLE_ROWS = 2
"""Rows of each query that are shown."""


@dataclass(frozen=True, slots=True)
class Readings:
    """How much to make: `minutes` of readings, one of each kind per sensor every `every` seconds."""

    sensors: int = 60
    every: float = 5.0
    minutes: int = 48
    minutes_a_file: int = 6
    seed: int = 42

    @property
    def rows(self) -> int:
        """Count the readings of one stream."""
        return self.sensors * int(self.minutes * 60 / self.every)

    @property
    def files(self) -> int:
        """Count the files of one stream."""
        return self.minutes // self.minutes_a_file


@dataclass(frozen=True, slots=True)
class DemoQuery:
    """One query: its condition, how far apart the two readings may be, and its sink."""

    name: str
    window: str
    condition: str = ""
    sink: str = "parquet"


QUERIES = (
    DemoQuery("reading", "1 s", sink="table"),
    DemoQuery("heat_index", "10 s", "T.Value > 27 AND H.Value > 40"),
    DemoQuery("dew_point", "30 s"),
    DemoQuery("comfort", "1 min", "T.Value BETWEEN 20 AND 24 AND H.Value BETWEEN 40 AND 60"),
    DemoQuery("condensation", "2 min", "H.Value > 80"),
    DemoQuery("dry_heat", "2 min", "T.Value > 28 AND H.Value < 40", "table"),
    DemoQuery("fog", "5 min", "T.Value < 12 AND H.Value > 75"),
    DemoQuery("mould", "5 min", "T.Value > 18 AND H.Value > 70"),
    DemoQuery("frost", "5 min", "T.Value < 6"),
    DemoQuery("swing", "5 min", sink="noop"),
    DemoQuery("storm", "10 min", "T.Value > 24 AND H.Value > 65"),
    DemoQuery("heat_wave", "10 min", "T.Value > 28"),
)


def make_readings(folder: Path, wanted: Readings) -> None:
    """Write both streams' files below ``folder/data``."""
    rng = np.random.default_rng(wanted.seed)
    climate = rng.uniform(4, 30, wanted.sensors)  # °C on average, sensor by sensor
    rounds = int(wanted.minutes_a_file * 60 / wanted.every)
    for file in range(wanted.files):
        sensor = np.tile(np.arange(wanted.sensors), rounds)
        begin = (
            file * wanted.minutes_a_file * 60 + np.repeat(np.arange(rounds), wanted.sensors) * wanted.every
        )
        seconds = begin + rng.uniform(0, wanted.every, sensor.size)
        order = np.argsort(seconds)
        sensor, seconds = sensor[order], seconds[order]
        warmth = climate[sensor] + 4 * np.sin(seconds / 900) + rng.normal(0, 1.5, seconds.size)
        damp = np.clip(95 - 1.4 * warmth + rng.normal(0, 12, seconds.size), 5, 100)
        later = seconds + rng.uniform(
            0, 1.5, seconds.size
        )  # the hygrometer of a device answers a moment later
        write_file(folder / "data" / "temperature", file, _readings(sensor, seconds, warmth))
        write_file(folder / "data" / "humidity", file, _readings(sensor, later, damp))


def _readings(sensor: NDArray[Any], seconds: NDArray[np.float64], value: NDArray[np.float64]) -> pa.Table:
    times = timestamps((seconds * 1e6).astype(np.int64))
    return pa.table({"Sensor": sensor, "Value": value.round(1), "ts": times})


def script_text(folder: Path) -> str:
    """Return the script: two streams and a dozen queries."""
    streams = [
        f"CREATE STREAM {name} (Sensor BIGINT, Value DOUBLE, ts TIMESTAMP)\n"
        f"  WITH (format = 'parquet', path = '{folder / 'data' / name.lower()}', time = 'ts', "
        "lateness = '5 seconds', maxFilesPerTrigger = '1');"
        for name in ("Temperature", "Humidity")
    ]
    return "\n".join(streams) + "\n\n" + "\n".join(_query_text(folder, query) for query in QUERIES)


def _query_text(folder: Path, query: DemoQuery) -> str:
    path = f", path = '{folder / 'out' / query.name}'" if query.sink == "parquet" else ""
    where = f"\nWHERE {query.condition}" if query.condition else ""
    return (
        f"CREATE QUERY {query.name} WITH (sink = '{query.sink}'{path}) AS\n"
        "SELECT T.Sensor, T.Value AS temperature, H.Value AS humidity, T.ts AS t_ts, H.ts AS h_ts\n"
        f"FROM Temperature T JOIN Humidity H ON T.Sensor = H.Sensor{where}\n"
        f"WINDOW {query.window};\n"
    )


class SharingDemo(Demo):
    """All files are there from the beginning, and are read once."""

    to_try = (
        "penstock explain {keep}/demo.sql",
        "penstock results frost --state {keep}/state",
    )

    def __init__(self, wanted: Readings | None = None) -> None:
        """Prepare a demo of that many readings."""
        self.wanted = wanted or Readings()

    def script(self, folder: Path) -> str:
        """Write all readings, and return the script."""
        make_readings(folder, self.wanted)
        return script_text(folder)

    def introduce(self, engine: Engine, out: Console) -> None:
        """Print the chain of the queries."""
        out.print(
            f"Made the readings of {self.wanted.sensors} sensors: two streams of {self.wanted.rows:,} rows, "
            f"{self.wanted.minutes} minutes in {self.wanted.files} files each."
        )
        out.print(
            f"\n{len(QUERIES)} queries join temperature with humidity of the same sensor. They differ in how far apart "
            "the two readings may be, and in the readings that they want. So they share one chain of slices. "
            "A query reads the slices above its bar:\n"
        )
        out.print(indent(chain_drawing(engine.plan.groups[0]), "  "), soft_wrap=True, markup=False)
        out.print("\nEach row is stored once, each pair is joined once.\n")

    def play(self, engine: Engine, folder: Path, signals: Signals) -> None:  # noqa: ARG002
        """Process all input once."""
        engine.start(once=True)
        signals.arm()
        ready = time.monotonic()
        watch(engine, signals, Display(), once=True)
        self.joining_seconds = time.monotonic() - ready

    def report(self, engine: Engine, folder: Path, out: Console) -> None:
        """Print what was read, what is held and what each query got; results that Spark reads come last."""
        self.status = engine.status()
        state = State.open(str(folder / "state"))
        out.print(stream_table(self.status))
        out.print("State held at the end, slice by slice:", slice_table(self.status.groups[0]), sep="\n")
        table = new_table("query")
        for title in ("window", "wants", "results", "for example"):
            table.add_column(
                title, justify="right" if title == "results" else "left", no_wrap=title != "wants"
            )
        counts = {query.name: query.results for query in self.status.queries}
        for query in QUERIES:
            wants = query.condition.replace("T.Value", "T").replace("H.Value", "H").replace(" AND ", " and ")
            sample = {"noop": "(counted only)", "table": "(see below)"}.get(query.sink)
            sample = sample or _lines(state.results(query.name, SAMPLE_ROWS).rows)
            table.add_row(query.name, query.window, wants or "all", f"{counts[query.name]:,}", sample)
        out.print(table)
        for query in QUERIES:
            if query.sink == "table":
                out.print(
                    f'{query.name} is a table of the state. Spark reads it: engine.results("{query.name}")'
                )
                rows = engine.results(query.name).limit(SAMPLE_ROWS).toArrow()
                out.print(indent(_lines(rows), "  "))

    def closing(self, seconds: float) -> str:
        """Return what sharing saved."""
        return closing(self.status, self.joining_seconds, seconds)


def _lines(rows: pa.Table) -> str:
    """Write results, a line each."""
    return "\n".join(
        f"#{row['Sensor']:<2} {row['temperature']:>4} °C {row['t_ts']:%H:%M:%S}  "
        f"{row['humidity']:>5} % {row['h_ts']:%H:%M:%S}"
        for row in rows.to_pylist()
    )


def closing(status: Status, joining_seconds: float, seconds: float) -> str:
    """Return in one paragraph what sharing saved."""
    held, alone = held_rows(status)
    pairs = sum(group.pairs for group in status.groups)
    results = sum(query.results for query in status.queries)
    rows, queries = sum(stream.rows for stream in status.streams), len(status.queries)
    return (
        f"{queries} queries ran as one. The state holds {held:,} rows; separate queries would hold "
        f"{alone:,}{times(alone, held)}. {pairs:,} pairs were joined once and served {results:,} results"
        f"{times(results, pairs)}. The {rows:,} rows were read and stored once, not {queries} times. "
        f"Joining took {joining_seconds:.0f} of the {seconds:.0f} seconds."
    )
