"""How files of results are encoded."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.log.output_file import ROWS_PER_WRITE, OutputFile


def test_values_that_repeat_have_a_dictionary_and_others_are_written_as_they_are(tmp_path):
    count = ROWS_PER_WRITE
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
