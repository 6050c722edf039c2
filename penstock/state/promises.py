"""Promises, remembered: which values of a stream are finished, and since when.

A promise ``(k, p)`` says that no row of its stream with the key k has an event time after p.  A stream's promises are
kept by one key or several (`penstock.plan.promises.PromiseIndex`), each in two kinds of file:

    exact       one value for each part of the key: sorted by ``(h, p)`` like the rows of a log, so that a row's promise
                is found by binary search, among millions
    patterns    ranges and wildcards: bounds for each part of the key, null where it is open; few

Whatever is asked of promises follows from one answer, `earliest`: the least p of all promises that cover a row::

    b breaks its own stream's promise          T_b > p
    a has met all partners it will have        p < watermark of the partner, at the group's cursor
    a can meet nobody at all                   p is a window or more before T_a

Forgetting a promise never changes a result: its rows are only kept for longer.

In:  promises as ingest finds them.  Out: files, and the least p for each of some rows.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock import limits
from penstock.kernels.column_checks import equal_values
from penstock.kernels.fold import codes_of, number_groups
from penstock.kernels.key_hash import mix, unmixed
from penstock.kernels.sets import to_words
from penstock.kernels.sorting import lay_ranges, sort_rows
from penstock.state.segment import KEY, Segment, SegmentColumns, read_segment, write_ordered

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from numpy.typing import NDArray

    from penstock.kernels.key_hash import Hashes, Ints
    from penstock.state.files import Files

    Mask = NDArray[np.bool_]
    Bounds = list[tuple[pa.Array | None, pa.Array | None]]
    _Box = tuple[tuple[Any, Any], ...]

NEVER = 1 << 62
"""The p of a row that no promise covers."""

_LOW, _HIGH = "low", "high"


@dataclass(frozen=True, slots=True)
class PromiseFiles:
    """The files of some promises about one stream, by one key."""

    exact: tuple[Segment, ...] = ()
    patterns: tuple[Segment, ...] = ()
    forgotten: int = 0
    """Promises that were let go because there were too many."""
    merged: int = 0
    """Promises that are not kept because others say as much."""

    @property
    def rows(self) -> int:
        """Count the promises."""
        return sum(each.rows for each in self.files())

    def files(self) -> tuple[Segment, ...]:
        """List the files of both kinds."""
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
        """Take files away."""
        exact, patterns = (
            tuple(each for each in some if each.name not in names) for some in (self.exact, self.patterns)
        )
        return PromiseFiles(exact, patterns, self.forgotten, self.merged)

    def bare(self) -> PromiseFiles:
        """Leave out the statistics, which tasks do not read."""
        exact, patterns = (tuple(each.bare() for each in some) for some in (self.exact, self.patterns))
        return PromiseFiles(exact, patterns)

    def before(self, time: int) -> float:
        """Say about how many promises there have been with a p before an event time.

        It grows as time passes, whatever becomes of promises: those that are gone count as before any time.
        """
        counts = (count for each in self.files() for count in each.patterns)
        return self.forgotten + self.merged + sum(each.rows - each.rows_after(time - 1) for each in counts)


@dataclass(frozen=True, slots=True)
class Exact:
    """Promises about single values, sorted by ``(h, p)``; `keys` are empty where the hash is the whole key."""

    h: Hashes
    p: Ints
    keys: tuple[pa.Array, ...] = ()


@dataclass(frozen=True, slots=True)
class Pattern:
    """One promise about ranges: for each part of the key its lowest and highest value, None where it is open."""

    p: int
    bounds: tuple[tuple[pa.Scalar | None, pa.Scalar | None], ...]


@dataclass(frozen=True, slots=True)
class PromiseSet:
    """Promises that rows are held against."""

    exact: tuple[Exact, ...] = ()
    patterns: tuple[Pattern, ...] = ()

    def earliest(self, h: Hashes, keys: Sequence[pa.Array], has_key: Mask | None = None) -> Ints:
        """Give for each row the least p of all promises that cover it; `NEVER` if there is none.

        `has_key` is false for rows with a null in their key: no single value covers them, and a range only where it is
        open for the null.

        >>> known = PromiseSet((Exact(mix(np.array([7])), np.array([100])),))
        >>> known.earliest(mix(np.array([7, 8])), ()).tolist() == [100, NEVER]
        True
        """
        least = np.full(h.size, NEVER, np.int64)
        if self.exact:
            rows = _Rows(h, keys)
            for each in self.exact:
                _lower(least, each, rows)
        if has_key is not None:
            least[~has_key] = NEVER
        if self.patterns:
            values = list(keys) or [pa.array(unmixed(h), mask=None if has_key is None else ~has_key)]
            for pattern in sorted(self.patterns, key=lambda each: -each.p):
                least[_matches(pattern, values, h.size) & (least > pattern.p)] = pattern.p
        return least

    def earliest_of_values(self, values: Sequence[pa.Array], *, whole: bool) -> Ints:
        """Give the same for rows of which only the key's values are known, in the form that promises are kept in."""
        if whole:
            return self.earliest(mix(as_int64(values[0]).fill_null(0).to_numpy(zero_copy_only=False)), ())
        size = len(values[0])
        least = np.full(size, NEVER, np.int64)
        for each in self.exact:
            both = [pa.concat_arrays([mine, their]) for mine, their in zip(values, each.keys, strict=True)]
            ids, firsts = number_groups([codes_of(one) for one in both])
            of_key = np.full(firsts.size, NEVER, np.int64)
            np.minimum.at(of_key, ids[size:], each.p)
            least = np.minimum(least, of_key[ids[:size]])
        for pattern in self.patterns:
            covered = _matches(pattern, values, size)
            least[covered] = np.minimum(least[covered], pattern.p)
        return least


def _lower(least: Ints, promises: Exact, rows: _Rows) -> None:
    """Lower the p of rows that promises about single values cover; the smaller side is looked up in the larger."""
    row, promise = rows.met_by(promises) if promises.h.size < rows.h.size else rows.found_in(promises)
    if rows.keys and row.size:
        same = np.ones(row.size, np.bool_)
        for mine, theirs in zip(rows.keys, promises.keys, strict=True):
            same &= equal_values(mine.take(pa.array(row)), theirs.take(pa.array(promise)))
        row, promise = row[same], promise[same]
    np.minimum.at(least, row, promises.p[promise])


class _Rows:
    """Rows in the order of their hashes."""

    def __init__(self, h: Hashes, keys: Sequence[pa.Array]) -> None:
        self.keys = keys
        self.order = None if h.size < 2 or bool((h[:-1] <= h[1:]).all()) else np.argsort(h)  # noqa: PLR2004 - a pair
        self.h = h if self.order is None else h[self.order]

    def met_by(self, promises: Exact) -> tuple[Ints, Ints]:
        """Find the rows of each promise's hash: numbers of rows, and of promises."""
        first, last = (np.searchsorted(self.h, promises.h, side) for side in ("left", "right"))
        at, promise = lay_ranges(first, last)
        return (at if self.order is None else self.order[at]), promise

    def found_in(self, promises: Exact) -> tuple[Ints, Ints]:
        """Find the promises of each row's hash: numbers of rows, and of promises."""
        first, last = (np.searchsorted(promises.h, self.h, side) for side in ("left", "right"))
        promise, at = lay_ranges(first, last)
        return (at if self.order is None else self.order[at]), promise


def _matches(pattern: Pattern, values: Sequence[pa.Array], size: int) -> Mask:
    """Say which rows lie within all bounds of a pattern."""
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
    """Write values of a type that fits in 64 bits as Spark's bigint of them."""
    if pa.types.is_boolean(values.type):
        return values.cast(pa.int8()).cast(pa.int64())
    if pa.types.is_date32(values.type):
        return values.cast(pa.int32()).cast(pa.int64())
    return values.cast(pa.int64())


# --- files ----------------------------------------------------------------------------------------------------------


def open_promises(files: Files, kept: PromiseFiles) -> PromiseSet:
    """Map files of promises."""
    return PromiseSet(
        tuple(_read_exact(files, each) for each in kept.exact),
        tuple(pattern for each in kept.patterns for pattern in _read_patterns(files, each)),
    )


def _read_exact(files: Files, segment: Segment) -> Exact:
    rows = read_segment(files, segment)
    return Exact(rows.rows.h, rows.rows.t, tuple(rows.keys()))


def _read_patterns(files: Files, segment: Segment) -> list[Pattern]:
    """Read ranges; the lowest and highest value of each part of the key stand side by side."""
    rows = read_segment(files, segment)
    names = [name for name in rows.batch.schema.names if name.startswith(_LOW)]
    bounds = [(rows.batch.column(name), rows.batch.column(_HIGH + name[len(_LOW) :])) for name in names]
    return patterns_of(rows.rows.t, bounds)


def patterns_of(p: Ints, bounds: Bounds) -> list[Pattern]:
    """Give promises about ranges one by one."""
    return [
        Pattern(int(each), tuple((_known(low, row), _known(high, row)) for low, high in bounds))
        for row, each in enumerate(p)
    ]


def _known(values: pa.Array | None, row: int) -> pa.Scalar | None:
    return values[row] if values is not None and values[row].is_valid else None


def in_order(h: Hashes, p: Ints, keys: Sequence[pa.Array]) -> Exact:
    """Put promises about single values in order, leaving out what another one of the same value says already."""
    order = sort_rows(h, p)
    order = order[_first_of_value(h[order], [each.take(pa.array(order)) for each in keys])]
    return Exact(h[order], p[order], tuple(each.take(pa.array(order)) for each in keys))


def _first_of_value(h: Hashes, keys: Sequence[pa.Array]) -> Mask:
    """Say which promises are the first of their value; where values of equal hash alternate, a few are kept twice."""
    first = np.ones(h.size, np.bool_)
    first[1:] = h[1:] != h[:-1]
    for each in keys:
        first[1:] |= ~equal_values(each.slice(1), each.slice(0, max(0, len(each) - 1)))
    return first


def write_exact(
    files: Files, index: str, promises: Exact, batch: int, *, generation: int = 0
) -> Segment | None:
    """Write promises about single values."""
    columns = {f"{KEY}{number}": each for number, each in enumerate(promises.keys)}
    return _write(files, index, (promises.h, promises.p), columns, (batch, generation))


def write_patterns(
    files: Files, index: str, p: Ints, bounds: Bounds, batch: int, *, generation: int = 0
) -> Segment | None:
    """Write promises about ranges; a part of the key that none of them bounds is written as nulls."""
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
    """Counts the rows of a segment that come after a promise of their own stream."""

    segment: Segment
    known: PromiseFiles

    def run(self, files: Files) -> int:
        """Count the rows."""
        rows = read_segment(files, self.segment)
        least = open_promises(files, self.known).earliest(rows.rows.h, rows.keys())
        return int((rows.rows.t > least).sum())


# --- fewer files, fewer promises ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PromiseMerge:
    """Files of one index that become one; if there are more promises than `most`, the newest stay."""

    index: str
    files: tuple[Segment, ...]
    most: int | None = None
    ranges: bool = False

    def result(self, made: Segment | None) -> PromiseFiles:
        """Say what takes the place of the files, and how many promises are forgotten or follow from others."""
        gone = sum(each.rows for each in self.files) - (made.rows if made else 0)
        counts = (0, gone) if self.most is None else (gone, 0)
        some = (made,) if made else ()
        return PromiseFiles((), some, *counts) if self.ranges else PromiseFiles(some, (), *counts)

    def bare(self) -> PromiseMerge:
        """Leave out the statistics, which tasks do not read."""
        return replace(self, files=tuple(each.bare() for each in self.files))

    def run(self, files: Files) -> Segment | None:
        """Write one file of several; None if no promise is left."""
        return merge_promises(files, self)


def choose_promise_merges(index: str, kept: PromiseFiles, budget: int) -> list[PromiseMerge]:
    """Choose files to merge: those of a generation that has enough of them; all, where promises must be forgotten."""
    chosen = []
    for some, ranges, most in ((kept.exact, False, budget), (kept.patterns, True, limits.MAX_PROMISE_RANGES)):
        if sum(each.rows for each in some) > most * (1 + limits.PROMISE_SLACK_SHARE):
            chosen.append(PromiseMerge(index, some, most, ranges))
            continue
        generations: dict[int, list[Segment]] = {}
        for each in some:
            generations.setdefault(each.generation, []).append(each)
        chosen += [
            PromiseMerge(index, tuple(each[: limits.MERGE_FAN_IN]), ranges=ranges)
            for each in generations.values()
            if len(each) >= limits.MERGE_FAN_IN
        ]
    return chosen


def merge_promises(files: Files, merge: PromiseMerge) -> Segment | None:
    """Make one file of several; of equal values the least p is kept."""
    batch = max(each.last for each in merge.files)
    generation = merge.files[0].generation + (1 if len(merge.files) > 1 else 0)
    if merge.ranges:
        return _merge_patterns(files, merge, batch, generation)
    parts = [_read_exact(files, each) for each in merge.files]
    h, p = (np.concatenate([getattr(each, name) for each in parts]) for name in ("h", "p"))
    keys = [pa.concat_arrays(each) for each in zip(*(part.keys for part in parts), strict=True)]
    made = in_order(h, p, keys)
    if merge.most is not None and made.p.size > merge.most:
        newest = np.sort(np.argpartition(made.p, made.p.size - merge.most)[-merge.most :])
        kept = (each.take(pa.array(newest)) for each in made.keys)
        made = Exact(made.h[newest], made.p[newest], tuple(kept))
    return write_exact(files, merge.index, made, batch, generation=generation)


def _merge_patterns(files: Files, merge: PromiseMerge, batch: int, generation: int) -> Segment | None:
    patterns = [each for file in merge.files for each in _read_patterns(files, file)]
    kept = _without_implied(patterns)[: merge.most]
    p = np.array([each.p for each in kept], np.int64)
    bounds: Bounds = []
    for number in range(len(patterns[0].bounds)):
        sides = [[each.bounds[number][side] for each in kept] for side in (0, 1)]
        bounds.append((_column(sides[0]), _column(sides[1])))
    return write_patterns(files, merge.index, p, bounds, batch, generation=generation)


def _column(values: Sequence[pa.Scalar | None]) -> pa.Array | None:
    """Lay values side by side; None if all are open."""
    kind = next((each.type for each in values if each is not None), None)
    if kind is None:
        return None
    nothing = pa.scalar(None, kind)
    return pa.array([nothing if each is None else each for each in values], kind)


def _without_implied(patterns: Iterable[Pattern]) -> list[Pattern]:
    """Leave out promises that follow from one that was made before them and is about all their values."""
    kept: list[tuple[Pattern, _Box]] = []
    for each in sorted(patterns, key=lambda one: one.p):
        box = tuple((_plain(low), _plain(high)) for low, high in each.bounds)
        if not any(_includes(other, box) for _, other in kept):
            kept.append((each, box))
    return [each for each, _ in reversed(kept)]  # the newest first


def _plain(bound: pa.Scalar | None) -> Any:
    """Give a value that is compared fast, since each range is compared with every other."""
    if bound is None:
        return None
    whole = {pa.types.is_timestamp: pa.int64(), pa.types.is_date32: pa.int32()}
    kind = next((to for is_such, to in whole.items() if is_such(bound.type)), bound.type)
    return bound.cast(kind).as_py()


def _includes(wide: _Box, narrow: _Box) -> bool:
    """Say whether one range covers all that another does."""
    for (low, high), (least, most) in zip(wide, narrow, strict=True):
        if low is not None and (least is None or not low <= least):
            return False
        if high is not None and (most is None or not high >= most):
            return False
    return True
