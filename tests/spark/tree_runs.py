"""Query 1 and Query 2 of paper 5's Fig. 4 on Spark: trees of joins over six sensors, with sinks of several kinds.

    S1 S2 S3 ── j1 ─┐                  Query 1 is j1 alone
                    ├── j3 ── deeper   Query 2 is j3 over j1 and j2
    S4 S5 S6 ── j2 ─┘          └── S1 once more

In:  a directory.  Out: files of the sensors, a script, and runs of an engine over all input that is there.
"""

from __future__ import annotations

import os
from random import Random
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.engine.api import Engine
from tests.testing.windowless_world import scrambled, true_scrambling

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from penstock.engine.report.status import Status

SENSORS = range(1, 7)
SELECTS = {
    "j1": "SELECT a.epoch, a.v AS v1, b.v AS v2, CAST(c.v + 0.5 AS DOUBLE) AS v3 FROM Sensor1 a, Sensor2 b, Sensor3 c "
    "WHERE a.epoch = b.epoch AND b.epoch = c.epoch",
    "j2": "SELECT c.epoch, a.v AS v4, b.v AS v5, c.v AS v6 FROM Sensor4 a, Sensor5 b, Sensor6 c "
    "WHERE a.epoch = b.epoch AND b.epoch = c.epoch AND a.v % 5 <> 0",
    "j3": "SELECT j1.epoch, v1, v2, v3, v4, v5, v6 FROM j1, j2 WHERE j1.epoch = j2.epoch AND v1 + v4 > 20",
    "deeper": "SELECT j3.epoch, v1, v4, s.v AS again FROM j3 JOIN Sensor1 s ON j3.epoch = s.epoch",
}
COLUMNS = {
    "j1": ("v1", "v2", "v3"),
    "j2": ("v4", "v5", "v6"),
    "j3": ("v1", "v2", "v3", "v4", "v5", "v6"),
    "deeper": ("v1", "v4", "again"),
}


def values_of(seed: int, rows: int = 120) -> dict[int, list[int | None]]:
    """Draw the values of each sensor, in the order of arrival."""
    rng = Random(seed)
    return {number: scrambled(rng, rows, 12, 2) for number in SENSORS}


def write_rows(
    root: Path, values: dict[int, list[int | None]], first: int, last: int, files: int = 4
) -> None:
    """Write some rows of each sensor to files, whose dates say in which order they come."""
    size = -(-(last - first) // files)
    for name, rows in tables(values).items():
        folder = root / name.replace("Sensor", "s")
        folder.mkdir(exist_ok=True)
        for start in range(first, last, size):
            path = folder / f".{start}.parquet"  # not seen before it is whole and has its date
            pq.write_table(rows.slice(start, min(size, last - start)), path)
            os.utime(path, (1_000_000_000 + start,) * 2)
            path.rename(folder / f"{start}.parquet")


def tables(values: dict[int, list[int | None]]) -> dict[str, pa.Table]:
    """Give all rows of each sensor; a measurement is the number of its row."""
    return {
        f"Sensor{number}": pa.table(
            {"epoch": pa.array(each, pa.int64()), "v": pa.array(map(float, range(len(each))))}
        )
        for number, each in values.items()
    }


def streams(root: Path, values: dict[int, list[int | None]]) -> str:
    """Declare the sensors, with what is known of them."""
    return "".join(
        f"CREATE STREAM Sensor{number} (epoch BIGINT, v DOUBLE) WITH (format = 'parquet', path = '{root}/s{number}', "
        f"scrambling = '{max(3, true_scrambling(each))}', multiplicity = '4', maxFilesPerTrigger = '1');\n"
        for number, each in values.items()
    )


def queries(root: Path) -> str:
    """Write the tree; what j1 finds is only counted, and read all the same."""
    sinks = {
        "j1": "sink = 'noop'",
        "j2": "sink = 'table'",
        "j3": f"sink = 'parquet', path = '{root}/out'",
        "deeper": "sink = 'table'",
    }
    return "\n".join(
        f"CREATE QUERY {name} WITH ({sinks[name]}) AS {select};" for name, select in SELECTS.items()
    )


def run_once(spark: SparkSession, root: Path, script: str) -> Status:
    """Read all input that is there, and deliver all results."""
    with Engine(state=root / "state", spark=spark) as engine:
        engine.script(script)
        engine.start(once=True)
        engine.wait()
        return engine.status()
