"""Paper 2, Figure 6, on Spark: response time by window under each scheduler, measured on the engine.

Two streams of a steady trickle, ten minutes of which are there when a run begins, and bursts on one or the other.  The
trickle of ``a`` has odd keys and that of ``b`` even ones; a burst has the keys of the other stream's trickle.  So each
result is of a row of a burst and a row of a trickle; of the trickles alone comes none::

    a, odd    . . . . . . . . . . . . . . . . . . . . . . . . . .
       even                                   ####                    a burst: meets the trickle of b, 600 s back
    b, even   . . . . . . . . . . . . . . . . . . . . . . . . . .
       odd                                               ####         a burst: meets the trickle of a
              |------- before the run -------|------ the run ------>

A burst is put into place when its time has come, at intervals of a Pareto distribution, while the engine runs; the
clock of the rows is that of the run.  What is shown is what the engine measures itself (`Engine.status`): seconds from
arrival to release, by query.  The schedulers take turns on the same files, forwards and backwards.

In:  a seed.  Out: an `Outcome`; DuckDB joins the same files as one batch and says what every run must have counted.
"""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.table import Table

from penstock.engine.engine import Engine
from penstock.engine.session import QUICK_START
from penstock.lab.figures.figure import Claim, Outcome, Panel, percent
from penstock.lab.figures.p2_fig6 import spread
from penstock.lab.figures.p2_figure import draw, under, window_names
from penstock.lab.oracle import true_counts
from penstock.lab.paper2_settings import POLICIES, TABLE_1
from penstock.lab.workloads import EPOCH, NOOP, STREAMS, WindowQuery, as_script
from penstock.sql.query import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.engine.joiner import UnitDone

WINDOWS = "Mostly-Small"
QUERIES = tuple(WindowQuery(each) for each in TABLE_1[WINDOWS])
ROUNDS = 2

TIMES_FASTER = 3.0
"""By how much the smallest window should gain at least."""

BURST_SECONDS = 0.5
"""Seconds of event time that the rows of a burst span at most."""


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
    history: int = TABLE_1[WINDOWS][-1]
    """Seconds of the trickles that are there before the run."""
    foretaste: int = 10
    """A burst of so many times fewer rows comes before the run: the engine knows then what a row finds."""

    def moments(self, random: np.random.Generator) -> list[float]:
        """Draw when bursts come: so many Pareto-distributed gaps, stretched to be `gap` seconds on average.

        >>> Bursts(count=3, gap=2.0).moments(np.random.default_rng(1))[-1]
        6.0
        """
        gaps = random.pareto(self.shape, self.count) + 1
        upto = np.cumsum(gaps) / gaps.sum()
        return [float(each) for each in upto * self.count * self.gap]

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
        self, random: np.random.Generator, span: tuple[float, float], parity: int, burst: int
    ) -> pa.Table:
        """Draw what a stream brings in a span of time: its trickle and, at the end, so many rows of a burst."""
        since, until = span
        trickle = round(self.rate * (until - since))
        begins = max(since, until - BURST_SECONDS)
        at = np.concatenate((random.uniform(since, until, trickle), random.uniform(begins, until, burst)))
        key = 2 * random.integers(0, self.keys, at.size) + np.repeat((parity, 1 - parity), (trickle, burst))
        order = np.argsort(at)
        stamp = EPOCH + np.rint(at[order] * SECOND).astype(np.int64)
        return pa.table(
            {
                "k": key[order],
                "v": random.random(at.size),
                "ts": pa.array(stamp).cast(pa.timestamp("us", tz="UTC")),
            }
        )


@dataclass(frozen=True, slots=True)
class Response:
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


class Feed:
    """The files of both streams, written once and linked into the directory of every run."""

    def __init__(self, bursts: Bursts, seed: int, folder: Path) -> None:
        """Write all that will arrive."""
        self.folder = folder
        self.moments: list[float] = []
        for name in STREAMS:
            (folder / name).mkdir(parents=True)
        for number, (moment, rows) in enumerate(bursts.arrivals(seed)):
            self.moments.append(moment)
            for name, table in rows.items():
                pq.write_table(table, folder / name / f"{number:03d}.parquet")

    def put(self, number: int, place: Path) -> None:
        """Let the files of one arrival appear in the directories that an engine reads."""
        for name in STREAMS:
            os.link(self.folder / name / f"{number:03d}.parquet", place / name / f"{number:03d}.parquet")


def run(feed: Feed, scheduler: str, place: Path) -> Response:
    """Run the engine under one scheduler while the bursts come, and ask it how long each query's results took."""
    for name in STREAMS:
        (place / name).mkdir(parents=True)
    units: list[UnitDone] = []
    with Engine(place / "state", settings=QUICK_START) as engine:
        engine.script(f"{as_script(place, QUERIES, NOOP, files=None)}SET scheduler = '{scheduler}';")
        feed.put(0, place)
        engine.start()
        engine.process_available()
        feed.put(1, place)
        engine.process_available()
        engine.watch(units.append)
        started = time.monotonic()
        for number, moment in enumerate(feed.moments[2:], start=2):
            time.sleep(max(0.0, started + moment - time.monotonic()))
            feed.put(number, place)
        engine.process_available()
        queries = engine.status().queries
    responses = [each.response for each in queries]
    return Response(
        tuple(each.results for each in queries),
        tuple(each.average if each else 0.0 for each in responses),
        tuple(each.longest if each else 0.0 for each in responses),
        len(units),
        sum(each.seconds for each in units),
    )


def reproduce(seed: int, tell: Callable[[str], None]) -> Outcome:
    """Measure every scheduler in turn, and hold the results against DuckDB's."""
    found: dict[str, list[Response]] = {name: [] for name in POLICIES}
    with tempfile.TemporaryDirectory(prefix="penstock-p2-fig6-") as folder:
        tell("starting Spark")
        warm_up = run(Feed(WARM_UP, seed, Path(folder, "warm")), "lwo", Path(folder, "warm-up"))
        bursts = sized(Bursts(), warm_up)
        feed = Feed(bursts, seed, Path(folder, "data"))
        tell("DuckDB counts what every run must give")
        truth = true_counts(feed.folder, QUERIES).results
        for turn in range(ROUNDS):
            for name in list(POLICIES) if turn % 2 == 0 else list(reversed(POLICIES)):
                tell(
                    f"round {turn + 1} of {ROUNDS}, {name}: {bursts.count} bursts in {feed.moments[-1]:.0f} s"
                )
                found[name].append(run(feed, POLICIES[name], Path(folder, f"{name}-{turn}")))
    averages = {name: _by_window([each.average for each in runs]) for name, runs in found.items()}
    longest = {
        name: [max(times) for times in zip(*(each.longest for each in runs), strict=True)]
        for name, runs in found.items()
    }
    panels = [Panel("average response, on Spark", averages), Panel("longest response, on Spark", longest)]
    picture = draw(panels, window_names(WINDOWS), "window (s)")
    tables = (_times(truth, averages, longest), _work(found))
    return Outcome(tables, claims(truth, found, averages), _notes(bursts), picture)


def _by_window(runs: Sequence[Sequence[float]]) -> list[float]:
    """Give the mean of several runs, window by window."""
    return [mean(times) for times in zip(*runs, strict=True)]


def _times(
    truth: Sequence[int], averages: Mapping[str, Sequence[float]], longest: Mapping[str, Sequence[float]]
) -> Table:
    """Lay out response times by window, and the average over the queries."""
    table = Table(
        "window (s)",
        "results",
        *averages,
        *(f"{name} longest" for name in longest),
        title="response time (s)",
    )
    for place, (window, results) in enumerate(zip(window_names(WINDOWS), truth, strict=True)):
        times = (series[place] for series in (*averages.values(), *longest.values()))
        table.add_row(window, f"{results:,}", *(f"{each:.2f}" for each in times))
    table.add_row("average", "", *(f"{mean(each):.2f}" for each in averages.values()))
    return table


def _work(found: Mapping[str, Sequence[Response]]) -> Table:
    """Lay out what the units of a run were, on average."""
    table = Table("scheduler", "units", "seconds in units", title="the engine's work, a run")
    for name, runs in found.items():
        table.add_row(
            name, f"{mean(each.units for each in runs):.0f}", f"{mean(each.seconds for each in runs):.1f}"
        )
    return table


def claims(
    truth: Sequence[int], found: Mapping[str, Sequence[Response]], averages: Mapping[str, Sequence[float]]
) -> tuple[Claim, ...]:
    """Check what the engine's schedulers are there for."""
    runs = [each for mine in found.values() for each in mine]
    exact = sum(each.results == tuple(truth) for each in runs)
    rivals = [name for name in averages if name != "LWO"]
    faster = {name: averages["LWO"][0] / averages[name][0] for name in rivals}
    whole = {name: mean(times) for name, times in averages.items()}
    flat = spread(tuple(averages["LWO"]))
    return (
        Claim(
            "every run gives every query what DuckDB finds in one batch",
            exact == len(runs),
            f"{exact} of {len(runs)}",
        ),
        Claim(
            "LWO is nearly flat over the windows",
            flat < 0.25,
            f"the fastest {percent(flat)} below the slowest",
        ),
        Claim(
            f"the smallest window is at least {TIMES_FASTER:.0f} times as fast as under LWO",
            max(faster.values()) >= TIMES_FASTER,
            ", ".join(f"{name} {times:.1f} times" for name, times in faster.items()),
        ),
        Claim(
            "the average over the queries is no worse than LWO's",
            all(whole[name] <= whole["LWO"] for name in rivals),
            ", ".join(f"{name} {under(whole[name], whole['LWO'])} below" for name in rivals),
        ),
    )


def _notes(bursts: Bursts) -> tuple[str, ...]:
    """Say how it was run."""
    partners = bursts.rate * bursts.history // bursts.keys
    return (
        (
            f"{bursts.count} bursts, {bursts.gap:g} s apart on average, of {bursts.rows:,} rows: what takes about "
            f"{SECONDS_OF_WORK:g} s on this machine.  A row finds about {partners:,} partners in the largest window, "
            f"{bursts.rate / bursts.keys:.0f} in the smallest.  A burst of {bursts.rows // bursts.foretaste:,} rows "
            "before the run lets the engine know; its few results count too."
        ),
        (
            f"Averages are those of `penstock status`, the mean of {ROUNDS} rounds; the longest is that of any round.  "
            "Response begins when Spark hands a batch over; the time it takes to see a new file is not in it."
        ),
    )
