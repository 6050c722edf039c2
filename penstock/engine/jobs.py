"""Who runs the work: one protocol, with Spark behind it here and plain loops behind it in `penstock.testing`.

The engine decides what is to be done and commits what was done; a job does it, in tasks that write files and report
what they wrote.  Nothing above this line knows where a task runs::

    ingester, turn, transition ──▶ Jobs ──┬── SparkJobs   a map without a shuffle, tasks on the executors
                                          └── LoopJobs    one task after the other, in this process

In:  frozen task descriptions.  Out: what the tasks report, in the order of the descriptions, for one commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from penstock.engine.change.upgrade import Upgrade
    from penstock.engine.ingest.arrow_reader import PlainBatch
    from penstock.engine.ingest.batch_task import BatchPart, BatchTask
    from penstock.engine.out.answers import AnswerJob, AnswerReport
    from penstock.engine.out.deliver import Delivery, UnitReport
    from penstock.engine.out.pair_columns import PairExpressions
    from penstock.engine.out.propagation import Propagation, PropagationReport
    from penstock.engine.out.release import Release, ReleaseReport
    from penstock.engine.units.unit_task import UnitTask
    from penstock.log.claims import Claim
    from penstock.log.promises import PromiseFiles, PromiseMerge
    from penstock.log.relayout import Common
    from penstock.log.rewrite import RewrittenRun
    from penstock.log.row_times import Sealing
    from penstock.log.segment import Segment
    from penstock.log.tables import Merge, StoredFile
    from penstock.log.values import Layout
    from penstock.plan.build import Plan
    from penstock.plan.group import Group
    from penstock.plan.stored import LogPlan
    from penstock.sql.query import Stream

Batch = TypeVar("Batch")
"""The rows of one batch as a source hands them over: a DataFrame of Spark's, or a table of Arrow's."""


class UnitJobs(Protocol):
    """The work of turns and transitions, which knows nothing of sources."""

    @property
    def parallelism(self) -> int:
        """Give the number of tasks that run at once."""

    def begin_units(self) -> None:
        """Get ready to run the work of units in this thread."""

    def arrow_types(self, stream: Stream) -> Mapping[str, pa.DataType]:
        """Give the Arrow type of each column of a stream."""

    def result_types(self, group: Group, number: int, streams: tuple[Stream, ...]) -> str:
        """Describe a query's results where a file does not tell by itself; else give nothing."""

    def join(
        self, task: UnitTask, delivery: Delivery, pairs: PairExpressions | None = None
    ) -> list[UnitReport]:
        """Find the pairs of a unit and deliver them, computing what some queries need of them."""

    def fold(self, task: UnitTask, delivery: Delivery) -> list[UnitReport]:
        """Fold the new rows of a unit, for queries that want no pairs."""

    def rewrite(
        self,
        log: str,
        runs: Sequence[tuple[Segment, ...]],
        claims: Sequence[Claim],
        common: Common | None = None,
    ) -> list[RewrittenRun]:
        """Make one segment of each run, of the rows still of use."""

    def look(self, segments: Sequence[Segment], claims: Mapping[int, Sequence[Claim]]) -> list[RewrittenRun]:
        """Count the rows of some segments that promises have made useless; claims are by layout."""

    def merge_promises(self, merges: Sequence[PromiseMerge]) -> list[Segment | None]:
        """Make one file of each of some runs of files of promises; None where none was left."""

    def seal(self, sealings: Sequence[Sealing]) -> list[Segment | None]:
        """Put the times of some streams in order; None where there are none."""

    def release(self, releases: Sequence[Release]) -> list[ReleaseReport]:
        """Put the results that are due in order, query by query."""

    def answer_schema(self, group: Group, number: int, streams: tuple[Stream, ...]) -> pa.Schema:
        """Give the types of an aggregate query's keys (``g0 …``) and measures (``a0 …``)."""

    def instant_type(self, streams: tuple[Stream, ...]) -> pa.DataType:
        """Give the type of the instants at which queries over two streams are answered."""

    def answer(self, jobs: Sequence[AnswerJob]) -> list[AnswerReport]:
        """Answer aggregate queries from their panes, one pane set after the other."""

    def propagate(self, tasks: Sequence[Propagation]) -> list[PropagationReport]:
        """Find and write the values that are finished, query by query."""

    def merge(self, merges: Sequence[Merge]) -> list[StoredFile | str | None]:
        """Merge files of results; None where nothing was left, a word where that cannot be done."""

    def can_upgrade(self, stream: Stream, log: LogPlan, old: Layout) -> bool:
        """Say whether segments of an old layout hold all that it takes to write them under the new one."""

    def upgrade(self, upgrade: Upgrade) -> list[Segment]:
        """Write segments again under a log's new layout."""


class Jobs(UnitJobs, Protocol[Batch]):
    """All the work of an engine: also that of batches, which come from sources of one kind."""

    def time_type(self, stream: Stream) -> pa.DataType | None:
        """Give the Arrow type of a stream's time column; None if that is not in microseconds."""

    def ingest(self, batch: Batch, stream: Stream, task: BatchTask) -> list[BatchPart]:
        """Write the segments of a batch."""

    def keep_aside(self, batch: Batch, stream: Stream, watermark: int | None, folder: str) -> None:
        """Write the rows of a batch that are late or have no time, whole, into a directory of the state."""

    def keep_aside_with_reasons(self, batch: Batch, stream: Stream, task: BatchTask, folder: str) -> None:
        """Write the same, and the rows that break a promise, with the reason for each."""

    def count_broken(self, segments: Sequence[Segment], known: PromiseFiles) -> int:
        """Count the rows of some segments that come after a promise of their own stream."""

    def fed_rows(self, files: Sequence[StoredFile], stream: Stream) -> Batch:
        """Give the results of a query, which units have written into files, as a batch of the stream that they are."""

    def failures(self, batch: Batch, stream: Stream, plan: Plan) -> dict[str, str]:
        """Find the queries that cannot be evaluated on a batch, each with the reason."""


class SourceJobs(Jobs[Batch], Protocol[Batch]):
    """The work of an engine whose batches come from real sources: some can be read without the source."""

    def ingest_files(self, batch: PlainBatch, task: BatchTask) -> list[BatchPart]:
        """Write the segments of a batch of files that tasks read themselves."""
