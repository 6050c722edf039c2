"""The strategies of paper 1 as plans for `penstock.lab.papers.paper1_joins`: pull-up, push-down and state-slice.

Each takes the streams and the readers and says which joins there are, which rows each holds and is probed by, and what
stands behind it.  All deliver the same results; what differs is what they hold and compare on the way.

In:  `Streams`, readers; for state-slice also a chain, Mem-Opt, CPU-Opt or any other.  Out: a `Strategy`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from penstock.lab.papers.paper1_joins import Join, Step, Strategy, exact_reach
from penstock.plan.cost import lineage_order
from penstock.plan.facts import SIDES, other

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from penstock.lab.papers.paper1_joins import Mask, Streams, TimedRows
    from penstock.plan.chain import Chain
    from penstock.plan.facts import Reader
    from penstock.sql.query import Side


def state_slice(streams: Streams, readers: Sequence[Reader], chain: Chain) -> Strategy:
    """Build the chain of sliced joins, with the selections pushed into it (Figures 10, 13 and 15)."""
    steps: list[Step] = []
    for side in SIDES:
        feeders: Mask | None = None
        for _, piece in chain.side(side):
            beyond = [each for each in readers if exact_reach(each, side)[1] > piece.ages[0]]
            wanted = {stream: {each.condition(stream) for each in beyond} for stream in SIDES}
            held, males = (streams.side(each).wanted(wanted[each]) for each in (side, other(side)))
            # A selection that all who read on have in common has been pushed, and no result need be asked again.
            asked = [stream for stream in SIDES if len(wanted[stream]) > 1]
            join = Join(side, piece.ages, held, males, feeders)
            steps.append(_step(join, readers, range(len(readers)), asked))
            feeders = males
    return Strategy(tuple(steps), _trials(streams, readers, chain))


def pull_up(streams: Streams, readers: Sequence[Reader]) -> Strategy:
    """Build one join with the longest window, a router and the filters behind it (Figure 3)."""
    left, right = (np.ones(streams.side(side).t.size, np.bool_) for side in SIDES)
    return Strategy(tuple(_regular(readers, range(len(readers)), left, right, asked=SIDES)))


def push_down(streams: Streams, readers: Sequence[Reader]) -> Strategy:
    """Build one join for each part of the streams that satisfies the same conditions (Figure 4)."""
    parts = [list(_parts(streams.side(side), readers, side)) for side in SIDES]
    steps: list[Step] = []
    fed = Counter[int]()
    for (left, left_rows), (right, right_rows) in product(*parts):
        if served := sorted(left & right):
            steps += _regular(readers, served, left_rows, right_rows)
            fed.update(served)
    conditions = {side: {each.condition(side) for each in readers} - {""} for side in SIDES}
    split = sum(streams.side(side).t.size * len(asked) for side, asked in conditions.items())
    return Strategy(tuple(steps), split, tuple(number for number, joins in sorted(fed.items()) if joins > 1))


def _step(join: Join, readers: Sequence[Reader], served: Iterable[int], asked: Sequence[Side]) -> Step:
    """Put a router, filters (for the streams whose conditions must still be asked) and unions behind a join."""
    start, end = join.ages
    reaches = {number: exact_reach(readers[number], join.side) for number in served}
    reaches = {number: (a, b) for number, (a, b) in reaches.items() if b > max(start, a) and a < end}
    filters = []
    for stream in asked:
        reads = defaultdict(list)
        for number, reach in reaches.items():
            reads[readers[number].condition(stream)].append(reach)
        for begins, ends in (zip(*read, strict=True) for condition, read in reads.items() if condition):
            filters.append((max(start, min(begins)), min(end, max(ends))))
    bounds = {age for reach in reaches.values() for age in reach if start < age < end}
    unions = {(a, b) for a, b in reaches.values() if a < start and b <= end}
    return Step(join, tuple(reaches), len(bounds), tuple(filters), len(unions))


def _regular(
    readers: Sequence[Reader], served: Sequence[int], left: Mask, right: Mask, asked: Sequence[Side] = ()
) -> Iterator[Step]:
    """Build both ways of a regular join of parts of the streams, with a router to the readers it serves."""
    masks = {"l": left, "r": right}
    for side in SIDES:
        first = 0 if side == "l" else 1
        longest = max(exact_reach(readers[number], side)[1] for number in served)
        if longest > first:
            join = Join(side, (first, longest), masks[side], masks[other(side)])
            yield _step(join, readers, served, asked)


def _parts(rows: TimedRows, readers: Sequence[Reader], side: Side) -> Iterator[tuple[frozenset[int], Mask]]:
    """Divide a stream by which readers' conditions a row satisfies."""
    wants = np.array([rows.satisfying(each.condition(side)) for each in readers]).T
    patterns, part = np.unique(wants, axis=0, return_inverse=True)
    for number, pattern in enumerate(patterns):
        yield frozenset(np.flatnonzero(pattern).tolist()), part.reshape(-1) == number


def _trials(streams: Streams, readers: Sequence[Reader], chain: Chain) -> int:
    """Count evaluations of conditions on rows: from the longest window down, until one holds (6.1)."""
    tried = 0
    for stream in SIDES:
        side = stream if chain.side(stream) else other(stream)
        order, rows = lineage_order(readers, side, stream), streams.side(stream)
        open_until = max((age for age, condition in order if not condition), default=0)
        left = np.ones(rows.t.size, np.bool_)
        for age, condition in order:
            starts = [piece.ages[0] for _, piece in chain.side(side) if piece.ages[0] < age]
            if condition and open_until <= max(starts, default=0):
                tried += int(left.sum())
                left = left & ~rows.satisfying(condition)
    return tried
