"""All that slides, in one pass: counts, sums and least values of one side or two, for each window at each instant.

Each part of a measure has cells and totals of its own (see `penstock.kernels.slide`), and all of them move together, so
that what is in the processor's cache is used for everything before it is left.  What a side comes to counts as often
as the other side has rows::

    left    count 2   least 5          right   count 3   sum 1.5          2 * 3 pairs   least 5   sum 1.5 * 2

The entries of a side may come from several files, each in order of birth: they are *runs*, and need not be put in
one order.

In:  the cells of the entries of one or two sides, run by run, and their parts.
Out: for each window and instant the groups that both sides have, and their parts.  Where nobody keeps them, every part
     is computed all the same, into memory that the next window writes over.
Always true: products of whole numbers fit 64 bits, which whoever gives the parts has made sure of.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.kernels.slide import Seen, starts_of
from penstock.kernels.slide_kernels import MOST, slide, slide_by_group

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from penstock.kernels.key_hash import Ints
    from penstock.kernels.slide import Sliding

    Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Parts:
    """What the entries of one side are made of: parts in the order of its runs and their entries."""

    counts: Ints
    """How many rows each entry is of."""
    ints: Sequence[Ints] = ()
    """Sums of whole numbers."""
    floats: Sequence[Floats] = ()
    """Sums of floating point."""
    leasts: Sequence[Ints] = ()
    """Numbers of which the least counts; the greatest there is where an entry has none."""
    turns: Sequence[tuple[int, int]] = ()
    """For each of the leasts two numbers that make it the bits of a value (`penstock.kernels.slide_kernels`)."""


@dataclass(frozen=True, slots=True)
class SlidParts:
    """What one side comes to in each answer, each part a row; sums are times the rows of the other side."""

    counts: Ints
    """How many rows the side has, where somebody asks."""
    ints: Ints
    floats: Floats
    leasts: Ints
    """As bits of values."""


@dataclass(frozen=True, slots=True)
class Slid:
    """What windows see: the answers, with the count of their pairs, and what each side comes to."""

    seen: Seen
    sides: list[SlidParts]


def slide_parts(
    sides: Sequence[Sequence[Sliding]],
    parts: Sequence[Parts],
    *,
    keep: bool = True,
    with_counts: bool = False,
) -> Slid:
    """Slide windows over all parts of one side, or of two, each of which has some runs; all are asked the same.

    What is not kept is computed, and only how many answers there are is known then.

    >>> from penstock.kernels.slide import Sliding
    >>> left = Sliding(np.array([0, 1]), np.array([2]), np.array([[0]]), groups=2, cuts=1)
    >>> right = Sliding(np.array([1]), np.array([1]), np.array([[0]]), groups=2, cuts=1)
    >>> one = Parts(np.array([1, 2]), leasts=[np.array([7, 5])], turns=[(0, 0)])
    >>> two = Parts(np.array([3]), floats=[np.array([1.5])])
    >>> slid = slide_parts([[left], [right]], [one, two])
    >>> slid.seen.groups.tolist(), slid.seen.counts.tolist()
    ([1], [6])
    >>> slid.sides[0].leasts.tolist(), slid.sides[1].floats.tolist()
    ([[5]], [[3.0]])
    """
    first = sides[0][0]
    room = first.asked.size * first.groups if keep else first.groups
    numbers, cells, totals = room_for(first, parts)
    _, *outputs = _arrays([0, *numbers[1:]], room)
    counts = np.empty((len(parts), room if with_counts else 0), np.int64)
    answers = np.empty((2, room), np.int64)
    sizes = np.zeros(first.asked.shape, np.int64)
    turns = np.array([turn for each in parts for turn in each.turns], np.int64).reshape(-1, 2)
    entries = entries_of(sides, parts)
    slide(entries, first.asked, cells, totals, turns, (counts, *outputs), answers, sizes, keep)
    starts, total = starts_of(sizes)
    kept = total if keep else 0
    seen = Seen(answers[0, :kept], answers[1, :kept], starts, sizes)
    return Slid(seen, by_side((counts, *outputs), parts, kept))


def room_for(sliding: Sliding, parts: Sequence[Parts]) -> tuple[list[int], Any, Any]:
    """Make room for cells and totals: how many parts of each kind there are on all sides, and the two."""
    by_kind = zip(*map(_kinds, parts), strict=True)
    numbers = [len(parts), *(sum(len(each) for each in kind) for kind in by_kind)]
    cells, totals = (_arrays(numbers, size) for size in (sliding.cuts * sliding.groups, sliding.groups))
    return numbers, cells, totals


def _kinds(parts: Parts) -> tuple[Sequence[Ints], Sequence[Floats], Sequence[Ints]]:
    return parts.ints, parts.floats, parts.leasts


def _arrays(numbers: Sequence[int], size: int) -> tuple[Ints, Ints, Floats, Ints]:
    """Make room for counts, whole numbers, floating point and leasts, so many of each."""
    counts, ints, floats, leasts = numbers
    whole = (np.empty((each, size), np.int64) for each in (counts, ints, leasts))
    return next(whole), next(whole), np.empty((floats, size)), next(whole)


def entries_of(sides: Sequence[Sequence[Sliding]], parts: Sequence[Parts]) -> Any:
    """Lay the entries of both sides end to end: cells, runs, how many of each are born by an instant, and parts."""
    runs = [each for mine in sides for each in mine]
    firsts = np.cumsum([0, *(each.at.size for each in runs)])[:-1]
    at = np.concatenate([each.at for each in runs])
    upto = np.array([each.upto + first for each, first in zip(runs, firsts, strict=True)])
    of_side = np.cumsum([0, *(len(mine) for mine in sides)])
    offsets = firsts[of_side[:-1]].tolist()
    counts, ints, floats, leasts = zip(*(([each.counts], *_kinds(each)) for each in parts), strict=True)
    whole = (_end_to_end(each, offsets, np.int64) for each in (counts, ints, leasts))
    of_floats = _end_to_end(floats, offsets, np.float64)
    return at, (of_side, upto, firsts.copy()), next(whole), next(whole), of_floats, next(whole)


def _end_to_end(parts: Sequence[Sequence[Any]], offsets: Sequence[int], kind: type) -> tuple[Any, Ints, Ints]:
    """Lay the parts of both sides end to end: all values, by how much an entry's place is moved in each, its side."""
    values: list[NDArray[Any]] = [np.zeros(0, kind)]
    moved, sides, size = list[int](), list[int](), 0
    for side, mine in enumerate(parts):
        for each in mine:
            values.append(each)
            moved.append(size - offsets[side])
            sides.append(side)
            size += each.size
    return np.concatenate(values), np.array(moved, np.int64), np.array(sides, np.int64)


def by_side(outputs: tuple[Any, ...], parts: Sequence[Parts], kept: int) -> list[SlidParts]:
    """Divide what came out by the side that it is of."""
    counts, *columns = (each[:, :kept] for each in outputs)
    sides, done = [], [0, 0, 0]
    for number, each in enumerate(parts):
        ends = [first + len(some) for first, some in zip(done, _kinds(each), strict=True)]
        mine = (column[first:end] for column, first, end in zip(columns, done, ends, strict=True))
        sides.append(SlidParts(counts[number], *mine))
        done = ends
    return sides


def slide_groups(
    sides: Sequence[Sequence[Sliding]], parts: Sequence[Parts], bounds: Ints
) -> tuple[Ints, list[SlidParts]]:
    """Slide windows over two sides: the pairs of each group, and the parts of each side; by window, instant and group.

    `bounds` are where the members of each group begin, and the end of the last.  Leasts are left as
    numbers in the order of values, not turned into the bits of these.

    >>> from penstock.kernels.slide import Sliding
    >>> from penstock.kernels.slide_pass import Parts
    >>> both = Sliding(np.array([0, 1, 2]), np.array([3]), np.array([[0]]), groups=3, cuts=1)
    >>> left = Parts(np.array([2, 1, 4]), leasts=[np.array([7, 5, 6])], turns=[(0, 0)])
    >>> right = Parts(np.array([3, 0, 1]), floats=[np.array([1.5, 0, 2])])
    >>> pairs, (one, other) = slide_groups([[both], [both]], [left, right], np.array([0, 2, 3]))
    >>> pairs.tolist(), one.leasts.tolist(), other.floats.tolist()
    ([6, 4], [[7, 6]], [[3.0, 8.0]])
    """
    first = sides[0][0]
    numbers, cells, totals = room_for(first, parts)
    size = first.asked.size * (bounds.size - 1)
    ints, floats = np.zeros((numbers[1], size), np.int64), np.zeros((numbers[2], size))
    leasts = np.full((numbers[3], size), MOST)
    pairs = np.zeros((1, size), np.int64)
    slide_by_group(
        entries_of(sides, parts), first.asked, cells, totals, bounds, (pairs, ints, floats, leasts)
    )
    none = np.empty((len(parts), 0), np.int64)
    return pairs[0], by_side((none, ints, floats, leasts), parts, size)
