"""Figures 8 and 9 of paper 3 measured on the engine: rows held, and results by the time that units take.

The paper's streams arrive eight seconds at a time, as files in which punctuations are rows.  Each window is run on them
twice over: heeding punctuations, which is what PWJoin does, and leaving them out by a condition, as WJoin::

    files   a: 0 7 4 0 <0> | 1 8 1 3 1 <1> | ...       state rows after each step, until the streams end
            b: 3 0 9 0 <0> | 1 1 6 1 <1>   | ...       seconds are those of the units alone

With a window of an hour the streams have 150 values instead of 15,000, so that every value is punctuated before they
end: all that is held then is what a punctuation is still to come for, however long the window.

In:  a seed.  Out: an `Outcome`; DuckDB joins the files as one batch and says what every run must count.
"""

from __future__ import annotations

import tempfile
from functools import lru_cache
from itertools import chain, pairwise
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from benchmarks.oracle import true_counts
from benchmarks.printing import percent, percents
from benchmarks.punctuated import IS_ROW, Punctuations, punctuated, punctuated_script
from benchmarks.workloads import EPOCH, NOOP, STREAMS, Columns, WindowQuery
from papers import paper3_sweep as p3
from papers.figure import CHECK, Outcome
from papers.on_spark import ROUNDS, Feed, engine_at, turns
from papers.paper3_sweep import PWJOIN, WJOIN
from penstock.sql.query import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from papers.paper3_streams import Stream

HEEDS = {PWJOIN: True, WJOIN: False}
STEP = 8  # seconds of the streams that arrive at a time
SECONDS = 160  # of the streams: 150 values are punctuated in them, and there are a few more
HOUR = 3600


class Case(NamedTuple):
    """A window on both streams, and how many values and seconds these have."""

    window: int
    values: int = 15_000
    seconds: int = SECONDS

    def streams(self, seed: int) -> tuple[Stream, Stream]:
        """Make the streams, the same as in virtual time."""
        sweep = p3.Sweep(seed, samples=1)
        pair = sweep.pair("punct-asc-100-40", "punct-asc-100-40")
        return p3.streams(sweep, 0, p3.same(self.window, pair, self.seconds).over(self.values))

    def __str__(self) -> str:
        return f"1 h, {self.values} values" if self.window == HOUR else f"{self.window} s"


CASES = (*map(Case, p3.WINDOWS), Case(HOUR, 150))


class HeldRows(NamedTuple):
    """What one run gave: rows of state after each step, seconds in units, results, and rows that broke a promise."""

    rows: tuple[int, ...]
    seconds: float
    results: int
    broken: int

    @property
    def steady(self) -> float:
        """Average the rows over the second half of the run."""
        return fmean(self.rows[len(self.rows) // 2 :])


class Measured(NamedTuple):
    """The rounds of either way on one case, and what DuckDB counts."""

    truth: int
    runs: dict[str, list[HeldRows]]

    def fastest(self, name: str) -> HeldRows:
        """Give the round that took the fewest seconds."""
        return min(self.runs[name], key=lambda each: each.seconds)


def arrivals(case: Case, seed: int) -> list[dict[str, pa.Table]]:
    """List what arrives at a time."""
    cut = [_pieces(each, case.seconds) for each in case.streams(seed)]
    return [dict(zip(STREAMS, both, strict=True)) for both in zip(*cut, strict=True)]


def _pieces(stream: Stream, seconds: int) -> list[pa.Table]:
    """Cut one stream into what arrives at a time; when it has ended there is nothing more."""
    rows = Columns(stream.value, np.zeros(stream.value.size), 1000 * stream.ts)
    whole = punctuated(rows, Punctuations(stream.punctuated, stream.behind))
    ends = EPOCH + np.arange(0, seconds + STEP, STEP) * SECOND
    places = np.searchsorted(whole["ts"].cast("int64").to_numpy(), ends)
    return [whole.slice(start, end - start) for start, end in pairwise(places.tolist())]


def run(feed: Feed, home: Path, case: Case, *, heeds: bool) -> HeldRows:
    """Run the engine while files arrive, and ask after each step what it holds."""
    queries, held = (WindowQuery(case.window),), []
    script = punctuated_script(home, queries, NOOP, heeds=heeds, files=None)
    with engine_at(home, script) as (engine, seconds):
        for step in range(feed.count):
            feed.put(step, home)
            engine.process_available()
            held.append(engine.status().state_rows)
        status = engine.status()
    broken = sum(each.broken for each in status.streams)
    return HeldRows(tuple(held), sum(seconds), status.queries[0].results, broken)


@lru_cache(1)
def measure(seed: int, tell: Callable[[str], None], cases: tuple[Case, ...] = CASES) -> dict[Case, Measured]:
    """Run every case either way, in turns; both figures are drawn from it."""
    made = {}
    for case in cases:
        with tempfile.TemporaryDirectory(prefix="penstock-p3-fig8-") as folder:
            feed = Feed(Path(folder, "data"), arrivals(case, seed))
            truth = true_counts(feed.folder, [WindowQuery(case.window)], IS_ROW).results[0]
            runs: dict[str, list[HeldRows]] = {name: [] for name in HEEDS}
            for turn, name in turns(HEEDS):
                tell(f"window {case}, round {turn + 1} of {ROUNDS}, {name}: {feed.count} steps")
                runs[name].append(run(feed, Path(folder, f"{name}-{turn}"), case, heeds=HEEDS[name]))
        made[case] = Measured(truth, runs)
    return made


def fig8_on_spark(seed: int, tell: Callable[[str], None]) -> Outcome:
    """Measure the rows that are held, by window, and check what the paper says of memory."""
    return held(measure(seed, tell))


def fig9_on_spark(seed: int, tell: Callable[[str], None]) -> Outcome:
    """Measure the results by the seconds that units take, and check what the paper says of the output rate."""
    return given(measure(seed, tell))


def exactness(out: Outcome, measured: dict[Case, Measured]) -> None:
    """Check that punctuations change no result, and that no row breaks one."""
    every = [(each, made.truth) for made in measured.values() for each in chain(*made.runs.values())]
    text = "with and without punctuations, every run gives what DuckDB finds in one batch"
    out.every(text, (each.results == truth for each, truth in every), kind=CHECK)
    out.every("no row breaks a promise", (each.broken == 0 for each, _ in every), kind=CHECK)


def held(measured: dict[Case, Measured]) -> Outcome:
    """Lay out the rows held after each step, and check them."""
    out, rows = Outcome(), []
    exactness(out, measured)
    less, saved, share = [], [], []
    for case, made in measured.items():
        ours, theirs = (made.runs[name][0] for name in HEEDS)
        less += [one <= other for one, other in zip(ours.rows, theirs.rows, strict=True)]
        saved.append(theirs.steady - ours.steady)
        share.append(1 - ours.steady / theirs.steady)
        ends = (f"{each.steady:,.0f} {max(each.rows):,} {each.rows[-1]:,}".split() for each in (ours, theirs))
        rows.append((case, *chain(*ends), percent(share[-1])))
    out.every("with punctuations the state is never larger, step by step", less)
    text = "the larger the window, the more memory punctuations save"
    number = f"{', '.join(f'{each:,.0f}' for each in saved)} rows"
    out.claim(text, _grow(saved), number)
    out.claim("and the larger a share", _grow(share), percents(share))
    for case, made in measured.items():
        if case.window == HOUR:
            _bounded(out, *(made.runs[name][0].rows for name in HEEDS))
    headings = [f"{name} {what}" for name in HEEDS for what in ("average", "most", "at the end")]
    out.table("rows held", ("window", *headings, "saved"), rows)
    panels = {
        f"window {case}, on Spark": {name: made.runs[name][0].rows for name in (WJOIN, PWJOIN)}
        for case, made in measured.items()
    }
    times = [STEP * (n + 1) for n in range(len(made.runs[WJOIN][0].rows))]
    for title, series in panels.items():
        out.series(f"rows held: {title}", "streams' time (s)", times, series, lambda y: f"{y:,.0f}")
    out.draw(panels, times, "streams' time (s)", "rows held", columns=2)
    out.note(
        f"Looked at after every {STEP} s of the streams; averages are over the second half of a run.",
        "A log is held against punctuations when one has taken effect for each 256 of its rows, not one by one.",
    )
    return out


def _grow(numbers: Sequence[float]) -> bool:
    return all(before < then for before, then in pairwise(numbers))


def _bounded(out: Outcome, ours: Sequence[int], theirs: Sequence[int]) -> None:
    """Check a window that is longer than the streams."""
    most, last = (each / theirs[-1] for each in (max(ours), ours[-1]))
    text = (
        "with a window of an hour the state is bounded: never half of all rows, and it shrinks as values end"
    )
    number = f"{percent(most)} of all rows at the most, {percent(last)} when the streams have ended"
    out.claim(text, last < most < 0.5, number)
    grows = all(before <= then for before, then in pairwise(theirs))
    out.claim("and without punctuations it only grows", grows, f"to {theirs[-1]:,} rows", CHECK)


def given(measured: dict[Case, Measured]) -> Outcome:
    """Lay out results by the seconds in units, the fastest round of each, and check them."""
    out, rows, lead = Outcome(), [], {}
    rates: dict[str, list[float]] = {name: [] for name in HEEDS}
    exactness(out, measured)
    for case, made in measured.items():
        seconds = {name: made.fastest(name).seconds for name in HEEDS}
        for name in HEEDS:
            rates[name].append(made.truth / seconds[name])
        lead[case.window] = seconds[WJOIN] / seconds[PWJOIN] - 1
        rows.append(
            (
                case,
                f"{made.truth:,}",
                *(f"{each:.2f}" for each in seconds.values()),
                *(f"{each[-1]:,.0f}" for each in rates.values()),
                f"{100 * lead[case.window]:+.1f} %",
            )
        )
    if {5, 15} <= lead.keys():
        number = f"PWJoin {100 * lead[5]:+.1f} %"
        out.claim("at 5 s WJoin is slightly better, by up to 5 %", -0.05 <= lead[5] < 0, number)
        number = f"PWJoin {100 * lead[15]:+.1f} %"
        out.claim("at 15 s PWJoin is apparently better, by 5 % or more", lead[15] >= 0.05, number)
    headings = [f"{name} {what}" for what in ("s", "results/s") for name in HEEDS]
    out.table("seconds in units", ("window", "results", *headings, "PWJoin is faster"), rows)
    panels = {"results a second of units, on Spark": rates}
    out.draw(panels, [str(each) for each in measured], "window", "results/s")
    out.note(
        f"The fastest of {ROUNDS} rounds each.  At 100 rows/s a unit's time is the Spark job's, not the join's: "
        "`penstock bench punctuations` measures throughput with 10,000 rows/s."
    )
    return out
