"""A group: the queries of one signature, and the chain they share.

A query has one group, unless the strategy divides the rows among several joins (`penstock.plan.share`).

In:  queries that join the same streams on the same key, and the logs of those streams.
Out: a `Group`, the value that units run, that EXPLAIN prints, and that the journal stores.
Always true: every member's window is a run of whole levels, so levels and bits decide which pairs a query gets.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from zlib import crc32

from penstock.errors import InputError
from penstock.plan.chain import Chain
from penstock.plan.links import POSITION, columns_of_input
from penstock.plan.share import WHOLE, Share
from penstock.plan.stored import LONGEST_NAME_BYTES
from penstock.sql.query import SIDES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from penstock.plan.chain import Slice
    from penstock.plan.links import Link
    from penstock.plan.share import Part
    from penstock.plan.stored import LogPlan
    from penstock.sql.query import Comparison, Query, Range, Side, Signature


@dataclass(frozen=True, slots=True)
class Member:
    """A query in its group: its slices, and the predicate bits that a row of each side must have."""

    query: Query
    levels: tuple[int, int]
    masks: tuple[int, ...]
    """The bits of each of the group's inputs, in their order."""
    links: tuple[frozenset[str], ...] = ()
    """For each input, the columns of its rows' other keys, if more than two streams are joined, and of their positions,
    if there is no window."""

    def predicates(self, side: Side) -> tuple[str, ...]:
        """List the predicates this query has on one side."""
        return self.query.predicates(side)

    def reads_under(self, side: Side, columns: Collection[str], predicates: Collection[str]) -> bool:
        """Check whether a segment of another layout has all columns and predicate bits that this query reads.

        A row stored before the query was added may lack some.
        """
        return self.reads(side) <= set(columns) and set(self.predicates(side)) <= set(predicates)

    def reads(self, side: Side) -> frozenset[str]:
        """Return the columns of one side that this query, or the link it is joined by, reads."""
        read = self.query.columns(side)
        return read | self.links[self.query.sides.index(side)] if self.links else read

    def reach(self, side: Side) -> int:
        """Return how long this query's own window needs a row of one side."""
        return self.query.reach(side)


@dataclass(frozen=True, slots=True)
class GroupInput:
    """One stream's part in a group: its name in expressions, the log that holds it, and the rows that are joined."""

    side: Side
    log: LogPlan
    part: Part = WHOLE
    others: tuple[LogPlan, ...] = ()
    """The same rows by other keys, if more than two streams are joined."""

    @property
    def logs(self) -> tuple[LogPlan, ...]:
        """List every log that holds its rows."""
        return self.log, *self.others


@dataclass(frozen=True, slots=True)
class Group:
    """Queries of one signature on one chain; a query's number is its position in `members`.

    The inputs have an order.  Values for each input are tuples in that order: a cursor's batches, watermarks, floors,
    masks.  Two inputs are the common case.
    """

    id: str
    signature: Signature
    inputs: tuple[GroupInput, ...]
    chain: Chain
    members: tuple[Member, ...]
    mixed_layouts: bool = False
    """Whether rows stored under an older plan may lack columns or bits that some query reads: then rows are checked."""
    filter_last: bool = False
    """Whether every row is held for the longest window, and selections come after the join."""
    links: tuple[Link, ...] = ()
    """The equalities between inputs, if more than two streams are joined."""

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
        """Return the log of one side."""
        return self.inputs[self.index(side)].log

    def index(self, side: Side) -> int:
        """Return the position of one side among the inputs."""
        return self.sides.index(side)

    @property
    def sides(self) -> tuple[Side, ...]:
        """Name the inputs as expressions do."""
        return tuple(part.side for part in self.inputs)

    @property
    def streams(self) -> tuple[str, ...]:
        """Name the streams of the inputs; a stream that is joined with itself is named twice."""
        return tuple(part.log.stream for part in self.inputs)

    @property
    def title(self) -> str:
        """Name the joined streams, for people."""
        return " ⋈ ".join(self.streams)

    @property
    def ends(self) -> tuple[int, ...]:
        """Return the cuts that every chain of these queries has: the outermost ends, and 0 between them."""
        low, high = self.chain.cuts[0], self.chain.cuts[-1]
        return (low, 0, high) if low < 0 < high else (low, high)

    def part(self, side: Side) -> Part:
        """Return the part of one stream that this group joins."""
        return self.inputs[self.index(side)].part

    def counts(self, side: Side) -> bool:
        """Check whether windows on one side count rows."""
        return side in self.sides and self.signature.rows[self.index(side)]

    def slices(self, side: Side) -> tuple[tuple[int, Slice], ...]:
        """List the slices that one input's state is divided into, youngest first, each with its number.

        If more than two streams are joined, a slice is a range of spreads, and every input's rows are in it by age.
        """
        return self.chain.side(side if self.is_pair else SIDES[0])

    def ages(self, piece: Slice) -> tuple[int, int]:
        """Return a slice's ages ``[start, end)`` in the unit of its side: microseconds, or rows that came after.

        At one time the left row is the older, so in microseconds the right side's ages begin at 1; in rows, at 0.
        """
        start, end = piece.ages
        first = 1 if piece.side == "r" and self.counts("r") else 0
        return start - first, end - first

    @property
    def logs(self) -> tuple[LogPlan, ...]:
        """List one log of each input, in their order."""
        return tuple(part.log for part in self.inputs)

    @property
    def all_logs(self) -> tuple[LogPlan, ...]:
        """List every log that is read, including logs of the same rows by another key."""
        return tuple(log for part in self.inputs for log in part.logs)

    @property
    def is_pair(self) -> bool:
        """Check whether two streams are joined."""
        return len(self.inputs) == len(SIDES)

    @property
    def oblivious(self) -> bool:
        """Check whether there is no window, so that rows are kept by buffers."""
        return self.signature.oblivious

    @property
    def selective(self) -> bool:
        """Check whether some pair of the chain is not for all readers of its level, or is in a gap without readers."""
        conditions = any(any(member.masks) or member.query.comparisons for member in self.members)
        graphs = [member.query.graph for member in self.members if member.query.graph is not None]
        uneven = any(self.signature.counted or not graph.even for graph in graphs)
        divided = any(part.part != WHOLE for part in self.inputs)
        return self.mixed_layouts or conditions or uneven or divided or not all(self.level_sets())

    def masks_under(
        self, side: Side, columns: Collection[str], predicates: Sequence[str]
    ) -> tuple[int | None, ...]:
        """List the bits that each query needs in a segment of some layout; None if it takes no row from there."""
        all_of = self.part(side).all_of
        stored = set(all_of) <= set(predicates)
        return tuple(
            _bits({*all_of, *member.predicates(side)}, predicates)
            if stored and member.reads_under(side, columns, predicates)
            else None
            for member in self.members
        )

    def excluded_under(self, side: Side, predicates: Sequence[str]) -> tuple[int, ...]:
        """List the bits that a row of this group's part must not have together, in a segment of some layout.

        A condition that the layout does not store is left out: its query takes no row from there anyway.
        """
        conditions = self.part(side).none_of
        return tuple(
            _bits(condition, predicates) for condition in conditions if set(condition) <= set(predicates)
        )

    def level_sets(self) -> list[int]:
        """Return the set of queries that read each level, as bits."""
        return [
            sum(1 << number for number, member in enumerate(self.members) if level in range(*member.levels))
            for level in range(len(self.chain.bounds) - 1)
        ]

    def comparisons(self) -> dict[Comparison, int]:
        """Return each comparison of columns that pairs are tested by, with its queries as bits."""
        makers: dict[Comparison, int] = {}
        for number, member in enumerate(self.members):
            for comparison in member.query.comparisons:
                makers[comparison] = makers.get(comparison, 0) | 1 << number
        return makers

    def reaches(self, side: Side, partner: int | None = None) -> list[int]:
        """List how long a row of one side is held for each query: to the end of the slice in which its window ends.

        If more than two streams are joined: for as long as a partner, or the one with this number, may lie beyond it.
        """
        if not self.is_pair:
            own = self.index(side)
            return [
                member.query.graph.limits[own][partner]
                if partner is not None and member.query.graph
                else member.reach(side)
                for member in self.members
            ]
        return [reach(self.chain.held(member.query.window), side) for member in self.members]


def _bits(wanted: Iterable[str], predicates: Sequence[str]) -> int:
    return sum(1 << predicates.index(predicate) for predicate in set(wanted))


def reach(window: Range, side: Side) -> int:
    """Return how far beyond a row's own time its partner may lie: how long the row has to be kept.

    A left row at T is needed until the right watermark passes ``T + hi``; a right row until the left watermark passes
    ``T - lo + 1``.
    """
    return window.hi if side == "l" else 1 - window.lo


def group_id(signature: Signature, label: str = "") -> str:
    """Name a group for directories and JSON: the same signature and share always get the same name."""
    text = f"{signature.left}|{signature.right}|{signature.keys}{label}"
    text += f"|{signature.rows}" if signature.counted else ""
    text += f"|{signature.streams}|{signature.edges}" if signature.streams else ""
    text += "|no window" if signature.oblivious else ""
    names = "_".join(signature.streams) or f"{signature.left}_{signature.right}"
    slug = re.sub(r"[^a-z0-9]+", "_", names.lower()).strip("_")
    slug = slug[: LONGEST_NAME_BYTES - 9]
    return f"{slug}-{crc32(text.encode()):08x}"


def plan_group(
    signature: Signature,
    share: Share,
    inputs: tuple[GroupInput, ...],
    cuts: Iterable[int] | None = None,
    links: tuple[Link, ...] = (),
) -> Group:
    """Build a group: its chain, cut at every window or only at `cuts`, and the levels and masks of each query."""
    read = tuple(_extra_columns(signature, number, part, links) for number, part in enumerate(inputs))
    chain = Chain.from_windows({query.name: query.window for query in share.queries}, cuts)
    members = tuple(
        Member(
            query,
            chain.levels(query.window),
            tuple(part.log.mask({*part.part.all_of, *query.predicates(part.side)}) for part in inputs),
            read if any(read) else (),
        )
        for query in share.queries
    )
    return Group(
        group_id(signature, share.label),
        signature,
        inputs,
        chain,
        members,
        filter_last=share.filter_last,
        links=links,
    )


def _extra_columns(
    signature: Signature, number: int, own: GroupInput, links: tuple[Link, ...]
) -> frozenset[str]:
    """Name the columns of an input's logs that are not columns of its stream: other keys, and positions."""
    position = {POSITION} & set(own.log.columns) if signature.oblivious else set()
    return columns_of_input(number, links) | position


def subgroup(group: Group, names: Iterable[str]) -> Group:
    """Build the group of only some of a group's queries, over the same logs and parts; of all if none is named."""
    wanted = set(names)
    queries = tuple(member.query for member in group.members if member.query.name in wanted)
    if not queries:
        return group
    share = Share(queries, filter_last=group.filter_last)
    small = plan_group(group.signature, share, group.inputs, links=group.links)
    return replace(small, id=group.id, mixed_layouts=group.mixed_layouts)
