"""Results that wait for their turn: hold files, in the order of the pairs' times.

A query that wants its results in order has them joined at once and *held* until nothing still to come can go before
them.  A pair's time is the later of its two event times; below the release time H no pair is still to come::

    time of a pair     10   12   15 |  17   21         one hold file
                       ============ |  ---------
                         released   H  held            from now on the file counts from 17; it is not rewritten

A hold file is Arrow IPC, sorted by the pairs' times and mapped: a release reads the rows that it releases and finds
them by binary search.  Files of many small units are merged, so that
their number grows with the logarithm of what is held, and so does the number of times that a result is written.
Columns:

    penstock.t, penstock.l, penstock.r   int64   the pair's time, and those of its rows (of more streams penstock.i0 …)
    the query's output                           under its own names

In:  batches of a query's results with their times.  Out: `Held`, what the journal remembers, and sorted tables.
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
from penstock.state.spark_schema import is_described, loosened

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
"""When the later of a pair's rows had arrived, in seconds since the epoch: the last column of a hold file."""

_SAMPLES_PER_RANGE = 64


@dataclass(frozen=True, slots=True)
class Held:
    """What the journal knows of a hold file: the rows from `min_t` on are held, those before it were released."""

    name: str
    rows: int
    min_t: int
    max_t: int
    generation: int = 0
    checksum: int | None = None
    """Of the file's bytes (`penstock.state.checksum`); None for one of an earlier version."""


@dataclass(frozen=True, slots=True)
class Hold:
    """All that is held of a query.  `era` is the version of the plan that brought its present definition."""

    era: int = 0
    files: tuple[Held, ...] = ()
    until: int | None = None
    """The time of the last result of the sequence; None at its beginning."""
    disordered: int = 0
    """Results that came after a later one: of rows of a stream that had been left out as idle."""

    @property
    def rows(self) -> int:
        """Count the results that are held."""
        return sum(each.rows for each in self.files)


def hold_folder(query: str) -> str:
    """Say where the hold files of a query are."""
    return f"hold/{safe_name(query)}"


def hold_times(times: Sequence[Ints]) -> dict[str, pa.Array]:
    """Give the columns of times that results are put in order by: their own, then those of their rows."""
    newest = reduce(np.maximum, times)
    by_row = zip(sides_for(len(times)), times, strict=True)
    return {TIME: pa.array(newest), **{f"penstock.{side}": pa.array(each) for side, each in by_row}}


def own_columns(table: pa.Table) -> pa.Table:
    """Give the columns of a query's output alone."""
    return table.drop_columns(
        [name for name in table.column_names if name == ARRIVED or _TIMES.fullmatch(name)]
    )


def sort_by_time(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    """Put results in the order of their times; those of one instant stay as they are."""
    table = loosened(pa.Table.from_batches(batches))
    return table.take(pa.array(np.argsort(table.column(TIME).to_numpy(), kind="stable")))


def write_hold(files: Files, folder: str, tables: Iterable[pa.Table], generation: int = 0) -> Held | None:
    """Write tables, in order within and among themselves, as a hold file; None if there is nothing in them."""
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
    """Map the results that a file holds of the times ``since <= t < until``."""
    reader = pa.ipc.open_file(map_whole(files, held))
    for number in range(reader.num_record_batches):
        batch = _with_arrival(reader.get_batch(number))
        first, last = np.searchsorted(_times(batch), (max(since, held.min_t), until))
        if first < last:
            yield batch.slice(first, last - first)
        if last < batch.num_rows:
            return  # all that follow are later


def _with_arrival(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Add the column of arrivals, all zero, to results of an older version, which did not note them."""
    if ARRIVED in batch.schema.names:
        return batch
    return batch.append_column(ARRIVED, pa.array(np.zeros(batch.num_rows)))


def rest_of(files: Files, held: Held, since: int) -> Held | None:
    """Say what a file still holds when all before a time is released; None if nothing."""
    first = next(read_hold(files, held, since, held.max_t + 1), None)
    if first is None:
        return None
    released = sum(each.num_rows for each in read_hold(files, held, held.min_t, since))
    return replace(held, rows=held.rows - released, min_t=int(_times(first)[0]))


def in_order(files: Files, holds: Iterable[Held], since: int, until: int) -> Iterator[pa.Table]:
    """Merge what some files hold of the times ``since <= t < until``, a bounded number of rows at a time.

    The order is by the pair's time, then the left and the right row's, then the output columns from first to last,
    nulls after all else.  Columns that have no order (arrays, maps, structs) do not count.
    """
    runs = [run for each in holds for run in read_hold(files, each, since, until)]
    if not runs:
        return
    schema = max((run.schema for run in runs), key=is_described)  # one of an earlier version may not be
    keys = [(each.name, "ascending") for each in schema if _has_order(each.type)]
    for parts in _time_ranges(runs):
        # A session with another time zone writes the same times under another type.
        yield from _sorted([_as(each, schema) for each in parts], keys)


def _as(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Cast results to a schema, with its description for Spark."""
    same = batch if batch.schema.equals(schema) else batch.cast(schema)
    return same.replace_schema_metadata(schema.metadata)


def _sorted(parts: Sequence[pa.RecordBatch], keys: Sequence[tuple[str, str]]) -> Iterator[pa.Table]:
    """Sort the results of some files; where one instant has too many bytes, they are read in order piece by piece."""
    table = pa.Table.from_batches(parts)
    if table.nbytes <= width.MOST_BYTES:
        whole = table.combine_chunks()
        yield whole.take(pc.sort_indices(whole, sort_keys=keys))
        return
    order = pc.sort_indices(table, sort_keys=keys).to_numpy().astype(np.int64)
    widths = np.concatenate(
        [np.broadcast_to(width.row_widths(each.columns), each.num_rows) for each in parts]
    )
    for piece in width.pieces(order.size, widths[order]):
        yield pa.Table.from_batches([width.take_rows(parts, order[piece])])


def choose_merges(holds: Iterable[Held]) -> list[tuple[Held, ...]]:
    """Choose the hold files that become one: all of a generation that has enough of them.

    >>> choose_merges([Held("old", 9, 0, 5, 1), Held("new", 1, 0, 5)])
    []
    """
    generations: dict[int, list[Held]] = {}
    for each in holds:
        generations.setdefault(each.generation, []).append(each)
    return [tuple(alike) for _, alike in sorted(generations.items()) if len(alike) >= limits.MERGE_FAN_IN]


def _times(batch: pa.RecordBatch) -> Ints:
    """Give the times of a batch of results, without copying."""
    times: Ints = batch.column(TIME).to_numpy()
    return times


def _time_ranges(runs: Sequence[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Cut sorted runs at the same times, into ranges with about as many rows in all as can be sorted in one go."""
    times = [_times(run) for run in runs]
    total = sum(map(len, times))
    most = min(limits.MAX_ROWS_PER_SORT, max(1, total * width.MOST_BYTES // sum(run.nbytes for run in runs)))
    cuts = _cuts(times, most) if total > most else np.empty(0, np.int64)
    edges = [(0, *np.searchsorted(each, cuts), len(each)) for each in times]
    for number in range(len(cuts) + 1):
        pieces = [
            run.slice(edge[number], edge[number + 1] - edge[number])
            for run, edge in zip(runs, edges, strict=True)
            if edge[number] < edge[number + 1]
        ]
        if pieces:
            yield pieces


def _cuts(times: Sequence[Ints], most: int) -> Ints:
    """Find instants with about so many results between them, by a sample of sorted runs."""
    step = max(1, most // _SAMPLES_PER_RANGE)
    every = most // step
    sample = np.sort(np.concatenate([each[::step] for each in times]))
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
