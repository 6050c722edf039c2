"""Answers that slide over rows: what either side of a pane set comes to at successive instants, and the two together.

A window sees some rows of a key on the left and some on the right, and every one of the first meets every one of the
second (`penstock.plan.row_panes`).  So each side slides by itself, as pairs do in `penstock.engine.out.pane_sliding`,
and what one side comes to counts as often as the other has rows.

In:  an `AnswerTask` of a set that folds rows.  Out: answers, by reader and instant, and what becomes of the files.
True: a group is answered where both sides have a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from penstock.engine.out.pane_entries import Opened, ints, sharing
from penstock.engine.out.pane_sliding import (
    Asked,
    by_reader,
    distinct_in,
    instant_by_instant,
    visible_runs,
)
from penstock.join.fold import codes_of, number_groups
from penstock.join.measures import Folded
from penstock.join.slide import Seen, Sliding, lay_out
from penstock.join.slide_measures import Run, goes_by_runs, laid_in
from penstock.join.slide_pass import slide_parts
from penstock.log.pane_columns import together, whole_column
from penstock.log.panes import CLASS, ORDER, PANE, ROWS, keys_in, measures_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from penstock.engine.out.answer_task import AnswerTask, Due, PaneReport
    from penstock.engine.out.pane_sliding import Answers
    from penstock.join.key_hash import Ints
    from penstock.join.slide_measures import Place
    from penstock.join.slide_pass import Slid
    from penstock.log.files import Files

    Block: TypeAlias = Sequence[tuple[Ints, Sliding]]
    """The entries of some groups on one side, run by run, and what slides over them."""

MOST_RUNS = 4
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
    groups = _Groups.of(task, runs)
    everybody = {each.number: each for readers in instants.values() for each in readers}
    for readers in _seeing_alike(groups.sides, everybody.values()) if groups.size else ():
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


@dataclass(frozen=True, slots=True)
class _Run:
    """Entries of one side's rows that are in one table."""

    gid: Ints
    """The group of each; -1 where the other side does not have it."""
    born: Ints
    pane: Ints
    classes: Ints
    count: Ints
    measures: list[Folded]

    @classmethod
    def of(cls, table: pa.Table, gids: Ints, functions: Sequence[str]) -> _Run:
        """Read a table."""
        born, pane, classes, n = (ints(table, name) for name in (ORDER, PANE, CLASS, ROWS))
        count = Folded("count", {"n": n})
        measures = [sharing(each, count) for each in measures_in(table, functions)]
        return cls(gids, born, pane, classes, n, measures)

    def seen_by(self, reader: Due) -> Ints:
        """Give the entries that are for a reader."""
        if self.classes.strides == (0,):  # one set for all of them
            return np.arange(self.gid.size if self.classes[0] >> reader.bit & 1 else 0)
        mine = (self.classes >> reader.bit & 1).astype(np.bool_)
        return np.arange(mine.size) if mine.all() else np.flatnonzero(mine)

    def blocks(self, rows: Ints, asked: Asked, groups: int, width: int) -> Iterator[tuple[Ints, Sliding]]:
        """Divide entries by group, so many groups at a time: the entries, and what slides over them."""
        cuts, instants = asked.cuts.size, asked.instants.size
        places = self.gid, self.born, self.pane
        order, cells, ends = lay_out(places, rows, asked.instants, asked.cuts, width, groups)
        first = 0
        for block in range(-(-groups // width)):
            upto = ends[block * instants : (block + 1) * instants]
            last = int(upto[-1])
            size = min(width, groups - block * width)
            yield order[first:last], Sliding(cells[first:last], upto - first, asked.windows, size, cuts)
            first = last


@dataclass(frozen=True, slots=True)
class _Groups:
    """The groups that both sides have: how many, their keys, and the entries of either side."""

    size: int
    keys: list[pa.Array]
    sides: list[list[_Run]]

    def keys_of(self, groups: Ints) -> list[pa.Array]:
        """Give the keys of some groups."""
        return [each.take(pa.array(groups)) for each in self.keys]

    @classmethod
    def of(cls, task: AnswerTask, sides: Sequence[Sequence[pa.Table]]) -> _Groups:
        """Give the groups of both sides the same numbers, and leave out those that only one has."""
        tables = [(number, table) for number, runs in enumerate(sides) for table in runs]
        names = keys_in(tables[0][1], "k")
        keys = pa.concat_tables([table.select(names) for _, table in tables]).combine_chunks()
        ids, firsts = number_groups([codes_of(whole_column(keys, name)) for name in names])
        ends = np.cumsum([0, *(table.num_rows for _, table in tables)]).tolist()
        gids = [ids[first:last] for first, last in pairwise(ends)]
        met = np.ones(firsts.size, np.bool_)
        for number in range(len(sides)):
            has = np.zeros(firsts.size, np.bool_)
            for (side, _), mine in zip(tables, gids, strict=True):
                if side == number:
                    has[mine] = True
            met &= has
        numbers = np.where(met, np.cumsum(met) - 1, -1)
        read = [
            (side, _Run.of(table, numbers[mine], task.spec.functions(side)))
            for (side, table), mine in zip(tables, gids, strict=True)
        ]
        rows = pa.array(firsts[met])
        kinds = [task.schema.field(f"g{number}").type for number in range(len(names))]
        columns = [
            whole_column(keys, f"k{number}").take(rows).cast(kind) for number, kind in enumerate(kinds)
        ]
        by_side = [[run for side, run in read if side == number] for number in range(len(sides))]
        return cls(int(met.sum()), columns, by_side)


def _seeing_alike(sides: Sequence[Sequence[_Run]], readers: Iterable[Due]) -> list[list[Due]]:
    """Put readers together that see the same entries on both sides."""
    distinct = [np.concatenate([distinct_in(each.classes) for each in runs]) for runs in sides]
    alike: dict[tuple[tuple[bool, ...], ...], list[Due]] = {}
    for reader in readers:
        sees = tuple(tuple((each >> reader.bit & 1 == 1).tolist()) for each in distinct)
        if all(any(each) for each in sees):
            alike.setdefault(sees, []).append(reader)
    return list(alike.values())


def _answers(task: AnswerTask, groups: _Groups, asked: Asked) -> Iterator[Answers]:
    """Answer some readers that see the same, a few groups at a time."""
    width = asked.groups_at_once
    sides = [
        zip(
            *(each.blocks(each.seen_by(asked.readers[0]), asked, groups.size, width) for each in runs),
            strict=True,
        )
        for runs in groups.sides
    ]
    for number, blocks in enumerate(zip(*sides, strict=True)):
        if all(any(rows.size for rows, _ in runs) for runs in blocks):
            yield from _block_answers(task, groups, asked, blocks, number * width)


def _block_answers(
    task: AnswerTask, groups: _Groups, asked: Asked, blocks: Sequence[Block], first: int
) -> Iterator[Answers]:
    """Answer the groups of a block, which have numbers from `first` on."""
    sides = [
        [Run(run.measures, rows, run.count) for run, (rows, _) in zip(runs, mine, strict=True)]
        for runs, mine in zip(groups.sides, blocks, strict=True)
    ]
    rows_of = [sum(int(each.counts[each.rows].sum()) for each in runs) for runs in sides]
    laid = [laid_in(runs, often) for runs, often in zip(sides, reversed(rows_of), strict=True)]
    places = [places for _, places in laid]
    is_kept = not asked.is_counted or not all(each.is_final for mine in places for each in mine)
    some_apart = any(each.is_apart for mine in places for each in mine)
    slidings, parts = [[sliding for _, sliding in runs] for runs in blocks], [parts for parts, _ in laid]
    slid = slide_parts(slidings, parts, keep=is_kept, with_counts=some_apart)
    columns = _columns(task, groups, slid, blocks, places) if is_kept else []
    keys = partial(groups.keys_of, slid.seen.groups + first)
    yield from by_reader(task, asked, slid.seen, keys, columns)


def _columns(
    task: AnswerTask,
    groups: _Groups,
    slid: Slid,
    blocks: Sequence[Block],
    places: Sequence[Sequence[Place]],
) -> list[pa.Array]:
    """Give the finished measures of what both sides come to together, in their order."""
    folded = {
        number: iter([_measure(each, number, groups, slid, blocks) for each in mine])
        for number, mine in enumerate(places)
    }
    columns, counted, left = [], Folded("count", {"n": slid.seen.counts}), task.spec.of_side(0)
    for number, measure in enumerate(task.spec.measures):
        whole = counted if not measure.arguments else next(folded[0 if measure in left else 1])
        columns.append(whole.finished(task.schema.field(f"a{number}").type))
    return columns


def _measure(place: Place, number: int, groups: _Groups, slid: Slid, blocks: Sequence[Block]) -> Folded:
    """Give one measure of what both sides come to: out of the pass, or one that slides by itself over its one run."""
    own, other, seen = slid.sides[number], slid.sides[1 - number], slid.seen
    if not place.is_apart:
        return place.read(own, seen)
    ((rows, sliding),), (run,) = blocks[number], groups.sides[number]
    mine = Seen(seen.groups, own.counts, seen.starts, seen.sizes)
    slid_over = place.measure.slid(sliding, mine, rows, run.count)
    return slid_over.times(other.counts, own.counts, seen.counts)
