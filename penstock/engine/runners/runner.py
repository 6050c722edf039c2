"""Tasks, and the runner that executes them.

A task is a frozen dataclass that describes work on rows.  It is the only code that touches rows.  A runner is the only
code that knows where tasks run::

    stages, ingest, transitions ──▶ Runner ──┬── SparkRunner    a Spark job without a shuffle
                                             └── InlineRunner   one task after the other, for `penstock.testing`

Tasks are idempotent: a task may run twice (a retry, speculation), and only the files in the report of the attempt that
Spark counts are committed.

In:  tasks.  Out: their reports, in the order of the tasks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from penstock.state.files import Files

    Batches = Iterator[pa.RecordBatch]

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Task(Protocol[R_co]):
    """Work on rows that are in files."""

    def run(self, files: Files) -> R_co:
        """Do the work and return the report."""


class RowsTask(Protocol[R_co]):
    """Work on rows that Spark delivers."""

    def finish(self, files: Files, rows: Batches) -> R_co:
        """Take all rows of one partition and return the report."""


class SqlTask(RowsTask[R_co], Protocol[R_co]):
    """Work in two halves, with SQL expressions between them: `rows`, then Spark SQL, then `finish`."""

    def rows(self, files: Files) -> Batches:
        """Read the rows that the expressions are evaluated on."""


@dataclass(frozen=True, slots=True)
class Sql:
    """The expressions between the two halves of a task: the schema of the rows (DDL), and the columns to compute.

    A plan is reused for the same expressions, unless they have to be planned `anew` for each job, as clocks and seeds
    do.
    """

    schema: str
    columns: tuple[str, ...]
    anew: bool = False


@dataclass(frozen=True, slots=True)
class Job:
    """How Spark shows a job: its stage (a job group and a scheduler pool) and a description."""

    stage: str
    description: str


ROWS, PAIRS, RESULTS, RELEASED, ANSWERS = (
    "rows ingested",
    "pairs joined",
    "results",
    "results released",
    "answers",
)
"""Names of the accumulators, to which the runner adds the `counts` of each report."""


def counted(number: int, one: str, more: str) -> str:
    """Write a number with its noun, for a description.

    >>> counted(1, "query", "queries"), counted(12, "query", "queries")
    ('1 query', '12 queries')
    """
    return f"{number:,} {one if number == 1 else more}"


class Runner(Protocol):
    """Executes tasks."""

    @property
    def parallelism(self) -> int:
        """Return the number of tasks that run at once."""

    def map(self, tasks: Sequence[Task[R]], job: Job) -> list[R]:
        """Run tasks and return their reports in order."""

    def map_sql(self, tasks: Sequence[SqlTask[R]], sql: Sql, job: Job) -> list[R]:
        """Run tasks with SQL expressions between their halves and return their reports in order."""
