"""The streams on which schedulers are measured on Spark: bursts that meet the other stream's trickle, and no more."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import pairwise

import pyarrow as pa
import pytest

from benchmarks.oracle import true_counts
from benchmarks.workloads import STREAMS
from papers.on_spark import (
    QUERIES,
    ROUNDS,
    SECONDS_OF_WORK,
    WARM_UP,
    Bursts,
    Feed,
    Response,
    shown,
    sized,
)
from papers.paper2_sweep import POLICIES

FEW = Bursts(rate=5, keys=3, rows=40, count=4, gap=3.0)


def test_the_same_seed_gives_the_same_arrivals():
    assert FEW.arrivals(3) == FEW.arrivals(3)
    assert FEW.arrivals(3) != FEW.arrivals(4)


def test_bursts_come_one_at_a_time_as_far_apart_as_asked_on_average():
    (_, before), (start, foretaste), *bursts = FEW.arrivals(3)
    assert start == 0.0
    assert {table.num_rows for table in before.values()} == {FEW.rate * (FEW.history - 1)}
    assert sum(table.num_rows for table in foretaste.values()) == 2 * FEW.rate + FEW.rows // FEW.foretaste
    moments = [moment for moment, _ in bursts]
    assert moments == sorted(moments)
    assert moments[-1] == pytest.approx(FEW.count * FEW.gap)
    for _, rows in bursts:
        small, large = sorted(table.num_rows for table in rows.values())
        assert large == small + FEW.rows


def times_by_key(arrivals, name):
    """Sort a stream's event times by key, microseconds."""
    whole = pa.concat_tables([rows[name] for _, rows in arrivals])
    times: dict[int, list[int]] = {}
    for key, at in zip(whole["k"].to_pylist(), whole["ts"].cast(pa.int64()).to_pylist(), strict=True):
        times.setdefault(key, []).append(at)
    return {key: sorted(each) for key, each in times.items()}


def test_no_row_is_late_and_none_that_was_there_before_finds_a_partner_there():
    arrivals = FEW.arrivals(3)
    for name in STREAMS:
        ends = [
            (min(rows[name]["ts"].to_pylist()), max(rows[name]["ts"].to_pylist())) for _, rows in arrivals
        ]
        assert all(last <= first for (_, last), (first, _) in pairwise(ends))
    odd, even = ({key % 2 for key in times_by_key(arrivals[:1], name)} for name in STREAMS)
    assert (odd, even) == ({1}, {0})


def test_a_row_of_a_burst_finds_partners_in_proportion_to_the_window(tmp_path):
    """Counted row by row, they are what DuckDB finds in the files, and what rate, keys and windows promise."""
    arrivals = FEW.arrivals(3)
    a, b = (times_by_key(arrivals, name) for name in STREAMS)
    counts = [
        sum(
            bisect_left(b.get(key, []), at + query.micros) - bisect_right(b.get(key, []), at - query.micros)
            for key, times in a.items()
            for at in times
        )
        for query in QUERIES
    ]
    Feed(tmp_path, (rows for _, rows in arrivals))
    assert true_counts(tmp_path, QUERIES).results == tuple(counts)
    promised = (FEW.count + 0.1) * FEW.rows * FEW.rate * FEW.history / FEW.keys
    assert counts[-1] == pytest.approx(promised, rel=0.1)
    assert counts == sorted(counts)
    assert counts[0] < counts[-1] / 100


def test_files_appear_one_arrival_at_a_time(tmp_path):
    feed = Feed(tmp_path / "data", (rows for _, rows in FEW.arrivals(3)))
    home = tmp_path / "run"
    for name in STREAMS:
        (home / name).mkdir(parents=True)
    feed.put(0, home)
    assert feed.count == 2 + FEW.count
    assert sorted(path.name for path in home.rglob("*.parquet")) == ["000.parquet", "000.parquet"]


def outcome(averages, results=(5, 7)):
    """Give what is claimed of runs that took so long."""
    found = {
        name: [Response(results, times, times, 1, 1.0)] * ROUNDS
        for name, times in zip(POLICIES, averages, strict=True)
    }
    return [claim.held for claim in shown((5, 7), found, FEW).claims]


def test_claims_are_about_exactness_the_smallest_window_and_the_average():
    assert outcome([(6.0, 6.5), (1.0, 8.0), (3.0, 6.0)]) == [True, True, True, True]
    assert outcome([(6.0, 6.5), (1.0, 8.0), (3.0, 6.0)], (5, 8)) == [False, True, True, True]
    assert outcome([(2.0, 6.5), (1.0, 8.0), (1.0, 7.0)]) == [True, False, False, False]


def test_bursts_are_as_large_as_the_machine_is_fast():
    rows = WARM_UP.count * WARM_UP.rows
    quick, slow = (
        sized(FEW, Response((), (), (), 3, seconds=rows * by_row))
        for by_row in (SECONDS_OF_WORK / 30_000, 1.0)
    )
    assert (quick.rows, slow.rows) == (30_000, 1_000)
    assert quick.count == FEW.count
