"""Streams with punctuations, as files and as scripts, for benchmarks and for paper 3 on the engine.

A file has a column more, ``kind``: 'row', or 'end' for a punctuation, which says that its stream has no later row with
its key.  It has the time of the row it follows::

    k     7      8      7      7     8     9
    kind  row    row    row    end   row   row
    ts    1      2      3      3     4     5

The same files are read in two ways, with the same results: *heeding* them, the streams declared with what their
punctuations mean; or not, their punctuations left out by a condition of every query.

In:  `Columns` of a workload.  Out: Arrow tables, and the text of a Penstock script.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.workloads import STREAMS, queries_in, stamps, streams_in

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from benchmarks.workloads import Columns, WindowQuery

    Ints = NDArray[np.int64]

IS_ROW = "kind = 'row'"  # of rows that are data, in any SQL
COLUMNS = "k BIGINT, v DOUBLE, kind STRING, ts TIMESTAMP"
OPTIONS = "punctuation = 'kind = ''end''', punctuates = 'k'"


class Punctuations(NamedTuple):
    """Keys that a stream is done with, each behind so many of its rows; the fewest first, one at the least."""

    key: Ints
    behind: Ints


NONE = Punctuations(np.zeros(0, np.int64), np.zeros(0, np.int64))


def at_their_ends(rows: Columns) -> Punctuations:
    """Punctuate every key behind its last row."""
    keys, from_the_end = np.unique(rows.key[::-1], return_index=True)
    behind = rows.key.size - from_the_end
    order = np.argsort(behind)
    return Punctuations(keys[order], behind[order])


def every_so_often(rows: Columns, every: int, stream: int) -> Punctuations:
    """Punctuate a key that neither stream ever has, behind every so many rows."""
    behind = np.arange(every, rows.key.size + 1, every)
    return Punctuations(-1 - stream - len(STREAMS) * np.arange(behind.size), behind)


def punctuated(rows: Columns, promises: Punctuations) -> pa.Table:
    """Lay rows and punctuations out in the order in which they come."""
    behind = promises.behind
    is_row = np.insert(np.ones(rows.key.size, np.bool_), behind, np.zeros(behind.size, np.bool_))
    return pa.table(
        {
            "k": np.insert(rows.key, behind, promises.key),
            "v": np.insert(rows.value, behind, np.zeros(behind.size)),
            "kind": pc.if_else(pa.array(is_row), "row", "end"),
            "ts": stamps(np.insert(rows.time, behind, rows.time[behind - 1])),
        }
    )


def bounds_with(promises: Punctuations, bounds: Ints) -> Ints:
    """Say where files begin that began before these rows: a punctuation is in the file of the row it follows."""
    return bounds + np.searchsorted(promises.behind, bounds, "right")


def punctuated_script(
    data: Path, queries: Sequence[WindowQuery], sink: str, *, heeds: bool, files: int | None = 1
) -> str:
    """Write queries over streams with punctuations, heeding them or leaving them out by a condition."""
    conditions = [] if heeds else [f"{name}.{IS_ROW}" for name in STREAMS]
    streams = streams_in(data, files, COLUMNS, OPTIONS if heeds else "")
    return streams + queries_in(queries, sink, *conditions)
