"""Promises: rows that say what will not come any more.

A *punctuation* is a row of a stream that carries no data but a promise::

    CREATE STREAM Bid (item_id BIGINT, price DOUBLE, kind STRING, ts TIMESTAMP)
      WITH (..., time = 'ts', punctuation = 'kind = ''closed''', punctuates = 'item_id');

    item_id  price  kind     ts
    7        12.5   bid      10:00       data
    7               closed   10:05       after 10:05 there is no row of Bid with item_id = 7

``unique = 'item_id'`` says of every row that it is the last of its value, and data as well.  A stream with
``punctuation_of = 'Bid'`` has no data: it *carries* the promises of another.

In:  the options of a `Stream`.  Out: its `Promise`s.
True: columns are named as declared, and values fit the columns they are compared with; of a carrier that is so once
`check_promises` has seen both streams, and names are those of the other once it is `settled_promises`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from penstock.errors import did_you_mean
from penstock.sql.promise_types import check_types
from penstock.sql.punctuates import Kind, PromiseError, read_punctuates, read_unique, written
from penstock.sql.punctuation import read_condition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.sql.punctuates import Clause
    from penstock.sql.query import Stream

PROMISE_OPTIONS = frozenset({"punctuation", "punctuates", "unique", "punctuation_of", "promises"})
"""Options of a stream that are about promises, in lower case; they are ours, and Spark's source does not see them."""

DEFAULT_BUDGET = 1_000_000
"""How many promises a stream remembers unless it says so."""

_MOST_BUDGET_DIGITS = 18


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
    _check_together(stream, options)
    promises: list[Promise] = []
    if "punctuates" in options:
        clauses = read_punctuates(options["punctuates"])
        condition = read_condition(options["punctuation"], stream) if "punctuation" in options else ""
        about = carried(stream) or stream.name
        promises.append(Promise(about, _patterns(stream, clauses, "punctuates"), condition))
    if "unique" in options:
        unique = _patterns(stream, read_unique(options["unique"]), "unique")
        promises.append(Promise(stream.name, unique, is_data=True))
    return tuple(promises)


def promise_options(stream: Stream) -> dict[str, str]:
    """Give the options of a stream that are about promises."""
    return {name.lower(): value for name, value in stream.options if name.lower() in PROMISE_OPTIONS}


def carried(stream: Stream) -> str:
    """Name the stream whose promises a stream carries, having no rows to join; empty for nearly all."""
    return promise_options(stream).get("punctuation_of", "").strip()


def promise_budget(stream: Stream) -> int:
    """Give how many promises a stream remembers."""
    text = promise_options(stream).get("promises", str(DEFAULT_BUDGET)).strip()
    digits = text.isascii() and text.isdecimal() and len(text) <= _MOST_BUDGET_DIGITS
    if not digits or int(text) == 0:
        raise PromiseError(
            f"promises cannot be {text}: it is how many promises stream {stream.name} remembers, a whole number from 1",
            "promises",
        )
    return int(text)


# --- what can be wrong ------------------------------------------------------------------------------------------


def _check_together(stream: Stream, options: Mapping[str, str]) -> None:
    """Refuse options that mean nothing without, or beside, each other."""
    promise_budget(stream)
    carrier, name = "punctuation_of" in options, stream.name
    if carrier and not carried(stream):
        raise PromiseError(
            "punctuation_of names no stream: give the one that is promised about", "punctuation_of"
        )
    if carrier and carried(stream).lower() == name.lower():
        raise PromiseError(
            f"stream {name} has its own promises anyway: leave punctuation_of out", "punctuation_of"
        )
    if carrier and "unique" in options:
        raise PromiseError(
            f"stream {name} carries promises and has no rows of its own that could be unique: declare unique with "
            f"{carried(stream)}",
            "unique",
        )
    for given in ("punctuation", "punctuation_of"):
        if given in options and "punctuates" not in options:
            raise PromiseError(
                f"stream {name} has {given} and does not say what is promised: add punctuates = '<column>'",
                given,
            )
    if "punctuates" in options and not carrier and "punctuation" not in options:
        raise PromiseError(
            f"stream {name} has punctuates and does not say which rows are promises: add punctuation = '<condition>', "
            "or, if every row is the last of its value, write unique in place of punctuates",
            "punctuates",
        )


def _patterns(stream: Stream, clauses: list[Clause], option: str) -> tuple[Pattern, ...]:
    """Give clauses their names as they are declared; those of another stream keep theirs until it is known."""
    about = None if carried(stream) else stream
    return tuple(_pattern(stream, each, about, option) for each in clauses)


def _pattern(stream: Stream, clause: Clause, about: Stream | None, option: str) -> Pattern:
    """Find the columns of a clause, and check that their types fit where both streams are known."""
    column = _declared(about, clause.column, option) if about else clause.column
    low = _declared(stream, clause.low, option)
    pattern = Pattern(column, clause.kind, low, _declared(stream, clause.high, option) if clause.high else "")
    if about:
        check_types(pattern, about, stream, option)
    return pattern


def _declared(stream: Stream, name: str, option: str) -> str:
    """Find a column of a stream, as declared."""
    column = stream.column(name)
    if column is None:
        hint = did_you_mean(name, [each.name for each in stream.columns])
        raise PromiseError(f"{option}: stream {stream.name} has no column {name}: {hint}", option)
    return column.name


def check_promises(stream: Stream, streams: Mapping[str, Stream]) -> None:
    """Refuse promises that cannot be: also those about another stream, which must be one of `streams`."""
    settled_promises(stream, streams)


def settled_promises(stream: Stream, streams: Mapping[str, Stream]) -> Stream:
    """Give a stream with its promises written the one way, all names as declared; refuse what cannot be.

    So two declarations that promise the same are equal, and `promises_of` needs to see no other stream.
    """
    promises = promises_of(stream)
    about = _other(stream, streams) if carried(stream) else stream
    settled = {}
    for each in promises:
        option = "unique" if each.is_data else "punctuates"
        patterns = [replace(one, column=_declared(about, one.column, option)) for one in each.patterns]
        for one in patterns:
            check_types(one, about, stream, option)
        settled[option] = ", ".join(written(one.column, one.kind, one.low, one.high) for one in patterns)
        settled |= {"punctuation": each.condition} if each.condition else {}
    settled |= {"punctuation_of": about.name} if carried(stream) else {}
    options = tuple((name, settled.get(name.lower(), value)) for name, value in stream.options)
    return replace(stream, options=options) if promises else stream


def _other(stream: Stream, streams: Mapping[str, Stream]) -> Stream:
    """Find the stream whose promises another carries."""
    name = carried(stream)
    about = next((each for each in streams.values() if each.name.lower() == name.lower()), None)
    if about is None:
        hint = did_you_mean(name, [each.name for each in streams.values()])
        raise PromiseError(
            f"stream {stream.name} carries the promises of {name}, which is not declared before it: {hint}",
            "punctuation_of",
        )
    if carried(about):
        raise PromiseError(
            f"stream {about.name} carries promises itself, those of {carried(about)}: name a stream that has rows",
            "punctuation_of",
        )
    if about.timeless:
        raise PromiseError(
            f"stream {about.name} has no event time, by which promises take effect: give it one, (time = '<column>')",
            "punctuation_of",
        )
    if (about.time_type == "timestamp") != (stream.time_type == "timestamp"):
        raise PromiseError(
            f"the time of {stream.name} is {stream.time_type} and that of {about.name} is {about.time_type}, which "
            "cannot be compared in every zone: give both streams times of one type",
            "punctuation_of",
        )
    return about


def carriers_of(name: str, streams: Mapping[str, Stream]) -> list[str]:
    """Name the streams that carry the promises of one."""
    return [each.name for each in streams.values() if carried(each).lower() == name.lower()]
