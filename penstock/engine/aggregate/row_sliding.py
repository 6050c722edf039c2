"""Answers that slide over rows: what either side of a pane set comes to at successive instants, and the two together.

A window sees some rows of a key on the left and some on the right, and every one of the first meets every one of the
second (`penstock.plan.panes`).  So each side slides by itself, as pairs do in
`penstock.engine.aggregate.pane_sliding`, and what one side comes to counts as often as the other has rows.

In:  an `AnswerTask` of a set that folds rows.  Out: answers, by reader and instant, and what becomes of the files.
True: a group is answered where both sides have a row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from penstock.engine.aggregate.group_totals import GroupTotals, finished_columns
from penstock.engine.aggregate.pane_sliding import (
    Asked,
    by_reader,
    distinct_in,
    instant_by_instant,
    visible_runs,
)
from penstock.engine.aggregate.row_groups import RowGroups
from penstock.kernels.measures import Folded
from penstock.kernels.slide import Seen
from penstock.kernels.slide_measures import Run, goes_by_runs, in_two_limbs, laid_in
from penstock.kernels.slide_pass import slide_groups, slide_parts
from penstock.state.pane_columns import together
from penstock.state.panes import measures_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from penstock.engine.aggregate.answer_task import AnswerTask, Due, PaneReport
    from penstock.engine.aggregate.pane_entries import Opened
    from penstock.engine.aggregate.pane_sliding import Answers
    from penstock.engine.aggregate.row_groups import RowRun
    from penstock.kernels.key_hash import Ints
    from penstock.kernels.slide import Sliding
    from penstock.kernels.slide_measures import Place
    from penstock.kernels.slide_pass import Parts, Slid
    from penstock.state.files import Files

    Block: TypeAlias = Sequence[tuple[Ints, Sliding]]
    """The entries of some members on one side, run by run, and what slides over them."""

MOST_RUNS = 32
"""Files of a side that are looked at one by one: more are laid end to end, which takes memory."""


def sliding_by_rows(files: Files, task: AnswerTask) -> Iterator[Answers | PaneReport]:
    """Answer every instant that is due from rows, then fold what everybody has seen; each answer has a left row."""
    return instant_by_instant(files, task, _answer_instants)


def _answer_instants(
    opened: Opened, task: AnswerTask, instants: Mapping[int, list[Due]]
) -> Iterator[Answers]:
    """Answer some instants, from the first on: each takes in what is born by it."""
    pane = task.spec.panes.pane
    cuts = sorted({(at - each.width) // pane for at, readers in instants.items() for each in readers})
    runs = [_runs(opened, task, number, cuts, max(instants)) for number in range(opened.tables)]
    if not all(runs):
        return
    groups = RowGroups.of(task, runs)
    everybody = {each.number: each for readers in instants.values() for each in readers}
    if not groups.size:
        return
    for readers in _seeing_alike(groups.sides, everybody.values()):
        asked = Asked.of(readers, instants, np.array(cuts, np.int64), pane)
        yield from _answers(task, groups, asked)


def _runs(opened: Opened, task: AnswerTask, number: int, cuts: Sequence[int], until: int) -> list[pa.Table]:
    """Give what is seen of one side: a few files as they are, or all in one table where that is needed."""
    runs = [each for each in visible_runs(opened, task, number, cuts, until) if each.num_rows]
    if len(runs) == 1 or not runs:
        return [each.combine_chunks() for each in runs]
    measures = measures_in(runs[0].slice(0, 0).combine_chunks(), task.spec.functions(number))
    if len(runs) > MOST_RUNS or not all(goes_by_runs(each) for each in measures):
        return [together(runs).combine_chunks()]
    return [each.combine_chunks() for each in runs]


def _seeing_alike(sides: Sequence[Sequence[RowRun]], readers: Iterable[Due]) -> list[list[Due]]:
    """Put readers together that see the same entries on both sides."""
    distinct = [np.concatenate([distinct_in(each.classes) for each in runs]) for runs in sides]
    alike: dict[tuple[tuple[bool, ...], ...], list[Due]] = {}
    for reader in readers:
        sees = tuple(tuple((each >> reader.bit & 1 == 1).tolist()) for each in distinct)
        if all(any(each) for each in sees):
            alike.setdefault(sees, []).append(reader)
    return list(alike.values())


def _answers(task: AnswerTask, groups: RowGroups, asked: Asked) -> Iterator[Answers]:
    """Answer some readers that see the same, a few members at a time."""
    width = asked.groups_at_once
    sides = [
        zip(
            *(each.blocks(each.seen_by(asked.readers[0]), asked, groups.size, width) for each in runs),
            strict=True,
        )
        for runs in groups.sides
    ]
    totals = None if groups.group_of_member is None else GroupTotals(task, groups, asked)
    for number, blocks in enumerate(zip(*sides, strict=True)):
        if not all(any(rows.size for rows, _ in runs) for runs in blocks):
            continue
        block = _Block.of(groups, blocks, number * width)
        yield from block.answers(task, asked) if totals is None else block.added(totals)
    if totals is not None:
        yield from totals.answered()


@dataclass(frozen=True, slots=True)
class _Block:
    """Some members from `first` on: what slides over the entries of either side, and their measures."""

    groups: RowGroups
    entries: Sequence[Block]
    first: int
    parts: list[Parts]
    places: list[list[Place]]

    @classmethod
    def of(cls, groups: RowGroups, blocks: Sequence[Block], first: int) -> _Block:
        """Lay out the measures of both sides; what one of them has counts as often as the other has rows."""
        sides = [
            [Run(run.measures, rows, run.count) for run, (rows, _) in zip(runs, mine, strict=True)]
            for runs, mine in zip(groups.sides, blocks, strict=True)
        ]
        rows_of = [sum(int(each.counts[each.rows].sum()) for each in runs) for runs in sides]
        laid = [laid_in(runs, often) for runs, often in zip(sides, reversed(rows_of), strict=True)]
        return cls(groups, blocks, first, [parts for parts, _ in laid], [places for _, places in laid])

    @property
    def slidings(self) -> list[list[Sliding]]:
        """Give what slides, by side and run."""
        return [[sliding for _, sliding in runs] for runs in self.entries]

    @property
    def some_apart(self) -> bool:
        """Say whether some measure slides by itself."""
        return any(each.is_apart for mine in self.places for each in mine)

    def answers(self, task: AnswerTask, asked: Asked) -> Iterator[Answers]:
        """Answer members that are groups."""
        is_kept = not asked.is_counted or not all(each.is_final for mine in self.places for each in mine)
        slid = slide_parts(self.slidings, self.parts, keep=is_kept, with_counts=self.some_apart)
        columns = _columns(task, self.groups, slid, self.entries, self.places) if is_kept else []
        keys = partial(self.groups.keys_of, slid.seen.groups + self.first)
        yield from by_reader(task, asked, slid.seen, keys, columns)

    def added(self, totals: GroupTotals) -> Iterator[Answers]:
        """Add members up by group: in the pass itself, or one by one where some measure slides by itself."""
        last = self.first + self.slidings[0][0].groups
        in_block, bounds = totals.bounds(self.first, last)
        if self.some_apart:
            slid = slide_parts(self.slidings, self.parts, with_counts=True)
            cells = np.repeat(np.arange(slid.seen.sizes.size), slid.seen.sizes.T.ravel())
            folded = [
                _addable(_measure(each, side, self.groups, slid, self.entries))
                for side, mine in enumerate(self.places)
                for each in mine
            ]
            counts, groups = slid.seen.counts, totals.group_of_member[slid.seen.groups + self.first]
        else:
            pairs, sides = slide_groups(self.slidings, self.parts, bounds)
            chosen = np.flatnonzero(pairs)
            cells, own = np.divmod(chosen, bounds.size - 1)
            groups = in_block[own]
            folded = [
                each.added(sides[side], pairs).at(chosen)
                for side, mine in enumerate(self.places)
                for each in mine
            ]
            counts = pairs[chosen]
        group_range = int(in_block[0]), int(in_block[-1])
        yield from totals.take(group_range, cells, groups, [Folded("count", {"n": counts}), *folded])


def _addable(measure: Folded) -> Folded:
    """Give a measure that came out of the pass in parts that can be added up."""
    parts = dict(measure.parts)
    if "t" in parts:
        parts |= in_two_limbs(parts.pop("t"))
    if "bits" in parts and measure.ordered is not None:
        flip, sign = measure.ordered.turns(greatest=measure.is_greatest)
        bits = parts.pop("bits")
        parts["v"] = bits ^ ((bits >> 63) & sign) ^ flip
    return replace(measure, parts=parts)


def _columns(
    task: AnswerTask,
    groups: RowGroups,
    slid: Slid,
    blocks: Sequence[Block],
    places: Sequence[Sequence[Place]],
) -> list[pa.Array]:
    """Give the finished measures of what both sides come to together, in their order."""
    measures = [
        _measure(each, side, groups, slid, blocks) for side, mine in enumerate(places) for each in mine
    ]
    return finished_columns(task, Folded("count", {"n": slid.seen.counts}), measures)


def _measure(place: Place, number: int, groups: RowGroups, slid: Slid, blocks: Sequence[Block]) -> Folded:
    """Give one measure of what both sides come to: out of the pass, or one that slides by itself over its one run."""
    own, other, seen = slid.sides[number], slid.sides[1 - number], slid.seen
    if not place.is_apart:
        return place.read(own, seen)
    ((rows, sliding),), (run,) = blocks[number], groups.sides[number]
    mine = Seen(seen.groups, own.counts, seen.starts, seen.sizes)
    slid_over = place.measure.slid(sliding, mine, rows, run.count)
    return slid_over.times(other.counts, own.counts, seen.counts)
