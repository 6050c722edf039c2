"""``penstock bench aggregates``: a number per group and second in place of pairs, alternating with other engines.

`w1` with twelve windows of up to 30 s, ``COUNT(*), SUM(b.v), MAX(a.v)`` answered every second, grouped by the join's
key (50,000 of them) or by 64 groups: a column that files have, or ``a.k % 64``, as it is often written.

Windows are whole seconds, which Flink's ``HOP`` asks for.  After the rows comes one file of each stream with rows two
minutes later and without a partner, so that every engine's watermark passes the last window and all give all of their
answers.

What is compared is of one size, not the same to the pair.  At instant E Penstock counts pairs whose rows both lie in
(E - window, E].  Spark and Flink join within the window and then slide over the time of ``a``, as their users write
it: a pair counts where a's row lies in [E - window, E).  DuckDB counts the answers of either meaning, and a run
without exactly so many has no figure.  One query of Spark or Flink has one window: the widest is run, which is a
twelfth of the queries that Penstock answers; ``spark-each`` and ``flink-each`` run all twelve.  For 64 groups they
compute ``k % 64`` in both cases.

Answers come later than the rows that they are made of, so leaving out the first rows as warm-up would still count the
work of answering them.  What counts is all that comes after the first unit or batch, up to the last answer.

In:  arguments.  Out: a table for each grouping, with the targets; and a line of JSON for each run.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from math import ceil
from statistics import median
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import typer
from rich.console import Console

from benchmarks.contest import KEPT, STOPPED, Contest, Outcome, Series, middle, ratios, run_and_keep
from benchmarks.options import HOME, LIMIT, ROWS, Home, Limit, Rounds, RowCount, made
from benchmarks.options import workload as workload_of
from benchmarks.oracle import Truth, true_answers, true_counts
from benchmarks.peers.flink import flink
from benchmarks.peers.peer import Job, Launch, Peer, contestant
from benchmarks.printing import table
from benchmarks.workloads import QUERY_SETS, STREAMS, WindowQuery, stamps
from penstock.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from benchmarks.workloads import Workload

GROUPS = {"key": "k", "column": "g", "expression": "k % 64"}
"""What pairs can be grouped by, as columns of ``a``."""

QUERIES = {
    f"by {name}": tuple(WindowQuery(float(ceil(each.window)), group=group) for each in QUERY_SETS["N12"])
    for name, group in GROUPS.items()
}

NO_WARM_UP = 0.0
LATER = 120_000_000  # microseconds from the last rows to those which only move the watermarks


def _peer(name: str, title: str, settings: str) -> Peer:
    def launch(job: Job) -> Launch:
        return contestant(name, job.to_json(), module="answering")

    return Peer(name, title, settings, command=launch)


_SPARK = "join, then groupBy(group, window(ats, '30 seconds', '1 second')), append mode, default state store"
_FLINK = "interval join, then HOP, in one StatementSet; hashmap state, no checkpoints, object reuse"
_ALL = (
    _peer("penstock", "Penstock, twelve windows", "one shared plan; answers counted by the noop sink"),
    _peer(
        "pairs", "Penstock, the pairs of twelve windows", "one shared plan; pairs counted by the noop sink"
    ),
    _peer("pairs-written", "Penstock, those pairs written", "one shared plan; a parquet sink for each query"),
    _peer("spark", "Spark, the widest window", _SPARK),
    _peer("spark-each", "Spark, twelve queries", _SPARK),
    Peer("flink", "Flink SQL, the widest window", _FLINK, command=flink("answer")),
    Peer("flink-each", "Flink SQL, twelve windows", _FLINK, command=flink("answer-each")),
)
ENGINES = {peer.name: peer for peer in _ALL}
USUAL = "penstock,pairs,spark,flink"
TARGETS = {
    "pairs": 1.0,
    "pairs-written": 1.0,
    "spark": 10.0,
    "spark-each": 10.0,
    "flink": 5.0,
    "flink-each": 5.0,
}
"""How many times the throughput of each Penstock is to have at the least."""

HEADINGS = (
    "engine",
    "rows/s after the first unit",
    "whole run rows/s",
    "Penstock is faster",
    "wanted",
    "CPU s",
    "counts",
)


def aggregates(
    *,
    groups: Annotated[
        str, typer.Option(help=f"what answers are by, by commas, of {', '.join(GROUPS)}")
    ] = "key,column",
    engines: Annotated[str, typer.Option(help=f"by commas, of {', '.join(ENGINES)}; or all")] = USUAL,
    rounds: Rounds = 3,
    limit_seconds: Limit = LIMIT,
    rows: RowCount = ROWS,
    directory: Home = HOME,
) -> int:
    """Answer aggregates over twelve windows every second, against Spark, Flink and delivering the pairs themselves."""
    console, load = Console(), workload_of("w1", rows)
    for name in (wanted := groups.split(",")):
        if name not in GROUPS:
            raise InputError(f"there is no grouping {name}: {did_you_mean(name, GROUPS)}")
    chosen = tuple(ENGINES) if engines == "all" else tuple(engines.split(","))
    sets = {f"by {name}": QUERIES[f"by {name}"] for name in wanted}
    contest = Aggregates(load, chosen, sets, rounds, made(directory), limit_seconds, NO_WARM_UP)
    measured = run_and_keep([contest], console.log)
    for each in measured:
        console.print(table(f"{each.workload}, {each.queries}", HEADINGS, rows_of(each)))
    console.print(
        "Spark and Flink count a pair by the time of its row of a, Penstock by both rows: answers of one size, "
        f"each checked against DuckDB. Every run: {directory / KEPT}",
        style="dim",
        highlight=False,
    )
    return int(any(not run.has_figures for each in measured for run in each.runs.get("penstock", ())))


@dataclass(frozen=True, slots=True)
class Aggregates(Contest):
    """A contest of aggregates: rows have a group, the input an end, and engines meanings of their own."""

    known: ClassVar[Mapping[str, Peer]] = ENGINES

    workload: Workload

    def write(self) -> Path:
        """Write the workload with a column of 64 groups, and at the end rows which only move the watermarks."""
        plain = self.workload.write(self.home)
        directory = plain.with_name(f"{plain.name}-grouped-{os.cpu_count()}")
        if (directory / "done").exists():
            return directory
        for name, key in zip(STREAMS, (-1, -2), strict=True):
            (directory / name).mkdir(parents=True, exist_ok=True)
            tables = {path.name: pq.read_table(path) for path in sorted((plain / name).glob("*.parquet"))}
            count = os.cpu_count() or 1  # one for each of the parts into which Flink's rows are dealt
            ends = stamps(np.full(count, self.workload.span + LATER))
            tables["end.parquet"] = pa.table({"k": np.full(count, key), "v": np.zeros(count), "ts": ends})
            for number, (file, rows) in enumerate(tables.items()):
                groups = pa.array(rows["k"].to_numpy() % 64)
                pq.write_table(rows.append_column("g", groups), directory / name / file)
                os.utime(directory / name / file, (1_700_000_000 + number, 1_700_000_000 + number))
        (directory / "done").touch()
        return directory

    def truths(self, data: Path, queries: tuple[WindowQuery, ...]) -> Mapping[str, Truth]:
        """Count pairs, and the answers of either meaning; of one window where an engine has but one."""
        others = any(each.startswith(("spark", "flink")) for each in self.peers)
        sliding = true_answers(data, queries, "a") if others else Truth(0, (), 0)
        widest = sliding._replace(results=sliding.results[-1:])
        every = {
            "penstock": true_answers(data, queries, "both"),
            **dict.fromkeys(("pairs", "pairs-written"), true_counts(data, queries)),
            **dict.fromkeys(("spark", "flink"), widest),
            **dict.fromkeys(("spark-each", "flink-each"), sliding),
        }
        return {name: every[name] for name in self.peers}


def rows_of(series: Series) -> list[tuple[str, ...]]:
    """Write one line for each engine: the middle of its rounds, their spread, and what is wanted."""
    ours = series.runs.get("penstock", ())
    return [_row(engine, runs, ours) for engine, runs in series.runs.items()]


def _row(engine: str, runs: Sequence[Outcome], ours: Sequence[Outcome]) -> tuple[str, ...]:
    title, shown = ENGINES[engine].title, [each for each in runs if each.has_figures]
    if not shown:
        return (title, *["-"] * 5, runs[0].verdict)
    target, faster = TARGETS.get(engine), ratios(ours, runs)
    wanted = ""
    if target is not None and faster:
        wanted = f"{target:g}: {'[green]met' if median(faster) >= target else '[red]not met'}[/]"
    stopped = any(each.verdict == STOPPED for each in shown)
    return (
        title,
        middle([each.steady_rate for each in shown], 0),
        middle([each.total_rate for each in shown], 0),
        middle(faster) if faster else "-",
        wanted,
        middle([each.cpu_seconds for each in shown], 0),
        "stopped: the rate it had reached" if stopped else f"exact, {shown[0].results:,}",
    )
