"""Hold files: results of queries with ordered output, sorted by time until they can be released.

Results of such a query are joined at once and *held* until no earlier result can follow.  A pair's time is the later of
its two event times; no later pair has a time below the release time H::

    time of a pair     10   12   15 |  17   21         one hold file
                       ============ |  ---------
                         released   H  held            the file's first row is now that of 17; it is not rewritten

A hold file is Arrow IPC, sorted by the pairs' times and mapped; a release finds its rows by binary search.  Files of
small units are merged, so the number of files, and how often a result is written, grows with the logarithm of the held
results.  Columns:

    penstock.t, penstock.l, penstock.r   int64   the pair's time, and those of its rows (of more streams penstock.i0 …)
    the query's output                           under its own names

In:  batches of a query's results with their times.  Out: `Held`, the journal's entry for a file, and sorted tables.
"""

from __future__ import annotations

import re
import uuid
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock import limits
from penstock.kernels import width
from penstock.sql.query import sides_for
from penstock.state.checksum import map_whole, summed_writer
from penstock.state.files import safe_name
from penstock.state.spark_schema import loosened

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from penstock.kernels.key_hash import Ints
    from penstock.state.checksum import SummedFile
    from penstock.state.files import Files

TIME = "penstock.t"
TIMES = (TIME, "penstock.l", "penstock.r")
"""The columns of times of a pair."""
_TIMES = re.compile(r"penstock\.(t|l|r|i[0-9]+)")

ARRIVED = "penstock.a"
"""The arrival of the later row of a pair, in seconds since the epoch: the last column of a hold file."""

_SAMPLES_PER_RANGE = 64


@dataclass(frozen=True, slots=True)
class Held:
    """The journal's entry for a hold file: rows from `min_t` on are held, those before it were released."""

    name: str
    rows: int
    min_t: int
    max_t: int
    generation: int = 0
    checksum: int | None = None
    """Of the file's bytes (`penstock.state.checksum`)."""


@dataclass(frozen=True, slots=True)
class Hold:
    """The held results of a query."""

    plan_version: int = 0
    """The version of the plan with the query's present definition."""
    files: tuple[Held, ...] = ()
    until: int | None = None
    """The time of the last released result of the sequence; None at its beginning."""
    disordered: int = 0
    """Results released after a later one, because their stream was treated as idle."""

    @property
    def rows(self) -> int:
        """Return the number of held results."""
        return sum(file.rows for file in self.files)


def hold_folder(query: str) -> str:
    """Return the directory of the hold files of a query."""
    return f"hold/{safe_name(query)}"


def hold_times(times: Sequence[Ints]) -> dict[str, pa.Array]:
    """Return the columns by which results are sorted: their time, and those of their rows."""
    newest = reduce(np.maximum, times)
    by_row = zip(sides_for(len(times)), times, strict=True)
    return {TIME: pa.array(newest), **{f"penstock.{side}": pa.array(row_times) for side, row_times in by_row}}


def own_columns(table: pa.Table) -> pa.Table:
    """Return the columns of a query's output alone."""
    return table.drop_columns(
        [name for name in table.column_names if name == ARRIVED or _TIMES.fullmatch(name)]
    )


def sort_by_time(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    """Sort results by time; results of one instant keep their order."""
    table = loosened(pa.Table.from_batches(batches))
    return table.take(pa.array(np.argsort(table.column(TIME).to_numpy(), kind="stable")))


def write_hold(files: Files, folder: str, tables: Iterable[pa.Table], generation: int = 0) -> Held | None:
    """Write sorted tables as a hold file; None if they are empty."""
    name, rows, times = f"{folder}/{uuid.uuid4().hex}.arrow", 0, (0, 0)
    sink: SummedFile | None = None
    with ExitStack() as stack:
        for table in tables:
            first, last = (table.column(TIME)[row].as_py() for row in (0, -1))
            if sink is None:
                sink = stack.enter_context(summed_writer(files, name))
                out = stack.enter_context(pa.ipc.new_file(sink, table.schema))
            out.write_table(table, max_chunksize=limits.HOLD_BATCH_ROWS)
            times = times[0] if rows else first, last
            rows += table.num_rows
    return Held(name, rows, *times, generation, sink.checksum) if sink else None


def read_hold(files: Files, held: Held, since: int, until: int) -> Iterator[pa.RecordBatch]:
    """Map the results of a file with times ``since <= t < until``."""
    reader = pa.ipc.open_file(map_whole(files, held))
    for number in range(reader.num_record_batches):
        batch = reader.get_batch(number)
        first, last = np.searchsorted(_times(batch), (max(since, held.min_t), until))
        if first < last:
            yield batch.slice(first, last - first)
        if last < batch.num_rows:
            return  # the following batches are later


def rest_of(files: Files, held: Held, since: int) -> Held | None:
    """Return the entry for a file after the release of all results before a time; None if it is then empty."""
    first = next(read_hold(files, held, since, held.max_t + 1), None)
    if first is None:
        return None
    released = sum(batch.num_rows for batch in read_hold(files, held, held.min_t, since))
    return replace(held, rows=held.rows - released, min_t=int(_times(first)[0]))


def in_order(files: Files, holds: Iterable[Held], since: int, until: int) -> Iterator[pa.Table]:
    """Merge the results of some files with times ``since <= t < until``, a bounded number of rows at a time.

    The order is by the pair's time, the left row's, the right row's, then the output columns from first to last, nulls
    last.  Columns without an order (arrays, maps, structs) are ignored.
    """
    runs = [run for held in holds for run in read_hold(files, held, since, until)]
    if not runs:
        return
    schema = runs[0].schema
    keys = [(field.name, "ascending") for field in schema if _has_order(field.type)]
    for parts in _time_ranges(runs):
        # a session with another time zone writes the same times with another type
        yield from _sorted([_as(part, schema) for part in parts], keys)


def _as(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Cast results to a schema, with its description for Spark."""
    same = batch if batch.schema.equals(schema) else batch.cast(schema)
    return same.replace_schema_metadata(schema.metadata)


def _sorted(parts: Sequence[pa.RecordBatch], keys: Sequence[tuple[str, str]]) -> Iterator[pa.Table]:
    """Sort the results of some files; if one instant has too many bytes, gather them piece by piece."""
    table = pa.Table.from_batches(parts)
    if table.nbytes <= limits.MAX_PIECE_BYTES:
        whole = table.combine_chunks()
        yield whole.take(pc.sort_indices(whole, sort_keys=keys))
        return
    order = pc.sort_indices(table, sort_keys=keys).to_numpy().astype(np.int64)
    widths = np.concatenate(
        [np.broadcast_to(width.row_widths(part.columns), part.num_rows) for part in parts]
    )
    for piece in width.pieces(order.size, widths[order]):
        yield pa.Table.from_batches([width.take_rows(parts, order[piece])])


def choose_merges(holds: Iterable[Held]) -> list[tuple[Held, ...]]:
    """Choose the hold files to merge: all of a generation that has enough of them.

    >>> choose_merges([Held("old", 9, 0, 5, 1), Held("new", 1, 0, 5)])
    []
    """
    generations: dict[int, list[Held]] = {}
    for held in holds:
        generations.setdefault(held.generation, []).append(held)
    return [tuple(alike) for _, alike in sorted(generations.items()) if len(alike) >= limits.MERGE_FAN_IN]


def _times(batch: pa.RecordBatch) -> Ints:
    times: Ints = batch.column(TIME).to_numpy()
    return times


def _time_ranges(runs: Sequence[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Divide sorted runs at the same times, into ranges of rows that can be sorted at once."""
    times = [_times(run) for run in runs]
    total = sum(map(len, times))
    most = min(
        limits.MAX_ROWS_PER_SORT, max(1, total * limits.MAX_PIECE_BYTES // sum(run.nbytes for run in runs))
    )
    cuts = _cuts(times, most) if total > most else np.empty(0, np.int64)
    edges = [(0, *np.searchsorted(column, cuts), len(column)) for column in times]
    for number in range(len(cuts) + 1):
        pieces = [
            run.slice(edge[number], edge[number + 1] - edge[number])
            for run, edge in zip(runs, edges, strict=True)
            if edge[number] < edge[number + 1]
        ]
        if pieces:
            yield pieces


def _cuts(times: Sequence[Ints], most: int) -> Ints:
    """Return times with about `most` results between them, from a sample of sorted runs."""
    step = max(1, most // _SAMPLES_PER_RANGE)
    every = most // step
    sample = np.sort(np.concatenate([column[::step] for column in times]))
    return np.unique(sample[every::every])


def _has_order(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_primitive(kind)  # numbers, booleans, dates, times
        or types.is_decimal(kind)
        or types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
    ) and not types.is_interval(kind)
