"""Which aggregate queries share their partial aggregates, and how finely time is cut for them.

Let o and n be the times of a pair's older and newer row.  At instant E a query with window w sees the pair exactly when
``n <= E`` and ``o > E - w``: the pair is *born* at n and dies at o + w, and only its death depends on the window.  So
pairs are folded into *panes* by o, and what a query sees is the panes younger than E - w::

    panes by o      |  p1  |  p2  |  p3  |  p4  |  p5  |  E
    w = 20 s                       ====================>      from p3 on
    w = 40 s         =================================>       from p1 on

Every query with the same expressions reads the same panes: they are a *pane set*.  Panes are cut at multiples of the
greatest common divisor of windows and EVERYs, births at multiples of that of the EVERYs.  Where the windows of the two
sides differ, a pair dies at ``min(l + W_l, r + W_r)``: the same with ``o = min(l + W_l - W_r, r)`` and the window W_r,
for all queries with one ``W_l - W_r``, the *skew*.

A query of ``emit = 'final'`` or ``'changes'`` has no instants: its pairs are folded by group alone.

Which queries a pair is for is kept with it, as one bit for each reader of the set.  A reader's bit is its own as long
as the set lives, so queries come and go without touching what is folded.

In:  queries.  Out: pane sets; a query that comes while others run joins a set only if its panes are cut finely enough.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import gcd
from typing import TYPE_CHECKING
from zlib import crc32

from penstock.sql.query import SIDES, Range

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from penstock.sql.query import Aggregation, Query

MOST_READERS = 62
"""Readers that a pane set has in all its life: as many as a number has bits to spare."""

_FINER = 4
"""How much finer than it needs them a query lets its panes be cut for the sake of sharing them."""


@dataclass(frozen=True, slots=True)
class PaneSet:
    """Partial aggregates that some queries share."""

    id: str
    emit: str
    readers: Mapping[str, int] = field(default_factory=dict)
    """The bit of each query that reads it."""
    used: int = 0
    """Bits that some reader has or had."""
    pane: int = 0
    """Sliding: the width of a pane in microseconds."""
    step: int = 0
    """Sliding: births are rounded up to multiples of this."""
    skew: int = 0
    """Sliding: how much longer left rows count than right ones."""
    width: int = 0
    """Sliding: the longest window of right rows."""
    parts: int = 1
    """Groups are divided among so many parts by a hash of their key, each with files of its own."""
    skews: tuple[int, ...] = ()
    """Sliding, of more than two streams: how much longer rows of each count than those with the shortest window."""
    by_rows: bool = False
    """Sliding: whether rows are folded, either side by itself, and not pairs (`penstock.plan.row_panes`)."""
    group_side: str = ""
    """Where rows are folded, and groups are not the join's keys: the side that has the columns they are by."""

    def with_reader(self, query: Query) -> PaneSet:
        """Add a query."""
        aggregation = aggregation_of(query)
        return replace(
            self,
            readers={**self.readers, query.name: self.used},
            used=self.used + 1,
            pane=gcd(self.pane, finest(aggregation)),
            step=gcd(self.step, aggregation.every),
            width=max(self.width, seen_back(aggregation)),
        )

    def fits(self, query: Query, *, is_empty: bool) -> bool:
        """Say whether a query may join: what is folded already must be cut finely enough for it."""
        if self.used >= MOST_READERS:
            return False
        if self.emit != "sliding":
            return True
        need = finest(aggregation_of(query))
        if is_empty:
            return gcd(self.pane, need) * _FINER >= min(self.pane, need)
        return need % self.pane == 0 and aggregation_of(query).every % self.step == 0


def aggregation_of(query: Query) -> Aggregation:
    """Give a query's aggregation, of which there is one."""
    assert query.aggregation is not None  # noqa: S101 - asked of aggregate queries only
    return query.aggregation


def finest(aggregation: Aggregation) -> int:
    """Say how finely panes are cut for one query: all its windows begin at multiples of this."""
    return gcd(aggregation.every, seen_back(aggregation))


def seen_back(aggregation: Aggregation) -> int:
    """Say how far back of an instant a query sees: panes are by the time to which this window is added."""
    reach = aggregation.reach
    return reach[1] if len(reach) == len(SIDES) else min(reach)


def _skews(aggregation: Aggregation) -> tuple[int, tuple[int, ...]]:
    """Say how much longer left rows count than right ones; of more streams, each than the shortest window.

    Of many rows, a result dies at the least ``t_i + W_i``: with the shortest window W that is ``o + W`` where
    ``o`` is the least ``t_i + W_i - W``.
    """
    reach, back = aggregation.reach, seen_back(aggregation)
    if len(reach) == len(SIDES):
        return reach[0] - back, ()
    return 0, tuple(each - back for each in reach)


def sharing_key(query: Query) -> str:
    """Say what queries must have in common to read the same panes: the join, the expressions, and how they answer."""
    aggregation = aggregation_of(query)
    outputs = tuple((each.expression, each.column) for each in query.outputs)
    skew = _skews(aggregation)
    limits = query.graph.limits if query.graph else ()
    window = (query.window, limits) if aggregation.emit == "final" else None  # groups are complete with it
    shared = (query.signature, outputs, query.residual, aggregation.groups, aggregation.measures)
    return repr((*shared, aggregation.emit, skew, aggregation.bucket, window))


def share_panes(
    queries: Iterable[Query],
    standing: Mapping[str, PaneSet] | None = None,
    anew: Collection[str] = (),
    *,
    version: int = 1,
    parts: int = 1,
    by_rows: Mapping[str, str] | None = None,
) -> dict[str, PaneSet]:
    """Give every aggregate query a pane set: the one it has, another's that fits, or a new one.

    `standing` are the sets there are; queries that begin `anew` leave theirs.  New sets with keys have so many `parts`,
    and those of queries `by_rows` fold rows, grouped by that side where it is not by the join's key.
    """
    by_rows = by_rows or {}
    asking = {each.name: each for each in queries if each.aggregation is not None}
    sets = {name: _staying(each, asking, anew) for name, each in (standing or {}).items()}
    sets = {name: each for name, each in sets.items() if each.readers}
    keys = {name: sharing_key(asking[next(iter(each.readers))]) for name, each in sets.items()}
    placed = {name for each in sets.values() for name in each.readers}
    old = set(sets)
    for query in asking.values():
        if query.name in placed:
            continue
        key, of_rows = sharing_key(query), query.name in by_rows
        fitting = (
            name
            for name, each in sets.items()
            if (keys[name], each.by_rows) == (key, of_rows) and each.fits(query, is_empty=name not in old)
        )
        home = next(fitting, None)
        if home is None:
            home = _new_id(key, version, sets)
            keys[home] = key
            aggregation = aggregation_of(query)
            skew, skews = _skews(aggregation)
            grouped = by_rows.get(query.name, "")
            divided = parts if aggregation.groups and not grouped else 1
            sets[home] = PaneSet(
                home,
                aggregation.emit,
                skew=skew,
                parts=divided,
                skews=skews,
                by_rows=of_rows,
                group_side=grouped,
            )
        sets[home] = sets[home].with_reader(query)
    return sets


def _staying(panes: PaneSet, asking: Mapping[str, Query], anew: Collection[str]) -> PaneSet:
    """Leave out the readers that are gone; their bits stay taken."""
    readers = {name: bit for name, bit in panes.readers.items() if name in asking and name not in anew}
    return replace(panes, readers=readers)


def _new_id(key: str, version: int, taken: Collection[str]) -> str:
    """Name a new set: by its expressions, the plan that brought it, and a number."""
    stem = f"{crc32(key.encode()):08x}-{version}"
    return next(name for n in range(len(taken) + 1) if (name := f"{stem}-{n}") not in taken)


def alike(query: Query, queries: Iterable[Query], panes: PaneSet) -> int:
    """Give the bits of the readers that see a pair whenever this query wants it, if their windows reach it.

    They have the same predicates.  A window that is nothing but how far back of an instant rows count need not be asked
    of the pair: who cannot reach it does not see its pane.
    """
    own = 1 << panes.readers[query.name]
    if panes.emit != "sliding" or not is_reach(query):
        return own
    same = _predicates(query)
    return own | sum(
        1 << panes.readers[each.name]
        for each in queries
        if each.name in panes.readers
        and each.name != query.name
        and is_reach(each)
        and _predicates(each) == same
    )


def _predicates(query: Query) -> list[tuple[str, ...]]:
    return [query.predicates(side) for side in query.sides]


def is_reach(query: Query) -> bool:
    """Say whether a query's window is what its aggregates see, and no condition bounds it further."""
    reach = aggregation_of(query).reach
    if query.graph is None:
        return query.window == Range.window(*reach)
    others = enumerate(query.graph.limits)
    return all(limit == reach[i] for i, row in others for j, limit in enumerate(row) if i != j)


def set_of(query: str, sets: Mapping[str, PaneSet]) -> PaneSet | None:
    """Find the pane set that a query reads."""
    return next((each for each in sets.values() if query in each.readers), None)
