"""What the demo runs on: two streams of sensor readings, and a dozen queries about them.

Each sensor measures temperature and humidity every few seconds.  The readings are made with NumPy from a seed and
written as Parquet files, a few minutes to a file, as a collector would.

In:  a directory.  Out: files below it, and the text of a script that reads them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

START_SECONDS = 1_717_221_600
"""The first reading, in seconds since the epoch: 2024-06-01 06:00:00 UTC."""


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
class Asked:
    """One query of the demo: what is looked for, how far apart the two readings may be, and its sink."""

    name: str
    window: str
    condition: str = ""
    sink: str = "parquet"


QUERIES = (
    Asked("reading", "1 s", sink="table"),
    Asked("heat_index", "10 s", "T.Value > 27 AND H.Value > 40"),
    Asked("dew_point", "30 s"),
    Asked("comfort", "1 min", "T.Value BETWEEN 20 AND 24 AND H.Value BETWEEN 40 AND 60"),
    Asked("condensation", "2 min", "H.Value > 80"),
    Asked("dry_heat", "2 min", "T.Value > 28 AND H.Value < 40", "table"),
    Asked("fog", "5 min", "T.Value < 12 AND H.Value > 75"),
    Asked("mould", "5 min", "T.Value > 18 AND H.Value > 70"),
    Asked("frost", "5 min", "T.Value < 6"),
    Asked("swing", "5 min", sink="noop"),
    Asked("storm", "10 min", "T.Value > 24 AND H.Value > 65"),
    Asked("heat_wave", "10 min", "T.Value > 28"),
)


def make_readings(folder: Path, wanted: Readings) -> None:
    """Write both streams' files below ``folder/data``."""
    rng = np.random.default_rng(wanted.seed)
    climate = rng.uniform(4, 30, wanted.sensors)  # °C on average, sensor by sensor
    for file in range(wanted.files):
        sensor, moment = _moments(rng, wanted, file)
        warmth = climate[sensor] + 4 * np.sin(moment / 900) + rng.normal(0, 1.5, moment.size)
        damp = np.clip(95 - 1.4 * warmth + rng.normal(0, 12, moment.size), 5, 100)
        _write(folder / "data" / "temperature", file, sensor, moment, warmth)
        # The hygrometer of the same device answers a moment later.
        _write(folder / "data" / "humidity", file, sensor, moment + rng.uniform(0, 1.5, moment.size), damp)


def _moments(
    rng: np.random.Generator, wanted: Readings, file: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Choose who measures when (in seconds from the start), in order of time, for one file."""
    rounds = int(wanted.minutes_a_file * 60 / wanted.every)
    sensor = np.tile(np.arange(wanted.sensors), rounds)
    begin = file * wanted.minutes_a_file * 60 + np.repeat(np.arange(rounds), wanted.sensors) * wanted.every
    moment = begin + rng.uniform(0, wanted.every, sensor.size)
    order = np.argsort(moment)
    return sensor[order], moment[order]


def _write(
    folder: Path,
    file: int,
    sensor: NDArray[np.int64],
    moment: NDArray[np.float64],
    value: NDArray[np.float64],
) -> None:
    """Write one file, and date it by its number: Spark reads the files of a directory in the order of their dates."""
    folder.mkdir(parents=True, exist_ok=True)
    micros = START_SECONDS * 1_000_000 + (moment * 1e6).astype(np.int64)
    rows = pa.table(
        {"Sensor": sensor, "Value": value.round(1), "ts": pa.array(micros, pa.timestamp("us", "UTC"))}
    )
    path = folder / f"readings-{file:03d}.parquet"
    pq.write_table(rows, path)
    os.utime(path, (START_SECONDS + file, START_SECONDS + file))


def script_text(folder: Path) -> str:
    """Write the demo's script: two streams and a dozen queries."""
    streams = [
        f"CREATE STREAM {name} (Sensor BIGINT, Value DOUBLE, ts TIMESTAMP)\n"
        f"  WITH (format = 'parquet', path = '{folder / 'data' / name.lower()}', time = 'ts', "
        "lateness = '5 seconds', maxFilesPerTrigger = '1');"
        for name in ("Temperature", "Humidity")
    ]
    return "\n".join(streams) + "\n\n" + "\n".join(_query_text(folder, each) for each in QUERIES)


def _query_text(folder: Path, asked: Asked) -> str:
    path = f", path = '{folder / 'out' / asked.name}'" if asked.sink == "parquet" else ""
    where = f"\nWHERE {asked.condition}" if asked.condition else ""
    return (
        f"CREATE QUERY {asked.name} WITH (sink = '{asked.sink}'{path}) AS\n"
        "SELECT T.Sensor, T.Value AS temperature, H.Value AS humidity, T.ts AS t_ts, H.ts AS h_ts\n"
        f"FROM Temperature T JOIN Humidity H ON T.Sensor = H.Sensor{where}\n"
        f"WINDOW {asked.window};\n"
    )
