"""Evaluate a new query's predicates over the rows that are held, so that it can have their past.

Spark SQL is asked, as at ingest, but about the columns that the segments store: a predicate on a column that nobody
stored has no answer, and its query begins with the rows to come.

In:  the logs that a new plan stores differently.  Out: the same segments under the new layout.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import AnalysisException

from penstock.engine.sources import answer, schema_ddl
from penstock.engine.work import computed, numbers, report, run_work
from penstock.join.width import bounded
from penstock.log.relayout import Meaning, relayout_segment
from penstock.log.segment import Segment, read_segment
from penstock.sql.query import RESERVED
from penstock.sql.tree import always_quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from penstock.engine.work import Batches
    from penstock.log.files import Files
    from penstock.log.ledger import Layout
    from penstock.plan.stored import LogPlan
    from penstock.sql.query import Stream

_NUMBER = f"{RESERVED}n"


def can_upgrade(spark: SparkSession, stream: Stream, log: LogPlan, old: Layout) -> bool:
    """Say whether segments of an old layout hold all that the new one needs: its columns, and its predicates' input."""
    if not _new(log, old) or not set(log.columns) <= set(old.columns):
        return False
    try:
        rows = spark.createDataFrame([], schema_ddl(stream, old.columns))
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
    all_rows = f"{always_quoted(_NUMBER)} >= 0"
    answers = [answer(each, upgrade.stream, all_rows) for each in _new(upgrade.log, upgrade.old)]
    rows = computed(
        spark,
        len(upgrade.segments),
        f"{always_quoted(_NUMBER)} int, {schema_ddl(upgrade.stream, upgrade.old.columns)}",
        (
            f"{always_quoted(_NUMBER)} AS n",
            *(f"({each}) AS p{number}" for number, each in enumerate(answers)),
        ),
    )
    upgrade = replace(upgrade, stream=replace(upgrade.stream, options=()))  # tasks need no secrets
    reports = run_work(rows, partial(_write, files, upgrade), first=partial(_read, files, upgrade))
    return [Segment.from_json(each) for each in reports]


def _read(files: Files, upgrade: Upgrade, batches: Batches) -> Batches:
    """Read the columns of a task's segments."""
    columns = list(upgrade.old.columns)
    for number in numbers(batches):
        rows = read_segment(files, upgrade.segments[number])
        count = pa.array(np.full(rows.rows.t.size, number, np.int32))
        arrays = [count, *(rows.column(name) for name in columns)]
        yield from bounded([pa.RecordBatch.from_arrays(arrays, [_NUMBER, *columns])])


def _write(files: Files, upgrade: Upgrade, batches: Batches) -> Batches:
    """Write a task's segment with the answers to the new predicates."""
    table = pa.Table.from_batches(list(batches))
    number = table.column("n")[0].as_py()
    answers = {
        each: pc.fill_null(table.column(f"p{place}"), fill_value=False).to_numpy()
        for place, each in enumerate(_new(upgrade.log, upgrade.old))
    }
    meaning = Meaning(upgrade.old.predicates, upgrade.log.predicates, upgrade.layout)
    made = relayout_segment(files, upgrade.log.id, upgrade.segments[number], meaning, answers)
    yield report(made.to_json())


def _new(log: LogPlan, old: Layout) -> list[str]:
    """List the predicates that the old layout has no answers to."""
    return [each for each in log.predicates if each not in old.predicates]
