"""Entries of partial aggregates, numbered in the order of first sight by place (birth, pane, readers) and group.

Pairs are folded batch by batch into the same entries, so earlier pairs are never read again.  A place and a group are
a number each; a growing hash table maps both to the number of an entry::

    pair     born 12   pane 4   readers {0, 1}   ──▶ place ─┐
             group 'x'                           ──▶ code  ─┴──▶ entry 17: count 3, sum 9.5, greatest 4.0

In:  times and groups of pairs.  Out: the entry of each pair, and the place and group of each entry.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit

from penstock.kernels.fold import from_whole_numbers, normal_floats, whole_numbers

if TYPE_CHECKING:
    from penstock.kernels.key_hash import Ints

_CLASS_BITS, _PANE_BITS = 6, 27
MOST_CLASSES = 1 << _CLASS_BITS
_MIDDLE_PANE = 1 << (_PANE_BITS - 1)
_BORN_SHIFT = _CLASS_BITS + _PANE_BITS
_MIDDLE_BORN = 1 << (61 - _BORN_SHIFT)
_FIRST_SLOTS = 1 << 12


@dataclass(frozen=True, slots=True)
class Panes:
    """The geometry of panes (see `penstock.plan.panes`), relative to the birth and the pane of the first pair."""

    step: int
    pane: int
    skew: int
    width: int
    born: int
    first_pane: int

    def places(self, left: Ints, right: Ints, classes: Ints) -> Ints | None:
        """Return the place of each pair by the times of its rows; -1 if no window contains the pair.

        None if a pair is so far from the first that its place does not fit the number.
        """
        out = np.empty(left.size, np.int64)
        sizes = (self.step, self.pane, self.skew, self.width, self.born, self.first_pane)
        return out if _place(left, right, classes, sizes, out) else None

    def unpacked(self, places: Ints) -> tuple[Ints, Ints, Ints]:
        """Return the births, panes and class numbers of places."""
        classes = places & (MOST_CLASSES - 1)
        panes = (places >> _CLASS_BITS) & ((1 << _PANE_BITS) - 1)
        born = places >> _BORN_SHIFT
        return (born - _MIDDLE_BORN + self.born) * self.step, panes - _MIDDLE_PANE + self.first_pane, classes


@njit(cache=True, nogil=True)
def _place(left, right, classes, sizes, out):
    """Write the place of each pair; return False if one is out of range."""
    step, pane, skew, width, born0, pane0 = sizes
    for i in range(left.size):
        newer = max(left[i], right[i])
        older = min(left[i] + skew, right[i])
        born = -((-newer) // step)
        number = (older - 1) // pane
        if classes[i] < 0 or number < (born * step - width) // pane:
            out[i] = -1
            continue
        born += _MIDDLE_BORN - born0
        number += _MIDDLE_PANE - pane0
        if born < 0 or born >= 2 * _MIDDLE_BORN or number < 0 or number >= 2 * _MIDDLE_PANE:
            return False
        out[i] = (born << _BORN_SHIFT) | (number << _CLASS_BITS) | classes[i]
    return True


class Numbering:
    """A hash table that numbers pairs of a place and a code in the order of first sight."""

    def __init__(self) -> None:
        """Begin with an empty table."""
        self.size = 0
        self._places, self._codes = np.empty(1024, np.int64), np.empty(1024, np.int64)
        self._slots = np.full(_FIRST_SLOTS, -1, np.int64)

    def number(self, places: Ints, codes: Ints) -> Ints:
        """Return the number of each pair, -1 where the place is -1."""
        ids = np.empty(places.size, np.int64)
        done = 0
        while True:
            done, self.size = _enter(
                places, codes, ids, done, (self._slots, self._places, self._codes), self.size
            )
            if done == places.size:
                return ids
            self._grow()

    def number_apart(self, places: Ints, codes: Ints) -> Ints:
        """Assign a new number to each pair; the table cannot be searched after this call."""
        first, last = self.size, self.size + places.size
        if last > self._places.size:
            self._make_room(max(last, 2 * self._places.size))
        self._places[first:last], self._codes[first:last] = places, codes
        self.size = last
        return np.arange(first, last)

    def _make_room(self, size: int) -> None:
        grown = np.empty((2, size), np.int64)
        grown[0, : self.size], grown[1, : self.size] = self._places[: self.size], self._codes[: self.size]
        self._places, self._codes = grown[0], grown[1]

    def _grow(self) -> None:
        """Double the room for entries, and rebuild the table."""
        self._make_room(2 * self._places.size)
        self._slots = np.full(4 * self._places.size, -1, np.int64)
        _enter_again(self._slots, self._places, self._codes, self.size)

    @property
    def places(self) -> Ints:
        """Return the place of each entry."""
        return self._places[: self.size]

    @property
    def codes(self) -> Ints:
        """Return the code of each entry."""
        return self._codes[: self.size]


@njit(cache=True, nogil=True)
def _slot_of(place, code, mask):
    x = np.uint64(place) * np.uint64(0x9E3779B97F4A7C15) ^ np.uint64(code) * np.uint64(0xC2B2AE3D27D4EB4F)
    x = (x ^ (x >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    return np.int64((x ^ (x >> np.uint64(32))) & np.uint64(mask))


@njit(cache=True, nogil=True)
def _enter(places, codes, ids, start, table, size):
    """Assign numbers to pairs from `start` on, until the table is full; return the next pair, and the table size."""
    slots, known_places, known_codes = table
    mask = slots.size - 1
    for i in range(start, places.size):
        place, code = places[i], codes[i]
        if place == -1:
            ids[i] = -1
            continue
        slot = _slot_of(place, code, mask)
        while slots[slot] >= 0 and (known_places[slots[slot]] != place or known_codes[slots[slot]] != code):
            slot = (slot + 1) & mask
        if slots[slot] < 0:
            if size == known_places.size:
                return i, size
            slots[slot] = size
            known_places[size], known_codes[size] = place, code
            size += 1
        ids[i] = slots[slot]
    return places.size, size


@njit(cache=True, nogil=True)
def _enter_again(slots, places, codes, size):
    mask = slots.size - 1
    for n in range(size):
        slot = _slot_of(places[n], codes[n], mask)
        while slots[slot] >= 0:
            slot = (slot + 1) & mask
        slots[slot] = n


class KeyCodes:
    """Stable codes for the values of one key column, batch by batch.

    Integers without a null are their own codes, unless codes must be small.
    """

    def __init__(self, *, small: bool) -> None:
        """Begin with no values; `small` codes of several columns fit one number."""
        self._small = small
        self._values: pa.Array | None = None
        self._own_codes = False

    def codes(self, column: pa.Array) -> Ints | None:
        """Return the code of each value; None if the type of the codes would have to change."""
        numbers = None if self._small or column.null_count else whole_numbers(column)
        if self._values is None:
            self._own_codes, self._values = numbers is not None, column.slice(0, 0)
        if self._own_codes:
            return numbers
        encoded = _comparable(column).dictionary_encode()
        known = (
            pc.index_in(encoded.dictionary, value_set=_comparable(self._values))
            if len(self._values)
            else None
        )
        if known is None or known.null_count:
            new = encoded.dictionary if known is None else encoded.dictionary.filter(known.is_null())
            self._values = pa.concat_arrays([self._values, new.cast(column.type)])
            known = pc.index_in(encoded.dictionary, value_set=_comparable(self._values))
        of_dictionary = known.to_numpy(zero_copy_only=False).astype(np.int64) + 1
        indices = encoded.indices.fill_null(len(of_dictionary)).to_numpy(zero_copy_only=False)
        return np.append(of_dictionary, 0)[indices]  # null is 0

    def values(self, codes: Ints, kind: pa.DataType) -> pa.Array:
        """Return the values of codes."""
        if self._own_codes:
            return from_whole_numbers(codes, kind)
        assert self._values is not None  # noqa: S101 - codes were given
        return self._values.take(pa.array(codes - 1, mask=codes == 0)).cast(kind)


def _comparable(column: pa.Array) -> pa.Array:
    return normal_floats(column) if pa.types.is_floating(column.type) else column
