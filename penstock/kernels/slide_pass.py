"""Slide all measures in one pass: counts, sums and minima of one side or two, for each window at each instant.

Each part of a measure has its own cells and totals (see `penstock.kernels.slide`).  All parts of a block are processed
before the next block, while they are in the processor's cache.  The sums of a side are multiplied by the rows of the
other side::

    left    count 2   least 5          right   count 3   sum 1.5          2 * 3 pairs   least 5   sum 1.5 * 2

The entries of a side may come from several files, each in order of birth.  These *runs* are not merged.

`slide_groups` adds up the answers of *members*, which are keys of the join in a group and neighbours::

    member          0       1       2             group     0             1
    left rows       2       1       4             pairs     2*3 + 1*0     4*1
    right rows      3       0       1

In:  the cells of the entries of one or two sides, run by run, and their parts.
Out: for each window and instant the groups that both sides have, and their parts.  Answers that are only counted are
     computed too, into memory that the next window overwrites.
Always true: products and sums of integers fit 64 bits; the caller makes sure of that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.kernels.slide import WindowAnswers, starts_of
from penstock.kernels.slide_kernels import MOST, slide, slide_by_group

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from penstock.kernels.key_hash import Ints
    from penstock.kernels.slide import Sliding

    Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class SideParts:
    """The parts of one side's entries, in the order of its runs and their entries."""

    counts: Ints
    """The number of rows of each entry."""
    ints: Sequence[Ints] = ()
    """Sums of integers."""
    floats: Sequence[Floats] = ()
    """Sums of floats."""
    leasts: Sequence[Ints] = ()
    """Numbers of which the minimum is taken; the maximum of 64 bits for an entry without values."""
    turns: Sequence[tuple[int, int]] = ()
    """By minimum: two masks that turn it into the bits of a value (`penstock.kernels.slide_kernels`)."""


@dataclass(frozen=True, slots=True)
class SlidParts:
    """The parts of one side in each answer, one row for each part; sums are multiplied by the other side's rows."""

    counts: Ints
    """The side's rows, if requested."""
    ints: Ints
    floats: Floats
    leasts: Ints
    """As bits of values."""


@dataclass(frozen=True, slots=True)
class Slid:
    """The answers of windows, with the number of their pairs, and the parts of each side."""

    seen: WindowAnswers
    sides: list[SlidParts]


def slide_parts(
    sides: Sequence[Sequence[Sliding]],
    parts: Sequence[SideParts],
    *,
    keep: bool = True,
    with_counts: bool = False,
) -> Slid:
    """Slide windows over all parts of one side or two, each with some runs; all have the same windows.

    Without `keep`, answers are computed and only their numbers are returned.

    >>> from penstock.kernels.slide import Sliding
    >>> left = Sliding(np.array([0, 1]), np.array([2]), np.array([[0]]), groups=2, cuts=1)
    >>> right = Sliding(np.array([1]), np.array([1]), np.array([[0]]), groups=2, cuts=1)
    >>> one = SideParts(np.array([1, 2]), leasts=[np.array([7, 5])], turns=[(0, 0)])
    >>> two = SideParts(np.array([3]), floats=[np.array([1.5])])
    >>> slid = slide_parts([[left], [right]], [one, two])
    >>> slid.seen.groups.tolist(), slid.seen.counts.tolist()
    ([1], [6])
    >>> slid.sides[0].leasts.tolist(), slid.sides[1].floats.tolist()
    ([[5]], [[3.0]])
    """
    first = sides[0][0]
    room = first.asked.size * first.groups if keep else first.groups
    numbers, cells, totals = _room_for(first, parts)
    _, *outputs = _arrays([0, *numbers[1:]], room)
    counts = np.empty((len(parts), room if with_counts else 0), np.int64)
    answers = np.empty((2, room), np.int64)
    sizes = np.zeros(first.asked.shape, np.int64)
    turns = np.array([turn for part in parts for turn in part.turns], np.int64).reshape(-1, 2)
    entries = _entries_of(sides, parts)
    slide(entries, first.asked, cells, totals, turns, (counts, *outputs), answers, sizes, keep)
    starts, total = starts_of(sizes)
    kept = total if keep else 0
    seen = WindowAnswers(answers[0, :kept], answers[1, :kept], starts, sizes)
    return Slid(seen, _by_side((counts, *outputs), parts, kept))


def _room_for(sliding: Sliding, parts: Sequence[SideParts]) -> tuple[list[int], Any, Any]:
    """Return the number of parts of each kind on all sides, and arrays for their cells and totals."""
    by_kind = zip(*map(_kinds, parts), strict=True)
    numbers = [len(parts), *(sum(len(part) for part in kind) for kind in by_kind)]
    cells, totals = (_arrays(numbers, size) for size in (sliding.cuts * sliding.groups, sliding.groups))
    return numbers, cells, totals


def _kinds(parts: SideParts) -> tuple[Sequence[Ints], Sequence[Floats], Sequence[Ints]]:
    return parts.ints, parts.floats, parts.leasts


def _arrays(numbers: Sequence[int], size: int) -> tuple[Ints, Ints, Floats, Ints]:
    """Return arrays for so many counts, integers, floats and minima."""
    counts, ints, floats, leasts = numbers
    whole = (np.empty((kind, size), np.int64) for kind in (counts, ints, leasts))
    return next(whole), next(whole), np.empty((floats, size)), next(whole)


def _entries_of(sides: Sequence[Sequence[Sliding]], parts: Sequence[SideParts]) -> Any:
    """Concatenate the entries of all sides: cells, runs, entries born by each instant, and parts."""
    runs = [run for mine in sides for run in mine]
    firsts = np.cumsum([0, *(run.at.size for run in runs)])[:-1]
    at = np.concatenate([run.at for run in runs])
    upto = np.array([run.upto + first for run, first in zip(runs, firsts, strict=True)])
    of_side = np.cumsum([0, *(len(mine) for mine in sides)])
    offsets = firsts[of_side[:-1]].tolist()
    counts, ints, floats, leasts = zip(*(([part.counts], *_kinds(part)) for part in parts), strict=True)
    whole = (_end_to_end(kind, offsets, np.int64) for kind in (counts, ints, leasts))
    of_floats = _end_to_end(floats, offsets, np.float64)
    return at, (of_side, upto, firsts.copy()), next(whole), next(whole), of_floats, next(whole)


def _end_to_end(parts: Sequence[Sequence[Any]], offsets: Sequence[int], kind: type) -> tuple[Any, Ints, Ints]:
    """Concatenate the parts of all sides: all values, the offset of an entry's index in each part, and its side."""
    values: list[NDArray[Any]] = [np.zeros(0, kind)]
    moved, sides, size = list[int](), list[int](), 0
    for side, mine in enumerate(parts):
        for part in mine:
            values.append(part)
            moved.append(size - offsets[side])
            sides.append(side)
            size += part.size
    return np.concatenate(values), np.array(moved, np.int64), np.array(sides, np.int64)


def _by_side(outputs: tuple[Any, ...], parts: Sequence[SideParts], kept: int) -> list[SlidParts]:
    """Divide the outputs by side."""
    counts, *columns = (output[:, :kept] for output in outputs)
    sides, done = [], [0, 0, 0]
    for number, part in enumerate(parts):
        ends = [first + len(some) for first, some in zip(done, _kinds(part), strict=True)]
        mine = (column[first:end] for column, first, end in zip(columns, done, ends, strict=True))
        sides.append(SlidParts(counts[number], *mine))
        done = ends
    return sides


def slide_groups(
    sides: Sequence[Sequence[Sliding]], parts: Sequence[SideParts], bounds: Ints
) -> tuple[Ints, list[SlidParts]]:
    """Slide windows over two sides: the pairs of each group, and the parts of each side; by window, instant and group.

    `bounds` are the first members of the groups, and the end of the last.  Minima are numbers in the order of values,
    not their bits.  A group without a pair has count 0.

    >>> from penstock.kernels.slide import Sliding
    >>> both = Sliding(np.array([0, 1, 2]), np.array([3]), np.array([[0]]), groups=3, cuts=1)
    >>> left = SideParts(np.array([2, 1, 4]), leasts=[np.array([7, 5, 6])], turns=[(0, 0)])
    >>> right = SideParts(np.array([3, 0, 1]), floats=[np.array([1.5, 0, 2])])
    >>> pairs, (one, other) = slide_groups([[both], [both]], [left, right], np.array([0, 2, 3]))
    >>> pairs.tolist(), one.leasts.tolist(), other.floats.tolist()
    ([6, 4], [[7, 6]], [[3.0, 8.0]])
    """
    first = sides[0][0]
    numbers, cells, totals = _room_for(first, parts)
    size = first.asked.size * (bounds.size - 1)
    ints, floats = np.zeros((numbers[1], size), np.int64), np.zeros((numbers[2], size))
    leasts = np.full((numbers[3], size), MOST)
    pairs = np.zeros((1, size), np.int64)
    slide_by_group(
        _entries_of(sides, parts), first.asked, cells, totals, bounds, (pairs, ints, floats, leasts)
    )
    none = np.empty((len(parts), 0), np.int64)
    return pairs[0], _by_side((none, ints, floats, leasts), parts, size)
