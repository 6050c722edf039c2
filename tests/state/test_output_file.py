"""Files of results: how they are encoded, what they say of themselves, and how directories share them."""

from __future__ import annotations

import json
import uuid
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import limits
from penstock.engine.tasks.merge import merge_files
from penstock.state.files import open_files
from penstock.state.output_file import OutputFile, shape_of
from penstock.state.spark_schema import SPARK_SCHEMA
from penstock.state.tables import FileMerge


def test_values_that_repeat_have_a_dictionary_and_others_are_written_as_they_are(tmp_path):
    count = limits.MAX_ROWS_PER_ROW_GROUP
    random = np.random.default_rng(1)
    rows = pa.RecordBatch.from_pydict(
        {
            "time": pa.array(random.integers(0, 1 << 50, count)),
            "name": pa.array([f"sensor {number}" for number in random.integers(0, 100, count)]),
        }
    )
    file = OutputFile(str(tmp_path), "part.parquet", kept=True)
    file.write(rows)
    file.close()
    written = pq.ParquetFile(tmp_path / "part.parquet")
    assert written.read().equals(pa.Table.from_batches([rows]))
    times, names = (written.metadata.row_group(0).column(number) for number in range(2))
    assert times.total_uncompressed_size < 1.1 * 8 * count  # no dictionary of it all beside the values
    assert names.total_uncompressed_size < 2 * count  # a byte or two for each, not the text


def test_a_file_has_its_note_and_the_state_its_checksum(tmp_path):
    file = OutputFile(str(tmp_path), "part.parquet", kept=True)
    for number in range(3):
        rows = pa.record_batch({"x": [number, number + 10]})
        file.write(rows.replace_schema_metadata({SPARK_SCHEMA: b"{}", b"other": b"?"}))
        file.flush()
    file.close({"query": "q"})
    found, content = pq.read_metadata(tmp_path / "part.parquet"), (tmp_path / "part.parquet").read_bytes()
    assert json.loads(found.metadata[b"penstock"]) == {"query": "q"}
    assert found.metadata[SPARK_SCHEMA] == b"{}"
    assert b"other" not in found.metadata
    statistics = [found.row_group(number).column(0).statistics for number in range(3)]
    assert [(each.min, each.max) for each in statistics] == [(0, 10), (1, 11), (2, 12)]
    kept = file.report("q").kept
    assert (kept.bytes, kept.checksum) == (len(content), zlib.crc32(content))
    assert kept.shape == shape_of(pa.schema({"x": pa.int64()}, {SPARK_SCHEMA: b"{}"}))
    pq.read_table(tmp_path / "part.parquet", page_checksum_verification=True)


def test_rows_of_another_schema_are_refused(tmp_path):
    file = OutputFile(str(tmp_path), "x.parquet", kept=True)
    file.write(pa.record_batch({"x": [1]}))
    file.flush()
    file.write(pa.record_batch({"x": ["one"]}))
    with pytest.raises(ValueError, match="schema"):
        file.flush()


def test_merging_makes_one_row_group_of_small_ones(tmp_path):
    files, made = open_files(str(tmp_path), sync=False), []
    for number in range(3):
        out = OutputFile(files.root, f"part-{number}.parquet", kept=True)
        out.write(pa.record_batch({"x": np.arange(10) + 10 * number}))
        out.close({"number": number})
        made.append(out.report("q").kept)
    merged = merge_files(files, FileMerge(tuple(made), "whole-", 1))
    assert merged.shape == made[0].shape
    assert merged.generation == 1
    whole = pq.ParquetFile(tmp_path / merged.name)
    assert whole.read().column("x").to_pylist() == list(range(30))
    assert whole.num_row_groups == 1
    assert json.loads(whole.metadata.metadata[b"penstock"]) == {"number": 2}, "the note of the newest"


def complete_file(root):
    """Write a file of a sink."""
    file = OutputFile(root, "part.parquet")
    file.write(pa.record_batch({"x": np.arange(1000)}))
    file.close()
    return file


def shared(file, root):
    """Let a directory have a file, and return its bytes there."""
    move = file.share(root, "q").move
    assert (move.root, move.final) == (root, file.final)
    return open_files(root).read(move.staged)


def test_directories_share_a_file_unless_they_have_other_rights(tmp_path):
    roots = [str(tmp_path / name) for name in "abc"]
    file = complete_file(roots[0])
    content = open_files(roots[0]).read(file.staged)
    assert shared(file, roots[1]) == content
    Path(roots[2], "_staging").mkdir(parents=True)
    Path(roots[2], "_staging").chmod(0o2755)  # a file made there has the group of the directory
    assert shared(file, roots[2]) == content
    first, second, third = (Path(root, file.staged).stat().st_ino for root in roots)
    assert first == second != third
    assert all(open_files(root).list("_staging") == [Path(file.staged).name] for root in roots)


def test_a_file_is_copied_within_a_store_out_of_it_and_into_it(tmp_path):
    store, directory = f"memory://{uuid.uuid4().hex}", str(tmp_path)
    file = complete_file(f"{store}/a")
    content = open_files(f"{store}/a").read(file.staged)
    assert shared(file, f"{store}/b") == content
    assert shared(file, directory) == content
    file = complete_file(directory)
    assert shared(file, f"{store}/c") == open_files(directory).read(file.staged)
