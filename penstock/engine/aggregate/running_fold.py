"""Fold pairs in place: each pair is added to the entry of its group, and a batch costs only its own pairs.

An entry is found by its birth, pane, readers and group (`penstock.kernels.entries`).  This needs keys that fit one
number, and values that can be added in place: sliding answers without DISTINCT, MIN_BY and MAX_BY.
`penstock.engine.aggregate.pane_fold` folds all others batch by batch.

In:  pairs, their readers, and their outputs.  Out: a table of entries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa

from penstock.kernels.aggregates.count import counted
from penstock.kernels.aggregates.folded import Folded, as_one_column, folded_class
from penstock.kernels.entries import MOST_CLASSES, KeyCodes, Numbering, Panes
from penstock.state.panes import CLASS, ORDER, PANE, ROWS, Shape, laid_out

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.engine.aggregate.fold_spec import FoldSpec
    from penstock.engine.sinks.pair_batch import PairBatch
    from penstock.kernels.key_hash import Ints
    from penstock.sql.query import Measure

MOST_TRIED = 1 << 14
"""Pairs after which the fold checks whether looking entries up is worth it."""

MOST_APART = 1 << 20
"""Pairs that are kept with an entry each, before they are folded with each other."""

_CODE_BITS = 62
"""Bits of the number for all key columns together."""


class PairValues(Protocol):
    """Outputs of some pairs, by number."""

    def __getitem__(self, number: int, /) -> pa.Array:
        """Return one output of each pair."""


class RunningFold:
    """Entries of one pane set to which pairs are added in place."""

    def __init__(self, spec: FoldSpec) -> None:
        """Begin with nothing."""
        self.spec = spec
        self.measures = [measure for measure in spec.measures if measure.arguments]
        self.panes: Panes | None = None
        self.numbering = Numbering()
        self.classes: dict[int, int] = {}
        self.keys: dict[str, KeyCodes] = {}
        self.types: tuple[pa.DataType, ...] = ()
        self.kinds: dict[str, pa.DataType] = {}
        self.totals: list[Folded] = []
        self.hardly_shared = False
        """Whether most pairs have an entry of their own, so that looking entries up saves nothing."""
        self._tried = 0

    @property
    def is_full(self) -> bool:
        """Return whether so many pairs have an entry each that they should be folded with each other."""
        return self.hardly_shared and self.numbering.size > MOST_APART

    def take(self, pairs: PairBatch, classes: Ints, values: Callable[[Ints], PairValues]) -> bool:
        """Add some pairs; return False if it is not possible, and nothing was added."""
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
        measured = [self._entries(measure, chosen) for measure in self.measures]
        if codes is None or None in measured:
            return False
        ids = self._numbers(places[rows], codes)
        pairs_counted = counted(np.ones(rows.size, np.int64))
        self._add(ids, [pairs_counted, *(entries for entries in measured if entries is not None)])
        return True

    def _entries(self, measure: Measure, values: PairValues) -> Folded | None:
        """Return what one measure takes of each pair; None if it cannot be added in place."""
        column = as_one_column([values[number] for number in measure.arguments])
        return folded_class(measure.function).from_rows(measure.function, column)

    def _numbers(self, places: Ints, codes: Ints) -> Ints:
        """Return the numbers of the entries of some pairs; each gets a new one if most had a new one so far."""
        if self.hardly_shared:
            return self.numbering.number_apart(places, codes)
        ids = self.numbering.number(places, codes)
        self._tried += ids.size
        self.hardly_shared = self._tried > MOST_TRIED and 2 * self.numbering.size > self._tried
        return ids

    def _class_numbers(self, classes: Ints) -> Ints | None:
        """Return a small number for each set of readers, -1 for the empty set; None if there are too many sets."""
        distinct = classes[:1] if (classes == classes[0]).all() else np.unique(classes)
        for readers in distinct.tolist():
            if readers:
                self.classes.setdefault(readers, len(self.classes))
        if len(self.classes) > MOST_CLASSES:
            return None
        of_distinct = np.array([self.classes.get(readers, -1) for readers in distinct.tolist()], np.int64)
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
        """Return one number for the group of each pair; None if its keys do not fit one."""
        columns: dict[str, pa.Array] = {}
        for number in range(self.spec.groups):
            columns |= laid_out(values[number], f"k{number}")
        if not self.types:
            self.types = tuple(values[number].type for number in range(self.spec.groups))
            self.kinds = {name: column.type for name, column in columns.items()}
            self.keys = {name: KeyCodes(small=len(columns) > 1) for name in columns}
        codes, bits = np.zeros(size, np.int64), _CODE_BITS // max(1, len(columns))
        for place, (name, column) in enumerate(columns.items()):
            own = self.keys[name].codes(column)
            if own is None or (len(columns) > 1 and int(own.max()) >> bits):
                return None
            codes = codes | own << bits * place if len(columns) > 1 else own
        return codes

    def _add(self, ids: Ints, entries: Sequence[Folded]) -> None:
        """Add to the totals, and make room for entries that are new."""
        size = self.numbering.size
        if not self.totals:
            self.totals = [one.nothing(max(1024, size)) for one in entries]
        if (room := self.totals[0].parts["n"].size) < size:
            self.totals = [total.grown(max(size, 2 * room)) for total in self.totals]
        self.totals = [total.add(ids, one) for total, one in zip(self.totals, entries, strict=True)]

    def table(self) -> pa.Table | None:
        """Return all entries as a table."""
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
        totals = [total.at(slice(0, size)) for total in self.totals]
        columns[ROWS] = pa.array(totals[0].parts["n"])
        for number, total in enumerate(totals[1:]):
            columns |= {f"m{number}.{name}": part for name, part in total.stored().items()}
        functions = tuple(measure.function for measure in self.measures)
        shape = Shape(self.types, 0, functions, tuple(total.kind for total in totals[1:]))
        return pa.table(columns).replace_schema_metadata(shape.metadata())
