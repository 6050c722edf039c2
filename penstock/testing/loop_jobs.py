"""The engine's work as plain loops: the same tasks, one after the other, in this process; batches are Arrow tables.

What Spark SQL would compute of rows and pairs is computed by `penstock.testing.expression`, exactly or not at all.

In:  frozen task descriptions.  Out: what the tasks report, for one commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.engine.change.upgrade import new_predicates, write_upgraded
from penstock.engine.ingest.batch_task import run_ingest, set_aside
from penstock.engine.ingest.promise_columns import with_elements
from penstock.engine.out.answers import deliver_answers
from penstock.engine.out.deliver import run_delivery, run_row_folds
from penstock.engine.out.pane_answers import answer_rows
from penstock.engine.out.propagation import run_propagation
from penstock.engine.out.release import run_release
from penstock.engine.units.unit_task import find_rows, run_probe
from penstock.log.promises import count_broken, merge_promises
from penstock.log.rewrite import RewrittenRun, count_finished, rewrite_segments
from penstock.log.row_times import seal
from penstock.log.segment import read_segment
from penstock.log.table_merge import merge_or_say
from penstock.plan.spark_settings import SparkSettings
from penstock.testing.answer_values import answer_schema, answer_types, with_answers
from penstock.testing.expression.evaluate import NeedsSparkError, evaluate, type_of
from penstock.testing.pair_values import with_computed
from penstock.testing.row_values import arrow_types, exploded, row_columns, row_times

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from penstock.engine.change.upgrade import Upgrade
    from penstock.engine.ingest.batch_task import BatchPart, BatchTask
    from penstock.engine.out.answer_task import Counted, PaneReport
    from penstock.engine.out.answers import AnswerJob, AnswerReport
    from penstock.engine.out.deliver import Delivery, UnitReport
    from penstock.engine.out.pair_columns import PairExpressions
    from penstock.engine.out.propagation import Propagation, PropagationReport
    from penstock.engine.out.release import Release, ReleaseReport
    from penstock.engine.units.unit_task import UnitTask
    from penstock.log.claims import Claim
    from penstock.log.files import Files
    from penstock.log.promises import PromiseFiles, PromiseMerge
    from penstock.log.relayout import Common
    from penstock.log.row_times import Sealing
    from penstock.log.segment import Segment
    from penstock.log.tables import Merge, StoredFile
    from penstock.log.values import Layout
    from penstock.plan.build import Plan
    from penstock.plan.group import Group
    from penstock.plan.stored import LogPlan
    from penstock.sql.query import Stream


class LoopJobs:
    """Runs the engine's work in this process, for one state."""

    def __init__(self, files: Files, *, tasks: int = 2, settings: SparkSettings | None = None) -> None:
        """Divide the work among so many tasks, as Spark would; expressions mean what they do under these settings."""
        self.files, self.tasks, self.settings = files, tasks, settings or SparkSettings()
        self._answers: dict[str, dict[str, str]] = {}

    @property
    def parallelism(self) -> int:
        """Give the number of tasks that work is divided among."""
        return self.tasks

    def begin_units(self) -> None:
        """Do nothing: there is one thread."""

    def arrow_types(self, stream: Stream) -> dict[str, pa.DataType]:
        """Give the Arrow type of each column of a stream."""
        return arrow_types(stream, self.settings)

    def time_type(self, stream: Stream) -> pa.DataType | None:
        """Give the Arrow type of a stream's time column; None for a date, which is not in microseconds."""
        untimed = stream.timeless or stream.time_type == "date"
        return None if untimed else self.arrow_types(stream)[stream.time]

    def result_types(self, *_: object) -> str:
        """Say nothing: types that a file does not tell by itself are not understood here."""
        return ""

    # --- batches --------------------------------------------------------------------------------------------------

    def ingest(self, batch: pa.Table, stream: Stream, task: BatchTask) -> list[BatchPart]:
        """Write a batch's segments: its rows are dealt out to the tasks."""
        rows = self.with_ingest_columns(batch, stream, task).select(task.columns())
        tasks = 1 if task.arrival else self.tasks  # the order of arrival is counted by one
        dealt = [rows.take(np.arange(number, rows.num_rows, tasks)) for number in range(tasks)]
        return [part for each in dealt for part in run_ingest(task, each.combine_chunks().to_batches())]

    def with_ingest_columns(self, batch: pa.Table, stream: Stream, task: BatchTask) -> pa.Table:
        """Add to a batch what its logs need: event time, keys and predicate bits."""
        rows = exploded(batch, stream, self.settings)
        return row_columns(rows, with_elements(stream), task.computed_for, self.settings)

    def keep_aside(self, batch: pa.Table, stream: Stream, watermark: int | None, folder: str) -> None:
        """Write the rows of a batch that are late or have no time, whole."""
        times = row_times(batch, stream)
        late = pc.is_null(times)
        if watermark is not None:
            late = pc.or_(late, pc.fill_null(pc.less(times, watermark), fill_value=False))
        sink = pa.BufferOutputStream()
        pq.write_table(batch.filter(late), sink)
        self.files.put(f"{folder}/part-00000.parquet", sink.getvalue().to_pybytes())

    def keep_aside_with_reasons(self, batch: pa.Table, stream: Stream, task: BatchTask, folder: str) -> None:
        """Write the same, and the rows that break a promise, with the reason for each."""
        whole = self.with_ingest_columns(batch, stream, task)
        kept = set_aside(task, whole.combine_chunks(), [each.name for each in stream.columns])
        sink = pa.BufferOutputStream()
        pq.write_table(kept, sink)
        self.files.put(f"{folder}/part-00000.parquet", sink.getvalue().to_pybytes())

    def fed_rows(self, files: Sequence[StoredFile], stream: Stream) -> pa.Table:
        """Read the results of a query, in the order of its units."""
        names = [each.name for each in stream.columns]
        parts = [pq.read_table(self.files.memory_map(each.name), columns=names) for each in files]
        types = pa.schema(self.arrow_types(stream).items())
        return pa.concat_tables([each.select(names).cast(types) for each in parts])

    def failures(self, _batch: pa.Table, _stream: Stream, _plan: Plan) -> dict[str, str]:
        """Blame nobody: an expression that fails in a test should be seen as it is."""
        return {}

    # --- units ----------------------------------------------------------------------------------------------------

    def join(
        self, task: UnitTask, delivery: Delivery, pairs: PairExpressions | None = None
    ) -> list[UnitReport]:
        """Probe and deliver, one range of hashes after the other."""
        reports = []
        for part in range(task.parts):
            if pairs is None:
                reports.append(run_delivery(delivery, part, task.find([part])))
                continue
            computed = (with_computed(each, pairs, self.settings) for each in run_probe(task, [part]))
            reports.append(run_delivery(delivery, part, computed))
        return reports

    def fold(self, task: UnitTask, delivery: Delivery) -> list[UnitReport]:
        """Fold the rows of one range of hashes after the other."""
        return [run_row_folds(delivery, find_rows(task, [part])) for part in range(task.parts)]

    def rewrite(
        self,
        log: str,
        runs: Sequence[tuple[Segment, ...]],
        claims: Sequence[Claim],
        common: Common | None = None,
    ) -> list[RewrittenRun]:
        """Rewrite one run after the other."""
        return [rewrite_segments(self.files, log, run, claims, common) for run in runs]

    def look(self, segments: Sequence[Segment], claims: Mapping[int, Sequence[Claim]]) -> list[RewrittenRun]:
        """Hold one segment after the other against promises."""
        return [count_finished(self.files, each, claims[each.layout]) for each in segments]

    def merge_promises(self, merges: Sequence[PromiseMerge]) -> list[Segment | None]:
        """Merge one run of files of promises after the other."""
        return [merge_promises(self.files, each) for each in merges]

    def count_broken(self, segments: Sequence[Segment], known: PromiseFiles) -> int:
        """Hold one segment after the other against promises of its own stream."""
        return sum(count_broken(self.files, each, known) for each in segments)

    def seal(self, sealings: Sequence[Sealing]) -> list[Segment | None]:
        """Seal one stream after the other."""
        return [seal(self.files, each) for each in sealings]

    def release(self, releases: Sequence[Release]) -> list[ReleaseReport]:
        """Release one query's results after the other."""
        return [run_release(self.files, each) for each in releases]

    def answer_schema(self, group: Group, number: int, streams: tuple[Stream, ...]) -> pa.Schema:
        """Give the types of an aggregate query's keys and measures."""
        query = group.members[number].query
        self._answers[query.name] = answer_types(query, streams, self.settings)
        return answer_schema(query, streams, self.settings)

    def instant_type(self, streams: tuple[Stream, ...]) -> pa.DataType:
        """Give the type of window_end."""
        ntz = {each.time_type for each in streams} == {"timestamp_ntz"}
        return pa.timestamp("us", None if ntz else self.settings.zone)

    def answer(self, jobs: Sequence[AnswerJob]) -> list[AnswerReport]:
        """Answer from one pane set after the other."""
        return [deliver_answers(self.files, each, self._answered(each)) for each in jobs]

    def propagate(self, tasks: Sequence[Propagation]) -> list[PropagationReport]:
        """Tell one query after the other."""
        return [run_propagation(self.files, each) for each in tasks]

    def _answered(self, job: AnswerJob) -> Iterator[pa.RecordBatch | Counted | PaneReport]:
        kinds = self._answers[job.readers[0].query]
        for each in answer_rows(self.files, job.task):
            if isinstance(each, pa.RecordBatch):
                yield from with_answers(each, job, kinds, self.settings)
            else:
                yield each

    def merge(self, merges: Sequence[Merge]) -> list[StoredFile | str | None]:
        """Merge one run of files after the other."""
        return [merge_or_say(self.files, each) for each in merges]

    # --- changes of plan ------------------------------------------------------------------------------------------

    def can_upgrade(self, stream: Stream, log: LogPlan, old: Layout) -> bool:
        """Say whether the new predicates can be answered by the columns that are stored."""
        new = new_predicates(log, old)
        if not new or not set(log.columns) <= set(old.columns):
            return False
        types = {each.name: each.type for each in stream.columns if each.name in old.columns}
        try:
            return all(type_of(each, types, ansi=self.settings.ansi) for each in new)
        except NeedsSparkError:
            raise
        except Exception:  # noqa: BLE001 - a column that nobody stored
            return False

    def upgrade(self, upgrade: Upgrade) -> list[Segment]:
        """Write one segment after the other under its log's new layout."""
        types = {each.name: each.type for each in upgrade.stream.columns if each.name in upgrade.old.columns}
        made = []
        for number, segment in enumerate(upgrade.segments):
            rows = read_segment(self.files, segment)
            table = pa.table({name: rows.column(name) for name in types})
            answers = {
                each: pc.fill_null(self._evaluate(each, table, types), fill_value=False).to_numpy(
                    zero_copy_only=False
                )
                for each in new_predicates(upgrade.log, upgrade.old)
            }
            made.append(write_upgraded(self.files, upgrade, number, answers))
        return made

    def _evaluate(self, expression: str, rows: pa.Table, types: dict[str, str]) -> pa.Array:
        return evaluate(expression, rows, types, zone=self.settings.zone, ansi=self.settings.ansi)
