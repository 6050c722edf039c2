"""Measures that slide together: the parts of all of them, laid out for one pass and read from it.

    count        the count of rows, or of values       whole numbers
    sum, avg     floating point                        floating point
                 whole numbers, small enough           one whole number for both limbs
    min, max     numbers in the order of values        leasts
    min_by, max_by   numbers in the order of pairs     leasts

Sums of whole numbers that may not fit 64 bits in the end, decimals and moments slide by themselves
(`penstock.kernels.aggregates.folded.Folded.slid`).

In:  folded entries of a side.  Out: `Parts` for `penstock.kernels.slide_pass`, and measures of what comes out of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.kernels.aggregates.extremes import is_greatest
from penstock.kernels.fold import LIMB
from penstock.kernels.slide_pass import Parts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from penstock.kernels.aggregates.folded import Folded
    from penstock.kernels.fold import Mask
    from penstock.kernels.key_hash import Ints
    from penstock.kernels.slide import Seen
    from penstock.kernels.slide_pass import SlidParts

_FITS = 1 << 62
_SHARED = -1
"""In the place of a count: it is that of the rows."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where the parts of a measure are in the pass."""

    measure: Folded
    kind: str = ""
    """Which kind of part its value is; none of a count, and of what slides by itself."""
    value: int = 0
    count: int | None = None
    """Which of the whole numbers counts its values; None if nobody asks."""

    @property
    def is_apart(self) -> bool:
        """Say whether it slides by itself."""
        return not self.kind and self.count is None

    @property
    def is_final(self) -> bool:
        """Say whether the pass computes the very values of the measure, and nothing is left to be done for them."""
        return not self.is_apart and self.measure.is_finished_by_sliding

    def read(self, slid: SlidParts, seen: Seen) -> Folded:
        """Give the measure of each answer."""
        n = self._count_in(slid, seen.counts)
        if self.kind == "leasts":
            valid = np.ones(seen.groups.size, np.bool_) if n is None else n > 0
            return replace(self.measure, parts={"bits": slid.leasts[self.value]}, valid=valid)
        int_parts = {"t": slid.ints[self.value]} if self.kind == "ints" else {}
        return replace(self.measure, parts=self._count_and_sum(slid, n) | int_parts)

    def added(self, slid: SlidParts, counts: Ints) -> Folded:
        """Give the measure of what was added up by group, in parts that can be added up further.

        Leasts are numbers here, not bits; `counts` are the pairs of each group.
        """
        n = self._count_in(slid, counts)
        if self.kind == "leasts":
            valid = counts > 0 if n is None else n > 0
            return replace(self.measure, parts={"v": slid.leasts[self.value]}, valid=valid)
        int_parts = in_two_limbs(slid.ints[self.value]) if self.kind == "ints" else {}
        return replace(self.measure, parts=self._count_and_sum(slid, n) | int_parts)

    def _count_in(self, slid: SlidParts, shared: Ints) -> Ints | None:
        """Find how many values the measure has: its own count, or the one that it shares with the pairs."""
        if self.count is None:
            return None
        return shared if self.count == _SHARED else slid.ints[self.count]

    def _count_and_sum(self, slid: SlidParts, n: Ints | None) -> dict[str, NDArray[Any]]:
        """Give the count and the sum of floating point that the measure has, if it has them."""
        parts: dict[str, NDArray[Any]] = {} if n is None else {"n": n}
        return parts | ({"s": slid.floats[self.value]} if self.kind == "floats" else {})


@dataclass(frozen=True, slots=True)
class Run:
    """Some entries of a side, which are together in one table."""

    measures: Sequence[Folded]
    rows: Ints
    """Which of the table's entries."""
    counts: Ints
    """Of how many rows each entry of the table is."""


def laid_in(runs: Sequence[Run], often: int) -> tuple[Parts, list[Place]]:
    """Lay out the measures of a side, which all of its runs have; none of its rows counts more than `often`.

    >>> from penstock.kernels.aggregates.sums import Sum
    >>> counts = np.array([1, 2])
    >>> summed = Sum("sum", {"n": counts, "0": np.array([5, 6]), "1": np.array([0, -1])})
    >>> parts, (place,) = laid_in([Run([summed], np.arange(2), counts)], often=9)
    >>> parts.ints[0].tolist(), place.kind, place.is_final
    ([5, -4294967290], 'ints', True)
    """
    room = _Room(runs)
    places = [room.place(number, often) for number in range(len(runs[0].measures))]
    counts = [each.counts[each.rows] for each in runs]
    return Parts(_joined(counts), room.ints, room.floats, room.leasts, room.turns), places


def _joined(arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


class _Room:
    """Parts that are laid out one after the other."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.runs = runs
        self.ints: list[Ints] = []
        self.floats: list[NDArray[np.float64]] = []
        self.leasts: list[Ints] = []
        self.turns: list[tuple[int, int]] = []

    def place(self, number: int, often: int) -> Place:
        """Lay out the parts of one measure."""
        measure = self.runs[0].measures[number]
        if measure.valid is not None and measure.ordered is not None:
            valid = _joined([_valid(each.measures[number])[each.rows] for each in self.runs])
            self.leasts.append(self._part(number, "v"))
            self.turns.append(measure.ordered.turns(greatest=is_greatest(measure.function)))
            count = None if valid.all() else self._add_ints(valid.astype(np.int64))
            return Place(measure, "leasts", len(self.leasts) - 1, count)
        names = set(measure.parts)
        if names == {"n"}:
            return Place(measure, count=self._count(number))
        if names == {"n", "s"}:
            self.floats.append(self._part(number, "s"))
            return Place(measure, "floats", len(self.floats) - 1, self._count(number))
        if names == {"n", "0", "1"} and (whole := self._whole(number, often)) is not None:
            return Place(measure, "ints", self._add_ints(whole), self._count(number))
        return Place(measure)

    def _part(self, number: int, name: str) -> NDArray[Any]:
        return _joined([each.measures[number].parts[name][each.rows] for each in self.runs])

    def _count(self, number: int) -> int:
        if all(each.measures[number].parts["n"] is each.counts for each in self.runs):
            return _SHARED
        return self._add_ints(self._part(number, "n"))

    def _add_ints(self, values: Ints) -> int:
        self.ints.append(values)
        return len(self.ints) - 1

    def _whole(self, number: int, often: int) -> Ints | None:
        """Put the two limbs of sums together; None if what they come to might not fit."""
        low, high = (self._part(number, name) for name in ("0", "1"))
        most = int(np.abs(high).max(initial=0)) + int(np.abs(low).max(initial=0) >> LIMB) + 1
        if (most << LIMB) * max(1, low.size) * max(1, often) >= _FITS:
            return None
        return (high << LIMB) + low


def in_two_limbs(numbers: Ints) -> dict[str, Ints]:
    """Write sums of whole numbers as limbs, of which many can be added up."""
    return {"0": numbers & (1 << LIMB) - 1, "1": numbers >> LIMB}


def _valid(measure: Folded) -> Mask:
    assert measure.valid is not None  # noqa: S101 - a least value always knows
    return measure.valid


def goes_by_runs(measure: Folded) -> bool:
    """Say whether a measure can be read from several tables as they are.

    It slides together with others whatever its values, and these are no ranks among those of one table.
    """
    if measure.ordered is not None:
        return measure.ordered.values is None
    return set(measure.parts) <= {"n", "s"}
