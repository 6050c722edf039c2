"""The Spark runner: tasks become a Spark job, and their reports come back to the driver.

Planning a job and pickling its function take longer than many a job.  So the function that Spark plans is always the
same, and the tasks travel with the job as a local property, which every Spark task can read::

    driver      property "penstock.tasks" = pickled tasks        collect()  ── the plan is there already
    executor    read the property ──▶ tasks[i].run(files) ──▶ reports

The driver sees reports (file names and counts), never rows.

In:  tasks.  Out: their reports, in the order of the tasks.
"""

from __future__ import annotations

import base64
import gc
import pickle
import uuid
import zlib
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from pyspark import TaskContext

from penstock import limits
from penstock.engine.runners.runner import ANSWERS, PAIRS, RELEASED, RESULTS, ROWS, Job
from penstock.errors import RunError
from penstock.kernels.warm import warm_up

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark import Accumulator, SparkContext
    from pyspark.sql import DataFrame, SparkSession

    from penstock.engine.runners.runner import Batches, RowsTask, Sql, SqlTask, Task
    from penstock.state.files import Files

R = TypeVar("R")

PROPERTY = "penstock.tasks"
"""The local property that carries the tasks of a job."""

_GROUP = "spark.jobGroup.id"

REPORT = "job string, number int, report binary"
"""The schema of what Spark tasks return: their job, the number of a task, and its pickled report."""


class SparkRunner:
    """Runs tasks on a Spark session, for one state."""

    def __init__(self, spark: SparkSession, files: Files) -> None:
        """Run tasks on this session; they read and write these files."""
        self.spark, self.files = spark, files
        self.has_run = False
        """Whether a job of this runner has succeeded."""
        self._plans: dict[object, DataFrame] = {}
        """Plans by their number of tasks and their expressions."""
        names = (ROWS, PAIRS, RESULTS, RELEASED, ANSWERS)
        self._accumulators = {name: spark.sparkContext.accumulator(0) for name in names}

    @property
    def parallelism(self) -> int:
        """Return the number of tasks that run at once: the cores of the present executors."""
        return int(self.spark.sparkContext.defaultParallelism)

    @property
    def counts(self) -> dict[str, int]:
        """Return the values of the accumulators by name."""
        return {name: int(accumulator.value) for name, accumulator in self._accumulators.items()}

    def map(self, tasks: Sequence[Task[R]], job: Job) -> list[R]:
        """Run tasks and return their reports in order; a Spark task runs one of them, or every n-th."""
        if not tasks:
            return []
        parts = min(len(tasks), self.parallelism)
        plan = self._plans.get(parts) or self._numbers(parts).mapInArrow(run_tasks, REPORT)
        return self._run(self._kept(parts, plan), tasks, job, parts)

    def map_sql(self, tasks: Sequence[SqlTask[R]], sql: Sql, job: Job) -> list[R]:
        """Run tasks with Spark SQL between their halves: one Spark task each."""
        if not tasks:
            return []
        key = len(tasks), sql.schema, sql.columns
        plan = None if sql.anew else self._plans.get(key)
        if plan is None:
            rows = self._numbers(len(tasks)).mapInArrow(begin_tasks, sql.schema)
            plan = rows.selectExpr(*sql.columns).mapInArrow(finish_tasks, REPORT)
        return self._run(plan if sql.anew else self._kept(key, plan), tasks, job)

    def _kept(self, key: object, plan: DataFrame) -> DataFrame:
        """Keep a plan for the next job of its kind; forget all plans if there are too many."""
        if key not in self._plans and len(self._plans) >= limits.MAX_CACHED_PLANS:
            self._plans.clear()
        self._plans[key] = plan
        return plan

    def _numbers(self, parts: int) -> DataFrame:
        """Return a row for each Spark task, its number."""
        return self.spark.range(0, parts, 1, parts)

    def map_rows(self, rows: DataFrame, task: RowsTask[R], job: Job) -> list[R]:
        """Run a task on every partition of a DataFrame."""
        return self._run(rows.mapInArrow(finish_tasks, REPORT), [task], job)

    def _run(self, plan: DataFrame, tasks: Sequence[Any], job: Job, parts: int = 1) -> list[Any]:
        context, name = self.spark.sparkContext, uuid.uuid4().hex
        work = _CarriedTasks(name, self.files, tuple(tasks), parts, self._accumulators)
        with described(context, job), carried(context, work):
            reports = plan.collect()
        if any(report.job != name for report in reports):
            raise RunError(
                "a Spark job ran the tasks of another one: set PYSPARK_PIN_THREAD to true, as it is by default"
            )
        self.has_run = True
        return [pickle.loads(report.report) for report in sorted(reports, key=_number)]  # noqa: S301 - of our own tasks


@dataclass(frozen=True, slots=True)
class _CarriedTasks:
    """The tasks of a job, the files they read and write, and the number of Spark tasks that share them."""

    name: str
    """A unique name of the job."""
    files: Files
    tasks: tuple[Any, ...]
    parts: int
    accumulators: Mapping[str, Accumulator[int]]

    def report(self, number: int, report: object) -> pa.RecordBatch:
        """Add the counts of a report to the accumulators, and return the report as a row."""
        for part in report if isinstance(report, list) else (report,):
            for name, count in getattr(part, "counts", {}).items():
                self.accumulators[name].add(count)
        return pa.RecordBatch.from_arrays(
            [
                pa.array([self.name]),
                pa.array([number], pa.int32()),
                pa.array([pickle.dumps(report)], pa.binary()),
            ],
            ["job", "number", "report"],
        )


def _number(row: Any) -> int:
    return int(row.number)


@contextmanager
def described(context: SparkContext, job: Job) -> Iterator[None]:
    """Show the jobs of this thread under a description, in the job group and the scheduler pool of their stage."""
    properties = {
        _GROUP: f"penstock {job.stage}",
        "spark.job.description": job.description,
        "spark.scheduler.pool": job.stage,
    }
    before = {name: context.getLocalProperty(name) for name in properties}
    if before[_GROUP]:  # of a streaming query: Spark cancels its jobs by this group
        del properties[_GROUP]
    _set_properties(context, properties)
    try:
        yield
    finally:
        _set_properties(context, before)


@contextmanager
def carried(context: SparkContext, work: _CarriedTasks) -> Iterator[None]:
    """Add tasks to the jobs of this thread."""
    _set_properties(context, {PROPERTY: base64.b64encode(zlib.compress(pickle.dumps(work), 1)).decode()})
    try:
        yield
    finally:
        _set_properties(context, {PROPERTY: None})


def _set_properties(context: SparkContext, properties: Mapping[str, str | None]) -> None:
    """Set local properties of this thread's jobs; None removes one."""
    for name, value in properties.items():
        context.setLocalProperty(name, value)  # type: ignore[arg-type]


def start_workers(spark: SparkSession) -> None:
    """Start a Python worker for each core of the executors, and let it load the compiled kernels."""
    cores = spark.sparkContext.defaultParallelism
    with described(spark.sparkContext, Job("start", "start Python workers")):
        spark.range(0, cores, 1, cores).mapInArrow(load_kernels, REPORT).collect()


# --- on the executors -----------------------------------------------------------------------------------------------


def load_kernels(batches: Batches) -> Batches:
    """Load the compiled kernels, where the daemon has not loaded them before it forked this worker."""
    for _ in batches:
        warm_up()
    return iter(())


def run_tasks(batches: Batches) -> Batches:
    """Run the tasks of one Spark task, and yield their reports."""
    work = _carried()
    for first in _numbers(batches):
        for number in range(first, len(work.tasks), work.parts):
            yield work.report(number, work.tasks[number].run(work.files))
    _settling.after_task()


def begin_tasks(batches: Batches) -> Batches:
    """Yield the rows of a task, for Spark SQL."""
    work = _carried()
    for number in _numbers(batches):
        yield from work.tasks[number].rows(work.files)
    _settling.after_task()


def finish_tasks(batches: Batches) -> Batches:
    """Pass the rows of a partition to its task, and yield the report; one task may serve all partitions."""
    work, context = _carried(), TaskContext.get()
    number = context.partitionId() if context else 0
    yield work.report(number, work.tasks[min(number, len(work.tasks) - 1)].finish(work.files, batches))
    _settling.after_task()


def _carried() -> _CarriedTasks:
    """Read the tasks that a job carries."""
    context = TaskContext.get()
    text = context.getLocalProperty(PROPERTY) if context else None
    if not text:
        raise RunError("the job carries no tasks: it was not run by a SparkRunner")
    work: _CarriedTasks = pickle.loads(zlib.decompress(base64.b64decode(text)))  # noqa: S301 - ours
    return work


def _numbers(batches: Batches) -> Iterator[int]:
    """Read the numbers of a Spark task's rows."""
    for batch in batches:
        yield from batch.column(0).to_pylist()


class _Settling:
    """Excludes the objects that a Python worker has loaded from garbage collection.

    Spark collects garbage after every task.  A worker with compiled kernels has a million permanent objects; scanning
    them took longer than joining a hundred thousand rows.
    """

    EARLY = 16
    """Tasks after which a worker has loaded everything."""

    def __init__(self) -> None:
        self.tasks = 0

    def after_task(self) -> None:
        """Freeze all objects, after each of the worker's first tasks."""
        if self.tasks < self.EARLY:
            self.tasks += 1
            gc.collect()
            gc.freeze()


_settling = _Settling()
