"""Which aggregates are answered from rows, so that no pair is ever looked for.

Where a query groups by the join's own key, every row of a group on the left meets every row of it on the right that the
window sees.  So what the pairs come to follows from what the rows of either side come to::

    key 7, what the window sees        left rows          right rows         their pairs
                                       v = 3, 5           w = 1, 2, 4
    COUNT(*)                           2                  3                  2 * 3 = 6
    SUM(r.w)                           2                  7                  2 * 7 = 14
    MAX(l.v)                           5                  3                  5

A row is born at its own time and is seen until it leaves the window, so rows are folded into panes by their times as
pairs are by that of their older row (`penstock.plan.panes`), each side by itself.

That takes, whatever a window holds, one look at every key of it for each instant.  Pairs take a look at each pair once.
So rows are folded only where a row is seen at few instants (`MOST_INSTANTS`).

In:  a plan.  Out: which queries fold rows, and which part of the join's key each of their group keys is.
True: such a query has no condition on both rows but the equalities and the window, and each of its aggregates takes a
column of one row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.plan.panes import aggregation_of, is_reach
from penstock.plan.stored import WHOLE_TYPES

if TYPE_CHECKING:
    from penstock.plan.build import Plan
    from penstock.plan.group import Group
    from penstock.plan.stored import KeyPart
    from penstock.sql.query import Query, Side

MOST_INSTANTS = 64
"""Instants at which a row may be seen by a window for rows to be folded."""

_COMPARED = frozenset({"string", "binary"})
"""Types beside whole numbers and decimals whose values are stored as they are where they are a key."""


def queries_by_rows(plan: Plan) -> frozenset[str]:
    """Name the queries of a plan whose rows are folded, and not their pairs."""
    return frozenset(each.name for each in plan.queries if folds_rows(each, plan.find(each.name)[0]))


def folds_rows(query: Query, group: Group) -> bool:
    """Say whether a query can be answered from rows, and is worth it."""
    aggregation = query.aggregation
    if aggregation is None or aggregation.emit != "sliding" or not is_reach(query):
        return False
    if query.graph is not None or query.residual or query.comparisons or query.left == query.right:
        return False
    if any(each.distinct for each in aggregation.measures):
        return False
    if not all(each.column or each.remainder for each in query.outputs):
        return False
    return max(aggregation.reach) <= MOST_INSTANTS * aggregation.every and bool(key_places(query, group))


def key_places(query: Query, group: Group) -> tuple[int, ...]:
    """Say of each group key which part of the join's key it is; nothing if one is none, or a part is missing."""
    keys: dict[Side, tuple[KeyPart, ...]] = {each.side: each.log.key for each in group.inputs}
    places = []
    for output in query.outputs[: aggregation_of(query).groups]:
        if output.column is None:
            return ()
        side, column = output.column
        found = [number for number, part in enumerate(keys[side]) if _is_column(part, column)]
        if not found:
            return ()
        places.append(found[0])
    parts = keys[group.sides[0]]
    return tuple(places) if set(places) == set(range(len(parts))) else ()


def _is_column(part: KeyPart, column: str) -> bool:
    """Say whether a part of the key is a column as it stands, of a type that the log holds as it is."""
    whole = part.type in WHOLE_TYPES or part.type in _COMPARED or part.type.startswith("decimal")
    return part.column == column and not part.cast and whole
