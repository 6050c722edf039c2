"""Streams with punctuations, by the notation of paper 3: `cluster-asc-30`, `punct-random-30-40`, `uniform-15000`.

A stream is cut into *segments*.  Each ends with a punctuation: a row that is a promise, not data: no later row of the
stream has this value.  Of a segment's rows a share has the value that its punctuation will name, the last one always;
the others have any value that the stream has not punctuated::

    punct-asc-5-40     0 7 4 9 0 <0>  1 8 1 3 1 <1>  5 2 9 6 2 <2> ...
    cluster-asc-3      0 0 0 <0>  1 1 1 1 <1>  2 2 <2> ...

Values are 0 to 14,999, the only ones that the paper names.  What it leaves open beside is in docs/papers/paper3.md.

In:  a notation and a seed.  Out: a `Stream`, and two of them as one list of `Item`s in the order of their times.
True always: no row has a value that its stream has punctuated before (`Stream.broken` counts those that do).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import repeat
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.errors import InputError

Ints = NDArray[np.int64]

ORDERS = ("asc", "desc", "random")
VALUES = 15_000
GAP = 10  # milliseconds between rows, on average
SHAPES = "cluster-[order]-[size], punct-[order]-[segment]-[match] or uniform-[values]; order is asc, desc or random"


@dataclass(frozen=True, slots=True)
class Notation:
    """How values arrive in a stream: rows of a segment and the share that matches, both on average.

    >>> Notation.parse("punct-asc-100-40")
    Notation(order='asc', segment=100, match=40, values=15000)
    >>> str(Notation.parse("punctuation-random-30-40")), str(Notation.parse("cluster-desc-1"))
    ('punct-random-30-40', 'cluster-desc-1')
    >>> str(Notation.parse("uniform-500"))
    'uniform-500'

    A `segment` of 0 is a stream without punctuations, its values uniform.
    """

    order: str
    segment: int
    match: int
    values: int = VALUES

    def __post_init__(self) -> None:
        """Refuse what no stream can be."""
        if self.order not in ORDERS:
            raise InputError(f"the order of punctuations is {self.order}: it must be asc, desc or random")
        if not 0 <= self.match <= 100:
            raise InputError(f"{self.match} % of a segment cannot match: it must be from 0 to 100")
        if self.values < 1 or self.segment < 0:
            raise InputError(f"{self.values} values, {self.segment} rows a segment: neither can be so few")

    @classmethod
    def parse(cls, text: str) -> Notation:
        """Read the paper's notation; both `punct` and `punctuation` will do."""
        kind, *rest = text.strip().split("-")
        try:
            if kind == "uniform":
                (values,) = map(int, rest)
                return cls("asc", 0, 0, values)
            order, *numbers = rest
            segment, match = map(int, numbers if kind in {"punct", "punctuation"} else [*numbers, "100"])
        except ValueError:
            kind = ""
        if kind not in {"punct", "punctuation", "cluster"}:
            raise InputError(f"{text} is no stream: write {SHAPES}")
        if not segment:
            raise InputError(f"{text} has segments of 0 rows: they must have at least one")
        return cls(order, segment, match)

    @classmethod
    def pair(cls, text: str) -> tuple[Notation, Notation]:
        """Read two notations with a comma between them."""
        both = [cls.parse(each) for each in text.split(",")]
        if len(both) != 2 or not any(each.segment for each in both):
            raise InputError(f"{text}: these must be two streams, one of them with punctuations at least")
        return both[0], both[1]

    def __str__(self) -> str:
        if not self.segment:
            return f"uniform-{self.values}"
        if self.match == 100:
            return f"cluster-{self.order}-{self.segment}"
        return f"punct-{self.order}-{self.segment}-{self.match}"


class Item(NamedTuple):
    """What a join receives: a row, or a punctuation.  `number` is the row's in its stream; -1: a punctuation."""

    ts: int
    stream: int
    value: int
    number: int


@dataclass(frozen=True)
class Stream:
    """Rows in the order of their times (milliseconds), and punctuations, each behind so many rows."""

    ts: Ints
    value: Ints
    punctuated: Ints
    behind: Ints

    def items(self, stream: int) -> list[Item]:
        """List rows and punctuations; a punctuation has the time of the row it follows."""
        numbers = range(self.ts.size)
        rows = zip(self.ts.tolist(), repeat(stream), self.value.tolist(), numbers, strict=False)
        made, promises = [Item(*each) for each in rows], []
        for value, behind in zip(self.punctuated.tolist(), self.behind.tolist(), strict=True):
            promises.append(Item(made[behind - 1].ts if behind else 0, stream, value, -1))
        places = np.insert(np.arange(len(made)), self.behind, np.arange(-1, -1 - len(promises), -1))
        return [made[n] if n >= 0 else promises[-1 - n] for n in places.tolist()]

    def broken(self) -> int:
        """Count the rows that break a promise of their stream."""
        promised = dict(zip(self.punctuated.tolist(), self.behind.tolist(), strict=True))
        return sum(promised.get(value, n + 1) <= n for n, value in enumerate(self.value.tolist()))

    def irrelevant(self) -> Stream:
        """Give the same rows with punctuations that match none of them, of either stream."""
        return Stream(self.ts, self.value, -1 - self.punctuated, self.behind)


def make(notation: Notation, seconds: float, random: np.random.Generator) -> Stream:
    """Make a stream of so many seconds, or until all its values are punctuated."""
    ts = np.cumsum(random.poisson(GAP, int(1100 * seconds / GAP) + 100))
    ts = ts[: np.searchsorted(ts, 1000 * seconds)]
    if not notation.segment:
        none = np.zeros(0, np.int64)
        return Stream(ts, random.integers(0, notation.values, ts.size), none, none)
    ends = np.cumsum(1 + random.poisson(notation.segment - 1, notation.values))
    ts, order = ts[: ends[-1]], _ordered(notation, random)
    whole = int(np.searchsorted(ends, ts.size, "right"))
    begun = np.diff(ends[: whole + 1], prepend=0)
    value = order[_places(notation, begun, random)][: ts.size]
    return Stream(ts, value, order[:whole], ends[:whole])


def _ordered(notation: Notation, random: np.random.Generator) -> Ints:
    """Give the values in the order in which they are punctuated."""
    values = np.arange(notation.values)
    if notation.order == "random":
        return random.permutation(values)
    return values if notation.order == "asc" else values[::-1]


def _places(notation: Notation, sizes: Ints, random: np.random.Generator) -> Ints:
    """Draw for each row the place of its value in the order of punctuations: its own segment's, or a later one's."""
    segment = np.repeat(np.arange(sizes.size), sizes)
    share = random.poisson(notation.match, sizes.size) if notation.match < 100 else np.full(sizes.size, 100)
    matching = np.clip(np.rint(sizes * share / 100), 1, sizes).astype(np.int64)
    # The last row of a segment matches; of the others, those that come first in a random order do.
    last = np.cumsum(sizes) - 1
    lot = random.random(segment.size)
    lot[last] = -1.0
    begin = np.repeat(last + 1 - sizes, sizes)
    rank = np.empty(segment.size, np.int64)
    rank[np.lexsort((lot, segment))] = np.arange(segment.size)
    left = notation.values - 1 - segment
    later = segment + 1 + (random.random(segment.size) * left).astype(np.int64)
    return np.where((rank - begin < matching[segment]) | (left == 0), segment, later)


def merged(first: Stream, second: Stream) -> list[Item]:
    """Lay two streams out in the order of their times; of equal times the first stream's comes first."""
    return sorted(first.items(0) + second.items(1), key=lambda each: each[:2])


def alternating(first: Stream, second: Stream) -> list[Item]:
    """Lay segments out in turns, each of the second stream right behind the first's of the same number (Figure 7)."""
    made: list[Item] = []
    starts = [[0, *each.behind.tolist()] for each in (first, second)]
    for number in range(min(map(len, starts)) - 1):
        for stream, each in enumerate((first, second)):
            for row in range(starts[stream][number], starts[stream][number + 1]):
                made.append(Item(GAP * len(made), stream, int(each.value[row]), row))
            made.append(Item(GAP * len(made), stream, int(each.punctuated[number]), -1))
    return made
