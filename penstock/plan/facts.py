"""The inputs of a cost: the windows and conditions of queries, and statistics of the streams.

From a query, a cost takes the ages of the rows that it reads and the rows that it wants.  From the streams, it takes
rates, the share of pairs that join, and the share of rows that satisfy one condition *or* another.  The last one does
not follow from the shares of single conditions.  So a `Selection` states how conditions depend on each other:
`Independent` of each other, or with `PatternShares` as counted.

In:  bound queries, and estimates or measurements.  Out: `PricedQuery` and `Statistics`, for `penstock.plan.cost`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Protocol

from penstock.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from penstock.sql.query import Query, Range, Side

    SelectionPattern = tuple[frozenset[str], float]
    """The conditions that some rows satisfy, no others, and the share of such rows."""

SIDES: tuple[Side, Side] = ("l", "r")
MOST_INDEPENDENT_CONDITIONS = 12
"""The most independent conditions whose combinations are all listed: 12 make 4096."""


def other(side: Side) -> Side:
    """Name the opposite side."""
    return "r" if side == "l" else "l"


@dataclass(frozen=True, slots=True)
class PricedQuery:
    """The facts of a query that its cost depends on: the window, and the condition on each stream ('' for none)."""

    window: Range
    left: str = ""
    right: str = ""

    @classmethod
    def of(cls, query: Query) -> PricedQuery:
        """Take the window and the conditions of a query."""
        return cls(query.window, " AND ".join(query.left_predicates), " AND ".join(query.right_predicates))

    def condition(self, side: Side) -> str:
        """Return the condition on one stream."""
        return self.left if side == "l" else self.right

    def reach(self, side: Side) -> tuple[int, int] | None:
        """Return the ages ``[start, end)`` of one stream's rows that the query reads; None if it reads none.

        Age 0 belongs to the left side.  A cost ignores that microsecond, so both sides begin at 0.

        >>> from penstock.sql.query import Range
        >>> windows = (Range.window(10, 10), Range(-9, -4), Range(0, 5))
        >>> [PricedQuery(window).reach("r") for window in windows]
        [(0, 10), (5, 10), None]
        """
        lo, hi = self.window.lo, self.window.hi
        if side == "l":
            return (max(lo, 0), hi) if hi > 0 else None
        return (1 - hi if hi < 0 else 0, 1 - lo) if lo < 0 else None


def age_bounds(readers: Iterable[PricedQuery], side: Side) -> tuple[int, ...]:
    """List the ages at which one side's chain can be cut: 0, and where some window begins or ends.

    >>> from penstock.sql.query import Range
    >>> age_bounds([PricedQuery(Range.window(5, 9)), PricedQuery(Range.window(30, 30))], "r")
    (0, 9, 30)
    """
    reaches = [reach for query in readers if (reach := query.reach(side))]
    return tuple(sorted({0, *(age for reach in reaches for age in reach)})) if reaches else ()


class Selection(Protocol):
    """How many rows of a stream satisfy which conditions, alone and together."""

    def any_of(self, conditions: Collection[str]) -> float:
        """Return the share of rows that satisfy at least one; every row satisfies ''."""

    def patterns(self, conditions: Collection[str]) -> Iterator[SelectionPattern]:
        """Divide the rows by exactly which of the conditions they satisfy."""


@dataclass(frozen=True, slots=True)
class Independent:
    """Conditions that are independent of each other: a disjunction has ``1 - Π(1 - share)``.

    >>> Independent({"p": 0.5, "q": 0.2}).any_of({"p", "q"})
    0.6
    """

    shares: Mapping[str, float] = field(default_factory=dict)

    def any_of(self, conditions: Collection[str]) -> float:
        """Return the share of rows that satisfy at least one; every row satisfies ''."""
        return 1 - prod(0.0 if condition == "" else 1 - self.shares[condition] for condition in conditions)

    def patterns(self, conditions: Collection[str]) -> Iterator[SelectionPattern]:
        """Divide the rows by every combination."""
        names = sorted(set(conditions) - {""})
        if len(names) > MOST_INDEPENDENT_CONDITIONS:
            raise InputError(
                f"{len(names)} independent conditions divide a stream into 2^{len(names)} parts: "
                f"at most {MOST_INDEPENDENT_CONDITIONS} can be priced; give their measured patterns instead"
            )
        for bits in range(1 << len(names)):
            holds = {name: bool(bits >> bit & 1) for bit, name in enumerate(names)}
            share = prod(self.shares[name] if yes else 1 - self.shares[name] for name, yes in holds.items())
            yield frozenset(name for name, yes in holds.items() if yes), share


@dataclass(frozen=True, slots=True)
class PatternShares:
    """Counted patterns: the conditions that rows satisfy together, and the share of such rows.

    >>> PatternShares(((frozenset({"p", "q"}), 0.2), (frozenset({"p"}), 0.1), (frozenset(), 0.7))).any_of({"q"})
    0.2
    """

    table: tuple[SelectionPattern, ...]

    def any_of(self, conditions: Collection[str]) -> float:
        """Return the share of rows that satisfy at least one; every row satisfies ''."""
        if "" in conditions:
            return 1.0
        return sum(share for holds, share in self.table if not holds.isdisjoint(conditions))

    def patterns(self, conditions: Collection[str]) -> Iterator[SelectionPattern]:
        """Divide the rows as they were counted, ignoring all other conditions."""
        shares: dict[frozenset[str], float] = {}
        for holds, share in self.table:
            kept = holds & frozenset(conditions)
            shares[kept] = shares.get(kept, 0.0) + share
        yield from shares.items()


@dataclass(frozen=True, slots=True)
class Statistics:
    """Statistics of two streams: rates in rows a second, bytes of a row, share of the cross product that joins."""

    left_rate: float
    right_rate: float
    join: float
    left: Selection = field(default_factory=Independent)
    right: Selection = field(default_factory=Independent)
    row_bytes: float = 1.0

    def rate(self, side: Side) -> float:
        """Return one stream's rate."""
        return self.left_rate if side == "l" else self.right_rate

    def selection(self, side: Side) -> Selection:
        """Return the selection of one stream."""
        return self.left if side == "l" else self.right

    def wanted(self, side: Side, readers: Iterable[PricedQuery]) -> float:
        """Return the rate of one stream's rows that at least one reader wants."""
        return self.rate(side) * self.selection(side).any_of({query.condition(side) for query in readers})
