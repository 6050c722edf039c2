"""Where a batch's time goes: the CPU of every process and thread of a run, per 200,000 rows of input.

The kernel counts CPU time by thread, and threads have names; so a run needs no profiler to be divided into the Python
workers' part, the JVM's tasks, its compilers and the rest.  Only the second half of the input counts.
"""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from benchmarks.options import HOME, Home, RowCount, made
from benchmarks.peers.peer import run_to_end
from benchmarks.peers.run import PROC, family_of, stat_fields
from benchmarks.printing import table
from benchmarks.workloads import NOOP, QUERY_SETS, WindowQuery, Workload, as_script, query_sets
from penstock.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


WORKERS = "Python workers: sort, join, deliver"
DRIVER = "driver: describe jobs, commit"
REST = "JVM: plan, schedule, follow the source"
ENDED = "processes that have ended"
KINDS = {
    ("Executor task",): "JVM tasks: read the source, evaluate, hand to Python",
    ("C1 Compiler", "C2 Compiler"): "JVM: compile",
    ("GC Thread", "G1 "): "JVM: collect garbage",
}
"""What a JVM's threads do, by the beginnings of their names; what others do is `REST`."""

BATCH_ROWS = 200_000


def breakdown(
    *,
    queries: Annotated[str, typer.Option(help=f"a query set, one of {', '.join(QUERY_SETS)}")] = "N1",
    rows: RowCount = 4_000_000,
    directory: Home = HOME,
) -> None:
    """Divide the CPU time of a run of Penstock among Python workers, JVM tasks, compilers and the rest."""
    console = Console()
    (chosen,) = query_sets([queries]).values()
    data = Workload(rows=rows).write(made(directory))
    console.log(f"{queries} over {2 * rows:,} rows")
    spent, rate = measure_breakdown(data, chosen, 2 * rows)
    lines = [(kind, f"{each:,.0f}") for kind, each in (spent | {"all": sum(spent.values())}).items()]
    console.print(table("", ("what", f"CPU ms for {BATCH_ROWS:,} rows"), lines))
    console.print(f"{rate:,.0f} input rows/s in the second half", highlight=False)


def kind_of(thread: str) -> str:
    """Tell from a JVM thread's name, of which the kernel keeps fifteen letters, what it does."""
    return next((kind for starts, kind in KINDS.items() if thread.startswith(starts)), REST)


def used_by_kind(root: int) -> Counter[str]:
    """Add up the clock ticks that a process and its descendants have used so far, by kind of work."""
    used = Counter[str]()
    for process in family_of(root):
        with suppress(OSError):  # it has ended meanwhile
            used.update(_of_process(PROC / str(process), DRIVER if process == root else WORKERS))
    return used


def _of_process(path: Path, python: str) -> Counter[str]:
    """Divide a process' ticks; those of threads that have ended count as the rest."""
    own, ended = _ticks(path)
    if (path / "comm").read_text().strip() != "java":
        return Counter({ENDED: ended, python: own})
    used = Counter[str]()
    for thread in (path / "task").iterdir():
        used[kind_of((thread / "comm").read_text().strip())] += _ticks(thread)[0]
    return used + Counter({ENDED: ended, REST: max(0, own - used.total())})


def _ticks(path: Path) -> tuple[int, int]:
    """Read the ticks of a process or thread, and those of its children that have ended."""
    user, system, ended_user, ended_system = (int(each) for each in stat_fields(path)[11:15])
    return user + system, ended_user + ended_system


def measure_breakdown(
    data: Path, queries: Sequence[WindowQuery], rows: int
) -> tuple[dict[str, float], float]:
    """Run Penstock in this process, as `penstock run --once` does, and divide what the second half takes.

    Gives the CPU milliseconds of `BATCH_ROWS` by kind of work, the most first, and the input rows joined a second.
    """
    from penstock.engine.spark.session import QUICK_START  # noqa: PLC0415 - the other functions do without Spark

    marks: list[tuple[float, int, Counter[str]]] = []

    def mark(seconds: float, joined: int) -> None:
        marks.append((seconds, joined, used_by_kind(os.getpid())))

    run_to_end(as_script(data, queries, NOOP), mark, QUICK_START)
    began, ended = next(each for each in marks if 2 * each[1] >= rows), marks[-1]
    seconds, joined = ended[0] - began[0], ended[1] - began[1]
    if not joined:
        raise RunError(f"nothing was joined after the first half of {rows:,} rows: give more with --rows")
    ended[2].subtract(began[2])
    to_millis = 1000 / os.sysconf("SC_CLK_TCK") * BATCH_ROWS / joined
    return {kind: count * to_millis for kind, count in ended[2].most_common()}, joined / seconds
