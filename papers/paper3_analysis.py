"""Section 5 of paper 3: Eq. 1 beside what states hold, what it says they depend on, and its best case.

Eq. 1 takes every row of a state for equally likely to be purged: the punctuations of the other stream so far over the
values that its own stream has had so far.  All is by the streams' own time, for the section supposes a join that keeps
up with its input.

In:  a `Sweep`.  Out: rows held, measured and by Eq. 1; claims of Figure 8's outcome.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.printing import percents
from papers import paper3_sweep as p3
from papers.figure import CHECK, Outcome
from papers.paper3_joins import Join
from papers.paper3_streams import GAP, Notation, Stream, alternating

if TYPE_CHECKING:
    from collections.abc import Sequence

WINDOW = 5.0
ROWS = 2 * WINDOW * 1000 / GAP  # in the windows of both streams
SHARES = (0.3, 0.5, 0.7)  # of the values that are punctuated when the states are looked at
CLOSE = 0.06
"""Eq. 1 is what is held if, as a share of the window's rows, it is so near at each time, on average over streams."""

FEW = 150


def held_at(sweep: p3.Sweep, setting: p3.Setting, name: str, times: Sequence[float]) -> list[list[int]]:
    """Give for each pair of streams the rows in both states at times of the streams, in seconds."""
    found = []
    for sample in range(sweep.samples):
        join, items, held = setting.join(name, p3.WRITTEN), p3.items(sweep, sample, setting), []
        ends = [bisect_right(items, 1000 * time, key=attrgetter("ts")) for time in times]
        for begin, end in pairwise([0, *ends]):
            join.process(items[begin:end])
            held.append(join.held)
        found.append(held)
    return found


def equation_1(both: tuple[Stream, Stream], windows: tuple[float, float], time: float) -> float:
    """Give the rows in both states at a time by Eq. 1, λ·T_b·(1 - λ_p·T / NK), counts as they are in the streams.

    Before a window has passed, it has as many rows as have come.
    """
    rows = 0.0
    for own, other, window in zip(both, both[::-1], windows, strict=True):
        so_far = int(np.searchsorted(own.ts, 1000 * time, "right"))
        recent = so_far - int(np.searchsorted(own.ts, 1000 * (time - window)))
        promised = np.count_nonzero(other.ts[other.behind - 1] <= 1000 * time)
        values = max(1, np.unique(own.value[:so_far]).size)
        rows += recent * max(0.0, 1 - promised / values)
    return rows


@dataclass(frozen=True, slots=True)
class Case:
    """Two streams of one notation, over so many values: what is held of a window's rows, and what Eq. 1 says."""

    notation: str
    values: int

    @property
    def times(self) -> list[float]:
        """Give when shares of the values are punctuated, but no later than in 70 s."""
        seconds = Notation.parse(self.notation).segment * self.values * 0.01
        return [share * min(seconds, 100.0) for share in SHARES]

    @property
    def setting(self) -> p3.Setting:
        """Give the experiment."""
        notation = Notation.parse(self.notation)
        return p3.Setting((notation, notation), (WINDOW, WINDOW), self.times[-1] + 1).over(self.values)

    def measured(self, sweep: p3.Sweep) -> list[float]:
        """Give the share of the window's rows that PWJoin holds at each time, on average over the streams."""
        held = held_at(sweep, self.setting, p3.PWJOIN, self.times)
        return [fmean(each) / ROWS for each in zip(*held, strict=True)]

    def reckoned(self, sweep: p3.Sweep) -> list[float]:
        """Give the same by Eq. 1."""
        shares = []
        for time in self.times:
            said = [
                equation_1(p3.streams(sweep, n, self.setting), self.setting.windows, time)
                for n in range(sweep.samples)
            ]
            shares.append(fmean(said) / ROWS)
        return shares


OWN = Case("punct-asc-100-40", 15_000)
INDEPENDENT = (
    Case("punct-random-30-40", FEW),
    Case("punct-random-50-40", FEW),
    Case("punct-random-30-10", FEW),
)
ORDERED = (Case("punct-asc-30-40", FEW), Case("cluster-random-30", FEW), Case("cluster-asc-30", FEW))


def analyse(sweep: p3.Sweep, out: Outcome) -> None:
    """Set Eq. 1 beside what is held, and check what section 5.2 draws from it."""
    cases = {each: (each.measured(sweep), each.reckoned(sweep)) for each in (OWN, *INDEPENDENT, *ORDERED)}
    rows = [(each.notation, f"{each.values:,}", *map(percents, both)) for each, both in cases.items()]
    headings = ("both streams", "values", "held", "Eq. 1")
    out.table("share of a 5 s window's rows that PWJoin holds, 30, 50 and 70 % through", headings, rows)
    number = f"{percents(cases[OWN][0])} for {percents(cases[OWN][1])} of the window's rows"
    out.claim("Eq. 1 is what PWJoin holds of Figure 8's streams, at 5 s", _near(*cases[OWN]), number)
    off = [max(_off(*cases[each])) for each in INDEPENDENT]
    text = f"Eq. 1 is what it holds where {FEW} values are punctuated in random orders"
    number = f"off by {percents(off)} of the window's rows at most"
    out.claim(text, all(_near(*cases[each]) for each in INDEPENDENT), number)
    off = [max(_off(*cases[each])) for each in ORDERED]
    number = f"off by {percents(off)} at most"
    text = "and where both streams have one order, or rows come in clusters"
    out.claim(text, max(off) <= CLOSE, number)
    _depends(sweep, out)
    _best(sweep, out)


def _off(measured: Sequence[float], reckoned: Sequence[float]) -> list[float]:
    return [abs(one - other) for one, other in zip(measured, reckoned, strict=True)]


def _near(measured: Sequence[float], reckoned: Sequence[float]) -> bool:
    return max(_off(measured, reckoned)) <= CLOSE


def _depends(sweep: p3.Sweep, out: Outcome) -> None:
    """Check what section 5.2 says the rows held depend on, one thing varied at a time, at one time of the streams."""
    varied = {
        "more punctuations, less memory: segments of 60, 40 and 20 rows": [
            _share(sweep, f"punct-random-{segment}-40", 200, 30) for segment in (60, 40, 20)
        ],
        "fewer values, less memory: 800, 400 and 200": [
            _share(sweep, "punct-random-30-40", values, 30) for values in (800, 400, 200)
        ],
        "memory is reduced as time goes by: at 10, 20, 30, 40 and 50 s": [
            _share(sweep, "punct-random-30-40", 200, time) for time in (10, 20, 30, 40, 50)
        ],
        "and on Figure 8's streams: at 20, 45 and 70 s": [
            _share(sweep, OWN.notation, OWN.values, time) for time in (20, 45, 70)
        ],
    }
    for text, held in varied.items():
        falls = all(then < 0.95 * before for before, then in pairwise(held))
        out.claim(text, falls, f"{percents(held)} of the window's rows")


def _share(sweep: p3.Sweep, notation: str, values: int, time: float) -> float:
    """Give the share of a window's rows that PWJoin holds around a time, in seconds."""
    both = (Notation.parse(notation),) * 2
    setting = p3.Setting(both, (WINDOW, WINDOW), time + 4).over(values)
    around = [time + shift for shift in (-3, -1.5, 0, 1.5, 3)]
    return fmean(fmean(each) for each in held_at(sweep, setting, p3.PWJOIN, around)) / ROWS


def _best(sweep: p3.Sweep, out: Outcome) -> None:
    """Check the best case: clusters in turns, each of B right behind A's promise of its value."""
    found = []
    for text in ("cluster-asc-30", "cluster-asc-1"):
        setting = p3.Setting((Notation.parse(text),) * 2, (WINDOW, WINDOW), 20)
        for sample in range(sweep.samples):
            both = p3.streams(sweep, sample, setting)
            join, of_b = Join((5000, 5000), p3.WRITTEN), 0
            for item in alternating(*both):
                join.process([item])
                of_b = max(of_b, join.states[1].held)
            largest = int(np.diff(both[0].behind[: both[1].behind.size], prepend=0).max())
            found.append((of_b, join.run.most, largest))
    text = "best case (Figure 7): no row of B is kept, and of A no more than its largest cluster"
    out.every(text, (of_b == 0 and most == largest for of_b, most, largest in found), kind=CHECK)
    number = f"at most {max(most for _, most, largest in found if largest == 1)} row"
    out.claim("one row at most, if every cluster has one", number == "at most 1 row", number, CHECK)
