"""From queries to the shared plan: its logs, and the chains that run over them.

    queries ──by signature──▶ divided by strategy──▶ groups ──columns, bits──▶ logs ──cut at windows──▶ chains

In:  streams and queries (`penstock.sql`).  Out: one frozen `Plan`: executed, printed and drawn, never changed.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from penstock.errors import InputError, did_you_mean
from penstock.plan.group import Group, GroupInput, Member, group_id, plan_group
from penstock.plan.links import POSITION, columns_of_input, is_link_column, links_of
from penstock.plan.share import CHOSEN, Share, divide, first_cuts
from penstock.plan.spark_settings import SparkSettings
from penstock.plan.stored import KeyPart, LogPlan, agreed, log_key, plan_log
from penstock.sql.bind.promises import promises_of
from penstock.sql.query import SIDES, Query, sides_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from penstock.sql.query import Side, Signature, Stream

LogKey = tuple[str, tuple[KeyPart, ...], str, bool]
"""The stream of a log, its key, its owner, and whether windows count its rows."""

Shape = tuple[tuple[str, ...], tuple[str, ...]]
"""The columns and predicates that a log stores."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """A query that failed and does not run any more, the reason, and the time of the failure."""

    query: Query
    reason: str
    at: str
    because_of: str = ""
    """The query that failed, if this one only reads its results."""

    def __str__(self) -> str:
        return f"query {self.query.name} failed at {self.at}: {self.reason}"


@dataclass(frozen=True)
class Family:
    """Groups that join the same logs in the same way: they divide the rows among themselves."""

    groups: tuple[Group, ...]

    @cached_property
    def queries(self) -> tuple[Query, ...]:
        """List the queries; one that several groups serve is listed once for each."""
        return tuple(member.query for group in self.groups for member in group.members)

    @cached_property
    def orders(self) -> frozenset[str]:
        """List the order policies of the queries."""
        return frozenset(query.order for query in self.queries)

    @cached_property
    def impatient(self) -> tuple[Query, ...]:
        """List the queries that do not wait for idle streams."""
        return tuple(query for query in self.queries if "idle_after" in dict(query.options))


@dataclass(frozen=True)
class Plan:
    """Every log and every group of a workload."""

    streams: tuple[Stream, ...]
    logs: tuple[LogPlan, ...]
    groups: tuple[Group, ...]
    queries: tuple[Query, ...]
    """Every query once, in the order in which they were registered."""
    strategy: str = "mem-opt"
    stopped: tuple[Stopped, ...] = ()
    """Registered queries that have failed: they do not run, but their results can be read."""
    spark_settings: SparkSettings = field(default_factory=SparkSettings)
    """The settings of Spark under which its expressions are evaluated."""

    def __post_init__(self) -> None:
        """Refuse a plan whose groups read a log that is not kept."""
        kept = {log.id for log in self.logs}
        if len({group.id for group in self.groups}) < len(self.groups) or len(kept) < len(self.logs):
            raise InputError("two groups or two logs of the plan have the same name: rename a query")
        for group in self.groups:
            for log in group.all_logs:
                if log.id not in kept:
                    raise InputError(f"group {group.id} reads log {log.id}, which the plan does not keep")

    @cached_property
    def families(self) -> dict[str, Family]:
        """Return each group's family, by the group's id."""
        alike: dict[tuple[object, ...], list[Group]] = {}
        for group in self.groups:
            alike.setdefault((group.signature, *(log.id for log in group.logs)), []).append(group)
        families = [Family(tuple(groups)) for groups in alike.values()]
        return {group.id: family for family in families for group in family.groups}

    @property
    def cuts(self) -> dict[str, tuple[int, ...]]:
        """Return the cuts of each group's chain."""
        return {group.id: group.chain.cuts for group in self.groups}

    def stream(self, name: str) -> Stream:
        """Find a stream by its name, whatever the case."""
        for stream in self.streams:
            if stream.name.lower() == name.lower():
                return stream
        known = [stream.name for stream in self.streams]
        raise InputError(f"stream {name} does not exist: {did_you_mean(name, known)}")

    @property
    def sources(self) -> tuple[Stream, ...]:
        """List the streams that are read from sources; all others are the results of queries."""
        return tuple(stream for stream in self.streams if stream.results is None)

    @property
    def results(self) -> tuple[Stream, ...]:
        """List the streams that are the results of queries, each after the streams that it is made of."""
        found = [stream for stream in self.streams if stream.results is not None]
        return tuple(sorted(found, key=lambda stream: self.depth(stream.name)))

    def depth(self, stream: str) -> int:
        """Count the joins that a row of a stream has passed: none, if it is from a source."""
        if self.stream(stream).results is None:
            return 0
        return 1 + max(self.depth(source) for source in self.query(stream).streams)

    def stream_of(self, log: str) -> str:
        """Name the stream whose rows a log holds."""
        return next(kept.stream for kept in self.logs if kept.id == log)

    @property
    def counted(self) -> tuple[str, ...]:
        """List the streams of windows that count rows: the event times of their rows are kept."""
        names = (log.stream for group in self.groups if group.signature.counted for log in group.logs)
        return tuple(dict.fromkeys(names))

    @property
    def watched(self) -> tuple[str, ...]:
        """List the logs whose order is watched: one of each stream of a join without a window."""
        return tuple(dict.fromkeys(log.id for group in self.groups if group.oblivious for log in group.logs))

    def is_read_in_order(self, stream: str) -> bool:
        """Check whether joins without a window read a stream, so that the order of arrival matters."""
        return any(log.id in self.watched for log in self.logs_of(stream))

    def logs_of(self, stream: str) -> tuple[LogPlan, ...]:
        """List the logs that ingest of a stream writes."""
        return tuple(log for log in self.logs if log.stream == stream)

    def uses(self, log: str) -> Iterator[tuple[Group, Side]]:
        """List the groups that read a log, and as which side."""
        for group in self.groups:
            for part in group.inputs:
                if any(kept.id == log for kept in part.logs):
                    yield group, part.side

    def groups_of(self, query: str) -> Iterator[tuple[Group, int, Member]]:
        """List every group that serves a query, and its number there."""
        for group in self.groups:
            for number, member in enumerate(group.members):
                if member.query.name.lower() == query.lower():
                    yield group, number, member

    def find(self, query: str) -> tuple[Group, int, Member]:
        """Find a query's first group (for most strategies the only one) and its number there."""
        for first in self.groups_of(query):
            return first
        for stopped in self.stopped:
            if stopped.query.name.lower() == query.lower():
                name, reason = stopped.query.name, stopped.reason
                raise InputError(f"query {name} has failed and is not run any more: {reason}")
        raise self._no_such(query)

    def query(self, name: str) -> Query:
        """Find a query by its name, also one that was stopped."""
        for query in self._all_queries():
            if query.name.lower() == name.lower():
                return query
        raise self._no_such(name)

    def _all_queries(self) -> list[Query]:
        return [*self.queries, *(stopped.query for stopped in self.stopped)]

    def _no_such(self, name: str) -> InputError:
        names = [query.name for query in self._all_queries()]
        return InputError(f"query {name} does not exist: {did_you_mean(name, names)}")


def build_plan(
    streams: Mapping[str, Stream],
    queries: Iterable[Query],
    kept: Mapping[str, Shape] | None = None,
    *,
    strategy: str = "mem-opt",
    cuts: Mapping[str, Iterable[int]] | None = None,
    stopped: Iterable[Stopped] = (),
) -> Plan:
    """Build the shared plan of the queries.

    `kept` are the present columns and predicates of a state's logs, by log: a log that stores all that is needed stays
    as it is.  `cuts` are the cuts that a strategy has chosen, by group; any other chain is cut at every window end.
    """
    everyone = tuple(queries)
    declared = {name.lower(): stream for name, stream in streams.items()}
    shares = _shares(everyone, strategy)
    logs = {key: _as_kept(log, (kept or {}).get(log.id)) for key, log in _plan_logs(declared, shares).items()}
    chosen = (cuts or {}) if strategy in CHOSEN else {}
    groups = tuple(
        plan_group(
            signature,
            share,
            _inputs(declared, signature, share, logs),
            chosen.get(group_id(signature, share.label), first_cuts(strategy)),
            links_of(signature, declared) if signature.streams else (),
        )
        for signature, share in shares
    )
    used = {log.stream.lower() for log in logs.values()}
    read = tuple(
        stream
        for name, stream in declared.items()
        if name in used or any(promise.about.lower() in used for promise in promises_of(stream))
    )
    return Plan(read, tuple(logs.values()), groups, everyone, strategy, tuple(stopped))


def _shares(queries: Iterable[Query], strategy: str) -> list[tuple[Signature, Share]]:
    """Divide queries among joins, signature by signature."""
    by_signature: dict[Signature, list[Query]] = {}
    for query in queries:
        by_signature.setdefault(query.signature, []).append(query)
    return [
        (signature, share)
        for signature, members in by_signature.items()
        for share in divide(members, strategy)
    ]


def _as_kept(log: LogPlan, kept: Shape | None) -> LogPlan:
    """Keep a log's columns and bits if they include all that is needed."""
    if kept is None or not (set(log.columns) <= set(kept[0]) and set(log.predicates) <= set(kept[1])):
        return log
    # another key of the stream can be stored only while there is a log by that key
    columns = tuple(column for column in kept[0] if column in log.columns or not is_link_column(column))
    return replace(log, columns=columns, predicates=kept[1])


def _inputs(
    streams: Mapping[str, Stream], signature: Signature, share: Share, logs: Mapping[LogKey, LogPlan]
) -> tuple[GroupInput, ...]:
    """Build the inputs of a group: the logs that hold the rows of each, and the part of them that is joined."""
    inputs = []
    for side in _sides(signature):
        log, *others = (logs[key] for key in _logs(streams, signature, share, side))
        inputs.append(GroupInput(side, log, share.part(side), tuple(others)))
    return tuple(inputs)


def _sides(signature: Signature) -> tuple[Side, ...]:
    return sides_for(len(signature.streams) or len(SIDES))


def _plan_logs(
    streams: Mapping[str, Stream], shares: Iterable[tuple[Signature, Share]]
) -> dict[LogKey, LogPlan]:
    """Build the distinct logs from their readers."""
    readers: dict[LogKey, dict[tuple[str, Side], Query]] = {}
    links: dict[LogKey, set[str]] = {}
    for signature, share in shares:
        for number, side in enumerate(_sides(signature)):
            for key in _logs(streams, signature, share, side):
                of_log = readers.setdefault(key, {})
                of_log |= {(query.name, side): query for query in share.queries}
                if signature.streams:
                    links.setdefault(key, set()).update(
                        columns_of_input(number, links_of(signature, streams))
                    )
                if signature.oblivious and not streams[key[0].lower()].timeless:
                    links.setdefault(key, set()).add(POSITION)
    return {
        (stream, key, owner, counted): plan_log(
            streams[stream.lower()],
            key,
            [(query, side) for (_, side), query in of_log.items()],
            owner,
            counted=counted,
            links=links.get((stream, key, owner, counted), ()),
        )
        for (stream, key, owner, counted), of_log in readers.items()
    }


def _logs(streams: Mapping[str, Stream], signature: Signature, share: Share, side: Side) -> list[LogKey]:
    """List the logs that one side of a share reads: one by each key that it is joined on."""
    if not signature.streams:
        return [_log(streams, signature, share, side)]
    number = _sides(signature).index(side)
    stream = streams[signature.streams[number].lower()].name
    keys = (link.key(number) for link in links_of(signature, streams) if number in link.inputs)
    return [(stream, key, share.owner, signature.counted) for key in dict.fromkeys(keys)]


def _log(streams: Mapping[str, Stream], signature: Signature, share: Share, side: Side) -> LogKey:
    """Name the log that one side of a pair reads."""
    left, right = streams[signature.left.lower()], streams[signature.right.lower()]
    keys = log_key(left, signature.keys, "l"), log_key(right, signature.keys, "r")
    stream, key = (left, agreed(*keys)) if side == "l" else (right, agreed(*reversed(keys)))
    return stream.name, key, share.owner, signature.counted
