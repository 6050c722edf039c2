"""Rows that wait until there are enough of them to be written together.

In:  record batches.  Out: all of them at once.  No more wait than a limit of rows, or of bytes (`width.MOST_BYTES`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.kernels import width

if TYPE_CHECKING:
    import pyarrow as pa


class RowBuffer:
    """Rows taken and not written yet."""

    def __init__(self, most_rows: int, copies: int = 1) -> None:
        """Begin with nothing; of the bytes, whoever writes them makes so many copies."""
        self._most_rows, self._copies = most_rows, copies
        self._batches: list[pa.RecordBatch] = []
        self.rows = 0
        self.bytes = 0

    def add(self, batch: pa.RecordBatch) -> bool:
        """Take some rows, and say whether it is time to write."""
        self._batches.append(batch)
        self.rows += batch.num_rows
        self.bytes += batch.nbytes
        return self.rows >= self._most_rows or self._copies * self.bytes >= width.MOST_BYTES

    def drain(self) -> list[pa.RecordBatch]:
        """Give all rows, and keep none."""
        batches, self._batches, self.rows, self.bytes = self._batches, [], 0, 0
        return batches
