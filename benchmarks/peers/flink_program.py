"""Flink's side of a run, in the interpreter of its own environment: nothing of Penstock can be imported here.

    python flink_program.py each|widest|answer|answer-each|cascade|multi|serve JOB DATA

Prints what `benchmarks.peers.peer` says a run prints.  Flink counts for us: its REST interface is asked for the
metrics while the job runs.  A run is over when the sources have read every row and no counter moves any more, and its
time is that of the last move.  The sources watch their directory for more files, so that the job does not end, and take
its metrics along, before they were read.

What serves looks for new files every 50 ms and has a checkpoint every 100 ms, at which its file sink lets its results
be seen; it goes on until its standard input is closed.
"""

from __future__ import annotations

import json
import os
import re
import socket
import sys
import time
import urllib.request
from importlib.metadata import version
from typing import Any, NoReturn

SAMPLE_SECONDS, STILL = 0.5, 4  # so many samples without a change make an end
COLUMNS = "k BIGINT, av DOUBLE, bv DOUBLE, ats BIGINT, bts BIGINT"
ANSWERS = "g BIGINT, e TIMESTAMP(3), n BIGINT, s DOUBLE, m DOUBLE"
APART = "ABS(b.us - a.us)"
MICROS = 1_000_000
MANY = ("cascade", "multi")  # the ways to join more than two streams
CHECKING = {"table.optimizer.reuse-optimize-block-with-digest-enabled": "true"}
"""Makes the filters of all queries share their join; else Flink pushes each into a join of its own."""

SERVING = {
    "execution.checkpointing.interval": "100 ms",
    "execution.checkpointing.mode": "EXACTLY_ONCE",
    "execution.checkpointing.storage": "filesystem",
}


def main() -> None:
    """Run a job in one of the ways."""
    way, text, data = sys.argv[1:]
    job = json.loads(text)
    settings = {
        "parallelism.default": str(job["cores"]),
        "state.backend.type": "hashmap",
        "pipeline.object-reuse": "true",
        "metrics.fetcher.update-interval": "500",
        "rest.port": str(free_port()),
        "pipeline.jars": os.environ["FLINK_JARS"],
    }
    shown = {name: settings[name] for name in ("state.backend.type", "pipeline.object-reuse")}
    shown["heap"] = os.environ["JVM_ARGS"]
    tell("about", versions={"apache-flink": version("apache-flink")}, settings=shown)
    if way == "serve":
        serve(settings, data, job)
    tables = environment(settings | (CHECKING if job["checking"] else {}), data, job["streams"])
    statements, pairs_only = (
        tables.create_statement_set(),
        way in MANY or (way == "widest" and not job["checking"]),
    )
    written, columns = inserts(way, tables, job), columns_of(way, job)
    for number, insert in enumerate(written):
        tables.execute_sql(f"CREATE TABLE q{number} ({columns}) WITH ('connector' = 'blackhole')")
        statements.add_insert_sql(f"INSERT INTO q{number} {insert}")
    started = time.monotonic()
    client = statements.execute().get_job_client()
    watch = Watch(f"http://localhost:{settings['rest.port']}/jobs/{client.get_job_id()}")
    counts = watch.until_all(job["rows"], len(written), started)
    tell("done", seconds=watch.seconds, **({"pairs": counts[0]} if pairs_only else {"results": counts}))
    sys.stdin.read()
    os._exit(0)  # the job itself never ends


def serve(settings: dict[str, str], data: str, job: dict[str, Any]) -> NoReturn:
    """Join files as they appear, and write results with a sink that is exactly once."""
    home = os.path.dirname(data)  # noqa: PTH120 - no more is needed
    kept = {"execution.checkpointing.dir": f"file://{home}/state"}
    tables = environment(settings | SERVING | kept, data, job["streams"], "50 ms")
    sink = f"'connector' = 'filesystem', 'path' = 'file://{home}/out', 'format' = 'parquet'"
    tables.execute_sql(f"CREATE TABLE q0 ({COLUMNS}) WITH ({sink})")
    client = tables.execute_sql(f"INSERT INTO q0 {join(job['queries'][0], '')}").get_job_client()
    watch = Watch(f"http://localhost:{settings['rest.port']}/jobs/{client.get_job_id()}")
    watch.until_running()
    tell("mark", 0, 0)
    sys.stdin.read()
    watch.until_still()
    tell("done")
    os._exit(0)  # the job itself never ends


def environment(settings: dict[str, str], data: str, streams: list[str], look_every: str = "1 h") -> Any:
    """Open a table environment with all streams in it."""
    # Here, not above: the checks that read this file have no Flink.
    from pyflink.common import Configuration  # type: ignore[import-not-found]  # noqa: PLC0415
    from pyflink.table import EnvironmentSettings, TableEnvironment  # type: ignore[import-not-found]  # noqa: PLC0415

    configuration = Configuration()
    for name, value in settings.items():
        configuration.set_string(name, value)
    chosen = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(configuration).build()
    tables = TableEnvironment.create(chosen)
    for name in streams:
        tables.execute_sql(
            f"CREATE TABLE {name} (k BIGINT, v DOUBLE, us BIGINT, ts AS TO_TIMESTAMP_LTZ(us / 1000, 3), "
            f"WATERMARK FOR ts AS ts) WITH ('connector' = 'filesystem', 'path' = 'file://{data}/{name}', "
            f"'format' = 'parquet', 'source.monitor-interval' = '{look_every}')"
        )
    return tables


def columns_of(way: str, job: dict[str, Any]) -> str:
    """Declare what a sink takes."""
    if way.startswith("answer"):
        return ANSWERS
    if way in MANY:
        return (
            "k BIGINT, "
            + "".join(f"{each}v DOUBLE, {each}ts BIGINT, " for each in job["streams"])
            + "level INT"
        )
    return f"{COLUMNS}, level INT" if way == "widest" and not job["checking"] else COLUMNS


def inserts(way: str, tables: Any, job: dict[str, Any]) -> list[str]:
    """Write what each sink gets: every query as a join of its own, or one join with a level column, or answers.

    When checking, every query is a filter behind that join.
    """
    queries = job["queries"]
    if way in MANY:
        return [join_many(way, tables, job["streams"], queries)]
    if way == "answer-each":
        return [answer(tables, number, each) for number, each in enumerate(queries)]
    if way == "answer":
        return [answer(tables, 0, max(queries, key=lambda each: each["window"]))]
    if way == "each":
        return [f"{join(each, '')} AND {keeps(each, 'a.v')}" for each in queries]
    widest = {"window": max(each["window"] for each in queries)}
    bounds = sorted({round(each["window"] * MICROS) for each in queries})
    cases = " ".join(f"WHEN {APART} < {bound} THEN {level}" for level, bound in enumerate(bounds))
    pairs = join(widest, f", CASE {cases} END AS level")
    if not job["checking"]:
        return [pairs]
    tables.execute_sql(f"CREATE TEMPORARY VIEW pairs AS {pairs}")
    levels = [bounds.index(round(each["window"] * MICROS)) for each in queries]
    filters = [f"level <= {n} AND {keeps(each, 'av')}" for n, each in zip(levels, queries, strict=True)]
    return [f"SELECT k, av, bv, ats, bts FROM pairs WHERE {each}" for each in filters]


def join(query: dict[str, Any], more: str) -> str:
    """Write an interval join, exact to the microsecond."""
    span = f"INTERVAL '{query['window']:.3f}' SECOND(3)"
    return (
        f"SELECT a.k, a.v AS av, b.v AS bv, a.us AS ats, b.us AS bts{more} FROM a JOIN b ON a.k = b.k "
        f"AND b.ts BETWEEN a.ts - {span} AND a.ts + {span} AND {APART} < {round(query['window'] * MICROS)}"
    )


def join_many(way: str, tables: Any, streams: list[str], queries: list[dict[str, Any]]) -> str:
    """Write a join of many streams at the widest window, with the level of each result.

    A cascade of interval joins; or a regular join of all that Flink is asked to run as one operator, which it does for
    joins without intervals only: rows then stay in its state for good.
    """
    bounds = sorted({round(each["window"] * MICROS) for each in queries})
    span, widest = f"INTERVAL '{bounds[-1] / MICROS:.3f}' SECOND(3)", bounds[-1]
    times = ", ".join(f"{each}.us" for each in streams)
    levels = " ".join(
        f"WHEN GREATEST({times}) - LEAST({times}) < {bound} THEN {n}" for n, bound in enumerate(bounds)
    )
    for name in streams if way == "multi" else ():
        tables.execute_sql(f"CREATE TEMPORARY VIEW plain_{name} AS SELECT k, v, us FROM {name}")
    tables_of = {name: f"plain_{name} {name}" if way == "multi" else name for name in streams}
    first, text = streams[0], tables_of[streams[0]]
    for number, name in enumerate(streams[1:], 1):
        near = "".join(f" AND ABS({name}.us - {other}.us) < {widest}" for other in streams[:number])
        if way == "cascade":
            near += f" AND {name}.ts BETWEEN {first}.ts - {span} AND {first}.ts + {span}"
        text += f" JOIN {tables_of[name]} ON {first}.k = {name}.k{near}"
    hint = f"/*+ MULTI_JOIN({', '.join(streams)}) */ " if way == "multi" else ""
    values = ", ".join(f"{each}.v, {each}.us" for each in streams)
    return f"SELECT {hint}{first}.k, {values}, CASE {levels} END FROM {text}"


def answer(tables: Any, number: int, query: dict[str, Any]) -> str:
    """Write an aggregate over a join as Flink's users do: windows that hop each second, by the time of ``a``."""
    tables.execute_sql(f"CREATE TEMPORARY VIEW pairs{number} AS {join(query, ', a.ts AS happened')}")
    group = "k" if query["group"] == "k" else "k % 64"
    width = f"INTERVAL '{query['window']:.0f}' SECOND"
    return (
        f"SELECT {group}, window_end, COUNT(*), SUM(bv), MAX(av) FROM TABLE(HOP(TABLE pairs{number}, "
        f"DESCRIPTOR(happened), INTERVAL '1' SECOND, {width})) GROUP BY {group}, window_start, window_end"
    )


def keeps(query: dict[str, Any], column: str) -> str:
    """Write a query's predicate."""
    return "TRUE" if query["above"] is None else f"{column} > {query['above']}"


class Watch:
    """Looks at a running job through its REST interface."""

    def __init__(self, job: str) -> None:
        self._job = job
        self.seconds = 0.0

    def until_all(self, rows: int, sinks: int, started: float) -> list[int]:
        """Wait until all rows were read and no counter moves any more; give the results of each sink."""
        before: dict[str, float] = {}
        still = 0
        while still < STILL:
            now = self._counters()
            read = sum(each for name, each in now.items() if name.startswith("Source"))
            still = still + 1 if now == before and read >= rows else 0
            if now != before:
                self.seconds = time.monotonic() - started
                tell("mark", self.seconds, read)
            before = now
            time.sleep(SAMPLE_SECONDS)
        counts = [0] * sinks
        for name, value in before.items():
            if sink := re.match(r"q(\d+)\[.*Writer", name):
                counts[int(sink[1])] = int(value)
        return counts

    def until_running(self) -> None:
        """Wait until every part of the job runs."""
        while {each["status"] for each in self._get("")["vertices"]} != {"RUNNING"}:
            time.sleep(SAMPLE_SECONDS)

    def until_still(self) -> None:
        """Wait until the sources have read nothing for a while, which is some checkpoints long."""
        before, still = -1.0, 0
        while still < STILL:
            time.sleep(SAMPLE_SECONDS)
            read = sum(each for name, each in self._counters().items() if name.startswith("Source"))
            before, still = read, still + 1 if read == before else 0

    def _counters(self) -> dict[str, float]:
        """Give every vertex' counters, added up over its subtasks."""
        counters: dict[str, float] = {}
        for vertex in self._get("")["vertices"]:
            path = f"/vertices/{vertex['id']}/subtasks/metrics"
            names = [each["id"] for each in self._get(path) if each["id"].endswith(".numRecordsIn")]
            sums = self._get(f"{path}?get={','.join(names)}&agg=sum") if names else []
            counters |= {each["id"]: each["sum"] for each in sums}
        return counters

    def _get(self, path: str) -> Any:
        with urllib.request.urlopen(self._job + path) as answer:  # noqa: S310 - our own address
            return json.load(answer)


def tell(kind: str, *values: float, **what: Any) -> None:
    """Print one line of the run."""
    print(json.dumps({kind: what or values}), flush=True)


def free_port() -> int:
    """Find a port that nobody listens on."""
    with socket.socket() as any_port:
        any_port.bind(("localhost", 0))
        return int(any_port.getsockname()[1])


if __name__ == "__main__":
    main()
