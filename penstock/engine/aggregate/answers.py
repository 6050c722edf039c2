"""Answers: when the readers of a pane set are answered, where that goes, and the commit that makes it true.

    watermarks ──▶ who is due ──▶ AnswerTask ──▶ rows (pane_answers) ──▶ Spark SQL, where it is asked for ──▶ sinks

*Sliding*: instant E is answered when both watermarks have passed it.  *Final*: a bucket is answered when no row still
to come can make a pair in it; what has no bucket, when the input ends.  *Changes*: after every unit.

In:  the plan and the ledger.  Out: `AnswerJob`s, one task each, and the ``answer`` commit made of what they report.
"""

from __future__ import annotations

import json
import time
import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock import limits
from penstock.engine.aggregate.answer_task import (
    INSTANT,
    LONG_AGO,
    NOTE,
    READER,
    WAS,
    AnswerTask,
    Counted,
    Due,
    PaneReport,
)
from penstock.engine.aggregate.pane_answers import answer_rows
from penstock.engine.aggregate.pane_fold import FoldSpec
from penstock.engine.runners.runner import ANSWERS, Job, counted
from penstock.engine.sinks.sinks import SPOOLED, kept_files, publications, results_folder, sink_root
from penstock.engine.spark.failed_queries import find_failed_queries
from penstock.engine.views.finished import finished_keys
from penstock.engine.views.horizon import horizon, side_marks
from penstock.errors import InputError
from penstock.plan.panes import aggregation_of, seen_back
from penstock.plan.promises import finishing_of
from penstock.sql.query import FOREVER
from penstock.state.codec import from_json, to_json
from penstock.state.commits import Answered, Output
from penstock.state.output_file import OutputFile, WrittenFile
from penstock.state.recent import delays_of
from penstock.state.spark_schema import SPARK_SCHEMA
from penstock.state.values import by_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from penstock.engine.backend import Backend
    from penstock.engine.views.finished import FinishedKeys
    from penstock.engine.views.horizon import IdleClock
    from penstock.plan.build import Plan
    from penstock.sql.query import Answer, Query
    from penstock.state.files import Files
    from penstock.state.ledger import Ledger
    from penstock.state.panes import PaneFile, PaneState

ANSWER = "answer-"
"""How the id of some answers begins, by which a callback gets them."""

FEW_INSTANTS = 4
"""Instants to a task, on average, below which dividing them is not worth it."""

_WAITING_WINDOWS = 2
"""Where answers wait for each other, so many windows' lengths of instants are answered in one go."""

_WAITING_FANS = 3
"""Where answers wait for each other, so many times the usual number of files are merged: still few enough that each is
read as it is (`MOST_RUNS` in `penstock.engine.aggregate.row_sliding`)."""

_BIRTHS_TO_A_FILE = 16
"""A file's entries are taken to be born at this many evenly spaced times."""

LOOK_SHARE = 1024
"""Groups are held against promises when one has taken effect for each so many of them."""

WINDOW_END, OPERATION, SEQUENCE = "window_end", "_op", "_seq"
"""Columns of answers that are not in the SELECT list."""


@dataclass(frozen=True, slots=True)
class Reader:
    """One query that is answered: the columns of its result, and where they go."""

    query: str
    number: int
    """Which of its job's readers it is."""
    columns: tuple[tuple[str, str], ...]
    """Its answers: the name of each, and which key or measure it is, where none is an expression."""
    answers: tuple[Answer, ...]
    having: str
    emit: str
    instant: pa.DataType
    """The type of window_end."""
    types: str
    """Spark's description of its columns (JSON), where a file does not tell by itself."""
    root: str
    final: str
    compression: str
    spooled: bool = False
    kept: str = ""
    again: bool = False
    """Whether it is told all its groups again; then what no longer holds is taken back, told or not."""

    @property
    def computed(self) -> bool:
        """Say whether Spark SQL makes its answers, or decides which there are."""
        return bool(self.having) or not all(each.plain for each in self.answers)

    @property
    def is_counted(self) -> bool:
        """Say whether its answers are only counted, all of them."""
        return not (self.computed or self.root or self.kept) and self.emit != "changes"

    def file(self, files: Files, part: int) -> OutputFile | None:
        """Name the file of some answers, for a sink or for the state to keep; None if they are only counted."""
        if self.kept:
            name = f"{self.kept}/{self.final}-{uuid.uuid4().hex}.parquet"
            return OutputFile(files.root, name, kept=True)
        if not self.root:
            return None
        return OutputFile(self.root, f"{self.final}-{part:04d}.parquet", self.compression)


@dataclass(frozen=True, slots=True)
class AnswerJob:
    """What one task is told: what is asked of a pane set, and the readers that are answered."""

    task: AnswerTask
    readers: tuple[Reader, ...]
    answered: Mapping[str, int]
    """How far each reader has been answered when this is done."""
    promises_seen: float | None = None
    """How many promises its groups are held against; None if none ends them."""

    @property
    def computed(self) -> bool:
        """Say whether some answer needs Spark SQL."""
        return any(each.computed for each in self.readers)

    def run(self, files: Files) -> AnswerReport:
        """Answer from the panes and write the answers."""
        return deliver_answers(files, self, answer_rows(files, self.task))

    def rows(self, files: Files) -> Iterator[pa.RecordBatch]:
        """Answer from the panes, for Spark SQL; the report on the pane files is a row among the others."""
        for each in answer_rows(files, self.task):
            yield _noted(self, each) if isinstance(each, PaneReport) else each

    def finish(self, files: Files, rows: Iterator[pa.RecordBatch]) -> AnswerReport:
        """Write the answers that Spark SQL has computed."""
        return deliver_answers(files, self, (part for batch in rows for part in _without_note(batch)))


@dataclass(frozen=True, slots=True)
class AnswerReport:
    """What a task has answered, and what became of the panes."""

    panes: PaneReport
    results: Mapping[str, int] = field(default_factory=dict)
    files: tuple[WrittenFile, ...] = ()

    @property
    def counts(self) -> dict[str, int]:
        """Return what the runner adds up."""
        return {ANSWERS: sum(self.results.values())}


# --- who is due -----------------------------------------------------------------------------------------------------


def choose_answers(
    plan: Plan,
    ledger: Ledger,
    files: Files,
    backend: Backend[Any],
    silence: IdleClock | None = None,
    *,
    everything: bool = False,
    together: bool = False,
) -> list[AnswerJob]:
    """List what can be answered by now; `everything`: all input that is there is all there is.

    `together`: answers wait for each other, since each go reads all that a window holds::

        every unit     [ window ]a  [ window ]b  [ window ]c        together     [ window ]abc
    """
    asking = [_Asking(plan, ledger, state, silence, everything=everything) for state in ledger.panes.values()]
    shares = 1 if together else backend.runner.parallelism  # while there is input, other cores join
    return [
        job for each in asking if each.is_due(together=together) for job in each.jobs(files, backend, shares)
    ]


def is_answer_due(
    plan: Plan,
    ledger: Ledger,
    silence: IdleClock | None = None,
    *,
    everything: bool = False,
    together: bool = False,
) -> bool:
    """Say whether somebody is to be answered by now."""
    return any(
        _Asking(plan, ledger, state, silence, everything=everything).is_due(together=together)
        for state in ledger.panes.values()
    )


class _Asking:
    """The readers of one pane set, and how far each can be answered."""

    def __init__(
        self, plan: Plan, ledger: Ledger, state: PaneState, silence: IdleClock | None, *, everything: bool
    ) -> None:
        self.plan, self.ledger, self.state, self.silence = plan, ledger, state, silence
        self.everything = everything
        names = {each.name: each for each in plan.queries}
        self.queries = [names[each] for each in state.panes.readers if each in names]

    def is_due(self, *, together: bool) -> bool:
        """Say whether there is something to answer, to fold or to merge."""
        state = self.state
        if not state.files or not self.queries:
            return False
        if any(self.ledger.query(each.name).backfill for each in self.queries):
            return False  # its past comes first
        fresh = [each for each in state.files if not each.folded]
        if state.panes.emit == "changes":
            return bool(fresh) or any(self._is_told_again(each) for each in self.queries)
        if state.panes.emit == "final":
            due = any(each.first <= self._limit() for each in fresh) or _crowded(state, limits.MERGE_FAN_IN)
            return due or self._may_have_finished()
        return self._is_sliding_due(fresh, together=together)

    def _is_sliding_due(self, fresh: Sequence[PaneFile], *, together: bool) -> bool:
        """Say whether some instant can be answered, and has waited as long as it may; or files must be merged."""
        until = self._folds_until()
        crowded = _crowded(
            self.state, _WAITING_FANS * limits.MERGE_FAN_IN if together else limits.MERGE_FAN_IN
        )
        waited = until - min((each.first for each in fresh), default=LONG_AGO)
        if crowded or (together and waited < _WAITING_WINDOWS * self.state.panes.width):
            return crowded
        if until > LONG_AGO and any(each.first <= until for each in fresh):
            return True
        held = any(each.folded for each in self.state.files)
        return held and any(self._last(each) > self._answered(each.name) for each in self.queries)

    def jobs(self, files: Files, backend: Backend[Any], shares: int) -> list[AnswerJob]:
        """Describe the work: one job for each part that has files, or for each share of the instants."""
        emit, number = self.state.panes.emit, self.ledger.answers
        group, member, _ = self.plan.find(self.queries[0].name)
        streams = tuple(self.plan.stream(name) for name in group.streams)
        types = {side: backend.arrow_types(stream) for side, stream in zip(group.sides, streams, strict=True)}
        due = tuple(self._due(at, query) for at, query in enumerate(self.queries))
        limits = {"sliding": self._folds_until, "final": self._limit, "changes": lambda: FOREVER}
        readers = tuple(
            replace(_reader((at, query), self.plan, files, backend, number), again=due[at].again)
            for at, query in enumerate(self.queries)
        )
        if not any(each.computed for each in readers):  # else Spark SQL wants whole rows
            due = tuple(
                replace(each, counted=reader.is_counted) for each, reader in zip(due, readers, strict=True)
            )
        whole = AnswerTask(
            spec=FoldSpec.of(self.state.panes, self.queries[0], types, group),
            files=(),
            due=due,
            folds_until=limits[emit](),
            schema=backend.answer_schema(group, member, streams),
            with_before=emit == "changes" and any(each.having for each in readers),
            bits=sum(1 << bit for bit in self.state.panes.readers.values()),
            finishing=finishing.bare() if (finishing := self._finishing()) else None,
        )
        answered = {
            each.name: due[at].until for at, each in enumerate(self.queries) if due[at].until > LONG_AGO
        }
        parts: dict[int, list[PaneFile]] = {}
        for each in self.state.files:
            parts.setdefault(each.part, []).append(each)
        spoken = finishing.spoken if finishing else None
        tasks = (replace(whole, files=tuple(some), part=part) for part, some in sorted(parts.items()))
        return [
            AnswerJob(each, readers, answered, spoken)
            for task in tasks
            for each in (_divide_instants(task, shares) if self.state.panes.group_side else [task])
        ]

    def _finishing(self) -> FinishedKeys | None:
        """Give the promises that end groups of a final query before the input ends; None if there are none."""
        query = self.queries[0]  # all readers of such a set have the same window
        found = None if self.everything else finishing_of(self.plan, query)
        return finished_keys(self.plan, self.ledger, query, found) if found else None

    def _may_have_finished(self) -> bool:
        """Say whether enough promises have taken effect since groups were last held against them."""
        finishing = self._finishing() if self.ledger.promises else None
        if finishing is None:
            return False
        held = sum(each.rows for each in self.state.files if each.table == 0)
        return finishing.spoken - self.state.promises_seen >= max(1, held // LOOK_SHARE)

    def _due(self, at: int, query: Query) -> Due:
        bit, aggregation = self.state.panes.readers[query.name], aggregation_of(query)
        since = self._answered(query.name)
        if self.state.panes.emit == "changes":
            return Due(at, bit, 0, max(since, 0) + 1, again=self._is_told_again(query))
        if self.state.panes.emit == "final":
            limit = since if self.everything else max(since, self._limit())
            return Due(at, bit, self.ledger.query(query.name).counted_from, limit)
        return Due(at, bit, since, max(since, self._last(query)), seen_back(aggregation), aggregation.every)

    def _is_told_again(self, query: Query) -> bool:
        """Say whether all groups of a query that answers with changes are told again: it is defined anew."""
        state = self.ledger.query(query.name)
        return bool(state.counted_from) and state.counted_from == state.answered

    def _answered(self, name: str) -> int:
        until = self.ledger.query(name).answered
        return LONG_AGO if until is None else until

    def _horizon(self, query: Query) -> int | None:
        """Give the time below which a query has all its pairs; where nothing is waited for, after the newest row."""
        passed = horizon(self.plan, self.ledger, query.name, self.silence)
        if not self.everything and (passed is None or passed < FOREVER):
            return passed
        end = self._after_newest(query)
        known = [] if passed is None or passed >= FOREVER else [passed]
        return max([*([end] if end > LONG_AGO else []), *known], default=None)

    def _after_newest(self, query: Query) -> int:
        """Give the time after all rows of a query's streams."""
        streams = {name for group, _, _ in self.plan.groups_of(query.name) for name in group.streams}
        newest = [self.ledger.stream(name).newest for name in streams]
        return max((each + 1 for each in newest if each is not None), default=LONG_AGO)

    def _last(self, query: Query) -> int:
        """Give the last instant that a query can be answered for."""
        until, every = self._horizon(query), aggregation_of(query).every
        return LONG_AGO if until is None else (until - 1) // every * every

    def _folds_until(self) -> int:
        """Give the last birth that every reader has seen, or will have when it is answered now."""
        ends = [self._horizon(each) for each in self.queries]
        known = [each for each in ends if each is not None]
        return min(known) - 1 if len(known) == len(ends) else LONG_AGO

    def _limit(self) -> int:
        """Give the last end of a bucket to which no pair can come any more."""
        if self.everything:
            return FOREVER
        return min(self._complete_until(each) for each in self.queries)

    def _complete_until(self, query: Query) -> int:
        bucket = aggregation_of(query).bucket
        if bucket is None or any(query.rows):
            return LONG_AGO
        known = side_marks(self.plan, self.ledger, query, self.silence)
        marks = {side: mark for side, mark in known.items() if mark is not None}
        if len(marks) < len(known):
            return LONG_AGO
        if min(marks.values()) >= FOREVER:  # all are idle: nothing is waited for, but open buckets stay so
            marks = dict.fromkeys(marks, self._after_newest(query))
        # the youngest partner of a row at T is younger than T + reach
        far = query.reach(bucket.side)
        return min(mark if side == bucket.side else mark - far + 1 for side, mark in marks.items())


def _crowded(state: PaneState, fan: int) -> bool:
    """Say whether there are so many files of a generation that they should be merged."""
    counts: dict[tuple[int, int, bool, int], int] = {}
    for each in state.files:
        key = each.part, each.table, each.folded, each.generation
        counts[key] = counts.get(key, 0) + 1
    return any(each >= fan for each in counts.values())


def check_final_completes(plan: Plan) -> None:
    """Refuse final queries whose groups could never be complete while the input goes on."""
    for query in plan.queries:
        aggregation = query.aggregation
        if aggregation is None or aggregation.emit != "final" or can_complete(query):
            continue
        if finishing_of(plan, query):
            continue
        raise InputError(
            f"groups of query {query.name} would never be complete: none of its GROUP BY expressions is a bucket of "
            "event time, or its window has no end in time. Group by date_trunc('hour', T.ts) or "
            "window(T.ts, '10 minutes') as well, give the window a length of time, group by the joined columns and "
            "let a stream say when their values are finished (punctuates, unique), use emit = 'changes', or run it "
            "over input that ends (--once)"
        )


def can_complete(query: Query) -> bool:
    """Say whether the groups of a final query can become complete while the input goes on."""
    aggregation = aggregation_of(query)
    if aggregation.bucket is None or any(query.rows):
        return False
    return query.reach(aggregation.bucket.side) < FOREVER


def _divide_instants(task: AnswerTask, most_tasks: int) -> list[AnswerTask]:
    """Divide what is asked among tasks that look at the same files, each answering its own range of instants.

    Where groups are not keys, a task has to see all keys of a group.  The last task also folds what every reader has
    seen::

        instants due     1  2  3  4  5  6  7  8  9
        tasks            [ 0      ][ 1    ][ 2    ]
    """
    until, every = max(each.until for each in task.due), min(each.every for each in task.due)
    fresh = [each for each in task.files if not each.folded and each.first <= until]
    span = min(max((each.last for each in fresh), default=0), until) - min(
        (each.first for each in fresh), default=0
    )
    count = max(1, min(most_tasks, span // every // FEW_INSTANTS))
    ends = _shares_of_births(fresh, count)
    tasks = []
    for number, (first, last) in enumerate(pairwise([LONG_AGO, *ends, FOREVER])):
        due = tuple(
            replace(each, since=max(each.since, first), until=min(each.until, last)) for each in task.due
        )
        tasks.append(replace(task, due=due, share=number, only_answers=number < count - 1))
    return tasks


def _shares_of_births(files: Sequence[PaneFile], count: int) -> list[int]:
    """Cut time so that about as many entries are born in each of so many shares: where all but the last end."""
    if count == 1:
        return []
    times = np.concatenate([np.linspace(each.first, each.last, _BIRTHS_TO_A_FILE) for each in files])
    rows = np.repeat([each.rows / _BIRTHS_TO_A_FILE for each in files], _BIRTHS_TO_A_FILE)
    order = np.argsort(times)
    shares = np.cumsum(rows[order]) / rows.sum()
    return [int(times[order][np.searchsorted(shares, (each + 1) / count)]) for each in range(count - 1)]


def _reader(
    asking: tuple[int, Query], plan: Plan, files: Files, backend: Backend[Any], number: int
) -> Reader:
    """Describe where a query's answers go."""
    at, query = asking
    aggregation = aggregation_of(query)
    group, member, _ = plan.find(query.name)
    streams = tuple(plan.stream(name) for name in group.streams)
    return Reader(
        query=query.name,
        number=at,
        columns=tuple((each.name, each.plain) for each in aggregation.answers),
        answers=aggregation.answers,
        having=aggregation.having,
        emit=aggregation.emit,
        instant=backend.instant_type(streams),
        types=backend.result_types(group, member, streams),
        root=sink_root(query, files),
        final=f"answered-{number:012d}",
        compression=query.sink.option("compression", "snappy"),
        spooled=query.sink.kind in SPOOLED,
        kept=results_folder(query.name) if query.sink.kind == "table" else "",
    )


# --- in a task ------------------------------------------------------------------------------------------------------


def deliver_answers(
    files: Files, job: AnswerJob, rows: Iterable[pa.RecordBatch | Counted | PaneReport]
) -> AnswerReport:
    """Write what readers are answered, and report."""
    panes, results = PaneReport(), dict[str, int]()
    written: dict[str, OutputFile] = {}
    names = {each.number: each.query for each in job.readers}
    for each in rows:
        if isinstance(each, PaneReport):
            panes = each
            continue
        if isinstance(each, Counted):
            query = names[each.reader]
            results[query] = results.get(query, 0) + each.answers
            continue
        for reader, batch in _by_reader(job, each):
            made = batch if reader.is_counted else _result(reader, batch)
            if not made.num_rows:
                continue
            results[reader.query] = results.get(reader.query, 0) + made.num_rows
            if reader.query not in written and (out := reader.file(files, job.task.number)):
                written[reader.query] = out
            if reader.query in written:
                written[reader.query].write(made)
    for query, out in written.items():
        out.close({"query": query, "results": results[query]})
    return AnswerReport(panes, results, tuple(out.report(query) for query, out in written.items()))


def _by_reader(job: AnswerJob, batch: pa.RecordBatch) -> Iterator[tuple[Reader, pa.RecordBatch]]:
    """Divide rows among the readers they are for."""
    numbers = batch.column(READER).to_numpy(zero_copy_only=False)
    if (numbers == numbers[:1]).all():
        yield from ((each, batch) for each in job.readers if each.number in numbers[:1])
        return
    for reader in job.readers:
        mine = numbers == reader.number
        if mine.any():
            yield reader, batch if mine.all() else batch.filter(pa.array(mine))


def _result(reader: Reader, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Make a query's own rows of what it is answered."""
    if reader.computed:
        struct = batch.column(f"o{reader.number}")
        names, arrays = [field.name for field in struct.type], struct.flatten()
    else:
        names = [name for name, _ in reader.columns]
        arrays = [batch.column(plain) for _, plain in reader.columns]
    wanted = np.ones(batch.num_rows, np.bool_)
    if reader.emit == "changes":
        is_result = _holds(reader, batch, "h")
        was = batch.column(WAS) if reader.again else _holds(reader, batch, "w")
        operation = pc.if_else(is_result, pc.if_else(was, "update", "insert"), "delete")
        names = [OPERATION, SEQUENCE, *names]
        arrays = [operation, batch.column(INSTANT), *arrays]
        wanted = np.asarray(pc.or_(is_result, was).to_numpy(zero_copy_only=False))
    elif reader.having:
        wanted = np.asarray(_holds(reader, batch, "h").to_numpy(zero_copy_only=False))
    if reader.emit == "sliding":
        names = [WINDOW_END, *names]
        arrays = [
            batch.column(INSTANT).cast(pa.int64()).view(pa.timestamp("us")).view(reader.instant),
            *arrays,
        ]
    if not wanted.all():
        arrays = [each.filter(pa.array(wanted)) for each in arrays]
    metadata = {SPARK_SCHEMA: reader.types} if reader.types else None
    return pa.RecordBatch.from_arrays(arrays, names).replace_schema_metadata(metadata)


def _holds(reader: Reader, batch: pa.RecordBatch, what: str) -> pa.Array:
    """Say whether HAVING holds of each group now (h), or held of what it was (w)."""
    was = batch.column(WAS) if what == "w" else pa.array(np.ones(batch.num_rows, np.bool_))
    if not reader.having:
        return was
    return pc.and_(was, pc.fill_null(batch.column(f"{what}{reader.number}"), fill_value=False))


def _noted(job: AnswerJob, report: PaneReport) -> pa.RecordBatch:
    """Write a report as a row among those of a job, for what comes after Spark SQL to find."""
    text = json.dumps(to_json(report))
    fixed = {READER: pa.array([-1], pa.int32()), NOTE: pa.array([text]), INSTANT: pa.array([0], pa.int64())}
    columns = fixed | {each.name: pa.nulls(1, each.type) for each in job.task.schema}
    if job.task.spec.panes.emit == "changes":
        columns[WAS] = pa.nulls(1, pa.bool_())
    if job.task.with_before:
        columns |= {
            f"b{each.name[1:]}": pa.nulls(1, each.type) for each in job.task.schema if each.name[0] == "a"
        }
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def _without_note(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch | PaneReport]:
    """Take the row that reports on the pane files out of the others."""
    notes = batch.column(NOTE)
    if notes.null_count == batch.num_rows:
        yield batch
        return
    (text,) = notes.drop_null().to_pylist()
    yield from_json(json.loads(text), PaneReport)
    rest = batch.filter(notes.is_null())
    if rest.num_rows:
        yield rest


def run_answers(jobs: Sequence[AnswerJob], backend: Backend[Any]) -> list[AnswerReport]:
    """Answer from panes: in one Spark job, and one more for each pane set whose answers are expressions."""
    together: dict[str, list[int]] = {}
    for number, each in enumerate(jobs):
        together.setdefault(each.task.spec.panes.id if each.computed else "", []).append(number)
    reports: dict[int, AnswerReport] = {}
    for computed, numbers in together.items():
        some = [jobs[number] for number in numbers]
        readers = {reader.query for each in some for reader in each.readers}
        job = Job("answer", f"answer {counted(len(readers), 'aggregate query', 'aggregate queries')}")
        runner = backend.runner
        made = runner.map_sql(some, backend.answer_sql(some[0]), job) if computed else runner.map(some, job)
        reports |= zip(numbers, made, strict=True)
    return [reports[number] for number in range(len(jobs))]


# --- whose fault ----------------------------------------------------------------------------------------------------


def blame_for_answers(jobs: Sequence[AnswerJob], backend: Backend[Any]) -> dict[str, str]:
    """Find the queries whose answers cannot be computed: they are tried by halves, and nothing is delivered."""

    def attempt(names: Collection[str]) -> None:
        some = [_for_some(each, names) for each in jobs]
        run_answers([each for each in some if each.readers], backend)

    return find_failed_queries(sorted({each.query for job in jobs for each in job.readers}), attempt)


def _for_some(job: AnswerJob, names: Collection[str]) -> AnswerJob:
    """Ask a job for some of its readers only, and let their answers be counted."""
    readers = tuple(replace(each, root="", kept="") for each in job.readers if each.query in names)
    numbers = {each.number for each in readers}
    due = tuple(each for each in job.task.due if each.number in numbers)
    return replace(job, readers=readers, task=replace(job.task, due=due))


# --- the commit -----------------------------------------------------------------------------------------------------


def answer_commit(jobs: Sequence[AnswerJob], reports: Sequence[AnswerReport], number: int) -> Answered:
    """Say what was answered, what is still kept, and what there is to publish."""
    done = list(zip(jobs, reports, strict=True))
    written = [file for _, report in done for file in report.files]
    spooled = {each.query for job in jobs for each in job.readers if each.spooled}
    results = sum((Counter(report.results) for report in reports), Counter[str]())
    return Answered(
        answered={query: until for job in jobs for query, until in job.answered.items()},
        gone=by_name({job.task.spec.panes.id: report.panes.gone} for job, report in done),
        files=by_name({job.task.spec.panes.id: report.panes.files} for job, report in done),
        output=Output(
            results=dict(results),
            publish=publications(f"{ANSWER}{number:012d}", written, spooled),
            kept=kept_files(written),
            delays=_delays(done),
        ),
        promises_seen={
            job.task.spec.panes.id: job.promises_seen for job in jobs if job.promises_seen is not None
        },
    )


def _delays(done: Sequence[tuple[AnswerJob, AnswerReport]]) -> dict[str, tuple[tuple[float, int], ...]]:
    """Say how long answers took from the arrival of the last pairs that may be in them."""
    now = time.time()
    arrivals: dict[str, list[tuple[float, int]]] = {}
    for job, report in done:
        arrived = max((each.arrived for each in job.task.files if not each.folded), default=0.0)
        for query, count in report.results.items():
            arrivals.setdefault(query, []).append((arrived, count))
    return {query: tuple(delays) for query, each in arrivals.items() if (delays := delays_of(each, now))}
