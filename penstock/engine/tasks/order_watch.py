"""Statistics of ingest for joins without a window: the positions of rows in the order of arrival, and their values.

One task gets all rows of such a batch in the order of arrival, so it can number them::

    batch before          this batch: `first` = 40
    ...  38  39  |        40      41      42      43
    value                 57      59    (null)    58
                          └───────┴────────────────┴──── how ordered the join's attribute is: `BatchWatch`

In:  a part of a batch, and the logs that are watched.  Out: positions and statistics.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock import limits
from penstock.engine.tasks.ingest_columns import ROW_TIME, key_names
from penstock.kernels.copies_watch import Copies
from penstock.kernels.order_watch import Order
from penstock.kernels.ordered_values import nearest_ordered
from penstock.kernels.value_sample import is_sampled
from penstock.plan.links import POSITION
from penstock.state.watch import SET_ASIDE, BatchWatch, Sample

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from penstock.kernels.key_hash import Ints
    from penstock.plan.stored import LogPlan

    Ordered = tuple[Ints, NDArray[np.bool_]]
    """Values as integers, and which rows have one."""

MOST_SAMPLED = limits.MAX_SAMPLED_ROWS
"""Rows of sampled values in the report of one part of a batch."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """The position of the first row of a batch, and the logs that are watched.

    `halvings` has, for each watched log, how often the share of sampled values was halved so far.
    """

    first: int
    halvings: Mapping[str, int]

    def moved(self, rows: int) -> Arrival:
        """Return the same for a later row."""
        return replace(self, first=self.first + rows)


def with_positions(arrival: Arrival, table: pa.Table, *, timeless: bool) -> pa.Table:
    """Add the positions of rows; they are also the event times of rows without one."""
    positions = pa.array(np.arange(arrival.first, arrival.first + table.num_rows))
    if timeless:
        table = table.set_column(table.schema.get_field_index(ROW_TIME), ROW_TIME, positions)
    return table.append_column(POSITION, positions)


def watch_log(
    arrival: Arrival,
    batch: int,
    log: LogPlan,
    ordered: Ordered,
    *,
    timely: NDArray[np.bool_],
    stored: NDArray[np.bool_],
    aside: NDArray[np.bool_],
) -> BatchWatch:
    """Collect statistics of one log's key: of rows in time, of stored rows, and of wanted rows set aside."""
    values, known = ordered
    seen, wanted = known & timely, known & (stored | aside)
    at = np.arange(1, values.size + 1)
    positions = np.where(aside, SET_ASIDE, at - 1 + arrival.first)
    return BatchWatch(
        batch,
        arrival.first,
        Order.of(values[seen], at[seen], rows=int(values.size)),
        Copies.of(values[seen]).closed(ends=(limits.MAX_SEPARATE_VALUES, limits.MAX_SEPARATE_VALUES)),
        _sampled(values[wanted], positions[wanted], arrival.halvings[log.id]),
        aside=int((known & aside).sum()),
    )


def values_of(table: pa.Table, number: int, log: LogPlan) -> Ordered:
    """Return the values of a log's key as integers in the same order, and which rows have one.

    Decimals that do not fit in 64 bits are ordered by the nearest floating-point number.
    """
    name, parts = key_names(number, log)
    column = table.column(parts[0] if parts else name).combine_chunks()
    known = column.is_valid().to_numpy(zero_copy_only=False)
    values = np.zeros(len(column), np.int64)
    values[known] = nearest_ordered(column)
    return values, known


def _sampled(values: Ints, positions: Ints, halvings: int) -> Sample:
    """Select rows of sampled values; halve the share of sampled values until they fit."""
    chosen = is_sampled(values, halvings)
    while chosen.sum() > MOST_SAMPLED:
        halvings += 1
        chosen = is_sampled(values, halvings)
    return Sample(halvings, tuple(values[chosen].tolist()), tuple(positions[chosen].tolist()))


def merge_watches(parts: Iterable[BatchWatch], arrived: float) -> BatchWatch:
    """Merge the statistics of the parts of one batch."""
    whole, *others = sorted(parts, key=lambda watch: watch.first)
    for part in others:
        whole = replace(
            whole,
            order=whole.order.merged(part.order),
            copies=whole.copies.merged(part.copies),
            sample=_merge_samples(whole.sample, part.sample),
            aside=whole.aside + part.aside,
        )
    return replace(whole, arrived=arrived)


def _merge_samples(one: Sample, other: Sample) -> Sample:
    """Merge two samples, keeping the values that the smaller share has."""
    values = np.array(one.values + other.values, np.int64)
    positions = np.array(one.positions + other.positions, np.int64)
    return _sampled(values, positions, max(one.halvings, other.halvings))
