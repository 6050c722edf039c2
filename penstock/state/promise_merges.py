"""Merge the files of an index of promises, and forget the oldest promises if there are too many.

In:  the files of an index, and its budget.  Out: tasks (`PromiseMerge`), and the files that replace others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock import limits
from penstock.state.promises import (
    PromiseFiles,
    RangePromise,
    ValuePromises,
    in_order,
    read_exact,
    read_patterns,
    write_exact,
    write_patterns,
)
from penstock.state.segment import Segment

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.state.files import Files
    from penstock.state.promises import Bounds

    _Box = tuple[tuple[Any, Any], ...]


@dataclass(frozen=True, slots=True)
class PromiseMerge:
    """A task that merges files of one index; of more promises than `most`, the newest are kept."""

    index: str
    files: tuple[Segment, ...]
    most: int | None = None
    ranges: bool = False

    def result(self, made: Segment | None) -> PromiseFiles:
        """Return the merged files, with the numbers of forgotten and of implied promises."""
        gone = sum(file.rows for file in self.files) - (made.rows if made else 0)
        counts = (0, gone) if self.most is None else (gone, 0)
        some = (made,) if made else ()
        return PromiseFiles((), some, *counts) if self.ranges else PromiseFiles(some, (), *counts)

    def bare(self) -> PromiseMerge:
        """Remove the statistics, which tasks do not need."""
        return replace(self, files=tuple(file.bare() for file in self.files))

    def run(self, files: Files) -> Segment | None:
        """Merge the files, with the minimum p of each value; None if no promise is left."""
        batch = max(file.last for file in self.files)
        generation = self.files[0].generation + (1 if len(self.files) > 1 else 0)
        if self.ranges:
            return _merge_patterns(files, self, batch, generation)
        parts = [read_exact(files, file) for file in self.files]
        h, p = (np.concatenate([getattr(part, name) for part in parts]) for name in ("h", "p"))
        keys = [pa.concat_arrays(column) for column in zip(*(part.keys for part in parts), strict=True)]
        made = in_order(h, p, keys)
        if self.most is not None and made.p.size > self.most:
            newest = np.sort(np.argpartition(made.p, made.p.size - self.most)[-self.most :])
            kept = (key.take(pa.array(newest)) for key in made.keys)
            made = ValuePromises(made.h[newest], made.p[newest], tuple(kept))
        return write_exact(files, self.index, made, batch, generation=generation)


def choose_promise_merges(index: str, kept: PromiseFiles, budget: int) -> list[PromiseMerge]:
    """Choose files to merge: enough of one generation, or all if promises must be forgotten."""
    chosen = []
    for some, ranges, most in ((kept.exact, False, budget), (kept.patterns, True, limits.MAX_PROMISE_RANGES)):
        if sum(segment.rows for segment in some) > most * (1 + limits.PROMISE_SLACK_SHARE):
            chosen.append(PromiseMerge(index, some, most, ranges))
            continue
        generations: dict[int, list[Segment]] = {}
        for segment in some:
            generations.setdefault(segment.generation, []).append(segment)
        chosen += [
            PromiseMerge(index, tuple(alike[: limits.MERGE_FAN_IN]), ranges=ranges)
            for alike in generations.values()
            if len(alike) >= limits.MERGE_FAN_IN
        ]
    return chosen


def _merge_patterns(files: Files, merge: PromiseMerge, batch: int, generation: int) -> Segment | None:
    patterns = [pattern for file in merge.files for pattern in read_patterns(files, file)]
    kept = _without_implied(patterns)[: merge.most]
    p = np.array([pattern.p for pattern in kept], np.int64)
    bounds: Bounds = []
    for number in range(len(patterns[0].bounds)):
        sides = [[pattern.bounds[number][side] for pattern in kept] for side in (0, 1)]
        bounds.append((_column(sides[0]), _column(sides[1])))
    return write_patterns(files, merge.index, p, bounds, batch, generation=generation)


def _column(values: Sequence[pa.Scalar | None]) -> pa.Array | None:
    """Build a column of bounds; None if all are open."""
    kind = next((value.type for value in values if value is not None), None)
    if kind is None:
        return None
    nothing = pa.scalar(None, kind)
    return pa.array([nothing if value is None else value for value in values], kind)


def _without_implied(patterns: Iterable[RangePromise]) -> list[RangePromise]:
    """Remove promises that an earlier one about all their values implies."""
    kept: list[tuple[RangePromise, _Box]] = []
    for pattern in sorted(patterns, key=lambda one: one.p):
        box = tuple((_plain(low), _plain(high)) for low, high in pattern.bounds)
        if not any(_includes(other, box) for _, other in kept):
            kept.append((pattern, box))
    return [pattern for pattern, _ in reversed(kept)]  # the newest first


def _plain(bound: pa.Scalar | None) -> Any:
    """Return a value that is fast to compare, because each range is compared with all others."""
    if bound is None:
        return None
    whole = {pa.types.is_timestamp: pa.int64(), pa.types.is_date32: pa.int32()}
    kind = next((to for is_such, to in whole.items() if is_such(bound.type)), bound.type)
    return bound.cast(kind).as_py()


def _includes(wide: _Box, narrow: _Box) -> bool:
    """Return whether one range includes another."""
    for (low, high), (least, most) in zip(wide, narrow, strict=True):
        if low is not None and (least is None or not low <= least):
            return False
        if high is not None and (most is None or not high >= most):
            return False
    return True
