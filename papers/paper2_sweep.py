"""The sweep of paper 2: Table 1's windows, streams with bursts, what a scan costs, and runs of every policy.

What the paper gives, and what was chosen where it leaves it open, is in docs/papers/paper2.md.

In:  a `Sweep` and settings.  Out: what each of its streams gave, shared by Figures 5 to 9 and section 5.4.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from papers.paper2_scans import Floats, Ints, Run, Work, isolated, shared
from penstock.schedulers import Rings, make_scheduler

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


TABLE_1 = {
    "Uniform": (1, 100, 200, 300, 400, 500, 600),
    "Mostly-Small": (1, 5, 15, 30, 60, 300, 600),
    "Mostly-Large": (1, 60, 300, 420, 510, 570, 600),
    "Small-Large": (1, 5, 15, 300, 510, 570, 600),
}
"""Windows of the seven queries, seconds."""

POLICIES = {"LWO": "lwo", "SWF": "swf", "MQT": "mqt"}
BURSTS = (1, 2, 3, 4, 5)
ONE_EACH = (1,) * 7
LOAD = 0.76
"""The share of the time that the processor is busy: calibrated, for LWO is second and waits are long only around it."""

KEYS = 500  # keys, all alike: two tuples match with probability 1 / 500 = 0.002
KEY_STEP = 1e4
"""Added to a time once per key, so that one sorted column holds every key's times: longer than any run."""


class Method(NamedTuple):
    """How the other stream is searched: the rate it keeps up with, and seconds per tuple looked at and per result.

    `by_key` tells whether only tuples of the same key are looked at.
    """

    by_key: bool
    rate: float
    look: float
    produce: float

    def at(self, load: float) -> Method:
        """Make it as dear as keeps the processor busy for another share of the time."""
        return self._replace(look=self.look * load / LOAD, produce=self.produce * load / LOAD)


HASH = Method(True, 100.0, 0.6 * LOAD / 24_000, 0.4 * LOAD / 24_000)
"""200 tuples a second look at 120 each, one key in a bucket; producing is 40 % of it: 19 µs and 12.7 µs."""

NESTED_LOOP = Method(False, 15.0, (LOAD - 540 * HASH.produce) / 270_000, HASH.produce)
"""30 tuples a second look at 9,000 each and find 18: 2.8 µs for each tuple looked at."""


class Stream(NamedTuple):
    """One stream in order of arrival: times and keys.  The run begins at 0."""

    at: Floats
    key: Ints


def burst_sizes(random: np.random.Generator, mean: float, tuples: int) -> Ints:
    """Draw bursts that make up so many tuples: Pareto from 1 upwards, shape α with α / (α - 1) = mean.

    A size is rounded up or down by chance, so that its mean stays what it is; the last burst is cut.
    """
    if mean == 1:
        return np.ones(tuples, np.int64)
    # At least one each: as many as tuples are always enough.
    drawn = random.pareto(mean / (mean - 1), tuples) + 1
    sizes = np.minimum(np.floor(drawn + random.random(tuples)), tuples).astype(np.int64)
    upto = np.cumsum(sizes)
    last = int(np.searchsorted(upto, tuples))
    sizes[last] -= upto[last] - tuples
    return sizes[: last + 1]


def arrivals(random: np.random.Generator, rate: float, burst: float, tuples: int) -> Floats:
    """Make the arrivals of one stream: exactly `tuples` in ``tuples / rate`` seconds, bursts at random moments.

    Tuples of a burst come at the same time.  Moments are those of a Poisson process with a known number of events.
    """
    sizes = burst_sizes(random, burst, tuples)
    return np.repeat(np.sort(random.random(sizes.size)) * tuples / rate, sizes)


@lru_cache(maxsize=8)
def streams(rate: float, burst: float, history: float, tuples: int, seed: int) -> tuple[Stream, ...]:
    """Make two streams, with `history` seconds of tuples that are already there when the run begins."""
    random = np.random.default_rng([seed, int(rate), int(10 * burst)])
    made = []
    for _ in "AB":
        before = arrivals(random, rate, burst, int(rate * history)) - history
        at = np.concatenate((before, arrivals(random, rate, burst, tuples // 2)))
        made.append(Stream(at, random.integers(0, KEYS, at.size)))
    return tuple(made)


def work_of(sides: Sequence[Stream], windows: Sequence[float], method: Method) -> Work:
    """Count for each new tuple what it looks at and finds in each ring of the other stream."""
    parts = []
    for outer, inner in (sides, sides[::-1]):
        new = outer.at >= 0
        at, key = outer.at[new], outer.key[new]
        results = _in_rings(np.sort(inner.key * KEY_STEP + inner.at), key * KEY_STEP + at, windows)
        looked = results if method.by_key else _in_rings(inner.at, at, windows)
        parts.append((at, looked * method.look + results * method.produce, results))
    columns = [np.concatenate(each) for each in zip(*parts, strict=True)]
    order = np.argsort(columns[0], kind="stable")
    return Work(*(each[order] for each in columns))


def _in_rings(sorted_times: Floats, at: Floats, windows: Sequence[float]) -> Ints:
    """Count the times in each ring before a moment: of ages from one window, 0 at first, to the next."""
    order = np.argsort(at)  # those that look in order look faster
    ends = np.stack([np.searchsorted(sorted_times, at[order] - window) for window in (0, *windows)], axis=1)
    counts = np.empty((at.size, len(windows)), np.int64)
    counts[order] = -np.diff(ends, axis=1)
    return counts


@dataclass(frozen=True, slots=True)
class Setting:
    """One experiment of section 5: windows, mean burst, queries of each window, and method."""

    windows: str
    burst: float = 1
    queries: tuple[int, ...] = ONE_EACH
    method: Method = HASH
    outward: bool = False
    """Of rings that serve as many queries a second, MQT prefers outer ones, as Penstock's engine does: by section 5.1
    it takes SWF's steps on Uniform windows, so here it prefers inner ones."""

    def rings(self) -> Rings:
        """Give the rings; scanning one takes time in proportion to its width."""
        widths = [float(outer - inner) for inner, outer in pairwise((0, *TABLE_1[self.windows]))]
        tilt = 0.0 if self.outward else 1e-9
        return Rings(self.queries, tuple(width * (1 + tilt * ring) for ring, width in enumerate(widths)))


def skewed(window: int) -> tuple[int, ...]:
    """Spread 30 queries: 80 % on one window, one on each of the others."""
    return tuple(24 if each == window else 1 for each in range(7))


@dataclass(frozen=True, slots=True)
class Sweep:
    """All runs of the paper, by a seed: `samples` pairs of streams for each setting."""

    seed: int = 1
    samples: int = 5
    tuples: int = 100_000
    """Outer tuples of a run, of both streams together."""


class WindowTimes(NamedTuple):
    """What one run gave, by window: how many results, their average and their longest response."""

    results: tuple[int, ...]
    mean: tuple[float, ...]
    longest: tuple[float, ...]

    def average(self, queries: Sequence[int], *, by_result: bool = False) -> float:
        """Average over the queries, each by its own average; or over all results as received by each query."""
        weights = np.array(queries) * (np.array(self.results) if by_result else 1)
        return float(np.average(self.mean, weights=weights))


@lru_cache(maxsize=8)
def _work(windows: str, burst: float, method: Method, tuples: int, seed: int) -> Work:
    """Make the work of one pair of streams: the same tuples whatever the windows, policy and queries."""
    ends = TABLE_1[windows]
    return work_of(streams(method.rate, burst, ends[-1], tuples, seed), ends, method)


def runs(sweep: Sweep, setting: Setting, policy: str, release: str = "") -> Iterator[Run]:
    """Run an experiment on every pair of streams."""
    for seed in range(sweep.seed, sweep.seed + sweep.samples):
        work = _work(setting.windows, setting.burst, setting.method, sweep.tuples, seed)
        yield shared(work, make_scheduler(policy, setting.rings()), release)


@cache
def measure(sweep: Sweep, setting: Setting, policy: str, release: str = "") -> tuple[WindowTimes, ...]:
    """Measure an experiment under a policy on every pair of streams; `alone` runs each query by itself."""
    same = Setting(setting.windows, setting.burst, method=setting.method)
    if policy != "mqt" and setting != same:  # the others do not look at queries, and have no ties
        return measure(sweep, same, policy, release)
    measured = []
    for run in runs(sweep, setting, "lwo" if policy == "alone" else policy, release):
        ways = [isolated(run.work, query) if policy == "alone" else run for query in range(7)]
        times = [each.responses(query) for query, each in enumerate(ways)]
        measured.append(WindowTimes(*zip(*times, strict=True)))
    return tuple(measured)


@cache
def buffers(sweep: Sweep, setting: Setting, policy: str) -> tuple[float, float]:
    """Give the largest input buffer of a stream and the largest output buffer, the middle of the streams' largest.

    Shares of a join buffer, which holds λ w_max tuples of one stream.
    """
    full = setting.method.rate * TABLE_1[setting.windows][-1]
    sizes = [(each.input_buffer() / 2, each.output_buffer()) for each in runs(sweep, setting, policy)]
    waiting, held = (median(each) / full for each in zip(*sizes, strict=True))
    return waiting, held
