"""The sharing strategies side by side on the real engine, on a script of one's own: ``penstock bench --strategies``.

    python -m penstock.lab.strategies SCRIPT STRATEGY

runs one script under one strategy in a fresh process, all input that is there, results counted and discarded, and
prints one line of JSON.  `contest` does that for every strategy in turn, several times over, and shows a time only if
all of them counted the same results for every query; on the lab's own workload they are held against DuckDB too.

In:  a script, or none for ``w1`` with the twelve queries of N12f.  Out: `Trial`s.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from matplotlib.figure import Figure as Picture
from rich.table import Table

from penstock.engine.engine import Engine
from penstock.engine.sinks import noop
from penstock.errors import RunError
from penstock.lab.contest import middle, steady_part
from penstock.lab.family import family_cpu_seconds
from penstock.sql.script import parse_script

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.engine.joiner import UnitDone

SHOWN = ("mem-opt", "cpu-opt", "pull-up", "push-down", "isolated")
"""The strategies that are compared, the one to beat first."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What one run under one strategy gave."""

    strategy: str
    rows: int
    results: dict[str, int]
    total_seconds: float
    steady_rate: float
    cpu_seconds: float
    state_rows: int
    pairs: int


def trial(script: Path, strategy: str) -> Trial:
    """Run a script once under a strategy, from an empty state, and throw the state away."""
    text = script.read_text(encoding="utf-8")
    state = tempfile.mkdtemp(prefix="penstock-bench-")
    marks: list[tuple[float, int]] = []

    def mark(unit: UnitDone) -> None:
        marks.append((time.monotonic(), unit.rows))

    try:
        with Engine(state=state) as engine:
            engine.script(f"{text}\n;SET strategy = '{strategy}';")
            for query in parse_script(text).queries:
                engine.drop(query.name)
                engine.query(query.name, query.text, sink=noop())
            engine.watch(mark)
            started = time.monotonic()
            engine.start(once=True)
            engine.wait()
            total = time.monotonic() - started
            status = engine.status()
    finally:
        shutil.rmtree(state)
    rows = sum(stream.rows for stream in status.streams)
    return Trial(
        strategy,
        rows,
        {each.name: each.results for each in status.queries},
        total,
        _steady_rate(marks, rows),
        family_cpu_seconds(os.getpid()),
        sum(group.state_rows for group in status.groups),
        sum(group.pairs for group in status.groups),
    )


def _steady_rate(marks: Sequence[tuple[float, int]], rows: int) -> float:
    """Give input rows per second after the warm-up, 0 if the run was over by then."""
    seconds, joined = steady_part(marks, rows)
    return joined / seconds if seconds else 0.0


def contest(
    script: Path,
    rounds: int,
    tell: Callable[[str], None],
    expected: Mapping[str, int] | None = None,
    strategies: Sequence[str] = SHOWN,
) -> dict[str, list[Trial]]:
    """Run every strategy in turn, several times over; refuse to compare what does not agree."""
    found: dict[str, list[Trial]] = {each: [] for each in strategies}
    agreed = dict(expected) if expected else None
    for turn in range(rounds):
        for strategy in strategies:
            tell(f"round {turn + 1} of {rounds}: {strategy}")
            one = _apart(script, strategy)
            agreed = agreed or one.results
            if one.results != agreed:
                raise RunError(f"{strategy} counted {one.results}, expected were {agreed}")
            found[strategy].append(one)
    return found


def _apart(script: Path, strategy: str) -> Trial:
    """Run one trial in a process of its own."""
    command = [sys.executable, "-m", "penstock.lab.strategies", str(script), strategy]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip().splitlines()
        raise RunError(f"strategy {strategy} failed: {said[-1] if said else 'without a word'}")
    return Trial(**json.loads(done.stdout.strip().splitlines()[-1]))


def strategies_table(found: Mapping[str, Sequence[Trial]]) -> Table:
    """Lay the strategies out for a terminal, each against the first."""
    table = Table("strategy", "steady rows/s", "against mem-opt", "CPU s", "state rows", "pairs joined")
    best = found[SHOWN[0]]
    for strategy, mine in found.items():
        shares = [one.steady_rate / other.steady_rate for one, other in zip(mine, best, strict=True)]
        table.add_row(
            strategy,
            middle([each.steady_rate for each in mine]),
            middle(shares),
            middle([each.cpu_seconds for each in mine]),
            f"{mine[0].state_rows:,}",
            f"{mine[0].pairs:,}",
        )
    return table


def picture(found: Mapping[str, Sequence[Trial]]) -> Picture:
    """Draw throughput and state of each strategy as bars, the middle of its rounds."""
    drawing = Picture(figsize=(9, 3.2), layout="constrained", dpi=90)
    panels: tuple[tuple[str, list[float]], ...] = (
        (
            "input rows a second, steady",
            [median(each.steady_rate for each in mine) for mine in found.values()],
        ),
        ("rows of state held at the end", [mine[0].state_rows for mine in found.values()]),
    )
    for place, (title, heights) in enumerate(panels):
        axes = drawing.add_subplot(1, 2, place + 1)
        bars = axes.bar(list(found), heights, color=["tab:blue", *["tab:gray"] * (len(found) - 1)])
        axes.bar_label(bars, [f"{each:,.0f}" for each in heights], fontsize=7)
        axes.set_title(title, fontsize=9)
        axes.tick_params(labelsize=8)
    return drawing


def main() -> None:
    """Run one trial and print what it gave."""
    script, strategy = sys.argv[1:]
    print(json.dumps(asdict(trial(Path(script), strategy))))


if __name__ == "__main__":
    main()
