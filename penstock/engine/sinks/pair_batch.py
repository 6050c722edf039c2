"""Pairs on their way to sinks: which query gets each, by which route, and the rows that they are."""

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
"""By step of a join of many streams: how many partners rows have."""


@dataclass(frozen=True, slots=True)
class Target:
    """One query's delivery: its number in the group, its slices, and the way out for its results.

    `computed` says that Spark SQL made the output (column ``o<number>``), or decided whether there is one; else
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
        """Say whether its results are read from the group's table."""
        return unwrap_route(self.route).in_table

    @property
    def is_folded(self) -> bool:
        """Say whether its pairs are folded into partial aggregates."""
        return self.route.folds_pairs

    @property
    def folds_rows(self) -> bool:
        """Say whether rows are folded for it, and no pair is found."""
        return self.route.folds_rows


@dataclass(frozen=True, slots=True)
class Delivery:
    """What every task of a unit is told about its output."""

    unit: str
    queries: int
    targets: tuple[Target, ...]
    table: str = ""
    """The directory of the state where pairs are kept, empty if no query reads any."""
    table_sets: bool = False
    """Whether pairs are kept with the set of queries that read them, and not by their level."""
    state: str = ""
    """Where the state is, which hold files are named from."""
    arrived: float = 0.0
    """When the unit's last batch arrived: for pairs that come through Spark SQL and no longer know their own."""
    buffers: Mapping[str, Buffers] = field(default_factory=dict)
    """What waited for each query when the unit began."""
    survey: Callable[[], Fanouts] | None = None
    """Asked by the first task, where it is time to see again how many partners rows find."""

    def of_pairs(self) -> Delivery:
        """Leave out the queries that no pair is found for."""
        return replace(self, targets=tuple(each for each in self.targets if not each.folds_rows))

    @property
    def levels(self) -> tuple[int, int]:
        """Give the levels ``[first, last)`` from the first that some query reads to the last."""
        ends = [each.levels for each in self.targets]
        return min((each for each, _ in ends), default=0), max((each for _, each in ends), default=0)

    def of_rows(self) -> Delivery:
        """Leave out all others."""
        return replace(self, targets=tuple(each for each in self.targets if each.folds_rows))


class FoundRows(Protocol):
    """The rows of one input that some pairs are made of, still in their segments."""

    def times(self) -> Ints:
        """Give their event times."""

    def column(self, name: str, kind: pa.DataType, rows: Ints | None) -> pa.Array:
        """Give a column of all of them, or of some; nulls of a type where it is not stored, because nobody reads it."""


@dataclass(frozen=True, slots=True)
class RowsOfSegment:
    """Rows that are all of one segment."""

    segment: SegmentRows
    numbers: Ints

    def times(self) -> Ints:
        """Give their event times."""
        return self.segment.rows.t[self.numbers]

    def column(self, name: str, kind: pa.DataType, rows: Ints | None) -> pa.Array:
        """Give a column of all of them, or of some; nulls where it is not stored."""
        chosen = self.numbers if rows is None else self.numbers[rows]
        if not self.segment.has(name):
            return pa.nulls(chosen.size, kind)
        return self.segment.column(name).take(pa.array(chosen))


@dataclass(frozen=True, slots=True)
class FoundPairs:
    """Some pairs as a probe found them: what is gathered of them, and by side the segments' rows that they are."""

    batch: pa.RecordBatch
    rows: Mapping[str, FoundRows]


class Waiting(Protocol):
    """Rows on their way into files."""

    @property
    def waiting(self) -> int:
        """Count the bytes of those that are not written yet."""

    def write(self, batch: pa.RecordBatch, /) -> None:
        """Take some rows."""

    def flush(self) -> None:
        """Write all of them."""


@dataclass(slots=True)
class PairBatch:
    """Some pairs on their way out: the set of queries that want each, and who reads it from the group's table."""

    batch: pa.RecordBatch
    level: NDArray[np.int16]
    sets: NDArray[np.uint64] | None
    readers: NDArray[np.uint64] | None
    """Who reads each pair from the table, as far as is known; None where nobody does.  Read only if one row stands for
    all."""
    by_query: bool
    """Whether readers are noted by their numbers; else the first bit says whether there is any."""
    arrived: float
    found: FoundPairs | None = None
    """The rows that the pairs are, where they have not been through Spark."""

    def times(self) -> tuple[Ints, ...]:
        """Give the event times of the rows of each input."""
        if self.found is not None:
            return tuple(each.times() for each in self.found.rows.values())
        return tuple(self.batch.column(time_name(side)).to_numpy() for side in sides_in(self.batch))

    def ends(self, skews: Sequence[int] = ()) -> tuple[Ints, Ints]:
        """Give two times of each pair that say all a pane needs: of its left and right row.

        Of more than two rows, those are the newest time, and the oldest of all times moved on by the skews.
        """
        times = self.times()
        if not skews:
            left, right = times
            return left, right
        moved = (each + skew for each, skew in zip(times, skews, strict=True))
        return reduce(np.maximum, times), reduce(np.minimum, moved)

    def column(self, side: str, name: str, kind: pa.DataType, rows: Ints | None) -> pa.Array:
        """Give a column of one input's rows, of all pairs or of some."""
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
        """Say which of the pairs a query gets."""
        if target.computed:
            return self.batch.column(f"o{target.number}").is_valid().to_numpy(zero_copy_only=False)
        if self.sets is not None:
            return members(self.sets, target.number)
        first, last = target.levels
        return (self.level >= first) & (self.level < last)


def sides_in(batch: pa.RecordBatch) -> list[str]:
    """Name the inputs that the pairs of a batch are made of."""
    return [name for name in batch.schema.names if is_side(name)]


def time_name(side: str) -> str:
    """Name the column with the event times of one input's rows."""
    return f"t{side}"
