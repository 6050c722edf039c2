"""The inline runner: tasks run one after the other in this process, without Spark.

It serves `penstock.testing` and the tests of the engine.  Nothing else uses it.

In:  tasks, and a function that evaluates the expressions of an `SqlTask`.  Out: their reports.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.engine.runners.runner import Batches, Job, Sql, SqlTask, Task
    from penstock.state.files import Files

R = TypeVar("R")


@dataclass
class InlineRunner:
    """Runs tasks in this process, divided as if `parallelism` of them ran at once."""

    files: Files
    evaluate: Callable[[Sql, Batches], Batches]
    """Computes the columns that Spark SQL would compute of a task's rows."""
    parallelism: int = 2

    def map(self, tasks: Sequence[Task[R]], job: Job) -> list[R]:  # noqa: ARG002 - nothing is shown
        """Run tasks and return their reports in order."""
        return [task.run(self.files) for task in tasks]

    def map_sql(self, tasks: Sequence[SqlTask[R]], sql: Sql, job: Job) -> list[R]:  # noqa: ARG002 - see above
        """Run tasks with SQL expressions between their halves and return their reports in order."""
        return [task.finish(self.files, self.evaluate(sql, task.rows(self.files))) for task in tasks]
