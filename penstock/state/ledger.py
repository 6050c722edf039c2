"""The ledger: the engine's complete knowledge, as a fold over the journal.

The ledger is immutable: each commit (`penstock.state.ledger_fold`) makes a new one, so a reader may keep an old one.

In:  commits, in order.  Out: segments, cursors, watermarks, counts, and output that is not published yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.plan.prices import Prices
from penstock.sql.query import Stream
from penstock.state.commits import OrderSwitched
from penstock.state.hold import Held, Hold
from penstock.state.panes import PaneFile, PaneState
from penstock.state.promises import PromiseFiles
from penstock.state.recent import EarlyRemovals, Fit, Traffic
from penstock.state.row_times import Roll
from penstock.state.segment import Segment
from penstock.state.tables import Fed, StoredFile, StoredTable
from penstock.state.values import (
    GroupState,
    Layout,
    PlanChange,
    Publication,
    QueryState,
    ServedPlan,
    StreamState,
)
from penstock.state.watch import GroupWatch, LogWatch


@dataclass(frozen=True, slots=True)
class Ledger:
    """The folded journal."""

    plan: ServedPlan | None = None
    """None before the first plan."""
    version: int = 0
    """The number of plans so far; the tables of groups are kept by version."""
    layouts: Mapping[str, Mapping[int, Layout]] = field(default_factory=dict)
    """By log and number: the layouts in use; the last one is the current one."""
    births: Mapping[str, int | None] = field(default_factory=dict)
    """By log: the event time of its stream when it began; None: the start of the stream."""
    tables: Mapping[str, tuple[StoredTable, ...]] = field(default_factory=dict)
    """By group: the stored pairs that queries read, and how each query reads them."""
    writes: Mapping[str, str] = field(default_factory=dict)
    """By group whose pairs are stored: the table for new pairs."""
    kept: Mapping[str, tuple[StoredFile, ...]] = field(default_factory=dict)
    """By query: files of results that the state keeps for this query alone, in order."""
    streams: Mapping[str, StreamState] = field(default_factory=dict)
    logs: Mapping[str, tuple[Segment, ...]] = field(default_factory=dict)
    groups: Mapping[str, GroupState] = field(default_factory=dict)
    queries: Mapping[str, QueryState] = field(default_factory=dict)
    rolls: Mapping[str, Roll] = field(default_factory=dict)
    """The streams whose rows are counted."""
    pending: tuple[Publication, ...] = ()
    holds: Mapping[str, Hold] = field(default_factory=dict)
    """By query with ordered results: its held results."""
    releases: int = 0
    """The number of releases, which is part of the names of their files."""
    panes: Mapping[str, PaneState] = field(default_factory=dict)
    """The pane sets that aggregate queries share, and their files."""
    answers: int = 0
    """The number of answers of aggregate queries, which is part of the names of their files."""
    promises: Mapping[str, PromiseFiles] = field(default_factory=dict)
    """By index: the promises that are kept."""
    promises_seen: Mapping[str, float] = field(default_factory=dict)
    """By log whose partners make promises: the number of promises that its rows were compared with."""
    propagated: Mapping[str, float] = field(default_factory=dict)
    """By index of finished values: the number of promises in effect when they were propagated."""
    propagations: int = 0
    """The number of propagations, which is part of the names of their files."""
    early_removals: Mapping[str, EarlyRemovals] = field(default_factory=dict)
    """By log: rows that were removed before their window ended, because of promises."""
    traffic: Mapping[str, Traffic] = field(default_factory=dict)
    """By log: statistics of its recent input."""
    unit_fit: Fit = field(default_factory=Fit)
    """The cost of units, fitted to their number, input rows and pairs."""
    rewrite_fit: Fit = field(default_factory=Fit)
    """The cost of rewrites, fitted to their number and rows."""
    changes: tuple[PlanChange, ...] = ()
    """The last changes of plan."""
    switches: tuple[OrderSwitched, ...] = ()
    """The last switches of adaptive queries."""
    unpublished: Mapping[str, int] = field(default_factory=dict)
    """By query: results whose output is still pending."""
    prices: Prices | None = None
    """The measurements of `penstock calibrate`; None before."""
    declared: Mapping[str, Stream] = field(default_factory=dict)
    """The declaration, without secrets, of every stream that was ever read."""
    watches: Mapping[str, LogWatch] = field(default_factory=dict)
    """By log that joins without a window read: the order of its rows."""
    buffers: Mapping[str, GroupWatch] = field(default_factory=dict)
    """By join without a window: the rows that it no longer keeps, and the results missed."""
    fed: Mapping[str, tuple[Fed, ...]] = field(default_factory=dict)
    """By query that others read: its results that are not in their logs yet, unit by unit."""
    origins: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    """By stream: the origin of its last batch (`penstock.state.origin`)."""

    def stream(self, name: str) -> StreamState:
        """Return a stream's state, the empty one before its first batch."""
        return self.streams.get(name, StreamState())

    def query(self, name: str) -> QueryState:
        """Return a query's state, the empty one before its first result."""
        return self.queries.get(name, QueryState())

    def hold(self, name: str) -> Hold:
        """Return a query's held results."""
        return self.holds.get(name, Hold())

    def roll(self, stream: str) -> Roll:
        """Return the sorted event times of a stream whose rows are counted."""
        return self.rolls.get(stream, Roll())

    def files(self) -> set[str]:
        """Return the names of all data files in use."""
        return {file.name for file in self.summed()}

    def summed(self) -> Iterator[Segment | Held | PaneFile | StoredFile]:
        """Yield all data files in use; each has a checksum."""
        for segments in self.logs.values():
            yield from segments
        for roll in self.rolls.values():
            yield from (*roll.pieces, *roll.waiting)
        for hold in self.holds.values():
            yield from hold.files
        for panes in self.panes.values():
            yield from panes.files
        for promises in self.promises.values():
            yield from promises.files()
        for waiting in self.fed.values():
            for results in waiting:
                yield from results.files
        yield from self.result_files()

    def result_files(self) -> Iterator[StoredFile]:
        """Yield the files of pairs and results that the state keeps."""
        for tables in self.tables.values():
            for table in tables:
                yield from table.files
        for files in self.kept.values():
            yield from files

    def table(self, group: str) -> StoredTable | None:
        """Return the table for a group's new pairs; None if they are not stored."""
        tables = self.tables.get(group, ())
        return next((table for table in tables if table.id == self.writes.get(group)), None)

    def layout(self, log: str) -> int:
        """Return the number of a log's current layout, -1 before its first."""
        return max(self.layouts.get(log, ()), default=-1)

    def segments(self, log: str) -> tuple[Segment, ...]:
        """Return a log's segments."""
        return self.logs.get(log, ())
