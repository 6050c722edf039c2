"""The promises that a plan uses, and the keys by which they are stored.

Promises about a stream are stored by its own promised columns, to find rows that break one.  They are also stored by
the key of each log of the stream that has some of these columns, to end the use of the partner's rows.  Usually that is
one and the same key::

    Bid, punctuates 'item_id'          index of Bid by item_id ──▶ rows of Bid that break a promise
    Auction ⋈ Bid on item_id                                   ──▶ rows of Auction that have met all their bids
    Person ⋈ Bid on bidder             (no use: a finished item does not finish its bidders)

In:  streams and logs.  Out: `PromiseIndex`es, and the part of a stream's promises that goes into each.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from zlib import crc32

from penstock.plan.group import reach
from penstock.plan.stored import KeyPart, LogPlan
from penstock.sql.bind.promises import Promise, PromisePattern, promise_budget, promises_of
from penstock.sql.query import FOREVER, SIDES
from penstock.sql.spark_types import parse_type, widens
from penstock.sql.text.tree import quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from penstock.plan.build import Plan
    from penstock.plan.group import Group
    from penstock.sql.query import Query, Side, Stream

_SLUG_LETTERS = 60


@dataclass(frozen=True, slots=True)
class PromiseIndex:
    """The promises about one stream, by one key."""

    id: str
    stream: str
    key: tuple[KeyPart, ...]

    @property
    def whole_key(self) -> bool:
        """Check whether 64 bits hold the whole key."""
        return self.log.whole_key

    @property
    def log(self) -> LogPlan:
        """Return a log with the same key: ingest computes the same keys for the index."""
        return LogPlan(self.id, self.stream, self.key, (), ())


@dataclass(frozen=True, slots=True)
class Carried:
    """A promise that rows of a stream make, for one index.

    `parts` has the promise's pattern for each part of the index's key, or None.  `others` are its patterns for columns
    that the key lacks: the promise goes into the index only if they match any value.
    """

    promise: Promise
    index: PromiseIndex
    parts: tuple[PromisePattern | None, ...]
    others: tuple[PromisePattern, ...]


def promises_about(streams: Iterable[Stream], about: str) -> Iterator[tuple[Stream, Promise]]:
    """List the promises about a stream, and the streams whose rows make them."""
    for stream in streams:
        for promise in promises_of(stream):
            if promise.about.lower() == about.lower():
                yield stream, promise


def indexes_about(plan: Plan, name: str) -> list[PromiseIndex]:
    """List the indexes of the promises about a stream: by its promised columns, and by the keys of its logs."""
    made = [promise for _, promise in promises_about(plan.streams, name)]
    if not made:
        return []
    stream = plan.stream(name)
    keys = dict.fromkeys(own_key(stream, promise) for promise in made)
    for log in plan.logs_of(name):
        if any(_pattern(part, promise, stream) for part in log.key for promise in made):
            keys[log.key] = None
    return [_index(name, key) for key in keys]


def all_indexes(plan: Plan) -> list[PromiseIndex]:
    """List the indexes of all promises that a plan uses."""
    return [index for stream in plan.streams for index in indexes_about(plan, stream.name)]


def tells(query: Query) -> bool:
    """Check whether a query's sink gets punctuations: the values that are finished."""
    return query.sink.option("punctuations") == "true"


def told_index(query: Query) -> str:
    """Name the index of the finished values that a query's sink has got; another key has another index."""
    return f"told-{crc32(f'{query.name}|{query.keys}'.encode()):08x}"


def remembered(plan: Plan) -> dict[str, int]:
    """Return the budget of each index: of promises, and of the finished values that sinks have got.

    The second is twice the budget of the promises behind it, so that promises are dropped first.
    """
    budgets = {index.id: promise_budget(plan.stream(index.stream)) for index in all_indexes(plan)}
    for query in plan.queries:
        if tells(query):
            sides = [index for index in promised_sides(plan, query) or () if index]
            budgets[told_index(query)] = 2 * sum(promise_budget(plan.stream(side.stream)) for side in sides)
    return budgets


def own_key(stream: Stream, promise: Promise) -> tuple[KeyPart, ...]:
    """Return the promised columns as a key."""
    columns = [stream.column(pattern.column) for pattern in promise.patterns]
    return tuple(
        KeyPart(quoted(column.name), column.type, column=column.name) for column in columns if column
    )


def index_for(plan: Plan, log: LogPlan) -> PromiseIndex | None:
    """Find the promises about a log's stream by the log's key."""
    return next((index for index in indexes_about(plan, log.stream) if index.key == log.key), None)


def ended_rows(plan: Plan, index: PromiseIndex) -> list[str]:
    """Name the streams whose rows the promises of an index end: those joined with its stream by its key."""
    partners: dict[str, None] = {}
    for group in plan.groups:
        for number, own in enumerate(group.inputs):
            by_key = any(log.stream == index.stream and log.key == index.key for log in own.logs)
            for place, partner in enumerate(group.inputs):
                if by_key and place != number and _meet(group, index.key, number, place):
                    partners[partner.log.stream] = None
    return list(partners)


def _meet(group: Group, key: tuple[KeyPart, ...], number: int, partner: int) -> bool:
    """Check whether two inputs of a group are joined by this key of the first."""
    links = (link for link in group.links if {number, partner} <= set(link.inputs))
    return group.is_pair or any(link.key(number) == key for link in links)


def carried_by(plan: Plan, stream: Stream) -> list[Carried]:
    """List the promises that the rows of a stream make, index by index."""
    named = {about.name.lower(): about for about in plan.streams}
    carried = []
    for promise in promises_of(stream):
        about = named.get(promise.about.lower())
        if about is None:
            continue
        for index in indexes_about(plan, about.name):
            parts = tuple(_pattern(part, promise, about) for part in index.key)
            others = tuple(pattern for pattern in promise.patterns if pattern not in parts)
            if any(parts):
                carried.append(Carried(promise, index, parts, others))
    return carried


def _pattern(part: KeyPart, promise: Promise, stream: Stream) -> PromisePattern | None:
    """Find a promise's pattern for a part of a key; None if there is none, or the part is no plain column."""
    if not _is_kept(part, stream):
        return None
    column = part.column.lower()
    return next((pattern for pattern in promise.patterns if pattern.column.lower() == column), None)


def _index(stream: str, key: Sequence[KeyPart]) -> PromiseIndex:
    """Name an index so that it is readable, and safe as a directory name."""
    text = f"{stream}:{'|'.join(f'{part.expression}::{part.type}:{part.cast}' for part in key)}"
    slug = re.sub(r"[^a-z0-9]+", "_", stream.lower()).strip("_")[:_SLUG_LETTERS]
    return PromiseIndex(f"{slug}-{crc32(text.encode()):08x}", stream, tuple(key))


# --- groups that end ------------------------------------------------------------------------------------------------


def finishing_of(plan: Plan, query: Query) -> tuple[int, ...] | None:
    """Return the GROUP BY expression for each part of a final query's join key; None if some part has none.

    With all of them, a group ends when promises have finished its value of the key.
    """
    aggregation = query.aggregation
    if aggregation is None or aggregation.emit != "final" or promised_sides(plan, query) is None:
        return None
    group = plan.find(query.name)[0]
    columns = [_grouped_by(plan, query, group, part) for part in range(len(query.keys))]
    found = tuple(column for column in columns if column is not None)
    return found if len(found) == len(columns) else None


def promised_sides(plan: Plan, query: Query) -> tuple[PromiseIndex | None, PromiseIndex | None] | None:
    """Return the promises about both sides of a query by its join's key; None if they cannot finish any value."""
    found = [group for group, _, _ in plan.groups_of(query.name)]
    if not found or not query.keys:
        return None
    left, right = (index_for(plan, found[0].log(side)) for side in SIDES)
    return (left, right) if can_finish(query, (left, right)) else None


def can_finish(query: Query, indexes: tuple[PromiseIndex | None, PromiseIndex | None]) -> bool:
    """Check whether a value can be finished for a query: by both streams, or by one whose rows leave their window."""
    if all(indexes):
        return True
    ends = (reach(query.window, side) < FOREVER and not any(query.rows) for side in SIDES)
    return any(index is not None and ended for index, ended in zip(indexes, ends, strict=True))


def _grouped_by(plan: Plan, query: Query, group: Group, part: int) -> int | None:
    """Find the GROUP BY expression that is a plain column of a part of the join's key, on either side.

    Where the key is a cast of the column, the cast must keep different values different.
    """
    streams: dict[Side, Stream] = {side: plan.stream(group.log(side).stream) for side in SIDES}
    keys: dict[Side, KeyPart] = {side: group.log(side).key[part] for side in SIDES}
    for number, output in enumerate(query.outputs[: query.aggregation.groups if query.aggregation else 0]):
        if not output.column:
            continue
        side, name = output.column
        if keys[side].column.lower() == name.lower() and _is_kept(keys[side], streams[side]):
            return number
    return None


def _is_kept(part: KeyPart, stream: Stream) -> bool:
    """Check whether two values of a plain column are two values of the key, in the same order."""
    column = stream.column(part.column) if part.column else None
    return column is not None and (not part.cast or widens(parse_type(column.type), parse_type(part.type)))
