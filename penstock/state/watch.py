"""What is known of streams that are joined without a window: their order, their copies, and what joins have missed.

Ingest looks at each batch and says what it was like (`BatchWatch`).  These wait with their log until every join that
reads it has joined the batch, and are then put together (`LogWatch`)::

    batches of a log     0    1    2    3    4    5    6
                         └ put together ┘    └ pieces ─┘
    a join's cursor                          ^ at 4: what it knows is the first four and piece 4's predecessors

A join has a number for each of its inputs: so many of the first rows that arrived can meet nobody any more
(`GroupWatch`).  Positions are counted from 0, so the row at position p is kept while ``p >= gone``.

In:  commits.  Out: values of the ledger.  All are bounded: by O(log rows) and a few thousand numbers each.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from penstock.kernels.accuracy_sketch import AccuracySketch
from penstock.kernels.copies_watch import Copies, Pace, open_from
from penstock.kernels.order_watch import Order
from penstock.state.values import Sorter

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.kernels.key_hash import Ints

SET_ASIDE = -1
"""The position of a row that was set aside and is never joined."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Rows of sampled values of a batch: their values and positions, and how often the share of values was halved."""

    halvings: int = 0
    values: tuple[int, ...] = ()
    positions: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class BatchWatch:
    """What a batch was like for a log: its number, the position of its first row, and what was seen of its values."""

    batch: int
    first: int
    order: Order = field(default_factory=Order)
    copies: Copies = field(default_factory=Copies)
    sample: Sample = field(default_factory=Sample)
    arrived: float = 0.0
    above: int | None = None
    """Where the rows are results of a query: those of all later batches have larger values; None: nobody knows."""
    aside: int = 0
    """Rows with a value that were set aside: late, without a time, or against a promise."""


@dataclass(frozen=True, slots=True)
class LogWatch:
    """What a log's rows are like: those of batches before `until` together, the others batch by batch.

    `first` is the position of the first row that was looked at.
    """

    first: int = 0
    until: int = 0
    order: Order = field(default_factory=Order)
    copies: Copies = field(default_factory=Copies)
    pace: Pace = field(default_factory=Pace)
    arrived: float = 0.0
    pieces: tuple[BatchWatch, ...] = ()
    above: int | None = None
    """What rows of batches still to come are above, where that is known otherwise than by their order."""

    def then(self, piece: BatchWatch) -> LogWatch:
        """Add a batch."""
        begun = bool(self.order.rows or self.pieces)
        return LogWatch(
            self.first if begun else piece.first,
            self.until if begun else piece.batch,
            self.order,
            self.copies,
            self.pace,
            self.arrived,
            (*self.pieces, piece),
            piece.above,
        )

    def settled(self, until: int) -> LogWatch:
        """Put together what came in batches before a number; the others stay as they are."""
        order, copies, pace, arrived = self.order, self.copies, self.pace, self.arrived
        for each in self.before(until):
            order = order.merged(each.order).settled()
            copies = copies.plus(each.copies, open_from(order))
            pace = pace.then(each.order.rows, each.arrived - arrived if arrived else 0.0)
            arrived = each.arrived
        rest = tuple(each for each in self.pieces if each.batch >= until)
        return LogWatch(self.first, max(until, self.until), order, copies, pace, arrived, rest, self.above)

    @property
    def newest_arrival(self) -> float:
        """Say when the last batch came, in seconds since the epoch; 0: nobody knows."""
        return max([self.arrived, *(each.arrived for each in self.pieces)])

    def before(self, until: int) -> tuple[BatchWatch, ...]:
        """Give the pieces of batches before a number."""
        return tuple(each for each in self.pieces if each.batch < until)

    def front_before(self, rows: int) -> int | None:
        """Give the largest value that is known among all but the last so many rows; None if there is none.

        >>> import numpy as np
        >>> watch = LogWatch().then(BatchWatch(0, 0, Order.of(np.array([4, 9]))))
        >>> watch = watch.then(BatchWatch(1, 2, Order.of(np.array([7, 8]))))
        >>> [watch.front_before(rows) for rows in range(5)]
        [9, 9, 9, 4, None]
        """
        orders = [self.order, *(each.order for each in self.pieces)]
        position, fronts = sum(each.rows for each in orders) - rows, list[int | None]()
        for each in orders:
            fronts.append(each.front_at(position))
            position -= each.rows
        return max((each for each in fronts if each is not None), default=None)


@dataclass(frozen=True, slots=True)
class Miss:
    """An occasion on which results were missed: when, about how many, and whose rows came late or were set aside."""

    at: str
    """When, in ISO 8601."""
    results: float
    """About how many results."""
    streams: tuple[str, ...] = ()
    """The streams whose rows came later than was known."""
    scrambling: tuple[int, ...] = ()
    """The scrambling that was measured of each of them then, in rows."""
    dropped: int = 0
    """Rows that had been let go by then because there was no room for them, all together."""
    aside: int = 0
    """Rows that came with it and were set aside."""

    @property
    def reason(self) -> str:
        """Write why.

        >>> Miss("", 2.0, ("S1",), (60,)).reason, Miss("", 2.0, aside=3).reason
        ('S1 is out of order by 60 rows', '3 rows were set aside, late by event time or for another reason')
        """
        pairs = zip(self.streams, self.scrambling, strict=True)
        late = ", ".join(f"{name} is out of order by {rows:,} rows" for name, rows in pairs)
        aside = (
            f"{self.aside:,} rows were set aside, late by event time or for another reason"
            if self.aside
            else ""
        )
        dropped = f"there was no room for {self.dropped:,} rows so far" if self.dropped else ""
        return late or aside or dropped or "values were let go before"


@dataclass(frozen=True, slots=True)
class MemoryWatch:
    """What a join without a window does about memory (`penstock.engine.views.memory`)."""

    strategy: str = "plain"
    budget: int | None = None
    """Bytes that a unit may map; None: as many as it likes."""
    needed: int = 0
    """Bytes that the strategy takes by what is known of the streams."""
    fits: bool = True
    dropped: int = 0
    """Rows that were let go early because there was no room for them."""


@dataclass(frozen=True, slots=True)
class GroupWatch:
    """What a join without a window knows: how far it has looked, what it has let go of, and what that has cost."""

    until: tuple[int, ...]
    """By input: batches before this were looked at."""
    gone: tuple[int, ...]
    """By input: how many of the first rows that arrived are of no more use."""
    scrambling: tuple[int, ...]
    """By input: the scrambling that this goes by."""
    sketch: AccuracySketch
    misses: tuple[Miss, ...] = ()
    sorters: tuple[Sorter, ...] = ()
    """By input, where rows were sorted before they were joined: up to where it has looked besides."""
    memory: MemoryWatch = field(default_factory=MemoryWatch)
    above: int | None = None
    """Results still to come have larger values of what the join is on; None: nobody knows."""

    def has_joined(self, number: int, batch: int, values: Ints) -> NDArray[np.bool_]:
        """Say which rows of a batch of one input, by their values, were joined when this was looked at."""
        if batch < self.until[number]:
            return np.ones(values.size, np.bool_)
        if self.sorters and batch < self.sorters[number].until:
            return values <= self.sorters[number].value
        return np.zeros(values.size, np.bool_)
