"""Pairs on their way to sinks: the queries that get each pair, their routes, and the rows of pairs.

In:  pairs of a probe or of Spark SQL.  Out: for each query, the pairs that it gets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa

from penstock.engine.sinks.notes import Buffers
from penstock.engine.sinks.routes import CountRoute, Route, unwrap_route
from penstock.kernels.sets import members
from penstock.sql.query import is_side
from penstock.state.recent import Fanout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from penstock.kernels.key_hash import Ints
    from penstock.state.segment import SegmentRows

Fanouts = Mapping[str, Fanout]
"""By step of a join of several streams: the number of partners that rows have."""


@dataclass(frozen=True, slots=True)
class Target:
    """One query of a unit: its number in the group, its slices, and the route of its results.

    Where `computed`, Spark SQL has made the output (column ``o<number>``) or decided that there is none.  Else
    `columns` lists ``(name, side, column)``.
    """

    number: int
    query: str
    levels: tuple[int, int]
    route: Route = field(default_factory=CountRoute)
    columns: tuple[tuple[str, str, str], ...] = ()
    computed: bool = False
    types: str = ""
    """Spark's description of its columns (JSON), where a file does not tell by itself."""

    @property
    def in_table(self) -> bool:
        """Return whether its results are read from the group's table."""
        return unwrap_route(self.route).in_table

    @property
    def is_folded(self) -> bool:
        """Return whether its pairs are folded into partial results."""
        return self.route.folds_pairs

    @property
    def folds_rows(self) -> bool:
        """Return whether rows are folded for it, and no pair is found."""
        return self.route.folds_rows


@dataclass(frozen=True, slots=True)
class Delivery:
    """The output of a unit, for each of its tasks."""

    unit: str
    queries: int
    targets: tuple[Target, ...]
    table: str = ""
    """The directory of the state where pairs are kept; empty if no query reads any."""
    table_sets: bool = False
    """Whether pairs are kept with the set of their readers, and not by their slice."""
    state: str = ""
    """The root of the state."""
    arrived: float = 0.0
    """When the unit's last batch arrived: for pairs from Spark SQL, whose own arrival is not known."""
    buffers: Mapping[str, Buffers] = field(default_factory=dict)
    """The rows that waited for each query when the unit began."""
    survey: Callable[[], Fanouts] | None = None
    """Asked by the first task, where it is time to see again how many partners rows find."""

    def of_pairs(self) -> Delivery:
        """Return the output of pairs, without queries for which rows are folded."""
        return replace(self, targets=tuple(target for target in self.targets if not target.folds_rows))

    @property
    def levels(self) -> tuple[int, int]:
        """Return the range ``[first, last)`` of the slices that queries read."""
        levels = [target.levels for target in self.targets]
        return min((first for first, _ in levels), default=0), max((last for _, last in levels), default=0)

    def of_rows(self) -> Delivery:
        """Return the output of rows: the queries for which rows are folded."""
        return replace(self, targets=tuple(target for target in self.targets if target.folds_rows))


class FoundRows(Protocol):
    """The rows of one input of some pairs, still in their segments."""

    def times(self) -> Ints:
        """Return the event times."""

    def column(self, name: str, kind: pa.DataType, rows: Ints | None) -> pa.Array:
        """Return a column of all rows, or of some; nulls where it is not stored, because no query reads it."""


@dataclass(frozen=True, slots=True)
class RowsOfSegment:
    """Rows of one segment."""

    segment: SegmentRows
    numbers: Ints

    def times(self) -> Ints:
        """Return the event times."""
        return self.segment.rows.t[self.numbers]

    def column(self, name: str, kind: pa.DataType, rows: Ints | None) -> pa.Array:
        """Return a column of all rows, or of some; nulls where it is not stored."""
        chosen = self.numbers if rows is None else self.numbers[rows]
        if not self.segment.has(name):
            return pa.nulls(chosen.size, kind)
        return self.segment.column(name).take(pa.array(chosen))


@dataclass(frozen=True, slots=True)
class FoundPairs:
    """Some pairs as a probe found them: their gathered columns, and their rows of each side in the segments."""

    batch: pa.RecordBatch
    rows: Mapping[str, FoundRows]


class Waiting(Protocol):
    """A file, or several, with rows that are not written yet."""

    @property
    def waiting(self) -> int:
        """Return the bytes of rows that are not written yet."""

    def write(self, batch: pa.RecordBatch, /) -> None:
        """Add some rows."""

    def flush(self) -> None:
        """Write the rows that wait."""


@dataclass(slots=True)
class PairBatch:
    """Some pairs of a task: the set of queries that get each, and the queries that read it from the group's table."""

    batch: pa.RecordBatch
    level: NDArray[np.int16]
    sets: NDArray[np.uint64] | None
    readers: NDArray[np.uint64] | None
    """The readers of each pair in the table, as far as they are known; None where the group has no table.

    One row that stands for all pairs is read-only."""
    by_query: bool
    """Whether readers are noted by their numbers; else the first bit is set if there is any."""
    arrived: float
    found: FoundPairs | None = None
    """The rows of the pairs, where the pairs do not come from Spark SQL."""

    def times(self) -> tuple[Ints, ...]:
        """Return the event times of the rows of each input."""
        if self.found is not None:
            return tuple(rows.times() for rows in self.found.rows.values())
        return tuple(self.batch.column(time_name(side)).to_numpy() for side in sides_in(self.batch))

    def ends(self, skews: Sequence[int] = ()) -> tuple[Ints, Ints]:
        """Return the two times of each pair from which its birth and pane follow: of the left and the right row.

        With more than two rows these are the newest time, and the oldest of all times plus the skews.
        """
        times = self.times()
        if not skews:
            left, right = times
            return left, right
        moved = (time + skew for time, skew in zip(times, skews, strict=True))
        return reduce(np.maximum, times), reduce(np.minimum, moved)

    def column(self, side: str, name: str, kind: pa.DataType, rows: Ints | None) -> pa.Array:
        """Return a column of one input's rows, of all pairs or of some."""
        if self.found is None:
            column = self.batch.column(side).field(name)
            return column if rows is None else column.take(pa.array(rows))
        return self.found.rows[side].column(name, kind, rows)

    def note_reader(self, number: int, wanted: NDArray[np.bool_]) -> None:
        """Note that a query reads some of the pairs."""
        if self.readers is not None:
            bit = number if self.by_query else 0
            self.readers[:, bit // 64] |= wanted.astype(np.uint64) << np.uint64(bit % 64)

    def wanted_by(self, target: Target) -> NDArray[np.bool_]:
        """Return which of the pairs a query gets."""
        if target.computed:
            return self.batch.column(f"o{target.number}").is_valid().to_numpy(zero_copy_only=False)
        if self.sets is not None:
            return members(self.sets, target.number)
        first, last = target.levels
        return (self.level >= first) & (self.level < last)


def sides_in(batch: pa.RecordBatch) -> list[str]:
    """List the inputs of the pairs of a batch."""
    return [name for name in batch.schema.names if is_side(name)]


def time_name(side: str) -> str:
    """Return the name of the column with the event times of one input's rows."""
    return f"t{side}"
