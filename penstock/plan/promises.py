"""Which promises matter to a plan, and by which keys they are remembered.

Promises about a stream are kept by its own promised columns, so that a row that breaks one is found, and by the key of
each log of the stream that has some of these columns: there they end the use of the partner's rows.  Mostly that is one
and the same key::

    Bid, punctuates 'item_id'          index of Bid by item_id ──▶ rows of Bid that break a promise
    Auction ⋈ Bid on item_id                                   ──▶ rows of Auction that have met all their bids
    Person ⋈ Bid on bidder             (of no use: who is promised about says nothing of a bidder)

In:  streams and logs.  Out: `PromiseIndex`es, and what each carries of a stream's promises.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from zlib import crc32

from penstock.plan.group import reach
from penstock.plan.stored import KeyPart, LogPlan
from penstock.sql.promise_types import widens
from penstock.sql.promises import Pattern, Promise, promises_of
from penstock.sql.query import FOREVER, SIDES
from penstock.sql.tree import quoted

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

    `parts` are the patterns for each part of the index's key, None where the promise is about any value; `others` must
    be wildcards, or the promise is about too little.
    """

    promise: Promise
    index: PromiseIndex
    parts: tuple[Pattern | None, ...]
    others: tuple[Pattern, ...]


def carriers(streams: Iterable[Stream], about: str) -> Iterator[tuple[Stream, Promise]]:
    """List the promises about a stream, and the streams whose rows make them."""
    for stream in streams:
        yield from ((stream, each) for each in promises_of(stream) if each.about.lower() == about.lower())


def indexes_about(plan: Plan, name: str) -> list[PromiseIndex]:
    """List the indexes of the promises about a stream: by its promised columns, and by the keys of its logs."""
    made = [promise for _, promise in carriers(plan.streams, name)]
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


def own_key(stream: Stream, promise: Promise) -> tuple[KeyPart, ...]:
    """Give the promised columns as a key."""
    columns = [stream.column(each.column) for each in promise.patterns]
    return tuple(KeyPart(quoted(each.name), each.type, column=each.name) for each in columns if each)


def index_for(plan: Plan, log: LogPlan) -> PromiseIndex | None:
    """Find the promises about a log's stream by the log's key."""
    return next((each for each in indexes_about(plan, log.stream) if each.key == log.key), None)


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


def _pattern(part: KeyPart, promise: Promise, stream: Stream) -> Pattern | None:
    """Find the pattern of a key's part: two values of the column are two values of the key, in the same order."""
    column = stream.column(part.column) if part.column else None
    if column is None or (part.cast and not widens(column.type, part.type)):
        return None
    return next((each for each in promise.patterns if each.column.lower() == column.name.lower()), None)


def _index(stream: str, key: Sequence[KeyPart]) -> PromiseIndex:
    """Name an index so that it is readable, and safe as a directory name."""
    text = f"{stream}:{'|'.join(f'{part.expression}::{part.type}:{part.cast}' for part in key)}"
    slug = re.sub(r"[^a-z0-9]+", "_", stream.lower()).strip("_")[:_SLUG_LETTERS]
    return PromiseIndex(f"{slug}-{crc32(text.encode()):08x}", stream, tuple(key))


# --- groups that end ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Finishing:
    """How the groups of a final aggregate end before the input does: their key has all of the join's.

    `columns` are, for each part of the join's key, the number of the GROUP BY expression that has its value.  `indexes`
    are those of the left and right stream's promises, None where there are none.
    """

    columns: tuple[int, ...]
    indexes: tuple[PromiseIndex | None, PromiseIndex | None]


def finishing_of(plan: Plan, query: Query) -> Finishing | None:
    """Say how the groups of an aggregate end when promises do; None if no promise can end them."""
    aggregation = query.aggregation
    found = [group for group, _, _ in plan.groups_of(query.name)]
    if aggregation is None or aggregation.emit != "final" or not found or not query.keys:
        return None
    group = found[0]
    columns = tuple(_grouped_by(query, group, part) for part in range(len(query.keys)))
    left, right = (index_for(plan, group.log(side)) for side in SIDES)
    if any(each is None for each in columns) or not can_finish(query, (left, right)):
        return None
    return Finishing(tuple(each for each in columns if each is not None), (left, right))


def can_finish(query: Query, indexes: tuple[PromiseIndex | None, PromiseIndex | None]) -> bool:
    """Say whether a value can be finished for a query: by both streams, or by one whose rows leave their window."""
    if all(indexes):
        return True
    ends = (reach(query.window, side) < FOREVER and not any(query.rows) for side in SIDES)
    return any(index is not None and each for index, each in zip(indexes, ends, strict=True))


def _grouped_by(query: Query, group: Group, part: int) -> int | None:
    """Find the GROUP BY expression that is a plain column of a part of the join's key, on either side."""
    keys: dict[Side, str] = {side: group.log(side).key[part].column for side in SIDES}
    for number, output in enumerate(query.outputs[: query.aggregation.groups if query.aggregation else 0]):
        if output.column and keys[output.column[0]].lower() == output.column[1].lower():
            return number
    return None
