"""The settings of paper 2's experiments: Table 1, streams with bursts, what a scan costs, and runs of every policy.

The paper gives the windows, the rates (100 tuples a second and stream; 15 for nested loops), the selectivity (0.002),
and that producing results takes up to 40 % of the time (section 3.4).  It does not give what a scan costs: here it is
such that the processor is busy 90 % of the time, so that every policy keeps up.

In:  a seed.  Out: `Work` made from real tuples with keys, and its runs, shared by Figures 5 to 9.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from penstock.lab.paper2 import Run, Work, isolated, shared
from penstock.plan.schedule import Rings, Scheduler

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.lab.paper2 import Floats, Ints, Responses

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
TUPLES = 40_000
"""Outer tuples of a run, of both streams together."""

KEYS = 500
"""Keys, all alike: two tuples match with probability 1 / 500 = 0.002."""

KEY_STEP = 1e4
"""Added to a time once per key, so that one sorted column holds every key's times: longer than any run."""


@dataclass(frozen=True, slots=True)
class Method:
    """How the other stream is searched: the rate it can keep up with, and seconds per tuple looked at and result."""

    name: str
    rate: float
    look: float
    produce: float

    @property
    def by_key(self) -> bool:
        """Tell whether only tuples of the same key are looked at."""
        return self.name == "hash"


HASH = Method("hash", 100.0, 22.5e-6, 15e-6)
"""200 tuples a second look at 120 each: 24,000 · 37.5 µs = 0.9; producing is 40 % of it.  One key in a bucket."""

NESTED_LOOP = Method("nested loop", 15.0, 3.3e-6, 15e-6)
"""30 tuples a second look at 9,000 each and find 18: 270,000 · 3.3 µs + 540 · 15 µs = 0.9."""


# --- streams -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stream:
    """One stream in order of arrival: times and keys.  The run begins at 0."""

    at: Floats
    key: Ints


def burst_sizes(random: np.random.Generator, mean: float, tuples: int) -> Ints:
    """Draw bursts that make up so many tuples: Pareto from 1 upwards, shape α with α / (α - 1) = mean.

    A size is rounded up or down by chance, so that its mean stays what it is; the last burst is cut.

    >>> burst_sizes(np.random.default_rng(1), 1, 3)
    array([1, 1, 1])
    >>> burst_sizes(np.random.default_rng(1), 5, 1000).sum()
    np.int64(1000)
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
    moments = np.sort(random.random(sizes.size)) * tuples / rate
    return np.repeat(moments, sizes)


@cache
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
    for mine, other in (sides, sides[::-1]):
        new = mine.at >= 0
        at, key = mine.at[new], mine.key[new]
        found = _in_rings(np.sort(other.key * KEY_STEP + other.at), key * KEY_STEP + at, windows)
        looked = found if method.by_key else _in_rings(other.at, at, windows)
        parts.append((at, looked * method.look + found * method.produce, found))
    at, cost, found = (np.concatenate(each) for each in zip(*parts, strict=True))
    order = np.argsort(at, kind="stable")
    return Work(at[order], cost[order], found[order])


def _in_rings(sorted_times: Floats, at: Floats, windows: Sequence[float]) -> Ints:
    """Count the times in each ring before a moment: of ages from one window, 0 at first, to the next."""
    places = np.stack([np.searchsorted(sorted_times, at - window) for window in (0, *windows)], axis=1)
    return -np.diff(places, axis=1)


# --- experiments ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Setting:
    """One experiment of section 5: windows, mean burst, queries of each window, method, and tuples run."""

    windows: str
    burst: float = 1
    queries: tuple[int, ...] = ONE_EACH
    method: Method = HASH
    tuples: int = TUPLES
    inner_first: bool = False
    """Of rings that serve as many queries a second, prefer inner ones: MQT as written prefers outer ones."""

    def rings(self) -> Rings:
        """Give the rings; scanning one takes time in proportion to its width."""
        widths = [float(outer - inner) for inner, outer in pairwise((0, *TABLE_1[self.windows]))]
        tilt = 1e-9 if self.inner_first else 0.0
        return Rings(self.queries, tuple(width * (1 + tilt * place) for place, width in enumerate(widths)))


def skewed(place: int) -> tuple[int, ...]:
    """Spread 30 queries: 80 % on one window, one on each of the others.

    >>> skewed(0)
    (24, 1, 1, 1, 1, 1, 1)
    """
    return tuple(24 if each == place else 1 for each in range(7))


def work(setting: Setting, seed: int) -> Work:
    """Make the work of an experiment: the same tuples whatever the windows, the same work whatever the queries."""
    return _work(setting.windows, setting.burst, setting.method, setting.tuples, seed)


@cache
def _work(name: str, burst: float, method: Method, tuples: int, seed: int) -> Work:
    """Make streams with enough history for the largest window, and count what scans look at and find."""
    windows = TABLE_1[name]
    return work_of(streams(method.rate, burst, windows[-1], tuples, seed), windows, method)


@cache
def run(setting: Setting, policy: str, seed: int) -> Run:
    """Run an experiment under a policy."""
    if policy != "mqt" and setting.queries != ONE_EACH:  # the others do not look at queries
        return run(replace(setting, queries=ONE_EACH), policy, seed)
    return shared(work(setting, seed), Scheduler(policy, setting.rings()))


@dataclass(frozen=True)
class Measured:
    """What an experiment gave for one policy: average and longest response by window, and buffers."""

    mean: tuple[float, ...]
    longest: tuple[float, ...]
    results: tuple[int, ...]
    input_buffer: int
    output_buffer: int

    def per_result(self, queries: Sequence[int]) -> float:
        """Average over all results as received by each query."""
        weights = [count * many for count, many in zip(self.results, queries, strict=True)]
        return float(np.average(self.mean, weights=weights))

    def per_query(self, queries: Sequence[int]) -> float:
        """Average over the queries, each by its own average."""
        return float(np.average(self.mean, weights=queries))


@cache
def measure(setting: Setting, policy: str, seed: int, release: str | None = None) -> Measured:
    """Measure an experiment under a policy; `release` says how results are released if not by the policy's rule."""
    done = run(setting, policy, seed)
    done = replace(done, release=release or done.release)
    return _measured([done.responses(query) for query in range(done.work.rings)], done)


@cache
def alone(setting: Setting, seed: int) -> Measured:
    """Run each query of an experiment by itself; the buffers are those of the largest."""
    runs = [isolated(work(setting, seed), query) for query in range(len(setting.queries))]
    return _measured([each.responses(query) for query, each in enumerate(runs)], runs[-1])


def _measured(responses: Sequence[Responses], done: Run) -> Measured:
    """Put the windows' numbers together."""
    return Measured(
        tuple(each.mean for each in responses),
        tuple(each.longest for each in responses),
        tuple(each.results for each in responses),
        done.input_buffer(),
        done.output_buffer(),
    )
