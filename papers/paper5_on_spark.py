"""Figure 9 of paper 5 measured on the engine: Query 1 under each strategy, through a congestion and a burst.

The streams are those of the figure in virtual time.  They arrive eight seconds at a time, as files, and after each step
the engine says what it keeps, what waits on disk, what its units mapped, and how many results it has delivered::

    files   S1: .... | .... | .... | ...        50 rows a second each, up to 500 rows out of order
            S2: .... |  .   |  .   | ...        congested from 10 s to 40 s: 26 s behind from then on
            S3: .... | .... | .... | ...        eight times the rows from 80 s to 90 s

Nothing is declared: the engine measures what streams are like, as in the figure.  A fifth run has a budget, three
quarters of what plain has mapped at the most, and chooses by itself.  At the end every run is started once more and
told that there is no more input, so that what waits is joined.

In:  a seed.  Out: an `Outcome`; DuckDB joins the files as one batch and says how many results there are.
"""

from __future__ import annotations

import os
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.oracle import joined_rows
from benchmarks.printing import percent, percents
from papers import paper5_sweep as p5
from papers.figure import CHECK, Outcome
from papers.paper5_streams import BURST, CONGESTION
from papers.paper5_sweep import NAMES, WANTED
from penstock.plan.buffers import DBF, HYBRID, MSF, PLAIN, STRATEGIES
from penstock.sql.units import show_size

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from papers.paper5_streams import Ints, Stream
    from penstock.engine.api import Engine

SENSORS = ("S1", "S2", "S3")
STEP = 8.0
"""Seconds of the streams that arrive at a time."""

BUDGET = "budget"


class Look(NamedTuple):
    """How things stood after a step."""

    kept: int
    waiting: int
    mapped: int
    results: int
    accuracy: float
    strategy: str


class Measured(NamedTuple):
    """What one run gave: a look after each step, results at the end, the most it mapped, and its budget."""

    looks: tuple[Look, ...]
    results: int
    most: int
    budget: int | None = None
    dropped: int = 0


def arrivals(streams: Sequence[Stream], seconds: float) -> list[list[Ints]]:
    """Cut streams into the values that arrive at a time."""
    times = np.arange(0.0, seconds + STEP, STEP)
    cuts = [each.arrived(times).tolist() for each in streams]
    return [
        [stream.value[cut[step] : cut[step + 1]] for stream, cut in zip(streams, cuts, strict=True)]
        for step in range(len(times) - 1)
    ]


def exist_after(steps: Sequence[Sequence[Ints]]) -> list[int]:
    """Count the results that exist after each step, value by value."""
    values = max(int(each.max(initial=0)) for step in steps for each in step) + 1
    counts, exist = np.zeros((len(SENSORS), values), np.int64), []
    for step in steps:
        for number, each in enumerate(step):
            counts[number] += np.bincount(each, minlength=values)
        exist.append(int(counts.prod(axis=0).sum()))
    return exist


def script(home: Path, setting: str) -> str:
    """Write Query 1 over three streams of which nothing is known but that they roughly follow k."""
    declared = "".join(
        f"CREATE STREAM {name} (k BIGINT, v DOUBLE) WITH (format = 'parquet', path = '{home / name}', ordered = 'k');"
        for name in SENSORS
    )
    joined = " AND ".join(f"{one}.k = {other}.k" for one, other in pairwise(SENSORS))
    query = f"SELECT S1.k, S1.v AS v1, S2.v AS v2, S3.v AS v3 FROM {', '.join(SENSORS)} WHERE {joined}"
    return f"{declared} CREATE QUERY q WITH (sink = 'noop') AS {query}; {setting}"


def run(data: Path, steps: int, home: Path, setting: str) -> Measured:
    """Run the engine while files arrive, look after each step, and then let it end."""
    from penstock.engine.api import Engine  # noqa: PLC0415 - in virtual time nobody needs Spark
    from penstock.engine.spark.session import QUICK_START  # noqa: PLC0415 - see above

    looks = []
    for name in SENSORS:
        (home / name).mkdir(parents=True)
    with Engine(home / "state", settings=QUICK_START) as engine:
        engine.script(script(home, setting))
        engine.start()
        for step in range(steps):
            for name in SENSORS:
                os.link(data / name / f"{step:03d}.parquet", home / name / f"{step:03d}.parquet")
            engine.process_available()
            looks.append(_look(engine))
        first = engine.status().queries[0].memory
    with Engine(home / "state", settings=QUICK_START) as engine:
        engine.script(script(home, setting))
        engine.start(once=True)
        engine.wait()
        query = engine.status().queries[0]
    if first is None or query.memory is None:
        raise AssertionError("the query has no window")
    most = max(first.most_mapped, query.memory.most_mapped)
    return Measured(tuple(looks), query.results, most, query.memory.budget, query.memory.dropped)


def _look(engine: Engine) -> Look:
    (query,) = engine.status().queries
    memory, kept = query.memory, sum(each.rows for each in query.buffers)
    if memory is None or query.accuracy is None:
        raise AssertionError("the query has no window")
    return Look(kept, memory.waiting_rows, memory.mapped, query.results, query.accuracy, memory.strategy)


def fig9_on_spark(seed: int, tell: Callable[[str], None]) -> Outcome:
    """Measure every strategy, and a budget, on the same files."""
    sweep = p5.Sweep(seed, samples=1)
    steps = arrivals(p5.streams_of_query_1(sweep, 0), sweep.seconds)
    with tempfile.TemporaryDirectory(prefix="penstock-p5-fig9-") as folder:
        data, runs = Path(folder, "data"), {}
        write(data, steps)
        truth = joined_rows(data, SENSORS, "k")
        settings = {each: f"SET buffers = '{each}';" for each in STRATEGIES}
        for name, setting in settings.items():
            tell(f"{NAMES[name]}: {len(steps)} steps")
            runs[name] = run(data, len(steps), Path(folder, name), setting)
        memory = 3 * runs[PLAIN].most // 4
        tell(f"a budget of {show_size(memory)}: {len(steps)} steps")
        runs[BUDGET] = run(data, len(steps), Path(folder, BUDGET), f"SET memory = '{memory}';")
    return shown(runs, exist_after(steps), truth)


def write(folder: Path, steps: Sequence[Sequence[Ints]]) -> None:
    """Write all that will arrive."""
    for name in SENSORS:
        (folder / name).mkdir(parents=True)
    for number, step in enumerate(steps):
        for name, values in zip(SENSORS, step, strict=True):
            table = pa.table({"k": values, "v": np.sin(values / 50)})
            pq.write_table(table, folder / name / f"{number:03d}.parquet")


def shown(runs: Mapping[str, Measured], exist: Sequence[int], truth: int) -> Outcome:
    """Lay out what was measured, and check what the paper says of the strategies."""
    out = Outcome()
    times = [STEP * (step + 1) for step in range(len(exist))]
    congested = [n for n, each in enumerate(times) if CONGESTION.end <= each < BURST.start]
    found = {name: each.results / truth for name, each in runs.items()}
    out.claim("what exists, counted by value, is what DuckDB finds", exist[-1] == truth, f"{truth:,}", CHECK)
    out.claim("no run finds more than there is", max(found.values()) <= 1, percents(found.values(), 2), CHECK)
    least = min(found[each] for each in STRATEGIES)
    out.claim("every strategy gives at least 99.2 %", least >= WANTED, f"{percents([least], 2)} at the least")
    kept = {name: np.array([each.kept for each in one.looks]) for name, one in runs.items()}
    after = {name: float(each[congested].mean()) for name, each in kept.items()}
    number = ", ".join(f"{NAMES[each]} {after[each]:,.0f}" for each in STRATEGIES)
    text = "after the congestion DBF keeps less than half of the rows that plain keeps"
    out.claim(text, after[DBF] < after[PLAIN] / 2, number)
    out.claim("and Hybrid no more than DBF", after[HYBRID] <= after[DBF], number)
    out.claim("MSF's reduction is smaller than DBF's", after[MSF] > after[DBF], number)
    given = {name: np.array([each.results for each in one.looks]) for name, one in runs.items()}
    out.every(
        "DBF has delivered as much as plain after every step, to within what either has missed",
        (
            abs(int(a) - int(b)) <= truth - runs[DBF].results + truth - runs[PLAIN].results
            for a, b in zip(given[DBF], given[PLAIN], strict=True)
        ),
    )
    late = {name: float((1 - each / np.maximum(1, exist)).mean()) for name, each in given.items()}
    number = ", ".join(f"{NAMES[each]} {percent(late[each])}" for each in STRATEGIES)
    text = "MSF and Hybrid deliver later: more of what exists is not there yet, on average over the steps"
    out.claim(text, min(late[MSF], late[HYBRID]) > max(late[PLAIN], late[DBF]), number)
    _budget(out, runs, found)
    out.table("", _HEADINGS, (_row(name, one, after[name], found[name]) for name, one in runs.items()))
    share = {name: (100 * each / np.maximum(1, exist)).tolist() for name, each in given.items()}
    panels = {
        "rows kept, on Spark": {NAMES[each]: kept[each].tolist() for each in STRATEGIES},
        "rows that wait on disk": {
            NAMES[each]: [float(look.waiting) for look in runs[each].looks] for each in STRATEGIES
        },
        "% of results there": {NAMES[each]: share[each] for each in STRATEGIES},
    }
    for title, series in panels.items():
        out.series(
            title, "streams' time (s)", [f"{each:.0f}" for each in times], series, lambda y: f"{y:,.1f}"
        )
    out.draw(panels, times, "streams' time (s)", "rows, or %")
    chosen = [each.strategy for each in runs[BUDGET].looks]
    out.note(
        f"Looked at after every {STEP:.0f} s of the streams; under the budget, after each step: {', '.join(chosen)}.",
        f"Congestion {CONGESTION.start:.0f} to {CONGESTION.end:.0f} s, burst {BURST.start:.0f} to {BURST.end:.0f} s.",
        f"What is kept after the congestion is averaged from {CONGESTION.end:.0f} to {BURST.start:.0f} s.",
        "Rows that wait count by whole batches, so under MSF and Hybrid also those of a batch that is joined in part.",
    )
    return out


_HEADINGS = ("strategy", "kept after the congestion", "most mapped", "results", "accuracy")


def _row(name: str, one: Measured, kept: float, found: float) -> tuple[str, ...]:
    title = NAMES.get(name) or f"{show_size(one.budget or 0)}, chosen"
    return title, f"{kept:,.0f}", show_size(one.most), f"{one.results:,}", f"{100 * found:.2f} %"


def _budget(out: Outcome, runs: Mapping[str, Measured], found: Mapping[str, float]) -> None:
    """Check the run that had less memory than plain takes."""
    one = runs[BUDGET]
    number = f"{show_size(one.most)} of {show_size(one.budget or 0)}, {one.dropped:,} rows let go"
    out.claim("three quarters of what plain maps suffice", one.most <= (one.budget or 0), number)
    out.claim(
        "and costs no more than 1 % of the results",
        found[BUDGET] >= found[PLAIN] - 0.01,
        percents([found[BUDGET]], 2),
    )
