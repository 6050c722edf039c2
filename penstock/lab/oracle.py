"""The judge: DuckDB joins the whole input as one batch and counts what each query should give.

One pass over the pairs of the widest window: every query is a count with a filter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import duckdb

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from penstock.lab.workloads import WindowQuery


class Truth(NamedTuple):
    """What a run must give: input rows, results of each query, and pairs within the widest window."""

    rows: int
    results: tuple[int, ...]
    pairs: int


def true_counts(data: Path, queries: Sequence[WindowQuery]) -> Truth:
    """Count by DuckDB what the queries should give on these files."""
    filters = [f"abs(d) < {each.micros} AND {each.condition('v')}" for each in queries]
    counts = ", ".join(f"count(*) FILTER (WHERE {each})" for each in filters)
    pairs = pairs_of(data, max(each.micros for each in queries))
    connection = duckdb.connect()
    counted = connection.execute(f"SELECT count(*), {counts} FROM ({pairs})").fetchone() or ()
    rows = connection.execute(f"SELECT count(*) FROM read_parquet('{data}/[ab]/*.parquet')").fetchall()
    return Truth(rows[0][0], tuple(counted[1:]), counted[0])


def pairs_of(data: Path, micros: int) -> str:
    """Write the join of both streams within a window: every column the queries give, and the difference in time."""
    a, b = (
        f"(SELECT k, v, ts, epoch_us(ts) AS t FROM read_parquet('{data / name}/*.parquet'))" for name in "ab"
    )
    return (
        f"SELECT a.k, a.v, b.v AS bv, a.ts AS ats, b.ts AS bts, b.t - a.t AS d FROM {a} a JOIN {b} b "
        f"ON a.k = b.k AND b.t > a.t - {micros} AND b.t < a.t + {micros}"
    )
