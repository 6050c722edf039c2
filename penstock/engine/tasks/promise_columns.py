"""The columns that ingest reads for promises: whether a row is a promise, and which values it finishes.

They have the form of logs, for which `penstock.engine.tasks.ingest_columns` computes columns already: a value of each
part is a key, a condition is a predicate bit.  In the common case, where a stream is joined on the column it makes
promises about, the key of its log is enough and only the bit is added::

    punctuates 'item_id', joined on item_id     the log's own key, and one bit: is it a promise?
    punctuates 'item_id BETWEEN lo AND hi'      a "key" of (lo, hi)
    punctuates 'item_id IN items'               a row for each element (`sources.exploded`), then as for one value

In:  a plan and a stream.  Out: a `PromiseSpec`: the logs to compute, and the columns that a task reads.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from penstock.engine.tasks.ingest_columns import MARKS, bit_names, key_names
from penstock.plan.promises import Carried, PromiseIndex, carried_by, indexes_about, own_key, promises_about
from penstock.plan.stored import KeyPart, LogPlan
from penstock.sql.bind.promises import promises_of
from penstock.sql.query import RESERVED, Column
from penstock.sql.spark_types import parse_type
from penstock.sql.text.tree import always_quoted, quoted
from penstock.state.promises import PromiseFiles

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from penstock.plan.build import Plan
    from penstock.sql.bind.promises import PromisePattern
    from penstock.sql.query import Stream

ELEMENT = f"{RESERVED}x"
"""The prefix of columns with one element of a list per row; a number follows."""


@dataclass(frozen=True, slots=True)
class KeyColumns:
    """The columns with the key of a row by one index: its 64-bit number, and its parts if that is not the whole key."""

    index: str
    number: str
    parts: tuple[str, ...]
    whole: bool
    log: str = ""
    """The stream's log if it has only one, by this key: rows that are not in it are never joined."""


@dataclass(frozen=True, slots=True)
class PromiseColumns:
    """The columns of a row with the promise that it makes, for one index."""

    index: str
    key: KeyColumns | None
    """The one value of each part of the key; None if promises are about ranges only."""
    bounds: tuple[tuple[str, str], ...] = ()
    """The lowest and highest value of each part, empty names where it is open; empty if `key` is enough."""
    elements: tuple[str, ...] = ()
    """Elements of lists: a null makes no promise."""
    others: tuple[str, ...] = ()
    """Columns about which the key has no part: a value makes no promise."""
    marked: bool = True
    """Whether only punctuations make promises; else every row of data does."""
    whole: bool = False
    """Whether values are compared as 64-bit numbers."""


@dataclass(frozen=True, slots=True)
class PromiseSpec:
    """The promises of a stream, for its ingest tasks."""

    logs: tuple[LogPlan, ...] = ()
    """Logs besides those of the stream, whose columns are computed but never stored."""
    columns: tuple[str, ...] = ()
    """The columns that a task reads for promises."""
    mark: str = ""
    """The column whose first bit marks promises; empty where no row is a promise, or every row."""
    carrier: bool = False
    """Whether the stream has no data."""
    carried: tuple[PromiseColumns, ...] = ()
    own: tuple[KeyColumns, ...] = ()
    """The keys by which rows are checked against the promises of their own stream."""
    known: Mapping[str, PromiseFiles] = field(default_factory=dict)
    """These promises, by index."""


def exploding(stream: Stream) -> dict[str, str]:
    """Map columns of lists that make promises to the column of their elements."""
    lists = [
        pattern.low
        for promise in promises_of(stream)
        for pattern in promise.patterns
        if pattern.kind == "list"
    ]
    return {name: f"{ELEMENT}{number}" for number, name in enumerate(dict.fromkeys(lists))}


def with_elements(stream: Stream) -> Stream:
    """Add to a stream the columns of elements of the lists that make promises."""
    added = tuple(
        Column(element, str(parse_type(_type(stream, name)).parts[0]))
        for name, element in exploding(stream).items()
    )
    return replace(stream, columns=stream.columns + added) if added else stream


def _type(stream: Stream, name: str) -> str:
    column = stream.column(name)
    return column.type if column else ""


def promise_spec(plan: Plan, stream: Stream) -> PromiseSpec | None:
    """Describe the promises of a stream to its ingest tasks; None if it makes none and none are about it."""
    carried, about = carried_by(plan, stream), indexes_about(plan, stream.name)
    if not carried and not about:
        return None
    logs = plan.logs_of(stream.name)
    added = _AddedColumns(stream, logs)
    own = {own_key(stream, promise) for _, promise in promises_about(plan.streams, stream.name)}
    keys = tuple(
        replace(
            added.key(index, index.key), log=logs[0].id if [log.key for log in logs] == [index.key] else ""
        )
        for index in about
        if index.key in own
    )
    made = tuple(added.promise(promise) for promise in carried)
    marks = [
        promise.condition for promise in promises_of(stream) if not promise.is_data and promise.condition
    ]
    mark = added.mark(marks[0]) if marks else ""
    return PromiseSpec(tuple(added.logs), tuple(added.columns), mark, bool(stream.punctuation_of), made, keys)


class _AddedColumns:
    """Collects the logs and columns that a stream's promises need, each once."""

    def __init__(self, stream: Stream, logs: Sequence[LogPlan]) -> None:
        self.stream, self.logs = stream, list[LogPlan]()
        self.columns = dict[str, None]()
        self._first = len(logs)
        self._known = {
            log.key: (number, log) for number, log in enumerate(logs) if log.key and not log.wanted
        }

    def mark(self, condition: str) -> str:
        """Add the bit of rows that are promises."""
        log = LogPlan(MARKS, self.stream.name, (), (condition,), ())
        (name,) = bit_names(self._first + len(self.logs), log)
        self.logs.append(log)
        return self._read(name)

    def key(self, index: PromiseIndex, key: tuple[KeyPart, ...]) -> KeyColumns:
        """Add the key of each row by an index, unless a log of the stream has it."""
        if key not in self._known:
            log = LogPlan(index.id, self.stream.name, key, (), ())
            self._known[key] = self._first + len(self.logs), log
            self.logs.append(log)
        number, log = self._known[key]
        name, parts = key_names(number, log)
        return KeyColumns(index.id, self._read(name), tuple(map(self._read, parts)), log.whole_key)

    def promise(self, carried: Carried) -> PromiseColumns:
        """Add the columns with the values that a row finishes."""
        key = self._exact_key(carried)
        single = key is not None and len(carried.parts) == 1 and not carried.others
        names: dict[tuple[str, str], str] = {} if single else self._values(carried)
        patterns = [pattern for pattern in (*carried.parts, *carried.others) if pattern is not None]
        bounds = (
            ("", "")
            if pattern is None
            else (names[pattern.column, pattern.low], names[pattern.column, pattern.high or pattern.low])
            for pattern in carried.parts
        )
        return PromiseColumns(
            index=carried.index.id,
            key=key,
            bounds=() if single else tuple(bounds),
            elements=tuple(
                self._read(exploding(self.stream)[pattern.low])
                for pattern in patterns
                if pattern.kind == "list"
            ),
            others=tuple(
                names[pattern.column, name] for pattern in carried.others for name in _sources(pattern)
            ),
            marked=not carried.promise.is_data,
            whole=carried.index.whole_key,
        )

    def _exact_key(self, carried: Carried) -> KeyColumns | None:
        """Add the one value of each part of the key; None if promises are never about one value."""
        parts = []
        for part, pattern in zip(carried.index.key, carried.parts, strict=True):
            if pattern is None or pattern.kind == "range":
                return None
            own = pattern.kind == "value" and pattern.low == part.column and not self.stream.punctuation_of
            parts.append(part if own else self._part(pattern, pattern.low, part))
        return self.key(carried.index, tuple(parts))

    def _values(self, carried: Carried) -> dict[tuple[str, str], str]:
        """Add all values of a promise, in the form of a key of several parts; return their columns."""
        wanted: dict[tuple[str, str], KeyPart] = {}
        for part, pattern in zip(carried.index.key, carried.parts, strict=True):
            if pattern is not None:
                for name in _sources(pattern):
                    wanted[pattern.column, name] = self._part(pattern, name, part)
        for pattern in carried.others:
            for name in _sources(pattern):
                kind = self._value_type(pattern, name)
                wanted[pattern.column, name] = self._part(pattern, name, KeyPart("", kind))
        parts = tuple(wanted.values())
        if len(parts) == 1:  # one part alone might be a 64-bit number
            parts *= 2
        return dict(zip(wanted, self.key(carried.index, parts).parts, strict=False))

    def _part(self, pattern: PromisePattern, name: str, part: KeyPart) -> KeyPart:
        """Return one value of a promise as a part of a key."""
        is_list = pattern.kind == "list"
        expression = always_quoted(exploding(self.stream)[name]) if is_list else quoted(name)
        return KeyPart(expression, part.type, cast=self._value_type(pattern, name) != part.type)

    def _value_type(self, pattern: PromisePattern, name: str) -> str:
        """Return the type of the values of a promise; of a list, the type of its elements."""
        is_list = pattern.kind == "list"
        return _type(with_elements(self.stream), exploding(self.stream)[name] if is_list else name)

    def _read(self, name: str) -> str:
        self.columns[name] = None
        return name


def _sources(pattern: PromisePattern) -> Iterable[str]:
    """Name the columns with the values of a pattern."""
    return dict.fromkeys(name for name in (pattern.low, pattern.high) if name)
