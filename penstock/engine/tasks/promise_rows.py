"""Promises in a part of a batch: found, written, and held against the rows beside them.

    rows ──▶ promises ──▶ files of single values and of ranges
         └─▶ data ──▶ late? ──▶ breaks a promise of its own stream? ──▶ set aside
                           ──▶ has its partner promised to be done with it? ──▶ never stored, or not for long

In:  the columns of `penstock.engine.tasks.promise_columns`.  Out: masks over rows, and `PromiseFiles`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.kernels.key_hash import digests, mix
from penstock.state.promises import (
    NEVER,
    Exact,
    PromiseFiles,
    PromiseSet,
    as_int64,
    in_order,
    open_promises,
    patterns_of,
    write_exact,
    write_patterns,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from penstock.engine.tasks.promise_columns import KeyColumns, PromiseColumns, PromiseTask
    from penstock.kernels.key_hash import Hashes, Ints
    from penstock.state.files import Files
    from penstock.state.promises import Bounds
    from penstock.state.segment import Segment

    Mask = NDArray[np.bool_]

NO_TIME = np.iinfo(np.int64).min
"""The event time of a row that has none."""


@dataclass(frozen=True, slots=True)
class PartnerPromises:
    """What the partner of one group has promised, for rows that are about to enter a log.

    A row is *dropped* if every partner it could have is out of reach: the last one is at p at the latest, and p is
    `beyond` or more before the row.  It is *discarded* if all its partners are in their log already: it is joined with
    them, and kept no longer.
    """

    partner: str
    known: PromiseFiles
    watermark: int | None
    beyond: int | None
    """None where that is not known: windows that count rows, or never end."""


@dataclass(frozen=True, slots=True)
class Entering:
    """Rows on their way into a log: which are never stored, which are not kept, and what p ends the latter."""

    dropped: Mask
    discarded: Mask
    ends: tuple[tuple[str, int], ...] = ()
    """By partner: when its watermark has passed this, all discarded rows have met everybody."""


def filter_by_promises(
    files: Files, partner_promises: Iterable[PartnerPromises], h: Hashes, keys: Sequence[pa.Array], t: Ints
) -> Entering:
    """Find the rows to drop and to discard: those for which the promises of every partner say so."""
    dropped, discarded = np.ones(t.size, np.bool_), np.ones(t.size, np.bool_)
    leasts: list[tuple[str, Ints]] = []
    for promised in partner_promises:
        least = open_promises(files, promised.known).earliest(h, keys)
        dropped &= least <= t - promised.beyond if promised.beyond is not None else False
        discarded &= least < (-NEVER if promised.watermark is None else promised.watermark)
        leasts.append((promised.partner, least))
    discarded &= ~dropped
    ends: dict[str, int] = {}
    for partner, least in leasts if discarded.any() else ():
        ends[partner] = max(ends.get(partner, -NEVER), int(least[discarded].max()))
    return Entering(dropped, discarded, tuple(sorted(ends.items())))


class PartPromises:
    """The promises that one part of a batch makes, and those that hold for its rows."""

    def __init__(self, files: Files, task: PromiseTask, table: pa.Table, t: Ints, key_bits: int) -> None:
        """Find out which rows are promises; `t` has the event time of each row."""
        self.files, self.task, self.table, self.t = files, task, table, t
        self._key_bits = key_bits
        self.is_promise = self._marked() & (t != NO_TIME)
        """Rows that are promises; of a carrier that has a condition, the others mean nothing."""

    def _marked(self) -> Mask:
        if self.task.mark:
            return np.asarray(self.table.column(self.task.mark).to_numpy() & 1 != 0, np.bool_)
        return np.full(self.table.num_rows, self.task.carrier, np.bool_)

    def broken(self, timely: Mask) -> Mask:
        """Say which rows come after a promise of their own stream that none would.

        A row that breaks a promise makes none: where each row is the last of its value, those that are left count.
        """
        marked = [each for each in self.task.carried if each.marked]
        broken = self._after(timely, lambda own: [self._known(own), *self._made(own, marked, timely)])
        of_data = [each for each in self.task.carried if not each.marked]
        if of_data:
            left = timely & ~broken
            broken |= self._after(left, lambda own: self._made(own, of_data, left))
        return broken

    def _after(self, rows: Mask, promises: Callable[[KeyColumns], Iterable[PromiseSet]]) -> Mask:
        """Say which of some rows come after a promise, by any of the keys that promises are about."""
        after, numbers = np.zeros(rows.size, np.bool_), np.flatnonzero(rows)
        for own in self.task.own if numbers.size else ():
            h, keys = self._keys(own, numbers)
            has_key = self._valid(own.number)[numbers]
            for each in promises(own):
                after[numbers[self.t[numbers] > each.earliest(h, keys, has_key)]] = True
        return after

    def _known(self, own: KeyColumns) -> PromiseSet:
        """Give the promises that were there before this batch."""
        return open_promises(self.files, self.task.known.get(own.index, PromiseFiles()))

    def _made(self, own: KeyColumns, columns: Iterable[PromiseColumns], rows: Mask) -> list[PromiseSet]:
        """Give the promises that this part makes itself."""
        return [self._beside(each, rows) for each in columns if each.index == own.index]

    def _beside(self, columns: PromiseColumns, timely: Mask) -> PromiseSet:
        """Give the promises of some rows."""
        exact, ranges = self._divided(columns, timely)
        patterns = patterns_of(self.t[ranges], self._bounds(columns, ranges)) if ranges.size else ()
        return PromiseSet((self._values(columns, exact),) if exact.size else (), tuple(patterns))

    def write(self, accepted: Mask, batch: int) -> dict[str, PromiseFiles]:
        """Write the promises of this part, by index: of its punctuations and, where a column is unique, of its rows."""
        written: dict[str, PromiseFiles] = {}
        for columns in self.task.carried:
            rows, ranges = self._divided(columns, accepted)
            index, made = columns.index, []
            exact = write_exact(self.files, index, self._values(columns, rows), batch) if rows.size else None
            if ranges.size:
                made = [
                    write_patterns(self.files, index, self.t[ranges], self._bounds(columns, ranges), batch)
                ]
            files = PromiseFiles((exact,) if exact else (), tuple(each for each in made if each))
            written[index] = written.get(index, PromiseFiles()).plus(files)
        return {index: each for index, each in written.items() if each.files()}

    def write_rows(self, accepted: Mask, batch: int) -> dict[str, list[Segment]]:
        """Write keys and times of rows, where no log has them by the key of the promises about them."""
        written: dict[str, list[Segment]] = {}
        for own in self.task.own:
            rows = (
                np.flatnonzero(accepted & self._valid(own.number)) if not own.log else np.zeros(0, np.int64)
            )
            if rows.size:
                h, keys = self._keys(own, rows)
                file = write_exact(self.files, own.index, Exact(h, self.t[rows], tuple(keys)), batch)
                written[own.index] = [file] if file else []
        return written

    def _divided(self, columns: PromiseColumns, accepted: Mask) -> tuple[Ints, Ints]:
        """Find the rows that promise single values, and those that promise ranges; some promise nothing."""
        rows = np.flatnonzero(self.is_promise) if columns.marked else self._last_of_value(columns, accepted)
        for name in columns.elements:
            rows = rows[self._valid(name)[rows]]
        for name in columns.others:
            rows = rows[~self._valid(name)[rows]]
        single = self._valid(columns.key.number)[rows] if columns.key else np.zeros(rows.size, np.bool_)
        ranges = rows[~single] if columns.marked else rows[:0]  # a row that is data says nothing about null
        return rows[single], ranges[self._not_inverted(columns, ranges)] if ranges.size else ranges

    def _last_of_value(self, columns: PromiseColumns, accepted: Mask) -> Ints:
        """Find the rows of data that are the last of a value by this key; a null is no value, and no wildcard here."""
        if columns.others:
            return np.zeros(0, np.int64)
        values = {low for low, _ in columns.bounds if low}
        if not values and columns.key:
            values = {columns.key.number}
        for name in values:
            accepted = accepted & self._valid(name)
        return np.flatnonzero(accepted)

    def _not_inverted(self, columns: PromiseColumns, rows: Ints) -> Mask:
        """Say which ranges have a value: the lowest is not above the highest."""
        right = np.ones(rows.size, np.bool_)
        for low, high in self._bounds(columns, rows):
            if low is not None and high is not None:
                inverted = pc.fill_null(pc.greater(low, high), fill_value=False)
                right &= ~np.asarray(inverted.to_numpy(zero_copy_only=False), np.bool_)
        return right

    def _valid(self, name: str) -> Mask:
        return np.asarray(self.table.column(name).is_valid().to_numpy(), np.bool_)

    def _values(self, columns: PromiseColumns, rows: Ints) -> Exact:
        assert columns.key is not None  # noqa: S101 - rows were found by it
        h, keys = self._keys(columns.key, rows)
        return in_order(h, self.t[rows], keys)

    def _bounds(self, columns: PromiseColumns, rows: Ints) -> Bounds:
        """Give the lowest and highest values of some promises, part by part; a wildcard is open at both ends."""
        if not columns.bounds:
            return [(None, None)]
        return [
            (self._bound(columns, low, rows), self._bound(columns, high, rows)) if low else (None, None)
            for low, high in columns.bounds
        ]

    def _bound(self, columns: PromiseColumns, name: str, rows: Ints) -> pa.Array:
        values = self._column(name, rows)
        return as_int64(values) if columns.whole else values

    def _keys(self, key: KeyColumns, rows: Ints) -> tuple[Hashes, list[pa.Array]]:
        """Give the hashes of some rows by a key, and its parts if that is not all of it."""
        numbers = pc.fill_null(self._column(key.number, rows), 0).to_numpy(zero_copy_only=False)
        hashes = mix(numbers) if key.whole else digests(numbers, self._key_bits)
        return hashes, [self._column(each, rows) for each in key.parts]

    def _column(self, name: str, rows: Ints) -> pa.Array:
        taken = self.table.column(name).take(pa.array(rows))
        return taken.combine_chunks() if isinstance(taken, pa.ChunkedArray) else taken
