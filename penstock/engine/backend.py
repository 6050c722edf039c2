"""The backend: the SQL engine that knows types and evaluates expressions, and the runner that executes tasks.

For users it is Spark (`penstock.engine.spark_backend`).  `penstock.testing` has one without a JVM::

    ingester, stages, transitions ──▶ Backend ──┬── types of columns and results, expressions as text (`Sql`)
                                                ├── batches as the source delivers them
                                                └── runner ──▶ tasks

In:  streams, plans, batches.  Out: types, expressions, and the reports of ingest tasks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from penstock.engine.aggregate.answer_job import AnswerJob
    from penstock.engine.outputs.pair_columns import PairExpressions
    from penstock.engine.runners.runner import Runner, Sql
    from penstock.engine.tasks.ingest import BatchPart, BatchSpec
    from penstock.engine.tasks.rewrite import Upgrade
    from penstock.plan.build import Plan
    from penstock.plan.group import Group
    from penstock.plan.stored import LogPlan
    from penstock.sql.query import Stream
    from penstock.state.tables import StoredFile
    from penstock.state.values import Layout

Batch = TypeVar("Batch")
"""The rows of one batch as a source delivers them: a Spark DataFrame, or an Arrow table."""


class Backend(Protocol[Batch]):
    """Knows types, and prepares batches and expressions for tasks."""

    @property
    def runner(self) -> Runner:
        """Return what executes tasks."""

    # --- types ----------------------------------------------------------------------------------------------------

    def arrow_types(self, stream: Stream) -> Mapping[str, pa.DataType]:
        """Return the Arrow type of each column of a stream."""

    def time_type(self, stream: Stream) -> pa.DataType | None:
        """Return the Arrow type of a stream's time column; None if that is not in microseconds."""

    def result_types(self, group: Group, number: int, streams: tuple[Stream, ...]) -> str:
        """Describe a query's results where a file does not tell by itself; else return nothing."""

    def answer_schema(self, group: Group, number: int, streams: tuple[Stream, ...]) -> pa.Schema:
        """Return the types of an aggregate query's keys (``g0 …``) and measures (``a0 …``)."""

    def instant_type(self, streams: tuple[Stream, ...]) -> pa.DataType:
        """Return the type of the instants at which queries over some streams are answered."""

    def can_upgrade(self, stream: Stream, log: LogPlan, old: Layout) -> bool:
        """Return whether segments of an old layout store all columns that the new layout needs."""

    # --- expressions ----------------------------------------------------------------------------------------------

    def pair_sql(self, pairs: PairExpressions) -> Sql:
        """Write the expressions that are computed of a unit's pairs."""

    def answer_sql(self, job: AnswerJob) -> Sql:
        """Write the expressions that are computed of the answers of a pane set."""

    def upgrade_sql(self, upgrade: Upgrade) -> Sql:
        """Write the predicates that are evaluated on stored rows."""

    # --- batches --------------------------------------------------------------------------------------------------

    def ingest(self, batch: Batch, stream: Stream, spec: BatchSpec) -> list[BatchPart]:
        """Write the segments of a batch."""

    def keep_late(self, batch: Batch, stream: Stream, spec: BatchSpec, folder: str) -> None:
        """Write the rows of a batch that are late, have no time or break a promise, whole, each with the reason."""

    def fed_rows(self, files: Sequence[StoredFile], stream: Stream) -> Batch:
        """Return the results of a query, which units have written to files, as a batch of its result stream."""

    def failures(self, batch: Batch, stream: Stream, plan: Plan) -> dict[str, str]:
        """Find the queries that cannot be evaluated on a batch, each with the reason."""
