"""The sweep of paper 3: which streams each figure joins, by which join, at what cost, and every run made once.

The join is *CPU-limited* (section 6.1): its input never runs dry, so what it has done after so many seconds of its own
running time says how fast it is.  It is looked at every step of running time, as in the paper.

Two cost models stand beside each other (docs/papers/paper3.md): what the paper's storage structure takes as it is
written, and one that is calibrated so that the paper's sentences about Figure 9 hold together.

In:  a `Sweep` and a `Setting`.  Out: a `Run` for each pair of streams.  Windows and steps are seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, lru_cache
from math import inf
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from papers.paper3_joins import Costs, Join, Run, Sample
from papers.paper3_streams import Item, Notation, Stream, make, merged

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from papers.figure import Outcome, Series

PWJOIN, WJOIN, PJOIN = "PWJoin", "WJoin", "PJoin"
WRITTEN = Costs(inf, purge=1, result=1, speed=4_200)
"""As the paper's structure is written: an index is searched at once, and every node costs the same."""

FITTED = Costs(100, purge=20, result=5, speed=16_000)
"""Calibrated: from 19 to 22 visits for a purged row WJoin is slightly ahead at 5 s and PWJoin clearly at 15 s."""

MODELS = {"calibrated": FITTED, "as written": WRITTEN}
"""Both speeds are such that WJoin with a window of 15 s takes about as long as the streams of Figure 9."""

WINDOWS = (1, 5, 15)
SHORT = 80.0  # seconds of streams, where all of them are joined
MIXED = "punct-asc-30-40", "punct-random-30-40"  # of Figures 10 and 11
Pair = tuple[Notation, Notation]


@dataclass(frozen=True, slots=True)
class Sweep:
    """All runs of the paper, by a seed: so many pairs of streams and steps a run.

    `streams`, if given, are joined in place of those that the paper names.
    """

    seed: int = 1
    samples: int = 5
    steps: int = 40
    streams: Pair | None = None

    @property
    def long(self) -> float:
        """Give the seconds of streams that the fastest join does not use up."""
        return 15.0 * self.steps

    def pair(self, first: str, second: str) -> Pair:
        """Give the streams of an experiment: those of the paper, or those asked for."""
        return self.streams or (Notation.parse(first), Notation.parse(second))


@dataclass(frozen=True, slots=True)
class Setting:
    """An experiment: two streams of so many seconds, the windows of both, and whether punctuations are irrelevant."""

    streams: Pair
    windows: tuple[float, float]
    seconds: float = 250.0
    irrelevant: bool = False

    def over(self, values: int) -> Setting:
        """Give the same experiment with other values to draw from."""
        first, second = (replace(each, values=values) for each in self.streams)
        return replace(self, streams=(first, second))

    def join(self, name: str, costs: Costs) -> Join:
        """Make the join of a name: PJoin has no windows, WJoin heeds no punctuations."""
        windows = (inf, inf) if name == PJOIN else (1000 * self.windows[0], 1000 * self.windows[1])
        return Join(windows, costs, heeds=name != WJOIN)


@lru_cache(60)
def streams(sweep: Sweep, sample: int, setting: Setting) -> tuple[Stream, Stream]:
    """Make a pair of streams: the same whatever the windows, and the same rows if punctuations are irrelevant."""
    random = np.random.default_rng([sweep.seed, sample])
    first, second = (make(each, setting.seconds, random) for each in setting.streams)
    return (first.irrelevant(), second.irrelevant()) if setting.irrelevant else (first, second)


@lru_cache(10)
def _items(sweep: Sweep, sample: int, setting: Setting) -> list[Item]:
    return merged(*streams(sweep, sample, setting))


def items(sweep: Sweep, sample: int, setting: Setting) -> list[Item]:
    """Lay a pair of streams out as the join receives them."""
    return _items(sweep, sample, replace(setting, windows=(0, 0)))


@cache
def runs(sweep: Sweep, setting: Setting, name: str, costs: Costs = FITTED, step: float = 2.0) -> list[Run]:
    """Run a join on every pair of streams for the sweep's steps of running time."""
    made = []
    for sample in range(sweep.samples):
        join = setting.join(name, costs)
        run = join.process(items(sweep, sample, setting), step, sweep.steps)
        # Where the streams end before the steps do, all stays as it is.
        last = Sample(round(1000 * setting.seconds), join.held, run.results, len(run.told))
        run.counts["dry"] = sweep.steps - len(run.samples)
        run.samples += [last] * run.counts["dry"]
        made.append(run)
    return made


@cache
def whole(sweep: Sweep, setting: Setting, name: str) -> list[Run]:
    """Run a join on the whole of every pair of streams; what it costs is reckoned afterwards."""
    return [
        setting.join(name, WRITTEN).process(items(sweep, sample, setting)) for sample in range(sweep.samples)
    ]


def gains(sweep: Sweep, setting: Setting, costs: Costs) -> list[float]:
    """Give for each pair of streams by how much PWJoin is faster than WJoin on the whole of them."""
    both = zip(whole(sweep, setting, WJOIN), whole(sweep, setting, PWJOIN), strict=True)
    return [costs.of(window) / costs.of(ours) - 1 for window, ours in both]


def mean(made: Sequence[Run], of: Callable[[Sample], float]) -> list[float]:
    """Give the average over runs, step by step."""
    return [fmean(map(of, step)) for step in zip(*(each.samples for each in made), strict=True)]


def same(window: float, streams: Pair, seconds: float = 250.0) -> Setting:
    """Give an experiment with one window on both streams."""
    return Setting(streams, (window, window), seconds)


def show(out: Outcome, sweep: Sweep, title: str, panels: Mapping[str, Series], step: int) -> None:
    """Lay series out, a table for each panel with every fourth step, and draw them."""
    steps = [step * (n + 1) for n in range(sweep.steps)]
    for name, series in panels.items():
        some = {each: y[3::4] for each, y in series.items()}
        out.series(f"{title}: {name}", "running time (s)", steps[3::4], some, lambda y: f"{y:,.0f}")
    out.draw(panels, steps, "running time (s)", title, columns=2 if len(panels) in {2, 4} else 3)
    out.note(
        f"Averages over {sweep.samples} pairs of streams, looked at every {step} s of the join's running time."
    )
    if sweep.streams:
        out.note(f"Joined {' and '.join(map(str, sweep.streams))} in place of the paper's streams.")
