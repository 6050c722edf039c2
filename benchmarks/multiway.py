"""``penstock bench multiway``: joins of three and five streams, beside other engines, and the order of asking.

*Against other engines.*  Streams of w1's kind, joined on one key, with one window of 30 s or with twelve.  Keys are
drawn from so many that there are two results to an input row.  Spark and Flink join two by two; with twelve windows
they run one query at the widest, with the level of each result as a column, where Penstock runs all twelve.
Flink's ``flink-multi`` is its multi-join operator: it takes regular joins only, so that the window is a plain condition
and no row ever leaves its state.

*The order of asking.*  Two graphs on which a new row meets many rows in one stream and next to none in another
(`benchmarks.many_streams`).  Penstock runs each as it chooses, and made to ask in each order that there is; the best
and the worst of those are what the choice is held against.  These run in plain loops on one core, and a rate is of rows
to a second of CPU time spent on joining.

Every run's counts are DuckDB's, or it has no figure; those of Flink at the widest window.

In:  arguments.  Out: a table for each number of streams and for each graph, with the targets; and a line of JSON for
each run.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer
from rich.console import Console

from benchmarks.contest import KEPT, STOPPED, Contest, Outcome, Series, middle, ratios, run_and_keep
from benchmarks.many_streams import SKEWED, Graph, ManyStreams, common_key, skewed_graph, true_results
from benchmarks.options import HOME, LIMIT, ROWS, Home, Limit, Rounds, RowCount, made
from benchmarks.peers.flink import flink
from benchmarks.peers.peer import Job, Launch, Peer, contestant
from benchmarks.printing import table
from benchmarks.workloads import QUERY_SETS, query_sets
from penstock.errors import InputError
from penstock.sql.query import LEAST_INPUTS, MOST_INPUTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from benchmarks.oracle import Truth
    from benchmarks.workloads import WindowQuery

CHOSEN = "chosen"


def _peer(name: str, title: str, settings: str, *ways: str) -> Peer:
    def launch(job: Job) -> Launch:
        return contestant(*(ways or (name,)), job.to_json(), module="joining_many")

    return Peer(name, title, settings, command=launch)


OWN = "one shared plan; results counted by the noop sink"
LOOPS = "plain loops on one core; CPU time of joining"
_SPARK = "a join behind the other at the widest window, level column"
_FLINK = "at the widest window, level column; hashmap state, no checkpoints, object reuse"
_ALL = (
    _peer("penstock", "Penstock", OWN),
    _peer("spark", "Spark, a cascade", f"{_SPARK}; default state store"),
    _peer("spark-best", "Spark at its best, a cascade", f"{_SPARK}; RocksDB store, newest state format"),
    Peer("flink", "Flink SQL, a cascade", f"interval joins {_FLINK}", "pairs", command=flink("cascade")),
    Peer("flink-multi", "Flink SQL, MULTI_JOIN", f"a regular join {_FLINK}", "pairs", command=flink("multi")),
)
ENGINES = {peer.name: peer for peer in _ALL}
USUAL = "penstock,spark,flink,flink-multi"
TARGETS = {"spark": 8.0, "spark-best": 8.0, "flink": 4.0, "flink-multi": 4.0}
"""How many times the throughput of each Penstock is to have at the least."""

LEAST_OF_WORST, MOST_OF_BEST = 5.0, 1.2
"""The chosen order's throughput is at least so many times the worst's, and the best's at most so many times its own."""

SHARE_OF_SKEWED = 4  # the skewed graphs have one row for so many of the others': a bad order takes long

RATES = ("steady rows/s", "whole run rows/s", "Penstock is faster", "wanted")
HEADINGS = ("engine", *RATES, "CPU s", "peak GiB", "state rows", "counts")
ORDERS = ("order", "steady rows / CPU s", "the chosen one is faster", "wanted", "CPU s in all", "counts")


def run_of(graph: Graph, order: str) -> str:
    """Name a run of a graph."""
    return f"{graph.name} {order}"


def multiway(
    *,
    streams: Annotated[
        str, typer.Option(help=f"how many are joined, by commas, {LEAST_INPUTS} to {MOST_INPUTS}; or none")
    ] = "3,5",
    queries: Annotated[str, typer.Option(help=f"by commas, of {', '.join(QUERY_SETS)}")] = "N1,N12",
    graphs: Annotated[
        str, typer.Option(help=f"skewed ones, by commas, of {', '.join(SKEWED)}; or none")
    ] = "chain,star",
    engines: Annotated[str, typer.Option(help=f"by commas, of {', '.join(ENGINES)}; or all")] = USUAL,
    rounds: Rounds = 3,
    limit_seconds: Limit = LIMIT,
    rows: RowCount = ROWS,
    directory: Home = HOME,
) -> int:
    """Join three and five streams, against Spark and Flink; and on skewed graphs, against other orders of asking."""
    console, home = Console(), made(directory)
    peers = tuple(ENGINES) if engines == "all" else tuple(engines.split(","))
    sets = query_sets(queries.split(","))
    joined = [
        Multiway(ManyStreams(common_key(each), rows), peers, named(each, sets), rounds, home, limit_seconds)
        for each in counts_in(streams)
    ]
    skewed = [
        asking_orders(skewed_graph(each), rows // SHARE_OF_SKEWED, rounds, home, limit_seconds)
        for each in listed(graphs)
    ]
    measured = run_and_keep([*joined, *skewed], console.log)
    inputs = {each.workload.label: each.workload for each in (*joined, *skewed)}
    for each in measured:
        if (graph := inputs[each.workload].graph).name in SKEWED:
            console.print(table(each.workload, ORDERS, orders_of(each, graph)))
        else:
            title = f"{each.workload}, {each.queries}: {inputs[each.workload].rows_in_window:,} rows in 30 s"
            console.print(table(title, HEADINGS, rows_of(each)))
    console.print(f"every run: {home / KEPT}", style="dim", highlight=False)
    ours = [
        run for each in measured for name, runs in each.runs.items() if name not in TARGETS for run in runs
    ]
    return int(any(not run.has_figures for run in ours))


def listed(text: str) -> list[str]:
    """Split what an option lists; `none` is nothing."""
    return [] if text == "none" else text.split(",")


def counts_in(text: str) -> list[int]:
    """Read how many streams are to be joined."""
    for each in listed(text):
        if not each.isdecimal() or not LEAST_INPUTS <= int(each) <= MOST_INPUTS:
            raise InputError(
                f"--streams {each}: a number from {LEAST_INPUTS} to {MOST_INPUTS} is needed, or none"
            )
    return [int(each) for each in listed(text)]


def named(streams: int, sets: Mapping[str, tuple[WindowQuery, ...]]) -> dict[str, tuple[WindowQuery, ...]]:
    """Name query sets so that those of two inputs are told apart."""
    return {f"{streams} streams, {name}": queries for name, queries in sets.items()}


def asking_orders(graph: Graph, rows: int, rounds: int, home: Path, limit: float) -> Multiway:
    """Set up the runs of a skewed graph: as the engine chooses, and in every order."""
    runs = tuple(run_of(graph, each) for each in (CHOSEN, *graph.orders))
    return Orders(ManyStreams(graph, rows), runs, {graph.name: QUERY_SETS["N1"]}, rounds, home, limit)


@dataclass(frozen=True, slots=True)
class Multiway(Contest):
    """A contest of joins of more than two streams."""

    known: ClassVar[Mapping[str, Peer]] = ENGINES

    workload: ManyStreams

    def job(self, data: Path, name: str, rows: int) -> Job:
        """Say what to do, and of which streams."""
        return Job(data, self.queries[name], rows, self.home.resolve(), streams=self.workload.graph.streams)

    def truths(self, data: Path, queries: tuple[WindowQuery, ...]) -> Mapping[str, Truth]:
        """Count what every engine must give."""
        return dict.fromkeys(self.peers, true_results(self.workload.graph, data, queries))


@dataclass(frozen=True, slots=True)
class Orders(Multiway):
    """A contest of Penstock with itself, asking in one order and another."""

    known: ClassVar[Mapping[str, Peer]] = {
        run_of(graph, order): _peer(run_of(graph, order), f"{graph.name}, {order}", LOOPS, graph.name, order)
        for graph in SKEWED.values()
        for order in (CHOSEN, *graph.orders)
    }


def rows_of(series: Series) -> list[tuple[str, ...]]:
    """Write one line for each engine: the middle of its rounds, their spread, and what is wanted."""
    ours = series.runs.get("penstock", ())
    return [_row(engine, runs, ours) for engine, runs in series.runs.items()]


def _row(engine: str, runs: Sequence[Outcome], ours: Sequence[Outcome]) -> tuple[str, ...]:
    title, shown = ENGINES[engine].title, [each for each in runs if each.has_figures]
    if not shown:
        return (title, *["-"] * (len(HEADINGS) - 2), runs[0].verdict)
    target, faster = TARGETS.get(engine), ratios(ours, runs)
    held = shown[0].counts.get("most_state_rows", shown[0].state_rows)
    return (
        title,
        middle([each.steady_rate for each in shown], 0),
        middle([each.total_rate for each in shown], 0),
        middle(faster) if faster else "-",
        _met(target, median(faster) >= target) if target and faster else "",
        middle([each.cpu_seconds for each in shown], 0),
        middle([each.peak_bytes / 2**30 for each in shown], 1),
        "not told" if held is None else f"{held:,.0f}",
        _counted(shown),
    )


def _met(target: float, met: bool) -> str:
    return f"{target:g}: {'[green]met' if met else '[red]not met'}[/]"


def _counted(shown: Iterable[Outcome]) -> str:
    if any(each.verdict == STOPPED for each in shown):
        return "stopped: the rate it had reached"
    return f"exact, {next(iter(shown)).results:,}"


def orders_of(series: Series, graph: Graph) -> list[tuple[str, ...]]:
    """Write one line for each order, and whether the chosen one is near the best and far from the worst."""
    chosen = series.runs[run_of(graph, CHOSEN)]
    faster = {
        each: median(times)
        for each in graph.orders
        if (times := ratios(chosen, series.runs.get(run_of(graph, each), ())))
    }
    wanted = {}
    if faster:
        best, worst = min(faster, key=faster.__getitem__), max(faster, key=faster.__getitem__)
        wanted[best] = f"the best, faster at most {_met(MOST_OF_BEST, faster[best] * MOST_OF_BEST >= 1)}"
        wanted[worst] = f"the worst, slower at least {_met(LEAST_OF_WORST, faster[worst] >= LEAST_OF_WORST)}"
    runs = {order: series.runs.get(run_of(graph, order), ()) for order in (CHOSEN, *graph.orders)}
    return [_order(each, some, chosen, wanted.get(each, "")) for each, some in runs.items() if some]


def _order(order: str, runs: Sequence[Outcome], chosen: Sequence[Outcome], wanted: str) -> tuple[str, ...]:
    shown, faster = [each for each in runs if each.has_figures], ratios(chosen, runs)
    if not shown:
        return (order, *["-"] * (len(ORDERS) - 2), runs[0].verdict)
    return (
        order,
        middle([each.steady_rate for each in shown], 0),
        middle(faster) if faster else "-",
        wanted,
        middle([each.cpu_seconds for each in shown], 0),
        _counted(shown),
    )
