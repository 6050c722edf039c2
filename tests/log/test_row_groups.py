"""Row groups that were encoded once are the same rows in whatever file they are, to every reader."""

from __future__ import annotations

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.log import table_merge
from penstock.log.files import open_files
from penstock.log.output_file import Encoder, OutputFile
from penstock.log.row_groups import RowGroups, UnknownLayoutError
from penstock.log.table_merge import merge_files
from penstock.log.tables import Merge
from tests.join.drawn import examples

COLUMNS = {
    "k": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "small": (pa.int16(), st.integers(-9, 9)),
    "v": (pa.float64(), st.floats(allow_nan=False)),
    "at": (pa.timestamp("us", "UTC"), st.integers(-(2**50), 2**50)),
    "name": (pa.string(), st.text(max_size=40)),
    "flag": (pa.bool_(), st.booleans()),
    "list": (pa.list_(pa.int32()), st.lists(st.integers(0, 3), max_size=3)),
    "pair": (pa.struct({"x": pa.int32(), "y": pa.string()}), st.fixed_dictionaries({"x": st.integers(0, 9)})),
}


@st.composite
def batches(draw):
    """Some batches of rows with the same columns, of any types, with nulls."""
    names = draw(st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, unique=True))
    return [
        pa.record_batch(
            {
                name: pa.array(
                    draw(st.lists(st.none() | COLUMNS[name][1], min_size=size, max_size=size)),
                    COLUMNS[name][0],
                )
                for name in names
            }
        )
        for size in draw(st.lists(st.integers(1, 5), min_size=1, max_size=20))
    ]


def read_checked(path):
    """Read a file's rows, checking the checksums of its pages."""
    return pq.read_table(path, page_checksum_verification=True)


@examples(60)
@given(batches(), st.data(), st.sampled_from(("snappy", "none", "zstd")))
def test_every_file_has_the_rows_of_its_row_groups_in_order(tmp_path_factory, rows, data, compression):
    folder = tmp_path_factory.mktemp("files")
    encoded = [Encoder(compression).encode([each]) for each in rows]
    for number in range(2):
        chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=20))
        file = OutputFile(str(folder), f"{number}.parquet", kept=True)
        for each in chosen:
            file.append(encoded[each])
        file.close({"query": "q"})
        path, wanted = folder / f"{number}.parquet", pa.Table.from_batches([rows[each] for each in chosen])
        assert read_checked(path).equals(wanted)
        assert file.rows == wanted.num_rows == pq.ParquetFile(path).metadata.num_rows
        assert pq.ParquetFile(path).metadata.metadata[b"penstock"] == b'{"query": "q"}'
        assert duckdb.sql(f"SELECT * FROM '{path}'").to_arrow_table().to_pylist() == wanted.to_pylist()


def test_statistics_go_where_their_row_group_goes(tmp_path):
    groups = [Encoder("snappy").encode([pa.record_batch({"x": [low, low + 9]})]) for low in (0, 100, 200)]
    file = OutputFile(str(tmp_path), "x.parquet", kept=True)
    for each in (groups[2], groups[0], groups[2]):
        file.append(each)
    file.close()
    described = pq.ParquetFile(tmp_path / "x.parquet").metadata
    found = [described.row_group(number).column(0).statistics for number in range(3)]
    assert [(each.min, each.max) for each in found] == [(200, 209), (0, 9), (200, 209)]


def test_rows_of_another_schema_are_refused(tmp_path):
    file = OutputFile(str(tmp_path), "x.parquet", kept=True)
    file.write(pa.record_batch({"x": [1]}))
    file.flush()
    with pytest.raises(ValueError, match="another schema"):
        file.append(Encoder("snappy").encode([pa.record_batch({"x": ["one"]})]))


def test_a_file_with_page_indexes_is_not_taken_over():
    rows, out = pa.table({"x": [1, 2, 3]}), pa.BufferOutputStream()
    pq.write_table(rows, out, write_page_index=True)
    with pytest.raises(UnknownLayoutError):
        RowGroups.of_file(out.getvalue(), rows.schema)


@pytest.mark.parametrize("least", [5, 500])
def test_merging_takes_over_large_row_groups_and_makes_one_of_small_ones(tmp_path, monkeypatch, least):
    monkeypatch.setattr(table_merge, "LEAST_COPIED", least)
    files, made = open_files(str(tmp_path), sync=False), []
    for number in range(3):
        out = OutputFile(files.root, f"part-{number}.parquet", kept=True)
        out.write(pa.record_batch({"x": np.arange(10) + 10 * number}))
        out.close({"query": "q"})
        made.append(out.report("q").kept)
    merged = merge_files(files, Merge(tuple(made), "whole.parquet", 1))
    assert merged.shape == made[0].shape
    assert merged.generation == 1
    whole = pq.ParquetFile(tmp_path / "whole.parquet")
    assert whole.read().column("x").to_pylist() == list(range(30))
    assert whole.num_row_groups == (3 if least == 5 else 1)
    assert b"penstock" not in whole.metadata.metadata
