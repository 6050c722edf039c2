"""What ingest reads of a row for the sake of promises: whether it is one, and which values it finishes.

All of it is asked in the form of logs, which Spark SQL and the plain loops can compute already: a key is one value of
each part, a condition is a predicate bit.  In the common case, where a stream is joined on the column it makes promises
about, the key of its log says everything and nothing is computed besides::

    punctuates 'item_id', joined on item_id     the log's own key, and one bit: is it a promise?
    punctuates 'item_id BETWEEN lo AND hi'      a "key" of (lo, hi)
    punctuates 'item_id IN items'               a row for each element (`sources.exploded`), then as for one value

In:  a plan and a stream.  Out: a `PromiseTask`: the logs to compute, and where a task finds what.
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
"""How the columns are named that have one element of a list each; a number follows."""


@dataclass(frozen=True, slots=True)
class KeyColumns:
    """Where the key of a row is, by one index: its 64-bit number, and its parts if that is not all of it."""

    index: str
    number: str
    parts: tuple[str, ...]
    whole: bool
    log: str = ""
    """The stream's log if it has only one, by this key: rows that are not in it are joined by nobody."""


@dataclass(frozen=True, slots=True)
class PromiseColumns:
    """Where a promise is in the row that makes it, for one index."""

    index: str
    key: KeyColumns | None
    """Where it is about one value of each part of the key; None if it never is."""
    bounds: tuple[tuple[str, str], ...] = ()
    """The lowest and highest value of each part, empty names where it is open; none if there is only the key."""
    elements: tuple[str, ...] = ()
    """Elements of lists: without one, the promise is about nothing."""
    others: tuple[str, ...] = ()
    """What must be null, since the key has no such part."""
    marked: bool = True
    """Whether it is made by rows that are no data; else by every row that is."""
    whole: bool = False
    """Whether values are compared as 64-bit numbers."""


@dataclass(frozen=True, slots=True)
class PromiseTask:
    """What tasks of ingest are told about the promises of a stream."""

    logs: tuple[LogPlan, ...] = ()
    """What is computed of each row besides its logs, as if it were for logs that follow them."""
    columns: tuple[str, ...] = ()
    """The columns that a task reads for it."""
    mark: str = ""
    """The column whose first bit says whether a row is a promise; empty where no row is one, or every row."""
    carrier: bool = False
    """Whether no row is data."""
    carried: tuple[PromiseColumns, ...] = ()
    own: tuple[KeyColumns, ...] = ()
    """By which keys rows are held against the promises of their own stream."""
    known: Mapping[str, PromiseFiles] = field(default_factory=dict)
    """Those promises, by index."""


def exploding(stream: Stream) -> dict[str, str]:
    """Name the columns of lists whose elements are taken one by one, and what an element is called."""
    lists = [each.low for promise in promises_of(stream) for each in promise.patterns if each.kind == "list"]
    return {name: f"{ELEMENT}{number}" for number, name in enumerate(dict.fromkeys(lists))}


def with_elements(stream: Stream) -> Stream:
    """Give a stream whose rows have one element of each list that makes promises."""
    added = tuple(
        Column(element, str(parse_type(_type(stream, name)).parts[0]))
        for name, element in exploding(stream).items()
    )
    return replace(stream, columns=stream.columns + added) if added else stream


def _type(stream: Stream, name: str) -> str:
    column = stream.column(name)
    return column.type if column else ""


def promise_task(plan: Plan, stream: Stream) -> PromiseTask | None:
    """Say what ingest of a stream has to do with promises; None, as for nearly all streams, if nothing."""
    carried, about = carried_by(plan, stream), indexes_about(plan, stream.name)
    if not carried and not about:
        return None
    asked = _Asked(stream, plan.logs_of(stream.name))
    own = {own_key(stream, promise) for _, promise in promises_about(plan.streams, stream.name)}
    logs = plan.logs_of(stream.name)
    keys = tuple(
        replace(
            asked.key(each, each.key), log=logs[0].id if len(logs) == 1 and logs[0].key == each.key else ""
        )
        for each in about
        if each.key in own
    )
    made = tuple(asked.promise(each) for each in carried)
    mark = asked.mark([each.condition for each in promises_of(stream) if not each.is_data and each.condition])
    return PromiseTask(
        tuple(asked.extra), tuple(asked.columns), mark, bool(stream.punctuation_of), made, keys
    )


class _Asked:
    """Collects what has to be computed of a stream's rows, each thing once."""

    def __init__(self, stream: Stream, logs: Sequence[LogPlan]) -> None:
        self.stream, self.extra = stream, list[LogPlan]()
        self.columns = dict[str, None]()
        self._first = len(logs)
        self._known = {
            log.key: (number, log) for number, log in enumerate(logs) if log.key and not log.wanted
        }

    def mark(self, conditions: Sequence[str]) -> str:
        """Ask whether a row is a promise."""
        if not conditions:
            return ""
        log = LogPlan(MARKS, self.stream.name, (), (conditions[0],), ())
        number = self._first + len(self.extra)
        self.extra.append(log)
        (name,) = bit_names(number, log)
        return self._read(name)

    def key(self, index: PromiseIndex, key: tuple[KeyPart, ...]) -> KeyColumns:
        """Ask for the key of each row by an index; a log may have it already."""
        if key not in self._known:
            log = LogPlan(index.id, self.stream.name, key, (), ())
            self._known[key] = self._first + len(self.extra), log
            self.extra.append(log)
        number, log = self._known[key]
        name, parts = key_names(number, log)
        return KeyColumns(index.id, self._read(name), tuple(map(self._read, parts)), log.whole_key)

    def promise(self, carried: Carried) -> PromiseColumns:
        """Ask for all that it takes to know which values a row finishes."""
        key = self._exact_key(carried)
        single = key is not None and len(carried.parts) == 1 and not carried.others
        names: dict[tuple[str, str], str] = {} if single else self._values(carried)
        used = [each for each in (*carried.parts, *carried.others) if each is not None]
        return PromiseColumns(
            index=carried.index.id,
            key=key,
            bounds=()
            if single
            else tuple(
                ("", "")
                if each is None
                else (names[each.column, each.low], names[each.column, each.high or each.low])
                for each in carried.parts
            ),
            elements=tuple(
                self._read(exploding(self.stream)[each.low]) for each in used if each.kind == "list"
            ),
            others=tuple(
                names[each.column, name] for each in carried.others for name in (each.low, each.high) if name
            ),
            marked=not carried.promise.is_data,
            whole=carried.index.whole_key,
        )

    def _exact_key(self, carried: Carried) -> KeyColumns | None:
        """Ask for the one value of each part of the key, if promises may be about that."""
        parts = []
        for part, pattern in zip(carried.index.key, carried.parts, strict=True):
            if pattern is None or pattern.kind == "range":
                return None
            own = pattern.kind == "value" and pattern.low == part.column and not self.stream.punctuation_of
            parts.append(part if own else self._part(pattern, pattern.low, part))
        return self.key(carried.index, tuple(parts))

    def _values(self, carried: Carried) -> dict[tuple[str, str], str]:
        """Ask for all values of a promise, each as it would stand in a key of several parts."""
        wanted: dict[tuple[str, str], KeyPart] = {}
        for part, about in zip(carried.index.key, carried.parts, strict=True):
            if about is not None:
                wanted |= {(about.column, name): self._part(about, name, part) for name in _sources(about)}
        for pattern in carried.others:
            for name in _sources(pattern):
                kind = self._value_type(pattern, name)
                wanted[pattern.column, name] = self._part(pattern, name, KeyPart("", kind))
        both = tuple(wanted.values()) * (
            2 if len(wanted) == 1 else 1
        )  # one part alone might be a 64-bit number
        found = self.key(carried.index, both)
        return dict(zip(wanted, found.parts, strict=False))

    def _part(self, pattern: PromisePattern, name: str, part: KeyPart) -> KeyPart:
        """Write one value of a promise as a part of a key."""
        is_list = pattern.kind == "list"
        expression = always_quoted(exploding(self.stream)[name]) if is_list else quoted(name)
        return KeyPart(expression, part.type, cast=self._value_type(pattern, name) != part.type)

    def _value_type(self, pattern: PromisePattern, name: str) -> str:
        """Give the type of the values that a promise is read from: of a list, that of its elements."""
        is_list = pattern.kind == "list"
        return _type(with_elements(self.stream), exploding(self.stream)[name] if is_list else name)

    def _read(self, name: str) -> str:
        self.columns[name] = None
        return name


def _sources(pattern: PromisePattern) -> Iterable[str]:
    """Name the columns that a pattern is read from."""
    return dict.fromkeys(each for each in (pattern.low, pattern.high) if each)
