"""Test pairs by the difference of two of their columns, before anything of them is copied.

A query that keeps only pairs with ``ABS(l.v - r.v) < 5`` is taken out of the set of each pair that is too far apart,
and a pair that no query wants any more is dropped.  The bounds are wide enough for Spark's own reading of the condition
(`penstock.sql.bind.comparisons`), which then decides about the pairs that are left.

In:  pairs with query sets, and the columns of both segments.  Out: the pairs that some query may want.
A null in either column makes every comparison null, so the pair is not wanted; NaN and infinities pass.
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
class Check:
    """A comparison, the two columns it reads, and the set of queries that make it."""

    comparison: Comparison
    left: pa.Array
    right: pa.Array
    queries: NDArray[np.uint64]


def with_near_columns(pairs: Pairs, checks: Iterable[Check], *, batch_is_left: bool) -> Pairs:
    """Remove from each pair's set the queries whose test it fails, and drop the pairs that no query wants any more."""
    if pairs.sets is None:
        return pairs
    sets = pairs.sets.copy()
    rows = (pairs.batch, pairs.state) if batch_is_left else (pairs.state, pairs.batch)
    for check in checks:
        columns = (*_values(check.left), *_values(check.right))
        if check.comparison.slack is None:
            _clear_whole(sets, check.queries, rows, columns, _whole_bounds(check.comparison))
        else:
            _clear_rounded(sets, check.queries, rows, columns, _rounded_bounds(check.comparison))
    wanted = np.asarray(sets[:, 0] != 0 if sets.shape[1] == 1 else sets.any(axis=1))
    return replace(pairs, sets=sets).only(wanted)


def _values(column: pa.Array) -> tuple[NDArray[Any], NDArray[np.uint8], int]:
    """Give a column's memory as it is: values, validity bits (empty if nothing is null), number of the first bit."""
    validity, data = column.buffers()
    kind = np.dtype(f"{'f' if str(column.type) in _FLOATING else 'i'}{column.type.bit_width // 8}")
    values = np.frombuffer(data, kind)[column.offset : column.offset + len(column)]
    bits = np.frombuffer(validity if column.null_count else b"", np.uint8)
    for each in (values, bits):
        each.flags.writeable = False  # one type for kernels, whatever memory it is
    return values, bits, column.offset


_FLOATING = {"float", "double"}


def _whole_bounds(comparison: Comparison) -> tuple[int, int, int]:
    """Give the bounds of whole numbers and the limit beyond which they are not tested."""
    least, most = comparison.least, comparison.most
    limit = comparison.limits[0]
    return (
        _LEAST_INT if least is None else int(least),
        _MOST_INT if most is None else int(most),
        _MOST_INT if limit is None else limit,
    )


def _rounded_bounds(comparison: Comparison) -> tuple[float, ...]:
    """Give the bounds of floating numbers, the limits, and what roundings may amount to."""
    least, most = comparison.least, comparison.most
    first, second = (np.inf if limit is None else float(limit) for limit in comparison.limits)
    return (
        -np.inf if least is None else least,
        np.inf if most is None else most,
        first,
        second,
        comparison.slack or 0.0,
        comparison.size,
    )


@njit(cache=True, nogil=True)
def _is_null(bits: Any, first: Any, i: Any) -> Any:
    bit = first + i
    return bits.size > 0 and (bits[bit >> 3] >> (bit & 7)) & 1 == 0


@njit(cache=True, nogil=True)
def _asked(sets: Any, k: Any, queries: Any) -> Any:
    """Say whether some of the queries still want pair k."""
    for w in range(queries.size):  # noqa: SIM110 - Numba compiles no generator here
        if sets[k, w] & queries[w]:
            return True
    return False


@njit(cache=True, nogil=True)
def _clear_whole(sets: Any, queries: Any, rows: Any, columns: Any, bounds: Any) -> None:
    """Take some queries from the sets of pairs whose whole numbers are too far apart."""
    left_rows, right_rows = rows
    left, left_bits, left_first, right, right_bits, right_first = columns
    least, most, limit = bounds
    for k in range(left_rows.size):
        if not _asked(sets, k, queries):
            continue
        i, j = left_rows[k], right_rows[k]
        fails = _is_null(left_bits, left_first, i) or _is_null(right_bits, right_first, j)
        if not fails:
            a, b = np.int64(left[i]), np.int64(right[j])
            # within the limit neither Spark's arithmetic nor a - b can overflow
            if -limit <= a <= limit and -limit <= b <= limit:
                fails = a - b < least or a - b > most
        if fails:
            for w in range(queries.size):
                sets[k, w] &= ~queries[w]


@njit(cache=True, nogil=True)
def _clear_rounded(sets: Any, queries: Any, rows: Any, columns: Any, bounds: Any) -> None:
    """Take some queries from the sets of pairs whose floating numbers are too far apart."""
    left_rows, right_rows = rows
    left, left_bits, left_first, right, right_bits, right_first = columns
    least, most, left_limit, right_limit, slack, size = bounds
    for k in range(left_rows.size):
        if not _asked(sets, k, queries):
            continue
        i, j = left_rows[k], right_rows[k]
        fails = _is_null(left_bits, left_first, i) or _is_null(right_bits, right_first, j)
        if not fails:
            a, b = np.float64(left[i]), np.float64(right[j])
            if abs(a) <= left_limit and abs(b) <= right_limit:
                error = slack * (abs(a) + abs(b) + size)
                # false where NaN is involved, or where the error is infinite: the pair passes
                fails = a - b < least - error or a - b > most + error
        if fails:
            for w in range(queries.size):
                sets[k, w] &= ~queries[w]


# --- equal keys ----------------------------------------------------------------------------------------------------


def with_equal_keys(pairs: Pairs, batch: Sequence[pa.Array], state: Sequence[pa.Array]) -> Pairs:
    """Keep the pairs whose real keys are equal, column by column."""
    same = np.ones(len(pairs), np.bool_)
    for batch_key, state_key in zip(batch, state, strict=True):
        same &= equal_values(batch_key.take(pa.array(pairs.batch)), state_key.take(pa.array(pairs.state)))
    return pairs if same.all() else pairs.only(same)


def equal_values(one: pa.Array, other: pa.Array) -> NDArray[np.bool_]:
    """Say which values of two columns are equal, one by one."""
    same = pc.equal(one, other)
    if pa.types.is_floating(one.type):
        same = pc.or_(same, pc.and_(pc.is_nan(one), pc.is_nan(other)))
    return pc.fill_null(same, fill_value=False).to_numpy(zero_copy_only=False)
