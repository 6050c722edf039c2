"""Expiry: rows that no claim keeps go, a segment at a time or as their segment is rewritten.

Where partners make promises, segments are held against them now and then: rows that a promise has made useless are
counted, and a segment that has many of them is rewritten without them.

What goes when a row goes is settled in the same commit: `Rewritten.output` may carry results that only the end of a
row's use brings about.  A join of pairs has none; it is what waits for a row's end that answers here.

In:  what stages share.  Out: ``rewrite`` commits, and files that are deleted after the next commit.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import islice, zip_longest
from typing import TYPE_CHECKING

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
from penstock.state.promises import PromiseFiles, choose_promise_merges
from penstock.state.retention import choose_rewrites

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.engine.stages.turn_context import TurnContext
    from penstock.engine.tasks.rewrite import RewrittenRun
    from penstock.plan.stored import LogPlan
    from penstock.state.relayout import Common
    from penstock.state.segment import Segment
    from penstock.state.values import Layout

LOOK_SHARE = 256
"""A log is held against promises when one has taken effect for each so many of its rows."""

MOST_PATIENCE = 64
"""The most times `LOOK_SHARE`'s wait that a log waits: it doubles when a look ends less than one row in so many."""


def expire(context: TurnContext) -> None:
    """Let go of what has ended, and rewrite what is worth it; not while a new query still needs the past."""
    if any(context.lacking(group) for group in context.plan.groups):
        return
    for log in context.plan.logs:
        _look_for_finished(context, log)
    _expire_logs(context)
    if context.ledger.promises:
        _merge_promises(context)


@dataclass(frozen=True, slots=True)
class _Expiry:
    """What is to go of one log, and the runs of segments that become one each."""

    log: str
    common: Common
    shared: Layout
    ended: tuple[Segment, ...]
    runs: tuple[tuple[Segment, ...], ...]

    @property
    def gone(self) -> tuple[Segment, ...]:
        """List the segments that go."""
        return (*self.ended, *(each for run in self.runs for each in run))

    @property
    def rows(self) -> int:
        """Count the rows that are read."""
        return sum(each.rows for run in self.runs for each in run)

    def tasks(self) -> list[RewriteTask]:
        """Return one task for each run."""
        layouts = {each.layout for run in self.runs for each in run}
        onto = self.common if layouts != {self.common.layout} else None
        return [
            RewriteTask(
                self.log,
                tuple(each.bare() for each in run),
                tuple(self.common.claims[run[0].layout]),
                onto,
            )
            for run in self.runs
        ]


def _expire_logs(context: TurnContext) -> None:
    """Let go of what has ended: one Spark job for all logs, and a commit for each.

    Segments of a log that hold the same for everyone can be merged with each other; others are merged after them.
    """
    plan, ledger = context.plan, context.ledger
    alike = [
        [(log.id, shared, settled) for shared, settled in settled_alike(plan, log.id, ledger).items()]
        for log in plan.logs
    ]
    for together in zip_longest(*alike):
        chosen = [_choose(context, *each) for each in together if each is not None]
        _expire(context, [each for each in chosen if each.gone])


def _choose(context: TurnContext, log: str, shared: Layout, settled: list[Segment]) -> _Expiry:
    """Choose the segments of a log that go, and those that are rewritten."""
    plan, ledger = context.plan, context.ledger
    common = common_layout(plan, log, ledger, settled, shared, files=context.store.files)
    ended = [each for each in settled if is_ended(each, common.claims[each.layout])]
    rest = [each for each in settled if each not in ended]
    claims, tight = common.claims[settled[0].layout], is_tight(plan, log, ledger, context.memory)
    runs = choose_rewrites(rest, claims, passed(plan, log, ledger), common.claims, tight=tight)
    return _Expiry(log, common, shared, tuple(ended), tuple(map(tuple, runs)))


def _expire(context: TurnContext, chosen: Sequence[_Expiry]) -> None:
    """Rewrite what was chosen in one job, and commit log by log."""
    started = time.monotonic()
    tasks = [each.tasks() for each in chosen]
    names = sorted({context.plan.stream_of(each.log) for each in chosen if each.runs})
    job = Job("expire", f"merge segments of {', '.join(names)}")
    reports = iter(context.runner.map([task for some in tasks for task in some], job))
    seconds, rows = time.monotonic() - started, sum(each.rows for each in chosen)
    for expiry, some in zip(chosen, tasks, strict=True):
        _commit(context, expiry, list(islice(reports, len(some))), seconds * expiry.rows / (rows or 1))


def _commit(context: TurnContext, expiry: _Expiry, made: Sequence[RewrittenRun], seconds: float) -> None:
    """Commit what has become of a log's segments, and delete those that went."""
    added = tuple(each.segment for each in made if each.segment)
    known = sum(each.finished for run in expiry.runs for each in run)
    is_new = added and expiry.common.layout not in context.ledger.layouts[expiry.log]
    context.store.commit(
        Rewritten(
            log=expiry.log,
            remove=tuple(each.name for each in expiry.gone),
            add=added,
            layouts=(NumberedLayout(expiry.common.layout, expiry.shared),) if is_new else (),
            rows=expiry.rows,
            seconds=seconds,
            stream=context.plan.stream_of(expiry.log),
            purged=max(0, sum(each.finished for each in made) - known),
            gone=_departed(made),
        )
    )
    for each in expiry.gone:
        context.store.let_go(each.name)


def _departed(made: Sequence[RewrittenRun]) -> tuple[int, int] | None:
    """Say how many rows went before their window ended, and the newest event time of them."""
    newest = [each.newest for each in made if each.newest is not None]
    return (max(newest), sum(each.finished for each in made)) if newest else None


def _look_for_finished(context: TurnContext, log: LogPlan) -> None:
    """Hold a log's segments against the promises of its partners, if enough have taken effect since the last time."""
    plan, ledger = context.plan, context.ledger
    if not promising_partners(plan, log):
        return
    settled = [each for each in settled_segments(plan, log.id, ledger) if not each.ends]
    effective, seen = promises_before(plan, log.id, ledger), ledger.promises_seen.get(log.id, 0.0)
    patience = context.fruitless.get(log.id, 1)
    few = max(1, patience * (sum(each.rows for each in settled) // LOOK_SHARE))
    if not settled or effective - seen < (1 if context.input_ended else few):
        return
    claims = {
        layout: claims_on(plan, log.id, ledger, layout, context.store.files)
        for layout in {each.layout for each in settled}
    }
    tasks = [FinishedTask(each.bare(), tuple(claims[each.layout])) for each in settled]
    looked = context.runner.map(tasks, Job("expire", f"look for finished rows of {log.stream}"))
    finished = {
        one.name: each.finished
        for one, each in zip(settled, looked, strict=True)
        if each.finished != one.finished
    }
    is_worth_it = sum(finished.values()) * MOST_PATIENCE >= sum(each.rows for each in settled)
    context.fruitless[log.id] = 1 if is_worth_it else min(MOST_PATIENCE, 2 * patience)
    context.store.commit(
        Rewritten(
            log=log.id,
            remove=(),
            stream=log.stream,
            purged=sum(max(0, finished.get(each.name, each.finished) - each.finished) for each in settled),
            finished=finished,
            promises_seen=effective,
        )
    )


def _merge_promises(context: TurnContext) -> None:
    """Make fewer files of promises, and forget the oldest where there are too many."""
    plan, ledger = context.plan, context.ledger
    merges = [
        merge
        for index, budget in remembered(plan).items()
        if index in ledger.promises
        for merge in choose_promise_merges(index, ledger.promises[index], budget)
    ]
    if not merges:
        return
    made = context.runner.map([each.bare() for each in merges], Job("expire", "merge files of punctuations"))
    remove: dict[str, tuple[str, ...]] = {}
    add: dict[str, PromiseFiles] = {}
    for merge, file in zip(merges, made, strict=True):
        names = tuple(each.name for each in merge.files)
        remove[merge.index] = remove.get(merge.index, ()) + names
        add[merge.index] = add.get(merge.index, PromiseFiles()).plus(merge.result(file))
    context.store.commit(PromisesMerged(remove, add))
    context.attic.take({each for names in remove.values() for each in names})  # a batch may be reading them
