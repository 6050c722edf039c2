"""Figures measured on the engine: paper 1's Figure 17, rows held, and paper 2's Figure 6, response times.

The strategies, or the schedulers, take turns on the same files, forwards and backwards; the files arrive while the
engine runs, and what is shown is what `Engine.status` says.

For Figure 17 the paper's streams, as in virtual time, arrive fifteen seconds at a time.  After each step the rows in
the joins' states are counted; from the moment when the longest window has filled, their average is what the figure
shows.  Time is what the units took, and the fastest round of each strategy counts.

For Figure 6 there are two streams of a steady trickle, ten minutes of which are there when a run begins, and bursts on
one or the other.  The trickle of ``a`` has odd keys and that of ``b`` even ones; a burst has the keys of the other
stream's trickle.  So each result is of a row of a burst and a row of a trickle; of the trickles alone comes none::

    a, odd    . . . . . . . . . . . . . . . . . . . . . . . . . .
       even                                   ####                    a burst: meets the trickle of b, 600 s back
    b, even   . . . . . . . . . . . . . . . . . . . . . . . . . .
       odd                                               ####         a burst: meets the trickle of a
              |------- before the run -------|------ the run ------>

A burst appears when its time has come, at intervals of a Pareto distribution; the clock of the rows is that of the run.

In:  a seed.  Out: an `Outcome`; DuckDB joins the files of Figure 6 as one batch and says what every run must count.
"""

from __future__ import annotations

import os
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise, product
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.oracle import true_counts
from benchmarks.printing import percent
from benchmarks.workloads import NOOP, STREAMS, WindowQuery, as_script, stamps
from papers import paper1_sweep as p1
from papers.figure import Outcome
from papers.paper2_sweep import POLICIES, TABLE_1
from penstock.sql.query import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from papers.paper1_joins import TimedRows
    from penstock.engine.api import Engine

ROUNDS = 2


class Feed:
    """Files that arrive while an engine runs: written once, and linked into the directory of every run."""

    def __init__(self, folder: Path, arrivals: Iterable[Mapping[str, pa.Table]]) -> None:
        """Write all that will arrive."""
        self.folder, self.count = folder, 0
        for rows in arrivals:
            for name, table in rows.items():
                (folder / name).mkdir(parents=True, exist_ok=True)
                pq.write_table(table, folder / name / f"{self.count:03d}.parquet")
            self.count += 1

    def put(self, number: int, directory: Path) -> None:
        """Let the files of one arrival appear there."""
        for name in STREAMS:
            os.link(self.folder / name / f"{number:03d}.parquet", directory / name / f"{number:03d}.parquet")


@contextmanager
def engine_at(home: Path, script: str) -> Iterator[tuple[Engine, list[float]]]:
    """Start an engine on the files that will appear in a directory; the list gets the seconds of each unit."""
    from penstock.engine.api import Engine  # noqa: PLC0415 - in virtual time nobody needs Spark
    from penstock.engine.spark.session import QUICK_START  # noqa: PLC0415 - see above

    seconds: list[float] = []
    for name in STREAMS:
        (home / name).mkdir(parents=True)
    with Engine(home / "state", settings=QUICK_START) as engine:
        engine.script(script)
        engine.watch(lambda unit: seconds.append(unit.seconds))
        engine.start()
        yield engine, seconds


def turns(names: Iterable[str]) -> Iterator[tuple[int, str]]:
    """List who runs when: each once in every round, in one round forwards and in the next backwards."""
    order = list(names)
    for turn in range(ROUNDS):
        yield from ((turn, name) for name in order)
        order.reverse()


# --- paper 1, Figure 17 -------------------------------------------------------------------------------------

STRATEGIES = {p1.UP: "pull-up", p1.OURS: "mem-opt", p1.DOWN: "push-down"}
RATES = (20, 50, 80)
BATCH = 15  # seconds of the streams that arrive at a time


class HeldRows(NamedTuple):
    """What one run gave: rows held on average, seconds in units, and results of each query."""

    rows: float
    seconds: float
    results: tuple[int, ...]


def measure_rows(setting: p1.Setting, rate: int, seed: int, folder: Path) -> dict[str, HeldRows]:
    """Run every strategy in turn, and give the fastest round of each."""
    streams = next(p1.Sweep(seed).streams(rate, setting.join, σ=setting.select))
    pieces = zip(_pieces(streams.left), _pieces(streams.right), strict=True)
    feed = Feed(folder / "data", ({"a": a, "b": b} for a, b in pieces))
    runs: dict[str, list[HeldRows]] = {name: [] for name in STRATEGIES}
    for turn, name in turns(STRATEGIES):
        runs[name].append(_rows_held(feed, folder / f"{name}-{turn}", setting, STRATEGIES[name]))
    return {name: min(rounds, key=lambda each: each.seconds) for name, rounds in runs.items()}


def _rows_held(feed: Feed, home: Path, setting: p1.Setting, strategy: str) -> HeldRows:
    # Q1, and Q2 and Q3 with the selection on A.
    queries = [WindowQuery(each, 50 if n else None) for n, each in enumerate(p1.TABLE_3[setting.windows])]
    held: list[int] = []
    script = f"{as_script(home, queries, NOOP, files=None)}SET strategy = '{strategy}';"
    with engine_at(home, script) as (engine, seconds):
        for step in range(feed.count):
            feed.put(step, home)
            engine.process_available()
            held.append(sum(group.state_rows for group in engine.status().groups))
        results = tuple(each.results for each in engine.status().queries)
    return HeldRows(mean(held[max(p1.TABLE_3[setting.windows]) // BATCH :]), sum(seconds), results)


def _pieces(rows: TimedRows) -> list[pa.Table]:
    """Cut one stream into what arrives at a time; v is 100 where the selection holds, else 0."""
    value = 100.0 * rows.holds.get("σ", np.zeros(rows.t.size))
    whole = pa.table({"k": rows.key, "v": value, "ts": stamps(rows.t)})
    ends = np.searchsorted(rows.t, np.arange(0, p1.SECONDS + 1, BATCH) * SECOND)
    return [whole.slice(start, end - start) for start, end in pairwise(ends.tolist())]


def fig17_on_spark(seed: int, tell: Callable[[str], None]) -> Outcome:
    """Measure every panel at every rate, and check what the paper says of memory."""
    out, runs = Outcome(), {}
    for setting, rate in product(p1.BY_WINDOWS, RATES):
        tell(f"{setting.windows}, {rate} rows/s: {ROUNDS} rounds of {len(STRATEGIES)} strategies")
        with tempfile.TemporaryDirectory(prefix="penstock-fig17-") as folder:
            runs[setting, rate] = measure_rows(setting, rate, seed, Path(folder))
    same = [len({each.results for each in run.values()}) == 1 for run in runs.values()]
    out.every("every strategy delivers the same results", same)
    least = [min(run, key=lambda name: run[name].rows) == p1.OURS for run in runs.values()]
    out.every("state-slice holds the least state in every setting", least)
    apart = max(
        abs(run[name].rows / cost.rows - 1)
        for (setting, rate), run in runs.items()
        for name, cost in p1.modelled(setting.readers, setting.statistics(rate)).items()
    )
    number = f"at most {apart:.0%} apart"
    out.claim("the engine holds what Eq. 1 to 3 say, within a tenth", apart < 0.1, number)
    down, ours = (sum(run[name].seconds for run in runs.values()) for name in (p1.DOWN, p1.OURS))
    text = "push-down takes longer than state-slice, over all settings"
    out.claim(text, down > ours, f"{down / ours:.1f} times")
    rows = []
    for (setting, rate), run in runs.items():
        held = [f"{each.rows:,.0f}" for each in run.values()]
        rows.append((setting.windows, rate, *held, *(f"{each.seconds:.2f}" for each in run.values())))
    headings = [f"{name} {what}" for what in ("rows", "s") for name in STRATEGIES.values()]
    out.table("", ("windows", "rate", *headings), rows)
    panels = {
        f"{each.windows}, Sσ = {each.select}, on Spark": {
            name: [runs[each, rate][name].rows for rate in RATES] for name in STRATEGIES
        }
        for each in p1.BY_WINDOWS
    }
    out.draw(panels, RATES, "rows/s", "rows held")
    out.note(
        "All slices advance in one unit, so a chain pays the overhead of one operator and push-down that of each join; "
        "at these rates a unit's time is the Spark job's, not the join's."
    )
    return out


# --- paper 2, Figure 6 --------------------------------------------------------------------------------------

WINDOWS = [str(each) for each in TABLE_1["Mostly-Small"]]
QUERIES = tuple(WindowQuery(each) for each in TABLE_1["Mostly-Small"])
TIMES_FASTER = 3.0  # by how much the smallest window should gain at least
BURST_SECONDS = 0.5  # seconds of event time that the rows of a burst span at most


@dataclass(frozen=True, slots=True)
class Bursts:
    """What the streams are like: a trickle's rows a second, its keys, and bursts of so many rows."""

    rate: int = 200
    keys: int = 24
    rows: int = 20_000
    count: int = 5
    gap: float = 6.0
    """Seconds from one burst to the next on average."""
    shape: float = 2.0
    """The exponent of the gaps' distribution; at 2 their variance is infinite."""
    history: int = TABLE_1["Mostly-Small"][-1]
    """Seconds of the trickles that are there before the run."""
    foretaste: int = 10
    """A burst of so many times fewer rows comes before the run: the engine knows then what a row finds."""

    def moments(self, random: np.random.Generator) -> list[float]:
        """Draw when bursts come: so many Pareto-distributed gaps, stretched to be `gap` seconds on average."""
        gaps = random.pareto(self.shape, self.count) + 1
        return [float(each) for each in np.cumsum(gaps) / gaps.sum() * self.count * self.gap]

    def arrivals(self, seed: int) -> list[tuple[float, dict[str, pa.Table]]]:
        """List what arrives when: before the run the trickles and a foretaste, then a burst at a time."""
        random = np.random.default_rng(seed)
        moments = (-1.0, 0.0, *self.moments(random))
        sizes = (0, self.rows // self.foretaste, *(self.rows,) * self.count)
        arrivals = []
        for (since, until), size in zip(pairwise((-float(self.history), *moments)), sizes, strict=True):
            bursting = int(random.integers(2))
            rows = {
                name: self._rows(random, (since, until), 1 - side, size if side == bursting else 0)
                for side, name in enumerate(STREAMS)
            }
            arrivals.append((until, rows))
        return arrivals

    def _rows(
        self, random: np.random.Generator, times: tuple[float, float], parity: int, burst: int
    ) -> pa.Table:
        """Draw what a stream brings in a span of time: its trickle and, at the end, so many rows of a burst."""
        since, until = times
        trickle = round(self.rate * (until - since))
        begins = max(since, until - BURST_SECONDS)
        at = np.concatenate((random.uniform(since, until, trickle), random.uniform(begins, until, burst)))
        key = 2 * random.integers(0, self.keys, at.size) + np.repeat((parity, 1 - parity), (trickle, burst))
        order = np.argsort(at)
        ts = stamps(np.rint(at[order] * SECOND).astype(np.int64))
        return pa.table({"k": key[order], "v": random.random(at.size), "ts": ts})


class Response(NamedTuple):
    """What a run gave: results, average and longest response in seconds by window, its units and what they took."""

    results: tuple[int, ...]
    average: tuple[float, ...]
    longest: tuple[float, ...]
    units: int
    seconds: float


WARM_UP = Bursts(rows=20_000, count=2, gap=2.0)
"""Streams of a run that does not count: it starts Spark's workers, loads the kernels, and says how fast they are."""

SECONDS_OF_WORK = 4.0
"""What joining a burst should take here: dozens of Spark jobs, so that bursts are in each other's way, and no more than
the engine keeps up with."""


def sized(bursts: Bursts, warm_up: Response) -> Bursts:
    """Give bursts that take `SECONDS_OF_WORK` to join, by what a row took in the warm-up."""
    by_row = warm_up.seconds / (WARM_UP.count * WARM_UP.rows)
    return replace(bursts, rows=max(1, round(SECONDS_OF_WORK / by_row / 1000)) * 1000)


def run(feed: Feed, moments: Sequence[float], scheduler: str, home: Path) -> Response:
    """Run the engine under one scheduler while the bursts come, and ask it how long each query's results took."""
    script = f"{as_script(home, QUERIES, NOOP, files=None)}SET scheduler = '{scheduler}';"
    with engine_at(home, script) as (engine, seconds):
        for before_the_run in (0, 1):
            feed.put(before_the_run, home)
            engine.process_available()
        seconds.clear()
        started = time.monotonic()
        for number, moment in enumerate(moments[2:], start=2):
            time.sleep(max(0.0, started + moment - time.monotonic()))
            feed.put(number, home)
        engine.process_available()
        queries = engine.status().queries
    times = [(each.average, each.longest) if each else (0.0, 0.0) for each in (q.response for q in queries)]
    average, longest = zip(*times, strict=True)
    return Response(tuple(each.results for each in queries), average, longest, len(seconds), sum(seconds))


def fig6_on_spark(seed: int, tell: Callable[[str], None]) -> Outcome:
    """Measure every scheduler in turn, and hold the results against DuckDB's."""
    runs: dict[str, list[Response]] = {name: [] for name in POLICIES}
    with tempfile.TemporaryDirectory(prefix="penstock-p2-fig6-") as folder:
        tell("starting Spark")
        moments, rows = zip(*WARM_UP.arrivals(seed), strict=True)
        warm_up = run(Feed(Path(folder, "warm"), rows), moments, "lwo", Path(folder, "warm-up"))
        bursts = sized(Bursts(), warm_up)
        moments, rows = zip(*bursts.arrivals(seed), strict=True)
        feed = Feed(Path(folder, "data"), rows)
        tell("DuckDB counts what every run must give")
        truth = true_counts(feed.folder, QUERIES).results
        for turn, name in turns(POLICIES):
            tell(f"round {turn + 1} of {ROUNDS}, {name}: {bursts.count} bursts in {moments[-1]:.0f} s")
            runs[name].append(run(feed, moments, POLICIES[name], Path(folder, f"{name}-{turn}")))
    return shown(truth, runs, bursts)


def shown(truth: Sequence[int], measured: Mapping[str, Sequence[Response]], bursts: Bursts) -> Outcome:
    """Lay out what was measured, and check what the engine's schedulers are there for."""
    out = Outcome()
    averages, longest, work = {}, {}, {}
    for name, runs in measured.items():
        averages[name] = np.mean([each.average for each in runs], axis=0).tolist()
        longest[name] = np.max([each.longest for each in runs], axis=0).tolist()
        work[name] = mean(each.units for each in runs), mean(each.seconds for each in runs)
    exact = [each.results == tuple(truth) for runs in measured.values() for each in runs]
    out.every("every run gives every query what DuckDB finds in one batch", exact)
    flat = 1 - min(averages["LWO"]) / max(averages["LWO"])
    number = f"the fastest {percent(flat)} below the slowest"
    out.claim("LWO is nearly flat over the windows", flat < 0.25, number)
    rivals = [name for name in averages if name != "LWO"]
    faster = {name: averages["LWO"][0] / averages[name][0] for name in rivals}
    number = ", ".join(f"{name} {times:.1f} times" for name, times in faster.items())
    text = f"the smallest window is at least {TIMES_FASTER:.0f} times as fast as under LWO"
    out.claim(text, max(faster.values()) >= TIMES_FASTER, number)
    whole = {name: mean(times) / mean(averages["LWO"]) for name, times in averages.items()}
    number = ", ".join(f"{name} {percent(1 - whole[name])} below" for name in rivals)
    out.claim("the average over the queries is no worse than LWO's", max(whole.values()) <= 1, number)
    windows, times = WINDOWS[: len(truth)], zip(*averages.values(), *longest.values(), strict=True)
    lines = zip(windows, truth, times, strict=True)
    rows = [(window, f"{count:,}", *(f"{each:.2f}" for each in line)) for window, count, line in lines]
    rows.append(("average", "", *(f"{mean(each):.2f}" for each in averages.values())))
    headings = ("window (s)", "results", *averages, *(f"{name} longest" for name in longest))
    out.table("response time (s)", headings, rows)
    rows = [(name, f"{units:.0f}", f"{seconds:.1f}") for name, (units, seconds) in work.items()]
    out.table("the engine's work, a run", ("scheduler", "units", "seconds in units"), rows)
    panels = {"average response, on Spark": averages, "longest response, on Spark": longest}
    out.draw(panels, windows, "window (s)", "response time (s)", columns=2, log="y")
    out.note(
        f"{bursts.count} bursts of {bursts.rows:,} rows, {bursts.gap:g} s apart: {SECONDS_OF_WORK:g} s of work each.",
        f"Times are those of `penstock status`, the mean of {ROUNDS} rounds; the longest is that of any round.",
    )
    return out
