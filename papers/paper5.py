"""Paper 5, the window-oblivious join: buffers (Figures 5 to 7), fixed windows (8), less memory (9 to 11).

*Optimal* is what it took to find the results of a second, tracked back from them; *known* is Eq. 7 with the streams'
true characteristics; *monitored* goes by what was measured so far.  How it is run, and which readings were chosen, is
in docs/papers/paper5.md.
"""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.printing import percent, percents
from papers import paper5_sweep as p5
from papers.figure import CHECK, Outcome, Paper
from papers.paper5_curves import mean_curve, show, spread
from papers.paper5_on_spark import fig9_on_spark
from papers.paper5_operator import KNOWN, Run
from papers.paper5_strategies import fig9, fig10, fig11
from papers.paper5_streams import CONGESTION
from papers.paper5_sweep import WANTED
from penstock.kernels.order_watch import HEADROOM

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from papers.paper5_streams import Ints

CALM, CONGESTED, BURSTING = slice(5, 10), slice(35, 40), slice(85, 90)  # seconds to look at


def fig5(sweep: p5.Sweep) -> Outcome:
    """Follow the buffers of Query 1 through a congestion and a burst: predicted, and as it took."""
    out, samples = Outcome(), range(sweep.samples)
    known = [p5.query_1(sweep, n, sizes=KNOWN) for n in samples]
    seen = [p5.query_1(sweep, n) for n in samples]
    curves = {
        "optimal": [each.optimal() for each in seen],
        "known": [each.per_second(each.held) for each in known],
        "monitored": [each.per_second(each.held) for each in seen],
    }
    exact = [each.accuracy for each in known]
    out.every("with known characteristics the join gives 100 % of the results", (each == 1 for each in exact))
    _accuracies(out, sweep, seen)
    _shapes(out, curves)
    judged = [each.sketch for each in seen if each.sketch is not None]
    missed = [int((~each.found).sum()) for each in seen]
    told = ", ".join(
        f"{each.lost:.0f} ± {each.error:.0f} of {true}" for each, true in zip(judged, missed, strict=True)
    )
    near = (abs(each.lost - true) <= each.error for each, true in zip(judged, missed, strict=True))
    out.every("derived: results missed are estimated within the stated error", near, f": {told}")
    panels = {
        f"S{n + 1}": {name: mean_curve(each, n) for name, each in curves.items()}
        for n in range(len(known[0].streams))
    }
    show(out, panels)
    return out


def _accuracies(out: Outcome, sweep: p5.Sweep, seen: Sequence[Run]) -> None:
    """Check what monitoring finds, as it measures and with headroom."""
    found = [each.accuracy for each in seen]
    number = f"{percents([fmean(found)], 2)} on average, {percents([min(found)], 2)} at the least; the paper 99.6 %"
    out.claim("monitored, at least 99.2 % of them, on average", fmean(found) >= WANTED, number)
    roomy = [p5.query_1(sweep, n, headroom=HEADROOM) for n in range(sweep.samples)]
    more = fmean(map(p5.mean_held, roomy)) / fmean(map(p5.mean_held, seen)) - 1
    least = min(each.accuracy for each in roomy)
    number = f"{percents([least], 2)} at the least, in {percents([more])} more memory"
    text = "derived: reckoning with an eighth more scrambling than was seen, it is 99.2 % of every run"
    out.claim(text, least >= WANTED, number)
    when = np.concatenate([each.times[each.ends[~each.found]] for each in seen])
    late = float((when > CONGESTION.start).mean()) if when.size else 0.0
    text = "results are missed when some parameter changes drastically"
    number = (
        f"{percent(late)} of them after {CONGESTION.start:.0f} s, the others while scrambling is being learnt"
    )
    out.claim(text, late > 0.5, number)


def _shapes(out: Outcome, curves: Mapping[str, Sequence[Ints]]) -> None:
    """Check how buffers rise and how close predictions are."""
    optimal, known, seen = curves.values()
    above = [(k >= o).all() for k, o in zip(known, optimal, strict=True)]
    out.every("the buffer by Eq. 7 is never below what it takes", above, kind=CHECK)
    for name, predicted in (("by Eq. 7", known), ("as monitored", seen)):
        off = [
            float((p - o)[:, n].mean() / o[:, n].max())
            for p, o in zip(predicted, optimal, strict=True)
            for n in (0, 2)
        ]
        text = f"{name}, the predicted buffers of S1 and S3 closely follow the optimal ones: within a fifth of the peak"
        out.claim(text, fmean(off) < 0.2, f"{percent(fmean(off))} above it on average, {spread(off)} by run")
    apart = [float(abs(s - k).mean() / k.mean()) for s, k in zip(seen, known, strict=True)]
    text = "the monitored curve almost coincides with that of known characteristics: within a tenth"
    out.claim(
        text, fmean(apart) < 0.1, f"{percent(fmean(apart))} of it apart on average, {spread(apart)} by run"
    )
    for n, name in ((0, "S1"), (2, "S3")):
        grows = [each[CONGESTED, n].mean() / each[CALM, n].mean() for each in seen]
        text = f"while S2 is congested, the buffer of {name} increases significantly: it doubles"
        out.claim(text, min(grows) > 2, f"{min(grows):.1f} to {max(grows):.1f} times")
    grows = [each[BURSTING, 2].mean() / each[75:80, 2].mean() for each in seen]
    out.claim(
        "with the burst of S3 its buffer increases substantially: it doubles",
        min(grows) > 2,
        f"{min(grows):.1f} to {max(grows):.1f} times",
    )
    same = [each[BURSTING, 0].mean() / each[75:80, 0].mean() for each in seen]
    out.claim("derived: that of S1 does not", max(same) < 1.2, f"{min(same):.1f} to {max(same):.1f} times")


def fig6(sweep: p5.Sweep) -> Outcome:
    """Follow the buffer of S7, the results of J1, which runs behind S8 (Query 2)."""
    return _tree_buffers(sweep, 0)


def fig7(sweep: p5.Sweep) -> Outcome:
    """Follow the buffer of S8, the results of J2, which runs ahead of S7 (Query 2)."""
    return _tree_buffers(sweep, 1)


def _tree_buffers(sweep: p5.Sweep, stream: int) -> Outcome:
    """Draw the buffers of J3 for one input, and check what the paper says of them."""
    out, name = Outcome(), f"S{7 + stream}"
    bound = [p5.query_2(sweep, n) for n in range(sweep.trees)]
    seen = [p5.query_2(sweep, n, measured=True) for n in range(sweep.trees)]
    tops = [each.joins[2] for each in bound]
    optimal, predicted = [each.optimal() for each in tops], [each.per_second(each.held) for each in tops]
    measured = [each.joins[2].per_second(each.joins[2].held) for each in seen]
    above = [(p >= o).all() for p, o in zip(predicted, optimal, strict=True)]
    out.every(
        "derived: with the bounds of Theorem 3.1 J3 misses nothing",
        (each.joins[2].accuracy == 1 for each in bound),
    )
    out.every("and its buffers are never below what it takes", above, kind=CHECK)
    found = [each.accuracy for each in bound]
    number = f"{percents([fmean(found)], 2)} on average, {percents([min(found)], 2)} at the least"
    out.claim("the query gives at least 99.2 % of its results, on average", fmean(found) >= WANTED, number)
    grows = [each[CONGESTED, stream].mean() / max(1.0, each[CALM, stream].mean()) for each in predicted]
    number = f"{min(grows):.1f} to {max(grows):.1f} times"
    if stream:
        out.claim("S8's buffer grows while J1's output is suppressed: it doubles", min(grows) > 2, number)
    else:
        out.claim("S7's buffer shrinks while S7 falls behind: to a half", max(grows) < 0.5, number)
    wide = _margin(predicted, optimal, stream)
    leaves = [each.joins[stream] for each in bound]
    leaf = _margin([run.per_second(run.held) for run in leaves], [run.optimal() for run in leaves])
    number = f"{percent(wide)} of the optimal buffer, on average; {percent(leaf)} at J{1 + stream}"
    out.claim(
        "the margin to the optimal buffer is much wider than for a leaf join: twice", wide > 2 * leaf, number
    )
    curves = {"optimal": optimal, "Theorem 3.1": predicted, "measured at J3": measured}
    show(out, {name: {key: mean_curve(each, stream) for key, each in curves.items()}})
    lost = [each.accuracy for each in seen]
    out.note(f"Measured at J3 as any stream's, the query gives {percents([fmean(lost)], 2)} on average.")
    return out


def _margin(predicted: Sequence[Ints], optimal: Sequence[Ints], stream: int | slice = slice(None)) -> float:
    """Give by what share of them predicted buffers are above the optimal ones, on average."""
    held, took = (fmean(float(each[:, stream].mean()) for each in both) for both in (predicted, optimal))
    return held / took - 1


def fig8(sweep: p5.Sweep) -> Outcome:
    """Compare WO-Join with fixed windows: with equal memory, and with equal accuracy."""
    out, rows = Outcome(), []
    runs = [p5.query_1(sweep, n) for n in range(sweep.samples)]
    held = fmean(map(p5.mean_held, runs))
    shares = [p5.window_accuracy(each, each.held[:-1].mean(axis=0)) for each in runs]
    alike = [p5.window_accuracy(each, [each.held[:-1].mean()] * 3) for each in runs]
    needs = [p5.window_for(each, each.accuracy) for each in runs]
    rows.append(("Query 1", held, fmean(each.accuracy for each in runs), fmean(shares), fmean(needs)))
    text = "Query 1: W-Join with equal memory gives less than 40 %"
    out.claim(f"{text}, one window for all streams", max(alike) < 0.4, spread(alike))
    out.claim(f"{text}, windows in WO-Join's proportions", max(shares) < 0.4, spread(shares))

    trees = [p5.query_2(sweep, n) for n in range(sweep.trees)]
    theirs = [p5.window_tree(sweep, n, 1.0).accuracy for n in range(sweep.trees)]
    tree_needs = [p5.window_tree_for(sweep, n, each.accuracy) for n, each in enumerate(trees)]
    tree_held = fmean(each.held for each in trees)
    rows.append(
        ("Query 2", tree_held, fmean(each.accuracy for each in trees), fmean(theirs), fmean(tree_needs))
    )
    lean = [_lean_window(sweep, n) for n in range(sweep.trees)]
    number = f"{spread(theirs)}; in what J3 takes with scrambling measured there {spread(lean)}"
    out.claim("Query 2: W-Join with equal memory gives less than 40 %", max(theirs) < 0.4, number)

    factors = [each / p5.mean_held(run) for each, run in zip(needs, runs, strict=True)]
    text = "Query 1: for equal accuracy W-Join takes much more memory: half as much again"
    out.claim(text, min(factors) > 1.5, f"{min(factors):.1f} to {max(factors):.1f} times")
    factors = [each / run.held for each, run in zip(tree_needs, trees, strict=True)]
    out.claim("Query 2: the same", min(factors) > 1.5, f"{min(factors):.1f} to {max(factors):.1f} times")

    other = [p5.query_1(sweep, n, caught_up=True) for n in range(sweep.samples)]
    shares = [p5.window_accuracy(each, each.held[:-1].mean(axis=0)) for each in other]
    needs = [p5.window_for(each, each.accuracy) for each in other]
    held = fmean(map(p5.mean_held, other))
    rows.append(
        ("Query 1, S2 catches up", held, fmean(each.accuracy for each in other), fmean(shares), fmean(needs))
    )
    headings = ("query", "WO-Join: rows", "accuracy", "W-Join, equal rows: accuracy", "equal accuracy: rows")
    shown = [(n, f"{a:,.0f}", percents([b], 2), percent(c), f"{d:,.0f}") for n, a, b, c, d in rows]
    out.table("memory and accuracy", headings, shown)
    series = {"WO-Join": [row[1] for row in rows[:2]], "W-Join": [row[4] for row in rows[:2]]}
    out.draw({"rows held, on average, at equal accuracy": series}, ["Query 1", "Query 2"], "", "rows")
    out.note(f"Rows have {p5.ROW_BYTES} bytes.  W-Join's windows are in WO-Join's proportions.")
    return out


def _lean_window(sweep: p5.Sweep, sample: int) -> float:
    """Give what W-Join finds at J3 in the memory that WO-Join takes there when it measures the scrambling itself."""
    top = p5.query_2(sweep, sample, measured=True).joins[2]
    return p5.window_accuracy(top, top.held[:-1].mean(axis=0))


FIGURES = {
    fig5: 30,
    fig6: 25,
    fig7: 25,
    fig8: 60,
    fig9: 40,
    fig10: 60,
    fig11: 40,
}  # about how many seconds each takes
PAPER = Paper(5, p5.Sweep, "p5-", FIGURES, fig9=fig9_on_spark)
