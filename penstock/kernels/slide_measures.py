"""The layout of measures for `penstock.kernels.slide_pass`: their parts in the pass, and their values from its output.

    measure          part                              kind
    count            rows, or values                   ints
    sum, avg         sum of floats                     floats
                     sum of integers, if small         ints (both limbs in one)
    min, max         number in the order of values     leasts
    min_by, max_by   number in the order of pairs      leasts

Sums of whole numbers that may not fit 64 bits in the end, decimals and moments slide by themselves
(`penstock.kernels.aggregates.folded.Folded.slid`).

In:  folded entries of a side.  Out: `SideParts` for `penstock.kernels.slide_pass`, and measures of its results.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.kernels.aggregates.extremes import is_greatest
from penstock.kernels.fold import LIMB
from penstock.kernels.slide_pass import SideParts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from penstock.kernels.aggregates.folded import Folded
    from penstock.kernels.fold import Mask
    from penstock.kernels.key_hash import Ints
    from penstock.kernels.slide import WindowAnswers
    from penstock.kernels.slide_pass import SlidParts

_FITS = 1 << 62
_SHARED = -1
"""Instead of the number of a count: it equals the count of rows."""


@dataclass(frozen=True, slots=True)
class MeasureSlot:
    """The position of a measure's parts in the pass."""

    measure: Folded
    kind: str = ""
    """The kind of its value; empty for a count, and for a measure that is not in the pass."""
    value: int = 0
    """The number of its value among the parts of that kind."""
    count: int | None = None
    """The number of its count among the integers; None if it has none."""

    @property
    def is_apart(self) -> bool:
        """Return whether it is not in the pass."""
        return not self.kind and self.count is None

    @property
    def is_final(self) -> bool:
        """Return whether the pass computes the final values of the measure."""
        return not self.is_apart and self.measure.is_finished_by_sliding

    def read(self, slid: SlidParts, seen: WindowAnswers) -> Folded:
        """Return the measure of each answer."""
        n = self._count_in(slid, seen.counts)
        if self.kind == "leasts":
            valid = np.ones(seen.groups.size, np.bool_) if n is None else n > 0
            return replace(self.measure, parts={"bits": slid.leasts[self.value]}, valid=valid)
        int_parts = {"t": slid.ints[self.value]} if self.kind == "ints" else {}
        return replace(self.measure, parts=self._count_and_sum(slid, n) | int_parts)

    def added(self, slid: SlidParts, counts: Ints) -> Folded:
        """Return the measure of sums by group, in parts that can be merged further.

        Minima are numbers here, not bits; `counts` are the pairs of each group.
        """
        n = self._count_in(slid, counts)
        if self.kind == "leasts":
            valid = counts > 0 if n is None else n > 0
            return replace(self.measure, parts={"v": slid.leasts[self.value]}, valid=valid)
        int_parts = in_two_limbs(slid.ints[self.value]) if self.kind == "ints" else {}
        return replace(self.measure, parts=self._count_and_sum(slid, n) | int_parts)

    def _count_in(self, slid: SlidParts, shared: Ints) -> Ints | None:
        """Return the counts of the measure's values: its own, or those of the pairs."""
        if self.count is None:
            return None
        return shared if self.count == _SHARED else slid.ints[self.count]

    def _count_and_sum(self, slid: SlidParts, n: Ints | None) -> dict[str, NDArray[Any]]:
        parts: dict[str, NDArray[Any]] = {} if n is None else {"n": n}
        return parts | ({"s": slid.floats[self.value]} if self.kind == "floats" else {})


@dataclass(frozen=True, slots=True)
class EntryRun:
    """Some entries of one table."""

    measures: Sequence[Folded]
    rows: Ints
    """The numbers of these entries in the table."""
    counts: Ints
    """By entry of the table: the number of its rows."""


def laid_in(runs: Sequence[EntryRun], often: int) -> tuple[SideParts, list[MeasureSlot]]:
    """Lay out the measures of a side, which all of its runs have; no row is counted more than `often` times.

    >>> from penstock.kernels.aggregates.sums import Sum
    >>> counts = np.array([1, 2])
    >>> summed = Sum("sum", {"n": counts, "0": np.array([5, 6]), "1": np.array([0, -1])})
    >>> parts, (place,) = laid_in([EntryRun([summed], np.arange(2), counts)], often=9)
    >>> parts.ints[0].tolist(), place.kind, place.is_final
    ([5, -4294967290], 'ints', True)
    """
    room = _Room(runs)
    places = [room.place(number, often) for number in range(len(runs[0].measures))]
    counts = [run.counts[run.rows] for run in runs]
    return SideParts(_joined(counts), room.ints, room.floats, room.leasts, room.turns), places


def _joined(arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


class _Room:
    """Builds the parts of all measures."""

    def __init__(self, runs: Sequence[EntryRun]) -> None:
        self.runs = runs
        self.ints: list[Ints] = []
        self.floats: list[NDArray[np.float64]] = []
        self.leasts: list[Ints] = []
        self.turns: list[tuple[int, int]] = []

    def place(self, number: int, often: int) -> MeasureSlot:
        """Add the parts of one measure."""
        measure = self.runs[0].measures[number]
        if measure.valid is not None and measure.ordered is not None:
            valid = _joined([_valid(run.measures[number])[run.rows] for run in self.runs])
            self.leasts.append(self._part(number, "v"))
            self.turns.append(measure.ordered.turns(greatest=is_greatest(measure.function)))
            count = None if valid.all() else self._add_ints(valid.astype(np.int64))
            return MeasureSlot(measure, "leasts", len(self.leasts) - 1, count)
        names = set(measure.parts)
        if names == {"n"}:
            return MeasureSlot(measure, count=self._count(number))
        if names == {"n", "s"}:
            self.floats.append(self._part(number, "s"))
            return MeasureSlot(measure, "floats", len(self.floats) - 1, self._count(number))
        if names == {"n", "0", "1"} and (whole := self._whole(number, often)) is not None:
            return MeasureSlot(measure, "ints", self._add_ints(whole), self._count(number))
        return MeasureSlot(measure)

    def _part(self, number: int, name: str) -> NDArray[Any]:
        return _joined([run.measures[number].parts[name][run.rows] for run in self.runs])

    def _count(self, number: int) -> int:
        if all(run.measures[number].parts["n"] is run.counts for run in self.runs):
            return _SHARED
        return self._add_ints(self._part(number, "n"))

    def _add_ints(self, values: Ints) -> int:
        self.ints.append(values)
        return len(self.ints) - 1

    def _whole(self, number: int, often: int) -> Ints | None:
        """Combine the two limbs of sums; None if a total may exceed 64 bits."""
        low, high = (self._part(number, name) for name in ("0", "1"))
        most = int(np.abs(high).max(initial=0)) + int(np.abs(low).max(initial=0) >> LIMB) + 1
        if (most << LIMB) * max(1, low.size) * max(1, often) >= _FITS:
            return None
        return (high << LIMB) + low


def in_two_limbs(numbers: Ints) -> dict[str, Ints]:
    """Return sums of integers as limbs, of which many can be added."""
    return {"0": numbers & (1 << LIMB) - 1, "1": numbers >> LIMB}


def _valid(measure: Folded) -> Mask:
    assert measure.valid is not None  # noqa: S101 - a minimum has them
    return measure.valid


def goes_by_runs(measure: Folded) -> bool:
    """Return whether entries of several tables can be in one pass: their numbers are not ranks in one table."""
    if measure.ordered is not None:
        return measure.ordered.values is None
    return set(measure.parts) <= {"n", "s"}
