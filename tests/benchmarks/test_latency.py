"""The feeder, and when results were seen to appear.  No engine is started here."""

from __future__ import annotations

import json
import os
import time

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from benchmarks.latency import appearances, chosen, feed
from benchmarks.oracle import true_counts
from benchmarks.workloads import WindowQuery
from penstock.errors import InputError


def results(path, *pairs: tuple[int, int]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    sides = [
        pa.array(each, pa.int64()).cast(pa.timestamp("us", tz="UTC")) for each in zip(*pairs, strict=True)
    ]
    pq.write_table(pa.table({"ats": sides[0], "bts": sides[1]}), path)


def test_the_feeder_keeps_its_rate_and_stamps_the_moment(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    before = time.time_ns() // 1_000
    assert feed(tmp_path, rate=1_000, seconds=0.4, every=0.1) == 400
    after = time.time_ns() // 1_000
    for name in ("a", "b"):
        stamps = ds.dataset(tmp_path / name).to_table()["ts"].cast("int64").to_numpy()
        assert len(stamps) == 200
        assert before <= stamps.min() <= stamps.max() <= after
        assert len(list((tmp_path / name).iterdir())) == 4
    assert true_counts(tmp_path, (WindowQuery(10.0),)).rows == 400


def test_a_result_of_penstock_appears_when_its_file_is_moved_into_place(tmp_path):
    results(tmp_path / "_staging" / "x.parquet", (1, 5), (7, 2))
    results(tmp_path / "_staging" / "never.parquet", (1, 1))
    time.sleep(0.05)
    moved = time.time_ns() // 1_000
    (tmp_path / "_staging" / "x.parquet").rename(tmp_path / "x.parquet")
    later, visible = appearances("penstock", tmp_path)
    assert later.tolist() == [5, 7]
    assert visible.tolist() == pytest.approx([moved] * 2, abs=30_000)


def test_a_result_of_flink_appears_when_a_checkpoint_names_its_file(tmp_path):
    """Until then the name begins with a dot; times are numbers there."""
    table = pa.table({"ats": pa.array([1, 7]), "bts": pa.array([5, 2])})
    for name in (".part-1-0.inprogress.3", ".part-1-1.inprogress.4"):
        pq.write_table(table, tmp_path / name)
    (tmp_path / ".part-1-0.inprogress.3").rename(tmp_path / "part-1-0")
    later, visible = appearances("flink", tmp_path)
    assert later.tolist() == [5, 7]
    assert visible.tolist() == [(tmp_path / "part-1-0").stat().st_ctime_ns // 1_000] * 2


def test_an_engine_that_does_not_serve_is_refused_by_name():
    assert chosen("penstock, flink") == ["penstock", "flink"]
    with pytest.raises(InputError, match="engine 'duckdb' does not serve: choose some of penstock"):
        chosen("penstock,duckdb")


def test_a_result_of_spark_appears_when_the_log_first_names_its_file(tmp_path):
    """The tenth log repeats the nine before it; a file counts from the one that named it first."""
    log = tmp_path / "_spark_metadata"
    log.mkdir()
    named: list[str] = []
    for batch in range(10):
        path = tmp_path / f"part-{batch}.parquet"
        results(path, (batch, 0))
        named.append(json.dumps({"path": path.as_uri()}))
        name, lines = (f"{batch}", named[-1:]) if batch < 9 else ("9.compact", named)
        (log / name).write_text("\n".join(["v1", *lines]))
        os.utime(log / name, (1_000 + batch, 1_000 + batch))
    results(tmp_path / "uncommitted.parquet", (99, 99))
    later, visible = appearances("spark-best", tmp_path)
    order = np.argsort(later)
    assert later[order].tolist() == list(range(10))
    assert visible[order].tolist() == [(1_000 + batch) * 1_000_000 for batch in range(10)]
