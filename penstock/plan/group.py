"""A group: the queries of one signature, and the chain they share.

In:  queries that join the same streams on the same key, and the two logs that hold those streams.
Out: a `Group`, the value that units run, that EXPLAIN prints, and that the journal remembers.
Always true: every member's window is a run of whole slices, so what a query gets is decided by levels and bits.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from zlib import crc32

from penstock.errors import InputError
from penstock.plan.chain import Chain

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from penstock.plan.stored import LogPlan
    from penstock.sql.query import Query, Side, Signature


@dataclass(frozen=True, slots=True)
class Member:
    """A query's place in its group: its slices, and the predicate bits that a row of each side must have."""

    query: Query
    levels: tuple[int, int]
    left_mask: int
    right_mask: int

    def mask(self, side: Side) -> int:
        """Give the predicate bits this query needs on one side."""
        return self.left_mask if side == "l" else self.right_mask

    def predicates(self, side: Side) -> tuple[str, ...]:
        """List the predicates this query has on one side."""
        return self.query.left_predicates if side == "l" else self.query.right_predicates

    def mask_under(self, side: Side, columns: Collection[str], predicates: Sequence[str]) -> int | None:
        """Give the bits this query needs in a segment of some other layout; None if the layout lacks something.

        A row stored before the query came may lack a column it reads, or the answer to one of its predicates.
        """
        reads = self.query.left_columns if side == "l" else self.query.right_columns
        if not (reads <= set(columns) and set(self.predicates(side)) <= set(predicates)):
            return None
        return sum(1 << predicates.index(each) for each in set(self.predicates(side)))

    def reach(self, side: Side) -> int:
        """Say how far beyond a row's own time its partner may lie: how long the row has to be kept.

        A left row at T is of use until the right watermark passes ``T + hi``; a right row until the left
        watermark passes ``T - lo + 1``.
        """
        return self.query.window.hi if side == "l" else 1 - self.query.window.lo


@dataclass(frozen=True, slots=True)
class Group:
    """Queries of one signature on one chain; a query's number is its place in `members`."""

    id: str
    signature: Signature
    left: LogPlan
    right: LogPlan
    chain: Chain
    members: tuple[Member, ...]
    mixed: bool = False
    """Whether rows stored under an older plan may lack what some query reads: then it must be asked row by row."""

    def __post_init__(self) -> None:
        """Refuse a group in which a query would get more or less than its window."""
        for member in self.members:
            name, window = member.query.name, member.query.window
            if member.query.signature != self.signature:
                raise InputError(f"query {name} does not belong to group {self.id}")
            if member.levels != self.chain.levels(window):
                raise InputError(
                    f"query {name} reads slices {member.levels}, which is not its window {window}"
                )

    def log(self, side: Side) -> LogPlan:
        """Give the log of one side."""
        return self.left if side == "l" else self.right

    @property
    def selective(self) -> bool:
        """Say whether some pair of the chain is not for all readers of its slice, or (in a gap) for nobody."""
        choosy = any(each.left_mask or each.right_mask for each in self.members)
        return self.mixed or choosy or not all(self.chain.readers)

    def masks(self, side: Side) -> list[int]:
        """List the predicate bits each query needs on one side."""
        return [member.mask(side) for member in self.members]

    def level_sets(self) -> list[int]:
        """Give for each slice the set of queries that read it, as bits."""
        return [
            sum(1 << number for number, member in enumerate(self.members) if _reads(member, level))
            for level in range(len(self.chain.readers))
        ]

    def reaches(self, side: Side) -> list[int]:
        """List how long each query needs a row of one side."""
        return [member.reach(side) for member in self.members]


def _reads(member: Member, level: int) -> bool:
    """Say whether a query reads a slice."""
    first, last = member.levels
    return first <= level < last


def group_id(signature: Signature) -> str:
    """Name a group for directories and figures: the same signature always gets the same name."""
    text = f"{signature.left}|{signature.right}|{signature.keys}"
    slug = re.sub(r"[^a-z0-9]+", "_", f"{signature.left}_{signature.right}".lower()).strip("_")
    return f"{slug}-{crc32(text.encode()):08x}"


def plan_group(signature: Signature, queries: tuple[Query, ...], left: LogPlan, right: LogPlan) -> Group:
    """Build the Mem-Opt chain of a group and place each query on it."""
    chain = Chain.from_windows({query.name: query.window for query in queries})
    members = tuple(
        Member(
            query,
            chain.levels(query.window),
            left.mask(query.left_predicates),
            right.mask(query.right_predicates),
        )
        for query in queries
    )
    return Group(group_id(signature), signature, left, right, chain, members)
