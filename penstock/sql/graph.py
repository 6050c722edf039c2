"""A join of more than two streams: what it joins, on which equalities, and how far apart the rows of a result may be.

The inputs have an order (by the names of their streams) and are called ``i0 i1 i2 …`` in expressions.  For every two of
them there is a limit on time: in a result, ``T_j - T_i < limits[i][j]``.  Every way to state a window is that::

    WINDOW w                newest and oldest row less than w apart        limits[i][j] = w for all i and j
    S_i [RANGE w]           row i younger than w at the newest row's time  limits[i][j] = w for all j
    T_j <= T_i + 5 seconds  an interval between two event times            limits[i][j] = 5 s + 1 µs

because the newest row is less than w after row i exactly when every row is.  Limits are closed: none is longer than the
way round over a third input, so each says how long a row really waits for its partner.

In:  the text, through `penstock.sql.bind.binder`.
Out: `penstock.sql.query.Query.graph`; `penstock.plan` makes logs and probe orders of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

LEAST_INPUTS, MOST_INPUTS = 3, 16
"""Streams that such a query joins at the least, and at the most."""


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """One equality of the join: an expression per side, and the type both are compared as.

    Expressions are Spark SQL over the bare columns of their stream, in canonical form.
    `type` is the common type to cast both sides to, or empty where they have the same type already.
    """

    left: str
    right: str
    type: str = ""


@dataclass(frozen=True, slots=True, order=True)
class Edge:
    """An equality between two inputs, by their numbers: `key.left` is of the first, which has the smaller number."""

    first: int
    second: int
    key: Key

    def __post_init__(self) -> None:
        """Refuse an equality of an input with itself, or the wrong way round."""
        if self.first >= self.second:
            raise InputError(
                f"an equality between inputs {self.first} and {self.second} is the wrong way round"
            )


@dataclass(frozen=True, slots=True)
class JoinInput:
    """One stream of a join of many: what expressions call it, the predicates on its rows, and the columns read of it.

    Predicates and columns are as those of one side of a join of two.
    """

    side: str
    stream: str
    predicates: tuple[str, ...] = ()
    columns: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class JoinGraph:
    """The inputs, equalities and limits of a join of more than two streams.

    `edges` are sorted and without repeats.  ``limits[i][j]`` is in microseconds, `FOREVER` where nothing is said; where
    the window of input i counts rows it is in rows of its stream: fewer than so many came after row i until row j.
    """

    inputs: tuple[JoinInput, ...]
    edges: tuple[Edge, ...]
    limits: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        """Refuse a graph whose limits are not those of its inputs."""
        size = len(self.inputs)
        if not LEAST_INPUTS <= size <= MOST_INPUTS:
            raise InputError(f"a join of {size} streams is not one of {LEAST_INPUTS} to {MOST_INPUTS}")
        if len(self.limits) != size or any(len(each) != size for each in self.limits):
            raise InputError(f"the limits of a join of {size} streams must be {size} by {size}")

    @property
    def spread(self) -> int:
        """Give the limit on the time from the oldest row of a result to its newest."""
        return max(self.reach(number) for number in range(len(self.inputs)))

    def reach(self, number: int) -> int:
        """Say how far beyond a row of one input its partners may lie: how long the row has to be kept."""
        return max(limit for other, limit in enumerate(self.limits[number]) if other != number)

    @property
    def even(self) -> bool:
        """Say whether all limits are one: then the spread of a result says whether it is in the window."""
        pairs = {limit for i, row in enumerate(self.limits) for j, limit in enumerate(row) if i != j}
        return len(pairs) == 1


def sides_for(count: int) -> tuple[str, ...]:
    """Name the inputs of a join of so many streams, as expressions do.

    >>> sides_for(2), sides_for(3)
    (('l', 'r'), ('i0', 'i1', 'i2'))
    """
    return ("l", "r") if count < LEAST_INPUTS else tuple(f"i{number}" for number in range(count))


_SIDES = frozenset((*sides_for(2), *sides_for(MOST_INPUTS)))


def is_side(name: str) -> bool:
    """Say whether a name is what expressions call an input."""
    return name in _SIDES


def side_number(side: str) -> int:
    """Give the number of an input by what expressions call it.

    >>> side_number("r"), side_number("i12")
    (1, 12)
    """
    return "lr".index(side) if side in {"l", "r"} else int(side[1:])


def closed(limits: Sequence[Sequence[int]], forever: int) -> tuple[tuple[int, ...], ...]:
    """Shorten limits to what the way round over other inputs leaves.

    Differences are whole microseconds: from ``T_j - T_i < a`` and ``T_k - T_j < b`` follows ``T_k - T_i < a + b - 1``.

    >>> closed([[1, 10, 99], [1, 1, 10], [1, 1, 1]], forever=1 << 60)
    ((1, 10, 19), (1, 1, 10), (1, 1, 1))
    """
    table = [list(row) for row in limits]
    size = range(len(table))
    for middle in size:
        for i in size:
            for j in size:
                way_round = table[i][middle] + table[middle][j] - 1
                if max(table[i][middle], table[middle][j]) < forever:
                    table[i][j] = min(table[i][j], way_round)
    return tuple(tuple(row) for row in table)
