"""Paper 5 in less memory: strategies over time (Figure 9), on both queries (10), and what they cost in latency (11)."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

from benchmarks.printing import percent, percents
from papers import paper5_sweep as p5
from papers.figure import CALIBRATED, Outcome
from papers.paper5_curves import mean_curve, show, spread
from papers.paper5_operator import ACCESS, BATCH, FIXED, Run, Way
from papers.paper5_streams import BURST, RATE
from papers.paper5_sweep import NAMES, WANTED
from penstock.kernels.order_watch import PRECISION
from penstock.plan.buffers import DBF, DEFAULT_AHEAD, HYBRID, MSF, PLAIN, STRATEGIES

if TYPE_CHECKING:
    from collections.abc import Callable


def fig9(sweep: p5.Sweep) -> Outcome:
    """Follow the memory of S3 in Query 1 under each strategy."""
    out = Outcome()
    runs = {each: [p5.query_1(sweep, n, each) for n in range(sweep.samples)] for each in STRATEGIES}
    means = {each: [float(run.held[:-1, 2].mean()) for run in made] for each, made in runs.items()}
    saved = {
        each: [1 - ours / plain for ours, plain in zip(means[each], means[PLAIN], strict=True)]
        for each in STRATEGIES
    }
    out.claim(
        "MSF's reduction is insignificant: a tenth at most",
        max(saved[MSF]) <= 0.1,
        f"{spread(saved[MSF])} less",
    )
    number = f"{spread(saved[DBF])} less"
    out.every(
        "DBF is more effective than MSF",
        (a > b for a, b in zip(saved[DBF], saved[MSF], strict=True)),
        f": {number}",
    )
    best = [a >= b for a, b in zip(saved[HYBRID], saved[DBF], strict=True)]
    number = f"{spread(saved[HYBRID])} less, {sum(best)} of {len(best)} runs"
    out.claim(
        "Hybrid yields the best reduction, on average", fmean(saved[HYBRID]) > fmean(saved[DBF]), number
    )
    flat = [float(run.held[950:1150, 2].mean() / run.held[450:750, 2].mean()) for run in runs[DBF]]
    text = "DBF's buffer does not depend on the lag: as large after the burst, three times the lag, as before"
    out.claim(text, max(flat) < 1.2, f"{min(flat):.2f} to {max(flat):.2f} times")
    bounds = [_disk_bound(run, 2) for run in runs[DBF]]
    most = [int(run.held[:-1, 2].max()) for run in runs[DBF]]
    number = ", ".join(f"{m:,} of {b:,}" for m, b in zip(most, bounds, strict=True))
    out.every(
        "it is never above that of section 4.2",
        (m <= b for m, b in zip(most, bounds, strict=True)),
        f": {number}",
    )
    sorters = [float(run.sorting[:-1, 2].mean() / run.held[:-1, 2].mean()) for run in runs[HYBRID]]
    out.claim(
        "Hybrid's memory is mainly sorters: more than half, on average",
        fmean(sorters) > 0.5,
        spread(sorters),
    )
    found = [run.accuracy for made in runs.values() for run in made]
    out.claim(
        "all strategies give at least 99.2 %, on average",
        fmean(found) >= WANTED,
        f"{percents([fmean(found)], 2)}, {percents([min(found)], 2)} at the least",
    )
    panel = {
        NAMES[each]: mean_curve([run.per_second(run.held)[:-1] for run in made], 2)
        for each, made in runs.items()
    }
    show(out, {"S3": panel})
    return out


def _disk_bound(run: Run, stream: int) -> int:
    """Give ``k_i + C + r_i · k_j / r_j``, to the precision of what is measured, and a batch of a burst beside it.

    A stream that is held back is joined at the rate of its partners: rates are equal.
    """
    own, others = run.streams[stream], [each for n, each in enumerate(run.streams) if n != stream]
    rows = own.scrambling + DEFAULT_AHEAD + max(each.scrambling for each in others)
    return int((1 + 2 * PRECISION) * rows + BURST.factor * RATE * BATCH)


def fig10(sweep: p5.Sweep) -> Outcome:
    """Compare the average memory of the strategies, on both queries."""
    out = Outcome()
    ways: dict[str, Callable[[str], float]] = {
        "Query 1": lambda each: fmean(p5.mean_held(p5.query_1(sweep, n, each)) for n in range(sweep.samples)),
        "Query 2": lambda each: fmean(p5.query_2(sweep, n, each).held for n in range(sweep.trees)),
    }
    rows = {query: {each: of(each) for each in STRATEGIES} for query, of in ways.items()}
    for query, held in rows.items():
        number = ", ".join(f"{NAMES[each]} {held[each]:,.0f}" for each in STRATEGIES)
        out.claim(
            f"{query}: Hybrid takes the least memory", min(held, key=held.__getitem__) == HYBRID, number
        )
    first, second = rows.values()
    out.claim(
        "Query 1: DBF takes less than MSF",
        first[DBF] < first[MSF],
        f"{first[DBF]:,.0f} and {first[MSF]:,.0f} rows",
    )
    out.claim(
        "Query 2: MSF takes less than DBF",
        second[MSF] < second[DBF],
        f"{second[MSF]:,.0f} and {second[DBF]:,.0f} rows",
    )
    trees = [p5.query_2(sweep, n, MSF) for n in range(sweep.trees)]
    sorters = [
        sum(float(j.sorting[:-1].sum(axis=1).mean()) for j in each.joins) / each.held for each in trees
    ]
    alone = [
        float(run.sorting[:-1].sum(axis=1).mean()) / p5.mean_held(run)
        for run in (p5.query_1(sweep, n, MSF) for n in range(sweep.samples))
    ]
    number = f"{percent(fmean(sorters))} of MSF's memory, {percent(fmean(alone))} in Query 1"
    out.claim("in Query 2 sorters are a smaller part", fmean(sorters) < fmean(alone), number)
    series = {NAMES[each]: [rows[query][each] for query in rows] for each in STRATEGIES}
    out.series("rows in memory, on average", "query", list(rows), series, lambda y: f"{y:,.0f}")
    out.draw({"average memory": series}, list(rows), "", "rows")
    return out


def fig11(sweep: p5.Sweep) -> Outcome:
    """Compare output latencies of W-Join and of WO-Join under each strategy (Query 1)."""
    out, samples = Outcome(), range(sweep.samples)
    seconds = {NAMES[each]: [p5.query_1(sweep, n, each).latency() for n in samples] for each in STRATEGIES}
    seconds = {"W-Join": [_window_latency(sweep, n) for n in samples], **seconds}
    mean = {name: fmean(each) for name, each in seconds.items()}
    ours, theirs = mean["WO-Join"], mean["W-Join"]
    out.claim(
        "WO-Join's latency is almost as low as W-Join's: within 5 %",
        ours < 1.05 * theirs,
        f"{1e3 * ours:.1f} and {1e3 * theirs:.1f} ms",
        CALIBRATED,
    )
    more = mean["DBF"] / ours - 1
    out.claim("DBF's is about 50 % higher: 35 to 65 %", 0.35 <= more <= 0.65, f"{percent(more)}", CALIBRATED)
    for name in ("MSF", "Hybrid"):
        times = mean[name] / ours
        out.claim(
            f"{name}'s is two orders of magnitude higher: 30 to 300 times",
            30 <= times <= 300,
            f"{times:.0f} times, {mean[name]:.1f} s",
            CALIBRATED,
        )
    worst = [
        max(each, key=lambda name: seconds[name][n]) == "Hybrid"
        for n, each in enumerate([list(seconds)] * len(samples))
    ]
    out.every("Hybrid's is the highest", worst)
    names = list(mean)
    out.table(
        "average latency", ("join", "ms"), [(name, f"{1e3 * each:,.1f}") for name, each in mean.items()]
    )
    out.draw({"latency": {"average": [1e3 * mean[name] for name in names]}}, names, "", "ms", log="y")
    out.note(
        f"Rows are joined every {1e3 * BATCH:.0f} ms; an access to the disk takes {1e3 * ACCESS:.0f} ms."
    )
    return out


def _window_latency(sweep: p5.Sweep, sample: int) -> float:
    """Give W-Join's latency, with windows as large as WO-Join's largest buffers."""
    ours = p5.query_1(sweep, sample)
    way = Way(sizes=FIXED, rows=tuple(ours.held[:-1].max(axis=0).tolist()))
    return Run(ours.streams, way, sweep.seconds).latency(watched=False)
