"""Work for Spark's tasks that is planned once and told anew for each job.

Planning a job and pickling its function take longer than many a job.  So the function that Spark plans is always the
same, and what there is to do travels with the job as one of its local properties, which every task can read::

    driver    property "penstock.work" = pickled(run_unit, task, delivery)      collect()  ── the plan is there already
    task      read the property ──▶ run_unit(task, delivery, batches) ──▶ lines of JSON

In:  a picklable function of record batches.  Out: what its tasks report.
"""

from __future__ import annotations

import base64
import gc
import pickle
import zlib
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

from pyspark import TaskContext

from penstock.engine.spark.reports import SUMMARY, read_report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    Batches = Iterator[pa.RecordBatch]
    Work = Callable[[Batches], Batches]

R = TypeVar("R")

_FIRST, _LAST = "penstock.work.first", "penstock.work"


def do_work(batches: Batches) -> Batches:
    """Do, in a task, what its job was told; reports go to the driver."""
    return _told(_LAST, batches)


def do_first_work(batches: Batches) -> Batches:
    """Do, in a task, what comes before Spark SQL and before `do_work`."""
    return _told(_FIRST, batches)


def _told(name: str, batches: Batches) -> Batches:
    """Do what a property of the job says."""
    context = TaskContext.get()
    told = context.getLocalProperty(name) if context else None
    assert told, "the job was told nothing"  # noqa: S101 - every job here is run by `run_work`
    work: Work = pickle.loads(zlib.decompress(base64.b64decode(told)))  # noqa: S301 - written by our own driver
    yield from work(batches)
    _settling.after_task()


class _Settling:
    """Takes what a Python worker has loaded out of the garbage collector's sight.

    Spark collects garbage after every task, and a worker that has loaded compiled kernels has a million objects that
    will never be garbage: looking at them took longer than joining a hundred thousand rows.
    """

    EARLY = 16
    """Tasks after which a worker has loaded what it will."""

    def __init__(self) -> None:
        """Begin with a new worker."""
        self.tasks = 0

    def after_task(self) -> None:
        """Freeze what there is, after the worker's first few tasks."""
        if self.tasks < self.EARLY:
            self.tasks += 1
            gc.collect()
            gc.freeze()


_settling = _Settling()


def run_work(rows: DataFrame, work: Work, kind: type[R], first: Work | None = None) -> list[R]:
    """Run a job that ends in `do_work`, and give what its tasks report: values of one class."""
    with _carried(rows.sparkSession, {_LAST: work} | ({_FIRST: first} if first else {})):
        return [read_report(row.summary, kind) for row in rows.collect()]


@contextmanager
def _carried(spark: SparkSession, told: Mapping[str, Work]) -> Iterator[None]:
    """Let the jobs of this thread carry what they are told."""
    context = spark.sparkContext
    for name, work in told.items():
        context.setLocalProperty(name, base64.b64encode(zlib.compress(pickle.dumps(work), 1)).decode())
    try:
        yield
    finally:
        for name in told:
            context.setLocalProperty(name, "")


@lru_cache(maxsize=64)
def numbered(spark: SparkSession, tasks: int) -> DataFrame:
    """Give the plan of a job with so many tasks, each of which gets its number."""
    return spark.range(0, tasks, 1, tasks).mapInArrow(do_work, SUMMARY)


@lru_cache(maxsize=64)
def computed(spark: SparkSession, tasks: int, schema: str, columns: tuple[str, ...]) -> DataFrame:
    """Give the plan of a job in which Spark SQL makes columns of what a first work gives, for the last."""
    return computed_once(spark, tasks, schema, columns)


def forget_plans() -> None:
    """Make plans anew from here on: one that was made goes by the settings that the session had then."""
    numbered.cache_clear()
    computed.cache_clear()


def computed_once(spark: SparkSession, tasks: int, schema: str, columns: tuple[str, ...]) -> DataFrame:
    """Make such a plan anew: Spark sets its clock when it first runs, and draws its seeds when it is made."""
    rows = spark.range(0, tasks, 1, tasks).mapInArrow(do_first_work, schema)
    return rows.selectExpr(*columns).mapInArrow(do_work, SUMMARY)


def numbers(batches: Batches) -> Iterator[int]:
    """Read the numbers that a task was given."""
    for batch in batches:
        yield from batch.column(0).to_pylist()
