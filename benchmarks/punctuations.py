"""``penstock bench punctuations``: what promises cost where they are of no use, and what they spare where they are.

Penstock against itself on `w1` with one window of 30 s, alternating:

| run          | files                                               | streams                                     |
|--------------|-----------------------------------------------------|---------------------------------------------|
| `plain`      | rows only                                           | declared without punctuations               |
| `none`       | the same                                            | declared with them; none come               |
| `filtered`   | a punctuation to 30 rows, of a key that no row has  | without; queries have ``kind = 'row'``      |
| `irrelevant` | the same                                            | with them; they never match a row           |
| `ignored`    | keys end, each with a punctuation in either stream  | without; queries have ``kind = 'row'``      |
| `kept`       | the same                                            | with them                                   |

Punctuations are rows of the files, to be read and told from data by whoever reads them.  So `irrelevant` is held
against `filtered`: the same files, and one condition evaluated of each row; what differs is only that promises are
written down and looked up.  Against `none` it has to read a thirtieth more rows besides: that is shown, and has no
target.  The files of the last two are of the workload `ending`, 100 rows to a key: paper 3's punct-asc-100-40.

A rate is of rows that are data, in every run.  Rows of state are those that `penstock status` says are held, averaged
over the units after the warm-up.

In:  arguments.  Out: two tables, with the target; and a line of JSON for each run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Annotated, ClassVar, NamedTuple

import typer
from rich.console import Console

from benchmarks.contest import (
    KEPT,
    STOPPED,
    Contest,
    Outcome,
    Series,
    middle,
    paired,
    ratios,
    run_and_keep,
)
from benchmarks.options import HOME, LIMIT, ROWS, Home, Limit, Rounds, RowCount, made
from benchmarks.options import workload as workload_of
from benchmarks.oracle import Truth, true_counts
from benchmarks.peers.peer import Job, Launch, Peer, contestant
from benchmarks.printing import table
from benchmarks.punctuated import (
    IS_ROW,
    NONE,
    at_their_ends,
    bounds_with,
    every_so_often,
    punctuated,
    punctuated_script,
)
from benchmarks.workloads import NOOP, QUERY_SETS, as_script, write_files

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from benchmarks.punctuated import Punctuations
    from benchmarks.workloads import Columns, WindowQuery, Workload

EVERY = 30  # rows to an irrelevant punctuation, as in paper 3's Figure 10
ROWS_OF_A_KEY = 100  # where keys end
MOST_TIMES_SLOWER = 1.03
"""Heeding irrelevant punctuations may take at most so many times the time of leaving them out by a condition."""


class Way(NamedTuple):
    """A run: which files it reads, and whether it heeds punctuations; None: its streams know of no such rows."""

    files: str
    heeds: bool | None
    title: str

    def script(self, data: Path, queries: Sequence[WindowQuery]) -> str:
        """Write queries over the files."""
        if self.heeds is None:
            return as_script(data / self.files, queries, NOOP)
        return punctuated_script(data / self.files, queries, NOOP, heeds=self.heeds)

    def peer(self, name: str) -> Peer:
        """Say how it is started."""

        def launch(job: Job) -> Launch:
            return contestant(name, job.to_json(), module="promising")

        return Peer(name, self.title, "one shared plan; results counted by the noop sink", command=launch)


WAYS = {
    "plain": Way("rows", heeds=None, title="no punctuations, none declared"),
    "none": Way("rows", heeds=True, title="no punctuations, but declared"),
    "filtered": Way("irrelevant", heeds=False, title="irrelevant ones, filtered out"),
    "irrelevant": Way("irrelevant", heeds=True, title="irrelevant ones, heeded"),
    "ignored": Way("ends", heeds=False, title="keys that end, filtered out"),
    "kept": Way("ends", heeds=True, title="keys that end, heeded"),
}


class Compared(NamedTuple):
    """Two runs, and how many times the time of `base` the other may take, if that is said."""

    run: str
    base: str
    most: float | None = None


COMPARED = (
    Compared("none", "plain"),
    Compared("irrelevant", "filtered", MOST_TIMES_SLOWER),
    Compared("irrelevant", "none"),
    Compared("kept", "ignored"),
)
GONE = ("purged", "discarded", "dropped")
HEADINGS = ("run", "steady rows/s", "CPU s", "state rows, average", "at the end", *GONE, "counts")
RATIOS = ("run", "against", "times the time", "wanted", "times the CPU", "times the state")


def punctuations(
    *,
    engines: Annotated[str, typer.Option(help=f"runs by commas, of {', '.join(WAYS)}; or all")] = "all",
    rounds: Rounds = 3,
    limit_seconds: Limit = LIMIT,
    rows: RowCount = ROWS,
    directory: Home = HOME,
) -> int:
    """Measure what punctuations cost where they are of no use, and what they spare where they are."""
    console, chosen = Console(), tuple(WAYS) if engines == "all" else tuple(engines.split(","))
    sets = {"punctuations": QUERY_SETS["N1"]}
    contest = Promising(workload_of("w1", rows), chosen, sets, rounds, made(directory), limit_seconds)
    (measured,) = run_and_keep([contest], console.log)
    console.print(table(f"{measured.workload}, a window of 30 s", HEADINGS, rows_of(measured)))
    console.print(table("", RATIOS, compared(measured)))
    note = f"Rates are of rows that are data; every count is checked against DuckDB. Every run: {directory / KEPT}"
    console.print(note, style="dim", highlight=False)
    return int(any(not each.has_figures for runs in measured.runs.values() for each in runs))


@dataclass(frozen=True, slots=True)
class Promising(Contest):
    """A contest on files of three kinds: rows only, irrelevant punctuations, and keys that end."""

    known: ClassVar[Mapping[str, Peer]] = {name: way.peer(name) for name, way in WAYS.items()}

    workload: Workload

    def write(self) -> Path:
        """Write the files of each kind, below one directory."""
        directory = (self.home / f"{self.workload.label}-punctuated").resolve()
        if (directory / "done").exists():
            return directory
        for number, (name, rows) in enumerate(self.workload.streams().items()):
            self._write(directory / "rows" / name, rows, NONE)
            self._write(directory / "irrelevant" / name, rows, every_so_often(rows, EVERY, number))
        ending = replace(self.workload, name="ending", keys=max(1, self.workload.rows // ROWS_OF_A_KEY))
        for name, rows in ending.streams().items():
            self._write(directory / "ends" / name, rows, at_their_ends(rows))
        (directory / "done").touch()
        return directory

    def _write(self, folder: Path, rows: Columns, promises: Punctuations) -> None:
        bounds = bounds_with(promises, self.workload.bounds(rows))
        write_files(folder, punctuated(rows, promises), bounds)

    def truths(self, data: Path, queries: tuple[WindowQuery, ...]) -> Mapping[str, Truth]:
        """Count the files of each kind once, without their punctuations."""
        kinds = {WAYS[name].files for name in self.peers}
        counted = {kind: true_counts(data / kind, queries, IS_ROW) for kind in kinds}
        return {name: counted[WAYS[name].files] for name in self.peers}


def rows_of(series: Series) -> list[tuple[str, ...]]:
    """Write one line for each run: the middle of its rounds, and their spread."""
    return [_row(WAYS[name].title, runs) for name, runs in series.runs.items()]


def _row(title: str, runs: Sequence[Outcome]) -> tuple[str, ...]:
    shown = [each for each in runs if each.has_figures]
    if not shown:
        return (title, *["-"] * (len(HEADINGS) - 2), runs[0].verdict)
    ended = [each for each in shown if each.verdict != STOPPED]
    counted = [[_held(each), each.state_rows or 0, *(each.counts[name] for name in GONE)] for each in ended]
    return (
        title,
        middle([each.steady_rate for each in shown], 0),
        middle([each.cpu_seconds for each in shown], 0),
        *([middle(each, 0) for each in zip(*counted, strict=True)] or ["-"] * 5),
        f"exact, {ended[0].results:,}" if ended else "stopped: the rate it had reached",
    )


def compared(series: Series) -> list[tuple[str, ...]]:
    """Write one line for each two runs that are held against each other, round by round."""
    return [_compared(each, series) for each in COMPARED if {each.run, each.base} <= series.runs.keys()]


def _compared(pair: Compared, series: Series) -> tuple[str, ...]:
    run, base = series.runs[pair.run], series.runs[pair.base]
    times, both = ratios(base, run), paired(run, base)
    if not both:
        return (pair.run, pair.base, *["-"] * (len(RATIOS) - 2))
    wanted = ""
    if pair.most is not None:
        met = median(times) <= pair.most
        wanted = f"at most {pair.most:g}: {'[green]met' if met else '[red]not met'}[/]"
    work = [one.cpu_seconds / other.cpu_seconds for one, other in both if other.cpu_seconds]
    held = [_held(one) / _held(other) for one, other in both if _held(other)]
    return (
        pair.run,
        pair.base,
        middle(times),
        wanted,
        *(middle(each) if each else "-" for each in (work, held)),
    )


def _held(run: Outcome) -> float:
    return run.counts.get("state_rows", 0)
