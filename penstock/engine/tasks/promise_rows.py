"""Promises in a part of a batch: find them, write them, and check the rows of the batch against them.

    rows ──▶ promises ──▶ files of single values and of ranges
         └─▶ data ──▶ late? ──▶ breaks a promise of its own stream? ──▶ set aside
                           ──▶ has its partner finished with its value? ──▶ never stored, or not for long

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
    PromiseFiles,
    PromiseSet,
    ValuePromises,
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

    from penstock.engine.tasks.promise_columns import KeyColumns, PromiseColumns, PromiseSpec
    from penstock.kernels.key_hash import Hashes, Ints
    from penstock.state.files import Files
    from penstock.state.promises import Bounds
    from penstock.state.segment import Segment

    Mask = NDArray[np.bool_]

NO_TIME = np.iinfo(np.int64).min
"""The event time of a row that has none."""


@dataclass(frozen=True, slots=True)
class PartnerPromises:
    """The promises of the partner in one group, for rows on their way into a log.

    Let p be the latest time of a row's last partner, by these promises.  The row is *dropped* if p is `beyond` or more
    before it: no partner is in its window.  It is *discarded* if all its partners are in their log: it is joined with
    them, and kept no longer.
    """

    partner: str
    known: PromiseFiles
    watermark: int | None
    beyond: int | None
    """None where it is not known: windows that count rows, or never end."""


@dataclass(frozen=True, slots=True)
class Entering:
    """Rows on their way into a log: which are never stored, and which are joined once only."""

    dropped: Mask
    discarded: Mask
    ends: tuple[tuple[str, int], ...] = ()
    """By partner: the watermark at which all discarded rows have met their partners."""


def filter_by_promises(
    files: Files, partner_promises: Iterable[PartnerPromises], h: Hashes, keys: Sequence[pa.Array], t: Ints
) -> Entering:
    """Find the rows that every partner's promises drop or discard."""
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

    def __init__(self, files: Files, spec: PromiseSpec, table: pa.Table, t: Ints, key_bits: int) -> None:
        """Find the rows that are promises; `t` has the event time of each row."""
        self.files, self.spec, self.table, self.t = files, spec, table, t
        self._key_bits = key_bits
        self.is_promise = self._marked() & (t != NO_TIME)
        """Rows that are promises; other rows of a carrier are ignored."""

    def _marked(self) -> Mask:
        if self.spec.mark:
            return np.asarray(self.table.column(self.spec.mark).to_numpy() & 1 != 0, np.bool_)
        return np.full(self.table.num_rows, self.spec.carrier, np.bool_)

    def broken(self, timely: Mask) -> Mask:
        """Return which rows come after a promise of their own stream that no such row would.

        A row that breaks a promise makes none: where each row is the last of its value, only the others count.
        """
        marked = [columns for columns in self.spec.carried if columns.marked]
        broken = self._after(timely, lambda own: [self._known(own), *self._made(own, marked, timely)])
        of_data = [columns for columns in self.spec.carried if not columns.marked]
        if of_data:
            left = timely & ~broken
            broken |= self._after(left, lambda own: self._made(own, of_data, left))
        return broken

    def _after(self, rows: Mask, promises: Callable[[KeyColumns], Iterable[PromiseSet]]) -> Mask:
        """Return which of some rows come after a promise, by any key that promises are about."""
        after, numbers = np.zeros(rows.size, np.bool_), np.flatnonzero(rows)
        for own in self.spec.own if numbers.size else ():
            h, keys = self._keys(own, numbers)
            has_key = self._valid(own.number)[numbers]
            for some in promises(own):
                after[numbers[self.t[numbers] > some.earliest(h, keys, has_key)]] = True
        return after

    def _known(self, own: KeyColumns) -> PromiseSet:
        """Return the promises of earlier batches."""
        return open_promises(self.files, self.spec.known.get(own.index, PromiseFiles()))

    def _made(self, own: KeyColumns, columns: Iterable[PromiseColumns], rows: Mask) -> list[PromiseSet]:
        """Return the promises of some rows of this part by an index."""
        return [self._promises(some, rows) for some in columns if some.index == own.index]

    def _promises(self, columns: PromiseColumns, timely: Mask) -> PromiseSet:
        """Return the promises of some rows."""
        exact, ranges = self._divided(columns, timely)
        patterns = patterns_of(self.t[ranges], self._bounds(columns, ranges)) if ranges.size else ()
        return PromiseSet((self._values(columns, exact),) if exact.size else (), tuple(patterns))

    def write(self, accepted: Mask, batch: int) -> dict[str, PromiseFiles]:
        """Write the promises of this part by index: of punctuations and, where a column is unique, of data."""
        written: dict[str, PromiseFiles] = {}
        for columns in self.spec.carried:
            rows, ranges = self._divided(columns, accepted)
            index, exact, patterns = columns.index, None, None
            if rows.size:
                exact = write_exact(self.files, index, self._values(columns, rows), batch)
            if ranges.size:
                bounds = self._bounds(columns, ranges)
                patterns = write_patterns(self.files, index, self.t[ranges], bounds, batch)
            files = PromiseFiles((exact,) if exact else (), (patterns,) if patterns else ())
            written[index] = written.get(index, PromiseFiles()).plus(files)
        return {index: files for index, files in written.items() if files.files()}

    def write_rows(self, accepted: Mask, batch: int) -> dict[str, list[Segment]]:
        """Write keys and times of rows, where no log has them by the key of the promises."""
        written: dict[str, list[Segment]] = {}
        for own in self.spec.own:
            if own.log:
                continue
            rows = np.flatnonzero(accepted & self._valid(own.number))
            if rows.size:
                h, keys = self._keys(own, rows)
                file = write_exact(self.files, own.index, ValuePromises(h, self.t[rows], tuple(keys)), batch)
                written[own.index] = [file] if file else []
        return written

    def _divided(self, columns: PromiseColumns, accepted: Mask) -> tuple[Ints, Ints]:
        """Find the rows that promise single values, and those that promise ranges."""
        rows = np.flatnonzero(self.is_promise) if columns.marked else self._last_of_value(columns, accepted)
        for name in columns.elements:
            rows = rows[self._valid(name)[rows]]
        for name in columns.others:
            rows = rows[~self._valid(name)[rows]]
        single = self._valid(columns.key.number)[rows] if columns.key else np.zeros(rows.size, np.bool_)
        ranges = rows[~single] if columns.marked else rows[:0]  # a row of data makes no promise about null
        return rows[single], ranges[self._not_inverted(columns, ranges)] if ranges.size else ranges

    def _last_of_value(self, columns: PromiseColumns, accepted: Mask) -> Ints:
        """Find the rows of data that are the last of their value; a null is neither a value nor a wildcard."""
        if columns.others:
            return np.zeros(0, np.int64)
        values = {low for low, _ in columns.bounds if low}
        if not values and columns.key:
            values = {columns.key.number}
        for name in values:
            accepted = accepted & self._valid(name)
        return np.flatnonzero(accepted)

    def _not_inverted(self, columns: PromiseColumns, rows: Ints) -> Mask:
        """Return which ranges have a value: the lowest is not above the highest."""
        right = np.ones(rows.size, np.bool_)
        for low, high in self._bounds(columns, rows):
            if low is not None and high is not None:
                inverted = pc.fill_null(pc.greater(low, high), fill_value=False)
                right &= ~np.asarray(inverted.to_numpy(zero_copy_only=False), np.bool_)
        return right

    def _valid(self, name: str) -> Mask:
        return np.asarray(self.table.column(name).is_valid().to_numpy(), np.bool_)

    def _values(self, columns: PromiseColumns, rows: Ints) -> ValuePromises:
        assert columns.key is not None  # noqa: S101 - rows were found by it
        h, keys = self._keys(columns.key, rows)
        return in_order(h, self.t[rows], keys)

    def _bounds(self, columns: PromiseColumns, rows: Ints) -> Bounds:
        """Return the lowest and highest values of some promises, part by part; a wildcard is open at both ends."""
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
        """Return the hashes of some rows by a key, and its parts if the hash is of several values or of text."""
        numbers = pc.fill_null(self._column(key.number, rows), 0).to_numpy(zero_copy_only=False)
        hashes = mix(numbers) if key.whole else digests(numbers, self._key_bits)
        return hashes, [self._column(name, rows) for name in key.parts]

    def _column(self, name: str, rows: Ints) -> pa.Array:
        taken = self.table.column(name).take(pa.array(rows))
        return taken.combine_chunks() if isinstance(taken, pa.ChunkedArray) else taken
