"""Which streams of a query the conditions connect, directly or over others.

    A.k = B.k AND B.ts < C.ts, D        {A, B, C}  {D}

Of more than two streams, those that nothing connects are refused: each row of one would meet each row of the others.
Who means that writes CROSS JOIN.

In:  a FROM, the scope of its streams, and the conditions, sorted out.
Out: nothing, or an error that points at the stream that stands alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.sql.graph import LEAST_INPUTS, side_number
from penstock.sql.text.tree import sides_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.sql.bind.conditions import Conditions
    from penstock.sql.from_clause import From
    from penstock.sql.bind.scope import Input, Scope


def connected(links: Iterable[set[int]]) -> list[set[int]]:
    """Join sets that have something in common.

    >>> connected([{0, 1}, {2, 3}, {1, 2}, {4, 5}])
    [{0, 1, 2, 3}, {4, 5}]
    """
    parts: list[set[int]] = []
    for link in links:
        touched = [each for each in parts if each & link]
        whole = set(link).union(*touched)
        parts = sorted([*(each for each in parts if each not in touched), whole], key=min)
    return parts


def refuse_unconnected(scope: Scope, joined: From, conditions: Conditions) -> None:
    """Refuse more than two streams that nothing connects, unless CROSS JOIN does."""
    if len(scope.inputs) < LEAST_INPUTS:
        return
    alone = [{each.number} for each in scope.inputs]
    parts = connected([*alone, *_links(conditions), *_crosses(scope, joined)])
    with_first = next(each for each in parts if scope.inputs[0].number in each)
    for place, each in enumerate(scope.inputs):
        if each.number not in with_first:
            raise scope.error(
                f"no condition connects {each.alias} with {scope.inputs[0].alias}: write one"
                f"{_example(scope, each)}, or CROSS JOIN {each.alias} if each of its rows shall meet all others",
                joined.tables[place].span,
            )


def _example(scope: Scope, alone: Input) -> str:
    """Write an equality that the user may have meant, on a column that two streams have."""
    for other in scope.inputs:
        for column in other.stream.columns:
            if other is not alone and column.name != other.stream.time and alone.stream.column(column.name):
                return f", such as {other.alias}.{column.name} = {alone.alias}.{column.name}"
    return ""


def _links(conditions: Conditions) -> Iterator[set[int]]:
    """List what each condition is between."""
    yield from ({each.first, each.second} for each in conditions.edges)
    yield from (set(bound.between) for bound, _ in conditions.bounds)
    for each in conditions.residual:
        if sides := sides_of(each):
            yield {side_number(side) for side in sides}


def _crosses(scope: Scope, joined: From) -> Iterator[set[int]]:
    """List what each CROSS JOIN connects: the stream behind it, with those that the first is connected with."""
    for place in joined.crossed:
        yield {scope.inputs[0].number, scope.inputs[place].number}
