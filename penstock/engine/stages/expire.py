"""Expire: remove rows without claims, a segment at a time or when their segment is rewritten.

If partners make promises, segments are checked against them now and then.  Rows that a promise has made useless are
counted, and a segment that has many of them is rewritten without them.

In:  the context of turns.  Out: ``rewrite`` commits, and files that are deleted after the next commit.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import islice, zip_longest
from typing import TYPE_CHECKING

from penstock import limits
from penstock.engine.runners.runner import Job
from penstock.engine.tasks.rewrite import FinishedTask, RewriteTask
from penstock.engine.views.memory import is_tight
from penstock.engine.views.needs import (
    claims_on,
    common_layout,
    passed,
    promises_before,
    promising_partners,
    settled_alike,
    settled_segments,
)
from penstock.plan.promises import remembered
from penstock.state.claims import is_ended
from penstock.state.commits import NumberedLayout, PromisesMerged, Rewritten
from penstock.state.promise_merges import choose_promise_merges
from penstock.state.promises import PromiseFiles
from penstock.state.retention import choose_rewrites

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.engine.stages.turn_context import TurnContext
    from penstock.engine.tasks.rewrite import RewrittenRun
    from penstock.plan.stored import LogPlan
    from penstock.state.relayout import CommonLayout
    from penstock.state.segment import Segment
    from penstock.state.values import Layout


def expire(context: TurnContext) -> None:
    """Drop segments that have ended, and rewrite others; not while a new query still needs its backfill."""
    if any(context.lacking(group) for group in context.plan.groups):
        return
    for log in context.plan.logs:
        _check_promises(context, log)
    _expire_logs(context)
    if context.ledger.promises:
        _merge_promises(context)


@dataclass(frozen=True, slots=True)
class _Expiry:
    """The segments of one log that are dropped, and the runs of segments that become one each."""

    log: str
    common: CommonLayout
    shared: Layout
    ended: tuple[Segment, ...]
    runs: tuple[tuple[Segment, ...], ...]

    @property
    def gone(self) -> tuple[Segment, ...]:
        """List the segments that are dropped or replaced."""
        return (*self.ended, *(segment for run in self.runs for segment in run))

    @property
    def rows(self) -> int:
        """Count the rows that are read."""
        return sum(segment.rows for run in self.runs for segment in run)

    def tasks(self) -> list[RewriteTask]:
        """Return one task for each run."""
        layouts = {segment.layout for run in self.runs for segment in run}
        onto = self.common if layouts != {self.common.layout} else None
        return [
            RewriteTask(
                self.log,
                tuple(segment.bare() for segment in run),
                tuple(self.common.claims[run[0].layout]),
                onto,
            )
            for run in self.runs
        ]


def _expire_logs(context: TurnContext) -> None:
    """Drop and rewrite segments: one Spark job for all logs, and a commit for each.

    Segments of a log are merged with each other only if they store the same; other sets of them follow in further jobs.
    """
    plan, ledger = context.plan, context.ledger
    alike = [
        [(log.id, shared, settled) for shared, settled in settled_alike(plan, log.id, ledger).items()]
        for log in plan.logs
    ]
    for together in zip_longest(*alike):
        chosen = [_choose(context, *choice) for choice in together if choice is not None]
        _expire(context, [expiry for expiry in chosen if expiry.gone])


def _choose(context: TurnContext, log: str, shared: Layout, settled: list[Segment]) -> _Expiry:
    """Choose the segments of a log that are dropped, and those that are rewritten."""
    plan, ledger = context.plan, context.ledger
    common = common_layout(plan, log, ledger, settled, shared, files=context.store.files)
    ended = [segment for segment in settled if is_ended(segment, common.claims[segment.layout])]
    rest = [segment for segment in settled if segment not in ended]
    claims, tight = common.claims[settled[0].layout], is_tight(plan, log, ledger, context.memory)
    runs = choose_rewrites(rest, claims, passed(plan, log, ledger), common.claims, tight=tight)
    return _Expiry(log, common, shared, tuple(ended), tuple(map(tuple, runs)))


def _expire(context: TurnContext, chosen: Sequence[_Expiry]) -> None:
    """Rewrite the chosen segments in one job, and commit log by log."""
    started = time.monotonic()
    tasks = [expiry.tasks() for expiry in chosen]
    names = sorted({context.plan.stream_of(expiry.log) for expiry in chosen if expiry.runs})
    job = Job("expire", f"merge segments of {', '.join(names)}")
    reports = iter(context.runner.map([task for some in tasks for task in some], job))
    seconds, rows = time.monotonic() - started, sum(expiry.rows for expiry in chosen)
    for expiry, some in zip(chosen, tasks, strict=True):
        _commit(context, expiry, list(islice(reports, len(some))), seconds * expiry.rows / (rows or 1))


def _commit(context: TurnContext, expiry: _Expiry, made: Sequence[RewrittenRun], seconds: float) -> None:
    """Commit the new segments of a log, and delete the old ones."""
    added = tuple(report.segment for report in made if report.segment)
    known = sum(segment.finished for run in expiry.runs for segment in run)
    is_new = added and expiry.common.layout not in context.ledger.layouts[expiry.log]
    context.store.commit(
        Rewritten(
            log=expiry.log,
            remove=tuple(segment.name for segment in expiry.gone),
            add=added,
            layouts=(NumberedLayout(expiry.common.layout, expiry.shared),) if is_new else (),
            rows=expiry.rows,
            seconds=seconds,
            stream=context.plan.stream_of(expiry.log),
            purged=max(0, sum(report.finished for report in made) - known),
            early_removals=_departed(made),
        )
    )
    for segment in expiry.gone:
        context.store.let_go(segment.name)


def _departed(made: Sequence[RewrittenRun]) -> tuple[int, int] | None:
    """Return the newest event time of rows that were removed before their window ended, and their number."""
    newest = [report.newest for report in made if report.newest is not None]
    return (max(newest), sum(report.finished for report in made)) if newest else None


def _check_promises(context: TurnContext, log: LogPlan) -> None:
    """Check a log's segments against the promises of its partners, if enough took effect since the last time."""
    plan, ledger = context.plan, context.ledger
    if not promising_partners(plan, log):
        return
    settled = [segment for segment in settled_segments(plan, log.id, ledger) if not segment.ends]
    effective, seen = promises_before(plan, log.id, ledger), ledger.promises_seen.get(log.id, 0.0)
    delay = context.fruitless.get(log.id, 1)
    few = max(1, delay * (sum(segment.rows for segment in settled) // limits.ROWS_PER_PROMISE_CHECK))
    if not settled or effective - seen < (1 if context.input_ended else few):
        return
    claims = {
        layout: claims_on(plan, log.id, ledger, layout, context.store.files)
        for layout in {segment.layout for segment in settled}
    }
    tasks = [FinishedTask(segment.bare(), tuple(claims[segment.layout])) for segment in settled]
    looked = context.runner.map(tasks, Job("expire", f"look for finished rows of {log.stream}"))
    finished = {
        one.name: report.finished
        for one, report in zip(settled, looked, strict=True)
        if report.finished != one.finished
    }
    is_worth_it = sum(finished.values()) * limits.MAX_CHECK_DELAY_FACTOR >= sum(
        segment.rows for segment in settled
    )
    context.fruitless[log.id] = 1 if is_worth_it else min(limits.MAX_CHECK_DELAY_FACTOR, 2 * delay)
    context.store.commit(
        Rewritten(
            log=log.id,
            remove=(),
            stream=log.stream,
            purged=sum(
                max(0, finished.get(segment.name, segment.finished) - segment.finished) for segment in settled
            ),
            finished=finished,
            promises_seen=effective,
        )
    )


def _merge_promises(context: TurnContext) -> None:
    """Merge files of promises, and remove the oldest promises where there are too many."""
    plan, ledger = context.plan, context.ledger
    merges = [
        merge
        for index, budget in remembered(plan).items()
        if index in ledger.promises
        for merge in choose_promise_merges(index, ledger.promises[index], budget)
    ]
    if not merges:
        return
    made = context.runner.map(
        [merge.bare() for merge in merges], Job("expire", "merge files of punctuations")
    )
    remove: dict[str, tuple[str, ...]] = {}
    add: dict[str, PromiseFiles] = {}
    for merge, file in zip(merges, made, strict=True):
        names = tuple(file.name for file in merge.files)
        remove[merge.index] = remove.get(merge.index, ()) + names
        add[merge.index] = add.get(merge.index, PromiseFiles()).plus(merge.result(file))
    context.store.commit(PromisesMerged(remove, add))
    context.replaced_files.keep(
        {name for names in remove.values() for name in names}
    )  # a batch may be reading them
