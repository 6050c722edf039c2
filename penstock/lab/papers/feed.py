"""Files that arrive while an engine runs: written once, and linked into the directory of every run.

In:  the tables of each arrival, by stream.  Out: files that appear one arrival at a time.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.lab.workloads import EPOCH

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray


class Feed:
    """The files of all streams, in the order of their arrival."""

    def __init__(self, folder: Path, arrivals: Iterable[Mapping[str, pa.Table]]) -> None:
        """Write all that will arrive."""
        self.folder, self.count = folder, 0
        for rows in arrivals:
            self.streams = tuple(rows)
            for name, table in rows.items():
                (folder / name).mkdir(parents=True, exist_ok=True)
                pq.write_table(table, folder / name / f"{self.count:03d}.parquet")
            self.count += 1

    def open(self, directory: Path) -> Path:
        """Make the directories that an engine will read."""
        for name in self.streams:
            (directory / name).mkdir(parents=True)
        return directory

    def put(self, number: int, directory: Path) -> None:
        """Let the files of one arrival appear there."""
        for name in self.streams:
            os.link(self.folder / name / f"{number:03d}.parquet", directory / name / f"{number:03d}.parquet")


def stamps(micros: NDArray[np.int64]) -> pa.Array:
    """Turn times since the beginning of a workload into timestamps."""
    return pa.array(micros + EPOCH).cast(pa.timestamp("us", tz="UTC"))
