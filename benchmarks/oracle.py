"""The judge: DuckDB joins the whole input as one batch and counts what each query should give.

One pass over the pairs of the widest window: every query is a count with a filter.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Literal, NamedTuple

import duckdb

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.workloads import WindowQuery


class Truth(NamedTuple):
    """What a run must give: input rows, results of each query, and pairs within the widest window."""

    rows: int
    results: tuple[int, ...]
    pairs: int


def true_counts(data: Path, queries: Sequence[WindowQuery], only: str = "TRUE") -> Truth:
    """Count by DuckDB what the queries should give on these files; `only` says which of their rows are data."""
    filters = [f"abs(d) < {each.micros} AND {each.condition('v')}" for each in queries]
    counts = ", ".join(f"count(*) FILTER (WHERE {each})" for each in filters)
    pairs = pairs_of(data, max(each.micros for each in queries), only)
    connection = duckdb.connect()
    counted = connection.execute(f"SELECT count(*), {counts} FROM ({pairs})").fetchone() or ()
    return Truth(_rows_in(connection, data, only), tuple(counted[1:]), counted[0])


def joined_rows(data: Path, streams: Sequence[str], column: str) -> int:
    """Count by DuckDB what a join of all streams on one column gives, without a window."""
    files = ", ".join(f"read_parquet('{data}/{name}/*.parquet') AS {name}" for name in streams)
    equal = " AND ".join(f"{one}.{column} = {other}.{column}" for one, other in pairwise(streams))
    (count,) = duckdb.connect().execute(f"SELECT count(*) FROM {files} WHERE {equal}").fetchone() or (0,)
    return int(count)


def true_answers(data: Path, queries: Sequence[WindowQuery], sides: Literal["both", "a"]) -> Truth:
    """Count by DuckDB the answers of aggregates at every whole second: one for each group with a pair in the window.

    Of `both` sides: both rows lie in (E - window, E], as Penstock has it.  Of ``a``: its row lies in [E - window, E),
    and the other is less than the window away.  So at E a window sees a group exactly if, of the group's pairs that
    were `born` by E, the one whose `old` second is the youngest is young enough.
    """
    born, old = {
        "both": ("(greatest(ta, tb) - 1) // 1000000 + 1", "(least(ta, tb) - 1) // 1000000"),
        "a": ("ta // 1000000 + 1", "ta // 1000000"),
    }[sides]
    group, wide = "k" if queries[0].group == "k" else "k % 64", max(each.window for each in queries)
    each_window = list(enumerate(queries))
    youngest = ", ".join(f"max({old}) FILTER (WHERE abs(d) < {q.micros}) AS o{n}" for n, q in each_window)
    so_far = ", ".join(f"max(o{n}) OVER upto AS o{n}" for n, _ in each_window)
    counts = ", ".join(f"count(*) FILTER (WHERE o{n} >= e - {q.window})" for n, q in each_window)
    pairs = (
        f"SELECT *, epoch_us(ats) AS ta, epoch_us(bts) AS tb FROM ({pairs_of(data, round(wide * 1_000_000))})"
    )
    answers = f"""
        WITH born AS (SELECT {group} AS g, {born} AS e, {youngest} FROM ({pairs}) GROUP BY ALL),
        span AS (SELECT unnest(range(min(e), max(e) + {round(wide)} + 1)) AS e FROM born),
        every AS (SELECT g, e FROM (SELECT DISTINCT g FROM born), span),
        seen AS (SELECT e, {so_far} FROM every LEFT JOIN born USING (g, e) WINDOW upto AS (PARTITION BY g ORDER BY e))
        SELECT {counts} FROM seen"""
    connection = duckdb.connect()
    counted = connection.execute(answers).fetchone() or ()
    return Truth(_rows_in(connection, data), tuple(counted), 0)


def _rows_in(connection: duckdb.DuckDBPyConnection, data: Path, only: str = "TRUE") -> int:
    counting = f"SELECT count(*) FROM read_parquet('{data}/[ab]/*.parquet') WHERE {only}"
    return int(connection.execute(counting).fetchall()[0][0])


def pairs_of(data: Path, micros: int, only: str = "TRUE") -> str:
    """Write the join of both streams within a window: every column the queries give, and the difference in time."""
    a, b = (
        f"(SELECT k, v, ts, epoch_us(ts) AS t FROM read_parquet('{data / name}/*.parquet') WHERE {only})"
        for name in "ab"
    )
    return (
        f"SELECT a.k, a.v, b.v AS bv, a.ts AS ats, b.ts AS bts, b.t - a.t AS d FROM {a} a JOIN {b} b "
        f"ON a.k = b.k AND b.t > a.t - {micros} AND b.t < a.t + {micros}"
    )
