"""Filter pairs by their columns before rows are copied: by the difference of two values, and by equal keys.

A query with a condition like ``ABS(l.v - r.v) < 5`` is removed from the sets of pairs whose values are too far apart; a
pair without queries is dropped.  The bounds include the rounding of Spark's arithmetic
(`penstock.sql.bind.comparisons`); Spark then evaluates the condition for the remaining pairs.

In:  pairs with query sets, and the columns of both segments.  Out: the pairs that may be results.
A null in either column fails every comparison; NaN and infinities pass.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from penstock.kernels.probe import Pairs
    from penstock.sql.query import Comparison

_LEAST_INT, _MOST_INT = np.iinfo(np.int64).min, np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class ColumnCheck:
    """A comparison, its two columns, and the set of queries that have it."""

    comparison: Comparison
    left: pa.Array
    right: pa.Array
    queries: NDArray[np.uint64]


def with_near_columns(pairs: Pairs, checks: Iterable[ColumnCheck], *, batch_is_left: bool) -> Pairs:
    """Remove queries from the sets of pairs that fail their comparisons, and drop pairs without queries."""
    if pairs.sets is None:
        return pairs
    sets = pairs.sets.copy()
    rows = (pairs.batch, pairs.state) if batch_is_left else (pairs.state, pairs.batch)
    for check in checks:
        columns = (*_values(check.left), *_values(check.right))
        _clear(sets, check.queries, rows, columns, _bounds(check.comparison))
    wanted = np.asarray(sets[:, 0] != 0 if sets.shape[1] == 1 else sets.any(axis=1))
    return replace(pairs, sets=sets).only(wanted)


def _values(column: pa.Array) -> tuple[NDArray[Any], NDArray[np.uint8], int]:
    """Return a column's buffers: values, validity bits (empty if there is no null), and the number of the first bit."""
    validity, data = column.buffers()
    kind = np.dtype(f"{'f' if str(column.type) in _FLOATING else 'i'}{column.type.bit_width // 8}")
    values = np.frombuffer(data, kind)[column.offset : column.offset + len(column)]
    bits = np.frombuffer(validity if column.null_count else b"", np.uint8)
    for memory in (values, bits):
        memory.flags.writeable = False  # so that kernels are compiled for one type
    return values, bits, column.offset


_FLOATING = {"float", "double"}


def _bounds(comparison: Comparison) -> tuple[float, ...]:
    """Return the bounds, the limits beyond which values are not tested, and the rounding error: int or float."""
    ends: tuple[float, float] = (-np.inf, np.inf)
    kind: type[float] = float
    limits, error = comparison.limits, (comparison.slack or 0.0, comparison.size)
    if comparison.slack is None:
        ends, kind = (_LEAST_INT, _MOST_INT), int
        limits, error = (comparison.limits[0], comparison.limits[0]), (0, 0)
    least = ends[0] if comparison.least is None else kind(comparison.least)
    most = ends[1] if comparison.most is None else kind(comparison.most)
    return least, most, *(ends[1] if limit is None else kind(limit) for limit in limits), *error


@njit(cache=True, nogil=True)
def _is_null(bits, first, i):
    bit = first + i
    return bits.size > 0 and (bits[bit >> 3] >> (bit & 7)) & 1 == 0


@njit(cache=True, nogil=True)
def _asked(sets, k, queries):
    """Return whether one of the queries is in the set of pair k."""
    for w in range(queries.size):  # noqa: SIM110 - Numba compiles no generator here
        if sets[k, w] & queries[w]:
            return True
    return False


@njit(cache=True, nogil=True)
def _clear(sets, queries, rows, columns, bounds):
    """Remove queries from the sets of pairs whose values are too far apart."""
    left_rows, right_rows = rows
    left, left_bits, left_first, right, right_bits, right_first = columns
    least, most, left_limit, right_limit, slack, size = bounds
    zero = slack * 0  # of the type in which Spark compares
    for k in range(left_rows.size):
        if not _asked(sets, k, queries):
            continue
        i, j = left_rows[k], right_rows[k]
        fails = _is_null(left_bits, left_first, i) or _is_null(right_bits, right_first, j)
        if not fails:
            a, b = left[i] + zero, right[j] + zero
            # within the limits neither Spark's arithmetic nor a - b can overflow
            if -left_limit <= a <= left_limit and -right_limit <= b <= right_limit:
                error = slack * (abs(a) + abs(b) + size) if slack else zero
                # false where NaN is involved, or where the error is infinite: the pair passes
                fails = a - b < least - error or a - b > most + error
        if fails:
            for w in range(queries.size):
                sets[k, w] &= ~queries[w]


# --- equal keys ----------------------------------------------------------------------------------------------------


def with_equal_keys(pairs: Pairs, batch: Sequence[pa.Array], state: Sequence[pa.Array]) -> Pairs:
    """Return the pairs with equal keys, as in Spark's ``=``: NaN equals NaN.  Equal hashes are not sufficient."""
    same = np.ones(len(pairs), np.bool_)
    for batch_key, state_key in zip(batch, state, strict=True):
        same &= equal_values(batch_key.take(pa.array(pairs.batch)), state_key.take(pa.array(pairs.state)))
    return pairs if same.all() else pairs.only(same)


def equal_values(one: pa.Array, other: pa.Array) -> NDArray[np.bool_]:
    """Return which values of two columns are equal, one by one."""
    same = pc.equal(one, other)
    if pa.types.is_floating(one.type):
        same = pc.or_(same, pc.and_(pc.is_nan(one), pc.is_nan(other)))
    return pc.fill_null(same, fill_value=False).to_numpy(zero_copy_only=False)
