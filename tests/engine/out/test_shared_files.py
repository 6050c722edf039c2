"""Rows that several queries get are encoded once, and every file has its own, whole."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.out import shared_files
from penstock.log.output_file import Encoder
from penstock.sql.options import STRATEGIES
from penstock.sql.query import Range, Sink
from tests.engine.units.test_simulation import eager, folders, in_folder, run, workloads
from tests.engine.world import Row, World, query
from tests.join.drawn import examples


def sharing(least_of_kind, most_waiting=1 << 20):
    """Let so few rows be encoded together."""
    return patch.multiple(shared_files, LEAST_OF_KIND=least_of_kind, MOST_WAITING=most_waiting)


@examples(50)
@given(
    queries=workloads(),
    lateness=st.sampled_from((0, 12, 100)),
    least=st.tuples(st.sampled_from((1, 2, 4)), st.sampled_from((1, 3, 9, 1000))),
    strategy=st.sampled_from(STRATEGIES),
    happening=st.tuples(st.integers(0, 10**9), st.sampled_from((10, 20, 40))),
)
def test_every_query_is_exact_whatever_is_encoded_together(queries, lateness, least, strategy, happening):
    with folders() as folder, eager(3, 0.5, 1), sharing(*least):
        to_files = in_folder([kept_in_files(each) for each in queries], folder)
        run(World(folder / "state", to_files, lateness=lateness, strategy=strategy), *happening)


def kept_in_files(one):
    """Give a query a sink that writes files of its own."""
    return replace(one, sink=Sink("parquet"))


@pytest.mark.parametrize("windows", [(10, 20, 30), (5, 500)])
def test_what_the_same_queries_get_is_encoded_once(tmp_path, windows):
    queries = [
        query(
            f"q{number}",
            Range.window(each, each),
            sink=Sink("parquet", (("path", str(tmp_path / f"q{number}")),)),
        )
        for number, each in enumerate(windows)
    ]
    encoded, encode = [], Encoder.encode

    def counted(self, rows):
        encoded.append(sum(each.num_rows for each in rows))
        return encode(self, rows)

    world = World(tmp_path / "state", queries, parts=1)
    with sharing(1), patch.object(Encoder, "encode", counted):
        for stream in "AB":
            world.ingest(stream, [Row(number, 1, number) for number in range(40)])
        world.turn()
    world.check_results()
    found = [pq.read_table(tmp_path / each.name).num_rows for each in queries]
    assert sum(encoded) == max(found)
    assert sum(found) > max(found)
