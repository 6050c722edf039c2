"""Tasks that find the values of a join's key that are finished for a query, and write them for its sink."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.engine.views.finished import FinishedKeys
from penstock.kernels.key_hash import unmixed
from penstock.state.output_file import OutputFile, WrittenFile
from penstock.state.promises import NEVER, PromiseFiles, in_order, open_promises, write_exact
from penstock.state.segment import Segment

if TYPE_CHECKING:
    from penstock.kernels.key_hash import Hashes
    from penstock.state.files import Files


@dataclass(frozen=True, slots=True)
class PropagationTask:
    """Finds the finished values that a query has not propagated yet, and writes them for its sink."""

    query: str
    index: str
    """The index of the values that were propagated already."""
    finishing: FinishedKeys
    columns: tuple[tuple[str, pa.DataType | None], ...]
    """The name of each part of the key, and its type if it is stored with another."""
    told: PromiseFiles = field(default_factory=PromiseFiles)
    root: str = ""
    final: str = ""
    compression: str = "snappy"
    seen: float = 0.0
    """The number of promises that had taken effect."""

    def run(self, files: Files) -> PropagationReport:
        """Write the finished values, for the sink and for the index."""
        table, h, keys = finished_values(files, self)
        if not h.size:
            return PropagationReport()
        when = min(self.finishing.left.watermark, self.finishing.right.watermark)
        told = write_exact(files, self.index, in_order(h, np.full(h.size, when, np.int64), keys), 0)
        out = OutputFile(self.root, self.final, self.compression)
        for batch in table.combine_chunks().to_batches():
            out.write(batch)
        out.close({"query": self.query, "punctuations": table.num_rows})
        return PropagationReport(out.report(self.query), told)


@dataclass(frozen=True, slots=True)
class PropagationReport:
    """The files that a task has written."""

    file: WrittenFile | None = None
    told: Segment | None = None


def finished_values(files: Files, task: PropagationTask) -> tuple[pa.Table, Hashes, list[pa.Array]]:
    """Find the finished values that were not propagated before: as columns, and as hashes with keys."""
    h, keys = _candidates(files, task.finishing)
    if not h.size:
        return pa.table({}), h, keys
    finished = task.finishing.holds_for(files, h, keys)
    finished &= open_promises(files, task.told).earliest(h, keys) == NEVER
    rows = np.flatnonzero(finished)
    h, keys = h[rows], [values.take(pa.array(rows)) for values in keys]
    kept = keys or [pa.array(unmixed(h))]
    named = {
        name: values if kind is None else _as_type(values, kind)
        for (name, kind), values in zip(task.columns, kept, strict=True)
    }
    return pa.table(named), h, keys


def _candidates(files: Files, finishing: FinishedKeys) -> tuple[Hashes, list[pa.Array]]:
    """Return each value that a promise names, once; ranges name no values."""
    parts = [
        exact
        for side in (finishing.left, finishing.right)
        for exact in open_promises(files, side.known).exact
        if exact.h.size
    ]
    if not parts:
        return np.zeros(0, np.uint64), []
    h = np.concatenate([exact.h for exact in parts])
    keys = [pa.concat_arrays(values) for values in zip(*(exact.keys for exact in parts), strict=True)]
    once = in_order(h, np.zeros(h.size, np.int64), keys)
    return once.h, list(once.keys)


def _as_type(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast the values of a key back to the type of their column."""
    if pa.types.is_boolean(kind):
        return values.cast(pa.int8()).cast(kind)
    if pa.types.is_date32(kind):
        return values.cast(pa.int32()).view(kind) if values.type != kind else values
    if pa.types.is_timestamp(kind) and pa.types.is_int64(values.type):
        return values.view(kind)
    return values.cast(kind)
