"""The values that commits and the ledger are made of: how far streams, groups and queries are.

All are frozen and plain, so that one codec writes and reads them (`penstock.state.codec`).
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
    """Rows of an input that were joined out of turn: of batches before `until`, all up to a value.

    Values are those of the join's ordered attribute.  What comes in later batches is not meant, whatever its value.
    """

    until: int
    value: int


class Cursor(NamedTuple):
    """What a slice has joined: the batches of each input before `batches`, and every row older than `below`.

    A row older than `below` that is not there yet would be late, so that part names no rows still to come.  It
    moves where input waits for its turn (`penstock.engine.views.waiting`); elsewhere it stays at the
    beginning of time.
    """

    batches: tuple[int, ...]
    below: int = LONG_AGO
    sorters: tuple[Sorter, ...] = ()
    """By input, where rows are sorted before they are joined (`penstock.engine.views.advance_limit`); else none."""


Watermarks = tuple[int | None, ...]
"""Those of a group's streams, in the order of its inputs."""

Station = tuple[Cursor, Watermarks]
"""A cursor, and the watermarks of both streams when the batches up to it were all there were."""


@dataclass(frozen=True, slots=True)
class StreamState:
    """How far a stream is: the last source batch, its newest event time and watermark, and its counts."""

    source_batch: int = -1
    batches: int = 0
    newest: int | None = None
    watermark: int | None = None
    rows: int = 0
    late: int = 0
    no_time: int = 0
    no_key: int = 0
    unwanted: int = 0
    heard: float = 0.0
    """When the last batch that had rows was committed, in seconds since the epoch; 0: nobody knows."""
    overtaken: int = 0
    """Rows in time for the stream, but not for windows that count rows: those had been joined beyond them."""
    punctuations: int = 0
    """Promises that its rows have made; they are not among `rows`."""
    broken: int = 0
    """Rows that came after a promise of their stream that there would be none."""
    dropped: int = 0
    """Rows that were never stored, because promises of their partners left them nobody to meet."""
    discarded: int = 0
    """Rows that were joined when they came and not kept, because all their partners were there."""
    purged: int = 0
    """Rows that were let go before their window ended, because of a promise that came after them."""
    arrivals: int = 0
    """Positions that were given to its rows in the order of arrival, where joins have no window."""
    behind: int = 0
    """How far the latest of its late rows was behind the newest row of the batches before, in microseconds."""

    @property
    def timely(self) -> int:
        """Count the rows that came in time."""
        return self.rows - self.late - self.no_time - self.broken


@dataclass(frozen=True, slots=True)
class GroupState:
    """How far each slice of a group has joined the two logs, and how many units that took.

    `watermarks` are those of its streams when the batches up to the cursors were all there were: no row
    still to be joined is older.  (The streams' own watermarks may be ahead, by batches not joined yet.)  Where windows
    count rows, both are the horizon below which all is joined, and `spans` say for each side how far back of it so many
    rows reach in time.

    Slices may be at different cursors, the inner ones ahead.  `stations` are the cursors from the slowest slices to the
    newest, with the watermarks that go with them; `watermarks` are the slowest ones'.  Together, slices have none.
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
    """What waits now, where adaptive queries have chosen: the input (sync-filter), or the results (filter-order)."""
    fanouts: Mapping[str, Fanout] = field(default_factory=dict)
    """Of more than two streams, by step from one to another: how many partners rows have had lately."""
    mapped: int = 0
    """Bytes of the segments that tasks of the last unit mapped."""
    most_mapped: int = 0
    """The most of any unit since the plan changed."""

    @property
    def all_stations(self) -> tuple[Station, ...]:
        """Give the cursors from the slowest slices to the newest, with their watermarks."""
        return self.stations or ((self.cursors[0], self.watermarks),)

    @property
    def slices_apart(self) -> bool:
        """Say whether some slices are behind others."""
        return len(set(self.cursors)) > 1

    def watermarks_of(self, slices: Iterable[int]) -> Watermarks:
        """Give the watermarks of the slowest of some slices."""
        behind = {self.cursors[each] for each in slices}
        return next(marks for cursor, marks in self.all_stations if cursor in behind)


@dataclass(frozen=True, slots=True)
class Layout:
    """What a log's segments hold from some point on: the columns stored, and what each predicate bit means."""

    columns: tuple[str, ...]
    predicates: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class QueryState:
    """One query's past: results so far, what it still lacks, and from when on it is complete.

    `backfill` is the cursor up to which it still lacks the pairs of rows that were there before it.  `floors` are, for
    each input, the event times from which on all rows it accepts are known to be held; None: all.
    `complete_from` is the event time such that every pair of rows not older is delivered; None if all are.  `born` is
    the version of the plan that brought it: a query dropped and added again is another one.  `answered` is, of an
    aggregate, the last instant, end of a bucket or change that it has got; what comes after `counted_from` is by its
    present definition.  `lacking` is why rows that were held when it came are not among those it is complete for.
    """

    results: int = 0
    backfill: Cursor | None = None
    floors: Watermarks = (None, None)
    complete_from: int | None = None
    born: int = 0
    delays: Delays = field(default_factory=Delays)
    answered: int | None = None
    counted_from: int = 0
    lacking: str = ""


@dataclass(frozen=True, slots=True)
class Move:
    """A file of committed output: written at `staged`, to be seen at `final`, both under `root`."""

    root: str
    staged: str
    final: str


@dataclass(frozen=True, slots=True)
class Publication:
    """Output that is committed and must still reach its sink: moved into place, or handed to a callback.

    `query` is set where the files are for one query's console or callback rather than a directory.
    """

    unit: str
    moves: tuple[Move, ...]
    query: str = ""


@dataclass(frozen=True, slots=True)
class ServedPlan:
    """What a state serves: enough to build its plan again.  Streams are without their secrets."""

    streams: tuple[Stream, ...] = ()
    queries: tuple[Query, ...] = ()
    strategy: str = "mem-opt"
    cuts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """For each group whose chain is not cut by its windows alone, where it is cut."""
    stopped: tuple[Stopped, ...] = ()
    """Queries that could not be evaluated, and have not been defined anew since."""
    spark_settings: SparkSettings | None = None
    """The settings of Spark under which it was made; an earlier version did not note them."""


@dataclass(frozen=True, slots=True)
class PlanChange:
    """A change of plan, in short."""

    version: int
    """The version of the plan that it began; the first plan has 1."""
    reason: str
    """What changed, in words."""
    at: str = ""
    """When, in ISO 8601."""


F = TypeVar("F")


def by_name(parts: Iterable[Mapping[str, Sequence[F]]]) -> dict[str, tuple[F, ...]]:
    """Bring together what several tasks have for each name.

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
    """Segments that others take the place of, which hold the same rows in another way."""

    removed: tuple[str, ...]
    added: tuple[Segment, ...]
