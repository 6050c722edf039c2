"""Paper 3, PWJoin beside WJoin: rows held (Figure 8), results (9), and results where punctuations match nothing (10).

All are counts at steps of running time, averaged over pairs of streams for the pictures; claims look at every pair.
Both cost models are shown: the paper's structure as it is written, and the calibrated one.  Section 5, with Eq. 1, is
`papers.paper3_analysis`; Figures 11 and 12 are `papers.paper3_told`.
"""

from __future__ import annotations

from itertools import chain, pairwise, product
from math import inf
from statistics import fmean
from typing import TYPE_CHECKING

from benchmarks.printing import percent, percents
from papers import paper3_sweep as p3
from papers.figure import CALIBRATED, CHECK, Outcome, Paper
from papers.paper3_analysis import analyse, equation_1, held_at
from papers.paper3_joins import Costs
from papers.paper3_on_spark import fig8_on_spark, fig9_on_spark
from papers.paper3_streams import Notation
from papers.paper3_sweep import PWJOIN, WJOIN
from papers.paper3_told import fig11, fig12

if TYPE_CHECKING:
    from collections.abc import Sequence

    from papers.paper3_joins import Run

ALIKE = "punct-asc-100-40", "punct-asc-100-40"
CASES = (ALIKE, p3.MIXED, ("cluster-asc-100",) * 2, ("cluster-asc-30", "cluster-random-30"))
SOME, MORE = 150, 400
"""Values to draw from, beside 15,000: so few that all, or many of them, are punctuated in a run."""

GROWING = (1, 5, 10, 15, 25)  # seconds of window
TRIED = [
    Costs(*each)
    for each in (
        (inf, 1, 1),
        (1000, 1, 1),
        (300, 1, 1),
        (100, 1, 5),
        (inf, 20, 5),
        (200, 11, 2),
        (100, 20, 5),
    )
]


def fig8(sweep: p3.Sweep) -> Outcome:
    """Compare the rows that PWJoin and WJoin hold, by window, and set Eq. 1 beside them."""
    out, panels, steady = Outcome(), {}, {}
    for window in p3.WINDOWS:
        setting = p3.same(window, sweep.pair(*ALIKE))
        made = {name: p3.runs(sweep, setting, name) for name in (PWJOIN, WJOIN)}
        held = {name: p3.mean(runs, lambda sample: sample.held) for name, runs in made.items()}
        panels[f"window {window} s"] = {**held, "Eq. 1": _reckoned(sweep, setting, made[PWJOIN])}
        steady[window] = [(_steady(a), _steady(b)) for a, b in zip(*made.values(), strict=True)]
    rows = [[theirs - ours for ours, theirs in each] for each in steady.values()]
    shares = [[1 - ours / theirs for ours, theirs in each] for each in steady.values()]
    text = "the larger the window, the more memory PWJoin saves"
    number = f": {', '.join(f'{fmean(each):,.0f}' for each in rows)} rows at 1, 5 and 15 s"
    out.every(text, map(_grows, zip(*rows, strict=True)), number)
    number = f": {percents(map(fmean, shares))}"
    out.every("and the larger a share of WJoin's", map(_grows, zip(*shares, strict=True)), number)
    text = "at the same time of the streams PWJoin never holds more"
    out.every(text, _never_more(sweep), kind=CHECK)
    off = [theirs / (200 * window) - 1 for window, each in steady.items() for _, theirs in each]
    worst = max(map(abs, off))
    out.claim("WJoin holds λa·Ta + λb·Tb rows", worst < 0.05, f"within {percents([worst], 1)}", CHECK)
    analyse(sweep, out)
    p3.show(out, sweep, "rows held", panels, 2)
    return out


def _reckoned(sweep: p3.Sweep, setting: p3.Setting, made: Sequence[Run]) -> list[float]:
    """Give Eq. 1 at the times of the streams that samples were taken at, on average."""
    said = [
        [equation_1(p3.streams(sweep, n, setting), setting.windows, each.at / 1000) for each in run.samples]
        for n, run in enumerate(made)
    ]
    return [fmean(each) for each in zip(*said, strict=True)]


def _steady(run: Run) -> float:
    """Give the rows held on average over the second half of a run."""
    return fmean(each.held for each in run.samples[len(run.samples) // 2 :])


def _grows(numbers: Sequence[float]) -> bool:
    return all(before < then for before, then in pairwise(numbers))


def _never_more(sweep: p3.Sweep) -> list[bool]:
    """Compare rows held at the same times of the streams, every 5 s."""
    found = []
    for window in p3.WINDOWS:
        setting = p3.same(window, sweep.pair(*ALIKE), p3.SHORT)
        held = [chain(*held_at(sweep, setting, name, range(5, 80, 5))) for name in (PWJOIN, WJOIN)]
        found += [ours <= theirs for ours, theirs in zip(*held, strict=True)]
    return found


def fig9(sweep: p3.Sweep) -> Outcome:
    """Compare the results that PWJoin and WJoin give by running time, with windows of 5 and 15 s."""
    out, panels, lead = Outcome(), {}, {}
    for (model, costs), window in product(p3.MODELS.items(), (5, 15)):
        setting = p3.same(window, sweep.pair(*ALIKE))
        made = {name: p3.runs(sweep, setting, name, costs) for name in (PWJOIN, WJOIN)}
        panels[f"{window} s, {model}"] = {
            name: p3.mean(runs, lambda sample: sample.results) for name, runs in made.items()
        }
        last = [[run.samples[-1].results for run in runs] for runs in made.values()]
        lead[model, window] = [ours / max(1, theirs) - 1 for ours, theirs in zip(*last, strict=True)]
    for model, kind in (("as written", ""), ("calibrated", CALIBRATED)):
        small, large = lead[model, 5], lead[model, 15]
        text = f"{model}: at 5 s WJoin is slightly better, by up to 5 %"
        out.claim(text, all(-0.05 <= each < 0 for each in small), f"PWJoin {_signed(small)}", kind)
        text = f"{model}: at 15 s PWJoin is apparently better, by 5 % or more"
        out.claim(text, all(each >= 0.05 for each in large), f"PWJoin {_signed(large)}", kind)
    _by_window(sweep, out)
    _most_cases(sweep, out)
    p3.show(out, sweep, "results", panels, 2)
    _by_costs(sweep, out)
    out.note("Calibrated: buckets and the cost of a purged row.  See docs/papers/paper3.md.")
    return out


def _signed(shares: Sequence[float]) -> str:
    return f"{100 * min(shares):+.1f} to {100 * max(shares):+.1f} %"


def _by_window(sweep: p3.Sweep, out: Outcome) -> None:
    """Check how the gain and what a punctuation purges depend on the window."""
    settings = {window: p3.same(window, sweep.pair(*ALIKE), p3.SHORT) for window in GROWING}
    for model, kind in (("as written", ""), ("calibrated", CALIBRATED)):
        found = [p3.gains(sweep, each, p3.MODELS[model]) for each in settings.values()]
        number = f": {', '.join(f'{100 * fmean(each):+.1f}' for each in found)} % at 1, 5, 10, 15 and 25 s"
        text = f"{model}: the gain grows with the window"
        out.every(text, map(_grows, zip(*found, strict=True)), number, kind)
    text = "a punctuation purges fewer rows at 5 s than at 15 s"
    own, few = (
        [_purged(sweep, settings[window].over(values)) for window in (5, 15)] for values in (15_000, SOME)
    )
    number = f"{own[0]:.1f} and {own[1]:.1f}; of {SOME} values {few[0]:.1f} and {few[1]:.1f}"
    out.claim(text, own[0] < 0.95 * own[1], number)
    probes = [
        [each.visits["probe"] for each in p3.whole(sweep, settings[5], name)] for name in (PWJOIN, WJOIN)
    ]
    off = max(abs(ours / theirs - 1) for ours, theirs in zip(*probes, strict=True))
    text = "derived: no probe visits a row that a purge would have taken, at 5 s"
    out.claim(text, off < 1e-3, f"visits differ by {percents([off], 2)}", CHECK)


def _purged(sweep: p3.Sweep, setting: p3.Setting) -> float:
    """Give the rows that a punctuation purges, on average."""
    purged = sum(run.counts["purged"] for run in p3.whole(sweep, setting, PWJOIN))
    promises = [each.behind.size for n in range(sweep.samples) for each in p3.streams(sweep, n, setting)]
    return purged / sum(promises)


def _most_cases(sweep: p3.Sweep, out: Outcome) -> None:
    """Check the abstract: in most cases PWJoin has less memory and more throughput than WJoin."""
    pairs = dict.fromkeys(sweep.pair(*each) for each in CASES)
    rows = []
    for pair, values, window in product(pairs, (15_000, MORE), p3.WINDOWS):
        setting = p3.same(window, pair, 1.25 * sweep.steps).over(values)
        held = [sum(each.held for each in p3.whole(sweep, setting, name)) for name in (PWJOIN, WJOIN)]
        saved = 1 - held[0] / held[1]
        gained = [fmean(p3.gains(sweep, setting, costs)) for costs in p3.MODELS.values()]
        rows.append((*pair, f"{values:,}", window, saved, *gained))
    headings = (
        "stream A",
        "B",
        "values",
        "window (s)",
        "memory saved",
        *(f"faster, {each}" for each in p3.MODELS),
    )
    shown = [(*each[:4], *(f"{100 * number:+.1f} %" for number in each[4:])) for each in rows]
    out.table("PWJoin against WJoin", headings, shown)
    for place, (model, kind) in enumerate((("calibrated", CALIBRATED), ("as written", "")), 5):
        better = [each[4] > 0 and each[place] > 0 for each in rows]
        text = f"{model}: in most cases PWJoin has less memory and more throughput (abstract)"
        less = sum(each[4] > 0.05 for each in rows)
        number = f"{sum(better)} of {len(better)}; at least 5 % of the memory is saved in {less}"
        out.claim(text, sum(better) > len(better) / 2, number, kind)


def _by_costs(sweep: p3.Sweep, out: Outcome) -> None:
    """Lay out what other cost models give."""
    rows = []
    for costs in TRIED:
        found = [
            p3.gains(sweep, p3.same(window, sweep.pair(*ALIKE), p3.SHORT), costs) for window in p3.WINDOWS
        ]
        rows.append((costs.buckets, costs.purge, costs.result, *map(_signed, found)))
    headings = ("buckets", "purged row", "result", *(f"{window} s" for window in p3.WINDOWS))
    out.table("by how much PWJoin is faster than WJoin, by what is charged", headings, rows)


def fig10(sweep: p3.Sweep) -> Outcome:
    """Compare the results that PWJoin and WJoin give where no punctuation matches a row."""
    out, panels = Outcome(), {}
    streams = sweep.pair(*p3.MIXED)
    for (model, costs), window in product(p3.MODELS.items(), (5, 15)):
        setting = p3.Setting(streams, (window, window), sweep.long, irrelevant=True)
        made = {name: p3.runs(sweep, setting, name, costs) for name in (PWJOIN, WJOIN)}
        panels[f"{window} s, {model}"] = {
            name: p3.mean(runs, lambda sample: sample.results) for name, runs in made.items()
        }
    short = [p3.Setting(streams, (window, window), p3.SHORT, irrelevant=True) for window in p3.WINDOWS]
    for model, costs in p3.MODELS.items():
        extra = [[-each / (1 + each) for each in p3.gains(sweep, setting, costs)] for setting in short]
        text = f"{model}: the overhead of irrelevant punctuations is insignificant, below 2 %"
        number = f"{', '.join(f'{100 * max(each):.1f}' for each in extra)} % at most at 1, 5 and 15 s"
        out.claim(text, all(0 < each < 0.02 for each in chain(*extra)), number)
    share = [_promise_against_row(sweep, *each) for each in product(short, p3.MODELS.values())]
    number = f": {percent(min(share))} to {percent(max(share))} of a row's cost"
    out.every("an irrelevant punctuation costs less than a row", (each < 1 for each in share), number)
    _irrelevant(sweep, short[1], out)
    p3.show(out, sweep, "results", panels, 2)
    return out


def _promise_against_row(sweep: p3.Sweep, setting: p3.Setting, costs: Costs) -> float:
    """Give what an irrelevant punctuation costs, as a share of what a row costs."""
    ours, theirs = (sum(map(costs.of, p3.whole(sweep, setting, name))) for name in (PWJOIN, WJOIN))
    both = [each for n in range(sweep.samples) for each in p3.streams(sweep, n, setting)]
    rows, promises = sum(each.ts.size for each in both), sum(each.behind.size for each in both)
    return (ours - theirs) / promises / (theirs / rows)


def _irrelevant(sweep: p3.Sweep, setting: p3.Setting, out: Outcome) -> None:
    """Look at what irrelevant punctuations take and leave behind, and at streams without any."""
    made, plain = (p3.whole(sweep, setting, name) for name in (PWJOIN, WJOIN))
    both = [each for n in range(sweep.samples) for each in p3.streams(sweep, n, setting)]
    promises = sum(each.behind.size for each in both)
    visits = sum(each.visits["purge"] for each in made) / promises
    number = f"{visits:.2f} visits where a search is 1"
    out.claim("an irrelevant punctuation costs one search of an index", abs(visits - 1) < 0.1, number)
    rows = sum(each.ts.size for each in both) / promises
    out.claim("30 rows to a punctuation", 29 < rows < 31, f"{rows:.1f}", CHECK)
    purged = sum(each.counts["purged"] for each in made)
    out.claim("none of them purges a row", purged == 0, f"{purged} rows", CHECK)
    uniform = (Notation.parse("uniform-500"),) * 2
    gained = p3.gains(sweep, p3.Setting(uniform, setting.windows, p3.SHORT), p3.FITTED)
    out.every(
        "without punctuations PWJoin costs what WJoin costs", (each == 0 for each in gained), kind=CHECK
    )
    left = [fmean(each.inodes for each in runs) for runs in (made, plain)]
    out.note(f"I-Nodes left after {p3.SHORT:g} s: PWJoin {left[0]:,.0f}, WJoin {left[1]:,.0f}.")


def with_streams(seed: int, text: str) -> p3.Sweep:
    """Make a sweep that joins other streams than the paper's, such as `punct-asc-100-40,cluster-random-30`."""
    return p3.Sweep(seed, streams=Notation.pair(text))


FIGURES = {fig8: 30, fig9: 40, fig10: 30, fig11: 20, fig12: 15}  # about how many seconds each takes
PAPER = Paper(3, p3.Sweep, "p3-", FIGURES, fig8=fig8_on_spark, fig9=fig9_on_spark)
