"""Measurements of streams that are joined without a window: their disorder, their multiplicity, and missed results.

Ingest measures each batch (`BatchWatch`).  These pieces are kept with their log until every join that reads it has
joined the batch; then they are merged (`LogWatch`)::

    batches of a log     0    1    2    3    4    5    6
                         └─── merged ───┘    └ pieces ─┘
    a join's cursor                          ^ at 4: it uses the measurements of the first four batches

A join has, for each of its inputs, the number of first rows that have no later partner (`GroupWatch`).  Positions are
counted from 0, so the row at position p is kept if ``p >= gone``.

In:  commits.  Out: values of the ledger, each of bounded size: O(log rows), and a few thousand numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from penstock.kernels.accuracy_sketch import AccuracySketch
from penstock.kernels.copies_watch import ArrivalRate, Copies, open_from
from penstock.kernels.order_watch import Order
from penstock.state.values import Sorter

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.kernels.key_hash import Ints

SET_ASIDE = -1
"""The position of a dead letter, which is never joined."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Rows of sampled values of a batch: values, positions, and how often the share of values was halved."""

    halvings: int = 0
    values: tuple[int, ...] = ()
    positions: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class BatchWatch:
    """The measurements of a batch for a log: its number, the position of its first row, and its values."""

    batch: int
    first: int
    order: Order = field(default_factory=Order)
    copies: Copies = field(default_factory=Copies)
    sample: Sample = field(default_factory=Sample)
    arrived: float = 0.0
    above: int | None = None
    """If the rows are results of a query: a lower bound of the values of all later batches; None if unknown."""
    aside: int = 0
    """Dead letters with a value: late, without a time, or against a promise."""


@dataclass(frozen=True, slots=True)
class LogWatch:
    """The measurements of a log: merged for batches before `until`, and one piece for each later batch.

    `first` is the position of the first measured row.
    """

    first: int = 0
    until: int = 0
    order: Order = field(default_factory=Order)
    copies: Copies = field(default_factory=Copies)
    pace: ArrivalRate = field(default_factory=ArrivalRate)
    arrived: float = 0.0
    pieces: tuple[BatchWatch, ...] = ()
    above: int | None = None
    """A lower bound of the values of later batches, if it is known independently of their order."""

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
        """Merge the pieces of batches before a number."""
        order, copies, pace, arrived = self.order, self.copies, self.pace, self.arrived
        for piece in self.before(until):
            order = order.merged(piece.order).settled()
            copies = copies.plus(piece.copies, open_from(order))
            pace = pace.then(piece.order.rows, piece.arrived - arrived if arrived else 0.0)
            arrived = piece.arrived
        rest = tuple(piece for piece in self.pieces if piece.batch >= until)
        return LogWatch(self.first, max(until, self.until), order, copies, pace, arrived, rest, self.above)

    @property
    def newest_arrival(self) -> float:
        """Return the arrival of the last batch, in seconds since the epoch; 0 if unknown."""
        return max([self.arrived, *(piece.arrived for piece in self.pieces)])

    def before(self, until: int) -> tuple[BatchWatch, ...]:
        """Return the pieces of batches before a number."""
        return tuple(piece for piece in self.pieces if piece.batch < until)

    def front_before(self, rows: int) -> int | None:
        """Return the largest known value among all but the last so many rows; None if there is none.

        >>> import numpy as np
        >>> watch = LogWatch().then(BatchWatch(0, 0, Order.of(np.array([4, 9]))))
        >>> watch = watch.then(BatchWatch(1, 2, Order.of(np.array([7, 8]))))
        >>> [watch.front_before(rows) for rows in range(5)]
        [9, 9, 9, 4, None]
        """
        orders = [self.order, *(piece.order for piece in self.pieces)]
        position, fronts = sum(order.rows for order in orders) - rows, list[int | None]()
        for order in orders:
            fronts.append(order.front_at(position))
            position -= order.rows
        return max((front for front in fronts if front is not None), default=None)


@dataclass(frozen=True, slots=True)
class Miss:
    """An event of missed results, with its cause."""

    at: str
    """The time, in ISO 8601."""
    results: float
    """The estimated number of results."""
    streams: tuple[str, ...] = ()
    """The streams with more disorder than measured before."""
    scrambling: tuple[int, ...] = ()
    """The scrambling of each of them at this time, in rows."""
    dropped: int = 0
    """Rows dropped so far for lack of memory."""
    aside: int = 0
    """Dead letters among the rows of this event."""

    @property
    def reason(self) -> str:
        """Return the cause.

        >>> Miss("", 2.0, ("S1",), (60,)).reason, Miss("", 2.0, aside=3).reason
        ('S1 is out of order by 60 rows', '3 rows are dead letters')
        """
        pairs = zip(self.streams, self.scrambling, strict=True)
        late = ", ".join(f"{name} is out of order by {rows:,} rows" for name, rows in pairs)
        aside = f"{self.aside:,} rows are dead letters" if self.aside else ""
        dropped = f"{self.dropped:,} rows were dropped for lack of memory" if self.dropped else ""
        return late or aside or dropped or "their rows were no longer kept"


@dataclass(frozen=True, slots=True)
class MemoryWatch:
    """The memory strategy of a join without a window (`penstock.engine.views.memory`)."""

    strategy: str = "plain"
    budget: int | None = None
    """Maximum bytes that a unit may map; None: unlimited."""
    needed: int = 0
    """Bytes that the strategy needs, estimated from the measurements of the streams."""
    fits: bool = True
    dropped: int = 0
    """Rows dropped early for lack of memory."""


@dataclass(frozen=True, slots=True)
class GroupWatch:
    """The progress of a join without a window: rows that it no longer needs, and missed results."""

    until: tuple[int, ...]
    """By input: batches before this one are included."""
    gone: tuple[int, ...]
    """By input: the number of first rows that are no longer needed."""
    scrambling: tuple[int, ...]
    """By input: the scrambling that was used."""
    sketch: AccuracySketch
    misses: tuple[Miss, ...] = ()
    sorters: tuple[Sorter, ...] = ()
    """By input, if rows are sorted before the join: further rows that are included."""
    memory: MemoryWatch = field(default_factory=MemoryWatch)
    above: int | None = None
    """A lower bound of the join attribute of later results; None if unknown."""

    def has_joined(self, number: int, batch: int, values: Ints) -> NDArray[np.bool_]:
        """Return which rows of a batch of one input, by their values, were joined at this point."""
        if batch < self.until[number]:
            return np.ones(values.size, np.bool_)
        if self.sorters and batch < self.sorters[number].until:
            return values <= self.sorters[number].value
        return np.zeros(values.size, np.bool_)
