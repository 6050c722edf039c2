"""Expiry: rows that no claim keeps go, a segment at a time or as their segment is rewritten.

Where partners make promises, segments are held against them now and then: rows that a promise has made useless are
counted, and a segment that has many of them is rewritten without them.

What goes when a row goes is settled in the same commit: `Rewritten.output` may carry results that only the end of a
row's use brings about.  A join of pairs has none; it is what waits for a row's end that answers here.

In:  what stages share.  Out: ``rewrite`` commits, and files that are deleted after the next commit.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from penstock.engine.readings.memory import is_tight
from penstock.engine.readings.needs import (
    claims_on,
    common_layout,
    passed,
    promises_before,
    promising_partners,
    settled_alike,
    settled_segments,
)
from penstock.engine.runners.runner import Job
from penstock.log.claims import is_ended
from penstock.log.commits import NumberedLayout, PromisesMerged, Rewritten
from penstock.log.promises import PromiseFiles, choose_promise_merges
from penstock.log.retention import choose_rewrites
from penstock.log.rewrite import FinishedTask, RewriteTask
from penstock.plan.promises import remembered

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.engine.units.joining import Joining
    from penstock.log.rewrite import RewrittenRun
    from penstock.log.segment import Segment
    from penstock.log.values import Layout
    from penstock.plan.stored import LogPlan

LOOK_SHARE = 256
"""A log is held against promises when one has taken effect for each so many of its rows."""

MOST_PATIENCE = 64
"""The most times `LOOK_SHARE`'s wait that a log waits: it doubles when a look ends less than one row in so many."""


def expire(joining: Joining) -> None:
    """Let go of what has ended, and rewrite what is worth it; not while a new query still needs the past."""
    if any(joining.lacking(group) for group in joining.plan.groups):
        return
    for log in joining.plan.logs:
        _look_for_finished(joining, log)
        expire_log(joining, log.id)
    if joining.ledger.promises:
        _merge_promises(joining)


def expire_log(joining: Joining, log: str) -> None:
    """Let go of what has ended in one log; segments that hold the same for everyone can be merged with each other."""
    for shared, settled in settled_alike(joining.plan, log, joining.ledger).items():
        _expire_alike(joining, log, settled, shared)


def _expire_alike(joining: Joining, log: str, settled: list[Segment], shared: Layout) -> None:
    ledger = joining.ledger
    common = common_layout(joining.plan, log, ledger, settled, shared, files=joining.store.files)
    ended = [each for each in settled if is_ended(each, common.claims[each.layout])]
    rest = [each for each in settled if each not in ended]
    claims = common.claims[settled[0].layout]
    reached = passed(joining.plan, log, ledger)
    tight = is_tight(joining.plan, log, ledger, joining.memory)
    runs = choose_rewrites(rest, claims, reached, common.claims, tight=tight)
    gone = [*ended, *(each for run in runs for each in run)]
    if not gone:
        return
    started = time.monotonic()
    onto = common if any(each.layout != common.layout for run in runs for each in run) else None
    stream = joining.plan.stream_of(log)
    tasks = [RewriteTask(log, tuple(each.bare() for each in run), tuple(claims), onto) for run in runs]
    made = joining.runner.map(tasks, Job("expire", f"merge segments of {stream}"))
    added = tuple(each.segment for each in made if each.segment)
    known = sum(each.finished for run in runs for each in run)
    is_new = added and common.layout not in ledger.layouts[log]
    joining.store.commit(
        Rewritten(
            log=log,
            remove=tuple(each.name for each in gone),
            add=added,
            layouts=(NumberedLayout(common.layout, shared),) if is_new else (),
            rows=sum(each.rows for run in runs for each in run),
            seconds=time.monotonic() - started,
            stream=stream,
            purged=max(0, sum(each.finished for each in made) - known),
            gone=_departed(made),
        )
    )
    for each in gone:
        joining.store.let_go(each.name)


def _departed(made: Sequence[RewrittenRun]) -> tuple[int, int] | None:
    """Say how many rows went before their window ended, and the newest event time of them."""
    newest = [each.newest for each in made if each.newest is not None]
    return (max(newest), sum(each.finished for each in made)) if newest else None


def _look_for_finished(joining: Joining, log: LogPlan) -> None:
    """Hold a log's segments against the promises of its partners, if enough have taken effect since the last time."""
    plan, ledger = joining.plan, joining.ledger
    if not promising_partners(plan, log):
        return
    settled = [each for each in settled_segments(plan, log.id, ledger) if not each.ends]
    effective, seen = promises_before(plan, log.id, ledger), ledger.promises_seen.get(log.id, 0.0)
    patience = joining.fruitless.get(log.id, 1)
    few = max(1, patience * (sum(each.rows for each in settled) // LOOK_SHARE))
    if not settled or effective - seen < (1 if joining.input_ended else few):
        return
    claims = {
        layout: claims_on(plan, log.id, ledger, layout, joining.store.files)
        for layout in {each.layout for each in settled}
    }
    tasks = [FinishedTask(each.bare(), tuple(claims[each.layout])) for each in settled]
    looked = joining.runner.map(tasks, Job("expire", f"look for finished rows of {log.stream}"))
    finished = {
        one.name: each.finished
        for one, each in zip(settled, looked, strict=True)
        if each.finished != one.finished
    }
    is_worth_it = sum(finished.values()) * MOST_PATIENCE >= sum(each.rows for each in settled)
    joining.fruitless[log.id] = 1 if is_worth_it else min(MOST_PATIENCE, 2 * patience)
    joining.store.commit(
        Rewritten(
            log=log.id,
            remove=(),
            stream=log.stream,
            purged=sum(max(0, finished.get(each.name, each.finished) - each.finished) for each in settled),
            finished=finished,
            promises_seen=effective,
        )
    )


def _merge_promises(joining: Joining) -> None:
    """Make fewer files of promises, and forget the oldest where there are too many."""
    plan, ledger = joining.plan, joining.ledger
    merges = [
        merge
        for index, budget in remembered(plan).items()
        if index in ledger.promises
        for merge in choose_promise_merges(index, ledger.promises[index], budget)
    ]
    if not merges:
        return
    made = joining.runner.map([each.bare() for each in merges], Job("expire", "merge files of punctuations"))
    remove: dict[str, tuple[str, ...]] = {}
    add: dict[str, PromiseFiles] = {}
    for merge, file in zip(merges, made, strict=True):
        names = tuple(each.name for each in merge.files)
        remove[merge.index] = remove.get(merge.index, ()) + names
        add[merge.index] = add.get(merge.index, PromiseFiles()).plus(merge.result(file))
    joining.store.commit(PromisesMerged(remove, add))
    joining.attic.take({each for names in remove.values() for each in names})  # a batch may be reading them
