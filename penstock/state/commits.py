"""The kinds of commit.  Each is a frozen value that changes the ledger in one step.

`penstock.state.codec` writes commits to the journal and reads them; `penstock.state.ledger` folds them.
``docs/journal.md`` is generated from the classes here: the first line of a class states the change, ``KIND`` is its
name in the journal, ``BY`` the part of the engine that commits it.

In:  reports of ingest, join, release and changes of plan.  Out: commits.
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
class EngineOpened:
    """Another engine took over this state."""

    KIND: ClassVar = "opened"
    BY: ClassVar = "start"


@dataclass(frozen=True, slots=True)
class CommitOutput:
    """The results of a unit, backfill, release or answer; a part of their commits.

    Readers read the files in `stored` and `kept`, and no others.
    """

    results: Mapping[str, int] = field(default_factory=dict)
    """By query: the number of new results."""
    publish: tuple[Publication, ...] = ()
    """Files to move or pass to their sinks."""
    stored: Mapping[str, Mapping[str, tuple[StoredFile, ...]]] = field(default_factory=dict)
    """By group and table: files of pairs that the state keeps."""
    kept: Mapping[str, tuple[StoredFile, ...]] = field(default_factory=dict)
    """By query: files of results that the state keeps for this query alone."""
    held: Mapping[str, tuple[Held, ...]] = field(default_factory=dict)
    """By query: files of results that are held until they can be released in order."""
    delays: Mapping[str, tuple[tuple[float, int], ...]] = field(default_factory=dict)
    """By query: seconds from arrival to commit, and the number of results with this delay."""
    panes: Mapping[str, tuple[PaneFile, ...]] = field(default_factory=dict)
    """By pane set: files of partial aggregates."""
    fed: Mapping[str, Fed] = field(default_factory=dict)
    """By query: results that other queries read."""


@dataclass(frozen=True, slots=True)
class BatchIngested:
    """The logs have a stream's batch of this origin, and its watermark rose."""

    KIND: ClassVar = "batch"
    BY: ClassVar = "ingest"

    stream: str
    state: StreamState
    segments: Mapping[str, tuple[Segment, ...]]
    """By log."""
    origin: dict[str, Any] | None = None
    """Its position in the source (`penstock.state.origin`)."""
    arrived: float = 0.0
    """When Spark started the batch, in seconds since the epoch."""
    at: float = 0.0
    """When it was committed."""
    traffic: Mapping[str, BatchTraffic] = field(default_factory=dict)
    """By log: statistics of the batch."""
    times: tuple[Segment, ...] = ()
    """Event times of its rows, where windows count rows."""
    promises: Mapping[str, PromiseFiles] = field(default_factory=dict)
    """By index: the promises in the batch."""
    early_removals: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """By log: rows not stored although their window is open: the newest event time, and their number."""
    watched: Mapping[str, BatchWatch] = field(default_factory=dict)
    """By log: the order of its rows, where joins have no window."""
    fed: tuple[str, ...] = ()
    """Where the rows are the results of a query: their files, which are no longer needed."""


@dataclass(frozen=True, slots=True)
class SealedRoll:
    """A stream's new horizon, and the new files of event times."""

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
    output: CommitOutput
    spans: tuple[Mapping[int, int], ...] = field(default_factory=lambda: ({}, {}))
    rows: int = 0
    seconds: float = 0.0
    stations: tuple[Station, ...] = ()
    """Where slices are at different cursors: these cursors, slowest first."""
    fanouts: Mapping[str, Fanout] = field(default_factory=dict)
    """For more than two streams, by step from one to another: the number of partners of a row."""
    mapped_bytes: int = 0
    """Bytes of the segments that its tasks mapped, each segment counted once."""


@dataclass(frozen=True, slots=True)
class Backfilled:
    """These queries have the pairs of rows from before their start."""

    KIND: ClassVar = "backfill"
    BY: ClassVar = "join, after a change of plan"

    queries: tuple[str, ...]
    output: CommitOutput


@dataclass(frozen=True, slots=True)
class Released:
    """These held results were released in order."""

    KIND: ClassVar = "release"
    BY: ClassVar = "join, where order was requested"

    released_files: Mapping[str, tuple[str, ...]]
    """By query: hold files that are no longer needed."""
    output: CommitOutput
    until: Mapping[str, int | None] = field(default_factory=dict)
    """By query: the time of the last result of its sequence; null if the sequence has ended."""
    disordered: Mapping[str, int] = field(default_factory=dict)
    """By query: results that came after later ones."""


@dataclass(frozen=True, slots=True)
class PlanServed:
    """The state serves these streams and queries from here on: the first commit, and every change of plan."""

    KIND: ClassVar = "plan"
    BY: ClassVar = "start, and every change of plan"

    plan: ServedPlan
    reason: str
    at: str = ""
    logs: tuple[str, ...] = ()
    births: Mapping[str, int | None] = field(default_factory=dict)
    """By new log: the event time of its stream at its start; null: the start of the stream."""
    layouts: Mapping[str, Layout] = field(default_factory=dict)
    """By log: its new layout, where that changes."""
    upgrades: Mapping[str, Replacement] = field(default_factory=dict)
    groups: Mapping[str, GroupState] = field(default_factory=dict)
    queries: Mapping[str, QueryState] = field(default_factory=dict)
    """By query that is new or has a new definition: its first state."""
    tables: Mapping[str, tuple[StoredTable, ...]] = field(default_factory=dict)
    """By group: the new tables."""
    writes: Mapping[str, str] = field(default_factory=dict)
    """By group whose pairs are stored: the table for new pairs."""
    rolls: Mapping[str, int | None] = field(default_factory=dict)
    """By stream whose rows are counted: the event time at which the count begins."""
    ordered: Mapping[str, int] = field(default_factory=dict)
    """By query with ordered results: the version of the plan with its present definition."""
    release: Released | None = None
    """The last release of queries that have a new definition or were stopped."""
    panes: Mapping[str, PaneSet] = field(default_factory=dict)
    """The pane sets that aggregate queries share."""
    promises: tuple[str, ...] = ()
    """The indexes of promises that are kept."""
    watched: tuple[str, ...] = ()
    """The logs whose order is watched, because joins have no window."""
    streams: Mapping[str, StreamState] = field(default_factory=dict)
    """The first state of streams that are the results of queries which already have results."""


@dataclass(frozen=True, slots=True)
class Answered:
    """Aggregate queries were answered from their panes; some panes were merged or removed."""

    KIND: ClassVar = "answer"
    BY: ClassVar = "join, for aggregates"

    answered: Mapping[str, int]
    """By query: the instant or change of its last answer."""
    removed_files: Mapping[str, tuple[str, ...]]
    """By pane set: files that are replaced or no longer needed."""
    files: Mapping[str, tuple[PaneFile, ...]]
    """By pane set: the new files."""
    output: CommitOutput
    promises_seen: Mapping[str, float] = field(default_factory=dict)
    """By pane set: the number of promises that its groups were compared with."""


@dataclass(frozen=True, slots=True)
class Watched:
    """The disorder of streams joined without a window was measured, and rows without partners were found."""

    KIND: ClassVar = "watch"
    BY: ClassVar = "join, where there is no window"

    groups: Mapping[str, GroupWatch]
    """By group."""
    settled: Mapping[str, int]
    """By log: the statistics of batches before this one are merged."""


@dataclass(frozen=True, slots=True)
class Propagated:
    """These values are finished for these queries: no later result will have them."""

    KIND: ClassVar = "propagate"
    BY: ClassVar = "join, where a sink asks for punctuations"

    finished_values: Mapping[str, PromiseFiles]
    """By index: the values, in the form of promises."""
    promises_seen: Mapping[str, float]
    """By the same index: the number of promises in effect."""
    output: CommitOutput


@dataclass(frozen=True, slots=True)
class Declared:
    """These streams have other options from here on; the meaning of their rows is unchanged."""

    KIND: ClassVar = "declared"
    BY: ClassVar = "start"

    streams: tuple[Stream, ...]


@dataclass(frozen=True, slots=True)
class OrderSwitched:
    """Some groups hold back their results instead of their input, or the reverse."""

    KIND: ClassVar = "order"
    BY: ClassVar = "join, where order is adaptive"

    groups: tuple[str, ...]
    """The ids of the groups."""
    mode: str
    """Input is held back (`sync-filter`), or results are (`filter-order`)."""
    reason: str
    """The measured load, compared with the smallest `alpha` of the queries."""
    at: str
    """The time, in ISO 8601."""


@dataclass(frozen=True, slots=True)
class NumberedLayout:
    """A layout of a log, and its number."""

    number: int
    layout: Layout


@dataclass(frozen=True, slots=True)
class Rewritten:
    """These segments of a log were replaced by others, or removed."""

    KIND: ClassVar = "rewrite"
    BY: ClassVar = "merge and retention"

    log: str
    remove: tuple[str, ...]
    add: tuple[Segment, ...] = ()
    layouts: tuple[NumberedLayout, ...] = ()
    """Layouts that only the added segments have."""
    rows: int = 0
    seconds: float = 0.0
    output: CommitOutput = field(default_factory=CommitOutput)
    """Results that follow from the removal of rows."""
    stream: str = ""
    """The stream of the log."""
    purged: int = 0
    """Rows removed because of promises."""
    early_removals: tuple[int, int] | None = None
    """Rows removed before their window ended: the newest event time, and their number."""
    finished: Mapping[str, int] = field(default_factory=dict)
    """By segment that was not rewritten: its rows that promises have made useless."""
    promises_seen: float | None = None
    """The number of promises that the log was compared with; null if it was not."""


@dataclass(frozen=True, slots=True)
class PromisesMerged:
    """These files of promises were replaced by others; some promises are forgotten."""

    KIND: ClassVar = "promises"
    BY: ClassVar = "merge and retention"

    remove: Mapping[str, tuple[str, ...]]
    """By index."""
    add: Mapping[str, PromiseFiles]


@dataclass(frozen=True, slots=True)
class Published:
    """The output of these units has reached its sinks."""

    KIND: ClassVar = "published"
    BY: ClassVar = "join"

    units: tuple[tuple[str, str], ...]
    """Units, each with the query if the output was for its console or callback."""


@dataclass(frozen=True, slots=True)
class TableBegun:
    """A table that others are merged into."""

    table: StoredTable
    of: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FilesReplaced:
    """Files of pairs, replaced by others of the same group."""

    remove: tuple[str, ...] = ()
    add: Mapping[str, tuple[StoredFile, ...]] = field(default_factory=dict)
    """By table."""


@dataclass(frozen=True, slots=True)
class NeighboursMerged:
    """Successive files of one query's results, and the files that replace them."""

    remove: tuple[str, ...]
    add: tuple[StoredFile, ...]


@dataclass(frozen=True, slots=True)
class Compacted:
    """These files of results were replaced by fewer ones."""

    KIND: ClassVar = "compact"
    BY: ClassVar = "join, when there is no other work"

    tables: Mapping[str, TableBegun] = field(default_factory=dict)
    """By group."""
    pairs: Mapping[str, FilesReplaced] = field(default_factory=dict)
    """By group."""
    kept: Mapping[str, tuple[NeighboursMerged, ...]] = field(default_factory=dict)
    """By query."""


@dataclass(frozen=True, slots=True)
class Priced:
    """The costs of the engine's operations were measured on this machine."""

    KIND: ClassVar = "prices"
    BY: ClassVar = "calibrate"

    prices: Prices


Commit = (
    EngineOpened
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
