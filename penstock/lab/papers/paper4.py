"""Paper 4, Figures 7 to 10: response times of a join that gives its results in order, by what waits.

Figures 7 and 8 vary the cost of a join step, 9 and 10 the rate of the slow stream.  They show the calibrated model and,
beside it, what the others give.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.lab.papers import paper4_sweep as p4
from penstock.lab.papers.figure import CALIBRATED, Outcome, Paper, Series
from penstock.lab.papers.paper4_analysis import equation_8, fig5, fig6, gains
from penstock.lab.printing import percent, percents, seconds
from penstock.plan.order_policy import gain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.lab.papers.paper4_operator import Size

STEPS = (1e-6, 1e-5, 1e-4, 5e-4, 7.5e-4, 1e-3)
"""Figure 7: the seconds of a join step.  The paper names both ends and that the fourth is 0.5 ms."""

SLOWS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)  # Figure 9: rows a second of the slow stream
BY_STEP, BY_RATE = [p4.Setting(step=step) for step in STEPS], [p4.Setting(slow) for slow in SLOWS]
AT = STEPS.index(p4.Setting().step)
EDGE = [p4.Setting(step=step) for step in (4e-4, 4.5e-4, 4.8e-4, 5e-4, 5.2e-4, 5.5e-4, 6e-4)]
"""Costs around 0.5 ms, where the load is alpha itself."""

BESIDE_STEP, BESIDE_RATE = EDGE[4], p4.Setting(1.04)
SMALL_ALPHA = 0.1


class Runs:
    """Experiments by every model: summaries and average responses of each policy; `fitted` are those shown first."""

    def __init__(self, sweep: p4.Sweep, settings: Sequence[p4.Setting]) -> None:
        self.settings = settings
        self.found = {model.title: p4.by_policy(sweep, settings, model) for model in p4.MODELS}
        self.times = {title: p4.responses(each) for title, each in self.found.items()}
        self.fitted, self.adaptive = self.times[p4.FITTED.title], self.found[p4.FITTED.title]["Adaptive"]
        self.holding = [each.holding for each in self.adaptive]

    def worst(self) -> list[bool]:
        """Tell by every model in which settings no policy is slower than Sync-Filter."""
        by_setting = [each for times in self.times.values() for each in zip(*times.values(), strict=True)]
        return [max(each) == each[0] for each in by_setting]

    def relative(self) -> dict[str, Series]:
        """Give the times relative to those of Sync-Filter."""
        return {
            title: {name: [1 - each for each in gains(times, name)] for name in times}
            for title, times in self.times.items()
        }

    def lay_out(self, out: Outcome, first: str, names: Sequence[str]) -> None:
        """Show what the policies gave: times by every model, switches, and buffers."""
        for title, times in self.times.items():
            out.series(f"average response, {title} (s)", first, names, times, seconds)
        rows = []
        for name, each, setting in zip(names, self.adaptive, self.settings, strict=True):
            change = next((changes[0] for changes in each.changes if changes), None)
            why = (f"{change.at:.0f} s", change.switch.reason) if change else ("", "")
            rows.append((name, f"{setting.share:.2g}", f"{each.switches:.1f}", percent(each.holding), *why))
        headings = (first, "c·w·λ1·λ2", "switches", "time held", "first", "reason")
        out.table(
            "Adaptive: switches per run, share of the time in filter-order, first switch", headings, rows
        )
        fitted = self.found[p4.FITTED.title]
        sizes = {f"{name} waiting": [_size(each.waiting) for each in runs] for name, runs in fitted.items()}
        sizes |= {f"{name} held": [_size(each.held) for each in runs] for name, runs in fitted.items()}
        rows = list(zip(names, *sizes.values(), strict=True))
        out.table("rows waiting and results held: on average / at most", (first, *sizes), rows)

    def lay_out_gains(self, out: Outcome, first: str, names: Sequence[str]) -> None:
        """Show what Eq. 7 says and what was gained."""
        columns = {"Eq. 7": [gain(each.share) for each in self.settings]}
        for name, short in (("Filter-Order", "F-O"), ("Adaptive", "Ad.")):
            columns |= {f"{short}, {title}": gains(times, name) for title, times in self.times.items()}
        out.series("part by which the response is below Sync-Filter's", first, names, columns, percent)


def fig7(sweep: p4.Sweep) -> Outcome:
    """Compare responses in order over the cost of a step."""
    out, runs, names = Outcome(), Runs(sweep, BY_STEP), [f"{1e3 * step:g}" for step in STEPS]
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
    runs.lay_out(out, "c (ms)", names)
    rows = [(name, _size(each.waiting), _size(each.held), _size(few[name])) for name, each in here.items()]
    headings = ("policy", "waiting", f"held, {p4.KEYS} keys", f"held, {p4.FEW_KEYS} keys")
    out.table("buffers at c = 0.5 ms: on average / at most", headings, rows)
    out.draw(runs.times, [1e3 * step for step in STEPS], "c (ms)", "response time (s)", log="xy")
    return _noted(out, sweep)


def fig8(sweep: p4.Sweep) -> Outcome:
    """Set the runs of Figure 7 beside Eq. 7, relative to Sync-Filter, and look closely at 0.5 ms."""
    out, runs, names = Outcome(), Runs(sweep, BY_STEP), [f"{1e3 * step:g}" for step in STEPS]
    gained, adaptive = gains(runs.fitted), gains(runs.fitted, "Adaptive")
    others = "; ".join(f"{title} {percents(gains(runs.times[title]))}" for title in list(runs.times)[1:])
    grows = gained == sorted(gained) and gained[0] < 0.01
    out.claim("the gain is small at small c and grows with it", grows, f"{percents(gained)}; {others}")
    reached = f"45 % comes at {1e3 * np.interp(0.45, gained, STEPS):.2f} ms"
    number = f"{percent(gained[AT])} for {percent(gain(BY_STEP[AT].share))}; {reached}"
    out.claim("at c = 0.5 ms 45 % is gained where Eq. 7 has 25 %", 0.35 <= gained[AT] <= 0.55, number)
    number = f": {percents(gained[-2:])}"
    out.every("more than 50 % at the last two", (each > 0.5 for each in gained[-2:]), number)
    load = (1 + p4.FITTED.slow_charge) * BY_STEP[-1].share
    number = f"up to {percent(max(gained))}, at a load of {load:.2f}"
    out.claim("no more than 50 % while Sync-Filter keeps up (Eq. 8)", max(gained) <= equation_8(), number)
    edge = {each: p4.responses(p4.by_policy(sweep, [each])) for each in EDGE}
    beside = gains(edge[BESIDE_STEP], "Adaptive")[0]
    held = abs(beside - gain(p4.ALPHA)) < 0.04 and min(adaptive[AT + 1 :]) > gain(p4.ALPHA)
    number = f"{percent(beside)} at 0.52 ms for {percent(gain(p4.ALPHA))}, {percents(adaptive[AT + 1 :])} further on, "
    number += f"{percent(adaptive[AT])} on the edge"
    out.claim("where Adaptive has switched it gains alpha / (1 + alpha)", held, number, CALIBRATED)
    runs.lay_out_gains(out, "c (ms)", names)
    rows = []
    for each, times in edge.items():
        adaptively = p4.measure(sweep, each, "Adaptive")
        shares = (adaptively.holding, *gains(times, "Adaptive"), *gains(times), gain(each.share))
        about = (f"{1e3 * each.step:g}", f"{each.share:.3g}", f"{adaptively.switches:.1f}")
        rows.append((*about, *map(percent, shares)))
    below = ("Adaptive below", "Filter-Order below", "Eq. 7")
    headings = ("c (ms)", "c·w·λ1·λ2", "switches", "time held", *below)
    out.table("around 0.5 ms, alpha = 0.3", headings, rows)
    out.draw(runs.relative(), [1e3 * step for step in STEPS], "c (ms)", "relative to Sync-Filter", log="x")
    return _noted(out, sweep)


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
    runs.lay_out(out, "λ1 (rows/s)", [f"{slow:g}" for slow in SLOWS])
    out.draw(runs.times, SLOWS, "λ1 (rows/s)", "response time (s)", log="xy")
    return _noted(out, sweep)


def fig10(sweep: p4.Sweep) -> Outcome:
    """Set the runs of Figure 9 beside Eq. 7, relative to Sync-Filter."""
    out, runs = Outcome(), Runs(sweep, BY_RATE)
    gained, adaptive = gains(runs.fitted), gains(runs.fitted, "Adaptive")
    grows = gained == sorted(gained) and gained[0] < 0.01
    number = f"{percents(gained, 1)}; by Eq. 7 {percents((gain(each.share) for each in BY_RATE), 1)}"
    out.claim("the gain is small at low rates and grows with the slow stream's", grows, number)
    beside = gains(p4.responses(p4.by_policy(sweep, [BESIDE_RATE])), "Adaptive")[0]
    held = max(map(abs, adaptive[:-1])) == 0 and abs(beside - gain(p4.ALPHA)) < 0.04
    number = (
        f"{percent(beside)} at 1.04 rows/s for {percent(gain(p4.ALPHA))}, {percent(adaptive[-1])} on the edge"
    )
    text = "Adaptive gains nothing before it switches, alpha / (1 + alpha) after"
    out.claim(text, held, number, CALIBRATED)
    runs.lay_out_gains(out, "λ1 (rows/s)", [f"{slow:g}" for slow in SLOWS])
    out.draw(runs.relative(), SLOWS, "λ1 (rows/s)", "relative to Sync-Filter", log="x")
    return _noted(out, sweep)


def _noted(out: Outcome, sweep: p4.Sweep) -> Outcome:
    """Say how the experiments of section 7 were run."""
    out.note(
        f"Each point: {sweep.samples} runs of {sweep.seconds / 60:g} minutes with other streams, averaged.",
        f"Calibrated: one processor, {p4.FITTED.title}; Eq. 2 to 5 charge them nothing.  See docs/lab.md.",
    )
    return out


def _size(buffer: Size) -> str:
    return f"{buffer.mean:,.{0 if buffer.mean >= 100 else 1}f} / {buffer.most:,}"


FIGURES = {fig5: 5, fig6: 5, fig7: 40, fig8: 40, fig9: 40, fig10: 40}  # about how many seconds each takes
PAPER = Paper(4, p4.Sweep, "p4-", FIGURES)
