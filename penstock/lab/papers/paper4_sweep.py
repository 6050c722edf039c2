"""The sweep of paper 4: the streams of its section 7, run under every policy.

Exponential gaps, a window of a minute, 20 minutes a run.  Where the paper leaves it open: a window of older rows is
there when a run begins; several runs of other streams are averaged; there are 600 keys.  What a slow row is charged is
calibrated: see `FITTED`.

In:  a `Sweep`, rates, the cost of a join step, a policy.  Out: what was measured, shared by Figures 7 to 10.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from penstock.lab.papers.paper4_join import Join, Stream
from penstock.lab.papers.paper4_operator import EACH, ONE, Size, run
from penstock.plan.order import HOLD, SYNC, Adaptive, Load

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.lab.papers.paper4_operator import Change

ALPHA = 0.3
POLICIES = {"Sync-Filter": SYNC, "Filter-Order": HOLD, "Adaptive": "adaptive"}
FAST = 10.0
WINDOW = 60.0
KEYS, FEW_KEYS = 600, 6
"""Keys, all alike: a fast row finds 0.1 partners in a slow stream's window of 60 rows, or 10."""


class Model(NamedTuple):
    """Who works, and the part of its join steps that a slow row is charged."""

    title: str
    who: str
    slow_charge: float


FITTED = Model("slow rows charged a fifth", ONE, 0.2)
"""Calibrated: with it Filter-Order is flat and gains more than half at 1 ms, as the paper says; 0.25 would do too."""

MODELS = (FITTED, Model("all rows charged", ONE, 1.0), Model("a processor for each stream", EACH, 1.0))


def at_random(
    rates: Sequence[float], window: float, seconds: float, seed: Sequence[int]
) -> tuple[Stream, ...]:
    """Make streams with exponential gaps: a window of older rows, a run, and the first row after it of each.

    >>> slow, fast = at_random((1, 10), 60, 1200, [1])
    >>> [round(each.at.size / 1260, 1) for each in (slow, fast)], slow.at[-2] < 1200 < slow.at[-1]
    ([1.0, 10.0], np.True_)
    """
    random, made = np.random.default_rng(seed), []
    for rate in rates:
        at = np.array([-window])
        while at[-1] <= seconds:
            gaps = random.exponential(1 / rate, int(rate * (window + seconds)) + 100)
            at = np.append(at, at[-1] + np.cumsum(gaps))
        at = at[1 : np.searchsorted(at, seconds) + 1]
        made.append(Stream(at, at, random.integers(0, KEYS, at.size)))
    return tuple(made)


@dataclass(frozen=True, slots=True)
class Setting:
    """An experiment of section 7: rows a second of the slow stream, the cost of a step, alpha, and keys."""

    slow: float = 1.0
    step: float = 5e-4
    alpha: float = ALPHA
    keys: int = KEYS

    @property
    def share(self) -> float:
        """Give c·w·λ1·λ2."""
        return Load(self.step, WINDOW, (self.slow, FAST)).share


@dataclass(frozen=True, slots=True)
class Sweep:
    """All runs of the paper, by a seed: `samples` runs of other streams for each setting, so many seconds each."""

    seed: int = 1
    samples: int = 4
    seconds: float = 1200.0


class Summary(NamedTuple):
    """What an experiment gave under one policy, on average over its runs; the largest buffers are of all runs.

    `changes` are the switches of each run, `holding` the share of the time in which results waited, not the input.
    """

    response: float
    waiting: Size
    held: Size
    changes: tuple[tuple[Change, ...], ...]
    holding: float

    @property
    def switches(self) -> float:
        """Give the number of switches per run."""
        return sum(map(len, self.changes)) / len(self.changes)


@cache
def measure(sweep: Sweep, setting: Setting, name: str, model: Model = FITTED) -> Summary:
    """Run an experiment under a policy."""
    policy = Adaptive(setting.alpha) if name == "Adaptive" else POLICIES[name]
    runs = [run(join, policy, model.who) for join in _joins(sweep, setting, model)]
    waiting, held = (_together(sizes) for sizes in zip(*((r.waiting(), r.held()) for r in runs), strict=True))
    response, changes = fmean(each.response for each in runs), tuple(each.changes for each in runs)
    return Summary(response, waiting, held, changes, fmean(each.share_of_time(HOLD) for each in runs))


def _together(sizes: Sequence[Size]) -> Size:
    return Size(fmean(each.mean for each in sizes), max(each.most for each in sizes))


@cache
def _joins(sweep: Sweep, setting: Setting, model: Model) -> list[Join]:
    """Make the joins of an experiment: the same rows whatever the policy, the cost and who works."""
    found = []
    for sample in range(sweep.samples):
        seed = [sweep.seed, sample, round(1000 * setting.slow)]
        streams = at_random((setting.slow, FAST), WINDOW, sweep.seconds, seed)
        streams = tuple(replace(each, key=each.key % setting.keys) for each in streams)
        found.append(Join(streams, WINDOW, setting.step, sweep.seconds, model.slow_charge))
    return found


def by_policy(sweep: Sweep, settings: Sequence[Setting], model: Model = FITTED) -> dict[str, list[Summary]]:
    """Run experiments under every policy."""
    return {name: [measure(sweep, each, name, model) for each in settings] for name in POLICIES}


def responses(found: dict[str, list[Summary]]) -> dict[str, list[float]]:
    """Give the average response times."""
    return {name: [each.response for each in runs] for name, runs in found.items()}
