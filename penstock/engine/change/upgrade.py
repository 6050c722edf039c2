"""Segments under a new layout: a new query's predicates are answered for the rows held, so that it can have their past.

A predicate on a column that nobody stored has no answer, and its query begins with the rows to come.

In:  the logs that a new plan stores differently, and the answers to the new predicates.
Out: the same segments under the new layout.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.log.relayout import Meaning, relayout_segment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from penstock.log.files import Files
    from penstock.log.segment import Segment
    from penstock.log.values import Layout
    from penstock.plan.stored import LogPlan
    from penstock.sql.query import Stream


@dataclass(frozen=True, slots=True)
class Upgrade:
    """What is to be rewritten: some segments of an old layout of a log, under its new layout and its number."""

    stream: Stream
    log: LogPlan
    old: Layout
    segments: Sequence[Segment]
    layout: int


def new_predicates(log: LogPlan, old: Layout) -> list[str]:
    """List the predicates that an old layout has no answers to."""
    return [each for each in log.predicates if each not in old.predicates]


def write_upgraded(
    files: Files, upgrade: Upgrade, number: int, answers: Mapping[str, NDArray[np.bool_]]
) -> Segment:
    """Write one of the segments again, with the answers to the new predicates, row by row."""
    meaning = Meaning(upgrade.old.predicates, upgrade.log.predicates, upgrade.layout)
    return relayout_segment(files, upgrade.log.id, upgrade.segments[number], meaning, answers)
