"""The settings of paper 4's experiments: the streams of its sections 5.2 and 7, and runs under every policy.

Section 5.2 reckons with evenly spaced rows, section 7 with exponential gaps, a window of a minute and 20 minutes a run.
Where the paper leaves it open: a window of older rows is there when a run begins; three runs of other streams are
averaged; there are 600 keys.

In:  rates, the cost of a join step, a policy, a seed.  Out: what was measured, shared by Figures 5 to 10.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from penstock.lab.paper4 import EACH, ONE, Size, run
from penstock.lab.paper4_equations import equation_3, equation_5, share
from penstock.lab.paper4_join import Join, Stream
from penstock.plan.order import HOLD, SYNC, Adaptive

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.lab.paper4 import Change
    from penstock.lab.paper4_join import Floats

ALPHA = 0.3
POLICIES = ("Sync-Filter", "Filter-Order", "Adaptive")
FAST = 10.0
WINDOW = 60.0
KEYS, FEW_KEYS = 600, 6
"""Keys, all alike: a fast row finds 0.1 partners in a slow stream's window of 60 rows, or 10."""

REPEATS = 3


# --- streams -------------------------------------------------------------------------------------------


def evenly(slow: float, fast: float, window: float, gaps: int) -> tuple[Stream, Stream]:
    """Make the streams of the analysis: so many gaps of the slow one, after a window of older rows.

    A fast row comes right behind each slow one.
    """
    n, before = round(fast / slow), int(window * slow) + 2
    slow_at = np.arange(-before, gaps + 1) / slow
    fast_at = np.nextafter(np.arange(-before * n, gaps * n + 1) / fast, np.inf)
    return _keyless(slow_at), _keyless(fast_at)


def _keyless(at: Floats) -> Stream:
    """Make a stream of rows that are there as soon as they happen."""
    return Stream(at, at, np.zeros(at.size, np.int64))


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
        gaps = [random.exponential(1 / rate, int(rate * (window + seconds)) + 100)]
        while sum(map(np.sum, gaps)) <= window + seconds:
            gaps.append(random.exponential(1 / rate, 100))
        at = np.cumsum(np.concatenate(gaps)) - window
        at = at[: np.searchsorted(at, seconds) + 1]
        made.append(Stream(at, at, random.integers(0, KEYS, at.size)))
    return tuple(made)


# --- the analysis --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Point:
    """A setting of section 5.2: rows a second of both streams, the cost of a step, and the gaps to simulate."""

    slow: float
    fast: float
    step: float
    gaps: int
    window: float = 86_400.0

    @property
    def share(self) -> float:
        """Give c·w·λ1·λ2."""
        return share(self.step, self.window, self.slow, self.fast)

    def reckoned(self, policy: str) -> float:
        """Give the average response time of the fast stream's rows by Eq. 3 or 5."""
        if policy == SYNC:
            return equation_3(self.step, self.window, self.slow, self.fast)
        return equation_5(self.slow, self.fast)

    def simulated(self, policy: str, who: str = EACH) -> float:
        """Give the same from a run."""
        streams = evenly(self.slow, self.fast, self.window, self.gaps)
        done = run(Join(streams, self.window, self.step, self.gaps / self.slow), policy, who)
        return float(done.responses(1).mean())


# --- experiments ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Setting:
    """An experiment of section 7: rows a second of the slow stream, the cost of a step, and how long a run is."""

    slow: float = 1.0
    step: float = 5e-4
    seconds: float = 1200.0

    @property
    def share(self) -> float:
        """Give c·w·λ1·λ2."""
        return share(self.step, WINDOW, self.slow, FAST)


STEPS = (1e-6, 1e-5, 1e-4, 5e-4, 7.5e-4, 1e-3)
"""Figure 7: the seconds of a join step.  The paper names both ends and that the fourth is 0.5 ms."""

SLOWS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Figure 9: rows a second of the slow stream."""


@dataclass(frozen=True)
class Measured:
    """What an experiment gave under one policy, on average over its runs; the largest buffers are of all runs."""

    response: float
    waiting: Size
    held: Size
    changes: tuple[tuple[Change, ...], ...]
    """The switches of each run."""
    holding: float
    """The share of the time in which an adaptive policy held results, not the input."""
    for_others: float
    """The part of the response in which a row only waited for rows before it to be joined."""

    @property
    def switches(self) -> float:
        """Give the number of switches per run."""
        return sum(map(len, self.changes)) / len(self.changes)

    @property
    def first(self) -> Change | None:
        """Give the first switch of the first run that has one."""
        return next((each[0] for each in self.changes if each), None)


def policy(name: str, alpha: float = ALPHA) -> str | Adaptive:
    """Give the policy that a figure calls by this name."""
    return {"Sync-Filter": SYNC, "Filter-Order": HOLD}.get(name, Adaptive(alpha))


@cache
def measure(setting: Setting, name: str, who: str, seed: int, alpha: float = ALPHA) -> Measured:
    """Run an experiment under a policy."""
    runs = [run(join, policy(name, alpha), who) for join in _joins(setting, seed)]
    return Measured(
        float(np.mean([each.response for each in runs])),
        _together([each.waiting() for each in runs]),
        _together([each.held() for each in runs]),
        tuple(each.changes for each in runs),
        float(np.mean([each.share_of_time(HOLD) for each in runs])),
        float(np.mean([each.for_others for each in runs])),
    )


@cache
def _joins(setting: Setting, seed: int) -> list[Join]:
    """Make the joins of an experiment: the same rows whatever the policy and the cost."""
    found = []
    for repeat in range(REPEATS):
        random = [seed, repeat, round(1000 * setting.slow)]
        streams = at_random((setting.slow, FAST), WINDOW, setting.seconds, random)
        found.append(Join(streams, WINDOW, setting.step, setting.seconds))
    return found


@cache
def held_with_few_keys(setting: Setting, name: str, seed: int) -> Size:
    """Measure the hold buffer, with one processor, of the same experiment where a row finds many partners."""
    sizes = []
    for join in _joins(setting, seed):
        streams = tuple(replace(each, key=each.key % FEW_KEYS) for each in join.streams)
        sizes.append(run(replace(join, streams=streams), policy(name), ONE).held())
    return _together(sizes)


def _together(sizes: Sequence[Size]) -> Size:
    """Sum up the buffers of several runs."""
    return Size(float(np.mean([each.mean for each in sizes])), max(each.most for each in sizes))


def by_policy(settings: Sequence[Setting], who: str, seed: int) -> dict[str, list[Measured]]:
    """Run experiments under every policy."""
    return {name: [measure(each, name, who, seed) for each in settings] for name in POLICIES}
