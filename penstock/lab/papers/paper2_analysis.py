"""Paper 2, Figures 2 and 3: the steps of the examples (a), and (b) what 50 tuples that arrive at once wait for.

For (b) every tuple matches every other (α = 1), a scan takes 1 µs per tuple, and windows hold λw tuples.  The paper
says of its seven windows only that they reach from 1 s to 10 min: these are the Mostly-Small ones of its Table 1.
"""

from __future__ import annotations

from itertools import pairwise
from statistics import mean

import numpy as np

from penstock.lab.papers.figure import Outcome
from penstock.lab.papers.paper2_scans import DRAWN, IN_TURN, Work, isolated, shared
from penstock.lab.papers.paper2_sweep import TABLE_1
from penstock.lab.printing import ms
from penstock.plan.schedule import Rings, Scheduler

SCAN, RATE, TOGETHER = 1e-6, 100, 50
WINDOWS = "Mostly-Small"
SIZES = tuple(RATE * window for window in TABLE_1[WINDOWS])  # tuples in each window: S_i
EXAMPLE = Work(np.array([0.0, 0.5]), np.ones((2, 3)), np.ones((2, 3), np.int64))
"""a11, and b12 while a11 scans its first ring: each finds one result in each ring, in a unit of time."""

PAIRS = (("a11b8", "a11b4", "a11b0"), ("a9b12", "a5b12", "a1b12"))
STEPS = {
    "lwo": (
        {1: "a11b8", 4: "a9b12"},
        {1: "a11b8", 2: "a11b4", 4: "a9b12", 5: "a5b12"},
        {1: "a11b8", 2: "a11b4", 3: "a11b0", 4: "a9b12", 5: "a5b12", 6: "a1b12"},
    ),
    "swf": (
        {1: "a11b8", 2: "a9b12"},
        {1: "a11b8", 3: "a11b4", 4: "a9b12 a5b12"},
        {1: "a11b8", 3: "a11b4", 5: "a11b0", 6: "a9b12 a5b12 a1b12"},
    ),
}
"""Figures 2 (a) and 3 (a): what Q1, Q2 and Q3 are given after which scan; the paper counts two steps to a scan."""


def steps(policy: str) -> tuple[dict[int, str], ...]:
    """Run the example, and list what each query is given when."""
    release = DRAWN if policy == "swf" else IN_TURN
    run = shared(EXAMPLE, Scheduler(policy, Rings((1,) * 3, (1.0,) * 3)), release)
    given: tuple[dict[int, str], ...] = ({}, {}, {})
    for query, here in enumerate(given):
        for time, outer, ring, _ in run.released(query):
            here[round(time)] = f"{here.get(round(time), '')} {PAIRS[outer][ring]}".strip()
    return given


def equation_1(size: int, largest: int = SIZES[-1], together: int = TOGETHER) -> float:
    """Give the average response time under LWO; of a query by itself, if its own window is the largest."""
    return SCAN / 2 * ((size + 1) + (together - 1) * largest)


def equation_2(inner: int, size: int, together: int = TOGETHER) -> float:
    """Give the average response time under SWF of a window, and `inner` the next smaller one."""
    return (together * inner + (together + 1) / 2 * (size - inner)) * SCAN


def simulated(policy: str, windows: str = WINDOWS) -> list[float]:
    """Give the average response time of each window when the burst is run; `alone` runs each query by itself."""
    widths = [RATE * (outer - inner) for inner, outer in pairwise((0, *TABLE_1[windows]))]
    results = np.tile(np.array(widths, np.int64), (TOGETHER, 1))
    burst = Work(np.zeros(TOGETHER), results.astype(np.float64) * SCAN, results)
    rings, alone = Rings((1,) * len(widths), tuple(map(float, widths))), policy == "alone"
    run = shared(burst, Scheduler("lwo" if alone else policy, rings))
    ways = [isolated(burst, query) if alone else run for query in range(len(widths))]
    return [each.responses(query).mean for query, each in enumerate(ways)]


def one_burst(windows: str) -> tuple[float, float]:
    """Give by how much MQT is below LWO and SWF, averaged over the windows, if one burst arrives and nothing else."""
    lwo, swf, mqt = (mean(simulated(policy, windows)) for policy in ("lwo", "swf", "mqt"))
    return 1 - mqt / lwo, 1 - mqt / swf


def fig2(_sweep: object) -> Outcome:
    """Play LWO's example, and set Eq. 1 beside 50 tuples that arrive at once."""
    lwo, alone = [equation_1(size) for size in SIZES], [equation_1(size, size) for size in SIZES]
    out, series = Outcome(), {"LWO": lwo, "LWO, simulated": simulated("lwo")}
    series |= {"isolated": alone, "isolated, simulated": simulated("alone")}
    _compared(out, "lwo", "2 (a)", series, {"LWO": "Eq. 1", "isolated": "the formula of isolated execution"})
    held = alone[0] < 0.01 and 1 < lwo[0] < 10
    number = f"{ms(alone[0])} ms to {ms(lwo[0])} ms"
    out.claim("the smallest window goes from milliseconds to seconds", held, number)
    return out


def fig3(_sweep: object) -> Outcome:
    """Play SWF's example, and set Eq. 2 beside 50 tuples that arrive at once; the paper has none for MQT."""
    out, swf = Outcome(), [equation_2(inner, size) for inner, size in pairwise((0, *SIZES))]
    lwo, mqt = [equation_1(size) for size in SIZES], simulated("mqt")
    series = {"SWF": swf, "SWF, simulated": simulated("swf"), "MQT": mqt, "LWO": lwo}
    series["isolated"] = [equation_1(size, size) for size in SIZES]
    _compared(out, "swf", "3 (a)", series, {"SWF": "Eq. 2"})
    faster = [own < theirs / 5 for own, theirs in zip(swf[:5], lwo[:5], strict=True)]
    number = f": {ms(swf[0])} ms for {ms(lwo[0])} ms"
    out.every("small windows respond much faster than under LWO", faster, number)
    number = f"{ms(swf[-1])} ms for {ms(lwo[-1])} ms; MQT {ms(mqt[-1])} ms"
    out.claim("at the expense of the largest", swf[-1] > lwo[-1], number)
    out.note("In Figure 3 (a) what is next in order leaves as it is produced (steps 2, 6); 3.2 holds all.")
    return out


def _compared(
    out: Outcome, policy: str, which: str, series: dict[str, list[float]], formulas: dict[str, str]
) -> None:
    """Set formulas beside the simulated burst, and the example's steps beside the paper's."""
    given_when = steps(policy)
    out.claim(
        f"queries are given what Figure {which} says, when it says", given_when == STEPS[policy], "6 scans"
    )
    for name, formula in formulas.items():
        both = zip(series[name], series[f"{name}, simulated"], strict=True)
        off = max(abs(run / said - 1) for said, run in both)
        out.claim(f"{formula} is what the simulated burst gives", off < 1e-6, f"largest difference {off:.0e}")
    scans = range(1, 7)
    rows = [(f"Q{query}", *(given.get(n, "") for n in scans)) for query, given in enumerate(given_when, 1)]
    out.table(f"Figure {which}: what a query is given after each scan", ("", *map(str, scans)), rows)
    names = [str(each) for each in TABLE_1[WINDOWS]]
    out.series("50 tuples at once (ms)", "window (s)", names, series, ms)
    out.draw({"50 tuples at once": series}, names, "window (s)", "response time (s)", log="y")
