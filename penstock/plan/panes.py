"""Which aggregate queries share their partial aggregates, and how finely time is cut for them.

Let o and n be the times of a pair's older and newer row.  At instant E a query with window w sees the pair if
``n <= E`` and ``o > E - w``: the pair is *born* at n and dies at o + w, and only its death depends on the window.  So
pairs are folded into *panes* by o, and the query at E reads the panes younger than E - w::

    panes by o      |  p1  |  p2  |  p3  |  p4  |  p5  |  E
    w = 20 s                       ====================>      from p3 on
    w = 40 s         =================================>       from p1 on

Queries with the same expressions read the same panes, which form a *pane set*.  Panes are cut at multiples of the
greatest common divisor of windows and EVERYs, births at multiples of that of the EVERYs.  If the windows of the two
sides differ, a pair dies at ``min(l + W_l, r + W_r)``.  That is the same with ``o = min(l + W_l - W_r, r)`` and the
window W_r, for all queries with one ``W_l - W_r``, the *skew*.

A query of ``emit = 'final'`` or ``'changes'`` has no instants: its pairs are folded by group alone.

Each pair is stored with the readers of the set that it is for, as bits.  A reader keeps its bit as long as the set
exists, so queries come and go without a change to folded pairs.

**Rows instead of pairs.**  If a query groups by the join's key, every left row of a group meets every right row of it
that the window sees.  So the aggregates of pairs follow from aggregates of the rows of either side::

    key 7, what the window sees        left rows          right rows         their pairs
                                       v = 3, 5           w = 1, 2, 4
    COUNT(*)                           2                  3                  2 * 3 = 6
    SUM(r.w)                           2                  7                  2 * 7 = 14
    MAX(l.v)                           5                  3                  5

If groups are columns of one side, the two sides are multiplied key by key, and the products of a group's keys are
added.  A row of that side is then folded by its key and its group, a row of the other side by its key::

    group x has the keys 7 and 9       key 7: 2 * 3 = 6 pairs          key 9: 1 * 4 = 4 pairs          x: 10 pairs

Each instant reads every key of the window once, whereas each pair is read once only.  So rows are folded only if a row
is seen at few instants (`MOST_INSTANTS`).

In:  queries, or a plan.  Out: pane sets, and the queries that fold rows.
A new query joins a set with folded pairs only if its panes are cut finely enough.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import gcd
from typing import TYPE_CHECKING
from zlib import crc32

from penstock.plan.stored import WHOLE_TYPES
from penstock.sql.query import SIDES, Range

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from penstock.plan.build import Plan
    from penstock.plan.group import Group
    from penstock.plan.stored import KeyPart
    from penstock.sql.query import Aggregation, OutputColumn, Query, Side

MOST_READERS = 62
"""Readers that a pane set has in all its life: a number has so many bits to spare."""

MOST_INSTANTS = 64
"""Instants at which a row may be seen by a window for rows to be folded."""

_MOST_CUTS = 4
"""How many times finer than it needs a query lets its panes be cut to share them."""

_COMPARED_TYPES = frozenset({"string", "binary"})
"""Types beside whole numbers and decimals whose values a key stores as they are."""


@dataclass(frozen=True, slots=True)
class PaneSet:
    """Partial aggregates that some queries share."""

    id: str
    emit: str
    readers: Mapping[str, int] = field(default_factory=dict)
    """The bit of each query that reads it."""
    used: int = 0
    """The number of bits that some reader has or had."""
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
    """Sliding: whether rows of each side are folded, and not pairs."""
    group_side: str = ""
    """If rows are folded and groups are not the join's keys: the side that has the grouping columns."""

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
        """Check whether a query may join: existing panes must be cut finely enough for it."""
        if self.used >= MOST_READERS:
            return False
        if self.emit != "sliding":
            return True
        need = finest(aggregation_of(query))
        if is_empty:
            return gcd(self.pane, need) * _MOST_CUTS >= min(self.pane, need)
        return need % self.pane == 0 and aggregation_of(query).every % self.step == 0


def aggregation_of(query: Query) -> Aggregation:
    """Return the aggregation of an aggregate query."""
    assert query.aggregation is not None  # noqa: S101 - called for aggregate queries only
    return query.aggregation


def finest(aggregation: Aggregation) -> int:
    """Return the width of panes that one query needs: all its windows begin at multiples of this."""
    return gcd(aggregation.every, seen_back(aggregation))


def seen_back(aggregation: Aggregation) -> int:
    """Return the window that is added to a pane's time: how far back of an instant a query sees."""
    reach = aggregation.reach
    return reach[1] if len(reach) == len(SIDES) else min(reach)


def _skews(aggregation: Aggregation) -> tuple[int, tuple[int, ...]]:
    """Return how much longer left rows count than right ones; of more streams, each than the shortest window.

    Of many rows, a result dies at the least ``t_i + W_i``: with the shortest window W that is ``o + W`` where
    ``o`` is the least ``t_i + W_i - W``.
    """
    reach, back = aggregation.reach, seen_back(aggregation)
    if len(reach) == len(SIDES):
        return reach[0] - back, ()
    return 0, tuple(length - back for length in reach)


def sharing_key(query: Query) -> str:
    """Write all that queries must have in common to read the same panes."""
    aggregation = aggregation_of(query)
    outputs = tuple((output.expression, output.column) for output in query.outputs)
    limits = query.graph.limits if query.graph else ()
    window = (query.window, limits) if aggregation.emit == "final" else None  # groups are complete with it
    shared = (query.signature, outputs, query.residual, aggregation.groups, aggregation.measures)
    return repr((*shared, aggregation.emit, _skews(aggregation), aggregation.bucket, window))


def share_panes(
    queries: Iterable[Query],
    standing: Mapping[str, PaneSet] | None = None,
    anew: Collection[str] = (),
    *,
    version: int = 1,
    parts: int = 1,
    by_rows: Mapping[str, str] | None = None,
) -> dict[str, PaneSet]:
    """Assign a pane set to every aggregate query: the one it has, another one that fits, or a new one.

    `standing` are the existing sets; queries that begin `anew` leave theirs.  New sets with keys have so many `parts`.
    Queries named in `by_rows` fold rows, grouped by that side or, if it is empty, by the join's key.
    """
    by_rows = by_rows or {}
    wanted = {query.name: query for query in queries if query.aggregation is not None}
    sets = {}
    for name, panes in (standing or {}).items():
        readers = {
            query: bit for query, bit in panes.readers.items() if query in wanted and query not in anew
        }
        if readers:
            sets[name] = replace(panes, readers=readers)  # the bits of readers that left stay taken
    keys = {name: sharing_key(wanted[next(iter(panes.readers))]) for name, panes in sets.items()}
    placed = {name for panes in sets.values() for name in panes.readers}
    old = set(sets)
    for query in wanted.values():
        if query.name in placed:
            continue
        key, of_rows = sharing_key(query), query.name in by_rows
        fitting = (
            name
            for name, panes in sets.items()
            if (keys[name], panes.by_rows) == (key, of_rows) and panes.fits(query, is_empty=name not in old)
        )
        home = next(fitting, None)
        if home is None:
            home = _new_id(key, version, sets)
            keys[home] = key
            aggregation = aggregation_of(query)
            skew, skews = _skews(aggregation)
            side = by_rows.get(query.name, "")
            sets[home] = PaneSet(
                home,
                aggregation.emit,
                skew=skew,
                parts=parts if aggregation.groups and not side else 1,
                skews=skews,
                by_rows=of_rows,
                group_side=side,
            )
        sets[home] = sets[home].with_reader(query)
    return sets


def _new_id(key: str, version: int, taken: Collection[str]) -> str:
    """Name a new set by its expressions, the version of the plan, and a number."""
    stem = f"{crc32(key.encode()):08x}-{version}"
    return next(name for n in range(len(taken) + 1) if (name := f"{stem}-{n}") not in taken)


def alike(query: Query, queries: Iterable[Query], panes: PaneSet) -> int:
    """Return the bits of the readers that want every pair that this query wants, if their windows reach it.

    They have the same predicates.  If a window is only the reach of the aggregates, a pair need not be tested by it:
    a query whose window does not reach the pair does not read its pane.
    """
    own = 1 << panes.readers[query.name]
    if panes.emit != "sliding" or not is_reach(query):
        return own
    same = _predicates(query)
    return own | sum(
        1 << panes.readers[other.name]
        for other in queries
        if other.name in panes.readers
        and other.name != query.name
        and is_reach(other)
        and _predicates(other) == same
    )


def _predicates(query: Query) -> list[tuple[str, ...]]:
    return [query.predicates(side) for side in query.sides]


def is_reach(query: Query) -> bool:
    """Check whether a query's window is the reach of its aggregates, and no condition bounds it further."""
    reach = aggregation_of(query).reach
    if query.graph is None:
        return query.window == Range.window(*reach)
    others = enumerate(query.graph.limits)
    return all(limit == reach[i] for i, row in others for j, limit in enumerate(row) if i != j)


def set_of(query: str, sets: Mapping[str, PaneSet]) -> PaneSet | None:
    """Find the pane set that a query reads."""
    return next((panes for panes in sets.values() if query in panes.readers), None)


# --- rows instead of pairs --------------------------------------------------------------------------


def queries_by_rows(plan: Plan) -> dict[str, str]:
    """Return the queries whose rows are folded, each with the side of its groups; '' if these are the join's keys."""
    found = {}
    for query in plan.queries:
        if _can_fold_rows(query):
            group = plan.find(query.name)[0]
            side = "" if key_places(query, group) else _grouped_side(query, group, plan)
            if side is not None:
                found[query.name] = side
    return found


def _can_fold_rows(query: Query) -> bool:
    """Check all but the group keys.

    The only condition on both rows is the equality, each aggregate takes columns of one row, and a row is seen at few
    instants.
    """
    aggregation = query.aggregation
    if aggregation is None or aggregation.emit != "sliding" or not is_reach(query):
        return False
    if query.graph is not None or query.residual or query.comparisons or query.left == query.right:
        return False
    if not all(output.column or output.remainder for output in query.outputs):
        return False
    for measure in aggregation.measures:
        sides = {_side_of(query.outputs[number]) for number in measure.arguments}
        if measure.distinct or len(sides) > 1:
            return False
    return max(aggregation.reach) <= MOST_INSTANTS * aggregation.every


def _side_of(output: OutputColumn) -> Side:
    """Return the side of the column that an output is, or is the remainder of."""
    if output.remainder:
        return output.remainder.side
    assert output.column is not None  # noqa: S101 - called for plain outputs only
    return output.column[0]


def _grouped_side(query: Query, group: Group, plan: Plan) -> Side | None:
    """Name the side that has all grouping columns; None if both have some, or keys or groups are not plain."""
    keys = [part for side in group.inputs for part in side.log.key]
    if not keys or not all(_is_plain(part.type) for part in keys):
        return None
    streams = dict(zip(group.sides, group.streams, strict=True))
    sides: set[Side] = set()
    for output in query.outputs[: aggregation_of(query).groups]:
        taken = output.remainder
        side, name = (taken.side, taken.column) if taken else output.column or ("l", "")
        column = plan.stream(streams[side]).column(name)
        if column is None or not _is_plain(column.type):
            return None
        sides.add(side)
    if len(sides) > 1:
        return None
    return sides.pop() if sides else group.sides[0]


def key_places(query: Query, group: Group) -> tuple[int, ...]:
    """Return the part of the join's key that each group key is; () if one is none, or a part is missing."""
    keys = {part.side: part.log.key for part in group.inputs}
    places = []
    for output in query.outputs[: aggregation_of(query).groups]:
        if output.column is None:
            return ()
        side, column = output.column
        found = [number for number, part in enumerate(keys[side]) if _is_column(part, column)]
        if not found:
            return ()
        places.append(found[0])
    return tuple(places) if set(places) == set(range(len(keys[group.sides[0]]))) else ()


def _is_column(part: KeyPart, column: str) -> bool:
    return part.column == column and not part.cast and _is_plain(part.type)


def _is_plain(kind: str) -> bool:
    """Check whether values of a type are equal exactly if they are stored alike."""
    return kind in WHOLE_TYPES or kind in _COMPARED_TYPES or kind.startswith("decimal")
