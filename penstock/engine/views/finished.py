"""When a value of a join's key is finished for a query: no more pairs with it will come.

Let e be the lowest p among a side's promises about a value: that side has no rows with it after e.  The value is
finished when both sides have promised and their watermarks have passed e.  It is also finished when one side has, and
its last possible row has left its window, because the other watermark has passed ``e + reach``::

    left    ------ rows ---- e_l           left    --- rows --- e_l
    right   --- rows ------------- e_r     right   .............|------ reach ------|
    finished                       ^       finished (early)                         ^

In:  the promises about both sides, and their watermarks at the cursor.  Out: which values are finished.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.views.horizon import side_marks
from penstock.plan.group import reach
from penstock.plan.promises import promised_sides
from penstock.sql.query import FOREVER, SIDES
from penstock.state.promises import NEVER, PromiseFiles, open_promises

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from penstock.kernels.key_hash import Hashes, Ints
    from penstock.plan.build import Plan
    from penstock.sql.query import Query, Side
    from penstock.state.files import Files
    from penstock.state.ledger import Ledger

    Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class PromisedSide:
    """One side of a join: the promises about it, its watermark, and how long its rows are needed."""

    known: PromiseFiles
    watermark: int
    """Below it all its rows are joined."""
    reach: int | None
    """How long its rows are needed, in microseconds; None if they never leave their window, or leave it by count."""

    def spoken(self, partner: PromisedSide) -> float:
        """Estimate how many promises have taken effect, by either way."""
        early = 0.0 if self.reach is None else self.known.before(partner.watermark - self.reach + 1)
        return self.known.before(self.watermark) + early


@dataclass(frozen=True, slots=True)
class FinishedKeys:
    """Which values of a join's key are finished for a query."""

    columns: tuple[int, ...]
    """For each part of the key, the GROUP BY expression that has its value."""
    whole: bool
    """Whether 64 bits hold the whole key."""
    left: PromisedSide
    right: PromisedSide

    @property
    def spoken(self) -> float:
        """Estimate how many promises have taken effect."""
        return self.left.spoken(self.right) + self.right.spoken(self.left)

    def bare(self) -> FinishedKeys:
        """Return the same without statistics, which tasks do not read."""
        left, right = (
            PromisedSide(side.known.bare(), side.watermark, side.reach) for side in (self.left, self.right)
        )
        return FinishedKeys(self.columns, self.whole, left, right)

    def is_finished(self, files: Files, keys: Sequence[pa.Array]) -> Mask:
        """Return by group, given its key, whether no more pairs will come to it."""
        values = [_one_way(keys[column]) for column in self.columns]
        left, right = (self._least(files, side.known, values) for side in (self.left, self.right))
        return self._finished(left, right) & _has_value(values)

    def holds_for(self, files: Files, h: Hashes, keys: Sequence[pa.Array]) -> Mask:
        """Return by promised value whether it is finished."""
        left, right = (open_promises(files, side.known).earliest(h, keys) for side in (self.left, self.right))
        return self._finished(left, right)

    def _finished(self, left: Ints, right: Ints) -> Mask:
        """Return whether values are finished, by the lowest p of each side's promises about them."""
        said_left, said_right = left < self.left.watermark, right < self.right.watermark
        early_left = _has_left(left, self.left, self.right)
        early_right = _has_left(right, self.right, self.left)
        return (said_left & said_right) | (said_left & early_left) | (said_right & early_right)

    def _least(self, files: Files, known: PromiseFiles, values: Sequence[pa.Array]) -> Ints:
        promises = open_promises(files, known)
        if self.whole or not promises.exact:
            kinds = [value.type for value in values]
        else:
            kinds = [key.type for key in promises.exact[0].keys]
        return promises.earliest_of_values(
            [value.cast(kind) for value, kind in zip(values, kinds, strict=True)], whole=self.whole
        )


def _has_left(least: Ints, side: PromisedSide, partner: PromisedSide) -> Mask:
    """Return whether the last possible row of one side has left its window."""
    if side.reach is None:
        return np.zeros(least.size, np.bool_)
    return (least < NEVER) & (least <= partner.watermark - side.reach)


def _one_way(values: pa.Array) -> pa.Array:
    """Normalize floating-point values as keys are: there is one zero."""
    return pc.add(values, pa.scalar(0, values.type)) if pa.types.is_floating(values.type) else values


def _has_value(values: Sequence[pa.Array]) -> Mask:
    valid = np.ones(len(values[0]), np.bool_)
    for value in values:
        valid &= np.asarray(value.is_valid().to_numpy(zero_copy_only=False), np.bool_)
    return valid


def finished_keys(
    plan: Plan, ledger: Ledger, query: Query, columns: tuple[int, ...] = ()
) -> FinishedKeys | None:
    """Return the promises that finish values for a query, with its watermarks; None if there are none yet.

    The watermark of an idle stream does not advance, and its promises wait.  An ordered query has its results below the
    lower watermark only, so that one counts for both sides.
    """
    indexes = promised_sides(plan, query) if ledger.promises else None
    known = [mark for mark in side_marks(plan, ledger, query).values() if mark is not None]
    if indexes is None or len(known) < len(SIDES) or ledger.query(query.name).backfill:
        return None
    marks = [min(known)] * len(SIDES) if query.ordered else known
    left, right = (
        _side(query, side, ledger.promises.get(index.id if index else "", PromiseFiles()), mark)
        for side, index, mark in zip(SIDES, indexes, marks, strict=True)
    )
    return FinishedKeys(columns, next(index for index in indexes if index).whole_key, left, right)


def _side(query: Query, side: Side, known: PromiseFiles, watermark: int) -> PromisedSide:
    far = reach(query.window, side)
    return PromisedSide(known, watermark, far if far < FOREVER and not any(query.rows) else None)
