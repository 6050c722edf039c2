"""Streams with punctuations as files and scripts: every promise is kept, and its row is where it belongs."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from benchmarks.punctuated import (
    NONE,
    at_their_ends,
    bounds_with,
    every_so_often,
    punctuated,
    punctuated_script,
)
from benchmarks.workloads import EPOCH, NOOP, Columns, WindowQuery, Workload
from penstock.sql.bind.promises import promise_options
from penstock.sql.script import parse_script

ROWS = Columns(np.array([7, 8, 7, 9, 8]), np.arange(5.0), np.array([1, 2, 3, 4, 5]))


def laid_out(table):
    return list(
        zip(
            table["k"].to_pylist(),
            table["kind"].to_pylist(),
            table["ts"].cast("int64").to_pylist(),
            strict=True,
        )
    )


def test_a_key_is_punctuated_behind_its_last_row_at_that_row_s_time():
    rows = [(7, "row", 1), (8, "row", 2), (7, "row", 3), (7, "end", 3), (9, "row", 4), (9, "end", 4)]
    rows += [(8, "row", 5), (8, "end", 5)]
    assert laid_out(punctuated(ROWS, at_their_ends(ROWS))) == [(k, kind, EPOCH + t) for k, kind, t in rows]


def test_irrelevant_punctuations_are_about_keys_that_neither_stream_has():
    (one, behind), (other, _) = (every_so_often(ROWS, 2, number) for number in (0, 1))
    assert behind.tolist() == [2, 4]
    keys = [*one.tolist(), *other.tolist()]
    assert len(set(keys)) == 4
    assert max(keys) < 0


def test_without_punctuations_there_are_only_rows():
    assert punctuated(ROWS, NONE)["kind"].to_pylist() == ["row"] * 5


def test_a_punctuation_is_in_the_file_of_the_row_it_follows():
    promises = at_their_ends(ROWS)
    table = punctuated(ROWS, promises)
    files = [
        laid_out(table.slice(start, end - start))
        for start, end in pairwise(bounds_with(promises, np.array([0, 3, 5])).tolist())
    ]
    assert [[(k, kind) for k, kind, _ in each][-1] for each in files] == [(7, "end"), (8, "end")]
    assert [sum(kind == "row" for _, kind, _ in each) for each in files] == [3, 2]


@pytest.mark.parametrize("stream", ["a", "b"])
def test_keys_of_ending_streams_end_in_their_order(stream):
    load = Workload(rows=3_000, keys=30, rows_per_file=1_000, name="ending")
    rows = load.streams()[stream]
    promises = at_their_ends(rows)
    assert promises.key.tolist() == list(range(30)), "each key is there, and ends before the next"
    assert np.all(promises.behind <= 100 * (1 + promises.key)), "after its stretch there is none"
    own = rows.key == np.arange(3_000) // 100
    assert 0.35 < own.mean() < 0.48


def test_the_same_files_are_read_heeding_punctuations_or_leaving_them_out(tmp_path):
    queries = (WindowQuery(30.0), WindowQuery(5.0, above=80))
    heeding, leaving = (
        parse_script(punctuated_script(tmp_path, queries, NOOP, heeds=heeds)) for heeds in (True, False)
    )
    assert all(promise_options(each)["punctuates"] == "k" for each in heeding.streams.values())
    assert not any(promise_options(each) for each in leaving.streams.values())
    assert "kind" not in heeding.queries[0].text
    assert "a.kind = 'row' AND b.kind = 'row' AND a.v > 80" in leaving.queries[1].text
