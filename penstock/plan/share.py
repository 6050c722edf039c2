"""Shares: the strategies of paper 1, section 3, as ways to divide queries and rows among joins.

    mem-opt, cpu-opt, auto   one join for all queries of a signature, cut into slices; selections pushed into the chain
    pull-up                  one join with the longest window for all rows; router and selections behind it (Figure 3)
    push-down                one join for each part of the streams that satisfies the same conditions (Figure 4);
                             with more than two streams there would be too many parts, and there is one join
    isolated                 one join for each query, and state of its own (Figure 2)

A *share* is one such join: the queries that it serves, and the part of either stream that it takes.  The shares of
push-down divide the pairs of rows.  With conditions c1 and c2 on the left stream and none on the right::

    row satisfies      neither        only c1       only c2       both
    goes to            share ∅        share {c1}    share {c2}    share {c1, c2}
    which serves       q0             q0, q1        q0, q2        q0, q1, q2       (q0 has no condition)

In:  the queries of one signature, and a strategy.  Out: `Share`s.
True: each pair that a query wants is in exactly one of the shares that serve it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from penstock.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from penstock.sql.query import Query, Side

    Condition = tuple[str, ...]
    """A query's predicates on one stream, all of which must hold."""

CHOSEN = frozenset({"cpu-opt", "auto"})
"""Strategies that choose the cuts of the chain by its cost."""

RIVAL_STRATEGIES = ("pull-up", "push-down", "isolated")
"""Strategies without a chain, for comparison."""

MOST_SHARES = 64
"""The most joins into which push-down may divide one; each condition can double them."""


@dataclass(frozen=True, slots=True)
class Part:
    """The rows of a stream that satisfy all predicates of `all_of`, and none of the conditions `none_of` as a whole.

    >>> Part(("v > 1",), (("v > 1", "w > 1"),)).takes({"v > 1"}), Part(("v > 1",)).takes(set())
    (True, False)
    """

    all_of: Condition = ()
    none_of: tuple[Condition, ...] = ()

    def takes(self, holds: Iterable[str]) -> bool:
        """Check whether a row that satisfies these predicates is in this part."""
        satisfied = set(holds)
        return satisfied.issuperset(self.all_of) and not any(
            satisfied.issuperset(condition) for condition in self.none_of
        )

    def serves(self, condition: Condition) -> bool:
        """Check whether every row of this part satisfies a query's condition."""
        return set(condition) <= set(self.all_of)


WHOLE = Part()


@dataclass(frozen=True, slots=True)
class Share:
    """One join: its queries, its part of either stream, and its logs.

    `owner` is the query that has logs of its own; empty if logs are shared.  `filter_last`: every row is held for the
    longest window, and selections come last.
    """

    queries: tuple[Query, ...]
    left: Part = WHOLE
    right: Part = WHOLE
    owner: str = ""
    filter_last: bool = False

    def part(self, side: Side) -> Part:
        """Return the part of one stream."""
        return {"l": self.left, "r": self.right}.get(side, WHOLE)

    @property
    def label(self) -> str:
        """Name this share among those of its signature; empty for the only one."""
        if self.owner:
            return f"of {self.owner}"
        return "" if self.left == self.right == WHOLE else f"{self.left}|{self.right}"


def divide(queries: Sequence[Query], strategy: str) -> tuple[Share, ...]:
    """Divide the queries of one signature, and the rows they join, among joins."""
    if strategy == "isolated":
        return tuple(Share((query,), owner=query.name) for query in queries)
    if strategy == "push-down" and queries[0].graph is None:
        return tuple(_push_down(queries))
    return (Share(tuple(queries), filter_last=strategy == "pull-up"),)


def first_cuts(strategy: str) -> tuple[int, ...] | None:
    """Return the cuts of a strategy before the streams are measured; None means at every window."""
    return () if strategy in {"pull-up", "push-down"} else None


def _push_down(queries: Sequence[Query]) -> Iterator[Share]:
    """Build a share of each pair of parts that some query wants."""
    left_parts = _parts([query.left_predicates for query in queries])
    right_parts = _parts([query.right_predicates for query in queries])
    joins = len(left_parts) * len(right_parts)
    if joins > MOST_SHARES:
        raise InputError(
            f"push-down cannot divide the streams into {len(left_parts)} and {len(right_parts)} parts: that makes "
            f"{joins} joins, and {MOST_SHARES} is the most; choose mem-opt, cpu-opt or auto"
        )
    for left, right in product(left_parts, right_parts):
        served = tuple(
            query
            for query in queries
            if left.serves(query.left_predicates) and right.serves(query.right_predicates)
        )
        if served:
            yield Share(served, left, right)


def _parts(conditions: Iterable[Condition]) -> list[Part]:
    """Divide a stream by the conditions that a row satisfies, leaving out parts that no row can be in.

    >>> [part.all_of for part in _parts([("a",), ("a", "b"), ()])]
    [(), ('a',), ('a', 'b')]
    """
    distinct = [condition for condition in dict.fromkeys(conditions) if condition]
    if 1 << len(distinct) > MOST_SHARES:
        raise InputError(
            f"push-down cannot divide a stream by {len(distinct)} conditions: that makes 2^{len(distinct)} joins, and "
            f"{MOST_SHARES} is the most; choose mem-opt, cpu-opt or auto"
        )
    parts = []
    for chosen in product((False, True), repeat=len(distinct)):
        satisfied = [condition for condition, yes in zip(distinct, chosen, strict=True) if yes]
        all_of = tuple(sorted({predicate for condition in satisfied for predicate in condition}))
        none_of = tuple(condition for condition, yes in zip(distinct, chosen, strict=True) if not yes)
        if not any(set(condition) <= set(all_of) for condition in none_of):
            parts.append(Part(all_of, none_of))
    return parts
