"""Requests for sliding answers: the windows of some queries at some instants.

At instant E a window of length w has the entries that are born by E, and whose pane is younger than E - w.  The panes
at which some window begins are *cuts*.  Entries lie in cells between cuts, and a window comes to the sum of all cells
that are younger than its cut (`penstock.kernels.slide`)::

    from cut     E - 10 s   E - 20 s   E - 40 s
    group a         3          1          7          10 s: 3     20 s: 4     40 s: 11

A *reader* is a query of the pane set.  It has a bit in the sets of readers that entries have.

In:  readers and instants.  Out: `WindowRequests`; entries divided into blocks of groups; answers laid out by reader.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from penstock.engine.aggregate.answer_task import Counted
from penstock.engine.aggregate.pane_entries import answer_batch
from penstock.kernels.fold import number_groups
from penstock.kernels.slide import NOT_ASKED, Sliding, lay_out

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from penstock.engine.aggregate.answer_task import AnswerTask, Due
    from penstock.kernels.key_hash import Ints
    from penstock.kernels.slide import WindowAnswers

    Answers: TypeAlias = pa.RecordBatch | Counted
    """Answers of one reader, as rows or only counted."""

MOST_CELLS = 1 << 16
"""The most cells, groups times cuts, that are answered in one go: so few that their answers stay in the CPU's cache."""


@dataclass(frozen=True, slots=True)
class WindowRequests:
    """The windows of some readers at some instants."""

    readers: list[Due]
    """By the length of their windows."""
    instants: Ints
    cuts: Ints
    thresholds: Ints
    """By instant and reader: the first pane in the window."""
    windows: Ints
    """By instant and reader: the number of the window's cut; `NOT_ASKED` where the reader does not ask."""

    @classmethod
    def of(
        cls, readers: Iterable[Due], instants: Mapping[int, list[Due]], cuts: Ints, pane: int
    ) -> WindowRequests:
        """Look up which readers ask at which instants."""
        by_width = sorted(readers, key=lambda reader: reader.width)
        asking_at = [{reader.number for reader in asking} for asking in instants.values()]
        asks = [[reader.number in numbers for reader in by_width] for numbers in asking_at]
        at = np.array(list(instants), np.int64)
        thresholds = (at[:, None] - np.array([reader.width for reader in by_width], np.int64)) // pane
        windows = np.where(np.array(asks), np.searchsorted(cuts, thresholds), NOT_ASKED)
        return cls(by_width, at, cuts, thresholds, windows)

    @property
    def is_counted(self) -> bool:
        """Return whether all answers are only counted."""
        return all(reader.counted for reader in self.readers)

    @property
    def groups_at_once(self) -> int:
        """Return the number of groups that are answered in one go."""
        return max(1, MOST_CELLS // self.cuts.size)

    def blocks(
        self, places: tuple[Ints, Ints, Ints], rows: Ints, groups: int
    ) -> Iterator[tuple[Ints, Sliding]]:
        """Divide entries by group, `groups_at_once` at a time: the entries of each block in order of birth, in cells.

        `places` are the group, birth and pane of each entry, and `rows` are the entries that the readers accept.
        """
        width, instants = self.groups_at_once, self.instants.size
        order, cells, ends = lay_out(places, rows, self.instants, self.cuts, width, groups)
        first = 0
        for block in range(-(-groups // width)):
            upto = ends[block * instants : (block + 1) * instants]
            last = int(upto[-1])
            size = min(width, groups - block * width)
            yield (
                order[first:last],
                Sliding(cells[first:last], upto - first, self.windows, size, self.cuts.size),
            )
            first = last

    def by_reader(
        self,
        task: AnswerTask,
        found: WindowAnswers,
        keys_of: Callable[[], list[pa.Array]],
        columns: Sequence[pa.Array],
    ) -> Iterator[Answers]:
        """Lay out answers, reader by reader; for a reader that only counts, their number."""
        sizes = found.sizes.sum(axis=0).tolist()
        keys, instants = list[pa.Array](), np.zeros(0, np.int64)
        if not self.is_counted:
            keys = keys_of()
            instants = np.repeat(np.tile(self.instants, len(self.readers)), found.sizes.T.ravel())
        for reader, first, size in zip(self.readers, found.starts[0].tolist(), sizes, strict=True):
            if size and reader.counted:
                yield Counted(reader.number, size)
            elif size:
                mine = [[column.slice(first, size) for column in some] for some in (keys, columns)]
                yield answer_batch(task, reader, instants[first : first + size], *mine)


def readers_alike(sets: Sequence[Ints], readers: Iterable[Due]) -> list[list[Due]]:
    """Put readers together that accept the same entries.

    `sets` are the distinct sets of readers that entries have; of rows, those of either side.  A reader that accepts no
    entry of a side has no answer.
    """
    alike: dict[tuple[tuple[bool, ...], ...], list[Due]] = {}
    for reader in readers:
        accepts = tuple(tuple((some >> reader.bit & 1 == 1).tolist()) for some in sets)
        if all(any(of_side) for of_side in accepts):
            alike.setdefault(accepts, []).append(reader)
    return list(alike.values())


def distinct_in(classes: Ints) -> Ints:
    """Return the distinct sets of readers, of which there is mostly one."""
    is_one = classes.strides == (0,) or (classes == classes[0]).all()
    return classes[:1] if is_one else classes[number_groups([classes])[1]]


def accepted_by(reader: Due, classes: Ints, size: int) -> Ints:
    """Return the entries that a reader accepts; a column with one value for all entries may have a stride of 0."""
    if classes.strides == (0,):
        return np.arange(size if classes[0] >> reader.bit & 1 else 0)
    mine = (classes >> reader.bit & 1).astype(np.bool_)
    return np.arange(size) if mine.all() else np.flatnonzero(mine)
