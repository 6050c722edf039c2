"""Promises: rows that say what will not come any more.

A *punctuation* is a row of a stream that carries no data but a promise::

    CREATE STREAM Bid (item_id BIGINT, price DOUBLE, kind STRING, ts TIMESTAMP)
      WITH (..., time = 'ts', punctuation = 'kind = ''closed''', punctuates = 'item_id');

    item_id  price  kind     ts
    7        12.5   bid      10:00       data
    7               closed   10:05       after 10:05 there is no row of Bid with item_id = 7

``unique = 'item_id'`` says of every row that it is the last of its value, and data as well.  A stream with
``punctuation_of = 'Bid'`` has no data: it *carries* the promises of another.

In:  the options of a `Stream`.  Out: its `Promise`s, with names as declared.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from penstock.errors import did_you_mean
from penstock.sql.punctuates import Kind, PromiseError, read_punctuates, read_unique

if TYPE_CHECKING:
    from penstock.sql.punctuates import Clause
    from penstock.sql.query import Stream

PROMISE_OPTIONS = frozenset({"punctuation", "punctuates", "unique", "punctuation_of", "promises"})
"""Options of a stream that are about promises, in lower case; they are ours, and Spark's source does not see them."""

DEFAULT_BUDGET = 1_000_000
"""How many promises a stream remembers unless it says so."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """Which values of one column are promised about, and where they are read from.

    `column` is of the stream that the promise is about, `low` and `high` of the stream that carries it.  `low` has the
    value, the list or the lower bound; `high` is the upper bound of a range.
    """

    column: str
    kind: Kind
    low: str
    high: str = ""


@dataclass(frozen=True, slots=True)
class Promise:
    """That no row of a stream comes after this one whose columns match all patterns.

    `condition` is Spark SQL over the bare columns of the stream that carries the promise, and holds for the rows that
    make it; empty: every row does.  With `is_data` the row is data as well, and the last of its value.
    """

    about: str
    patterns: tuple[Pattern, ...]
    condition: str = ""
    is_data: bool = False


@lru_cache(maxsize=4096)
def promises_of(stream: Stream) -> tuple[Promise, ...]:
    """List the promises that rows of a stream make; nearly all streams have none."""
    options = promise_options(stream)
    promises: list[Promise] = []
    if "punctuates" in options:
        about = options.get("punctuation_of", stream.name)
        patterns = (
            _pattern(stream, each, carrier=is_carrier(stream))
            for each in read_punctuates(options["punctuates"])
        )
        promises.append(Promise(about, tuple(patterns), options.get("punctuation", "")))
    if "unique" in options:
        unique = (_pattern(stream, each, carrier=False) for each in read_unique(options["unique"]))
        promises.append(Promise(stream.name, tuple(unique), is_data=True))
    return tuple(promises)


def promise_options(stream: Stream) -> dict[str, str]:
    """Give the options of a stream that are about promises."""
    return {name.lower(): value for name, value in stream.options if name.lower() in PROMISE_OPTIONS}


def is_carrier(stream: Stream) -> bool:
    """Say whether a stream carries the promises of another, and has no rows to join."""
    return "punctuation_of" in promise_options(stream)


def promise_budget(stream: Stream) -> int:
    """Give how many promises a stream remembers."""
    text = promise_options(stream).get("promises", str(DEFAULT_BUDGET)).strip()
    if not (text.isascii() and text.isdecimal() and int(text) > 0):
        raise PromiseError(
            "promises", f"promises cannot be {text}: it is how many promises are remembered, 1 or more"
        )
    return int(text)


def _pattern(stream: Stream, clause: Clause, *, carrier: bool) -> Pattern:
    """Give a clause its names as they are declared; the column of another stream keeps its own."""
    column = clause.column if carrier else _declared(stream, clause.column)
    low = _declared(stream, clause.low)
    return Pattern(column, clause.kind, low, _declared(stream, clause.high) if clause.high else "")


def _declared(stream: Stream, name: str) -> str:
    """Find a column of a stream, as declared."""
    column = stream.column(name)
    if column is None:
        hint = did_you_mean(name, [each.name for each in stream.columns])
        raise PromiseError("punctuates", f"stream {stream.name} has no column {name}: {hint}")
    return column.name
