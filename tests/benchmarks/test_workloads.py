"""The benchmark's streams and query sets, and DuckDB's counts on them."""

from __future__ import annotations

import numpy as np
import pyarrow.dataset as ds
import pytest

from benchmarks.oracle import true_counts
from benchmarks.workloads import EPOCH, NOOP, QUERY_SETS, WindowQuery, Workload, as_script, query_sets
from penstock.errors import InputError
from penstock.sql.script import parse_script


def small(name: str, **more: int) -> Workload:
    return Workload(**{"rows": 3_000, "rate": 100, "keys": 50, "rows_per_file": 1_000, "name": name, **more})


@pytest.mark.parametrize("name", ["w1", "zipf", "nexmark", "ending"])
def test_a_workload_is_the_same_each_time_it_is_made(name):
    one, other = small(name).streams(), small(name).streams()
    for stream in ("a", "b"):
        assert np.array_equal(one[stream].key, other[stream].key)
        assert np.array_equal(one[stream].value, other[stream].value)
        assert np.array_equal(one[stream].time, other[stream].time)
    assert not np.array_equal(one["a"].value, small(name, seed=8).streams()["a"].value)


@pytest.mark.parametrize("name", ["w1", "zipf", "nexmark", "ending"])
def test_files_hold_all_rows_in_order_of_time(name, tmp_path):
    load = small(name)
    data = load.write(tmp_path)
    total = 0
    for stream, rows in load.streams().items():
        files = sorted((data / stream).glob("*.parquet"))
        assert len(files) == 3
        table = ds.dataset(files).to_table()
        assert np.array_equal(table["ts"].cast("int64").to_numpy(), rows.time + EPOCH)
        assert np.array_equal(table["k"].to_numpy(), rows.key)
        changed = [each.stat().st_mtime for each in files]
        assert changed == sorted(set(changed)), "a source that goes by time of change reads them in order"
        total += table.num_rows
    assert total == 2 * load.rows


def test_data_are_written_once(tmp_path):
    data = small("w1").write(tmp_path)
    (data / "a" / "00000.parquet").unlink()
    assert small("w1").write(tmp_path) == data
    assert not (data / "a" / "00000.parquet").exists()
    assert small("w1", keys=60).write(tmp_path) != data


def test_zipf_has_keys_that_are_far_more_likely_than_others():
    share = np.bincount(small("zipf", rows=100_000, keys=5_000).streams()["a"].key) / 100_000
    assert share.max() * 5_000 > 20
    assert np.bincount(small("w1", rows=100_000, keys=5_000).streams()["a"].key).max() / 100_000 * 5_000 < 5


def test_nexmark_bids_on_auctions_that_are_open():
    streams = small("nexmark", rows=10_000).streams()
    auctions, bids = streams["a"], streams["b"]
    assert len(auctions.key) == len(set(auctions.key.tolist())) == round(20_000 * 3 / 49)
    age = bids.time - auctions.time[bids.key]
    assert (age[100:] >= 0).all(), "but for bids before the first auction"
    hot = bids.key % 100 == 0
    assert age[~hot].max() <= 40_000_000, "nobody bids on an auction that was closed"
    assert 0.4 < hot.mean() < 0.6


def test_an_unknown_workload_or_query_set_is_told():
    with pytest.raises(InputError, match=r"no workload zipp.*zipf"):
        small("zipp")
    with pytest.raises(InputError, match=r"no query set N13.*N1"):
        query_sets(["N1", "N13"])


def test_query_sets_are_what_their_names_say():
    assert QUERY_SETS["N1"] == (WindowQuery(30.0),)
    assert [each.window for each in QUERY_SETS["N12"]] == [2.5 * number for number in range(1, 13)]
    assert [each.above for each in QUERY_SETS["N12f"]] == [None] * 2 + [80] * 10
    assert len({each.window for each in QUERY_SETS["N36"]}) == 36
    many = QUERY_SETS["N200"]
    assert len(many) == 200
    assert 50 < sum(each.above is not None for each in many) < 150
    for each in (query for queries in QUERY_SETS.values() for query in queries):
        assert each.micros % 1_000 == 0, "Flink's event time has milliseconds only"
        assert 0 < each.window <= 30


def brute_force(load: Workload, query: WindowQuery) -> int:
    a, b = load.streams().values()
    return sum(
        int(np.sum((b.key == key) & (np.abs(b.time - time) < query.micros)))
        for key, value, time in zip(a.key, a.value, a.time, strict=True)
        if query.above is None or value > query.above
    )


@pytest.mark.parametrize("name", ["w1", "zipf", "nexmark", "ending"])
def test_the_oracle_counts_what_nested_loops_count(name, tmp_path):
    load = small(name, rows=1_000, rows_per_file=300)
    queries = (WindowQuery(0.5), WindowQuery(4.0), WindowQuery(4.0, above=80))
    truth = true_counts(load.write(tmp_path), queries)
    assert truth.rows == 2_000
    assert truth.results == tuple(brute_force(load, each) for each in queries)
    assert truth.pairs == truth.results[1] > truth.results[2] > 0


def test_a_pair_exactly_one_window_apart_is_no_result(tmp_path):
    """The window is strict at its far end: of partners 1 s apart in steps of a microsecond, only the nearer counts."""
    load = small("w1", rows=1_000, rows_per_file=1_000, keys=1)
    data = load.write(tmp_path)
    a, b = load.streams().values()
    apart = int(np.abs(b.time[0] - a.time[0]))
    counts = true_counts(data, (WindowQuery(apart / 1_000_000), WindowQuery((apart + 1) / 1_000_000))).results
    assert counts[1] > counts[0]


@pytest.mark.parametrize("name", list(QUERY_SETS))
def test_every_query_set_is_a_script_that_penstock_reads(name, tmp_path):
    queries = parse_script(as_script(tmp_path, QUERY_SETS[name], NOOP)).queries
    assert [each.name for each in queries] == [f"q{number}" for number in range(len(QUERY_SETS[name]))]


def test_a_predicate_is_sql_that_every_engine_reads():
    assert WindowQuery(2.5, above=80).condition("a.v") == "a.v > 80"
    assert WindowQuery(2.5).condition("a.v") == "TRUE"
