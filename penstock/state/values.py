"""The values in commits and in the ledger: the progress of streams, groups and queries.

All are frozen dataclasses of plain fields, so that one codec writes and reads them (`penstock.state.codec`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from penstock.plan.build import Stopped
from penstock.plan.spark_settings import SparkSettings
from penstock.sql.query import Query, Stream
from penstock.state.recent import Delays, Effort, Fanout
from penstock.state.row_times import LONG_AGO
from penstock.state.segment import Segment


class Sorter(NamedTuple):
    """Rows of an input that are sorted before they are joined: all up to `value`, of batches before `until`.

    Values are those of the join's ordered attribute.  Rows of later batches are not included, whatever their value.
    """

    until: int
    value: int


class Cursor(NamedTuple):
    """The rows that a slice has joined: batches of each input before `batches`, and every row older than `below`.

    Any row older than `below` that arrives later is late.  `below` moves only where input is held back until it is in
    order (`penstock.engine.views.waiting`).
    """

    batches: tuple[int, ...]
    below: int = LONG_AGO
    sorters: tuple[Sorter, ...] = ()
    """By input, where rows are sorted before they are joined (`penstock.engine.views.advance_limit`); else empty."""


Watermarks = tuple[int | None, ...]
"""The watermarks of a group's streams, in the order of its inputs."""

Station = tuple[Cursor, Watermarks]
"""A cursor, and the streams' watermarks when the batches up to it were the last ones."""


@dataclass(frozen=True, slots=True)
class StreamState:
    """The progress of a stream: its last source batch, newest event time and watermark, and its counts."""

    source_batch: int = -1
    batches: int = 0
    newest: int | None = None
    watermark: int | None = None
    rows: int = 0
    late: int = 0
    no_time: int = 0
    no_key: int = 0
    unwanted: int = 0
    last_rows_at: float = 0.0
    """When the last batch with rows was committed, in seconds since the epoch; 0 if unknown."""
    overtaken: int = 0
    """Rows that are in time for the stream, but too late for windows that count rows."""
    punctuations: int = 0
    """Promises in its rows; they are not counted in `rows`."""
    broken: int = 0
    """Rows that contradict an earlier promise of their stream."""
    dropped: int = 0
    """Rows that were never stored, because promises rule out any partner."""
    discarded: int = 0
    """Rows that were joined on arrival and not stored, because promises rule out any later partner."""
    purged: int = 0
    """Stored rows that were removed before their window ended, because of a later promise."""
    arrivals: int = 0
    """Positions given to its rows in the order of arrival, where joins have no window."""
    behind: int = 0
    """The largest delay of a late row behind the newest row of earlier batches, in microseconds."""

    @property
    def timely(self) -> int:
        """Return the number of rows that were in time."""
        return self.rows - self.late - self.no_time - self.broken


@dataclass(frozen=True, slots=True)
class GroupState:
    """The progress of a group: the cursor of each slice, and statistics of its units.

    `watermarks` are those of its streams when the batches up to the cursors were the last ones: no row to be joined is
    older.  (The streams' own watermarks may be ahead, by batches not joined yet.)  Where windows count rows, both are
    the horizon below which all rows are joined; `spans` has, for each side and number of rows, their extent in time.

    Slices may be at different cursors, the inner ones ahead.  Then `stations` are these cursors with their watermarks,
    slowest first, and `watermarks` are those of the slowest.
    """

    cursors: tuple[Cursor, ...]
    watermarks: Watermarks = (None, None)
    units: int = 0
    pairs: int = 0
    mixed_layouts: bool = False
    effort: Effort = field(default_factory=Effort)
    spans: tuple[Mapping[int, int], ...] = field(default_factory=lambda: ({}, {}))
    stations: tuple[Station, ...] = ()
    mode: str = ""
    """For adaptive queries: input is held back (sync-filter), or results are (filter-order)."""
    fanouts: Mapping[str, Fanout] = field(default_factory=dict)
    """For more than two streams, by step from one to another: the recent number of partners of a row."""
    mapped_bytes: int = 0
    """Bytes of the segments that tasks of the last unit mapped."""
    peak_mapped_bytes: int = 0
    """The maximum of any unit since the plan changed."""

    @property
    def all_stations(self) -> tuple[Station, ...]:
        """Return the cursors of the slices with their watermarks, slowest first."""
        return self.stations or ((self.cursors[0], self.watermarks),)

    @property
    def slices_apart(self) -> bool:
        """Return whether slices are at different cursors."""
        return len(set(self.cursors)) > 1

    def watermarks_of(self, slices: Iterable[int]) -> Watermarks:
        """Return the watermarks of the slowest of these slices."""
        behind = {self.cursors[number] for number in slices}
        return next(marks for cursor, marks in self.all_stations if cursor in behind)


@dataclass(frozen=True, slots=True)
class Layout:
    """The stored columns of a log's segments, and the meaning of each predicate bit."""

    columns: tuple[str, ...]
    predicates: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class QueryState:
    """The progress of a query: its results, its backfill, and the event time from which it is complete."""

    results: int = 0
    backfill: Cursor | None = None
    """The cursor of a backfill that is still to be done: pairs of older rows are missing."""
    held_from: Watermarks = (None, None)
    """By input: the event time from which all rows that it accepts are in the log; None: all rows."""
    complete_from: int | None = None
    """The event time from which every pair is delivered; None: all pairs."""
    born: int = 0
    """The version of the plan that added it; a query that is dropped and added again is another one."""
    delays: Delays = field(default_factory=Delays)
    answered: int | None = None
    """For an aggregate: the last instant, end of a bucket, or change that was answered."""
    counted_from: int = 0
    """For an aggregate: answers after this follow its present definition."""
    lacking: str = ""
    """Why older rows in the logs are not included in `complete_from`."""


@dataclass(frozen=True, slots=True)
class Move:
    """A file of committed output: written at `staged`, published at `final`, both under `root`."""

    root: str
    staged: str
    final: str


@dataclass(frozen=True, slots=True)
class Publication:
    """Committed output that has not reached its sink yet: files to move into place, or to pass to a callback.

    `query` is set if the files are for a console or callback.
    """

    unit: str
    moves: tuple[Move, ...]
    query: str = ""


@dataclass(frozen=True, slots=True)
class ServedPlan:
    """The streams (without secrets) and queries of a state, from which its plan is built again."""

    streams: tuple[Stream, ...] = ()
    queries: tuple[Query, ...] = ()
    strategy: str = "mem-opt"
    cuts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """By group whose chain has other cuts than its windows: these cuts."""
    stopped: tuple[Stopped, ...] = ()
    """Queries that failed, and have no new definition since."""
    spark_settings: SparkSettings | None = None
    """The settings of Spark under which it was made."""


@dataclass(frozen=True, slots=True)
class PlanChange:
    """A summary of a change of plan."""

    version: int
    """The version of the new plan; the first plan has 1."""
    reason: str
    """The change, in words."""
    at: str = ""
    """The time, in ISO 8601."""


F = TypeVar("F")


def by_name(parts: Iterable[Mapping[str, Sequence[F]]]) -> dict[str, tuple[F, ...]]:
    """Merge the reports of several tasks by name.

    >>> by_name([{"q": (1,)}, {"p": [2], "q": [3]}])
    {'q': (1, 3), 'p': (2,)}
    """
    together: dict[str, tuple[F, ...]] = {}
    for part in parts:
        for name, some in part.items():
            together[name] = (*together.get(name, ()), *some)
    return together


@dataclass(frozen=True, slots=True)
class Replacement:
    """Segments, and others with the same rows in another layout that replace them."""

    removed: tuple[str, ...]
    added: tuple[Segment, ...]
