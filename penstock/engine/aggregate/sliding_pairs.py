"""Sliding answers from folded pairs: the entries that windows see, and what they come to.

In:  the files of an `AnswerTask`, and the windows that are requests.  Out: answers, by reader and instant.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.engine.aggregate.pane_entries import Entries, SeenGroups
from penstock.engine.aggregate.visible import visible_table
from penstock.engine.aggregate.window_requests import accepted_by, distinct_in
from penstock.kernels.aggregates.count import counted
from penstock.kernels.slide_measures import EntryRun, laid_in
from penstock.kernels.slide_pass import slide_parts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.engine.aggregate.answer_task import AnswerTask
    from penstock.engine.aggregate.pane_entries import PaneTables
    from penstock.engine.aggregate.window_requests import Answers, WindowRequests
    from penstock.kernels.key_hash import Ints
    from penstock.kernels.slide import Sliding, WindowAnswers


@dataclass(frozen=True, slots=True)
class PairView:
    """The entries that windows of some instants see, and perhaps more."""

    task: AnswerTask
    entries: Entries

    @classmethod
    def of(cls, tables: PaneTables, task: AnswerTask, cuts: Sequence[int], until: int) -> PairView | None:
        """Read the entries born by an instant, from the first cut on; None if there are none."""
        found = [visible_table(tables, task, number, cuts, until) for number in range(tables.count)]
        if found[0] is None or not found[0].num_rows:
            return None
        return cls(task, Entries(task, found))

    @property
    def reader_sets(self) -> list[Ints]:
        """Return the distinct sets of readers of the entries."""
        return [distinct_in(self.entries.classes)]

    def answers(self, requests: WindowRequests) -> Iterator[Answers]:
        """Answer readers that accept the same entries, a few groups at a time."""
        entries = self.entries
        rows = accepted_by(requests.readers[0], entries.classes, entries.classes.size)
        places = entries.gid, entries.born, entries.pane
        for number, (some, sliding) in enumerate(requests.blocks(places, rows, entries.groups)):
            if some.size:
                yield from self._answers(requests, number * requests.groups_at_once, some, sliding)

    def _answers(
        self, requests: WindowRequests, first: int, rows: Ints, sliding: Sliding
    ) -> Iterator[Answers]:
        """Answer the groups of one block, from the group `first` on."""
        entries = self.entries
        counts = entries.count.parts["n"]
        parts, slots = laid_in([EntryRun(entries.measures, rows, counts)], often=1)
        is_kept = (
            bool(entries.distinct) or not requests.is_counted or not all(slot.is_final for slot in slots)
        )
        slid = slide_parts([[sliding]], [parts], keep=is_kept)
        found = slid.seen
        if not found.sizes.any():
            return
        groups = found.groups + first
        folded = [
            slot.measure.slid(sliding, found, rows, counts)
            if slot.is_apart
            else slot.read(slid.sides[0], found)
            for slot in slots
        ]
        distinct = self._distinct_columns(requests, found, groups)
        whole = SeenGroups(requests.readers[0], groups, [counted(found.counts), *folded])
        columns = entries.columns(whole, distinct) if is_kept else []
        yield from requests.by_reader(self.task, found, lambda: entries.keys(groups), columns)

    def _distinct_columns(
        self, requests: WindowRequests, found: WindowAnswers, groups: Ints
    ) -> list[pa.Array]:
        """Return the finished DISTINCT measures of all answers."""
        if not self.entries.distinct:
            return []
        parts = []
        for window, reader in enumerate(requests.readers):
            for at, instant in enumerate(requests.instants.tolist()):
                first, size = found.starts[at, window], found.sizes[at, window]
                if size:
                    seen = SeenGroups(reader, groups[first : first + size], [])
                    threshold = int(requests.thresholds[at, window])
                    parts.append(self.entries.distinct_columns(seen, instant, threshold))
        return [pa.concat_arrays(column) for column in zip(*parts, strict=True)]
