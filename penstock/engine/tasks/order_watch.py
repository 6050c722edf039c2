"""What ingest sees of rows for joins without a window: where they come in the order of arrival, and their values.

One task has all rows of such a batch, in the order in which they arrived, so that the position of a row is counted::

    batch before          this batch: `first` = 40
    ...  38  39  |        40      41      42      43
    value                 57      59    (null)    58
                          └───────┴────────────────┴──── what a join's attribute is like: `BatchWatch`

In:  a part of a batch, and the logs that are watched.  Out: positions, and what was seen.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.engine.tasks.ingest_columns import ROW_TIME, key_names
from penstock.kernels.accuracy_sketch import ROWS_HELD
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

MOST_SAMPLED = ROWS_HELD
"""Rows of sampled values that are reported of one part of a batch."""


MOST_COUNTED = 1024
"""Values at either end of a part of a batch whose rows are counted one by one."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """What tasks are told of the order of arrival: the position of the batch's first row, and what is watched.

    `halvings` has, for each log that is watched, how often the share of sampled values was halved so far.
    """

    first: int
    halvings: Mapping[str, int]

    def moved(self, rows: int) -> Arrival:
        """Give the same for what comes so many rows later."""
        return replace(self, first=self.first + rows)


def with_positions(arrival: Arrival, table: pa.Table, *, timeless: bool) -> pa.Table:
    """Give rows their positions; where they have no event time, these are their times too."""
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
    """Watch the values of one log's key: of rows in time, of those that are stored, and of wanted ones set aside."""
    values, known = ordered
    seen, wanted = known & timely, known & (stored | aside)
    at = np.arange(1, values.size + 1)
    positions = np.where(aside, SET_ASIDE, at - 1 + arrival.first)
    return BatchWatch(
        batch,
        arrival.first,
        Order.of(values[seen], at[seen], rows=int(values.size)),
        Copies.of(values[seen]).closed(ends=(MOST_COUNTED, MOST_COUNTED)),
        _sampled(values[wanted], positions[wanted], arrival.halvings[log.id]),
        aside=int((known & aside).sum()),
    )


def values_of(table: pa.Table, number: int, log: LogPlan) -> Ordered:
    """Give the values of a log's key as integers that are in the same order, and say which rows have one.

    Decimals of more digits than 64 bits hold are put in order by the nearest floating-point number.
    """
    name, parts = key_names(number, log)
    column = table.column(parts[0] if parts else name).combine_chunks()
    known = column.is_valid().to_numpy(zero_copy_only=False)
    values = np.zeros(len(column), np.int64)
    values[known] = nearest_ordered(column)
    return values, known


def _sampled(values: Ints, positions: Ints, halvings: int) -> Sample:
    """Pick rows of sampled values; of too many, those of half as many values, until they fit."""
    chosen = is_sampled(values, halvings)
    while chosen.sum() > MOST_SAMPLED:
        halvings += 1
        chosen = is_sampled(values, halvings)
    return Sample(halvings, tuple(values[chosen].tolist()), tuple(positions[chosen].tolist()))


def put_together(parts: Iterable[BatchWatch], arrived: float) -> BatchWatch:
    """Put together what was seen of the parts of one batch."""
    first, *others = sorted(parts, key=lambda each: each.first)
    whole = first
    for each in others:
        whole = replace(
            whole,
            order=whole.order.merged(each.order),
            copies=whole.copies.merged(each.copies),
            sample=_both(whole.sample, each.sample),
            aside=whole.aside + each.aside,
        )
    return replace(whole, arrived=arrived)


def _both(one: Sample, other: Sample) -> Sample:
    """Put two samples together, of the values that are in both shares."""
    values = np.array(one.values + other.values, np.int64)
    positions = np.array(one.positions + other.positions, np.int64)
    return _sampled(values, positions, max(one.halvings, other.halvings))
