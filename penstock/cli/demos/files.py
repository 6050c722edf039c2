"""Parquet files of the demos' streams, dated so that Spark reads them in their order."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from numpy.typing import NDArray

START_SECONDS = 1_717_200_000
"""The first event time, in seconds since the epoch: 2024-06-01 00:00:00 UTC."""


def write_file(folder: Path, number: int, rows: pa.Table) -> None:
    """Write one file of a stream at once, and date it by its number: Spark reads files in the order of their dates."""
    folder.mkdir(parents=True, exist_ok=True)
    hidden, path = folder / f".{number:03d}", folder / f"{number:03d}.parquet"
    pq.write_table(rows, hidden)
    os.utime(hidden, (START_SECONDS + number, START_SECONDS + number))
    hidden.replace(path)


def timestamps(micros: NDArray[Any]) -> pa.Array:
    """Turn microseconds since the start into timestamps."""
    return pa.array(micros + START_SECONDS * 1_000_000).cast(pa.timestamp("us", "UTC"))
