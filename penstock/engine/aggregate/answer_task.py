"""The description of a task that answers from a pane set, and its report: plain values, which travel to Spark tasks.

In:  the readers that are due (`penstock.engine.aggregate.answers`).  Out: an `AnswerTask`, for
`penstock.engine.aggregate.pane_answers`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.engine.aggregate.fold_spec import FoldSpec
from penstock.state.panes import PaneFile

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.engine.views.finished import FinishedKeys

READER, NOTE, INSTANT, WAS = "q", "note", "e", "was"
"""Columns of answers: the reader, the report at the end, the instant (or the number of the change), and whether the
group was answered before."""

LONG_AGO = -(1 << 62)
"""A time before all births and instants: the last answered instant of a reader without answers."""


@dataclass(frozen=True, slots=True)
class Due:
    """One reader that is due, for the instants or bucket ends ``since < e <= until``."""

    number: int
    """Its number among the readers of the task."""
    bit: int
    """Its bit in the sets of readers of entries."""
    since: int
    until: int
    width: int = 0
    every: int = 0
    again: bool = False
    """Whether all groups are answered, and not only those that have changed."""
    counted: bool = False
    """Whether its answers are only counted, so that keys are not needed."""


@dataclass(frozen=True, slots=True)
class AnswerTask:
    """The work of one task on a pane set."""

    spec: FoldSpec
    files: tuple[PaneFile, ...]
    due: tuple[Due, ...]
    folds_until: int
    """Entries born up to here are seen by every reader after this task; `LONG_AGO`: none."""
    schema: pa.Schema
    """The types of group keys and measures, as Spark has them."""
    with_before: bool = False
    """Whether changes have the measures before (``b0 b1 …``), for a HAVING over them."""
    bits: int = -1
    """The bits of all readers; entries of other readers are dropped."""
    part: int = 0
    """The part of the set's groups."""
    finishing: FinishedKeys | None = None
    """Final: the promises that end groups."""
    share: int = 0
    """Sliding, where tasks divide the instants: the number of the task."""
    only_answers: bool = False
    """Sliding: whether another task, with later instants, folds the entries that all readers have seen."""

    @property
    def number(self) -> int:
        """Return the number of the task in its set, which has several parts or several shares, never both."""
        return self.part + self.share


@dataclass(frozen=True, slots=True)
class Counted:
    """The number of answers of a reader whose answers are only counted."""

    reader: int
    answers: int


@dataclass(frozen=True, slots=True)
class PaneReport:
    """The files of a pane set that go, and the files that take their place."""

    gone: tuple[str, ...] = ()
    files: tuple[PaneFile, ...] = ()
