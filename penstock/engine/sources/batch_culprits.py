"""Which queries cannot be evaluated on a batch: their predicates and keys are tried by halves, and nothing is written.

In:  the rows of a batch whose ingest failed, and the plan.  Out: the queries to stop, each with the reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from penstock.engine.runners.runner import Job
from penstock.engine.runners.spark import described
from penstock.engine.sources.sources import ingest_columns_of
from penstock.engine.spark.culprits import find_culprits
from penstock.engine.tasks.ingest_columns import ingest_names
from penstock.plan.build import build_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from pyspark.sql import DataFrame

    from penstock.plan.build import Plan
    from penstock.sql.query import Stream

    Attempt = Callable[[Collection[str]], object]


def blame_for_batch(rows: DataFrame, stream: Stream, plan: Plan) -> dict[str, str]:
    """Find the queries whose predicates or keys cannot be evaluated on a batch of a stream."""
    streams = {each.name: each for each in plan.streams}
    readers = {each.name: each for each in plan.queries if stream.name in each.streams}

    def attempt(names: Collection[str]) -> None:
        logs = build_plan(streams, [readers[name] for name in names]).logs_of(stream.name) if names else ()
        columns = ingest_columns_of(rows, stream, logs, ingest_names(stream, logs))
        job = Job("ingest", f"find queries that fail on {stream.name}")
        with described(rows.sparkSession.sparkContext, job):
            columns.select(F.xxhash64("*").alias("h")).agg(F.max("h")).collect()

    return find_culprits(list(readers), attempt)
