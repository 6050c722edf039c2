"""Compile every kernel once, before the first task needs it.

Numba caches compiled kernels on disk.  Without this module, every Python worker of the first batch would compile them
at the same time.

    python -m penstock.kernels.warm

The arrays have the types that occur in tasks: mapped segments are read-only, new batches are not.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.kernels.aggregates.count import counted
from penstock.kernels.aggregates.folded import fold_values, folded_class
from penstock.kernels.column_checks import ColumnCheck, with_near_columns
from penstock.kernels.entries import Numbering, Panes
from penstock.kernels.fold import group_sums, number_groups
from penstock.kernels.key_hash import mix, unmixed
from penstock.kernels.order_watch import Order
from penstock.kernels.probe import Pairs, Rows, Wanted, probe
from penstock.kernels.row_cuts import RowCuts, probe_row_cuts
from penstock.kernels.sets import count_members
from penstock.kernels.slide import Sliding, lay_out, order_by
from penstock.kernels.slide_measures import EntryRun, laid_in
from penstock.kernels.slide_pass import slide_groups, slide_parts
from penstock.kernels.sorting import merge_runs
from penstock.sql.query import Comparison


def warm_up() -> None:
    """Call every kernel of joins with a few rows, in each combination of types that occurs."""
    keys = np.arange(4)
    for column in (keys, _mapped(keys)):
        h = np.sort(mix(column))
        merge_runs(h, keys, np.array([0, 2, 4]))
        merge_runs(_mapped(h), _mapped(keys), np.array([0, 2, 4]))
    segment = Rows(_mapped(h), _mapped(keys), _mapped(np.zeros(4, np.int32)))
    plain = Rows(segment.h, segment.t)
    everyone = np.ones((2, 1), np.uint64)
    wanted = Wanted(everyone, everyone, everyone)
    cuts = np.array([-1, 0, 2])
    for batch in (segment, plain):
        for pairs in probe(batch, plain, cuts, batch_is_left=True):
            pairs.by_level()
        for state in (segment, plain):
            for pairs in probe(batch, state, cuts, batch_is_left=True, wanted=wanted):
                count_members(pairs.sets if pairs.sets is not None else everyone, 1)
        list(probe_row_cuts(batch, plain, _row_cuts(keys), batch_times=(0, 3), state_times=(0, 3)))
    _warm_comparisons(pairs)


def warm_folds() -> None:
    """Call the kernels of aggregates, and of joins without a window, with a few rows."""
    ids = np.array([0, 1, 0])
    for values in (np.arange(3), np.arange(3) / 2):
        for column in (values, _mapped(values)):
            for function in ("count", "sum", "min", "max"):
                folded = fold_values(function, pa.array(column), ids, 2).by(np.array([0, 0]), 1)
                each = folded_class(function).from_rows(function, pa.array(column))
                if each is not None:
                    folded.grown(2).add(ids, each)
                folded.stored()
    panes = Panes(1, 1, 0, 9, 0, 0)
    for times in (np.arange(3), _mapped(np.arange(3))):
        places = panes.places(times, times, np.zeros(3, np.int64))
        if places is not None:
            Numbering().number(places, times)
    for codes in (np.array([0, 1 << 40, 5]), np.arange(3)):
        number_groups([codes])
        number_groups([_mapped(codes)])
    number_groups([np.arange(3), _mapped(np.arange(3))])
    _warm_sliding()
    rising, falling = np.arange(3), np.arange(3)[::-1].copy()
    Order.of(rising, np.arange(1, 4), rows=4).merged(Order.of(_mapped(falling)))


def _warm_sliding() -> None:
    numbers, one = np.arange(3), np.ones(3, np.int64)
    for places in (numbers, _mapped(numbers)):
        _, cells, upto = lay_out((numbers, places, places), numbers, numbers, numbers[:1], 3, 3)
    sliding = Sliding(cells, upto, np.zeros((3, 1), np.int64), groups=3, cuts=1)
    parts, _ = laid_in([EntryRun([counted(one)], numbers, one)], often=1)
    for sides in (1, 2):
        seen = slide_parts([[sliding]] * sides, [parts] * sides).seen
    slide_groups([[sliding]] * 2, [parts] * 2, np.array([0, 3]))
    group_sums(numbers, _mapped(one), 3)
    sliding.sums(one, seen)
    order_by(numbers, 3)
    unmixed(_mapped(mix(numbers)))


def _row_cuts(times: np.ndarray) -> RowCuts:
    """Return row cuts with a cut of each kind."""
    kind, shift = np.array([1, 0, 2], np.int8), np.array([0, 0, 0])
    return RowCuts(kind, shift, np.arange(5), np.array([0, 1], np.int16), times, times)


def _warm_comparisons(pairs: Pairs) -> None:
    """Compare columns of the common types; kernels for others are compiled on first use."""
    whole, rounded = (Comparison("", "", 0, 0, (1, 1), slack) for slack in (None, 0.5))
    kinds = {whole: (pa.int32(), pa.int64()), rounded: (pa.float64(),)}
    for comparison, types in kinds.items():
        for kind in types:
            column = pa.array([0, 1, 2, None], kind)
            check = ColumnCheck(comparison, column, column, np.ones(1, np.uint64))
            with_near_columns(pairs, [check], batch_is_left=True)


def _mapped(array: np.ndarray) -> np.ndarray:
    """Return a read-only copy, like a mapped file."""
    copy = array.copy()
    copy.flags.writeable = False
    return copy


if __name__ == "__main__":
    warm_up()
    warm_folds()
