"""The sweep of paper 5: Query 1 and Query 2 of Fig. 4, each run made once for all figures.

    Query 1     S1 ⋈ S2 ⋈ S3                      S2 is congested from 10 s to 40 s, a burst of S3 is from 80 s to 90 s
    Query 2     J1 = S1 ⋈ S2 ⋈ S3  ──▶ S7 ┐
                J2 = S4 ⋈ S5 ⋈ S6  ──▶ S8 ┴ J3    S1, S2 and S3 are congested together, so that S7 runs behind S8

Streams have a scrambling of 0 to 500 rows, drawn for each, and two rows of each value, as in section 5.

In:  a `Sweep`, a sample, a strategy.  Out: a `Run`, or a `TreeRun` of three.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from papers.paper5_operator import (
    FIXED,
    MONITORED,
    Results,
    Run,
    Way,
    fixed_rows,
    found_with,
)
from papers.paper5_streams import (
    ALIKE,
    BURST,
    CAUGHT_UP,
    CONGESTION,
    RATE,
    Change,
    Floats,
    Flow,
    Stream,
    make,
)
from penstock.plan.buffers import DBF, HYBRID, MSF, PLAIN, Characteristics, joined

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

NAMES = {PLAIN: "WO-Join", DBF: "DBF", MSF: "MSF", HYBRID: "Hybrid"}
ROW_BYTES = 24
WANTED = 0.992
"""The least accuracy that the paper reports of monitored runs."""

SKETCHED = 1024  # rows that the estimate of missed results may hold
AFTERWARDS = 120.0
"""Seconds for which streams go on after a run: a lag is decided by rows still to come."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """All runs of the paper, by a seed: so many sets of streams of so many seconds, and so many for Query 2."""

    seed: int = 1
    samples: int = 5
    trees: int = 3
    seconds: float = 120.0


@dataclass(frozen=True)
class TreeRun:
    """Query 2 at work: J1, J2 and J3."""

    joins: tuple[Run, Run, Run]

    @property
    def held(self) -> float:
        """Give the rows in memory, on average."""
        return sum(mean_held(each) for each in self.joins)

    @property
    def accuracy(self) -> float:
        """Give the share of all results of the six streams that was found."""
        leaves = [each.stream.value[each.rows] for join in self.joins[:2] for each in join.inlets]
        return float(self.joins[2].found.sum()) / Results.of(leaves).rows.shape[1]


def mean_held(run: Run) -> float:
    """Give the rows in memory, on average, without the last batch, in which sorters and disks are emptied."""
    return float(run.held[:-1].sum(axis=1).mean())


def _streams(sweep: Sweep, sample: int, changes: Sequence[tuple[Change, ...]]) -> tuple[Stream, ...]:
    random = np.random.default_rng([sweep.seed, sample])
    longer = sweep.seconds + AFTERWARDS
    return tuple(make(Flow(int(random.integers(0, 501)), each), longer, random) for each in changes)


def streams_of_query_1(sweep: Sweep, sample: int, *, caught_up: bool = False) -> tuple[Stream, ...]:
    """Make the streams of Query 1."""
    slow = (CONGESTION, CAUGHT_UP) if caught_up else (CONGESTION,)
    return _streams(sweep, sample, ((), slow, (BURST,)))


@cache
def query_1(
    sweep: Sweep,
    sample: int,
    strategy: str = PLAIN,
    sizes: str = MONITORED,
    *,
    headroom: float = 0.0,
    caught_up: bool = False,
) -> Run:
    """Run Query 1.  `caught_up` is the other reading of a congestion: afterwards its rows come in a rush."""
    streams = streams_of_query_1(sweep, sample, caught_up=caught_up)
    watched = strategy == PLAIN and sizes == MONITORED and not caught_up
    return Run(
        streams,
        Way(strategy, sizes, headroom=headroom, sketch=SKETCHED if watched else 0),
        sweep.seconds,
    )


@cache
def query_2(sweep: Sweep, sample: int, strategy: str = PLAIN, *, measured: bool = False) -> TreeRun:
    """Run Query 2: J3's inputs are bounded by Theorem 3.1, or `measured` as any stream's."""
    streams = _streams(sweep, sample, ((CONGESTION,),) * 3 + ((),) * 3)
    first, second = (Run(each, Way(strategy), sweep.seconds) for each in (streams[:3], streams[3:]))
    told = None if measured else np.array([_bounds(each, strategy) for each in (first, second)]).T
    above = DBF if strategy in {DBF, HYBRID} else PLAIN  # results of sorted streams come in order
    third = Run((first.emitted(), second.emitted()), Way(above, scrambling=told), sweep.seconds)
    return TreeRun((first, second, third))


def _bounds(run: Run, strategy: str) -> list[int]:
    """Bound the scrambling of a join's results after each batch, from what was measured of its streams by then."""
    if strategy in {MSF, HYBRID}:
        return [ALIKE**3 - 1] * run.times.size
    known: Callable[[int], Characteristics] = lambda k: Characteristics(max(k, ALIKE - 1), ALIKE, RATE)  # noqa: E731
    return [joined([known(k) for k in each]).scrambling for each in run.measured.tolist()]


# --- W-Join -------------------------------------------------------------------------------------------------


def window_accuracy(run: Run, rows: Sequence[float] | Floats) -> float:
    """Give the share of results that W-Join finds where a run of WO-Join has the same input."""
    return float(found_with(run, fixed_rows(run, np.array(rows))).mean())


def window_for(run: Run, accuracy: float, *, same: bool = False) -> float:
    """Give the rows that W-Join takes to be as accurate, its windows in WO-Join's proportions, or all the same."""
    parts = np.ones(len(run.streams)) if same else run.held[:-1].mean(axis=0)
    low, high = 0.0, 2 * float(run.come.max()) / float(parts.min())
    while (high - low) * parts.sum() > 1:
        middle = (low + high) / 2
        low, high = (low, middle) if window_accuracy(run, middle * parts) >= accuracy else (middle, high)
    return float(fixed_rows_held(run, high * parts))


def fixed_rows_held(run: Run, rows: Sequence[float] | Floats) -> float:
    """Give the rows that W-Join holds, on average, with windows of so many."""
    return float((run.come - fixed_rows(run, np.array(rows)))[:-1].sum(axis=1).mean())


@cache
def window_tree(sweep: Sweep, sample: int, factor: float) -> TreeRun:
    """Run Query 2 with fixed windows: so many times the average of WO-Join's buffers."""
    ours = query_2(sweep, sample)
    sizes = [tuple(np.ceil(factor * each.held[:-1].mean(axis=0)).astype(int)) for each in ours.joins]
    first, second = (
        Run(each.streams, Way(sizes=FIXED, rows=rows), sweep.seconds)
        for each, rows in zip(ours.joins[:2], sizes[:2], strict=True)
    )
    way = Way(sizes=FIXED, rows=sizes[2])
    return TreeRun((first, second, Run((first.emitted(), second.emitted()), way, sweep.seconds)))


def window_tree_for(sweep: Sweep, sample: int, accuracy: float) -> float:
    """Give the rows that Query 2 takes with fixed windows to be as accurate: windows grow by a tenth until they are."""
    factor = 1.0
    while window_tree(sweep, sample, factor).accuracy < accuracy:
        factor *= 1.1
    return window_tree(sweep, sample, factor).held
