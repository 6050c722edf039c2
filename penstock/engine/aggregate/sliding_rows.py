"""Sliding answers from the rows of either side.

In a window every left row with a key meets every right row with that key (`penstock.plan.panes`).  So each side
slides by itself, as pairs do in `penstock.engine.aggregate.sliding_pairs`, and the measures of one side count as often
as the other side has rows.

In:  an `AnswerTask` of a set that folds rows.  Out: answers, by reader and instant, and what becomes of the files.
Always true: a group is answered where both sides have a row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from penstock.engine.aggregate.group_totals import GroupTotals, finished_columns
from penstock.engine.aggregate.row_groups import RowGroups
from penstock.engine.aggregate.visible import visible_runs
from penstock.engine.aggregate.window_requests import distinct_in
from penstock.kernels.aggregates.count import counted
from penstock.kernels.aggregates.extremes import is_greatest
from penstock.kernels.aggregates.folded import Folded
from penstock.kernels.slide import WindowAnswers
from penstock.kernels.slide_measures import EntryRun, goes_by_runs, in_two_limbs, laid_in
from penstock.kernels.slide_pass import slide_groups, slide_parts
from penstock.state.pane_columns import together
from penstock.state.panes import measures_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from penstock.engine.aggregate.answer_task import AnswerTask
    from penstock.engine.aggregate.pane_entries import PaneTables
    from penstock.engine.aggregate.window_requests import Answers, WindowRequests
    from penstock.kernels.key_hash import Ints
    from penstock.kernels.slide import Sliding
    from penstock.kernels.slide_measures import MeasureSlot
    from penstock.kernels.slide_pass import SideParts, Slid

    Block: TypeAlias = Sequence[tuple[Ints, Sliding]]
    """The entries of some members on one side, table by table, and the cells that they lie in."""

MOST_RUNS = 32
"""The most files of a side that are read one by one: more are copied into one table, which takes memory."""


def _runs(
    tables: PaneTables, task: AnswerTask, number: int, cuts: Sequence[int], until: int
) -> list[pa.Table]:
    """Return the entries of one side: a few files as they are, or all in one table where that is needed."""
    runs = [run for run in visible_runs(tables, task, number, cuts, until) if run.num_rows]
    if len(runs) == 1 or not runs:
        return [run.combine_chunks() for run in runs]
    measures = measures_in(runs[0].slice(0, 0).combine_chunks(), task.spec.functions(number))
    if len(runs) > MOST_RUNS or not all(goes_by_runs(measure) for measure in measures):
        return [together(runs).combine_chunks()]
    return [run.combine_chunks() for run in runs]


@dataclass(frozen=True, slots=True)
class RowView:
    """The entries of either side that windows of some instants see, by group."""

    task: AnswerTask
    groups: RowGroups

    @classmethod
    def of(cls, tables: PaneTables, task: AnswerTask, cuts: Sequence[int], until: int) -> RowView | None:
        """Read the entries born by an instant, from the first cut on; None if a side has none."""
        runs = [_runs(tables, task, number, cuts, until) for number in range(tables.count)]
        if not all(runs):
            return None
        groups = RowGroups.of(task, runs)
        return cls(task, groups) if groups.size else None

    @property
    def reader_sets(self) -> list[Ints]:
        """Return the distinct sets of readers of the entries, for either side."""
        return [np.concatenate([distinct_in(run.classes) for run in runs]) for runs in self.groups.sides]

    def answers(self, requests: WindowRequests) -> Iterator[Answers]:
        """Answer readers that accept the same entries, a few members at a time."""
        groups = self.groups
        sides = [
            zip(*(run.blocks(requests, groups.size) for run in runs), strict=True) for runs in groups.sides
        ]
        totals = None if groups.group_of_member is None else GroupTotals(self.task, groups, requests)
        for number, blocks in enumerate(zip(*sides, strict=True)):
            if not all(any(rows.size for rows, _ in runs) for runs in blocks):
                continue
            block = RowBlock.of(groups, blocks, number * requests.groups_at_once)
            yield from block.answers(self.task, requests) if totals is None else block.added(totals)
        if totals is not None:
            yield from totals.answered()


@dataclass(frozen=True, slots=True)
class RowBlock:
    """Some members from the member `first` on: the entries of either side, and their measures."""

    groups: RowGroups
    entries: Sequence[Block]
    first: int
    parts: list[SideParts]
    slots: list[tuple[int, MeasureSlot]]
    """The measures of either side, each with its side and its place in the pass over windows."""

    @classmethod
    def of(cls, groups: RowGroups, blocks: Sequence[Block], first: int) -> RowBlock:
        """Lay out the measures of both sides; those of one side count as often as the other side has rows."""
        sides = [
            [EntryRun(run.measures, rows, run.count) for run, (rows, _) in zip(runs, mine, strict=True)]
            for runs, mine in zip(groups.sides, blocks, strict=True)
        ]
        row_counts = [sum(int(run.counts[run.rows].sum()) for run in runs) for runs in sides]
        laid = [laid_in(runs, often) for runs, often in zip(sides, reversed(row_counts), strict=True)]
        slots = [(side, slot) for side, (_, of_side) in enumerate(laid) for slot in of_side]
        return cls(groups, blocks, first, [parts for parts, _ in laid], slots)

    @property
    def cells(self) -> list[list[Sliding]]:
        """Return the cells of the entries, by side and table."""
        return [[sliding for _, sliding in runs] for runs in self.entries]

    @property
    def some_apart(self) -> bool:
        """Return whether some measure slides by itself, outside the common pass."""
        return any(slot.is_apart for _, slot in self.slots)

    def answers(self, task: AnswerTask, requests: WindowRequests) -> Iterator[Answers]:
        """Answer members that are groups."""
        is_kept = not requests.is_counted or not all(slot.is_final for _, slot in self.slots)
        slid = slide_parts(self.cells, self.parts, keep=is_kept, with_counts=self.some_apart)
        columns = []
        if is_kept:
            measures = [self._measure(side, slot, slid) for side, slot in self.slots]
            columns = finished_columns(task, counted(slid.seen.counts), measures)
        keys = partial(self.groups.keys_of, slid.seen.groups + self.first)
        yield from requests.by_reader(task, slid.seen, keys, columns)

    def added(self, totals: GroupTotals) -> Iterator[Answers]:
        """Add members up by group: in the pass itself, or one by one where some measure slides by itself."""
        cells_of = self.cells
        groups_of, bounds = totals.bounds(self.first, self.first + cells_of[0][0].groups)
        if self.some_apart:
            slid = slide_parts(cells_of, self.parts, with_counts=True)
            cells = np.repeat(np.arange(slid.seen.sizes.size), slid.seen.sizes.T.ravel())
            folded = [_addable(self._measure(side, slot, slid)) for side, slot in self.slots]
            counts, groups = slid.seen.counts, totals.group_of_member[slid.seen.groups + self.first]
        else:
            pairs, sides = slide_groups(cells_of, self.parts, bounds)
            chosen = np.flatnonzero(pairs)
            cells, own = np.divmod(chosen, bounds.size - 1)
            folded = [slot.added(sides[side], pairs).at(chosen) for side, slot in self.slots]
            counts, groups = pairs[chosen], groups_of[own]
        group_range = int(groups_of[0]), int(groups_of[-1])
        yield from totals.take(group_range, cells, groups, [counted(counts), *folded])

    def _measure(self, side: int, slot: MeasureSlot, slid: Slid) -> Folded:
        """Return one measure of both sides together; one that slides by itself does so over its only table."""
        own, other, seen = slid.sides[side], slid.sides[1 - side], slid.seen
        if not slot.is_apart:
            return slot.read(own, seen)
        ((rows, sliding),), (run,) = self.entries[side], self.groups.sides[side]
        mine = WindowAnswers(seen.groups, own.counts, seen.starts, seen.sizes)
        return slot.measure.slid(sliding, mine, rows, run.count).times(other.counts, own.counts, seen.counts)


def _addable(measure: Folded) -> Folded:
    """Return a measure of the pass in parts that can be added up."""
    parts = dict(measure.parts)
    if "t" in parts:
        parts |= in_two_limbs(parts.pop("t"))
    if "bits" in parts and measure.ordered is not None:
        flip, sign = measure.ordered.turns(greatest=is_greatest(measure.function))
        bits = parts.pop("bits")
        parts["v"] = bits ^ ((bits >> 63) & sign) ^ flip
    return replace(measure, parts=parts)
