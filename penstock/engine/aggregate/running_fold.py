"""A fold whose entries stay: partial aggregates that take in one batch of pairs after another.

What was seen before is never looked at again: an entry is found by its place and group (`penstock.kernels.entries`),
and what a pair adds to it is added in place.  Sliding answers without DISTINCT, MIN_BY and MAX_BY are folded so, as
long as their keys fit one code and their values can be added in place; others table by table
(`penstock.engine.aggregate.pane_fold`).

In:  pairs, their readers, and their values.  Out: a table of groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa

from penstock.kernels.entries import MOST_CLASSES, KeyCodes, Numbering, Panes
from penstock.kernels.measures import Folded
from penstock.state.panes import CLASS, ORDER, PANE, ROWS, Shape, laid_out

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.engine.aggregate.pane_fold import FoldSpec
    from penstock.engine.sinks.pair_batch import PairBatch
    from penstock.kernels.key_hash import Ints

MOST_TRIED = 1 << 14
"""Pairs after which it is asked whether looking for their entries is worth it."""

MOST_APART = 1 << 20
"""Pairs that are kept without looking for their entries, before they are folded with each other."""

_CODE_BITS = 62
"""Bits that the codes of all key columns have together."""


class PairValues(Protocol):
    """The outputs of some pairs."""

    def __getitem__(self, number: int, /) -> pa.Array:
        """Give one output of each."""


class RunningFold:
    """A fold whose entries stay, and take in one batch of pairs after another."""

    def __init__(self, spec: FoldSpec) -> None:
        """Begin with nothing."""
        self.spec = spec
        self.plain = [each for each in spec.measures if each.arguments]
        self.panes: Panes | None = None
        self.numbering = Numbering()
        self.classes: dict[int, int] = {}
        self.keys: dict[str, KeyCodes] = {}
        self.types: tuple[pa.DataType, ...] = ()
        self.kinds: dict[str, pa.DataType] = {}
        self.totals: list[Folded] = []
        self.apart = False
        """Whether pairs have hardly an entry in common, so that each is one of its own."""
        self._tried = 0

    @property
    def is_full(self) -> bool:
        """Say whether so many pairs are kept apart that some of them should be folded with each other."""
        return self.apart and self.numbering.size > MOST_APART

    def take(self, pairs: PairBatch, classes: Ints, values: Callable[[Ints], PairValues]) -> bool:
        """Take in some pairs, or say that it cannot."""
        left, right = pairs.ends(self.spec.panes.skews)
        numbers = self._class_numbers(classes)
        if numbers is None:
            return False
        places = self._places(left, right, numbers)
        if places is None:
            return False
        rows = np.flatnonzero(places >= 0)
        if not rows.size:
            return True
        chosen = values(rows)
        codes = self._codes(chosen, rows.size)
        measured = [Folded.each(each.function, chosen[each.arguments[0]]) for each in self.plain]
        if codes is None or None in measured:
            return False
        ids = self._numbers(places[rows], codes)
        counted = Folded("count", {"n": np.ones(rows.size, np.int64)})
        self._add(ids, [counted, *(each for each in measured if each is not None)])
        return True

    def _numbers(self, places: Ints, codes: Ints) -> Ints:
        """Give some pairs the numbers of their entries, or of new ones if most had a new one so far."""
        if self.apart:
            return self.numbering.number_apart(places, codes)
        ids = self.numbering.number(places, codes)
        self._tried += ids.size
        self.apart = self._tried > MOST_TRIED and 2 * self.numbering.size > self._tried
        return ids

    def _class_numbers(self, classes: Ints) -> Ints | None:
        """Give the sets of readers small numbers, -1 for nobody; None if there are too many of them."""
        distinct = classes[:1] if (classes == classes[0]).all() else np.unique(classes)
        for each in distinct.tolist():
            if each:
                self.classes.setdefault(each, len(self.classes))
        if len(self.classes) > MOST_CLASSES:
            return None
        of_distinct = np.array([self.classes.get(each, -1) for each in distinct.tolist()], np.int64)
        if distinct.size == 1:
            return np.full(classes.size, of_distinct[0])
        return of_distinct[np.searchsorted(distinct, classes)]

    def _places(self, left: Ints, right: Ints, classes: Ints) -> Ints | None:
        if self.panes is None:
            panes = self.spec.panes
            self.panes = Panes(
                panes.step,
                panes.pane,
                panes.skew,
                panes.width,
                int(max(left[0], right[0])) // panes.step,
                int(min(left[0] + panes.skew, right[0])) // panes.pane,
            )
        return self.panes.places(left, right, classes)

    def _codes(self, values: PairValues, size: int) -> Ints | None:
        """Give the group of each pair one number; None if its keys do not fit one."""
        columns: dict[str, pa.Array] = {}
        for number in range(self.spec.groups):
            columns |= laid_out(values[number], f"k{number}")
        if not self.types:
            self.types = tuple(values[number].type for number in range(self.spec.groups))
            self.kinds = {name: each.type for name, each in columns.items()}
            self.keys = {name: KeyCodes(small=len(columns) > 1) for name in columns}
        codes, bits = np.zeros(size, np.int64), _CODE_BITS // max(1, len(columns))
        for place, (name, column) in enumerate(columns.items()):
            own = self.keys[name].codes(column)
            if own is None or (len(columns) > 1 and int(own.max()) >> bits):
                return None
            codes = codes | own << bits * place if len(columns) > 1 else own
        return codes

    def _add(self, ids: Ints, entries: Sequence[Folded]) -> None:
        """Add entries to the totals, which have room for all numbers."""
        size = self.numbering.size
        if not self.totals:
            self.totals = [each.nothing(max(1024, size)) for each in entries]
        if (room := self.totals[0].parts["n"].size) < size:
            self.totals = [each.grown(max(size, 2 * room)) for each in self.totals]
        self.totals = [total.add(ids, each) for total, each in zip(self.totals, entries, strict=True)]

    def table(self) -> pa.Table | None:
        """Give all entries as a table of groups."""
        size = self.numbering.size
        if not size or self.panes is None:
            return None
        born, pane, classes = self.panes.unpacked(self.numbering.places)
        sets = np.array(list(self.classes), np.int64)
        columns = {ORDER: pa.array(born), PANE: pa.array(pane), CLASS: pa.array(sets[classes])}
        bits = _CODE_BITS // max(1, len(self.keys))
        for place, (name, keys) in enumerate(self.keys.items()):
            codes = self.numbering.codes
            own = codes >> bits * place & (1 << bits) - 1 if len(self.keys) > 1 else codes
            columns[name] = keys.values(own, self.kinds[name])
        totals = [each.at(slice(0, size)) for each in self.totals]
        columns[ROWS] = pa.array(totals[0].parts["n"])
        for number, each in enumerate(totals[1:]):
            columns |= {f"m{number}.{name}": part for name, part in each.stored().items()}
        functions = tuple(each.function for each in self.plain)
        shape = Shape(self.types, 0, functions, tuple(each.kind for each in totals[1:]))
        return pa.table(columns).replace_schema_metadata(shape.metadata())
