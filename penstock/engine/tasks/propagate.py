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
class Propagation:
    """What one task is told: which values may be finished, which were told already, and where the others go."""

    query: str
    index: str
    """Where what was told is kept."""
    finishing: FinishedKeys
    columns: tuple[tuple[str, pa.DataType | None], ...]
    """For each part of the key its name, and its type if that is not the one it is kept in."""
    told: PromiseFiles = field(default_factory=PromiseFiles)
    root: str = ""
    final: str = ""
    compression: str = "snappy"
    seen: float = 0.0
    """How many promises had taken effect."""

    def run(self, files: Files) -> PropagationReport:
        """Write the values that are finished, for the sink and as told."""
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
    """What a task has told."""

    file: WrittenFile | None = None
    told: Segment | None = None


def finished_values(files: Files, task: Propagation) -> tuple[pa.Table, Hashes, list[pa.Array]]:
    """Find the values that are finished and were not told before, as columns, and as they are kept."""
    h, keys = _candidates(files, task.finishing)
    if not h.size:
        return pa.table({}), h, keys
    finished = task.finishing.holds_for(files, h, keys)
    finished &= open_promises(files, task.told).earliest(h, keys) == NEVER
    rows = np.flatnonzero(finished)
    h, keys = h[rows], [each.take(pa.array(rows)) for each in keys]
    kept = keys or [pa.array(unmixed(h))]
    named = {
        name: values if kind is None else _as_type(values, kind)
        for (name, kind), values in zip(task.columns, kept, strict=True)
    }
    return pa.table(named), h, keys


def _candidates(files: Files, finishing: FinishedKeys) -> tuple[Hashes, list[pa.Array]]:
    """Give every value that a promise is about, once; ranges name no values."""
    parts = [
        each
        for side in (finishing.left, finishing.right)
        for each in open_promises(files, side.known).exact
        if each.h.size
    ]
    if not parts:
        return np.zeros(0, np.uint64), []
    h = np.concatenate([each.h for each in parts])
    keys = [pa.concat_arrays(each) for each in zip(*(part.keys for part in parts), strict=True)]
    once = in_order(h, np.zeros(h.size, np.int64), keys)
    return once.h, list(once.keys)


def _as_type(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Give the values of a key as they stood in their column."""
    if pa.types.is_boolean(kind):
        return values.cast(pa.int8()).cast(kind)
    if pa.types.is_date32(kind):
        return values.cast(pa.int32()).view(kind) if values.type != kind else values
    if pa.types.is_timestamp(kind) and pa.types.is_int64(values.type):
        return values.view(kind)
    return values.cast(kind)
