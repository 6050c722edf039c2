"""The index of promises: which values of a stream are finished, and since when.

A promise ``(k, p)`` states that no row of its stream with the key k has an event time after p.  A stream's promises are
indexed by one key or several (`penstock.plan.promises.PromiseIndex`), each in two kinds of files:

    exact       one value for each part of the key; sorted by ``(h, p)`` like the rows of a log, so that a row's
                promise is found by binary search
    patterns    ranges and wildcards: bounds for each part of the key, null if it is open; there are few

All uses of promises follow from one function, `earliest`: the minimum p of all promises that cover a row::

    b breaks its own stream's promise          T_b > p
    a has no further partner                   p < watermark of the partner, at the group's cursor
    a has no partner at all                    p is a window or more before T_a

Forgetting a promise never changes a result; some rows are kept longer.

In:  the promises in a batch.  Out: files, and the minimum p for some rows.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.kernels.column_checks import equal_values
from penstock.kernels.fold import codes_of, number_groups
from penstock.kernels.key_hash import mix, unmixed
from penstock.kernels.sets import to_words
from penstock.kernels.sorting import lay_ranges, sort_rows
from penstock.state.segment import KEY, Segment, SegmentColumns, read_segment, write_ordered

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from numpy.typing import NDArray

    from penstock.kernels.key_hash import Hashes, Ints
    from penstock.state.files import Files

    Mask = NDArray[np.bool_]
    Bounds = list[tuple[pa.Array | None, pa.Array | None]]

NEVER = 1 << 62
"""The p of a row without a promise."""

_LOW, _HIGH = "low", "high"


@dataclass(frozen=True, slots=True)
class PromiseFiles:
    """The files of one index."""

    exact: tuple[Segment, ...] = ()
    patterns: tuple[Segment, ...] = ()
    forgotten: int = 0
    """Promises removed because there were too many."""
    merged: int = 0
    """Promises removed because others imply them."""

    @property
    def rows(self) -> int:
        """Return the number of promises."""
        return sum(file.rows for file in self.files())

    def files(self) -> tuple[Segment, ...]:
        """Return the files of both kinds."""
        return self.exact + self.patterns

    def plus(self, other: PromiseFiles) -> PromiseFiles:
        """Add files."""
        return PromiseFiles(
            self.exact + other.exact,
            self.patterns + other.patterns,
            self.forgotten + other.forgotten,
            self.merged + other.merged,
        )

    def without(self, names: Collection[str]) -> PromiseFiles:
        """Remove files."""
        exact, patterns = (
            tuple(segment for segment in some if segment.name not in names)
            for some in (self.exact, self.patterns)
        )
        return PromiseFiles(exact, patterns, self.forgotten, self.merged)

    def bare(self) -> PromiseFiles:
        """Remove the statistics, which tasks do not need."""
        exact, patterns = (tuple(segment.bare() for segment in some) for some in (self.exact, self.patterns))
        return PromiseFiles(exact, patterns)

    def before(self, time: int) -> float:
        """Return the estimated number of promises so far with a p before an event time.

        It never falls: removed promises count as before any time.
        """
        counts = (count for file in self.files() for count in file.patterns)
        return self.forgotten + self.merged + sum(count.rows - count.rows_after(time - 1) for count in counts)


@dataclass(frozen=True, slots=True)
class ValuePromises:
    """Promises about single values, sorted by ``(h, p)``; `keys` are empty if the hash is the whole key."""

    h: Hashes
    p: Ints
    keys: tuple[pa.Array, ...] = ()


@dataclass(frozen=True, slots=True)
class RangePromise:
    """One promise about a range: the minimum and maximum of each part of the key, None if open."""

    p: int
    bounds: tuple[tuple[pa.Scalar | None, pa.Scalar | None], ...]


@dataclass(frozen=True, slots=True)
class PromiseSet:
    """The promises of an index, mapped."""

    exact: tuple[ValuePromises, ...] = ()
    patterns: tuple[RangePromise, ...] = ()

    def earliest(self, h: Hashes, keys: Sequence[pa.Array], has_key: Mask | None = None) -> Ints:
        """Return for each row the minimum p of all promises that cover it; `NEVER` if there is none.

        `has_key` is false for rows with a null in their key: only a range that is open for the null covers them.

        >>> known = PromiseSet((ValuePromises(mix(np.array([7])), np.array([100])),))
        >>> known.earliest(mix(np.array([7, 8])), ()).tolist() == [100, NEVER]
        True
        """
        least = np.full(h.size, NEVER, np.int64)
        if self.exact:
            rows = _HashedRows(h, keys)
            for promises in self.exact:
                _lower(least, promises, rows)
        if has_key is not None:
            least[~has_key] = NEVER
        if self.patterns:
            values = list(keys) or [pa.array(unmixed(h), mask=None if has_key is None else ~has_key)]
            for pattern in sorted(self.patterns, key=lambda pattern: -pattern.p):
                least[_matches(pattern, values, h.size) & (least > pattern.p)] = pattern.p
        return least

    def earliest_of_values(self, values: Sequence[pa.Array], *, whole: bool) -> Ints:
        """Return the same for rows given by key values, in the form in which promises are stored."""
        if whole:
            return self.earliest(mix(as_int64(values[0]).fill_null(0).to_numpy(zero_copy_only=False)), ())
        size = len(values[0])
        least = np.full(size, NEVER, np.int64)
        for promises in self.exact:
            both = [
                pa.concat_arrays([mine, their]) for mine, their in zip(values, promises.keys, strict=True)
            ]
            ids, firsts = number_groups([codes_of(one) for one in both])
            of_key = np.full(firsts.size, NEVER, np.int64)
            np.minimum.at(of_key, ids[size:], promises.p)
            least = np.minimum(least, of_key[ids[:size]])
        for pattern in self.patterns:
            covered = _matches(pattern, values, size)
            least[covered] = np.minimum(least[covered], pattern.p)
        return least


def _lower(least: Ints, promises: ValuePromises, rows: _HashedRows) -> None:
    """Lower the p of rows with promises about single values; the smaller side is searched in the larger."""
    row, promise = rows.met_by(promises) if promises.h.size < rows.h.size else rows.found_in(promises)
    if rows.keys and row.size:
        same = np.ones(row.size, np.bool_)
        for mine, theirs in zip(rows.keys, promises.keys, strict=True):
            same &= equal_values(mine.take(pa.array(row)), theirs.take(pa.array(promise)))
        row, promise = row[same], promise[same]
    np.minimum.at(least, row, promises.p[promise])


class _HashedRows:
    """Rows sorted by hash."""

    def __init__(self, h: Hashes, keys: Sequence[pa.Array]) -> None:
        self.keys = keys
        self.order = None if h.size < 2 or bool((h[:-1] <= h[1:]).all()) else np.argsort(h)  # noqa: PLR2004 - a pair
        self.h = h if self.order is None else h[self.order]

    def met_by(self, promises: ValuePromises) -> tuple[Ints, Ints]:
        """Return the rows with each promise's hash: numbers of rows, and of promises."""
        first, last = (np.searchsorted(self.h, promises.h, side) for side in ("left", "right"))
        at, promise = lay_ranges(first, last)
        return (at if self.order is None else self.order[at]), promise

    def found_in(self, promises: ValuePromises) -> tuple[Ints, Ints]:
        """Return the promises with each row's hash: numbers of rows, and of promises."""
        first, last = (np.searchsorted(promises.h, self.h, side) for side in ("left", "right"))
        promise, at = lay_ranges(first, last)
        return (at if self.order is None else self.order[at]), promise


def _matches(pattern: RangePromise, values: Sequence[pa.Array], size: int) -> Mask:
    """Return which rows are within all bounds of a range."""
    matches = np.ones(size, np.bool_)
    for value, (low, high) in zip(values, pattern.bounds, strict=True):
        if low is not None:
            matches &= _holds(pc.greater_equal(value, low))
        if high is not None:
            matches &= _holds(pc.less_equal(value, high))
    return matches


def _holds(answers: pa.Array) -> Mask:
    return np.asarray(pc.fill_null(answers, fill_value=False).to_numpy(zero_copy_only=False), np.bool_)


def as_int64(values: pa.Array) -> pa.Array:
    """Convert values of a type of at most 64 bits to integers, as Spark's cast to BIGINT does."""
    if pa.types.is_boolean(values.type):
        return values.cast(pa.int8()).cast(pa.int64())
    if pa.types.is_date32(values.type):
        return values.cast(pa.int32()).cast(pa.int64())
    return values.cast(pa.int64())


# --- files ----------------------------------------------------------------------------------------------------------


def open_promises(files: Files, kept: PromiseFiles) -> PromiseSet:
    """Map files of promises."""
    return PromiseSet(
        tuple(read_exact(files, segment) for segment in kept.exact),
        tuple(pattern for segment in kept.patterns for pattern in read_patterns(files, segment)),
    )


def read_exact(files: Files, segment: Segment) -> ValuePromises:
    """Map promises about single values."""
    rows = read_segment(files, segment)
    return ValuePromises(rows.rows.h, rows.rows.t, tuple(rows.keys()))


def read_patterns(files: Files, segment: Segment) -> list[RangePromise]:
    """Read promises about ranges."""
    rows = read_segment(files, segment)
    names = [name for name in rows.batch.schema.names if name.startswith(_LOW)]
    bounds = [(rows.batch.column(name), rows.batch.column(_HIGH + name[len(_LOW) :])) for name in names]
    return patterns_of(rows.rows.t, bounds)


def patterns_of(p: Ints, bounds: Bounds) -> list[RangePromise]:
    """Return promises about ranges one by one."""
    return [
        RangePromise(int(least), tuple((_known(low, row), _known(high, row)) for low, high in bounds))
        for row, least in enumerate(p)
    ]


def _known(values: pa.Array | None, row: int) -> pa.Scalar | None:
    return values[row] if values is not None and values[row].is_valid else None


def in_order(h: Hashes, p: Ints, keys: Sequence[pa.Array]) -> ValuePromises:
    """Sort promises about single values; remove those that another one of the same value implies."""
    order = sort_rows(h, p)
    order = order[_first_of_value(h[order], [key.take(pa.array(order)) for key in keys])]
    return ValuePromises(h[order], p[order], tuple(key.take(pa.array(order)) for key in keys))


def _first_of_value(h: Hashes, keys: Sequence[pa.Array]) -> Mask:
    """Return which promises are the first of their value; values with equal hashes may be kept twice."""
    first = np.ones(h.size, np.bool_)
    first[1:] = h[1:] != h[:-1]
    for key in keys:
        first[1:] |= ~equal_values(key.slice(1), key.slice(0, max(0, len(key) - 1)))
    return first


def write_exact(
    files: Files, index: str, promises: ValuePromises, batch: int, *, generation: int = 0
) -> Segment | None:
    """Write promises about single values."""
    columns = {f"{KEY}{number}": key for number, key in enumerate(promises.keys)}
    return _write(files, index, (promises.h, promises.p), columns, (batch, generation))


def write_patterns(
    files: Files, index: str, p: Ints, bounds: Bounds, batch: int, *, generation: int = 0
) -> Segment | None:
    """Write promises about ranges; a part of the key that is always open is written as nulls."""
    open_end = pa.nulls(p.size, pa.int8())
    columns = {}
    for number, (low, high) in enumerate(bounds):
        columns[f"{_LOW}{number}"] = open_end if low is None else low
        columns[f"{_HIGH}{number}"] = open_end if high is None else high
    return _write(files, index, (np.zeros(p.size, np.uint64), p), columns, (batch, generation))


def _write(
    files: Files,
    index: str,
    sorted_by: tuple[Hashes, Ints],
    columns: dict[str, pa.Array],
    number: tuple[int, int],
) -> Segment | None:
    (h, p), (batch, generation) = sorted_by, number
    if not p.size:
        return None
    content = SegmentColumns(h, p, None, to_words([0], 0), columns, {})
    name = f"log/promises-{index}/{batch:010d}-{uuid.uuid4().hex}.arrow"
    order = sort_rows(h, p)
    return write_ordered(files, name, content, order, first=batch, last=batch, generation=generation)


@dataclass(frozen=True, slots=True)
class BrokenTask:
    """A task that counts the rows of a segment that break a promise of their own stream."""

    segment: Segment
    known: PromiseFiles

    def run(self, files: Files) -> int:
        """Count the rows."""
        rows = read_segment(files, self.segment)
        least = open_promises(files, self.known).earliest(rows.rows.h, rows.keys())
        return int((rows.rows.t > least).sum())
