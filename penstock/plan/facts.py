"""What a cost depends on: what the queries ask for, and statistics of the streams.

A cost does not care how a query is written, only how far back it looks and which rows it wants; and of the streams it
cares for rates, for the share of pairs that join, and for the share of rows that satisfy one condition *or* another.
That last one does not follow from the single shares, so a `Selection` says how the conditions depend on each other:
`Independent`, `Nested`, or `PatternShares` as counted.

In:  bound queries, and estimates or measurements.  Out: `PricedQuery` and `Statistics`, for `penstock.plan.cost`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Protocol

from penstock.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from penstock.sql.query import Query, Range, Side

    Pattern = tuple[frozenset[str], float]
    """The conditions that some rows satisfy, no others, and the share of such rows."""

SIDES: tuple[Side, Side] = ("l", "r")
MOST_INDEPENDENT_CONDITIONS = 12
"""The most independent conditions whose combinations are all listed: 12 make 4096."""


def other(side: Side) -> Side:
    """Name the opposite side."""
    return "r" if side == "l" else "l"


@dataclass(frozen=True, slots=True)
class PricedQuery:
    """What a query's cost depends on: its window, and its condition on each stream ('' for none)."""

    window: Range
    left: str = ""
    right: str = ""

    @classmethod
    def of(cls, query: Query) -> PricedQuery:
        """Take from a query what its cost depends on."""
        return cls(query.window, " AND ".join(query.left_predicates), " AND ".join(query.right_predicates))

    def condition(self, side: Side) -> str:
        """Give the condition on one stream."""
        return self.left if side == "l" else self.right

    def reach(self, side: Side) -> tuple[int, int] | None:
        """Give the ages ``[start, end)`` of one stream's rows that the query reads; None if it reads none.

        Age 0 belongs to the left; a cost need not care for that microsecond, so both sides begin at 0.

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
    reaches = [reach for each in readers if (reach := each.reach(side))]
    return tuple(sorted({0, *(age for reach in reaches for age in reach)})) if reaches else ()


class Selection(Protocol):
    """How many rows of a stream satisfy which conditions, alone and together."""

    def any_of(self, conditions: Collection[str]) -> float:
        """Give the share of rows that satisfy at least one; '' is satisfied by all."""

    def patterns(self, conditions: Collection[str]) -> Iterator[Pattern]:
        """Divide the rows by exactly which of the conditions they satisfy."""


@dataclass(frozen=True, slots=True)
class Independent:
    """Conditions that are independent of each other: a disjunction has ``1 - Π(1 - share)``.

    >>> Independent({"p": 0.5, "q": 0.2}).any_of({"p", "q"})
    0.6
    """

    shares: Mapping[str, float] = field(default_factory=dict)

    def any_of(self, conditions: Collection[str]) -> float:
        """Give the share of rows that satisfy at least one; '' is satisfied by all."""
        return 1 - prod(0.0 if each == "" else 1 - self.shares[each] for each in conditions)

    def patterns(self, conditions: Collection[str]) -> Iterator[Pattern]:
        """Divide the rows by every combination."""
        names = sorted(set(conditions) - {""})
        if len(names) > MOST_INDEPENDENT_CONDITIONS:
            raise InputError(
                f"{len(names)} independent conditions divide a stream into 2^{len(names)} parts: "
                f"at most {MOST_INDEPENDENT_CONDITIONS} can be priced; give their measured patterns instead"
            )
        for bits in range(1 << len(names)):
            holds = [bool(bits >> bit & 1) for bit in range(len(names))]
            share = prod(
                self.shares[each] if yes else 1 - self.shares[each]
                for each, yes in zip(names, holds, strict=True)
            )
            yield frozenset(each for each, yes in zip(names, holds, strict=True) if yes), share


@dataclass(frozen=True, slots=True)
class Nested:
    """Conditions each of which implies every less selective one: ``v > 50`` implies ``v > 30``.

    >>> Nested({"v > 50": 0.2, "v > 30": 0.5}).any_of({"v > 50", "v > 30"})
    0.5
    """

    shares: Mapping[str, float] = field(default_factory=dict)

    def any_of(self, conditions: Collection[str]) -> float:
        """Give the share of rows that satisfy at least one; '' is satisfied by all."""
        return max((1.0 if each == "" else self.shares[each] for each in conditions), default=0.0)

    def patterns(self, conditions: Collection[str]) -> Iterator[Pattern]:
        """Divide the rows into rings: all conditions, all but the narrowest, ..., none."""
        names = sorted(set(conditions) - {""}, key=lambda each: (self.shares[each], each))
        inside = [0.0, *(self.shares[each] for each in names), 1.0]
        for ring, (inner, outer) in enumerate(pairwise(inside)):
            yield frozenset(names[ring:]), outer - inner


@dataclass(frozen=True, slots=True)
class PatternShares:
    """Patterns as they were counted: which conditions rows satisfy together, and their share.

    >>> PatternShares(((frozenset({"p", "q"}), 0.2), (frozenset({"p"}), 0.1), (frozenset(), 0.7))).any_of({"q"})
    0.2
    """

    table: tuple[Pattern, ...]

    def any_of(self, conditions: Collection[str]) -> float:
        """Give the share of rows that satisfy at least one; '' is satisfied by all."""
        if "" in conditions:
            return 1.0
        return sum(share for holds, share in self.table if not holds.isdisjoint(conditions))

    def patterns(self, conditions: Collection[str]) -> Iterator[Pattern]:
        """Divide the rows as they were counted, forgetting all other conditions."""
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
        """Give one stream's rate."""
        return self.left_rate if side == "l" else self.right_rate

    def selection(self, side: Side) -> Selection:
        """Give the selection of one stream."""
        return self.left if side == "l" else self.right

    def wanted(self, side: Side, readers: Iterable[PricedQuery]) -> float:
        """Give the rate of one stream's rows that at least one of the readers wants."""
        return self.rate(side) * self.selection(side).any_of({each.condition(side) for each in readers})
