"""The tasks of a run: the only code that touches rows.

A task is a frozen dataclass with ``run(files)``; with ``rows(files)`` and ``finish(files, rows)``, where Spark SQL
computes columns in between; or with ``finish`` alone, where Spark delivers the rows.  Python workers import this module
before their first task (`penstock.engine.daemon`).
"""

from __future__ import annotations

from penstock.engine.aggregate.answer_job import AnswerJob
from penstock.engine.tasks.ingest import IngestTask
from penstock.engine.tasks.join import FoldTask, JoinTask
from penstock.engine.tasks.merge import MergeTask
from penstock.engine.tasks.parquet_reader import ParquetTask
from penstock.engine.tasks.propagate import PropagationTask
from penstock.engine.tasks.release import ReleaseTask
from penstock.engine.tasks.rewrite import FinishedTask, RewriteTask, UpgradeTask
from penstock.engine.tasks.row_windows import SpanTask
from penstock.state.promise_merges import PromiseMerge
from penstock.state.promises import BrokenTask
from penstock.state.row_times import Sealing

TASKS = (
    IngestTask,
    ParquetTask,
    JoinTask,
    FoldTask,
    AnswerJob,
    ReleaseTask,
    PropagationTask,
    Sealing,
    SpanTask,
    RewriteTask,
    FinishedTask,
    BrokenTask,
    PromiseMerge,
    MergeTask,
    UpgradeTask,
)
"""The tasks of a run."""
