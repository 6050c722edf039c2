"""Streams for joins of three and more: their files, their scripts, and DuckDB's counts on them."""

from __future__ import annotations

from itertools import product

import numpy as np
import pyarrow.dataset as ds
import pytest

from benchmarks.many_streams import (
    CHAIN,
    STAR,
    ManyStreams,
    common_key,
    joining_script,
    skewed_graph,
    true_results,
)
from benchmarks.workloads import QUERY_SETS, WindowQuery
from penstock.errors import InputError
from penstock.sql.script import parse_script

GRAPHS = [common_key(3), common_key(4), CHAIN, STAR]
SECOND = 1_000_000


def rows_of(load: ManyStreams) -> dict[str, list[dict]]:
    tables = load.streams()
    return {
        name: rows.set_column(rows.column_names.index("ts"), "ts", rows["ts"].cast("int64")).to_pylist()
        for name, rows in tables.items()
    }


def nested_loops(load: ManyStreams, micros: int) -> int:
    """Look at every combination of rows."""
    streams, graph, found = rows_of(load), load.graph, 0
    for rows in product(*streams.values()):
        by_name = dict(zip(streams, rows, strict=True))
        times = [each["ts"] for each in rows]
        newest = not graph.newest or by_name[graph.newest]["ts"] == max(times)
        equal = all(
            by_name[each.one][each.column] == by_name[each.other][each.column] for each in graph.links
        )
        found += equal and newest and max(times) - min(times) < micros
    return found


@pytest.mark.parametrize(
    ("graph", "rows"), [(common_key(3), 40), (common_key(4), 18), (CHAIN, 40), (STAR, 18)]
)
def test_the_oracle_counts_what_nested_loops_count(graph, rows, tmp_path):
    load = ManyStreams(graph, rows, seed=3)
    queries = (WindowQuery(12.0), WindowQuery(30.0))
    truth = true_results(graph, load.write(tmp_path), queries)
    assert truth.rows == rows * len(graph.streams)
    assert truth.results == tuple(nested_loops(load, each.micros) for each in queries)
    assert truth.pairs == truth.results[1]


def test_the_oracle_meets_results_on_every_graph(tmp_path):
    for graph in GRAPHS:
        load = ManyStreams(graph, 4_000)
        assert true_results(graph, load.write(tmp_path), QUERY_SETS["N1"]).pairs > 0


@pytest.mark.parametrize("graph", [CHAIN, STAR], ids=lambda graph: graph.name)
def test_a_row_finds_as_many_partners_as_its_graph_says(graph):
    streams = ManyStreams(graph, 20_000).streams()
    for link in graph.links:
        one, other = (
            {name: streams[each][name].to_numpy() for name in (link.column, "ts")}
            for each in (link.one, link.other)
        )
        window = other["ts"] < other["ts"][0] + np.timedelta64(30, "s")
        found = (
            sum((other[link.column][window] == key).sum() for key in one[link.column][:2000].tolist()) / 2000
        )
        assert found == pytest.approx(link.fan_out, rel=0.3, abs=0.01)


def test_files_cover_the_same_time_however_few_rows_there_are(tmp_path):
    load = ManyStreams(common_key(3), 500)
    data = load.write(tmp_path)
    for name in "abc":
        files = sorted((data / name).glob("*.parquet"))
        times = ds.dataset(files).to_table()["ts"].cast("int64").to_pylist()
        assert len(files) == 10
        assert times == sorted(times)
        assert 95 * SECOND < times[-1] - times[0] < 100 * SECOND
    assert load.rows_in_window == 3 * 150
    assert load.write(tmp_path) == data


@pytest.mark.parametrize("graph", GRAPHS, ids=lambda graph: graph.name)
def test_every_graph_is_a_script_that_penstock_reads(graph, tmp_path):
    script = parse_script(joining_script(graph, tmp_path, QUERY_SETS["N12"]))
    assert list(script.streams) == list(graph.streams)
    assert len(script.queries) == 12


def test_a_graph_there_is_none_of_is_told():
    with pytest.raises(InputError, match=r"no skewed graph stat.*star"):
        skewed_graph("stat")
