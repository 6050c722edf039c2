"""From queries to the shared plan: which logs are kept, which chains run over them.

    queries ──group by signature──▶ groups ──what do they read?──▶ logs ──cut at windows──▶ chains

In:  streams and queries (`penstock.sql`).  Out: one frozen `Plan`: executed, printed and drawn, never changed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.errors import InputError, did_you_mean
from penstock.plan.group import Group, Member, plan_group
from penstock.plan.stored import KeyPart, LogPlan, agreed, log_key, plan_log
from penstock.sql.query import SIDES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from penstock.sql.query import Query, Side, Signature, Stream

LogKey = tuple[str, tuple[KeyPart, ...]]
Shape = tuple[tuple[str, ...], tuple[str, ...]]
"""What a log stores: its columns and its predicates."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Every log and every group of a workload."""

    streams: tuple[Stream, ...]
    logs: tuple[LogPlan, ...]
    groups: tuple[Group, ...]

    def __post_init__(self) -> None:
        """Refuse a plan whose groups read a log that is not kept."""
        kept = {log.id for log in self.logs}
        for group in self.groups:
            for log in (group.left, group.right):
                if log.id not in kept:
                    raise InputError(f"group {group.id} reads log {log.id}, which the plan does not keep")

    @property
    def queries(self) -> tuple[Query, ...]:
        """List the queries, group by group."""
        return tuple(member.query for group in self.groups for member in group.members)

    def stream(self, name: str) -> Stream:
        """Find a stream by name."""
        return next(each for each in self.streams if each.name == name)

    def logs_of(self, stream: str) -> tuple[LogPlan, ...]:
        """List the logs that ingest of a stream writes."""
        return tuple(log for log in self.logs if log.stream == stream)

    def uses(self, log: str) -> Iterator[tuple[Group, Side]]:
        """List the groups that read a log, and as which side."""
        for group in self.groups:
            if group.left.id == log:
                yield group, "l"
            if group.right.id == log:
                yield group, "r"

    def find(self, query: str) -> tuple[Group, int, Member]:
        """Find a query's group and its number there."""
        for group in self.groups:
            for number, member in enumerate(group.members):
                if member.query.name.lower() == query.lower():
                    return group, number, member
        known = (each.name for each in self.queries)
        raise InputError(f"query {query} does not exist: {did_you_mean(query, known)}")


def build_plan(
    streams: Mapping[str, Stream], queries: Iterable[Query], kept: Mapping[str, Shape] | None = None
) -> Plan:
    """Share what can be shared among the queries.

    `kept` is what a state's logs store now, by log: a log that already stores all that is needed goes on as it is.
    """
    by_signature: dict[Signature, list[Query]] = {}
    for query in queries:
        by_signature.setdefault(query.signature, []).append(query)
    declared = {name.lower(): stream for name, stream in streams.items()}
    logs = {
        key: _as_kept(log, (kept or {}).get(log.id))
        for key, log in _plan_logs(declared, by_signature).items()
    }
    groups = tuple(
        plan_group(signature, tuple(members), *(logs[_log(declared, signature, side)] for side in SIDES))
        for signature, members in by_signature.items()
    )
    used = {log.stream for log in logs.values()}
    read = tuple(stream for stream in declared.values() if stream.name in used)
    return Plan(read, tuple(logs.values()), groups)


def _as_kept(log: LogPlan, kept: Shape | None) -> LogPlan:
    """Leave a log's columns and bits as they are if nothing is missing from them."""
    if kept is None or not (set(log.columns) <= set(kept[0]) and set(log.predicates) <= set(kept[1])):
        return log
    return replace(log, columns=kept[0], predicates=kept[1])


def _plan_logs(
    streams: Mapping[str, Stream], groups: Mapping[Signature, list[Query]]
) -> dict[LogKey, LogPlan]:
    """Find the distinct (stream, key) pairs, and what is read of each."""
    readers: dict[LogKey, list[tuple[Query, Side]]] = {}
    for signature, queries in groups.items():
        for side in SIDES:
            mine = readers.setdefault(_log(streams, signature, side), [])
            mine.extend((query, side) for query in queries)
    return {
        (stream, key): plan_log(streams[stream.lower()], key, mine) for (stream, key), mine in readers.items()
    }


def _log(streams: Mapping[str, Stream], signature: Signature, side: Side) -> LogKey:
    """Say which log one side of a signature reads."""
    left, right = streams[signature.left.lower()], streams[signature.right.lower()]
    keys = log_key(left, signature.keys, "l"), log_key(right, signature.keys, "r")
    return (left.name, agreed(*keys)) if side == "l" else (right.name, agreed(*reversed(keys)))
