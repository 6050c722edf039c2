"""Paper 4: its equations beside simulated streams (Figures 5 and 6), and response times in order (Figures 7 to 10).

Figures 5 and 6 have two streams, each evenly spaced; docs/papers/paper4.md derives Eq. 3, 5 and 7 from what their rows
wait for.  Figures 7 and 8 vary the cost of a join step, 9 and 10 the rate of the slow stream.  They show the
calibrated model and, beside it, what the others give.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from benchmarks.printing import percent, percents, seconds
from papers import paper4_sweep as p4
from papers.figure import CALIBRATED, CHECK, Outcome, Paper, Series
from papers.paper4_operator import run
from penstock.plan.order_policy import HOLD, SYNC, Load, gain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from papers.paper4_operator import Size

# --- Figures 5 and 6: the analysis --------------------------------------------------------------------------

BOTH = {"Sync-Filter": SYNC, "Filter-Order": HOLD}
DAY = 86_400.0
EVEN_STEPS = (*(1e-8 * 2**doubled for doubled in range(7)), 0.999 / (DAY * 10))
"""Figure 5: c from 0.01 µs on, doubled at each point; and one point more where the join can hardly keep up."""

EVEN_SLOWS = (0.0001, 0.001, 0.01, 0.02, 0.05, 0.1)
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
        join = p4.Join(streams, DAY, self.step, self.gaps / self.slow, slow_charge)
        return float(run(join, policy).responses(1).mean())


def evenly(slow: float, fast: float, window: float, gaps: int) -> tuple[p4.Stream, ...]:
    """Make the streams of the analysis: so many gaps of the slow one, after a window of older rows.

    A fast row comes right behind each slow one.
    """
    n, before = round(fast / slow), int(window * slow) + 2
    slow_at = np.arange(-before, gaps + 1) / slow
    fast_at = np.nextafter(np.arange(-before * n, gaps * n + 1) / fast, np.inf)
    return tuple(p4.Stream(at, at, np.zeros(at.size, np.int64)) for at in (slow_at, fast_at))


def gains(series: Series, name: str = "Filter-Order") -> list[float]:
    """Give the parts by which a policy is below Sync-Filter."""
    return [1 - own / sync for own, sync in zip(series[name], series["Sync-Filter"], strict=True)]


def fig5(_sweep: object) -> Outcome:
    """Draw Eq. 3 and 5 over the cost of a step, and put simulated points on them."""
    points = [Point(1.0, 10.0, step) for step in EVEN_STEPS]
    out, simulated = _analysed(points, "c (µs)", [1e6 * step for step in EVEN_STEPS])
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
    points = [Point(slow, 1.0, 1e-4, 20 if slow > 0.0001 else 2) for slow in EVEN_SLOWS]
    out, simulated = _analysed(points, "λ1 (rows/s)", EVEN_SLOWS)
    sync, hold = (simulated[name][-1] for name in BOTH)
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
    said = {name: [each.reckoned(policy) for each in points] for name, policy in BOTH.items()}
    simulated = {name: [each.simulated(policy) for each in points] for name, policy in BOTH.items()}
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


# --- Figures 7 to 10: the experiments -----------------------------------------------------------------------

STEPS = (1e-6, 1e-5, 1e-4, 5e-4, 7.5e-4, 1e-3)
"""Figure 7: the seconds of a join step.  The paper names both ends and that the fourth is 0.5 ms."""

SLOWS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)  # Figure 9: rows a second of the slow stream
AT = STEPS.index(p4.Setting().step)
EDGE = [p4.Setting(step=step) for step in (4e-4, 4.5e-4, 4.8e-4, 5e-4, 5.2e-4, 5.5e-4, 6e-4)]
"""Costs around 0.5 ms, where the load is alpha itself."""

BESIDE_STEP, BESIDE_RATE = EDGE[4], p4.Setting(1.04)
SMALL_ALPHA = 0.1


class Axis(NamedTuple):
    """What the experiments of a figure differ in: its name, its values, and the setting of each."""

    name: str
    values: Sequence[float]
    settings: Sequence[p4.Setting]


BY_STEP = Axis("c (ms)", [1e3 * step for step in STEPS], [p4.Setting(step=step) for step in STEPS])
BY_RATE = Axis("λ1 (rows/s)", SLOWS, [p4.Setting(slow) for slow in SLOWS])


class Runs:
    """Experiments by every model: summaries and average responses of each policy; `fitted` are those shown first."""

    def __init__(self, sweep: p4.Sweep, axis: Axis) -> None:
        self.sweep, self.axis, self.names = sweep, axis, [f"{each:g}" for each in axis.values]
        self.found = {model.title: p4.by_policy(sweep, axis.settings, model) for model in p4.MODELS}
        self.times = {title: p4.responses(each) for title, each in self.found.items()}
        self.fitted, self.adaptive = self.times[p4.FITTED.title], self.found[p4.FITTED.title]["Adaptive"]
        self.holding = [each.holding for each in self.adaptive]

    def worst(self) -> list[bool]:
        """Tell by every model in which settings no policy is slower than Sync-Filter."""
        by_setting = [each for times in self.times.values() for each in zip(*times.values(), strict=True)]
        return [max(each) == each[0] for each in by_setting]

    def lay_out(self, out: Outcome) -> None:
        """Show what the policies gave: times by every model, switches, and buffers."""
        first = self.axis.name
        for title, times in self.times.items():
            out.series(f"average response, {title} (s)", first, self.names, times, seconds)
        rows = []
        for name, each, setting in zip(self.names, self.adaptive, self.axis.settings, strict=True):
            change = next((changes[0] for changes in each.changes if changes), None)
            why = (f"{change.at:.0f} s", change.switch.reason) if change else ("", "")
            rows.append((name, f"{setting.share:.2g}", f"{each.switches:.1f}", percent(each.holding), *why))
        title = "Adaptive: switches per run, share of the time in filter-order, first switch"
        out.table(title, (first, "c·w·λ1·λ2", "switches", "time held", "first", "reason"), rows)
        fitted = self.found[p4.FITTED.title]
        sizes = {f"{name} waiting": [_size(each.waiting) for each in runs] for name, runs in fitted.items()}
        sizes |= {f"{name} held": [_size(each.held) for each in runs] for name, runs in fitted.items()}
        sized = zip(self.names, *sizes.values(), strict=True)
        out.table("rows waiting and results held: on average / at most", (first, *sizes), sized)
        self._draw(out, self.times, "response time (s)", "xy")

    def lay_out_gains(self, out: Outcome) -> None:
        """Show what Eq. 7 says and what was gained; the picture has times relative to those of Sync-Filter."""
        columns = {"Eq. 7": [gain(each.share) for each in self.axis.settings]}
        for name, short in (("Filter-Order", "F-O"), ("Adaptive", "Ad.")):
            columns |= {f"{short}, {title}": gains(times, name) for title, times in self.times.items()}
        title = "part by which the response is below Sync-Filter's"
        out.series(title, self.axis.name, self.names, columns, percent)
        relative: dict[str, Series] = {}
        for model, times in self.times.items():
            relative[model] = {name: [1 - each for each in gains(times, name)] for name in times}
        self._draw(out, relative, "relative to Sync-Filter", "x")

    def _draw(self, out: Outcome, panels: Mapping[str, Series], y_name: str, log: str) -> None:
        """Draw a panel for each model, and say how the experiments of section 7 were run."""
        out.draw(panels, self.axis.values, self.axis.name, y_name, log=log)
        minutes, charged = self.sweep.seconds / 60, p4.FITTED.title
        out.note(
            f"Each point: {self.sweep.samples} runs of {minutes:g} minutes with other streams, averaged.",
            f"Calibrated: one processor, {charged}; Eq. 2 to 5 charge them nothing.  See docs/papers/paper4.md.",
        )


def fig7(sweep: p4.Sweep) -> Outcome:
    """Compare responses in order over the cost of a step."""
    out, runs = Outcome(), Runs(sweep, BY_STEP)
    hold, sync, adaptive = (runs.fitted[name] for name in ("Filter-Order", "Sync-Filter", "Adaptive"))
    out.every("Sync-Filter has the worst average everywhere", runs.worst(), ", by three models")
    grown = [max(times["Filter-Order"]) / min(times["Filter-Order"]) - 1 for times in runs.times.values()]
    number = f"{percent(grown[0])}, Sync-Filter {percent(max(sync) / min(sync) - 1)}; by others {percents(grown[1:])}"
    out.claim("Filter-Order shows small or no variations", grown[0] < 0.1, number, CALIBRATED)
    number = f"{sum(each.switches for each in runs.adaptive[:AT]):g} switches"
    out.claim("Adaptive is Sync-Filter at the first three", adaptive[:AT] == sync[:AT], number)
    below, above = (p4.measure(sweep, each, "Adaptive").holding for each in (EDGE[0], EDGE[-1]))
    number = f"{percent(runs.holding[AT])} of the time; at 0.4 and 0.6 ms {percents((below, above))}"
    out.claim("Adaptive switches at c = 0.5 ms", below < 0.1 < runs.holding[AT] and above > 0.9, number)
    follows = [own / theirs < 1.02 for own, theirs in zip(adaptive[AT + 1 :], hold[AT + 1 :], strict=True)]
    number = f": {percents(runs.holding[AT + 1 :])} of the time"
    out.every("Adaptive is Filter-Order from there on", follows, number)
    here = {name: each[AT] for name, each in runs.found[p4.FITTED.title].items()}
    few = {name: p4.measure(sweep, p4.Setting(keys=p4.FEW_KEYS), name).held for name in here}
    waiting, held = here["Sync-Filter"].waiting.mean, here["Filter-Order"].held.mean
    number = f"{held:.1f} results held, {waiting:.1f} rows waiting under Sync-Filter"
    out.claim("with few results Filter-Order needs less memory", held < waiting, number)
    many = few["Filter-Order"].mean
    out.claim("with many it needs more", many > waiting, f"{many:.0f} results held with {p4.FEW_KEYS} keys")
    runs.lay_out(out)
    rows = [(name, _size(each.waiting), _size(each.held), _size(few[name])) for name, each in here.items()]
    headings = ("policy", "waiting", f"held, {p4.KEYS} keys", f"held, {p4.FEW_KEYS} keys")
    out.table("buffers at c = 0.5 ms: on average / at most", headings, rows)
    return out


def fig8(sweep: p4.Sweep) -> Outcome:
    """Set the runs of Figure 7 beside Eq. 7, relative to Sync-Filter, and look closely at 0.5 ms."""
    out, runs = Outcome(), Runs(sweep, BY_STEP)
    gained, adaptive = gains(runs.fitted), gains(runs.fitted, "Adaptive")
    others = "; ".join(f"{title} {percents(gains(runs.times[title]))}" for title in list(runs.times)[1:])
    grows = gained == sorted(gained) and gained[0] < 0.01
    out.claim("the gain is small at small c and grows with it", grows, f"{percents(gained)}; {others}")
    reached = f"45 % comes at {1e3 * np.interp(0.45, gained, STEPS):.2f} ms"
    number = f"{percent(gained[AT])} for {percent(gain(BY_STEP.settings[AT].share))}; {reached}"
    out.claim("at c = 0.5 ms 45 % is gained where Eq. 7 has 25 %", 0.35 <= gained[AT] <= 0.55, number)
    number = f": {percents(gained[-2:])}"
    out.every("more than 50 % at the last two", (each > 0.5 for each in gained[-2:]), number)
    load = (1 + p4.FITTED.slow_charge) * BY_STEP.settings[-1].share
    number = f"up to {percent(max(gained))}, at a load of {load:.2f}"
    out.claim("no more than 50 % while Sync-Filter keeps up (Eq. 8)", max(gained) <= equation_8(), number)
    edge = {each: p4.responses(p4.by_policy(sweep, [each])) for each in EDGE}
    beside = gains(edge[BESIDE_STEP], "Adaptive")[0]
    held = abs(beside - gain(p4.ALPHA)) < 0.04 and min(adaptive[AT + 1 :]) > gain(p4.ALPHA)
    number = f"{percent(beside)} at 0.52 ms for {percent(gain(p4.ALPHA))}, {percents(adaptive[AT + 1 :])} further on, "
    number += f"{percent(adaptive[AT])} on the edge"
    out.claim("where Adaptive has switched it gains alpha / (1 + alpha)", held, number, CALIBRATED)
    runs.lay_out_gains(out)
    rows = []
    for each, times in edge.items():
        adaptively = p4.measure(sweep, each, "Adaptive")
        shares = (adaptively.holding, *gains(times, "Adaptive"), *gains(times), gain(each.share))
        about = (f"{1e3 * each.step:g}", f"{each.share:.3g}", f"{adaptively.switches:.1f}")
        rows.append((*about, *map(percent, shares)))
    below = ("Adaptive below", "Filter-Order below", "Eq. 7")
    headings = ("c (ms)", "c·w·λ1·λ2", "switches", "time held", *below)
    out.table("around 0.5 ms, alpha = 0.3", headings, rows)
    return out


def fig9(sweep: p4.Sweep) -> Outcome:
    """Compare responses in order over the slow stream's rate."""
    out, runs = Outcome(), Runs(sweep, BY_RATE)
    rises = [each == sorted(each, reverse=True) for each in runs.fitted.values()]
    number = f" policies: Filter-Order {', '.join(map(seconds, runs.fitted['Filter-Order']))} s"
    out.every("in all approaches the response grows as the slow stream slows", rises, number)
    slowest = min(each[0] for each in runs.fitted.values())
    out.claim("more than a minute at the slowest", slowest > 60, f"{seconds(slowest)} s")
    both = zip(runs.fitted["Sync-Filter"], runs.fitted["Filter-Order"], strict=True)
    number = f", by three models; by {', '.join(f'{sync - hold:.2f}' for sync, hold in both)} s"
    out.every("Sync-Filter takes longer than Filter-Order everywhere", runs.worst(), number)
    only = max(runs.holding[:-1]) < 0.1 < runs.holding[-1]
    out.claim("Adaptive switches at 1 row/s, and only there", only, f"{percents(runs.holding)} of the time")
    settings = [p4.Setting(slow, alpha=SMALL_ALPHA) for slow in SLOWS]
    earlier = [p4.measure(sweep, each, "Adaptive").holding for each in settings]
    shifted = earlier[-2] > 0.5 > runs.holding[-2]
    number = f"alpha = {SMALL_ALPHA:g}: {percents(earlier)} of the time"
    out.claim("a smaller alpha shifts the switching point to a lower rate", shifted, number)
    runs.lay_out(out)
    return out


def fig10(sweep: p4.Sweep) -> Outcome:
    """Set the runs of Figure 9 beside Eq. 7, relative to Sync-Filter."""
    out, runs = Outcome(), Runs(sweep, BY_RATE)
    gained, adaptive = gains(runs.fitted), gains(runs.fitted, "Adaptive")
    grows = gained == sorted(gained) and gained[0] < 0.01
    number = f"{percents(gained, 1)}; by Eq. 7 {percents((gain(each.share) for each in BY_RATE.settings), 1)}"
    out.claim("the gain is small at low rates and grows with the slow stream's", grows, number)
    beside = gains(p4.responses(p4.by_policy(sweep, [BESIDE_RATE])), "Adaptive")[0]
    held = max(map(abs, adaptive[:-1])) == 0 and abs(beside - gain(p4.ALPHA)) < 0.04
    number = (
        f"{percent(beside)} at 1.04 rows/s for {percent(gain(p4.ALPHA))}, {percent(adaptive[-1])} on the edge"
    )
    text = "Adaptive gains nothing before it switches, alpha / (1 + alpha) after"
    out.claim(text, held, number, CALIBRATED)
    runs.lay_out_gains(out)
    return out


def _size(buffer: Size) -> str:
    return f"{buffer.mean:,.{0 if buffer.mean >= 100 else 1}f} / {buffer.most:,}"


FIGURES = {fig5: 5, fig6: 5, fig7: 40, fig8: 40, fig9: 40, fig10: 40}  # about how many seconds each takes
PAPER = Paper(4, p4.Sweep, "p4-", FIGURES)
