"""Answers of aggregate queries: what is due, the tasks that compute it, and the commit that makes it true.

    watermarks ──▶ what is due ──▶ AnswerTask ──▶ rows (pane_answers) ──▶ Spark SQL, for expressions ──▶ sinks

*Sliding*: instant E is answered when both watermarks have passed it.  *Final*: a bucket of event time is answered when
no row to come can make a pair in it; groups without a bucket are answered when the input ends.  *Changes*: groups are
answered after every unit.  A *reader* is a query of a pane set.

In:  the plan and the ledger.  Out: `AnswerJob`s, one task each, and the ``answer`` commit made of what they report.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock import limits
from penstock.engine.aggregate.answer_job import AnswerJob, AnswerReport, Reader
from penstock.engine.aggregate.answer_task import (
    LONG_AGO,
    AnswerTask,
    Due,
)
from penstock.engine.aggregate.fold_spec import FoldSpec
from penstock.engine.runners.runner import Job, counted
from penstock.engine.sinks.publication import kept_files, publications
from penstock.engine.sinks.sink_kind import sink_of
from penstock.engine.spark.failed_queries import find_failed_queries
from penstock.engine.views.finished import finished_keys
from penstock.engine.views.horizon import horizon, side_marks
from penstock.errors import InputError
from penstock.plan.panes import aggregation_of, seen_back
from penstock.plan.promises import finishing_of
from penstock.sql.query import FOREVER
from penstock.state.commits import Answered, CommitOutput
from penstock.state.recent import delays_of
from penstock.state.values import by_name

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from penstock.engine.backend import Backend
    from penstock.engine.views.finished import FinishedKeys
    from penstock.engine.views.horizon import IdleClock
    from penstock.plan.build import Plan
    from penstock.sql.query import Query
    from penstock.state.files import Files
    from penstock.state.ledger import Ledger
    from penstock.state.panes import PaneFile, PaneState

ANSWER = "answer-"
"""The beginning of the id of answers, under which a callback gets them."""

FEW_INSTANTS = 4
"""The fewest instants for each task, on average, for which instants are divided among tasks."""

_WAITING_WINDOWS = 2
"""Lengths of the longest window for which answers may wait, to be computed in one go."""

_WAITING_FANS = 3
"""The factor on the number of files that are merged while answers wait: still few enough that each is read as it is
(`MOST_RUNS` in `penstock.engine.aggregate.sliding_rows`)."""

_BIRTHS_TO_A_FILE = 16
"""Evenly spaced times at which the entries of a file are assumed to be born."""

LOOK_SHARE = 1024
"""Groups are compared with promises once there is a new promise for every 1,024 groups held."""

# --- what is due ----------------------------------------------------------------------------------------------------


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
    """List the answers that can be computed by now; `everything` says that the input has ended.

    With `together`, answers wait for each other, because each job reads all entries of a window::

        every unit     [ window ]a  [ window ]b  [ window ]c        together     [ window ]abc
    """
    sets = [_DueSet(plan, ledger, state, silence, everything=everything) for state in ledger.panes.values()]
    shares = 1 if together else backend.runner.parallelism  # while there is input, other cores join
    return [job for one in sets if one.is_due(together=together) for job in one.jobs(files, backend, shares)]


def is_answer_due(
    plan: Plan,
    ledger: Ledger,
    silence: IdleClock | None = None,
    *,
    everything: bool = False,
    together: bool = False,
) -> bool:
    """Return whether some answer can be computed by now."""
    return any(
        _DueSet(plan, ledger, state, silence, everything=everything).is_due(together=together)
        for state in ledger.panes.values()
    )


class _DueSet:
    """One pane set: how far its readers can be answered, and the jobs for that."""

    def __init__(
        self, plan: Plan, ledger: Ledger, state: PaneState, silence: IdleClock | None, *, everything: bool
    ) -> None:
        self.plan, self.ledger, self.state, self.silence = plan, ledger, state, silence
        self.everything = everything
        by_name = {query.name: query for query in plan.queries}
        self.queries = [by_name[name] for name in state.panes.readers if name in by_name]

    def is_due(self, *, together: bool) -> bool:
        """Return whether there are entries to answer, to fold or to merge."""
        state = self.state
        if not state.files or not self.queries:
            return False
        if any(self.ledger.query(query.name).backfill for query in self.queries):
            return False  # its past comes first
        fresh = [file for file in state.files if not file.folded]
        if state.panes.emit == "changes":
            return bool(fresh) or any(self._is_answered_again(query) for query in self.queries)
        if state.panes.emit == "final":
            due = any(file.first <= self._limit() for file in fresh) or _crowded(state, limits.MERGE_FAN_IN)
            return due or self._may_have_finished()
        return self._is_sliding_due(fresh, together=together)

    def _is_sliding_due(self, fresh: Sequence[PaneFile], *, together: bool) -> bool:
        """Return whether some instant can be answered and has waited long enough, or files must be merged."""
        until = self._folds_until()
        crowded = _crowded(
            self.state, _WAITING_FANS * limits.MERGE_FAN_IN if together else limits.MERGE_FAN_IN
        )
        waited = until - min((file.first for file in fresh), default=LONG_AGO)
        if crowded or (together and waited < _WAITING_WINDOWS * self.state.panes.width):
            return crowded
        if until > LONG_AGO and any(file.first <= until for file in fresh):
            return True
        held = any(file.folded for file in self.state.files)
        return held and any(self._last(query) > self._answered(query.name) for query in self.queries)

    def jobs(self, files: Files, backend: Backend[Any], shares: int) -> list[AnswerJob]:
        """Return the jobs: one for each part of the set that has files, or for each share of the instants."""
        emit, number = self.state.panes.emit, self.ledger.answers
        group, member, _ = self.plan.find(self.queries[0].name)
        streams = tuple(self.plan.stream(name) for name in group.streams)
        types = {side: backend.arrow_types(stream) for side, stream in zip(group.sides, streams, strict=True)}
        due = tuple(self._due(at, query) for at, query in enumerate(self.queries))
        limits = {"sliding": self._folds_until, "final": self._limit, "changes": lambda: FOREVER}
        readers = tuple(
            replace(_reader((at, query), self.plan, files, backend), again=due[at].again)
            for at, query in enumerate(self.queries)
        )
        if not any(reader.computed for reader in readers):  # else Spark SQL needs whole rows
            due = tuple(
                replace(one, counted=reader.is_counted) for one, reader in zip(due, readers, strict=True)
            )
        whole = AnswerTask(
            spec=FoldSpec.of(self.state.panes, self.queries[0], types, group),
            files=(),
            due=due,
            folds_until=limits[emit](),
            schema=backend.answer_schema(group, member, streams),
            with_before=emit == "changes" and any(reader.having for reader in readers),
            bits=sum(1 << bit for bit in self.state.panes.readers.values()),
            finishing=finishing.bare() if (finishing := self._finishing()) else None,
        )
        answered = {
            query.name: due[at].until for at, query in enumerate(self.queries) if due[at].until > LONG_AGO
        }
        parts: dict[int, list[PaneFile]] = {}
        for file in self.state.files:
            parts.setdefault(file.part, []).append(file)
        spoken = finishing.spoken if finishing else None
        tasks = (replace(whole, files=tuple(some), part=part) for part, some in sorted(parts.items()))
        return [
            AnswerJob(one, readers, answered, f"answered-{number:012d}-{one.number:04d}", spoken)
            for task in tasks
            for one in (_divide_instants(task, shares) if self.state.panes.group_side else [task])
        ]

    def _finishing(self) -> FinishedKeys | None:
        """Return the promises that end groups of a final query before the input ends; None if there are none."""
        query = self.queries[0]  # all readers of such a set have the same window
        found = None if self.everything else finishing_of(self.plan, query)
        return finished_keys(self.plan, self.ledger, query, found) if found else None

    def _may_have_finished(self) -> bool:
        """Return whether enough promises have taken effect since groups were last compared with them."""
        finishing = self._finishing() if self.ledger.promises else None
        if finishing is None:
            return False
        held = sum(file.rows for file in self.state.files if file.table == 0)
        return finishing.spoken - self.state.promises_seen >= max(1, held // LOOK_SHARE)

    def _due(self, at: int, query: Query) -> Due:
        bit, aggregation = self.state.panes.readers[query.name], aggregation_of(query)
        since = self._answered(query.name)
        if self.state.panes.emit == "changes":
            return Due(at, bit, 0, max(since, 0) + 1, again=self._is_answered_again(query))
        if self.state.panes.emit == "final":
            limit = since if self.everything else max(since, self._limit())
            return Due(at, bit, self.ledger.query(query.name).counted_from, limit)
        return Due(at, bit, since, max(since, self._last(query)), seen_back(aggregation), aggregation.every)

    def _is_answered_again(self, query: Query) -> bool:
        """Return whether all groups of a query with changes are answered again, because its definition is new."""
        state = self.ledger.query(query.name)
        return bool(state.counted_from) and state.counted_from == state.answered

    def _answered(self, name: str) -> int:
        until = self.ledger.query(name).answered
        return LONG_AGO if until is None else until

    def _horizon(self, query: Query) -> int | None:
        """Return the time below which a query has all its pairs; at the end of the input, after the newest row."""
        passed = horizon(self.plan, self.ledger, query.name, self.silence)
        if not self.everything and (passed is None or passed < FOREVER):
            return passed
        end = self._after_newest(query)
        known = [] if passed is None or passed >= FOREVER else [passed]
        return max([*([end] if end > LONG_AGO else []), *known], default=None)

    def _after_newest(self, query: Query) -> int:
        """Return the time after all rows of a query's streams."""
        streams = {name for group, _, _ in self.plan.groups_of(query.name) for name in group.streams}
        newest = [self.ledger.stream(name).newest for name in streams]
        return max((time + 1 for time in newest if time is not None), default=LONG_AGO)

    def _last(self, query: Query) -> int:
        """Return the last instant that can be answered for a query."""
        until, every = self._horizon(query), aggregation_of(query).every
        return LONG_AGO if until is None else (until - 1) // every * every

    def _folds_until(self) -> int:
        """Return the last birth that every reader has seen when it is answered now."""
        ends = [self._horizon(query) for query in self.queries]
        known = [end for end in ends if end is not None]
        return min(known) - 1 if len(known) == len(ends) else LONG_AGO

    def _limit(self) -> int:
        """Return the last end of a bucket that can get no more pairs."""
        if self.everything:
            return FOREVER
        return min(self._complete_until(query) for query in self.queries)

    def _complete_until(self, query: Query) -> int:
        bucket = aggregation_of(query).bucket
        if bucket is None or any(query.rows):
            return LONG_AGO
        known = side_marks(self.plan, self.ledger, query, self.silence)
        marks = {side: mark for side, mark in known.items() if mark is not None}
        if len(marks) < len(known):
            return LONG_AGO
        if min(marks.values()) >= FOREVER:  # all streams are idle, and buckets of the newest rows stay open
            marks = dict.fromkeys(marks, self._after_newest(query))
        # the youngest partner of a row at T is younger than T + reach
        far = query.reach(bucket.side)
        return min(mark if side == bucket.side else mark - far + 1 for side, mark in marks.items())


def _crowded(state: PaneState, fan: int) -> bool:
    """Return whether some generation has so many files that they should be merged."""
    counts = Counter((file.part, file.table, file.folded, file.generation) for file in state.files)
    return any(count >= fan for count in counts.values())


def check_final_completes(plan: Plan) -> None:
    """Refuse final queries whose groups can never be complete while the input goes on."""
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
    """Return whether the groups of a final query can become complete while the input goes on."""
    aggregation = aggregation_of(query)
    if aggregation.bucket is None or any(query.rows):
        return False
    return query.reach(aggregation.bucket.side) < FOREVER


def _divide_instants(task: AnswerTask, most_tasks: int) -> list[AnswerTask]:
    """Divide instants among tasks that read the same files.

    Where groups are not the join's keys, a task must read all keys of a group, so groups cannot be divided.  The last
    task also folds the entries that every reader has seen::

        instants due     1  2  3  4  5  6  7  8  9
        tasks            [ 0      ][ 1    ][ 2    ]
    """
    until, every = max(reader.until for reader in task.due), min(reader.every for reader in task.due)
    fresh = [file for file in task.files if not file.folded and file.first <= until]
    first_birth, last_birth = (
        min((f.first for f in fresh), default=0),
        max((f.last for f in fresh), default=0),
    )
    span = min(last_birth, until) - first_birth
    count = max(1, min(most_tasks, span // every // FEW_INSTANTS))
    ends = _shares_of_births(fresh, count)
    tasks = []
    for number, (first, last) in enumerate(pairwise([LONG_AGO, *ends, FOREVER])):
        due = tuple(
            replace(reader, since=max(reader.since, first), until=min(reader.until, last))
            for reader in task.due
        )
        tasks.append(replace(task, due=due, share=number, only_answers=number < count - 1))
    return tasks


def _shares_of_births(files: Sequence[PaneFile], count: int) -> list[int]:
    """Return the times that divide the births of entries into equal shares."""
    if count == 1:
        return []
    times = np.concatenate([np.linspace(file.first, file.last, _BIRTHS_TO_A_FILE) for file in files])
    rows = np.repeat([file.rows / _BIRTHS_TO_A_FILE for file in files], _BIRTHS_TO_A_FILE)
    order = np.argsort(times)
    shares = np.cumsum(rows[order]) / rows.sum()
    return [int(times[order][np.searchsorted(shares, share / count)]) for share in range(1, count)]


def _reader(asking: tuple[int, Query], plan: Plan, files: Files, backend: Backend[Any]) -> Reader:
    """Describe where a query's answers go."""
    at, query = asking
    aggregation = aggregation_of(query)
    group, member, _ = plan.find(query.name)
    streams = tuple(plan.stream(name) for name in group.streams)
    return Reader(
        query=query.name,
        number=at,
        answers=aggregation.answers,
        having=aggregation.having,
        emit=aggregation.emit,
        instant=backend.instant_type(streams),
        types=backend.result_types(group, member, streams),
        destination=sink_of(query).destination(files),
    )


# --- run ------------------------------------------------------------------------------------------------------------


def run_answers(jobs: Sequence[AnswerJob], backend: Backend[Any]) -> list[AnswerReport]:
    """Run the jobs: in one Spark job, and one more for each pane set whose answers are expressions."""
    together: dict[str, list[int]] = {}
    for number, job in enumerate(jobs):
        together.setdefault(job.task.spec.panes.id if job.computed else "", []).append(number)
    reports: dict[int, AnswerReport] = {}
    for computed, numbers in together.items():
        some = [jobs[number] for number in numbers]
        readers = {reader.query for job in some for reader in job.readers}
        spark_job = Job("answer", f"answer {counted(len(readers), 'aggregate query', 'aggregate queries')}")
        runner = backend.runner
        sql = backend.answer_sql(some[0]) if computed else None
        made = runner.map_sql(some, sql, spark_job) if sql else runner.map(some, spark_job)
        reports |= zip(numbers, made, strict=True)
    return [reports[number] for number in range(len(jobs))]


# --- failures -------------------------------------------------------------------------------------------------------


def blame_for_answers(jobs: Sequence[AnswerJob], backend: Backend[Any]) -> dict[str, str]:
    """Find the queries whose answers cannot be computed: half of them is tried at a time, and nothing is delivered."""

    def attempt(names: Collection[str]) -> None:
        some = [_for_some(job, names) for job in jobs]
        run_answers([job for job in some if job.readers], backend)

    return find_failed_queries(sorted({reader.query for job in jobs for reader in job.readers}), attempt)


def _for_some(job: AnswerJob, names: Collection[str]) -> AnswerJob:
    """Return a job for some of its readers, whose answers are only counted."""
    readers = tuple(replace(reader, destination=None) for reader in job.readers if reader.query in names)
    numbers = {reader.number for reader in readers}
    due = tuple(one for one in job.task.due if one.number in numbers)
    return replace(job, readers=readers, task=replace(job.task, due=due))


# --- the commit -----------------------------------------------------------------------------------------------------


def answer_commit(jobs: Sequence[AnswerJob], reports: Sequence[AnswerReport], number: int) -> Answered:
    """Return the commit: the answers, the pane files from here on, and the files to publish."""
    done = list(zip(jobs, reports, strict=True))
    written = [file for _, report in done for file in report.files]
    readers = [reader for job in jobs for reader in job.readers]
    handed_over = {one.query for one in readers if one.destination and one.destination.handed_over}
    results = sum((Counter(report.results) for report in reports), Counter[str]())
    return Answered(
        answered={query: until for job in jobs for query, until in job.answered.items()},
        removed_files=by_name({job.task.spec.panes.id: report.panes.gone} for job, report in done),
        files=by_name({job.task.spec.panes.id: report.panes.files} for job, report in done),
        output=CommitOutput(
            results=dict(results),
            publish=publications(f"{ANSWER}{number:012d}", written, handed_over),
            kept=kept_files(written),
            delays=_delays(done),
        ),
        promises_seen={
            job.task.spec.panes.id: job.promises_seen for job in jobs if job.promises_seen is not None
        },
    )


def _delays(done: Sequence[tuple[AnswerJob, AnswerReport]]) -> dict[str, tuple[tuple[float, int], ...]]:
    """Return how long answers took, by query: from the arrival of the last rows that may be in them."""
    now = time.time()
    arrivals: dict[str, list[tuple[float, int]]] = {}
    for job, report in done:
        arrived = max((file.arrived for file in job.task.files if not file.folded), default=0.0)
        for query, count in report.results.items():
            arrivals.setdefault(query, []).append((arrived, count))
    return {query: tuple(delays) for query, some in arrivals.items() if (delays := delays_of(some, now))}
