"""Work that is sooner done than told: units, rewrites and merges so small that a job of Spark takes longer to begin.

A job takes 30 to 100 ms beside its work: it is planned, scheduled, sent to Python processes and heard of.  Joining a
few thousand rows takes less than ten.  So such work is done by the joiner itself, with the functions that tasks run::

    rows per unit     10        1,000        100,000        10,000,000
                      |── in the joiner ──|──────── tasks of Spark ────────|

How many pairs a unit will find is not known before; it is taken to be as many for each new row as those before had, and
of the first one, all that its rows could make.  A wrong guess costs time once and nothing else: rows are gathered in
pieces of bounded bytes wherever that is done.

In:  what a job would be told.  Out: whether to run it here.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.engine.out.deliver import UnitReport
    from penstock.engine.units.unit_task import UnitTask
    from penstock.log.segment import Segment
    from penstock.log.tables import Merge

MOST_ROWS = 1 << 15
"""New rows of a unit, or rows of a rewrite, that are little work."""

MOST_PAIRS = 1 << 16
"""Pairs that are little work to find and to write."""

AT_WORST = 16
"""All pairs that rows could make are taken for so many times those that they do."""

FADING = 0.9
"""How much of what was known of pairs counts at the next unit, where that found fewer."""

MOST_BYTES = 1 << 20
"""Bytes of files of results that are little work to merge."""


class LittleUnits:
    """Tells small units from others by the rows they have and by the pairs that the units before them found."""

    def __init__(self) -> None:
        """Know nothing of pairs yet."""
        self._pairs_per_row: float | None = None

    def is_little(self, task: UnitTask) -> bool:
        """Say whether a unit is sooner joined than told."""
        rows = task.new_rows
        pairs = _all_pairs(task) / AT_WORST if self._pairs_per_row is None else rows * self._pairs_per_row
        return rows <= MOST_ROWS and pairs <= MOST_PAIRS

    def note(self, task: UnitTask, reports: Iterable[UnitReport]) -> None:
        """Remember how many pairs a unit found; of the last and those before, the more count."""
        if task.new_rows:
            found = sum(each.pairs for each in reports) / task.new_rows
            self._pairs_per_row = max(found, FADING * (self._pairs_per_row or 0.0))


def _all_pairs(task: UnitTask) -> int:
    """Count the pairs that there would be if every row met every other."""
    return math.prod(sum(each.rows for each in (*side.old, *side.new)) for side in task.inputs)


def is_little_rewrite(runs: Iterable[Sequence[Segment]]) -> bool:
    """Say whether segments are sooner rewritten than told."""
    return sum(each.rows for run in runs for each in run) <= MOST_ROWS


def is_little_merge(merges: Iterable[Merge]) -> bool:
    """Say whether files of results are sooner merged than told."""
    return sum(file.bytes for each in merges for file in each.inputs) <= MOST_BYTES
