"""Paper 3, punctuations of the result: PWJoin's beside PJoin's (Figure 11), and where one stream has none (Figure 12).

A value is *told* when the join promises that no later result has it: once both streams have promised it, or, early,
once the last row of the stream that has promised it is out of its window.
"""

from __future__ import annotations

from itertools import chain, product
from math import inf
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.printing import seconds, span
from papers import paper3_sweep as p3
from papers.figure import CHECK, Outcome
from papers.paper3_sweep import PJOIN, PWJOIN
from penstock.errors import InputError

if TYPE_CHECKING:
    from papers.paper3_joins import Run

ONE_SIDED = "uniform-15000", "punct-asc-30-40"
SOME, MORE = 150, 400
"""Values to draw from, beside 15,000: so few that all, or many of them, are punctuated in a run."""


def fig11(sweep: p3.Sweep) -> Outcome:
    """Compare the punctuations that PWJoin, with a window of 1 s, and PJoin give by running time."""
    out, panels = Outcome(), {}
    setting = p3.same(1, sweep.pair(*p3.MIXED), sweep.long)
    for title, each, costs in (
        ("calibrated, 15,000 values", setting, p3.FITTED),
        ("as written, 15,000 values", setting, p3.WRITTEN),
        (f"as written, {MORE} values", setting.over(MORE), p3.WRITTEN),
    ):
        made = {name: p3.runs(sweep, each, name, costs, 1.0) for name in (PWJOIN, PJOIN)}
        panels[title] = _given(made)
        ours, theirs = (chain(*(run.samples[1:] for run in runs)) for runs in made.values())
        ahead = [one.punctuations > two.punctuations for one, two in zip(ours, theirs, strict=True)]
        last = [series[-1] for series in panels[title].values()]
        text = f"{title}: PWJoin has given more punctuations at every step from the second on"
        out.every(text, ahead, f": {last[0]:,.0f} for {last[1]:,.0f} at the end")
    _by_stream(sweep, out)
    p3.show(out, sweep, "punctuations given", panels, 1)
    return out


def _given(made: dict[str, list[Run]]) -> dict[str, list[float]]:
    """Give the punctuations of the result at each step, on average."""
    return {name: p3.mean(runs, lambda sample: sample.punctuations) for name, runs in made.items()}


def _by_stream(sweep: p3.Sweep, out: Outcome) -> None:
    """Look at when each value is told, by the streams' own time, whatever the joins cost."""
    leads, told, rows = [], [], []
    for values in (15_000, MORE, SOME):
        setting = p3.same(1, sweep.pair(*p3.MIXED), p3.SHORT).over(values)
        made = [p3.whole(sweep, setting, name) for name in (PWJOIN, PJOIN)]
        for time, (name, runs) in product((20, 40, 60, 80), zip((PWJOIN, PJOIN), made, strict=True)):
            count = fmean(sum(each.at <= 1000 * time for each in run.told) for run in runs)
            rows.append((f"{values:,}", time, name, f"{count:,.1f}"))
        for ours, theirs in zip(*made, strict=True):
            first, then = ({each.value: each.at for each in run.told} for run in (ours, theirs))
            leads += [(at - first[value]) / 1000 for value, at in then.items()]
            told.append((len(ours.told) == len(first), len(theirs.told) == len(then)))
    text = "no value is told later than by PJoin, at the same time of the streams (section 4.4)"
    number = f": {seconds(fmean(leads or [0]))} s earlier on average"
    out.every(text, (each >= 0 for each in leads), number, CHECK)
    out.every("no value is told twice", (all(each) for each in told), kind=CHECK)
    pairs = [(*one[:2], one[3], two[3]) for one, two in zip(rows[::2], rows[1::2], strict=True)]
    headings = ("values", "streams' time (s)", PWJOIN, PJOIN)
    out.table("punctuations given by the streams' own time", headings, pairs)


def fig12(sweep: p3.Sweep) -> Outcome:
    """Show the punctuations that PWJoin gives where one stream has none."""
    out, panels = Outcome(), {}
    streams = sweep.pair(*ONE_SIDED)
    if not streams[1].segment:
        raise InputError(
            f"p3-fig12 looks at what the second stream promises: {streams[1]} has no punctuations"
        )
    on_b, on_both = p3.Setting(streams, (inf, 5), sweep.long), p3.Setting(streams, (5, 5), sweep.long)
    for title, setting, costs in (
        ("window on B, calibrated", on_b, p3.FITTED),
        ("window on B, as written", on_b, p3.WRITTEN),
        ("windows on both, calibrated", on_both, p3.FITTED),
    ):
        made = {name: p3.runs(sweep, setting, name, costs, 1.0) for name in (PWJOIN, PJOIN)}
        panels[title] = _given(made)
        quarter = sweep.steps // 4
        pace = []
        for run in made[PWJOIN]:
            given = [each.punctuations for each in run.samples]
            pace.append(
                (given[-1] - given[-1 - quarter]) / max(1, given[2 * quarter - 1] - given[quarter - 1])
            )
        text = f"{title}: PWJoin's output rate is steady (section 1.4), within a fifth"
        number = f"in the last quarter of a run {span(pace)} of the second"
        out.claim(text, all(0.8 <= each <= 1.25 for each in pace), number)
    _one_sided(sweep, on_b, out)
    p3.show(out, sweep, "punctuations given", panels, 1)
    return out


def _one_sided(sweep: p3.Sweep, setting: p3.Setting, out: Outcome) -> None:
    """Look at when values are told, at rows that are dropped, and at the other reading of the window."""
    made = p3.runs(sweep, setting, PWJOIN, p3.WRITTEN, 1.0)
    delays, follows = [], []
    for n, run in enumerate(made):
        stream = p3.streams(sweep, n, setting)[1]
        ends = stream.ts[stream.behind - 1]
        by_value = dict(zip(stream.punctuated.tolist(), ends.tolist(), strict=True))
        delays += [(each.at - by_value[each.value]) / 1000 for each in run.told]
        due = [int(np.searchsorted(ends, each.at - 5000)) for each in run.samples]
        follows += [abs(each.punctuations - want) <= 1 for each, want in zip(run.samples, due, strict=True)]
    out.every("PWJoin gives them regularly: as many as B has sent until 5 s ago", follows, " steps")
    number = f"{min(delays, default=0):.3f} to {max(delays, default=0):.3f} s after the last row"
    text = "each value is told when its last row leaves the window"
    out.claim(text, delays and min(delays) > 5 and max(delays) < 5.1, number)
    dropped = [run.counts["dropped"] for run in made]
    number = f": {min(dropped)} to {max(dropped)} rows"
    out.every("rows of A that come after are dropped (section 1.2)", (each > 0 for each in dropped), number)
    none = [len(run.told) for run in p3.runs(sweep, setting, PJOIN, p3.WRITTEN, 1.0)]
    out.every("PJoin gives none", (each == 0 for each in none), kind=CHECK)
    other = p3.Setting(setting.streams, (5, inf), p3.SHORT)
    told = [len(run.told) for run in p3.whole(sweep, other, PWJOIN)]
    text = "PWJoin does so with the window on the stream without punctuations, as the text has it"
    out.claim(text, min(told) > 0, f"{max(told)} punctuations")
