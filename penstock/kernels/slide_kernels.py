"""The compiled loops of `penstock.kernels.slide_pass`.

The loops take whole arrays and unsigned indexes for speed: a slice costs a reference count, and a signed index a check
for negative values.

In:  entries, and arrays for cells, totals and outputs, each as counts, integers, floats and minima.
Out: the answers of each window at each instant, written to the outputs, and the number of their groups.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

MOST = np.iinfo(np.int64).max


@njit(cache=True, nogil=True)
def slide(entries, asked, cells, totals, turns, outputs, answers, sizes, keep) -> None:
    """Write the answers of each window at each instant, and the number of their groups.

    Kept outputs have room for all groups at all instants, window by window.  At the end, gaps are closed.
    """
    int_others, float_others = entries[3][2], entries[4][2]
    count_totals, int_totals, float_totals, least_totals = totals
    count_outs, int_outs, float_outs, least_outs = outputs
    width = count_totals.shape[1]
    times, pairs, other = np.ones((1, width), np.int64), answers[1:], np.zeros(1, np.int64)
    if count_totals.shape[0] > 1:  # sums of one side are multiplied by the rows of the other
        times, int_others, float_others, other = count_totals, 1 - int_others, 1 - float_others, 1 - other
    present, ends = np.empty(width + 1, np.uint64), np.arange(asked.shape[1]) * asked.shape[0] * width
    clear(cells)
    top = 0
    for instant in range(asked.shape[0]):
        top = max(top, add_born(entries, instant, cells))
        clear(totals)
        last = top // width + 1  # younger cells are empty
        for window in range(asked.shape[1]):
            cut = asked[instant, window]
            if cut < 0:
                continue
            accumulate(cells, cut, last, totals)
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
def add_born(entries, instant, cells) -> Any:
    """Add the entries born by an instant to their cells; return the last of these cells."""
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
def clear(some) -> None:
    """Clear cells or totals."""
    _fill(some[0], 0)
    _fill(some[1], 0)
    _fill(some[2], 0)
    _fill(some[3], MOST)


@njit(cache=True, nogil=True)
def _fill(columns, value):
    for part in range(np.uint64(columns.shape[0])):
        for place in range(np.uint64(columns.shape[1])):
            columns[part, place] = value


@njit(cache=True, nogil=True)
def _last_cell(at, born, upto, instant):
    top = 0
    for run in range(upto.shape[0]):
        for i in range(born[run], upto[run, instant]):
            top = max(top, at[i])
    return top


@njit(cache=True, nogil=True)
def _add_entries(at, parts, runs, instant, cells):
    values, moved, sides = parts
    of_side, upto, born = runs
    for part in range(cells.shape[0]):
        side, by = sides[part], moved[part]
        for run in range(of_side[side], of_side[side + 1]):
            for i in range(born[run], upto[run, instant]):
                cells[part, at[i]] += values[i + by]


@njit(cache=True, nogil=True)
def _lower_entries(at, parts, runs, instant, cells):
    values, moved, sides = parts
    of_side, upto, born = runs
    for part in range(cells.shape[0]):
        side, by = sides[part], moved[part]
        for run in range(of_side[side], of_side[side + 1]):
            for i in range(born[run], upto[run, instant]):
                cells[part, at[i]] = min(cells[part, at[i]], values[i + by])


@njit(cache=True, nogil=True)
def accumulate(cells, first, last, totals) -> None:
    """Accumulate the cells of some cuts in the totals, all parts of them."""
    _add_cells(cells[0], first, last, totals[0])
    _add_cells(cells[1], first, last, totals[1])
    _add_cells(cells[2], first, last, totals[2])
    _lower_cells(cells[3], first, last, totals[3])


@njit(cache=True, nogil=True)
def _add_cells(cells, first, last, totals):
    """Add the cells of some cuts to the totals, from the youngest to the oldest, three at a time."""
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
def _lower_cells(cells, first, last, totals):
    """Take the minima of the cells of some cuts, three at a time."""
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
def _turned(number, flip, sign):
    """Return the bits of a value: maxima are stored inverted, and negative floats with inverted bits."""
    bits = number ^ flip
    return bits ^ ((bits >> np.int64(63)) & sign)


# --- answers that are only counted ----------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def _how_many(totals):
    """Count the groups that every side has."""
    size, other = 0, np.uint64(totals.shape[0] - 1)
    for group in range(np.uint64(totals.shape[1])):
        size += (totals[0, group] > 0) & (totals[other, group] > 0)
    return size


@njit(cache=True, nogil=True)
def _compute_sums(totals, others, times, outs):
    for part in range(np.uint64(others.size)):
        other = np.uint64(others[part])
        for group in range(np.uint64(totals.shape[1])):
            outs[part, group] = totals[part, group] * times[other, group]


@njit(cache=True, nogil=True)
def _compute_leasts(totals, turns, outs):
    for part in range(np.uint64(totals.shape[0])):
        flip, sign = turns[part, 0], turns[part, 1]
        for group in range(np.uint64(totals.shape[1])):
            outs[part, group] = _turned(totals[part, group], flip, sign)


# --- answers that are kept ------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def _present(totals, present):
    """List the groups that every side has; return their number."""
    size, other = np.uint64(0), np.uint64(totals.shape[0] - 1)
    for group in range(np.uint64(totals.shape[1])):  # a group that is not present is overwritten by the next
        present[size] = group
        size += np.uint64((totals[0, group] > 0) & (totals[other, group] > 0))
    return size


@njit(cache=True, nogil=True)
def _keep_groups(present, answers, first, size):
    place = np.uint64(first)
    for i in range(size):
        answers[0, place + i] = present[i]


@njit(cache=True, nogil=True)
def _keep_counts(totals, present, outs, first, size):
    place = np.uint64(first)
    for side in range(np.uint64(totals.shape[0] if outs.shape[1] else 0)):
        for i in range(size):
            outs[side, place + i] = totals[side, present[i]]


@njit(cache=True, nogil=True)
def _keep_sums(totals, others, times, present, outs, first, size):
    place = np.uint64(first)
    for part in range(np.uint64(others.size)):
        other = np.uint64(others[part])
        for i in range(size):
            outs[part, place + i] = totals[part, present[i]] * times[other, present[i]]


@njit(cache=True, nogil=True)
def _keep_leasts(totals, turns, present, outs, first, size):
    place = np.uint64(first)
    for part in range(np.uint64(totals.shape[0])):
        flip, sign = turns[part, 0], turns[part, 1]
        for i in range(size):
            outs[part, place + i] = _turned(totals[part, present[i]], flip, sign)


@njit(cache=True, nogil=True)
def _move_up(sizes, columns):
    """Close the gaps between the answers of windows."""
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


# --- added up by group --------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def slide_by_group(entries, asked, cells, totals, bounds, outputs) -> None:
    """Write the totals of each group for each window at each instant."""
    int_others, float_others = 1 - entries[3][2], 1 - entries[4][2]
    count_totals, int_totals, float_totals, least_totals = totals
    pairs, int_outs, float_outs, least_outs = outputs
    width, groups = count_totals.shape[1], bounds.size - 1
    right_side = np.ones(1, np.int64)
    clear(cells)
    top = 0
    for instant in range(asked.shape[0]):
        top = max(top, add_born(entries, instant, cells))
        clear(totals)
        last = top // width + 1  # younger cells are empty
        for window in range(asked.shape[1]):
            cut = asked[instant, window]
            if cut < 0:
                continue
            accumulate(cells, cut, last, totals)
            last = min(last, cut)
            first = (window * asked.shape[0] + instant) * groups
            _add_up(count_totals, right_side, count_totals, bounds, pairs, first)
            _add_up(int_totals, int_others, count_totals, bounds, int_outs, first)
            _add_up(float_totals, float_others, count_totals, bounds, float_outs, first)
            _least_of(least_totals, count_totals, bounds, least_outs, first)


@njit(cache=True, nogil=True, fastmath={"reassoc"})
def _add_up(totals, others, times, bounds, outs, first):
    """Add up the members of groups, each times the rows of the other side; a sum without such rows may be NaN."""
    for part in range(np.uint64(outs.shape[0])):
        other = np.uint64(others[part])
        for group in range(bounds.size - 1):
            total = outs[part, first + group]
            for member in range(np.uint64(bounds[group]), np.uint64(bounds[group + 1])):
                often = times[other, member]
                total += totals[part, member] * often if often > 0 else 0
            outs[part, first + group] = total


@njit(cache=True, nogil=True)
def _least_of(totals, counts, bounds, outs, first):
    """Take the minima of the members that both sides have."""
    for part in range(np.uint64(outs.shape[0])):
        for group in range(bounds.size - 1):
            least = outs[part, first + group]
            for member in range(np.uint64(bounds[group]), np.uint64(bounds[group + 1])):
                is_met = (counts[0, member] > 0) & (counts[1, member] > 0)
                least = min(least, totals[part, member] if is_met else MOST)
            outs[part, first + group] = least
