"""Evaluate a new query's predicates over the rows that are held, so that it can have their past.

Spark SQL is asked, as at ingest, but about the columns that the segments store: a predicate on a column that nobody
stored has no answer, and its query begins with the rows to come.

In:  the logs that a new plan stores differently.  Out: the same segments under the new layout.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import AnalysisException

from penstock.engine.ingest import SUMMARY
from penstock.log.relayout import Meaning, relayout_segment
from penstock.log.segment import Segment, read_segment

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from penstock.log.files import Files
    from penstock.log.ledger import Layout
    from penstock.plan.stored import LogPlan
    from penstock.sql.query import Stream

    Batches = Iterator[pa.RecordBatch]

_NUMBER = "penstock_n"


def can_upgrade(spark: SparkSession, stream: Stream, log: LogPlan, old: Layout) -> bool:
    """Say whether segments of an old layout hold all that the new one needs: its columns, and its predicates' input."""
    if not _new(log, old) or not set(log.columns) <= set(old.columns):
        return False
    try:
        rows = spark.createDataFrame([], _schema(stream, old))
        rows.selectExpr(*_new(log, old))
    except AnalysisException:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Upgrade:
    """What is to be rewritten: some segments of an old layout of a log, under its new layout and its number."""

    stream: Stream
    log: LogPlan
    old: Layout
    segments: Sequence[Segment]
    layout: int


def upgrade_job(spark: SparkSession, files: Files, upgrade: Upgrade) -> list[Segment]:
    """Write segments again under a log's new layout, one task each."""
    stream, log, old, segments = upgrade.stream, upgrade.log, upgrade.old, upgrade.segments
    new = _new(log, old)
    columns = list(old.columns)
    names = [each.name for each in segments]

    def read(batches: Batches) -> Batches:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                rows = read_segment(files, names[number])
                count = pa.array(np.full(rows.rows.t.size, number, np.int32))
                arrays = [count, *(rows.column(name) for name in columns)]
                yield pa.RecordBatch.from_arrays(arrays, [_NUMBER, *columns])

    def write(batches: Batches) -> Batches:
        table = pa.Table.from_batches(list(batches))
        number = table.column(_NUMBER)[0].as_py()
        answers = {
            each: pc.fill_null(table.column(f"p{place}"), fill_value=False).to_numpy()
            for place, each in enumerate(new)
        }
        meaning = Meaning(old.predicates, log.predicates, upgrade.layout)
        made = relayout_segment(files, log.id, segments[number], meaning, answers)
        yield pa.RecordBatch.from_pydict({"summary": [json.dumps(made.to_json())]})

    numbers = spark.range(0, len(names), 1, len(names))
    rows: DataFrame = numbers.mapInArrow(read, f"{_NUMBER} int, {_schema(stream, old)}")
    asked = rows.selectExpr(_NUMBER, *(f"({each}) AS p{place}" for place, each in enumerate(new)))
    reports: list[Any] = asked.mapInArrow(write, SUMMARY).collect()
    return [Segment.from_json(json.loads(row.summary)) for row in reports]


def _new(log: LogPlan, old: Layout) -> list[str]:
    """List the predicates that the old layout has no answers to."""
    return [each for each in log.predicates if each not in old.predicates]


def _schema(stream: Stream, layout: Layout) -> str:
    """Write the columns that a layout stores as Spark DDL."""
    return ", ".join(f"`{each.name}` {each.type}" for each in stream.columns if each.name in layout.columns)
