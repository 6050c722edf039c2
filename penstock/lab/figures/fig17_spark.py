"""Paper 1, Figure 17, on Spark: rows held and time taken by each strategy, measured on the engine.

The paper's streams, of the same seed as in virtual time, arrive fifteen seconds at a time.  After each step the rows in
the joins' states are counted; from the moment when the longest window has filled, their average is what the figure
shows.  Time is what the units took; the strategies take turns on the same data, and the fastest round of each counts.
"""

from __future__ import annotations

import tempfile
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
from penstock.lab.figures.figure import Claim, Outcome, Panel, draw_lines
from penstock.lab.paper1_settings import SECONDS, TABLE_3, Setting, readers_of
from penstock.lab.simulate import poisson_streams
from penstock.plan.cost import chain_cost, pull_up_cost, push_down_cost
from penstock.plan.facts import Independent, Statistics
from penstock.plan.optimize import mem_opt
from penstock.sql.query import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.engine.joiner import UnitDone
    from penstock.lab.simulate import Rows

STRATEGIES = {
    "Selection-PullUp": "pull-up",
    "State-Slice-Chain": "mem-opt",
    "Selection-PushDown": "push-down",
}
RATES = (20, 50, 80)
PANELS = (Setting("Mostly-Small", 0.5, 0.1), Setting("Uniform", 0.5, 0.1), Setting("Mostly-Large", 0.5, 0.1))
BATCH = 15
"""Seconds of the streams that arrive at a time."""

ROUNDS = 2
EPOCH = 1_700_000_000 * SECOND


class Measured:
    """The rows held and the time taken under each strategy, in one setting at one rate."""

    def __init__(self, setting: Setting, rate: int, seed: int, folder: Path) -> None:
        """Write the streams, and run every strategy in turn."""
        streams = poisson_streams(
            rate, setting.join, seconds=SECONDS, left={"σ": setting.select}, seed=seed + rate
        )
        self._pool = {"A": _files(streams.left), "B": _files(streams.right)}
        self.rows: dict[str, float] = {}
        self.seconds: dict[str, float] = {}
        self.results: dict[str, tuple[int, ...]] = {}
        for turn in range(ROUNDS):
            for name, strategy in STRATEGIES.items():
                self._run(name, strategy, setting, folder / f"{strategy}-{turn}")

    def _run(self, name: str, strategy: str, setting: Setting, folder: Path) -> None:
        """Run one strategy once, counting rows after each step."""
        for stream in self._pool:
            (folder / stream).mkdir(parents=True)
        held: list[int] = []
        units: list[UnitDone] = []
        with Engine(folder / "state", settings=QUICK_START) as engine:
            engine.script(_script(folder, setting, strategy))
            engine.watch(units.append)
            engine.start()
            for step in range(int(SECONDS) // BATCH):
                for stream, files in self._pool.items():
                    pq.write_table(files[step], folder / f"{stream}.parquet")
                    (folder / f"{stream}.parquet").rename(folder / stream / f"{step:03d}.parquet")
                engine.process_available()
                held.append(sum(group.state_rows for group in engine.status().groups))
            self.results[name] = tuple(each.results for each in engine.status().queries)
        filled = held[max(TABLE_3[setting.windows]) // BATCH :]
        taken = sum(unit.seconds for unit in units)
        self.rows[name] = mean(filled)
        self.seconds[name] = min(taken, self.seconds.get(name, taken))


def _files(rows: Rows) -> list[pa.Table]:
    """Cut one stream into what arrives at a time."""
    sigma = rows.holds.get("σ", np.zeros(rows.t.size, np.bool_))
    whole = pa.table(
        {
            "k": rows.key,
            "sigma": sigma,
            "ts": pa.array(rows.t + EPOCH).cast(pa.timestamp("us", tz="UTC")),
        }
    )
    ends = np.searchsorted(rows.t, np.arange(0, SECONDS + 1, BATCH) * SECOND)
    return [whole.slice(start, end - start) for start, end in pairwise(ends.tolist())]


def _script(folder: Path, setting: Setting, strategy: str) -> str:
    """Write Q1, and Q2 and Q3 with the selection on A."""
    streams = "".join(
        f"CREATE STREAM {name} (k BIGINT, sigma BOOLEAN, ts TIMESTAMP) WITH (format = 'parquet', "
        f"path = '{folder / name}', time = 'ts');\n"
        for name in ("A", "B")
    )
    queries = "".join(
        f"CREATE QUERY Q{number + 1} WITH (sink = 'noop') AS SELECT A.k FROM A JOIN B ON A.k = B.k"
        f"{' WHERE A.sigma' if number else ''} WINDOW {window} seconds;\n"
        for number, window in enumerate(TABLE_3[setting.windows])
    )
    return f"{streams}{queries}SET strategy = '{strategy}';"


def reproduce(seed: int, tell: Callable[[str], None]) -> Outcome:
    """Measure every panel at every rate."""
    found: dict[tuple[Setting, int], Measured] = {}
    for setting in PANELS:
        for rate in RATES:
            tell(f"{setting.windows}, {rate} rows/s: {ROUNDS} rounds of {len(STRATEGIES)} strategies")
            with tempfile.TemporaryDirectory(prefix="penstock-fig17-") as folder:
                found[setting, rate] = Measured(setting, rate, seed, Path(folder))
    table = Table(
        "windows", "rate", *(f"{name} {what}" for what in ("rows", "s") for name in STRATEGIES.values())
    )
    for (setting, rate), each in found.items():
        rows = (f"{each.rows[name]:,.0f}" for name in STRATEGIES)
        times = (f"{each.seconds[name]:.2f}" for name in STRATEGIES)
        table.add_row(setting.windows, str(rate), *rows, *times)
    panels = [
        Panel(
            f"{setting.windows}, Sσ = {setting.select}, on Spark",
            {name: [found[setting, rate].rows[name] for rate in RATES] for name in STRATEGIES},
        )
        for setting in PANELS
    ]
    return Outcome((table,), _claims(found), (_NOTE,), draw_lines(panels, RATES, "rows/s", "rows held"))


_NOTE = (
    "All slices advance in one unit, so a chain pays the overhead of one operator and push-down that of each join; "
    "at these rates a unit's time is the Spark job's, not the join's."
)


def _predicted(setting: Setting, rate: int) -> dict[str, float]:
    """Give the rows that each strategy should hold, by the cost model."""
    readers = readers_of(TABLE_3[setting.windows], ("", "σ", "σ"))
    known = Statistics(rate, rate, setting.join, Independent({"σ": setting.select}))
    cuts = mem_opt(readers)
    return {
        "Selection-PullUp": pull_up_cost(readers, known).rows,
        "State-Slice-Chain": chain_cost(readers, known, {"l": cuts.left, "r": cuts.right}).rows,
        "Selection-PushDown": push_down_cost(readers, known).rows,
    }


def _claims(found: dict[tuple[Setting, int], Measured]) -> tuple[Claim, ...]:
    """Check what the paper says of memory, against the engine."""
    least = sum(min(each.rows, key=each.rows.__getitem__) == "State-Slice-Chain" for each in found.values())
    apart = [
        abs(each.rows[name] / predicted - 1)
        for (setting, rate), each in found.items()
        for name, predicted in _predicted(setting, rate).items()
    ]
    same = sum(len(set(each.results.values())) == 1 for each in found.values())
    down, ours = (
        sum(each.seconds[name] for each in found.values())
        for name in ("Selection-PushDown", "State-Slice-Chain")
    )
    return (
        Claim("every strategy delivers the same results", same == len(found), f"{same} of {len(found)}"),
        Claim(
            "state-slice holds the least state in every setting",
            least == len(found),
            f"{least} of {len(found)}",
        ),
        Claim(
            "the engine holds what Eq. 1 to 3 say, within a tenth",
            max(apart) < 0.1,
            f"at most {max(apart):.0%} apart",
        ),
        Claim(
            "push-down takes longer than state-slice, over all settings",
            down > ours,
            f"{down / ours:.1f} times",
        ),
    )
