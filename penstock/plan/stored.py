"""Logs: the key, columns and predicate bits that ingest stores of a stream.

A log holds the rows of one stream sorted by one join key.  All groups that join the stream on that key share it.
Windows that count rows have logs of their own, because late rows below the joined positions are not for them.
A log stores only the parts of a row that some query reads:

* the key, as one 64-bit number if that is the whole key, else as a hash and the key columns themselves; joins
  without an equality have a key of no columns, which is equal in all rows, so that time alone is the order;
* the event time;
* one bit per distinct predicate that some query has on the stream;
* the columns that some query's output or residual condition reads.

In:  the queries of a script.  Out: `LogPlan`, used by `penstock.engine.tasks.ingest`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from zlib import crc32

from penstock.errors import InputError
from penstock.sql.bind.safety import always_succeeds
from penstock.sql.text.tree import unquoted
from penstock.sql.units import parse_duration

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.sql.query import Key, Query, Side, Stream

WHOLE_TYPES = frozenset(
    {"tinyint", "smallint", "int", "bigint", "boolean", "date", "timestamp", "timestamp_ntz"}
)
"""Types of which one value fits in 64 bits, so that its hash can be one to one."""

LONGEST_NAME_BYTES = 255
"""The longest name of a directory, in bytes: the readable part of an id is cut to fit."""


@dataclass(frozen=True, slots=True, order=True)
class KeyPart:
    """One column of a join key: a Spark SQL expression over the stream, and the type it is compared as.

    `cast` is set if the expression has another type.  `type` is empty if only Spark knows it.  `column` is the name of
    the column if the expression is a plain column.
    """

    expression: str
    type: str
    cast: bool = False
    column: str = ""


@dataclass(frozen=True, slots=True)
class LogPlan:
    """One stream's rows, sorted by one key."""

    id: str
    stream: str
    key: tuple[KeyPart, ...]
    predicates: tuple[str, ...]
    columns: tuple[str, ...]
    owner: str = ""
    """The one query that reads it, if queries share nothing."""
    counted: bool = False
    """Whether it is for windows that count rows."""
    wanted: tuple[tuple[str, ...], ...] = ()
    """A key that may fail is evaluated for rows that satisfy all predicates of one of these; if empty, for all rows."""

    def __post_init__(self) -> None:
        """Refuse a log whose predicates have two bits."""
        if len(set(self.predicates)) != len(self.predicates):
            raise InputError(f"log {self.id} has a predicate twice")

    @property
    def whole_key(self) -> bool:
        """Check whether 64 bits hold the whole key, so that equal hashes are equal keys."""
        return is_whole(self.key)

    @property
    def plain_key(self) -> str:
        """Name the bigint column that is the key; empty if the key has to be computed."""
        if not self.key or not self.whole_key:
            return ""
        (part,) = self.key
        return part.column if part.type == "bigint" and not part.cast else ""

    @property
    def order(self) -> str:
        """Write the key, for people."""
        return ", ".join(part.expression for part in self.key) or "time alone"

    def mask(self, predicates: Iterable[str]) -> int:
        """Return the bits of some of this log's predicates."""
        return sum(1 << self.predicates.index(predicate) for predicate in set(predicates))


def is_whole(key: tuple[KeyPart, ...]) -> bool:
    """Check whether 64 bits hold a whole key, so that equal hashes are equal keys."""
    return not key or (len(key) == 1 and key[0].type in WHOLE_TYPES)


def key_text(key: tuple[KeyPart, ...]) -> str:
    """Write a key so that two that are stored differently are written differently."""
    return "|".join(f"{part.expression}::{part.type}" for part in key)


def log_key(stream: Stream, keys: Iterable[Key], side: Side) -> tuple[KeyPart, ...]:
    """Return the key of one side of a join."""
    return tuple(key_part(stream, key.left if side == "l" else key.right, key.type) for key in keys)


def key_part(stream: Stream, expression: str, common: str) -> KeyPart:
    """Type one key column: the common type if there is one, else the declared type of a plain column."""
    column = stream.column(unquoted(expression))
    declared = column.type if column else ""
    name = column.name if column else ""
    return KeyPart(expression, common or declared, cast=bool(common) and common != declared, column=name)


def agreed(parts: tuple[KeyPart, ...], opposite: tuple[KeyPart, ...]) -> tuple[KeyPart, ...]:
    """Fill in types from the other side: both must be stored in one form, or equal keys would never match.

    Of ``CAST(A.n AS BIGINT) = B.k`` only the type of B.k is declared; without a common type both have the same.

    >>> agreed((KeyPart("CAST(n AS BIGINT)", ""),), (KeyPart("k", "bigint"),))
    (KeyPart(expression='CAST(n AS BIGINT)', type='bigint', cast=False, column=''),)
    """
    return tuple(
        replace(part, type=part.type or other.type) for part, other in zip(parts, opposite, strict=True)
    )


def log_id(stream: str, key: tuple[KeyPart, ...], owner: str = "", *, counted: bool = False) -> str:
    """Name a log so that it is readable, and safe as a directory name.

    >>> log_id("Temperature", (KeyPart("LocationId", "bigint"),))
    'temperature-locationid-1bdf8544'
    >>> log_id("Temperature", ())
    'temperature-time-48858e9e'
    """
    # The case of a literal in the key matters, so the checksum is of the text as it is.
    text = f"{stream}:{key_text(key)}{owner}"
    text += ":rows" if counted else ""
    names = "_".join(part.expression for part in key) or "time"
    words = re.sub(r"[^a-z0-9]+", "_", names.lower()).strip("_")
    slug = re.sub(r"[^a-z0-9]+", "_", stream.lower()).strip("_")[: LONGEST_NAME_BYTES - 34]
    return f"{slug}-{words[:24]}-{crc32(text.encode()):08x}"


def retention(stream: Stream) -> int | None:
    """Return how long a stream's rows are kept for later queries, in microseconds; None: no longer than needed."""
    text = dict(stream.options).get("retain")
    return parse_duration(text) if text else None


def plan_log(
    stream: Stream,
    key: tuple[KeyPart, ...],
    readers: Iterable[tuple[Query, Side]],
    owner: str = "",
    *,
    counted: bool = False,
    links: Iterable[str] = (),
) -> LogPlan:
    """Build the log that serves these readers; `links` are the columns of the stream's other keys."""
    predicates: dict[str, None] = {}
    columns: set[str] = set()
    conditions: list[tuple[str, ...]] = []
    for query, side in readers:
        predicates |= dict.fromkeys(query.predicates(side))
        columns |= query.columns(side)
        conditions.append(query.predicates(side))
    everything = retention(stream) is not None
    stored = tuple(column.name for column in stream.columns if everything or column.name in columns)
    stored += tuple(sorted(links))
    name = log_id(stream.name, key, owner, counted=counted)
    guarded = not everything and not all(_cannot_fail(part, stream) for part in key)
    wanted = _loosest(conditions) if guarded else ()
    return LogPlan(name, stream.name, key, tuple(predicates), stored, owner, counted, wanted)


def _cannot_fail(part: KeyPart, stream: Stream) -> bool:
    """Check whether every row has a value of this part of a key."""
    text = f"CAST({part.expression} AS {part.type})" if part.cast else part.expression
    return always_succeeds(text, stream)


def _loosest(conditions: Iterable[tuple[str, ...]]) -> tuple[tuple[str, ...], ...]:
    """Leave out conditions that imply another one; if one accepts all rows, leave out all.

    >>> _loosest([("a", "b"), ("a",), ("c",)]), _loosest([("a",), ()])
    ((('a',), ('c',)), ())
    """
    distinct = sorted(set(conditions))
    kept = [one for one in distinct if not any(set(other) < set(one) for other in distinct)]
    return () if () in kept else tuple(kept)
