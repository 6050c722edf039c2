"""Paper 2: the examples and formulas of Figures 2 and 3, Figures 5 to 9 and section 5.4, under LWO, SWF and MQT.

Figures 2 and 3 play the steps of the examples (a), and (b) 50 tuples that arrive at once: every tuple matches every
other (α = 1), a scan takes 1 µs per tuple, and windows hold λw tuples.  The paper says of its seven windows only that
they reach from 1 s to 10 min: these are the Mostly-Small ones of its Table 1.

In Figures 5 to 9 every setting is run on several pairs of streams; tables and pictures show the middle of them, claims
say of how many they hold.
"""

from __future__ import annotations

from itertools import chain, pairwise
from statistics import mean, median
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.printing import ms, percent, percents, span
from papers import paper2_sweep as p2
from papers.figure import CALIBRATED, CHECK, Outcome, Paper
from papers.on_spark import fig6_on_spark
from papers.paper2_scans import DRAWN, IN_TURN, LARGEST, Floats, Work, isolated, shared
from penstock.schedulers import Rings, make_scheduler

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TIME = "response time (s)"

# --- Figures 2 and 3 -----------------------------------------------------------------------------------------

SCAN, RATE, TOGETHER = 1e-6, 100, 50
SIZES = tuple(RATE * window for window in p2.TABLE_1["Mostly-Small"])  # tuples in each window: S_i
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
    run = shared(EXAMPLE, make_scheduler(policy, Rings((1,) * 3, (1.0,) * 3)), release)
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


def simulated(policy: str, windows: str = "Mostly-Small") -> list[float]:
    """Give the average response time of each window when the burst is run; `alone` runs each query by itself."""
    widths = [RATE * (outer - inner) for inner, outer in pairwise((0, *p2.TABLE_1[windows]))]
    results = np.tile(np.array(widths, np.int64), (TOGETHER, 1))
    burst = Work(np.zeros(TOGETHER), results.astype(np.float64) * SCAN, results)
    rings, alone = Rings((1,) * len(widths), tuple(map(float, widths))), policy == "alone"
    run = shared(burst, make_scheduler("lwo" if alone else policy, rings))
    ways = [isolated(burst, query) if alone else run for query in range(len(widths))]
    return [each.responses(query).mean for query, each in enumerate(ways)]


def one_burst(windows: str) -> tuple[float, float]:
    """Give by how much MQT is below LWO and SWF, averaged over the windows, if one burst arrives and nothing else."""
    lwo, swf, mqt = (mean(simulated(policy, windows)) for policy in ("lwo", "swf", "mqt"))
    return 1 - mqt / lwo, 1 - mqt / swf


def fig2(_sweep: object) -> Outcome:
    """Play LWO's example, and set Eq. 1 beside 50 tuples that arrive at once."""
    lwo, alone = [equation_1(size) for size in SIZES], [equation_1(size, size) for size in SIZES]
    series = {"LWO": lwo, "LWO, simulated": simulated("lwo")}
    series |= {"isolated": alone, "isolated, simulated": simulated("alone")}
    out = _compared("lwo", "2 (a)", series, {"LWO": "Eq. 1", "isolated": "the formula of isolated execution"})
    held = alone[0] < 0.01 and 1 < lwo[0] < 10
    number = f"{ms(alone[0])} ms to {ms(lwo[0])} ms"
    out.claim("the smallest window goes from milliseconds to seconds", held, number)
    return out


def fig3(_sweep: object) -> Outcome:
    """Play SWF's example, and set Eq. 2 beside 50 tuples that arrive at once; the paper has none for MQT."""
    swf = [equation_2(inner, size) for inner, size in pairwise((0, *SIZES))]
    lwo, mqt = [equation_1(size) for size in SIZES], simulated("mqt")
    series = {"SWF": swf, "SWF, simulated": simulated("swf"), "MQT": mqt, "LWO": lwo}
    series["isolated"] = [equation_1(size, size) for size in SIZES]
    out = _compared("swf", "3 (a)", series, {"SWF": "Eq. 2"})
    faster = [own < theirs / 5 for own, theirs in zip(swf[:5], lwo[:5], strict=True)]
    number = f": {ms(swf[0])} ms for {ms(lwo[0])} ms"
    out.every("small windows respond much faster than under LWO", faster, number)
    number = f"{ms(swf[-1])} ms for {ms(lwo[-1])} ms; MQT {ms(mqt[-1])} ms"
    out.claim("at the expense of the largest", swf[-1] > lwo[-1], number)
    out.note("In Figure 3 (a) what is next in order leaves as it is produced (steps 2, 6); 3.2 holds all.")
    return out


def _compared(policy: str, which: str, series: dict[str, list[float]], formulas: dict[str, str]) -> Outcome:
    """Set formulas beside the simulated burst, and the example's steps beside the paper's."""
    out, given_when = Outcome(), steps(policy)
    text = f"queries are given what Figure {which} says, when it says"
    out.claim(text, given_when == STEPS[policy], "6 scans")
    for name, formula in formulas.items():
        both = zip(series[name], series[f"{name}, simulated"], strict=True)
        off = max(abs(run / said - 1) for said, run in both)
        out.claim(f"{formula} is what the simulated burst gives", off < 1e-6, f"largest difference {off:.0e}")
    scans = range(1, 7)
    rows = [(f"Q{query}", *(given.get(n, "") for n in scans)) for query, given in enumerate(given_when, 1)]
    out.table(f"Figure {which}: what a query is given after each scan", ("", *map(str, scans)), rows)
    names = [str(each) for each in p2.TABLE_1["Mostly-Small"]]
    out.series("50 tuples at once (ms)", "window (s)", names, series, ms)
    out.draw({"50 tuples at once": series}, names, "window (s)", TIME, log="y")
    return out


# --- Figures 5 to 9, and section 5.4 ------------------------------------------------------------------------

WINDOWS = "Small-Large"
SECONDS = [str(each) for each in p2.TABLE_1[WINDOWS]]
NUMBERED = [f"w{number}" for number in range(1, 8)]
DISTRIBUTIONS = {windows: p2.Setting(windows) for windows in p2.TABLE_1}
BY_BURST = {str(burst): p2.Setting(WINDOWS, burst) for burst in p2.BURSTS}
THREE = p2.BURSTS.index(3)
LOADS = (0.5, 0.6, 0.7, p2.LOAD, 0.9)


class Averages:
    """Average response times: for each policy, named setting and pair of streams, over the queries or over results.

    `release` may name, for a policy, a rule to take in place of its own.
    """

    def __init__(
        self, sweep: p2.Sweep, named: Mapping[str, p2.Setting], *, by_result: bool = False, **release: str
    ) -> None:
        self.names, self.times = list(named), {}
        for name, policy in p2.POLICIES.items():
            runs = [(s, p2.measure(sweep, s, policy, release.get(policy, ""))) for s in named.values()]
            times = [[one.average(s.queries, by_result=by_result) for one in some] for s, some in runs]
            self.times[name] = np.array(times)
        self.middle = {name: np.median(times, axis=1).tolist() for name, times in self.times.items()}

    def best(self) -> list[bool]:
        """Tell for each setting and pair of streams whether MQT has the lowest average."""
        return (self.times["MQT"] == np.minimum.reduce(list(self.times.values()))).ravel().tolist()

    def below(self, rival: str, name: str = "MQT") -> Floats:
        """Give the parts by which a policy is below a rival, by setting and pair of streams."""
        return 1 - self.times[name] / self.times[rival]

    def gain(self, rival: str, name: str = "MQT") -> list[float]:
        """Give the middle of them, by setting."""
        return np.median(self.below(rival, name), axis=1).tolist()

    def show(self, out: Outcome, title: str, first: str) -> None:
        """Lay the averages out, the middle of the streams."""
        out.series(title, first, self.names, self.middle, ms)

    def show_gains(self, out: Outcome, first: str) -> None:
        """Lay out by how much MQT is below its rivals."""
        below = [self.below(rival) for rival in ("LWO", "SWF")]
        columns = [[f"{percent(np.median(each))} ({span(each)})" for each in rival] for rival in below]
        title = "MQT is below: the middle of the streams (and their range)"
        out.table(title, (first, "LWO", "SWF"), zip(self.names, *columns, strict=True))


def begun(sweep: p2.Sweep) -> Outcome:
    """Say how the experiments of section 5 were run."""
    out = Outcome()
    out.note(
        f"The median of {sweep.samples} pairs of streams, {sweep.tuples:,} tuples each.  See docs/papers/paper2.md.",
        f"Calibrated: the processor is busy {percent(p2.LOAD)} of the time, and MQT's ties go inward.",
    )
    return out


def best(out: Outcome, text: str, sweep: p2.Sweep, first: str, named: Mapping[str, p2.Setting]) -> Averages:
    """Check that MQT is best everywhere, say how it stands with other readings, and lay the averages out."""
    averages, by_result = Averages(sweep, named), Averages(sweep, named, by_result=True)
    averages.show(out, "average response (ms)", first)
    by_result.show(out, "the same averaged over results (ms)", first)
    strict = sum(Averages(sweep, named, mqt=LARGEST).best())
    number = f"; {strict} if only the largest window is released early; "
    number += f"averaged over results {sum(by_result.best())}, up to {percent(-min(by_result.gain('LWO')))} above LWO"
    out.every(text, averages.best(), number)
    return averages


def fig5(sweep: p2.Sweep) -> Outcome:
    """Compare average responses of LWO, SWF and MQT on four sets of windows, by hash and by nested loops."""
    out = begun(sweep)
    averages = best(out, "MQT has the best average in every distribution", sweep, "windows", DISTRIBUTIONS)
    loops = Averages(sweep, {w: p2.Setting(w, method=p2.NESTED_LOOP) for w in DISTRIBUTIONS})
    drawn = Averages(sweep, DISTRIBUTIONS, swf=DRAWN)
    before = (averages.times["LWO"] < averages.times["SWF"]).T
    as_said = before != np.array([windows == "Mostly-Small" for windows in DISTRIBUTIONS])
    out.every("LWO is second but for Mostly-Small", as_said.ravel(), kind=CALIBRATED)
    gained = np.array([[each.gain("LWO", name) for name in ("SWF", "MQT")] for each in (loops, averages)])
    unlike = np.abs(gained[0] - gained[1]).max()
    number = f": MQT is best, and relative to LWO the times differ by {percent(unlike)} at most"
    out.every("nested loops look alike", [*loops.best(), unlike < 0.1], number)
    slower = np.array(list(loops.middle.values())) / list(averages.middle.values())
    number = f"{slower.min():.1f} to {slower.max():.1f} times: the load is the same, so 100 / 15 it must be"
    held = 3 < slower.min() <= slower.max() < 30
    out.claim("about ten times as slow with nested loops", held, number, CHECK)
    for title, each in (("SWF as drawn in Figure 3", drawn), ("nested loops at 15/s", loops)):
        each.show(out, f"average response, {title} (ms)", "windows")
    averages.show_gains(out, "windows")
    panels = {"hash join": averages.middle, "nested loops": loops.middle}
    out.draw(panels, averages.names, "windows", TIME, columns=2, log="y")
    return out


def by_window(sweep: p2.Sweep, setting: p2.Setting, kind: str = "mean") -> dict[str, list[float]]:
    """Give the response times of each window, the middle of the streams, under every policy and alone."""
    series = {}
    for name, policy in (p2.POLICIES | {"isolated": "alone"}).items():
        times = [getattr(each, kind) for each in p2.measure(sweep, setting, policy)]
        series[name] = np.median(times, axis=0).tolist()
    return series


def spread(times: Sequence[float]) -> float:
    """Give by how much the fastest window is below the slowest."""
    return 1 - min(times) / max(times)


def like_swf(sweep: p2.Sweep, release: str, *, outward: bool = False) -> str:
    """Give MQT's times relative to SWF's on Uniform windows, all but the largest, the middle of the streams."""
    setting = p2.Setting("Uniform", outward=outward)
    mqt, swf = (p2.measure(sweep, setting, *which) for which in (("mqt", release), ("swf",)))
    times = np.median(np.array([each.mean for each in mqt]) / [each.mean for each in swf], axis=0)[:-1]
    return f"{times.min():.2f} to {times.max():.2f}"


def fig6(sweep: p2.Sweep) -> Outcome:
    """Compare responses by window on Uniform and Mostly-Small."""
    out, panels = begun(sweep), {}
    window_claims(out, sweep, p2.HASH)
    window_claims(loops := Outcome(), sweep, p2.NESTED_LOOP)
    out.every("nested loops look alike", (claim.held for claim in loops.claims), " of the claims above")
    strict, free, outward = like_swf(sweep, LARGEST), like_swf(sweep, ""), like_swf(sweep, "", outward=True)
    number = f"{strict} times SWF's time if only the largest window is released early (5.1); {free} if all are (3.3); "
    number += f"{outward} with ties outward, as the engine has them"
    text = "on Uniform windows MQT and SWF are alike for all but the largest"
    out.claim(text, strict == "1.00 to 1.00", number, CALIBRATED)
    for kind, title in (("mean", "average"), ("longest", "longest")):
        for windows in ("Uniform", "Mostly-Small"):
            times = panels[f"{title} response, {windows}"] = by_window(sweep, p2.Setting(windows), kind)
            out.series(f"{title} response, {windows} (ms)", "window (s)", p2.TABLE_1[windows], times, ms)
    out.draw(panels, NUMBERED, "window", TIME, columns=2, log="y")
    return out


def window_claims(out: Outcome, sweep: p2.Sweep, method: p2.Method) -> None:
    """Check what section 5.1 says of Figure 6."""
    settings = {windows: p2.Setting(windows, method=method) for windows in ("Uniform", "Mostly-Small")}
    average, longest = ([by_window(sweep, s, k) for s in settings.values()] for k in ("mean", "longest"))
    flat, flat_longest = ([spread(each["LWO"]) for each in kind] for kind in (average, longest))
    number = f"the fastest {percents(flat)} below the slowest"
    out.claim("LWO is stable over the windows", max(flat) < 0.25, number)
    rise = [each["LWO"][-1] / each["LWO"][0] - 1 for each in average]
    out.claim("with a slight increase towards large ones", 0 < min(rise) <= max(rise) < 0.35, percents(rise))
    out.claim("its longest times are uniform", max(flat_longest) < 0.25, percents(flat_longest))
    ways = [each[name][:upto] for each in average for name, upto in (("SWF", 7), ("MQT", 6))]
    rising = [a < b for way in ways for a, b in pairwise(way)]
    out.every("SWF and MQT respond faster for smaller windows", rising, " steps from one to the next")
    half = average[1]["SWF"][-1] / average[0]["SWF"][-1]
    text = "SWF's largest window takes half as long on Mostly-Small as on Uniform"
    out.claim(text, 0.35 < half < 0.65, f"{half:.2f} of it")
    pairs = [(each["MQT"][-1], each["SWF"][-1]) for each in average]
    number = "; " + ", ".join(f"{ms(mqt)} ms for {ms(swf)} ms" for mqt, swf in pairs)
    out.every("for the largest window MQT is faster than SWF on average", (a < b for a, b in pairs), number)
    runs = {(w, p): p2.measure(sweep, s, p) for w, s in settings.items() for p in p2.POLICIES.values()}
    both = [zip(runs[w, "mqt"], runs[w, "swf"], strict=True) for w in settings]
    below = [mqt.longest[-1] <= swf.longest[-1] + 1e-9 for mqt, swf in chain(*both)]
    out.every("and its longest time is not above SWF's", below)
    orders = [np.argsort([[each[p] for p in ("SWF", "MQT")] for each in way]) for way in (average, longest)]
    follow = (orders[0] == orders[1]).all(axis=2).ravel()
    out.every("longest times follow the averages, window by window", follow)
    times = max(b / a for one in chain(*runs.values()) for a, b in zip(one.mean, one.longest, strict=True))
    text = "the longest time can be 10 to 100 times the average"
    out.claim(text, 10 <= times <= 100, f"up to {times:.0f} times", CALIBRATED)


def fig7(sweep: p2.Sweep) -> Outcome:
    """Compare average responses over the size of bursts."""
    out = begun(sweep)
    averages = best(out, "MQT is best for every size of burst", sweep, "mean burst", BY_BURST)
    apart = [max(each) - min(each) for each in zip(*averages.middle.values(), strict=True)]
    grows = apart[-1] > apart[THREE] > apart[0]
    number = f"from slowest to fastest policy {', '.join(map(ms, apart))} ms"
    out.claim("scheduling matters more as bursts grow", grows, number)
    lwo, swf = averages.gain("LWO"), averages.gain("SWF")
    out.claim("what MQT gains grows with bursts", min(lwo[THREE:]) > lwo[0], f"below LWO by {percents(lwo)}")
    share = [sum(each.mean[:3]) / sum(each.mean) for each in p2.measure(sweep, BY_BURST["3"], "lwo")]
    number = f"{span(averages.below('LWO')[THREE])}; it gains from the small windows only, {span(share)} of LWO's time"
    out.claim("at bursts of three MQT is 60 % under LWO", 0.5 <= lwo[THREE] <= 0.7, number)
    number = f"{span(averages.below('SWF')[THREE])}; of a burst by itself {percent(one_burst(WINDOWS)[1])}"
    out.claim("and 30 % under SWF", 0.2 <= swf[THREE] <= 0.4, number)
    averages.show_gains(out, "mean burst")
    loads = {f"{load:g}": p2.Setting(WINDOWS, 3, method=p2.HASH.at(load)) for load in LOADS}
    Averages(sweep, loads).show_gains(out, "load, at bursts of 3")
    out.draw({f"{WINDOWS}, hash join": averages.middle}, averages.names, "mean burst", TIME, log="y")
    return out


def fig8(sweep: p2.Sweep) -> Outcome:
    """Compare responses by window at bursts of five."""
    out, setting = begun(sweep), BY_BURST["5"]
    series = by_window(sweep, setting)
    lwo, swf, mqt = ([each.mean for each in p2.measure(sweep, setting, p)] for p in p2.POLICIES.values())
    ratio = [theirs[-1] / own[-1] for own, theirs in zip(mqt, swf, strict=True)]
    number = f"{series['SWF'][-1]:.1f} s for {series['MQT'][-1]:.1f} s; {min(ratio):.1f} to {max(ratio):.1f} times, "
    number += f"middle {median(ratio):.1f}"
    text = "the largest window takes SWF four times as long as MQT: 4 s for 1 s"
    out.claim(text, 2.5 < median(ratio) < 6, number)
    flat = [spread(each) for each in lwo]
    number = f"the fastest {span(flat)} below the slowest"
    out.claim("LWO is stable over the windows (said of Figure 6)", max(flat) < 0.25, number)
    out.series("average response at bursts of 5 (ms)", "window (s)", SECONDS, series, ms)
    out.draw({f"{WINDOWS}, bursts of 5": series}, SECONDS, "window (s)", TIME, log="y")
    return out


def fig9(sweep: p2.Sweep) -> Outcome:
    """Compare average responses of 30 queries, 80 % of them on one window, which goes from w1 to w7."""
    out, settings = begun(sweep), {}
    for w, ends in p2.TABLE_1.items():
        settings[w] = {str(end): p2.Setting(w, queries=p2.skewed(n)) for n, end in enumerate(ends)}
    text = "MQT is lowest wherever the queries are"
    averages = best(out, text, sweep, "80 % have (s)", settings.pop(WINDOWS))
    others = [Averages(sweep, each).best() for each in settings.values()]
    out.every("and on the other distributions", chain(*others))
    lwo, swf = averages.middle["LWO"], averages.middle["SWF"]
    faster = [b < a for a, b in zip(lwo, swf, strict=True)]
    out.every("SWF is better than LWO with most queries on small windows", faster[:3], ": w1 to w3")
    number = f": w7 {ms(lwo[6])} ms for {ms(swf[6])} ms"
    out.every("LWO is better than SWF with most on large ones", (not each for each in faster[5:]), number)
    gained = averages.gain("LWO")
    out.claim("MQT adapts: it gains over LWO throughout", min(gained) > 0, percents(gained))
    out.draw({"30 queries, 80 % on one window": averages.middle}, NUMBERED, "80 % have", TIME, log="y")
    return out


def memory(sweep: p2.Sweep) -> Outcome:
    """Compare input and output buffers with the join buffer, in every run of Figures 5 and 7."""
    out, settings = begun(sweep), [*DISTRIBUTIONS.values(), *list(BY_BURST.values())[1:]]
    sizes = {name: [p2.buffers(sweep, each, p) for each in settings] for name, p in p2.POLICIES.items()}
    waiting, held = ({name: [each[n] for each in sizes[name]] for name in p2.POLICIES} for n in (0, 1))
    most = ", ".join(f"{name} {100 * max(each):.1f} %" for name, each in waiting.items())
    number = f"{most} at most; a response of 2 minutes needs 100 · 120 s, 20 %"
    out.claim("SWF's input buffer stays below 10 % of the join buffer", max(waiting["SWF"]) < 0.1, number)
    for name in ("SWF", "MQT"):
        small = [each < 0.03 for each in held[name]]
        number = f"; up to {percent(max(held[name][:4]))} without bursts, {percent(max(held[name][4:]))} with"
        out.every(f"{name}'s output buffer stays below 3 % of the join buffer", small, number)
    longest = {}
    for name, policy in p2.POLICIES.items():
        runs = chain(*(p2.measure(sweep, each, policy) for each in settings))
        longest[name] = max(max(each.longest) for each in runs)
    number = ", ".join(f"{name} {each:.0f} s" for name, each in longest.items())
    reached = max(longest.values()) >= 120
    out.claim("response times reach 2 minutes with large bursts", reached, number, CALIBRATED)
    ticks = [f"{''.join(part[0] for part in each.windows.split('-'))} {each.burst:g}" for each in settings]
    columns = {f"{name} in": each for name, each in waiting.items()}
    columns |= {f"{name} out": each for name, each in held.items()}
    title = "largest input and output buffer, % of the join buffer"
    out.series(title, "windows, burst", ticks, columns, lambda share: f"{100 * share:.2f}")
    holding = {name: held[name] for name in ("SWF", "MQT")}
    panels = {"largest input buffer": waiting, "largest output buffer": holding}
    x_name = "windows (initials) and mean burst"
    out.draw(panels, ticks, x_name, "share of the join buffer", columns=2, log="y")
    return out


# about how many seconds each takes
FIGURES = {fig2: 2, fig3: 2, fig5: 30, fig6: 20, fig7: 30, fig8: 10, fig9: 30, memory: 50}
PAPER = Paper(2, p2.Sweep, "p2-", FIGURES, fig6=fig6_on_spark)
