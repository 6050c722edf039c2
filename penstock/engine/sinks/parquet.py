"""The `parquet` sink: a directory of Parquet files that holds committed results only, at any moment."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.engine.sinks.destination import Destination
from penstock.engine.sinks.sink_kind import SinkKind
from penstock.engine.spark.schemas import arrow_schema
from penstock.sql.sinks import make_sink
from penstock.state.files import open_files
from penstock.state.locations import literal
from penstock.state.spark_schema import SPARK_SCHEMA, loosened

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, DataFrameReader

    from penstock.sql.query import Sink
    from penstock.state.files import Files

PUNCTUATIONS = "_punctuations"
"""The directory below the sink's where its punctuations are; Spark ignores names that begin with an underscore."""

_EMPTY = "part-00000000-schema.parquet"
"""A file without rows, which is there before the first result."""


class ParquetSink(SinkKind):
    """A result is a row of a file in the query's own directory; in order, the names of files ascend."""

    options: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "path": (),
        "compression": ("snappy", "none", "gzip", "zstd", "lz4", "brotli"),
        "punctuations": ("true", "false"),
    }
    needs: ClassVar[Mapping[str, str]] = {"path": "..."}
    after_crash = "exactly once"
    keeps_results: ClassVar[bool] = True

    @property
    def directory(self) -> str:
        """Return the directory of the files."""
        return self.sink.option("path")

    def destination(self, _state: Files) -> Destination:
        """Return the directory, where identical files of several queries are linked."""
        return Destination(self.directory, self.sink.option("compression", "snappy"), shared=True)

    def prepare(self, empty: DataFrame) -> None:
        """Write a file without rows, so that the directory can be read from the first moment."""
        files = open_files(self.directory, sync=False)
        if files.exists(_EMPTY):
            return
        out = pa.BufferOutputStream()
        columns = loosened(arrow_schema(empty).empty_table())
        described = columns.replace_schema_metadata({SPARK_SCHEMA: empty.schema.json()})
        pq.write_table(described, out, write_page_checksum=True)
        files.put(_EMPTY, out.getvalue().to_pybytes())  # readers see the whole file or none

    def read(self, reader: DataFrameReader) -> DataFrame:
        """Read the files."""
        return reader.parquet(literal(self.directory))

    def dropped(self, results: int) -> str:
        """Write that the files stay."""
        return f"its {results:,} results stay where they are"


def parquet(path: str | os.PathLike[str], *, compression: str = "snappy", punctuations: bool = False) -> Sink:
    """Deliver to a directory of Parquet files; with `punctuations`, also which values have no more results."""
    told = {"punctuations": "true"} if punctuations else {}
    return make_sink("parquet", {"path": os.fspath(path), "compression": compression, **told})
