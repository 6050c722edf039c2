"""The kinds of commit: each makes one thing true.

A commit is a frozen value.  `penstock.state.codec` writes it to the journal and reads it again, also as an earlier
version wrote it; `penstock.state.ledger` folds it.  ``docs/journal.md`` is made from the classes here: the first line
of a class says what becomes true, ``KIND`` is how the journal calls it, ``BY`` who commits it.

In:  what ingest, join, release and changes of plan have done.  Out: commits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from penstock.plan.panes import PaneSet
from penstock.plan.prices import Prices
from penstock.sql.query import Stream
from penstock.state.hold import Held
from penstock.state.panes import PaneFile
from penstock.state.promises import PromiseFiles
from penstock.state.recent import BatchTraffic, Fanout
from penstock.state.segment import Segment
from penstock.state.tables import Fed, StoredFile, StoredTable
from penstock.state.values import (
    Cursor,
    GroupState,
    Layout,
    Publication,
    QueryState,
    Replacement,
    ServedPlan,
    Station,
    StreamState,
    Watermarks,
)
from penstock.state.watch import BatchWatch, GroupWatch


@dataclass(frozen=True, slots=True)
class Opened:
    """Another engine took over this state."""

    KIND: ClassVar = "opened"
    BY: ClassVar = "start"


@dataclass(frozen=True, slots=True)
class Output:
    """What a unit, a backfill or a release has found: part of their commits.

    A reader reads the files that are named in `stored` and `kept`, and no others.
    """

    results: Mapping[str, int] = field(default_factory=dict)
    """How many results each query has got."""
    publish: tuple[Publication, ...] = ()
    """Files that must still reach their sinks."""
    stored: Mapping[str, Mapping[str, tuple[StoredFile, ...]]] = field(default_factory=dict)
    """Files of pairs that the state keeps, by group and table."""
    kept: Mapping[str, tuple[StoredFile, ...]] = field(default_factory=dict)
    """Files of results that the state keeps for one query, by its name."""
    held: Mapping[str, tuple[Held, ...]] = field(default_factory=dict)
    """Files of results that wait for their turn, by query."""
    delays: Mapping[str, tuple[tuple[float, int], ...]] = field(default_factory=dict)
    """By query: seconds from arrival to here, and how many results took so long."""
    panes: Mapping[str, tuple[PaneFile, ...]] = field(default_factory=dict)
    """Files of partial aggregates, by pane set."""
    fed: Mapping[str, Fed] = field(default_factory=dict)
    """Results that other queries read, by query."""


@dataclass(frozen=True, slots=True)
class BatchIngested:
    """A stream's batch, of this origin, is in the logs; its watermark rose."""

    KIND: ClassVar = "batch"
    BY: ClassVar = "ingest"

    stream: str
    state: StreamState
    segments: Mapping[str, tuple[Segment, ...]]
    """By log."""
    origin: dict[str, Any] | None = None
    """Where it came from (`penstock.state.origin`)."""
    arrived: float = 0.0
    """When Spark handed it over, in seconds since the epoch."""
    at: float = 0.0
    """When it was committed."""
    traffic: Mapping[str, BatchTraffic] = field(default_factory=dict)
    """By log: what it was like."""
    times: tuple[Segment, ...] = ()
    """Event times of its rows, where windows count rows."""
    promises: Mapping[str, PromiseFiles] = field(default_factory=dict)
    """By index: the promises that it makes."""
    gone: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """By log: the newest event time of rows that are not kept for their window, and how many they are."""
    watched: Mapping[str, BatchWatch] = field(default_factory=dict)
    """By log: what its order was like, where joins have no window."""
    fed: tuple[str, ...] = ()
    """Where the rows are the results of a query: the files that they were in, which are not needed any more."""


@dataclass(frozen=True, slots=True)
class SealedRoll:
    """How far a stream is counted now, and the pieces of event times that this adds."""

    horizon: int
    pieces: tuple[Segment, ...] = ()


@dataclass(frozen=True, slots=True)
class Sealed:
    """Rows below a horizon have their final positions."""

    KIND: ClassVar = "seal"
    BY: ClassVar = "join, where windows count rows"

    rolls: Mapping[str, SealedRoll]
    """By stream."""
    remove: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UnitJoined:
    """Slices of a group advanced; this output is committed."""

    KIND: ClassVar = "unit"
    BY: ClassVar = "join"

    group: str
    cursors: tuple[Cursor, ...]
    watermarks: Watermarks
    pairs: int
    output: Output
    spans: tuple[Mapping[int, int], ...] = field(default_factory=lambda: ({}, {}))
    rows: int = 0
    seconds: float = 0.0
    stations: tuple[Station, ...] = ()
    """Where slices are apart: the cursors they are at, from the slowest on."""
    fanouts: Mapping[str, Fanout] = field(default_factory=dict)
    """Of more than two streams, by step from one to another: how many partners rows have."""
    mapped: int = 0
    """Bytes of the segments that its tasks mapped, each counted once."""


@dataclass(frozen=True, slots=True)
class Backfilled:
    """Some queries have got the pairs that were there before them."""

    KIND: ClassVar = "backfill"
    BY: ClassVar = "join, after a change of plan"

    queries: tuple[str, ...]
    output: Output


@dataclass(frozen=True, slots=True)
class Released:
    """These results were held, and it was their turn."""

    KIND: ClassVar = "release"
    BY: ClassVar = "join, where order was asked for"

    gone: Mapping[str, tuple[str, ...]]
    """By query: the hold files that are not needed any more."""
    output: Output
    until: Mapping[str, int | None] = field(default_factory=dict)
    """By query: the time of the last result of its sequence; null where the sequence has ended."""
    disordered: Mapping[str, int] = field(default_factory=dict)
    """By query: results that came after later ones."""


@dataclass(frozen=True, slots=True)
class PlanServed:
    """From here on this state serves these streams and queries: the first commit, and every change of plan."""

    KIND: ClassVar = "plan"
    BY: ClassVar = "start, and every change of plan"

    plan: ServedPlan
    reason: str
    at: str = ""
    logs: tuple[str, ...] = ()
    births: Mapping[str, int | None] = field(default_factory=dict)
    """For each log that begins: the event time of its stream; null: with the stream."""
    layouts: Mapping[str, Layout] = field(default_factory=dict)
    """For each log that stores something else from here on, what."""
    upgrades: Mapping[str, Replacement] = field(default_factory=dict)
    groups: Mapping[str, GroupState] = field(default_factory=dict)
    queries: Mapping[str, QueryState] = field(default_factory=dict)
    """What each query that begins, or is defined anew, starts with."""
    tables: Mapping[str, tuple[StoredTable, ...]] = field(default_factory=dict)
    """For each group, the tables that begin."""
    writes: Mapping[str, str] = field(default_factory=dict)
    """For each group whose pairs are stored, the table they go to."""
    rolls: Mapping[str, int | None] = field(default_factory=dict)
    """For each stream whose rows are counted, from when on."""
    ordered: Mapping[str, int] = field(default_factory=dict)
    """For each query that wants its results in order, the version of the plan that brought its definition."""
    release: Released | None = None
    """What ends the sequences of queries that are defined anew or stopped."""
    panes: Mapping[str, PaneSet] = field(default_factory=dict)
    """The pane sets that aggregate queries share from here on."""
    promises: tuple[str, ...] = ()
    """The indexes of promises that are kept from here on."""
    watched: tuple[str, ...] = ()
    """The logs whose order is watched from here on, because joins have no window."""
    streams: Mapping[str, StreamState] = field(default_factory=dict)
    """What streams begin with that are the results of queries which have some already."""


@dataclass(frozen=True, slots=True)
class Answered:
    """Aggregate queries were answered from their panes; some panes are folded further, or gone."""

    KIND: ClassVar = "answer"
    BY: ClassVar = "join, for aggregates"

    answered: Mapping[str, int]
    """By query: the last instant or change it has got."""
    gone: Mapping[str, tuple[str, ...]]
    """By pane set: the files that are not needed any more, or not as they were."""
    files: Mapping[str, tuple[PaneFile, ...]]
    """By pane set: the files that take their place."""
    output: Output
    promises_seen: Mapping[str, float] = field(default_factory=dict)
    """By pane set: how many promises its groups were held against."""


@dataclass(frozen=True, slots=True)
class Watched:
    """Joins without a window know how far their streams are in order, and which rows meet nobody any more."""

    KIND: ClassVar = "watch"
    BY: ClassVar = "join, where there is no window"

    groups: Mapping[str, GroupWatch]
    """By group."""
    settled: Mapping[str, int]
    """By log: what is known of batches before this is put together."""


@dataclass(frozen=True, slots=True)
class Propagated:
    """These values are finished for these queries: no more of their results will have them."""

    KIND: ClassVar = "propagate"
    BY: ClassVar = "join, where a sink asks for punctuations"

    told: Mapping[str, PromiseFiles]
    """By index of what a query was told: the values, as they are kept."""
    seen: Mapping[str, float]
    """By the same index: how many promises had taken effect."""
    output: Output


@dataclass(frozen=True, slots=True)
class Declared:
    """These streams have other options from here on, but their rows mean the same."""

    KIND: ClassVar = "declared"
    BY: ClassVar = "start"

    streams: tuple[Stream, ...]


@dataclass(frozen=True, slots=True)
class OrderSwitched:
    """From here on something else waits in some groups: their input, or their results."""

    KIND: ClassVar = "order"
    BY: ClassVar = "join, where order is adaptive"

    groups: tuple[str, ...]
    """The ids of the groups."""
    mode: str
    """What waits from here on: the input (`sync-filter`) or the results (`filter-order`)."""
    reason: str
    """Why: the measured load, against the `alpha` of the query that asks for the least."""
    at: str
    """When, in ISO 8601."""


@dataclass(frozen=True, slots=True)
class NumberedLayout:
    """A layout of a log, and its number."""

    number: int
    layout: Layout


@dataclass(frozen=True, slots=True)
class Rewritten:
    """These segments of a log are replaced by those, or gone."""

    KIND: ClassVar = "rewrite"
    BY: ClassVar = "merge and retention"

    log: str
    remove: tuple[str, ...]
    add: tuple[Segment, ...] = ()
    layouts: tuple[NumberedLayout, ...] = ()
    """Layouts that the added segments have and nothing had before."""
    rows: int = 0
    seconds: float = 0.0
    output: Output = field(default_factory=Output)
    """Results that the end of the rows' use has brought about."""
    stream: str = ""
    """Whose log it is."""
    purged: int = 0
    """Rows found here to be of no more use because of promises."""
    gone: tuple[int, int] | None = None
    """The newest event time of rows that were let go before their window ended, and how many they are."""
    finished: Mapping[str, int] = field(default_factory=dict)
    """By segment that stays as it is: its rows that promises have made useless."""
    promises_seen: float | None = None
    """How many promises the log was held against; null: it was not."""


@dataclass(frozen=True, slots=True)
class PromisesMerged:
    """These files of promises are replaced by those; some promises are forgotten."""

    KIND: ClassVar = "promises"
    BY: ClassVar = "merge and retention"

    remove: Mapping[str, tuple[str, ...]]
    """By index."""
    add: Mapping[str, PromiseFiles]


@dataclass(frozen=True, slots=True)
class Published:
    """Output of these units has reached its sinks."""

    KIND: ClassVar = "published"
    BY: ClassVar = "join"

    units: tuple[tuple[str, str], ...]
    """Units, and the query where the output was for one console or callback."""


@dataclass(frozen=True, slots=True)
class TableBegun:
    """A table that others are merged into."""

    table: StoredTable
    of: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FilesReplaced:
    """Files of pairs that others of the same group take the place of."""

    remove: tuple[str, ...] = ()
    add: Mapping[str, tuple[StoredFile, ...]] = field(default_factory=dict)
    """By table."""


@dataclass(frozen=True, slots=True)
class NeighboursMerged:
    """Neighbours among the files of one query's results, and what takes their place."""

    remove: tuple[str, ...]
    add: tuple[StoredFile, ...]


@dataclass(frozen=True, slots=True)
class Compacted:
    """These files of results are replaced by those."""

    KIND: ClassVar = "compact"
    BY: ClassVar = "join, after its other work"

    tables: Mapping[str, TableBegun] = field(default_factory=dict)
    """By group."""
    pairs: Mapping[str, FilesReplaced] = field(default_factory=dict)
    """By group."""
    kept: Mapping[str, tuple[NeighboursMerged, ...]] = field(default_factory=dict)
    """By query."""


@dataclass(frozen=True, slots=True)
class Priced:
    """This is what the engine's work costs here."""

    KIND: ClassVar = "prices"
    BY: ClassVar = "calibrate"

    prices: Prices


Commit = (
    Opened
    | PlanServed
    | Declared
    | BatchIngested
    | Sealed
    | UnitJoined
    | Backfilled
    | Released
    | Answered
    | Propagated
    | Watched
    | OrderSwitched
    | Rewritten
    | PromisesMerged
    | Published
    | Compacted
    | Priced
)
