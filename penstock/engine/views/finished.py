"""When a value of a join's key is finished for a query: no more of its pairs will come.

Let e be the least p of a side's promises about a value: after e that side has no more rows of it.  The value is
finished when both sides have spoken, and their watermarks have passed what they promised; or when one has, and the last
row it can have had has left its window, because the other side's watermark has passed ``e + reach``::

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
    """One side of a join: what is promised about it, how far it has come, and how long its rows are of use."""

    known: PromiseFiles
    watermark: int
    """Below it all its rows are joined."""
    reach: int | None
    """How long its rows are of use, in microseconds; None if they never leave their window, or leave it by count."""

    def spoken(self, partner: PromisedSide) -> float:
        """Say about how many promises have taken effect, by either way."""
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
        """Say about how many promises have taken effect."""
        return self.left.spoken(self.right) + self.right.spoken(self.left)

    def bare(self) -> FinishedKeys:
        """Leave out statistics, which tasks do not read."""
        left, right = (
            PromisedSide(each.known.bare(), each.watermark, each.reach) for each in (self.left, self.right)
        )
        return FinishedKeys(self.columns, self.whole, left, right)

    def is_finished(self, files: Files, keys: Sequence[pa.Array]) -> Mask:
        """Say of each group, by its key, whether no more pairs will come to it."""
        values = [_one_way(keys[column]) for column in self.columns]
        left, right = (self._least(files, each.known, values) for each in (self.left, self.right))
        return self._finished(left, right) & _has_value(values)

    def holds_for(self, files: Files, h: Hashes, keys: Sequence[pa.Array]) -> Mask:
        """Say of each value, as promises are kept, whether it is finished."""
        left, right = (open_promises(files, each.known).earliest(h, keys) for each in (self.left, self.right))
        return self._finished(left, right)

    def _finished(self, left: Ints, right: Ints) -> Mask:
        """Say whether values are finished, by the least p of either side's promises about them."""
        said_left, said_right = left < self.left.watermark, right < self.right.watermark
        early_left = _has_left(left, self.left, self.right)
        early_right = _has_left(right, self.right, self.left)
        return (said_left & said_right) | (said_left & early_left) | (said_right & early_right)

    def _least(self, files: Files, known: PromiseFiles, values: Sequence[pa.Array]) -> Ints:
        promises = open_promises(files, known)
        if self.whole or not promises.exact:
            kinds = [each.type for each in values]
        else:
            kinds = [each.type for each in promises.exact[0].keys]
        return promises.earliest_of_values(
            [each.cast(kind) for each, kind in zip(values, kinds, strict=True)], whole=self.whole
        )


def _has_left(least: Ints, side: PromisedSide, partner: PromisedSide) -> Mask:
    """Say whether the last row that one side can have has left its window."""
    if side.reach is None:
        return np.zeros(least.size, np.bool_)
    return (least < NEVER) & (least <= partner.watermark - side.reach)


def _one_way(values: pa.Array) -> pa.Array:
    """Write floating-point values as keys are written: there is one zero."""
    return pc.add(values, pa.scalar(0, values.type)) if pa.types.is_floating(values.type) else values


def _has_value(values: Sequence[pa.Array]) -> Mask:
    valid = np.ones(len(values[0]), np.bool_)
    for each in values:
        valid &= np.asarray(each.is_valid().to_numpy(zero_copy_only=False), np.bool_)
    return valid


def finished_keys(
    plan: Plan, ledger: Ledger, query: Query, columns: tuple[int, ...] = ()
) -> FinishedKeys | None:
    """Give the promises that finish values for a query, with its watermarks; None if there are none yet.

    The watermark of an idle stream stays where it is, and its promises wait.  An ordered query has its results below
    the lower watermark only, so that one counts for both sides.
    """
    indexes = promised_sides(plan, query) if ledger.promises else None
    known = [each for each in side_marks(plan, ledger, query).values() if each is not None]
    if indexes is None or len(known) < len(SIDES) or ledger.query(query.name).backfill:
        return None
    marks = [min(known)] * len(SIDES) if query.ordered else known
    left, right = (
        _side(query, side, ledger.promises.get(index.id if index else "", PromiseFiles()), mark)
        for side, index, mark in zip(SIDES, indexes, marks, strict=True)
    )
    return FinishedKeys(columns, next(each for each in indexes if each).whole_key, left, right)


def _side(query: Query, side: Side, known: PromiseFiles, watermark: int) -> PromisedSide:
    far = reach(query.window, side)
    return PromisedSide(known, watermark, far if far < FOREVER and not any(query.rows) else None)
