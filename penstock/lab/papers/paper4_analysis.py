"""Paper 4, Figures 5 and 6: its equations derived again, and streams of the analysis simulated.

Two streams with λ1 < λ2 rows a second, each evenly spaced, and n = λ2 / λ1 rows of the fast one for each of the slow
one.  The first of them comes right behind a slow row and waits the whole 1 / λ1 for the next, the last n - 1 gaps of
the fast stream less::

    slow   |                                         |        1 / λ1 apart
    fast    1   2   3   ...                      n            1 / λ2 apart
            waits ------------------------------------> 1 / λ1
                waits --------------------------------> 1 / λ1 - 1 / λ2
                                                 waits > 1 / λ1 - (n - 1) / λ2

On average they wait 1 / λ1 - (n - 1) / 2 λ2, which is (n + 1) / 2 λ2: Eq. 5, all there is under filter-order, for the
joining is done meanwhile.  Under sync-filter it begins only then: each fast row takes c·w·λ1, and the k-th is joined
after k of these, on average (n + 1) / 2: Eq. 3.  The waits are a share of 1 and the joining one of c·w·λ1·λ2 in the
same unit, (n + 1) / 2 λ2; hence Eq. 7, which is `penstock.plan.order_policy.gain`.  Of the slow rows, and of what
joining them takes, the analysis says nothing but that it must be less than 1 / λ1 each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from penstock.lab.papers.figure import CHECK, Outcome, Series
from penstock.lab.papers.paper4_operator import run
from penstock.lab.papers.paper4_sweep import Join, Stream
from penstock.lab.printing import percents, seconds
from penstock.plan.order_policy import HOLD, SYNC, Load, gain

if TYPE_CHECKING:
    from collections.abc import Sequence


POLICIES = {"Sync-Filter": SYNC, "Filter-Order": HOLD}
DAY = 86_400.0
STEPS = (*(1e-8 * 2**doubled for doubled in range(7)), 0.999 / (DAY * 10))
"""Figure 5: c from 0.01 µs on, doubled at each point; and one point more where the join can hardly keep up."""

SLOWS = (0.0001, 0.001, 0.01, 0.02, 0.05, 0.1)
CLOSE = 1e-3  # simulated and reckoned agree if they differ by less


def equation_3(step: float, window: float, slow: float, fast: float) -> float:
    """Give the average response time of the fast stream's rows under sync-filter."""
    return equation_5(slow, fast) + (fast / slow + 1) / 2 * step * window * slow


def equation_5(slow: float, fast: float) -> float:
    """Give the same under filter-order: what a row takes to be joined is no part of it."""
    return 1 / slow - (fast / slow - 1) / (2 * fast)


def equation_8(work: int = 1) -> float:
    """Give the most that can be gained while the join keeps up: as c·w·λ1·λ2 tends to its largest.

    Eq. 1 reckons with the fast rows' work, c·w·λ1·λ2 of the time, which tends to 1.  The slow rows' is as much: C_S·λ2
    + C_T·λ1 = 2·c·w·λ1·λ2, and one processor that is charged both keeps up until 1/2.
    """
    return gain(1 / work)


@dataclass(frozen=True, slots=True)
class Point:
    """A setting of section 5.2: rows a second of both streams, the cost of a step, and the gaps to simulate."""

    slow: float
    fast: float
    step: float
    gaps: int = 20

    @property
    def share(self) -> float:
        """Give c·w·λ1·λ2."""
        return Load(self.step, DAY, (self.slow, self.fast)).share

    def reckoned(self, policy: str) -> float:
        """Give the average response time of the fast stream's rows by Eq. 3 or 5."""
        sync = policy == SYNC
        return equation_3(self.step, DAY, self.slow, self.fast) if sync else equation_5(self.slow, self.fast)

    def simulated(self, policy: str, slow_charge: float = 0.0) -> float:
        """Give the same from a run on one processor, which by Eq. 2 to 5 is charged for fast rows only."""
        streams = evenly(self.slow, self.fast, DAY, self.gaps)
        join = Join(streams, DAY, self.step, self.gaps / self.slow, slow_charge)
        return float(run(join, policy).responses(1).mean())


def evenly(slow: float, fast: float, window: float, gaps: int) -> tuple[Stream, ...]:
    """Make the streams of the analysis: so many gaps of the slow one, after a window of older rows.

    A fast row comes right behind each slow one.
    """
    n, before = round(fast / slow), int(window * slow) + 2
    slow_at = np.arange(-before, gaps + 1) / slow
    fast_at = np.nextafter(np.arange(-before * n, gaps * n + 1) / fast, np.inf)
    return tuple(Stream(at, at, np.zeros(at.size, np.int64)) for at in (slow_at, fast_at))


def gains(series: Series, name: str = "Filter-Order") -> list[float]:
    """Give the parts by which a policy is below Sync-Filter."""
    return [1 - own / sync for own, sync in zip(series[name], series["Sync-Filter"], strict=True)]


def fig5(_sweep: object) -> Outcome:
    """Draw Eq. 3 and 5 over the cost of a step, and put simulated points on them."""
    points = [Point(1.0, 10.0, step) for step in STEPS]
    out, simulated = _analysed(points, "c (µs)", [1e6 * step for step in STEPS])
    flat = simulated["Filter-Order"]
    same = max(flat) / min(flat) < 1 + 1e-9
    out.claim("Filter-Order's response does not depend on c", same, f"{flat[0]:.3f} s")
    text, gained = "the gain tends to 50 % where the join can hardly keep up (Eq. 8)", gains(simulated)
    out.claim(text, abs(gained[-1] - equation_8()) < 0.005, percents(gained))
    late = {each.share: each.simulated(SYNC, 1.0) / each.reckoned(SYNC) - 1 > CLOSE for each in points}
    keeps = max(load for load, lags in late.items() if not lags)
    lags = min(load for load, lags in late.items() if lags)
    text = "derived: a processor that is charged for slow rows too keeps up until c·w·λ1·λ2 = 1/2 only"
    out.claim(text, keeps < 0.5 < lags, f"it does at {keeps:.2f}, not at {lags:.2f}", CHECK)
    return out


def fig6(_sweep: object) -> Outcome:
    """Draw Eq. 3 and 5 over the rate of the slow stream, and put simulated points on them."""
    points = [Point(slow, 1.0, 1e-4, 20 if slow > 0.0001 else 2) for slow in SLOWS]
    out, simulated = _analysed(points, "λ1 (rows/s)", SLOWS)
    sync, hold = (simulated[name][-1] for name in POLICIES)
    held = 9.5 < sync < 10.5 and 4.5 < hold <= 5.5
    out.claim("at the highest rate from 10 s to 5 s", held, f"{seconds(sync)} s to {seconds(hold)} s")
    grows = gains(simulated) == sorted(gains(simulated))
    out.claim("the gain grows with the slow stream's rate", grows, percents(gains(simulated), 1))
    out.note("The paper does not name λ2: 1 row/s, its upper bound, gives the 10 s and 5 s of its text.")
    return out


def _analysed(
    points: Sequence[Point], x_name: str, x: Sequence[float]
) -> tuple[Outcome, dict[str, list[float]]]:
    """Set what the equations say beside what the streams of the analysis give."""
    out = Outcome()
    said = {name: [each.reckoned(policy) for each in points] for name, policy in POLICIES.items()}
    simulated = {name: [each.simulated(policy) for each in points] for name, policy in POLICIES.items()}
    for equation, name in (("Eq. 3", "Sync-Filter"), ("Eq. 5", "Filter-Order")):
        off = max(abs(run / each - 1) for each, run in zip(said[name], simulated[name], strict=True))
        number = f"largest difference {off:.0e}"
        out.claim(f"{equation} is what the simulated streams give", off < CLOSE, number)
    off = max(abs(each - gain(point.share)) for each, point in zip(gains(said), points, strict=True))
    out.claim("Eq. 7 follows from Eq. 3 and 5", off < 1e-9, f"largest difference {off:.0e}", CHECK)
    series = {**said, **{f"{name}, simulated": each for name, each in simulated.items()}}
    charged = {**series, "Sync-Filter, all rows charged": [each.simulated(SYNC, 1.0) for each in points]}
    names = [f"{each:.3g}" for each in x]
    out.series("response of the fast stream's rows (s)", x_name, names, charged, seconds)
    gained = {"Filter-Order": gains(said), "Filter-Order, simulated": gains(simulated)}
    panels = {"average response time (s)": series, "part by which Filter-Order is below Sync-Filter": gained}
    out.draw(panels, x, x_name, "", columns=2, log="x")
    out.note("w = 1 day, rows evenly spaced; the processor is charged for fast rows only, as in Eq. 2 to 5.")
    return out, simulated
