"""What the members of groups come to together, for each window at each instant: added up block by block.

Members are keys of the join in a group, in the order of groups (`penstock.engine.aggregate.row_groups`).  A block of
them has some groups to the end, and perhaps begins the next::

    blocks     | a a a b b | b b b b b | b c d d d |
    answered                             a  b    c        and at the end d

In:  what the members of a block come to, by group or by member.  Out: answers, by reader and instant.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from penstock.engine.aggregate.pane_sliding import by_reader
from penstock.kernels.slide import Seen, starts_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from penstock.engine.aggregate.answer_task import AnswerTask
    from penstock.engine.aggregate.pane_sliding import Answers, Asked
    from penstock.engine.aggregate.row_groups import RowGroups
    from penstock.kernels.key_hash import Ints
    from penstock.kernels.measures import Folded

MOST_TOTALS = 1 << 20
"""Groups times windows times instants that are added up at the same time, unless one block has more."""


class GroupTotals:
    """Running totals of a range of groups that begins at `first`; one is answered once all its members are added."""

    def __init__(self, task: AnswerTask, groups: RowGroups, asked: Asked) -> None:
        """Begin with nothing."""
        assert groups.group_of_member is not None  # noqa: S101 - else members are groups
        self.task, self.row_groups, self.asked = task, groups, asked
        self.group_of_member = groups.group_of_member
        self.first = 0
        most = max(asked.groups_at_once, MOST_TOTALS // max(1, asked.windows.size))
        self.room = min(most, int(self.group_of_member[-1]) + 1)
        self.totals: list[Folded] = []

    def bounds(self, first: int, last: int) -> tuple[Ints, Ints]:
        """Give the groups of a block of members, and where the members of each begin, and the last ones end."""
        mine = self.group_of_member[first:last]
        starts = np.flatnonzero(np.diff(mine, prepend=mine[0] - 1))
        return mine[starts], np.append(starts, mine.size)

    def take(
        self, group_range: tuple[int, int], cells: Ints, groups: Ints, folded: Sequence[Folded]
    ) -> Iterator[Answers]:
        """Add entries of a block's groups; if these do not fit, first answer the groups that are complete.

        ``cell = window * instants + instant``, and `folded[0]` is the count of pairs.
        """
        first, last = group_range
        if last >= self.first + self.room:
            yield from self._move_to(first)
        if not self.totals:
            self.totals = [each.nothing(self.asked.windows.size * self.room) for each in folded]
        ids = cells * self.room + (groups - self.first)
        self.totals = [total.add(ids, each) for total, each in zip(self.totals, folded, strict=True)]

    def _move_to(self, group: int) -> Iterator[Answers]:
        """Answer the groups before one, and go on with what there is of it."""
        done = group - self.first
        yield from self._answered(min(done, self.room))
        if done >= self.room:  # nothing of it is there yet
            self.totals = []
        elif self.totals:
            cells = np.arange(self.asked.windows.size)
            begun = [each.at(cells * self.room + done) for each in self.totals]
            nothing = [each.nothing(cells.size * self.room) for each in self.totals]
            self.totals = [new.add(cells * self.room, each) for new, each in zip(nothing, begun, strict=True)]
        self.first = group

    def answered(self) -> Iterator[Answers]:
        """Answer all that is left."""
        return self._answered(self.room)

    def _answered(self, groups: int) -> Iterator[Answers]:
        """Answer so many groups."""
        if not self.totals or not groups:
            return
        counts = self.totals[0].parts["n"].reshape(-1, self.room)[:, :groups]
        cells, own = np.nonzero(counts)
        instants, windows = self.asked.windows.shape
        sizes = np.bincount(cells, minlength=windows * instants).reshape(windows, instants).T
        seen = Seen(own + self.first, counts[cells, own], starts_of(sizes)[0], np.ascontiguousarray(sizes))
        if seen.groups.size:
            keys = partial(self.row_groups.keys_of, seen.groups)
            columns = self._columns(cells * self.room + own)  # also for who only counts: some are refused
            yield from by_reader(self.task, self.asked, seen, keys, columns)

    def _columns(self, ids: Ints) -> list[pa.Array]:
        """Give the finished measures of some totals, in their order."""
        counted, *measures = (each.at(ids) for each in self.totals)
        return finished_columns(self.task, counted, measures)


def finished_columns(task: AnswerTask, counted: Folded, measures: Sequence[Folded]) -> list[pa.Array]:
    """Give the finished measures in the order of the set's; those given are the left side's and then the right's."""
    left = task.spec.of_side(0)
    sides = iter(measures[: len(left)]), iter(measures[len(left) :])
    columns = []
    for number, measure in enumerate(task.spec.measures):
        whole = counted if not measure.arguments else next(sides[0 if measure in left else 1])
        columns.append(whole.finished(task.schema.field(f"a{number}").type))
    return columns
