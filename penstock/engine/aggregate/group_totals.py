"""Add up the members of groups, block by block, for each window at each instant.

A member is one key of the join in one group.  Members come in the order of groups, in blocks
(`penstock.engine.aggregate.row_groups`).  A block completes some groups, and perhaps begins another::

    blocks     | a a a b b | b b b b b | b c d d d |
    answered                             a  b    c        and at the end d

In:  the measures of a block, by group or by member.  Out: answers, by reader and instant.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from penstock.kernels.slide import WindowAnswers, starts_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from penstock.engine.aggregate.answer_task import AnswerTask
    from penstock.engine.aggregate.row_groups import RowGroups
    from penstock.engine.aggregate.window_requests import Answers, WindowRequests
    from penstock.kernels.aggregates.folded import Folded
    from penstock.kernels.key_hash import Ints

MOST_TOTALS = 1 << 20
"""The most totals (groups times windows times instants) that are kept at the same time, unless one block has more."""


class GroupTotals:
    """Running totals of the groups from `first` on; a group is answered when all its members are added."""

    def __init__(self, task: AnswerTask, groups: RowGroups, requests: WindowRequests) -> None:
        """Begin with nothing."""
        assert groups.group_of_member is not None  # noqa: S101 - else members are groups
        self.task, self.row_groups, self.requests = task, groups, requests
        self.group_of_member = groups.group_of_member
        self.first = 0
        most = max(requests.groups_at_once, MOST_TOTALS // max(1, requests.windows.size))
        self.room = min(most, int(self.group_of_member[-1]) + 1)
        self.totals: list[Folded] = []

    def bounds(self, first: int, last: int) -> tuple[Ints, Ints]:
        """Return the groups of a block of members, and the bounds of the members of each."""
        mine = self.group_of_member[first:last]
        starts = np.flatnonzero(np.diff(mine, prepend=mine[0] - 1))
        return mine[starts], np.append(starts, mine.size)

    def take(
        self, group_range: tuple[int, int], cells: Ints, groups: Ints, folded: Sequence[Folded]
    ) -> Iterator[Answers]:
        """Add the measures of a block's groups; if there is no room, first answer the groups that are complete.

        ``cell = window * instants + instant``, and `folded[0]` is the count of pairs.
        """
        first, last = group_range
        if last >= self.first + self.room:
            yield from self._move_to(first)
        if not self.totals:
            size = self.requests.windows.size * self.room
            self.totals = [measure.nothing(size) for measure in folded]
        ids = cells * self.room + (groups - self.first)
        self.totals = [total.add(ids, measure) for total, measure in zip(self.totals, folded, strict=True)]

    def _move_to(self, group: int) -> Iterator[Answers]:
        """Answer the groups before one, and keep the totals of that one."""
        done = group - self.first
        yield from self._answered(min(done, self.room))
        if done >= self.room:  # it has no totals yet
            self.totals = []
        elif self.totals:
            cells = np.arange(self.requests.windows.size)
            begun = [total.at(cells * self.room + done) for total in self.totals]
            nothing = [total.nothing(cells.size * self.room) for total in self.totals]
            self.totals = [new.add(cells * self.room, old) for new, old in zip(nothing, begun, strict=True)]
        self.first = group

    def answered(self) -> Iterator[Answers]:
        """Answer the remaining groups."""
        return self._answered(self.room)

    def _answered(self, groups: int) -> Iterator[Answers]:
        """Answer the first groups, so many of them."""
        if not self.totals or not groups:
            return
        counts = self.totals[0].parts["n"].reshape(-1, self.room)[:, :groups]
        cells, own = np.nonzero(counts)
        instants, windows = self.requests.windows.shape
        sizes = np.bincount(cells, minlength=windows * instants).reshape(windows, instants).T
        seen = WindowAnswers(
            own + self.first, counts[cells, own], starts_of(sizes)[0], np.ascontiguousarray(sizes)
        )
        if seen.groups.size:
            keys = partial(self.row_groups.keys_of, seen.groups)
            # also for readers that only count: a sum that is too large is refused
            columns = self._columns(cells * self.room + own)
            yield from self.requests.by_reader(self.task, seen, keys, columns)

    def _columns(self, ids: Ints) -> list[pa.Array]:
        """Return the finished measures of some totals, in their order."""
        counted, *measures = (total.at(ids) for total in self.totals)
        return finished_columns(self.task, counted, measures)


def finished_columns(task: AnswerTask, counted: Folded, measures: Sequence[Folded]) -> list[pa.Array]:
    """Return the finished measures in the order of the pane set; `measures` has those of the left side first."""
    left = task.spec.of_side(0)
    sides = iter(measures[: len(left)]), iter(measures[len(left) :])
    columns = []
    for number, measure in enumerate(task.spec.measures):
        whole = counted if not measure.arguments else next(sides[0 if measure in left else 1])
        columns.append(whole.finished(task.schema.field(f"a{number}").type))
    return columns
