"""Workloads: streams made by a seed, the same for every engine, every test and every figure.

``w1`` is two streams of one million rows each, 10,000 rows a second of event time, 50,000 keys, written as Parquet
files of 100,000 rows: one micro-batch of a run takes one file of each stream, 200,000 rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

EPOCH = 1_700_000_000_000_000
"""Event time of a workload's first row, microseconds."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Two streams ``a`` and ``b`` with columns ``k bigint, v double, ts timestamp``.

    `rate` is in rows per second of event time and stream; `rows_per_file` is what one micro-batch takes of a stream.
    """

    rows: int = 1_000_000
    rate: int = 10_000
    keys: int = 50_000
    rows_per_file: int = 100_000
    seed: int = 7

    @property
    def batches(self) -> int:
        """Count the micro-batches of a run."""
        return -(-self.rows // self.rows_per_file)

    def write(self, directory: Path) -> None:
        """Write both streams, unless they are there already."""
        done = directory / f"{self.rows}-{self.rate}-{self.keys}-{self.rows_per_file}-{self.seed}"
        if done.exists():
            return
        random = np.random.default_rng(self.seed)
        for stream in ("a", "b"):
            self._write_stream(directory / stream, random)
        done.touch()

    def _write_stream(self, directory: Path, random: np.random.Generator) -> None:
        """Write one stream as files in order of event time."""
        directory.mkdir(parents=True, exist_ok=True)
        span = self.rows * 1_000_000 // self.rate
        time = np.sort(random.integers(0, span, self.rows)) + EPOCH
        key = random.integers(0, self.keys, self.rows)
        value = random.random(self.rows) * 100
        for number in range(self.batches):
            part = slice(number * self.rows_per_file, (number + 1) * self.rows_per_file)
            _write_file(directory / f"{number:05d}.parquet", key[part], value[part], time[part])


def _write_file(
    path: Path, key: NDArray[np.int64], value: NDArray[np.float64], time: NDArray[np.int64]
) -> None:
    """Write one file of a stream."""
    stamp = pa.array(time).cast(pa.timestamp("us", tz="UTC"))
    pq.write_table(pa.table({"k": key, "v": value, "ts": stamp}), path)


QUERY_SETS: dict[str, tuple[float, ...]] = {
    "N1": (30.0,),
    "N12": tuple(2.5 * (number + 1) for number in range(12)),
}
"""Windows, in seconds, of the query sets of the benchmark."""
