"""Which promises matter to a plan, and by which keys they are remembered.

Promises about a stream are kept by its own promised columns, so that a row that breaks one is found, and by the key of
each log of the stream that has some of these columns: there they end the use of the partner's rows.  Mostly that is one
and the same key::

    Bid, punctuates 'item_id'          index of Bid by item_id ──▶ rows of Bid that break a promise
    Auction ⋈ Bid on item_id                                   ──▶ rows of Auction that have met all their bids
    Person ⋈ Bid on bidder             (of no use: that an item is finished says nothing of its bidders)

In:  streams and logs.  Out: `PromiseIndex`es, and what each carries of a stream's promises.
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
        """Say whether 64 bits hold the whole key."""
        return self.log.whole_key

    @property
    def log(self) -> LogPlan:
        """Give a log with the same key: what ingest computes of rows for it, it computes for the index."""
        return LogPlan(self.id, self.stream, self.key, (), ())


@dataclass(frozen=True, slots=True)
class Carried:
    """A promise that rows of a stream make, as far as it goes into one index.

    `parts` has the promise's pattern for each part of the index's key, None where it has none.  `others` are its
    patterns for columns that the key lacks: it goes into the index only where they match any value.
    """

    promise: Promise
    index: PromiseIndex
    parts: tuple[PromisePattern | None, ...]
    others: tuple[PromisePattern, ...]


def promises_about(streams: Iterable[Stream], about: str) -> Iterator[tuple[Stream, Promise]]:
    """List the promises about a stream, and the streams whose rows make them."""
    for stream in streams:
        yield from ((stream, each) for each in promises_of(stream) if each.about.lower() == about.lower())


def indexes_about(plan: Plan, name: str) -> list[PromiseIndex]:
    """List the indexes of the promises about a stream: by its promised columns, and by the keys of its logs."""
    made = [promise for _, promise in promises_about(plan.streams, name)]
    if not made:
        return []
    stream = plan.stream(name)
    keys = dict.fromkeys(own_key(stream, each) for each in made)
    for log in plan.logs_of(name):
        if any(_pattern(part, each, stream) for part in log.key for each in made):
            keys[log.key] = None
    return [_index(name, key) for key in keys]


def all_indexes(plan: Plan) -> list[PromiseIndex]:
    """List the indexes of all promises that matter to a plan."""
    return [index for stream in plan.streams for index in indexes_about(plan, stream.name)]


def tells(query: Query) -> bool:
    """Say whether a query's sink asks which values are finished."""
    return query.sink.option("punctuations") == "true"


def told_index(query: Query) -> str:
    """Name the index of the values that a query was told are finished; with another key it begins anew."""
    return f"told-{crc32(f'{query.name}|{query.keys}'.encode()):08x}"


def remembered(plan: Plan) -> dict[str, int]:
    """Give the budget of each index: of promises, and of the values that queries were told are finished."""
    promises = {each.id: promise_budget(plan.stream(each.stream)) for each in all_indexes(plan)}
    return promises | {told_index(each): _told_budget(plan, each) for each in plan.queries if tells(each)}


def _told_budget(plan: Plan, query: Query) -> int:
    """Give how many told values are remembered: twice the promises they come from, so that these go first."""
    sides = promised_sides(plan, query) or ()
    return 2 * sum(promise_budget(plan.stream(each.stream)) for each in sides if each)


def own_key(stream: Stream, promise: Promise) -> tuple[KeyPart, ...]:
    """Give the promised columns as a key."""
    columns = [stream.column(each.column) for each in promise.patterns]
    return tuple(KeyPart(quoted(each.name), each.type, column=each.name) for each in columns if each)


def index_for(plan: Plan, log: LogPlan) -> PromiseIndex | None:
    """Find the promises about a log's stream by the log's key."""
    return next((each for each in indexes_about(plan, log.stream) if each.key == log.key), None)


def ended_rows(plan: Plan, index: PromiseIndex) -> list[str]:
    """Name the streams whose rows the promises of an index let go: those joined with its stream by its key."""
    partners = (
        other.log.stream
        for group in plan.groups
        for number, each in enumerate(group.inputs)
        for place, other in enumerate(group.inputs)
        if place != number
        and any(_is_of(log, index) and _meet(group, log, number, place) for log in each.logs)
    )
    return list(dict.fromkeys(partners))


def _meet(group: Group, log: LogPlan, number: int, other: int) -> bool:
    """Say whether two inputs of a group are joined by the key of a log of the first."""
    links = (link for link in group.links if {number, other} <= set(link.inputs))
    return group.is_pair or any(link.key(number) == log.key for link in links)


def _is_of(log: LogPlan, index: PromiseIndex) -> bool:
    return log.stream == index.stream and log.key == index.key


def carried_by(plan: Plan, stream: Stream) -> list[Carried]:
    """Say which promises the rows of a stream make, index by index."""
    return [
        carried
        for promise in promises_of(stream)
        if any(each.name.lower() == promise.about.lower() for each in plan.streams)
        for index in indexes_about(plan, _named(plan, promise.about).name)
        if (carried := _carried(promise, index, _named(plan, promise.about)))
    ]


def _named(plan: Plan, name: str) -> Stream:
    return next(each for each in plan.streams if each.name.lower() == name.lower())


def _carried(promise: Promise, index: PromiseIndex, stream: Stream) -> Carried | None:
    """Hold a promise's patterns against the parts of a key; None if none of them is about it."""
    parts = tuple(_pattern(part, promise, stream) for part in index.key)
    others = tuple(each for each in promise.patterns if each not in parts)
    return Carried(promise, index, parts, others) if any(parts) else None


def _pattern(part: KeyPart, promise: Promise, stream: Stream) -> PromisePattern | None:
    """Find a promise's pattern for a part of a key; None if there is none, or the part is no plain column."""
    if not _is_kept(part, stream):
        return None
    return next((each for each in promise.patterns if each.column.lower() == part.column.lower()), None)


def _index(stream: str, key: Sequence[KeyPart]) -> PromiseIndex:
    """Name an index so that it is readable, and safe as a directory name."""
    text = f"{stream}:{'|'.join(f'{part.expression}::{part.type}:{part.cast}' for part in key)}"
    slug = re.sub(r"[^a-z0-9]+", "_", stream.lower()).strip("_")[:_SLUG_LETTERS]
    return PromiseIndex(f"{slug}-{crc32(text.encode()):08x}", stream, tuple(key))


# --- groups that end ------------------------------------------------------------------------------------------------


def finishing_of(plan: Plan, query: Query) -> tuple[int, ...] | None:
    """Give the GROUP BY expression for each part of a final query's join key; None if some part has none.

    With all of them, a group ends when promises have finished its value of the key.
    """
    aggregation = query.aggregation
    if aggregation is None or aggregation.emit != "final" or promised_sides(plan, query) is None:
        return None
    group = plan.find(query.name)[0]
    columns = [_grouped_by(plan, query, group, part) for part in range(len(query.keys))]
    if None in columns:
        return None
    return tuple(each for each in columns if each is not None)


def promised_sides(plan: Plan, query: Query) -> tuple[PromiseIndex | None, PromiseIndex | None] | None:
    """Give the promises about both sides of a query by its join's key; None if no value can be finished by them."""
    found = [group for group, _, _ in plan.groups_of(query.name)]
    if not found or not query.keys:
        return None
    left, right = (index_for(plan, found[0].log(side)) for side in SIDES)
    return (left, right) if can_finish(query, (left, right)) else None


def can_finish(query: Query, indexes: tuple[PromiseIndex | None, PromiseIndex | None]) -> bool:
    """Say whether a value can be finished for a query: by both streams, or by one whose rows leave their window."""
    if all(indexes):
        return True
    ends = (reach(query.window, side) < FOREVER and not any(query.rows) for side in SIDES)
    return any(index is not None and each for index, each in zip(indexes, ends, strict=True))


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
    """Say whether two values of a plain column are two values of the key, in the same order."""
    column = stream.column(part.column) if part.column else None
    return column is not None and (not part.cast or widens(parse_type(column.type), parse_type(part.type)))
