"""Which aggregates are answered from rows, so that no pair is ever looked for.

Where a query groups by the join's own key, every row of a group on the left meets every row of it on the right that the
window sees.  So what the pairs come to follows from what the rows of either side come to::

    key 7, what the window sees        left rows          right rows         their pairs
                                       v = 3, 5           w = 1, 2, 4
    COUNT(*)                           2                  3                  2 * 3 = 6
    SUM(r.w)                           2                  7                  2 * 7 = 14
    MAX(l.v)                           5                  3                  5

Where groups are columns of one side, the two sides are multiplied key by key, and the products of a group's keys are
added up::

    group x has the keys 7 and 9       key 7: 2 * 3 = 6 pairs          key 9: 1 * 4 = 4 pairs          x: 10 pairs

A row of that side is then folded by its key and its group, one of the other side by its key.

A row is born at its own time and is seen until it leaves the window, so rows are folded into panes by their times as
pairs are by that of their older row (`penstock.plan.panes`), each side by itself.

That takes, whatever a window holds, one look at every key of it for each instant.  Pairs take a look at each pair once.
So rows are folded only where a row is seen at few instants (`MOST_INSTANTS`).

In:  a plan.  Out: which queries fold rows, and which side has their groups or which part of the join's key each is.
True: such a query has no condition on both rows but the equalities and the window, and each of its aggregates takes
columns of one row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.plan.panes import aggregation_of, is_reach
from penstock.plan.stored import WHOLE_TYPES

if TYPE_CHECKING:
    from penstock.plan.build import Plan
    from penstock.plan.group import Group
    from penstock.plan.stored import KeyPart
    from penstock.sql.query import Output, Query, Side

MOST_INSTANTS = 64
"""Instants at which a row may be seen by a window for rows to be folded."""

_COMPARED = frozenset({"string", "binary"})
"""Types beside whole numbers and decimals whose values are stored as they are where they are a key."""


def queries_by_rows(plan: Plan) -> dict[str, str]:
    """Name the queries of a plan whose rows are folded, and not their pairs.

    With the side that has their groups, or nothing where these are the join's keys.
    """
    asked = {each: plan.find(each.name)[0] for each in plan.queries if _could_fold_rows(each)}
    by_key = {each.name: "" for each, group in asked.items() if key_places(each, group)}
    sides = {each.name: _grouped_side(each, group, plan) for each, group in asked.items()}
    return by_key | {name: side for name, side in sides.items() if side and name not in by_key}


def _could_fold_rows(query: Query) -> bool:
    """Say whether all but its group keys lets a query be answered from rows, at few enough instants to pay."""
    aggregation = query.aggregation
    if aggregation is None or aggregation.emit != "sliding" or not is_reach(query):
        return False
    if query.graph is not None or query.residual or query.comparisons or query.left == query.right:
        return False
    if any(each.distinct for each in aggregation.measures):
        return False
    if not all(each.column or each.remainder for each in query.outputs):
        return False
    if any(
        len({_side_of(query.outputs[each]) for each in one.arguments}) > 1 for one in aggregation.measures
    ):
        return False
    return max(aggregation.reach) <= MOST_INSTANTS * aggregation.every


def _side_of(output: Output) -> Side:
    """Return the side of the column that an output of a pair is, or is the remainder of."""
    if output.remainder:
        return output.remainder.side
    assert output.column is not None  # noqa: S101 - asked of plain outputs only
    return output.column[0]


def _grouped_side(query: Query, group: Group, plan: Plan) -> Side | None:
    """Name the side that has all columns a query groups by; None if both have some, or keys or groups are not plain."""
    keys = [part for each in group.inputs for part in each.log.key]
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
    return part.column == column and not part.cast and _is_plain(part.type)


def _is_plain(kind: str) -> bool:
    """Say whether values of a type are equal exactly where they are stored alike."""
    return kind in WHOLE_TYPES or kind in _COMPARED or kind.startswith("decimal")
