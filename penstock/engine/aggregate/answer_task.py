"""What a task is told that answers from a pane set, and what it reports: plain values, which tasks of Spark are sent.

In:  who is due (`penstock.engine.aggregate.answers`).  Out: `AnswerTask`, for `penstock.engine.aggregate.pane_answers`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.engine.aggregate.pane_fold import FoldSpec
from penstock.state.panes import PaneFile

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.engine.views.finished import FinishedKeys

READER, NOTE, INSTANT, WAS = "q", "note", "e", "was"
"""Columns of answers: which reader, the note at the end, the instant (or the number of the change), and whether the
group had been answered before."""

LONG_AGO = -(1 << 62)
"""Before all births and instants: who has not been answered yet was answered then."""


@dataclass(frozen=True, slots=True)
class Due:
    """What one reader is to be answered: by its bit, for the instants or ends ``since < e <= until``."""

    number: int
    """Which of the task's readers it is."""
    bit: int
    since: int
    until: int
    width: int = 0
    every: int = 0
    again: bool = False
    """Whether all groups are told, and not only those that have changed."""
    counted: bool = False
    """Whether its answers are only counted: they are computed, and nothing is laid beside them."""


@dataclass(frozen=True, slots=True)
class AnswerTask:
    """What one task is told about a pane set."""

    spec: FoldSpec
    files: tuple[PaneFile, ...]
    due: tuple[Due, ...]
    folds_until: int
    """Births up to here have been seen by every reader when this is done; before the first of all: none."""
    schema: pa.Schema
    """Of the group keys and measures, as Spark has them."""
    with_before: bool = False
    """Whether changes carry what a group was before (``b0 b1 …``), for a HAVING to be asked of it."""
    bits: int = -1
    """The bits of all readers there are: entries of nobody are left behind."""
    part: int = 0
    """Which part of the set's groups."""
    finishing: FinishedKeys | None = None
    """Final: the promises that end groups."""
    share: int = 0
    """Sliding, where tasks divide the instants: which of them this one has."""
    only_answers: bool = False
    """Sliding: whether another task, which has later instants, folds what everybody has seen."""

    @property
    def number(self) -> int:
        """Tell it from the other tasks of its set, which has several parts or several shares, never both."""
        return self.part + self.share


@dataclass(frozen=True, slots=True)
class Counted:
    """How many answers one of a task's readers got, all of which are only counted: no row is laid out."""

    reader: int
    answers: int


@dataclass(frozen=True, slots=True)
class PaneReport:
    """Which files of a pane set go, and which take their place."""

    gone: tuple[str, ...] = ()
    files: tuple[PaneFile, ...] = ()
