"""The sweep of paper 4: streams that arrive out of step, how their rows stand to each other, and every experiment.

Rows of all streams are *ranked* by their times, ties by the number of the stream; results are, by the last of their
rows.  That is the order of release, whatever the policy::

    stream 0     a1 ------- b4 ------------        ranks   a1 0, c3 1, b4 2, d9 3
    stream 1     ---- c3 ------------- d9 -        results (a1, c3), (b4, c3), (a1, d9) ...

All that does not depend on the policy is worked out in a `Join`, once; `papers.paper4_operator` runs it.

The experiments are those of section 7: exponential gaps, a window of a minute, 20 minutes a run.  What was chosen
where the paper leaves it open is in docs/papers/paper4.md.

In:  a `Sweep`, rates, the cost of a join step, a policy.  Out: what was measured, shared by Figures 7 to 10.  Times are
seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, cached_property
from math import inf, nextafter
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from papers.paper4_operator import EACH, ONE, Change, Floats, Ints, Size, run
from penstock.errors import InputError
from penstock.plan.order_policy import HOLD, SYNC, Adaptive, Load, trigger

if TYPE_CHECKING:
    from collections.abc import Sequence

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


@dataclass(frozen=True)
class Stream:
    """Rows in order: their times, their arrivals, and their keys.  Those that arrived before 0 are joined already."""

    ts: Floats
    at: Floats
    key: Ints

    def __post_init__(self) -> None:
        """Refuse what no stream of the paper does."""
        if np.any(np.diff(self.ts) <= 0):
            raise InputError("the times of a stream's rows must increase")
        if np.any(np.diff(self.at) < 0):
            raise InputError("rows of a stream must arrive in the order of their times")

    @property
    def old(self) -> int:
        """Count the rows that are there from the beginning."""
        return int(np.searchsorted(self.at, 0.0))


class RankedRows(NamedTuple):
    """New rows of all streams in the order of release: time, arrival, and number of the stream."""

    ts: Floats
    at: Floats
    stream: Ints


@dataclass(frozen=True)
class Join:
    """Streams, the window, the seconds of a join step, until when arrivals are counted, and what rows are charged.

    Rows join if they have one key and any two are at most a window apart.  Later arrivals only raise the trigger.
    `slow_charge` is the part of its join steps that a row of the first stream is charged.
    """

    streams: tuple[Stream, ...]
    window: float
    step: float
    until: float = inf
    slow_charge: float = 1.0

    @cached_property
    def rows(self) -> RankedRows:
        """Lay the new rows of all streams out in the order of release."""
        ts, at = (np.concatenate([getattr(s, name)[s.old :] for s in self.streams]) for name in ("ts", "at"))
        stream = np.repeat(np.arange(len(self.streams)), [each.ts.size - each.old for each in self.streams])
        order = np.lexsort((stream, ts))
        return RankedRows(ts[order], at[order], stream[order])

    @cached_property
    def arrivals(self) -> tuple[list[float], list[int], list[float]]:
        """List the arrivals: when, in which stream, and the trigger from then on (-inf: some stream is silent so far).

        The watermark of a stream is right behind its last row.
        """
        marks = [nextafter(float(each.ts[each.old - 1]), inf) if each.old else None for each in self.streams]
        rows = self.rows
        order = np.lexsort((rows.stream, rows.at)).tolist()
        ts, stream, triggers = rows.ts.tolist(), rows.stream.tolist(), []
        for row in order:
            marks[stream[row]] = nextafter(ts[row], inf)
            now = trigger(marks)
            triggers.append(-inf if now is None else now)
        return rows.at[order].tolist(), [stream[row] for row in order], triggers

    @cached_property
    def reach(self) -> list[list[list[tuple[int, int, int]]]]:
        """Say for each new row of a stream which rows of each other stream its window spans: (stream, first, end)."""
        reaches = []
        for number, each in enumerate(self.streams):
            ts, spans = each.ts[each.old :], []
            for n, other in enumerate(self.streams):
                if n != number:
                    first = np.searchsorted(other.ts, ts - self.window)
                    end = np.searchsorted(other.ts, ts + self.window, "right")
                    spans.append(list(zip([n] * ts.size, first.tolist(), end.tolist(), strict=True)))
            reaches.append([list(each) for each in zip(*spans, strict=True)])
        return reaches

    @cached_property
    def results(self) -> Ints:
        """List the results that a new row completes, in the order of release: the number of the row in each stream."""
        results = np.arange(self.streams[0].ts.size)[:, None]
        for number in range(1, len(self.streams)):
            results = self._extended(results, number)
        last = self.ranks_of(results).max(axis=0)
        order = np.lexsort((*results.T[::-1], last))
        return results[order][last[order] >= 0]

    def _extended(self, results: Ints, number: int) -> Ints:
        """Combine what was found so far with the rows of one more stream."""
        # One sorted column holds the times of every key, keys further apart than any two times.
        first, other = self.streams[0], self.streams[number]
        every = np.concatenate([each.ts for each in self.streams])
        apart = 1 + every.max(initial=0.0) - every.min(initial=0.0) + 2 * self.window
        by_key = np.argsort(other.key * apart + other.ts)
        times = (other.key * apart + other.ts)[by_key]
        wanted = (first.key * apart + first.ts)[results[:, 0]]
        begin = np.searchsorted(times, wanted - self.window)
        count = np.searchsorted(times, wanted + self.window, "right") - begin
        partner = np.arange(count.sum()) + np.repeat(begin - (np.cumsum(count) - count), count)
        longer = np.column_stack((np.repeat(results, count, axis=0), by_key[partner]))
        times = np.stack([self.streams[n].ts[longer[:, n]] for n in range(number + 1)])
        return longer[np.ptp(times, axis=0) <= self.window]

    @cached_property
    def ranks(self) -> list[Ints]:
        """Give for each stream the ranks of its rows in the order of release; -1: joined before the run."""
        return [
            np.concatenate((np.full(each.old, -1), np.flatnonzero(self.rows.stream == number)))
            for number, each in enumerate(self.streams)
        ]

    def ranks_of(self, results: Ints) -> Ints:
        """Give the ranks of the rows of results: a line for each stream."""
        return np.stack([rank[results[:, number]] for number, rank in enumerate(self.ranks)])


def at_random(
    rates: Sequence[float], window: float, seconds: float, seed: Sequence[int]
) -> tuple[Stream, ...]:
    """Make streams with exponential gaps: a window of older rows, a run, and the first row after it of each."""
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
    response, changes = (
        fmean(float(each.responses().mean()) for each in runs),
        tuple(each.changes for each in runs),
    )
    return Summary(response, waiting, held, changes, fmean(each.share_of_time(HOLD) for each in runs))


def _together(sizes: Sequence[Size]) -> Size:
    return Size(fmean(each.mean for each in sizes), max(each.most for each in sizes))


@cache
def _joins(sweep: Sweep, setting: Setting, model: Model) -> list[Join]:
    """Make the joins of an experiment: the same rows whatever the policy, the cost and who works."""
    joins = []
    for sample in range(sweep.samples):
        seed = [sweep.seed, sample, round(1000 * setting.slow)]
        streams = at_random((setting.slow, FAST), WINDOW, sweep.seconds, seed)
        streams = tuple(replace(each, key=each.key % setting.keys) for each in streams)
        joins.append(Join(streams, WINDOW, setting.step, sweep.seconds, model.slow_charge))
    return joins


def by_policy(sweep: Sweep, settings: Sequence[Setting], model: Model = FITTED) -> dict[str, list[Summary]]:
    """Run experiments under every policy."""
    return {name: [measure(sweep, each, name, model) for each in settings] for name in POLICIES}


def responses(summaries: dict[str, list[Summary]]) -> dict[str, list[float]]:
    """Give the average response times."""
    return {name: [each.response for each in runs] for name, runs in summaries.items()}
