"""Spark reads files of results however their columns are encoded, by batches and row by row."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import limits
from penstock.state.output_file import OutputFile
from tests.state.test_output_encodings import TYPES, values

pytestmark = [pytest.mark.spark, pytest.mark.runs_task_here]


@pytest.mark.parametrize("vectorized", ["true", "false"])
@pytest.mark.parametrize("bits", [12, 31, 63])
def test_spark_reads_what_was_written(spark, tmp_path, vectorized, bits):
    random = np.random.default_rng(bits)
    # Arrow has years that Python and Spark's collecting have not
    kinds = {name: kind for name, kind in TYPES.items() if name not in {"void", "day", "span"}}
    file, written = OutputFile(str(tmp_path), "x.parquet", kept=True), []
    for count in (limits.ENCODING_SAMPLE_ROWS, 500):
        rows = {name: values(random, kind, count, min(bits, 50)) for name, kind in kinds.items()}
        rows |= {
            "id": values(random, pa.int64(), count, bits),
            "row": pa.array(np.arange(count) + limits.ENCODING_SAMPLE_ROWS * len(written)),
        }
        written.append(pa.record_batch(rows))
        file.write(written[-1])
        file.flush()
    file.close()
    spark.conf.set("spark.sql.parquet.enableVectorizedReader", vectorized)
    try:
        found = spark.read.parquet(str(tmp_path / "x.parquet")).toArrow()
    finally:
        spark.conf.unset("spark.sql.parquet.enableVectorizedReader")
    encodings = pq.ParquetFile(tmp_path / "x.parquet").metadata.row_group(0)
    used = {each for number in range(encodings.num_columns) for each in encodings.column(number).encodings}
    assert "DELTA_BINARY_PACKED" in used
    wanted = pa.Table.from_batches(written)
    for name in wanted.column_names:
        assert found.column(name).to_pylist() == wanted.column(name).to_pylist()
