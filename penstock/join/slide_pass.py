"""All that slides, in one pass: counts, sums and least values of one side or two, for each window at each instant.

Each part of a measure has cells and totals of its own (see `penstock.join.slide`), and all of them move together, so
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
from numba import njit

from penstock.join.slide import Seen, starts_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from penstock.join.key_hash import Ints
    from penstock.join.slide import Sliding

    Floats = NDArray[np.float64]

_MOST = np.iinfo(np.int64).max


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
    """For each of the leasts two numbers, by which it becomes the bits of a value: see `_turned`."""


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

    >>> from penstock.join.slide import Sliding
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
    by_kind = zip(*map(_kinds, parts), strict=True)
    numbers = [len(parts), *(sum(len(each) for each in kind) for kind in by_kind)]
    cells, totals = (_arrays(numbers, size) for size in (first.cuts * first.groups, first.groups))
    _, *outputs = _arrays([0, *numbers[1:]], room)
    counts = np.empty((len(parts), room if with_counts else 0), np.int64)
    answers = np.empty((2, room), np.int64)
    sizes = np.zeros(first.asked.shape, np.int64)
    turns = np.array([turn for each in parts for turn in each.turns], np.int64).reshape(-1, 2)
    entries = _entries(sides, parts)
    _slide(entries, first.asked, cells, totals, turns, (counts, *outputs), answers, sizes, keep)
    starts, total = starts_of(sizes)
    kept = total if keep else 0
    seen = Seen(answers[0, :kept], answers[1, :kept], starts, sizes)
    return Slid(seen, _by_side((counts, *outputs), parts, kept))


def _kinds(parts: Parts) -> tuple[Sequence[Ints], Sequence[Floats], Sequence[Ints]]:
    return parts.ints, parts.floats, parts.leasts


def _arrays(numbers: Sequence[int], size: int) -> tuple[Ints, Ints, Floats, Ints]:
    """Make room for counts, whole numbers, floating point and leasts, so many of each."""
    counts, ints, floats, leasts = numbers
    whole = (np.empty((each, size), np.int64) for each in (counts, ints, leasts))
    return next(whole), next(whole), np.empty((floats, size)), next(whole)


def _entries(sides: Sequence[Sequence[Sliding]], parts: Sequence[Parts]) -> Any:
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


def _by_side(outputs: tuple[Any, ...], parts: Sequence[Parts], kept: int) -> list[SlidParts]:
    """Divide what came out by the side that it is of."""
    counts, *columns = (each[:, :kept] for each in outputs)
    sides, done = [], [0, 0, 0]
    for number, each in enumerate(parts):
        ends = [first + len(some) for first, some in zip(done, _kinds(each), strict=True)]
        mine = (column[first:end] for column, first, end in zip(columns, done, ends, strict=True))
        sides.append(SlidParts(counts[number], *mine))
        done = ends
    return sides


# --- the pass -------------------------------------------------------------------------------------------------------
#
# Compiled loops have whole arrays, and places in them that have no sign: a slice would be counted as a reference, and a
# place that may be below 0 asked about, either of which takes longer than what is done there.


@njit(cache=True, nogil=True)
def _slide(
    entries: Any,
    asked: Any,
    cells: Any,
    totals: Any,
    turns: Any,
    outputs: Any,
    answers: Any,
    sizes: Any,
    keep: Any,
) -> None:
    """Write what each window sees at each instant, and how many groups that are.

    What is kept has room for all groups at all instants, window by window.  At the end it moves up.
    """
    int_others, float_others = entries[3][2], entries[4][2]
    count_cells, int_cells, float_cells, least_cells = cells
    count_totals, int_totals, float_totals, least_totals = totals
    count_outs, int_outs, float_outs, least_outs = outputs
    width = count_totals.shape[1]
    times, pairs, other = np.ones((1, width), np.int64), answers[1:], np.zeros(1, np.int64)
    if count_totals.shape[0] > 1:  # what one side comes to counts as often as the other has rows
        times, int_others, float_others, other = count_totals, 1 - int_others, 1 - float_others, 1 - other
    present, ends = np.empty(width + 1, np.uint64), np.arange(asked.shape[1]) * asked.shape[0] * width
    _empty(cells)
    top = 0
    for instant in range(asked.shape[0]):
        top = max(top, _take_in(entries, instant, cells))
        _empty(totals)
        last = top // width + 1  # younger cells are empty
        for window in range(asked.shape[1]):
            cut = asked[instant, window]
            if cut < 0:
                continue
            _add_cells(count_cells, cut, last, count_totals)
            _add_cells(int_cells, cut, last, int_totals)
            _add_cells(float_cells, cut, last, float_totals)
            _lower_cells(least_cells, cut, last, least_totals)
            last = min(last, cut)
            if keep:
                first, size = ends[window], _present(count_totals, present)
                _keep_groups(present, answers, first, size)
                _keep_sums(count_totals, other, times, present, pairs, first, size)
                _keep_counts(count_totals, present, count_outs, first, size)
                _keep_sums(int_totals, int_others, times, present, int_outs, first, size)
                _keep_sums(float_totals, float_others, times, present, float_outs, first, size)
                _keep_leasts(least_totals, turns, present, least_outs, first, size)
                ends[window] = first + size
            else:
                size = _how_many(count_totals)
                _compute_sums(count_totals, other, times, pairs)
                _compute_sums(int_totals, int_others, times, int_outs)
                _compute_sums(float_totals, float_others, times, float_outs)
                _compute_leasts(least_totals, turns, least_outs)
            sizes[instant, window] = size
    if keep:
        _move_up(sizes, answers)
        _move_up(sizes, count_outs)
        _move_up(sizes, int_outs)
        _move_up(sizes, float_outs)
        _move_up(sizes, least_outs)


@njit(cache=True, nogil=True)
def _take_in(entries: Any, instant: Any, cells: Any) -> Any:
    """Put what is born by an instant into its cells; give the last of these."""
    at, runs, counts, ints, floats, leasts = entries
    _, upto, born = runs
    top = _last_cell(at, born, upto, instant)
    _add_entries(at, counts, runs, instant, cells[0])
    _add_entries(at, ints, runs, instant, cells[1])
    _add_entries(at, floats, runs, instant, cells[2])
    _lower_entries(at, leasts, runs, instant, cells[3])
    for run in range(upto.shape[0]):
        born[run] = upto[run, instant]
    return top


@njit(cache=True, nogil=True)
def _empty(some: Any) -> None:
    """Begin with nothing in cells or totals."""
    _fill(some[0], 0)
    _fill(some[1], 0)
    _fill(some[2], 0)
    _fill(some[3], _MOST)


@njit(cache=True, nogil=True)
def _fill(columns: Any, value: Any) -> None:
    for part in range(np.uint64(columns.shape[0])):
        for place in range(np.uint64(columns.shape[1])):
            columns[part, place] = value


@njit(cache=True, nogil=True)
def _last_cell(at: Any, born: Any, upto: Any, instant: Any) -> Any:
    """Give the last cell of the entries that are born by an instant."""
    top = 0
    for run in range(upto.shape[0]):
        for i in range(born[run], upto[run, instant]):
            top = max(top, at[i])
    return top


@njit(cache=True, nogil=True)
def _add_entries(at: Any, parts: Any, runs: Any, instant: Any, cells: Any) -> None:
    """Add entries that are born by an instant to their cells."""
    values, moved, sides = parts
    of_side, upto, born = runs
    for part in range(cells.shape[0]):
        side, by = sides[part], moved[part]
        for run in range(of_side[side], of_side[side + 1]):
            for i in range(born[run], upto[run, instant]):
                cells[part, at[i]] += values[i + by]


@njit(cache=True, nogil=True)
def _lower_entries(at: Any, parts: Any, runs: Any, instant: Any, cells: Any) -> None:
    """Lower cells to entries that are born by an instant."""
    values, moved, sides = parts
    of_side, upto, born = runs
    for part in range(cells.shape[0]):
        side, by = sides[part], moved[part]
        for run in range(of_side[side], of_side[side + 1]):
            for i in range(born[run], upto[run, instant]):
                cells[part, at[i]] = min(cells[part, at[i]], values[i + by])


@njit(cache=True, nogil=True)
def _add_cells(cells: Any, first: Any, last: Any, totals: Any) -> None:
    """Add the cells of some cuts to totals, from the youngest to the oldest, up to three at once."""
    width = np.uint64(totals.shape[1])
    for part in range(np.uint64(totals.shape[0])):
        for cut in range(last - 1, first + 1, -3):
            one, two, three = np.uint64(cut) * width, np.uint64(cut - 1) * width, np.uint64(cut - 2) * width
            for group in range(width):
                total = totals[part, group] + cells[part, one + group] + cells[part, two + group]
                totals[part, group] = total + cells[part, three + group]
        left, one, two = max(0, last - first) % 3, np.uint64(first) * width, np.uint64(first + 1) * width
        if left == 1:
            for group in range(width):
                totals[part, group] += cells[part, one + group]
        elif left:
            for group in range(width):
                total = totals[part, group] + cells[part, two + group]
                totals[part, group] = total + cells[part, one + group]


@njit(cache=True, nogil=True)
def _lower_cells(cells: Any, first: Any, last: Any, totals: Any) -> None:
    """Lower totals to the cells of some cuts, up to three at once."""
    width = np.uint64(totals.shape[1])
    for part in range(np.uint64(totals.shape[0])):
        for cut in range(last - 1, first + 1, -3):
            one, two, three = np.uint64(cut) * width, np.uint64(cut - 1) * width, np.uint64(cut - 2) * width
            for group in range(width):
                least = min(cells[part, one + group], cells[part, two + group])
                least = min(least, cells[part, three + group])
                totals[part, group] = min(totals[part, group], least)
        left, one, two = max(0, last - first) % 3, np.uint64(first) * width, np.uint64(first + 1) * width
        if left == 1:
            for group in range(width):
                totals[part, group] = min(totals[part, group], cells[part, one + group])
        elif left:
            for group in range(width):
                least = min(cells[part, one + group], cells[part, two + group])
                totals[part, group] = min(totals[part, group], least)


@njit(cache=True, nogil=True)
def _turned(number: Any, flip: Any, sign: Any) -> Any:
    """Give the bits of a value: the greatest are kept flipped, and floats below 0 but for their sign."""
    bits = number ^ flip
    return bits ^ ((bits >> np.int64(63)) & sign)


# --- what is only computed ------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def _how_many(totals: Any) -> Any:
    """Count the groups that every side has."""
    size, other = 0, np.uint64(totals.shape[0] - 1)
    for group in range(np.uint64(totals.shape[1])):
        size += (totals[0, group] > 0) & (totals[other, group] > 0)
    return size


@njit(cache=True, nogil=True)
def _compute_sums(totals: Any, others: Any, times: Any, outs: Any) -> None:
    """Multiply the sums of all groups, into the same memory each time."""
    for part in range(np.uint64(others.size)):
        other = np.uint64(others[part])
        for group in range(np.uint64(totals.shape[1])):
            outs[part, group] = totals[part, group] * times[other, group]


@njit(cache=True, nogil=True)
def _compute_leasts(totals: Any, turns: Any, outs: Any) -> None:
    for part in range(np.uint64(totals.shape[0])):
        flip, sign = turns[part, 0], turns[part, 1]
        for group in range(np.uint64(totals.shape[1])):
            outs[part, group] = _turned(totals[part, group], flip, sign)


# --- what is kept ---------------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def _present(totals: Any, present: Any) -> Any:
    """List the groups that every side has; give how many there are."""
    size, other = np.uint64(0), np.uint64(totals.shape[0] - 1)
    for group in range(np.uint64(totals.shape[1])):  # what is none is written over by the next
        present[size] = group
        size += np.uint64((totals[0, group] > 0) & (totals[other, group] > 0))
    return size


@njit(cache=True, nogil=True)
def _keep_groups(present: Any, answers: Any, first: Any, size: Any) -> None:
    """Write the groups that are present."""
    place = np.uint64(first)
    for i in range(size):
        answers[0, place + i] = present[i]


@njit(cache=True, nogil=True)
def _keep_counts(totals: Any, present: Any, outs: Any, first: Any, size: Any) -> None:
    """Write how many rows of each side there are, where there is room for it."""
    place = np.uint64(first)
    for side in range(np.uint64(totals.shape[0] if outs.shape[1] else 0)):
        for i in range(size):
            outs[side, place + i] = totals[side, present[i]]


@njit(cache=True, nogil=True)
def _keep_sums(totals: Any, others: Any, times: Any, present: Any, outs: Any, first: Any, size: Any) -> None:
    """Write the sums of the groups that are present, as often as they count."""
    place = np.uint64(first)
    for part in range(np.uint64(others.size)):
        other = np.uint64(others[part])
        for i in range(size):
            outs[part, place + i] = totals[part, present[i]] * times[other, present[i]]


@njit(cache=True, nogil=True)
def _keep_leasts(totals: Any, turns: Any, present: Any, outs: Any, first: Any, size: Any) -> None:
    place = np.uint64(first)
    for part in range(np.uint64(totals.shape[0])):
        flip, sign = turns[part, 0], turns[part, 1]
        for i in range(size):
            outs[part, place + i] = _turned(totals[part, present[i]], flip, sign)


@njit(cache=True, nogil=True)
def _move_up(sizes: Any, columns: Any) -> None:
    """Lay the answers of windows end to end, each of which has had the same room."""
    room = np.uint64(columns.shape[1] // sizes.shape[1])
    if room == 0:
        return
    for part in range(np.uint64(columns.shape[0])):
        end = np.uint64(0)
        for window in range(np.uint64(sizes.shape[1])):
            start, size = window * room, np.uint64(sizes[:, window].sum())
            for i in range(size if start > end else 0):
                columns[part, end + i] = columns[part, start + i]
            end += size
