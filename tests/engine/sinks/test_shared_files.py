"""Rows that several queries get are encoded and written once, and every query has all of its results."""

from __future__ import annotations

import errno
import json
import os
import shutil
from dataclasses import replace
from unittest.mock import patch

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.sinks import shared_files
from penstock.engine.tasks.route_pairs import TaskOutput
from penstock.sql.options import STRATEGIES
from penstock.sql.query import Range, Sink
from penstock.state.files import open_files
from penstock.state.output_file import OutputFile
from tests.engine.stages.test_simulation import eager, folders, in_folder, run, workloads
from tests.engine.world import Row, World, query
from tests.kernels.drawn import examples


def sharing(least_of_file, most_waiting=1 << 20, most_runs=4):
    """Let so few rows of a kind be a file that queries share."""
    return patch.multiple(
        shared_files, LEAST_OF_FILE=least_of_file, MOST_WAITING=most_waiting, MOST_RUNS=most_runs
    )


@examples(50)
@given(
    queries=workloads(),
    lateness=st.sampled_from((0, 12, 100)),
    least=st.tuples(
        st.sampled_from((1, 2, 5, 1000)),
        st.sampled_from((1, 3, 9, 1000)),
        st.sampled_from((0, 4)),
    ),
    strategy=st.sampled_from(STRATEGIES),
    happening=st.tuples(st.integers(0, 10**9), st.sampled_from((10, 20, 40))),
)
def test_every_query_is_exact_whatever_is_encoded_together(queries, lateness, least, strategy, happening):
    with folders() as folder, eager(3, 0.5, 1), sharing(*least):
        to_files = in_folder([kept_in_files(each) for each in queries], folder)
        run(World(folder / "state", to_files, lateness=lateness, strategy=strategy), *happening)
        for query_folder in folder.glob("q*"):
            assert_notes_are_true(query_folder)


def assert_notes_are_true(folder):
    """Hold the number of results that each file notes against its rows."""
    for file in folder.glob("part-*.parquet"):
        found = pq.read_metadata(file)
        note = json.loads(found.metadata.get(b"penstock", b"null"))
        assert note is None or note["results"] == found.num_rows


def kept_in_files(one):
    """Give a query a sink that writes files of its own."""
    return replace(one, sink=Sink("parquet"))


def written(tmp_path, windows):
    """Let queries of these windows write files."""
    queries = [
        query(
            f"q{number}",
            Range.window(each, each),
            sink=Sink("parquet", (("path", str(tmp_path / f"q{number}")),)),
        )
        for number, each in enumerate(windows)
    ]
    world = World(tmp_path / "state", queries, parts=1)
    for stream in "AB":
        world.ingest(stream, [Row(number, 1, number) for number in range(40)])
    world.turn()
    return world


def names_of(folder):
    """Give a directory's files of results by what they are on the disk."""
    return {
        each.stat().st_ino: each for each in folder.glob("part-*.parquet") if pq.read_metadata(each).num_rows
    }


def test_what_several_queries_get_is_one_file_with_a_name_for_each(tmp_path):
    with sharing(1):
        world = written(tmp_path, (10, 20, 30))
    world.check_results()
    narrow, middle, wide = (names_of(tmp_path / name) for name in ("q0", "q1", "q2"))
    assert set(narrow) < set(middle) < set(wide)
    for folder in ("q1", "q0"):
        rows = pq.read_table(tmp_path / "q2").num_rows
        shutil.rmtree(tmp_path / folder)
        assert pq.read_table(tmp_path / "q2").num_rows == rows > 0


def test_a_common_file_says_whose_it_is(tmp_path):
    with sharing(1):
        written(tmp_path, (10, 20))
    (common,) = set(names_of(tmp_path / "q0")) & set(names_of(tmp_path / "q1"))
    file = names_of(tmp_path / "q0")[common]
    note = json.loads(pq.read_metadata(file).metadata[b"penstock"])
    assert set(note["queries"]) == {"q0", "q1"}
    assert set(note["queries"]["q0"]) == {"waiting", "held", "output"}
    assert note["results"] == pq.read_metadata(file).num_rows
    assert set(note) == {"queries", "unit", "results", "response"}


def test_where_directories_cannot_share_a_file_each_has_a_copy(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "link", refusing)
    with sharing(1):
        written(tmp_path, (10, 20)).check_results()
    folders = [names_of(tmp_path / name) for name in ("q0", "q1")]
    assert not set(folders[0]) & set(folders[1])
    (copied,) = {file.name for file in folders[0].values()} & {file.name for file in folders[1].values()}
    assert (tmp_path / "q0" / copied).read_bytes() == (tmp_path / "q1" / copied).read_bytes()


def test_a_link_that_was_made_and_not_acknowledged_is_one(tmp_path, monkeypatch):
    link = os.link

    def unacknowledged(*names):
        link(*names)
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))

    monkeypatch.setattr(os, "link", unacknowledged)
    files = [open_files(str(tmp_path / name), sync=False) for name in "ab"]
    files[0].put("x", b"1")
    assert files[0].link("x", files[1], "y")
    assert files[1].read("y") == b"1"


def test_many_sets_of_queries_are_not_written_set_by_set(tmp_path):
    filtered = [
        query(
            f"q{number}",
            Range.window(50, 50),
            left=(f"p{number}",),
            sink=Sink("parquet", (("path", str(tmp_path / f"q{number}")),)),
        )
        for number in range(3)
    ]
    puts, put = [], TaskOutput.put

    def counted(self, where, rows):
        puts.append(type(where))
        put(self, where, rows)

    world = World(tmp_path / "state", filtered, parts=1)
    with sharing(1 << 20), patch.object(TaskOutput, "put", counted):
        for stream in "AB":
            world.ingest(stream, [Row(number, 1, number, holding(number % 8)) for number in range(60)])
        world.turn()
    world.check_results()
    assert puts.count(OutputFile) == len(filtered)  # of seven sets


def holding(bits):
    """Give the predicates that a row satisfies."""
    return frozenset(f"p{number}" for number in range(3) if bits >> number & 1)


def refusing(*_):
    raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))


@pytest.mark.parametrize("windows", [(10, 20, 30), (5, 500)])
def test_what_the_same_queries_get_is_encoded_once(tmp_path, windows):
    encoded, write_table = [], pq.ParquetWriter.write_table

    def counted(self, rows):
        encoded.append(rows.num_rows)
        write_table(self, rows)

    with sharing(1), patch.object(pq.ParquetWriter, "write_table", counted):
        world = written(tmp_path, windows)
    world.check_results()
    found = [pq.read_table(tmp_path / f"q{number}").num_rows for number in range(len(windows))]
    assert sum(encoded) == max(found)
    assert sum(found) > max(found)
